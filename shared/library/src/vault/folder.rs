//! The trust folder: keys, and every record that gives this machine trust or decides what it does.
//! It lies outside the vault's folder, so that copying, syncing or restoring a vault neither adds
//! nor removes trust.
//!
//! ```text
//! <config>/vaults/<vault id>/trust.json    the root versions in force, for own and linked vaults
//! <config>/vaults/<vault id>/keys/         secret keys of the own vault
//! <config>/vaults/<vault id>/releases/     releases that a service acknowledged
//! <config>/vaults/<vault id>/approved/     approved versions of files that the owner writes
//! <config>/vaults/<vault id>/own-skills.json, withdrawn.json, upstream/
//!                                          the own skills with their versions, what releases
//!                                          withdraw, and where skills were fetched from
//! <config>/vaults/<vault id>/agent-folders.json, disabled.json
//!                                          the agents' folders that hold links and copies, and the
//!                                          skills that no agent is shown
//! <config>/vaults/<vault id>/variants.json which bundle an agent gets in place of a skill
//! <config>/vaults/<vault id>/drafts/      changes of agents that wait for the owner
//! <config>/vaults/<vault id>/index-seal    the key of the HMAC over rows of the index
//! <config>/links/<link>/                   device key, pin and accepted catalog of a linked vault
//! <config>/services/<origin>/              tokens of the sign-in
//! <config>/folders/<hash>/                 which vault a folder holds
//! <config>/projects/<hash>/                record and key of a project
//! <config>/running/                        copies that actions run from
//! <config>/trying/                         skills that agents read while `vault try` runs
//! ```
//! `<config>` is usually `~/.config/vault`. The folders below it must have mode 0700 and the files
//! 0600; a file that others can access is rejected. `<config>` itself may be a symbolic link, and
//! others may read it but not write to it, because people keep settings in it that are no secrets.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::root::VaultId;
use zeroize::Zeroizing;

use super::VaultError;
use super::key_error::KeyError;
use crate::disk::{self, HeldPath, Kind, Location};

/// Size limit of a file in the trust folder, in bytes. The largest records, for 10,000 skills and
/// several agents, are the pin of a link during a switch and the record of variants.
const MAX_FILE: u64 = 64 << 20;

/// File with the key that seals the rows of the index, so that they can't be forged.
pub(super) const INDEX_SEAL_FILE: &str = "index-seal";

/// A folder below the trust folder. Its functions check that only the owner has access.
#[derive(Clone, Debug)]
pub(crate) struct PrivateFolder {
    config: PathBuf,
    below: PathBuf,
}

impl PrivateFolder {
    /// Returns the folder at a relative path below the trust folder. It may not exist yet.
    pub(crate) fn new(config: &Path, below: impl AsRef<Path>) -> Self {
        Self {
            config: config.to_owned(),
            below: below.as_ref().to_owned(),
        }
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Self {
            config: self.config.clone(),
            below: self.below.join(name),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.config.join(&self.below)
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Creates the folder if it is missing. Fails if other users can access it.
    pub(crate) fn ensure_exists(&self) -> Result<(), KeyError> {
        disk::make_dirs(&self.path(), 0o700)?;
        self.check_access()
    }

    /// Fails if other users can access the folder, or write to a folder above it.
    fn check_access(&self) -> Result<(), KeyError> {
        check_top(&self.config)?;
        // A user who can write to any folder on the way could replace everything below it.
        let mut path = self.config.clone();
        for part in &self.below {
            path.push(part);
            check_private(&path)?;
        }
        Ok(())
    }

    /// Removes the temporary files of killed processes.
    pub(crate) fn sweep_leftovers(&self) -> Result<(), KeyError> {
        Ok(disk::sweep_asides(&self.path())?)
    }

    /// Reads a file; `None` if it is absent. Fails if other users can access it.
    pub(crate) fn read_file(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
        let path = self.path_of(name);
        let Some(bytes) = disk::read_secret(&path, MAX_FILE)? else {
            return Ok(None);
        };
        match self.check_access().and_then(|()| check_private(&path)) {
            Ok(()) => Ok(Some(bytes)),
            // Another command removed the file after it was opened.
            Err(KeyError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file atomically, or replaces an earlier one.
    pub(crate) fn replace_file(&self, name: &str, bytes: &[u8]) -> Result<(), KeyError> {
        self.ensure_exists()?;
        // A writer that was killed before its rename left a temporary file here, which may hold a
        // secret.
        self.sweep_leftovers()?;
        Ok(disk::replace(
            &self.path_of(name),
            bytes,
            0o600,
            &self.path(),
        )?)
    }

    /// Like [`Self::replace_file`], but writes the temporary file to the folder `aside`. If this
    /// process is killed, the next write to that folder removes the temporary file.
    pub(crate) fn replace_by(
        &self,
        aside: &Self,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), KeyError> {
        self.ensure_exists()?;
        Ok(disk::replace(
            &self.path_of(name),
            bytes,
            0o600,
            &aside.path(),
        )?)
    }

    /// Writes a file atomically. Returns false and changes nothing if one of this name exists.
    pub(crate) fn create_file(&self, name: &str, bytes: &[u8]) -> Result<bool, KeyError> {
        self.ensure_exists()?;
        self.sweep_leftovers()?;
        Ok(disk::create(
            &self.path_of(name),
            bytes,
            0o600,
            &self.path(),
        )?)
    }

    /// Reads a JSON record; `None` if it is absent.
    pub(crate) fn read_record<T: DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<T>, VaultError> {
        let Some(bytes) = self.read_file(name)? else {
            return Ok(None);
        };
        let record = json::parse(&bytes).map_err(|reason| VaultError::Damaged {
            path: self.path_of(name),
            reason: reason.to_string(),
        })?;
        Ok(Some(record))
    }

    /// Writes a JSON record atomically, or replaces an earlier one.
    pub(crate) fn write_record<T: Serialize>(
        &self,
        name: &str,
        record: &T,
    ) -> Result<(), KeyError> {
        self.replace_file(name, &json::to_bytes(record))
    }

    /// Writes a JSON record atomically to a subfolder. The subfolder may hold many files, so it is
    /// never listed.
    pub(crate) fn write_record_in<T: Serialize>(
        &self,
        folder: &str,
        name: &str,
        record: &T,
    ) -> Result<(), KeyError> {
        self.ensure_exists()?;
        self.sweep_leftovers()?;
        // Put the temporary file into this folder: removing leftovers lists a folder, which would
        // be slow in one with a record for each of 10,000 skills.
        let below = self.child(folder);
        below.ensure_exists()?;
        Ok(disk::replace(
            &below.path_of(name),
            &json::to_bytes(record),
            0o600,
            &self.path(),
        )?)
    }

    pub(crate) fn rename_file(&self, from: &str, to: &str) -> Result<(), KeyError> {
        disk::rename(&self.path_of(from), &self.path_of(to))?;
        // Without a flush, the old name could come back after a power failure, when the caller
        // relies on the new one.
        Ok(disk::sync_dir(&self.path())?)
    }

    /// Removes a file; returns whether it existed.
    pub(crate) fn remove_file(&self, name: &str) -> Result<bool, KeyError> {
        Ok(disk::remove_file(&self.path_of(name))?)
    }

    pub(crate) fn remove_all(&self) -> Result<(), KeyError> {
        Ok(disk::remove_tree(&self.path())?)
    }

    /// Copies the files of another folder and of its subfolders, except the entries named in `but`.
    /// Existing files are replaced.
    pub(crate) fn copy_from(&self, other: &Self, but: &[&str]) -> Result<(), KeyError> {
        self.copy_files(other, but, Self::replace_file)
    }

    /// Like [`Self::copy_from`], but keeps existing files, so that a retry completes an interrupted
    /// copy.
    pub(crate) fn complete_from(&self, other: &Self, but: &[&str]) -> Result<(), KeyError> {
        self.copy_files(other, but, |to, name, bytes| {
            to.create_file(name, bytes).map(drop)
        })
    }

    fn copy_files(
        &self,
        other: &Self,
        but: &[&str],
        put: fn(&Self, &str, &[u8]) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        for name in other.file_names()? {
            if !but.contains(&name.as_str())
                && let Some(bytes) = other.read_file(&name)?
            {
                put(self, &name, &bytes)?;
            }
        }
        for name in other.folder_names()? {
            if !but.contains(&name.as_str()) {
                // The exceptions concern the top folder only.
                self.child(&name)
                    .copy_files(&other.child(&name), &[], put)?;
            }
        }
        Ok(())
    }

    /// Names of the regular files in the folder, sorted; empty if it is absent.
    pub(crate) fn file_names(&self) -> Result<Vec<String>, KeyError> {
        self.entry_names(Kind::File)
    }

    /// Names of the subfolders, sorted; empty if the folder is absent.
    pub(crate) fn folder_names(&self) -> Result<Vec<String>, KeyError> {
        self.entry_names(Kind::Dir)
    }

    fn entry_names(&self, entry_kind: Kind) -> Result<Vec<String>, KeyError> {
        let listed = disk::list(&self.path())?.into_iter();
        Ok(listed
            .filter(|(_, kind)| *kind == entry_kind)
            .filter_map(|(name, _)| name.into_string().ok())
            .collect())
    }
}

/// Returns the part of the trust folder that belongs to one vault.
pub(crate) fn vault_folder(config: &Path, id: &VaultId) -> PrivateFolder {
    PrivateFolder::new(config, Path::new("vaults").join(id.as_str()))
}

/// Fails if the trust folder belongs to another user or other users can write to it. An absent
/// folder passes.
pub(super) fn check_top(config: &Path) -> Result<(), KeyError> {
    match disk::folder_mode_and_owner(config)? {
        Some((mode, owner)) => check_mode(config, mode, owner, 0o022),
        None => Ok(()),
    }
}

/// Subfolders of every vault.
pub(super) const FOLDERS: [&str; 4] = ["store", "skills", "links", "tmp"];

/// Further subfolders of a vault, each created when it is first needed.
const OPTIONAL_FOLDERS: [&str; 2] = ["profiles", "transforms"];

/// Fails if the vault's folder or one of its [`FOLDERS`] belongs to another user or can be written
/// to by others, or if a link stands in place of a subfolder. Absent folders pass.
pub(super) fn check_vault(root: &HeldPath) -> Result<(), VaultError> {
    for name in FOLDERS.iter().chain(&OPTIONAL_FOLDERS) {
        // A link here would lead bundles, or the links to them, out of the vault.
        disk::reject_link(&root.join(name))?;
    }
    let below = FOLDERS.map(|name| root.join(name));
    // The owner may have made the vault's folder itself a link, so check its target.
    let top = disk::folder_mode_and_owner(root.top_folder())?;
    let mut found = vec![(root.path(), top)];
    for path in below {
        found.push((path.path(), disk::mode_and_owner(&path)?));
    }
    for (path, found) in found {
        let Some((mode, owner)) = found else {
            continue;
        };
        match check_mode(&path, mode, owner, 0o022) {
            Ok(()) => {}
            Err(KeyError::Open { path, mode }) => {
                return Err(VaultError::WritableByOthers { path, mode });
            }
            Err(KeyError::Foreign(path)) => return Err(VaultError::OfAnotherUser(path)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fails unless the path belongs to this user and only its owner has access.
fn check_private(path: &Path) -> Result<(), KeyError> {
    let Some((mode, owner)) = disk::mode_and_owner(path)? else {
        return Err(KeyError::Missing(path.to_owned()));
    };
    check_mode(path, mode, owner, 0o077)
}

/// Fails if another user owns the path, or if its mode has one of the bits `refused`.
fn check_mode(path: &Path, mode: u32, owner: u32, refused: u32) -> Result<(), KeyError> {
    let user = disk::effective_user();
    // Root may use files that belong to the user that runs the service.
    if owner != user && user != 0 {
        return Err(KeyError::Foreign(path.to_owned()));
    }
    if mode & refused != 0 {
        return Err(KeyError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// Encodes a text as a file name that no other text gets. Bytes outside a safe set become `%XX`; a
/// long name is cut and the hash of the text appended.
pub(crate) fn file_name(text: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            // A leading dot would hide the file, or name the parent.
            b'.' if !name.is_empty() => name.push('.'),
            other => {
                let _infallible = write!(name, "%{other:02X}");
            }
        }
    }
    // Most file systems allow 255 bytes in a name. A percent sign is otherwise followed by two hex
    // digits, so the doubled one of a cut name occurs in no other name.
    if name.is_empty() || name.len() > 180 {
        let hash = Digest::of(text.as_bytes()).to_string();
        let mut cut = 100.min(name.len());
        while !name.is_char_boundary(cut) {
            cut -= 1;
        }
        name = format!("{}%%{hash}", &name[..cut]);
    }
    name
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_can_access_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let config = home.path().join("config");
        let folder = PrivateFolder::new(&config, "vaults/a/keys");
        folder.replace_file("secret", b"x").unwrap();
        assert_eq!(
            folder.read_file("secret").unwrap().unwrap().as_slice(),
            b"x"
        );
        for (path, good, bad) in [
            (folder.path_of("secret"), 0o600, 0o640),
            (folder.path(), 0o700, 0o705),
            (config.join("vaults/a"), 0o700, 0o750),
            (config.join("vaults"), 0o700, 0o710),
            (config.clone(), 0o755, 0o775),
        ] {
            set_mode(&path, bad);
            assert!(
                matches!(folder.read_file("secret"), Err(KeyError::Open { .. })),
                "{}",
                path.display()
            );
            set_mode(&path, good);
            assert!(folder.read_file("secret").unwrap().is_some());
        }
    }

    #[test]
    fn a_trust_folder_behind_a_link_is_judged_by_what_it_leads_to() {
        let home = tempfile::tempdir().unwrap();
        let (there, config) = (home.path().join("there"), home.path().join("config"));
        std::fs::create_dir(&there).unwrap();
        std::os::unix::fs::symlink(&there, &config).unwrap();
        let folder = PrivateFolder::new(&config, "links/a");
        folder.replace_file("pin.json", b"{}").unwrap();
        set_mode(&there, 0o777);
        assert!(matches!(
            folder.replace_file("pin.json", b"{}"),
            Err(KeyError::Open { .. })
        ));
    }

    #[test]
    fn file_names_stand_for_one_text_only() {
        let long = "x".repeat(300);
        let longer = "x".repeat(301);
        let texts = [
            "https://vault.example",
            "https://vault.example/",
            "http://vault.example",
            "..",
            ".",
            "",
            "a%2F",
            "a/",
            "é",
            &long,
            &longer,
        ];
        let names: std::collections::BTreeSet<_> =
            texts.iter().map(|text| file_name(text)).collect();
        assert_eq!(names.len(), texts.len());
        for name in names {
            assert!(
                name.len() < 200 && !name.starts_with('.') && !name.contains('/'),
                "{name}"
            );
        }
        assert_eq!(
            file_name("https://vault.example:8443"),
            "https%3A%2F%2Fvault.example%3A8443"
        );
    }
}
