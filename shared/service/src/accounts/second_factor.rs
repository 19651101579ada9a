//! Second factor at sign-in: the page that asks for a code, and the check whether a request needs
//! one. `second_factor_page` is where it is set up.

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

/// Maximum number of codes tried for one account in a quarter of an hour, valid ones included.
const MAX_TRIES: u32 = 10;
/// Length of that window, in seconds.
const TRY_SECONDS: i64 = 15 * 60;
/// Message for a code that does not count.
pub const WRONG_CODE: &str = "This code is not valid, or was used already. Wait for the next one.";
/// Message after too many codes of an authenticator app.
const TOO_MANY_CODES: &str =
    "Too many attempts. Try again in 15 minutes, or enter a recovery code.";
/// Message after too many recovery codes.
const TOO_MANY_RECOVERY_CODES: &str = "Too many recovery codes. Try again in 15 minutes, or enter a code from your authenticator app.";

/// Page that asks for a code at sign-in.
#[derive(Template)]
#[template(path = "code.html")]
struct CodePage {
    frame: Frame,
    csrf: String,
    return_to: String,
    problem: Option<&'static str>,
    /// Whether a passkey is accepted instead.
    passkeys: bool,
    /// Whether the form for a code stands beside the passkey.
    beside_passkey: bool,
    /// A second factor whose codes do not count yet.
    unconfirmed: Option<UnconfirmedFactor>,
}

/// A second factor that was set up without credentials a short time ago.
struct UnconfirmedFactor {
    set_up_at: String,
    /// The time from which its codes count.
    from: String,
}

/// Status and sentence of a code that was refused, and the seconds to wait after too many.
pub type CodeProblem = (StatusCode, &'static str, Option<u64>);

/// Renders the page that asks for a code of `account`, in a browser whose first proof was accepted.
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
    /// Whether an app waits for an answer.
    for_app: bool,
    /// Whether a passkey is accepted instead.
    passkeys: bool,
    /// The time from which the codes of the second factor count, if it is set up.
    from: Option<String>,
}

/// State of a sign-in with regard to the second factor that a request needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requirement {
    /// It was entered, or none is needed.
    Met,
    /// The account has none, and no passkey either.
    NotSetUp,
    /// The account has one, whose codes count from this time on.
    Unconfirmed(Timestamp),
    /// The account has one, and the browser signed in without it.
    NotEntered,
}

/// Returns the message on the sign-in page to a person whose password alone was not enough, if only
/// a passkey is: with a second factor, the page asks for the code by itself.
pub fn passkey_needed(account: &Account) -> Option<&'static str> {
    account
        .second_factor
        .is_none()
        .then_some("This page needs more than your password: sign in with a passkey.")
}

/// Checks `signed_in` against the second factor that an authorize request for one of `members`
/// needs: the service may require one of operators and owners, and the request itself may ask for
/// one.
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

/// Checks `signed_in` against the second factor that a console page for a user of this role needs:
/// the service may require one of owners.
pub fn check_role_requirement(app: &App, signed_in: &SignedIn, role: Role) -> Requirement {
    let by_policy = app.config.second_factor == SecondFactorPolicy::Owners;
    evaluate_requirement(app, signed_in, by_policy && role == Role::Owner)
}

/// Checks `signed_in` against a second factor that is needed or not.
fn evaluate_requirement(app: &App, signed_in: &SignedIn, needed: bool) -> Requirement {
    if signed_in.session.second_factor || !needed {
        return Requirement::Met;
    }
    let account = &signed_in.account;
    // A passkey is accepted instead, whether or not there is an authenticator app.
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
/// for it.
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

/// Renders the page for an account that needs a second factor, and whose codes count from this time
/// on.
pub fn render_unconfirmed(app: &App, from: Timestamp) -> Response {
    let page = SetupDuePage {
        frame: Frame::for_service(&app.config.public_url),
        for_app: false,
        passkeys: signs_in_with_passkeys(app),
        from: Some(format_minute(from)),
    };
    layout::render_page(StatusCode::OK, &page, None)
}

/// Counts one try of the code that was `typed`. Returns the problem when there were too many.
///
/// Codes of an authenticator app have six digits, so all tries at an account are counted together,
/// and anyone who has the password can use up those of unknown browsers. A browser that passed the
/// second factor before (`known`) then has as many of its own. Recovery codes cannot be guessed, so
/// tries of them are counted by network: nobody elsewhere can make the person who lost the app
/// wait.
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

/// Action of a sign-in that removes a second factor which its owner did not set up.
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

/// Removes a second factor that was set up without credentials and whose codes do not count yet,
/// and signs the person in without it. Whoever found a browser open must not lock its owner out.
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
        credentials: half.session.credentials.carried_on(now),
        notice: Some(notice),
    };
    let begin = async |tx: Transaction<'_>| {
        tx.write(account.update_write(stored_account.revision)?);
        completed.begin_session(&tx, app, &account).await
    };
    let response = app.attempt(begin).await?;
    response.ok_or_else(|| StoreError::Conflict.into())
}

/// Returns the page that a sign-in leads to. After one that confirms nothing, it is the page that
/// says so, instead of the one that would ask for credentials again.
const fn next_page<'f>(session: &Session, onward: ReturnTo<'f>) -> ReturnTo<'f> {
    if session.credentials.are_unstated() {
        ReturnTo::SecondFactor
    } else {
        onward
    }
}

/// Checks the code that completes a sign-in.
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
            // Recorded under its own name: the owner may have lost the device, or an attacker found
            // the codes.
            UsedCode::Recovery => "account.sign-in-by-recovery-code",
        },
        second_factor: confirms,
        credentials: if confirms {
            // The code was entered just now, whatever the first proof was.
            Credentials::Entered { at: now }
        } else {
            session.credentials.carried_on(now)
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
        // Another browser used a code at the same moment, perhaps this one.
        None => again(wrong_code),
    }
}
