//! The pages that people see: plain HTML without script, written from templates that escape
//! everything.
//!
//! A page cannot be framed, loads nothing, and may send its forms to this service and on to one
//! client alone.

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

/// The style sheet of all pages. The page that ends a sign-in on a user's machine has it too.
pub const STYLE: &str = include_str!("../../templates/style.css");

/// The one style sheet, by its hash: an injected one would not be applied.
static STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| style_source(STYLE));

/// A style sheet by its hash, as a content policy names it.
fn style_source(style: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(style)))
}

/// The style sheet of the pages of the console: that of all pages, and what only these have.
pub const CONSOLE_STYLE: &str = concat!(
    include_str!("../../templates/style.css"),
    include_str!("../../templates/console/style.css")
);

static CONSOLE_STYLE_SOURCE: LazyLock<String> = LazyLock::new(|| style_source(CONSOLE_STYLE));

/// What is around every page.
pub struct Frame {
    /// The host that the person should see in the address bar.
    pub place: String,
    /// The path prefix of the public URL.
    pub prefix: String,
}

impl Frame {
    /// The frame of a service.
    pub fn of(public: &PublicUrl) -> Self {
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

/// What a role is called on a page.
pub const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Owner => "owner",
        Role::Publisher => "publisher",
        Role::Member => "member",
    }
}

/// What a person is who has a role.
pub const fn role(role: Role) -> &'static str {
    match role {
        Role::Owner => "an owner",
        Role::Publisher => "a publisher",
        Role::Member => "a member",
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The day of a time (UTC), as pages write it: `1 Dec 2026`.
pub fn day(at: Timestamp) -> String {
    let text = at.to_string();
    let mut parts = text.split(['-', 'T']);
    let year = parts.next().unwrap_or_default();
    let month = parts.next().and_then(|month| month.parse::<usize>().ok());
    let month = month.and_then(|month| MONTHS.get(month.wrapping_sub(1)));
    let day = parts.next().unwrap_or_default().trim_start_matches('0');
    format!("{day} {} {year}", month.unwrap_or(&""))
}

/// A time to the minute, as pages write it: `1 Dec 2026, 09:05 UTC`.
pub fn minute(at: Timestamp) -> String {
    let text = at.to_string();
    let clock = text.split('T').nth(1).and_then(|clock| clock.get(..5));
    format!("{}, {} UTC", day(at), clock.unwrap_or_default())
}

/// A form token and where to go afterwards, for a button that signs out.
pub struct SignOut {
    /// The form token.
    pub csrf: String,
    /// An authorize request.
    pub return_to: String,
}

/// A heading and some paragraphs.
#[derive(Template)]
#[template(path = "message.html")]
pub struct MessagePage {
    /// What is around it.
    pub frame: Frame,
    /// The heading.
    pub title: &'static str,
    /// One paragraph each.
    pub lines: Vec<String>,
    /// A button to sign out with, where that helps.
    pub sign_out: Option<SignOut>,
}

/// A page as an answer. `onward` is where a form on it may lead in the end besides this service:
/// the client's address.
pub fn answer(status: StatusCode, page: &impl Template, onward: Option<&RedirectUri>) -> Response {
    styled(status, page, onward, &STYLE_SOURCE)
}

/// A page of the console as an answer.
pub fn console_answer(status: StatusCode, page: &impl Template) -> Response {
    styled(status, page, None, &CONSOLE_STYLE_SOURCE)
}

fn styled(
    status: StatusCode,
    page: &impl Template,
    onward: Option<&RedirectUri>,
    style: &str,
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
    // Browsers hold `form-action` against every redirect that a form starts, so the client's
    // address has to be in it.
    let policy = format!(
        "default-src 'none'; style-src {style}; form-action 'self'{onward}; frame-ancestors 'none'; base-uri 'none'"
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    let mut set = |name, value| headers.insert(name, value);
    set(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    set(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    set(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
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
            assert_eq!((day(at).as_str(), minute(at).as_str()), (on, until));
        }
    }
}
