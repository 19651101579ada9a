//! One step that ends a draft, as every route here takes it.

use serde_json::json;
use vault_store::StoreError;

use crate::admin::call::Call;
use crate::drafts::{Found, ended_by};
use crate::error::{Code, Refusal};
use crate::model::draft::{DraftRecord, Ending, State};
use crate::model::namespace::Namespace;

/// A step of this call.
pub(super) fn ending(
    call: &Call,
    state: State,
    release: Option<u64>,
    reason: Option<String>,
) -> Ending {
    Ending {
        state,
        at: call.app.clock.now(),
        release,
        reason,
    }
}

/// One try to end a pending draft; `None` when it changed meanwhile.
pub(super) async fn commit(
    call: &Call,
    namespace: &Namespace,
    found: &Found,
    ending: &Ending,
    action: &str,
) -> Result<Option<DraftRecord>, StoreError> {
    let step = ended_by(&call.app, namespace, found, ending, &call.actor, action)?;
    let Some((ended, writes)) = step else {
        return Ok(None);
    };
    Ok(call.app.try_commit(writes).await?.then_some(ended))
}

/// Whether a server is admitting the draft at this moment.
pub(super) fn is_being_admitted(call: &Call, draft: &DraftRecord) -> bool {
    let until = draft.admitting_until;
    until.is_some_and(|until| call.app.clock.now() < until)
}

/// 409 with the state that the draft is in.
pub(super) fn state_refusal(draft: &DraftRecord, why: Option<&'static str>) -> Refusal {
    let refusal = Refusal::new(Code::DraftState).member("state", json!(draft.state));
    match why {
        Some(why) => refusal.detail(why),
        None => refusal,
    }
}
