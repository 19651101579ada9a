//! Converts errors of the library and of the file formats into failures of a command.

use std::io::ErrorKind;

use serde_json::json;
use vault_format::{
    catalog::{CatalogError, OutdatedProposal},
    manifest::ManifestError,
    name::{AgentId, SkillName},
    root::{MAX_THRESHOLD, RootError, RootWriteError, SignerRefusal},
};
use vault_gate::finding::Level;
use vault_library::{
    BeneathError, Damage, LockError, PROFILES_FILE, VaultError,
    admit::AdmitError,
    adopt::AdoptError,
    keys::KeyError,
    project::ProjectError,
    publish::{Conflicts, Difference, PlanError, ProposalError},
    recovery::RecoveryError,
    roots::RootsError,
    run::RunError,
    subscribe::LinkError,
};

use super::{ErrorCode, Failure, message_chain};
use crate::text::{clean, either, format_flagged, format_key, join, nearest_name, shell_path};

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let message = message_chain(&error);
        match error {
            VaultError::Missing(_) => Self::new(ErrorCode::NoVault, message)
                .hint("vault add <folder> creates one with its first skill"),
            VaultError::Swapped(ref swapped) => {
                Self::new(ErrorCode::VaultSwapped, &message).hint(format!(
                    "vault restore <backup> brings it back; to begin another vault there: rm -r {}",
                    shell_path(swapped.record.display())
                ))
            }
            VaultError::Earlier { ref path } => {
                let folder = path.parent().unwrap_or(path).display();
                Self::new(ErrorCode::VaultEarlier, &message).hint(format!(
                    "move it away, then: vault import --from-vault <folder> (it is {folder} now)"
                ))
            }
            VaultError::Untrusted(_) => Self::new(ErrorCode::VaultUntrusted, message).hint(
                "vault restore <backup> restores its keys, vault key recovery use <file> creates new ones",
            ),
            VaultError::ForLinks(_) => Self::new(ErrorCode::NotPublisher, message)
                .hint("vault add <folder> creates a key with the first skill"),
            VaultError::NoReleaseKey(_) => Self::new(ErrorCode::NotPublisher, message)
                .hint("ask an owner to let this machine publish: vault publishers request <url>/v/<slug>; with the recovery key: vault key recovery use <file>"),
            VaultError::Roots(ref error) => error.into(),
            VaultError::Root(_) => Self::new(ErrorCode::RootNotMade, message),
            VaultError::Format { .. } => Self::new(ErrorCode::VaultFormat, message),
            VaultError::Damaged { .. } => Self::new(ErrorCode::VaultDamaged, message),
            VaultError::KeysInside(_) => Self::new(ErrorCode::KeysInsideVault, message)
                .hint("set XDG_CONFIG_HOME, or --vault, to a folder outside the other"),
            VaultError::WritableByOthers { ref path, .. } => {
                Self::new(ErrorCode::FolderOpenToOthers, message)
                    .hint(format!("chmod go-w {}", shell_path(path.display())))
            }
            VaultError::OfAnotherUser(ref path) => {
                Self::new(ErrorCode::FolderOfAnotherUser, message)
                    .hint(format!("chown -R $(id -un) {}", shell_path(path.display())))
            }
            VaultError::Lock(LockError::Busy { .. }) => Self::new(ErrorCode::VaultBusy, message)
                .hint("another vault command is running; try again"),
            VaultError::Key(error) => error.into(),
            VaultError::Lock(LockError::File(failed)) | VaultError::File(failed) => {
                Self::of_disk(message, &failed.cause)
            }
        }
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let message = message_chain(&error);
        match error {
            KeyError::Open { path, .. } => {
                // A folder needs the execute bit to be entered.
                let mode = if path.is_dir() { "700" } else { "600" };
                Self::new(ErrorCode::KeyOpenToOthers, message)
                    .hint(format!("chmod {mode} {}", shell_path(path.display())))
            }
            KeyError::Missing(_) => Self::new(ErrorCode::KeyMissing, message).hint(
                "a copied vault has no keys: copy the key file, or work on the machine that has it",
            ),
            // Ctrl-C at the prompt is not a missing passphrase.
            KeyError::Passphrase(cause) if cause.kind() == ErrorKind::Interrupted => {
                Self::new(ErrorCode::Interrupted, "interrupted")
            }
            KeyError::Locked(_) | KeyError::Passphrase(_) => {
                Self::new(ErrorCode::KeyLocked, message)
                    .hint("run it on a terminal, or name a file: VAULT_KEY_PASSPHRASE_FILE")
            }
            KeyError::WrongPassphrase(_) => Self::new(ErrorCode::PassphraseWrong, message),
            KeyError::Encrypt { .. } => Self::new(ErrorCode::Io, message),
            KeyError::Foreign(_) => Self::new(ErrorCode::KeyOfAnotherUser, message),
            KeyError::Malformed { .. } | KeyError::Mismatch(_) => {
                Self::new(ErrorCode::KeyDamaged, message)
            }
            KeyError::InAgent(_) | KeyError::Agent(_) => Self::new(ErrorCode::SshAgent, message)
                .hint(
                    "ssh-add -l lists the agent's keys; ssh-add <file> adds one, ssh-add -X unlocks it",
                ),
            KeyError::File(failed) => Self::of_disk(message, &failed.cause),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let message = message_chain(&error);
        match error {
            RunError::UnknownSkill(_) => Self::new(ErrorCode::SkillNotFound, message),
            RunError::UnknownAction {
                skill, declared, ..
            } => {
                let names: Vec<_> = declared.iter().map(ToString::to_string).collect();
                Self::new(ErrorCode::ActionNotFound, message).hint(if names.is_empty() {
                    format!("{skill} declares no actions")
                } else {
                    format!("it declares: {}", names.join(", "))
                })
            }
            RunError::Damaged { skill, damage } => Self::damaged_skill(&skill.to_string(), &damage),
            RunError::Start { .. } => Self::new(ErrorCode::ActionNotStarted, message),
            RunError::Vault(error) => error.into(),
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let message = message_chain(&error);
        match error {
            LinkError::Vault(error) => error.into(),
            LinkError::Catalog { cause, .. } => cause.into(),
            LinkError::Unknown(_) => {
                Self::new(ErrorCode::NotLinked, message).hint("vault link <url>/v/<slug>")
            }
            LinkError::NotInCatalog {
                ref name,
                ref published,
            } => {
                let published = published.iter().map(SkillName::as_str);
                Self::new(ErrorCode::SkillNotInCatalog, message)
                    .hint(published_hint(name.as_str(), published))
            }
            LinkError::TagUnknown {
                ref tag,
                ref published,
            } => {
                let published = published.iter().map(String::as_str);
                Self::new(ErrorCode::TagNotInCatalog, clean(&message, 200))
                    .hint(published_hint(tag, published))
            }
            LinkError::AgentUnknown {
                ref agent,
                ref published,
            } => {
                let published = published.iter().map(AgentId::as_str);
                Self::new(ErrorCode::AgentUnknown, message)
                    .hint(published_hint(agent.as_str(), published))
            }
            LinkError::NameTaken(_) => Self::new(ErrorCode::VaultNameTaken, message)
                .hint("vault link <url>/v/<slug> --as-vault <other-name>"),
            LinkError::NotInstalled(_) => Self::new(ErrorCode::SkillNotFound, message)
                .hint("vault list shows what is installed"),
            LinkError::OwnName(ref name) => Self::new(ErrorCode::NameTaken, message).hint(format!(
                "your own skills come before linked ones; vault remove {name} removes yours"
            )),
            LinkError::Gate(ref skills) => Self::new(ErrorCode::GateBlocked, message)
                .details(skills.iter().map(format_flagged))
                .hint("nothing was changed; pull others with --skill, or link with --gate warn"),
            LinkError::OneNameOnly => Self::new(ErrorCode::AsNeedsOneSkill, message)
                .hint("--skill <name> --as <other-name>"),
            LinkError::Derived { .. } => Self::new(ErrorCode::DerivedMismatch, message)
                .hint("nothing was installed; tell the owner of the vault"),
            LinkError::Object { .. }
            | LinkError::Bundle { .. }
            | LinkError::NotCanonical(_)
            | LinkError::NotStaged(_) => Self::new(ErrorCode::BundleRefused, message)
                .hint("nothing was changed; the service sent content that the owner did not sign"),
        }
    }
}

/// Suggests a published name in place of one that the vault does not publish.
fn published_hint<'a>(name: &str, published: impl Iterator<Item = &'a str> + Clone) -> String {
    const SHOWN: usize = 12;
    // A likely misspelling is better advice than the whole list.
    if let Some(near) = nearest_name(name, published.clone()) {
        return format!("did you mean `{}`?", clean(near, 64));
    }
    let names: Vec<_> = published
        .clone()
        .take(SHOWN)
        .map(|name| clean(name, 64))
        .collect();
    match published.count() {
        0 => "it publishes none; vault cloud pull --all installs everything".to_owned(),
        count if count > SHOWN => format!(
            "it publishes {} and {} more; vault cloud pull --all installs everything",
            names.join(", "),
            count - SHOWN
        ),
        _ => format!(
            "it publishes {}; vault cloud pull --all installs everything",
            names.join(", ")
        ),
    }
}

impl From<&RootError> for Failure {
    fn from(error: &RootError) -> Self {
        // Both sides use the same texts for codes. An error that is new in the library must not
        // fail here.
        let code = ErrorCode::parse(error.error_code()).unwrap_or(ErrorCode::RootInvalid);
        let failure = Self::new(code, message_chain(error));
        failure.hint_if(root_hint(error))
    }
}

/// Returns the remedy for root versions that do not count.
const fn root_hint(error: &RootError) -> Option<&'static str> {
    Some(match error {
        RootError::VaultChanged | RootError::NotExpected(_) => {
            "nothing was changed; ask the owner for the fingerprint (vault key show)"
        }
        RootError::ExpectKeyNeeded => {
            "ask the owner for the fingerprint (vault key show), then: --expect-key <fingerprint>"
        }
        RootError::Forked { .. } => {
            "nothing was changed; the owner fixes it with: vault key heal --above <number>"
        }
        RootError::RolledBack { .. } => "nothing was changed; the service returned an old state",
        RootError::NewerVault { .. } => "update vault",
        RootError::Empty | RootError::Invalid { .. } | RootError::NotInChain { .. } => {
            return None;
        }
    })
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let failure = Self::new(
            ErrorCode::parse(error.error_code()).unwrap_or(ErrorCode::CatalogSchema),
            format!("the catalog is refused: {}", message_chain(&error)),
        );
        let hint = match error {
            // The hint of the inner error is more specific than one about catalogs.
            CatalogError::Root(ref error) => return failure.hint_if(root_hint(error)),
            CatalogError::ReleaseAwaited => {
                "installed skills stay as they are; pull again once the owner has published"
            }
            CatalogError::EarlierFormat => {
                "the owner creates a new vault and publishes it after: vault cloud reset-pin <slug>"
            }
            CatalogError::Older { .. } => {
                "the service shows an old state; installed skills stay as they are"
            }
            CatalogError::TwoCatalogs(_) => {
                "the service shows different catalogs to different machines; tell the owner"
            }
            CatalogError::Previous => {
                "the owner's history forked, or the service shows two histories: ask the owner, and if it is right, pass --accept-fork"
            }
            CatalogError::Clock(_) => {
                "check this machine's clock; if it was ahead before: vault doctor --reset-clock"
            }
            CatalogError::Expired(_) => {
                "installed skills stay as they are; a publisher makes a new release: vault sync --cloud"
            }
            CatalogError::RootExpired(_) => {
                "installed skills stay as they are; the owner renews the keys: vault key recovery check <file> --renew 12m"
            }
            CatalogError::Audience | CatalogError::Slug => {
                "link the address that the owner publishes for"
            }
            _ => return failure,
        };
        failure.hint(hint)
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let message = message_chain(&error);
        match error {
            PlanError::Vault(error) => error.into(),
            PlanError::Catalog(error) => error.into(),
            PlanError::Diverged(difference) => diverged_failure(&difference, message),
            PlanError::Conflicts(found) => conflicts_failure(&found, message),
            PlanError::RolledBack { .. } => Self::new(ErrorCode::ServiceRolledBack, message)
                .hint("nothing was published; if the service was restored on purpose: vault sync --cloud --replace"),
            PlanError::TwoCatalogs(_) => Self::new(ErrorCode::TwoCatalogs, message)
                .hint("nothing was published; if this library is the right one: vault sync --cloud --replace"),
            PlanError::NotCounted {
                release,
                payload_sha256,
                signers,
                former_signers,
                reason,
                is_empty_here,
            } => {
                let who = join(signers.iter().map(format_key));
                let code = ErrorCode::parse(reason.error_code()).unwrap_or(ErrorCode::CatalogNotOurs);
                // The command names exactly the release that was examined, so it cannot take over
                // another one.
                let named = format!("--last-good {release}:{payload_sha256}");
                // The key of a former signer may be stolen, so only a trusted machine can vouch for
                // the payload.
                let unless = either(former_signers.is_empty(), "if its author confirms this payload", "if a machine that you trust had this payload before");
                // An empty library has nothing that could be published over the release.
                let hint = if is_empty_here {
                    format!("nothing was published; to bring back its skills, {unless}: vault cloud rollback {release} {named}")
                } else {
                    format!("nothing was published; to take it over, {unless}: vault sync --adopt {named}; to publish over it: vault sync --replace")
                };
                Self::new(code, message)
                    .details([format!("it is signed by {who}, and its payload is {payload_sha256}")])
                    .details(former_signers.iter().map(|line| format!("! {}", line.text)))
                    .hint(hint)
            }
            PlanError::Voided { release, payload_sha256, former_signers } => {
                Self::new(ErrorCode::CatalogNotOurs, message)
                    .details(former_signers.iter().map(|line| format!("! {}", line.text)))
                    .hint(format!(
                        "nothing was published; to publish over it: vault sync --replace; to bring back its skills, if a machine that you trust had it before: vault cloud rollback {release} --last-good {release}:{payload_sha256}"
                    ))
            }
            PlanError::OtherVault => Self::new(ErrorCode::VaultChanged, message)
                .hint("is this the right address? vault key show prints this vault's fingerprint"),
            PlanError::NotOurs(_) => Self::new(ErrorCode::CatalogNotOurs, message)
                .hint("is this the right vault? vault key show prints its id"),
            PlanError::Damaged(skills) => Self::new(ErrorCode::SkillDamaged, message)
                .hint("add them again or remove them; nothing was published")
                .details(skills.iter().map(|(name, damage)| format!("{name}: {}", message_chain(damage)))),
            PlanError::Profiles(_) | PlanError::NotText { file: PROFILES_FILE } => {
                Self::new(ErrorCode::ProfilesInvalid, message)
            }
            PlanError::Policy(_) | PlanError::NotText { .. } => {
                Self::new(ErrorCode::PolicyInvalid, message)
            }
            PlanError::Refused { .. } => Self::new(ErrorCode::GateBlocked, message)
                .hint("add it again or remove it; nothing was published"),
            PlanError::Transform { ref skill, .. } => Self::new(ErrorCode::TransformFailed, message)
                .hint(format!(
                    "fix the transform and add it again, or remove it: vault transform list {skill}"
                )),
            PlanError::TooLarge => Self::new(ErrorCode::ReleaseTooLarge, message),
            PlanError::Moved(_) => Self::new(ErrorCode::SkillChanged, message).hint("vault sync --cloud"),
        }
    }
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        let message = message_chain(&error);
        match error {
            ProjectError::Home(_) => Self::new(ErrorCode::ProjectInvalid, message)
                .hint("move vault.lock into the folder of a project"),
            ProjectError::Vault(_) => Self::new(ErrorCode::ProjectInvalid, message)
                .hint("keep vault.lock in the folder of a project, apart from the vault"),
            ProjectError::InTheWay(_) => Self::new(ErrorCode::ProjectInvalid, message)
                .hint("check it and move it away; vault uses nothing from .vault in a repository"),
            ProjectError::Folder(BeneathError::File(failed)) => {
                Self::of_disk(message, &failed.cause)
            }
            ProjectError::Folder(_) => Self::new(ErrorCode::ProjectInvalid, message)
                .hint("replace it with a normal folder in the project"),
            ProjectError::Other(error) => error.into(),
        }
    }
}

impl From<RootsError> for Failure {
    fn from(error: RootsError) -> Self {
        let message = message_chain(&error);
        match error {
            RootsError::RootKeyNeeded => Self::new(ErrorCode::RootKeyNeeded, message)
                .hint("name the file of the recovery key: --root-key <file>"),
            RootsError::RootRoleInAgent => Self::new(ErrorCode::RootNotMade, message).hint(
                "create a recovery key first, so that this machine's key only publishes: vault key recovery create <file>",
            ),
            RootsError::Write(ref error) => {
                Self::new(ErrorCode::RootNotMade, message).hint_if(root_write_hint(error))
            }
            RootsError::NotLinked(_) => Self::new(ErrorCode::NotLinked, message).hint(
                "link it first, and compare its fingerprint: vault link <url>/v/<slug> --expect-key <fingerprint>",
            ),
            RootsError::Request(_) => Self::new(ErrorCode::SigningFailed, message),
            RootsError::Recovery(error) => error.into(),
            RootsError::Vault(error) => error.into(),
        }
    }
}

impl From<RecoveryError> for Failure {
    fn from(error: RecoveryError) -> Self {
        let message = message_chain(&error);
        match error {
            RecoveryError::Missing(_) => Self::new(ErrorCode::RecoveryMissing, message),
            RecoveryError::Exists(_) => Self::new(ErrorCode::FileExists, message)
                .hint("choose another name; vault key recovery check <file> shows what it is"),
            RecoveryError::Inside(_) => Self::new(ErrorCode::RecoveryPlace, message)
                .hint("a USB stick, or a folder of another machine"),
            RecoveryError::File { .. } => Self::new(ErrorCode::KeyDamaged, message)
                .hint("use the second copy of the recovery key"),
            RecoveryError::Chain { ref cause, .. } => {
                let code = ErrorCode::parse(cause.error_code()).unwrap_or(ErrorCode::RootInvalid);
                let hint = match cause {
                    // Here the file is ahead of this machine, so the usual hint about the service
                    // would be wrong.
                    RootError::RolledBack { .. } => Some(
                        "nothing was changed; the file has signed newer keys than are known here: vault sync --cloud takes them, and vault key heal --above <number> goes above them",
                    ),
                    other => root_hint(other),
                };
                Self::new(code, message).hint_if(hint)
            }
            RecoveryError::NotInRole(_) => Self::new(ErrorCode::RecoveryKeyWrong, message)
                .hint("a newer recovery key exists: use that one"),
            RecoveryError::OtherVault { .. } => Self::new(ErrorCode::VaultChanged, message)
                .hint("--vault <folder> names another vault of this machine"),
            RecoveryError::CatalogNeeded => Self::new(ErrorCode::CatalogNeeded, message)
                .hint("--from <url>/v/<slug>, or --from <file> with its catalog"),
            RecoveryError::WhichKey => Self::new(ErrorCode::KeyNotNamed, message)
                .hint("vault publishers list shows their names: --lost <name>"),
            RecoveryError::Catalog(error) => error.into(),
            RecoveryError::Key(error) => error.into(),
            RecoveryError::Disk(failed) => Self::of_disk(message, &failed.cause),
        }
    }
}

/// Returns the remedy for a change of keys that was not made.
const fn root_write_hint(error: &RootWriteError) -> Option<&'static str> {
    match error {
        // At the limit, another publisher does not help.
        RootWriteError::HighThreshold { publishers, .. } if *publishers < MAX_THRESHOLD => {
            Some("add a publisher first: vault publishers add <fingerprint>")
        }
        RootWriteError::NoRecoveryKey(_) => {
            Some("create a recovery key first: vault key recovery create <file>")
        }
        RootWriteError::NoPublisher => {
            Some("add another publisher first: vault publishers add <fingerprint>")
        }
        RootWriteError::ManyPublishers => Some("remove one first: vault publishers remove <name>"),
        RootWriteError::SameName(_) => Some("give the key another name: --name <name>"),
        RootWriteError::NotInRole => {
            Some("vault publishers list shows the names and fingerprints of the keys")
        }
        RootWriteError::HighThreshold { .. }
        | RootWriteError::Invalid(_)
        | RootWriteError::Refused(_)
        | RootWriteError::Signer(_)
        | RootWriteError::UsedKey
        | RootWriteError::Reserved => None,
    }
}

fn diverged_failure(difference: &Difference, message: String) -> Failure {
    let lines = |mark: &str, what: &str, names: &[SkillName]| -> Vec<_> {
        names
            .iter()
            .map(|name| format!("{mark} {name}  {what}"))
            .collect()
    };
    // Skills that a former signer published are not offered for adoption: its key may be stolen.
    let hint = either(
        difference.former_signers.is_empty(),
        "--adopt adds their skills, --replace drops them",
        "to publish over it: vault sync --replace",
    );
    Failure::new(ErrorCode::ReleaseDiverged, message)
        .details(
            difference
                .former_signers
                .iter()
                .map(|line| format!("! {}", line.text)),
        )
        .details(lines("+", "only there", &difference.theirs))
        .details(lines("-", "only here", &difference.ours))
        .details(lines("~", "differs", &difference.differing))
        .hint(hint)
        .data(json!({
            "release": difference.release,
            "theirs": difference.theirs,
            "ours": difference.ours,
            "differing": difference.differing,
        }))
}

fn conflicts_failure(conflicts: &Conflicts, message: String) -> Failure {
    let lines = |what: &str, names: &[SkillName]| -> Vec<_> {
        let names = names.iter();
        names.map(|name| format!("~ {name}  {what}")).collect()
    };
    let policy = conflicts.policy;
    let profiles = conflicts.profiles.iter();
    // A profile is built from local rules and transforms, so it cannot be adopted like a skill.
    let hint = either(
        conflicts.profiles.is_empty(),
        "--adopt takes theirs; then change yours again and sync",
        "copy profiles.toml and the transforms from the publisher who made that release",
    );
    Failure::new(ErrorCode::ReleaseDiverged, message)
        .details(lines("changed on both sides", &conflicts.changed))
        .details(lines(
            "changed here, removed there",
            &conflicts.removed_there,
        ))
        .details(lines(
            "removed here, changed there",
            &conflicts.removed_here,
        ))
        .details(policy.then(|| "~ policy.toml  changed on both sides".to_owned()))
        .details(
            profiles
                .map(|profile| format!("~ profile {profile}  made otherwise here, or not at all")),
        )
        .hint(hint)
        .data(json!({
            "release": conflicts.release,
            "changed": conflicts.changed,
            "removed_there": conflicts.removed_there,
            "removed_here": conflicts.removed_here,
            "policy": conflicts.policy,
            "profiles": conflicts.profiles,
        }))
}

impl From<ProposalError> for Failure {
    fn from(error: ProposalError) -> Self {
        let message = message_chain(&error);
        match error {
            ProposalError::Plan(error) => error.into(),
            ProposalError::Bundle(error) => (*error).into(),
            ProposalError::Catalog(CatalogError::ProposalOutdated(why)) => {
                let hint = match why {
                    OutdatedProposal::OtherSigned => {
                        "the author of either one withdraws it, and proposes it under a new number: vault drafts withdraw <id>, then vault sync"
                    }
                    OutdatedProposal::Published => "to take it over: vault sync",
                    OutdatedProposal::NotNext
                    | OutdatedProposal::OtherKeys
                    | OutdatedProposal::Overtaken => {
                        "its author proposes a release anew: vault sync"
                    }
                };
                Self::new(ErrorCode::ProposalOutdated, message).hint(hint)
            }
            ProposalError::Catalog(error) => error.into(),
            ProposalError::NewKeys => Self::new(ErrorCode::ProposalOutdated, message)
                .hint("its author publishes the keys first: vault sync"),
        }
    }
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        let message = message_chain(&error);
        match error {
            AdoptError::Vault(error) => error.into(),
            AdoptError::Catalog(error) => error.into(),
            AdoptError::NotOurs(_) => Self::new(ErrorCode::CatalogNotOurs, message),
            AdoptError::OtherRelease { .. } => {
                Self::new(ErrorCode::CatalogRelease, message).hint("nothing was changed")
            }
            AdoptError::Plan(error) => (*error).into(),
            AdoptError::Derived { .. } | AdoptError::Index => {
                Self::new(ErrorCode::DerivedMismatch, message).hint("nothing was signed or changed")
            }
            AdoptError::Profile(_) => {
                Self::new(ErrorCode::BundleRefused, message).hint("nothing was signed or changed")
            }
            AdoptError::Policy(_) | AdoptError::Bundle { .. } => {
                Self::new(ErrorCode::BundleRefused, message)
            }
            // Only a blocked skill can be let pass by a flag. Any other refusal needs a fix.
            AdoptError::Refused {
                reason: AdmitError::Blocked { findings },
                name,
            } => {
                let blocking = findings
                    .iter()
                    .filter(|finding| finding.level > Level::Warning);
                fail!(
                    GateBlocked,
                    "this machine's gate refuses {name}; nothing was signed or changed"
                )
                .details(blocking.map(|finding| format!("{}: {}", finding.rule, finding.message)))
                .hint("what its publisher let pass does not count here; after reading it: --allow <rule>")
            }
            AdoptError::Refused { .. } | AdoptError::Admit(_) => {
                Self::new(ErrorCode::SigningFailed, message)
            }
        }
    }
}

impl Failure {
    /// The failure for an installed skill that was modified after signing or cannot be read.
    pub fn damaged_skill(skill: &str, damage: &Damage) -> Self {
        let message = format!("{skill} was not used: {}", message_chain(damage));
        // The bytes may be as signed while their signer counts no longer.
        let code = match damage {
            Damage::Manifest(ManifestError::Signer(SignerRefusal::ReleaseAwaited)) => {
                ErrorCode::ReleaseAwaited
            }
            Damage::Manifest(ManifestError::Signer(SignerRefusal::Retired)) => {
                ErrorCode::SignerRetired
            }
            Damage::Untrusted(_) => ErrorCode::VaultUntrusted,
            damage if damage.is_tampering() => ErrorCode::SkillDamaged,
            _ => ErrorCode::SkillUnreadable,
        };
        Self::new(code, message).hint(format!("vault doctor {skill} shows how to restore it"))
    }
}
