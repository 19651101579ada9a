//! The consent page, and the page on which an invited person answers invitations before it.

use askama::Template;
use vault_format::name::Slug;

use super::authorize::Administration;
use crate::accounts::invitations::Invitation;
use crate::accounts::memberships::{MAX_CHOICES, Member};
use crate::accounts::sign_in_page::ShownApp;
use crate::model::user::{Role, Scope, Scopes};
use crate::web::error_page::ErrorPage;
use crate::web::form::Form;
use crate::web::layout::{Frame, SignOut, role_name};

/// Check box of the page: a scope that the person can grant.
pub struct ScopeOffer {
    /// Name of the scope in the protocol.
    pub scope: &'static str,
    /// Label of the box.
    pub title: &'static str,
    /// Description of what the app can do with it.
    pub text: &'static str,
    /// What the scope also allows in a vault that the person owns, if anything.
    pub for_owners: Option<&'static str>,
    /// Whether the box is ticked from the start.
    pub ticked: bool,
}

impl ScopeOffer {
    fn for_scope(
        scope: Scope,
        members: &[Member],
        administration: Administration,
        write_ticked: bool,
    ) -> Self {
        let publishes = |member: &Member| member.user.role.can_publish();
        let (title, text) = match scope {
            Scope::Write if administration == Administration::Service => (
                "Write",
                "Create and suspend vaults, sign people out, and change accounts and operators.",
            ),
            Scope::Read => (
                "Read",
                if administration == Administration::Vault {
                    "Search and fetch the skills that you may see, and see the people, machines, apps and log of a vault that you own."
                } else {
                    "Search and fetch the skills that you may see."
                },
            ),
            Scope::Write if members.iter().any(publishes) => (
                "Write",
                "Propose, edit and publish skills, within your role.",
            ),
            Scope::Write => ("Write", "Propose and edit skills, within your role."),
        };
        let for_owners = match (scope, administration, members.len()) {
            // Two admin routes check only the role, not the scope.
            (Scope::Read, Administration::Vault, 1) => Some(
                "Even without “Write”, it can disconnect apps and change who may read and write.",
            ),
            (Scope::Read, Administration::Vault, _) => Some(
                "Even without “Write”, in a vault that you own it can disconnect apps and change who may read and write.",
            ),
            (Scope::Write, Administration::Vault, 1) => Some(
                "It also invites people, admits machines and publishes; it cannot do what needs your confirmation.",
            ),
            (Scope::Write, Administration::Vault, _) => Some(
                "In a vault that you own it also invites people, admits machines and publishes; it cannot do what needs your confirmation.",
            ),
            _ => None,
        };
        Self {
            scope: scope.as_str(),
            title,
            text,
            for_owners,
            ticked: scope == Scope::Read || write_ticked,
        }
    }
}

/// Row of the page: a namespace that the person can choose.
pub struct NamespaceChoice {
    /// Slug of the namespace, which is also the value that the form sends.
    pub slug: String,
    pub role: &'static str,
    pub may_write: bool,
}

/// Value of the radio button beside which the person types the slug of a vault. No slug has this
/// value.
const OTHER_VAULT: &str = "*";

#[derive(Template)]
#[template(path = "consent.html")]
pub struct ConsentPage {
    /// Host and path prefix of the service, for the header of the page.
    pub frame: Frame,
    pub app: ShownApp,
    /// E-mail address of the signed-in account.
    pub account: String,
    /// What was wrong with the previous decision, if anything.
    pub problem: Option<&'static str>,
    /// Form token, bound to the authorize request.
    pub csrf: String,
    /// Form token of the button that signs out.
    pub logout_csrf: String,
    /// Address of the authorize request that is decided about.
    pub return_to: String,
    /// Notices to owners and operators about events since the previous sign-in.
    pub notices: Vec<String>,
    choices: Vec<NamespaceChoice>,
    /// Slugs of the vaults that the list does not show; the browser offers them while the person
    /// types.
    others: Vec<String>,
    offers: Vec<ScopeOffer>,
    /// Scopes that the tokens get without a box.
    implied: Vec<&'static str>,
    /// Whether the page says that the tokens can publish releases.
    publishes: bool,
    /// Whether the tokens administer the whole service.
    administers_service: bool,
}

/// The app, the account and the form tokens of a consent page.
pub struct ConsentParties {
    pub app: ShownApp,
    /// E-mail address of the signed-in account.
    pub account: String,
    /// Notices to owners and operators about events since the previous sign-in.
    pub notices: Vec<String>,
    /// Form token, bound to the authorize request.
    pub csrf: String,
    /// Form token of the button that signs out.
    pub logout_csrf: String,
    /// Address of the authorize request that is decided about.
    pub return_to: String,
}

/// What a person can consent to on a consent page.
pub struct ConsentOffer<'a> {
    /// Memberships of which the person chooses one.
    pub members: &'a [Member],
    /// Scopes that the app requests.
    pub scopes: Scopes,
    /// Rights of administration that the consent gives besides the scopes.
    pub administration: Administration,
    /// Whether the box “Write” is ticked from the start.
    pub write_ticked: bool,
}

impl ConsentPage {
    /// Creates the page on which the person chooses one of the memberships, and some of the
    /// requested scopes that at least one membership can give. The page lists the first 50
    /// memberships; the person types the slug of any other.
    pub fn new(
        frame: Frame,
        parties: ConsentParties,
        offer: &ConsentOffer<'_>,
        problem: Option<&'static str>,
    ) -> Self {
        let &ConsentOffer {
            members,
            scopes,
            administration,
            write_ticked,
        } = offer;
        let users = || members.iter().map(|member| &member.user);
        let administers_service = administration == Administration::Service;
        let possible = if administers_service {
            scopes
        } else {
            let all = users().fold(Scopes::NONE, |all, user| all.or(user.scopes));
            all.and(scopes)
        };
        // Reading needs no box for operator rights: an operator sees the whole service anyway.
        let has_box = |scope: &Scope| !(administers_service && *scope == Scope::Read);
        let choices = users().take(MAX_CHOICES).map(|user| NamespaceChoice {
            slug: user.namespace.slug.to_string(),
            role: role_name(user.role),
            may_write: user.scopes.has(Scope::Write),
        });
        let ConsentParties {
            app,
            account,
            notices,
            csrf,
            logout_csrf,
            return_to,
        } = parties;
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
            others: users()
                .skip(MAX_CHOICES)
                .map(|user| user.namespace.slug.to_string())
                .collect(),
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
                .map(|scope| ScopeOffer::for_scope(scope, members, administration, write_ticked))
                .collect(),
        }
    }
}

/// Returns the vault that the person chose or typed; `None` if the form names none.
pub fn chosen_vault(form: &Form) -> Result<Option<Slug>, ErrorPage> {
    match form.value("namespace") {
        // Typed text that is no slug counts as no choice, not as a malformed form.
        Some(OTHER_VAULT) => Ok(form
            .value("other")
            .and_then(|typed| typed.trim().to_ascii_lowercase().parse().ok())),
        Some(slug) => Ok(Some(slug.parse().map_err(|_| ErrorPage::FormMalformed)?)),
        None => Ok(None),
    }
}

/// Page on which an invited person without a vault answers the invitations.
#[derive(Template)]
#[template(path = "invited_into.html")]
pub struct InvitedIntoPage {
    /// Host and path prefix of the service, for the header of the page.
    pub frame: Frame,
    /// E-mail address of the signed-in account.
    pub email: String,
    /// Form token, bound to the authorize request.
    pub csrf: String,
    /// Address of the authorize request that continues afterwards.
    pub return_to: String,
    /// The invitations that the person can answer now.
    pub invitations: Vec<Invitation>,
    pub sign_out: SignOut,
}
