//! Converts errors of the library and of the file formats into failures of a command: adds the
//! error code, and a hint with the command that helps.

use std::io::ErrorKind;

use vault_format::{
    catalog::CatalogError,
    name::{AgentId, SkillName},
    root::RootError,
};
use vault_library::{
    BeneathError, LockError, VaultError, agents::TrialError, keys::KeyError, project::ProjectError,
    run::RunError, subscribe::LinkError,
};

use super::{ErrorCode, Failure, message_chain};
use crate::text::{clean, format_flagged, nearest_name, shell_path};

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
                Self::disk_failure(message, &failed.cause)
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
            KeyError::File(failed) => Self::disk_failure(message, &failed.cause),
        }
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Self {
        let message = message_chain(&error);
        match error {
            TrialError::Taken(_) => Self::new(ErrorCode::NameTaken, message).hint(
                "nothing was changed; try it in another agent: --agent <id>, or move the entry away",
            ),
            TrialError::TrustFolder(error) => error.into(),
            TrialError::File(failed) => Self::disk_failure(message, &failed.cause),
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
            LinkError::Variant { agent, cause } => {
                let failure = Self::from(*cause);
                let message = format!("the variant for {agent}: {}", failure.message);
                Self { message, ..failure }
            }
            LinkError::Profile(_)
            | LinkError::Object { .. }
            | LinkError::Bundle { .. }
            | LinkError::NotCanonical(_)
            | LinkError::NotStaged(_) => Self::new(ErrorCode::BundleRefused, message)
                .hint("nothing was changed; the service sent content that the owner did not sign"),
        }
    }
}

/// Returns a hint for a name that a linked vault does not publish: the most similar published name,
/// or else the list of them.
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
        // The library and this program use the same texts for codes. A text that only the library
        // knows gets a general code.
        let code = ErrorCode::parse(error.error_code()).unwrap_or(ErrorCode::RootInvalid);
        let failure = Self::new(code, message_chain(error));
        failure.hint_if(root_hint(error))
    }
}

/// Returns what the user can do about rejected root versions (versions of a vault's list of keys).
pub(super) const fn root_hint(error: &RootError) -> Option<&'static str> {
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
            ProjectError::Busy(_) => Self::new(ErrorCode::VaultBusy, message)
                .hint("wait for it, and run this command again"),
            ProjectError::Folder(BeneathError::File(failed)) => {
                Self::disk_failure(message, &failed.cause)
            }
            ProjectError::Folder(_) => Self::new(ErrorCode::ProjectInvalid, message)
                .hint("replace it with a normal folder in the project"),
            ProjectError::Other(error) => error.into(),
        }
    }
}
