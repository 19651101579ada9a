//! The room beyond the quota for the skills that a vault signs again after it has revoked a key. Its
//! machines run nothing that this key signed, so the vault needs the room at once, however full it
//! is.
//!
//! Every token that may write can upload, so only what a current publisher's key has signed gets the
//! room: bundles that such a key signed, whose files are those of the manifest, and without a byte
//! that the format does not write. The parts of large files stay the same when a skill is signed
//! again, so they are stored already and get no room.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use vault_format::bundle::{self, Bundle};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::manifest::{Manifest, ManifestExpectation, ManifestTrust};
use vault_format::root::{RootState, SkillPlace};
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};

use super::current::{PublishBase, current_closure};
use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::usage::Amount;
use crate::spending::CheckPlace;
use crate::uploads;

/// Returns how far beyond the quota this upload may go; `None` if no key was revoked lately, or if
/// the upload has an object that is neither stored yet, nor a file of a release, nor a skill that a
/// current publisher signed.
///
/// Fails if the checks of the skills get no place, or if the budget for such checks is used up.
pub(crate) async fn find_room(
    app: &App,
    namespace: &Namespace,
    objects: &[(ObjectKey, Bytes)],
) -> Result<Option<Amount>, StoreError> {
    let base = PublishBase::read_base(app, namespace).await?;
    let (Some(current), Some(pinned)) = (namespace.readable_current(), base.known) else {
        return Ok(None);
    };
    let closure = current_closure(app, namespace.id, current).await?;
    let is_revoked = |signer: &PublicKey| !pinned.state.was_publisher(signer);
    let quota = app.quota_of(namespace);
    let quota = Amount {
        bytes: quota.bytes,
        objects: quota.objects,
    };
    let room = closure.measure_revoked(is_revoked, quota, app.now());
    if room == Amount::default() {
        return Ok(None);
    }
    let skills = UploadedSkills {
        app,
        namespace,
        state: Arc::new(pinned.state),
    };
    Ok(skills.are_signed(objects).await?.then_some(room))
}

/// Checks the skills of an upload.
struct UploadedSkills<'a> {
    app: &'a App,
    namespace: &'a Namespace,
    state: Arc<RootState>,
}

impl UploadedSkills<'_> {
    /// Whether all objects that are not stored yet are skills that a current publisher signed, or
    /// files of a release.
    async fn are_signed(&self, objects: &[(ObjectKey, Bytes)]) -> Result<bool, StoreError> {
        let sizes: Vec<_> = objects
            .iter()
            .map(|(key, bytes)| (*key, bytes.len() as u64))
            .collect();
        let missing = uploads::list_missing(self.app, self.namespace.id, &sizes).await?;
        let missing: HashSet<_> = missing.into_iter().collect();
        let mut skills = Vec::new();
        for (key, bytes) in objects.iter().filter(|(key, _)| missing.contains(key)) {
            if uploads::is_release_file(self.namespace, key, bytes) {
                continue;
            }
            match SignedSkill::read(&self.state, key, bytes) {
                Some(skill) => skills.push(skill),
                None => return Ok(false),
            }
        }
        // Files of a release have room of their own.
        if skills.is_empty() {
            return Ok(false);
        }
        let work = skills.iter().map(SignedSkill::work).sum();
        let mut place = CheckPlace::enter(self.app, &self.namespace.id, work).await?;
        // One after another, also of several requests: the parts and files of a skill take 70 MiB.
        let mut turn = self.app.enter_signed_again(&self.namespace.id).await?;
        for skill in skills {
            let parts = self.read_parts(&skill).await?;
            let (state, work) = (Arc::clone(&self.state), skill.work());
            // The thread has the turn as long as it has the parts.
            let check = move || ((skill.encodes_exactly(&state, &parts), turn), work);
            let ((is_exact, same_turn), same_place) = place.run(check).await?;
            if !is_exact {
                return Ok(false);
            }
            (place, turn) = (same_place, same_turn);
        }
        drop((place, turn));
        self.app.wait_to_store().await?;
        Ok(true)
    }

    /// Reads the parts of a skill that are stored.
    async fn read_parts(&self, skill: &SignedSkill) -> Result<HashMap<Digest, Bytes>, StoreError> {
        let mut parts = HashMap::new();
        for hash in skill.bundle.part_hashes() {
            let key = self.namespace.object_key(Class::Bundles, hash);
            if let Some(bytes) = self.app.objects.read_object(&key).await? {
                parts.insert(hash, bytes);
            }
        }
        Ok(parts)
    }
}

/// An uploaded bundle whose manifest a current publisher signed. Its files are not verified yet.
struct SignedSkill {
    bytes: Bytes,
    bundle: Bundle,
    manifest: Manifest,
}

impl SignedSkill {
    /// Reads a bundle; `None` if the object is none, or if no current publisher signed it.
    fn read(state: &RootState, key: &ObjectKey, bytes: &Bytes) -> Option<Self> {
        if key.class != Class::Bundles {
            return None;
        }
        let bundle = Bundle::parse(bytes, &key.digest, bytes.len() as u64).ok()?;
        let signed = bundle.signed_manifest();
        let manifest = signed.verify_signature(&trust_in(state)).ok()?;
        // The envelope goes into the bundle as it is, so its own bytes are compared here.
        signed.is_canonical().then(|| Self {
            manifest,
            bytes: bytes.clone(),
            bundle,
        })
    }

    /// Returns the number of bytes that the check of the files reads.
    fn work(&self) -> u64 {
        let parts = self.bundle.part_refs().map(|part| part.size);
        parts.sum::<u64>() + self.bytes.len() as u64
    }

    /// Whether the bundle has exactly the bytes that its manifest and files give it.
    fn encodes_exactly(self, state: &RootState, parts: &HashMap<Digest, Bytes>) -> bool {
        let expected = ManifestExpectation {
            name: &self.manifest.name,
            version: None,
            stored_version: None,
        };
        let part = |hash: &Digest| parts.get(hash).map(|bytes| bytes.to_vec());
        let opened = self.bundle.open(&part, &trust_in(state), &expected);
        opened.is_ok_and(|opened| {
            let made = bundle::encode(&opened.signed, &opened.manifest, &opened.files);
            made.is_ok_and(|made| made.bytes == self.bytes)
        })
    }
}

/// Accepts signatures by current publishers only: a vault signs a skill again with a key that counts.
fn trust_in(state: &RootState) -> ManifestTrust<'_> {
    ManifestTrust {
        state,
        place: SkillPlace::SignAgain,
    }
}
