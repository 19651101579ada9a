//! Accepts a draft on a server that holds the vault's key: signs the change that the draft asks
//! for, publishes it, and records the acceptance.
//!
//! The three steps cannot be one commit. So the draft is claimed first, for a minute, in which it
//! cannot be withdrawn or declined. If a step fails, accepting the draft again continues from
//! there, and what is already signed is not signed twice.

use vault_format::draft::{Draft, DraftContext, Request};
use vault_format::hash::Digest;
use vault_gate::RawFile;
use vault_shelf::{Change, Entry, Shelf, ShelfError, Submitted};
use vault_store::StoreError;

use super::find_visible;
use super::step::{blocked_refusal, end_draft_in, is_being_admitted, new_ending, state_refusal};
use crate::admin::principal::Principal;
use crate::app::{Accepted, Shelves};
use crate::drafts::FoundDraft;
use crate::error::{ErrorCode, Refusal};
use crate::model::draft::{DraftRecord, State};
use crate::shelf::{has_same_files, shelf_refusal};
use crate::transaction::Transaction;

/// Duration of a claim, in seconds. Longer than a request may take, including its work on other
/// threads.
const CLAIM_SECONDS: i64 = 60;
const BUSY: &str = "The server is admitting the draft already; ask again in a minute.";

/// The content that the accepting owner has seen. It must match the draft, so that nothing unseen
/// is signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReviewedContent {
    /// SHA-256 over the files ([`vault_format::bundle::files_sha256`]); for a draft that removes a
    /// skill, SHA-256 of the draft.
    pub(crate) content: Digest,
    /// Current bundle of the skill, confirmed by the owner, if it differs from the one that the
    /// author saw.
    pub(crate) base: Option<Digest>,
}

/// Signs and publishes the change of a pending draft and marks the draft as accepted. A draft that
/// was accepted before is returned unchanged.
pub(super) async fn admit_found_draft(
    by: &Principal<'_>,
    found: FoundDraft,
    seen: ReviewedContent,
) -> Result<DraftRecord, Refusal> {
    if found.record.state == State::Accepted {
        return Ok(found.record);
    }
    let shelves = by.app.shelves.clone().ok_or(ErrorCode::LibraryElsewhere)?;
    let id = found.record.id.to_string();
    // Read before the claim: a draft whose bytes are missing would otherwise stay claimed for a
    // minute.
    let draft = load_draft(by, &found.record).await?;
    if let Some(accepted) = claim_draft(by, &id).await? {
        return Ok(accepted);
    }
    let signed = sign_change(by, &*shelves, &draft, &found.record, seen).await;
    let release = match signed {
        Ok(()) => shelves
            .publish(by.app, by.namespace)
            .await
            .map_err(shelf_refusal),
        Err(refusal) => Err(refusal),
    };
    let release = match release {
        Ok(release) => release,
        // After a failure the draft must be open at once to a decline or another try.
        Err(refusal) => {
            release_claim(by, &id).await?;
            return Err(refusal);
        }
    };
    let ending = new_ending(by, State::Accepted, release, None);
    // Signing took seconds, in which the claim may have run out and another owner may have decided;
    // so the state is read again.
    let accept = async |tx: Transaction<'_>| {
        let draft_now = find_visible(by, &id).await?;
        match draft_now.record.state {
            State::Pending => Ok(end_draft_in(&tx, by, &draft_now, &ending, "draft.accept")?),
            State::Accepted => Ok(draft_now.record),
            _ => Err(state_refusal(&draft_now.record, None)),
        }
    };
    by.app.change(accept).await
}

/// Reads a draft's bytes from the object store and parses them. Fails if they are missing or belong
/// to another vault.
pub(crate) async fn load_draft(by: &Principal<'_>, record: &DraftRecord) -> Result<Draft, Refusal> {
    let namespace = by.namespace;
    let key = record.object_name().key(namespace.id);
    let object = by.app.object(&key).await?.ok_or_else(|| {
        StoreError::unavailable("the bytes of a draft are missing from the object store")
    })?;
    let pinned = namespace.pin.vault_pin().map(|pin| pin.vault_id);
    let parse = |vault_id| {
        let slug = &namespace.slug;
        Draft::parse(&object.bytes, &DraftContext { slug, vault_id })
    };
    // The draft may have been made before the first release, when the vault had no id yet.
    let draft = parse(pinned.as_ref()).or_else(|_| parse(None));
    draft.map_err(|error| Refusal::new(ErrorCode::DraftBase).cause(error))
}

/// Claims the draft for this request; returns the draft if it was accepted in the meantime.
async fn claim_draft(by: &Principal<'_>, id: &str) -> Result<Option<DraftRecord>, Refusal> {
    let claim = async |tx: Transaction<'_>| {
        let stored_draft = find_visible(by, id).await?;
        match stored_draft.record.state {
            State::Pending if is_being_admitted(by, &stored_draft.record) => {
                Err(state_refusal(&stored_draft.record, Some(BUSY)))
            }
            State::Pending => {
                let until = tx.now().plus_seconds(CLAIM_SECONDS);
                let set = |draft: &mut DraftRecord| draft.admitting_until = Some(until);
                tx.write_all(stored_draft.update_write(by.namespace, set)?);
                Ok(None)
            }
            State::Accepted => Ok(Some(stored_draft.record)),
            _ => Err(state_refusal(&stored_draft.record, None)),
        }
    };
    by.app.change(claim).await
}

/// Ends the claim after a failure, so that the draft can be declined at once.
async fn release_claim(by: &Principal<'_>, id: &str) -> Result<(), Refusal> {
    let stored_draft = find_visible(by, id).await?;
    let freed = stored_draft.update_write(by.namespace, |draft| draft.admitting_until = None)?;
    // A failed commit is harmless: the claim expires by itself.
    by.app.try_commit(Vec::from_iter(freed)).await?;
    Ok(())
}

/// Signs the change that the draft asks for and adds it to the library, the vault's skills on this
/// server. Does nothing if the library already contains the change.
async fn sign_change(
    by: &Principal<'_>,
    shelves: &dyn Shelves,
    draft: &Draft,
    record: &DraftRecord,
    seen: ReviewedContent,
) -> Result<(), Refusal> {
    let shelf = shelves.shelf(by.app, by.namespace, by.actor.source);
    let snapshot = shelf.take_snapshot().await.map_err(shelf_refusal)?;
    let current = snapshot.find(&draft.name);
    if is_signed(&*shelf, draft, current).await? {
        return Ok(());
    }
    check_base(draft, current, seen.base)?;
    let is_removal = draft.request == Request::Remove;
    // A removal has no files to review; the owner reviews the draft, which is identified by its own
    // hash.
    if is_removal && seen.content != record.sha256 {
        return Err(ErrorCode::DraftChanged.into());
    }
    let accepted = Accepted {
        author: &draft.submitted_by,
        actor: by.actor,
        change: to_shelf_change(draft, current.is_some()),
        reviewed: (!is_removal).then_some(seen.content),
    };
    match shelves.sign(by.app, by.namespace, accepted).await {
        Ok(Submitted::Signed { .. } | Submitted::Unchanged { .. } | Submitted::Removed { .. }) => {
            Ok(())
        }
        Ok(Submitted::Refused { findings }) => Err(blocked_refusal(&findings)),
        // The shelf of a server that holds the key signs; another outcome is a mistake in its code.
        Ok(Submitted::Drafted { .. } | Submitted::WouldPass { .. }) => {
            Err(ErrorCode::Internal.into())
        }
        Err(error) => Err(shelf_refusal(error)),
    }
}

/// Whether the library contains the change already, because an earlier call signed it and failed
/// before it could record that.
async fn is_signed(
    shelf: &dyn Shelf,
    draft: &Draft,
    current: Option<&Entry>,
) -> Result<bool, Refusal> {
    match (&draft.request, current) {
        (Request::Remove, None) => Ok(true),
        (Request::Propose { files }, Some(entry)) => match shelf.load_skill(entry).await {
            Ok(loaded) => Ok(has_same_files(&loaded.bundle.files, files)),
            // A damaged or missing skill cannot be compared; it is replaced like any other.
            Err(ShelfError::Damaged(..) | ShelfError::NotFound(_)) => Ok(false),
            Err(error) => Err(shelf_refusal(error)),
        },
        _ => Ok(false),
    }
}

/// Checks that the current skill is the one that the author saw, or the one that the owner has
/// confirmed. Otherwise fails with 409 and the hash of its current bundle.
fn check_base(draft: &Draft, current: Option<&Entry>, seen: Option<Digest>) -> Result<(), Refusal> {
    let current = current.map(|entry| entry.texts.bundle_hash);
    if draft.check_base(current.as_ref()).is_ok() || (seen.is_some() && seen == current) {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::DraftBase).with(|problem| problem.bundle_hash = current))
}

fn to_shelf_change(draft: &Draft, replace: bool) -> Change {
    match &draft.request {
        Request::Propose { files } => Change::Take {
            files: files.iter().cloned().map(RawFile::from).collect(),
            replace,
            check: false,
            hidden: false,
        },
        Request::Install { source } => Change::Fetch {
            source: source.clone(),
            skill: Some(draft.name.clone()),
            agents: Vec::new(),
            hidden: false,
        },
        Request::Remove => Change::Remove(draft.name.clone()),
    }
}
