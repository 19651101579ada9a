//! Converts errors of publishing, of changes of keys and of recovery into failures of a command.

use serde_json::json;
use vault_format::{
    catalog::{CatalogError, OutdatedProposal},
    manifest::ManifestError,
    name::SkillName,
    root::{MAX_THRESHOLD, RootError, RootWriteError, SignerRefusal},
};
use vault_gate::finding::Level;
use vault_library::{
    Damage, PROFILES_FILE,
    admit::AdmitError,
    adopt::AdoptError,
    publish::{Conflicts, Difference, PlanError, ProposalError},
    recovery::RecoveryError,
    roots::RootsError,
};

use super::library::root_hint;
use super::{ErrorCode, Failure, message_chain};
use crate::text::{either, format_key, join};

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
                // A former signer is a key that is no longer a publisher of the vault and may be
                // stolen. Then the author is no witness, only a machine that had the payload
                // before.
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
            PlanError::Transform { ref skill, .. } | PlanError::TransformUnread { ref skill, .. } => {
                Self::new(ErrorCode::TransformFailed, message).hint(format!(
                    "fix the transform and add it again, or remove it: vault transform list {skill}"
                ))
            }
            PlanError::Published { .. } => Self::new(ErrorCode::ReleaseTooLarge, message)
                .hint("name fewer agents in transforms and in profiles.toml; nothing was published"),
            PlanError::TooLarge => Self::new(ErrorCode::ReleaseTooLarge, message),
            PlanError::Moved(_) => Self::new(ErrorCode::SkillChanged, message).hint("vault sync --cloud"),
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
                    // The recovery file knows newer keys than this machine. The usual hint, which
                    // blames the service, would be wrong.
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
            RecoveryError::Disk(failed) => Self::disk_failure(message, &failed.cause),
        }
    }
}

/// Returns what the user can do about a change of keys that was rejected.
const fn root_write_hint(error: &RootWriteError) -> Option<&'static str> {
    match error {
        // At the maximum of required signatures, another publisher does not help.
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
    // If a key that is no longer a publisher signed the release, do not suggest to adopt it: the
    // key may be stolen.
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
            // The user can allow a rule that blocks a skill. Other refusals need a fix of the
            // skill.
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
    /// Creates the failure for an installed skill that fails its verification or cannot be read.
    pub fn damaged_skill(skill: &str, damage: &Damage) -> Self {
        let message = format!("{skill} was not used: {}", message_chain(damage));
        // The files may be as they were signed, while the signer's key was revoked since.
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
