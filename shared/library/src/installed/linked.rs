//! Reads what is pinned and installed from linked vaults. [`crate::subscribe`] changes it.
//!
//! ```text
//! links/<id>/current        -> states/<n>: the one atomic switch
//! links/<id>/states/<n>/    pin.json (0600), catalog.json (exact bytes), set -> ../../sets/<m>
//! links/<id>/sets/<m>/      set.json, skills/<name> -> the store
//! links/<id>/{pin.json, catalog.json, skills}   constant links through `current`
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vault_skill::catalog;
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::name::{AgentId, SkillName, Slug, VaultId};
use vault_skill::time::Timestamp;

use super::link_id::LinkId;
use crate::disk;
use crate::vault::{Vault, VaultError};

/// What this machine has verified about a linked vault and trusts from now on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pin {
    /// The base address, without a slash at its end.
    pub base: String,
    /// The vault's name there.
    pub slug: Slug,
    /// The vault's id; `None` until the first catalog is accepted. That catalog also sets the four
    /// fields below.
    pub vault_id: Option<VaultId>,
    /// The key that signs its releases.
    pub public_key: Option<PublicKey>,
    /// Keys that it rotated away from.
    pub former_keys: Vec<PublicKey>,
    /// Further keys that may have signed manifests of the current catalog.
    pub signers: Vec<PublicKey>,
    /// Keys among these that were stolen or lost. A manifest signed with one is valid only if the
    /// current catalog names its bundle.
    pub voided_keys: Vec<PublicKey>,
    /// Sequence number of the last accepted rotation.
    pub rotation_sequence: u64,
    /// Hash of the key that can replace a lost or stolen release key.
    pub recovery_key_sha256: Option<Digest>,
    /// Number of the last accepted release.
    pub release: Option<u64>,
    /// Hash of the signed payload of that release's catalog.
    pub payload_sha256: Option<Digest>,
    /// The fingerprint that the first key must have, as given to [`crate::subscribe::expect`].
    /// Removed once a key is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_key: Option<String>,
    /// Hash of this machine's device key for the link.
    pub device_key_id: Digest,
    /// When the link was created.
    pub linked_at: Timestamp,
    /// The latest time seen. It keeps an expired catalog invalid even if the clock is set back.
    pub latest_seen_at: Timestamp,
}
/// Which skills of a linked vault to install. A skill must meet all conditions; without any, all
/// skills are installed.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Selection {
    /// Skills that the vault publishes for this agent. If it publishes no such profile: skills that
    /// name this agent or no agent.
    pub agent: Option<AgentId>,
    /// Skills with this tag.
    pub tag: Option<String>,
    /// Skills with these names; empty means any name.
    pub skills: Vec<SkillName>,
    /// A different local name, if exactly one skill is named.
    pub install_as: Option<SkillName>,
}
/// The content of `set.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SetRecord {
    pub(crate) selection: Selection,
    pub(crate) aliases: Vec<Alias>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Alias {
    pub(crate) installed_as: SkillName,
    pub(crate) name: SkillName,
}
/// One state of a linked vault.
#[derive(Clone, Debug)]
pub struct Link {
    pub(crate) id: LinkId,
    pub(crate) folder: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) pin: Pin,
}

/// All linked vaults, sorted by id.
pub fn all(vault: &Vault) -> Result<Vec<Link>, VaultError> {
    let mut links = Vec::new();
    for (name, _) in disk::list(&links_folder(vault))? {
        let Ok(id) = name.to_string_lossy().parse::<LinkId>() else {
            continue;
        };
        links.extend(find(vault, &id)?);
    }
    Ok(links)
}

/// A linked vault by its id; `None` if it is not linked.
pub fn find(vault: &Vault, id: &LinkId) -> Result<Option<Link>, VaultError> {
    let folder = links_folder(vault).join(id.as_str());
    // A writer may replace the state between the two reads, and it then removes older states:
    // retry.
    for _ in 0..3 {
        let Some(target) = disk::link_target(&folder.join("current"))? else {
            return Ok(None); // a link whose making was cut short
        };
        let state = folder.join(target);
        if let Some(pin) = crate::vault::read_record(&state.join("pin.json"))? {
            return Ok(Some(Link {
                id: id.clone(),
                folder,
                state,
                pin,
            }));
        }
    }
    Err(VaultError::Damaged {
        path: folder,
        reason: "its pin is missing".to_owned(),
    })
}

pub(crate) fn links_folder(vault: &Vault) -> PathBuf {
    vault.paths().root.join("links")
}
impl Link {
    /// The link's id.
    pub fn id(&self) -> &LinkId {
        &self.id
    }

    /// The pin.
    pub fn pin(&self) -> &Pin {
        &self.pin
    }
    /// The exact bytes of the current catalog; `None` before the first one.
    pub fn catalog_bytes(&self) -> Result<Option<Vec<u8>>, VaultError> {
        let path = self.state.join("catalog.json");
        Ok(disk::read(&path, catalog::MAX_OBJECT_BYTES as u64)?)
    }

    /// The selection of the last pull.
    pub fn selection(&self) -> Result<Selection, VaultError> {
        Ok(self.record()?.selection)
    }

    pub(crate) fn record(&self) -> Result<SetRecord, VaultError> {
        let record = crate::vault::read_record(&self.state.join("set/set.json"))?;
        Ok(record.unwrap_or_default())
    }
}
