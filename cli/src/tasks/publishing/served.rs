//! Reads skills of a *served* vault: one whose key is on its server, which signs the releases
//! itself. Owners review drafts against them.

use std::collections::BTreeSet;

use vault_api::{Kind, VaultHead};
use vault_format::{
    bundle::{Bundle, OpenedBundle},
    catalog::SignedCatalog,
    hash::Digest,
    manifest::{ManifestExpectation, ManifestTrust},
    name::SkillName,
    root::{RootChain, RootState, SkillPlace, VaultId},
};

use super::Publisher;
use crate::errors::Failure;

/// Reads the current release of a served vault as one of its owners.
pub struct ServedVault<'a> {
    publisher: Publisher<'a>,
    id: Option<VaultId>,
}

impl<'a> Publisher<'a> {
    /// Returns the vault of the namespace if the server itself signs it, or `None` if publishers'
    /// machines sign it.
    pub async fn into_served(self) -> Result<Option<ServedVault<'a>>, Failure> {
        let head: VaultHead = self.client.get(&self.root).await?;
        if head.kind != Some(Kind::SelfSigned) {
            return Ok(None);
        }
        let id = head.vault_id();
        Ok(Some(ServedVault {
            publisher: self,
            id,
        }))
    }
}

impl ServedVault<'_> {
    /// Returns the vault's id as the service reports it; `None` before the first release.
    pub const fn vault_id(&self) -> Option<&VaultId> {
        self.id.as_ref()
    }

    /// Fetches a skill of the current release: its bundle's SHA-256 and its content. Both are
    /// verified only with the keys in the release itself, because this machine pins no keys of the
    /// vault. The content is therefore as trustworthy as the server.
    pub async fn fetch_skill(
        &self,
        name: &SkillName,
    ) -> Result<Option<(Digest, OpenedBundle)>, Failure> {
        let Some(bytes) = self.publisher.current_catalog().await? else {
            return Ok(None);
        };
        let unreadable = |what: String| fail!(AnswerUnreadable, "the current release: {what}");
        let file = SignedCatalog::parse(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let chain =
            RootChain::verify(file.roots()).map_err(|error| unreadable(error.to_string()))?;
        // This machine has no pin for the vault, so the file is compared with its own digest only.
        let catalog = file
            .read_counted(&file.payload_sha256())
            .map_err(|error| unreadable(error.to_string()))?;
        let Some(entry) = catalog.skill(name) else {
            return Ok(None);
        };
        let fetched = self
            .publisher
            .fetch_own(std::slice::from_ref(entry))
            .await?;
        let bundle = fetched
            .get(&entry.bundle_hash)
            .ok_or_else(|| unreadable(format!("{name} is missing")))?;
        let trust = ManifestTrust {
            state: &RootState::new(chain, BTreeSet::new()),
            place: SkillPlace::Listed,
        };
        let expected = ManifestExpectation {
            name,
            version: Some(entry.version),
            stored_version: None,
        };
        let opened = Bundle::parse(bundle, &entry.bundle_hash, entry.size)
            .and_then(|bundle| bundle.open(&|hash| fetched.get(hash).cloned(), &trust, &expected))
            .map_err(|error| unreadable(format!("{name}: {error}")))?;
        Ok(Some((entry.bundle_hash, opened)))
    }
}
