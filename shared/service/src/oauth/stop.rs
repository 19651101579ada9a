//! The error pages of sign-in, consent and the console: each reason, its status and its text.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::Response;
use vault_store::StoreError;

use super::authorize::UnredirectableError;
use super::pages::{self, Frame, MessagePage, SignOut};
use super::password::HashingFailed;
use super::provider::refused::Refused;
use super::sign_in::CheckFailed;
use crate::app::App;
use crate::error::{ErrorCode, Fault, Refusal};
use crate::http::Logged;

/// Why a page or form of a person ends with an error page, and which one.
#[derive(Debug)]
pub enum ErrorPage {
    /// The authorize request cannot be answered anywhere.
    Unredirectable(UnredirectableError),
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
    /// The identity provider refused the sign-in.
    Provider(Refused),
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

impl From<UnredirectableError> for ErrorPage {
    fn from(why: UnredirectableError) -> Self {
        Self::Unredirectable(why)
    }
}

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

impl From<CheckFailed> for ErrorPage {
    fn from(failed: CheckFailed) -> Self {
        Self::Refused(failed.into())
    }
}

impl From<HashingFailed> for ErrorPage {
    fn from(error: HashingFailed) -> Self {
        Self::Refused(error.into())
    }
}

/// Status, title and paragraphs of a page.
type Words = (StatusCode, &'static str, &'static [&'static str]);

const fn no_way_back(why: UnredirectableError) -> Words {
    match why {
        UnredirectableError::Client => (
            StatusCode::BAD_REQUEST,
            "This app is not registered here",
            &[
                "Its registration is missing or has expired. Start again from the app; it will register again.",
                "The app received nothing.",
            ],
        ),
        UnredirectableError::Document => (
            StatusCode::BAD_REQUEST,
            "This app cannot be recognised",
            &[
                "The app identifies itself by the address of a page that describes it, and that page could not be read.",
                "The app received nothing. Try again later, or tell the maker of the app.",
            ],
        ),
        UnredirectableError::Redirect => (
            StatusCode::BAD_REQUEST,
            "This request is not safe",
            &[
                "The app asked to redirect to an address that it did not register, so it received nothing.",
                "If you did not start this yourself, close this page.",
            ],
        ),
    }
}

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
            Self::Unredirectable(why) => no_way_back(*why),
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
            Self::Provider(refused) => refused.words(),
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
        if let Self::Provider(refused) = &self {
            lines.extend(refused.detail());
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
        let mut response = pages::answer(status, &page, None);
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
