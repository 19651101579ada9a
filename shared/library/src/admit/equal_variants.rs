//! Uses variants of another publisher that equal those of this library.

use vault_format::bundle::{EncodedBundle, OpenedBundle};
use vault_format::hash::Digest;
use vault_format::name::AgentId;

use super::variants::{RenderedVariant, Transforms};
use crate::disk::Batch;
use crate::installed::rendered_variants::{Part, Variant};
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// A variant of another publisher that differs in its signature alone from the one rendered here.
#[derive(Debug)]
pub(crate) struct EqualVariant {
    pub(crate) agent: AgentId,
    /// The bundle that was rendered here.
    pub(crate) ours: Digest,
    pub(crate) theirs: OpenedBundle,
    pub(crate) encoded: EncodedBundle,
}

impl EqualVariant {
    /// Returns whether this is the variant that stands beside the rendered one.
    pub(crate) fn replaces(&self, rendered: &RenderedVariant) -> bool {
        self.agent == rendered.agent && self.theirs.manifest.name == rendered.skill
    }
}

impl Transforms {
    /// Stores these variants and uses them in place of the own ones. Call it under the writer lock,
    /// after an accepted release was seen to list them.
    pub(crate) fn use_equal_variants(
        &mut self,
        vault: &Vault,
        change: &mut Change<'_>,
        equal: &[EqualVariant],
    ) -> Result<(), VaultError> {
        let hashes: Vec<_> = equal.iter().map(|variant| variant.encoded.hash).collect();
        // An accepted release lists them, so they stay valid even if their signer was retired since.
        let trust = vault.change_trust(vault.id(), |before| {
            let mut trust = before.ok_or_else(|| VaultError::Untrusted(*vault.id()))?;
            trust.taken_over.extend(&hashes);
            Ok::<_, VaultError>(trust)
        })?;
        let aside = vault.new_scratch()?;
        let mut batch = Batch::default();
        for variant in equal {
            let (hash, signed) = (&variant.encoded.hash, variant.theirs.signed.as_bytes());
            let files = &variant.theirs.files;
            store::stage_bundle(&mut batch, aside.path(), hash, signed, files)?;
        }
        batch.flush(aside.path())?;
        let trusted = store::Trusted::for_own(trust).for_variants();
        store::admit_bundles(&vault.store_folder(), aside.path(), &hashes, &trusted)?;
        for variant in equal {
            self.record_before(variant);
        }
        self.record.write(vault, change)
    }

    /// Records a variant before the own one, which stays: links may lead to it, and it is used
    /// again if the other publisher's key is revoked.
    fn record_before(&mut self, equal: &EqualVariant) {
        let variants = &mut self.record.variants;
        let own = variants.iter().position(|it| {
            it.bundle == Some(equal.ours)
                && it.agent == equal.agent
                && it.name == equal.theirs.manifest.name
        });
        let Some(own) = own else {
            return;
        };
        let parts = equal.encoded.parts.iter().map(|part| Part {
            sha256: part.hash,
            size: part.bytes.len() as u64,
        });
        let theirs = Variant {
            bundle: Some(equal.encoded.hash),
            size: equal.encoded.bytes.len() as u64,
            parts: parts.collect(),
            ..variants[own].clone()
        };
        variants.insert(own, theirs);
    }
}
