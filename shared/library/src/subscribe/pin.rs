//! Creates and removes links to other vaults, and records what is expected of them.

use std::path::Path;

use vault_skill::keys::SecretKey;
use vault_skill::name::Slug;
use vault_skill::root::VaultFingerprint;

use super::error::LinkError;
use super::state::{InstalledSet, switch};
use crate::admit::remove;
use crate::disk;
use crate::installed::agent_links::withdraw::withdraw as withdraw_from_agents;
use crate::installed::link_id::LinkId;
use crate::installed::linked::{Link, PIN, Pin, find, links_folder, trust_folder};
use crate::installed::place::installed_by;
use crate::vault::Vault;
use crate::vault::keys::{self, KeyError, KeyKind, NoPassphrases};

/// Name of the device key's file. It signs requests without anybody at the keyboard, so it has no
/// passphrase.
const DEVICE_KEY: &str = "device.key";

/// Links a vault with a new device key and an empty pin. Returns the existing link unchanged if
/// there is one.
pub fn create(vault: &Vault, base: &str, slug: &Slug) -> Result<Link, LinkError> {
    let id = LinkId::of(base, slug);
    if let Some(link) = find(vault, &id)? {
        link.device_key(vault)?;
        return Ok(link);
    }
    let mut change = vault.change()?;
    let trust = trust_folder(vault, &id);
    trust.sweep()?;
    let device_key = match keys::read_key(&trust, DEVICE_KEY, KeyKind::Device, &NoPassphrases)? {
        Some(key) => key, // an earlier try got this far, or the vault's folder was lost
        None => {
            let key = keys::generate(vault.random());
            keys::create_key(&trust, DEVICE_KEY, KeyKind::Device, &key, &NoPassphrases)?;
            key
        }
    };
    let device_key_id = device_key.public().key_id();
    let pin = match trust.read_record::<Pin>(PIN)? {
        Some(pin) => Pin {
            device_key_id,
            ..pin
        },
        None => Pin {
            base: base.to_owned(),
            slug: slug.clone(),
            vault_id: None,
            counted: None,
            replaced: None,
            expected: None,
            device_key_id,
            linked_at: vault.clock().now(),
        },
    };
    trust.write_record(PIN, &pin)?;
    let folder = links_folder(vault).join(id.as_str());
    disk::make_dirs(&folder, 0o700)?;
    // This path stays the same and follows the `current` symlink to the newest set.
    let skills = folder.join("skills");
    if disk::kind(&skills)?.is_none() {
        disk::new_link(&skills, Path::new("current/skills"))?;
    }
    switch(vault, &mut change, &folder, &InstalledSet::default())?;
    find(vault, &id)?.ok_or(LinkError::Unknown(id))
}

/// Records the fingerprint that the vault must have, for a link that has pinned none yet. Later calls
/// of [`Link::accept`] check it even if the caller passes no fingerprint. Changes nothing if a vault
/// is already pinned.
pub fn expect(vault: &Vault, id: &LinkId, fingerprint: &VaultFingerprint) -> Result<(), LinkError> {
    let is_news =
        |link: &Link| link.pin.vault_id.is_none() && link.pin.expected != Some(*fingerprint);
    let found = || find(vault, id)?.ok_or_else(|| LinkError::Unknown(id.clone()));
    if !is_news(&found()?) {
        return Ok(());
    }
    let _change = vault.change()?;
    // Check again under the lock.
    let link = found()?;
    if !is_news(&link) {
        return Ok(());
    }
    let pin = Pin {
        expected: Some(*fingerprint),
        ..link.pin
    };
    Ok(trust_folder(vault, id).write_record(PIN, &pin)?)
}

/// Removes a link, its skills and its device key, and bundles that nothing else uses. Returns true
/// if the link existed. What is known of the vault's keys stays: another link may need it, and a
/// later link must not be shown older ones.
pub fn remove(vault: &Vault, id: &LinkId) -> Result<bool, LinkError> {
    let mut change = vault.change()?;
    let folder = links_folder(vault).join(id.as_str());
    let existed = disk::kind(&folder)?.is_some();
    if existed {
        if let Some(link) = find(vault, id)? {
            // Remove the agents' symlinks first, so that none of them dangles.
            let names: Vec<_> = installed_by(&link)?.into_keys().collect();
            withdraw_from_agents(vault, &mut change, &names, &[])?;
        }
        change.switching()?;
        let aside = vault.scratch()?;
        disk::rename(&folder, &aside.path().join(id.as_str()))?;
        disk::sync_dir(&links_folder(vault))?;
        drop(aside);
        remove::collect_foreign(vault, &change)?;
    }
    trust_folder(vault, id).remove_all()?;
    Ok(existed)
}

impl Link {
    /// This machine's device key for the link. Fails if the file is missing, readable by other
    /// users, or holds a key other than the recorded one.
    pub fn device_key(&self, vault: &Vault) -> Result<SecretKey, KeyError> {
        let folder = trust_folder(vault, &self.id);
        let path = folder.path_of(DEVICE_KEY);
        let key = keys::read_key(&folder, DEVICE_KEY, KeyKind::Device, &NoPassphrases)?
            .ok_or_else(|| KeyError::Missing(path.clone()))?;
        if key.public().key_id() == self.pin.device_key_id {
            Ok(key)
        } else {
            Err(KeyError::Mismatch(path))
        }
    }
}
