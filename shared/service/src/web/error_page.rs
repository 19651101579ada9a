//! The error pages of sign-in, consent and the console: each reason, its status and its text.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::Response;
use vault_store::StoreError;

use super::layout::{self, Frame, MessagePage, SignOut};
use crate::app::App;
use crate::error::{ErrorCode, Fault, Refusal};
use crate::http::Logged;

/// Why a page or form of a person ends with an error page, and which one.
#[derive(Debug)]
pub enum ErrorPage {
    /// A failure that another room explains.
    Explained(Explanation),
    /// The authorize request is too long or has no query.
    RequestMalformed,
    /// A form that does not come from a page of ours, in this browser, of the last hour.
    FormForged,
    /// A form that no page of ours sends.
    FormMalformed,
    /// The link was used, replaced, or is too old.
    InviteGone,
    /// The account has no part in any namespace, or not in the one asked for.
    NoNamespace {
        /// The button to sign out with.
        sign_out: (String, String),
        /// Whether the request asked for one namespace.
        fixed: bool,
    },
    /// The person is the last owner of a vault, and cannot leave it.
    LastOwner,
    /// Sign-in by password is off.
    PasswordsOff,
    /// The sign-in is the last one of the account, or none of it.
    LastSignIn,
    /// The identity provider does not answer, or is not what the settings say.
    ProviderDown {
        /// The cause, for the log.
        refusal: Refusal,
        /// Whether a password would do.
        passwords: bool,
    },
    /// People cannot create vaults here.
    NoSignUp,
    /// Nothing is at this address for this person, whether or not it is there for another.
    NotFound,
    /// HTTP or the store said no.
    Refused(Refusal),
}

/// The title where people cannot create vaults.
const NO_SIGN_UP: &str = "You cannot create a vault here";
/// What helps there.
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

/// The text of an error page whose cause only the room of that cause knows.
#[derive(Debug)]
pub struct Explanation {
    /// The status.
    pub status: StatusCode,
    /// The heading.
    pub title: &'static str,
    /// One paragraph each.
    pub lines: &'static [&'static str],
    /// A last paragraph about this case alone.
    pub detail: Option<String>,
}

impl From<Explanation> for ErrorPage {
    fn from(explanation: Explanation) -> Self {
        Self::Explained(explanation)
    }
}

/// Status, title and paragraphs of a page.
type Words = (StatusCode, &'static str, &'static [&'static str]);

const fn provider_down(passwords: bool) -> Words {
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

/// `fixed`: the app asks for one vault.
const fn no_namespace(fixed: bool) -> Words {
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

/// What a page says of a refusal by HTTP or the store.
fn refused(refusal: &Refusal) -> Words {
    let status = refusal.status();
    match refusal.code() {
        code if code.row().fault == Fault::Service => (
            status,
            "The service is temporarily unavailable",
            &["This is not your fault, and nothing was lost. Wait a moment and reload the page."],
        ),
        ErrorCode::RateLimited => (
            status,
            "Too many requests",
            &[
                "This address has sent too many requests. Nothing was changed, and the app received nothing.",
                "Wait before you reload the page.",
            ],
        ),
        ErrorCode::VaultSuspended => (
            status,
            "This vault is suspended",
            &["An operator of this service has stopped the vault. Ask the operator to resume it."],
        ),
        _ => (
            status,
            "This request is not valid",
            &["Go back and reload the page."],
        ),
    }
}

impl ErrorPage {
    /// Status, title and paragraphs of the page.
    fn words(&self) -> Words {
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
            Self::ProviderDown { passwords, .. } => provider_down(*passwords),
            Self::NoSignUp => (StatusCode::NOT_FOUND, NO_SIGN_UP, &[NO_SIGN_UP_HELP]),
            Self::NoNamespace { fixed, .. } => no_namespace(*fixed),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "This page does not exist",
                &[
                    "Either there is no such vault or page, or your account is not a member of the vault.",
                    "Check the address. To use a vault, ask its owner to invite you.",
                ],
            ),
            Self::Refused(refusal) => refused(refusal),
        }
    }

    /// The page.
    pub fn answer(self, app: &App) -> Response {
        let (status, title, lines) = self.words();
        let mut lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        if let Self::Explained(page) = &self {
            lines.extend(page.detail.clone());
        }
        let (sign_out, refusal) = match self {
            Self::NoNamespace {
                sign_out: (csrf, return_to),
                ..
            } => (Some(SignOut { csrf, return_to }), None),
            Self::Refused(refusal) | Self::ProviderDown { refusal, .. } => (None, Some(refusal)),
            _ => (None, None),
        };
        let page = MessagePage {
            frame: Frame::of(&app.config.public_url),
            title,
            lines,
            sign_out,
        };
        let mut response = layout::answer(status, &page, None);
        if let Some(refusal) = refusal {
            let wait = match status {
                StatusCode::SERVICE_UNAVAILABLE => Some(HeaderValue::from_static("5")),
                _ => refusal.header_value(&header::RETRY_AFTER).cloned(),
            };
            if let Some(wait) = wait {
                response.headers_mut().insert(header::RETRY_AFTER, wait);
            }
            response.extensions_mut().insert(Logged(refusal));
        }
        response
    }
}
