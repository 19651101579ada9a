//! The recovery file: an offline root key, with the state of the vault when the key last signed.
//!
//! Only the owner reads it. If the owner sets a passphrase, the caller encrypts the whole file;
//! this module sees it unencrypted.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{RootChain, RootError, VaultId};
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::keys::SecretKey;
use crate::text::constant;

constant!(
    /// The member `schema` of a recovery file.
    Schema,
    "vault.recovery-key/1"
);

/// Maximum number of bytes of a recovery file.
pub const MAX_RECOVERY_FILE_BYTES: usize = 64 << 10;

/// A root key that is kept offline, and the newest root version that it has signed.
#[derive(Clone, Debug)]
pub struct RecoveryFile {
    /// The vault whose keys the file's key may change.
    pub vault_id: VaultId,
    /// The addresses at which the vault is published.
    pub addresses: Vec<String>,
    /// The secret of the recovery key.
    pub key: SecretKey,
    /// The number of the newest version that the key has signed.
    pub version: u64,
    /// SHA-256 of the payload of the root version with the number `version`.
    pub root_sha256: Digest,
}

/// A reason why bytes are not a recovery file.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryFileError {
    /// The file has more than 64 KiB.
    #[error("the recovery file is larger than 64 KiB")]
    TooLarge,
    /// Not JSON of the right shape.
    #[error("not a recovery file: {0}")]
    Json(#[from] JsonError),
    /// The seed of the secret key is not 43 characters of base64url.
    #[error("the secret key in the recovery file is damaged")]
    Seed,
}

#[derive(Deserialize, Serialize)]
struct Wire<'a> {
    schema: Schema,
    vault_id: VaultId,
    addresses: Vec<String>,
    /// Borrowed from the input, so that no copy of the secret stays in memory.
    #[serde(borrow)]
    seed: Cow<'a, str>,
    version: u64,
    root_sha256: Digest,
}

impl RecoveryFile {
    /// Reads the unencrypted bytes of a recovery file.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecoveryFileError> {
        if bytes.len() > MAX_RECOVERY_FILE_BYTES {
            return Err(RecoveryFileError::TooLarge);
        }
        let wire: Wire<'_> = json::parse(bytes)?;
        let seed =
            crate::keys::decode_base64url::<32>(&wire.seed, 43).ok_or(RecoveryFileError::Seed)?;
        Ok(Self {
            vault_id: wire.vault_id,
            addresses: wire.addresses,
            key: SecretKey::from_seed(seed),
            version: wire.version,
            root_sha256: wire.root_sha256,
        })
    }

    /// The bytes of the file, unencrypted. Their memory is zeroed when they are dropped.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let seed = Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.key.seed()));
        Zeroizing::new(json::to_bytes(&Wire {
            schema: Schema,
            vault_id: self.vault_id,
            addresses: self.addresses.clone(),
            seed: Cow::Borrowed(&seed),
            version: self.version,
            root_sha256: self.root_sha256,
        }))
    }

    /// Checks a chain from a host before the key signs its next version. Fails if the chain is of
    /// another vault, ends before the version that the key has signed or before version `at_least`,
    /// or has another version in place of the signed one.
    pub fn check_chain(&self, chain: &RootChain, at_least: Option<u64>) -> Result<(), RootError> {
        check_recovered(
            chain,
            (self.vault_id, self.version, self.root_sha256),
            at_least,
        )
    }

    /// Tells whether the key is a root key of the chain's newest version, so that it may sign the
    /// next one.
    pub fn can_sign_next(&self, chain: &RootChain) -> bool {
        chain.document().root().contains(&self.key.public())
    }
}

fn check_recovered(
    chain: &RootChain,
    (vault_id, version, root_sha256): (VaultId, u64, Digest),
    at_least: Option<u64>,
) -> Result<(), RootError> {
    if chain.vault_id() != vault_id {
        return Err(RootError::VaultChanged);
    }
    let known = version.max(at_least.unwrap_or(0));
    // Check the length first: a chain that ends too early may be an older part of the right one.
    if chain.version() < version {
        let shown = chain.version();
        return Err(RootError::RolledBack { shown, known });
    }
    let place = usize::try_from(version)
        .ok()
        .and_then(|version| version.checked_sub(1));
    let version_in_chain = place.and_then(|place| chain.versions().get(place));
    if version_in_chain.is_none_or(|found| *found.payload_sha256() != root_sha256) {
        return Err(RootError::Forked { version });
    }
    // Check `at_least` last: a chain with another version in place of the signed one is a fork,
    // whatever its length.
    if chain.version() < known {
        let shown = chain.version();
        return Err(RootError::RolledBack { shown, known });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::{KeyEntry, KeyName, RootEdit};
    use crate::time::Timestamp;

    fn chain(number: u8, versions: u64) -> RootChain {
        let key = SecretKey::from_seed([number; 32]);
        let entry = KeyEntry {
            public_key: key.public(),
            name: KeyName::default_for(&key.public()),
        };
        let mut edit = RootEdit::begin_first(Timestamp::default());
        edit.add_root_key(entry.clone()).unwrap();
        edit.add_publisher(entry).unwrap();
        let mut chain = edit.sign(&[&key]).unwrap();
        while chain.version() < versions {
            chain = RootEdit::begin_after(&chain, Timestamp::default())
                .sign(&[&key])
                .unwrap();
        }
        chain
    }

    #[test]
    fn files_survive_a_round_trip_and_show_no_secret() {
        let chain = chain(1, 2);
        let file = RecoveryFile {
            vault_id: chain.vault_id(),
            addresses: vec!["https://vault.example/v/acme/".to_owned()],
            key: SecretKey::from_seed([1; 32]),
            version: 2,
            root_sha256: *chain.newest().payload_sha256(),
        };
        let bytes = file.to_bytes();
        let read = RecoveryFile::parse(&bytes).unwrap();
        assert_eq!(read.to_bytes(), bytes);
        assert!(read.can_sign_next(&chain) && read.check_chain(&chain, Some(2)).is_ok());
        let seed = URL_SAFE_NO_PAD.encode([1; 32]);
        assert!(!format!("{read:?}").contains(&seed));
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let damaged = text.replace(&seed, "x");
        let error = RecoveryFile::parse(damaged.as_bytes()).unwrap_err();
        assert!(matches!(error, RecoveryFileError::Seed));
    }

    #[test]
    fn a_chain_must_have_the_version_of_the_file() {
        let long = chain(1, 3);
        let at = |number: usize| {
            let version = &long.versions()[number - 1];
            (long.vault_id(), number as u64, *version.payload_sha256())
        };
        let word = |chain: &RootChain, file, at_least| {
            check_recovered(chain, file, at_least).map_err(|error| error.error_code())
        };
        assert_eq!(word(&long, at(2), None), Ok(()));
        assert_eq!(word(&long, at(3), Some(3)), Ok(()));
        assert_eq!(word(&long, at(2), Some(4)), Err("root_rolled_back"));
        assert_eq!(word(&chain(1, 2), at(3), None), Err("root_rolled_back"));
        assert_eq!(word(&chain(2, 3), at(3), None), Err("vault_changed"));
        let (vault_id, version, _) = at(2);
        let other = (vault_id, version, Digest::of(b"other"));
        assert_eq!(word(&long, other, None), Err("root_forked"));
        assert_eq!(
            word(&long, (vault_id, 0, Digest::of(b"")), None),
            Err("root_forked")
        );
    }
}
