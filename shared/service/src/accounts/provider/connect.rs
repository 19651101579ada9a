//! `POST /oauth/oidc/connect`: connects a sign-in of the identity provider to an existing account
//! with the same e-mail address. The person must first enter the account's password and a code of
//! its second factor, because an address alone must not take over an account.

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use vault_store::StoreError;
use vault_store::records::{When, Write};
use zeroize::Zeroizing;

use super::refused::RefusedSignIn;
use super::{find_account, require_provider};
use crate::accounts::audit;
use crate::accounts::second_factor::{self, WRONG_CODE};
use crate::accounts::session::CompletedSignIn;
use crate::accounts::sign_in::{self, PasswordCheck, too_many_attempts};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{Account, account_key};
use crate::model::provider_request::{PendingConnection, pending_key};
use crate::model::session::Credentials;
use crate::model::subject;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, PostedForm, ReturnTo, read_posted_form};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame};

/// Audit log action: a person's sign-in at the identity provider was connected to an existing
/// account.
const CONNECT: &str = "account.connect";

/// Page that asks for the password of the account, and for a code if it has a second factor.
#[derive(Template)]
#[template(path = "connect.html")]
struct ConnectPage {
    frame: Frame,
    email: String,
    /// Name of the identity provider, from the settings.
    name: String,
    second_factor: bool,
    csrf: String,
    return_to: String,
    problem: Option<&'static str>,
}

/// HTTP status, message, and the seconds to wait after too many attempts.
type ConnectProblem = (StatusCode, &'static str, Option<u64>);

/// Renders the page. A pending connection, from the person at the provider to the account, must be
/// stored for this browser.
pub fn render_page(
    app: &App,
    browser: &Browser,
    onward: ReturnTo<'_>,
    account: &Account,
    problem: Option<ConnectProblem>,
) -> Response {
    let provider = app.provider.as_ref();
    let name = provider.map(|provider| provider.settings().name.clone());
    let page = ConnectPage {
        frame: Frame::for_service(&app.config.public_url),
        email: account.email.to_string(),
        name: name.unwrap_or_default(),
        second_factor: account.second_factor.is_some(),
        csrf: browser.form_token(app, Purpose::Connect, onward.form_subject()),
        return_to: onward.address(app),
        problem: problem.map(|(_, problem, _)| problem),
    };
    let status = problem.map_or(StatusCode::OK, |(status, ..)| status);
    let mut response = layout::render_page(status, &page, None);
    layout::set_retry_after(&mut response, problem.and_then(|(_, _, wait)| wait));
    response
}

/// `POST /oauth/oidc/connect`: checks the account's password and, if the account has a second
/// factor, a code of it. Then connects the person's sign-in at the identity provider to the
/// account, and signs the person in.
pub async fn connect_account(app: &App, request: Request) -> Result<Response, ErrorPage> {
    require_provider(app)?;
    let posted = read_posted_form(app, request).await?;
    let (form, browser) = (&posted.form, &posted.browser);
    let onward = ReturnTo::from_form(app, form)?;
    browser.check_form(app, form, Purpose::Connect, onward.form_subject())?;
    let expired = || ErrorPage::from(RefusedSignIn::Expired);
    // The key contains the hash of the cookie, so no other browser can use the pending connection.
    let pending_key = pending_key(&browser.hash());
    let pending = app.records.get_one(&pending_key).await?;
    let pending = Versioned::<PendingConnection>::read(pending)?.ok_or_else(expired)?;
    let key = account_key(&pending.value.account);
    let stored_account = app.get::<Account>(&key).await?;
    let stored_account = stored_account.ok_or_else(expired)?;
    let (mut account, writes) =
        match prove_account(app, &posted, stored_account.value.clone()).await? {
            Ok(proven) => proven,
            Err(problem) => {
                return Ok(render_page(
                    app,
                    browser,
                    onward,
                    &stored_account.value,
                    Some(problem),
                ));
            }
        };
    let (now, subject) = (app.clock.now(), pending.value.subject);
    let (connected_meanwhile, when) = find_account(app, &subject).await?;
    // Another browser may have connected the same person meanwhile, perhaps to another account.
    if connected_meanwhile.is_some() {
        return Err(expired());
    }
    let factor = account.second_factor.as_ref();
    let second_factor = factor.is_some_and(|factor| factor.confirms(now));
    let mut writes = writes;
    writes.extend(account.connect_provider(&pending.value.issuer, subject, now));
    writes.push(account.update_write(stored_account.revision)?);
    writes.push(subject::connection_write(&subject, &account.id, when)?);
    writes.push(Write::delete(pending_key, When::At(pending.revision)));
    let completed = CompletedSignIn {
        browser,
        returning: &posted.returning,
        source: posted.source,
        onward,
        action: CONNECT,
        second_factor,
        credentials: Credentials::Entered { at: now },
        notice: None,
    };
    let begin = async |tx: Transaction<'_>| {
        tx.write_all(writes);
        completed.begin_session(&tx, app, &account).await
    };
    let response = app.attempt(begin).await?;
    response.ok_or_else(|| StoreError::Conflict.into())
}

/// Checks the password and, if the account has a second factor, a code of it. Returns the account
/// with the code used up, and the writes that take the attempt's count back.
async fn prove_account(
    app: &App,
    posted: &PostedForm,
    account: Account,
) -> Result<Result<(Account, Vec<Write>), ConnectProblem>, ErrorPage> {
    let typed = |name: &str| posted.form.value(name).unwrap_or_default();
    let password = Zeroizing::new(typed("password").to_owned());
    let (email, source) = (account.email.to_string(), posted.source);
    let refused = async |outcome, problem| {
        audit::record_refused_sign_in(app, &email, source, outcome).await;
        Ok(Err(problem))
    };
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let checked = sign_in::check_password(app, &email, password, source, &posted.returning).await?;
    let writes = match checked {
        // The password was looked up by the address, which may belong to another account by now. It
        // must be that of the account that the connection is for.
        PasswordCheck::Good {
            account: checked,
            taken_back,
        } if checked.id == account.id && checked.password_hash() == account.password_hash() => {
            taken_back
        }
        PasswordCheck::TooMany { retry_after } => {
            let too_many = StatusCode::TOO_MANY_REQUESTS;
            let problem = (too_many, too_many_attempts(retry_after), Some(retry_after));
            return refused("rate_limited", problem).await;
        }
        _ => return refused("wrong_password", (unprocessable, "Wrong password.", None)).await,
    };
    let mut account = account;
    if let Some(mut factor) = account.second_factor.take() {
        let (code, known) = (typed("code"), async || {
            posted.returning.passed_second_factor(app, &email).await
        });
        let too_many =
            second_factor::admit_code_attempt(app, &account, code, source, known).await?;
        let problem = match too_many {
            Some(problem) => Some(("rate_limited_code", problem)),
            None if factor.use_code(code, app.clock.now()).is_none() => {
                Some(("wrong_code", (unprocessable, WRONG_CODE, None)))
            }
            None => None,
        };
        if let Some((outcome, problem)) = problem {
            // The password was correct, so its attempt does not count. If the store is too busy for
            // these writes, the person only has fewer attempts for a while.
            app.try_commit(writes).await?;
            return refused(outcome, problem).await;
        }
        // The factor now records that the code is used up, so it is stored with the account.
        account.second_factor = Some(factor);
    }
    Ok(Ok((account, writes)))
}
