//! The welcome page for people who open an address of the service in a browser. It says what the
//! service is and which command connects to it; it is the same for every address and names no
//! vault. Also here: the 404 for paths without a route, and the check whether a request wants a
//! page or JSON.

use askama::Template;
use axum::extract::Request;
use axum::http::header::{self, HeaderMap};
use axum::http::{Method, StatusCode};
use axum::response::Response;

use super::layout::{self, Frame};
use crate::app::App;
use crate::config::PublicUrl;
use crate::error::{ErrorCode, Refusal};

#[derive(Template)]
#[template(path = "welcome.html")]
struct WelcomePage {
    frame: Frame,
    /// The public URL without a slash at its end.
    base: String,
}

pub fn welcome_page(public: &PublicUrl, status: StatusCode) -> Response {
    let page = WelcomePage {
        frame: Frame::for_service(public),
        base: public.base().to_owned(),
    };
    layout::render_page(status, &page, None)
}

/// Whether a request comes from a browser that opens a page.
pub fn opens_page(method: &Method, headers: &HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && prefers_html(headers)
}

/// Returns the 404 for the root and for paths without a route. A client that posts to the root, or
/// asks for `/mcp/`, probably looks for the MCP endpoint, so the text names its address.
pub fn route_not_found(app: &App, request: &Request) -> Refusal {
    let refusal = Refusal::from(ErrorCode::NotFound);
    let public_url = &app.config.public_url;
    let below = request.uri().path().strip_prefix(public_url.prefix());
    let seeks_mcp = match below {
        Some("" | "/") => request.method() == Method::POST,
        Some("/mcp/") => true,
        _ => false,
    };
    if !seeks_mcp {
        return refusal;
    }
    let base = public_url.base();
    refusal.detail(format!(
        "There is nothing at this path. The MCP endpoint is {base}/mcp, without a slash at the end."
    ))
}

/// Whether the refusal of a browser's request for `path` is shown as the welcome page: only for
/// paths that are meant for programs.
pub fn shows_welcome(status: StatusCode, path: &str) -> bool {
    match status {
        StatusCode::UNAUTHORIZED => path == "/mcp" || path.starts_with("/v/"),
        // `/mcp` takes only POST, so a browser that opens it gets this status.
        StatusCode::METHOD_NOT_ALLOWED => path == "/mcp",
        _ => false,
    }
}

/// Whether `Accept` names HTML and prefers it to JSON. Programs accept JSON or anything.
pub fn prefers_html(headers: &HeaderMap) -> bool {
    let (mut html, mut json) = (0.0, 0.0);
    let values = headers.get_all(header::ACCEPT).iter();
    let ranges = values.filter_map(|value| value.to_str().ok());
    for range in ranges.flat_map(|text| text.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        // An invalid weight counts as 0, so that only a clear preference gets the page.
        let quality: f32 = quality.map_or(1.0, |text| text.parse().unwrap_or(0.0));
        // `*/*` counts for neither side: command-line tools send it, and get JSON.
        match media.as_str() {
            "text/html" => html = quality.max(html),
            "application/json" | "application/problem+json" => json = quality.max(json),
            _ => {}
        }
    }
    html > json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_a_page_and_a_program_gets_json() {
        for (accept, page) in [
            (
                &["text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"][..],
                true,
            ),
            (&["text/html"], true),
            (&["TEXT/HTML; q=0.5"], true),
            (&["application/json;q=0.5", "text/html"], true),
            (&[], false),
            (&["*/*"], false),
            (&["application/json, text/event-stream"], false),
            (&["application/json, text/html"], false),
            (&["text/html;q=0"], false),
            (&["text/html;q=x"], false),
            (&["text/html;q=0.5, application/problem+json"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(prefers_html(&headers), page, "{accept:?}");
        }
    }
}
