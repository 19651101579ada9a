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
use crate::model::Versioned;
use crate::model::account::{Account, account_key};
use crate::model::limits::Networks;
use crate::model::session::Credentials;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, PASSWORD_PATH, ReturnTo, SignedIn};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
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

/// Returns the current and the new password of the form, or the problem with the new one.
fn entered_passwords(form: &Form) -> Result<(Zeroizing<String>, Zeroizing<String>), String> {
    let field = |name| Zeroizing::new(form.value(name).unwrap_or_default().to_owned());
    let (current, new) = (field("current"), field("password"));
    password::check_length(&new, MIN_USER_CHARS)
        .map_err(|bad| format!("Nothing was changed: {bad}."))?;
    if *current == *new {
        return Err("The new password is the same as the current one.".to_owned());
    }
    Ok((current, new))
}

/// Whether the person asks to end the access of all apps.
fn ends_apps(form: &Form) -> bool {
    form.value("end_apps").is_some()
}

/// `POST /oauth/password`: sets the new password.
pub async fn change_password(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let (browser, signed_in, source) = (&request.browser, &request.signed_in, request.source);
    let refused =
        |status, problem: String| render_page(app, browser, signed_in, status, Some(problem));
    // Checked before the current password, so that a new password that is not allowed costs no
    // attempt.
    let (current, new) = match entered_passwords(&request.form) {
        Ok(entered) => entered,
        Err(problem) => return Ok(refused(StatusCode::UNPROCESSABLE_ENTITY, problem)),
    };
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
            return Ok(refused(StatusCode::UNPROCESSABLE_ENTITY, wrong));
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
    let change = async |tx: Transaction<'_>| {
        let fresh = store_password(&tx, app, &request, &checked, hash).await?;
        if fresh.is_some() {
            tx.write_all(taken_back);
        }
        Ok::<_, ErrorPage>(fresh)
    };
    // One attempt only: the person decides what to do about another change of the account.
    let fresh = match app.attempt(change).await? {
        Some(Some(fresh)) => fresh,
        outcome => {
            let problem = match outcome {
                Some(_) => "Your password was just changed elsewhere.",
                None => "Your account was just changed elsewhere. Try again.",
            };
            return Ok(refused(StatusCode::CONFLICT, problem.to_owned()));
        }
    };
    let mut response = render_changed(app, email, ends_apps(&request.form));
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Stores the new password in the commit of `tx`, and replaces the session of the browser. Returns
/// the browser with its new cookie; `None` if the password is no longer the one that was `checked`.
async fn store_password(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
    checked: &Account,
    hash: String,
) -> Result<Option<Browser>, ErrorPage> {
    let stored_account = tx.get::<Account>(&account_key(&checked.id)).await?;
    // Another request may have set a password while this one computed the hash. Then the person
    // entered the former password, not the present one.
    let Some(Versioned {
        value: mut account,
        revision,
        ..
    }) = stored_account.filter(|stored| stored.value.password_hash() == checked.password_hash())
    else {
        return Ok(None);
    };
    // A browser that was signed out meanwhile must not be signed in again.
    let session = &request.signed_in.session;
    if !session.matches_present_account(&account) {
        return Err(ErrorPage::FormForged);
    }
    let (now, source) = (tx.now(), request.source);
    account.set_password(hash, now);
    // An attacker who knew the old password may have allowed an app with it. Raising the epoch ends
    // all of the account's tokens.
    if ends_apps(&request.form) {
        account.raise_epoch();
    }
    let start = SessionStart {
        second_factor: session.second_factor,
        // The person entered the password just now, so the new session has fresh credentials. If
        // the account has a second factor, the password is only one of two and does not suffice.
        ..SessionStart::from_credentials(if account.second_factor.is_some() {
            Credentials::NotEntered
        } else {
            Credentials::Entered { at: now }
        })
    };
    let (fresh, writes) = new_session(app, &request.browser, &account, source, start).await?;
    tx.write_all(writes);
    tx.write(account.update_write(revision)?);
    tx.write_all(audit::account_entries(app, &account, source, CHANGE_ACTION, "done").await?);
    Ok(Some(fresh))
}
