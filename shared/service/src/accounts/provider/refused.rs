//! Refused sign-ins through the identity provider, and the text of their pages.

use axum::http::StatusCode;

use crate::web::error_page::{ErrorPage, Explanation};

/// Reason for refusing a sign-in through the provider.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RefusedSignIn {
    /// The service has no identity provider.
    NotOffered,
    /// No request of this browser has this state: it was answered, has expired, or belongs to
    /// another browser.
    Expired,
    /// The provider answered with this error code.
    Answered(String),
    /// The answer is invalid: the provider did not give it to this request.
    NotValid,
    /// The request demanded fresh credentials, but the provider did not ask the person for any.
    NotFresh,
    /// The provider has not verified the address, or sends none.
    AddressUnverified,
    /// An operator disabled the account.
    Disabled,
    /// The address has neither an account nor an invitation.
    NotInvited,
    /// The account has no password, only a connection to another person of a provider, so the
    /// person has no way to prove here that it is theirs.
    Unprovable,
}

impl RefusedSignIn {
    /// Returns status, title and paragraphs of the page.
    const fn page_text(&self) -> (StatusCode, &'static str, &'static [&'static str]) {
        match self {
            Self::NotOffered => (
                StatusCode::NOT_FOUND,
                "This service has no identity provider",
                &["Go back and sign in with your password."],
            ),
            Self::Expired => (
                StatusCode::BAD_REQUEST,
                "This sign-in has expired",
                &[
                    "It was completed already, took longer than ten minutes, or began in another browser.",
                    "Start again from the app or the page that you came from. Cookies must be allowed for this address.",
                ],
            ),
            Self::Answered(_) => (
                StatusCode::FORBIDDEN,
                "The identity provider did not sign you in",
                &["Go back and try again, or choose another account there."],
            ),
            Self::NotValid => (
                StatusCode::FORBIDDEN,
                "The identity provider’s answer is not valid",
                &[
                    "The answer does not belong to this sign-in, so you are not signed in. Go back and try again.",
                    "If it happens again, tell the operator of this service. The log says what is wrong.",
                ],
            ),
            Self::NotFresh => (
                StatusCode::FORBIDDEN,
                "Enter your credentials again",
                &[
                    "This step requires that you enter your credentials, and the identity provider signed you in without them.",
                    "Sign out at the identity provider, then go back and try again.",
                ],
            ),
            Self::AddressUnverified => (
                StatusCode::FORBIDDEN,
                "Your e-mail address is not verified",
                &[
                    "The identity provider has not verified an e-mail address of your account there, so it cannot prove who you are here.",
                    "Verify your address at the identity provider, then sign in again.",
                ],
            ),
            Self::Disabled => (
                StatusCode::FORBIDDEN,
                "This account is disabled",
                &[
                    "An operator of this service disabled the account. Ask the operator to enable it.",
                ],
            ),
            Self::NotInvited => (
                StatusCode::FORBIDDEN,
                "Your address has no account here",
                &[
                    "This service makes accounts for invited people only, and your address has no invitation.",
                    "Ask the owner of a vault to invite the address that you use at the identity provider.",
                ],
            ),
            Self::Unprovable => (
                StatusCode::FORBIDDEN,
                "Another sign-in is connected to this account",
                &[
                    "The account with your address has no password, and signs in through another account of an identity provider.",
                    "Sign in through that one, or ask the operator of this service to reset the account.",
                ],
            ),
        }
    }

    /// Returns the last paragraph, which names the provider's error code.
    fn case_detail(&self) -> Option<String> {
        match self {
            Self::Answered(code) if code == "access_denied" => {
                Some("The sign-in was declined there.".to_owned())
            }
            Self::Answered(code) if !code.is_empty() => Some(format!("Its reason is “{code}”.")),
            _ => None,
        }
    }
}

impl From<RefusedSignIn> for ErrorPage {
    fn from(refused: RefusedSignIn) -> Self {
        let (status, title, lines) = refused.page_text();
        let detail = refused.case_detail();
        Explanation {
            status,
            title,
            lines,
            detail,
            sign_out: None,
        }
        .into()
    }
}
