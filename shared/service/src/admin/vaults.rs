//! `GET /admin/vaults` and `GET /admin/vaults/{slug}`: list the vaults of an account, and show the
//! state of one vault. This module also signs out everybody from a vault.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{
    ConfirmedVault, Counts, CurrentRelease, DraftCounts, EarlierPin, Pin, Pinned, Quota, SignedOut,
    Usage, Vault, VaultSummary,
};
use vault_format::name::Slug;
use vault_store::StoreError;

use super::call::{Answer, Call, Items, trim_page};
use crate::app::App;
use crate::bearer::Bearer;
use crate::config::quota;
use crate::drafts;
use crate::error::{ErrorCode, Refusal};
use crate::hosting::provisioning;
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::draft::{self, Kind as DraftKind, State};
use crate::model::namespace::{self, Namespace, Pinned as NamespacePin, Queue, Status};
use crate::model::places::PlaceKind;
use crate::model::provisioning::next_step;
use crate::model::user::{self, MEMBERSHIPS, Membership, User};
use crate::model::{account, places, release, usage};
use crate::transaction::Transaction;

/// Lists all vaults that the account is a member of, whatever vault the token is for.
pub(super) async fn list_vaults(call: Call<Bearer>) -> Answer {
    let page = call.page_params()?;
    let records = &call.app.records;
    let after = page.after.map(|slug| format!("{MEMBERSHIPS}{slug}"));
    let page_records = records
        .list_page(
            &account::account_partition(call.caller.account()),
            MEMBERSHIPS,
            after.as_deref(),
            page.limit + 1,
        )
        .await?;
    let (page_records, next) = trim_page(page_records, page.limit);
    let mut items = Vec::new();
    // Two keys per membership, so half as many memberships fit into one read.
    for some in page_records.chunks(vault_store::records::MAX_KEYS / 2) {
        let members = some
            .iter()
            .map(vault_store::records::Record::read)
            .collect::<Result<Vec<Membership>, _>>()?;
        let keys: Vec<_> = members
            .iter()
            .flat_map(|member| {
                let home = &member.namespace;
                [
                    namespace::namespace_key(&home.slug),
                    user::user_key(&home.id, &member.user_id),
                ]
            })
            .collect();
        let read = records.get_many(&keys).await?;
        for (member, pair) in members.iter().zip(read.chunks(2)) {
            // An entry whose vault or user is gone gives access to nothing.
            let [Some(space), Some(user)] = pair else {
                continue;
            };
            let (space, user): (Namespace, User) = (space.read()?, user.read()?);
            if space.id == member.namespace.id && space.status != Status::Deleted {
                let (pin, current) = (space.pin.vault_pin(), space.current.as_ref());
                items.push(VaultSummary {
                    user_id: Some(user.id),
                    email: Some(user.email),
                    role: user.role,
                    kind: space.kind,
                    release: current.map(|current| current.release),
                    subscription: space.subscription.state_at(call.app.clock.now()),
                    vault_id: pin.map(|pin| pin.vault_id),
                    fingerprint: pin.and(current).and_then(|current| current.fingerprint),
                    root_version: pin.map(|pin| pin.root_version),
                    slug: space.slug,
                });
            }
        }
    }
    let next = next.map(|key| key[MEMBERSHIPS.len()..].to_owned());
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Counts the pending drafts of a vault by kind, among the first 1,000 that are open.
pub(crate) async fn count_drafts(app: &App, namespace: &Namespace) -> Result<DraftCounts, Refusal> {
    let partition = draft::drafts_partition(&namespace.id);
    let records = &app.records;
    // One list only: above a thousand drafts, the exact number is not worth more reads.
    let open = records
        .list_page(&partition, "", None, vault_store::records::MAX_PAGE)
        .await?;
    let drafts = open
        .iter()
        .map(vault_store::records::Record::read)
        .collect::<Result<_, _>>()?;
    let mut counted = DraftCounts::default();
    for draft in drafts::resolve_states(app, namespace, drafts).await? {
        if draft.state != State::Pending {
            continue;
        }
        match draft.kind() {
            DraftKind::Propose | DraftKind::Install | DraftKind::Remove => counted.pending += 1,
            DraftKind::Release => counted.proposals += 1,
            DraftKind::KeyRequest => counted.key_requests += 1,
        }
    }
    Ok(counted)
}

/// Answers with the state of the vault in the path, for its owners and publishers.
pub(super) async fn show_vault(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let vault = to_api_vault(&call.app, namespace).await?;
    Ok(json_answer(StatusCode::OK, &vault))
}

/// Converts a namespace to its form in the API for owners, publishers and operators.
pub(super) async fn to_api_vault(app: &App, namespace: Namespace) -> Result<Vault, Refusal> {
    let records = &app.records;
    let queue: Queue = match records
        .get_one(&namespace::device_queue_key(&namespace.slug))
        .await?
    {
        Some(record) => record.read()?,
        None => Queue::default(),
    };
    let kept = records
        .list_page(
            &release::releases_partition(&namespace.id),
            "",
            None,
            vault_store::records::MAX_PAGE,
        )
        .await?;
    let drafts = count_drafts(app, &namespace).await?;
    let steps = provisioning::namespace_steps(app, &namespace).await?;
    let current = namespace.current.as_ref();
    let pin = match &namespace.pin {
        NamespacePin::Nothing => None,
        NamespacePin::Vault(pin) => Some(Pinned::Vault(Pin {
            vault_id: pin.vault_id,
            fingerprint: current.and_then(|current| current.fingerprint),
            root_version: pin.root_version,
            root_sha256: pin.root_sha256,
        })),
        NamespacePin::Earlier(_) => Some(Pinned::Earlier(EarlierPin { earlier: true })),
    };
    let now = app.clock.now();
    let quota = to_api_quota(&app.quota_of(&namespace));
    let usage = to_api_usage(app, &namespace).await?;
    Ok(Vault {
        pin,
        pin_reset: namespace.shown_reset(now).cloned(),
        last_push: current.map(|current| current.published_at),
        quota,
        usage,
        counts: Counts {
            skills: current.map_or(0, |current| current.skills),
            releases: kept.len() as u64,
            devices_pending: queue.pending,
        },
        release: namespace.current.map(|current| CurrentRelease {
            release: current.release,
            sha256: current.sha256,
            payload_sha256: current.payload_sha256,
            size: current.size,
            published_at: current.published_at,
        }),
        drafts,
        next_step: next_step(&steps),
        provisioning: steps,
        slug: namespace.slug,
        namespace_id: namespace.id,
        kind: namespace.kind,
        status: namespace.status,
        subscription: namespace.subscription.state_at(now),
        grace_ends_at: namespace.subscription.grace_ends_at(now),
        enrolment: namespace.enrolment,
        owner: namespace.owner,
        created_at: namespace.created_at,
    })
}

/// Converts a quota to its form in the API: a limit of 0, which means no limit, becomes `None`.
fn to_api_quota(quota: &quota::Quota) -> Quota {
    let limit = |limit| (limit > 0).then_some(limit);
    Quota {
        bytes: limit(quota.bytes),
        objects: limit(quota.objects),
        machines: limit(quota.machines),
        people: limit(quota.people),
        drafts: limit(quota.drafts),
    }
}

async fn to_api_usage(app: &App, namespace: &Namespace) -> Result<Usage, StoreError> {
    let (usage, _) = usage::Usage::find(app, &namespace.id).await?;
    let (stored, unnamed) = (usage.tally.stored, usage.tally.unnamed);
    let (quota, home) = (app.quota_of(namespace), namespace.to_ref());
    let count_limited = async |place: PlaceKind| match quota.limit_of(place.quota()) {
        // Without a limit, the number is not worth the reads.
        0 => Ok(None),
        _ => places::count_places(app, &home, place).await.map(Some),
    };
    Ok(Usage {
        bytes: stored.bytes,
        objects: stored.objects,
        unnamed_bytes: unnamed.bytes,
        unnamed_objects: unnamed.objects,
        machines: match count_limited(PlaceKind::Machines).await? {
            Some(machines) => Some(machines),
            None => places::admitted_machines(app, &namespace.slug).await?,
        },
        people: count_limited(PlaceKind::People).await?,
        drafts: count_limited(PlaceKind::Drafts).await?,
    })
}

/// Makes every token for the caller's namespace invalid, including the caller's own. The body must
/// repeat the vault's name.
pub(super) async fn sign_out_vault(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    if call.json_body::<ConfirmedVault>().await?.slug != namespace.slug.as_str() {
        return Err(ErrorCode::ConfirmationMismatch.into());
    }
    let log = |tx: &Transaction<'_>, change| call.write_audit(tx, "vault.sign-out", change);
    raise_epoch(&call.app, &namespace.slug, log).await
}

/// Makes every token for a namespace invalid with one write; `log` adds the audit records.
pub(super) async fn raise_epoch(
    app: &App,
    slug: &Slug,
    log: impl Fn(&Transaction<'_>, Change) -> Result<(), Refusal>,
) -> Answer {
    let raise = async |tx: Transaction<'_>| {
        let namespace_and_revision = namespace::find_namespace(&tx, slug).await?;
        let (mut namespace, revision) = namespace_and_revision.ok_or(ErrorCode::NotFound)?;
        // Tokens carry the epoch of their namespace, so a new one ends them all without finding
        // them.
        let before = namespace.epoch;
        namespace.epoch = before.wrapping_add(1);
        let change = Change::about(&slug)
            .with_before(json!(before))
            .with_after(json!(namespace.epoch));
        tx.write(namespace.update_write(revision)?);
        log(&tx, change)?;
        Ok::<_, Refusal>(namespace.epoch)
    };
    let epoch = app.change(raise).await?;
    Ok(json_answer(StatusCode::OK, &SignedOut { epoch }))
}
