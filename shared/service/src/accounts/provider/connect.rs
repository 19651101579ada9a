//! `POST /oauth/oidc/connect`: a person who came back from the identity provider with the address
//! of an account proves that account once, by its password and its second factor. Only then is the
//! sign-in connected: an address alone must not take over an account.

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::Response;
use vault_store::StoreError;
use vault_store::records::{When, Write};
use zeroize::Zeroizing;

use super::refused::Refused;
use super::{account_of, offered};
use crate::accounts::audit;
use crate::accounts::second_factor::{self, TOO_MANY, WRONG};
use crate::accounts::session::CompletedSignIn;
use crate::accounts::sign_in::{self, Checked, TOO_MANY_ATTEMPTS};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{Account, account_key};
use crate::model::provider_request::{PendingConnection, pending_key};
use crate::model::subject;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, Onward, Posted, posted};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame};

/// Action in the audit log.
const CONNECT: &str = "account.connect";

/// Page on which the person proves the account.
#[derive(Template)]
#[template(path = "connect.html")]
struct ConnectPage {
    frame: Frame,
    email: String,
    /// Name of the provider.
    name: String,
    second_factor: bool,
    csrf: String,
    return_to: String,
    problem: Option<&'static str>,
}

/// Status, sentence, and the seconds to wait if there were too many attempts.
type Problem = (StatusCode, &'static str, Option<u64>);

/// Renders the page in a browser with a pending connection.
pub fn page(
    app: &App,
    browser: &Browser,
    onward: Onward<'_>,
    account: &Account,
    problem: Option<Problem>,
) -> Response {
    let provider = app.provider.as_ref();
    let name = provider.map(|provider| provider.settings().name.clone());
    let page = ConnectPage {
        frame: Frame::of(&app.config.public_url),
        email: account.email.to_string(),
        name: name.unwrap_or_default(),
        second_factor: account.second_factor.is_some(),
        csrf: browser.form_token(app, Purpose::Connect, onward.subject()),
        return_to: onward.address(app),
        problem: problem.map(|(_, problem, _)| problem),
    };
    let status = problem.map_or(StatusCode::OK, |(status, ..)| status);
    let mut response = layout::answer(status, &page, None);
    if let Some(wait) = problem.and_then(|(_, _, wait)| wait) {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait));
    }
    response
}

/// `POST /oauth/oidc/connect`: checks the password and the code, connects the person and signs in.
pub async fn connect(app: &App, request: Request) -> Result<Response, ErrorPage> {
    offered(app)?;
    let posted = posted(app, request).await?;
    let (form, browser) = (&posted.form, &posted.browser);
    let onward = Onward::of(app, form)?;
    browser.check_form(app, form, Purpose::Connect, onward.subject())?;
    let expired = || ErrorPage::from(Refused::Expired);
    // The key is made from the cookie, so no other browser can use the pending connection.
    let pending_key = pending_key(&browser.hash());
    let pending = app.records.get(&pending_key).await?;
    let pending = Versioned::<PendingConnection>::read(pending)?.ok_or_else(expired)?;
    let key = account_key(&pending.value.account);
    let found = app.get::<Account>(&key).await?;
    let found = found.ok_or_else(expired)?;
    let (mut account, writes) = match prove(app, &posted, found.value.clone()).await? {
        Ok(proven) => proven,
        Err(problem) => return Ok(page(app, browser, onward, &found.value, Some(problem))),
    };
    let (now, subject) = (app.clock.now(), pending.value.subject);
    let (connected_meanwhile, when) = account_of(app, &subject).await?;
    // Another browser connected the same person meanwhile, perhaps to another account.
    if connected_meanwhile.is_some() {
        return Err(expired());
    }
    let second_factor = account.second_factor.is_some();
    let mut writes = writes;
    writes.extend(account.connect(&pending.value.issuer, subject, now));
    writes.push(account.update(found.revision)?);
    writes.push(subject::connection(&subject, &account.id, when)?);
    writes.push(Write::delete(pending_key, When::At(pending.revision)));
    let completed = CompletedSignIn {
        browser,
        returning: &posted.returning,
        source: posted.source,
        onward,
        action: CONNECT,
        second_factor,
        without_credentials: false,
        notice: None,
    };
    let begin = async |tx: Transaction<'_>| {
        tx.write_all(writes);
        completed.begin(&tx, app, &account).await
    };
    let response = app.attempt(begin).await?;
    response.ok_or_else(|| StoreError::Conflict.into())
}

/// Checks the password and, where the account has one, a code of its second factor. Returns the
/// account, and the writes that take the attempt's count back.
async fn prove(
    app: &App,
    posted: &Posted,
    account: Account,
) -> Result<Result<(Account, Vec<Write>), Problem>, ErrorPage> {
    let typed = |name: &str| posted.form.value(name).unwrap_or_default();
    let password = Zeroizing::new(typed("password").to_owned());
    let (email, source) = (account.email.to_string(), posted.source);
    let refused = async |outcome, problem| {
        audit::refused_sign_in(app, &email, source, outcome).await;
        Ok(Err(problem))
    };
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let checked = sign_in::check(app, &email, password, source, &posted.returning).await?;
    let writes = match checked {
        // The password must be that of the very account that the connection is for, as it was read:
        // the address may belong to another account by now.
        Checked::Good {
            account: checked,
            taken_back,
        } if checked.id == account.id && checked.password() == account.password() => taken_back,
        Checked::TooMany { retry_after } => {
            let too_many = StatusCode::TOO_MANY_REQUESTS;
            let problem = (too_many, TOO_MANY_ATTEMPTS, Some(retry_after));
            return refused("rate_limited", problem).await;
        }
        _ => return refused("wrong_password", (unprocessable, "Wrong password.", None)).await,
    };
    let mut account = account;
    if let Some(mut factor) = account.second_factor.take() {
        let known = async || posted.returning.passed_second_factor(app, &email).await;
        if !second_factor::admit(app, &account, known).await? {
            return Ok(Err((StatusCode::TOO_MANY_REQUESTS, TOO_MANY, None)));
        }
        if factor.take(typed("code"), app.clock.now()).is_none() {
            return refused("wrong_code", (unprocessable, WRONG, None)).await;
        }
        // Stored with the account, because the code is used up now.
        account.second_factor = Some(factor);
    }
    Ok(Ok((account, writes)))
}
