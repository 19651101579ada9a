//! Sign-ins through an identity provider that an account has, as the account page lists and ends
//! them.

use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use vault_format::hash::Digest;
use vault_store::StoreError;

use crate::accounts::audit;
use crate::accounts::guard::{SignedInForm, Task, on_account_page};
use crate::accounts::session::{SignedInWith, new_session, redirect};
use crate::accounts::sign_in_page::{SignInPrompt, sign_in_page};
use crate::app::App;
use crate::model::account::{Account, Proof, account_key};
use crate::model::subject;
use crate::web::browser::Onward;
use crate::web::error_page::ErrorPage;
use crate::web::layout::day;

/// A connected sign-in.
pub struct ShownConnection {
    /// Name under which it is stored.
    pub id: String,
    /// Issuer of the provider.
    pub issuer: String,
    /// Day on which it was connected.
    pub since: String,
}

/// Returns the connected sign-ins of an account.
pub fn connections(account: &Account) -> Vec<ShownConnection> {
    let proofs = account.proofs.iter();
    let shown = proofs.filter_map(|proof| match proof {
        Proof::Provider {
            issuer,
            subject,
            connected_at,
        } => Some(ShownConnection {
            id: subject.to_string(),
            issuer: issuer.clone(),
            since: day(*connected_at),
        }),
        Proof::Password { .. } => None,
    });
    shown.collect()
}

/// The form that ends a connected sign-in.
pub const DISCONNECT: Task = on_account_page("sign-in.end");

/// `POST /account/sign-ins`: ends a connected sign-in, and signs every other browser out. The last
/// way to sign in cannot be ended, and credentials must have been entered within five minutes.
pub async fn disconnect(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let name = request.form.value("sign_in");
    let name: Option<Digest> = name.and_then(|text| text.parse().ok());
    let name = name.ok_or(ErrorPage::FormMalformed)?;
    let session = &request.signed_in.session;
    // Someone who finds a browser open must not be able to lock its owner out.
    if !session.has_fresh_credentials(app.clock.now()) {
        let browser = &request.browser;
        return Ok(sign_in_page(
            app,
            browser,
            Onward::Account,
            SignInPrompt::default(),
        ));
    }
    let key = account_key(&request.signed_in.account.id);
    let found = app.get::<Account>(&key).await?;
    let mut found = found.ok_or(ErrorPage::FormForged)?;
    if !found.value.disconnect(&name) {
        return Err(ErrorPage::LastSignIn);
    }
    let (account, source) = (&found.value, request.source);
    let with = SignedInWith {
        second_factor: session.second_factor,
        // The session goes on in a new cookie without new credentials.
        without_credentials: true,
        ..SignedInWith::default()
    };
    let (fresh, mut writes) = new_session(app, &request.browser, account, source, with).await?;
    writes.push(account.update(found.revision)?);
    writes.push(subject::removal(&name));
    let action = DISCONNECT.action;
    writes.extend(audit::about_account(app, account, source, action, "done").await?);
    if !app.try_commit(writes).await? {
        return Err(StoreError::Conflict.into());
    }
    let mut response = redirect(StatusCode::SEE_OTHER, &Onward::Account.address(app));
    if let Some(cookie) = fresh.set_cookie(app, true) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
