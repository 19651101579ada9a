//! The files in the vault's folder that its owner writes: the policy, the profiles and the
//! transforms (changes of a skill's text for single agents).
//!
//! Any process that can write to the folder can change them, so a file takes effect only after the
//! owner approved it. The approved versions lie in the trust folder, and every decision based on
//! such a file reads them there:
//!
//! ```text
//! vaults/<vault id>/approved/policy.toml
//! vaults/<vault id>/approved/profiles.toml
//! vaults/<vault id>/approved/transforms/<skill>/<name>.md
//! ```
//! If such a file was changed, added or deleted since its approval, it is *pending*: the approved
//! version stays in force.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use vault_format::name::SkillName;
use vault_gate::document::MAX_TRANSFORM_BYTES;
use vault_policy as policy;

use super::folder::{PrivateFolder, vault_folder};
use super::{Change, Vault, VaultError};
use crate::disk::{self, FileError, HeldPath, Kind};

/// Policy file in a vault's folder.
pub const POLICY_FILE: &str = "policy.toml";

/// File with the owner's rules for profiles, in the vault's folder.
pub const PROFILES_FILE: &str = "profiles.toml";
/// Folder of transforms, in the vault's folder.
const TRANSFORMS: &str = "transforms";
/// Folder of the approved versions, in the vault's part of the trust folder.
const APPROVED: &str = "approved";

/// A file that the owner writes. It takes effect only after the owner has approved it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum AuthoredFile {
    /// The policy, `policy.toml`.
    Policy,
    /// The rules for profiles, `profiles.toml`.
    Profiles,
    /// A transform, `transforms/<skill>/<name>.md`.
    Transform {
        /// Skill that the transform changes.
        skill: SkillName,
        /// Name of the transform, under which the skill has no other.
        name: SkillName,
    },
}

/// Writes the path relative to the vault's folder.
impl fmt::Display for AuthoredFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => formatter.write_str(POLICY_FILE),
            Self::Profiles => formatter.write_str(PROFILES_FILE),
            Self::Transform { skill, name } => write!(formatter, "{TRANSFORMS}/{skill}/{name}.md"),
        }
    }
}

impl AuthoredFile {
    /// Returns the owner's file at a path relative to the vault's folder; `None` if the owner
    /// writes no file there.
    pub fn from_path(path: &Path) -> Option<Self> {
        let parts: Option<Vec<_>> = path.iter().map(|part| part.to_str()).collect();
        match parts?[..] {
            [POLICY_FILE] => Some(Self::Policy),
            [PROFILES_FILE] => Some(Self::Profiles),
            [TRANSFORMS, skill, file] => Some(Self::Transform {
                skill: skill.parse().ok()?,
                name: file.strip_suffix(".md")?.parse().ok()?,
            }),
            _ => None,
        }
    }

    /// Returns the path of the file in this vault.
    pub fn path(&self, vault: &Vault) -> PathBuf {
        vault.paths().root.join(self.to_string())
    }

    pub(crate) fn held_path(&self, vault: &Vault) -> HeldPath {
        vault.folder().join(self.to_string())
    }

    /// Returns the limit for reading the file, in bytes. For the policy and the profiles it lies
    /// above the limit of the parser, so that the parser reports a file that is too large, with its
    /// limit.
    const fn max_bytes(&self) -> u64 {
        match self {
            Self::Policy => 4 * policy::MAX_BYTES as u64,
            Self::Profiles => 1 << 20,
            Self::Transform { .. } => MAX_TRANSFORM_BYTES,
        }
    }

    /// Returns the folder and the name of the approved version.
    fn approved_location(&self, vault: &Vault) -> (PrivateFolder, String) {
        let folder = approved_folder(vault);
        match self {
            Self::Policy => (folder, POLICY_FILE.to_owned()),
            Self::Profiles => (folder, PROFILES_FILE.to_owned()),
            Self::Transform { skill, name } => (
                folder.child(TRANSFORMS).child(skill.as_str()),
                format!("{name}.md"),
            ),
        }
    }

    /// Reads the file in the vault's folder, approved or not; `None` if it is absent.
    pub(crate) fn read_written(&self, vault: &Vault) -> Result<Option<Vec<u8>>, FileError> {
        disk::read(&self.held_path(vault), self.max_bytes())
    }

    /// Returns the approved version; `None` if there is none.
    pub fn read_approved(&self, vault: &Vault) -> Result<Option<Vec<u8>>, VaultError> {
        let (folder, name) = self.approved_location(vault);
        Ok(folder.read_file(&name)?.map(|bytes| bytes.to_vec()))
    }
}

fn approved_folder(vault: &Vault) -> PrivateFolder {
    vault_folder(&vault.paths().config, vault.id()).child(APPROVED)
}

/// A file that differs from its approved version.
#[derive(Debug)]
pub struct PendingFile {
    /// Which of the owner's files differs.
    pub file: AuthoredFile,
    /// The approved version, which stays in force; `None` if there is none.
    pub approved: Option<Vec<u8>>,
    /// Content in the vault's folder; `None` if the file was deleted there. An error if it can't be
    /// read.
    pub found: Result<Option<Vec<u8>>, FileError>,
}

/// Returns the pending files: those that differ from their approved versions.
pub fn pending_files(vault: &Vault) -> Result<Vec<PendingFile>, VaultError> {
    let mut files = BTreeSet::from([AuthoredFile::Policy, AuthoredFile::Profiles]);
    files.extend(approved_transforms(vault)?);
    files.extend(written_transforms(vault)?);
    let mut pending = Vec::new();
    for file in files {
        let approved = file.read_approved(vault)?;
        let found = file.read_written(vault);
        // A file that can't be read is pending as well, so that its owner learns why the approved
        // version stays in force.
        if !matches!(&found, Ok(found) if *found == approved) {
            pending.push(PendingFile {
                file,
                approved,
                found,
            });
        }
    }
    Ok(pending)
}

/// Lists the approved transforms, sorted by skill and name.
pub(crate) fn approved_transforms(vault: &Vault) -> Result<Vec<AuthoredFile>, VaultError> {
    let folder = approved_folder(vault).child(TRANSFORMS);
    let mut files = Vec::new();
    for skill in folder.folder_names()? {
        for name in folder.child(&skill).file_names()? {
            files.extend(transform_at(&skill, &name));
        }
    }
    Ok(files)
}

/// Lists the transforms in the vault's folder, approved or not, sorted by skill and name.
pub(crate) fn written_transforms(vault: &Vault) -> Result<Vec<AuthoredFile>, VaultError> {
    let root = vault.folder().join(TRANSFORMS);
    let mut files = Vec::new();
    for (skill, kind) in disk::list(&root)? {
        let (Some(skill), Kind::Dir) = (skill.to_str(), kind) else {
            continue;
        };
        for (name, _) in disk::list(&root.join(skill))? {
            files.extend(name.to_str().and_then(|name| transform_at(skill, name)));
        }
    }
    Ok(files)
}

fn transform_at(skill: &str, file: &str) -> Option<AuthoredFile> {
    AuthoredFile::from_path(&Path::new(TRANSFORMS).join(skill).join(file))
}

impl Change<'_> {
    /// Writes a file of the owner and approves it, for content that the owner gave to a command.
    pub(crate) fn write_authored(
        &mut self,
        file: &AuthoredFile,
        bytes: &[u8],
    ) -> Result<(), VaultError> {
        let path = file.held_path(self.vault);
        // If the process is killed between the two steps, the file is pending, and the owner is
        // asked to approve it.
        self.write_bytes(&path, bytes, 0o600)?;
        self.set_approved(file, Some(bytes))
    }

    /// Removes a file of the owner together with its approved version.
    pub(crate) fn remove_authored(&mut self, file: &AuthoredFile) -> Result<(), VaultError> {
        let path = file.held_path(self.vault);
        // Remove the approved version last. In the other order, a kill would leave the file without
        // an approved version, and the owner would be asked to approve what they removed.
        if disk::remove_file(&path)?
            && let Some(folder) = path.parent()
        {
            disk::sync_dir(&folder)?;
        }
        self.set_approved(file, None)
    }

    /// Sets the approved version of a file; `None` approves that the file is absent.
    pub(crate) fn set_approved(
        &mut self,
        file: &AuthoredFile,
        bytes: Option<&[u8]>,
    ) -> Result<(), VaultError> {
        self.vault.require_trust()?;
        // An approval changes what readers get, although no file of the vault's folder changes.
        self.mark_changing()?;
        let (folder, name) = file.approved_location(self.vault);
        match bytes {
            Some(bytes) => folder.replace_by(&self.vault.trust_folder(), &name, bytes)?,
            None => {
                folder.remove_file(&name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_file_of_the_owner_in_one_way_only() {
        for path in ["policy.toml", "profiles.toml", "transforms/pdf/team.md"] {
            let file = AuthoredFile::from_path(Path::new(path)).unwrap();
            assert_eq!(file.to_string(), path);
        }
        for path in [
            "",
            "/policy.toml",
            "../policy.toml",
            "policy.toml.md",
            "transforms",
            "transforms/pdf",
            "transforms/pdf/team",
            "transforms/../team.md",
            "transforms/pdf/../team.md",
            "transforms/pdf/a/b.md",
            "transforms/PDF/team.md",
        ] {
            assert_eq!(AuthoredFile::from_path(Path::new(path)), None, "{path}");
        }
    }
}
