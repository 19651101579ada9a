//! Error pages of sign-in, consent, accounts and the console: each reason with its status and text.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::Response;
use vault_store::StoreError;

use super::layout::{self, Frame, MessagePage, SignOut};
use crate::app::App;
use crate::budget;
use crate::error::{ErrorCode, Fault, Refusal};
use crate::http::Logged;

/// Reason for answering a page or a form with an error page.
#[derive(Debug)]
pub enum ErrorPage {
    /// A failure whose text the module that detects it provides.
    Explained(Explanation),
    /// The authorize request is too long or has no query.
    RequestMalformed,
    /// The form does not come from a page that this browser received from the service within the
    /// last hour.
    FormForged,
    /// The form lacks a field or has a value that no page of this service sends.
    FormMalformed,
    /// The invitation link was used, replaced, or has expired.
    InviteGone,
    /// The account has no membership that fits the request.
    NoNamespace {
        /// Form token and return address of the sign-out button.
        sign_out: (String, String),
        /// Whether the request asks for one certain namespace.
        fixed: bool,
    },
    /// The person is the last owner of a vault, and so cannot leave it.
    LastOwner,
    /// Sign-in by password is disabled.
    PasswordsOff,
    /// The connection to end is the account's only way to sign in, or does not belong to the
    /// account.
    LastSignIn,
    /// The identity provider does not answer, or does not match the settings.
    ProviderDown {
        /// Refusal with the cause, for the log and for the status.
        refusal: Refusal,
        /// Whether the service also takes passwords, which the page then suggests.
        passwords: bool,
    },
    /// People cannot create vaults on this service.
    NoSignUp,
    /// No page is visible to this person at this address, whether or not there is one for others.
    NotFound,
    /// HTTP processing or the store refused the request.
    Refused(Refusal),
}

/// Title of the page for a service on which people cannot create vaults.
const NO_SIGN_UP: &str = "You cannot create a vault here";
/// Advice on the page with the title [`NO_SIGN_UP`].
const NO_SIGN_UP_HELP: &str = "The operator of this service creates its vaults. Ask there for one.";

impl From<Refusal> for ErrorPage {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for ErrorPage {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// An error page that the module which detects the failure words itself.
#[derive(Debug)]
pub struct Explanation {
    pub status: StatusCode,
    /// Heading of the page, also its title in the browser.
    pub title: &'static str,
    /// Paragraphs of the page.
    pub lines: &'static [&'static str],
    /// Last paragraph, which depends on the request.
    pub detail: Option<String>,
    /// Button that signs out, if another account may see more.
    pub sign_out: Option<SignOut>,
}

impl From<Explanation> for ErrorPage {
    fn from(explanation: Explanation) -> Self {
        Self::Explained(explanation)
    }
}

/// Status, title and paragraphs of a page.
type PageText = (StatusCode, &'static str, &'static [&'static str]);

const fn provider_down_text(passwords: bool) -> PageText {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "The identity provider does not answer",
        if passwords {
            &[
                "You are not signed in, and nothing was changed. Try again in a moment.",
                "If your account has a password, go back and sign in with it.",
            ]
        } else {
            &["You are not signed in, and nothing was changed. Try again in a moment."]
        },
    )
}

/// Returns the text for an account without a suitable vault. `fixed`: the app asks for one certain
/// vault.
const fn no_namespace_text(fixed: bool) -> PageText {
    if fixed {
        (
            StatusCode::FORBIDDEN,
            "Your account has no access to this vault",
            &[
                "The app asks for this vault, and your account does not have the rights that it asks for.",
                "Ask the vault’s owner to invite you, or use another account. The app received nothing.",
            ],
        )
    } else {
        (
            StatusCode::FORBIDDEN,
            "Your account has no vault yet",
            &[
                "You are signed in, but this account has no access to a vault with the rights that the app asks for.",
                "Ask the vault’s owner to invite you, then start again from the app. The app received nothing.",
            ],
        )
    }
}

/// Returns the text for a refusal by HTTP processing or the store.
fn refusal_page_text(refusal: &Refusal) -> PageText {
    let status = refusal.status();
    match refusal.code() {
        // Checked first: a failure of the service must never read like a mistake of the person.
        code if code.row().fault == Fault::Service => (
            status,
            "The service is temporarily unavailable",
            &["This is not your fault, and nothing was lost. Wait a moment and reload the page."],
        ),
        ErrorCode::RateLimited => (
            status,
            "Too many requests",
            &[
                "Too many requests arrived. Nothing was changed, and the app received nothing.",
                "Wait before you reload the page.",
            ],
        ),
        ErrorCode::VaultSuspended => (
            status,
            "This vault is suspended",
            &[
                "An operator of this service has stopped the vault. Ask the operator to resume it.",
                "An owner can still download what the service stores about the vault, at the address of the vault’s console with /export.jsonl at its end.",
            ],
        ),
        _ => (
            status,
            "This request is not valid",
            &["Go back and reload the page."],
        ),
    }
}

impl ErrorPage {
    fn page_text(&self) -> PageText {
        match self {
            Self::Explained(page) => (page.status, page.title, page.lines),
            Self::RequestMalformed => (
                StatusCode::BAD_REQUEST,
                "This sign-in link is incomplete",
                &["Start again from the app that sent you here."],
            ),
            Self::FormForged => (
                StatusCode::FORBIDDEN,
                "This form has expired",
                &[
                    "It was open for too long, or it was not sent from this service's page. Nothing was changed.",
                    "Go back and reload the page. Cookies must be allowed for this address.",
                ],
            ),
            Self::FormMalformed => (
                StatusCode::BAD_REQUEST,
                "This form cannot be read",
                &["Go back and reload the page."],
            ),
            Self::InviteGone => (
                StatusCode::NOT_FOUND,
                "This link is no longer valid",
                &[
                    "It was used already, replaced by a newer one, or is older than 72 hours.",
                    "If you have already set your password, sign in. Otherwise ask the operator of this service for a new link.",
                ],
            ),
            Self::LastOwner => (
                StatusCode::CONFLICT,
                "You are the last owner",
                &[
                    "A vault keeps one owner who can sign in and write. Make another member an owner first, then leave.",
                    "Nothing was changed.",
                ],
            ),
            Self::PasswordsOff => (
                StatusCode::NOT_FOUND,
                "This service takes no passwords",
                &[
                    "The identity provider of this service signs everybody in.",
                    "Go back to the page or the app that you came from, and sign in there.",
                ],
            ),
            Self::LastSignIn => (
                StatusCode::CONFLICT,
                "This sign-in cannot be disconnected",
                &[
                    "It is the only way to sign in to your account, or it is no longer connected.",
                    "Nothing was changed.",
                ],
            ),
            Self::ProviderDown { passwords, .. } => provider_down_text(*passwords),
            Self::NoSignUp => (StatusCode::NOT_FOUND, NO_SIGN_UP, &[NO_SIGN_UP_HELP]),
            Self::NoNamespace { fixed, .. } => no_namespace_text(*fixed),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "This page does not exist",
                &[
                    "Either there is no such vault or page, or your account is not a member of the vault.",
                    "Check the address. To use a vault, ask its owner to invite you.",
                ],
            ),
            Self::Refused(refusal) => refusal_page_text(refusal),
        }
    }

    pub fn render_error_page(self, app: &App) -> Response {
        let (status, title, lines) = self.page_text();
        let mut lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        if let Self::Explained(page) = &self {
            lines.extend(page.detail.clone());
        }
        if let Self::Refused(refusal) = &self
            && refusal.code() == ErrorCode::RateLimited
            && let Some(first) = lines.first_mut()
        {
            // The text of the refusal names the limit.
            *first = format!("{refusal} Nothing was changed.");
        }
        if matches!(self, Self::NoNamespace { fixed: false, .. }) && app.config.hosting.sign_up {
            let address = app.config.public_url.join("/account/new-vault");
            lines.push(format!(
                "Or create a vault of your own at {address}, then start again from the app."
            ));
        }
        let (sign_out, refusal) = match self {
            Self::NoNamespace {
                sign_out: (csrf, return_to),
                ..
            } => (Some(SignOut { csrf, return_to }), None),
            Self::Explained(page) => (page.sign_out, None),
            Self::Refused(refusal) | Self::ProviderDown { refusal, .. } => (None, Some(refusal)),
            _ => (None, None),
        };
        let page = MessagePage {
            frame: Frame::for_service(&app.config.public_url),
            title,
            lines,
            sign_out,
        };
        let mut response = layout::render_page(status, &page, None);
        if let Some(refusal) = refusal {
            let wait = match status {
                StatusCode::SERVICE_UNAVAILABLE => Some(HeaderValue::from_static("5")),
                _ => refusal.header_value(&header::RETRY_AFTER).cloned(),
            };
            if let Some(wait) = wait {
                response.headers_mut().insert(header::RETRY_AFTER, wait);
            }
            for name in budget::FIELDS {
                if let Some(value) = refusal.header_value(&name) {
                    response.headers_mut().insert(name, value.clone());
                }
            }
            // The page does not show the cause, but the log line does.
            response.extensions_mut().insert(Logged(refusal));
        }
        response
    }
}
