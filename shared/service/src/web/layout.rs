//! Layout of the HTML pages: templates that escape every value, and no script except the one on the
//! two pages that ask a browser for a passkey.
//!
//! No page can be shown in a frame, and none loads anything. Its forms can be sent only to this
//! service, whose redirects may end at one client.

use std::sync::LazyLock;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use vault_format::time::Timestamp;

use crate::config::PublicUrl;
use crate::model::redirect::RedirectUri;
use crate::model::user::Role;

/// Style sheet of all pages, also of the page that the command line shows after a sign-in in a
/// browser.
pub const STYLE: &str = include_str!("../../templates/style.css");

/// Source expression of the style sheet for the content security policy: its hash. A browser
/// applies no other style.
static STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| hash_source(STYLE));

/// Returns the hash of a style sheet or script as a content security policy names it.
fn hash_source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Style sheet of the console's pages: that of all pages, followed by the console's own rules.
pub const CONSOLE_STYLE: &str = concat!(
    include_str!("../../templates/style.css"),
    include_str!("../../templates/console/style.css")
);

static CONSOLE_STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| hash_source(CONSOLE_STYLE));

/// Script of the two pages that ask a browser for a passkey. Passkeys are available to scripts
/// only.
pub const PASSKEY_SCRIPT: &str = include_str!("../../templates/passkey.js");

static PASSKEY_SCRIPT_SOURCE: LazyLock<String> = LazyLock::new(|| hash_source(PASSKEY_SCRIPT));

/// Data for the header that all pages share.
pub struct Frame {
    /// Host of the public URL, to compare with the browser's address bar.
    pub place: String,
    /// Path prefix of the public URL.
    pub prefix: String,
}

impl Frame {
    /// Creates the header data for the service at this public URL.
    pub fn for_service(public: &PublicUrl) -> Self {
        Self {
            place: public.authority().to_owned(),
            prefix: public.prefix().to_owned(),
        }
    }

    #[expect(clippy::unused_self, reason = "templates call it on the frame")]
    pub(crate) const fn style(&self) -> &'static str {
        STYLE
    }
}

/// Returns the name of a role, as pages show it.
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Owner => "owner",
        Role::Publisher => "publisher",
        Role::Member => "member",
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Formats the day of a time (UTC): `1 Dec 2026`.
pub fn format_day(at: Timestamp) -> String {
    let text = at.to_string();
    let mut parts = text.split(['-', 'T']);
    let year = parts.next().unwrap_or_default();
    let month = parts.next().and_then(|month| month.parse::<usize>().ok());
    let month = month.and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let day = parts.next().unwrap_or_default().trim_start_matches('0');
    format!("{day} {} {year}", month.unwrap_or(&""))
}

/// Formats a time to the minute (UTC): `1 Dec 2026, 09:05 UTC`.
pub fn format_minute(at: Timestamp) -> String {
    let text = at.to_string();
    let clock = text.split('T').nth(1).and_then(|clock| clock.get(..5));
    format!("{}, {} UTC", format_day(at), clock.unwrap_or_default())
}

/// Form token and destination of a button that signs out.
#[derive(Debug)]
pub struct SignOut {
    /// Form token of the button, bound to `return_to`.
    pub csrf: String,
    /// Address to which the browser is redirected afterwards.
    pub return_to: String,
}

/// Page with a heading and some paragraphs, such as an error page.
#[derive(Template)]
#[template(path = "message.html")]
pub struct MessagePage {
    /// Host and path prefix of the service, for the header of the page.
    pub frame: Frame,
    /// Heading of the page, also its title in the browser.
    pub title: &'static str,
    /// Paragraphs of the page, as plain text.
    pub lines: Vec<String>,
    /// Button that signs out, if another account may see more.
    pub sign_out: Option<SignOut>,
}

/// Adds the header `Retry-After`, if there is a time to wait.
pub fn set_retry_after(response: &mut Response, seconds: Option<u64>) {
    if let Some(seconds) = seconds {
        let value = HeaderValue::from(seconds);
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
}

/// Renders a page as a response. `onward` is the redirect URI of the client at which the redirects
/// after a form of the page may end.
pub fn render_page(
    status: StatusCode,
    page: &impl Template,
    onward: Option<&RedirectUri>,
) -> Response {
    render_with_sources(
        status,
        page,
        onward,
        &format!("style-src {}", *STYLE_SOURCE),
    )
}

/// Renders a page whose content security policy allows the passkey script and no other.
pub fn render_passkey_page(
    status: StatusCode,
    page: &impl Template,
    onward: Option<&RedirectUri>,
) -> Response {
    let sources = format!(
        "style-src {}; script-src {}",
        *STYLE_SOURCE, *PASSKEY_SCRIPT_SOURCE
    );
    render_with_sources(status, page, onward, &sources)
}

/// Renders a page of the console, with its own style sheet.
pub fn render_console_page(status: StatusCode, page: &impl Template) -> Response {
    let sources = format!("style-src {}", *CONSOLE_STYLE_SOURCE);
    render_with_sources(status, page, None, &sources)
}

/// Renders a page whose content security policy contains the directives `sources`.
fn render_with_sources(
    status: StatusCode,
    page: &impl Template,
    onward: Option<&RedirectUri>,
    sources: &str,
) -> Response {
    let Ok(html) = page.render() else {
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            "This page cannot be shown.",
        )
            .into_response();
    };
    let onward = onward
        .map(|uri| format!(" {}", uri.policy_source()))
        .unwrap_or_default();
    // Browsers apply `form-action` to every redirect that a form starts, so the client's address
    // has to be listed.
    let policy = format!(
        "default-src 'none'; {sources}; form-action 'self'{onward}; frame-ancestors 'none'; base-uri 'none'"
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, value);
    set(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    // Pages contain form tokens and personal data, which no cache may keep.
    set(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The same as `frame-ancestors`, for browsers that do not know that directive.
    set(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // Addresses of pages may contain secrets, such as the token of an invitation link.
    set(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        set(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_minutes_are_written_for_people() {
        for (at, on, until) in [
            (
                "2026-12-01T09:05:59Z",
                "1 Dec 2026",
                "1 Dec 2026, 09:05 UTC",
            ),
            (
                "2027-01-30T23:59:00Z",
                "30 Jan 2027",
                "30 Jan 2027, 23:59 UTC",
            ),
        ] {
            let at = at.parse().unwrap();
            assert_eq!(
                (format_day(at).as_str(), format_minute(at).as_str()),
                (on, until)
            );
        }
    }
}
