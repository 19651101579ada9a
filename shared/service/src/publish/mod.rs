//! Publishing: makes a signed catalog the current release of a namespace. One function serves the
//! push of a client and the server's own library.
//!
//! Everything is checked before anything is changed, in the order in which a device checks. First
//! the catalog and the list of the objects that it needs (the closure) are stored as objects; then
//! one conditional write of the namespace record makes the release current. If two publishers race,
//! one wins and the other gets a conflict. This module never signs anything, and checks objects
//! itself, no matter what was checked at their upload.

mod current;
mod judge;
mod objects;
mod proposal;
mod signed_again;
mod texts;

use bytes::Bytes;
use serde_json::json;
use vault_api::CurrentReleaseRef;
use vault_format::catalog::{
    Catalog, CatalogChanges, CountedCatalog, JudgedRelease, MAX_OBJECT_BYTES, ReleaseRef,
    RootChanges,
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
pub(crate) use signed_again::find_room as find_room_to_sign_again;

use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::model::audit::{Actor, Change};
use crate::model::kept::{self, FORMER_SECONDS, ObjectName, RootReason};
use crate::model::namespace::{self, Current, Namespace, Pin, Pinned};
use crate::model::notice::Event;
use crate::model::release::{self, Closure, Release, SignedPeaks, WithdrawnMark, withdrawn_key};
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
    /// No release has been published: `If-None-Match: *`.
    NothingYet,
    /// The catalog with this SHA-256 is current: `If-Match: "<sha256>"`.
    Current(Digest),
    /// A tag that no catalog can have, so the precondition always fails.
    Never,
}

/// A release that became current.
#[derive(Clone, Debug)]
pub struct PublishedRelease {
    /// The record as it was stored, with the number and the time of the release.
    pub release: Release,
    /// True if the namespace had no release before.
    pub is_first: bool,
}

/// Publishes the file of a signed catalog, exactly these `bytes`, in the namespace `slug`.
///
/// A file with the payload of the current release but other root versions or signatures replaces
/// the file of that release. A refusal changes nothing, not even the pinned root versions; objects
/// that were stored before it are needed by nothing, and garbage collection deletes them.
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
            // All checks are inside the change: after a conflict they are made again, against the
            // release that won.
            if !namespace.subscription.is_live(tx.now()) {
                return Err(ErrorCode::SubscriptionLapsed.into());
            }
            // Checked before the expensive checks: a publisher who builds on an old release must
            // sign again in any case.
            check_precondition(precondition, namespace.current.as_ref())?;
            let checked = check_and_store(app, &namespace, &bytes).await?;
            let release = make_current(&tx, &namespace, revision, &checked, actor).await?;
            let published = PublishedRelease {
                release,
                is_first: namespace.current.is_none(),
            };
            Ok::<_, Refusal>((published, namespace, checked.change.into_newly_named()))
        })
        .await?;
    // Recorded in a commit of its own, so that a simultaneous upload cannot make the publish fail.
    uploads::record_named(app, &namespace, &named).await;
    Ok(published)
}

/// Checks the precondition. Fails with 412 and the current release.
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
    let current = current.map(|current| CurrentReleaseRef {
        release: current.release,
        sha256: current.sha256,
        payload_sha256: current.payload_sha256,
    });
    Err(Refusal::new(ErrorCode::ReleaseConflict).with(|problem| problem.current = current))
}

/// A verified catalog file that may become current, with all that its commit needs.
struct CheckedFile {
    state: RootState,
    signers: Vec<PublicKey>,
    sha256: Digest,
    size: u64,
    change: ContentChange,
    /// Objects that the current release needs and the new one does not.
    former: Vec<ObjectName>,
    /// Whether a key that was valid is no longer valid.
    replaces_key: bool,
}

/// How a file changes the content of the namespace.
enum ContentChange {
    /// A release with another payload becomes current.
    Release(Box<NewRelease>),
    /// The content stays the same: the file adds root versions or signatures to the current
    /// release, which has this root version and number.
    None { root_version: u64, release: u64 },
}

/// A release that becomes current, with its differences from the current one.
struct NewRelease {
    catalog: Catalog,
    payload_sha256: Digest,
    closure: Digest,
    /// Hashes of newly withdrawn bundles.
    marks: Vec<Digest>,
    added: u64,
    changed: u64,
    removed: u64,
    /// The objects that the current release does not need.
    newly_named: Closure,
}

impl ContentChange {
    /// Returns the objects that the current release does not need.
    fn into_newly_named(self) -> Closure {
        match self {
            Self::Release(new) => new.newly_named,
            Self::None { .. } => Closure::default(),
        }
    }
}

/// Verifies a file, and stores its catalog and closure as objects, to which nothing refers yet.
async fn check_and_store(
    app: &App,
    namespace: &Namespace,
    bytes: &Bytes,
) -> Result<CheckedFile, Refusal> {
    let base = PublishBase::read_base(app, namespace).await?;
    let candidate = VerifiedFile::verify_file(app, namespace, bytes, &base)?;
    let sha256 = Digest::of(bytes);
    let mut objects = ObjectChanges {
        stored: vec![(namespace.object_key(Class::Catalogs, sha256), bytes.clone())],
        former: namespace
            .current
            .iter()
            // If the same bytes are pushed again, their object stays in use.
            .filter(|current| current.sha256 != sha256)
            .map(|current| ObjectName::new(Class::Catalogs, current.sha256))
            .collect(),
    };
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
            prepare_release(app, namespace, *release, &base, &mut objects).await?
        }
    };
    // The objects are stored before the commit, so that a current release never needs a missing
    // object. If the commit fails, garbage collection deletes them.
    let purpose = storage_purpose(namespace, &base, state.chain().version());
    Box::pin(uploads::put_objects(
        app,
        namespace,
        purpose,
        objects.stored,
    ))
    .await?;
    let pinned_state = base.known.as_ref().map(|known| &known.state);
    Ok(CheckedFile {
        replaces_key: replaces_key(namespace, pinned_state, &state),
        state,
        signers,
        sha256,
        size: bytes.len() as u64,
        change,
        former: objects.former,
    })
}

/// Changes of the objects that a namespace needs, when a file becomes current.
struct ObjectChanges {
    /// Objects to store before the commit.
    stored: Vec<(ObjectKey, Bytes)>,
    /// Objects that the current release needs and the new one does not.
    former: Vec<ObjectName>,
}

/// Checks a release against the current one and the objects that it needs, and adds its closure to
/// `objects`. Returns the root state, the signers and the change of content.
async fn prepare_release(
    app: &App,
    namespace: &Namespace,
    release: JudgedRelease,
    base: &PublishBase,
    objects: &mut ObjectChanges,
) -> Result<(RootState, Vec<PublicKey>, ContentChange), Refusal> {
    let older = base.read_closure(app, namespace).await?;
    let counted = accept_release(release, (base.last_catalog(), &older))?;
    let mut closure =
        collect_closure(app, namespace, &counted, (base.replaced_catalog(), &older)).await?;
    closure.former = older.former.clone();
    record_former_versions(&mut closure, &counted, (base.last_catalog(), &older));
    if base.known.is_some() {
        // After a reset of the pin another vault begins, which has nothing to sign again.
        closure.signed = SignedPeaks::carried(&older, &closure, app.now());
    }
    // These objects are stored for another 30 days, because devices may still be reading the former
    // release.
    objects.former.extend(older.dropped_by(&closure));
    let newly_named = closure.difference_from(&older);
    let closure = Bytes::from(closure.to_bytes());
    let key = ObjectKey::for_bytes(namespace.id, Class::Closures, &closure);
    if let Some(current) = &namespace.current
        && current.closure != key.digest
    {
        let former = ObjectName::new(Class::Closures, current.closure);
        objects.former.push(former);
    }
    objects.stored.push((key, closure));
    let (catalog, stored) = (counted.catalog, counted.stored);
    let mut release =
        NewRelease::from_catalog(catalog, stored, key.digest, base.replaced_catalog());
    release.newly_named = newly_named;
    let change = ContentChange::Release(Box::new(release));
    Ok((counted.state, counted.signers, change))
}

/// Returns the purpose for which the objects of a file with this root version are stored.
fn storage_purpose(namespace: &Namespace, base: &PublishBase, version: u64) -> Purpose {
    let pinned = namespace.pin.vault_pin();
    // The root version may have been published before the release that is signed again under it.
    let is_new_root = pinned.is_some_and(|pin| version > pin.root_version)
        || base
            .last_catalog()
            .is_some_and(|last| version > last.root_version);
    if is_new_root {
        Purpose::NewRoot
    } else {
        Purpose::Release
    }
}

/// Records in the closure the versions that removed skills had.
fn record_former_versions(
    closure: &mut Closure,
    counted: &CountedCatalog,
    (last, older): (Option<&Catalog>, &Closure),
) {
    // A removed skill must not return with a lower version. Its signer is recorded too, because a
    // version that a revoked key signed must not bind later releases.
    if let Some(last) = last {
        closure
            .former
            .record_removed(last, &counted.catalog, |entry| {
                older.node(Class::Bundles, &entry.bundle_hash)?.signer
            });
    }
    closure.former.forget_revoked(&counted.state);
}

/// Whether a pinned key is no longer listed, or another vault takes the place of the pinned one
/// after a reset of the pin.
fn replaces_key(namespace: &Namespace, before: Option<&RootState>, after: &RootState) -> bool {
    // Nothing is pinned. If there was a release, the pin was reset, and all keys may be different.
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
            newly_named: Closure::default(),
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
            // The marks are written in commits of their own, because a release may withdraw more
            // bundles than one commit has writes.
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
            // The publisher repeats a push whose answer was lost. It changes nothing and is not
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
    // The log also has a change of keys as text, because an owner must not overlook it.
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
    // All owners get a notice about a change of keys at once, because it is what an attacker with a
    // stolen key would do first.
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

/// Builds the records of a release whose file is replaced by another file with the same payload.
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

/// Compares the keys of a file with the pinned ones; `None` if they are equal, or if the file has
/// another root history.
fn key_changes(namespace: &Namespace, state: &RootState) -> Option<RootChanges> {
    let pin = namespace.pin.vault_pin()?;
    state.chain().find(&pin.root_sha256)?;
    RootChanges::since_version(pin.root_version, state)
}

fn key_lines(changes: &RootChanges) -> Vec<String> {
    let lines = changes.describe_lines().into_iter();
    lines.map(|line| line.text).collect()
}

/// Returns the current release as the audit log records it, before and after a publish.
fn release_snapshot(namespace: &Namespace) -> Option<serde_json::Value> {
    let current = namespace.current.as_ref()?;
    let root_version = namespace.pin.vault_pin().map(|pin| pin.root_version);
    Some(json!({
        "release": current.release, "sha256": current.sha256, "root_version": root_version,
    }))
}

/// Writes a mark for each bundle that a release withdraws. When a machine asks for a marked bundle,
/// the service reads the catalog to decide. The marks are written before the release becomes
/// current, so that no withdrawn bundle is served in between; a mark without a release only costs
/// that check.
async fn mark_withdrawn(
    ports: &Ports,
    namespace: &Namespace,
    release: &NewRelease,
) -> Result<(), StoreError> {
    let mark = Document::from_value(&WithdrawnMark {
        namespace_id: namespace.id,
        since_release: release.catalog.release,
    })?;
    for chunk in release.marks.chunks(vault_store::records::MAX_WRITES) {
        let writes = chunk
            .iter()
            .map(|hash| {
                Write::put(
                    withdrawn_key(&namespace.slug, hash),
                    mark.clone(),
                    When::Any,
                )
            })
            .collect();
        // The writes have no conditions, so only the store can fail.
        let _ = ports.records.commit_writes(writes).await?;
    }
    Ok(())
}
