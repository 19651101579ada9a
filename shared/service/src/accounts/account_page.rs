//! The page `/account`, on which a signed-in person sees and changes what belongs to the account:
//! invitations, vaults, apps, browsers, sign-ins and the password.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use vault_format::name::Slug;
use vault_store::StoreError;

use super::apps_and_sessions::{self, NewestItems, ShownApp, ShownSession};
use super::guard::{FormTask, SignedInBrowser, SignedInForm, account_page_form};
use super::invitations;
use super::invitations::Invitation;
use super::memberships;
use super::provider::connected::{ShownConnection, list_connections};
use super::session::redirect_to;
use crate::app::App;
use crate::model;
use crate::model::user::{Membership, Role, User, membership_key, role_with_article, user_key};
use crate::transaction::Transaction;
use crate::web::browser::{ACCOUNT_PATH, ReturnTo};
use crate::web::csrf::Purpose;
use crate::web::error_page::ErrorPage;
use crate::web::layout::{self, Frame, SignOut, format_day};

/// Row of the page: a vault that the account is a member of.
struct Vault {
    slug: String,
    role: &'static str,
    last_used: String,
}

/// Template of the page. Each form on it carries the token `csrf`.
#[derive(Template)]
#[template(path = "account.html")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each decides whether one part is shown"
)]
struct AccountPage {
    frame: Frame,
    email: String,
    operator: bool,
    csrf: String,
    return_to: String,
    invitations: Vec<Invitation>,
    vaults: Vec<Vault>,
    apps: NewestItems<ShownApp>,
    sessions: NewestItems<ShownSession>,
    second_factor: bool,
    passkeys: usize,
    /// Connections to an identity provider, each of which signs in to this account.
    connections: Vec<ShownConnection>,
    /// Whether the account has another way to sign in, so that one connection may be ended.
    may_disconnect: bool,
    /// Whether to offer a change of the password.
    has_password: bool,
    /// Whether signed-in people may create vaults.
    sign_up: bool,
    /// What happened since the previous sign-in, for owners and operators.
    notices: Vec<String>,
    sign_out: SignOut,
}

/// `GET /account`: shows the account page.
pub async fn show_account(app: &App, request: SignedInBrowser) -> Result<Response, ErrorPage> {
    let (browser, account) = (&request.browser, &request.signed_in.account);
    let return_to = ReturnTo::Account.address(app);
    let members = memberships::load_members(app, account, None).await?;
    let vaults = members.into_iter().map(|member| Vault {
        slug: member.user.namespace.slug.to_string(),
        role: role_with_article(member.user.role),
        last_used: member.user.last_seen_at.map_or_else(
            || "never used".to_owned(),
            |at| format!("used {}", format_day(at)),
        ),
    });
    let page = AccountPage {
        frame: Frame::for_service(&app.config.public_url),
        email: account.email.to_string(),
        operator: account.operator,
        csrf: browser.form_token(app, Purpose::Account, ACCOUNT_PATH),
        invitations: invitations::load_invitations(app, account, None).await?,
        vaults: vaults.collect(),
        apps: apps_and_sessions::load_apps(app, account).await?,
        sessions: apps_and_sessions::load_sessions(app, account, browser).await?,
        second_factor: account.second_factor.is_some(),
        passkeys: account.passkeys.as_slice().len(),
        connections: list_connections(account),
        may_disconnect: account.proofs.len() > 1,
        // A stored password cannot sign in while the service takes none, so its change is not
        // offered.
        has_password: account.password_hash().is_some() && app.config.sign_in.takes_passwords(),
        sign_up: app.config.hosting.sign_up,
        notices: request.signed_in.session.notices.clone(),
        sign_out: SignOut {
            csrf: browser.form_token(app, Purpose::Logout, &return_to),
            return_to: return_to.clone(),
        },
        return_to,
    };
    Ok(layout::render_page(StatusCode::OK, &page, None))
}

/// The form with which a person leaves a vault.
pub const LEAVE: FormTask = account_page_form("membership.leave");

/// `POST /account/vaults`: leaves a vault. The last owner cannot, because a vault needs one.
pub async fn leave_vault(app: &App, request: SignedInForm) -> Result<Response, ErrorPage> {
    let slug = request.form.value("namespace");
    let slug = slug.and_then(|slug| slug.parse().ok());
    let slug: Slug = slug.ok_or(ErrorPage::FormMalformed)?;
    let leave = async |tx| leave_in(&tx, &request, &slug).await;
    let left = app.change(leave).await?;
    if !left {
        return Err(ErrorPage::LastOwner);
    }
    let address = ReturnTo::Account.address(app);
    Ok(redirect_to(StatusCode::SEE_OTHER, &address))
}

/// Leaves the vault; returns false when the person is its last owner.
async fn leave_in(
    tx: &Transaction<'_>,
    request: &SignedInForm,
    slug: &Slug,
) -> Result<bool, StoreError> {
    let key = membership_key(&request.signed_in.account.id, slug);
    // The membership may have ended before, perhaps by the first click of two. The person wanted
    // just that.
    let Some(entry) = tx.get::<Membership>(&key).await? else {
        return Ok(true);
    };
    let namespace = entry.value.namespace.id;
    let key = user_key(&namespace, &entry.value.user_id);
    let Some(user) = tx.get::<User>(&key).await? else {
        return Ok(true);
    };
    if user.value.role == Role::Owner && user.value.can_administer() {
        match model::members::another_owner(tx, &namespace, &user.value.id).await? {
            None => return Ok(false),
            // The other owner must still be one at the commit: two owners who leave at the same
            // time must not both succeed.
            Some(other) => tx.write(other.check_unchanged()),
        }
    }
    // The writes are added only here, after the last check: a transaction commits its writes
    // whenever its work returns `Ok`, and that includes `Ok(false)` above.
    tx.write_all(user.value.removal_writes(user.revision));
    invitations::audit_membership(tx, request, &user.value, None, LEAVE.action)?;
    Ok(true)
}
