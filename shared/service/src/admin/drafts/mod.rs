//! `…/drafts`: drafts, which are requests to the owners and publishers of a vault, and the
//! decisions on them. A draft asks for a change of a skill, proposes a release that lacks
//! signatures, or asks for the right to publish with a key.
//!
//! Owners see every draft, publishers every one except the key requests of others, and members
//! their own. To a caller who may not see a draft it does not exist: the answer is 404, so that ids
//! reveal nothing.

mod admit;
mod create;
mod decide;
mod list;
mod step;

use std::collections::BTreeMap;

use vault_api::{Draft, DraftAuthor, ProposedRelease, RequestedKey};
use vault_format::name::DraftId;
use vault_format::root::KeyFingerprint;
use vault_store::StoreError;
use vault_store::records::MAX_KEYS;

use super::call::{Answer, Call, exact_answer};
use super::principal::Principal;
use crate::drafts::{self, FoundDraft};
use crate::error::{ErrorCode, Refusal};
use crate::model::account::Email;
use crate::model::draft::{DraftRecord, Kind, Subject};
use crate::model::user::{Role, User, user_key};

pub(crate) use admit::{ReviewedContent, load_draft as read_draft};
pub(super) use create::create_draft;
pub(super) use decide::{accept_draft, handle_decline, withdraw_draft};
pub(crate) use decide::{admit_draft, decline_draft};
pub(super) use list::list_drafts;
pub(crate) use list::{DraftFilter, read_page as listed_drafts};

/// `email` is the author's address, which only owners and publishers are shown.
fn to_api_draft(draft: DraftRecord, email: Option<Email>) -> Draft {
    let kind = draft.kind();
    let (mut name, mut base_bundle_hash, mut flags) = (None, None, 0);
    let (mut proposal, mut key, mut expires_at) = (None, None, None);
    match draft.subject {
        Subject::Propose(content) | Subject::Install(content) | Subject::Remove(content) => {
            name = Some(content.name);
            base_bundle_hash = content.base_bundle_hash;
            flags = content.flags;
        }
        Subject::KeyRequest(requested) => {
            key = Some(RequestedKey {
                fingerprint: KeyFingerprint::publisher(&requested.public_key),
                public_key: requested.public_key,
                name: requested.name,
            });
        }
        Subject::Release(proposed) => {
            expires_at = Some(proposed.ends_at);
            proposal = Some(ProposedRelease {
                release: proposed.number,
                root_version: proposed.root_version,
                payload_sha256: proposed.payload_sha256,
                signers: proposed.signers,
            });
        }
    }
    Draft {
        id: draft.id,
        kind,
        name,
        base_bundle_hash,
        sha256: draft.sha256,
        size: draft.size,
        submitted_at: draft.submitted_at,
        submitted_by: DraftAuthor {
            user_id: draft.submitted_by.user_id,
            email,
            client_id: draft.submitted_by.client_id,
        },
        flags,
        state: draft.state,
        changed_at: draft.changed_at,
        expires_at,
        release: draft.release,
        reason: draft.reason,
        proposal,
        key,
    }
}

/// Converts drafts to their form in the API, with the e-mail addresses of their authors if the
/// caller is an owner or a publisher.
async fn to_api_drafts(
    by: &Principal<'_>,
    drafts: Vec<DraftRecord>,
) -> Result<Vec<Draft>, StoreError> {
    let emails = read_author_emails(by, &drafts).await?;
    let item = |draft: DraftRecord| {
        let email = emails.get(&draft.submitted_by.user_id).cloned();
        to_api_draft(draft, email)
    };
    Ok(drafts.into_iter().map(item).collect())
}

/// Reads the addresses of the authors of these drafts by user id, as far as they are still users of
/// the vault. Empty if the caller is neither owner nor publisher.
async fn read_author_emails(
    by: &Principal<'_>,
    drafts: &[DraftRecord],
) -> Result<BTreeMap<String, Email>, StoreError> {
    let mut emails = BTreeMap::new();
    if !by.role.can_publish() {
        return Ok(emails);
    }
    // Most drafts of a page are of few authors, so each user is read once.
    let mut authors: Vec<_> = drafts.iter().map(|it| &it.submitted_by.user_id).collect();
    authors.sort();
    authors.dedup();
    let key = |id: &&String| user_key(&by.namespace.id, id);
    for some in authors.chunks(MAX_KEYS) {
        let keys: Vec<_> = some.iter().map(key).collect();
        let user_records = by.app.records.get_many(&keys).await?;
        for record in user_records.into_iter().flatten() {
            let user: User = record.read()?;
            emails.insert(user.id, user.email);
        }
    }
    Ok(emails)
}

async fn to_api_draft_for(by: &Principal<'_>, draft: DraftRecord) -> Result<Draft, Refusal> {
    let items = to_api_drafts(by, vec![draft]).await?;
    let item = items.into_iter().next();
    item.ok_or_else(|| ErrorCode::Internal.into())
}

/// Whether the caller may see a draft, by the rule of this module.
fn is_visible(by: &Principal<'_>, draft: &DraftRecord) -> bool {
    let is_own = draft.submitted_by.user_id == by.user_id;
    is_own
        || match by.role {
            Role::Owner => true,
            // A key request asks for the right to publish: only owners decide on it.
            Role::Publisher => draft.kind() != Kind::KeyRequest,
            Role::Member => false,
        }
}

/// Finds the draft of this id if the caller may see it; fails with 404 otherwise.
pub(crate) async fn find_visible(by: &Principal<'_>, id: &str) -> Result<FoundDraft, Refusal> {
    let missing = || Refusal::new(ErrorCode::DraftNotFound);
    let id: DraftId = id.parse().map_err(|_| missing())?;
    let stored_draft = drafts::find_draft(by.app, by.namespace, &id).await?;
    stored_draft
        .filter(|found| is_visible(by, &found.record))
        .ok_or_else(missing)
}

/// Returns the exact bytes of a draft; 404 once they were deleted.
pub(super) async fn read_draft_bytes(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let stored_draft = find_visible(&call.to_principal(), call.param("id")).await?;
    let key = stored_draft.record.object_name().key(namespace.id);
    let object = call.app.object(&key).await?;
    let object = object.ok_or(ErrorCode::DraftNotFound)?;
    Ok(exact_answer(
        object.bytes,
        &stored_draft.record.sha256,
        "application/json",
    ))
}
