//! The guards of rows that a client, a bearer or a signed-in browser opens: what they prove is what
//! the handler receives.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::browser::{Browser, Onward, Posted, SignedIn, posted};
use super::csrf::Purpose;
use super::failure::Failure;
use super::form::Form;
use super::noted;
use super::returning::Returning;
use super::revoke::Asker;
use super::session::{redirect, sign_in_page};
use super::stop::ErrorPage;
use super::token::TokenError;
use crate::app::App;
use crate::bearer;
use crate::documents::ClientName;
use crate::error::Fault;
use crate::http::{client_address, read_body, require_media_type};
use crate::model::client::{Client, ClientId, client_key};
use crate::route::Audience;

/// Most bytes of a token or revocation request.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// A form of a client that names itself, or of the bearer of a good access token.
pub struct Revocation {
    /// Its fields.
    pub form: Form,
    /// Who sent it.
    pub asker: Asker,
    /// The address that it came from.
    pub source: Option<IpAddr>,
    _proof: (),
}

/// Lets a client or a bearer through.
pub async fn client_or_bearer(app: &App, request: Request) -> Result<Revocation, Failure> {
    let headers = request.headers().clone();
    let source = client_address(&app.config, &headers, request.extensions());
    let form = read_form(request).await?;
    form.check()
        .map_err(|bad| TokenError::InvalidRequest(bad.to_string()))?;
    let asker = asker(app, &headers, &form).await?;
    Ok(Revocation {
        form,
        asker,
        source,
        _proof: (),
    })
}

/// The caller: a client, the bearer of a valid token, or both. Fails with 401 if it is neither.
async fn asker(app: &App, headers: &HeaderMap, form: &Form) -> Result<Asker, Failure> {
    let client = match form.value("client_id") {
        None => None,
        Some(id) => Some(registered_client(app, id).await?),
    };
    // Tokens of a suspended vault can still be revoked.
    match bearer::identify(app, headers, Audience::Any).await {
        Ok(bearer) => Ok(Asker {
            client,
            bearer: Some((bearer.client_id().clone(), bearer.account().clone())),
        }),
        Err(refusal) if refusal.code().row().fault == Fault::Service => Err(refusal.into()),
        Err(_) if client.is_some() => Ok(Asker {
            client,
            bearer: None,
        }),
        Err(refusal) => Err(Failure::Challenged(refusal)),
    }
}

async fn registered_client(app: &App, name: &str) -> Result<ClientId, Failure> {
    let name: ClientName = name.parse().map_err(|_| TokenError::InvalidClient)?;
    let found = app.get::<Client>(&client_key(&name.id())).await?;
    found
        .filter(|client| name.names(&client.value))
        .map(|client| client.value.id)
        .ok_or_else(|| TokenError::InvalidClient.into())
}

/// Reads the form of an endpoint for programs.
pub async fn read_form(request: Request) -> Result<Form, Failure> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, MAX_TOKEN_BYTES).await?;
    require_media_type(&parts.headers, "application/x-www-form-urlencoded")?;
    let text = std::str::from_utf8(&body)
        .map_err(|_| TokenError::InvalidRequest("the body is not text".to_owned()))?;
    Ok(Form::parse(text))
}

/// A browser with a signed-in account.
pub struct SignedInBrowser {
    /// The browser.
    pub browser: Browser,
    /// Who.
    pub signed_in: SignedIn,
    _proof: (),
}

/// Lets a signed-in browser through; shows any other one the sign-in page on the way to `onward`.
pub async fn signed_in(
    app: &App,
    headers: &HeaderMap,
    onward: Onward<'_>,
) -> Result<Result<SignedInBrowser, Response>, ErrorPage> {
    let browser = Browser::of(app, headers);
    Ok(match browser.signed_in(app).await? {
        None => Err(sign_in_page(app, &browser, onward, None, "", None)),
        Some(signed_in) => Ok(SignedInBrowser {
            browser,
            signed_in,
            _proof: (),
        }),
    })
}

/// A form of a page of ours that a signed-in browser sent.
pub struct SignedInForm {
    /// Its fields.
    pub form: Form,
    /// The browser.
    pub browser: Browser,
    /// Who is signed in.
    pub signed_in: SignedIn,
    /// What is known of the browser's former sign-ins.
    pub returning: Returning,
    /// The address that it came from.
    pub source: Option<IpAddr>,
    /// The nonce of the form.
    pub nonce: String,
    _proof: (),
}

/// What a form of a signed-in browser is for.
#[derive(Clone, Copy)]
pub struct Task {
    /// What its token must be for.
    pub purpose: Purpose,
    /// The page that the form is part of; its token is bound to it.
    pub onward: for<'f> fn(&App, &'f Form) -> Result<Onward<'f>, ErrorPage>,
    /// The action of the audit entry of a forged form.
    pub action: &'static str,
}

/// The form of a button on the account page.
pub const fn on_account_page(action: &'static str) -> Task {
    Task {
        purpose: Purpose::Account,
        onward: |_, _| Ok(Onward::Account),
        action,
    }
}

/// Lets a form of a signed-in browser through; sends any other browser to the form's page, which
/// asks for the password.
pub async fn signed_in_form(
    app: &App,
    task: Task,
    request: Request,
) -> Result<Result<SignedInForm, Response>, ErrorPage> {
    let Posted {
        form,
        browser,
        returning,
        source,
    } = posted(app, request).await?;
    let onward = (task.onward)(app, &form)?;
    let nonce = match browser.check_form(app, &form, task.purpose, onward.subject()) {
        Ok(nonce) => nonce,
        Err(stop) => {
            noted::refused(app, &browser, source, task.action, "form_forged").await;
            return Err(stop);
        }
    };
    let Some(signed_in) = browser.signed_in(app).await? else {
        return Ok(Err(redirect(StatusCode::SEE_OTHER, &onward.address(app))));
    };
    Ok(Ok(SignedInForm {
        form,
        browser,
        signed_in,
        returning,
        source,
        nonce,
        _proof: (),
    }))
}
