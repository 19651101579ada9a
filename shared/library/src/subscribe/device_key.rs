//! The device key of a link: the key with which this machine signs its requests to a linked vault's
//! service. Reads it, and replaces it.
//!
//! The pin says which key is in use. A replacement waits in a file beside that key until a service
//! has enrolled it, and is put into use by writing the pin. After a kill, one of the two keys is in
//! use, and its file is complete.

use vault_format::keys::SecretKey;

use super::error::LinkError;
use crate::installed::link_id::LinkId;
use crate::installed::linked_pins::{Link, PIN, Pin, find_link_by_id, trust_folder};
use crate::vault::Vault;
use crate::vault::folder::PrivateFolder;
use crate::vault::keys::{self, KeyError, KeyKind, NoPassphrases};

/// File of the device key. It has no passphrase, because it signs requests when no user is present.
const DEVICE_KEY: &str = "device.key";
/// File of a key that will replace the device key.
const REPLACEMENT: &str = "device.next";

fn read_file(folder: &PrivateFolder, name: &str) -> Result<Option<SecretKey>, KeyError> {
    keys::read_key(folder, name, KeyKind::Device, &NoPassphrases)
}

fn read_or_create(
    vault: &Vault,
    folder: &PrivateFolder,
    name: &str,
) -> Result<SecretKey, KeyError> {
    if let Some(key) = read_file(folder, name)? {
        return Ok(key);
    }
    let key = keys::generate_key(vault.random());
    keys::create_key(folder, name, KeyKind::Device, &key, &NoPassphrases)?;
    Ok(key)
}

/// Returns whether the pin names the replacement, because a command was interrupted between putting
/// it into use and renaming its file.
fn is_replaced(folder: &PrivateFolder, pin: &Pin) -> Result<bool, KeyError> {
    let next = read_file(folder, REPLACEMENT)?;
    Ok(next.is_some_and(|key| key.public().key_id() == pin.device_key_id))
}

/// Returns the device key for a link that is being created: one that an interrupted command left,
/// or a new one. Call it under the writer lock.
pub(super) fn create_device_key(
    vault: &Vault,
    folder: &PrivateFolder,
    pin: Option<&Pin>,
) -> Result<SecretKey, LinkError> {
    if let Some(pin) = pin
        && is_replaced(folder, pin)?
    {
        folder.rename_file(REPLACEMENT, DEVICE_KEY)?;
    }
    Ok(read_or_create(vault, folder, DEVICE_KEY)?)
}

/// Creates a key that may replace the device key of a link. If an earlier call made one that is
/// neither in use nor discarded, returns that one: a service may have enrolled it, although the
/// answer was lost.
pub fn prepare_device_key(vault: &Vault, id: &LinkId) -> Result<SecretKey, LinkError> {
    let _change = vault.begin_change()?;
    let link = find_link_by_id(vault, id)?.ok_or_else(|| LinkError::Unknown(id.clone()))?;
    let folder = trust_folder(vault, id);
    if is_replaced(&folder, link.pin())? {
        folder.rename_file(REPLACEMENT, DEVICE_KEY)?;
    }
    Ok(read_or_create(vault, &folder, REPLACEMENT)?)
}

/// Puts the key of [`prepare_device_key`] into use and deletes the old device key. The rest of the
/// link stays. Fails if the prepared key is no longer there.
pub fn replace_device_key(
    vault: &Vault,
    id: &LinkId,
    replacement: &SecretKey,
) -> Result<Link, LinkError> {
    let _change = vault.begin_change()?;
    let unknown = || LinkError::Unknown(id.clone());
    let mut link = find_link_by_id(vault, id)?.ok_or_else(unknown)?;
    let folder = trust_folder(vault, id);
    let key_id = replacement.public().key_id();
    let is_there =
        read_file(&folder, REPLACEMENT)?.is_some_and(|present| present.public().key_id() == key_id);
    if !is_there {
        // Another command has used or discarded the key while the service was asked.
        return Err(KeyError::Missing(folder.path_of(REPLACEMENT)).into());
    }
    link.pin.device_key_id = key_id;
    folder.write_record(PIN, &link.pin)?;
    folder.rename_file(REPLACEMENT, DEVICE_KEY)?;
    Ok(link)
}

/// Removes the key of [`prepare_device_key`], if no service has enrolled it.
pub fn discard_device_key(vault: &Vault, id: &LinkId) -> Result<(), LinkError> {
    let _change = vault.begin_change()?;
    let folder = trust_folder(vault, id);
    let link = find_link_by_id(vault, id)?;
    // Another command may have put the key into use.
    if link.is_none_or(|link| is_replaced(&folder, link.pin()).is_ok_and(|used| !used)) {
        folder.remove_file(REPLACEMENT)?;
    }
    Ok(())
}

impl Link {
    /// Returns this machine's device key for the link. Fails if its file is missing or readable by
    /// other users, or contains another key than the recorded one.
    pub fn device_key(&self, vault: &Vault) -> Result<SecretKey, KeyError> {
        let folder = trust_folder(vault, &self.id);
        let is_recorded = |key: &SecretKey| key.public().key_id() == self.pin.device_key_id;
        let key = read_file(&folder, DEVICE_KEY)?;
        if let Some(key) = key.clone().filter(is_recorded) {
            return Ok(key);
        }
        if let Some(key) = read_file(&folder, REPLACEMENT)?.filter(is_recorded) {
            return Ok(key);
        }
        let path = folder.path_of(DEVICE_KEY);
        Err(match key {
            Some(_) => KeyError::Mismatch(path),
            None => KeyError::Missing(path),
        })
    }
}
