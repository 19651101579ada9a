//! The page `/account/second-factor`, on which a person sets up an authenticator app as second
//! factor, moves to another app, or turns it off.
//!
//! Each change asks for the password again. If the account has no password, it needs a sign-in
//! within the last five minutes: someone who finds a browser open must not lock its owner out. If
//! the account has a second factor, a change also needs a code of it.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::Response;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use zeroize::Zeroizing;

use super::audit;
use super::guard::{FormTask, SignedInBrowser, SignedInForm};
use super::memberships::owns_any_namespace;
use super::second_factor::{self, CodeProblem, WRONG_CODE};
use super::session::{SessionStart, new_session, redirect_to};
use super::sign_in::{self, PasswordCheck, too_many_attempts};
use super::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::config::SecondFactorPolicy;
use crate::model::account::Account;
use crate::model::second_factor::{RECOVERY_CODES, SecondFactor, TotpSecret};
use crate::model::session::Credentials;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, ReturnTo, SECOND_FACTOR_PATH};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, SignOut, format_minute};
use crate::web::remembered_browser::RememberedBrowser;

/// Page on which the second factor is set up, moved or turned off.
#[derive(Template)]
#[template(path = "second_factor.html")]
struct FactorPage {
    frame: Frame,
    email: String,
    csrf: String,
    /// Whether the account has a second factor.
    on: bool,
    /// Number of recovery codes left.
    left: usize,
    /// Whether the service lets this account turn the second factor off.
    may_turn_off: bool,
    /// Whether a change needs the password; without one it needs a sign-in within the last five
    /// minutes.
    has_password: bool,
    /// Secret that the person may set up in an app.
    fresh: NewSecret,
    problem: Option<&'static str>,
    /// Explanation of why an earlier step led the person here.
    note: Option<String>,
    sign_out: SignOut,
}

struct NewSecret {
    /// The secret in base32.
    secret: String,
    /// The secret in groups of four characters, for typing.
    shown: String,
    /// Link that hands the secret to an authenticator app (`otpauth:`).
    address: String,
}

/// Page that shows the recovery codes, once.
#[derive(Template)]
#[template(path = "recovery_codes.html")]
struct RecoveryPage {
    frame: Frame,
    codes: Vec<String>,
}

/// Returns the explanation for a person whose identity provider does not state that credentials
/// were entered, so that the sign-in confirms nothing.
fn unstated_note(account: &Account, now: Timestamp) -> String {
    let what = "The step that you came from needs to know that you entered your credentials, and your identity provider does not say so.";
    let factor = account.second_factor.as_ref();
    match factor.and_then(|factor| factor.unconfirmed_until(now)) {
        Some(from) => format!(
            "{what} The codes of your second factor confirm such steps from {} on, because it was set up without credentials. Start the step again then.",
            format_minute(from)
        ),
        None => format!(
            "{what} Set up a second factor now: its codes confirm such steps from tomorrow on. If your account has a password, sign in with it and start the step again."
        ),
    }
}

/// `GET /account/second-factor`: shows the page.
pub async fn show_second_factor(
    app: &App,
    request: SignedInBrowser,
) -> Result<Response, ErrorPage> {
    // Each view has a new secret. It is stored only once the app has shown a code of it.
    let secret = TotpSecret::fresh(&app.random);
    let account = &request.signed_in.account;
    let (session, now) = (&request.signed_in.session, app.clock.now());
    let is_unstated = session.is_recent_unstated(now);
    let note = is_unstated.then(|| unstated_note(account, now));
    let page = make_page(app, &request.browser, account, &secret).await?;
    let page = FactorPage { note, ..page };
    Ok(layout::render_page(StatusCode::OK, &page, None))
}

async fn render_page(
    app: &App,
    browser: &Browser,
    account: &Account,
    secret: &TotpSecret,
    problem: CodeProblem,
) -> Result<Response, ErrorPage> {
    let (status, problem, wait) = problem;
    let page = make_page(app, browser, account, secret).await?;
    let problem = Some(problem);
    let mut response = layout::render_page(status, &FactorPage { problem, ..page }, None);
    layout::set_retry_after(&mut response, wait);
    Ok(response)
}

async fn make_page(
    app: &App,
    browser: &Browser,
    account: &Account,
    secret: &TotpSecret,
) -> Result<FactorPage, ErrorPage> {
    let public = &app.config.public_url;
    let text = secret.text();
    let groups: Vec<_> = (0..8).map(|n| &text[4 * n..4 * n + 4]).collect();
    let fresh = NewSecret {
        shown: groups.join(" "),
        address: secret.import_address(public.authority(), account.email.as_str()),
        secret: text.clone(),
    };
    let factor = account.second_factor.as_ref();
    let return_to = ReturnTo::Account.address(app);
    Ok(FactorPage {
        frame: Frame::for_service(public),
        email: account.email.to_string(),
        csrf: browser.form_token(app, Purpose::Account, SECOND_FACTOR_PATH),
        on: factor.is_some(),
        left: factor.map_or(0, SecondFactor::recovery_left),
        may_turn_off: !requires_second_factor(app, account).await?,
        has_password: account.password_hash().is_some(),
        fresh,
        problem: None,
        note: None,
        sign_out: SignOut {
            csrf: browser.form_token(app, Purpose::Logout, &return_to),
            return_to,
        },
    })
}

/// Whether the policy of the service requires a second factor of this account, because it is an
/// operator or owns a namespace.
async fn requires_second_factor(app: &App, account: &Account) -> Result<bool, StoreError> {
    if app.config.second_factor == SecondFactorPolicy::Optional {
        return Ok(false);
    }
    Ok(account.operator || owns_any_namespace(app, account).await?)
}

pub const CHANGE: FormTask = FormTask {
    purpose: Purpose::Account,
    onward: |_, _| Ok(ReturnTo::SecondFactor),
    action: "account.second-factor",
};

/// Change of the second factor, from the field `change` of the form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FactorChange {
    On,
    /// Moves it to another authenticator app, with new recovery codes.
    Move,
    Off,
}

impl FactorChange {
    fn from_form(request: &SignedInForm) -> Option<Self> {
        match request.form.value("change")? {
            "on" => Some(Self::On),
            "move" => Some(Self::Move),
            "off" => Some(Self::Off),
            _ => None,
        }
    }

    /// Returns the problem if the account already has, or no longer has, a second factor.
    fn find_conflict(self, account: &Account) -> Option<CodeProblem> {
        let problem = "The second factor was changed elsewhere. Look at its present state first.";
        (account.second_factor.is_some() == (self == Self::On)).then_some((
            StatusCode::CONFLICT,
            problem,
            None,
        ))
    }

    const fn audit_action(self) -> &'static str {
        match self {
            Self::On => "account.second-factor-on",
            Self::Move => "account.second-factor-moved",
            Self::Off => "account.second-factor-off",
        }
    }
}

/// `POST /account/second-factor`: changes the second factor, and gives the browser a new session.
pub async fn change_second_factor(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let factor_change = FactorChange::from_form(&request).ok_or(ErrorPage::FormMalformed)?;
    // The form returns the secret that the page showed, so that a mistyped code needs no new scan.
    let secret = match request.form.value("secret") {
        Some(text) => text.parse().map_err(|_| ErrorPage::FormMalformed)?,
        None => TotpSecret::fresh(&app.random),
    };
    let account = request.read_account(app).await?.value;
    if is_stale(&request, &account, app.clock.now()) {
        let prompt = SignInPrompt {
            email: account.email.as_str(),
            problem: Some("To change the second factor, sign in again. Nothing has been changed."),
            ..SignInPrompt::default()
        };
        let onward = ReturnTo::SecondFactor;
        return Ok(render_sign_in_page(app, &request.browser, onward, prompt));
    }
    let changed = match find_problem(app, &request, factor_change, &account).await? {
        Some(problem) => Err(problem),
        None => {
            let change = (factor_change, &secret);
            let change = async |tx| change_in(&tx, app, &request, change).await;
            app.change(change).await?
        }
    };
    match changed {
        Ok((codes, cookies)) => Ok(change_response(app, codes, cookies)),
        Err(problem) => render_page(app, &request.browser, &account, &secret, problem).await,
    }
}

/// Shows the recovery codes, or redirects to the account page if there are none.
fn change_response(app: &App, codes: Vec<String>, cookies: [Option<HeaderValue>; 2]) -> Response {
    let mut response = if codes.is_empty() {
        redirect_to(StatusCode::SEE_OTHER, &ReturnTo::Account.address(app))
    } else {
        debug_assert_eq!(codes.len(), RECOVERY_CODES);
        let frame = Frame::for_service(&app.config.public_url);
        layout::render_page(StatusCode::OK, &RecoveryPage { frame, codes }, None)
    };
    for cookie in cookies.into_iter().flatten() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Checks all of a form that counts attempts or reads other records than the account, before the
/// change. Returns the problem, if any.
async fn find_problem(
    app: &App,
    request: &SignedInForm,
    factor_change: FactorChange,
    account: &Account,
) -> Result<Option<CodeProblem>, ErrorPage> {
    if let Some(problem) = factor_change.find_conflict(account) {
        return Ok(Some(problem));
    }
    if factor_change == FactorChange::Off && requires_second_factor(app, account).await? {
        let problem = "This service requires a second factor of owners and operators.";
        return Ok(Some((StatusCode::FORBIDDEN, problem, None)));
    }
    // Checked before the code, so that guessing a code needs the correct password.
    if let Some(problem) = check_credentials(app, request, account).await? {
        return Ok(Some(problem));
    }
    if account.second_factor.is_none() {
        return Ok(None);
    }
    let email = account.email.as_str();
    let known = async || {
        let before = request.returning.passed_second_factor(app, email);
        Ok(request.signed_in.session.second_factor || before.await?)
    };
    let (code, source) = (
        request.form.value("code").unwrap_or_default(),
        request.source,
    );
    let too_many = second_factor::admit_code_attempt(app, account, code, source, known).await?;
    if too_many.is_some() {
        record_refusal(app, request, "rate_limited_code").await;
    }
    Ok(too_many)
}

/// Changes the second factor of the account as it is now, and replaces the session of the browser.
/// Returns the recovery codes to be shown once, and the cookies to set.
async fn change_in(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
    (factor_change, secret): (FactorChange, &TotpSecret),
) -> Result<Result<(Vec<String>, [Option<HeaderValue>; 2]), CodeProblem>, ErrorPage> {
    let mut stored = request.read_account(tx).await?;
    let (account, source, now) = (&mut stored.value, request.source, tx.now());
    if let Some(problem) = factor_change.find_conflict(account) {
        return Ok(Err(problem));
    }
    let typed = |name: &str| request.form.value(name).unwrap_or_default();
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    if let Some(mut factor) = account.second_factor.take()
        && factor.use_code(typed("code"), now).is_none()
    {
        record_refusal(app, request, "wrong_code").await;
        return Ok(Err((unprocessable, WRONG_CODE, None)));
    }
    let mut codes = Vec::new();
    if factor_change != FactorChange::Off {
        // The person must enter a code of the new app first: after a failed scan they would be
        // locked out.
        let begun = SecondFactor::enable_with(secret.clone(), typed("new_code"), now, &tx.random);
        let Some((factor, recovery)) = begun else {
            let problem = "This is not the code that the app shows for this key now.";
            return Ok(Err((unprocessable, problem, None)));
        };
        let factor = if lacks_credentials(request, account, now) {
            factor.unconfirmed_at(now)
        } else {
            factor
        };
        (account.second_factor, codes) = (Some(factor), recovery);
    }
    let start = session_start(request, account, now);
    let counts = start.second_factor;
    let (fresh, session) = new_session(app, &request.browser, account, source, start).await?;
    let email = account.email.as_str();
    let (remembered, known) = request.returning.remember_sign_in(app, email, counts)?;
    tx.write_all(session);
    tx.write(remembered);
    tx.write(account.update_write(stored.revision)?);
    let action = factor_change.audit_action();
    tx.write_all(audit::account_entries(app, account, source, action, "done").await?);
    Ok(Ok((codes, [fresh.set_cookie(app, true), known])))
}

/// Describes the session that continues after a change of the second factor.
fn session_start(
    request: &SignedInForm,
    account: &Account,
    now: Timestamp,
) -> SessionStart<'static> {
    let factor = account.second_factor.as_ref();
    let credentials = if lacks_credentials(request, account, now) {
        Credentials::NotEntered
    } else {
        Credentials::Entered { at: now }
    };
    let unconfirmed_until = factor.and_then(|factor| factor.unconfirmed_until(now));
    SessionStart {
        second_factor: factor.is_some_and(|factor| factor.confirms(now)),
        notices: unconfirmed_until
            .map(|from| {
                format!(
                    "Your second factor does not count yet, because it was set up without credentials. It counts from {} on.",
                    format_minute(from)
                )
            })
            .into_iter()
            .collect(),
        ..SessionStart::from_credentials(credentials)
    }
}

/// Checks the password for a change, if the account has one. Returns the problem, if any.
async fn check_credentials(
    app: &App,
    request: &SignedInForm,
    account: &Account,
) -> Result<Option<CodeProblem>, ErrorPage> {
    if account.password_hash().is_some() {
        return check_form_password(app, request).await;
    }
    // For an account without a password, `is_stale` has checked the session.
    Ok(None)
}

/// Whether a change would be made without fresh credentials: the account has no password, and its
/// session has no sign-in of the last five minutes.
fn lacks_credentials(request: &SignedInForm, account: &Account, now: Timestamp) -> bool {
    account.password_hash().is_none() && !request.signed_in.session.has_fresh_credentials(now)
}

/// Whether an account without a password must sign in again before a change.
fn is_stale(request: &SignedInForm, account: &Account, now: Timestamp) -> bool {
    let session = &request.signed_in.session;
    // Exception for the first second factor: with a provider that never states whether credentials
    // were entered, a person without a password could not set one up, and could never confirm
    // anything.
    let sets_up_first = account.second_factor.is_none() && session.is_recent_unstated(now);
    lacks_credentials(request, account, now) && !sets_up_first
}

/// Checks the password of the form and returns the problem, if any.
async fn check_form_password(
    app: &App,
    request: &SignedInForm,
) -> Result<Option<CodeProblem>, ErrorPage> {
    let typed = request.form.value("password").unwrap_or_default();
    let typed = Zeroizing::new(typed.to_owned());
    let email = request.signed_in.account.email.as_str();
    let known = RememberedBrowser::already_signed_in();
    let checked = sign_in::check_password(app, email, typed, request.source, &known).await?;
    let (outcome, problem) = match checked {
        PasswordCheck::Good { taken_back, .. } => {
            // The password was correct, so its attempt does not count. If the store is too busy for
            // these writes, the person only has fewer attempts for a while.
            app.try_commit(taken_back).await?;
            return Ok(None);
        }
        PasswordCheck::Wrong => {
            let problem = (StatusCode::UNPROCESSABLE_ENTITY, "Wrong password.", None);
            ("wrong_password", problem)
        }
        PasswordCheck::TooMany { retry_after } => {
            let too_many = StatusCode::TOO_MANY_REQUESTS;
            let problem = (too_many, too_many_attempts(retry_after), Some(retry_after));
            ("rate_limited", problem)
        }
    };
    record_refusal(app, request, outcome).await;
    Ok(Some(problem))
}

async fn record_refusal(app: &App, request: &SignedInForm, outcome: &str) {
    audit::record_refusal(
        app,
        &request.browser,
        request.source,
        CHANGE.action,
        outcome,
    )
    .await;
}
