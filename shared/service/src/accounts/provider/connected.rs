//! The connections of an account to an identity provider: the account page lists them and ends
//! them.

use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use vault_format::hash::Digest;

use crate::accounts::audit;
use crate::accounts::guard::{FormTask, SignedInForm, account_page_form};
use crate::accounts::session::{SessionStart, new_session, redirect_to};
use crate::accounts::sign_in_page::{SignInPrompt, render_sign_in_page};
use crate::app::App;
use crate::model::account::{Account, Proof};
use crate::model::session::Credentials;
use crate::model::subject;
use crate::transaction::Transaction;
use crate::web::browser::{Browser, ReturnTo};
use crate::web::error_page::ErrorPage;
use crate::web::layout::format_day;

/// Row of the page: a connection to an identity provider.
pub struct ShownConnection {
    /// Hash of issuer and subject, by which the connection is stored and the form names it.
    pub id: String,
    /// URL of the provider (`iss`).
    pub issuer: String,
    /// Day on which the connection was made.
    pub since: String,
}

/// Returns the account's connections to identity providers, oldest first.
pub fn list_connections(account: &Account) -> Vec<ShownConnection> {
    let proofs = account.proofs.iter();
    let shown = proofs.filter_map(|proof| match proof {
        Proof::Provider {
            issuer,
            subject,
            connected_at,
        } => Some(ShownConnection {
            id: subject.to_string(),
            issuer: issuer.clone(),
            since: format_day(*connected_at),
        }),
        Proof::Password { .. } => None,
    });
    shown.collect()
}

/// The form with which a person ends a connection.
pub const DISCONNECT: FormTask = account_page_form("sign-in.end");

/// `POST /account/sign-ins`: ends a connection, and signs every other browser out. The last way to
/// sign in cannot be ended, and the person must have entered credentials within five minutes.
pub async fn disconnect_sign_in(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let name = request.form.value("sign_in");
    let name: Option<Digest> = name.and_then(|text| text.parse().ok());
    let name = name.ok_or(ErrorPage::FormMalformed)?;
    let session = &request.signed_in.session;
    // Someone who finds a browser open must not be able to lock its owner out.
    if !session.has_fresh_credentials(app.clock.now()) {
        let browser = &request.browser;
        return Ok(render_sign_in_page(
            app,
            browser,
            ReturnTo::Account,
            SignInPrompt::default(),
        ));
    }
    let disconnect = async |tx| disconnect_in(&tx, app, &request, &name).await;
    let fresh = app.change(disconnect).await?;
    let mut response = redirect_to(StatusCode::SEE_OTHER, &ReturnTo::Account.address(app));
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

async fn disconnect_in(
    tx: &Transaction<'_>,
    app: &App,
    request: &SignedInForm,
    name: &Digest,
) -> Result<Browser, ErrorPage> {
    let mut stored = request.read_account(tx).await?;
    if !stored.value.disconnect_provider(name) {
        return Err(ErrorPage::LastSignIn);
    }
    let (account, source) = (&stored.value, request.source);
    let start = SessionStart {
        second_factor: request.signed_in.session.second_factor,
        // The session continues in a new cookie, and the person entered no credentials for it.
        ..SessionStart::from_credentials(Credentials::NotEntered)
    };
    let (fresh, session) = new_session(app, &request.browser, account, source, start).await?;
    tx.write_all(session);
    tx.write(account.update_write(stored.revision)?);
    tx.write(subject::removal_write(name));
    tx.write_all(audit::account_entries(app, account, source, DISCONNECT.action, "done").await?);
    Ok(fresh)
}
