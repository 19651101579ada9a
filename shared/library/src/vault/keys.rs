//! The key files of a vault: who may read them, how they are encrypted, and which key signs.
//!
//! ```text
//! vaults/<vault id>/keys/<public key>.key     a secret key of the own vault
//! vaults/<vault id>/keys/<public key>.next    one that the next root version will name
//! vaults/<vault id>/keys/<public key>.agent   the fingerprint of a key that the SSH agent holds
//! links/<link>/device.key                     the device key of a linked vault
//! links/<link>/device.next                    one that replaces it once a service has enrolled it
//! ```
//! A key file holds one line, in the clear or encrypted with a passphrase (the age format, scrypt).
//! It is created atomically, under a name that must be free.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use age::secrecy::SecretString;
use vault_format::keys::{PublicKey, SecretKey, Signer, SignerError};
use vault_format::root::{KeyStanding, RootState, VaultId};
use vault_store::random::Random;
use zeroize::Zeroizing;

use super::VaultPaths;
use super::folder::{PrivateFolder, vault_folder};
pub use super::key_error::KeyError;
use super::ssh_agent::{self, AgentError, AgentSigner};
use crate::disk::{self, FileError};

vault_format::words! {
    /// The purpose of a key. The key file names it, so that a key of one kind is never used as
    /// another.
    pub enum KeyKind {
        /// Signs root versions, manifests and catalogs, in the roles that the newest root version
        /// gives it.
        Publisher = "publisher",
        /// Signs a device's requests to one linked vault.
        Device = "device",
    }
}

/// The source of passphrases for encrypted key files: a prompt, or a file.
pub trait Passphrases: Send + Sync {
    /// Returns the passphrase for an encrypted key file; `None` if none is available.
    fn unlock(&self, path: &Path) -> io::Result<Option<Zeroizing<String>>>;

    /// Returns the passphrase with which a new key file is encrypted; `None` stores it in the
    /// clear.
    fn protect(&self) -> io::Result<Option<Zeroizing<String>>>;

    /// Tells the user that the SSH agent at this socket has not signed with this key for the given
    /// time. The agent may be waiting for a confirmation, so the caller goes on waiting.
    fn agent_is_slow(&self, _socket: &Path, _key: &str, _waited: Duration) {}
}

/// A source without passphrases: new keys are stored in the clear, and encrypted ones can't be
/// used.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPassphrases;

impl Passphrases for NoPassphrases {
    fn unlock(&self, _path: &Path) -> io::Result<Option<Zeroizing<String>>> {
        Ok(None)
    }

    fn protect(&self) -> io::Result<Option<Zeroizing<String>>> {
        Ok(None)
    }
}

/// Extracts the error of an SSH agent from a signer's error. Returns any other error unchanged.
pub(crate) fn agent_refusal(error: SignerError) -> Result<KeyError, SignerError> {
    let agent = error.into_cause().downcast::<AgentError>();
    agent.map(|error| (*error).into()).map_err(SignerError::new)
}

/// Generates an Ed25519 secret key. The caller stores it.
pub fn generate_key(random: &dyn Random) -> SecretKey {
    let mut seed = Zeroizing::new([0_u8; 32]);
    random.fill_random(&mut *seed);
    SecretKey::from_seed(*seed)
}

/// First bytes of every file in the age format.
const AGE_HEADER: &[u8] = b"age-encryption.org/v1\n";
/// Scrypt work factor for new files, as a power of two: the default of the age command. It is
/// fixed, because a factor measured on a busy machine would be too weak.
const WORK_FACTOR: u8 = 18;
/// Highest scrypt work factor that is accepted, as a power of two. It needs 4 GiB of memory and
/// some seconds.
const MAX_WORK_FACTOR: u8 = 22;

/// Returns a recipient that encrypts with a passphrase, in the age format.
pub fn passphrase_recipient(passphrase: &str) -> age::scrypt::Recipient {
    let mut recipient = age::scrypt::Recipient::new(SecretString::from(passphrase));
    recipient.set_work_factor(WORK_FACTOR);
    recipient
}

/// Returns an identity that decrypts with a passphrase. It rejects work factors above 22.
pub fn passphrase_identity(passphrase: &str) -> age::scrypt::Identity {
    let mut identity = age::scrypt::Identity::new(SecretString::from(passphrase));
    identity.set_max_work_factor(MAX_WORK_FACTOR);
    identity
}

/// Encrypts the content of a secret file with a passphrase. `path` is only named in the error.
pub(crate) fn encrypt_secret(
    path: &Path,
    text: &[u8],
    passphrase: &str,
) -> Result<Vec<u8>, KeyError> {
    age::encrypt(&passphrase_recipient(passphrase), text).map_err(|cause| KeyError::Encrypt {
        path: path.to_owned(),
        cause: io::Error::other(cause.to_string()),
    })
}

/// Returns whether the content begins with the header of the age format.
pub(crate) fn is_encrypted(bytes: &[u8]) -> bool {
    bytes.starts_with(AGE_HEADER)
}

/// The content of a secret file after decryption.
pub(crate) struct OpenedSecret {
    /// Content in the clear.
    pub(crate) text: Zeroizing<Vec<u8>>,
    /// Passphrase that decrypted it; `None` if it was stored in the clear.
    pub(crate) passphrase: Option<Zeroizing<String>>,
}

/// Decrypts the content of a secret file if it is encrypted.
pub(crate) fn decrypt_secret(
    path: &Path,
    bytes: Zeroizing<Vec<u8>>,
    passphrases: &dyn Passphrases,
) -> Result<OpenedSecret, KeyError> {
    if !is_encrypted(&bytes) {
        return Ok(OpenedSecret {
            text: bytes,
            passphrase: None,
        });
    }
    let passphrase = passphrases.unlock(path).map_err(KeyError::Passphrase)?;
    let passphrase = passphrase.ok_or_else(|| KeyError::Locked(path.to_owned()))?;
    let wrong = || KeyError::WrongPassphrase(path.to_owned());
    let identity = passphrase_identity(&passphrase);
    let decryptor = age::Decryptor::new(bytes.as_slice()).map_err(|_| wrong())?;
    let opened = decryptor.decrypt(std::iter::once(&identity as &dyn age::Identity));
    let mut opened = opened.map_err(|_| wrong())?;
    // The clear text is shorter than the file, so this buffer never grows, which would leave
    // copies.
    let mut text = Zeroizing::new(vec![0; bytes.len()]);
    let mut filled = 0;
    loop {
        match opened.read(&mut text[filled..]).map_err(|_| wrong())? {
            0 => break,
            read => filled += read,
        }
    }
    text.truncate(filled);
    Ok(OpenedSecret {
        text,
        passphrase: Some(passphrase),
    })
}

/// Reads a key file and checks its kind; `None` if it is absent.
pub(crate) fn read_key(
    folder: &PrivateFolder,
    name: &str,
    kind: KeyKind,
    passphrases: &dyn Passphrases,
) -> Result<Option<SecretKey>, KeyError> {
    let path = folder.path_of(name);
    let Some(bytes) = folder.read_file(name)? else {
        return Ok(None);
    };
    let opened = decrypt_secret(&path, bytes, passphrases)?;
    let key = parse_key(&opened.text, kind).ok_or(KeyError::Malformed {
        path,
        kind: kind.as_str(),
    })?;
    Ok(Some(key))
}

/// Writes a key file, encrypted if there is a passphrase. Returns false if one of this name exists.
pub(crate) fn create_key(
    folder: &PrivateFolder,
    name: &str,
    kind: KeyKind,
    key: &SecretKey,
    passphrases: &dyn Passphrases,
) -> Result<bool, KeyError> {
    let text = format_key(key, kind);
    match passphrases.protect().map_err(KeyError::Passphrase)? {
        Some(passphrase) => {
            let bytes = encrypt_secret(&folder.path_of(name), text.as_bytes(), &passphrase)?;
            folder.create_file(name, &bytes)
        }
        None => folder.create_file(name, text.as_bytes()),
    }
}

fn parse_key(text: &[u8], kind: KeyKind) -> Option<SecretKey> {
    let text = std::str::from_utf8(text).ok()?;
    let hex = text
        .strip_suffix('\n')
        .unwrap_or(text)
        .strip_prefix("vault.")?
        .strip_prefix(kind.as_str())?
        .strip_prefix("-key/1 ")?;
    let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    // `from_str_radix` also accepts capitals and a plus sign, but a key must have only one valid
    // text.
    if hex.len() != 64 || !hex.bytes().all(is_hex) {
        return None;
    }
    let mut seed = Zeroizing::new([0_u8; 32]);
    for (byte, pair) in seed.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(SecretKey::from_seed(*seed))
}

fn format_key(key: &SecretKey, kind: KeyKind) -> Zeroizing<String> {
    use std::fmt::Write as _;
    let seed = key.seed();
    // The capacity suffices: a string that grows would leave copies of the secret in freed memory.
    let mut text = Zeroizing::new(String::with_capacity(128));
    let _infallible = write!(*text, "vault.{}-key/1 ", kind.as_str());
    for byte in seed.iter() {
        let _infallible = write!(*text, "{byte:02x}");
    }
    text.push('\n');
    text
}

/// The secret keys of one vault on this machine, and the passphrases for them.
#[derive(Clone)]
pub struct VaultKeys {
    folder: PrivateFolder,
    passphrases: Arc<dyn Passphrases>,
    /// Socket of the SSH agent; `None` if none runs.
    ssh_agent: Option<PathBuf>,
    /// Decrypted keys, so that the user is asked for a passphrase only once.
    unlocked: Arc<Mutex<HashMap<PublicKey, SecretKey>>>,
}

impl fmt::Debug for VaultKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("VaultKeys")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl VaultKeys {
    pub(super) fn new(paths: &VaultPaths, id: &VaultId, passphrases: Arc<dyn Passphrases>) -> Self {
        Self {
            folder: vault_folder(&paths.config, id).child("keys"),
            passphrases,
            ssh_agent: paths.ssh_agent.clone(),
            unlocked: Arc::default(),
        }
    }

    pub(super) fn passphrases(&self) -> Arc<dyn Passphrases> {
        Arc::clone(&self.passphrases)
    }

    /// Returns the public keys with which this machine can sign, sorted. A staged key (one for the
    /// next root version) counts too, because the change of keys may have been interrupted after
    /// its root version was stored.
    pub fn list(&self) -> Result<Vec<PublicKey>, KeyError> {
        let mut keys = self.with_ending(".key")?;
        keys.extend(self.with_ending(".next")?);
        keys.extend(self.with_ending(".agent")?);
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Returns the keys that have a file with this ending.
    fn with_ending(&self, ending: &str) -> Result<Vec<PublicKey>, KeyError> {
        let names = self.folder.file_names()?;
        let keys = names.iter().filter_map(|name| name.strip_suffix(ending));
        Ok(keys.filter_map(|name| name.parse().ok()).collect())
    }

    /// Returns the name of a key's file: that of the staged key if only that file exists.
    fn file_of(&self, key: &PublicKey) -> Result<String, KeyError> {
        let is_there =
            |name: &str| Ok::<_, FileError>(disk::kind_at(&self.folder.path_of(name))?.is_some());
        let (in_use, staged) = (key_file(key), staged_file(key));
        let is_staged = !is_there(&in_use)? && is_there(&staged)?;
        Ok(if is_staged { staged } else { in_use })
    }

    /// Returns whether the SSH agent holds the secret key.
    pub fn is_in_agent(&self, key: &PublicKey) -> Result<bool, KeyError> {
        Ok(disk::kind_at(&self.folder.path_of(&agent_key_file(key)))?.is_some())
    }

    /// Returns the path of a key's file, which may be absent.
    pub fn path(&self, key: &PublicKey) -> PathBuf {
        self.folder.path_of(&key_file(key))
    }

    /// Returns the folder of the vault's key files, in the trust folder.
    pub fn folder(&self) -> PathBuf {
        self.folder.path()
    }

    /// Returns whether the file of a key is encrypted with a passphrase. Fails if it is missing.
    pub fn is_encrypted(&self, key: &PublicKey) -> Result<bool, KeyError> {
        if self.is_in_agent(key)? {
            return Ok(false);
        }
        let bytes = self.folder.read_file(&self.file_of(key)?)?;
        let bytes = bytes.ok_or_else(|| KeyError::Missing(self.path(key)))?;
        Ok(is_encrypted(&bytes))
    }

    /// Returns a signer for a key of this machine: the secret key, or the SSH agent that holds it.
    /// The agent is asked for its list of keys at once, so that a missing key is reported early.
    /// Fails like [`Self::read_secret_key`].
    pub fn signer(&self, key: &PublicKey) -> Result<Box<dyn Signer + Send + Sync>, KeyError> {
        Ok(if self.is_in_agent(key)? {
            self.check_usable(key)?; // so that a missing key is named before anything is prepared
            Box::new(self.agent_signer(key))
        } else {
            Box::new(self.read_secret_key(key)?)
        })
    }

    fn agent_signer(&self, key: &PublicKey) -> AgentSigner {
        let person = Arc::clone(&self.passphrases);
        let on_slow = move |socket: &Path, key: &str, waited| {
            person.agent_is_slow(socket, key, waited);
        };
        AgentSigner::new(self.ssh_agent.clone(), *key, Arc::new(on_slow))
    }

    /// Fails unless this machine can sign with a key now. Asks the user nothing: an encrypted key
    /// file is not decrypted, and an agent only lists its keys.
    pub fn check_usable(&self, key: &PublicKey) -> Result<(), KeyError> {
        if self.is_in_agent(key)? {
            let held = ssh_agent::list_identities(self.ssh_agent.as_deref())?;
            if held.iter().all(|held| held.key != Some(*key)) {
                return Err(AgentError::KeyMissing(ssh_agent::fingerprint(key)).into());
            }
        } else if !self.is_encrypted(key)? {
            self.read_secret_key(key)?;
        }
        Ok(())
    }

    /// Returns a secret key. Fails if it is missing, held by the SSH agent, accessible to other
    /// users, encrypted without a passphrase for it, or not the key of the file's name.
    pub fn read_secret_key(&self, key: &PublicKey) -> Result<SecretKey, KeyError> {
        if self.is_in_agent(key)? {
            return Err(KeyError::InAgent(ssh_agent::fingerprint(key)));
        }
        let name = self.file_of(key)?;
        let path = self.folder.path_of(&name);
        let mut unlocked = self.unlocked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(secret) = unlocked.get(key)
            // If the key's file was removed, the copy in memory must not sign either.
            && disk::kind_at(&path)?.is_some()
        {
            return Ok(secret.clone());
        }
        let secret = read_key(&self.folder, &name, KeyKind::Publisher, &*self.passphrases)?;
        let secret = secret.ok_or_else(|| KeyError::Missing(path.clone()))?;
        if secret.public() != *key {
            return Err(KeyError::Mismatch(path));
        }
        if self.is_encrypted(key)? {
            unlocked.insert(*key, secret.clone());
        }
        Ok(secret)
    }

    /// Stores a key before a root version names it. [`Self::settle_files`] keeps such a key.
    pub(crate) fn store_key(&self, key: &SecretKey) -> Result<(), KeyError> {
        self.create_key_file(&key_file(&key.public()), key)
    }

    /// Records that the SSH agent holds this key. Fails unless the agent signs a test message with
    /// it.
    pub(crate) fn use_agent(&self, key: &PublicKey) -> Result<(), KeyError> {
        self.agent_signer(key).prove_signing()?;
        let note = format!("vault.ssh-agent-key/1 {}\n", ssh_agent::fingerprint(key));
        self.folder
            .create_file(&agent_key_file(key), note.as_bytes())?;
        Ok(())
    }

    /// Stores the key for the next root version. [`Self::settle_files`] puts it into use once that
    /// version is stored.
    pub(crate) fn stage_key(&self, key: &SecretKey) -> Result<(), KeyError> {
        self.create_key_file(&staged_file(&key.public()), key)
    }

    fn create_key_file(&self, name: &str, key: &SecretKey) -> Result<(), KeyError> {
        create_key(
            &self.folder,
            name,
            KeyKind::Publisher,
            key,
            &*self.passphrases,
        )?;
        Ok(())
    }

    /// Adjusts the key files to the root versions in force. A staged key is put into use if a root
    /// version gives it a role, and removed otherwise; retired and revoked keys are removed.
    pub(crate) fn settle_files(&self, roots: &RootState) -> Result<(), KeyError> {
        self.folder.sweep_leftovers()?;
        for key in self.with_ending(".next")? {
            match roots.standing(&key) {
                KeyStanding::Release | KeyStanding::RootOnly => {
                    self.folder
                        .rename_file(&staged_file(&key), &key_file(&key))?;
                }
                KeyStanding::Retired | KeyStanding::Revoked | KeyStanding::Unknown => {
                    self.folder.remove_file(&staged_file(&key))?;
                }
            }
        }
        for (ending, name) in [
            (".key", key_file as fn(&_) -> _),
            (".agent", agent_key_file),
        ] {
            for key in self.with_ending(ending)? {
                let standing = roots.standing(&key);
                // A key that no root version names stays, because the version that names it may
                // still be written.
                if matches!(standing, KeyStanding::Retired | KeyStanding::Revoked) {
                    self.folder.remove_file(&name(&key))?;
                }
            }
        }
        Ok(())
    }
}

fn key_file(key: &PublicKey) -> String {
    format!("{key}.key")
}

fn staged_file(key: &PublicKey) -> String {
    format!("{key}.next")
}

fn agent_key_file(key: &PublicKey) -> String {
    format!("{key}.agent")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Gives the same passphrase for every file.
    struct Fixed(&'static str);

    impl Passphrases for Fixed {
        fn unlock(&self, _path: &Path) -> io::Result<Option<Zeroizing<String>>> {
            self.protect()
        }

        fn protect(&self) -> io::Result<Option<Zeroizing<String>>> {
            Ok(Some(Zeroizing::new(self.0.to_owned())))
        }
    }

    fn keys(home: &Path, passphrases: impl Passphrases + 'static) -> VaultKeys {
        let id = VaultId::derive(&vault_format::hash::Digest::of(b"root 1"));
        VaultKeys::new(
            &VaultPaths::new(home, home.join("config")),
            &id,
            Arc::new(passphrases),
        )
    }

    #[test]
    fn keys_are_private_and_named_by_their_public_key() {
        let home = tempfile::tempdir().unwrap();
        let keys = keys(home.path(), NoPassphrases);
        let secret = SecretKey::from_seed([1; 32]);
        keys.store_key(&secret).unwrap();
        assert_eq!(keys.list().unwrap(), [secret.public()]);
        assert_eq!(
            keys.read_secret_key(&secret.public()).unwrap().public(),
            secret.public()
        );
        let path = keys.path(&secret.public());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&keys.folder())), (0o600, 0o700));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(
            keys.read_secret_key(&secret.public()),
            Err(KeyError::Open { .. })
        ));
    }

    #[test]
    fn a_file_of_another_kind_or_shape_is_no_key() {
        let home = tempfile::tempdir().unwrap();
        let keys = keys(home.path(), NoPassphrases);
        let secret = SecretKey::from_seed([1; 32]);
        keys.store_key(&secret).unwrap();
        let path = keys.path(&secret.public());
        let good = std::fs::read_to_string(&path).unwrap();
        for bad in [
            good.replace("publisher", "device"),
            String::new(),
            good.to_uppercase(),
            good.replace("/1", "/2"),
            format!("{good}\n"),
            good[..good.len() - 3].to_owned(),
        ] {
            std::fs::write(&path, &bad).unwrap();
            assert!(
                matches!(
                    keys.read_secret_key(&secret.public()),
                    Err(KeyError::Malformed { .. })
                ),
                "{bad:?}"
            );
        }
        let other = format_key(&SecretKey::from_seed([2; 32]), KeyKind::Publisher);
        std::fs::write(&path, other.as_bytes()).unwrap();
        assert!(matches!(
            keys.read_secret_key(&secret.public()),
            Err(KeyError::Mismatch(_))
        ));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            keys.read_secret_key(&secret.public()),
            Err(KeyError::Missing(_))
        ));
    }

    #[test]
    fn an_encrypted_key_opens_with_its_passphrase_alone() {
        let home = tempfile::tempdir().unwrap();
        let secret = SecretKey::from_seed([1; 32]);
        let public = secret.public();
        let right = keys(home.path(), Fixed("right"));
        right.store_key(&secret).unwrap();
        assert!(right.is_encrypted(&public).unwrap());
        let stored = std::fs::read(right.path(&public)).unwrap();
        assert!(stored.starts_with(AGE_HEADER));
        assert_eq!(right.read_secret_key(&public).unwrap().public(), public);
        let wrong = keys(home.path(), Fixed("wrong")).read_secret_key(&public);
        assert!(matches!(wrong, Err(KeyError::WrongPassphrase(_))));
        let none = keys(home.path(), NoPassphrases).read_secret_key(&public);
        assert!(matches!(none, Err(KeyError::Locked(_))));
        // A key that was removed is not used from memory.
        std::fs::remove_file(right.path(&public)).unwrap();
        assert!(matches!(
            right.read_secret_key(&public),
            Err(KeyError::Missing(_))
        ));
    }
}
