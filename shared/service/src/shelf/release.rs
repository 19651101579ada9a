//! The current release of a namespace as a shelf. Although the service itself stores the release,
//! only content that the owner signed is trusted.
//!
//! The root versions are compared with the namespace's pin, and the signatures of the catalog are
//! checked under the root version that it names. Index, policy, bundles and parts are named by hash
//! in the catalog. Verified content is cached for a while, by namespace and hash.
//!
//! A device waits for a new release as soon as the root version changes. The service keeps serving
//! the current release until a key that signed it is revoked; then it serves nothing of it. It
//! serves no releases that an earlier version of vault published.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use vault_format::bundle::{Bundle, BundleError};
use vault_format::catalog::{Catalog, SignedCatalog};
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::index::IndexEntry;
use vault_format::keys::PublicKey;
use vault_format::manifest::{ManifestExpectation, ManifestTrust};
use vault_format::name::{NamespaceId, SkillName};
use vault_format::root::{RootState, SkillPlace};
use vault_policy::Policy;
use vault_shelf::{
    Change, Drift, DriftState, Entry, Loaded, ReleaseKeys, Shelf, ShelfError, Snapshot, Submitted,
    Writes,
};
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::recent::Recent;

use super::blocking::run_blocking;
use super::drafts::{self, DraftTarget};
use crate::app::App;
use crate::model::namespace::{Current, Kind, Namespace};
use crate::publish::read_state;

/// Approximate size of the cache of verified lists, in bytes. The list of 10,000 skills takes half
/// of it.
const LISTS_ROOM_BYTES: usize = 32 << 20;
/// Size of the cache of verified skills, in bytes.
const SKILLS_ROOM_BYTES: usize = 8 << 20;
/// Number of lists that can be verified at the same time.
const LOAD_LOCKS: usize = 4;

/// Cache of verified lists and skills, by namespace and hash.
#[derive(Debug)]
pub(super) struct VerifiedReleases {
    lists: Recent<(NamespaceId, Digest), Arc<VerifiedList>>,
    skills: Recent<(NamespaceId, Digest), Arc<Loaded>>,
    /// Locks by hash of the list: if several callers need the same uncached list, one verifies it
    /// and the others wait.
    load_locks: [tokio::sync::Mutex<()>; LOAD_LOCKS],
}

impl Default for VerifiedReleases {
    fn default() -> Self {
        Self {
            lists: Recent::new(LISTS_ROOM_BYTES),
            skills: Recent::new(SKILLS_ROOM_BYTES),
            load_locks: Default::default(),
        }
    }
}

/// A verified release: its list of skills, the keys that are valid for them, and the withdrawn
/// bundles.
#[derive(Debug)]
struct VerifiedList {
    snapshot: Arc<Snapshot>,
    state: Arc<RootState>,
    withdrawn: HashSet<Digest>,
}

/// Shelf that reads the current release of one namespace, for one request.
pub(super) struct ReleaseShelf {
    app: App,
    namespace: Namespace,
    source: Option<IpAddr>,
    verified: Arc<VerifiedReleases>,
}

impl ReleaseShelf {
    /// Creates the shelf of a namespace, from its record as read for a request that came from
    /// `source`.
    pub(super) const fn new(
        app: App,
        namespace: Namespace,
        source: Option<IpAddr>,
        verified: Arc<VerifiedReleases>,
    ) -> Self {
        Self {
            app,
            namespace,
            source,
            verified,
        }
    }

    /// Returns the verified current release; `None` before the first one.
    async fn verified_list(&self) -> Result<Option<Arc<VerifiedList>>, ShelfError> {
        let Some(current) = &self.namespace.current else {
            return Ok(None);
        };
        let key = (self.namespace.id, current.sha256);
        if let Some(list) = self.verified.lists.find(&key) {
            return Ok(Some(list));
        }
        // The hash chooses the lock, so a list always has the same lock, and different lists rarely
        // wait for each other.
        let lock = usize::from(current.sha256.as_bytes()[0]) % LOAD_LOCKS;
        let _loading = self.verified.load_locks[lock].lock().await;
        // Another caller may have verified the list while this one waited.
        if let Some(list) = self.verified.lists.find(&key) {
            return Ok(Some(list));
        }
        let (list, size) = self.open_list(current).await?;
        let list = Arc::new(list);
        self.verified
            .lists
            .insert_value(key, Arc::clone(&list), size);
        Ok(Some(list))
    }

    async fn open_list(&self, current: &Current) -> Result<(VerifiedList, usize), ShelfError> {
        let bytes = self
            .read_object(Class::Catalogs, current.sha256)
            .await?
            .ok_or_else(|| missing_object("the current catalog"))?;
        let namespace = self.namespace.clone();
        let public_url = &self.app.config.public_url;
        let address = public_url.join(&format!("/v/{}/", namespace.slug));
        // Verifying the signatures of a large catalog takes long, and must not delay other requests
        // on this thread.
        let (catalog, state, signers) =
            run_blocking(move || read_catalog(&namespace, &address, &bytes)).await?;
        let mut parts = Vec::with_capacity(catalog.index.len());
        for part in &catalog.index {
            let bytes = self
                .read_exact_object(Class::Bundles, part.bundle_hash, part.size, "an index")
                .await?;
            parts.push(bytes);
        }
        let policy = match &catalog.policy {
            Some(policy) => Some(
                self.read_exact_object(Class::Policies, policy.sha256, policy.size, "the policy")
                    .await?,
            ),
            None => None,
        };
        let payload_sha256 = current.payload_sha256;
        run_blocking(move || {
            let (mut snapshot, size) = read_snapshot(&catalog, &state, &parts, policy.as_deref())?;
            snapshot.catalog = Some(payload_sha256);
            snapshot.keys = Some(ReleaseKeys {
                root_version: state.chain().version(),
                signers,
            });
            let withdrawn = catalog.withdrawn.iter();
            let list = VerifiedList {
                snapshot: Arc::new(snapshot),
                state: Arc::new(state),
                withdrawn: withdrawn.map(|entry| entry.bundle_hash).collect(),
            };
            Ok((list, size))
        })
        .await
    }

    /// Reads an object whose hash and size the catalog names. `what` is its name for error texts.
    async fn read_exact_object(
        &self,
        class: Class,
        digest: Digest,
        size: u64,
        what: &str,
    ) -> Result<Bytes, ShelfError> {
        let bytes = self
            .read_object(class, digest)
            .await?
            .ok_or_else(|| missing_object(what))?;
        if bytes.len() as u64 == size {
            Ok(bytes)
        } else {
            Err(ShelfError::Failed(format!(
                "the size of {what} does not match the catalog"
            )))
        }
    }

    /// Reads an object of the namespace by its hash, and verifies the hash; `None` if it is not
    /// stored.
    async fn read_object(&self, class: Class, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        let key = self.namespace.object_key(class, digest);
        let object = self.app.object(&key).await?;
        Ok(object.map(|object| object.bytes))
    }

    /// Reads the bytes of a skill or of one of its parts. Fails with `missing` if they are not
    /// stored.
    async fn read_content(
        &self,
        name: &SkillName,
        digest: Digest,
        missing: impl Fn() -> ShelfError,
    ) -> Result<Bytes, ShelfError> {
        match self.read_object(Class::Bundles, digest).await {
            Ok(bytes) => bytes.ok_or_else(missing),
            Err(StoreError::Corrupt(damage)) => Err(ShelfError::Damaged(name.clone(), damage)),
            Err(error) => Err(error.into()),
        }
    }

    async fn open_skill(&self, list: &VerifiedList, entry: &Entry) -> Result<Loaded, ShelfError> {
        let name = entry.name();
        let hash = entry.texts.bundle_hash;
        let named = list.lists_bundle(entry);
        // A bundle that the release lists must be stored. Any other may be an older version, whose
        // objects were deleted.
        let missing = || {
            if named {
                ShelfError::Unavailable(name.clone())
            } else {
                ShelfError::NotFound(name.clone())
            }
        };
        let bytes = self.read_content(name, hash, missing).await?;
        let size = entry.size;
        let skill = name.clone();
        let bundle =
            run_blocking(move || Bundle::parse(&bytes, &hash, size).map_err(damaged_skill(&skill)))
                .await?;
        let mut parts = Vec::new();
        for part in bundle.part_hashes() {
            parts.push((part, self.read_content(name, part, missing).await?));
        }
        let (state, place) = (Arc::clone(&list.state), list.skill_place(entry));
        let (skill, version) = (name.clone(), entry.version);
        run_blocking(move || {
            let signer = bundle.signed_manifest().signer(&state);
            // Checked before the bundle is opened, so that a revoked signer is reported as revoked
            // and not as damage.
            if signer.is_some_and(|signer| state.is_revoked(&signer)) {
                return Err(ShelfError::ReleaseAwaited);
            }
            let trust = ManifestTrust {
                state: &state,
                place,
            };
            let expected = ManifestExpectation {
                name: &skill,
                version: Some(version),
                stored_version: None,
            };
            let part = |wanted: &Digest| {
                let part_bytes = parts.iter().find(|(hash, _)| hash == wanted);
                part_bytes.map(|(_, bytes)| bytes.to_vec())
            };
            let bundle = bundle
                .open(&part, &trust, &expected)
                .map_err(damaged_skill(&skill))?;
            Ok(Loaded {
                public_key: signer.ok_or_else(|| {
                    ShelfError::Damaged(
                        skill.clone(),
                        "it has no signature of a key that the release trusts".to_owned(),
                    )
                })?,
                bundle_hash: hash,
                bundle,
            })
        })
        .await
    }
}

impl VerifiedList {
    /// Whether the release lists exactly this bundle for this skill.
    fn lists_bundle(&self, entry: &Entry) -> bool {
        self.snapshot
            .find(entry.name())
            .is_some_and(|found| found.texts.bundle_hash == entry.texts.bundle_hash)
    }

    /// Returns which signers are valid for a skill: if the release does not list its bundle, only
    /// keys that may publish at present.
    fn skill_place(&self, entry: &Entry) -> SkillPlace {
        if self.lists_bundle(entry) {
            SkillPlace::Listed
        } else {
            SkillPlace::Own { taken_over: false }
        }
    }
}

fn damaged_skill(name: &SkillName) -> impl Fn(BundleError) -> ShelfError + use<> {
    let name = name.clone();
    move |error| ShelfError::Damaged(name.clone(), error.to_string())
}

fn missing_object(what: &str) -> ShelfError {
    StoreError::unavailable(format!("{what} is missing from the object store")).into()
}

/// Verifies the current catalog from the bytes of its file. The root versions must be the pinned
/// ones, enough publishers of the root version that it names must have signed it, and it must be
/// for this namespace and address. Its expiry is not checked: the tools keep answering even if an
/// owner does not publish for a long time.
fn read_catalog(
    namespace: &Namespace,
    address: &str,
    bytes: &[u8],
) -> Result<(Catalog, RootState, Vec<PublicKey>), ShelfError> {
    let wrong = |error: &dyn std::fmt::Display| {
        ShelfError::Failed(format!("the current catalog is not valid: {error}"))
    };
    let current = namespace
        .current
        .as_ref()
        .ok_or_else(|| missing_object("a release"))?;
    if current.is_earlier() {
        return Err(ShelfError::ReleaseAwaited);
    }
    let file = SignedCatalog::parse(bytes).map_err(|error| wrong(&error))?;
    let state = read_state(namespace, &file).map_err(|error| wrong(&error))?;
    let catalog = file
        .read_counted(&current.payload_sha256)
        .map_err(|error| wrong(&error))?;
    // The root version that the release names may have been replaced when two diverging chains (a
    // fork) were resolved.
    let root = state.chain().find(&catalog.root_sha256);
    let root = root.ok_or(ShelfError::ReleaseAwaited)?;
    let role = root.document().release();
    let signers = file.valid_signers(role.keys());
    if signers.len() < role.threshold() {
        return Err(wrong(&"too few publishers have signed it"));
    }
    // The pin has the signers that were accepted at the publish. Without a pin, those found in the
    // file are taken.
    let counted = namespace.pin.vault_pin().map(|pin| pin.signers.clone());
    let signers = counted.unwrap_or(signers);
    if state.voids_release(&signers) {
        return Err(ShelfError::ReleaseAwaited);
    }
    let fits = catalog.vault_id == state.vault_id()
        && catalog.slug == namespace.slug
        && catalog.audience.iter().any(|audience| audience == address);
    if !fits {
        return Err(wrong(&"it was signed for another place"));
    }
    Ok((catalog, state, signers))
}

/// Verifies that the index covers exactly the skills of this catalog, and parses the policy. Also
/// returns the approximate size in memory.
fn read_snapshot(
    catalog: &Catalog,
    state: &RootState,
    parts: &[Bytes],
    policy: Option<&[u8]>,
) -> Result<(Snapshot, usize), ShelfError> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        ShelfError::Failed(format!(
            "{what} of the current release is not valid: {error}"
        ))
    };
    let parts: Vec<Vec<IndexEntry>> = parts
        .iter()
        .map(|part| index::parse_object(part, &state.vault_id()))
        .collect::<Result<_, _>>()
        .map_err(|error| wrong("the index", &error))?;
    let skills = catalog.skills.iter();
    if !index::covers_skills(
        &parts,
        skills.map(|skill| (&skill.name, &skill.bundle_hash)),
    ) {
        return Err(wrong("the index", &"it lists other skills"));
    }
    let policy = policy
        .map(Policy::from_object)
        .transpose()
        .map_err(|error| wrong("the policy", &error))?;
    let mut size = 0;
    let texts = parts.into_iter().flatten();
    let entries = texts.zip(&catalog.skills).map(|(texts, skill)| {
        size += texts_size(&texts);
        Entry {
            texts,
            version: skill.version,
            size: skill.size,
            vault: None,
        }
    });
    let mut snapshot = Snapshot::new(entries).with_policy(policy.map(Arc::new));
    snapshot.policy_sha256 = catalog.policy.map(|policy| policy.sha256);
    Ok((snapshot, size))
}

/// Estimates the memory that an entry takes, with its share of the search index.
fn texts_size(texts: &IndexEntry) -> usize {
    let words = [&texts.tags, &texts.categories];
    let words: usize = words
        .into_iter()
        .flatten()
        .map(|word| word.len() + 32)
        .sum();
    let text = texts.description.len() + texts.when_to_use.len() + words;
    320 + 2 * text
}

#[async_trait]
impl Shelf for ReleaseShelf {
    fn owner_name(&self) -> &str {
        self.namespace.slug.as_str()
    }

    fn write_mode(&self) -> Writes {
        match self.namespace.kind {
            Kind::Hosted => Writes::Drafted,
            Kind::SelfSigned => Writes::Elsewhere,
        }
    }

    async fn take_snapshot(&self) -> Result<Arc<Snapshot>, ShelfError> {
        Ok(match self.verified_list().await? {
            Some(list) => Arc::clone(&list.snapshot),
            None => Arc::default(),
        })
    }

    async fn load_skill(&self, entry: &Entry) -> Result<Arc<Loaded>, ShelfError> {
        if !self.namespace.subscription.is_live(self.app.clock.now()) {
            // Lists and descriptions stay readable after the subscription has lapsed; only content
            // is paid for.
            return Err(ShelfError::SubscriptionLapsed);
        }
        let missing = || ShelfError::NotFound(entry.name().clone());
        let list = self.verified_list().await?.ok_or_else(missing)?;
        // No caller may read a withdrawn bundle, even with an entry from an earlier list.
        if list.withdrawn.contains(&entry.texts.bundle_hash) {
            return Err(missing());
        }
        let key = (self.namespace.id, entry.texts.bundle_hash);
        if let Some(loaded) = self.verified.skills.find(&key) {
            let manifest = &loaded.bundle.manifest;
            let signer = Some(&loaded.public_key);
            // The signer may have been revoked since the skill was verified.
            if manifest.name == *entry.name()
                && manifest.version == entry.version
                && manifest.vault_id == list.state.vault_id()
                && list
                    .state
                    .judge_signer(signer, list.skill_place(entry))
                    .is_ok()
            {
                return Ok(loaded);
            }
        }
        let loaded = Arc::new(self.open_skill(&list, entry).await?);
        let size = loaded.memory_size();
        self.verified
            .skills
            .insert_value(key, Arc::clone(&loaded), size);
        Ok(loaded)
    }

    async fn submit(&self, by: &Submitter, change: Change) -> Result<Submitted, ShelfError> {
        match self.write_mode() {
            Writes::Drafted => {
                let drafts = DraftTarget {
                    app: &self.app,
                    namespace: &self.namespace,
                    shelf: self,
                    by,
                    source: self.source,
                };
                drafts::submit_as_draft(&drafts, change).await
            }
            Writes::Signed | Writes::Elsewhere => Err(ShelfError::LibraryElsewhere),
        }
    }

    async fn drift(&self, entries: &[&Entry], _named: bool) -> Result<Vec<Drift>, ShelfError> {
        let drift = |entry: &&Entry| Drift {
            name: entry.name().clone(),
            // The source is in the manifest, and a list must not read the bundle of each skill.
            source: None,
            state: DriftState::Unchecked(
                "a hosted vault asks no sources; the owner's machine does".to_owned(),
            ),
        };
        Ok(entries.iter().map(drift).collect())
    }
}
