//! Checks for requests of browsers: preflight, `Origin`, `Host`. They are made before the token is
//! read, so that a web page learns nothing about a token.

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::config::PublicUrl;
use crate::error::{ErrorCode, Refusal};

/// Request headers that pages may set.
const ALLOWED: &str =
    "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name";
/// Time for which a browser may cache a preflight, in seconds.
const MAX_AGE: &str = "600";

/// Result of the checks before authentication.
pub enum BrowserCheck {
    /// The request continues; with the page's origin if there is one.
    Passed(Option<HeaderValue>),
    /// A preflight request, with its answer.
    Answered(Response),
    /// The request is refused with 403.
    Refused(Refusal),
}

/// Checks `Host` and `Origin`.
pub fn check_request(app: &App, parts: &Parts) -> BrowserCheck {
    if !host_is_ours(&app.config.public_url, parts) {
        return BrowserCheck::Refused(ErrorCode::HostForbidden.into());
    }
    let mut origin_values = parts.headers.get_all(header::ORIGIN).iter();
    let origin = match (origin_values.next(), origin_values.next()) {
        // Browsers add `Origin` to each POST of a page, so this is another kind of client.
        (None, _) => return BrowserCheck::Passed(None),
        (Some(one), None) => one,
        (Some(_), Some(_)) => return BrowserCheck::Refused(ErrorCode::OriginForbidden.into()),
    };
    // Byte for byte: a comparison of beginnings would let `https://app.example.evil` pass for
    // `https://app.example`.
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

/// Lets the page of this origin read the answer. Credentials are not allowed: tokens are in a
/// header that pages set themselves.
pub fn allow_origin(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("WWW-Authenticate"),
    );
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

/// Whether the request was sent to the host of the public URL. Any other name for this address may
/// be an attacker's (DNS rebinding).
fn host_is_ours(public: &PublicUrl, parts: &Parts) -> bool {
    let mut host_values = parts.headers.get_all(header::HOST).iter();
    let host = match (host_values.next(), host_values.next()) {
        (Some(one), None) => one.to_str().ok(),
        (None, _) => parts
            .uri
            .authority()
            .map(axum::http::uri::Authority::as_str),
        (Some(_), Some(_)) => None,
    };
    let default_port = if public.as_str().starts_with("https:") {
        ":443"
    } else {
        ":80"
    };
    host.is_some_and(|host| {
        let ours = public.authority();
        host.eq_ignore_ascii_case(ours)
            || host
                .strip_suffix(default_port)
                .is_some_and(|host| host.eq_ignore_ascii_case(ours))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[test]
    fn the_host_is_the_public_one() {
        for (public, host, good) in [
            ("https://vault.example", "vault.example", true),
            ("https://vault.example", "Vault.Example", true),
            ("https://vault.example", "vault.example:443", true),
            ("https://vault.example", "vault.example:80", false),
            ("https://vault.example", "vault.example.", false),
            ("https://vault.example", "evil.example", false),
            ("https://vault.example", "vault.example.evil.example", false),
            ("https://vault.example", "", false),
            ("https://vault.example:8443/x", "vault.example:8443", true),
            ("https://vault.example:8443/x", "vault.example", false),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://127.0.0.1:8080", "localhost:8080", false),
            ("http://localhost", "localhost:80", true),
        ] {
            let public: PublicUrl = public.parse().unwrap();
            let (parts, ()) = Request::post("/mcp")
                .header("host", host)
                .body(())
                .unwrap()
                .into_parts();
            assert_eq!(host_is_ours(&public, &parts), good, "{public} {host:?}");
        }
    }

    #[test]
    fn a_missing_or_doubled_host_is_nobodys() {
        let public: PublicUrl = "https://vault.example".parse().unwrap();
        let parts = |uri: &str, hosts: &[&str]| {
            let mut builder = Request::post(uri);
            for host in hosts {
                builder = builder.header("host", *host);
            }
            builder.body(()).unwrap().into_parts().0
        };
        assert!(!host_is_ours(&public, &parts("/mcp", &[])));
        assert!(!host_is_ours(
            &public,
            &parts("/mcp", &["vault.example"; 2])
        ));
        assert!(host_is_ours(
            &public,
            &parts("https://vault.example/mcp", &[])
        ));
    }
}
