//! Converts errors of the library and of the file formats into failures of a command.

use serde_json::json;
use vault_library::{
    Damage, LockError, VaultError,
    admit::AdmitError,
    adopt::AdoptError,
    agents::PROFILES_FILE,
    keys::KeyError,
    publish::{Difference, PlanError},
    run::RunError,
    subscribe::LinkError,
};
use vault_skill::{catalog::CatalogError, finding::Level, name::SkillName};

use super::{ErrorCode, Failure, chain};

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let message = chain(&error);
        match error {
            VaultError::Missing(_) => Self::new(ErrorCode::NoVault, message)
                .hint("vault add <folder> makes one with its first skill"),
            VaultError::Format { .. } => Self::new(ErrorCode::VaultFormat, message),
            VaultError::Damaged { .. } => Self::new(ErrorCode::VaultDamaged, message),
            VaultError::KeysInside(_) => Self::new(ErrorCode::KeysInsideVault, message)
                .hint("set XDG_CONFIG_HOME, or --vault, to a folder outside the other"),
            VaultError::Lock(LockError::Busy { .. }) => Self::new(ErrorCode::VaultBusy, message)
                .hint("another vault command is at work; try again"),
            VaultError::Key(error) => error.into(),
            VaultError::Lock(LockError::File(failed)) | VaultError::File(failed) => {
                Self::of_disk(message, &failed.cause)
            }
        }
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let message = chain(&error);
        match error {
            KeyError::Open { path, .. } => {
                let mode = if path.is_dir() { "700" } else { "600" };
                Self::new(ErrorCode::KeyOpenToOthers, message)
                    .hint(format!("chmod {mode} {}", path.display()))
            }
            KeyError::Missing(_) => Self::new(ErrorCode::KeyMissing, message).hint(
                "a copied vault does not carry its keys: bring the key file, or work where it is",
            ),
            KeyError::Foreign(_) => Self::new(ErrorCode::KeyOfAnotherUser, message),
            KeyError::Malformed { .. } | KeyError::Mismatch(_) => {
                Self::new(ErrorCode::KeyDamaged, message)
            }
            KeyError::File(failed) => Self::of_disk(message, &failed.cause),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let message = chain(&error);
        match error {
            RunError::UnknownSkill(_) => Self::new(ErrorCode::SkillNotFound, message),
            RunError::UnknownAction {
                skill, declared, ..
            } => {
                let names: Vec<_> = declared.iter().map(ToString::to_string).collect();
                Self::new(ErrorCode::ActionNotFound, message).hint(if names.is_empty() {
                    format!("{skill} declares no actions at all")
                } else {
                    format!("it declares: {}", names.join(", "))
                })
            }
            RunError::Damaged { skill, damage } => Self::damaged(skill.as_str(), &damage),
            RunError::Start { .. } => Self::new(ErrorCode::ActionNotStarted, message),
            RunError::Vault(error) => error.into(),
        }
    }
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        let message = chain(&error);
        match error {
            LinkError::Vault(error) => error.into(),
            LinkError::Catalog(error) => error.into(),
            LinkError::Unknown(_) => {
                Self::new(ErrorCode::NotLinked, message).hint("vault link <url>/v/<slug>")
            }
            LinkError::Fingerprint { .. } => Self::new(ErrorCode::FingerprintMismatch, message)
                .hint("nothing was pinned; ask the owner for the fingerprint (vault key show)"),
            LinkError::NotInCatalog(_) => Self::new(ErrorCode::SkillNotInCatalog, message)
                .hint("vault cloud pull without --skill installs everything that is published"),
            LinkError::OneNameOnly => Self::new(ErrorCode::AsNeedsOneSkill, message)
                .hint("--skill <name> --as <other-name>"),
            LinkError::Object { .. }
            | LinkError::Bundle { .. }
            | LinkError::NotCanonical(_)
            | LinkError::NotStaged(_) => Self::new(ErrorCode::BundleRefused, message).hint(
                "nothing was changed; the service sent something that the owner did not sign",
            ),
        }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let failure = Self::new(
            ErrorCode::parse(error.word()).unwrap_or(ErrorCode::CatalogSchema),
            format!("the catalog is refused: {}", chain(&error)),
        );
        let hint = match error {
            CatalogError::Key(_) => {
                "if the owner confirms a new key: vault link <url>/v/<slug> --repin --expect-key <fingerprint>"
            }
            CatalogError::Older { .. } => {
                "the service shows an old state; installed skills stay as they are"
            }
            CatalogError::TwoCatalogs(_) => {
                "the service shows different catalogs to different machines; tell the owner"
            }
            CatalogError::Clock(_) => {
                "check this machine's clock; an expired catalog is renewed by its owner: vault sync --cloud --renew"
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
        let message = chain(&error);
        match error {
            PlanError::Vault(error) => error.into(),
            PlanError::Catalog(error) => error.into(),
            PlanError::Diverged(difference) => diverged(&difference, message),
            PlanError::RolledBack { .. } => Self::new(ErrorCode::ServiceRolledBack, message)
                .hint("nothing was published; if the service was restored on purpose: vault sync --cloud --replace"),
            PlanError::TwoCatalogs(_) => Self::new(ErrorCode::TwoCatalogs, message)
                .hint("nothing was published; if this library is the right one: vault sync --cloud --replace"),
            PlanError::NotOurs(_) => Self::new(ErrorCode::CatalogNotOurs, message)
                .hint("is this the right vault? vault key show prints its id"),
            PlanError::Damaged(skills) => Self::new(ErrorCode::SkillDamaged, message)
                .hint("add them again or remove them; nothing was published")
                .details(skills.iter().map(|(name, damage)| format!("{name}: {}", chain(damage)))),
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
                    "mend the transform and add it again, or remove it: vault transform list {skill}"
                )),
            PlanError::TooLarge => Self::new(ErrorCode::ReleaseTooLarge, message),
            PlanError::Moved(_) => Self::new(ErrorCode::SkillChanged, message).hint("vault sync --cloud"),
        }
    }
}

fn diverged(difference: &Difference, message: String) -> Failure {
    let lines = |mark: &str, what: &str, names: &[SkillName]| -> Vec<_> {
        names
            .iter()
            .map(|name| format!("{mark} {name}  {what}"))
            .collect()
    };
    Failure::new(ErrorCode::ReleaseDiverged, message)
        .details(lines("+", "only there", &difference.theirs))
        .details(lines("-", "only here", &difference.ours))
        .details(lines("~", "differs", &difference.differing))
        .hint("--adopt takes their skills in, --replace drops them")
        .data(json!({
            "release": difference.release,
            "theirs": difference.theirs,
            "ours": difference.ours,
            "differing": difference.differing,
        }))
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        let message = chain(&error);
        match error {
            AdoptError::Vault(error) => error.into(),
            AdoptError::Catalog(error) => error.into(),
            AdoptError::NotOurs(_) => Self::new(ErrorCode::CatalogNotOurs, message),
            AdoptError::OtherRelease { .. } => {
                Self::new(ErrorCode::CatalogRelease, message).hint("nothing was changed")
            }
            AdoptError::Bundle { .. } => Self::new(ErrorCode::BundleRefused, message),
            AdoptError::Refused {
                reason: AdmitError::Blocked { findings },
                name,
            } => {
                let blocking = findings
                    .iter()
                    .filter(|finding| finding.level > Level::Warning);
                fail!(
                    GateBlocked,
                    "the gate refuses the earlier {name} now; nothing was changed"
                )
                .details(blocking.map(|finding| format!("{}: {}", finding.rule, finding.message)))
            }
            AdoptError::Refused { .. } | AdoptError::Admit(_) => {
                Self::new(ErrorCode::SigningFailed, message)
            }
        }
    }
}

impl Failure {
    /// The failure for an installed skill that was modified after signing or cannot be read.
    pub fn damaged(skill: &str, damage: &Damage) -> Self {
        let message = format!("{skill} is not what was signed: {}", chain(damage));
        let code = if damage.is_tampering() {
            ErrorCode::SkillDamaged
        } else {
            ErrorCode::SkillUnreadable
        };
        Self::new(code, message).hint(format!("nothing of it was used; add or pull {skill} again"))
    }
}
