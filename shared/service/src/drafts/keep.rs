//! Stores a new draft: first its bytes, then its record, its counters and the audit record in one
//! commit.
//!
//! A slot is a record that names the only open draft of a kind: equal drafts take the same slot. A
//! place is one of the numbers of open drafts that limits permit.

use bytes::Bytes;
use serde_json::json;
use vault_store::StoreError;
use vault_store::objects::ObjectKey;
use vault_store::records::{When, Write};

use super::find::resolve_states;
use super::settle::settle_proposals;
use crate::app::App;
use crate::model::Versioned;
use crate::model::audit::{Actor, Change};
use crate::model::draft::{
    self, DraftRecord, Ending, MAX_A_DAY, MAX_KEY_REQUESTS, MAX_KEY_REQUESTS_OF_AUTHOR, MAX_OWN,
    MAX_PROPOSALS, MAX_SHARED, MAX_SHARED_OF_AUTHOR, Queue, QueueShare, Slot, State, Subject,
};
use crate::model::namespace::Namespace;
use crate::model::notice::Event;
use crate::model::places::{self, FullPlaces, PlaceError, TakenPlace};
use crate::model::usage::FullStorage;
use crate::notices;
use crate::ports::Ports;
use crate::transaction::Transaction;
use crate::uploads::{self, Purpose, UploadError};

/// A draft that has been checked, with everything that is stored with it.
pub(crate) struct IncomingDraft<'a> {
    pub(crate) namespace: &'a Namespace,
    /// Actor who submits it, for the audit log.
    pub(crate) actor: &'a Actor,
    /// Record as it is stored; [`store_draft`] adds the counters and the slot.
    pub(crate) record: DraftRecord,
    /// The draft's bytes, and other objects to store with them.
    pub(crate) objects: Vec<(ObjectKey, Bytes)>,
}

#[derive(Debug)]
pub(crate) enum KeepOutcome {
    /// A new draft, which is pending.
    New(DraftRecord),
    /// The author has submitted the same draft before, and that one is still pending.
    Same(DraftRecord),
}

/// Reason why a draft is not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// A fixed limit is reached, such as the number of open drafts of one author.
    #[error(transparent)]
    Full(#[from] DraftLimit),
    /// Another user has asked to publish with the same key.
    #[error(
        "another user has asked to publish with this key; an owner decides on that request first"
    )]
    OfAnother,
    /// The quota of the namespace has no room for the bytes of the draft.
    #[error(transparent)]
    Storage(#[from] FullStorage),
    /// The quota of the namespace, which a plan or an operator sets, allows no more open drafts.
    #[error(transparent)]
    Places(FullPlaces),
    /// The database or the object store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PlaceError> for KeepError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Full(full) => Self::Places(full),
            PlaceError::Store(error) => error.into(),
        }
    }
}

impl From<UploadError> for KeepError {
    fn from(error: UploadError) -> Self {
        match error {
            UploadError::Full(full) => full.into(),
            UploadError::Store(error) => error.into(),
        }
    }
}

/// A fixed limit on drafts that is reached; no quota changes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum DraftLimit {
    /// Open drafts of the author.
    #[error("{} of your drafts are waiting already", MAX_OWN + MAX_SHARED_OF_AUTHOR)]
    Author,
    /// Open drafts in the places that all authors share.
    #[error("{MAX_SHARED} drafts are waiting already, beside {MAX_OWN} of each author")]
    Shared,
    /// Open key requests of the author.
    #[error("{MAX_KEY_REQUESTS_OF_AUTHOR} of your key requests are waiting already")]
    KeyRequestsOfAuthor,
    /// Open key requests of the namespace.
    #[error("{MAX_KEY_REQUESTS} key requests are waiting already")]
    KeyRequests,
    /// Open proposals of the namespace.
    #[error("{MAX_PROPOSALS} proposals are waiting already")]
    Proposals,
    /// Drafts that the author has submitted today.
    #[error("you have handed in {MAX_A_DAY} drafts today; try again tomorrow")]
    Day,
}

impl DraftLimit {
    /// Returns the limit of the counter at this position of [`DraftRecord::counting_writes`].
    const fn from_counter(subject: &Subject, at: usize) -> Self {
        match (subject, at) {
            (Subject::Release(_), _) => Self::Proposals,
            (Subject::KeyRequest(_), 0) => Self::KeyRequestsOfAuthor,
            (Subject::KeyRequest(_), _) => Self::KeyRequests,
            (_, 0) => Self::Author,
            (_, _) => Self::Shared,
        }
    }
}

/// Fails if another draft of the author about a skill would exceed a limit. Only for an early
/// answer: storing the draft checks again.
pub(crate) async fn check_room(
    app: &App,
    namespace: &Namespace,
    author: &str,
) -> Result<(), KeepError> {
    take_place(app, app, namespace).await?;
    // Only a read, so two drafts may both pass here; the counters in the commit decide.
    let keys = [
        draft::author_queue_key(&namespace.id, author),
        draft::draft_queue_key(&namespace.id),
    ];
    let [own, all] = app.get_all(keys).await?;
    let queue = |record| -> Result<Queue, StoreError> {
        let seen = Versioned::<Queue>::read(record)?;
        Ok(seen.map_or_else(Queue::default, |seen| seen.value))
    };
    let (author, all) = (queue(own)?, queue(all)?);
    if author.own < MAX_OWN {
        Ok(())
    } else if author.pending >= MAX_SHARED_OF_AUTHOR {
        Err(DraftLimit::Author.into())
    } else if all.pending >= MAX_SHARED {
        Err(DraftLimit::Shared.into())
    } else {
        Ok(())
    }
}

/// Stores a draft. If its author has submitted the same draft before and it is pending, that draft
/// is returned instead.
pub(crate) async fn store_draft(
    app: &App,
    keep: IncomingDraft<'_>,
) -> Result<KeepOutcome, KeepError> {
    // The same draft needs no further place, and a draft that replaces another takes its place. For
    // all others the limits are checked before the bytes are stored, so that a draft over a limit
    // leaves no objects behind.
    match read_slot(app, &keep).await? {
        SlotState::Same(record) => return Ok(KeepOutcome::Same(*record)),
        // Only drafts about skills have these limits: however many are open, a release can be
        // proposed.
        SlotState::None if keep.record.content().is_some() => {
            check_room(app, keep.namespace, &keep.actor.user).await?;
        }
        SlotState::None
        | SlotState::OfAnother
        | SlotState::Replaced { .. }
        | SlotState::Changing => {}
    }
    let day = keep.record.daily_window(&keep.namespace.id);
    if day.is_full(app, app.clock.now()).await? {
        return Err(DraftLimit::Day.into());
    }
    let purpose = match &keep.record.subject {
        Subject::KeyRequest(_) => Purpose::Statement,
        Subject::Release(proposed) => {
            let pinned = keep.namespace.pin.vault_pin();
            match pinned {
                Some(pin) if proposed.root_version > pin.root_version => Purpose::NewRoot,
                _ => Purpose::Proposal,
            }
        }
        Subject::Propose(_) | Subject::Install(_) | Subject::Remove(_) => Purpose::Upload,
    };
    let objects = keep.objects.clone();
    // On the heap: every future around it would contain its size.
    Box::pin(uploads::put_objects(app, keep.namespace, purpose, objects)).await?;
    let keep_in = async |tx| keep_in(&tx, app, &keep).await;
    match app.change(keep_in).await {
        // Proposals that have ended without a decision count until their end is recorded. So that
        // is done now, and the draft is tried once more.
        Err(KeepError::Full(DraftLimit::Proposals))
            if settle_proposals(app, keep.namespace).await? > 0 =>
        {
            app.change(keep_in).await
        }
        kept => kept,
    }
}

/// Takes one of the places that the quota allows for drafts about skills.
async fn take_place(
    ports: &Ports,
    app: &App,
    namespace: &Namespace,
) -> Result<TakenPlace, PlaceError> {
    let limit = app.quota_of(namespace).drafts;
    places::take_draft_place(ports, &namespace.to_ref(), limit).await
}

async fn keep_in(
    tx: &Transaction<'_>,
    app: &App,
    keep: &IncomingDraft<'_>,
) -> Result<KeepOutcome, KeepError> {
    let mut full = DraftLimit::Day;
    // The author's own places are tried first, then the shared ones: a single author cannot use up
    // the places of others.
    for place in [QueueShare::Own, QueueShare::Shared] {
        let record = keep.record.clone().in_place(place);
        let mut warning = None;
        let (mut counted, writes): (_, Vec<Write>) = match read_slot(app, keep).await? {
            SlotState::Same(record) => return Ok(KeepOutcome::Same(*record)),
            SlotState::OfAnother => return Err(KeepError::OfAnother),
            SlotState::Changing => return Err(tx.conflict().into()),
            SlotState::None => {
                let counted = record.counting_writes(&keep.namespace.id);
                let slot = record.slot_write(&keep.namespace.id, When::Absent)?;
                let mut taken = TakenPlace::default();
                if record.content().is_some() {
                    taken = take_place(tx, app, keep.namespace).await?;
                }
                warning = taken.warning;
                (counted, slot.into_iter().chain(taken.writes).collect())
            }
            SlotState::Replaced { slot, writes } => {
                // The new draft takes over the place of the replaced one in the counters.
                let slot = record.slot_write(&keep.namespace.id, When::At(slot))?;
                (Vec::new(), slot.into_iter().chain(writes).collect())
            }
        };
        let places = counted.len();
        // Counters come first: `commit_with_limits` reports their failure as a limit, and that of
        // any later write as a conflict.
        counted.extend(
            record
                .daily_window(&keep.namespace.id)
                .counting_write(tx.now()),
        );
        let bounds = counted.len();
        tx.write_all(counted);
        tx.write_all(writes);
        tx.write_all(record.listing_writes(&keep.namespace.id)?);
        write_audit(tx, keep, &record)?;
        let waiting = waiting_event(&record);
        let queued = notices::queue_event_and_warning(tx, keep.namespace, waiting, warning);
        tx.write_all(queued.await?);
        let Some(index) = tx.commit_with_limits(bounds).await? else {
            return Ok(KeepOutcome::New(record));
        };
        full = if index < places {
            DraftLimit::from_counter(&record.subject, index)
        } else {
            DraftLimit::Day
        };
        if record.content().is_none() {
            break;
        }
    }
    Err(full.into())
}

/// Creates the event of a new draft, for a notice to owners.
fn waiting_event(record: &DraftRecord) -> Event {
    Event::DraftWaiting {
        draft: record.id.to_string(),
        kind: record.kind().as_str().to_owned(),
        skill: record.content().map(|content| content.name.to_string()),
    }
}

/// State of the slot that a new draft takes. A key request has one slot per key, a proposal one per
/// author, and a change of a skill one per author and change.
enum SlotState {
    /// The slot is empty, or the draft takes none.
    None,
    /// The slot has the same draft.
    Same(Box<DraftRecord>),
    /// The slot has a draft of another author.
    OfAnother,
    /// The slot has an earlier draft of the same author. `writes` end it, and `slot` is the
    /// revision of the slot.
    Replaced { slot: u64, writes: Vec<Write> },
    /// The slot's draft is being ended by another process.
    Changing,
}

async fn read_slot(app: &App, keep: &IncomingDraft<'_>) -> Result<SlotState, StoreError> {
    let (namespace, new) = (keep.namespace, &keep.record);
    let Some(key) = new.slot_key(&namespace.id) else {
        return Ok(SlotState::None);
    };
    let Some(slot) = app.get::<Slot>(&key).await? else {
        return Ok(SlotState::None);
    };
    let key = draft::draft_key(&namespace.id, &slot.value.id);
    let Some(open) = app.get::<DraftRecord>(&key).await? else {
        return Ok(SlotState::Changing);
    };
    let slot_drafts = resolve_states(app, namespace, vec![open.value]).await?;
    let Some(found) = slot_drafts.into_iter().next() else {
        return Ok(SlotState::Changing);
    };
    if found.submitted_by.user_id != new.submitted_by.user_id {
        return Ok(SlotState::OfAnother);
    }
    let waits = found.state == State::Pending;
    let is_same = match (found.proposed(), new.proposed()) {
        (Some(found), Some(new)) => found.is_same(new),
        // A slot for a change of a skill is found by that change, so the change is the same.
        _ => new.content().is_some() || found.sha256 == new.sha256,
    };
    if waits && is_same {
        return Ok(SlotState::Same(Box::new(found)));
    }
    // A change of a skill is not replaced: another process is ending the slot's draft, which frees
    // its place and its slot.
    if new.content().is_some() {
        return Ok(SlotState::Changing);
    }
    // An author has one pending draft per slot: a new one withdraws the one before, in the same
    // commit.
    let mut writes = Vec::new();
    let ended = if waits {
        let change = Change::about(&found.id)
            .with_before(json!({ "state": State::Pending, "kind": found.kind() }))
            .with_after(json!({ "state": State::Withdrawn, "replaced_by": new.id }));
        let actor = keep.actor;
        writes.push(app.audit_entry(
            Some(&namespace.id),
            actor,
            "draft.withdraw",
            change,
            "done",
        )?);
        found.into_ended(&Ending {
            state: State::Withdrawn,
            at: app.clock.now(),
            release: None,
            reason: None,
        })
    } else {
        found
    };
    writes.extend(ended.ending_writes(&namespace.id, open.revision, true)?);
    Ok(SlotState::Replaced {
        slot: slot.revision,
        writes,
    })
}

/// Adds the audit record of a new draft.
fn write_audit(
    tx: &Transaction<'_>,
    keep: &IncomingDraft<'_>,
    record: &DraftRecord,
) -> Result<(), StoreError> {
    let base = record
        .content()
        .and_then(|content| content.base_bundle_hash);
    let mut after = json!({ "kind": record.kind(), "sha256": record.sha256 });
    match &record.subject {
        Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
            after["name"] = json!(content.name);
        }
        Subject::KeyRequest(key) => after["public_key"] = json!(key.public_key),
        Subject::Release(proposed) => {
            after["release"] = json!(proposed.number);
            after["payload_sha256"] = json!(proposed.payload_sha256);
        }
    }
    let change = Change::about(&record.id)
        .with_before(base.map(|base| json!({ "bundle_hash": base })))
        .with_after(after);
    tx.audit(Some(&keep.namespace.id), keep.actor, "draft.create", change)
}
