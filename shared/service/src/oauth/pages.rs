//! The pages that people see: plain HTML without script, written from templates that escape
//! everything.
//!
//! A page cannot be framed, loads nothing, and may send its forms to this service and on to one
//! client alone.

use std::sync::LazyLock;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use vault_format::time::Timestamp;

use super::authorize::Administration;
use super::members::Member;
use crate::config::PublicUrl;
use crate::model::client::Client;
use crate::model::provisioning::StepName;
use crate::model::redirect::RedirectUri;
use crate::model::user::{Role, Scope, Scopes};

/// The style sheet of all pages. The page that ends a sign-in on a user's machine has it too.
pub const STYLE: &str = include_str!("../../templates/style.css");

/// The one style sheet, by its hash: an injected one would not be applied.
static STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| style_source(STYLE));

/// A style sheet by its hash, as a content policy names it.
fn style_source(style: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(style)))
}

/// The style sheet of the pages of the console: that of all pages, and what only these have.
pub const CONSOLE_STYLE: &str = concat!(
    include_str!("../../templates/style.css"),
    include_str!("../../templates/console/style.css")
);

static CONSOLE_STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| style_source(CONSOLE_STYLE));

/// What is around every page.
pub struct Frame {
    /// The host that the person should see in the address bar.
    pub place: String,
    /// The path prefix of the public URL.
    pub prefix: String,
}

impl Frame {
    /// The frame of a service.
    pub fn of(public: &PublicUrl) -> Self {
        Self {
            place: public.authority().to_owned(),
            prefix: public.prefix().to_owned(),
        }
    }

    #[expect(clippy::unused_self, reason = "templates call it on the frame")]
    pub(crate) const fn style(&self) -> &'static str {
        STYLE
    }
}

/// A client as a page shows it: what it says about itself, and what we know.
pub struct ShownApp {
    /// Its own name for itself, if it gave one.
    pub name: Option<String>,
    /// The host, or the scheme, that the answer goes to.
    pub shown: String,
    /// The answer goes to a program on this computer.
    pub loopback: bool,
    /// The answer goes to whichever program opens the scheme.
    pub private_scheme: bool,
    /// The day on which it registered.
    pub registered: String,
    /// The host where its document stands, if it is known by one.
    pub document: Option<String>,
}

impl ShownApp {
    /// A client that wants its answer at `redirect`.
    pub fn of(client: &Client, redirect: &RedirectUri) -> Self {
        Self {
            name: client.name.clone(),
            shown: redirect.shown().to_owned(),
            loopback: redirect.is_loopback(),
            private_scheme: redirect.is_private_scheme(),
            registered: day(client.created_at),
            document: client
                .document
                .as_ref()
                .map(|document| document.host.clone()),
        }
    }
}

/// The sign-in page.
#[derive(Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    /// What is around it.
    pub frame: Frame,
    /// Who wants something after it.
    pub app: Option<ShownApp>,
    /// What went wrong the last time.
    pub problem: Option<&'static str>,
    /// The form token.
    pub csrf: String,
    /// The authorize request to go back to.
    pub return_to: String,
    /// What was typed as address.
    pub email: String,
    /// Whether a password signs in.
    pub passwords: bool,
    /// The name of the identity provider, where there is one.
    pub provider: Option<String>,
}

/// A scope that can be given.
pub struct Offer {
    /// The word of the interface.
    pub scope: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// What the app can do with it.
    pub text: &'static str,
    /// Whether the box is ticked from the start.
    pub ticked: bool,
}

impl Offer {
    fn of(scope: Scope, members: &[Member], administration: Administration) -> Self {
        let owner = |member: &Member| member.user.role == Role::Owner;
        let publishes = |member: &Member| member.user.role.publishes();
        let (title, text) = match scope {
            Scope::Write if administration == Administration::Service => (
                "Write",
                "Create and suspend vaults, sign people out, and change accounts and operators.",
            ),
            Scope::Read => ("Read", "Search and fetch the skills that you may see."),
            Scope::Write if members.iter().any(publishes) => (
                "Write",
                "Propose, edit and publish skills, within your role.",
            ),
            Scope::Write => ("Write", "Propose and edit skills, within your role."),
        };
        // A member has to tick writing: least privilege is the default for all who do not run the
        // vault.
        let ticked = scope == Scope::Read || members.iter().all(owner);
        Self {
            scope: scope.as_str(),
            title,
            text,
            ticked,
        }
    }
}

/// A namespace that can be chosen.
pub struct Choice {
    /// Its slug.
    pub slug: String,
    /// What the person is there.
    pub role: &'static str,
    /// Whether the person may write there.
    pub may_write: bool,
}

/// The consent page.
#[derive(Template)]
#[template(path = "consent.html")]
pub struct ConsentPage {
    /// What is around it.
    pub frame: Frame,
    /// Who asks.
    pub app: ShownApp,
    /// Who is signed in.
    pub account: String,
    /// What went wrong the last time.
    pub problem: Option<&'static str>,
    /// The form token.
    pub csrf: String,
    /// The form token of the button that signs out.
    pub logout_csrf: String,
    /// The authorize request that is decided about.
    pub return_to: String,
    /// What happened since the sign-in before.
    pub notices: Vec<String>,
    choices: Vec<Choice>,
    offers: Vec<Offer>,
    /// What is given without a box.
    implied: Vec<&'static str>,
    administers_vault: bool,
    publishes: bool,
    administers_service: bool,
}

/// Who asks whom, and the form tokens, for a consent page.
pub struct Asking {
    /// Who asks.
    pub app: ShownApp,
    /// Who is signed in.
    pub account: String,
    /// What happened since the sign-in before.
    pub notices: Vec<String>,
    /// The form token.
    pub csrf: String,
    /// The form token of the button that signs out.
    pub logout_csrf: String,
    /// The authorize request that is decided about.
    pub return_to: String,
}

impl ConsentPage {
    /// The page for one of `members` to be chosen and the scopes that at least one of them can
    /// give.
    pub fn new(
        frame: Frame,
        asking: Asking,
        members: &[Member],
        asked: Scopes,
        administration: Administration,
        problem: Option<&'static str>,
    ) -> Self {
        let users = || members.iter().map(|member| &member.user);
        let administers_service = administration == Administration::Service;
        let possible = if administers_service {
            asked
        } else {
            let all = users().fold(Scopes::NONE, |all, user| all.or(user.scopes));
            all.and(asked)
        };
        // Whoever operates a service sees it, with or without a box.
        let has_box = |scope: &Scope| !(administers_service && *scope == Scope::Read);
        let choices = users().map(|user| Choice {
            slug: user.namespace.slug.to_string(),
            role: role_name(user.role),
            may_write: user.scopes.has(Scope::Write),
        });
        let Asking {
            app,
            account,
            notices,
            csrf,
            logout_csrf,
            return_to,
        } = asking;
        Self {
            frame,
            app,
            account,
            notices,
            problem,
            csrf,
            logout_csrf,
            return_to,
            choices: choices.collect(),
            administers_vault: administration == Administration::Vault,
            publishes: matches!(
                administration,
                Administration::Vault | Administration::Releases
            ) && users().any(|user| user.role == Role::Publisher),
            administers_service,
            implied: possible
                .iter()
                .filter(|scope| !has_box(scope))
                .map(Scope::as_str)
                .collect(),
            offers: possible
                .iter()
                .filter(has_box)
                .map(|scope| Offer::of(scope, members, administration))
                .collect(),
        }
    }
}

/// The page where an invited person sets a password.
#[derive(Template)]
#[template(path = "invite.html")]
pub struct InvitePage {
    /// What is around it.
    pub frame: Frame,
    /// Where the form goes, below the prefix.
    pub action: String,
    /// The account.
    pub email: String,
    /// Least characters.
    pub least: usize,
    /// The form token.
    pub csrf: String,
    /// What went wrong the last time.
    pub problem: Option<String>,
}

/// The page where a signed-in person changes the password.
#[derive(Template)]
#[template(path = "password.html")]
pub struct PasswordPage {
    /// What is around it.
    pub frame: Frame,
    /// The account.
    pub email: String,
    /// Least characters of the new one.
    pub least: usize,
    /// The form token.
    pub csrf: String,
    /// The form token of the button that signs out.
    pub logout_csrf: String,
    /// This page, for that button.
    pub return_to: String,
    /// What went wrong the last time.
    pub problem: Option<String>,
}

/// What a step of setting up a hosted vault is called on a page.
pub(crate) const fn step_text(step: StepName) -> &'static str {
    match step {
        StepName::StarterSkills => "Choose starter skills",
        StepName::PaidAccess => "Confirm the payment",
        StepName::Namespace => "Create the vault",
        StepName::CloudImport => "Save the starter skills as drafts",
        StepName::FirstSync => "Publish the first release",
    }
}

/// What a role is called on a page.
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Owner => "owner",
        Role::Publisher => "publisher",
        Role::Member => "member",
    }
}

/// What a person is who has a role.
pub const fn role(role: Role) -> &'static str {
    match role {
        Role::Owner => "an owner",
        Role::Publisher => "a publisher",
        Role::Member => "a member",
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The day of a time (UTC), as pages write it: `1 Dec 2026`.
pub fn day(at: Timestamp) -> String {
    let text = at.to_string();
    let mut parts = text.split(['-', 'T']);
    let year = parts.next().unwrap_or_default();
    let month = parts.next().and_then(|month| month.parse::<usize>().ok());
    let month = month.and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let day = parts.next().unwrap_or_default().trim_start_matches('0');
    format!("{day} {} {year}", month.unwrap_or(&""))
}

/// A time to the minute, as pages write it: `1 Dec 2026, 09:05 UTC`.
pub fn minute(at: Timestamp) -> String {
    let text = at.to_string();
    let clock = text.split('T').nth(1).and_then(|clock| clock.get(..5));
    format!("{}, {} UTC", day(at), clock.unwrap_or_default())
}

/// An invitation that waits for an answer, as a page shows it.
pub struct Invitation {
    /// The namespace.
    pub slug: String,
    /// The address of the owner who invited; `None` where an earlier version of vault did not keep
    /// it.
    pub inviter: Option<String>,
    /// What the person would be there.
    pub role: &'static str,
    /// The day on which it ends.
    pub ends: String,
}

/// The page on which an invited person without a vault answers the invitations.
#[derive(Template)]
#[template(path = "invited_into.html")]
pub struct InvitedIntoPage {
    /// What is around it.
    pub frame: Frame,
    /// Who is signed in.
    pub email: String,
    /// The form token.
    pub csrf: String,
    /// The authorize request that goes on afterwards.
    pub return_to: String,
    /// The invitations.
    pub invitations: Vec<Invitation>,
    /// The button that signs out.
    pub sign_out: SignOut,
}

/// A form token and where to go afterwards, for a button that signs out.
pub struct SignOut {
    /// The form token.
    pub csrf: String,
    /// An authorize request.
    pub return_to: String,
}

/// The end of an invitation: how to connect.
#[derive(Template)]
#[template(path = "invited.html")]
pub struct InvitedPage {
    /// What is around it.
    pub frame: Frame,
    /// The address that the password belongs to.
    pub email: String,
    /// The public URL.
    pub base: String,
}

/// A heading and some paragraphs.
#[derive(Template)]
#[template(path = "message.html")]
pub struct MessagePage {
    /// What is around it.
    pub frame: Frame,
    /// The heading.
    pub title: &'static str,
    /// One paragraph each.
    pub lines: Vec<String>,
    /// A button to sign out with, where that helps.
    pub sign_out: Option<SignOut>,
}

/// A page as an answer. `onward` is where a form on it may lead in the end besides this service:
/// the client's address.
pub fn answer(status: StatusCode, page: &impl Template, onward: Option<&RedirectUri>) -> Response {
    styled(status, page, onward, &STYLE_SOURCE)
}

/// A page of the console as an answer.
pub fn console_answer(status: StatusCode, page: &impl Template) -> Response {
    styled(status, page, None, &CONSOLE_STYLE_SOURCE)
}

fn styled(
    status: StatusCode,
    page: &impl Template,
    onward: Option<&RedirectUri>,
    style: &str,
) -> Response {
    let Ok(html) = page.render() else {
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            "This page cannot be shown.",
        )
            .into_response();
    };
    let onward = onward
        .map(|uri| format!(" {}", uri.policy_source()))
        .unwrap_or_default();
    // Browsers hold `form-action` against every redirect that a form starts, so the client's
    // address has to be in it.
    let policy = format!(
        "default-src 'none'; style-src {style}; form-action 'self'{onward}; frame-ancestors 'none'; base-uri 'none'"
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, value);
    set(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    set(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    set(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    set(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        set(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_minutes_are_written_for_people() {
        for (at, on, until) in [
            (
                "2026-12-01T09:05:59Z",
                "1 Dec 2026",
                "1 Dec 2026, 09:05 UTC",
            ),
            (
                "2027-01-30T23:59:00Z",
                "30 Jan 2027",
                "30 Jan 2027, 23:59 UTC",
            ),
        ] {
            let at = at.parse().unwrap();
            assert_eq!((day(at).as_str(), minute(at).as_str()), (on, until));
        }
    }
}
