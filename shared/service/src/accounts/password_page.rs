//! `GET|POST /oauth/password`: a signed-in person changes the password. This ends the account's
//! other sessions.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use zeroize::Zeroizing;

use super::audit;
use super::guard::{FormTask, SignedInBrowser, SignedInForm};
use super::password::{self, MIN_USER_CHARS};
use super::session::{SessionStart, new_session};
use super::sign_in::{self, PasswordCheck, too_many_attempts};
use crate::app::App;
use crate::model::account::{Account, account_key};
use crate::model::limits::Networks;
use crate::model::session::Credentials;
use crate::web::browser::{Browser, PASSWORD_PATH, ReturnTo, SignedIn};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, MessagePage};
use crate::web::remembered_browser::RememberedBrowser;
use vault_api::Email;

/// Page on which a signed-in person changes the password.
#[derive(Template)]
#[template(path = "password.html")]
pub struct PasswordPage {
    /// Host and path prefix of the service, for the header of the page.
    pub frame: Frame,
    pub email: String,
    /// Minimum length of the new password, in characters.
    pub least: usize,
    /// Form token of the password form.
    pub csrf: String,
    /// Form token of the button that signs out.
    pub logout_csrf: String,
    /// Address of this page, to which the sign-out button leads back.
    pub return_to: String,
    /// Problem with the last attempt, shown above the form.
    pub problem: Option<String>,
}

pub const CHANGE: FormTask = FormTask {
    purpose: Purpose::Password,
    onward: |_, _| Ok(ReturnTo::Password),
    action: CHANGE_ACTION,
};
const CHANGE_ACTION: &str = "password.change";

/// `GET /oauth/password`: shows the page.
pub async fn show_password_page(
    app: &App,
    request: SignedInBrowser,
) -> Result<Response, ErrorPage> {
    let (browser, signed_in) = (&request.browser, &request.signed_in);
    Ok(render_page(app, browser, signed_in, StatusCode::OK, None))
}

fn render_page(
    app: &App,
    browser: &Browser,
    signed_in: &SignedIn,
    status: StatusCode,
    problem: Option<String>,
) -> Response {
    let return_to = ReturnTo::Password.address(app);
    let page = PasswordPage {
        frame: Frame::for_service(&app.config.public_url),
        email: signed_in.account.email.to_string(),
        least: MIN_USER_CHARS,
        csrf: browser.form_token(app, Purpose::Password, PASSWORD_PATH),
        logout_csrf: browser.form_token(app, Purpose::Logout, &return_to),
        return_to,
        problem,
    };
    layout::render_page(status, &page, None)
}

/// Renders the page after the password was changed. `ends_apps`: the person's apps lost their
/// access.
fn render_changed(app: &App, email: &Email, ends_apps: bool) -> Response {
    let page = MessagePage {
        frame: Frame::for_service(&app.config.public_url),
        title: "Your password is changed",
        lines: vec![
            format!(
                "{email} now signs in with the new password. All other browsers were signed out."
            ),
            if ends_apps {
                "All apps that you allowed lost their access. Connect those again that you use."
            } else {
                "Apps that you allowed keep their access until it ends or is revoked."
            }
            .to_owned(),
        ],
        sign_out: None,
    };
    layout::render_page(StatusCode::OK, &page, None)
}

/// `POST /oauth/password`: sets the new password.
pub async fn change_password(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let (form, browser, signed_in) = (&request.form, &request.browser, &request.signed_in);
    let source = request.source;
    let refused =
        |status, problem: String| render_page(app, browser, signed_in, status, Some(problem));
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let field = |name| Zeroizing::new(form.value(name).unwrap_or_default().to_owned());
    let (current, new) = (field("current"), field("password"));
    // Checked before the current password, so that a new password that is not allowed costs no
    // attempt.
    if let Err(bad) = password::check_length(&new, MIN_USER_CHARS) {
        return Ok(refused(
            unprocessable,
            format!("Nothing was changed: {bad}."),
        ));
    }
    if *current == *new {
        let same = "The new password is the same as the current one.".to_owned();
        return Ok(refused(unprocessable, same));
    }
    let email = &signed_in.account.email;
    // The browser is signed in, so other people's guesses at the account must not block it.
    let returning = RememberedBrowser::already_signed_in();
    let checked = sign_in::check_password(app, email.as_str(), current, source, &returning).await?;
    let (checked, taken_back) = match checked {
        PasswordCheck::Good {
            account,
            taken_back,
        } => (*account, taken_back),
        PasswordCheck::Wrong => {
            audit::record_refusal(app, browser, source, CHANGE_ACTION, "wrong_password").await;
            let wrong = "Wrong current password.".to_owned();
            return Ok(refused(unprocessable, wrong));
        }
        PasswordCheck::TooMany { retry_after } => {
            audit::record_refusal(app, browser, source, CHANGE_ACTION, "rate_limited").await;
            let mut response = refused(
                StatusCode::TOO_MANY_REQUESTS,
                too_many_attempts(retry_after).to_owned(),
            );
            layout::set_retry_after(&mut response, Some(retry_after));
            return Ok(response);
        }
    };
    let hash = password::hash_password(new, &app.random, &Networks::of(source)).await?;
    let key = account_key(&signed_in.account.id);
    let current_account = app.get::<Account>(&key).await?;
    // Another request may have set a password while this one computed the hash. Then the person
    // entered the former password, not the present one.
    let Some(mut current_account) =
        current_account.filter(|held| held.value.password_hash() == checked.password_hash())
    else {
        let changed_elsewhere = "Your password was just changed elsewhere.".to_owned();
        return Ok(refused(StatusCode::CONFLICT, changed_elsewhere));
    };
    current_account.value.set_password(hash, app.clock.now());
    // An attacker who knew the old password may have allowed an app with it. Raising the epoch ends
    // all of the account's tokens.
    let ends_apps = form.value("end_apps").is_some();
    if ends_apps {
        current_account.value.raise_epoch();
    }
    let start = SessionStart {
        second_factor: signed_in.session.second_factor,
        // The person entered the password just now, so the new session has fresh credentials. If
        // the account has a second factor, the password is only one of two and does not suffice.
        ..SessionStart::from_credentials(if current_account.value.second_factor.is_some() {
            Credentials::NotEntered
        } else {
            Credentials::Entered {
                at: app.clock.now(),
            }
        })
    };
    let (fresh, mut writes) =
        new_session(app, browser, &current_account.value, source, start).await?;
    writes.push(
        current_account
            .value
            .update_write(current_account.revision)?,
    );
    writes.extend(taken_back);
    writes.extend(
        audit::account_entries(app, &current_account.value, source, CHANGE_ACTION, "done").await?,
    );
    if !app.records.commit_writes(writes).await?.is_done() {
        let changed_elsewhere = "Your account was just changed elsewhere. Try again.".to_owned();
        return Ok(refused(StatusCode::CONFLICT, changed_elsewhere));
    }
    let mut response = render_changed(app, email, ends_apps);
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
