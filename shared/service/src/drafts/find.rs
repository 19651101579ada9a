//! Reads drafts in their present state, and ends a draft.

use serde_json::json;
use vault_format::name::DraftId;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_KEYS, When, Write};

use crate::app::App;
use crate::model::Versioned;
use crate::model::audit::{Actor, Change};
use crate::model::draft::{self, DraftRecord, Ending, State};
use crate::model::namespace::Namespace;
use crate::model::release::Release;
use crate::transaction::Transaction;

/// A draft as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The draft in its present state.
    pub(crate) record: DraftRecord,
    /// The stored record with its revision; `None` if a decision has ended the draft.
    open: Option<(DraftRecord, u64)>,
}

/// Finds the draft of this id, open or ended.
pub(crate) async fn find(
    app: &App,
    namespace: &Namespace,
    id: &DraftId,
) -> Result<Option<Found>, StoreError> {
    // Both keys in one read: ending a draft moves its record, and two reads could miss it in
    // between.
    let keys = [
        draft::key(&namespace.id, id),
        draft::ended_key(&namespace.id, id),
    ];
    let [open, ended] = app.get_all(keys).await?;
    if let Some(open) = Versioned::<DraftRecord>::read(open)? {
        let stored = (open.value.clone(), open.revision);
        let standing = standing(app, namespace, vec![open.value]).await?;
        return Ok(standing.into_iter().next().map(|record| Found {
            record,
            open: Some(stored),
        }));
    }
    let ended = Versioned::<DraftRecord>::read(ended)?;
    Ok(ended.map(|ended| Found {
        record: ended.value,
        open: None,
    }))
}

/// Returns these drafts in their present state, in the same order. Reads nothing unless a proposal
/// has been overtaken by a release.
pub(crate) async fn standing(
    app: &App,
    namespace: &Namespace,
    drafts: Vec<DraftRecord>,
) -> Result<Vec<DraftRecord>, StoreError> {
    let now = app.clock.now();
    let mut standing = Vec::with_capacity(drafts.len());
    let mut overtaken = Vec::new();
    for (at, draft) in drafts.into_iter().enumerate() {
        // Tried without the release first: only a proposal that is no longer pending needs to know
        // whether it was published.
        let plain = draft.clone().standing(namespace, None, now);
        if plain.state != draft.state {
            overtaken.push(at);
        }
        standing.push(if plain.state == draft.state {
            plain
        } else {
            draft
        });
    }
    for some in overtaken.chunks(MAX_KEYS) {
        let proposed = |at: &usize| standing.get(*at).and_then(DraftRecord::proposed);
        let keys: Vec<_> = some
            .iter()
            .filter_map(proposed)
            .map(|proposed| proposed.release_key(&namespace.id))
            .collect();
        let found = app.records.get_many(&keys).await?;
        for (at, record) in some.iter().zip(found) {
            let published: Option<Release> = record.map(|record| record.read()).transpose()?;
            if let Some(draft) = standing.get_mut(*at) {
                *draft = draft.clone().standing(namespace, published.as_ref(), now);
            }
        }
    }
    Ok(standing)
}

/// Ends a draft in the commit of `tx`, with its audit record. Conflicts if the draft has ended
/// already.
pub(crate) fn end(
    tx: &Transaction<'_>,
    namespace: &Namespace,
    found: &Found,
    ending: &Ending,
    actor: &Actor,
    action: &str,
) -> Result<DraftRecord, StoreError> {
    let (stored, revision) = found.open.as_ref().ok_or_else(|| tx.conflict())?;
    let after = stored.clone().ended(ending);
    let change = Change::about(&after.id)
        .before(json!({ "state": State::Pending, "kind": after.kind() }))
        .after(json!({ "state": after.state, "release": after.release }));
    tx.write_all(after.end(&namespace.id, *revision, false)?);
    tx.audit(Some(&namespace.id), actor, action, change)?;
    Ok(after)
}

impl Found {
    /// Returns the write that replaces the record of an open draft, on the condition of the
    /// revision that was read; `None` if the draft has ended.
    pub(crate) fn update(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut DraftRecord),
    ) -> Result<Option<Write>, StoreError> {
        let Some((stored, revision)) = &self.open else {
            return Ok(None);
        };
        let mut after = stored.clone();
        change(&mut after);
        let key = draft::key(&namespace.id, &after.id);
        let write = Write::put(key, Document::of(&after)?, When::At(*revision));
        Ok(Some(write))
    }
}
