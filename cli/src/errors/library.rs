//! What the library and the formats fail with, as failures of a command.

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

use super::{Exit, Failure, chain};

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let message = chain(&error);
        match error {
            VaultError::Missing(_) => Self::failed("no_vault", message)
                .hint("vault add <folder> makes one with its first skill"),
            VaultError::Format { .. } => Self::failed("vault_format", message),
            VaultError::Damaged { .. } => Self::new(Exit::Integrity, "vault_damaged", message),
            VaultError::KeysInside(_) => Self::usage("keys_inside_vault", message)
                .hint("set XDG_CONFIG_HOME, or --vault, to a folder outside the other"),
            VaultError::Lock(LockError::Busy { .. }) => Self::failed("vault_busy", message)
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
                Self::new(Exit::NotAllowed, "key_open_to_others", message)
                    .hint(format!("chmod {mode} {}", path.display()))
            }
            KeyError::Missing(_) => Self::new(Exit::NotAllowed, "key_missing", message).hint(
                "a copied vault does not carry its keys: bring the key file, or work where it is",
            ),
            KeyError::Foreign(_) => Self::new(Exit::NotAllowed, "key_of_another_user", message),
            KeyError::Malformed { .. } | KeyError::Mismatch(_) => {
                Self::new(Exit::Integrity, "key_damaged", message)
            }
            KeyError::File(failed) => Self::of_disk(message, &failed.cause),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let message = chain(&error);
        match error {
            RunError::UnknownSkill(_) => Self::failed("skill_not_found", message),
            RunError::UnknownAction {
                skill, declared, ..
            } => {
                let failure = Self::failed("action_not_found", message);
                if declared.is_empty() {
                    failure.hint(format!("{skill} declares no actions at all"))
                } else {
                    let names: Vec<_> = declared.iter().map(ToString::to_string).collect();
                    failure.hint(format!("it declares: {}", names.join(", ")))
                }
            }
            RunError::Damaged { skill, damage } => Self::damaged(skill.as_str(), &damage),
            RunError::Start { .. } => Self::failed("action_not_started", message),
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
                Self::failed("not_linked", message).hint("vault link <url>/v/<slug>")
            }
            LinkError::Fingerprint { .. } => {
                Self::new(Exit::Integrity, "fingerprint_mismatch", message)
                    .hint("nothing was pinned; ask the owner for the fingerprint (vault key show)")
            }
            LinkError::NotInCatalog(_) => Self::failed("skill_not_in_catalog", message)
                .hint("vault cloud pull without --skill installs everything that is published"),
            LinkError::OneNameOnly => {
                Self::usage("as_needs_one_skill", message).hint("--skill <name> --as <other-name>")
            }
            LinkError::Object { .. }
            | LinkError::Bundle { .. }
            | LinkError::NotCanonical(_)
            | LinkError::NotStaged(_) => Self::new(Exit::Integrity, "bundle_refused", message)
                .hint(
                    "nothing was changed; the service sent something that the owner did not sign",
                ),
        }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let failure = Self::new(
            Exit::Integrity,
            error.word(),
            format!("the catalog is refused: {}", chain(&error)),
        );
        match error {
            CatalogError::Key(_) => failure.hint(
                "if the owner confirms a new key: vault link <url>/v/<slug> --repin --expect-key <fingerprint>",
            ),
            CatalogError::Older { .. } => {
                failure.hint("the service shows an old state; installed skills stay as they are")
            }
            CatalogError::TwoCatalogs(_) => failure.hint(
                "the service shows different catalogs to different machines; tell the owner",
            ),
            CatalogError::Clock(_) => failure.hint(
                "check this machine's clock; an expired catalog is renewed by its owner: vault sync --cloud --renew",
            ),
            CatalogError::Audience | CatalogError::Slug => {
                failure.hint("link the address that the owner publishes for")
            }
            _ => failure,
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let message = chain(&error);
        match error {
            PlanError::Vault(error) => error.into(),
            PlanError::Catalog(error) => error.into(),
            PlanError::Diverged(difference) => diverged(&difference, message),
            PlanError::RolledBack { .. } => Self::new(Exit::Integrity, "service_rolled_back", message)
                .hint("nothing was published; if the service was restored on purpose: vault sync --cloud --replace"),
            PlanError::TwoCatalogs(_) => Self::new(Exit::Integrity, "two_catalogs", message)
                .hint("nothing was published; if this library is the right one: vault sync --cloud --replace"),
            PlanError::NotOurs(_) => Self::new(Exit::Integrity, "catalog_not_ours", message)
                .hint("is this the right vault? vault key show prints its id"),
            PlanError::Damaged(skills) => Self::new(Exit::Integrity, "skill_damaged", message)
                .hint("add them again or remove them; nothing was published")
                .details(skills.iter().map(|(name, damage)| format!("{name}: {}", chain(damage)))),
            PlanError::Policy(_) => Self::failed("policy_invalid", message),
            PlanError::Profiles(_) => Self::failed("profiles_invalid", message),
            PlanError::Refused { .. } => Self::new(Exit::Gate, "gate_blocked", message)
                .hint("add it again or remove it; nothing was published"),
            PlanError::NotText { file } => Self::failed(
                if file == PROFILES_FILE {
                    "profiles_invalid"
                } else {
                    "policy_invalid"
                },
                message,
            ),
            PlanError::Transform { ref skill, .. } => Self::failed("transform_failed", message)
                .hint(format!(
                    "mend the transform and add it again, or remove it: vault transform list {skill}"
                )),
            PlanError::TooLarge => Self::failed("release_too_large", message),
            PlanError::Moved(_) => Self::failed("skill_changed", message).hint("vault sync --cloud"),
        }
    }
}

fn diverged(difference: &Difference, message: String) -> Failure {
    let lines = |mark: &str, what: &str, names: &[SkillName]| {
        names
            .iter()
            .map(|name| format!("{mark} {name}  {what}"))
            .collect::<Vec<_>>()
    };
    Failure::new(Exit::Differences, "release_diverged", message)
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
            AdoptError::NotOurs(_) => Self::new(Exit::Integrity, "catalog_not_ours", message),
            AdoptError::OtherRelease { .. } => {
                Self::new(Exit::Integrity, "catalog_release", message).hint("nothing was changed")
            }
            AdoptError::Bundle { .. } => Self::new(Exit::Integrity, "bundle_refused", message),
            AdoptError::Refused {
                reason: AdmitError::Blocked { findings },
                name,
            } => Self::new(
                Exit::Gate,
                "gate_blocked",
                format!("the gate refuses the earlier {name} now; nothing was changed"),
            )
            .details(
                findings
                    .iter()
                    .filter(|finding| finding.level > Level::Warning)
                    .map(|finding| format!("{}: {}", finding.rule, finding.message)),
            ),
            AdoptError::Refused { .. } | AdoptError::Admit(_) => {
                Self::failed("not_signed", message)
            }
        }
    }
}

impl Failure {
    /// An installed skill that is not what was signed: exit 6, or 1 where nobody tampered with it.
    pub fn damaged(skill: &str, damage: &Damage) -> Self {
        let exit = if damage.is_tampering() {
            Exit::Integrity
        } else {
            Exit::Failed
        };
        Self::new(
            exit,
            "skill_damaged",
            format!("{skill} is not what was signed: {}", chain(damage)),
        )
        .hint(format!("nothing of it was used; add or pull {skill} again"))
    }
}
