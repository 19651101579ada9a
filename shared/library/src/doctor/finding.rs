//! The problems that the doctor finds, as data. Callers write the messages.

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

/// The severity of a problem that the doctor found.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[schemars(rename = "ProblemSeverity")]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A skill, a key or an agent does not work until the problem is solved.
    Error,
    /// A part of the vault may not work as its user expects.
    Warning,
    /// Information that needs no action.
    Note,
}

/// The step that restores a damaged skill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// Pulling the linked vault from which the skill came.
    Pull,
    /// Installing the skills of the project in this folder again.
    Install(PathBuf),
    /// Adding the skill again from this source; `None` if the source is unknown.
    AddAgain(Option<ProvenanceId>),
    /// Adding the skill again from this folder or archive, from which it was added before.
    AddLocal(PathBuf),
    /// Removing the files beside the signed ones, which the doctor does with `clean`.
    Clean,
}

/// A problem that the doctor found on this machine.
#[derive(Debug)]
pub enum DoctorFinding {
    /// The vault's folder, or one of its own folders, belongs to another user.
    ForeignOwner(PathBuf),
    /// The vault's folder can't be examined, for this reason.
    FolderUnusable(String),
    /// Other users may write to the vault's folder, or to one of its own folders. Nothing is signed
    /// or installed there.
    OpenToOthers {
        /// Folder to which others may write.
        path: PathBuf,
        /// Permission bits of the folder.
        mode: u32,
    },
    /// The current user may not write to the vault's folder.
    ReadOnly(PathBuf),
    /// The key for releases can't be used, because it is missing, unreadable, damaged, or
    /// accessible to other users.
    Key(KeyError),
    /// Every key that can change the vault's keys is on this machine, so that a theft or loss of
    /// the machine would concern all of them.
    NoRecoveryKey,
    /// The recovery key was last checked at this time, a year ago or more.
    RecoveryCheckDue(Timestamp),
    /// The release at this address was signed before the vault's keys changed, so machines that
    /// link the vault do not know of the change.
    ReleaseBehind(String),
    /// A release expires within 30 days.
    ReleaseEnds {
        /// Address of the vault at its service.
        address: String,
        /// Time at which readers stop accepting the release.
        at: Timestamp,
        /// Whether this vault published the release, so that its owner can renew it.
        own: bool,
    },
    /// The last catalog of a linked vault has expired. Later releases, which may withdraw a skill,
    /// have not arrived.
    LinkExpired {
        /// Address of the linked vault.
        address: String,
        /// Time at which the catalog expired.
        since: Timestamp,
    },
    /// An own skill is rejected until it is signed again, because the key that signed it was
    /// revoked.
    NotSignedAgain(SkillName),
    /// A file that the owner writes differs from its approved version, which stays in force.
    NotApproved {
        /// Which of the owner's files differs.
        file: AuthoredFile,
        /// Path of the file in the vault.
        path: PathBuf,
        /// Whether no version of it was ever approved.
        is_first: bool,
    },
    /// A skill was signed at a later time than this machine's clock shows.
    ClockBehind {
        /// Present time by this machine's clock.
        now: Timestamp,
        /// Latest time at which an installed skill was signed.
        signed_at: Timestamp,
    },
    /// This machine remembers a later time than its clock shows. It rejects catalogs that expire
    /// before that time.
    ClockWasAhead {
        /// Present time by this machine's clock.
        now: Timestamp,
        /// Latest time at which this machine accepted a catalog.
        seen_at: Timestamp,
    },
    /// A killed writer left unfinished work behind, which the next writer cleans up.
    Unfinished,
    /// The doctor moved this folder to `set-aside` to sign it as a skill, but it was not signed.
    SetAside(PathBuf),
    /// The vault did not create this entry in its folders.
    ForeignInVault(PathBuf),
    /// The store contains this many bundles of earlier versions, which no skill uses.
    EarlierVersions(usize),
    /// A skill requires environment variables that are not set.
    EnvironmentUnset {
        /// Skill that declares the variables.
        skill: SkillName,
        /// Variables that are missing, at least one.
        variables: Vec<String>,
    },
    /// Metadata files of operating systems lie among a skill's files. They are never used.
    IgnoredMetadata {
        /// Skill beside whose files the metadata files lie.
        skill: SkillName,
        /// Paths of the files, relative to the skill.
        files: Vec<String>,
    },
    /// A skill fails verification.
    SkillDamaged {
        /// Installed skill that fails verification.
        skill: SkillName,
        /// First difference from what was signed.
        damage: Damage,
        /// Step that restores the skill.
        remedy: Remedy,
    },
    /// Intact skills are not used until the next release of their vault, because the key that
    /// signed them is revoked.
    SkillsWithheld {
        /// Name of the linked vault on this machine; `None` for own skills.
        vault: Option<String>,
        /// Names of the skills, at least one.
        skills: Vec<SkillName>,
    },
    /// A folder with a skill was put into the vault's folder by hand and is not signed.
    SkillUnsigned(SkillName),
    /// A folder with a skill was put into the vault's folder, and another tool recorded that it
    /// came from elsewhere. The doctor does not sign it as a skill of this machine.
    SkillFromElsewhere {
        /// Name of the folder, under which the skill would be signed.
        skill: SkillName,
        /// Folder of the skill.
        path: PathBuf,
        /// Source that the other tool recorded.
        source: RecordedSource,
    },
    /// The doctor has signed a skill just now, and some files of its folder are not part of it.
    /// They were not deleted.
    NotStored {
        /// Skill that was signed.
        skill: SkillName,
        /// Folder to which the files were moved.
        folder: PathBuf,
        /// Paths of the files in that folder. A whole folder is one path that ends with `/`.
        files: Vec<String>,
    },
    /// A linked skill can be named only together with its vault, because its bare name means
    /// another skill or none.
    NameTaken {
        /// Bare name of the linked skill.
        skill: SkillName,
        /// Name that means the linked skill: `<vault>/<name>`.
        qualified: String,
    },
    /// A folder that is not signed stands in place of a skill that the vault had signed.
    SkillReplaced(SkillName),
    /// The doctor could not sign a skill that lies in the vault without a signature.
    RepairFailed {
        /// Name of the skill, which is the name of its folder in `skills/`.
        skill: SkillName,
        /// Reason for not signing it, for messages.
        reason: String,
    },
    /// A variant that was rendered for an agent fails verification.
    VariantDamaged {
        /// Skill from which the variant was rendered.
        skill: SkillName,
        /// First difference of the variant from what was signed.
        damage: Damage,
    },
    /// `profiles.toml` is invalid, so nothing can be said about agents.
    ProfilesInvalid(ProfileSyncError),
    /// A symlink in an agent's folder leads nowhere.
    DanglingLink {
        /// Path of the symlink.
        path: PathBuf,
        /// Whether the vault made the symlink, so that the doctor may remove it.
        ours: bool,
    },
    /// A folder of an agent that is linked does not exist.
    RootMissing(PathBuf),
    /// A warning that the next sync of the agents' links would give.
    Profile(ProfileWarning),
    /// The symlinks in the agents' folders are out of date. The next sync updates them.
    LinksStale,
    /// The links to a project's skills are missing or lead elsewhere, or there are entries beside
    /// them that vault did not make.
    ProjectLinks {
        /// Folder of the project.
        project: PathBuf,
        /// Paths at which something is wrong.
        wrong: Vec<PathBuf>,
    },
    /// The folder of a project for which the vault stores skills no longer exists.
    ProjectMissing(PathBuf),
    /// These agents are installed on this machine but not linked to the vault.
    AgentNotLinked(Vec<AgentId>),
    /// The names and descriptions of an agent's skills are longer than the agent reads.
    ContextCost {
        /// Agent that does not read its whole list of skills.
        agent: AgentId,
        /// Length of the agent's list of skills, in characters.
        characters: usize,
        /// Number of characters of the list that the agent reads.
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

    /// Returns how serious the problem is.
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
            // The doctor removes only links that the vault made, so other dangling links are a
            // warning.
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

    /// Returns the skill that has the problem; `None` if the problem concerns no single skill.
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

    /// Returns the file or folder that has the problem; `None` if there is none.
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
