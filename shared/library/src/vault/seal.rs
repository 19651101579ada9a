//! The key that seals the rows of the index with an HMAC. It lies in the trust folder, so that an
//! attacker who can write to the vault's folder, where the index is, can't forge a row.

use zeroize::Zeroizing;

use super::folder::{INDEX_SEAL_FILE, vault_folder};
use super::{Vault, VaultError};

/// A random key of 32 bytes.
#[derive(Default)]
pub(crate) struct SealKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SealKey")
    }
}

impl SealKey {
    #[cfg(test)]
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Vault {
    /// Returns the key that seals the rows of the index, and creates it if there is none. `None` if
    /// this machine has no trust folder for the vault. A damaged key is replaced; all rows are then
    /// invalid, and the index is built again.
    pub(crate) fn seal_key(&self) -> Result<Option<SealKey>, VaultError> {
        let folder = vault_folder(&self.paths().config, self.id());
        let read = || -> Result<Option<SealKey>, VaultError> {
            let bytes = folder.read_file(INDEX_SEAL_FILE)?;
            let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
            Ok(bytes.map(|bytes| SealKey(Zeroizing::new(bytes))))
        };
        if let Some(key) = read()? {
            return Ok(Some(key));
        }
        // Without trust no row is accepted, and the key would be left behind for a vault that this
        // machine does not know.
        if !super::trust::is_recorded(&self.paths().config, self.id())? {
            return Ok(None);
        }
        let mut bytes = Zeroizing::new([0; 32]);
        self.random().fill_random(&mut *bytes);
        if !folder.create_file(INDEX_SEAL_FILE, &*bytes)? {
            // Another process made a key in the meantime, or the file is damaged.
            if let Some(key) = read()? {
                return Ok(Some(key));
            }
            folder.replace_file(INDEX_SEAL_FILE, &*bytes)?;
        }
        Ok(Some(SealKey(bytes)))
    }
}
