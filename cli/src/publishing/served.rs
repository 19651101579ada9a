//! Skills of a vault whose server signs it, as its owners read them over the service.

use std::collections::BTreeSet;

use serde_json::Value;
use vault_format::{
    bundle::{Bundle, OpenedBundle},
    catalog::SignedCatalog,
    hash::Digest,
    manifest::{ManifestExpectation, ManifestTrust},
    name::SkillName,
    root::{RootChain, RootState, SkillPlace},
};

use super::Publisher;
use crate::errors::Failure;

impl Publisher<'_> {
    /// Whether the server itself signs this vault, so that this machine's key has no part in it.
    pub async fn is_signed_by_server(&self) -> Result<bool, Failure> {
        let shown: Value = self.client.get(&self.root).await?;
        Ok(shown["kind"] == "self_signed")
    }

    /// The skill of this name in the current release of a vault that its server signs, verified with
    /// the keys that the release itself names: their holder is the server that is asked. Its bundle hash
    /// and content.
    pub async fn served(
        &self,
        name: &SkillName,
    ) -> Result<Option<(Digest, OpenedBundle)>, Failure> {
        let Some(bytes) = self.current_catalog().await? else {
            return Ok(None);
        };
        let unreadable = |what: String| fail!(AnswerUnreadable, "the current release: {what}");
        let file = SignedCatalog::parse(&bytes).map_err(|error| unreadable(error.to_string()))?;
        let chain =
            RootChain::verify(file.roots()).map_err(|error| unreadable(error.to_string()))?;
        let catalog = file
            .read_counted(&file.payload_sha256())
            .map_err(|error| unreadable(error.to_string()))?;
        let Some(entry) = catalog.skill(name) else {
            return Ok(None);
        };
        let fetched = self.fetch_own(std::slice::from_ref(entry)).await?;
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
