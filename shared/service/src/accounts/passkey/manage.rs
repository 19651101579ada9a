//! The page `/account/passkeys`, on which a person adds and removes passkeys.
//!
//! Each change needs a sign-in within the last five minutes, with the second factor where the
//! account has one: someone who finds a browser open must not gain a way in, nor take one away.

use askama::Template;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use vault_store::StoreError;
use vault_store::records::When;
use webauthn_rs::prelude::{Passkey as Credential, RegisterPublicKeyCredential, Webauthn};

use super::challenge::{store_challenge, take_challenge};
use super::relying_party::{internal_error, passkeys_off, relying_party, signs_in_with_passkeys};
use crate::accounts::audit;
use crate::accounts::guard::{FormTask, SignedInBrowser, SignedInForm};
use crate::accounts::session::{SessionStart, new_session, redirect_to};
use crate::accounts::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::model::account::{Account, account_key};
use crate::model::passkey::{
    self, MAX_PASSKEYS, PasskeyEntry, PasskeyId, PasskeyName, passkey_id, passkey_key,
};
use crate::model::passkey_challenge::{AdditionState, ChallengePurpose};
use crate::model::session::Credentials;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, PASSKEYS_PATH, ReturnTo};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, PASSKEY_SCRIPT, SignOut, format_day};

const SIGN_IN_AGAIN: &str = "To change your passkeys, sign in again. A sign-in counts for five minutes, and only with your second factor if you have one.";
/// Message when the browser's answer has no stored challenge any more.
const TOO_LATE: &str =
    "The passkey came too late, or was sent before. Nothing was added: try again.";
/// Message when the browser's answer fails the WebAuthn checks.
const NOT_ACCEPTED: &str =
    "The browser's answer was not valid, so nothing was added. Try again, or use another device.";
const ALREADY_USED: &str = "This passkey belongs to an account already, so nothing was added.";
const TOO_MANY: &str = "Your account has 10 passkeys, the most it may have. Remove one first.";
/// Message when the name of the new passkey is empty, too long or has invisible characters.
const BAD_NAME: &str = "Give the passkey a name of 1 to 64 characters, all of them visible.";

#[derive(Template)]
#[template(path = "passkeys.html")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each decides whether one part is shown"
)]
struct PasskeysPage {
    frame: Frame,
    csrf: String,
    passkeys: Vec<ShownPasskey>,
    /// Host of the public URL if passkeys cannot work there (an IP address); `None` if they work.
    unavailable: Option<String>,
    /// Port of the public URL with its colon, for a link to `localhost`; empty for the default
    /// port.
    port: String,
    /// Whether this service lets a passkey sign in without a password.
    signs_in: bool,
    has_factor: bool,
    /// Whether the password signs in without a second factor.
    password_alone: bool,
    is_full: bool,
    /// Maximum number of passkeys of an account.
    most: usize,
    /// Name for a new passkey that the person typed.
    typed: String,
    problem: Option<&'static str>,
    sign_out: SignOut,
}

/// Row of the page: a passkey of the account.
struct ShownPasskey {
    id: String,
    name: String,
    added: String,
    used: String,
}

/// Page on which the browser asks an authenticator to create a passkey.
#[derive(Template)]
#[template(path = "passkey_new.html")]
struct NewPasskeyPage {
    frame: Frame,
    csrf: String,
    name: String,
    email: String,
    /// Argument of `navigator.credentials.create`, as JSON.
    options: String,
    script: &'static str,
}

/// HTTP status and message for a change that was refused.
type ChangeProblem = (StatusCode, &'static str);

/// `GET /account/passkeys`: shows the page.
pub async fn show_passkeys(app: &App, request: SignedInBrowser) -> Result<Response, ErrorPage> {
    let account = &request.signed_in.account;
    Ok(render_list(
        app,
        &request.browser,
        account,
        ("Passkey", None),
    ))
}

fn render_list(
    app: &App,
    browser: &Browser,
    account: &Account,
    (typed, problem): (&str, Option<ChangeProblem>),
) -> Response {
    let public = &app.config.public_url;
    let shown = account
        .passkeys
        .as_slice()
        .iter()
        .map(|passkey| ShownPasskey {
            id: passkey.id().to_string(),
            name: passkey.name.to_string(),
            added: format_day(passkey.added_at),
            used: passkey.last_used_at.map_or_else(
                || "never used".to_owned(),
                |at| format!("last used {}", format_day(at)),
            ),
        });
    let authority = public.authority();
    let (host, port) = match authority.rfind(':') {
        // A colon within brackets belongs to an IPv6 address.
        Some(at) if !authority.ends_with(']') => authority.split_at(at),
        _ => (authority, ""),
    };
    let works = relying_party(public).is_some();
    let return_to = ReturnTo::Account.address(app);
    let page = PasskeysPage {
        frame: Frame::for_service(public),
        csrf: browser.form_token(app, Purpose::Account, PASSKEYS_PATH),
        passkeys: shown.collect(),
        unavailable: (!works).then(|| host.to_owned()),
        port: port.to_owned(),
        signs_in: signs_in_with_passkeys(app),
        has_factor: account.second_factor.is_some(),
        password_alone: account.password_hash().is_some() && account.second_factor.is_none(),
        is_full: account.passkeys.is_full(),
        most: MAX_PASSKEYS,
        typed: typed.to_owned(),
        problem: problem.map(|(_, problem)| problem),
        sign_out: SignOut {
            csrf: browser.form_token(app, Purpose::Logout, &return_to),
            return_to,
        },
    };
    let status = problem.map_or(StatusCode::OK, |(status, _)| status);
    layout::render_page(status, &page, None)
}

const fn form_task(action: &'static str) -> FormTask {
    FormTask {
        purpose: Purpose::Account,
        onward: |_, _| Ok(ReturnTo::Passkeys),
        action,
    }
}

/// The form that begins to add a passkey: it carries only the name.
pub const NEW: FormTask = form_task("account.passkey-added");
/// The form that returns the answer of the authenticator.
pub const ADD: FormTask = form_task("account.passkey-added");
pub const REMOVE: FormTask = form_task("account.passkey-removed");

/// Returns the sign-in page, which then leads back here, unless the person signed in within the
/// last five minutes with every factor that the account has.
fn ask_for_fresh_sign_in(app: &App, request: &SignedInForm) -> Option<Response> {
    let (session, account) = (&request.signed_in.session, &request.signed_in.account);
    let whole = account.second_factor.is_none() || session.second_factor;
    if whole && session.has_fresh_credentials(app.clock.now()) {
        return None;
    }
    let prompt = SignInPrompt {
        problem: Some(SIGN_IN_AGAIN),
        ..SignInPrompt::default()
    };
    let mut page = render_sign_in_page(app, &request.browser, ReturnTo::Passkeys, prompt);
    *page.status_mut() = StatusCode::FORBIDDEN;
    Some(page)
}

/// `POST /account/passkeys/new`: shows the page on which the browser makes a passkey.
pub async fn begin_addition(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let party = relying_party(&app.config.public_url).ok_or_else(passkeys_off)?;
    if let Some(page) = ask_for_fresh_sign_in(app, &request) {
        return Ok(page);
    }
    let (browser, account) = (&request.browser, &request.signed_in.account);
    let typed = request.form.value("name").unwrap_or_default();
    let refuse = |problem| Ok(render_list(app, browser, account, (typed, Some(problem))));
    let Ok(name) = typed.parse::<PasskeyName>() else {
        return refuse((StatusCode::UNPROCESSABLE_ENTITY, BAD_NAME));
    };
    if account.passkeys.is_full() {
        return refuse((StatusCode::CONFLICT, TOO_MANY));
    }
    let (options, state) = begin_registration(app, &party, account, name.clone())?;
    store_challenge(app, browser, ChallengePurpose::Add, state).await?;
    let page = NewPasskeyPage {
        frame: Frame::for_service(&app.config.public_url),
        csrf: browser.form_token(app, Purpose::Account, PASSKEYS_PATH),
        name: name.to_string(),
        email: account.email.to_string(),
        options,
        script: PASSKEY_SCRIPT,
    };
    Ok(layout::render_passkey_page(StatusCode::OK, &page, None))
}

/// Returns the options of the browser's call as JSON, and the state against which its answer is
/// checked.
fn begin_registration(
    app: &App,
    party: &Webauthn,
    account: &Account,
    name: PasskeyName,
) -> Result<(String, AdditionState), ErrorPage> {
    let user = account.passkeys.user_or_fresh(&app.random);
    let held = account.passkeys.as_slice().iter();
    let held = held.map(|passkey| passkey.credential().cred_id().clone());
    let email = account.email.as_str();
    let begun = party.start_passkey_registration(user, email, email, Some(held.collect()));
    let (request, registration) = begun.map_err(internal_error)?;
    let mut options = serde_json::to_value(&request.public_key).map_err(internal_error)?;
    // A sign-in by passkey begins without an e-mail address, so the authenticator must store the
    // passkey itself to offer it.
    options["authenticatorSelection"]["residentKey"] = "required".into();
    options["authenticatorSelection"]["requireResidentKey"] = true.into();
    let state = AdditionState {
        account: account.id.clone(),
        user,
        name,
        registration,
    };
    Ok((options.to_string(), state))
}

/// `POST /account/passkeys`: checks the answer of an authenticator and adds its passkey.
pub async fn finish_addition(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let party = relying_party(&app.config.public_url).ok_or_else(passkeys_off)?;
    let (browser, account) = (&request.browser, &request.signed_in.account);
    let refuse = async |problem: ChangeProblem, outcome: &str| {
        audit::record_refusal(app, browser, request.source, ADD.action, outcome).await;
        let page = render_list(app, browser, account, ("Passkey", Some(problem)));
        Ok(page)
    };
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    // The sign-in is not checked again: it was fresh when the challenge was made, at most five
    // minutes ago.
    let challenge = take_challenge::<AdditionState>(app, browser, ChallengePurpose::Add).await?;
    let challenge = challenge.filter(|challenge| challenge.state.account == account.id);
    let Some(challenge) = challenge else {
        return refuse((unprocessable, TOO_LATE), "passkey_late").await;
    };
    let answer = request.form.value("credential").unwrap_or_default();
    let answer = serde_json::from_str::<RegisterPublicKeyCredential>(answer);
    let registration = &challenge.state.registration;
    let credential = answer.ok().and_then(|answer| {
        party
            .finish_passkey_registration(&answer, registration)
            .ok()
    });
    let Some(credential) = credential else {
        return refuse((unprocessable, NOT_ACCEPTED), "passkey_refused").await;
    };
    let state = &challenge.state;
    let add = async |tx| add_in(&tx, app, &request, (state, &credential)).await;
    match app.change(add).await? {
        Ok(()) => Ok(redirect_to(
            StatusCode::SEE_OTHER,
            &ReturnTo::Passkeys.address(app),
        )),
        Err(problem) => refuse(problem, "passkey_refused").await,
    }
}

/// Adds a credential to the account as it is now.
async fn add_in(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
    (state, credential): (&AdditionState, &Credential),
) -> Result<Result<(), ChangeProblem>, ErrorPage> {
    // Fails if the account was reset meanwhile: the passkey must not be added to it.
    let mut stored = request.read_account(tx).await?;
    let account = &mut stored.value;
    let id = passkey_id(credential.cred_id());
    let Some(when) = find_free_entry(tx, &id).await? else {
        return Ok(Err((StatusCode::CONFLICT, ALREADY_USED)));
    };
    let added = account
        .passkeys
        .add(credential.clone(), state.user, state.name.clone(), tx.now());
    match added {
        Ok(()) => {}
        Err(passkey::PasskeyNotAdded::TooMany) => {
            return Ok(Err((StatusCode::CONFLICT, TOO_MANY)));
        }
        Err(passkey::PasskeyNotAdded::OtherUser) => {
            return Ok(Err((StatusCode::CONFLICT, TOO_LATE)));
        }
    }
    tx.write(account.update_write(stored.revision)?);
    tx.write(passkey::entry_write(&id, &account.id, when)?);
    let (source, action) = (request.source, ADD.action);
    tx.write_all(audit::account_entries(app, account, source, action, "done").await?);
    Ok(Ok(()))
}

/// Returns the condition for the write that enters a credential in the index of passkeys; `None` if
/// an account has the credential.
async fn find_free_entry(tx: &Transaction<'_>, id: &PasskeyId) -> Result<Option<When>, StoreError> {
    let Some(entry) = tx.get::<PasskeyEntry>(&passkey_key(id)).await? else {
        return Ok(Some(When::Absent));
    };
    // An entry counts for nothing if its account does not list the passkey any more. An earlier
    // version of vault leaves such entries when it writes an account.
    let owner = tx
        .get::<Account>(&account_key(&entry.value.account))
        .await?;
    let is_held = owner.is_some_and(|owner| {
        owner
            .value
            .passkeys
            .as_slice()
            .iter()
            .any(|it| it.id() == *id)
    });
    Ok((!is_held).then_some(When::At(entry.revision)))
}

/// `POST /account/passkeys/remove`: removes a passkey, and signs every other browser out.
pub async fn remove_passkey(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let id = request.form.value("passkey");
    let id: Option<PasskeyId> = id.and_then(|text| text.parse().ok());
    let id = id.ok_or(ErrorPage::FormMalformed)?;
    if let Some(page) = ask_for_fresh_sign_in(app, &request) {
        return Ok(page);
    }
    let remove = async |tx| remove_in(&tx, app, &request, &id).await;
    let fresh = app.change(remove).await?;
    let mut response = redirect_to(StatusCode::SEE_OTHER, &ReturnTo::Passkeys.address(app));
    let cookie = fresh.and_then(|fresh| fresh.set_cookie(app, true));
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Removes a passkey. Returns the browser with its new session; `None` if the account has no such
/// passkey any more, perhaps after a second click.
async fn remove_in(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
    id: &PasskeyId,
) -> Result<Option<Browser>, ErrorPage> {
    let mut stored = request.read_account(tx).await?;
    if stored.value.remove_passkey(id).is_none() {
        return Ok(None);
    }
    let (account, source) = (&stored.value, request.source);
    let start = SessionStart {
        second_factor: request.signed_in.session.second_factor,
        // The session continues in a new cookie, and the person entered no credentials for it.
        ..SessionStart::from_credentials(Credentials::NotEntered)
    };
    let (fresh, writes) = new_session(app, &request.browser, account, source, start).await?;
    tx.write_all(writes);
    tx.write(account.update_write(stored.revision)?);
    tx.write(passkey::removal_write(id));
    tx.write_all(audit::account_entries(app, account, source, REMOVE.action, "done").await?);
    Ok(Some(fresh))
}
