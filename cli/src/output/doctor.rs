//! The texts of `vault doctor`: a message and a hint for each problem that the library finds in a
//! vault, and the same as JSON.

use std::{
    borrow::Borrow,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    name::{AgentId, SkillName},
    provenance::{Kind, ProvenanceId},
    time::Timestamp,
};
use vault_library::{
    AuthoredFile,
    agents::{Hidden, HiddenReason, ProfileWarning, VariantMaker},
    doctor::{DoctorFinding as Finding, RecordedSource, Remedy, Severity},
    keys::KeyError,
};

use crate::text::{clean, either, join, shell_path};

/// A problem that `vault doctor` found.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FindingText {
    /// Stable code of the problem, such as `git_missing`.
    pub code: &'static str,
    /// `error`, `warning` or `note`.
    pub severity: Severity,
    /// The message: one sentence without a full stop.
    pub message: String,
    /// The command or step that resolves it.
    pub hint: String,
    /// The skill concerned; null for a problem of no single skill.
    pub skill: Option<SkillName>,
    /// The file or folder concerned; null if there is none.
    pub path: Option<PathBuf>,
}

impl FindingText {
    /// Creates the message, hint and code for a finding of the library's checks.
    pub fn new(finding: &Finding) -> Self {
        Self {
            code: finding.code(),
            severity: finding.severity(),
            message: finding_message(finding),
            hint: finding_hint(finding),
            skill: finding.skill().cloned(),
            path: finding.path().map(Path::to_owned),
        }
    }

    /// Creates the warning that git is not installed.
    pub fn git_missing() -> Self {
        // The library does not look for programs on the `PATH`, so this is not one of its findings.
        Self {
            code: "git_missing",
            severity: Severity::Warning,
            message: "git is not installed".to_owned(),
            hint: "install it: vault add fetches repositories with it".to_owned(),
            skill: None,
            path: None,
        }
    }
}

impl FindingText {
    /// Creates the note that a skill names programs or variables that this machine does not have.
    pub fn needs_unmet(skill: &SkillName, unmet: &[String]) -> Self {
        Self {
            code: "needs_unmet",
            severity: Severity::Note,
            message: format!(
                "{skill} works with what this machine does not have: {}",
                join(unmet)
            ),
            hint: "install the program or set the variable, if you use that part of the skill"
                .to_owned(),
            skill: Some(skill.clone()),
            path: None,
        }
    }

    /// Creates the warning that a skill requires another one that is not installed. `command` adds it.
    pub fn requirement_missing(skill: &SkillName, requirement: &str, command: String) -> Self {
        Self {
            code: "requirement_missing",
            severity: Severity::Warning,
            message: format!("{skill} requires {requirement}, which is not installed"),
            hint: command,
            skill: Some(skill.clone()),
            path: None,
        }
    }
}

fn finding_message(finding: &Finding) -> String {
    // No wildcard here or in `hint`: a new finding of the library does not compile without its
    // texts.
    match finding {
        Finding::Key(error) => error.to_string(),
        Finding::Profile(warning) => profile_warning(warning).0,
        Finding::NotApproved { file, is_first, .. } => not_approved(file, *is_first),
        Finding::ProfilesInvalid(error) => error.to_string(),
        Finding::ForeignOwner(path) => format!("{} belongs to another user", path.display()),
        Finding::FolderUnusable(reason) => reason.clone(),
        Finding::OpenToOthers { path, mode } => {
            format!("others may write to {} (mode {mode:04o})", path.display())
        }
        Finding::ReadOnly(path) => format!("{} can't be written to", path.display()),
        Finding::NoRecoveryKey => {
            "every key of this vault is on this machine: if you lose it, you lose them too".into()
        }
        Finding::RecoveryCheckDue(checked_at) => {
            format!("the recovery key was last checked at {checked_at}")
        }
        Finding::ReleaseBehind(address) => release_behind(address),
        Finding::ReleaseEnds { address, at, .. } => {
            format!("the release at {} ends on {at}", clean(address, 200))
        }
        Finding::LinkExpired { address, since } => link_expired(address, *since),
        Finding::NotSignedAgain(skill) => {
            format!("{skill} was signed by a key that is revoked, and is not run")
        }
        Finding::ClockBehind { now, signed_at } => {
            format!("this machine's clock says {now}, but a skill was signed at {signed_at}")
        }
        Finding::ClockWasAhead { now, seen_at } => clock_was_ahead_text(*now, *seen_at),
        Finding::Unfinished => {
            "an interrupted command left files that are not part of the vault".to_owned()
        }
        Finding::SetAside(path) => format!("{} was moved aside and never signed", path.display()),
        Finding::ForeignInVault(path) => format!("{} does not belong to the vault", path.display()),
        Finding::EarlierVersions(count) => format!("{count} earlier bundles are kept"),
        Finding::EnvironmentUnset { skill, variables } => unset_message(skill, variables),
        Finding::IgnoredMetadata { skill, files } => ignored_metadata(skill, files),
        Finding::SkillDamaged { skill, damage, .. } => format!("{skill}: {damage}"),
        Finding::SkillsWithheld { vault, skills } => withheld_message(vault.as_deref(), skills),
        Finding::SkillUnsigned(skill) => {
            format!("{skill} was put into the vault's folder by hand and is not signed")
        }
        Finding::SkillFromElsewhere { skill, source, .. } => from_elsewhere(skill, source),
        Finding::NotStored {
            skill,
            folder,
            files,
        } => not_stored(skill, folder, files),
        Finding::NameTaken { skill, qualified } => {
            format!("{qualified} is shown to no agent: {skill} means another skill, or none")
        }
        Finding::SkillReplaced(skill) => {
            format!("{skill}: a folder is in the place of the signed skill")
        }
        Finding::RepairFailed { skill, reason } => format!("{skill} was not signed: {reason}"),
        Finding::VariantDamaged { skill, damage } => format!("a variant of {skill}: {damage}"),
        Finding::DanglingLink { path, .. } => format!("{} is a broken link", path.display()),
        Finding::RootMissing(path) => format!("{} no longer exists", path.display()),
        Finding::ProjectLinks { project, wrong } => wrong_links(project, wrong),
        Finding::ProjectMissing(path) => format!("the project {} no longer exists", path.display()),
        Finding::LinksStale => "agent links are out of date".to_owned(),
        Finding::AgentNotLinked(agents) => {
            format!("not linked to the vault's skills: {}", join_agents(agents))
        }
        Finding::ContextCost {
            agent,
            characters,
            bound,
        } => format!(
            "{agent} reads {bound} characters of its list of skills; yours has {characters}"
        ),
    }
}

/// Formats the message that this machine's clock was ahead before: it shows `now`, but has shown
/// `seen_at`.
pub fn clock_was_ahead_text(now: Timestamp, seen_at: Timestamp) -> String {
    format!(
        "this machine's clock says {now}, but it said {seen_at} before: releases that end earlier are refused"
    )
}

/// Returns the hint for withheld skills (installed, but not run, because their signer's key was
/// revoked). `is_linked` means that they come from a linked vault.
pub const fn withheld_hint(is_linked: bool) -> &'static str {
    either(
        is_linked,
        "withheld skills stay installed and are not run; after the owner's next release: vault cloud pull",
        "withheld skills stay installed and are not run; to scan and sign them again: vault sync",
    )
}

/// Formats the message about withheld skills. With the name of a linked vault, they wait for its
/// next release; otherwise they are this vault's own and wait to be signed again.
pub fn withheld_message<N: Borrow<SkillName>>(vault: Option<&str>, skills: &[N]) -> String {
    let (skills_are, them) = if skills.len() == 1 {
        ("skill is", "it")
    } else {
        ("skills are", "them")
    };
    let (number, names) = (skills.len(), join(skills.iter().map(Borrow::borrow)));
    let since = match vault {
        Some(vault) => format!("{} has published no release since", clean(vault, 64)),
        None => format!("this machine has not signed {them} again"),
    };
    format!(
        "{number} {skills_are} withheld: the key that signed {them} is revoked, and {since}: {names}"
    )
}

fn release_behind(address: &str) -> String {
    let address = clean(address, 200);
    format!("no release under the newest keys has been published to {address} from here")
}

fn link_expired(address: &str, since: Timestamp) -> String {
    let address = clean(address, 200);
    format!("the last release of {address} expired at {since}: nothing newer has arrived")
}

fn unset_message(skill: &SkillName, variables: &[String]) -> String {
    let unset = variables.join(", ");
    format!("{skill} needs the variable {unset}, which is not set")
}

fn ignored_metadata(skill: &SkillName, files: &[String]) -> String {
    let files = files.join(", ");
    format!("{skill}: {files} is not part of the signed skill")
}

fn from_elsewhere(skill: &SkillName, source: &RecordedSource) -> String {
    // The text comes from the skill or from an installer's lock file, and nothing verifies it.
    let (tool, text) = (source.tool, clean(&source.text, 200));
    format!("{skill} is not signed, and {tool} records that it came from {text}")
}

fn not_stored(skill: &SkillName, folder: &Path, files: &[String]) -> String {
    let (files, folder) = (clean(&files.join(", "), 200), folder.display());
    format!("{skill}: the vault does not hold {files}, so it is in {folder}")
}

fn wrong_links(project: &Path, wrong: &[PathBuf]) -> String {
    let wrong = join(wrong.iter().map(|path| path.display()));
    format!(
        "{}: changed since vault install: {wrong}",
        project.display()
    )
}

/// Formats the message that a hand-edited file waits for approval, and which part of it counts
/// until then. `is_first` means that no version of it was ever approved.
pub fn not_approved(file: &AuthoredFile, is_first: bool) -> String {
    // Before the first approval, `[sources]` can only forbid: without a policy, everything may be
    // fetched.
    if is_first && *file == AuthoredFile::Policy {
        return format!(
            "{file} is not approved: its [sources] limit what may be fetched, and the rest has no \
             effect yet"
        );
    }
    format!("{file} has changes that are not approved and have no effect yet")
}

fn finding_hint(finding: &Finding) -> String {
    let fixed = match finding {
        Finding::Key(error) => return key_hint(error),
        Finding::Profile(warning) => return profile_warning(warning).1,
        Finding::NotApproved { file, .. } => {
            return format!("vault approve {file} shows what changed and asks");
        }
        Finding::ForeignOwner(path) => {
            // People paste these commands. Without quotes, the name of a folder could run as a
            // command.
            return format!("chown -R $(id -un) {}", shell_path(path.display()));
        }
        Finding::FolderUnusable(_) => "make it a folder of this user",
        Finding::OpenToOthers { path, .. } => {
            return format!("chmod go-w {}", shell_path(path.display()));
        }
        Finding::SetAside(path) => {
            return format!("vault add {0}, then rm -r {0}", shell_path(path.display()));
        }
        Finding::EnvironmentUnset { variables, .. } => {
            return format!("export {}=…", variables.first().map_or("", String::as_str));
        }
        Finding::SkillDamaged { skill, remedy, .. } => return remedy_hint(skill, remedy),
        Finding::SkillsWithheld { vault, .. } => withheld_hint(vault.is_some()),
        Finding::SkillUnsigned(skill) => return unsigned_hint(skill),
        // Do not suggest `--repair`: it would sign the skill as if it was written here. `vault add`
        // scans it as a new one.
        Finding::SkillFromElsewhere { skill, path, .. } => return move_out_hint(skill, path),
        Finding::SkillReplaced(skill) => {
            return format!("read it; then vault add <folder>, or vault rollback {skill}");
        }
        Finding::RepairFailed { skill, .. } => {
            return format!("vault add <folder> --name {skill} --replace, once that is fixed");
        }
        Finding::NameTaken { qualified, .. } => {
            return format!("vault link prefer {qualified} gives it the bare name");
        }
        Finding::VariantDamaged { skill, .. } => {
            return format!(
                "vault transform list {skill}; add the transform again, or pull the skill's vault"
            );
        }
        Finding::ProjectLinks { project, .. } => {
            return format!("cd {} && vault install", shell_path(project.display()));
        }
        Finding::ContextCost { agent, .. } => {
            return format!("vault disable <name> --agent {agent} shortens it");
        }
        Finding::ReadOnly(_) => "skills can be read and run; nothing can be added or removed",
        Finding::NoRecoveryKey => {
            "vault key recovery create <file>, on a USB stick or another machine"
        }
        Finding::RecoveryCheckDue(_) => "vault key recovery check <file>, once a year",
        Finding::ReleaseBehind(_) => "vault sync --cloud, while connected to it",
        Finding::ReleaseEnds { own, .. } => release_ends_hint(*own),
        Finding::LinkExpired { .. } => {
            "vault cloud pull; if that brings nothing, ask the owner for a new release"
        }
        Finding::NotSignedAgain(_) => "vault sync --cloud lists the skills and signs them again",
        Finding::ClockBehind { .. } => {
            "set the clock: releases expire by it, and services refuse requests that are 300 s off"
        }
        Finding::ClockWasAhead { .. } => {
            "check the clock; if it is right now: vault doctor --reset-clock"
        }
        Finding::Unfinished => "vault doctor --clean removes it, as the next change does",
        Finding::ForeignInVault(_) | Finding::NotStored { .. } => "move it elsewhere",
        Finding::EarlierVersions(_) => "a rollback can go back to them",
        Finding::IgnoredMetadata { .. } => "vault doctor --clean removes it",
        Finding::DanglingLink { ours, .. } => dangling_hint(*ours),
        Finding::ProfilesInvalid(_) => "fix profiles.toml in the vault's folder",
        Finding::RootMissing(_) | Finding::ProjectMissing(_) => "vault doctor --clean forgets it",
        Finding::LinksStale => "vault sync-profiles",
        Finding::AgentNotLinked(_) => "vault sync-profiles --discover",
    };
    fixed.to_owned()
}

/// Returns the hint for a skill without a signature: to read it before it is signed. A signature
/// vouches for the content, and anyone who can write to the folder may have put it there.
fn unsigned_hint(skill: &SkillName) -> String {
    format!("read it, then: vault doctor {skill} --repair signs it")
}

fn release_ends_hint(own: bool) -> &'static str {
    if own {
        "vault sync renews it"
    } else {
        "its owner renews it with vault sync; until then nothing changes here"
    }
}

fn dangling_hint(ours: bool) -> &'static str {
    if ours {
        "vault doctor --clean removes it"
    } else {
        "remove it, or restore what it points to"
    }
}

fn join_agents(agents: &[AgentId]) -> String {
    let agents: Vec<_> = agents.iter().map(AgentId::as_str).collect();
    agents.join(", ")
}

fn key_hint(error: &KeyError) -> String {
    match error {
        KeyError::Missing(_) => {
            "restore it from the original of this copy; or ask an owner to let this machine publish: vault publishers request <url>/v/<slug>; with the recovery key: vault key recovery use <file>"
                .to_owned()
        }
        KeyError::Open { path, .. } => format!("chmod go-rwx {}", shell_path(path.display())),
        KeyError::Foreign(path) => format!("chown $(id -un) {}", shell_path(path.display())),
        KeyError::Malformed { .. } | KeyError::Mismatch(_) => {
            "restore the file from a backup, or run vault key recovery use <file>".to_owned()
        }
        KeyError::Locked(_)
        | KeyError::WrongPassphrase(_)
        | KeyError::Passphrase(_)
        | KeyError::Encrypt { .. } => {
            "run it on a terminal, or name a file: VAULT_KEY_PASSPHRASE_FILE".to_owned()
        }
        KeyError::InAgent(_) | KeyError::Agent(_) => {
            "start the agent that holds the key, or unlock it: ssh-add -l lists its keys".to_owned()
        }
        KeyError::File(_) => "give this user the right to read it".to_owned(),
    }
}

fn move_out_hint(skill: &SkillName, path: &Path) -> String {
    let path = shell_path(path.display());
    format!("read it, move it out of the vault (mv {path} .), then: vault add ./{skill}")
}

fn remedy_hint(skill: &SkillName, remedy: &Remedy) -> String {
    match remedy {
        Remedy::Pull => "vault cloud pull brings it back".to_owned(),
        Remedy::Install(project) => {
            let project = shell_path(project.display());
            format!("cd {project} && vault install brings it back")
        }
        Remedy::Clean => format!("vault doctor {skill} --clean removes it"),
        Remedy::AddAgain(source) => add_again_hint(source.as_ref()),
        Remedy::AddLocal(path) => {
            // The folder may hold the skill under another name. Without `--name`, a second skill
            // would be added and this one would stay damaged.
            let is_named = path.file_name().is_some_and(|name| name == skill.as_str());
            let name = if is_named {
                String::new()
            } else {
                format!(" --name {skill}")
            };
            format!("vault add {}{name}", path.display())
        }
    }
}

fn add_again_hint(source: Option<&ProvenanceId>) -> String {
    match source.map(|source| (source, source.kind())) {
        // A `local:` source has no path that could be added again.
        Some((source, Kind::Local)) => {
            format!("vault add <folder>, with the folder that it was added from ({source})")
        }
        Some((_, Kind::Inline)) => "submit its text again".to_owned(),
        Some((source, _)) => format!("vault add {source}"),
        None => "vault add <source>, with the source that it came from".to_owned(),
    }
}

/// Returns the message and the hint of a warning about profiles.
pub fn profile_warning(warning: &ProfileWarning) -> (String, String) {
    match warning {
        ProfileWarning::SkillDamaged(skill) => (
            format!("{skill} was modified after signing and is hidden from all agents"),
            format!("vault doctor {skill}"),
        ),
        ProfileWarning::TransformFailed {
            skill,
            agent,
            reason,
        } => (
            format!("{agent} sees {skill} without its transforms: {reason}"),
            format!("fix it and add it again: vault transform add {skill} <file>"),
        ),
        ProfileWarning::ForeignInProfiles(path) => (
            format!("{} does not belong to the vault and was left alone", path.display()),
            "move it elsewhere: this folder is made by vault sync-profiles".to_owned(),
        ),
        ProfileWarning::RootInVault(path) => (
            format!("{} points into the vault itself", path.display()),
            format!("replace it with a folder: rm {0} && mkdir {0}", path.display()),
        ),
        ProfileWarning::RootBehindLink(path) => (
            format!("{} points out of its project through a link, so nothing is linked there", path.display()),
            "replace the link with a folder".to_owned(),
        ),
        ProfileWarning::RootMissing(path) => (
            format!("{} no longer exists", path.display()),
            "vault doctor --clean forgets it; vault sync-profiles --discover links into what is there"
                .to_owned(),
        ),
    }
}

/// The reason for which an agent sees a skill that is not meant for it: agents may share a folder.
pub const THROUGH_FOLDER: &str = "only because another agent with the same folder gets it";

/// Describes who made an agent's variant of a skill: a copy with changed files that only this agent
/// gets.
pub const fn variant_maker(by: VariantMaker) -> &'static str {
    match by {
        VariantMaker::Transform => "a transform of this vault",
        VariantMaker::Publisher => "the vault that publishes it",
        VariantMaker::SharedFolder => {
            "its publisher or a transform for another agent with the same folder"
        }
    }
}

/// A skill that an agent does not see.
#[derive(Debug, JsonSchema, Serialize)]
pub struct HiddenSkill {
    /// Name under which the skill is installed.
    skill: SkillName,
    /// The stable code of the reason.
    code: &'static str,
    /// The reason: a clause without a full stop.
    pub reason: String,
    /// What makes the agent see it.
    pub hint: String,
}

impl HiddenSkill {
    pub const fn skill(&self) -> &SkillName {
        &self.skill
    }

    /// Creates the reason and the hint for a skill that this agent does not see.
    pub fn new(agent: &AgentId, hidden: &Hidden) -> Self {
        let (reason, hint) = match &hidden.reason {
            HiddenReason::Disabled => (
                "it is disabled for this agent".to_owned(),
                format!("vault enable {}", hidden.skill),
            ),
            HiddenReason::OtherAgents(agents) => (
                format!("it is for {} only", join_agents(agents)),
                format!("add it again with --agent {agent}"),
            ),
            HiddenReason::Profile => (
                "no profile of this agent includes it".to_owned(),
                "change profiles.toml in the vault's folder, then vault sync-profiles".to_owned(),
            ),
            HiddenReason::Published => (
                "the vault that publishes it leaves it out for this agent".to_owned(),
                "its owner decides: profiles.toml of that vault".to_owned(),
            ),
            HiddenReason::Foreign(path) => (
                format!(
                    "{} has the same name and is not from the vault",
                    path.display()
                ),
                "vault setup --review imports it into the vault".to_owned(),
            ),
            HiddenReason::NotSynced => (
                "the agent's folder is out of date".to_owned(),
                "vault sync-profiles".to_owned(),
            ),
        };
        Self {
            skill: hidden.skill.clone(),
            code: hidden.reason.code(),
            reason,
            hint,
        }
    }
}
