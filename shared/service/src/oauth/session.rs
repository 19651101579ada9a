//! Signing a browser in: the page that asks for the password, the new session, and the way on.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use super::authorize::AuthorizeRequest;
use super::browser::{Browser, Onward};
use super::csrf::Purpose;
use super::pages::{self, Frame, ShownApp, SignInPage};
use crate::app::App;
use crate::model::Seen;
use crate::model::account::{Account, ServiceEpoch, service_epoch_key};
use crate::model::limits::Source;
use crate::model::session::{Begun, Session, listed_session_key, session_key};

/// What a session begins with.
#[derive(Default)]
pub struct SignedInWith<'a> {
    /// The page on whose way credentials were entered.
    pub entered_for: Option<Onward<'a>>,
    /// Whether they were a password and the code of a second factor.
    pub second_factor: bool,
    /// What the person is shown about the time since the sign-in before.
    pub notices: Vec<String>,
}

/// A browser with a new cookie in place of `old`, and the writes by which `account` is signed in there and nowhere under the old one.
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
    Ok(Seen::read(found)?.map(|found| found.value))
}

/// A browser with a new cookie in place of `old`, and the writes by which it waits for the code of the second factor of `account`.
pub async fn half_session(
    app: &App,
    old: &Browser,
    account: &Account,
) -> Result<(Browser, Vec<Write>), StoreError> {
    let session = Session::half(account, service_epoch(app).await?, app.clock.now());
    let fresh = Browser::fresh(app);
    let document = Document::of(&session)?;
    let key = session_key(&fresh.hash());
    let writes = vec![
        Write::delete(session_key(&old.hash()), When::Any),
        Write::put_until(key, document, When::Absent, session.ends_at),
    ];
    Ok((fresh, writes))
}

/// The sign-in page on the way to `onward`.
pub fn sign_in_page(
    app: &App,
    browser: &Browser,
    onward: Onward<'_>,
    asked: Option<&AuthorizeRequest>,
    email: &str,
    problem: Option<&'static str>,
) -> Response {
    let page = SignInPage {
        frame: Frame::of(&app.config.public_url),
        app: asked.map(|asked| ShownApp::of(&asked.client, &asked.back.redirect)),
        problem,
        csrf: browser.form_token(app, Purpose::Login, onward.subject()),
        return_to: onward.address(app),
        email: email.to_owned(),
    };
    let mut response = pages::answer(
        StatusCode::OK,
        &page,
        asked.map(|asked| &asked.back.redirect),
    );
    if let Some(cookie) = browser.set_cookie(app, false) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
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
