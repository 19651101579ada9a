//! Making a signed catalog the current release of a namespace: the one function behind a push and behind the server's own library.
//!
//! Everything is checked before anything is changed, in the order of `formats.md` 2.10. The catalog and the list of what it names become
//! objects; then one conditional write on the namespace record makes the release current. Two publishers race: one wins, the other is told.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;
use vault_skill::bundle::Bundle;
use vault_skill::catalog::{
    self, Accepted, Catalog, CatalogError, Expectation, MAX_OBJECT_BYTES, Side, SignedCatalog,
};
use vault_skill::hash::Digest;
use vault_skill::name::{NamespaceId, Slug};
use vault_skill::profile::Profile;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_ASKED, ObjectKey};
use vault_store::records::{Commit, Document, When, Write};

use crate::App;
use crate::error::{Code, Refusal};
use crate::model::audit::{self, Actor, Change};
use crate::model::kept::{self, FORMER_SECONDS, ObjectName, Why};
use crate::model::namespace::{self, Current, Namespace};
use crate::model::release::{self, Closure, Node, Release, WithdrawnMark, withdrawn_key};
use crate::retry::Retry;
use crate::uploads;

/// What the publisher believes is current.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Precondition {
    /// Nothing was ever published: `If-None-Match: *`.
    NothingYet,
    /// The catalog with this SHA-256: `If-Match: "<sha256>"`.
    Current(Digest),
    /// A tag that no catalog can have.
    Never,
}

/// A release that became current.
#[derive(Clone, Debug)]
pub struct Published {
    /// The release.
    pub release: Release,
    /// Whether the namespace had none before.
    pub first: bool,
}

/// Most hashes that `objects_missing` lists.
const MAX_LISTED: usize = 1000;
/// Most objects that are read at once.
const READS_AT_ONCE: usize = 32;

/// Publishes the exact `bytes` of a signed catalog in the namespace `slug`.
///
/// Refuses with the codes of `formats.md` 2.10 and changes nothing then; what was stored aside is named by nothing and is collected.
pub async fn publish(
    app: &App,
    slug: &Slug,
    bytes: Bytes,
    precondition: Precondition,
    actor: &Actor,
) -> Result<Published, Refusal> {
    if bytes.len() > MAX_OBJECT_BYTES {
        return Err(Code::BodyTooLarge.into());
    }
    let mut retry = Retry::default();
    let mut checked: Option<(Namespace, Checked)> = None;
    loop {
        let (namespace, revision) = namespace::find(&*app.records, slug)
            .await?
            .ok_or(Code::NotFound)?;
        if !namespace.subscription.is_live() {
            return Err(Code::SubscriptionLapsed.into());
        }
        holds(precondition, namespace.current.as_ref())?;
        // A conflict is usually another part of the record: what was checked against the same pin and release is not checked again.
        let same =
            |held: &Namespace| held.pin == namespace.pin && held.current == namespace.current;
        if !checked.as_ref().is_some_and(|(held, _)| same(held)) {
            let fresh = check(app, &namespace, &bytes).await?;
            checked = Some((namespace.clone(), fresh));
        }
        let Some((_, ready)) = &checked else {
            return Err(Code::Internal.into());
        };
        match commit(app, &namespace, revision, ready, actor).await {
            Ok(Some(release)) => {
                return Ok(Published {
                    release,
                    first: namespace.current.is_none(),
                });
            }
            Ok(None) | Err(StoreError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
        if !retry.again(&*app.random).await {
            return Err(Code::Unavailable.into());
        }
    }
}

/// 412 with the current release unless it is the one that the publisher began from.
fn holds(precondition: Precondition, current: Option<&Current>) -> Result<(), Refusal> {
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
    Err(Refusal::new(Code::ReleaseConflict).member("current", current.into()))
}

/// A catalog that may become current, and what follows from it.
struct Checked {
    accepted: Accepted,
    size: u64,
    closure: Digest,
    marks: Vec<Digest>,
    /// What the release before named and this one does not.
    former: Vec<ObjectName>,
    added: u64,
    changed: u64,
    removed: u64,
}

async fn check(app: &App, namespace: &Namespace, bytes: &Bytes) -> Result<Checked, Refusal> {
    let accepted = accept(app, namespace, bytes).await?;
    let previous = match &namespace.current {
        Some(current) => Some(current_catalog(app, namespace.id, current).await?),
        None => None,
    };
    let (closure, older) = close(app, namespace, &accepted.catalog).await?;
    if namespace
        .quota_bytes
        .is_some_and(|quota| closure.total_size() > quota)
    {
        return Err(Code::QuotaExceeded.into());
    }
    let mut former = older.dropped_by(&closure);
    let closure_bytes = Bytes::from(closure.to_bytes());
    let closure_key = ObjectKey::of(namespace.id, Class::Closures, &closure_bytes);
    let closure = closure_key.digest;
    let catalog_key = namespace.object(Class::Catalogs, accepted.file_sha256);
    if let Some(current) = &namespace.current {
        former.push(ObjectName::new(Class::Catalogs, current.sha256));
        if current.closure != closure {
            former.push(ObjectName::new(Class::Closures, current.closure));
        }
    }
    let objects = vec![(catalog_key, bytes.clone()), (closure_key, closure_bytes)];
    uploads::put(app, namespace.id, objects).await?;

    let before: HashMap<_, _> = skills(previous.as_ref()).collect();
    let after: HashMap<_, _> = skills(Some(&accepted.catalog)).collect();
    let kept = after
        .keys()
        .filter(|name| before.contains_key(*name))
        .count();
    let changed = after
        .iter()
        .filter(|(name, hash)| before.get(*name).is_some_and(|held| held != *hash))
        .count();
    let held: HashSet<_> = previous.iter().flat_map(withdrawn).collect();
    let marks = withdrawn(&accepted.catalog)
        .filter(|hash| !held.contains(hash))
        .collect();
    Ok(Checked {
        size: bytes.len() as u64,
        closure,
        marks,
        former,
        added: (after.len() - kept) as u64,
        changed: changed as u64,
        removed: (before.len() - kept) as u64,
        accepted,
    })
}

fn skills(catalog: Option<&Catalog>) -> impl Iterator<Item = (String, Digest)> {
    catalog
        .into_iter()
        .flat_map(|catalog| &catalog.skills)
        .map(|skill| (skill.name.to_string(), skill.bundle_hash))
}

fn withdrawn(catalog: &Catalog) -> impl Iterator<Item = Digest> {
    catalog.withdrawn.iter().map(|entry| entry.bundle_hash)
}

/// Checks envelope, key, names, time, release and previous; 422 with the word for what does not hold.
async fn accept(app: &App, namespace: &Namespace, bytes: &[u8]) -> Result<Accepted, Refusal> {
    // The hashes of older releases that `previous` may name after a compromise: the pure check asks, the store answers, it is asked again.
    let mut history: BTreeMap<u64, Option<Digest>> = BTreeMap::new();
    loop {
        let (outcome, asked) = accept_once(app, namespace, bytes, &history);
        match asked {
            Some(release) => {
                let record = app
                    .records
                    .get(&release::key(&namespace.id, release))
                    .await?;
                let hash = match record {
                    Some(record) => Some(record.read::<Release>()?.payload_sha256),
                    None => None,
                };
                history.insert(release, hash);
            }
            None => return outcome.map_err(|error| refused(&error)),
        }
    }
}

/// One check, and the first release whose hash it asked for and was not given.
fn accept_once(
    app: &App,
    namespace: &Namespace,
    bytes: &[u8],
    history: &BTreeMap<u64, Option<Digest>>,
) -> (Result<Accepted, CatalogError>, Option<u64>) {
    let asked = Cell::new(None);
    let outcome = catalog::accept(
        bytes,
        &namespace.pin,
        &Expectation {
            side: Side::Service,
            base: app.config.public_url.base(),
            slug: &namespace.slug,
            now: app.clock.now(),
            latest_seen_at: None,
            history: &|release| {
                let held = history.get(&release).copied();
                if held.is_none() && asked.get().is_none() {
                    asked.set(Some(release));
                }
                held.flatten()
            },
        },
    );
    (outcome, asked.get())
}

fn refused(error: &CatalogError) -> Refusal {
    let code = match error.word() {
        "catalog_signature" => Code::CatalogSignature,
        "catalog_key" => Code::CatalogKey,
        "catalog_rotation" => Code::CatalogRotation,
        "catalog_vault_id" => Code::CatalogVaultId,
        "catalog_slug" => Code::CatalogSlug,
        "catalog_audience" => Code::CatalogAudience,
        "catalog_clock" => Code::CatalogClock,
        "catalog_release" => Code::CatalogRelease,
        "catalog_previous" => Code::CatalogPrevious,
        "catalog_withdrawn" => Code::CatalogWithdrawn,
        _ => Code::CatalogSchema,
    };
    Refusal::new(code)
}

/// Collects every object that the catalog names, directly or through others, and what the current release names; 409 with the hashes of
/// those that are not there.
async fn close(
    app: &App,
    namespace: &Namespace,
    catalog: &Catalog,
) -> Result<(Closure, Closure), Refusal> {
    let older = match &namespace.current {
        Some(current) => current_closure(app, namespace.id, current).await?,
        None => Closure::default(),
    };
    let mut walk = Walk {
        app,
        namespace,
        older,
        closure: Closure::default(),
        missing: Vec::new(),
    };
    let leaf = |hash, size| (Reading::Nothing, hash, size);
    let policy: Vec<_> = catalog
        .policy
        .iter()
        .map(|policy| leaf(policy.sha256, policy.size))
        .collect();
    walk.add(Class::Policies, policy).await?;
    let mut named: Vec<_> = catalog
        .skills
        .iter()
        .map(|skill| (Reading::Bundle, skill.bundle_hash, skill.size))
        .collect();
    named.extend(
        catalog
            .index
            .iter()
            .map(|index| leaf(index.bundle_hash, index.size)),
    );
    named.extend(
        catalog
            .profiles
            .iter()
            .map(|profile| (Reading::Profile, profile.bundle_hash, profile.size)),
    );
    // A profile names variants, a bundle names parts, a part names nothing: three rounds at most.
    while !named.is_empty() {
        named = walk.add(Class::Bundles, named).await?;
    }
    if walk.missing.is_empty() {
        return Ok((walk.closure, walk.older));
    }
    walk.missing.sort_unstable();
    walk.missing.dedup();
    let listed: Vec<_> = walk.missing.iter().take(MAX_LISTED).collect();
    Err(Refusal::new(Code::ObjectsMissing).member("missing", json!(listed)))
}

/// What has to be read of an object to know what it names.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reading {
    /// It names nothing.
    Nothing,
    /// A skill, whose large files are parts.
    Bundle,
    /// A rendered profile, which names bundles.
    Profile,
}

type Named = (Reading, Digest, u64);

struct Walk<'a> {
    app: &'a App,
    namespace: &'a Namespace,
    older: Closure,
    closure: Closure,
    missing: Vec<Digest>,
}

impl Walk<'_> {
    /// Adds objects of one class and answers what they name and is not known yet.
    async fn add(&mut self, class: Class, named: Vec<Named>) -> Result<Vec<Named>, Refusal> {
        let mut fresh: BTreeMap<Digest, (Reading, u64)> = BTreeMap::new();
        for (reading, hash, size) in named {
            match self.closure.node(class, &hash).map(|node| node.size) {
                Some(held) if held == size => {}
                // One hash has one size: somebody's is wrong, and no such object can ever be there.
                Some(_) => self.missing.push(hash),
                None if self.closure.carry(&self.older, class, hash, size) => {}
                None => {
                    let held = fresh.entry(hash).or_insert((reading, size));
                    if held.1 != size {
                        self.missing.push(hash);
                    }
                    // Named as two kinds of thing: it is read as the one that can name more, and is refused if it is not that.
                    if held.0 == Reading::Nothing {
                        held.0 = reading;
                    }
                }
            }
        }
        let wanted: Vec<_> = fresh
            .iter()
            .map(|(hash, (_, size))| (self.namespace.object(class, *hash), *size))
            .collect();
        for some in wanted.chunks(MAX_ASKED) {
            // What is marked for collection may be gone tomorrow: it counts as missing, and comes up again.
            for key in uploads::missing(self.app, self.namespace.id, some).await? {
                fresh.remove(&key.digest);
                self.missing.push(key.digest);
            }
        }
        let mut below = Vec::new();
        let mut unread = Vec::new();
        for (hash, (reading, size)) in fresh {
            if reading == Reading::Nothing {
                let children = Vec::new();
                self.closure.insert(class, hash, Node { size, children });
            } else {
                unread.push((reading, hash, size));
            }
        }
        for some in unread.chunks(READS_AT_ONCE) {
            below.extend(self.read(some).await?);
        }
        Ok(below)
    }

    /// Reads bundles and profiles, a few at once, and adds them with what they name.
    async fn read(&mut self, some: &[Named]) -> Result<Vec<Named>, Refusal> {
        let mut readings = JoinSet::new();
        for (reading, hash, size) in some.iter().copied() {
            let objects = Arc::clone(&self.app.objects);
            let key = self.namespace.object(Class::Bundles, hash);
            readings.spawn(async move {
                let bytes = objects.get(&key).await?;
                let below = bytes.map(|bytes| names(reading, &bytes, &hash, size));
                Ok::<_, StoreError>((hash, size, below))
            });
        }
        let mut all = Vec::new();
        while let Some(outcome) = readings.join_next().await {
            let (hash, size, below) =
                outcome.map_err(|error| Refusal::new(Code::Internal).cause(error))??;
            let Some(below) = below else {
                self.missing.push(hash);
                continue;
            };
            let below = below?;
            let children = below.iter().map(|(_, hash, _)| *hash).collect();
            self.closure
                .insert(Class::Bundles, hash, Node { size, children });
            all.extend(below);
        }
        Ok(all)
    }
}

/// What an object names; 422 `catalog_schema` when the catalog calls it what it is not.
fn names(reading: Reading, bytes: &[u8], hash: &Digest, size: u64) -> Result<Vec<Named>, Refusal> {
    let wrong = || {
        Refusal::new(Code::CatalogSchema)
            .detail("The catalog names an object that is not of the kind it is named as.")
    };
    match reading {
        Reading::Nothing => Ok(Vec::new()),
        Reading::Bundle => {
            let bundle = Bundle::parse(bytes, hash, size).map_err(|_| wrong())?;
            let parts = bundle.parts();
            Ok(parts
                .map(|part| (Reading::Nothing, part.bundle_hash, part.size))
                .collect())
        }
        Reading::Profile => {
            let profile = Profile::parse(bytes).map_err(|_| wrong())?;
            let skills = profile.skills.iter();
            Ok(skills
                .map(|skill| (Reading::Bundle, skill.bundle_hash, skill.size))
                .collect())
        }
    }
}

/// Makes the release current; `None` when the namespace record changed meanwhile.
async fn commit(
    app: &App,
    namespace: &Namespace,
    revision: u64,
    ready: &Checked,
    actor: &Actor,
) -> Result<Option<Release>, StoreError> {
    let catalog = &ready.accepted.catalog;
    mark_withdrawn(app, namespace, ready).await?;
    let now = app.clock.now();
    let release = Release {
        release: catalog.release,
        sha256: ready.accepted.file_sha256,
        payload_sha256: ready.accepted.payload_sha256,
        published_at: now,
        by: actor.user.clone(),
        added: ready.added,
        changed: ready.changed,
        removed: ready.removed,
    };
    let mut after = namespace.clone();
    after.pin = ready.accepted.trust.clone();
    after.current = Some(Current {
        release: catalog.release,
        sha256: release.sha256,
        size: ready.size,
        payload_sha256: release.payload_sha256,
        closure: ready.closure,
        skills: catalog.skills.len() as u64,
        published_at: now,
    });
    let short = |current: &Current| json!({ "release": current.release, "sha256": current.sha256 });
    let change = Change {
        target: Some(format!("release {}", catalog.release)),
        before: namespace.current.as_ref().map(short),
        after: after.current.as_ref().map(short),
    };
    let entry = audit::entry(
        Some(&namespace.id),
        actor,
        "catalog.publish",
        change,
        "done",
        &*app.clock,
        &*app.random,
    )?;
    let mut writes = vec![
        after.update(revision)?,
        release.write(&namespace.id)?,
        entry,
    ];
    writes.extend(kept::keep(
        &namespace.id,
        Why::FormerRelease,
        &ready.former,
        FORMER_SECONDS,
        &*app.clock,
        &*app.random,
    )?);
    match app.records.commit(writes).await? {
        Commit::Done(_) => Ok(Some(release)),
        Commit::Failed { .. } => Ok(None),
    }
}

/// Writes the marks by which a bundle read finds out that it must ask the catalog; they come before the release that they belong to.
async fn mark_withdrawn(
    app: &App,
    namespace: &Namespace,
    ready: &Checked,
) -> Result<(), StoreError> {
    let mark = Document::of(&WithdrawnMark {
        namespace_id: namespace.id,
        since_release: ready.accepted.catalog.release,
    })?;
    for some in ready.marks.chunks(vault_store::records::MAX_WRITES) {
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
        let _ = app.records.commit(writes).await?;
    }
    Ok(())
}

/// The current catalog as it was accepted once; its bytes are named by their hash, so they are the same.
pub async fn current_catalog(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Catalog, Refusal> {
    let key = ObjectKey::new(namespace, Class::Catalogs, current.sha256);
    let object = app
        .cache
        .get(&*app.objects, &key)
        .await?
        .ok_or_else(|| missing(&key))?;
    let damaged =
        || Refusal::new(Code::Internal).cause(StoreError::Corrupt(format!("{key} does not read")));
    SignedCatalog::parse(&object.bytes)
        .and_then(|signed| signed.verify())
        .map_err(|_| damaged())
}

/// Everything that the current release names.
pub(crate) async fn current_closure(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
) -> Result<Closure, Refusal> {
    let key = ObjectKey::new(namespace, Class::Closures, current.closure);
    let object = app
        .cache
        .get(&*app.objects, &key)
        .await?
        .ok_or_else(|| missing(&key))?;
    Ok(Closure::parse(&object.bytes)?)
}

fn missing(key: &ObjectKey) -> Refusal {
    Refusal::new(Code::Unavailable).cause(std::io::Error::other(format!(
        "the object {key} is missing from the object store"
    )))
}

/// Sets of hashes that were read out of large objects: what a release withdraws, what it names. By the object's hash, so never stale.
#[derive(Debug, Default)]
pub(crate) struct Sets(Mutex<HashMap<Digest, Arc<HashSet<Digest>>>>);

/// Most sets that are kept.
const MAX_SETS: usize = 32;

impl Sets {
    fn find(&self, of: &Digest) -> Option<Arc<HashSet<Digest>>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(of)
            .cloned()
    }

    fn keep(&self, of: Digest, set: HashSet<Digest>) -> Arc<HashSet<Digest>> {
        let set = Arc::new(set);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MAX_SETS {
            held.clear();
        }
        held.insert(of, Arc::clone(&set));
        set
    }
}

/// Whether the current release withdraws a bundle.
pub(crate) async fn withdraws(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
    hash: &Digest,
) -> Result<bool, Refusal> {
    let set = if let Some(set) = app.sets.find(&current.sha256) {
        set
    } else {
        let catalog = current_catalog(app, namespace, current).await?;
        app.sets.keep(current.sha256, withdrawn(&catalog).collect())
    };
    Ok(set.contains(hash))
}

/// Whether the current release names a bundle, directly or through another object.
pub(crate) async fn names_bundle(
    app: &App,
    namespace: NamespaceId,
    current: &Current,
    hash: &Digest,
) -> Result<bool, Refusal> {
    let set = if let Some(set) = app.sets.find(&current.closure) {
        set
    } else {
        let closure = current_closure(app, namespace, current).await?;
        app.sets.keep(current.closure, closure.bundles().collect())
    };
    Ok(set.contains(hash))
}
