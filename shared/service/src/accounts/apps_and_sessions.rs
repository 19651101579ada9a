//! What an account has signed in: apps and browsers, as the account page lists and ends them.

use std::cmp::Reverse;

use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use serde_json::json;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, MAX_PAGE, Record, When, Write};

use super::audit;
use super::guard::{SignedInForm, Task, on_account_page};
use super::session::{SignedInWith, new_session, redirect};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{
    Account, AccountId, ServiceEpoch, account_key, partition, service_epoch_key,
};
use crate::model::audit::{Actor, Change};
use crate::model::grant::{
    ALLOWED, Allowed, Grant, REFRESH_SECONDS, Why, allowed_key, grant_key, id_in_list,
};
use crate::model::session::{Begun, SESSIONS, Session, listed_session_key, session_key};
use crate::model::standing::{self, Standing};
use crate::transaction::Transaction;
use crate::web::browser::{Browser, Onward};
use crate::web::error_page::ErrorPage;
use crate::web::layout::{day, minute};

/// Most apps and most browsers that the page shows, the newest ones.
const MOST_SHOWN: usize = 50;
/// Most entries of the list that are read in search of them: an app that was ended by an owner or
/// with everything else keeps its entry.
const MOST_READ: usize = 2000;

/// What a list of the page shows.
pub struct Shown<T> {
    /// The newest.
    pub items: Vec<T>,
    /// Whether there are, or may be, more.
    pub more: bool,
}

/// An app that has access.
pub struct ShownGrant {
    /// The name of the grant in the list of the account.
    pub grant: String,
    /// What the app calls itself.
    pub name: Option<String>,
    /// The vault that it has access to; `None` for one that acts for an operator.
    pub slug: Option<String>,
    /// What it may do there.
    pub scopes: String,
    /// The day of the consent.
    pub allowed: String,
    /// The day on which it was given tokens the last time.
    pub used: String,
}

/// A signed-in browser.
pub struct ShownSession {
    /// The hash by which it is stored.
    pub id: String,
    /// Whether it is the browser that asks.
    pub this: bool,
    /// When it signed in.
    pub since: String,
    /// The network that it came from.
    pub from: String,
}

/// The apps that have access in the name of the account, the newest first: those with a token that
/// a request could use now, or a refresh token that could get one.
pub async fn apps(app: &App, account: &Account) -> Result<Shown<ShownGrant>, StoreError> {
    let partition = partition(&account.id);
    let (mut items, mut after) = (Vec::new(), None::<String>);
    for _ in 0..MOST_READ / MAX_KEYS {
        let page = app
            .records
            .list(&partition, ALLOWED, after.as_deref(), MAX_KEYS);
        let page = page.await?;
        items.extend(alive(app, &page).await?);
        let whole = page.len() < MAX_KEYS;
        if items.len() > MOST_SHOWN || whole {
            let more = items.len() > MOST_SHOWN;
            items.truncate(MOST_SHOWN);
            return Ok(Shown { items, more });
        }
        after = page.last().map(|record| record.key.key.clone());
    }
    Ok(Shown { items, more: true })
}

/// Those of some entries whose grant still gives access.
async fn alive(app: &App, page: &[Record]) -> Result<Vec<ShownGrant>, StoreError> {
    let mut listed = Vec::new();
    for record in page {
        let name = &record.key.key[ALLOWED.len()..];
        if let Some(id) = id_in_list(name) {
            let allowed: Allowed = record.read()?;
            let home = allowed.namespace.as_ref().map(|home| &home.id);
            let key = grant_key(home, &allowed.client, id);
            listed.push((name.to_owned(), allowed.name, key));
        }
    }
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<_> = listed.iter().map(|(_, _, key)| key.clone()).collect();
    let mut grants = Vec::new();
    for ((name, title, _), held) in listed.into_iter().zip(app.records.get_many(&keys).await?) {
        let Some(held) = Versioned::<Grant>::read(held)? else {
            continue;
        };
        grants.push((name, title, held.value));
    }
    let families: Vec<_> = grants.iter().map(|held| held.2.family.clone()).collect();
    let standings = standing::load_many(app, &families).await?;
    let now = app.clock.now();
    let shown = grants.into_iter().zip(standings);
    let shown = shown.filter(|((_, _, held), standing)| {
        let unused_until = held.last_given_at().plus_seconds(REFRESH_SECONDS);
        let family = &held.family;
        held.is_alive(now)
            && now < unused_until
            && standing.is_connected(family)
            && standing.rights(family).is_some()
    });
    let row = |((grant, name, held), _): ((String, Option<String>, Grant), Standing)| ShownGrant {
        grant,
        name,
        slug: held.family.namespace().map(|home| home.slug.to_string()),
        scopes: held.scopes.to_string(),
        allowed: day(held.created_at),
        used: day(held.last_given_at()),
    };
    Ok(shown.map(row).collect())
}

/// The browsers in which the account is signed in: this one first, then the newest.
pub async fn sessions(
    app: &App,
    account: &Account,
    browser: &Browser,
) -> Result<Shown<ShownSession>, StoreError> {
    let Living {
        sessions: mut live,
        more,
    } = living_sessions(app, account).await?;
    let this = browser.hash();
    live.sort_by_key(|(hash, begun)| (*hash != this, Reverse(begun.at)));
    let more = live.len() > MOST_SHOWN || more;
    live.truncate(MOST_SHOWN);
    let row = |(hash, begun): (Digest, Begun)| ShownSession {
        id: hash.to_string(),
        this: hash == this,
        since: minute(begun.at),
        from: begun.from,
    };
    let items = live.into_iter().map(row).collect();
    Ok(Shown { items, more })
}

/// How many browsers an account is signed in with, and since when with the newest of them; `None`
/// where it is signed in with none.
pub async fn signed_in_browsers(
    app: &App,
    id: &AccountId,
) -> Result<Option<(usize, Timestamp)>, StoreError> {
    let account = app.records.get(&account_key(id)).await?;
    let Some(account) = Versioned::<Account>::read(account)? else {
        return Ok(None);
    };
    let live = living_sessions(app, &account.value).await?.sessions;
    let newest = live.iter().map(|(_, begun)| begun.at).max();
    Ok(newest.map(|newest| (live.len(), newest)))
}

/// The sessions of an account that still count.
struct Living {
    sessions: Vec<(Digest, Begun)>,
    /// Whether there may be others, which were not read.
    more: bool,
}

async fn living_sessions(app: &App, account: &Account) -> Result<Living, StoreError> {
    let (records, now) = (&app.records, app.now());
    let partition = partition(&account.id);
    let found = records.list(&partition, SESSIONS, None, MAX_PAGE).await?;
    let service = app.get::<ServiceEpoch>(&service_epoch_key()).await?;
    let service = service.map(|service| service.value);
    let mut live = Vec::new();
    for some in found.chunks(MAX_KEYS) {
        let mut listed = Vec::new();
        for record in some {
            let hash = record.key.key[SESSIONS.len()..].parse::<Digest>();
            if let Ok(hash) = hash {
                listed.push((hash, record.read::<Begun>()?));
            }
        }
        if listed.is_empty() {
            continue;
        }
        let keys: Vec<_> = listed.iter().map(|(hash, _)| session_key(hash)).collect();
        for ((hash, begun), held) in listed.into_iter().zip(records.get_many(&keys).await?) {
            let held = Versioned::<Session>::read(held)?;
            if held.is_some_and(|held| held.value.counts(account, service, now)) {
                live.push((hash, begun));
            }
        }
    }
    Ok(Living {
        sessions: live,
        more: found.len() == MAX_PAGE,
    })
}

/// The form that ends an app.
pub const END_APP: Task = on_account_page("app.end");

/// `POST /account/apps`: ends one grant with all its tokens.
pub async fn end_app(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let name = request
        .form
        .value("grant")
        .ok_or(ErrorPage::FormMalformed)?;
    let id = id_in_list(name).ok_or(ErrorPage::FormMalformed)?;
    app.change(async |tx| end_app_in(&tx, &request, name, id).await)
        .await?;
    Ok(back(app))
}

/// Ends the grant. What is not the account's own, or has ended, is left alone.
async fn end_app_in(
    tx: &Transaction<'_>,
    request: &SignedInForm,
    name: &str,
    id: &str,
) -> Result<(), StoreError> {
    let account = &request.signed_in.account;
    let listed = allowed_key(&account.id, name);
    let Some(allowed) = tx.get::<Allowed>(&listed).await? else {
        return Ok(());
    };
    let allowed = allowed.value;
    let home = allowed.namespace.as_ref().map(|home| &home.id);
    let key = grant_key(home, &allowed.client, id);
    let held = tx.get::<Grant>(&key).await?;
    let held =
        held.filter(|held| held.value.family.account == account.id && held.value.revoked.is_none());
    let Some(held) = held else {
        return Ok(());
    };
    let actor = Actor {
        user: held.value.family.actor().to_owned(),
        client: None,
        source: request.source,
    };
    let change =
        Change::about(&allowed.client).before(json!({ "name": allowed.name, "grant": id }));
    tx.write_all(held.value.revocation(held.revision, Why::Asked, tx.now())?);
    tx.audit(home, &actor, END_APP.action, change)
}

/// The form that signs another browser out.
pub const END_SESSION: Task = on_account_page("session.end");

/// `POST /account/sessions`: signs one browser of the account out.
pub async fn end_session(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let session = request.form.value("session");
    let session: Digest = session
        .and_then(|text| text.parse().ok())
        .ok_or(ErrorPage::FormMalformed)?;
    let account = &request.signed_in.account;
    let listed = listed_session_key(&account.id, &session);
    if app.records.get(&listed).await?.is_some() {
        let mut writes = vec![
            Write::delete(listed, When::Any),
            Write::delete(session_key(&session), When::Any),
        ];
        let (source, action) = (request.source, END_SESSION.action);
        writes.extend(audit::about_account(app, account, source, action, "done").await?);
        let written = app.records.commit(writes).await?;
        debug_assert!(written.is_done(), "writes without a condition");
    }
    Ok(back(app))
}

/// The form that ends everything.
pub const END_ALL: Task = on_account_page("session.end-all");

/// `POST /account/sign-out`: ends every app and every browser but this one, in one write on the
/// account.
pub async fn end_all(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let end_all = async |tx| end_all_in(&tx, app, &request).await;
    let fresh = app.change(end_all).await?;
    let mut response = back(app);
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

async fn end_all_in(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
) -> Result<Browser, StoreError> {
    let key = account_key(&request.signed_in.account.id);
    let found = tx.get::<Account>(&key).await?;
    let mut found = found.ok_or_else(|| tx.conflict())?;
    found.value.raise_epoch();
    let (account, source) = (&found.value, request.source);
    let with = SignedInWith {
        second_factor: request.signed_in.session.second_factor,
        without_credentials: true,
        ..SignedInWith::default()
    };
    let (fresh, session) = new_session(app, &request.browser, account, source, with).await?;
    tx.write_all(session);
    tx.write(account.update(found.revision)?);
    tx.write_all(audit::about_account(app, account, source, END_ALL.action, "done").await?);
    Ok(fresh)
}

fn back(app: &App) -> Response {
    redirect(StatusCode::SEE_OTHER, &Onward::Account.address(app))
}
