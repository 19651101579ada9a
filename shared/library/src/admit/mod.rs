//! Admission: the only way in which skills are checked, signed and installed.
//!
//! [`examine_candidate`] reads a [`Source`], compares it with the installed skills ([`Neighbours`])
//! and runs the gate, the scan that blocks dangerous or malformed skills. A skill that passes is a
//! [`Candidate`]. [`admit_candidates`] takes the writer lock, decides the version, signs and stores
//! the skills, and switches one link for each of them. Everything goes through these two functions
//! or their variants: adding, updating, rolling back, repairing, adopting (installing with the
//! signature of another publisher), signing again after a key was replaced, rendering variants for
//! one agent, and all that an MCP tool writes.
//!
//! An *own* skill is one that this vault admitted; a *linked* skill comes from a vault that it
//! subscribes to.
//!
//! | module | holds |
//! |---|---|
//! | [`add`], [`propose`], [`update`] | the library's interface: one input and one report each |
//! | `source` | what can be admitted, and with which options |
//! | [`check`] | the gate, with what the vault knows about a new skill |
//! | `local` | reading the folders of this machine |
//! | `install` | deciding, storing, switching links |
//! | `sign` | the only place that signs manifests |
//! | `sign_again` | signing own skills again with the current key |
//! | `writer` | the writer lock, and cleaning up after a killed writer |
//! | [`project`] | skills of a project, apart from the own ones |
//! | [`variants`] | skills rendered for one agent |
//! | [`approve`] | putting files that the owner wrote into force |
//! | [`history`], [`remove`] | stored versions and rollback; removing skills |

pub mod add;
pub mod approve;
pub mod check;
mod compare;
pub(crate) mod equal_variants;
pub mod history;
mod install;
mod local;
mod origin;
pub mod project;
pub mod propose;
pub mod remove;
mod sign;
mod sign_again;
mod source;
pub mod update;
pub mod variants;
mod writer;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::hash::Digest;
use vault_format::manifest::ManifestError;
use vault_format::name::{BadName, SkillName};
use vault_format::provenance::{BadProvenance, ProvenanceId};
use vault_format::text::printable;
use vault_format::words;
use vault_gate::Outcome;
use vault_gate::derived::DerivedMismatch;
use vault_gate::finding::Finding;
use vault_shelf::fetch::PinError;

use crate::disk::FileError;
use crate::disk::source::SourceError;
use crate::vault::VaultError;
use crate::vault::keys::{KeyError, agent_refusal};

pub use check::Neighbours;
pub use install::{admit_all, admit_candidates, admit_one, preview_admission};
pub(crate) use install::{admit_all_under, admit_under, linked_skill_error};
pub use sign_again::Resigned;
pub(crate) use sign_again::{list_unsigned, sign_again, sign_waiting};
pub(crate) use source::Purpose;
pub use source::{
    Base, Candidate, Earlier, Options, Secrets, Source, examine_candidate, unknown_includes,
};

words! {
    /// What an admission did with the skill.
    #[derive(JsonSchema)]
    pub enum Admission {
        /// The vault had no own skill of this name. The skill is signed and installed.
        Added = "added",
        /// The skill is signed as the next version and replaces the installed one.
        Updated = "updated",
        /// The same files, agents and source were already installed; nothing was signed.
        Unchanged = "unchanged",
    }
}

/// A skill as it is installed after its admission, with the findings of the scan.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "AdmittedSkill")]
pub struct AdmitReport {
    /// Name under which the skill is installed, which can differ from the one in its SKILL.md.
    pub name: SkillName,
    /// Version that is installed after the command, from 1.
    pub version: u64,
    /// SHA-256 of the bundle that is installed after the command.
    #[serde(rename = "bundle_hash")]
    pub bundle: Digest,
    /// Whether the skill is new, has a new version, or stays as it was.
    pub admission: Admission,
    /// Version that the skill replaced; `None` for a new skill.
    #[serde(skip)]
    pub before: Option<u64>,
    /// Whether the gate (the scan of the files) accepted the skill with or without warnings.
    pub outcome: Outcome,
    /// Findings of the gate, none of which blocks the skill.
    pub findings: Vec<Finding>,
    /// Identifier of the source, as the signed manifest records it.
    pub provenance: ProvenanceId,
    /// Number of files of the skill, including SKILL.md.
    pub files: usize,
    /// Size of all files, in bytes.
    pub bytes: u64,
    /// The files of the source that look like secrets.
    #[serde(flatten)]
    pub secrets: Secrets,
}

impl AdmitReport {
    /// Whether the installed skill changed.
    pub fn is_change(&self) -> bool {
        self.admission != Admission::Unchanged
    }
}

/// Error of an admission. The vault is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// The source is not a local path, and the caller provided no fetcher.
    #[error("no such file or folder: {source_text}")]
    SourceUnsupported {
        /// The source as the caller gave it.
        source_text: String,
    },
    /// A local folder is missing, changed during the read, or has entries that no skill may have,
    /// such as links.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The gate blocked the skill.
    #[error("the gate refused the skill: {}", first_message(.findings))]
    Blocked {
        /// All findings, blocking ones first.
        findings: Vec<Finding>,
    },
    /// The manifest of an adopted skill declares actions or agents that do not follow from its
    /// files.
    #[error(transparent)]
    Derived(#[from] DerivedMismatch),
    /// The files differ from the reviewed ones.
    #[error("the files are {found}, and those that were reviewed are {reviewed}")]
    NotReviewed {
        /// SHA-256 over the reviewed files.
        reviewed: Digest,
        /// SHA-256 over the files as the source has them now.
        found: Digest,
    },
    /// A skill of this name is installed from another source.
    #[error("{name} is installed from {recorded}; this one is from {given}")]
    NameTaken {
        /// Name of both skills.
        name: SkillName,
        /// Source of the installed skill.
        recorded: ProvenanceId,
        /// Source of the new skill.
        given: ProvenanceId,
    },
    /// A skill of this name was added from another folder or archive whose path ends with the same
    /// name, so that both have the same source identifier.
    #[error("{name} was added from {}; this one is in {}", recorded.display(), given.display())]
    OtherPlace {
        /// Name of both skills.
        name: SkillName,
        /// Folder or archive of the installed skill.
        recorded: PathBuf,
        /// Folder or archive of the new skill.
        given: PathBuf,
    },
    /// A skill of this name came from a folder or archive with the same last name, but an earlier
    /// version of vault did not record which one.
    #[error(
        "{name} was added from a folder or archive that is not recorded on this machine; this one is in {}",
        given.display()
    )]
    UnknownPlace {
        /// Name of both skills.
        name: SkillName,
        /// Folder or archive of the new skill.
        given: PathBuf,
    },
    /// A skill of this name came from another folder of the same source.
    #[error(
        "{name} is installed from {} in {place}; this one is in {}",
        shown_folder(.recorded),
        shown_folder(.given)
    )]
    OtherPart {
        /// Name of both skills.
        name: SkillName,
        /// Source of both skills.
        place: ProvenanceId,
        /// Folder of the installed skill in the source; empty for the root.
        recorded: String,
        /// Folder of the new skill in the source.
        given: String,
    },
    /// The name belongs to a skill that submitted text may not replace, or to a skill of a linked
    /// vault.
    #[error("there is a skill named `{name}`: {reason}")]
    Occupied {
        /// Name that is taken.
        name: SkillName,
        /// Reason for keeping the other skill under the name, as part of a sentence.
        reason: String,
    },
    /// The skill to update was removed before the update could be installed, or was never
    /// installed.
    #[error("{0} is no longer installed")]
    NotInstalled(SkillName),
    /// The source no longer carries the signature that was pinned when the skill was added.
    #[error("{name} can no longer be updated from {place}: {cause}")]
    Signer {
        /// The skill that should be updated.
        name: SkillName,
        /// Source that the new version came from.
        place: ProvenanceId,
        /// Difference between the signature at the source and the pinned one.
        cause: PinError,
    },
    /// The source has a skill with another name now, and the record does not tell for sure from
    /// which of its folders the installed one came.
    #[error("{name} can no longer be updated from {place}: it has the skill {} now", printable(.found))]
    OtherSkill {
        /// The skill that should be updated.
        name: SkillName,
        /// Source that the new version came from.
        place: ProvenanceId,
        /// Name in the SKILL.md that the source has now.
        found: String,
    },
    /// The folder's name can't be part of a source identifier.
    #[error("no source can be recorded for this folder: {0}")]
    Provenance(#[from] BadProvenance),
    /// SKILL.md or the caller names [`ANY_AGENT`](vault_format::name::ANY_AGENT) as an agent.
    #[error("`agents` of {0}: {error}", error = BadName::AnyAgent)]
    AnyAgent(SkillName),
    /// The skill passed the gate, but breaks a limit of manifests or bundles.
    #[error("the skill can't be signed: {0}")]
    Unsignable(String),
    /// Another version was installed since a person compared the files with the installed skill
    /// ([`Options::base`]).
    #[error("{0} has changed since it was compared")]
    BaseChanged(SkillName),
    /// Two candidates of one command have the same name.
    #[error("{0} was given twice")]
    Twice(SkillName),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl AdmitError {
    /// Returns whether the skill is rejected only because the installed one came from another
    /// source. The option `replace` admits it.
    pub const fn is_other_source(&self) -> bool {
        matches!(
            self,
            Self::NameTaken { .. }
                | Self::OtherPlace { .. }
                | Self::OtherPart { .. }
                | Self::UnknownPlace { .. }
        )
    }
}

impl From<FileError> for AdmitError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<KeyError> for AdmitError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<ManifestError> for AdmitError {
    fn from(failed: ManifestError) -> Self {
        match failed {
            ManifestError::Unsigned(error) => match agent_refusal(error) {
                // An SSH agent that does not sign is a fault of the key: the skill itself can be
                // signed later.
                Ok(refusal) => refusal.into(),
                Err(error) => Self::Unsignable(error.to_string()),
            },
            failed => Self::Unsignable(failed.to_string()),
        }
    }
}

/// The folder of a source in messages.
fn shown_folder(folder: &str) -> String {
    match folder {
        "" => "its root".to_owned(),
        folder => printable(folder),
    }
}

fn first_message(findings: &[Finding]) -> &str {
    findings.first().map_or("", |finding| &finding.message)
}
