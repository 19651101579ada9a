//! Checks of requests from web pages at `/mcp`: preflight, `Origin`, `Host`. They are made before
//! the token is read, so that a web page learns nothing about a token.

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::web::cors::EXPOSED_HEADERS;
use crate::web::host::names_our_host;

/// Request headers that web pages may set.
const ALLOWED: &str =
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name";
/// Time for which a browser may cache a preflight, in seconds.
const MAX_AGE: &str = "600";

/// What to do with a request, after the checks that concern web pages.
pub enum BrowserCheck {
    /// The request may continue. Contains the origin if a web page has sent it.
    Passed(Option<HeaderValue>),
    /// The response to a preflight request, which is complete.
    Answered(Response),
    /// The request is refused with 403.
    Refused(Refusal),
}

/// Checks `Host` and `Origin`, and answers preflight requests.
pub fn check_request(app: &App, parts: &Parts) -> BrowserCheck {
    if !names_our_host(&app.config, &parts.headers, &parts.uri) {
        return BrowserCheck::Refused(ErrorCode::HostForbidden.into());
    }
    let mut origin_values = parts.headers.get_all(header::ORIGIN).iter();
    let origin = match (origin_values.next(), origin_values.next()) {
        // Browsers add `Origin` to each POST of a page, so this is not a web page.
        (None, _) => return BrowserCheck::Passed(None),
        (Some(one), None) => one,
        (Some(_), Some(_)) => return BrowserCheck::Refused(ErrorCode::OriginForbidden.into()),
    };
    // The whole text is compared: a comparison of prefixes would accept `https://app.example.evil`
    // for `https://app.example`.
    let allowed = app
        .config
        .allowed_origins
        .iter()
        .any(|allowed| allowed.as_bytes() == origin.as_bytes());
    if !allowed {
        return BrowserCheck::Refused(ErrorCode::OriginForbidden.into());
    }
    let is_preflight = parts.method == Method::OPTIONS
        && parts
            .headers
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !is_preflight {
        return BrowserCheck::Passed(Some(origin.clone()));
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    allow_origin(headers, origin.clone());
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED),
        (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    BrowserCheck::Answered(response)
}

/// Permits the page of this origin to read the answer. Cookies are not permitted: pages send the
/// token in a header.
pub fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
