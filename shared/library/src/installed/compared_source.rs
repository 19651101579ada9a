//! Finds the source with which an own skill is compared for updates: the place that it was fetched
//! from, or a folder of this machine. A difference between the two is called drift.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::provenance::{Kind, ProvenanceId, is_archive};
use vault_shelf::DriftState;
use vault_shelf::fetch::Upstream;

use super::source_folders::{self, FolderState};
use super::source_records;
use crate::vault::{Vault, VaultError};

/// The place of a skill's source with its current files.
#[derive(Clone, Debug)]
pub enum CurrentSource {
    /// The source has to be fetched.
    Fetched(Box<Upstream>),
    /// The source is the folder at this absolute path.
    Folder(PathBuf),
}

/// The reason for not comparing a skill with a source.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotCompared {
    /// The owner went back to an earlier version, and updates leave the skill out.
    #[error("held at an earlier version by a rollback; an update that names it ends the hold")]
    Held,
    /// The skill belongs to a linked vault, whose releases update it.
    #[error("comes from a linked vault, whose releases update it")]
    Linked,
    /// The skill was added from an archive on this machine.
    #[error("added from an archive")]
    Archive,
    /// The skill was added from a folder whose path is not recorded here.
    #[error("no folder is recorded for it on this machine")]
    UnknownFolder,
    /// The skill was submitted as text, which has no source to compare with.
    #[error("submitted as text")]
    Text,
    /// The skill was adopted from another vault.
    #[error("taken over from another vault")]
    OtherVault,
    /// Neither the manifest nor a record names a source.
    #[error("without a recorded source")]
    Unrecorded,
}

/// An own skill that is to be compared with its source.
#[derive(Clone, Copy, Debug)]
pub struct ComparedSkill<'a> {
    /// Name in the vault.
    pub name: &'a SkillName,
    /// SHA-256 of the installed bundle.
    pub bundle: &'a Digest,
    /// Source identifier from the signed manifest.
    pub provenance: &'a str,
}

/// The records of sources and holds on this machine, read once for many skills.
#[derive(Debug)]
pub struct RecordedSources<'v> {
    vault: &'v Vault,
    held: BTreeSet<SkillName>,
    folders: BTreeMap<SkillName, PathBuf>,
}

impl<'v> RecordedSources<'v> {
    /// Reads the records of a vault's own skills.
    pub fn read(vault: &'v Vault) -> Result<Self, VaultError> {
        let folders = source_folders::recorded_folders(vault)?.into_iter();
        Ok(Self {
            vault,
            held: vault.own_skills()?.held_skills().cloned().collect(),
            folders: folders.map(|folder| (folder.name, folder.path)).collect(),
        })
    }

    /// Returns the source of a skill, or why it is not compared. Set `named` if the caller chose
    /// this skill: then it is compared although a rollback holds it.
    pub fn current_source(
        &self,
        skill: ComparedSkill<'_>,
        named: bool,
    ) -> Result<Result<CurrentSource, NotCompared>, VaultError> {
        let ComparedSkill {
            name,
            bundle,
            provenance,
        } = skill;
        if !named && self.held.contains(name) {
            return Ok(Err(NotCompared::Held));
        }
        let identifier: Option<ProvenanceId> = provenance.parse().ok();
        // Prefer the upstream recorded for this bundle, if it matches the signed provenance.
        let recorded = source_records::of_bundle(self.vault, bundle)?
            .filter(|known| Some(&known.identifier) == identifier.as_ref());
        let source_record = match recorded {
            None => source_records::of_skill(self.vault, name)?,
            known => known,
        };
        let kind = identifier.as_ref().map(ProvenanceId::kind);
        let fetched = source_record.filter(|found| is_fetched(found.identifier.kind()));
        Ok(match (fetched, self.folders.get(name)) {
            (Some(upstream), _) => Ok(CurrentSource::Fetched(Box::new(upstream))),
            (None, Some(folder)) => Ok(CurrentSource::Folder(folder.clone())),
            (None, None) => Err(reason_not_compared(kind, provenance)),
        })
    }
}

/// Returns whether skills of this kind of source can be fetched again.
const fn is_fetched(kind: Kind) -> bool {
    !matches!(kind, Kind::Local | Kind::Inline | Kind::Vault)
}

fn reason_not_compared(kind: Option<Kind>, provenance: &str) -> NotCompared {
    match kind {
        Some(Kind::Local) if is_archive(provenance) => NotCompared::Archive,
        Some(Kind::Local) => NotCompared::UnknownFolder,
        Some(Kind::Inline) => NotCompared::Text,
        Some(Kind::Vault) => NotCompared::OtherVault,
        Some(_) | None => NotCompared::Unrecorded,
    }
}

/// Returns the drift of a skill whose installed version is `version`. `state` is the result of
/// comparing it with its folder; `None` means that the skill is no longer installed.
pub fn folder_drift(state: Option<&FolderState>, version: u64) -> DriftState {
    match state {
        Some(FolderState::Same) => DriftState::UpToDate,
        Some(FolderState::Changed) => DriftState::Drifted {
            recorded: format!("version {version}"),
            upstream: "changed files".to_owned(),
            is_rewritten: false,
        },
        Some(FolderState::Missing) => DriftState::Removed("its folder is gone".to_owned()),
        Some(FolderState::Unreadable(reason)) => {
            DriftState::Failed(format!("its folder cannot be read: {reason}"))
        }
        None => DriftState::Unchecked("removed meanwhile".to_owned()),
    }
}
