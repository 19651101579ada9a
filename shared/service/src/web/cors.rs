//! CORS: which pages of other origins may read the answers of which endpoints.
//!
//! Discovery is open to all origins: it contains nothing private, and clients read it first.
//! Registration, tokens and revocation are open to the origins that may call `/mcp` (a setting).
//! Pages for people, above all the authorize page, are open to none.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};

use crate::app::App;

/// Request headers that browsers may send: the media type of the body, a bearer token, and the
/// header that MCP clients add to discovery requests too.
const ALLOWED_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, mcp-protocol-version");

/// Response headers that scripts may read: the challenge, the time to wait, and what is left of the
/// limits ([`crate::budget::FIELDS`]).
pub const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy");

/// Answers `OPTIONS` of a discovery document.
pub fn discovery_preflight() -> Response {
    allow_any_origin(preflight_response(HeaderValue::from_static("GET")))
}

/// Answers `OPTIONS` of an endpoint that programs call by POST.
pub fn endpoint_preflight(app: &App, headers: &HeaderMap) -> Response {
    allow_listed_origin(
        app,
        headers,
        preflight_response(HeaderValue::from_static("POST")),
    )
}

fn preflight_response(methods: HeaderValue) -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
        (
            header::ACCESS_CONTROL_MAX_AGE,
            HeaderValue::from_static("3600"),
        ),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Allows pages of every origin to read the response.
pub fn allow_any_origin(mut response: Response) -> Response {
    response.headers_mut().insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    response
}

/// Allows pages of allowed origins to read the response.
pub fn allow_listed_origin(
    app: &App,
    request_headers: &HeaderMap,
    mut response: Response,
) -> Response {
    let headers = response.headers_mut();
    // Without `Vary`, a cache could give the answer for one origin to another.
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let origin = request_headers.get(header::ORIGIN).filter(|origin| {
        // Compared as a whole: comparing a suffix would admit look-alike origins.
        let mut allowed = app.config.allowed_origins.iter();
        allowed.any(|allowed| allowed.as_bytes() == origin.as_bytes())
    });
    if let Some(origin) = origin {
        // The header can name one origin only, so the caller's own is returned instead of the list.
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    }
    response
}
