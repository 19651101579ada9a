//! The second factor: a code at sign-in, and the page on which a person sets it up or turns it off.

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use vault_store::StoreError;

use super::browser::{Browser, Onward, Posted, SECOND_FACTOR_PATH, SignedIn, posted};
use super::csrf::Purpose;
use super::guard::{SignedInBrowser, SignedInForm, Task};
use super::members::Member;
use super::noted;
use super::pages::{self, Frame, SignOut};
use super::session::{new_session, redirect, sign_in_page};
use super::since;
use super::stop::Stop;
use crate::app::App;
use crate::config::SecondFactorPolicy;
use crate::error::{Code, Refusal};
use crate::model::Seen;
use crate::model::account::{Account, account_key};
use crate::model::limits::{Window, count};
use crate::model::second_factor::{RECOVERY_CODES, SecondFactor, TotpSecret, Used};
use crate::model::user::Role;

/// Most codes that are tried for one account in a quarter of an hour, the good ones included.
const MOST_TRIES: u32 = 10;
/// The window of those, in seconds.
const TRY_SECONDS: i64 = 15 * 60;
const WRONG: &str = "This code is not valid, or was used already. Wait for the next one.";
const TOO_MANY: &str = "Too many attempts. Try again in 15 minutes.";

/// The page that asks for a code at sign-in.
#[derive(Template)]
#[template(path = "code.html")]
struct CodePage {
    frame: Frame,
    csrf: String,
    return_to: String,
    problem: Option<&'static str>,
}

/// The page that asks for a code, in a browser whose password was right.
pub fn code_page(
    app: &App,
    browser: &Browser,
    onward: Onward<'_>,
    problem: Option<(StatusCode, &'static str)>,
) -> Response {
    let page = CodePage {
        frame: Frame::of(&app.config.public_url),
        csrf: browser.form_token(app, Purpose::SecondFactor, onward.subject()),
        return_to: onward.address(app),
        problem: problem.map(|(_, problem)| problem),
    };
    let status = problem.map_or(StatusCode::OK, |(status, _)| status);
    let mut response = pages::answer(status, &page, None);
    if let Some(cookie) = browser.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The page that asks an owner or operator to set a second factor up.
#[derive(Template)]
#[template(path = "second_factor_due.html")]
struct DuePage {
    frame: Frame,
}

/// Whether the service requires a second factor of this account, which has none.
pub fn is_due(app: &App, account: &Account, members: &[Member]) -> bool {
    let owns = || members.iter().any(|member| member.user.role == Role::Owner);
    app.config.second_factor == SecondFactorPolicy::Owners
        && account.second_factor.is_none()
        && (account.operator || owns())
}

/// The page for whom it [`is_due`].
pub fn due_page(app: &App) -> Response {
    let frame = Frame::of(&app.config.public_url);
    pages::answer(StatusCode::OK, &DuePage { frame }, None)
}

/// Counts one try of a code; false when there were too many.
async fn admit(app: &App, account: &Account) -> Result<bool, Refusal> {
    let window = Window {
        name: "second-factor",
        who: account.id.to_string(),
        limit: MOST_TRIES,
        seconds: TRY_SECONDS,
    };
    let counted = count(&*app.records, &[window], app.clock.now(), &*app.random).await;
    match counted {
        Err(refusal) if refusal.code() == Code::RateLimited => Ok(false),
        counted => counted.map(|()| true),
    }
}

/// `POST /oauth/second-factor`: the code that ends a sign-in.
pub async fn sign_in(app: &App, request: Request) -> Result<Response, Stop> {
    let Posted {
        form,
        browser,
        returning,
        source,
    } = posted(app, request).await?;
    let onward = Onward::of(app, &form)?;
    browser.check_form(app, &form, Purpose::SecondFactor, onward.subject())?;
    let Some(SignedIn { account, .. }) = browser.half_signed_in(app).await? else {
        return Ok(sign_in_page(app, &browser, onward, None, "", None));
    };
    let again = |status, problem| Ok(code_page(app, &browser, onward, Some((status, problem))));
    if !admit(app, &account).await? {
        return again(StatusCode::TOO_MANY_REQUESTS, TOO_MANY);
    }
    let found = Seen::<Account>::read(app.records.get(&account_key(&account.id)).await?)?;
    let mut found = found.ok_or(Stop::FormForged)?;
    let typed = form.value("code").unwrap_or_default();
    let now = app.clock.now();
    let Some(factor) = found.value.second_factor.as_mut() else {
        return Err(Stop::FormForged);
    };
    let Some(used) = factor.take(typed, now) else {
        let email = account.email.as_str();
        noted::refused_sign_in(app, email, source, "wrong_code").await;
        return again(StatusCode::UNPROCESSABLE_ENTITY, WRONG);
    };
    let (notices, seen) = since::begin(app, &account, source).await?;
    let (fresh, mut writes) =
        new_session(app, &browser, &found.value, source, notices, Some(onward)).await?;
    let (remembered, cookie) = returning.remember(app, account.email.as_str())?;
    writes.extend([remembered, seen]);
    writes.push(found.value.update(found.revision)?);
    let action = match used {
        Used::App => noted::SIGN_IN,
        Used::Recovery => "account.sign-in-by-recovery-code",
    };
    writes.extend(noted::about_account(app, &account, source, action, "done").await?);
    if !app.records.commit(writes).await?.is_done() {
        // Another browser used a code at the same moment, perhaps this one.
        return again(StatusCode::UNPROCESSABLE_ENTITY, WRONG);
    }
    let mut response = redirect(StatusCode::SEE_OTHER, &onward.address(app));
    for cookie in [fresh.set_cookie(app, true), cookie].into_iter().flatten() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// The page on which the second factor is set up or turned off.
#[derive(Template)]
#[template(path = "second_factor.html")]
struct FactorPage {
    frame: Frame,
    csrf: String,
    /// The secret to take into an authenticator app, where there is no second factor yet.
    fresh: Option<Fresh>,
    /// How many recovery codes are left, where there is one.
    left: usize,
    problem: Option<&'static str>,
    sign_out: SignOut,
}

struct Fresh {
    secret: String,
    /// The secret in groups of four, to be typed.
    shown: String,
    address: String,
}

/// The page that shows the recovery codes, once.
#[derive(Template)]
#[template(path = "recovery_codes.html")]
struct RecoveryPage {
    frame: Frame,
    codes: Vec<String>,
}

/// `GET /account/second-factor`
pub async fn show(app: &App, request: SignedInBrowser) -> Result<Response, Stop> {
    let secret = TotpSecret::fresh(&*app.random);
    let account = &request.signed_in.account;
    Ok(factor_page(app, &request.browser, account, &secret, None))
}

fn factor_page(
    app: &App,
    browser: &Browser,
    account: &Account,
    secret: &TotpSecret,
    problem: Option<(StatusCode, &'static str)>,
) -> Response {
    let public = &app.config.public_url;
    let text = secret.text();
    let groups: Vec<_> = (0..8).map(|n| &text[4 * n..4 * n + 4]).collect();
    let fresh = || Fresh {
        shown: groups.join(" "),
        address: secret.address(public.authority(), account.email.as_str()),
        secret: text.clone(),
    };
    let factor = account.second_factor.as_ref();
    let return_to = Onward::Account.address(app);
    let page = FactorPage {
        frame: Frame::of(public),
        csrf: browser.form_token(app, Purpose::Account, SECOND_FACTOR_PATH),
        fresh: factor.is_none().then(fresh),
        left: factor.map_or(0, SecondFactor::recovery_left),
        problem: problem.map(|(_, problem)| problem),
        sign_out: SignOut {
            csrf: browser.form_token(app, Purpose::Logout, &return_to),
            return_to,
        },
    };
    let status = problem.map_or(StatusCode::OK, |(status, _)| status);
    pages::answer(status, &page, None)
}

/// The form of the page.
pub const CHANGE: Task = Task {
    purpose: Purpose::Account,
    onward: |_, _| Ok(Onward::SecondFactor),
    action: "account.second-factor",
};

/// `POST /account/second-factor`: sets a second factor up with its first code, or turns it off with a code.
pub async fn change(app: &App, request: SignedInForm) -> Result<Response, Stop> {
    let (form, browser) = (&request.form, &request.browser);
    let key = account_key(&request.signed_in.account.id);
    let found = Seen::<Account>::read(app.records.get(&key).await?)?;
    let mut found = found.ok_or(Stop::FormForged)?;
    let secret = form.value("secret").and_then(|text| text.parse().ok());
    let secret = secret.unwrap_or_else(|| TotpSecret::fresh(&*app.random));
    let again = |status, problem| {
        let account = &request.signed_in.account;
        Ok(factor_page(
            app,
            browser,
            account,
            &secret,
            Some((status, problem)),
        ))
    };
    if !admit(app, &found.value).await? {
        return again(StatusCode::TOO_MANY_REQUESTS, TOO_MANY);
    }
    let (typed, now) = (form.value("code").unwrap_or_default(), app.clock.now());
    let (action, codes) = match found.value.second_factor.take() {
        None => match SecondFactor::begin(secret.clone(), typed, now, &*app.random) {
            None => return again(StatusCode::UNPROCESSABLE_ENTITY, WRONG),
            Some((factor, codes)) => {
                found.value.second_factor = Some(factor);
                ("account.second-factor-on", codes)
            }
        },
        Some(mut factor) => {
            if factor.take(typed, now).is_none() {
                return again(StatusCode::UNPROCESSABLE_ENTITY, WRONG);
            }
            ("account.second-factor-off", Vec::new())
        }
    };
    let (account, source) = (&found.value, request.source);
    let mut writes = vec![account.update(found.revision)?];
    writes.extend(noted::about_account(app, account, source, action, "done").await?);
    if !app.records.commit(writes).await?.is_done() {
        return Err(StoreError::Conflict.into());
    }
    if codes.is_empty() {
        return Ok(redirect(
            StatusCode::SEE_OTHER,
            &Onward::Account.address(app),
        ));
    }
    debug_assert_eq!(codes.len(), RECOVERY_CODES);
    let frame = Frame::of(&app.config.public_url);
    Ok(pages::answer(
        StatusCode::OK,
        &RecoveryPage { frame, codes },
        None,
    ))
}
