//! Errors of the endpoints that programs call, in the format of RFC 6749.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use vault_api::OAuthError;
use vault_store::StoreError;

use super::register::RegisterError;
use super::token::TokenError;
use crate::app::App;
use crate::bearer;
use crate::error::{ErrorCode, Fault, Refusal};
use crate::http::{Logged, json_answer};
use crate::route::Audience;

/// Error of an endpoint that programs call, before it is rendered.
pub enum EndpointError {
    /// Refused token request: 400 or 401.
    Token(TokenError),
    /// Refused registration: 400.
    Register(RegisterError),
    /// The client authenticates by the `Authorization` header, but clients have no secrets here:
    /// 401.
    HeaderCredentials,
    /// No valid credentials: 401 with the challenge of a bearer route.
    Challenged(Refusal),
    /// Refusal of HTTP processing, a limit or the store, with its own status and headers.
    Refused(Refusal),
}

impl From<TokenError> for EndpointError {
    fn from(error: TokenError) -> Self {
        Self::Token(error)
    }
}

impl From<RegisterError> for EndpointError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

impl From<Refusal> for EndpointError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for EndpointError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl EndpointError {
    /// Renders the error in the format of RFC 6749.
    pub fn render_error(self, app: &App) -> Response {
        match self {
            Self::Token(error) => {
                let status = if error == TokenError::InvalidClient {
                    StatusCode::UNAUTHORIZED
                } else {
                    StatusCode::BAD_REQUEST
                };
                error_response(status, error.error_code(), &error.to_string())
            }
            Self::Register(error) => error_response(
                StatusCode::BAD_REQUEST,
                error.error_code(),
                &error.to_string(),
            ),
            Self::HeaderCredentials => {
                let error = TokenError::InvalidClient;
                let mut response = error_response(
                    StatusCode::UNAUTHORIZED,
                    error.error_code(),
                    "clients are public: name the client by client_id in the body",
                );
                // RFC 6749 section 5.2 requires the scheme that the client tried.
                response.headers_mut().insert(
                    header::WWW_AUTHENTICATE,
                    HeaderValue::from_static("Basic realm=\"vault\""),
                );
                response
            }
            Self::Challenged(refusal) => {
                let sent_one = refusal.code() == ErrorCode::TokenInvalid;
                let mut response = error_response(
                    refusal.status(),
                    if sent_one {
                        "invalid_token"
                    } else {
                        "invalid_client"
                    },
                    "name the client by client_id, or bear an access token",
                );
                let error = sent_one.then_some("invalid_token");
                let challenge =
                    bearer::audience_challenge(&app.config.public_url, Audience::Mcp, error);
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, challenge);
                response
            }
            Self::Refused(refusal) => {
                let code = match refusal.code() {
                    ErrorCode::Unavailable | ErrorCode::RateLimited => "temporarily_unavailable",
                    _ if refusal.code().row().fault == Fault::Service => "server_error",
                    _ => "invalid_request",
                };
                // Headers such as Retry-After come from the refusal, the body is that of OAuth.
                let mut response = refusal.clone().into_response();
                response.extensions_mut().remove::<Refusal>();
                let body = error_response(refusal.status(), code, &refusal.to_string());
                response.headers_mut().extend(body.headers().clone());
                *response.body_mut() = body.into_body();
                response.extensions_mut().insert(Logged(refusal));
                response
            }
        }
    }
}

fn error_response(status: StatusCode, code: &str, description: &str) -> Response {
    let error = OAuthError {
        error: code.to_owned(),
        error_description: description.to_owned(),
    };
    forbid_caching(json_answer(status, &error))
}

/// Marks a response that no cache may store.
pub fn forbid_caching(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // For HTTP/1.0 caches; RFC 6749 section 5.1 requires both headers.
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}
