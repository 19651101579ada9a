//! Stores objects of a namespace while garbage collection may run. This is the only way to store
//! them, for pushes and for the server's own library.
//!
//! Garbage collection marks an object that nothing names, and later deletes it (the sweep).
//! [`list_missing`] reports a marked object as missing, so the client uploads it again. One commit
//! then records the upload, counts it within the quota and removes the mark, before the bytes are
//! stored. The sweep first changes the mark, under the mark's revision; so if an upload and a sweep
//! race, one of them gets a conflict. Two uploads that race for the last room in the quota write
//! the same record of usage, so only one of them passes.
//!
//! The *allowance* is room beyond the quota that only the files of a release may use, so that a
//! full vault can still publish.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use vault_format::index;
use vault_format::name::NamespaceId;
use vault_format::root::VaultId;
use vault_format::text::error_chain;
use vault_policy::Policy;
use vault_policy::profile::Profile;
use vault_store::StoreError;
use vault_store::objects::{self, Class, MAX_ASKED, ObjectKey, Stored};
use vault_store::records::{MAX_WRITES, When, Write};

use crate::app::App;
use crate::config::quota::Quota;
use crate::error::{ErrorCode, Refusal};
use crate::model::kept::{self, ObjectName, RootReason, UPLOAD_SECONDS};
use crate::model::namespace::{Kind, Namespace};
use crate::model::release::Closure;
use crate::model::usage::{Amount, Counted, FullStorage, Needed, Tally, Usage};
use crate::notices;
use crate::transaction::Transaction;

mod unstoppable;

use unstoppable::Unstoppable;

/// Maximum number of records with object names in one commit, because each may have 256 KiB.
const KEPT_AT_ONCE: usize = 10;
/// Maximum number of attempts to correct the usage; each of them also retries its commit.
const CORRECTIONS: u32 = 4;
/// Maximum number of attempts to claim an upload, between which the store is asked.
const CLAIMS: u32 = 4;
/// Number of writes that are reserved in the last commit of an upload for the count.
const LAST_WRITES: usize = 4;

/// Why objects are stored. This decides how far beyond the quota they may go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// An upload by a client. Files of a release may use the allowance.
    Upload,
    /// An upload of skills that a vault has signed again because a key was revoked. They may go
    /// beyond the quota by this amount.
    SignAgain(Amount),
    /// A signed request of a user to publish with a key. It may use the allowance too.
    Statement,
    /// A verified proposal of a release, which waits for more signatures. It has twice the
    /// allowance, so that uploads which use up theirs cannot stop it.
    Proposal,
    /// The catalog of a verified release and the list of its objects. They have three times the
    /// allowance, so that a publisher whose proposals use up theirs cannot stop a release.
    Release,
    /// A verified proposal or catalog with a newer root version than that of the current release,
    /// signed by root keys. It has four times the allowance, so that a publisher whose releases use
    /// up theirs can be removed.
    NewRoot,
}

impl Purpose {
    /// Returns how many times the allowance the files of a release may use.
    const fn allowances(self) -> u64 {
        match self {
            Self::Upload | Self::SignAgain(_) | Self::Statement => 1,
            Self::Proposal => 2,
            Self::Release => 3,
            Self::NewRoot => 4,
        }
    }

    /// Whether the objects belong to a release or a proposal of one.
    const fn is_release(self) -> bool {
        matches!(self, Self::Proposal | Self::Release | Self::NewRoot)
    }
}

/// Error of [`put_objects`].
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The quota of the namespace has no room. Nothing was stored.
    #[error(transparent)]
    Full(#[from] FullStorage),
    /// The database or the object store failed; some of the objects may be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<UploadError> for Refusal {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Full(full) => full.into(),
            UploadError::Store(error) => error.into(),
        }
    }
}

impl From<FullStorage> for Refusal {
    fn from(full: FullStorage) -> Self {
        Self::new(ErrorCode::QuotaExceeded)
            .detail(full.to_string())
            .with(|problem| problem.quota = Some(full.to_quota()))
    }
}

/// Returns the objects that must be uploaded, in the order of `wanted`: not stored, stored with
/// another size, or marked by garbage collection. Fails with `Invalid` for more than 10,000.
pub async fn list_missing(
    app: &App,
    namespace: NamespaceId,
    wanted: &[(ObjectKey, u64)],
) -> Result<Vec<ObjectKey>, StoreError> {
    let names: Vec<_> = wanted.iter().map(|(key, _)| (*key).into()).collect();
    // Marks are read before objects: an object without a mark now either stays for at least a day,
    // or is already deleted and will be found missing.
    let marked: HashSet<ObjectName> = kept::find_marks(app, &namespace, &names)
        .await?
        .iter()
        .map(|marked| marked.name)
        .collect();
    let absent = app.objects.find_missing(wanted).await?;
    if marked.is_empty() {
        return Ok(absent);
    }
    let absent: HashSet<_> = absent.into_iter().collect();
    let lacks = |key: &ObjectKey| absent.contains(key) || marked.contains(&(*key).into());
    Ok(wanted.iter().map(|(key, _)| *key).filter(lacks).collect())
}

/// Stores different objects of one namespace, each under its hash. Garbage collection keeps them
/// for a week, within which a release can name them.
///
/// Fails with `Full`, before any object is stored, if the quota has no room for all that are not
/// stored yet, and with `Invalid` if one has more than 4 MiB. Fails with `Conflict` while one of them is being deleted; the caller may try again.
///
/// Continues if the caller stops waiting, for instance because the client has closed the
/// connection: otherwise the count would be too high until the next garbage collection.
pub async fn put_objects(
    app: &App,
    namespace: &Namespace,
    purpose: Purpose,
    objects: Vec<(ObjectKey, Bytes)>,
) -> Result<Vec<Stored>, UploadError> {
    let (app, namespace) = (app.clone(), namespace.clone());
    let put = async move { put_counted(&app, &namespace, purpose, objects).await };
    Unstoppable::new(put).await
}

async fn put_counted(
    app: &App,
    namespace: &Namespace,
    purpose: Purpose,
    objects: Vec<(ObjectKey, Bytes)>,
) -> Result<Vec<Stored>, UploadError> {
    let upload = Upload {
        app,
        namespace,
        purpose,
        quota: app.quota_of(namespace),
        objects: &objects,
    };
    // The store refuses larger objects. Found only there, the refusal would leave the count in
    // doubt until the next garbage collection.
    for (_, bytes) in &objects {
        objects::check_size(bytes)?;
    }
    let claimed = upload.claim_in_turn().await?;
    let sizes = upload.sizes();
    let outcome = app.objects.put_many(objects).await;
    let stored = match &outcome {
        Ok(stored) => {
            let stored = sizes.iter().zip(stored);
            let new = stored.filter(|(_, stored)| **stored == Stored::New);
            tally_of(new.map(|(object, _)| *object))
        }
        Err(_) => claimed.added - tally_of(find_unstored(app, &sizes).await),
    };
    let has_failed = outcome.is_err();
    let settle = |usage: &mut Usage| usage.end_upload(&claimed.id, stored, has_failed);
    correct_usage(app, namespace, settle).await;
    Ok(outcome?)
}

/// Records that a release names these objects and the one before it did not. Those that no former
/// release named either no longer count as unnamed.
pub(crate) async fn record_named(app: &App, namespace: &Namespace, named: &Closure) {
    if named.is_empty() {
        return;
    }
    let names = named.object_names().collect();
    let former = kept::find_former(app, &namespace.id, &names).await;
    let former = former.unwrap_or_else(|error| {
        tracing::warn!(
            namespace = %namespace.id,
            error = error_chain(&error),
            "former releases could not be read"
        );
        None
    });
    // If it is not known which of them were named before, all still count as unnamed until the next
    // garbage collection: the stricter choice.
    let amount = former.map_or_else(Amount::default, |former| named.amount_without(&former));
    if amount != Amount::default() {
        let name = |usage: &mut Usage| usage.name_objects(amount);
        correct_usage(app, namespace, name).await;
    }
}

/// Returns the amount of an object that no release names yet.
pub(crate) fn tally_of_object(class: Class, bytes: u64) -> Tally {
    let amount = Amount::of_object(bytes);
    Tally {
        stored: amount,
        // Only objects of these classes are uploaded before a release names them. Those of other
        // classes are stored together with a record that names them.
        unnamed: match class {
            Class::Bundles | Class::Policies => amount,
            _ => Amount::default(),
        },
    }
}

/// Returns the amount of objects that no release names yet.
fn tally_of(objects: impl IntoIterator<Item = (ObjectKey, u64)>) -> Tally {
    objects
        .into_iter()
        .map(|(key, bytes)| tally_of_object(key.class, bytes))
        .fold(Tally::default(), |all, one| all + one)
}

/// Returns which of the objects are not stored; none if the store does not answer.
async fn find_unstored(app: &App, objects: &[(ObjectKey, u64)]) -> Vec<(ObjectKey, u64)> {
    // If the store does not answer, the objects count as stored until the next garbage collection:
    // the stricter choice.
    let missing = app.objects.find_missing(objects).await.unwrap_or_default();
    let missing: HashSet<_> = missing.into_iter().collect();
    let is_missing = |(key, _): &&(ObjectKey, u64)| missing.contains(key);
    objects.iter().filter(is_missing).copied().collect()
}

/// Changes the usage of a namespace in a commit of its own, and queues a warning to the owners if
/// it now reaches 80 % of the quota.
pub(crate) async fn change_usage(
    app: &App,
    namespace: &Namespace,
    change: impl Fn(&mut Usage) + Sync,
) -> Result<(), StoreError> {
    let _turn = app.enter_usage(&namespace.id).await?;
    let quota = app.quota_of(namespace);
    app.change(async |tx| {
        let (mut usage, when) = Usage::find(&tx, &namespace.id).await?;
        let before = usage.clone();
        change(&mut usage);
        usage.settle_beyond(&quota);
        // Warnings depend on what is stored, not on what open uploads may store.
        let warnings = usage.take_warnings(&quota);
        let (queued, dropped) = notices::queue_if_room(&tx, namespace, warnings).await?;
        tx.write_all(queued);
        // A warning counts as given only once it is queued.
        for warning in &dropped {
            usage.repeat_warning(warning);
        }
        if usage != before {
            tx.write(usage.to_write(&namespace.id, when)?);
        }
        Ok(())
    })
    .await
}

/// Corrects the usage in a commit of its own, with several attempts. A failure is only logged: the
/// objects are stored, and the next garbage collection corrects the count.
pub(crate) async fn correct_usage(
    app: &App,
    namespace: &Namespace,
    correct: impl Fn(&mut Usage) + Sync,
) {
    let mut corrected = change_usage(app, namespace, &correct).await;
    for _ in 1..CORRECTIONS {
        if corrected.is_ok() {
            break;
        }
        // Many processes may change the same record at once, so a commit may fail in spite of its
        // own retries.
        corrected = change_usage(app, namespace, &correct).await;
    }
    if let Err(error) = corrected {
        tracing::warn!(
            namespace = %namespace.id,
            error = error_chain(&error),
            "the usage of a namespace is not exact until the next garbage collection"
        );
    }
}

/// Whether the bytes of an uploaded object are exactly those of an index of this vault, a profile or
/// a policy.
pub(crate) fn is_release_file(namespace: &Namespace, key: &ObjectKey, bytes: &[u8]) -> bool {
    match key.class {
        Class::Policies => Policy::from_object(bytes).is_ok_and(|it| it.to_object() == bytes),
        Class::Bundles => {
            let pin = namespace.pin.vault_pin();
            pin.is_some_and(|pin| is_index(bytes, &pin.vault_id))
                || Profile::parse(bytes).is_ok_and(|it| it.to_object() == bytes)
        }
        _ => false,
    }
}

/// Whether these are exactly the bytes of one index object of this vault. The index lists the
/// skills of a release with their search texts, and may have several objects.
fn is_index(bytes: &[u8], vault_id: &VaultId) -> bool {
    let Ok(entries) = index::parse_object(bytes, vault_id) else {
        return false;
    };
    matches!(index::build_objects(vault_id, entries).as_slice(), [one] if one == bytes)
}

/// An upload that has been counted and may now store its bytes.
struct CountedUpload {
    /// Id of the upload in the usage record.
    id: Arc<str>,
    /// Amount that was added to the usage before the bytes were stored.
    added: Tally,
}

/// The state of the objects of an upload in the store.
struct StoredState {
    /// Objects that are not stored.
    new: HashSet<ObjectKey>,
    /// Objects that garbage collection had marked before the store was asked.
    marked: HashSet<ObjectName>,
}

/// An upload before its bytes are stored.
struct Upload<'a> {
    app: &'a App,
    namespace: &'a Namespace,
    purpose: Purpose,
    quota: Quota,
    objects: &'a [(ObjectKey, Bytes)],
}

impl Upload<'_> {
    /// Claims the objects in the turn of the namespace. The store is asked outside of the turn: that
    /// may cost a call for each object, for which other uploads must not wait.
    async fn claim_in_turn(&self) -> Result<CountedUpload, UploadError> {
        let mut state = None;
        for _ in 0..CLAIMS {
            let turn = self.app.enter_usage(&self.namespace.id).await?;
            let claim = self
                .app
                .change(async |tx| self.claim(&tx, state.as_ref()).await);
            let claimed = claim.await?;
            drop(turn);
            if let Some(claimed) = claimed {
                return Ok(claimed);
            }
            state = Some(self.ask_store().await?);
        }
        Err(StoreError::Busy.into())
    }

    /// Asks which of the objects are stored.
    async fn ask_store(&self) -> Result<StoredState, StoreError> {
        let sizes = self.sizes();
        let names: Vec<ObjectName> = sizes.iter().map(|(key, _)| (*key).into()).collect();
        // Marks are read before objects, as in `list_missing`.
        let marks = kept::find_marks(self.app, &self.namespace.id, &names).await?;
        let marked: HashSet<_> = marks.iter().map(|marked| marked.name).collect();
        let mut new = HashSet::new();
        for chunk in sizes.chunks(MAX_ASKED) {
            new.extend(self.app.objects.find_missing(chunk).await?);
        }
        let marked = names.into_iter().filter(|name| marked.contains(name));
        Ok(StoredState {
            marked: marked.collect(),
            new,
        })
    }

    /// Records the upload of these objects, counts them and removes their marks; conflicts while
    /// one of them is being deleted. Returns `None` if the caller must first ask the store which
    /// objects it has.
    async fn claim(
        &self,
        tx: &Transaction<'_>,
        state: Option<&StoredState>,
    ) -> Result<Option<CountedUpload>, UploadError> {
        let namespace = &self.namespace.id;
        let names: Vec<ObjectName> = self.objects.iter().map(|(key, _)| (*key).into()).collect();
        let uploaded_names: HashSet<_> = names.iter().copied().collect();
        // Marks are read before objects, as in `list_missing`.
        let mut marks = kept::find_marks(tx, namespace, &names).await?;
        marks.retain(|marked| uploaded_names.contains(&marked.name));
        let now = tx.now();
        if !marks.iter().all(|marked| marked.mark.is_liftable(now)) {
            return Err(tx.conflict().into());
        }
        let (mut usage, when) = Usage::find(tx, namespace).await?;
        usage.forget_ended(now);
        if usage.is_busy(self.purpose.is_release()) {
            return Err(StoreError::Busy.into());
        }
        let id = tx.fresh_id();
        let still_marked: HashSet<_> = marks.iter().map(|marked| marked.name).collect();
        // A mark that has gone since may have gone with its object.
        let state = state.filter(|state| state.marked.is_subset(&still_marked));
        let Some(counted) = self.count_new(&usage, state)? else {
            return Ok(None);
        };
        usage.begin_upload(&id, counted, now);
        let mut writes =
            kept::root_writes(tx, namespace, RootReason::Upload, &names, UPLOAD_SECONDS)?;
        let at_once = if writes.len() > KEPT_AT_ONCE {
            KEPT_AT_ONCE
        } else {
            MAX_WRITES
        };
        let lifted = marks.iter().map(|marked| {
            let key = kept::mark_key(namespace, marked.name);
            Write::delete(key, When::At(marked.revision))
        });
        writes.extend(lifted);
        // More than one commit is safe: a record that protects an object without the upload only
        // delays its collection. The count is in the last commit, so that no attempt counts twice.
        let last = writes.split_off(writes.len().saturating_sub(at_once - LAST_WRITES));
        for chunk in writes.chunks(at_once) {
            tx.write_all(chunk.to_vec());
            tx.commit_with_limits(0).await?;
        }
        tx.write_all(last);
        tx.write(usage.to_write(namespace, when)?);
        let added = counted.added;
        Ok(Some(CountedUpload { id, added }))
    }

    /// Returns what the upload adds; `None` if that depends on what is stored, which was not asked
    /// yet. Fails with `Full` if the quota has no room for it, and with `Busy` if it has none until
    /// other uploads have ended, which may store the same objects.
    fn count_new(
        &self,
        usage: &Usage,
        state: Option<&StoredState>,
    ) -> Result<Option<Counted>, UploadError> {
        let sizes = self.sizes();
        let all = Needed {
            other: tally_of(sizes.iter().copied()),
            ..Needed::default()
        };
        // Far from the quota, all objects are counted as new without asking the store, which would
        // cost a call for each; the count of those that were stored already is given back later.
        // After a failed upload the objects are probably stored already, so then the store is
        // asked.
        let is_far = !usage.is_doubtful && !usage.with(all.other).is_short(&self.quota);
        if self.namespace.kind == Kind::SelfSigned || is_far {
            return Ok(Some(Counted {
                added: all.other,
                ..Counted::default()
            }));
        }
        let Some(state) = state else {
            return Ok(None);
        };
        let needed = self.needed(|key| state.new.contains(key));
        let full = match usage.check_room(&needed, &self.quota) {
            Ok(counted) => return Ok(Some(counted)),
            Err(full) => full,
        };
        match usage.settled().check_room(&needed, &self.quota) {
            Ok(_) => Err(StoreError::Busy.into()),
            Err(_) => Err(full.into()),
        }
    }

    fn sizes(&self) -> Vec<(ObjectKey, u64)> {
        let size = |(key, bytes): &(ObjectKey, Bytes)| (*key, bytes.len() as u64);
        self.objects.iter().map(size).collect()
    }

    /// Returns the amounts of the new objects, separately for each limit.
    fn needed(&self, is_new: impl Fn(&ObjectKey) -> bool) -> Needed {
        let mut needed = Needed {
            allowances: self.purpose.allowances(),
            again: match self.purpose {
                Purpose::SignAgain(again) => again,
                _ => Amount::default(),
            },
            ..Needed::default()
        };
        for (key, bytes) in self.objects.iter().filter(|(key, _)| is_new(key)) {
            let tally = tally_of([(*key, bytes.len() as u64)]);
            if self.is_release_file(key, bytes) {
                needed.release_files = needed.release_files + tally;
            } else {
                needed.other = needed.other + tally;
            }
        }
        needed
    }

    /// Whether an object may use the allowance.
    fn is_release_file(&self, key: &ObjectKey, bytes: &[u8]) -> bool {
        !matches!(self.purpose, Purpose::Upload | Purpose::SignAgain(_))
            || is_release_file(self.namespace, key, bytes)
    }
}
