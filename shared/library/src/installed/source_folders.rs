//! Compares own skills with the folders of this machine that they were added from.
//!
//! The paths of the folders are recorded in the trust folder. An attacker who could change them
//! could get other files signed under the name of the skill.

use std::path::PathBuf;

use rayon::prelude::*;
use vault_format::hash::Digest;
use vault_format::manifest::{Manifest, SKILL_MD};
use vault_format::name::SkillName;
use vault_format::provenance::is_archive;
use vault_gate::secrets::looks_secret;
use vault_gate::{self as gate, RawFile};

use crate::disk::source::{self, SourceError};
use crate::store::{self, LIMITS};
use crate::vault::{Vault, VaultError};

/// An own skill and the folder that it was added from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SourceFolder {
    /// Name of the skill in the vault.
    pub name: SkillName,
    /// Absolute path of the folder.
    pub path: PathBuf,
    /// Whether symbolic links in the folder are replaced by copies of their targets, because they
    /// were when the skill was added.
    pub copy_links: bool,
}

/// The result of comparing a skill with its folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FolderState {
    /// The folder has the signed files.
    Same,
    /// The folder has other files, or other bytes or modes.
    Changed,
    /// The folder no longer exists.
    Missing,
    /// The folder can't be read as a skill, for this reason.
    Unreadable(String),
}

/// Returns the own skills whose folder is recorded on this machine, sorted by name. Skills from
/// archives are left out.
pub fn recorded_folders(vault: &Vault) -> Result<Vec<SourceFolder>, VaultError> {
    let folders = folders_with_manifests(vault)?.into_iter();
    Ok(folders.map(|(folder, _)| folder).collect())
}

/// Returns whether an update replaces symbolic links in the folder of a skill by copies of their
/// targets.
pub fn copies_links(vault: &Vault, name: &SkillName) -> Result<bool, VaultError> {
    let own = vault.own_skills()?;
    let local = own.local_source(name);
    Ok(local.is_some_and(|local| !local.copied_links.is_empty()))
}

/// Like [`recorded_folders`], with the result of comparing each skill with its folder. Reads every
/// file. Leaves out skills whose installed version another person wrote, because that version did
/// not come from the recorded folder.
pub fn compare_all(vault: &Vault) -> Result<Vec<(SourceFolder, FolderState)>, VaultError> {
    let own = vault.own_skills()?;
    let mut folders = folders_with_manifests(vault)?;
    folders.retain(|(folder, _)| !own.is_by_others(&folder.name));
    // Each comparison reads and hashes a whole folder, so they run on all cores.
    let folders = folders.into_par_iter();
    let compared = folders.map(|(folder, manifest)| {
        let state = folder_state(&manifest, &folder);
        (folder, state)
    });
    Ok(compared.collect())
}

fn folders_with_manifests(vault: &Vault) -> Result<Vec<(SourceFolder, Manifest)>, VaultError> {
    let own_skills = vault.own_skills()?;
    let (store, trusted) = (
        vault.store_folder(),
        vault.trusted_with(own_skills.clone())?,
    );
    let folders = own_skills.expected_skills().filter_map(|(name, bundle)| {
        let local = own_skills.local_source(name)?;
        let path = PathBuf::from(&local.path);
        let manifest = store::read_manifest(&store, &bundle, &trusted)?;
        // The record stays when a version from elsewhere is installed, so the signed manifest must
        // name the same source.
        // A path that is absent now may have been a folder, unless its name is that of an archive.
        let is_folder = if is_archive(local.identifier.as_str()) {
            path.is_dir()
        } else {
            !path.is_file()
        };
        let is_source = manifest.provenance.identifier == local.identifier && is_folder;
        let name = name.clone();
        let folder = SourceFolder {
            name,
            path,
            copy_links: !local.copied_links.is_empty(),
        };
        is_source.then_some((folder, manifest))
    });
    Ok(folders.collect())
}

fn folder_state(manifest: &Manifest, folder: &SourceFolder) -> FolderState {
    let path = &folder.path;
    let read = if folder.copy_links {
        let read = source::read_with_links(path, LIMITS, &gate::is_ignored);
        let read = read.and_then(source::replace_links_by_copies);
        read.map(|(read, _)| read)
    } else {
        source::read_skill_folder(path, LIMITS, &gate::is_ignored)
    };
    match read {
        Ok(read) => {
            if has_files(manifest, read.files) {
                FolderState::Same
            } else {
                FolderState::Changed
            }
        }
        Err(SourceError::Missing(_)) => FolderState::Missing,
        Err(error) => FolderState::Unreadable(error.to_string()),
    }
}

/// Returns whether an update from these files would leave the skill as it is.
fn has_files(manifest: &Manifest, mut files: Vec<RawFile>) -> bool {
    // An update takes files that look like secrets only if the skill has them already.
    files.retain(|file| {
        manifest.file(&file.path).is_some() || !looks_secret(&file.path, &file.bytes)
    });
    // The gate renames a document in another letter case, such as `skill.md`, to SKILL.md.
    let is_document = |file: &&mut RawFile| file.path.eq_ignore_ascii_case(SKILL_MD);
    if let Some(document) = files.iter_mut().find(is_document) {
        SKILL_MD.clone_into(&mut document.path);
    }
    files.len() == manifest.files.len()
        && files.iter().all(|file| {
            manifest.file(&file.path).is_some_and(|signed| {
                signed.mode == file.mode
                    && signed.size == file.bytes.len() as u64
                    && signed.sha256 == Digest::of(&file.bytes)
            })
        })
}
