//! Creates and removes links to other vaults, and updates their pins.

use std::path::Path;

use vault_skill::catalog::{Accepted, Stored, Trust};
use vault_skill::keys::SecretKey;
use vault_skill::name::Slug;
use vault_skill::time::Timestamp;

use super::error::LinkError;
use super::state::{InstalledSet, NewState, SetChange, switch};
use crate::admit::remove;
use crate::disk;
use crate::installed::agent_links::withdraw::withdraw as withdraw_from_agents;
use crate::installed::link_id::LinkId;
use crate::installed::linked::{Link, Pin, find, links_folder};
use crate::installed::place::installed_by;
use crate::vault::Vault;
use crate::vault::keys::{self, KeyError, KeyKind, SecretFolder};

impl Pin {
    pub(super) fn trust(&self) -> Trust {
        Trust {
            vault_id: self.vault_id,
            public_key: self.public_key,
            former_keys: self.former_keys.clone(),
            rotation_sequence: self.rotation_sequence,
            recovery_key_sha256: self.recovery_key_sha256,
            stored: self
                .release
                .zip(self.payload_sha256)
                .map(|(release, payload_sha256)| Stored {
                    release,
                    payload_sha256,
                }),
        }
    }

    pub(super) fn after(&self, accepted: &Accepted, now: Timestamp) -> Self {
        let trust = &accepted.trust;
        Self {
            signers: accepted.keys.clone(),
            voided_keys: accepted.voided.clone(),
            vault_id: trust.vault_id,
            public_key: trust.public_key,
            former_keys: trust.former_keys.clone(),
            rotation_sequence: trust.rotation_sequence,
            recovery_key_sha256: trust.recovery_key_sha256,
            release: trust.stored.as_ref().map(|stored| stored.release),
            payload_sha256: trust.stored.as_ref().map(|stored| stored.payload_sha256),
            latest_seen_at: self.latest_seen_at.max(now),
            expected_key: None,
            ..self.clone()
        }
    }
}
fn devices(vault: &Vault) -> SecretFolder {
    SecretFolder::new(&vault.paths().config, "devices")
}

/// Links a vault with a new device key and an empty pin. Returns the existing link unchanged if
/// there is one.
pub fn create(vault: &Vault, base: &str, slug: &Slug) -> Result<Link, LinkError> {
    let id = LinkId::of(base, slug);
    if let Some(link) = find(vault, &id)? {
        link.device_key(vault)?;
        return Ok(link);
    }
    let mut change = vault.change()?;
    devices(vault).sweep()?;
    let device_key = match devices(vault).read_key(id.as_str(), KeyKind::Device)? {
        Some(key) => key, // an earlier try got this far
        None => {
            let key = keys::generate(vault.random());
            devices(vault).create_key(id.as_str(), KeyKind::Device, &key)?;
            key
        }
    };
    let now = vault.clock().now();
    let pin = Pin {
        base: base.to_owned(),
        slug: slug.clone(),
        vault_id: None,
        public_key: None,
        former_keys: Vec::new(),
        signers: Vec::new(),
        voided_keys: Vec::new(),
        rotation_sequence: 0,
        recovery_key_sha256: None,
        release: None,
        payload_sha256: None,
        expected_key: None,
        device_key_id: device_key.public().key_id(),
        linked_at: now,
        latest_seen_at: now,
    };
    let folder = links_folder(vault).join(id.as_str());
    disk::make_dirs(&folder, 0o700)?;
    // These paths stay the same and follow the `current` symlink to the newest state.
    for (name, target) in [
        ("pin.json", "current/pin.json"),
        ("catalog.json", "current/catalog.json"),
        ("skills", "current/set/skills"),
    ] {
        let link = folder.join(name);
        if disk::kind(&link)?.is_none() {
            disk::new_link(&link, Path::new(target))?;
        }
    }
    let state = NewState {
        pin: &pin,
        catalog: None,
        set: SetChange::Write(&InstalledSet::default()),
    };
    switch(vault, &mut change, &folder, &state)?;
    find(vault, &id)?.ok_or(LinkError::Unknown(id))
}

/// Records the fingerprint that the vault's key must have, for a link that has no pinned key yet.
/// Later calls of [`Link::accept`] check it even if the caller passes no fingerprint. Changes
/// nothing if a key is already pinned.
pub fn expect(vault: &Vault, id: &LinkId, fingerprint: &str) -> Result<(), LinkError> {
    let is_news = |link: &Link| {
        link.pin.public_key.is_none() && link.pin.expected_key.as_deref() != Some(fingerprint)
    };
    let found = || find(vault, id)?.ok_or_else(|| LinkError::Unknown(id.clone()));
    if !is_news(&found()?) {
        return Ok(());
    }
    let mut change = vault.change()?;
    // Check again under the lock.
    let link = found()?;
    if !is_news(&link) {
        return Ok(());
    }
    let pin = Pin {
        expected_key: Some(fingerprint.to_owned()),
        ..link.pin
    };
    Ok(change.write_record(&link.state.join("pin.json"), &pin, 0o600)?)
}

/// Removes a link, its skills and its device key, and bundles that nothing else uses. Returns true
/// if the link existed.
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
    devices(vault).remove(id.as_str())?;
    Ok(existed)
}
impl Link {
    /// This machine's device key for the link. Fails if the file is missing, readable by other
    /// users, or holds a key other than the recorded one.
    pub fn device_key(&self, vault: &Vault) -> Result<SecretKey, KeyError> {
        let folder = devices(vault);
        let path = folder.path_of(self.id.as_str());
        let key = folder
            .read_key(self.id.as_str(), KeyKind::Device)?
            .ok_or_else(|| KeyError::Missing(path.clone()))?;
        if key.public().key_id() == self.pin.device_key_id {
            Ok(key)
        } else {
            Err(KeyError::Mismatch(path))
        }
    }
}
