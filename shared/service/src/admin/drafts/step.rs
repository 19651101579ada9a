//! One step that ends a draft, as every route here takes it.

use serde_json::json;
use vault_store::StoreError;

use crate::admin::principal::Principal;
use crate::drafts::{Found, ended_by};
use crate::error::{ErrorCode, Refusal};
use crate::model::draft::{DraftRecord, Ending, State};

/// A step of this caller.
pub(super) fn ending(
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

/// One try to end a pending draft; `None` when it changed meanwhile.
pub(super) async fn commit(
    by: &Principal<'_>,
    found: &Found,
    ending: &Ending,
    action: &str,
) -> Result<Option<DraftRecord>, StoreError> {
    let step = ended_by(by.app, by.namespace, found, ending, by.actor, action)?;
    let Some((ended, writes)) = step else {
        return Ok(None);
    };
    Ok(by.app.try_commit(writes).await?.then_some(ended))
}

/// Whether a server is admitting the draft at this moment.
pub(super) fn is_being_admitted(by: &Principal<'_>, draft: &DraftRecord) -> bool {
    let until = draft.admitting_until;
    until.is_some_and(|until| by.app.clock.now() < until)
}

/// 409 with the state that the draft is in.
pub(super) fn state_refusal(draft: &DraftRecord, why: Option<&'static str>) -> Refusal {
    let refusal = Refusal::new(ErrorCode::DraftState).member("state", json!(draft.state));
    match why {
        Some(why) => refusal.detail(why),
        None => refusal,
    }
}
