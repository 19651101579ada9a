//! Ending a draft, as all routes of this room do it.

use serde_json::json;
use vault_store::StoreError;

use crate::admin::principal::Principal;
use crate::drafts::{self, FoundDraft};
use crate::error::{ErrorCode, Refusal};
use crate::model::draft::{DraftRecord, Ending, State};
use crate::transaction::Transaction;

/// Describes a decision of this caller.
pub(super) fn new_ending(
    by: &Principal<'_>,
    state: State,
    release: Option<u64>,
    reason: Option<String>,
) -> Ending {
    Ending {
        state,
        at: by.app.clock.now(),
        release,
        reason,
    }
}

/// Ends a pending draft in the commit of `tx`.
pub(super) fn end_in(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    found: &FoundDraft,
    ending: &Ending,
    action: &str,
) -> Result<DraftRecord, StoreError> {
    drafts::write_ending(tx, by.namespace, found, ending, by.actor, action)
}

/// Whether a server is admitting the draft at present.
pub(super) fn is_being_admitted(by: &Principal<'_>, draft: &DraftRecord) -> bool {
    // The claim of a process that died ends by itself, so nobody has to remove it.
    let until = draft.admitting_until;
    until.is_some_and(|until| by.app.clock.now() < until)
}

/// Returns 409 with the draft's state.
pub(super) fn state_refusal(draft: &DraftRecord, why: Option<&'static str>) -> Refusal {
    let refusal = Refusal::new(ErrorCode::DraftState).member("state", json!(draft.state));
    match why {
        Some(why) => refusal.detail(why),
        None => refusal,
    }
}
