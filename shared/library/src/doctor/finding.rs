//! What can be wrong with a vault on this machine, as data: callers write the sentences.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::provenance::ProvenanceId;
use vault_skill::time::Timestamp;

use crate::agents::{ProfileSyncError, ProfileWarning};
use crate::store::Damage;
use crate::vault::keys::KeyError;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may surprise.
    Warning,
    /// Good to know.
    Note,
}

/// How a damaged skill can be brought back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// Pull the linked vault that it came from.
    Pull,
    /// Add it again from its source; `None` where the source is unknown.
    AddAgain(Option<ProvenanceId>),
    /// Have the doctor sign it.
    Repair,
}

/// One thing that was found.
#[derive(Debug)]
pub enum DoctorFinding {
    /// The vault's folder belongs to another user.
    ForeignOwner(PathBuf),
    /// Others may write to the vault's folder.
    OpenToOthers {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// This user may not write to the vault's folder.
    ReadOnly(PathBuf),
    /// The release key can't be used.
    Key(KeyError),
    /// The recovery key is still on this machine.
    RecoveryHere(PathBuf),
    /// A skill was signed later than this machine's clock says.
    ClockBehind {
        /// The time by this machine's clock.
        now: Timestamp,
        /// When the skill was signed.
        signed_at: Timestamp,
    },
    /// A writer was killed and left files behind.
    Unfinished,
    /// A folder was set aside for signing and never signed.
    SetAside(PathBuf),
    /// Something in the vault's folders is not part of the vault.
    ForeignInVault(PathBuf),
    /// The bundles of this many earlier versions are kept.
    EarlierVersions(usize),
    /// A skill needs variables that are not set.
    EnvironmentUnset {
        /// The skill.
        skill: SkillName,
        /// Those variables, at least one.
        variables: Vec<String>,
    },
    /// Metadata of systems and editors lies beside a skill's files.
    IgnoredMetadata {
        /// The skill.
        skill: SkillName,
        /// Those files, relative to the skill.
        files: Vec<String>,
    },
    /// A skill is not as it was signed.
    SkillDamaged {
        /// The skill.
        skill: SkillName,
        /// What is wrong with it.
        damage: Damage,
        /// How it can be brought back.
        remedy: Remedy,
    },
    /// A folder with a skill was put into the vault and never signed.
    SkillUnsigned(SkillName),
    /// A skill could not be signed.
    RepairFailed {
        /// The skill.
        skill: SkillName,
        /// Why.
        reason: String,
    },
    /// A variant that was rendered for an agent is not as it was signed.
    VariantDamaged {
        /// The skill that it is a variant of.
        skill: SkillName,
        /// What is wrong with it.
        damage: Damage,
    },
    /// The profiles can't be read.
    ProfilesInvalid(ProfileSyncError),
    /// A link in an agent's folder leads nowhere.
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// Whether the vault made it.
        ours: bool,
    },
    /// A folder that is linked into is missing.
    RootMissing(PathBuf),
    /// What a sync of profiles would warn about.
    Profile(ProfileWarning),
    /// The agents' links do not show the vault as it is.
    LinksStale,
    /// These agents are installed and see none of the vault's skills.
    AgentNotLinked(Vec<AgentId>),
    /// An agent reads less of its list of skills than the list is long.
    ContextCost {
        /// The agent.
        agent: AgentId,
        /// Length of its list, in characters.
        characters: usize,
        /// The most that it reads.
        bound: usize,
    },
}

impl DoctorFinding {
    /// The stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ForeignOwner(_) => "foreign_owner",
            Self::OpenToOthers { .. } => "open_to_others",
            Self::ReadOnly(_) => "read_only",
            Self::Key(KeyError::Missing(_)) => "key_missing",
            Self::Key(KeyError::Open { .. }) => "key_open",
            Self::Key(KeyError::Foreign(_)) => "key_foreign",
            Self::Key(KeyError::Malformed { .. } | KeyError::Mismatch(_)) => "key_damaged",
            Self::Key(KeyError::File(_)) => "key_unreadable",
            Self::RecoveryHere(_) => "recovery_here",
            Self::ClockBehind { .. } => "clock_behind",
            Self::Unfinished => "unfinished",
            Self::SetAside(_) => "set_aside",
            Self::ForeignInVault(_) => "foreign_in_vault",
            Self::EarlierVersions(_) => "earlier_versions",
            Self::EnvironmentUnset { .. } => "environment_unset",
            Self::IgnoredMetadata { .. } => "ignored_metadata",
            Self::SkillDamaged { damage, remedy, .. } => {
                if damage.is_tampering() && *remedy != Remedy::Pull {
                    "skill_tampered"
                } else {
                    "skill_damaged"
                }
            }
            Self::SkillUnsigned(_) => "skill_unsigned",
            Self::RepairFailed { .. } => "repair_failed",
            Self::VariantDamaged { .. } => "variant_damaged",
            Self::ProfilesInvalid(_) => "profiles_invalid",
            Self::DanglingLink { .. } => "dangling_link",
            Self::RootMissing(_) => "root_missing",
            Self::Profile(warning) => warning.code(),
            Self::LinksStale => "links_stale",
            Self::AgentNotLinked(_) => "agent_not_linked",
            Self::ContextCost { .. } => "context_cost",
        }
    }

    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::OpenToOthers { .. }
            | Self::Key(_)
            | Self::SkillDamaged { .. }
            | Self::SkillUnsigned(_)
            | Self::RepairFailed { .. }
            | Self::VariantDamaged { .. }
            | Self::ProfilesInvalid(_)
            | Self::DanglingLink { ours: true, .. } => Severity::Error,
            Self::Unfinished
            | Self::EarlierVersions(_)
            | Self::IgnoredMetadata { .. }
            | Self::AgentNotLinked(_) => Severity::Note,
            _ => Severity::Warning,
        }
    }

    /// The skill that it is about.
    pub fn skill(&self) -> Option<&SkillName> {
        match self {
            Self::EnvironmentUnset { skill, .. }
            | Self::IgnoredMetadata { skill, .. }
            | Self::SkillDamaged { skill, .. }
            | Self::SkillUnsigned(skill)
            | Self::RepairFailed { skill, .. }
            | Self::VariantDamaged { skill, .. } => Some(skill),
            _ => None,
        }
    }

    /// The file or folder that it is about.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Key(KeyError::File(failed)) => Some(&failed.path),
            Self::Profile(warning) => warning.path(),
            Self::ForeignOwner(path)
            | Self::OpenToOthers { path, .. }
            | Self::ReadOnly(path)
            | Self::Key(
                KeyError::Missing(path)
                | KeyError::Open { path, .. }
                | KeyError::Foreign(path)
                | KeyError::Malformed { path, .. }
                | KeyError::Mismatch(path),
            )
            | Self::RecoveryHere(path)
            | Self::SetAside(path)
            | Self::ForeignInVault(path)
            | Self::DanglingLink { path, .. }
            | Self::RootMissing(path) => Some(path),
            _ => None,
        }
    }
}
