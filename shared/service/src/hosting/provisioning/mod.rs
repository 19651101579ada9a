//! Set-up of hosted vaults: turns a person's sign-up into a namespace with starter skills.
//!
//! Each step is one commit and can be repeated. An event of the payment provider, a page or
//! background work continues where the last one stopped.

mod allocate;
mod sign_up;

use std::time::Duration;

use tokio::time::{Instant, timeout};
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::name::{DraftId, NamespaceId, Slug};
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::records::{Record, RecordKey, When, Write};

use crate::app::App;
use crate::drafts;
use crate::model::namespace::{self, Namespace, NamespaceRef};
use crate::model::provisioning::{
    Link, NextAction, OPEN, Provisioning, ProvisioningEvent, Reference, SIGN_UPS, Step, link_key,
    open_key, provisioning_key, sign_up_key, slot_keys, steps_by_operator,
};
use crate::model::user::{Membership, membership_key};
use crate::model::{Versioned, account};
use crate::ports::Ports;
use crate::transaction::Transaction;
use crate::{shelf, starter};

pub(crate) use sign_up::{SignUpChoice, rename_sign_up, sign_up};

/// Maximum number of sign-ups of an account that the home page loads and shows.
const MAX_SIGN_UPS: usize = 50;
/// Number of sign-ups that background work reads in one page.
const OPEN_PAGE_SIZE: usize = 100;

/// How far the service could take a sign-up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    AwaitsPayment,
    /// Another vault has the name by now, so the person must choose another name; or the account
    /// was deleted.
    NameTaken,
    /// The store failed in between; background work will continue.
    Interrupted,
    /// The service has taken all its steps. Only the owner's first release may be missing.
    SetUp,
}

/// Returns the set-up steps of a namespace, in the order of the API.
pub async fn namespace_steps(app: &App, namespace: &Namespace) -> Result<Vec<Step>, StoreError> {
    let sign_ups = load_by_namespaces(app, std::slice::from_ref(namespace)).await?;
    let sign_up = sign_ups.first().and_then(Option::as_ref);
    Ok(setup_steps(namespace, sign_up).to_vec())
}

/// Returns the set-up steps of a namespace. `sign_up` is the sign-up that led to the namespace;
/// `None` if an operator created the namespace.
pub(crate) fn setup_steps(namespace: &Namespace, sign_up: Option<&Provisioning>) -> [Step; 5] {
    let synced = namespace.current.is_some();
    match sign_up {
        Some(sign_up) => sign_up.steps(synced),
        None => steps_by_operator(synced),
    }
}

/// Returns the sign-up that led to each of at most 100 namespaces, in the same order; `None` if an
/// operator created the namespace. Takes two reads, however many namespaces there are.
pub(crate) async fn load_by_namespaces(
    app: &App,
    namespaces: &[Namespace],
) -> Result<Vec<Option<Provisioning>>, StoreError> {
    let slugs = namespaces.iter().map(|namespace| link_key(&namespace.slug));
    let keys: Vec<RecordKey> = slugs.collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let links = app.records.get_many(&keys).await?;
    let links = links.into_iter().map(Versioned::<Link>::read);
    let links = links.collect::<Result<Vec<_>, _>>()?;
    let references = links.iter().flatten().map(|link| &link.value.reference);
    let keys: Vec<RecordKey> = references.map(provisioning_key).collect();
    if keys.is_empty() {
        return Ok(vec![None; namespaces.len()]);
    }
    let mut records = app.records.get_many(&keys).await?.into_iter();
    let mut sign_ups = Vec::with_capacity(namespaces.len());
    for (namespace, link) in namespaces.iter().zip(&links) {
        // `records` has one entry for each link and not for each namespace, so only a link takes
        // the next one.
        let record = link.as_ref().and_then(|_| records.next().flatten());
        let sign_up = Versioned::<Provisioning>::read(record)?.map(|seen| seen.value);
        // The link is stored under the slug, which may have had another namespace, so the ids are
        // compared.
        let is_its = |sign_up: &Provisioning| {
            let allocated = sign_up.namespace.as_ref();
            allocated.is_some_and(|allocated| allocated.id == namespace.id)
        };
        sign_ups.push(sign_up.filter(is_its));
    }
    Ok(sign_ups)
}

/// Returns the writes that remove the sign-up of a deleted namespace, and no longer count it
/// against its account. Empty if an operator created the namespace.
pub(crate) async fn removal_writes(
    app: &App,
    slug: &Slug,
    namespace: &NamespaceId,
) -> Result<Vec<Write>, StoreError> {
    let Some(link) = app.get::<Link>(&link_key(slug)).await? else {
        return Ok(Vec::new());
    };
    let reference = link.value.reference;
    let mut writes = vec![
        Write::delete(link_key(slug), When::Any),
        Write::delete(provisioning_key(&reference), When::Any),
        Write::delete(open_key(&reference), When::Any),
    ];
    let Some(sign_up) = find_sign_up(app, &reference).await? else {
        return Ok(writes);
    };
    let sign_up = sign_up.value;
    // The sign-up of another namespace with this slug is not removed.
    if sign_up.namespace.as_ref().map(|its| its.id) != Some(*namespace) {
        return Ok(Vec::new());
    }
    writes.push(Write::delete(
        sign_up_key(&sign_up.account, &reference),
        When::Any,
    ));
    for (key, held) in read_slots(app, &sign_up.account).await? {
        if let Some(held) = held.filter(|held| held.value.reference == reference) {
            writes.push(Write::delete(key, When::At(held.revision)));
        }
    }
    Ok(writes)
}

/// Loads a sign-up with its revision; `None` if no sign-up has this reference.
pub(crate) async fn find_sign_up(
    ports: &Ports,
    reference: &Reference,
) -> Result<Option<Versioned<Provisioning>>, StoreError> {
    ports.get(&provisioning_key(reference)).await
}

/// Loads the sign-ups of an account, oldest first, up to the number that pages show.
pub(crate) async fn load_sign_ups(
    ports: &Ports,
    account: &account::AccountId,
) -> Result<Vec<Provisioning>, StoreError> {
    let partition = account::account_partition(account);
    let listed = ports
        .records
        .list_page(&partition, SIGN_UPS, None, MAX_SIGN_UPS)
        .await?;
    let keys = listed
        .iter()
        .filter_map(|record| Reference::parse(record.key.key.strip_prefix(SIGN_UPS)?))
        .map(|reference| provisioning_key(&reference))
        .collect::<Vec<_>>();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let records = ports.records.get_many(&keys).await?;
    let mut sign_ups = records
        .iter()
        .flatten()
        .map(Record::read)
        .collect::<Result<Vec<Provisioning>, _>>()?;
    // Equal times are ordered by the reference, so that the order never changes.
    sign_ups.sort_by_key(|sign_up| (sign_up.created_at, sign_up.reference.clone()));
    Ok(sign_ups)
}

/// Takes every step of a sign-up that is possible now. Returns `None` if no sign-up has this
/// reference.
pub(crate) async fn advance_sign_up(
    app: &App,
    reference: &Reference,
) -> Result<Option<Progress>, StoreError> {
    // If another process commits a step first, `change` runs the rest again.
    app.change(async |tx| advance_in(&tx, app, reference).await)
        .await
}

/// Takes every step that is possible now, each in a commit of its own.
async fn advance_in(
    tx: &Transaction<'_>,
    app: &App,
    reference: &Reference,
) -> Result<Option<Progress>, StoreError> {
    loop {
        // Read again for each step, because the commit of the last one changed the revision.
        let Some(seen) = find_sign_up(tx, reference).await? else {
            return Ok(None);
        };
        let progress = match seen.value.next_action() {
            NextAction::Wait => Progress::AwaitsPayment,
            NextAction::Nothing => Progress::SetUp,
            NextAction::Allocate if allocate::allocate_namespace(tx, app, &seen).await? => continue,
            NextAction::Allocate => Progress::NameTaken,
            NextAction::Import => {
                import_starters(tx, app, &seen).await?;
                continue;
            }
        };
        return Ok(Some(progress));
    }
}

/// Saves the chosen starter skills as drafts of the new namespace, and then records that this is
/// done. The id of a draft is derived from the sign-up and the skill, so that a repetition saves
/// none twice.
async fn import_starters(
    tx: &Transaction<'_>,
    app: &App,
    seen: &Versioned<Provisioning>,
) -> Result<(), StoreError> {
    let sign_up = &seen.value;
    if let Some(reference) = &sign_up.namespace
        && let Some((namespace, owner)) = find_home(app, sign_up, reference).await?
    {
        for name in &sign_up.starter_skills {
            let id = draft_id(sign_up, name.as_str());
            if drafts::find_draft(app, &namespace, &id).await?.is_some() {
                continue;
            }
            let files = starter::skill_files(name.as_str());
            let saved = shelf::propose_files(app, &namespace, &owner, id, files).await;
            // If two processes save the same draft at once, one of them fails, but the draft
            // exists.
            if let Err(error) = saved
                && drafts::find_draft(app, &namespace, &id).await?.is_none()
            {
                return Err(StoreError::unavailable(format!(
                    "the starter skill `{name}` was not saved as a draft: {error}"
                )));
            }
        }
    }
    // Also recorded if the namespace or its owner is gone: then nothing is left to save.
    let Ok(Some(after)) = sign_up.after_event(ProvisioningEvent::Imported) else {
        return Ok(());
    };
    tx.write(after.to_write(When::At(seen.revision))?);
    tx.write(Write::delete(open_key(&after.reference), When::Any));
    tx.commit_with_limits(0).await?;
    Ok(())
}

/// Returns the namespace of a sign-up, and its owner as the submitter of drafts; `None` if either
/// is gone.
async fn find_home(
    app: &App,
    sign_up: &Provisioning,
    reference: &NamespaceRef,
) -> Result<Option<(Namespace, Submitter)>, StoreError> {
    let namespace_and_revision = namespace::find_namespace(app, &reference.slug).await?;
    let Some((namespace, _)) = namespace_and_revision.filter(|(found, _)| found.id == reference.id)
    else {
        return Ok(None);
    };
    let key = membership_key(&sign_up.account, &reference.slug);
    let membership = app.get::<Membership>(&key).await?;
    Ok(membership.map(|membership| {
        let owner = Submitter {
            user_id: membership.value.user_id,
            client_id: None,
        };
        (namespace, owner)
    }))
}

/// Derives the id of the draft of a starter skill from the sign-up and the skill.
fn draft_id(sign_up: &Provisioning, skill: &str) -> DraftId {
    let hash = Digest::of(format!("vault-starter/1\n{}\n{skill}", sign_up.reference).as_bytes());
    // A draft id is a ULID, whose last ten bytes are its 80 random bits.
    let mut bits = [0; 16];
    bits[6..].copy_from_slice(&hash.as_bytes()[..10]);
    let millis = u64::try_from(sign_up.created_at.unix()).unwrap_or(0) * 1000;
    DraftId::from_parts(millis, u128::from_be_bytes(bits))
}

/// Returns the writes that belong to a confirmed payment: the sign-up no longer expires, background
/// work finds it, and it no longer counts among the account's unpaid sign-ups.
pub(crate) async fn confirmation_writes(
    ports: &Ports,
    sign_up: &Provisioning,
) -> Result<Vec<Write>, StoreError> {
    let mut writes = vec![
        Write::put(
            open_key(&sign_up.reference),
            sign_up.link_document()?,
            When::Any,
        ),
        Write::put(
            sign_up_key(&sign_up.account, &sign_up.reference),
            sign_up.link_document()?,
            When::Any,
        ),
    ];
    for (key, seen) in read_slots(ports, &sign_up.account).await? {
        if let Some(seen) = seen
            && seen.value.reference == sign_up.reference
        {
            writes.push(Write::delete(key, When::At(seen.revision)));
        }
    }
    Ok(writes)
}

/// Loads the slots for the unpaid sign-ups of an account, each with the sign-up in it. Their number
/// bounds how many names an account can hold without paying.
async fn read_slots(
    ports: &Ports,
    account: &account::AccountId,
) -> Result<Vec<(RecordKey, Option<Versioned<Link>>)>, StoreError> {
    let keys = slot_keys(account);
    let records = ports.records.get_many(&keys).await?;
    let read = |(key, record)| Ok((key, Versioned::<Link>::read(record)?));
    keys.into_iter().zip(records).map(read).collect()
}

/// Continues every interrupted sign-up until the time `until`, as background work. Returns how many
/// were completed. A failure of one does not affect the others.
pub(crate) async fn resume_sign_ups(app: &App, until: Instant) -> Result<usize, StoreError> {
    let mut completed = 0;
    let mut after: Option<String> = None;
    loop {
        let page = app
            .records
            .list_page(OPEN, "", after.as_deref(), OPEN_PAGE_SIZE)
            .await?;
        for record in &page {
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return Ok(completed);
            }
            let Some(reference) = Reference::parse(&record.key.key) else {
                continue;
            };
            // A step that is cancelled here can be repeated from any point.
            match timeout(left, advance_sign_up(app, &reference)).await {
                Ok(Ok(Some(Progress::SetUp))) => completed += 1,
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "a vault that was signed up for is not set up yet");
                }
                Err(_) => return Ok(completed),
            }
        }
        match page.last() {
            Some(last) if page.len() == OPEN_PAGE_SIZE => after = Some(last.key.key.clone()),
            _ => return Ok(completed),
        }
    }
}
