//! Sessions of browsers: completes a sign-in, creates the new session, and redirects to the next
//! page.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use super::audit;
use super::since_last_sign_in;
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{Account, ServiceEpoch, service_epoch_key};
use crate::model::limits::Source;
use crate::model::session::{Credentials, Session, SessionEntry, listed_session_key, session_key};
use crate::transaction::Transaction;
use crate::web::browser::{Browser, ReturnTo};
use crate::web::remembered_browser::RememberedBrowser;

/// Properties of a new session that the sign-in decides.
pub struct SessionStart<'a> {
    /// Page for which the person entered credentials; `None` if none were entered for a page.
    pub entered_for: Option<ReturnTo<'a>>,
    /// Whether the person entered a code of a second factor.
    pub second_factor: bool,
    /// What is known about when credentials were entered.
    pub credentials: Credentials,
    /// Notices about events since the previous sign-in, for owners and operators.
    pub notices: Vec<String>,
}

impl SessionStart<'_> {
    /// Returns a session with these credentials, without second factor and notices.
    pub const fn from_credentials(credentials: Credentials) -> Self {
        Self {
            entered_for: None,
            second_factor: false,
            credentials,
            notices: Vec::new(),
        }
    }
}

/// A sign-in for which all needed proofs (password, provider, code or passkey) were accepted.
pub struct CompletedSignIn<'a> {
    /// The browser that signs in, still with its former cookie.
    pub browser: &'a Browser,
    /// The cookie by which the browser proves that it signed in before.
    pub returning: &'a RememberedBrowser,
    /// IP address of the client; `None` if it is unknown.
    pub source: Option<IpAddr>,
    /// Page that the browser is redirected to.
    pub onward: ReturnTo<'a>,
    /// Audit log action of the sign-in.
    pub action: &'static str,
    /// Whether a code of a second factor was entered.
    pub second_factor: bool,
    /// What is known about when credentials were entered.
    pub credentials: Credentials,
    /// Notice to show besides those about events since the previous sign-in.
    pub notice: Option<String>,
}

impl CompletedSignIn<'_> {
    /// Begins the session of `account` in the commit of `tx`, and redirects the browser to its next
    /// page.
    pub async fn begin_session(
        &self,
        tx: &Transaction<'_>,
        app: &App,
        account: &Account,
    ) -> Result<Response, StoreError> {
        let (mut notices, seen) =
            since_last_sign_in::load_notices(app, account, self.source).await?;
        notices.extend(self.notice.clone());
        let are_entered = matches!(self.credentials, Credentials::Entered { .. });
        let start = SessionStart {
            entered_for: are_entered.then_some(self.onward),
            second_factor: self.second_factor,
            credentials: self.credentials,
            notices,
        };
        let (fresh, session) = new_session(app, self.browser, account, self.source, start).await?;
        let email = account.email.as_str();
        let (remembered, known) =
            self.returning
                .remember_sign_in(app, email, self.second_factor)?;
        tx.write_all(session);
        tx.write_all([remembered, seen]);
        tx.write_all(audit::account_entries(app, account, self.source, self.action, "done").await?);
        let mut response = redirect_to(StatusCode::SEE_OTHER, &self.onward.address(app));
        for cookie in [fresh.set_cookie(app, true), known].into_iter().flatten() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        Ok(response)
    }
}

/// Creates a session in a browser with a new cookie in place of `old`. Returns the browser, and the
/// writes that sign `account` in there and end the session of the old cookie.
pub async fn new_session(
    app: &App,
    old: &Browser,
    account: &Account,
    source: Option<IpAddr>,
    start: SessionStart<'_>,
) -> Result<(Browser, Vec<Write>), StoreError> {
    // Only an authorize request can demand credentials that were entered for it, so other pages are
    // not recorded.
    let entered_for = match start.entered_for {
        Some(ReturnTo::Authorize(query)) => Some(Digest::of(query.as_bytes())),
        _ => None,
    };
    let now = app.clock.now();
    let session = Session {
        notices: start.notices,
        second_factor: start.second_factor,
        credentials: start.credentials,
        entered_for,
        ..Session::begin_now(account, load_service_epoch(app).await?, now)
    };
    // The cookie gets a new value, so the one from before the sign-in is worthless to an attacker
    // who knows it (session fixation).
    let fresh = Browser::for_new_session(app);
    let begun = SessionEntry {
        at: now,
        from: Source::of(source).to_string(),
    };
    let writes = vec![
        Write::put_until(
            listed_session_key(&account.id, &fresh.hash()),
            Document::from_value(&begun)?,
            When::Absent,
            session.ends_at,
        ),
        Write::delete(session_key(&old.hash()), When::Any),
        Write::put_until(
            session_key(&fresh.hash()),
            Document::from_value(&session)?,
            When::Absent,
            session.ends_at,
        ),
    ];
    Ok((fresh, writes))
}

async fn load_service_epoch(app: &App) -> Result<Option<ServiceEpoch>, StoreError> {
    let record = app.records.get_one(&service_epoch_key()).await?;
    Ok(Versioned::read(record)?.map(|found| found.value))
}

/// Creates a half session, which waits for the code of the second factor of `account`, with a new
/// cookie in place of `old`. Returns the browser and the writes. Only the credentials of `start` are
/// used.
pub async fn new_half_session(
    app: &App,
    old: &Browser,
    account: &Account,
    start: SessionStart<'_>,
) -> Result<(Browser, Vec<Write>), StoreError> {
    let now = app.clock.now();
    let session = Session {
        credentials: start.credentials,
        ..Session::begin_awaiting_code(account, load_service_epoch(app).await?, now)
    };
    let fresh = Browser::for_new_session(app);
    let document = Document::from_value(&session)?;
    let key = session_key(&fresh.hash());
    // Not added to the account's list, since the browser is not signed in yet.
    let writes = vec![
        Write::delete(session_key(&old.hash()), When::Any),
        Write::put_until(key, document, When::Absent, session.ends_at),
    ];
    Ok((fresh, writes))
}

/// Builds a redirect that is not cached and after which the browser sends no referrer.
pub fn redirect_to(status: StatusCode, location: &str) -> Response {
    // Addresses of this service and redirect URIs were checked to be printable ASCII, so this does
    // not fail.
    let Ok(location) = HeaderValue::from_str(location) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    // The address may contain an authorization code, which no cache may store and the next page
    // must not see as referrer.
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ];
    (status, headers).into_response()
}
