//! Which browser pages may read the answers of the endpoints for programs.
//!
//! Discovery is open to all: it holds nothing private, and clients look there before they know
//! anything. Registration, tokens and revocation are open to the origins that may call `/mcp`, and
//! to no others. Pages of people, authorize first of all, to none.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};

use crate::app::App;

/// What browsers may be told to send along: the body's type, a bearer, and the header by which MCP
/// clients mark discovery too.
const HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, mcp-protocol-version");

/// `OPTIONS` of a discovery document.
pub fn discovery_preflight() -> Response {
    open(preflight(HeaderValue::from_static("GET")))
}

/// `OPTIONS` of an endpoint for programs.
pub fn endpoint_preflight(app: &App, headers: &HeaderMap) -> Response {
    limited(app, headers, preflight(HeaderValue::from_static("POST")))
}

fn preflight(methods: HeaderValue) -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (
            header::ACCESS_CONTROL_MAX_AGE,
            HeaderValue::from_static("3600"),
        ),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Lets every page read an answer.
pub fn open(mut response: Response) -> Response {
    response.headers_mut().insert(
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    );
    response
}

/// Lets the pages of allowed origins read an answer.
pub fn limited(app: &App, asked: &HeaderMap, mut response: Response) -> Response {
    const NAMES: [HeaderName; 2] = [header::WWW_AUTHENTICATE, header::RETRY_AFTER];
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let origin = asked.get(header::ORIGIN).filter(|origin| {
        let mut allowed = app.config.allowed_origins.iter();
        allowed.any(|allowed| allowed.as_bytes() == origin.as_bytes())
    });
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        if let Ok(names) = HeaderValue::from_str(&NAMES.map(|name| name.to_string()).join(", ")) {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
    }
    response
}
