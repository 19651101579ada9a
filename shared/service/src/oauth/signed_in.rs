//! What an account has signed in: apps and browsers, as the account page lists and ends them.

use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use serde_json::json;
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, Record, When, Write};

use super::browser::{Browser, Onward};
use super::guard::{SignedInForm, Task, on_account_page};
use super::noted;
use super::pages::{day, minute};
use super::session::{new_session, redirect};
use super::stop::Stop;
use crate::app::App;
use crate::model::Seen;
use crate::model::account::{Account, account_key, partition};
use crate::model::audit::{Actor, Change};
use crate::model::grant::{ALLOWED, Allowed, Grant, Why, allowed_key, grant_key};
use crate::model::namespace::{self, Namespace};
use crate::model::session::{Begun, SESSIONS, Session, listed_session_key, session_key};
use crate::retry::retry;

/// Most apps and most browsers that the page shows.
const MOST_SHOWN: usize = MAX_KEYS / 2;

/// An app that has access.
pub struct ShownGrant {
    /// The id of the grant.
    pub grant: String,
    /// What the app calls itself.
    pub name: Option<String>,
    /// The vault that it has access to.
    pub slug: String,
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

/// The apps that have access in the name of the account.
pub async fn apps(app: &App, account: &Account) -> Result<Vec<ShownGrant>, StoreError> {
    let found = app
        .records
        .list(&partition(&account.id), ALLOWED, None, MOST_SHOWN)
        .await?;
    let mut keys = Vec::new();
    let mut listed = Vec::new();
    for record in &found {
        let allowed: Allowed = record.read()?;
        let grant = record.key.key[ALLOWED.len()..].to_owned();
        let home = &allowed.namespace;
        keys.push(grant_key(&home.id, &allowed.client, &grant));
        // One namespace may be that of several apps, and a reading names no key twice.
        let key = namespace::key(&home.slug);
        if !keys.contains(&key) {
            keys.push(key);
        }
        listed.push((allowed, grant));
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let found = app.records.get_many(&keys).await?;
    let read = |key| {
        let at = keys.iter().position(|one| *one == key);
        at.and_then(|at| found[at].as_ref())
    };
    let (mut shown, now) = (Vec::new(), app.clock.now());
    for (allowed, grant) in listed {
        let home = &allowed.namespace;
        let held = read(grant_key(&home.id, &allowed.client, &grant));
        let (Some(held), Some(place)) = (held, read(namespace::key(&home.slug))) else {
            continue;
        };
        let (held, place): (Grant, Namespace) = (held.read()?, place.read()?);
        let epochs = &held.family.epochs;
        let stands = epochs.account == account.epoch && epochs.namespace == place.epoch;
        if stands && place.id == home.id && held.is_alive(now) {
            shown.push(ShownGrant {
                grant,
                name: allowed.name,
                slug: home.slug.to_string(),
                scopes: held.scopes.to_string(),
                allowed: day(held.created_at),
                used: day(held.last_given_at()),
            });
        }
    }
    Ok(shown)
}

/// The browsers in which the account is signed in, this one included.
pub async fn sessions(
    app: &App,
    account: &Account,
    browser: &Browser,
) -> Result<Vec<ShownSession>, StoreError> {
    let found = app
        .records
        .list(&partition(&account.id), SESSIONS, None, MOST_SHOWN)
        .await?;
    let hash = |record: &Record| record.key.key[SESSIONS.len()..].parse::<Digest>().ok();
    let listed: Vec<_> = found
        .iter()
        .filter_map(|record| hash(record).map(|hash| (record, hash)))
        .collect();
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<_> = listed.iter().map(|(_, hash)| session_key(hash)).collect();
    let mut shown = Vec::new();
    for ((record, hash), held) in listed.iter().zip(app.records.get_many(&keys).await?) {
        let Some(held) = Seen::<Session>::read(held)? else {
            continue;
        };
        let begun: Begun = record.read()?;
        let present = held.value.password_number == account.password_number
            && held.value.account_epoch == account.epoch;
        if present {
            shown.push(ShownSession {
                id: hash.to_string(),
                this: *hash == browser.hash(),
                since: minute(begun.at),
                from: begun.from,
            });
        }
    }
    shown.sort_by_key(|session| !session.this);
    Ok(shown)
}

/// The form that ends an app.
pub const END_APP: Task = on_account_page("app.end");

/// `POST /account/apps`: ends one grant with all its tokens.
pub async fn end_app(app: &App, request: SignedInForm) -> Result<Response, Stop> {
    let grant = request.form.value("grant").ok_or(Stop::FormMalformed)?;
    // The text goes into a key: only the form of an id that we gave out.
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if grant.len() != 30 || !grant.bytes().all(good) {
        return Err(Stop::FormMalformed);
    }
    retry(&*app.random, || try_end_app(app, &request, grant)).await?;
    Ok(back(app))
}

/// One try; `None` when the grant changed meanwhile. What is not the account's own, or has ended, is left alone.
async fn try_end_app(
    app: &App,
    request: &SignedInForm,
    grant: &str,
) -> Result<Option<()>, StoreError> {
    let (account, records) = (&request.signed_in.account, &*app.records);
    let listed = allowed_key(&account.id, grant);
    let Some(allowed) = Seen::<Allowed>::read(records.get(&listed).await?)? else {
        return Ok(Some(()));
    };
    let allowed = allowed.value;
    let key = grant_key(&allowed.namespace.id, &allowed.client, grant);
    let held = Seen::<Grant>::read(records.get(&key).await?)?;
    let Some(held) = held.filter(|held| held.value.family.account == account.id) else {
        return Ok(Some(()));
    };
    let actor = Actor {
        user: held.value.family.user.clone(),
        client: None,
        source: request.source,
    };
    let change = Change {
        target: Some(allowed.client.to_string()),
        before: Some(json!({ "name": allowed.name, "grant": grant })),
        after: None,
    };
    let namespace = Some(&allowed.namespace.id);
    let mut writes = vec![
        Write::delete(listed, When::Any),
        app.audit(namespace, &actor, END_APP.action, change, "done")?,
    ];
    if held.value.revoked.is_none() {
        let now = app.clock.now();
        writes.push(held.value.revocation(held.revision, Why::Asked, now)?);
    }
    Ok(app.try_commit(writes).await?.then_some(()))
}

/// The form that signs another browser out.
pub const END_SESSION: Task = on_account_page("session.end");

/// `POST /account/sessions`: signs one browser of the account out.
pub async fn end_session(app: &App, request: SignedInForm) -> Result<Response, Stop> {
    let session = request.form.value("session");
    let session: Digest = session
        .and_then(|text| text.parse().ok())
        .ok_or(Stop::FormMalformed)?;
    let account = &request.signed_in.account;
    let listed = listed_session_key(&account.id, &session);
    if app.records.get(&listed).await?.is_some() {
        let mut writes = vec![
            Write::delete(listed, When::Any),
            Write::delete(session_key(&session), When::Any),
        ];
        let (source, action) = (request.source, END_SESSION.action);
        writes.extend(noted::about_account(app, account, source, action, "done").await?);
        let written = app.records.commit(writes).await?;
        debug_assert!(written.is_done(), "writes without a condition");
    }
    Ok(back(app))
}

/// The form that ends everything.
pub const END_ALL: Task = on_account_page("session.end-all");

/// `POST /account/sign-out`: ends every app and every browser but this one, in one write on the account.
pub async fn end_all(app: &App, request: SignedInForm) -> Result<Response, Stop> {
    let fresh = retry(&*app.random, || try_end_all(app, &request)).await?;
    let mut response = back(app);
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// One try; `None` when the account changed meanwhile.
async fn try_end_all(app: &App, request: &SignedInForm) -> Result<Option<Browser>, StoreError> {
    let key = account_key(&request.signed_in.account.id);
    let found = Seen::<Account>::read(app.records.get(&key).await?)?;
    let Some(mut found) = found else {
        return Ok(None);
    };
    found.value.raise_epoch();
    let (account, source) = (&found.value, request.source);
    let (fresh, mut writes) =
        new_session(app, &request.browser, account, source, Vec::new(), None).await?;
    writes.push(account.update(found.revision)?);
    writes.extend(noted::about_account(app, account, source, END_ALL.action, "done").await?);
    Ok(app.try_commit(writes).await?.then_some(fresh))
}

fn back(app: &App) -> Response {
    redirect(StatusCode::SEE_OTHER, &Onward::Account.address(app))
}
