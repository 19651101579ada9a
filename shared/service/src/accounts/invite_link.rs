//! `GET|POST /oauth/invite/{token}`: the link by which an invited person sets the password of a new
//! account, once. The browser that sets it is remembered as one that signed in to the account.

use askama::Template;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::Response;
use vault_store::records::{When, Write};
use zeroize::Zeroizing;

use super::audit;
use super::password::{self, MIN_USER_CHARS};
use crate::app::App;
use crate::model::Versioned;
use crate::model::account::{self, Account, Invite, invite_key};
use crate::model::limits::Networks;
use crate::model::token::{Secret, SecretKind};
use crate::transaction::Transaction;
use crate::web::browser::{Browser, PostedForm, read_posted_form};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame};

/// Page on which an invited person sets a password.
#[derive(Template)]
#[template(path = "invite.html")]
pub struct InvitePage {
    /// Host and path prefix of the service, for the header of the page.
    pub frame: Frame,
    /// Path that the form is sent to, below the prefix of the public URL.
    pub action: String,
    pub email: String,
    /// Minimum length of the password, in characters.
    pub least: usize,
    /// Form token, bound to this invitation.
    pub csrf: String,
    /// Problem with the last attempt, shown above the form.
    pub problem: Option<String>,
}

/// Page after the password was set. It says how to connect an agent.
#[derive(Template)]
#[template(path = "invited.html")]
pub struct InvitedPage {
    /// Host and path prefix of the service, for the header of the page.
    pub frame: Frame,
    /// E-mail address that signs in with the password.
    pub email: String,
    /// Public URL of the service, without a slash at its end.
    pub base: String,
}

/// `GET /oauth/invite/{token}`: shows the form.
pub async fn show_invite(app: &App, token: &str, request: Request) -> Result<Response, ErrorPage> {
    let browser = Browser::from_headers(app, request.headers());
    let pending = PendingInvite::find_by_token(app, token).await?;
    Ok(pending.render_page(app, &browser, None))
}

/// An invitation link that can still be used, with its account.
struct PendingInvite {
    secret: Secret,
    invite: Versioned<Invite>,
    account: Versioned<Account>,
}

impl PendingInvite {
    async fn find_by_token(app: &App, token: &str) -> Result<Self, ErrorPage> {
        if !app.config.sign_in.takes_passwords() {
            return Err(ErrorPage::PasswordsOff);
        }
        let secret = Secret::parse(SecretKind::Invite, token).ok_or(ErrorPage::InviteGone)?;
        let invite = app.get::<Invite>(&invite_key(&secret.hash())).await?;
        let invite = invite.ok_or(ErrorPage::InviteGone)?;
        let account = account::find_account(app, &invite.value.email).await?;
        // Only the newest link counts, and only while the account has no other way to sign in: a
        // later use could take the account over. An account whose deletion has begun must not be
        // opened again.
        let account = account
            .filter(|account| {
                account.value.invite == Some(secret.hash())
                    && account.value.proofs.is_empty()
                    && !account.value.deletion_begun
            })
            .ok_or(ErrorPage::InviteGone)?;
        Ok(Self {
            secret,
            invite,
            account,
        })
    }

    /// Returns the subject to which the form token is bound: the hash, because the page must not
    /// contain the secret token a second time.
    fn form_subject(&self) -> String {
        self.secret.hash().to_string()
    }

    fn render_page(&self, app: &App, browser: &Browser, problem: Option<String>) -> Response {
        let status = if problem.is_some() {
            StatusCode::UNPROCESSABLE_ENTITY
        } else {
            StatusCode::OK
        };
        let page = InvitePage {
            frame: Frame::for_service(&app.config.public_url),
            action: format!("/oauth/invite/{}", self.secret.text()),
            email: self.invite.value.email.to_string(),
            least: MIN_USER_CHARS,
            csrf: browser.form_token(app, Purpose::Invite, &self.form_subject()),
            problem,
        };
        let mut response = layout::render_page(status, &page, None);
        if let Some(cookie) = browser.set_cookie(app, false) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}

/// `POST /oauth/invite/{token}`: sets the password.
pub async fn accept_invite(
    app: &App,
    token: &str,
    request: Request,
) -> Result<Response, ErrorPage> {
    let PostedForm {
        form,
        browser,
        returning,
        source,
    } = read_posted_form(app, request).await?;
    let pending = PendingInvite::find_by_token(app, token).await?;
    browser.check_form(app, &form, Purpose::Invite, &pending.form_subject())?;
    let password = Zeroizing::new(form.value("password").unwrap_or_default().to_owned());
    // A password that is not allowed must not use up the link.
    if let Err(bad) = password::check_length(&password, MIN_USER_CHARS) {
        return Ok(pending.render_page(
            app,
            &browser,
            Some(format!("Nothing was changed: {bad}.")),
        ));
    }
    let hash = password::hash_password(password, &app.random, &Networks::of(source)).await?;
    let accept = async |tx: Transaction<'_>| {
        // Read again: another request may have used the link at the same time, or a newer link
        // replaced it.
        let pending = PendingInvite::find_by_token(app, token).await?;
        let mut account = pending.account.value;
        account.set_password(hash.clone(), tx.now());
        // One commit, so that the link is used up exactly when the password is set.
        let invite = invite_key(&pending.secret.hash());
        tx.write(Write::delete(invite, When::At(pending.invite.revision)));
        tx.write(account.update_write(pending.account.revision)?);
        // The owner can sign in from this browser even while others use up the account's attempts
        // by guessing.
        let (remembered, known) = returning.remember_sign_in(app, account.email.as_str(), false)?;
        tx.write(remembered);
        let entries = audit::account_entries(app, &account, source, "invite.accept", "done");
        tx.write_all(entries.await?);
        Ok::<_, ErrorPage>((account, known))
    };
    let (account, known) = app.change(accept).await?;
    let page = InvitedPage {
        frame: Frame::for_service(&app.config.public_url),
        email: account.email.to_string(),
        base: app.config.public_url.base().to_owned(),
    };
    let mut response = layout::render_page(StatusCode::OK, &page, None);
    if let Some(cookie) = known {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}
