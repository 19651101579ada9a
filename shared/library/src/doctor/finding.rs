//! The problems that the doctor finds, as data; callers write the messages.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{AgentId, SkillName};
use vault_format::provenance::ProvenanceId;
use vault_format::time::Timestamp;

use crate::agents::setup::records::RecordedSource;
use crate::agents::{ProfileSyncError, ProfileWarning};
use crate::store::Damage;
use crate::vault::authored::AuthoredFile;
use crate::vault::keys::KeyError;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[schemars(rename = "ProblemSeverity")]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may not work as expected.
    Warning,
    /// Information only.
    Note,
}

/// Way to restore a damaged skill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// Pull the linked vault it came from.
    Pull,
    /// Install the skills of the project in this folder again.
    Install(PathBuf),
    /// Add it again from its source; `None` if the source is unknown.
    AddAgain(Option<ProvenanceId>),
    /// Add it again from the folder or archive of this machine that it was added from.
    AddLocal(PathBuf),
    /// Remove the foreign files beside the signed ones, with the doctor's `clean`.
    Clean,
}

/// A problem that the doctor found.
#[derive(Debug)]
pub enum DoctorFinding {
    /// The vault's folder, or one of its own folders, belongs to another user.
    ForeignOwner(PathBuf),
    /// The vault's folder can't be examined, for this reason.
    FolderUnusable(String),
    /// Other users may write to the vault's folder, or to one of its own folders.
    OpenToOthers {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The current user may not write to the vault's folder.
    ReadOnly(PathBuf),
    /// The release key can't be used: it is missing, unreadable, damaged, or accessible to other
    /// users.
    Key(KeyError),
    /// Every key that can change the vault's keys lies on this machine, so one theft or loss would
    /// concern all of them.
    NoRecoveryKey,
    /// The recovery key was last checked at this time, a year ago or more.
    RecoveryCheckDue(Timestamp),
    /// The release at this address was made before the vault's keys changed, so linked machines do
    /// not know of the change.
    ReleaseBehind(String),
    /// A release ends within 30 days.
    ReleaseEnds {
        /// The address of the namespace.
        address: String,
        /// Time at which it ends.
        at: Timestamp,
        /// Whether this vault published it, so that its owner renews it.
        own: bool,
    },
    /// The last catalog of a linked vault has expired. Later releases of its owner, for example
    /// with a withdrawal, have not arrived.
    LinkExpired {
        /// The address of the linked vault.
        address: String,
        /// Time at which the catalog expired.
        since: Timestamp,
    },
    /// An own skill is not accepted until it is signed again, because its signer was revoked.
    NotSignedAgain(SkillName),
    /// A file of the owner differs from its approved version, which stays in force.
    NotApproved {
        /// The file.
        file: AuthoredFile,
        /// Its path.
        path: PathBuf,
    },
    /// A skill was signed later than the current time of this machine's clock.
    ClockBehind {
        /// The current time of this machine's clock.
        now: Timestamp,
        /// Time of the signature.
        signed_at: Timestamp,
    },
    /// This machine remembers a later time than its clock shows, so it refuses catalogs that end
    /// before that time.
    ClockWasAhead {
        /// The current time of this machine's clock.
        now: Timestamp,
        /// The time that it remembers.
        seen_at: Timestamp,
    },
    /// A killed writer left unfinished work behind.
    Unfinished,
    /// A folder was moved to `set-aside` to be signed, but was not signed.
    SetAside(PathBuf),
    /// An entry in the vault's folders does not belong to the vault.
    ForeignInVault(PathBuf),
    /// The store keeps this many bundles of earlier versions.
    EarlierVersions(usize),
    /// A skill requires environment variables that are not set.
    EnvironmentUnset {
        /// The skill.
        skill: SkillName,
        /// The missing variables, at least one.
        variables: Vec<String>,
    },
    /// Metadata files of operating systems are among a skill's files.
    IgnoredMetadata {
        /// The skill.
        skill: SkillName,
        /// Their paths, relative to the skill.
        files: Vec<String>,
    },
    /// A skill fails verification.
    SkillDamaged {
        /// The skill.
        skill: SkillName,
        /// Difference from the signed content.
        damage: Damage,
        /// Way to restore it.
        remedy: Remedy,
    },
    /// Skills wait for the next release of their vault, because the key that signed them is
    /// revoked.
    SkillsWithheld {
        /// Name of the linked vault on this machine; `None` for own skills.
        vault: Option<String>,
        /// The skills, at least one.
        skills: Vec<SkillName>,
    },
    /// A folder with a skill was copied into the vault but is not signed.
    SkillUnsigned(SkillName),
    /// A skill in the vault's folder was never signed, and an installer recorded that it came from
    /// elsewhere. It is not signed as a skill of this machine.
    SkillFromElsewhere {
        /// The skill.
        skill: SkillName,
        /// Its folder.
        path: PathBuf,
        /// Source that the installer recorded.
        source: RecordedSource,
    },
    /// Files of a skill that was signed just now are not part of it. They were not deleted.
    NotStored {
        /// The skill.
        skill: SkillName,
        /// The folder they were moved to.
        folder: PathBuf,
        /// Their paths in that folder. A whole folder is one path that ends with `/`.
        files: Vec<String>,
    },
    /// A linked skill is known by its qualified name only: its bare name means another skill, or
    /// none.
    NameTaken {
        /// Its name.
        skill: SkillName,
        /// `<vault>/<name>`
        qualified: String,
    },
    /// A folder stands where a skill was that the vault had signed.
    SkillReplaced(SkillName),
    /// The doctor could not sign a skill.
    RepairFailed {
        /// The skill.
        skill: SkillName,
        /// Reason, for messages.
        reason: String,
    },
    /// A rendered variant fails verification.
    VariantDamaged {
        /// The skill it was rendered from.
        skill: SkillName,
        /// Difference from the signed content.
        damage: Damage,
    },
    /// `profiles.toml` is invalid.
    ProfilesInvalid(ProfileSyncError),
    /// A symlink in an agent's folder dangles.
    DanglingLink {
        /// The symlink.
        path: PathBuf,
        /// Whether the vault made it.
        ours: bool,
    },
    /// A linked agent folder is missing.
    RootMissing(PathBuf),
    /// A warning of the profile sync.
    Profile(ProfileWarning),
    /// The symlinks in the agents' folders are out of date.
    LinksStale,
    /// The links to a project's skills are missing, lead elsewhere, or have foreign entries among
    /// them.
    ProjectLinks {
        /// The project.
        project: PathBuf,
        /// The wrong entries.
        wrong: Vec<PathBuf>,
    },
    /// A project whose skills the store holds is gone.
    ProjectMissing(PathBuf),
    /// These agents are installed but not linked to the vault.
    AgentNotLinked(Vec<AgentId>),
    /// An agent's skill list is longer than the agent reads.
    ContextCost {
        /// The agent.
        agent: AgentId,
        /// Length of the list, in characters.
        characters: usize,
        /// The maximum that the agent reads, in characters.
        bound: usize,
    },
}

impl DoctorFinding {
    /// Returns a stable code for machine-readable output.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ForeignOwner(_) => "foreign_owner",
            Self::FolderUnusable(_) => "folder_unusable",
            Self::OpenToOthers { .. } => "open_to_others",
            Self::ReadOnly(_) => "read_only",
            Self::Key(KeyError::Missing(_)) => "key_missing",
            Self::Key(KeyError::Open { .. }) => "key_open",
            Self::Key(KeyError::Foreign(_)) => "key_foreign",
            Self::Key(KeyError::Malformed { .. } | KeyError::Mismatch(_)) => "key_damaged",
            Self::Key(KeyError::File(_)) => "key_unreadable",
            Self::Key(
                KeyError::Locked(_)
                | KeyError::WrongPassphrase(_)
                | KeyError::Passphrase(_)
                | KeyError::Encrypt { .. },
            ) => "key_locked",
            Self::Key(KeyError::InAgent(_) | KeyError::Agent(_)) => "ssh_agent",
            Self::NoRecoveryKey => "no_recovery_key",
            Self::RecoveryCheckDue(_) => "recovery_check_due",
            Self::ReleaseBehind(_) => "release_behind",
            Self::ReleaseEnds { .. } => "release_ends",
            Self::LinkExpired { .. } => "link_expired",
            Self::NotSignedAgain(_) => "not_signed_again",
            Self::NotApproved { .. } => "file_not_approved",
            Self::ClockBehind { .. } => "clock_behind",
            Self::ClockWasAhead { .. } => "clock_was_ahead",
            Self::Unfinished => "unfinished",
            Self::SetAside(_) => "set_aside",
            Self::ForeignInVault(_) => "foreign_in_vault",
            Self::EarlierVersions(_) => "earlier_versions",
            Self::EnvironmentUnset { .. } => "environment_unset",
            Self::IgnoredMetadata { .. } => "ignored_metadata",
            Self::SkillDamaged { damage, remedy, .. } => {
                // A pull restores a linked skill in any case, so the code does not claim tampering.
                if damage.is_tampering() && *remedy != Remedy::Pull {
                    "skill_tampered"
                } else {
                    "skill_damaged"
                }
            }
            Self::SkillsWithheld { .. } => "skills_withheld",
            Self::SkillUnsigned(_) => "skill_unsigned",
            Self::SkillFromElsewhere { .. } => "skill_from_elsewhere",
            Self::NotStored { .. } => "not_stored",
            Self::NameTaken { .. } => "name_taken",
            Self::SkillReplaced(_) => "skill_tampered",
            Self::RepairFailed { .. } => "repair_failed",
            Self::VariantDamaged { .. } => "variant_damaged",
            Self::ProfilesInvalid(_) => "profiles_invalid",
            Self::DanglingLink { .. } => "dangling_link",
            Self::RootMissing(_) => "root_missing",
            Self::Profile(warning) => warning.code(),
            Self::LinksStale => "links_stale",
            Self::ProjectLinks { .. } => "project_links",
            Self::ProjectMissing(_) => "project_missing",
            Self::AgentNotLinked(_) => "agent_not_linked",
            Self::ContextCost { .. } => "context_cost",
        }
    }

    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::ForeignOwner(_)
            | Self::FolderUnusable(_)
            | Self::OpenToOthers { .. }
            | Self::Key(_)
            | Self::SkillDamaged { .. }
            | Self::SkillsWithheld { .. }
            | Self::SkillUnsigned(_)
            | Self::SkillFromElsewhere { .. }
            | Self::SkillReplaced(_)
            | Self::RepairFailed { .. }
            | Self::VariantDamaged { .. }
            | Self::ProfilesInvalid(_)
            // The vault fixes only its own links. Other dangling links are a warning.
            | Self::DanglingLink { ours: true, .. } => Severity::Error,
            Self::Unfinished
            | Self::EarlierVersions(_)
            | Self::IgnoredMetadata { .. }
            | Self::ProjectMissing(_)
            | Self::NameTaken { .. }
            | Self::AgentNotLinked(_) => Severity::Note,
            _ => Severity::Warning,
        }
    }

    /// Returns the skill that the finding is about, if any.
    pub fn skill(&self) -> Option<&SkillName> {
        match self {
            Self::EnvironmentUnset { skill, .. }
            | Self::IgnoredMetadata { skill, .. }
            | Self::SkillDamaged { skill, .. }
            | Self::SkillUnsigned(skill)
            | Self::SkillReplaced(skill)
            | Self::NotSignedAgain(skill)
            | Self::NameTaken { skill, .. }
            | Self::RepairFailed { skill, .. }
            | Self::SkillFromElsewhere { skill, .. }
            | Self::NotStored { skill, .. }
            | Self::VariantDamaged { skill, .. } => Some(skill),
            _ => None,
        }
    }

    /// Returns the file or folder that the finding is about, if any.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Key(KeyError::File(failed)) => Some(&failed.path),
            Self::Profile(warning) => warning.path(),
            Self::SkillFromElsewhere { path, .. }
            | Self::NotStored { folder: path, .. }
            | Self::ForeignOwner(path)
            | Self::OpenToOthers { path, .. }
            | Self::ReadOnly(path)
            | Self::NotApproved { path, .. }
            | Self::Key(
                KeyError::Missing(path)
                | KeyError::Open { path, .. }
                | KeyError::Foreign(path)
                | KeyError::Malformed { path, .. }
                | KeyError::Mismatch(path),
            )
            | Self::SetAside(path)
            | Self::ForeignInVault(path)
            | Self::DanglingLink { path, .. }
            | Self::ProjectLinks { project: path, .. }
            | Self::ProjectMissing(path)
            | Self::RootMissing(path) => Some(path),
            _ => None,
        }
    }
}
