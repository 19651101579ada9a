//! Reads drafts in their present state, which for a proposal (a draft with a release that lacks
//! signatures) is derived from the namespace's releases.

use vault_format::name::DraftId;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_KEYS, When, Write};

use crate::app::App;
use crate::model::Versioned;
use crate::model::draft::{self, DraftRecord};
use crate::model::namespace::Namespace;
use crate::model::release::Release;

/// A draft that was found, with what is needed to change it.
#[derive(Clone, Debug)]
pub(crate) struct FoundDraft {
    /// The draft in its present state.
    pub(crate) record: DraftRecord,
    /// The stored record of an open draft, with its revision; `None` if the draft has ended.
    open: Option<(DraftRecord, u64)>,
}

/// Finds the draft of this id, open or ended.
pub(crate) async fn find_draft(
    app: &App,
    namespace: &Namespace,
    id: &DraftId,
) -> Result<Option<FoundDraft>, StoreError> {
    // Both keys in one read: when a draft ends, its record moves, and two reads could miss it in
    // between.
    let keys = [
        draft::draft_key(&namespace.id, id),
        draft::ended_key(&namespace.id, id),
    ];
    let [open, ended] = app.get_all(keys).await?;
    if let Some(open) = Versioned::<DraftRecord>::read(open)? {
        let stored = (open.value.clone(), open.revision);
        let standing = resolve_states(app, namespace, vec![open.value]).await?;
        return Ok(standing.into_iter().next().map(|record| FoundDraft {
            record,
            open: Some(stored),
        }));
    }
    let ended = Versioned::<DraftRecord>::read(ended)?;
    Ok(ended.map(|ended| FoundDraft {
        record: ended.value,
        open: None,
    }))
}

/// Returns these drafts in their present state, in the same order. Reads the store only if a
/// proposal may have ended.
pub(crate) async fn resolve_states(
    app: &App,
    namespace: &Namespace,
    drafts: Vec<DraftRecord>,
) -> Result<Vec<DraftRecord>, StoreError> {
    let now = app.clock.now();
    let mut standing = Vec::with_capacity(drafts.len());
    let mut overtaken = Vec::new();
    for (at, draft) in drafts.into_iter().enumerate() {
        // Computed without the release first: only for a proposal that is no longer pending does it
        // matter whether it was published.
        let without_release = draft.clone().with_present_state(namespace, None, now);
        if without_release.state != draft.state {
            overtaken.push(at);
        }
        standing.push(if without_release.state == draft.state {
            without_release
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
        let release_records = app.records.get_many(&keys).await?;
        for (at, record) in some.iter().zip(release_records) {
            let published: Option<Release> = record.map(|record| record.read()).transpose()?;
            if let Some(draft) = standing.get_mut(*at) {
                *draft = draft
                    .clone()
                    .with_present_state(namespace, published.as_ref(), now);
            }
        }
    }
    Ok(standing)
}

impl FoundDraft {
    /// Returns the stored record of an open draft with its revision; `None` if the draft has ended.
    pub(crate) fn open_record(&self) -> Option<(&DraftRecord, u64)> {
        self.open
            .as_ref()
            .map(|(stored, revision)| (stored, *revision))
    }

    /// Returns the write that replaces the record of an open draft, on the condition of the
    /// revision that was read; `None` if the draft has ended.
    pub(crate) fn update_write(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut DraftRecord),
    ) -> Result<Option<Write>, StoreError> {
        let Some((stored, revision)) = &self.open else {
            return Ok(None);
        };
        let mut after = stored.clone();
        change(&mut after);
        let key = draft::draft_key(&namespace.id, &after.id);
        let write = Write::put(key, Document::from_value(&after)?, When::At(*revision));
        Ok(Some(write))
    }
}
