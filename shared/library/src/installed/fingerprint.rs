//! Identifies the state of a vault that a cache was built from.

use std::path::Path;

use vault_skill::hash::Digest;

use super::linked::{self, Link};
use crate::disk;
use crate::disk::tree::DirHandle;
use crate::vault::Vault;

/// A cheap fingerprint of a vault's state. It covers the generation number, the trusted keys, and
/// the metadata of the folders whose links install skills. It does not cover the bytes of skills.
pub(crate) struct Fingerprint {
    bytes: Vec<u8>,
    /// The latest change time of these folders.
    last_change: (i64, u64),
}

impl Fingerprint {
    /// The fingerprint of the vault's current state; `None` during a change, or if part of it can't
    /// be read.
    pub(crate) fn of(vault: &Vault) -> Option<Self> {
        let generation = vault.generation().ok()?;
        if !generation.is_multiple_of(2) {
            return None;
        }
        let mut fingerprint = Self {
            bytes: Vec::new(),
            last_change: (0, 0),
        };
        fingerprint.add_text(&generation.to_string());
        let trusted = vault.trusted().ok()?;
        fingerprint.add_text(&trusted.vault_id.to_string());
        for key in &trusted.keys {
            fingerprint.add_text(&key.to_string());
        }
        for folder in ["skills", "links", "store"] {
            fingerprint.add_path(&vault.paths().root, folder);
        }
        for link in linked::all(vault).ok()? {
            link.add_to_fingerprint(&mut fingerprint);
        }
        Some(fingerprint)
    }

    pub(crate) fn add_text(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Adds the metadata of a path below a folder, or the fact that it is absent.
    pub(crate) fn add_path(&mut self, folder: &Path, path: &str) {
        let stat = DirHandle::new(folder)
            .ok()
            .and_then(|handle| handle.stat(path.as_bytes()));
        self.add_text(if stat.is_some() { path } else { "" });
        if let Some(stat) = stat {
            stat.append_to(&mut self.bytes);
            self.last_change = self.last_change.max(stat.changed);
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// Whether any later change will alter the fingerprint. Two changes within one tick of the file
    /// system's clock have the same timestamp, so a recent change is not settled.
    pub(crate) fn is_settled(&self, settled_before: (i64, u64)) -> bool {
        self.last_change < settled_before
    }
}

impl Link {
    /// Adds what determines which skills this link installs and which keys it trusts, without
    /// reading skills.
    pub(crate) fn add_to_fingerprint(&self, out: &mut Fingerprint) {
        out.add_text(self.id.as_str());
        out.add_text(&self.state.to_string_lossy());
        out.add_text(&format!("{:?}", self.pin.vault_id));
        for key in self.pin.signers.iter().chain(&self.pin.voided_keys) {
            out.add_text(&key.to_string());
        }
        let set = self.state.join("set");
        let target = disk::link_target(&set).ok().flatten().unwrap_or_default();
        out.add_text(&target.to_string_lossy());
        for path in ["set/skills", "set/set.json", "catalog.json"] {
            out.add_path(&self.state, path);
        }
    }
}
