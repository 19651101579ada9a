//! Steps that the routes for drafts share to end a draft.

use serde_json::json;
use vault_gate::Finding;
use vault_store::StoreError;

use crate::admin::principal::Principal;
use crate::drafts::FoundDraft;
use crate::error::{ErrorCode, Refusal};
use crate::model::audit::Change;
use crate::model::draft::{DraftRecord, Ending, State};
use crate::transaction::Transaction;

/// Creates the ending of a draft: the decision of this caller, made now.
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

/// Ends a pending draft in the commit of `tx`, with its audit record. Conflicts if the draft has
/// ended already.
pub(super) fn end_draft_in(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    found: &FoundDraft,
    ending: &Ending,
    action: &str,
) -> Result<DraftRecord, StoreError> {
    let (stored, revision) = found.open_record().ok_or_else(|| tx.conflict())?;
    let (after, home) = (stored.clone().into_ended(ending), &by.namespace.id);
    let change = Change::about(&after.id)
        .with_before(json!({ "state": State::Pending, "kind": after.kind() }))
        .with_after(json!({ "state": after.state, "release": after.release }));
    tx.write_all(after.ending_writes(home, revision, false)?);
    tx.audit(Some(home), by.actor, action, change)?;
    Ok(after)
}

/// Whether a server has claimed the draft to sign its change, and the claim has not expired.
pub(super) fn is_being_admitted(by: &Principal<'_>, draft: &DraftRecord) -> bool {
    // The claim of a process that died expires, so nothing has to remove it.
    let until = draft.admitting_until;
    until.is_some_and(|until| by.app.clock.now() < until)
}

/// Returns the refusal of a change that the security scan blocks, with its findings.
pub(super) fn blocked_refusal(findings: &[Finding]) -> Refusal {
    let findings = findings.iter().map(|finding| json!(finding)).collect();
    Refusal::new(ErrorCode::SkillBlocked).with(|problem| problem.findings = Some(findings))
}

/// Returns the refusal of a decision that the draft's state does not allow: 409 with that state.
pub(super) fn state_refusal(draft: &DraftRecord, why: Option<&'static str>) -> Refusal {
    let state = Some(draft.state);
    let refusal = Refusal::new(ErrorCode::DraftState).with(|problem| problem.state = state);
    match why {
        Some(why) => refusal.detail(why),
        None => refusal,
    }
}
