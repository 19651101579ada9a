//! Second factor at sign-in: the page that asks for a code, and the check whether a request needs a
//! second factor. `second_factor_page` sets it up.
//!
//! A second factor that was set up without fresh credentials is *unconfirmed*: for a day its codes
//! complete a sign-in but confirm nothing, and the owner can *disown* it, which removes it.

use std::net::IpAddr;

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use vault_format::time::Timestamp;
use vault_store::StoreError;

use super::audit;
use super::memberships::Member;
use super::passkey::relying_party::{signs_in_with_passkeys, takes_passkeys};
use super::session::CompletedSignIn;
use super::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::config::SecondFactorPolicy;
use crate::error::Refusal;
use crate::model::account::{Account, account_key};
use crate::model::limits::{self, NetworkLimit, Networks, Window};
use crate::model::second_factor::{UsedCode, has_recovery_form};
use crate::model::session::{Credentials, Session};
use crate::model::user::Role;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, PostedForm, ReturnTo, SignedIn, read_posted_form};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, format_minute};

/// Maximum number of codes that may be tried at one account in 15 minutes, valid ones included.
const MAX_TRIES: u32 = 10;
/// Length of the window for [`MAX_TRIES`], in seconds.
const TRY_SECONDS: i64 = 15 * 60;
pub const WRONG_CODE: &str = "This code is not valid, or was used already. Wait for the next one.";
const TOO_MANY_CODES: &str =
    "Too many attempts. Try again in 15 minutes, or enter a recovery code.";
const TOO_MANY_RECOVERY_CODES: &str = "Too many recovery codes. Try again in 15 minutes, or enter a code from your authenticator app.";

/// Page that asks for a code at sign-in.
#[derive(Template)]
#[template(path = "code.html")]
struct CodePage {
    frame: Frame,
    csrf: String,
    return_to: String,
    problem: Option<&'static str>,
    /// Whether the person may use a passkey in place of the second factor.
    passkeys: bool,
    /// Whether the form for a code stands below the request for a passkey, which then has the
    /// focus.
    beside_passkey: bool,
    /// Set if the second factor is unconfirmed; the page then offers to disown it.
    unconfirmed: Option<UnconfirmedFactor>,
}

/// Times of an unconfirmed second factor, formatted.
struct UnconfirmedFactor {
    set_up_at: String,
    /// Time from which its codes also confirm dangerous acts, and not only complete a sign-in.
    from: String,
}

/// HTTP status and message for a refused code, and the seconds to wait after too many.
pub type CodeProblem = (StatusCode, &'static str, Option<u64>);

/// Renders the page that asks for a code of `account`, in a browser whose first proof (the password
/// or the identity provider) was accepted.
pub fn render_code_page(
    app: &App,
    browser: &Browser,
    account: &Account,
    onward: ReturnTo<'_>,
    problem: Option<CodeProblem>,
) -> Response {
    let now = app.clock.now();
    let unconfirmed = account.second_factor.as_ref().and_then(|factor| {
        let from = format_minute(factor.unconfirmed_until(now)?);
        let set_up_at = format_minute(factor.since);
        Some(UnconfirmedFactor { set_up_at, from })
    });
    let page = CodePage {
        frame: Frame::for_service(&app.config.public_url),
        csrf: browser.form_token(app, Purpose::SecondFactor, onward.form_subject()),
        return_to: onward.address(app),
        problem: problem.map(|(_, problem, _)| problem),
        passkeys: !account.passkeys.is_empty() && takes_passkeys(app),
        beside_passkey: false,
        unconfirmed,
    };
    let status = problem.map_or(StatusCode::OK, |(status, ..)| status);
    let mut response = layout::render_page(status, &page, None);
    layout::set_retry_after(&mut response, problem.and_then(|(_, _, wait)| wait));
    if let Some(cookie) = browser.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Page that asks an owner or operator to set up a second factor.
#[derive(Template)]
#[template(path = "second_factor_due.html")]
struct SetupDuePage {
    frame: Frame,
    /// Whether an app waits for the sign-in.
    for_app: bool,
    /// Whether the person may use a passkey in place of the second factor.
    passkeys: bool,
    /// Time from which the codes of an unconfirmed second factor also confirm dangerous acts;
    /// `None` if the account has no second factor.
    from: Option<String>,
}

/// Whether a session meets the second factor that a request needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requirement {
    /// The second factor was entered, or none is needed.
    Met,
    /// The account has neither a second factor nor a passkey.
    NotSetUp,
    /// The second factor of the account is unconfirmed until this time.
    Unconfirmed(Timestamp),
    /// The account has a second factor or a passkey, and the browser signed in without it.
    NotEntered,
}

/// Returns the message on the sign-in page for an account that has passkeys only: the password
/// alone did not suffice. Returns `None` for an account with a second factor, because the sign-in
/// asks for its code anyway.
pub fn passkey_needed(account: &Account) -> Option<&'static str> {
    account
        .second_factor
        .is_none()
        .then_some("This page needs more than your password: sign in with a passkey.")
}

/// Checks whether `signed_in` has the second factor that an authorize request needs. The service
/// may require one of operators and owners (`members` are the memberships to choose from), and the
/// request itself may ask for one (`asked_for`).
pub fn check_requirement(
    app: &App,
    signed_in: &SignedIn,
    asked_for: bool,
    members: &[Member],
) -> Requirement {
    let owns = || members.iter().any(|member| member.user.role == Role::Owner);
    let by_policy = app.config.second_factor == SecondFactorPolicy::Owners
        && (signed_in.account.operator || owns());
    evaluate_requirement(app, signed_in, by_policy || asked_for)
}

/// Checks whether `signed_in` has the second factor that a console page needs for a user of this
/// role: the service may require one of owners.
pub fn check_role_requirement(app: &App, signed_in: &SignedIn, role: Role) -> Requirement {
    let by_policy = app.config.second_factor == SecondFactorPolicy::Owners;
    evaluate_requirement(app, signed_in, by_policy && role == Role::Owner)
}

/// Checks whether `signed_in` has a second factor, if one is `needed`.
fn evaluate_requirement(app: &App, signed_in: &SignedIn, needed: bool) -> Requirement {
    if signed_in.session.second_factor || !needed {
        return Requirement::Met;
    }
    let account = &signed_in.account;
    // A passkey counts as second factor, whether or not the account has an authenticator app.
    if !account.passkeys.is_empty() {
        return Requirement::NotEntered;
    }
    let Some(factor) = account.second_factor.as_ref() else {
        return Requirement::NotSetUp;
    };
    let until = factor.unconfirmed_until(app.clock.now());
    until.map_or(Requirement::NotEntered, Requirement::Unconfirmed)
}

/// Renders the page for an account that needs a second factor and has none. `for_app`: an app waits
/// for the sign-in.
pub fn render_setup_due(app: &App, for_app: bool) -> Response {
    let frame = Frame::for_service(&app.config.public_url);
    let page = SetupDuePage {
        frame,
        for_app,
        passkeys: signs_in_with_passkeys(app),
        from: None,
    };
    layout::render_page(StatusCode::OK, &page, None)
}

/// Renders the page for an account that needs a second factor, and whose second factor is
/// unconfirmed until `from`.
pub fn render_unconfirmed(app: &App, from: Timestamp) -> Response {
    let page = SetupDuePage {
        frame: Frame::for_service(&app.config.public_url),
        for_app: false,
        passkeys: signs_in_with_passkeys(app),
        from: Some(format_minute(from)),
    };
    layout::render_page(StatusCode::OK, &page, None)
}

/// Counts one try of the code that was `typed`. Returns the problem if there were too many.
///
/// Codes of an authenticator app have six digits, so all tries at an account share one count.
/// Anyone who knows the password can use up that count, so a browser that passed the second factor
/// before (`known`) has a count of its own. Recovery codes cannot be guessed, so their tries are
/// counted for each network: an attacker elsewhere cannot block a person who lost the app.
pub async fn admit_code_attempt(
    app: &App,
    account: &Account,
    typed: &str,
    source: Option<IpAddr>,
    known: impl AsyncFnOnce() -> Result<bool, StoreError>,
) -> Result<Option<CodeProblem>, Refusal> {
    let (id, now) = (account.id.to_string(), app.clock.now());
    let is_recovery = has_recovery_form(typed);
    let (windows, text) = if is_recovery {
        let limit = NetworkLimit {
            name: "second-factor-recovery",
            about: Some(id.clone()),
            limit: MAX_TRIES,
            seconds: TRY_SECONDS,
        };
        let windows = limit.windows(&Networks::of(source));
        (windows, TOO_MANY_RECOVERY_CODES)
    } else {
        let window = Window::about_subject("second-factor", id.clone(), MAX_TRIES, TRY_SECONDS);
        (vec![window], TOO_MANY_CODES)
    };
    let Some(full) = limits::try_count(app, &windows, now).await? else {
        return Ok(None);
    };
    let wait = windows.get(full).map(|window| window.seconds_left(now));
    let too_many = Some((StatusCode::TOO_MANY_REQUESTS, text, wait));
    if is_recovery || !known().await? {
        return Ok(too_many);
    }
    let window = Window::about_subject("second-factor-known", id, MAX_TRIES, TRY_SECONDS);
    let full = limits::try_count(app, &[window], now).await?;
    Ok(too_many.filter(|_| full.is_some()))
}

/// Audit log action: a person signed in and removed a second factor that somebody else had set up.
const DISOWN: &str = "account.second-factor-disowned";

/// `POST /oauth/second-factor`: checks the code that completes a sign-in, or removes a second
/// factor that the person did not set up.
pub async fn answer_code_page(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let posted = read_posted_form(app, request).await?;
    let (form, browser) = (&posted.form, &posted.browser);
    let onward = ReturnTo::from_form(app, form)?;
    browser.check_form(app, form, Purpose::SecondFactor, onward.form_subject())?;
    let Some(half) = browser.load_half_signed_in(app).await? else {
        let prompt = SignInPrompt::default();
        return Ok(render_sign_in_page(app, browser, onward, prompt));
    };
    match form.value("disown") {
        Some("yes") => disown_second_factor(app, &posted, onward, half).await,
        Some(_) => Err(ErrorPage::FormMalformed),
        None => sign_in_with_code(app, &posted, onward, half).await,
    }
}

/// Removes an unconfirmed second factor, and signs the person in without it: somebody who finds a
/// browser open and sets one up must not lock its owner out.
async fn disown_second_factor(
    app: &App,
    posted: &PostedForm,
    onward: ReturnTo<'_>,
    half: SignedIn,
) -> Result<Response, ErrorPage> {
    let now = app.clock.now();
    let stored_account = app.get::<Account>(&account_key(&half.account.id)).await?;
    let stored_account = stored_account.ok_or(ErrorPage::FormForged)?;
    let mut account = stored_account.value;
    let Some(factor) = account.second_factor.take_if(|it| !it.confirms(now)) else {
        let problem = "This second factor can no longer be removed here. Enter a code of it, or ask an operator of this service to reset your account.";
        let problem = (StatusCode::CONFLICT, problem, None);
        return Ok(render_code_page(
            app,
            &posted.browser,
            &half.account,
            onward,
            Some(problem),
        ));
    };
    let notice = format!(
        "The second factor that was set up on {} has been removed. Sign out everywhere if it was not you who set it up.",
        format_minute(factor.since)
    );
    let completed = CompletedSignIn {
        browser: &posted.browser,
        returning: &posted.returning,
        source: posted.source,
        onward: next_page(&half.session, onward),
        action: DISOWN,
        second_factor: false,
        credentials: half.session.credentials.continued_at(now),
        notice: Some(notice),
    };
    let begin = async |tx: Transaction<'_>| {
        tx.write(account.update_write(stored_account.revision)?);
        completed.begin_session(&tx, app, &account).await
    };
    let response = app.attempt(begin).await?;
    response.ok_or_else(|| StoreError::Conflict.into())
}

/// Returns the page that a sign-in leads to. If the session confirms nothing because the provider
/// did not state credentials, this is the page that says so; the page `onward` would only ask for
/// credentials again.
const fn next_page<'f>(session: &Session, onward: ReturnTo<'f>) -> ReturnTo<'f> {
    if session.credentials.are_unstated() {
        ReturnTo::SecondFactor
    } else {
        onward
    }
}

/// Checks a code, and completes the sign-in of the half session.
async fn sign_in_with_code(
    app: &App,
    posted: &PostedForm,
    onward: ReturnTo<'_>,
    half: SignedIn,
) -> Result<Response, ErrorPage> {
    let SignedIn { account, session } = half;
    let PostedForm {
        form,
        browser,
        returning,
        source,
    } = posted;
    let source = *source;
    let again = |problem| {
        Ok(render_code_page(
            app,
            browser,
            &account,
            onward,
            Some(problem),
        ))
    };
    let wrong_code = (StatusCode::UNPROCESSABLE_ENTITY, WRONG_CODE, None);
    let email = account.email.as_str();
    let typed = form.value("code").unwrap_or_default();
    let known = async || returning.passed_second_factor(app, email).await;
    if let Some(problem) = admit_code_attempt(app, &account, typed, source, known).await? {
        audit::record_refused_sign_in(app, email, source, "rate_limited_code").await;
        return again(problem);
    }
    // Read again, with its revision: the commit fails if another browser uses a code meanwhile, so
    // each code counts once.
    let stored_account = app.get::<Account>(&account_key(&account.id)).await?;
    let mut stored_account = stored_account.ok_or(ErrorPage::FormForged)?;
    let now = app.clock.now();
    let Some(factor) = stored_account.value.second_factor.as_mut() else {
        return Err(ErrorPage::FormForged);
    };
    let confirms = factor.confirms(now);
    let Some(used) = factor.use_code(typed, now) else {
        audit::record_refused_sign_in(app, email, source, "wrong_code").await;
        return again(wrong_code);
    };
    let completed = CompletedSignIn {
        browser,
        returning,
        source,
        onward: if confirms {
            onward
        } else {
            next_page(&session, onward)
        },
        action: match used {
            UsedCode::App => audit::SIGN_IN,
            // Recorded under a name of its own, because the owner may have lost the device, or an
            // attacker may have found the codes.
            UsedCode::Recovery => "account.sign-in-by-recovery-code",
        },
        second_factor: confirms,
        credentials: if confirms {
            // The code was entered just now, whatever the first proof was.
            Credentials::Entered { at: now }
        } else {
            session.credentials.continued_at(now)
        },
        notice: None,
    };
    let begin = async |tx: Transaction<'_>| {
        tx.write(stored_account.value.update_write(stored_account.revision)?);
        completed
            .begin_session(&tx, app, &stored_account.value)
            .await
    };
    match app.attempt(begin).await? {
        Some(response) => Ok(response),
        // Another browser used a code at the same moment, perhaps the same one.
        None => again(wrong_code),
    }
}
