//! `…/drafts/{id}/accepted`, `…/declined` and `DELETE …/drafts/{id}`: the decisions that end a
//! draft. Of two concurrent decisions one is committed; the other gets the draft's new state. A
//! repeated decision gets the same answer as the first.

use axum::http::StatusCode;
use vault_api::{DraftAcceptance, DraftRefusal};
use vault_format::name::is_deceptive;
use vault_format::root::MAX_VERSION;

use super::admit::{ReviewedContent, admit_found_draft};
use super::step::{self, is_being_admitted, new_ending, state_refusal};
use super::{find_visible, to_api_draft_for};
use crate::admin::call::{Answer, Call};
use crate::admin::principal::Principal;
use crate::drafts::FoundDraft;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::draft::{DraftRecord, Ending, Kind, MAX_REASON_CHARS, State};
use crate::model::namespace::Kind as NamespaceKind;
use crate::model::release;
use crate::transaction::Transaction;

const PUBLISH_IT: &str = "A proposal is accepted by publishing it: PUT …/catalog with its payload.";
const UNREVIEWED: &str =
    "The server signs what was reviewed: name it with reviewed_sha256, as vault drafts show does.";
const BEING_ADMITTED: &str = "This vault's server is admitting the draft; try again in a minute.";

/// Accepts a draft. In a hosted namespace, this only records the number of the release that
/// contains the change. In a self-signed namespace, the server signs and publishes the change,
/// which only an owner may request.
pub(in crate::admin) async fn accept_draft(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let acceptance: DraftAcceptance = call.json_body().await?;
    let (by, id) = (call.to_principal(), call.param("id"));
    let ended = match (namespace.kind, acceptance.release) {
        (NamespaceKind::SelfSigned, None) if acceptance.reason.is_none() => {
            // The source of an `install` draft may deliver other files than the owner has reviewed,
            // so the hash of the reviewed ones is required.
            let content = acceptance
                .reviewed_sha256
                .ok_or_else(|| Refusal::new(ErrorCode::ParameterInvalid).detail(UNREVIEWED))?;
            let base = acceptance.base_bundle_hash;
            admit_draft(&by, id, ReviewedContent { content, base }).await?
        }
        (NamespaceKind::Hosted, Some(number))
            if acceptance.base_bundle_hash.is_none() && acceptance.reviewed_sha256.is_none() =>
        {
            let pending_draft = find_acceptable(&by, id).await?;
            let number = check_published(&by, &pending_draft, number).await?;
            let reason = acceptance.reason.map(check_reason).transpose()?;
            let ending = new_ending(&by, State::Accepted, number, reason);
            end_draft(&by, id, &ending, "draft.accept").await?
        }
        // A draft that does not exist or cannot be accepted is reported first. Otherwise the
        // members of the request do not fit this kind of namespace.
        _ => {
            find_acceptable(&by, id).await?;
            return Err(ErrorCode::ParameterInvalid.into());
        }
    };
    Ok(json_answer(
        StatusCode::OK,
        &to_api_draft_for(&by, ended).await?,
    ))
}

/// Finds the draft of this id if the caller may accept drafts of its kind.
async fn find_acceptable(by: &Principal<'_>, id: &str) -> Result<FoundDraft, Refusal> {
    let stored_draft = find_visible(by, id).await?;
    match stored_draft.record.kind() {
        // A proposal that was published counts as accepted, so accepting it again is a repetition.
        Kind::Release if stored_draft.record.state != State::Accepted => {
            return Err(state_refusal(&stored_draft.record, Some(PUBLISH_IT)));
        }
        Kind::KeyRequest => by.require_owner()?,
        _ => {}
    }
    Ok(stored_draft)
}

/// Makes the server that holds the vault's key sign the change of a draft and publish it.
pub(crate) async fn admit_draft(
    by: &Principal<'_>,
    id: &str,
    seen: ReviewedContent,
) -> Result<DraftRecord, Refusal> {
    let pending_draft = find_acceptable(by, id).await?;
    by.require_owner()?;
    admit_found_draft(by, pending_draft, seen).await
}

/// Checks that the vault has published the release; fails with 422 otherwise. A key request may be
/// accepted with number 0, for no release, because a key takes effect with a root version.
async fn check_published(
    by: &Principal<'_>,
    found: &FoundDraft,
    number: u64,
) -> Result<Option<u64>, Refusal> {
    if number == 0 && found.record.kind() == Kind::KeyRequest {
        return Ok(None);
    }
    let pin = by.namespace.pin.vault_pin();
    let newest = pin.map_or(MAX_VERSION, |pin| pin.root_version);
    let release = release::find_release(by.app, &by.namespace.id, newest, number).await?;
    match release {
        Some(release) => Ok(Some(release.release)),
        None => Err(Refusal::new(ErrorCode::ParameterInvalid)
            .detail("The vault has no release of this number.")),
    }
}

/// Declines a draft; its author sees the reason.
pub(in crate::admin) async fn handle_decline(call: Call) -> Answer {
    call.path_namespace()?;
    let DraftRefusal { reason } = call.json_body().await?;
    let by = call.to_principal();
    let ended = decline_draft(&by, call.param("id"), reason).await?;
    Ok(json_answer(
        StatusCode::OK,
        &to_api_draft_for(&by, ended).await?,
    ))
}

/// Declines the draft of this id with a reason that its author sees.
pub(crate) async fn decline_draft(
    by: &Principal<'_>,
    id: &str,
    reason: String,
) -> Result<DraftRecord, Refusal> {
    let reason = check_reason(reason)?;
    let stored_draft = find_visible(by, id).await?;
    // Publishers cannot see the key requests of others, but they can see their own.
    if stored_draft.record.kind() == Kind::KeyRequest {
        by.require_owner()?;
    }
    let ending = new_ending(by, State::Declined, None, Some(reason));
    end_draft(by, id, &ending, "draft.decline").await
}

/// Checks the reason that the author will read: 1 to 500 characters, none of them hidden or
/// misleading.
fn check_reason(reason: String) -> Result<String, Refusal> {
    let is_good = (1..=MAX_REASON_CHARS).contains(&reason.chars().count())
        && !reason.chars().any(is_deceptive);
    if !is_good || reason.trim().is_empty() {
        return Err(Refusal::new(ErrorCode::ParameterInvalid)
            .detail("The reason must have 1 to 500 visible characters."));
    }
    Ok(reason)
}

/// Withdraws a draft: possible for its author and for owners.
pub(in crate::admin) async fn withdraw_draft(call: Call) -> Answer {
    call.path_namespace()?;
    let (by, id) = (call.to_principal(), call.param("id"));
    let stored_draft = find_visible(&by, id).await?;
    if stored_draft.record.submitted_by.user_id != by.user_id {
        by.require_owner()?;
    }
    let ending = new_ending(&by, State::Withdrawn, None, None);
    let ended = end_draft(&by, id, &ending, "draft.withdraw").await?;
    Ok(json_answer(
        StatusCode::OK,
        &to_api_draft_for(&by, ended).await?,
    ))
}

/// Ends the draft of this id; fails with 409 if another decision has ended it.
async fn end_draft(
    by: &Principal<'_>,
    id: &str,
    ending: &Ending,
    action: &str,
) -> Result<DraftRecord, Refusal> {
    let end = async |tx: Transaction<'_>| {
        let stored_draft = find_visible(by, id).await?;
        let draft = &stored_draft.record;
        // A client whose answer was lost repeats the request, which must succeed again.
        if draft.state != State::Pending {
            let is_repeated = draft.state == ending.state
                && (ending.state != State::Accepted || draft.release == ending.release);
            return if is_repeated {
                Ok(stored_draft.record)
            } else {
                Err(state_refusal(draft, None))
            };
        }
        // While the server signs it, the draft is still pending; but a signature cannot be taken
        // back.
        if is_being_admitted(by, draft) {
            return Err(state_refusal(draft, Some(BEING_ADMITTED)));
        }
        Ok(step::end_draft_in(&tx, by, &stored_draft, ending, action)?)
    };
    by.app.change(end).await
}
