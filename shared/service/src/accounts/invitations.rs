//! Invitations to namespaces: how the invited person sees and answers them.

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use vault_format::name::Slug;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record};

use super::guard::{FormTask, SignedInForm};
use super::session::redirect_to;
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::Account;
use crate::model::audit::{Actor, Change};
use crate::model::membership::{invitation_key, invitations_partition};
use crate::model::namespace::{self, Namespace, Status};
use crate::model::user::{Membership, User, user_key};
use crate::transaction::Transaction;
use crate::web::browser::ReturnTo;
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{format_day, role_name};

/// An invitation that waits for an answer, as a page shows it.
pub struct Invitation {
    /// Slug of the vault that the person is invited to.
    pub slug: String,
    /// E-mail address of the owner who sent the invitation; `None` if an earlier version of vault
    /// did not store it.
    pub inviter: Option<String>,
    /// Role in the vault that the person gets by accepting, as a word for the page.
    pub role: &'static str,
    /// Day on which the invitation ends, formatted for the page.
    pub ends: String,
}

/// Maximum number of invitations that a page shows. Once the person answers one, the page shows the
/// next.
const MAX_SHOWN: usize = 20;
/// Number of entries per read. Each entry needs two more keys in one batch: its user and its
/// namespace.
const ENTRIES_PER_READ: usize = MAX_KEYS / 2;
/// Maximum number of entries read to find answerable ones; invitations to suspended vaults are
/// skipped.
const MAX_READ: usize = 1000;

/// Loads the invitations to an account's e-mail address that can be answered now: all of them, or
/// the one to the namespace with the slug `fixed`.
pub async fn load_invitations(
    app: &App,
    account: &Account,
    fixed: Option<&str>,
) -> Result<Vec<Invitation>, StoreError> {
    if let Some(fixed) = fixed {
        let Ok(slug) = fixed.parse::<Slug>() else {
            return Ok(Vec::new());
        };
        let entry = app
            .records
            .get_one(&invitation_key(&account.email, &slug))
            .await?;
        let entries: Vec<Record> = entry.into_iter().collect();
        return filter_answerable(app, account, &entries).await;
    }
    let partition = invitations_partition(&account.email);
    let (mut invitations, mut after) = (Vec::new(), None::<String>);
    for _ in 0..MAX_READ / ENTRIES_PER_READ {
        let page = app
            .records
            .list_page(&partition, "", after.as_deref(), ENTRIES_PER_READ);
        let page = page.await?;
        invitations.extend(filter_answerable(app, account, &page).await?);
        if invitations.len() >= MAX_SHOWN || page.len() < ENTRIES_PER_READ {
            break;
        }
        after = page.last().map(|record| record.key.key.clone());
    }
    invitations.truncate(MAX_SHOWN);
    Ok(invitations)
}

/// Filters `entries` for the invitations that the account may answer now.
async fn filter_answerable(
    app: &App,
    account: &Account,
    entries: &[Record],
) -> Result<Vec<Invitation>, StoreError> {
    let entries: Vec<Membership> = entries.iter().map(Record::read).collect::<Result<_, _>>()?;
    let keys: Vec<_> = entries
        .iter()
        .flat_map(|entry| {
            let home = &entry.namespace;
            [
                user_key(&home.id, &entry.user_id),
                namespace::namespace_key(&home.slug),
            ]
        })
        .collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let loaded_records = app.records.get_many(&keys).await?;
    let (mut invitations, now) = (Vec::new(), app.clock.now());
    for pair in loaded_records.chunks_exact(2) {
        let [Some(user), Some(home)] = pair else {
            continue;
        };
        let (user, home): (User, Namespace) = (user.read()?, home.read()?);
        // The slug may belong to another namespace since the invitation was made; the id tells.
        let serves = home.id == user.namespace.id && home.status == Status::Active;
        let Some(ends_at) = user.invitation_ends_at().filter(|_| serves) else {
            continue;
        };
        if user.answerable_by(account, now).is_ok() {
            invitations.push(Invitation {
                slug: home.slug.to_string(),
                inviter: user.invited_by.as_ref().map(ToString::to_string),
                role: role_name(user.role),
                ends: format_day(ends_at),
            });
        }
    }
    Ok(invitations)
}

/// The form that answers an invitation. It stands on the account page, and on the page that an
/// authorize request shows to an invited person without a vault.
pub const ANSWER: FormTask = FormTask {
    purpose: Purpose::Account,
    onward: |app, form| ReturnTo::from_form(app, form),
    action: "membership.answer",
};

/// `POST /account/invitations`: accepts or declines an invitation.
pub async fn answer_invitation(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let form = &request.form;
    let slug = form.value("namespace").and_then(|slug| slug.parse().ok());
    let slug: Slug = slug.ok_or(ErrorPage::FormMalformed)?;
    let accepts = match form.value("decision") {
        Some("accept") => true,
        Some("decline") => false,
        _ => return Err(ErrorPage::FormMalformed),
    };
    // If the invitation ended meanwhile, nothing changes, and the page that follows no longer shows
    // it.
    let answer = async |tx| answer_in(&tx, &request, &slug, accepts).await;
    app.change(answer).await?;
    let address = ReturnTo::from_form(app, form)?.address(app);
    Ok(redirect_to(StatusCode::SEE_OTHER, &address))
}

async fn answer_in(
    tx: &Transaction<'_>,
    request: &SignedInForm,
    slug: &Slug,
    accepts: bool,
) -> Result<(), StoreError> {
    let account = &request.signed_in.account;
    let keys = [
        invitation_key(&account.email, slug),
        namespace::namespace_key(slug),
    ];
    let [entry, home] = tx.get_all(keys).await?;
    let (Some(entry), Some(home)) = (
        Versioned::<Membership>::read(entry)?,
        Versioned::<Namespace>::read(home)?,
    ) else {
        return Ok(());
    };
    let invited_namespace = &entry.value.namespace;
    // The slug may belong to another namespace by now, for which the invitation is not valid.
    if invited_namespace.id != home.value.id {
        return Ok(());
    }
    let key = user_key(&invited_namespace.id, &entry.value.user_id);
    let Some(user) = tx.get::<User>(&key).await? else {
        return Ok(());
    };
    // Declining needs the same check: it proves that the invitation is for this account's address
    // and still open.
    let Ok(joined) = user.value.accepted_by(account, tx.now()) else {
        return Ok(());
    };
    if accepts {
        tx.write_all(user.value.acceptance_writes(user.revision, &joined)?);
        audit_membership(tx, request, &user.value, Some(&joined), "membership.accept")
    } else {
        tx.write_all(user.value.removal_writes(user.revision));
        audit_membership(tx, request, &user.value, None, "membership.decline")
    }
}

/// Adds the audit entry about what a person did with their own membership; `after` is `None` when
/// it ended.
pub fn audit_membership(
    tx: &Transaction<'_>,
    request: &SignedInForm,
    user: &User,
    after: Option<&User>,
    action: &str,
) -> Result<(), StoreError> {
    let describe_user = |user: &User| json!({ "email": user.email, "state": user.state(), "role": user.role, "scopes": user.scopes });
    let actor = Actor {
        user: user.id.clone(),
        client: None,
        source: request.source,
    };
    let change = Change::about(&user.id)
        .with_before(describe_user(user))
        .with_after(after.map(describe_user));
    tx.audit(Some(&user.namespace.id), &actor, action, change)
}
