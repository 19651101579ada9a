//! Signing a browser in: the page that asks for the password, the new session, and the way on.

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
use crate::model::session::{Begun, Session, listed_session_key, session_key};
use crate::transaction::Transaction;
use crate::web::browser::{Browser, Onward};
use crate::web::remembered_browser::Returning;

/// What a session begins with.
#[derive(Default)]
pub struct SignedInWith<'a> {
    /// The page on whose way credentials were entered.
    pub entered_for: Option<Onward<'a>>,
    /// Whether they were a password and the code of a second factor.
    pub second_factor: bool,
    /// Whether no credentials were entered, so that the session is good for nothing that needs
    /// fresh ones.
    pub without_credentials: bool,
    /// What the person is shown about the time since the sign-in before.
    pub notices: Vec<String>,
}

/// A sign-in whose proofs are all good.
pub struct CompletedSignIn<'a> {
    /// The browser.
    pub browser: &'a Browser,
    /// What is known of its former sign-ins.
    pub returning: &'a Returning,
    /// Where it comes from.
    pub source: Option<IpAddr>,
    /// The page that it is on the way to.
    pub onward: Onward<'a>,
    /// The action in the audit log.
    pub action: &'static str,
    /// Whether a code of a second factor was entered.
    pub second_factor: bool,
    /// Whether no credentials were entered.
    pub without_credentials: bool,
    /// What the person is shown besides what happened since the sign-in before.
    pub notice: Option<String>,
}

impl CompletedSignIn<'_> {
    /// Begins the session of `account` in the commit of `tx`, and sends the browser on.
    pub async fn begin(
        &self,
        tx: &Transaction<'_>,
        app: &App,
        account: &Account,
    ) -> Result<Response, StoreError> {
        let (mut notices, seen) = since_last_sign_in::begin(app, account, self.source).await?;
        notices.extend(self.notice.clone());
        let with = SignedInWith {
            entered_for: (!self.without_credentials).then_some(self.onward),
            second_factor: self.second_factor,
            without_credentials: self.without_credentials,
            notices,
        };
        let (fresh, session) = new_session(app, self.browser, account, self.source, with).await?;
        let email = account.email.as_str();
        let (remembered, known) = self.returning.remember(app, email, self.second_factor)?;
        tx.write_all(session);
        tx.write_all([remembered, seen]);
        tx.write_all(audit::about_account(app, account, self.source, self.action, "done").await?);
        let mut response = redirect(StatusCode::SEE_OTHER, &self.onward.address(app));
        for cookie in [fresh.set_cookie(app, true), known].into_iter().flatten() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        Ok(response)
    }
}

/// A browser with a new cookie in place of `old`, and the writes by which `account` is signed in
/// there and nowhere under the old one.
pub async fn new_session(
    app: &App,
    old: &Browser,
    account: &Account,
    source: Option<IpAddr>,
    with: SignedInWith<'_>,
) -> Result<(Browser, Vec<Write>), StoreError> {
    let entered_for = match with.entered_for {
        Some(Onward::Authorize(query)) => Some(Digest::of(query.as_bytes())),
        _ => None,
    };
    let session = Session {
        notices: with.notices,
        second_factor: with.second_factor,
        without_credentials: with.without_credentials,
        entered_for,
        ..Session::begun(account, service_epoch(app).await?, app.clock.now())
    };
    let fresh = Browser::fresh(app);
    let begun = Begun {
        at: session.signed_in_at,
        from: Source::of(source).to_string(),
    };
    let writes = vec![
        Write::put_until(
            listed_session_key(&account.id, &fresh.hash()),
            Document::of(&begun)?,
            When::Absent,
            session.ends_at,
        ),
        Write::delete(session_key(&old.hash()), When::Any),
        Write::put_until(
            session_key(&fresh.hash()),
            Document::of(&session)?,
            When::Absent,
            session.ends_at,
        ),
    ];
    Ok((fresh, writes))
}

async fn service_epoch(app: &App) -> Result<Option<ServiceEpoch>, StoreError> {
    let found = app.records.get(&service_epoch_key()).await?;
    Ok(Versioned::read(found)?.map(|found| found.value))
}

/// A browser with a new cookie in place of `old`, and the writes by which it waits for the code of
/// the second factor of `account`.
pub async fn half_session(
    app: &App,
    old: &Browser,
    account: &Account,
    without_credentials: bool,
) -> Result<(Browser, Vec<Write>), StoreError> {
    let session = Session {
        without_credentials,
        ..Session::half(account, service_epoch(app).await?, app.clock.now())
    };
    let fresh = Browser::fresh(app);
    let document = Document::of(&session)?;
    let key = session_key(&fresh.hash());
    let writes = vec![
        Write::delete(session_key(&old.hash()), When::Any),
        Write::put_until(key, document, When::Absent, session.ends_at),
    ];
    Ok((fresh, writes))
}

/// A redirect that is not cached and sends no referrer.
pub fn redirect(status: StatusCode, location: &str) -> Response {
    // Both kinds of address were checked to be printable ASCII.
    let Ok(location) = HeaderValue::from_str(location) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
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
