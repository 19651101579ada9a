//! `/admin/operator/namespaces`: creates namespaces, shows, suspends and signs them out, and sets
//! their subscription and quota. Only for accounts with `operator: true`.

use axum::http::StatusCode;
use serde_json::{Value, json};
use vault_api::{CreatedNamespace, NewNamespace, QuotaChange, QuotaLimit};
use vault_format::name::Slug;
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::records::{When, Write};

use super::accounts::{refuse_during_deletion, spend_permit_for_takeover};
use super::call::{Answer, Items, OperatorCall, trim_page};
use super::vaults;
use crate::app::App;
use crate::config::quota::MAX_LIMIT;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::account::{self, Email, PreparedAccount};
use crate::model::audit::Change;
use crate::model::namespace::{
    self, DIRECTORY, Kind, Namespace, NamespaceEntry, Status, Subscription,
};
use crate::model::permit::Act;
use crate::model::provisioning::reservation_key;
use crate::model::user::{Role, Scopes, User};
use crate::transaction::Transaction;
use crate::{notices, uploads};

/// Lists all namespaces, including deleted ones, because their slugs stay taken.
pub(super) async fn list_namespaces(call: OperatorCall) -> Answer {
    let page = call.page_params()?;
    let records = &call.app.records;
    let page_records = records
        .list_page(DIRECTORY, "", page.after.as_deref(), page.limit + 1)
        .await?;
    let (page_records, next) = trim_page(page_records, page.limit);
    let mut keys = Vec::new();
    for record in &page_records {
        let directory_entry: NamespaceEntry = record.read()?;
        keys.push(namespace::namespace_key(&directory_entry.slug));
    }
    let mut items = Vec::new();
    if !keys.is_empty() {
        for record in records.get_many(&keys).await?.into_iter().flatten() {
            let namespace: Namespace = record.read()?;
            items.push(vault_api::Namespace {
                slug: namespace.slug,
                namespace_id: namespace.id,
                kind: namespace.kind,
                status: namespace.status,
                subscription: namespace.subscription.state_at(call.app.clock.now()),
                owner: namespace.owner,
                release: namespace.current.map(|current| current.release),
            });
        }
    }
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Allocates a hosted namespace for the account with this e-mail address, which is created if it
/// does not exist.
pub(super) async fn create_namespace(call: OperatorCall) -> Answer {
    let new_namespace: NewNamespace = call.json_body().await?;
    let slug: Slug = new_namespace.slug.parse_or(ErrorCode::SlugInvalid)?;
    // A slug that is kept for routes and well-known hosts must not belong to a tenant.
    if slug.is_reserved() {
        return Err(ErrorCode::SlugReserved.into());
    }
    let owner: Email = new_namespace.owner.parse_or(ErrorCode::EmailInvalid)?;
    let act = Act::ResetAccount {
        email: owner.clone(),
    };
    let create = async |tx: Transaction<'_>| {
        let issuer = call.app.config.public_url.base();
        let invited = account::prepare_invitation(&tx, &owner, issuer, tx.now()).await?;
        // Checked first, so that the operator is not asked to confirm a request that fails
        // afterwards.
        if invited.existed && namespace::find_namespace(&tx, &slug).await?.is_some() {
            return Err(ErrorCode::SlugTaken.into());
        }
        refuse_during_deletion(&invited.account)?;
        spend_permit_for_takeover(&tx, &call, &invited, &act).await?;
        allocate_namespace(&tx, &call, &slug, invited).await
    };
    let outcome = call.app.change(create).await;
    let created = call.confirm_outcome(&act, outcome).await?;
    Ok(json_answer(StatusCode::CREATED, &created))
}

async fn allocate_namespace(
    tx: &Transaction<'_>,
    call: &OperatorCall,
    slug: &Slug,
    invited: PreparedAccount,
) -> Result<CreatedNamespace, Refusal> {
    let owner = &invited.account.email;
    let namespace = Namespace::new(slug.clone(), Kind::Hosted, owner.to_string(), tx);
    let account = &invited.account;
    let user = User::new_active(account, namespace.to_ref(), Role::Owner, Scopes::ALL, tx);
    // A slug is reserved while a customer is paying for it.
    let reservation = reservation_key(slug);
    if tx.records.get_one(&reservation).await?.is_some() {
        return Err(ErrorCode::SlugTaken.into());
    }
    // Only a failure of the writes that claim the slug is reported as a taken name. A reservation
    // made since the read above is a conflict: the retry then reads it.
    let names = namespace.allocation_writes()?;
    let conditional_count = names.len();
    tx.write_all(names);
    tx.write(Write::check(reservation, When::Absent));
    tx.write_all(user.creation_writes()?);
    tx.write_all(invited.writes);
    let change =
        Change::about(&slug).with_after(json!({ "namespace_id": namespace.id, "owner": owner }));
    call.write_audits(tx, "namespace.create", &change, &[namespace.id])?;
    if tx.commit_with_limits(conditional_count).await?.is_some() {
        return Err(ErrorCode::SlugTaken.into());
    }
    Ok(CreatedNamespace {
        slug: slug.clone(),
        namespace_id: namespace.id,
        owner: owner.clone(),
        invite_url: invited.url,
    })
}

/// Answers with the namespace in the form that its owner gets at `/admin/vaults/{slug}`.
pub(super) async fn show_namespace(call: OperatorCall) -> Answer {
    let slug: Slug = call
        .param("slug")
        .parse()
        .map_err(|_| ErrorCode::NotFound)?;
    let (namespace, _) = namespace::find_namespace(&call.app, &slug)
        .await?
        .ok_or(ErrorCode::NotFound)?;
    let vault = vaults::to_api_vault(&call.app, namespace).await?;
    Ok(json_answer(StatusCode::OK, &vault))
}

/// Suspends a namespace: every route answers `vault_suspended` to everybody except operators.
pub(super) async fn suspend_namespace(call: OperatorCall) -> Answer {
    set_status(call, "namespace.suspend", Status::Suspended).await
}

pub(super) async fn resume_namespace(call: OperatorCall) -> Answer {
    set_status(call, "namespace.resume", Status::Active).await
}

/// Marks the subscription as lapsed: bundles are withheld until the vault is paid for again, but
/// the catalog is still served.
pub(super) async fn lapse_subscription(call: OperatorCall) -> Answer {
    set_subscription(call, "namespace.lapse", Subscription::Lapsed).await
}

pub(super) async fn renew_subscription(call: OperatorCall) -> Answer {
    set_subscription(call, "namespace.renew", Subscription::Active).await
}

/// Changes the quota of a hosted namespace. Content above a lower limit stays.
pub(super) async fn set_quota(call: OperatorCall) -> Answer {
    let wanted: QuotaChange = call.json_body().await?;
    let is_too_large = |limit| matches!(limit, Some(QuotaLimit::Most(limit)) if limit > MAX_LIMIT);
    let limits = [
        wanted.bytes,
        wanted.objects,
        wanted.machines,
        wanted.people,
        wanted.drafts,
    ];
    if limits.into_iter().any(is_too_large) {
        return Err(Refusal::new(ErrorCode::ParameterInvalid).detail(format!(
            "A limit must be at most {MAX_LIMIT}; 0 is no limit."
        )));
    }
    let slug: Slug = call
        .param("slug")
        .parse()
        .map_err(|_| ErrorCode::NotFound)?;
    let found = namespace::find_namespace(&call.app, &slug).await?;
    let (namespace, _) = found.ok_or(ErrorCode::NotFound)?;
    // A namespace that its own server signs belongs to the operator of that server, and has no
    // quota.
    if namespace.kind == Kind::SelfSigned {
        return Err(Refusal::new(ErrorCode::NamespaceSelfSigned)
            .detail("The vault that a server signs itself has no quota."));
    }
    let change = |namespace: &mut Namespace| {
        let before = json!(namespace.quota);
        change_limit(&mut namespace.quota.bytes, wanted.bytes);
        change_limit(&mut namespace.quota.objects, wanted.objects);
        change_limit(&mut namespace.quota.machines, wanted.machines);
        change_limit(&mut namespace.quota.people, wanted.people);
        change_limit(&mut namespace.quota.drafts, wanted.drafts);
        (before, json!(namespace.quota))
    };
    let app = call.app.clone();
    let answer = change_namespace(call, "namespace.quota", change).await?;
    if let Err(error) = warn_owners(&app, &slug).await {
        // The quota is set. The next visit of the garbage collection warns.
        tracing::warn!(
            %slug,
            error = error_chain(&error),
            "owners are not warned about their quota before the next garbage collection"
        );
    }
    Ok(answer)
}

/// Warns the owners of a namespace whose quota has changed where 80 % of it is used.
async fn warn_owners(app: &App, slug: &Slug) -> Result<(), StoreError> {
    if let Some((changed, _)) = namespace::find_namespace(app, slug).await? {
        uploads::change_usage(app, &changed, |_| ()).await?;
        notices::warn_of_changed_limits(app, &changed).await?;
    }
    Ok(())
}

fn change_limit(limit: &mut Option<u64>, wanted: Option<QuotaLimit>) {
    match wanted {
        Some(QuotaLimit::Most(most)) => *limit = Some(most),
        Some(QuotaLimit::Plan(_)) => *limit = None,
        None => {}
    }
}

async fn set_status(call: OperatorCall, name: &str, status: Status) -> Answer {
    let change = |namespace: &mut Namespace| {
        let before = json!({ "status": namespace.status });
        namespace.status = status;
        (before, json!({ "status": status }))
    };
    change_namespace(call, name, change).await
}

async fn set_subscription(call: OperatorCall, name: &str, subscription: Subscription) -> Answer {
    let change = |namespace: &mut Namespace| {
        let before = json!({ "subscription": namespace.subscription });
        namespace.subscription = subscription;
        (before, json!({ "subscription": subscription }))
    };
    change_namespace(call, name, change).await
}

/// Changes a namespace with a function that returns the state before and after. A change that makes
/// no difference writes nothing. The log of the namespace gets an entry too, so that its owner can
/// read what an operator did.
async fn change_namespace(
    call: OperatorCall,
    name: &str,
    change: impl Fn(&mut Namespace) -> (Value, Value),
) -> Answer {
    let slug: Slug = call
        .param("slug")
        .parse()
        .map_err(|_| ErrorCode::NotFound)?;
    let set = async |tx: Transaction<'_>| {
        let namespace_and_revision = namespace::find_namespace(&tx, &slug).await?;
        let (mut namespace, revision) = namespace_and_revision.ok_or(ErrorCode::NotFound)?;
        let (before, after) = change(&mut namespace);
        if before != after {
            let change = Change::about(&slug).with_before(before).with_after(after);
            tx.write(namespace.update_write(revision)?);
            call.write_audits(&tx, name, &change, &[namespace.id])?;
        }
        Ok::<_, Refusal>(namespace)
    };
    let namespace = call.app.change(set).await?;
    let vault = vaults::to_api_vault(&call.app, namespace).await?;
    Ok(json_answer(StatusCode::OK, &vault))
}

/// Makes every token for a namespace invalid.
pub(super) async fn sign_out_namespace(call: OperatorCall) -> Answer {
    let slug: Slug = call
        .param("slug")
        .parse()
        .map_err(|_| ErrorCode::NotFound)?;
    let namespace_and_revision = namespace::find_namespace(&call.app, &slug).await?;
    let (namespace, _) = namespace_and_revision.ok_or(ErrorCode::NotFound)?;
    let log = |tx: &Transaction<'_>, change| {
        call.write_audits(tx, "namespace.sign-out", &change, &[namespace.id])
    };
    vaults::raise_epoch(&call.app, &slug, log).await
}
