//! Publishing: makes a signed catalog the current release of a namespace. One function serves both
//! the push of a client and the server's own library.
//!
//! Everything is checked before anything is changed, in the order in which a device checks. The
//! catalog and the list of the objects that it names are stored as objects first; then one
//! conditional write of the namespace record makes the release current. If two publishers race, one
//! wins and the other gets a conflict. This room never signs anything, and never trusts that an
//! object was checked when it was uploaded.

mod current;
mod judge;
mod objects;
mod proposal;
mod texts;

use bytes::Bytes;
use serde_json::json;
use vault_format::catalog::{
    Catalog, CatalogChanges, CountedCatalog, MAX_OBJECT_BYTES, ReleaseRef, RootChanges,
};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::Slug;
use vault_format::root::{KeyFingerprint, Role, RootState};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};
use vault_store::records::{Document, When, Write};

pub(crate) use current::{current_catalog, current_closure, read_state};
pub(crate) use proposal::verify_proposed_release as judge_proposal;

use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::audit::{Actor, Change};
use crate::model::kept::{self, FORMER_SECONDS, ObjectName, RootReason};
use crate::model::namespace::{self, Current, Namespace, Pin, Pinned};
use crate::model::notice::Event;
use crate::model::release::{self, Release, WithdrawnMark, withdrawn_key};
use crate::model::usage::Amount;
use crate::notices;
use crate::ports::Ports;
use crate::transaction::Transaction;
use crate::uploads::{self, Purpose};

use current::PublishBase;
use judge::{VerifiedFile, accept_release};
use objects::collect_closure;

/// The release that the publisher expects to be current.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Precondition {
    /// No release was ever published: `If-None-Match: *`.
    NothingYet,
    /// The catalog with this SHA-256 is current: `If-Match: "<sha256>"`.
    Current(Digest),
    /// A tag that no catalog can have, so the precondition always fails.
    Never,
}

/// A release that became current.
#[derive(Clone, Debug)]
pub struct PublishedRelease {
    /// The release.
    pub release: Release,
    /// True if the namespace had no release before.
    pub is_first: bool,
}

/// Publishes the exact `bytes` of a signed catalog in the namespace `slug`.
///
/// A file with the payload of the current release but other root versions or signatures replaces
/// the file of that release. A refusal changes nothing, not even the pinned root versions; objects
/// that were stored before the refusal are referenced by nothing and are garbage-collected.
pub async fn publish_release(
    app: &App,
    slug: &Slug,
    bytes: Bytes,
    precondition: Precondition,
    actor: &Actor,
) -> Result<PublishedRelease, Refusal> {
    if bytes.len() > MAX_OBJECT_BYTES {
        return Err(ErrorCode::BodyTooLarge.into());
    }
    let (published, namespace, named) = app
        .change(async |tx| {
            let (namespace, revision) = namespace::find_namespace(&tx, slug)
                .await?
                .ok_or(ErrorCode::NotFound)?;
            // Checked inside the change, like everything below: after a conflict all checks are made
            // again, against the release that won.
            if !namespace.subscription.is_live(tx.now()) {
                return Err(ErrorCode::SubscriptionLapsed.into());
            }
            // Before the expensive checks: a publisher who builds on an old release has to sign again
            // whatever they say.
            check_precondition(precondition, namespace.current.as_ref())?;
            let checked = check_and_store(app, &namespace, &bytes).await?;
            let release = make_current(&tx, &namespace, revision, &checked, actor).await?;
            let published = PublishedRelease {
                release,
                is_first: namespace.current.is_none(),
            };
            Ok::<_, Refusal>((published, namespace, checked.change.newly_named()))
        })
        .await?;
    // In a commit of its own, so that an upload at the same moment cannot make the publish fail.
    uploads::record_named(app, &namespace, named).await;
    Ok(published)
}

/// Bytes by which a bundle may grow when another key signs it.
const SIGNED_AGAIN_BYTES: u64 = 4096;

/// Returns how much the bundles have that the current release names and a revoked key signed: a vault
/// has to sign and upload these again, however full it is.
pub(crate) async fn measure_revoked(
    app: &App,
    namespace: &Namespace,
) -> Result<Amount, StoreError> {
    let base = PublishBase::read_base(app, namespace).await?;
    let (Some(current), Some(pinned)) = (namespace.readable_current(), &base.known) else {
        return Ok(Amount::default());
    };
    let closure = current_closure(app, namespace.id, current).await?;
    let sizes = closure.sizes_signed_by(|signer| !pinned.state.was_publisher(signer));
    Ok(sizes.fold(Amount::default(), |all, bytes| {
        all + Amount::of_object(bytes + SIGNED_AGAIN_BYTES)
    }))
}

/// Checks the precondition; fails with 412 and the current release.
fn check_precondition(
    precondition: Precondition,
    current: Option<&Current>,
) -> Result<(), Refusal> {
    let good = match (precondition, current) {
        (Precondition::NothingYet, None) => true,
        (Precondition::Current(wanted), Some(current)) => wanted == current.sha256,
        _ => false,
    };
    if good {
        return Ok(());
    }
    let current = current.map(|current| {
        json!({ "release": current.release, "sha256": current.sha256, "payload_sha256": current.payload_sha256 })
    });
    Err(Refusal::new(ErrorCode::ReleaseConflict).member("current", current.into()))
}

/// A verified catalog file that may become current, with everything that follows from it.
struct CheckedFile {
    state: RootState,
    signers: Vec<PublicKey>,
    sha256: Digest,
    size: u64,
    change: ContentChange,
    /// Objects that the current file and its release name and the new ones do not.
    former: Vec<ObjectName>,
    /// Whether a key that was valid before is not valid any more.
    replaces_key: bool,
}

/// The change of the namespace's content that a file makes.
enum ContentChange {
    /// Another release becomes current.
    Release(Box<NewRelease>),
    /// The content stays: the file adds root versions or signatures to the current release, which
    /// has this root version and number.
    None { root_version: u64, release: u64 },
}

struct NewRelease {
    catalog: Catalog,
    payload_sha256: Digest,
    closure: Digest,
    marks: Vec<Digest>,
    added: u64,
    changed: u64,
    removed: u64,
    /// Objects that the current release does not name.
    newly_named: Amount,
}

impl ContentChange {
    /// Returns the amount of the objects that the current release does not name.
    fn newly_named(&self) -> Amount {
        match self {
            Self::Release(new) => new.newly_named,
            Self::None { .. } => Amount::default(),
        }
    }
}

/// Verifies a file and stores the objects that follow from it; nothing refers to them yet.
async fn check_and_store(
    app: &App,
    namespace: &Namespace,
    bytes: &Bytes,
) -> Result<CheckedFile, Refusal> {
    let base = PublishBase::read_base(app, namespace).await?;
    let candidate = VerifiedFile::verify_file(app, namespace, bytes, &base)?;
    let sha256 = Digest::of(bytes);
    let mut objects = vec![(namespace.object_key(Class::Catalogs, sha256), bytes.clone())];
    let mut former: Vec<_> = namespace
        .current
        .iter()
        // The same bytes pushed again keep their object.
        .filter(|current| current.sha256 != sha256)
        .map(|current| ObjectName::new(Class::Catalogs, current.sha256))
        .collect();
    let (state, signers, change) = match candidate {
        VerifiedFile::SameRelease {
            state,
            signers,
            root_version,
            release,
        } => {
            let change = ContentChange::None {
                root_version,
                release,
            };
            (state, signers, change)
        }
        VerifiedFile::Release(release) => {
            let older = base.read_closure(app, namespace).await?;
            let counted = accept_release(*release, (base.last_catalog(), &older))?;
            let mut closure =
                collect_closure(app, namespace, &counted, (base.replaced_catalog(), &older))
                    .await?;
            closure.former = older.former.clone();
            record_former_versions(&mut closure, &counted, (base.last_catalog(), &older));
            // Kept for 30 days instead of deleted: devices may still be reading the former release.
            former.extend(older.dropped_by(&closure));
            let newly_named = closure.difference_from(&older);
            let newly_named = Amount {
                bytes: newly_named.total_size(),
                objects: newly_named.len() as u64,
            };
            let closure = Bytes::from(closure.to_bytes());
            let key = ObjectKey::for_bytes(namespace.id, Class::Closures, &closure);
            if let Some(current) = &namespace.current
                && current.closure != key.digest
            {
                former.push(ObjectName::new(Class::Closures, current.closure));
            }
            objects.push((key, closure));
            let (catalog, stored) = (counted.catalog, counted.stored);
            let mut release =
                NewRelease::from_catalog(catalog, stored, key.digest, base.replaced_catalog());
            release.newly_named = newly_named;
            let change = ContentChange::Release(Box::new(release));
            (counted.state, counted.signers, change)
        }
    };
    // Before the commit, so that a current release never names an object that is not stored. If the
    // commit fails, garbage collection removes them.
    let version = state.chain().version();
    let pinned = namespace.pin.vault_pin();
    // A root version can be published before the release that is signed again for it.
    let is_new_root = pinned.is_some_and(|pin| version > pin.root_version)
        || base
            .last_catalog()
            .is_some_and(|last| version > last.root_version);
    let purpose = if is_new_root {
        Purpose::NewRoot
    } else {
        Purpose::Release
    };
    Box::pin(uploads::put_objects(app, namespace, purpose, objects)).await?;
    let pinned_state = base.known.as_ref().map(|known| &known.state);
    Ok(CheckedFile {
        replaces_key: replaces_key(namespace, pinned_state, &state),
        state,
        signers,
        sha256,
        size: bytes.len() as u64,
        change,
        former,
    })
}

/// Completes the list of the versions that skills had before a release removed them.
fn record_former_versions(
    closure: &mut release::Closure,
    counted: &CountedCatalog,
    (last, older): (Option<&Catalog>, &release::Closure),
) {
    // A skill that this release removes must not return below the version that it had. Its signer
    // is remembered too, since a version that a revoked key signed must not bind later releases.
    if let Some(last) = last {
        closure
            .former
            .record_removed(last, &counted.catalog, |entry| {
                older.node(Class::Bundles, &entry.bundle_hash)?.signer
            });
    }
    closure.former.forget_revoked(&counted.state);
}

/// Whether a key of the pinned vault is no longer listed, or another vault takes its place after a
/// reset of the pin.
fn replaces_key(namespace: &Namespace, before: Option<&RootState>, after: &RootState) -> bool {
    // Nothing is pinned. If there was a release, the pin was reset, and all keys are other ones.
    let Some(before) = before else {
        return namespace.current.is_some();
    };
    let lost = |before: &Role, after: &Role| before.keys().iter().any(|key| !after.contains(key));
    let (before, after) = (before.document(), after.document());
    lost(before.root(), after.root()) || lost(before.release(), after.release())
}

impl NewRelease {
    /// Counts the differences between a catalog and the current one, even if that one belongs to
    /// another vault.
    fn from_catalog(
        catalog: Catalog,
        stored: ReleaseRef,
        closure: Digest,
        current: Option<&Catalog>,
    ) -> Self {
        let changes = CatalogChanges::between(current, &catalog);
        let withdrawn = changes.withdrawn.iter();
        Self {
            payload_sha256: stored.payload_sha256,
            closure,
            marks: withdrawn.map(|entry| entry.bundle_hash).collect(),
            added: changes.added.len() as u64,
            changed: changes.changed.len() as u64,
            removed: changes.removed.len() as u64,
            newly_named: Amount::default(),
            catalog,
        }
    }
}

/// Makes the file current in the commit of `tx`.
async fn make_current(
    tx: &Transaction<'_>,
    namespace: &Namespace,
    revision: u64,
    ready: &CheckedFile,
    actor: &Actor,
) -> Result<Release, StoreError> {
    let (release, current) = match &ready.change {
        ContentChange::Release(new) => {
            // In commits of their own, since a release may withdraw more bundles than one commit
            // has writes.
            mark_withdrawn(tx, namespace, new).await?;
            new_current(tx.now(), ready, new, actor)
        }
        ContentChange::None {
            root_version,
            release,
        } => {
            let release_key = release::release_key(&namespace.id, *root_version, *release);
            let stored_release = tx.get::<Release>(&release_key).await?;
            let (Some(held), Some(current)) = (stored_release, &namespace.current) else {
                let text = "the record of the current release is missing";
                return Err(StoreError::Corrupt(text.to_owned()));
            };
            // The publisher repeats a push whose answer was lost; it changes nothing and is not
            // logged.
            if current.sha256 == ready.sha256 {
                return Ok(held.value);
            }
            replace_file(ready, held.value, current)
        }
    };
    let mut after = namespace.clone();
    after.pin = Pinned::Vault(Pin::new(&ready.state, ready.signers.clone()));
    after.current = Some(current);
    let keys = key_changes(namespace, &ready.state);
    let mut short_after = release_snapshot(&after);
    // The log shows a change of keys as text, beside the numbers: for an owner who reads it, that
    // is the line that matters.
    if let (Some(changes), Some(after)) = (&keys, &mut short_after) {
        after["keys"] = json!(key_lines(changes));
    }
    let change = Change::about(&format!("release {}", release.release))
        .with_before(release_snapshot(namespace))
        .with_after(short_after);
    tx.write(after.update_write(revision)?);
    tx.write(release::release_write(&release, &namespace.id)?);
    tx.audit(Some(&namespace.id), actor, "catalog.publish", change)?;
    let former = &ready.former;
    tx.write_all(kept::root_writes(
        tx,
        &namespace.id,
        RootReason::FormerRelease,
        former,
        FORMER_SECONDS,
    )?);
    // Every owner is told about a change of keys at once: it is what an attacker with a stolen key
    // would do first.
    if ready.replaces_key || keys.as_ref().is_some_and(RootChanges::is_warning) {
        let chain = ready.state.chain();
        let event = Event::KeyReplaced {
            root_version: chain.version(),
            fingerprint: chain.fingerprint().to_string(),
            changes: keys
                .as_ref()
                .map(notices::describe_key_changes)
                .unwrap_or_default(),
        };
        tx.write_all(notices::queue_notice(tx, namespace, event).await?);
    }
    Ok(release)
}

/// Builds the records of a release that becomes current now.
fn new_current(
    now: Timestamp,
    ready: &CheckedFile,
    new: &NewRelease,
    actor: &Actor,
) -> (Release, Current) {
    let release = Release {
        release: new.catalog.release,
        root_version: new.catalog.root_version,
        sha256: ready.sha256,
        payload_sha256: new.payload_sha256,
        published_at: now,
        by: actor.user.clone(),
        added: new.added,
        changed: new.changed,
        removed: new.removed,
        skills: Some(new.catalog.skills.len() as u64),
        signers: to_fingerprints(&ready.signers),
    };
    let current = Current {
        release: release.release,
        sha256: ready.sha256,
        size: ready.size,
        payload_sha256: new.payload_sha256,
        fingerprint: Some(ready.state.chain().fingerprint()),
        closure: new.closure,
        skills: new.catalog.skills.len() as u64,
        published_at: now,
    };
    (release, current)
}

fn to_fingerprints(signers: &[PublicKey]) -> Vec<KeyFingerprint> {
    signers.iter().map(KeyFingerprint::publisher).collect()
}

/// Builds the records of a release whose file is replaced by another one with the same payload.
fn replace_file(ready: &CheckedFile, release: Release, current: &Current) -> (Release, Current) {
    let release = Release {
        sha256: ready.sha256,
        signers: to_fingerprints(&ready.signers),
        ..release
    };
    let current = Current {
        sha256: ready.sha256,
        size: ready.size,
        fingerprint: Some(ready.state.chain().fingerprint()),
        ..current.clone()
    };
    (release, current)
}

/// Compares the keys in a file with the pinned ones; `None` if they are equal, or if another root
/// history takes their place.
fn key_changes(namespace: &Namespace, state: &RootState) -> Option<RootChanges> {
    let pin = namespace.pin.vault_pin()?;
    state.chain().find(&pin.root_sha256)?;
    RootChanges::since_version(pin.root_version, state)
}

fn key_lines(changes: &RootChanges) -> Vec<String> {
    let lines = changes.describe_lines().into_iter();
    lines.map(|line| line.text).collect()
}

/// The release of a namespace as the audit log records it before and after a publish.
fn release_snapshot(namespace: &Namespace) -> Option<serde_json::Value> {
    let current = namespace.current.as_ref()?;
    let root_version = namespace.pin.vault_pin().map(|pin| pin.root_version);
    Some(json!({
        "release": current.release, "sha256": current.sha256, "root_version": root_version,
    }))
}

/// Marks the bundles that a release withdraws: the mark tells the reading of a bundle that it has
/// to check the catalog. The marks are written before the release, so that no withdrawn bundle is
/// served in between; a mark without a release only costs that check.
async fn mark_withdrawn(
    ports: &Ports,
    namespace: &Namespace,
    release: &NewRelease,
) -> Result<(), StoreError> {
    let mark = Document::from_value(&WithdrawnMark {
        namespace_id: namespace.id,
        since_release: release.catalog.release,
    })?;
    for some in release.marks.chunks(vault_store::records::MAX_WRITES) {
        let writes = some
            .iter()
            .map(|hash| {
                Write::put(
                    withdrawn_key(&namespace.slug, hash),
                    mark.clone(),
                    When::Any,
                )
            })
            .collect();
        // Without conditions nothing can fail but the store.
        let _ = ports.records.commit_writes(writes).await?;
    }
    Ok(())
}
