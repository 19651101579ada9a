//! Keeping a new draft: its bytes first, then its record, its places and the audit entry at once.

use bytes::Bytes;
use serde_json::json;
use vault_store::StoreError;
use vault_store::objects::ObjectKey;
use vault_store::records::{When, Write};

use super::find::standing;
use super::settle::settle;
use crate::app::App;
use crate::model::Versioned;
use crate::model::audit::{Actor, Change};
use crate::model::draft::{
    self, DraftRecord, Ending, MAX_A_DAY, MAX_KEY_REQUESTS, MAX_KEY_REQUESTS_OF_AUTHOR, MAX_OWN,
    MAX_PROPOSALS, MAX_SHARED, MAX_SHARED_OF_AUTHOR, Place, Queue, Slot, State, Subject,
};
use crate::model::namespace::Namespace;
use crate::model::notice::Event;
use crate::notices;
use crate::transaction::Transaction;
use crate::uploads;

/// A draft that comes in.
pub(crate) struct Keep<'a> {
    /// Where it goes.
    pub(crate) namespace: &'a Namespace,
    /// Who sends it.
    pub(crate) actor: &'a Actor,
    /// Its record.
    pub(crate) record: DraftRecord,
    /// Its bytes, and what else is stored with it.
    pub(crate) objects: Vec<(ObjectKey, Bytes)>,
}

/// What became of a draft.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It waits.
    New(DraftRecord),
    /// Its author has sent the same before, and that one waits.
    Same(DraftRecord),
}

/// Why a draft is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// There is no place for it.
    #[error(transparent)]
    Full(#[from] Full),
    /// Another user has asked for the same key.
    #[error(
        "another user has asked to publish with this key; an owner decides on that request first"
    )]
    OfAnother,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which places are all taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Full {
    /// Those of the author.
    #[error("{} of your drafts are waiting already", MAX_OWN + MAX_SHARED_OF_AUTHOR)]
    Author,
    /// Those that all authors share.
    #[error("{MAX_SHARED} drafts are waiting already, beside {MAX_OWN} of each author")]
    Shared,
    /// Those of the author for key requests.
    #[error("{MAX_KEY_REQUESTS_OF_AUTHOR} of your key requests are waiting already")]
    KeyRequestsOfAuthor,
    /// Those for key requests.
    #[error("{MAX_KEY_REQUESTS} key requests are waiting already")]
    KeyRequests,
    /// Those for proposals.
    #[error("{MAX_PROPOSALS} proposals are waiting already")]
    Proposals,
    /// The author's of this day.
    #[error("you have handed in {MAX_A_DAY} drafts today; try again tomorrow")]
    Day,
}

impl Full {
    /// What is full when the counter at this position of [`DraftRecord::counted`] is.
    const fn of(subject: &Subject, at: usize) -> Self {
        match (subject, at) {
            (Subject::Release(_), _) => Self::Proposals,
            (Subject::KeyRequest(_), 0) => Self::KeyRequestsOfAuthor,
            (Subject::KeyRequest(_), _) => Self::KeyRequests,
            (_, 0) => Self::Author,
            (_, _) => Self::Shared,
        }
    }
}

/// Fails where an author's next content draft finds no place; keeping it asks again.
pub(crate) async fn has_room(
    app: &App,
    namespace: &Namespace,
    author: &str,
) -> Result<(), KeepError> {
    let keys = [
        draft::author_queue_key(&namespace.id, author),
        draft::queue_key(&namespace.id),
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
        Err(Full::Author.into())
    } else if all.pending >= MAX_SHARED {
        Err(Full::Shared.into())
    } else {
        Ok(())
    }
}

/// Stores a draft. The same one again, of an author who has sent it before, is not stored a second
/// time.
pub(crate) async fn keep(app: &App, keep: Keep<'_>) -> Result<Kept, KeepError> {
    if let Earlier::Same(record) = earlier(app, &keep).await? {
        return Ok(Kept::Same(*record));
    }
    // Before anything is stored: what finds no place leaves no bytes behind.
    let day = keep.record.day(&keep.namespace.id);
    if day.is_full(app, app.clock.now()).await? {
        return Err(Full::Day.into());
    }
    uploads::put(app, keep.namespace.id, keep.objects.clone()).await?;
    let keep_in = async |tx| keep_in(&tx, app, &keep).await;
    match app.change(keep_in).await {
        // What has ended stands in the way.
        Err(KeepError::Full(Full::Proposals)) if settle(app, keep.namespace).await? > 0 => {
            app.change(keep_in).await
        }
        kept => kept,
    }
}

async fn keep_in(tx: &Transaction<'_>, app: &App, keep: &Keep<'_>) -> Result<Kept, KeepError> {
    let mut full = Full::Day;
    let notice = notices::queue(tx, keep.namespace, announced(&keep.record)).await?;
    for place in [Place::Own, Place::Shared] {
        let record = keep.record.clone().in_place(place);
        let (mut counted, writes) = match earlier(app, keep).await? {
            Earlier::Same(record) => return Ok(Kept::Same(*record)),
            Earlier::OfAnother => return Err(KeepError::OfAnother),
            Earlier::Changing => return Err(tx.conflict().into()),
            Earlier::None => {
                let counted = record.counted(&keep.namespace.id);
                let slot = record.slot(&keep.namespace.id, When::Absent)?;
                (counted, Vec::from_iter(slot))
            }
            Earlier::Replaced { slot, writes } => {
                let slot = record.slot(&keep.namespace.id, When::At(slot))?;
                (Vec::new(), slot.into_iter().chain(writes).collect())
            }
        };
        let places = counted.len();
        counted.extend(record.day(&keep.namespace.id).counted(tx.now()));
        let bounds = counted.len();
        tx.write_all(counted);
        tx.write_all(writes);
        tx.write_all(record.listed(&keep.namespace.id)?);
        audit(tx, keep, &record)?;
        tx.write_all(notice.clone());
        let Some(index) = tx.commit_within(bounds).await? else {
            return Ok(Kept::New(record));
        };
        full = if index < places {
            Full::of(&record.subject, index)
        } else {
            Full::Day
        };
        if record.content().is_none() {
            break;
        }
    }
    Err(full.into())
}

/// What a notice says about a draft that comes in.
fn announced(record: &DraftRecord) -> Event {
    Event::DraftWaiting {
        draft: record.id.to_string(),
        kind: record.kind().as_str().to_owned(),
        skill: record.content().map(|content| content.name.to_string()),
    }
}

/// What stands in the slot of a draft that comes in.
enum Earlier {
    /// Nothing, or it takes no slot.
    None,
    /// The same draft.
    Same(Box<DraftRecord>),
    /// A draft of another author.
    OfAnother,
    /// An earlier draft of the author, with the writes that end it; the slot's own revision.
    Replaced { slot: u64, writes: Vec<Write> },
    /// A draft that is being ended.
    Changing,
}

async fn earlier(app: &App, keep: &Keep<'_>) -> Result<Earlier, StoreError> {
    let (namespace, new) = (keep.namespace, &keep.record);
    let Some(key) = new.slot_key(&namespace.id) else {
        return Ok(Earlier::None);
    };
    let Some(slot) = app.get::<Slot>(&key).await? else {
        return Ok(Earlier::None);
    };
    let key = draft::key(&namespace.id, &slot.value.id);
    let Some(open) = app.get::<DraftRecord>(&key).await? else {
        return Ok(Earlier::Changing);
    };
    let found = standing(app, namespace, vec![open.value]).await?;
    let Some(found) = found.into_iter().next() else {
        return Ok(Earlier::Changing);
    };
    if found.submitted_by.user_id != new.submitted_by.user_id {
        return Ok(Earlier::OfAnother);
    }
    let waits = found.state == State::Pending;
    let is_same = match (found.proposed(), new.proposed()) {
        (Some(found), Some(new)) => found.is_same(new),
        _ => found.sha256 == new.sha256,
    };
    if waits && is_same {
        return Ok(Earlier::Same(Box::new(found)));
    }
    let mut writes = Vec::new();
    let ended = if waits {
        let change = Change::about(&found.id)
            .before(json!({ "state": State::Pending, "kind": found.kind() }))
            .after(json!({ "state": State::Withdrawn, "replaced_by": new.id }));
        let actor = keep.actor;
        writes.push(app.audit(Some(&namespace.id), actor, "draft.withdraw", change, "done")?);
        found.ended(&Ending {
            state: State::Withdrawn,
            at: app.clock.now(),
            release: None,
            reason: None,
        })
    } else {
        found
    };
    writes.extend(ended.end(&namespace.id, open.revision, true)?);
    Ok(Earlier::Replaced {
        slot: slot.revision,
        writes,
    })
}

/// Adds the audit record of a draft that comes in.
fn audit(tx: &Transaction<'_>, keep: &Keep<'_>, record: &DraftRecord) -> Result<(), StoreError> {
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
        .before(base.map(|base| json!({ "bundle_hash": base })))
        .after(after);
    tx.audit(Some(&keep.namespace.id), keep.actor, "draft.create", change)
}
