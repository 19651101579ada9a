//! Sign-in through the identity provider: `POST /oauth/oidc/start` sends the browser there, and
//! `GET /oauth/oidc/callback` takes it back with a code.
//!
//! A request to the provider is bound to the browser that made it, and can be answered once. The
//! nonce and the code verifier (PKCE) are derived from the cookie and the state, so the store
//! contains no secret of a sign-in. `arrival` chooses the account of the person who came back,
//! `connect` asks for the password of an existing account, and `connected` ends a connection.

mod arrival;
pub mod connect;
pub mod connected;
pub mod refused;

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::Request;
use axum::http::header::{HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use vault_format::hash::Digest;
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::records::When;

use super::provider::arrival::ReturnedPerson;
use super::provider::refused::RefusedSignIn;
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::client_address;
use crate::model::Versioned;
use crate::model::account::{Account, account_key};
use crate::model::limits::{Networks, count_or_refuse};
use crate::model::pkce::Challenge;
use crate::model::provider_request::{ProviderRequest, request_key};
use crate::model::secret::{Secret, SecretKind};
use crate::model::subject::{SubjectEntry, subject_key};
use crate::oidc::{
    BadIdToken, CodeExchange, Person, Provider, ProviderError, SignInRequest, error_code,
};
use crate::ports::Ports;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, PostedForm, ReturnTo, read_posted_form};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
use crate::web::layout::{self, Frame};
use crate::web::remembered_browser::RememberedBrowser;

/// Path that the provider sends browsers back to, below the public URL.
pub const CALLBACK_PATH: &str = "/oauth/oidc/callback";

/// Page that leads from this service to the provider.
#[derive(Template)]
#[template(path = "leaving.html")]
struct LeavingPage {
    frame: Frame,
    /// Name of the provider, from the settings.
    name: String,
    /// Address of the provider's authorize page, with the request.
    address: String,
}

/// Returns the identity provider, or the error page of a service that has none.
fn require_provider(app: &App) -> Result<&Arc<Provider>, ErrorPage> {
    let provider = app.provider.as_ref();
    provider.ok_or_else(|| RefusedSignIn::NotOffered.into())
}

/// Secrets of one request to the provider, derived from the browser's cookie and the state.
struct RequestSecrets {
    nonce: Secret,
    verifier: Secret,
    redirect_uri: String,
}

impl RequestSecrets {
    fn derive_for(app: &App, browser: &Browser, state: &Secret) -> Self {
        Self {
            nonce: browser.derive_secret(SecretKind::ProviderNonce, state.text()),
            verifier: browser.derive_secret(SecretKind::ProviderVerifier, state.text()),
            redirect_uri: app.config.public_url.join(CALLBACK_PATH),
        }
    }

    fn to_sign_in_request<'r>(&'r self, state: &'r Secret, fresh: bool) -> SignInRequest<'r> {
        SignInRequest {
            redirect_uri: &self.redirect_uri,
            state: state.text(),
            nonce: self.nonce.text(),
            fresh,
        }
    }
}

/// `POST /oauth/oidc/start`: sends the browser to the provider. Given the query of an authorize
/// request, `app_wants_credentials` returns whether its app asks for fresh credentials.
pub async fn start_sign_in(
    app: &App,
    request: Request,
    app_wants_credentials: impl AsyncFnOnce(&str, Option<IpAddr>) -> Result<bool, ErrorPage>,
) -> Result<Response, ErrorPage> {
    let provider = require_provider(app)?;
    let PostedForm {
        form,
        browser,
        source,
        ..
    } = read_posted_form(app, request).await?;
    let onward = ReturnTo::from_form(app, &form)?;
    browser.check_form(app, &form, Purpose::Login, onward.form_subject())?;
    // A signed-in browser reaches the sign-in page only if its session did not suffice, so the
    // provider is asked for fresh credentials.
    let fresh = match onward {
        _ if browser.load_signed_in(app).await?.is_some() => true,
        ReturnTo::Authorize(query) => app_wants_credentials(query, source).await?,
        // These pages accept only fresh credentials.
        ReturnTo::Confirm(_) | ReturnTo::SecondFactor => true,
        _ => false,
    };
    let now = app.clock.now();
    let provider_request = ProviderRequest {
        return_to: onward.address(app),
        fresh,
        at: now,
        networks: Networks::of(source),
    };
    let state = Secret::fresh(SecretKind::ProviderState, &app.random);
    let secrets = RequestSecrets::derive_for(app, &browser, &state);
    let challenge = Challenge::of_verifier(secrets.verifier.text());
    let sign_in_request = secrets.to_sign_in_request(&state, provider_request.fresh);
    let address = provider.sign_in_address(sign_in_request, challenge.as_str(), now);
    let address = address.await.map_err(|error| failure_page(app, error))?;
    // Counted against the client's networks until the person comes back signed in, so that the
    // number of unfinished sign-ins is bounded.
    let windows = provider_request.sign_in_windows(app.config.limits.sign_in_failures);
    count_or_refuse(app, &windows, now).await?;
    let creation = provider_request.creation_write(&browser.hash(), &state.hash())?;
    let store = async |tx: Transaction<'_>| {
        tx.write(creation.clone());
        Ok::<_, StoreError>(())
    };
    app.change(store).await?;
    // A page and not a redirect: browsers apply `form-action` to each redirect that a form starts,
    // and it is unknown to which addresses the provider redirects.
    let refresh = HeaderValue::from_str(&format!("0;url={address}"));
    let page = LeavingPage {
        frame: Frame::for_service(&app.config.public_url),
        name: provider.settings().name.clone(),
        address,
    };
    let mut response = layout::render_page(StatusCode::OK, &page, None);
    if let Ok(refresh) = refresh {
        let name = HeaderName::from_static("refresh");
        response.headers_mut().insert(name, refresh);
    }
    Ok(response)
}

/// `GET /oauth/oidc/callback`: takes the browser back from the provider.
pub async fn finish_sign_in(app: &App, request: Request) -> Result<Response, ErrorPage> {
    let provider = require_provider(app)?;
    let answer = Form::parse(request.uri().query().unwrap_or_default());
    let browser = Browser::from_headers(app, request.headers());
    // HEAD is a safe method (RFC 9110 section 9.2.1), so it must not use up the request. If a
    // parameter is repeated, it is undefined which value counts.
    if request.method() == Method::HEAD || answer.check().is_err() {
        return Err(RefusedSignIn::Expired.into());
    }
    let taken = take_request(app, &browser, &answer).await?;
    let person = fetch_person(app, provider, &browser, &answer, &taken).await?;
    let arrival = ReturnedPerson {
        app,
        issuer: provider.settings().issuer.as_str(),
        sign_up_rule: provider.settings().sign_up_rule,
        browser: &browser,
        returning: &RememberedBrowser::from_headers(app, request.headers()),
        source: client_address(&app.config, request.headers(), request.extensions()),
        onward: ReturnTo::parse_address(app, &taken.request.return_to)?,
        request: &taken.request,
        person: &person,
    };
    app.change(async |tx| arrival.sign_in(&tx).await).await
}

/// A request to the provider that no other callback can take any more.
struct TakenRequest {
    state: Secret,
    request: ProviderRequest,
}

/// Removes and returns the stored request that the provider's answer is for. Fails with `Expired`
/// if this browser has none, or another callback took it.
async fn take_request(
    app: &App,
    browser: &Browser,
    answer: &Form,
) -> Result<TakenRequest, ErrorPage> {
    let expired = || ErrorPage::from(RefusedSignIn::Expired);
    let state = answer.value("state").unwrap_or_default();
    let state = Secret::parse(SecretKind::ProviderState, state).ok_or_else(expired)?;
    let key = request_key(&browser.hash(), &state.hash());
    // Deleted before the code is exchanged: of two callbacks with one state, only one continues.
    let request = app.take_once(key).await?.ok_or_else(expired)?;
    Ok(TakenRequest { state, request })
}

/// Exchanges the code for the provider's statement of who came back.
async fn fetch_person(
    app: &App,
    provider: &Provider,
    browser: &Browser,
    answer: &Form,
    TakenRequest { state, request }: &TakenRequest,
) -> Result<Person, ErrorPage> {
    let now = app.clock.now();
    let discovery = provider.discovery(now).await;
    let discovery = discovery.map_err(|error| failure_page(app, error))?;
    // An answer of another provider must not be accepted, although the browser may have been sent
    // there meanwhile (mix-up attack, RFC 9207).
    let issuer = provider.settings().issuer.as_str();
    let from_provider = match answer.value("iss") {
        Some(from) => from == issuer,
        None => !discovery.authorization_response_iss_parameter_supported,
    };
    if !from_provider {
        tracing::warn!("the answer to a sign-in does not name the identity provider");
        return Err(RefusedSignIn::NotValid.into());
    }
    if let Some(error) = answer.value("error") {
        let code = error_code(error);
        tracing::info!(code, "the identity provider refused a sign-in");
        return Err(RefusedSignIn::Answered(code).into());
    }
    let code = answer.value("code");
    let code = code.ok_or(RefusedSignIn::NotValid)?;
    let secrets = RequestSecrets::derive_for(app, browser, state);
    let exchange = CodeExchange {
        code,
        verifier: secrets.verifier.text(),
        request: secrets.to_sign_in_request(state, request.fresh),
        asked_at: request.at,
    };
    let person = provider.identify_person(exchange, now).await;
    person.map_err(|error| failure_page(app, error))
}

/// Finds the account that a person of the provider is connected to, and the condition for a later
/// write of the index record that was read for it.
async fn find_account(
    ports: &Ports,
    subject: &Digest,
) -> Result<(Option<Versioned<Account>>, When), StoreError> {
    let connected = ports.get::<SubjectEntry>(&subject_key(subject)).await?;
    let Some(connected) = connected else {
        return Ok((None, When::Absent));
    };
    let key = account_key(&connected.value.account);
    let account = ports.get::<Account>(&key).await?;
    // A reset removes the proofs of an account, but the index record may still name it.
    let account = account.filter(|account| account.value.subjects().any(|held| held == subject));
    Ok((account, When::At(connected.revision)))
}

/// Returns the error page for a failure of the provider, and logs the cause.
fn failure_page(app: &App, error: ProviderError) -> ErrorPage {
    let chain = error_chain(&error);
    // An outage is no mistake of the person: the answer is 503, and the page offers the password if
    // there is one.
    if error.is_outage() {
        let passwords = app.config.sign_in.takes_passwords();
        let refusal = Refusal::new(ErrorCode::Unavailable).cause(error);
        return ErrorPage::ProviderDown { refusal, passwords };
    }
    tracing::warn!(
        error = chain,
        "a sign-in through the identity provider failed"
    );
    ErrorPage::from(match error {
        ProviderError::IdToken(BadIdToken::NotFresh) => RefusedSignIn::NotFresh,
        _ => RefusedSignIn::NotValid,
    })
}
