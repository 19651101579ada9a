//! Secret keys and tokens. They lie outside the vault's folder, so that a copied or synced vault
//! never contains them.
//!
//! ```text
//! <config>/keys/<vault_id>            the release key: signs manifests, catalogs, rotations
//! <config>/keys/<vault_id>.pub        its public half, for readers
//! <config>/keys/<vault_id>.recovery   the recovery key, until its owner moves it away
//! <config>/keys/<vault_id>.recovery.pub
//! <config>/devices/<link>             one device key for each linked vault
//! <config>/tokens/<origin>/<slug>     tokens of the sign-in
//! ```
//! Files have mode 0600, in folders of mode 0700. A key file is created atomically, under a name
//! that must be free. A secret that other users can access is rejected. Passphrases are not
//! supported yet.

use std::path::{Path, PathBuf};

use vault_skill::hash::Digest;
use vault_skill::keys::{PublicKey, SecretKey};
use vault_skill::name::VaultId;
use vault_store::random::Random;
use zeroize::Zeroizing;

use crate::disk::{self, FileError};

/// Why a key or token file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key is not on this machine: the vault was copied here, or the key was moved away.
    #[error("there is no key at {}", .0.display())]
    Missing(PathBuf),
    /// Group or others have access to the file or its folder.
    #[error("{} is open to others (mode {mode:04o}); a secret must be its owner's alone", path.display())]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file or folder belongs to another user.
    #[error("{} belongs to another user", .0.display())]
    Foreign(PathBuf),
    /// The content is not in the format that this version writes.
    #[error("{} is not a {kind} key file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The kind of key that it should hold.
        kind: &'static str,
    },
    /// The secret key and the public key do not match.
    #[error("{} is not the public half of the key beside it", .0.display())]
    Mismatch(PathBuf),
    /// A system call failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The purpose of a key. The key file names it, so that a key of one kind is never used as another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// Signs manifests, catalogs and rotations.
    Release,
    /// Signs the statement that replaces a lost or stolen release key.
    Recovery,
    /// Signs a device's requests to one linked vault.
    Device,
}

impl KeyKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Recovery => "recovery",
            Self::Device => "device",
        }
    }
}

/// Generates a secret key.
pub fn generate(random: &dyn Random) -> SecretKey {
    let mut seed = Zeroizing::new([0_u8; 32]);
    random.fill(&mut *seed);
    SecretKey::from_seed(*seed)
}

/// Reads a key file at any path, for example a recovery key on a USB stick. Does not check the
/// permissions.
pub fn read_file(path: &Path, kind: KeyKind) -> Result<SecretKey, KeyError> {
    let bytes = disk::read(path, MAX_FILE)?.ok_or_else(|| KeyError::Missing(path.to_owned()))?;
    let text = Zeroizing::new(bytes);
    parse(&text, kind).ok_or_else(|| KeyError::Malformed {
        path: path.to_owned(),
        kind: kind.word(),
    })
}

const MAX_FILE: u64 = 64 * 1024;

fn parse(text: &[u8], kind: KeyKind) -> Option<SecretKey> {
    let text = std::str::from_utf8(text).ok()?;
    let hex = text
        .strip_suffix('\n')
        .unwrap_or(text)
        .strip_prefix("vault.")?
        .strip_prefix(kind.word())?
        .strip_prefix("-key/1 ")?;
    if hex.len() != 64
        || !hex
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    let mut seed = Zeroizing::new([0_u8; 32]);
    for (byte, pair) in seed.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(SecretKey::from_seed(*seed))
}

fn text(key: &SecretKey, kind: KeyKind) -> Zeroizing<String> {
    use std::fmt::Write as _;
    let seed = key.seed();
    let mut text = Zeroizing::new(String::with_capacity(128));
    let _infallible = write!(*text, "vault.{}-key/1 ", kind.word());
    for byte in seed.iter() {
        let _infallible = write!(*text, "{byte:02x}");
    }
    text.push('\n');
    text
}

/// A folder of secret files under the configuration folder.
#[derive(Clone, Debug)]
pub(crate) struct SecretFolder {
    path: PathBuf,
}

impl SecretFolder {
    pub(crate) fn new(config: &Path, name: &str) -> Self {
        Self {
            path: config.join(name),
        }
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates the folder if it is missing; fails if other users can access it.
    pub(crate) fn ensure(&self) -> Result<(), KeyError> {
        disk::make_dirs(&self.path, 0o700)?;
        check_private(&self.path)
    }

    /// Removes the temporary files of dead processes.
    pub(crate) fn sweep(&self) -> Result<(), KeyError> {
        Ok(disk::sweep_asides(&self.path)?)
    }

    /// Reads a secret; `None` if the file is absent. Fails if other users can access the file or
    /// its folder.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
        let path = self.path_of(name);
        let Some(bytes) = disk::read(&path, MAX_FILE)? else {
            return Ok(None);
        };
        let bytes = Zeroizing::new(bytes);
        check_private(&self.path)?;
        check_private(&path)?;
        Ok(Some(bytes))
    }

    /// Writes a secret, replacing an earlier one.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), KeyError> {
        self.ensure()?;
        Ok(disk::replace(
            &self.path_of(name),
            bytes,
            0o600,
            &self.path,
        )?)
    }

    /// Writes a key; returns false if a file of this name exists.
    pub(crate) fn create_key(
        &self,
        name: &str,
        kind: KeyKind,
        key: &SecretKey,
    ) -> Result<bool, KeyError> {
        self.ensure()?;
        Ok(disk::create(
            &self.path_of(name),
            text(key, kind).as_bytes(),
            0o600,
            &self.path,
        )?)
    }

    pub(crate) fn read_key(
        &self,
        name: &str,
        kind: KeyKind,
    ) -> Result<Option<SecretKey>, KeyError> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        match parse(&bytes, kind) {
            Some(key) => Ok(Some(key)),
            None => Err(KeyError::Malformed {
                path: self.path_of(name),
                kind: kind.word(),
            }),
        }
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), KeyError> {
        disk::rename(&self.path_of(from), &self.path_of(to))?;
        Ok(disk::sync_dir(&self.path)?)
    }

    /// Removes a file; returns whether it existed.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, KeyError> {
        Ok(disk::remove_file(&self.path_of(name))?)
    }
}

/// Fails unless the path belongs to this user and only its owner has access.
fn check_private(path: &Path) -> Result<(), KeyError> {
    let Some((mode, owner)) = disk::mode_and_owner(path)? else {
        return Err(KeyError::Missing(path.to_owned()));
    };
    let user = disk::effective_user();
    // Root may read files of the user that runs the service.
    if owner != user && user != 0 {
        return Err(KeyError::Foreign(path.to_owned()));
    }
    if mode & 0o077 != 0 {
        return Err(KeyError::Open {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// The keys of one vault.
#[derive(Clone, Debug)]
pub struct VaultKeys {
    folder: SecretFolder,
    id: VaultId,
}

impl VaultKeys {
    pub(crate) fn new(config: &Path, id: &VaultId) -> Self {
        Self {
            folder: SecretFolder::new(config, "keys"),
            id: *id,
        }
    }

    /// Creates the release key and the recovery key. Keeps keys that an interrupted creation left.
    pub(crate) fn make(&self, random: &dyn Random) -> Result<(), KeyError> {
        self.folder.ensure()?;
        self.folder.sweep()?;
        for kind in [KeyKind::Release, KeyKind::Recovery] {
            let name = self.name(kind);
            let key = match self.folder.read_key(&name, kind)? {
                Some(key) => key,
                None => generate(random),
            };
            // This keeps the key file of an interrupted creation, because it does not overwrite.
            self.folder.create_key(&name, kind, &key)?;
            self.write_public(kind, &key.public())?;
        }
        Ok(())
    }

    fn name(&self, kind: KeyKind) -> String {
        match kind {
            KeyKind::Recovery => format!("{}.recovery", self.id),
            KeyKind::Release | KeyKind::Device => self.id.to_string(),
        }
    }

    /// The public release key, read without the secret one. Fails if it is not on this machine.
    pub fn public(&self) -> Result<PublicKey, KeyError> {
        self.read_public(KeyKind::Release)?
            .ok_or_else(|| KeyError::Missing(self.path(KeyKind::Release)))
    }

    /// The public recovery key; `None` if the vault has none.
    pub fn recovery_public(&self) -> Result<Option<PublicKey>, KeyError> {
        self.read_public(KeyKind::Recovery)
    }

    /// The id of the recovery key in catalogs: the SHA-256 of the 32 bytes of the public key.
    pub fn recovery_sha256(&self) -> Result<Option<Digest>, KeyError> {
        Ok(self.recovery_public()?.map(|key| key.key_id()))
    }

    /// The path of the secret recovery key, if it is still on this machine. It offers protection
    /// only if it is stored elsewhere.
    pub fn recovery_left_here(&self) -> Result<Option<PathBuf>, KeyError> {
        let path = self.path(KeyKind::Recovery);
        Ok(disk::kind(&path)?.map(|_| path))
    }

    /// The secret release key. Fails if it is missing, accessible to other users, or does not match
    /// the public key.
    pub fn release(&self) -> Result<SecretKey, KeyError> {
        let key = self
            .folder
            .read_key(&self.name(KeyKind::Release), KeyKind::Release)?
            .ok_or_else(|| KeyError::Missing(self.path(KeyKind::Release)))?;
        if key.public() == self.public()? {
            Ok(key)
        } else {
            Err(KeyError::Mismatch(self.public_path(KeyKind::Release)))
        }
    }

    /// The path of one of the vault's secret keys.
    pub fn path(&self, kind: KeyKind) -> PathBuf {
        self.folder.path_of(&self.name(kind))
    }

    fn public_path(&self, kind: KeyKind) -> PathBuf {
        self.folder.path_of(&format!("{}.pub", self.name(kind)))
    }

    fn read_public(&self, kind: KeyKind) -> Result<Option<PublicKey>, KeyError> {
        let path = self.public_path(kind);
        let Some(bytes) = disk::read(&path, MAX_FILE)? else {
            return Ok(None);
        };
        let malformed = || KeyError::Malformed {
            path: path.clone(),
            kind: kind.word(),
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed())?;
        let key = text.trim_end().parse().map_err(|_| malformed())?;
        Ok(Some(key))
    }

    pub(crate) fn write_public(&self, kind: KeyKind, key: &PublicKey) -> Result<(), KeyError> {
        let name = format!("{}.pub", self.name(kind));
        self.folder.replace(&name, format!("{key}\n").as_bytes())
    }

    /// Stores the next key of a rotation; [`Self::adopt_next`] puts it into use.
    pub(crate) fn write_next(&self, kind: KeyKind, key: &SecretKey) -> Result<(), KeyError> {
        let next = format!("{}.next", self.name(kind));
        self.folder.remove(&next)?;
        self.folder.create_key(&next, kind, key)?;
        Ok(())
    }

    /// The next key, if a rotation has stored one.
    pub(crate) fn next(&self, kind: KeyKind) -> Result<Option<SecretKey>, KeyError> {
        self.folder
            .read_key(&format!("{}.next", self.name(kind)), kind)
    }

    /// Replaces the current secret key with the next one. The old secret key is deleted.
    pub(crate) fn adopt_next(&self, kind: KeyKind) -> Result<(), KeyError> {
        // Write the public half of a recovery key first. It can't be restored later, because the
        // owner may move the secret half away at any time.
        if kind == KeyKind::Recovery
            && let Some(next) = self.next(kind)?
        {
            self.write_public(kind, &next.public())?;
        }
        let name = self.name(kind);
        self.folder.rename(&format!("{name}.next"), &name)
    }

    pub(crate) fn drop_next(&self, kind: KeyKind) -> Result<(), KeyError> {
        self.folder
            .remove(&format!("{}.next", self.name(kind)))
            .map(|_| ())
    }

    /// Updates the public release key to match the secret one, after a rotation that was
    /// interrupted between the two writes.
    pub(crate) fn settle_public(&self) -> Result<(), KeyError> {
        let Some(key) = self
            .folder
            .read_key(&self.name(KeyKind::Release), KeyKind::Release)?
        else {
            return Ok(());
        };
        if self.read_public(KeyKind::Release)? == Some(key.public()) {
            return Ok(());
        }
        self.write_public(KeyKind::Release, &key.public())
    }

    pub(crate) fn sweep(&self) -> Result<(), KeyError> {
        self.folder.sweep()
    }
}

/// Sign-in tokens, one for each origin and namespace.
#[derive(Clone, Debug)]
pub struct Tokens {
    config: PathBuf,
}

impl Tokens {
    /// The tokens in a configuration folder.
    pub fn new(config: &Path) -> Self {
        Self {
            config: config.to_owned(),
        }
    }

    /// The token for a namespace at a base address; `None` if there is none. Fails if other users
    /// can access it.
    pub fn load(&self, base: &str, slug: &str) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
        self.folder(base).read(&file_name(slug))
    }

    /// Stores a token, replacing an earlier one. [`Self::load`] rejects one of more than 64 KiB.
    pub fn store(&self, base: &str, slug: &str, text: &[u8]) -> Result<(), KeyError> {
        SecretFolder::new(&self.config, "tokens").ensure()?;
        self.folder(base).replace(&file_name(slug), text)
    }

    /// Removes a token; returns whether it existed.
    pub fn remove(&self, base: &str, slug: &str) -> Result<bool, KeyError> {
        self.folder(base).remove(&file_name(slug))
    }

    fn folder(&self, base: &str) -> SecretFolder {
        SecretFolder::new(&self.config.join("tokens"), &file_name(base))
    }
}

/// Encodes a text as a file name that no other text shares. Bytes outside a safe set become `%XX`;
/// a long name is cut and its hash appended.
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

    use vault_store::{assert_matches, random::SeededRandom};

    use super::*;

    fn keys() -> (tempfile::TempDir, VaultKeys) {
        let home = tempfile::tempdir().unwrap();
        let id = VaultId::from_parts(1, 2);
        let keys = VaultKeys::new(&home.path().join("config"), &id);
        keys.make(&SeededRandom::new(1)).unwrap();
        (home, keys)
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn keys_are_made_once_and_private() {
        let (home, keys) = keys();
        let first = keys.public().unwrap();
        assert_eq!(keys.release().unwrap().public(), first);
        let recovery = keys.recovery_public().unwrap().unwrap();
        assert_ne!(first, recovery);
        keys.make(&SeededRandom::new(2)).unwrap();
        assert_eq!(keys.public().unwrap(), first);
        assert_eq!(keys.recovery_public().unwrap(), Some(recovery));
        let folder = home.path().join("config/keys");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        for entry in std::fs::read_dir(&folder).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        let of_the_file = [0o640, 0o604, 0o660, 0o644].map(|mode| (mode, false));
        let of_the_folder = [0o750, 0o705, 0o770].map(|mode| (mode, true));
        for (mode, folder) in of_the_file.into_iter().chain(of_the_folder) {
            let (_home, keys) = keys();
            let path = keys.path(KeyKind::Release);
            set_mode(
                if folder {
                    path.parent().unwrap()
                } else {
                    &path
                },
                mode,
            );
            assert_matches!(keys.release(), Err(KeyError::Open { .. }), "{mode:o}");
        }
    }

    #[test]
    fn a_file_of_another_kind_or_shape_is_no_key() {
        let (_home, keys) = keys();
        let path = keys.path(KeyKind::Release);
        let good = std::fs::read_to_string(&path).unwrap();
        let recovery = std::fs::read_to_string(keys.path(KeyKind::Recovery)).unwrap();
        for bad in [
            recovery,
            String::new(),
            good.to_uppercase(),
            good.replace("/1", "/2"),
            format!("{good}\n"),
            good[..good.len() - 3].to_owned(),
        ] {
            std::fs::write(&path, &bad).unwrap();
            assert_matches!(keys.release(), Err(KeyError::Malformed { .. }), "{bad:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_matches!(keys.release(), Err(KeyError::Missing(_)));
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

    #[test]
    fn tokens_are_kept_apart_by_origin_and_slug() {
        let home = tempfile::tempdir().unwrap();
        let tokens = Tokens::new(home.path());
        tokens.store("https://a.example", "acme", b"one").unwrap();
        tokens.store("https://b.example", "acme", b"two").unwrap();
        tokens.store("https://a.example", "acme", b"three").unwrap();
        let load = |base| tokens.load(base, "acme").unwrap().map(|text| text.to_vec());
        assert_eq!(load("https://a.example"), Some(b"three".to_vec()));
        assert_eq!(load("https://b.example"), Some(b"two".to_vec()));
        assert!(tokens.remove("https://a.example", "acme").unwrap());
        assert_eq!(load("https://a.example"), None);
    }
}
