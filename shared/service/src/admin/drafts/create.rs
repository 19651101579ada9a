//! `POST …/drafts?kind=`: stores a proposed release, a key request, or a change of a skill as a
//! draft.

use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Map, Value};
use vault_format::draft::Submitter;
use vault_format::name::DraftId;
use vault_format::root::{KeyRequest, KeyRequestError, MAX_KEY_REQUEST_BYTES};
use vault_mcp::{DraftRequestKind, Names};
use vault_shelf::Submitted;
use vault_store::objects::{Class, MAX_OBJECT_BYTES, ObjectKey};
use vault_store::random::ulid_parts;

use super::list::parse_kind;
use super::step::blocked_refusal;
use super::to_api_draft_for;
use crate::admin::call::{Answer, Call};
use crate::drafts::{IncomingDraft, KeepError, KeepOutcome, find_draft, store_draft};
use crate::error::{ErrorCode, Refusal};
use crate::http::{json_answer, parse_json, require_media_type};
use crate::model::draft::{DraftRecord, Kind, RequestedKey, Subject};
use crate::model::kept::ObjectName;
use crate::model::namespace::Namespace;
use crate::model::proposal::{Base, PROPOSAL_SECONDS, Proposed};
use crate::publish::judge_proposal;
use crate::shelf::{ChangeRule, Releases, SessionRules, open_session, to_sentence, tool_refusal};

/// Maximum size of a change as JSON, in bytes: a draft of 1 MiB in any of its encodings.
const MAX_CHANGE_BYTES: usize = 2 * 1024 * 1024;

/// Stores a draft. Answers 201, or 200 if its author has sent the same draft before and it is still
/// pending.
pub(in crate::admin) async fn create_draft(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let word = call.query_param("kind").unwrap_or_default();
    match parse_kind(&word).ok_or(ErrorCode::ParameterInvalid)? {
        Kind::Release => propose_release(&call, &namespace).await,
        Kind::KeyRequest => request_key(&call, &namespace).await,
        Kind::Propose => propose_change(&call, &namespace, DraftRequestKind::Propose).await,
        Kind::Install => propose_change(&call, &namespace, DraftRequestKind::Install).await,
        Kind::Remove => propose_change(&call, &namespace, DraftRequestKind::Remove).await,
    }
}

/// Stores a catalog file that still lacks signatures, for which other publishers then sign.
async fn propose_release(call: &Call, namespace: &Namespace) -> Answer {
    call.caller.require_publisher()?;
    call.hosted_namespace()?;
    let bytes = exact_bytes(call, MAX_OBJECT_BYTES).await?;
    let app = &call.app;
    let proposal = judge_proposal(app, namespace, &bytes).await?;
    // The objects that only the proposal names would be deleted as unreferenced; the stored list
    // keeps them while the draft is pending.
    let added = Bytes::from(proposal.added.to_bytes());
    let added_key = ObjectKey::for_bytes(namespace.id, Class::Closures, &added);
    let proposed = Proposed {
        number: proposal.catalog.release,
        root_version: proposal.catalog.root_version,
        root_sha256: proposal.catalog.root_sha256,
        payload_sha256: proposal.payload_sha256,
        signers: proposal.signers,
        base: Base::of_namespace(namespace),
        added: added_key.digest,
        ends_at: app.clock.now().plus_seconds(PROPOSAL_SECONDS),
    };
    let objects = vec![(added_key, added)];
    store_signed_draft(call, namespace, Subject::Release(proposed), bytes, objects).await
}

/// Stores a key request: a statement with which a user asks to publish with a key, signed with that
/// key.
async fn request_key(call: &Call, namespace: &Namespace) -> Answer {
    call.hosted_namespace()?;
    let bytes = exact_bytes(call, MAX_KEY_REQUEST_BYTES).await?;
    let pin = namespace
        .pin
        .vault_pin()
        .ok_or(ErrorCode::CatalogNotPublished)?;
    // The signature inside proves that the author holds the private key, so a user cannot request
    // the key of another person.
    let request = KeyRequest::verify(&bytes, pin.vault_id, &namespace.slug).map_err(|error| {
        let refusal = Refusal::new(match error {
            KeyRequestError::TooLarge => ErrorCode::BodyTooLarge,
            _ => ErrorCode::KeyRequestInvalid,
        });
        refusal.cause(error)
    })?;
    let key = RequestedKey {
        public_key: request.public_key,
        name: request.name,
    };
    let subject = Subject::KeyRequest(key);
    store_signed_draft(call, namespace, subject, bytes, Vec::new()).await
}

/// Reads the exact bytes of a signed document; fails with 413 or 415.
async fn exact_bytes(call: &Call, limit: usize) -> Result<Bytes, Refusal> {
    let bytes = call.read_body(limit).await?;
    require_media_type(&call.parts.headers, "application/octet-stream")?;
    Ok(bytes)
}

async fn store_signed_draft(
    call: &Call,
    namespace: &Namespace,
    subject: Subject,
    bytes: Bytes,
    mut objects: Vec<(ObjectKey, Bytes)>,
) -> Answer {
    let app = &call.app;
    let (millis, bits) = ulid_parts(&app.clock, &app.random);
    let by = Submitter {
        user_id: call.caller.user_id.clone(),
        client_id: Some(call.caller.consent.client.to_string()),
    };
    let id = DraftId::from_parts(millis, bits);
    let record = DraftRecord::new(id, subject, &bytes, app.clock.now(), by);
    let name = ObjectName::new(Class::Drafts, record.sha256);
    objects.push((name.key(namespace.id), bytes));
    let coming = IncomingDraft {
        namespace,
        actor: &call.actor,
        record,
        objects,
    };
    let (status, record) = match store_draft(app, coming).await {
        Ok(KeepOutcome::New(record)) => (StatusCode::CREATED, record),
        Ok(KeepOutcome::Same(record)) => (StatusCode::OK, record),
        Err(KeepError::Full(full)) => {
            return Err(
                Refusal::new(ErrorCode::DraftQueueFull).detail(to_sentence(&full.to_string()))
            );
        }
        Err(KeepError::Storage(full)) => return Err(full.into()),
        Err(KeepError::Places(full)) => return Err(full.into()),
        Err(KeepError::OfAnother) => return Err(ErrorCode::KeyRequested.into()),
        Err(KeepError::Store(error)) => return Err(error.into()),
    };
    Ok(json_answer(
        status,
        &to_api_draft_for(&call.to_principal(), record).await?,
    ))
}

/// Stores the change of a skill. It becomes a draft for every caller, owners included.
async fn propose_change(call: &Call, namespace: &Namespace, kind: DraftRequestKind) -> Answer {
    let app = &call.app;
    let bytes = call.read_body(MAX_CHANGE_BYTES).await?;
    require_media_type(&call.parts.headers, "application/json")?;
    let arguments: Map<String, Value> = parse_json(&bytes)?;
    let rules = SessionRules {
        names: Names::Plain,
        changes: ChangeRule::Drafted,
    };
    let session = open_session(app, &call.caller, &call.actor, &Releases::default(), rules);
    // Uses the crate of the MCP tools, so that a draft from this route passes the same checks of
    // arguments and the same security scan as one from an agent.
    let submitted = vault_mcp::hand_in(&session, kind, arguments).await;
    let id = match submitted.map_err(tool_refusal)? {
        Submitted::Drafted { draft, .. } => draft,
        Submitted::Refused { findings } => {
            return Err(blocked_refusal(&findings));
        }
        Submitted::Unchanged { .. } => return Err(ErrorCode::SkillUnchanged.into()),
        Submitted::Signed { .. } | Submitted::Removed { .. } | Submitted::WouldPass { .. } => {
            return Err(ErrorCode::Internal.into());
        }
    };
    let created_draft = find_draft(app, namespace, &id)
        .await?
        .ok_or(ErrorCode::Internal)?;
    let item = to_api_draft_for(&call.to_principal(), created_draft.record).await?;
    Ok(json_answer(StatusCode::CREATED, &item))
}
