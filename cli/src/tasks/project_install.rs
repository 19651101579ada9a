//! Installs single skills for a project as `vault.lock` names them, and links them in its folders.

use std::collections::BTreeSet;

use vault_format::{bundle::File, hash::Digest, name::SkillName};
use vault_gate::RawFile;
use vault_gate::requirements::{StatedRequirement, read_requirements};
use vault_library::{
    Examined, Vault,
    admit::{
        self, AdmitError, AdmitReport, Candidate, Neighbours, Options, examine_candidate, history,
        project::install_for_project,
    },
    agents::{ProjectLinks, link_project},
    project::{self, ProjectFolder},
};
use vault_shelf::fetch::{FetchedSkill, Upstream};
use vault_sources::{BadSource, ChoiceError, Part, Source, git_commit};
use vault_store::clock::{Clock as _, SystemClock};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BOLD, TICK, clean},
    tasks::{
        admission::{admission_failure, admitted_text, texts::Texts},
        fetch::{self, Fetching},
        project_lock::{self, LockEntry},
    },
};

/// The content of a skill that is to be installed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The content that the entry of the lock names; that of its source if it names none.
    Locked,
    /// The content that its source has now.
    Current,
}

/// Installs skills for one project.
pub struct ProjectInstaller<'a> {
    context: &'a Context,
    /// The vault that stores the bytes; `None` until a skill passes the gate, if there is none yet.
    vault: Option<Vault>,
    folder: ProjectFolder,
    fetching: Option<Fetching>,
    strict: bool,
}

impl<'a> ProjectInstaller<'a> {
    /// Opens the vault if it exists; never creates one.
    pub fn new(context: &'a Context, folder: ProjectFolder) -> Result<Self, Failure> {
        Ok(Self {
            context,
            vault: context.existing_vault()?,
            folder,
            fetching: None,
            strict: context.is_strict()?,
        })
    }

    /// The folder of the project.
    pub const fn folder(&self) -> &ProjectFolder {
        &self.folder
    }

    /// The installed skills that new ones are compared with.
    pub fn neighbours(&self) -> Neighbours<'_> {
        Neighbours::for_project(self.vault.as_ref(), &self.folder, SystemClock.now())
    }

    /// Installs the skill of a lock entry. The report is `None` if that content was installed
    /// already. Also returns the new lock entry, if the entry had no digest or the current content
    /// is wanted.
    pub fn install_entry(
        &mut self,
        locked: &LockEntry,
        wanted: Wanted,
    ) -> Result<(Option<AdmitReport>, Option<LockEntry>), Failure> {
        let resolves = locked.digest.is_none() || wanted == Wanted::Current;
        // A folder of the project is always read: if it changed after the lock was written, every other
        // clone would fail.
        if let (Some(digest), false) = (&locked.digest, resolves || locked.is_folder())
            && self.installed_digest(&locked.name)?.as_ref() == Some(digest)
        {
            return Ok((None, None));
        }
        let candidate = self.examine_entry(locked, wanted)?;
        let digest_now = project_lock::candidate_digest(&candidate);
        // Check the digest before anything is stored: only the locked bytes may be installed,
        // whatever the source serves now.
        if let (Some(digest), false) = (&locked.digest, resolves) {
            check_digest(digest, &digest_now, &candidate)?;
        }
        let report = self.install_candidate(&candidate)?;
        let settled = resolves.then(|| resolved_entry(self.context, locked, &candidate));
        if !report.is_change() {
            return Ok((None, settled));
        }
        self.context.ui.print_line(admitted_text(&report));
        Ok((Some(report), settled))
    }

    /// Installs a skill that passed the gate.
    pub fn install_candidate(&mut self, candidate: &Candidate) -> Result<AdmitReport, Failure> {
        // Check this before anything is stored, so that only this skill fails.
        self.folder.check_place(&candidate.package.name)?;
        // Create the vault only after a skill has passed the gate, so that a rejected lock leaves no
        // vault behind. A project needs none of the user's keys, so create none.
        let vault = match &mut self.vault {
            Some(vault) => vault,
            none => none.insert(self.context.vault_for_links()?),
        };
        let name = candidate.package.name.as_str();
        install_for_project(vault, &self.folder, candidate)
            .map_err(|error| project_failure(name, &Texts::of_fetched(name, &[]), error))
    }

    /// Returns the names of the installed skills.
    pub fn installed_names(&self) -> Result<BTreeSet<SkillName>, Failure> {
        let project = match &self.vault {
            Some(vault) => project::find_project(vault, &self.folder)?,
            None => None,
        };
        let names = project.iter().flat_map(project::Project::skill_names);
        Ok(names.cloned().collect())
    }

    /// Returns the content digest of the project's installed skill of this name, if it is intact.
    fn installed_digest(&self, name: &SkillName) -> Result<Option<Digest>, Failure> {
        let installed = self.read_installed(name)?;
        Ok(installed.as_ref().map(project_lock::digest_of_installed))
    }

    /// Reads the project's installed skill of this name, if it is intact.
    fn read_installed(&self, name: &SkillName) -> Result<Option<Examined>, Failure> {
        let Some(vault) = &self.vault else {
            return Ok(None);
        };
        let project = project::find_project(vault, &self.folder)?;
        let read = project.and_then(|project| project.read_skill(vault, name));
        // A damaged skill counts as missing, so that `vault install` repairs it.
        Ok(read.and_then(Result::ok))
    }

    /// Links the skills of the lock in the project's folders, and removes links and skills that the
    /// lock no longer names.
    pub fn link_skills(&self, names: &BTreeSet<SkillName>) -> Result<ProjectLinks, Failure> {
        let context = self.context;
        let Some(vault) = &self.vault else {
            return Ok(ProjectLinks::default());
        };
        // In remote mode, the user's agents are not on this machine.
        let is_remote = context.settings()?.text("VAULT_MODE") == Some("remote");
        let machine = context
            .process
            .describe_machine(None)
            .filter(|_| !is_remote);
        let links = link_project(vault, &self.folder, names, machine.as_ref())?;
        for name in &links.removed {
            let line = format!("{TICK} removed {BOLD}{name}{BOLD:#}");
            context.ui.print_line(line);
        }
        for path in &links.refused {
            let path = clean(&path.display().to_string(), 400);
            let text =
                format!("{path} is a symbolic link or not a folder, so no skill was linked there");
            let hint =
                "agents find the skills in .vault/skills; make it a plain folder of the project";
            context.ui.warn_with("project_folder_refused", text, hint);
        }
        for path in &links.unignored {
            let path = clean(&path.display().to_string(), 400);
            let text = format!("{path} was left unchanged, so git shows the links in its folder");
            let hint = "it is a link, a folder or larger than 1 MiB, or its lines between BEGIN vault and END vault are broken; remove them, then run vault install";
            context.ui.warn_with("links_not_ignored", text, hint);
        }
        for path in &links.foreign {
            let path = clean(&path.display().to_string(), 400);
            let text = format!("{path} already exists and was left unchanged");
            let hint = "agents see it instead of the project's skill; move it away, then run vault install";
            context.ui.warn_with("foreign_skill", text, hint);
        }
        Ok(links)
    }

    /// Returns the files that a lock entry names: those that are installed, or else those of its
    /// source. An entry without a digest names none.
    pub fn locked_files(&mut self, locked: &LockEntry) -> Result<Vec<File>, Failure> {
        let Some(digest) = locked.digest else {
            return Ok(Vec::new());
        };
        let installed = self.read_installed(&locked.name)?;
        if let Some(installed) = installed
            && project_lock::digest_of_installed(&installed) == digest
        {
            return Ok(installed.files);
        }
        let (_, candidate) = self.judge_source(locked, Wanted::Locked)?;
        check_digest(
            &digest,
            &project_lock::candidate_digest(&candidate),
            &candidate,
        )?;
        Ok(candidate.package.files)
    }

    /// Reads or fetches the skill of a lock entry, and runs the gate on it. Shows its findings.
    pub fn examine_entry(
        &mut self,
        locked: &LockEntry,
        wanted: Wanted,
    ) -> Result<Candidate, Failure> {
        let (texts, candidate) = self.judge_source(locked, wanted)?;
        texts.warn_about_findings(self.context, &candidate.package.findings);
        Ok(candidate)
    }

    /// Like [`Self::examine_entry`], without showing findings.
    pub fn judge_entry(
        &mut self,
        locked: &LockEntry,
        wanted: Wanted,
    ) -> Result<Candidate, Failure> {
        Ok(self.judge_source(locked, wanted)?.1)
    }

    fn judge_source(
        &mut self,
        locked: &LockEntry,
        wanted: Wanted,
    ) -> Result<(Texts, Candidate), Failure> {
        let (label, source) = match locked.source.strip_prefix("./") {
            Some(inner) => {
                // A lock comes with a repository, whose author must not make vault read folders
                // outside the project.
                if inner.starts_with('/') || inner.split('/').any(|part| part == "..") {
                    let source = clean(&locked.source, 200);
                    return Err(fail!(LockOutside, "{source} is outside the project"));
                }
                let source = admit::Source::InProject {
                    project: self.folder.clone(),
                    path: inner.to_owned(),
                };
                let shown = self.folder.path().join(inner).display().to_string();
                (shown, source)
            }
            None => {
                let fetched = match self.stored_skill(locked, wanted)? {
                    Some(stored) => stored,
                    None => self.fetch_entry(locked, wanted)?,
                };
                let source = admit::Source::Fetched(Box::new(fetched));
                (clean(&locked.source, 200), source)
            }
        };
        let texts = Texts::of_source(&label, &source);
        let options = Options {
            name: Some(locked.name.clone()),
            agents: locked.agents.clone(),
            include: locked.include.clone(),
            strict: self.strict,
            ..Options::default()
        };
        let candidate = examine_candidate(source, &options, &mut self.neighbours())
            .map_err(|error| project_failure(&label, &texts, error))?;
        Ok((texts, candidate))
    }

    /// Returns the locked content if this machine has it already from the same revision of the same
    /// source: as a skill of the user's own, or of another project such as a second clone.
    fn stored_skill(
        &self,
        locked: &LockEntry,
        wanted: Wanted,
    ) -> Result<Option<FetchedSkill>, Failure> {
        let (Some(vault), Some(upstream), Wanted::Locked) =
            (&self.vault, locked.upstream(), wanted)
        else {
            return Ok(None);
        };
        // No other machine could have such a source.
        if ["local:", "inline:"]
            .iter()
            .any(|kind| locked.source.starts_with(kind))
        {
            return Ok(None);
        }
        // The policy may have changed since the bytes were fetched, and only the fetcher applies it.
        if fetch::has_source_policy(self.context)? {
            return Ok(None);
        }
        let is_locked = |found: &Examined| {
            let from = &found.manifest.provenance;
            from.identifier == upstream.identifier
                && from.revision == upstream.revision
                && Some(project_lock::digest_of_installed(found)) == locked.digest
        };
        // Skip damaged records and skills: their bytes are fetched again.
        let projects = project::list_projects(vault).unwrap_or_default();
        let of_projects = projects
            .iter()
            .filter_map(|project| project.read_skill(vault, &locked.name)?.ok());
        let own = || history::read_installed(vault, &locked.name).ok().flatten();
        let found = of_projects
            .chain(std::iter::once_with(own).flatten())
            .find(is_locked);
        Ok(found.map(|found| FetchedSkill {
            files: found.files.into_iter().map(RawFile::from).collect(),
            folder: None,
            upstream,
        }))
    }

    /// Fetches exactly the locked content. If the entry has no digest, or the current
    /// content is wanted, fetches what its source has now.
    fn fetch_entry(&mut self, locked: &LockEntry, wanted: Wanted) -> Result<FetchedSkill, Failure> {
        let context = self.context;
        context.require_network()?;
        let fetching = match &mut self.fetching {
            Some(fetching) => fetching,
            // Do not use [`Fetching::new`]: the author of the repository wrote these sources, and
            // must not make this machine contact services on loopback.
            none => none.insert(Fetching::for_project(context)?),
        };
        let bar = context
            .ui
            .start_spinner(format!("Fetching {}", locked.name));
        let fetched = context.block_on(async {
            let Some(upstream) = locked.upstream() else {
                return fetch_current(fetching, locked).await;
            };
            // A branch may have moved since the lock was written, so request the recorded commit or
            // version.
            let requested = match wanted {
                Wanted::Current => upstream.clone(),
                Wanted::Locked => at_revision(&upstream),
            };
            let request = fetching
                .fetcher
                .fetch_recorded(&requested, &fetching.policy);
            let mut skill = request
                .await
                .map_err(|error| fetch::fetch_failure(&error))?;
            // Record the branch or tag of the lock entry, and not the exact revision that was
            // requested, so that later updates follow the branch.
            skill.upstream.reference.clone_from(&upstream.reference);
            Ok(skill)
        });
        drop(bar);
        fetched
    }
}

/// Returns what a skill that passed the gate requires. Warns if the text cannot be read, because
/// nothing comes along then.
pub fn stated_requirements(context: &Context, candidate: &Candidate) -> Vec<StatedRequirement> {
    let package = &candidate.package;
    read_requirements(&package.frontmatter.metadata).unwrap_or_else(|unreadable| {
        let text = clean(&format!("{}: {unreadable}", package.name), 400);
        let hint = "nothing comes along with it; vault lint shows the form";
        context.ui.warn_with("requirement_unreadable", text, hint);
        Vec::new()
    })
}

/// Creates the new entry of a skill that was read for this one.
pub fn resolved_entry(context: &Context, locked: &LockEntry, candidate: &Candidate) -> LockEntry {
    // A folder of the project has no upstream. Its entry only gets the digest.
    let entry = project_lock::locked_entry(candidate).unwrap_or_else(|| LockEntry {
        digest: Some(project_lock::candidate_digest(candidate)),
        ..locked.clone()
    });
    LockEntry {
        agents: locked.agents.clone(),
        requires: stated_requirements(context, candidate),
        as_requirement: locked.as_requirement,
        unknown: locked.unknown.clone(),
        ..entry
    }
}

/// Converts the error of admitting a skill of a project, whose remedies are not those of a skill of
/// the user's own.
pub fn project_failure(source: &str, texts: &Texts, error: AdmitError) -> Failure {
    let failure = admission_failure(source, texts, error);
    if failure.code == ErrorCode::GateBlocked {
        failure.hint("a project takes no exceptions: change the skill, or leave it out")
    } else if failure.code == ErrorCode::NameTwice {
        failure.hint("add one of them separately: vault add <folder> --project --name <other>")
    } else {
        failure
    }
}

/// Fetches what the source has now, for a lock entry without a digest.
async fn fetch_current(fetching: &Fetching, locked: &LockEntry) -> Result<FetchedSkill, Failure> {
    // In a lock file, `owner/repository` is always a repository, because folders of the project
    // start with `./`.
    let source = Source::parse(&locked.source, &fetching.options, &|_| false)
        .or_else(BadSource::accept_shorthand)
        .map_err(|bad| fetch::bad_source(&bad))?;
    // In a lock, `.` is the root of an archive.
    let path = locked.path.as_deref().filter(|path| *path != ".");
    let (source, path) = fetch::refine_source(source, path, locked.reference.as_deref())?;
    let failed = |error: vault_sources::FetchError| fetch::fetch_failure(&error);
    let (fetcher, policy, name) = (&fetching.fetcher, &fetching.policy, locked.name.as_str());
    let opened = fetcher
        .open_part(&source, Part { path, plugin: None }, policy)
        .await
        .map_err(failed)?;
    let listing = &opened.listing;
    let names_folder = path.is_some()
        || matches!(&source, Source::Git(git) if git.path.is_some() || !git.tail.is_empty());
    let names_skill = match &source {
        Source::ClawHub { .. } | Source::Registry { .. } | Source::SkillMd(_) => true,
        Source::WellKnown { skill, .. } => skill.is_some(),
        _ => false,
    };
    let found = match (listing.find_skill(name), listing.default_skill()) {
        // The entry may name the skill differently than its source does. Then accept the only skill
        // if the entry names its folder or the skill itself; otherwise it could be another skill.
        (Err(ChoiceError::Unknown(_)), Some(found))
            if names_folder
                || listing.skills.len() == 1 && (names_skill || found.folder.is_empty()) =>
        {
            Ok(found)
        }
        (found, _) => found,
    };
    let found =
        found.map_err(|error| fetch::choice_failure(&source.display_name(), listing, &error))?;
    fetcher
        .take_skill(&opened, found, policy)
        .await
        .map_err(failed)
}

/// Returns the upstream with the recorded revision as its reference, if the source can serve
/// revisions: Git serves commits, a registry serves versions.
fn at_revision(upstream: &Upstream) -> Upstream {
    let exact = upstream.revision.clone().filter(|revision| {
        git_commit(revision)
            || upstream.identifier.as_str().starts_with("registry:")
                && !revision.starts_with("sha256:")
    });
    Upstream {
        reference: exact.or_else(|| upstream.reference.clone()),
        ..upstream.clone()
    }
}

fn check_digest(wanted: &Digest, found: &Digest, candidate: &Candidate) -> Result<(), Failure> {
    if wanted == found {
        return Ok(());
    }
    let (left_out, name) = (&candidate.secrets.left_out, &candidate.package.name);
    // Files that look like secrets were left out of this digest. They are the likely reason for the
    // difference, so name them.
    if !left_out.is_empty() {
        let files = clean(&left_out.join(", "), 400);
        return Err(fail!(
            LockDigest,
            "without the files that look like secrets ({files}), the source differs from the lock"
        )
        .hint(format!(
            "{name} was not installed; to take such a file, name it under `include` in vault.lock"
        )));
    }
    Err(fail!(
        LockDigest,
        "the source differs from the lock (sha256 {found}, not {wanted})"
    )
    .hint(format!(
        "{name} was not installed; if the change is intended: vault update {name} --project"
    )))
}
