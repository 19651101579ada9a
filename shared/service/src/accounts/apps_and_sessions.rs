//! The apps and the signed-in browsers of an account: the account page lists them and ends them.
//!
//! A person allows an app by a consent, which is stored as a *grant*. All tokens of one consent are
//! a *family* and end with its grant. The account's own partition has an index entry for each grant
//! and each session; an entry may outlive what it points to, so each list here checks the grant or
//! the session itself.

use std::cmp::Reverse;

use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use serde_json::json;
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_KEYS, MAX_PAGE, Record, RecordKey, When, Write};

use super::audit;
use super::guard::{FormTask, SignedInForm, account_page_form};
use super::session::{SessionStart, new_session, redirect_to};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{
    Account, AccountId, ServiceEpoch, account_key, account_partition, service_epoch_key,
};
use crate::model::audit::{Actor, Change};
use crate::model::client::ClientId;
use crate::model::family::{Family, Reach};
use crate::model::grant::{
    ALLOWED, AllowedApp, Grant, REFRESH_SECONDS, RevocationReason, allowed_key, grant_key,
    id_in_list,
};
use crate::model::made::AppResources;
use crate::model::session::{
    Credentials, SESSIONS, Session, SessionEntry, listed_session_key, session_key,
};
use crate::model::standing;
use crate::model::user::{Scope, User, user_key};
use crate::transaction::Transaction;
use crate::web::browser::{Browser, CONSOLE_PATH, ReturnTo};
use crate::web::error_page::ErrorPage;
use crate::web::form::with_query;
use crate::web::layout::{format_day, format_minute};

/// Maximum number of apps that the page shows, and of browsers; the newest ones are shown.
const MAX_SHOWN: usize = 50;
/// Maximum number of index entries of apps that are read. Entries of ended apps stay in the index,
/// so many of them may precede the apps that still have access.
const MAX_READ: usize = 2000;

/// Newest items of a list on the page.
pub struct NewestItems<T> {
    /// The items, newest first; at most 50.
    pub items: Vec<T>,
    /// Whether the account has more items than these, or may have: the search stopped at its bound.
    pub more: bool,
}

/// Row of the page: an app with access to the account.
pub struct ShownApp {
    /// Name of the grant in the account's index, which the form of the row sends back.
    pub grant: String,
    /// Name that the app registered for itself; nobody has verified it.
    pub name: Option<String>,
    /// Slug of the vault that the app has access to; `None` for an app that acts for an operator.
    pub slug: Option<String>,
    /// Scopes of the consent, separated by spaces.
    pub scopes: String,
    /// Minute of the consent, by which a person tells apps with the same name apart.
    pub allowed: String,
    /// Day on which the app last received tokens.
    pub used: String,
}

/// Row of the page: a signed-in browser.
pub struct ShownSession {
    /// SHA-256 of the browser's cookie, under which the session is stored.
    pub id: String,
    /// Whether this browser is the one that asks for the page.
    pub this: bool,
    /// Minute of the sign-in.
    pub since: String,
    /// Network from which the person signed in.
    pub from: String,
}

/// Loads the apps with access to the account, newest first. An app has access if it holds a valid
/// access token, or a refresh token that would get one.
pub async fn load_apps(app: &App, account: &Account) -> Result<NewestItems<ShownApp>, StoreError> {
    let partition = account_partition(&account.id);
    let (mut items, mut after) = (Vec::new(), None::<String>);
    for _ in 0..MAX_READ / MAX_KEYS {
        let page = app
            .records
            .list_page(&partition, ALLOWED, after.as_deref(), MAX_KEYS);
        let page = page.await?;
        items.extend(filter_live_grants(app, &page).await?);
        let whole = page.len() < MAX_KEYS;
        if items.len() > MAX_SHOWN || whole {
            let more = items.len() > MAX_SHOWN;
            items.truncate(MAX_SHOWN);
            return Ok(NewestItems { items, more });
        }
        after = page.last().map(|record| record.key.key.clone());
    }
    Ok(NewestItems { items, more: true })
}

/// Whether the person has already allowed this app to write, in any vault. Reads the newest page of
/// consents only.
pub async fn may_app_write(
    app: &App,
    account: &AccountId,
    client: &ClientId,
) -> Result<bool, StoreError> {
    let partition = account_partition(account);
    let newest = app
        .records
        .list_page(&partition, ALLOWED, None, MAX_KEYS)
        .await?;
    let mut consents = read_consents(&newest)?;
    consents.retain(|consent| consent.allowed.client == *client);
    // An ended consent must not count, although its entry may still be in the index.
    let live_grants = load_live_grants(app, consents).await?;
    Ok(live_grants
        .iter()
        .any(|(_, grant)| grant.scopes.has(Scope::Write)))
}

/// Loads the grants of index entries, and describes those that still give access.
async fn filter_live_grants(app: &App, page: &[Record]) -> Result<Vec<ShownApp>, StoreError> {
    let live_grants = load_live_grants(app, read_consents(page)?).await?;
    let row = |(consent, grant): (ConsentEntry, Grant)| ShownApp {
        grant: consent.name,
        name: consent.allowed.name,
        slug: grant.family.namespace().map(|home| home.slug.to_string()),
        scopes: grant.scopes.to_string(),
        allowed: format_minute(grant.created_at),
        used: format_day(grant.last_issued_at()),
    };
    Ok(live_grants.into_iter().map(row).collect())
}

/// Entry of the account's index of consents.
struct ConsentEntry {
    /// The record key, without the prefix `ALLOWED`.
    name: String,
    allowed: AllowedApp,
    /// Key of the grant that the entry points to.
    key: RecordKey,
}

/// Parses index entries of consents, and skips those whose name has another form.
fn read_consents(page: &[Record]) -> Result<Vec<ConsentEntry>, StoreError> {
    let mut consents = Vec::new();
    for record in page {
        let name = &record.key.key[ALLOWED.len()..];
        // A name of another form must not become part of the key of a grant.
        if let Some(id) = id_in_list(name) {
            let allowed: AllowedApp = record.read()?;
            let home = allowed.namespace.as_ref().map(|home| &home.id);
            let key = grant_key(home, &allowed.client, id);
            consents.push(ConsentEntry {
                name: name.to_owned(),
                key,
                allowed,
            });
        }
    }
    Ok(consents)
}

/// Loads the grants of consents, and keeps those that still give access.
async fn load_live_grants(
    app: &App,
    consents: Vec<ConsentEntry>,
) -> Result<Vec<(ConsentEntry, Grant)>, StoreError> {
    if consents.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<_> = consents.iter().map(|consent| consent.key.clone()).collect();
    let mut grants = Vec::new();
    for (consent, grant_record) in consents.into_iter().zip(app.records.get_many(&keys).await?) {
        if let Some(grant) = Versioned::<Grant>::read(grant_record)? {
            grants.push((consent, grant.value));
        }
    }
    let families: Vec<_> = grants
        .iter()
        .map(|(_, grant)| grant.family.clone())
        .collect();
    let standings = standing::load_many(app, &families).await?;
    let now = app.clock.now();
    let live_grants = grants.into_iter().zip(standings);
    let live_grants = live_grants.filter(|((_, grant), standing)| {
        // A refresh token that stays unused for this long is no longer valid, so the app could not
        // get a token.
        let unused_until = grant.last_issued_at().plus_seconds(REFRESH_SECONDS);
        let family = &grant.family;
        grant.is_alive(now)
            && now < unused_until
            && standing.is_connected(family)
            && standing.present_rights(family).is_some()
    });
    Ok(live_grants.map(|(grant, _)| grant).collect())
}

/// Loads the browsers in which the account is signed in: the requesting one first, then the newest.
pub async fn load_sessions(
    app: &App,
    account: &Account,
    browser: &Browser,
) -> Result<NewestItems<ShownSession>, StoreError> {
    let LiveSessions {
        sessions: mut live,
        more,
    } = load_live_sessions(app, account).await?;
    let this = browser.hash();
    live.sort_by_key(|(hash, begun)| (*hash != this, Reverse(begun.at)));
    // Compare before the list is truncated to what the page shows.
    let more = live.len() > MAX_SHOWN || more;
    live.truncate(MAX_SHOWN);
    let row = |(hash, begun): (Digest, SessionEntry)| ShownSession {
        id: hash.to_string(),
        this: hash == this,
        since: format_minute(begun.at),
        from: begun.from,
    };
    let items = live.into_iter().map(row).collect();
    Ok(NewestItems { items, more })
}

/// Returns the number of browsers in which an account is signed in, with the time of the newest
/// sign-in; `None` if there is none.
pub async fn signed_in_browsers(
    app: &App,
    id: &AccountId,
) -> Result<Option<(usize, Timestamp)>, StoreError> {
    let account = app.records.get_one(&account_key(id)).await?;
    let Some(account) = Versioned::<Account>::read(account)? else {
        return Ok(None);
    };
    let live = load_live_sessions(app, &account.value).await?.sessions;
    let newest = live.iter().map(|(_, begun)| begun.at).max();
    Ok(newest.map(|newest| (live.len(), newest)))
}

/// Sessions of an account that are still valid.
struct LiveSessions {
    sessions: Vec<(Digest, SessionEntry)>,
    /// Whether the index has more entries than were read.
    more: bool,
}

async fn load_live_sessions(app: &App, account: &Account) -> Result<LiveSessions, StoreError> {
    let (records, now) = (&app.records, app.now());
    let partition = account_partition(&account.id);
    let listed_sessions = records
        .list_page(&partition, SESSIONS, None, MAX_PAGE)
        .await?;
    let service = app.get::<ServiceEpoch>(&service_epoch_key()).await?;
    let service = service.map(|service| service.value);
    let mut live = Vec::new();
    for chunk in listed_sessions.chunks(MAX_KEYS) {
        let mut listed = Vec::new();
        for record in chunk {
            let hash = record.key.key[SESSIONS.len()..].parse::<Digest>();
            if let Ok(hash) = hash {
                listed.push((hash, record.read::<SessionEntry>()?));
            }
        }
        if listed.is_empty() {
            continue;
        }
        // An entry of the list may outlive its session: a new password or a raised epoch ends
        // sessions without a write to the list.
        let keys: Vec<_> = listed.iter().map(|(hash, _)| session_key(hash)).collect();
        for ((hash, begun), record) in listed.into_iter().zip(records.get_many(&keys).await?) {
            let session = Versioned::<Session>::read(record)?;
            if session.is_some_and(|session| session.value.is_valid(account, service, now)) {
                live.push((hash, begun));
            }
        }
    }
    Ok(LiveSessions {
        sessions: live,
        more: listed_sessions.len() == MAX_PAGE,
    })
}

/// The form with which a person ends the access of an app.
pub const END_APP: FormTask = account_page_form("app.end");

/// `POST /account/apps`: ends one grant with all its tokens, and with the enrolment codes that
/// depend on it. If something else that the app made still works (a machine, a member, a webhook),
/// the person is redirected to the page of the vault that lists it.
pub async fn end_app(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let name = request
        .form
        .value("grant")
        .ok_or(ErrorPage::FormMalformed)?;
    let id = id_in_list(name).ok_or(ErrorPage::FormMalformed)?;
    let ended = app
        .change(async |tx| end_app_in(&tx, &request, name, id).await)
        .await?;
    if let Some(page) = find_leftovers_page(app, ended.as_ref()).await? {
        return Ok(redirect_to(StatusCode::SEE_OTHER, &page));
    }
    Ok(redirect_to_account(app))
}

/// Returns the address of the console page that lists what an ended app made. `None` if nothing of
/// it works any more, or if the person may not administer the vault.
async fn find_leftovers_page(
    app: &App,
    ended: Option<&Family>,
) -> Result<Option<String>, StoreError> {
    let Some(Family {
        client,
        reach: Reach::Namespace {
            namespace, user, ..
        },
        ..
    }) = ended
    else {
        return Ok(None);
    };
    let user = app.get::<User>(&user_key(&namespace.id, user)).await?;
    if !user.is_some_and(|user| user.value.can_administer()) {
        return Ok(None);
    }
    if AppResources::read(app, namespace, client).await?.is_empty() {
        return Ok(None);
    }
    let prefix = app.config.public_url.prefix();
    let page = format!("{prefix}{CONSOLE_PATH}/{}/apps", namespace.slug);
    Ok(Some(with_query(&page, &[("made", client.as_str())])))
}

/// Ends the grant, and returns the family of its tokens. Returns `None`, and changes nothing, if
/// the grant has ended or belongs to another account.
async fn end_app_in(
    tx: &Transaction<'_>,
    request: &SignedInForm,
    name: &str,
    id: &str,
) -> Result<Option<Family>, StoreError> {
    let account = &request.signed_in.account;
    // The key lies in the account's own partition, so a name that the form invents reaches no other
    // account's grant.
    let listed = allowed_key(&account.id, name);
    let Some(allowed) = tx.get::<AllowedApp>(&listed).await? else {
        return Ok(None);
    };
    let allowed = allowed.value;
    let home = allowed.namespace.as_ref().map(|home| &home.id);
    let key = grant_key(home, &allowed.client, id);
    let grant = tx.get::<Grant>(&key).await?;
    let grant = grant
        .filter(|grant| grant.value.family.account == account.id && grant.value.revoked.is_none());
    let Some(grant) = grant else {
        return Ok(None);
    };
    let actor = Actor {
        user: grant.value.family.actor().to_owned(),
        client: None,
        source: request.source,
    };
    let change =
        Change::about(&allowed.client).with_before(json!({ "name": allowed.name, "grant": id }));
    tx.write_all(grant.value.revocation_writes(
        grant.revision,
        RevocationReason::Asked,
        tx.now(),
    )?);
    tx.audit(home, &actor, END_APP.action, change)?;
    Ok(Some(grant.value.family))
}

/// The form with which a person signs another browser out.
pub const END_SESSION: FormTask = account_page_form("session.end");

/// `POST /account/sessions`: signs one browser of the account out.
pub async fn end_session(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let session = request.form.value("session");
    let session: Digest = session
        .and_then(|text| text.parse().ok())
        .ok_or(ErrorPage::FormMalformed)?;
    let account = &request.signed_in.account;
    // Any hash can be sent here: the entry in the account's own list proves whose session it is.
    let listed = &listed_session_key(&account.id, &session);
    let end = async |tx: Transaction<'_>| {
        if tx.records.get_one(listed).await?.is_some() {
            tx.write(Write::delete(listed.clone(), When::Any));
            tx.write(Write::delete(session_key(&session), When::Any));
            let (source, action) = (request.source, END_SESSION.action);
            tx.write_all(audit::account_entries(app, account, source, action, "done").await?);
        }
        Ok::<_, StoreError>(())
    };
    app.change(end).await?;
    Ok(redirect_to_account(app))
}

/// The form with which a person ends all apps and all other browsers.
pub const END_ALL: FormTask = account_page_form("session.end-all");

/// `POST /account/sign-out`: ends every app and every browser but this one, by raising the epoch of
/// the account.
pub async fn end_all(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let end_all = async |tx| end_all_in(&tx, app, &request).await;
    let fresh = app.change(end_all).await?;
    let mut response = redirect_to_account(app);
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

async fn end_all_in(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
) -> Result<Browser, ErrorPage> {
    let mut stored = request.read_account(tx).await?;
    // This also ends the session of this browser, which therefore gets a new one.
    stored.value.raise_epoch();
    let (account, source) = (&stored.value, request.source);
    let start = SessionStart {
        second_factor: request.signed_in.session.second_factor,
        // The person entered no credentials for the new session, so it must not pass as a fresh
        // sign-in.
        ..SessionStart::from_credentials(Credentials::NotEntered)
    };
    let (fresh, session) = new_session(app, &request.browser, account, source, start).await?;
    tx.write_all(session);
    tx.write(account.update_write(stored.revision)?);
    tx.write_all(audit::account_entries(app, account, source, END_ALL.action, "done").await?);
    Ok(fresh)
}

fn redirect_to_account(app: &App) -> Response {
    redirect_to(StatusCode::SEE_OTHER, &ReturnTo::Account.address(app))
}
