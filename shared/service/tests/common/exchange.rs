//! Requests and their answers as they were on the wire: what the reference of the routes is written
//! from and held to.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::OnceLock;

use axum::Router;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use tower::ServiceExt as _;
use vault_testing::memory::touched::Touched;

use super::partitions::check_reach;

/// Host that requests name unless a test names another one.
pub const HOST: &str = "vault.example";

/// One request and its answer.
#[derive(Clone)]
pub struct Exchange {
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub request_headers: HeaderMap,
    pub request_body: Bytes,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What every answer is held to, where a test program has set it.
pub static CHECK: OnceLock<fn(&Exchange)> = OnceLock::new();

thread_local! {
    static LAST: RefCell<Option<Exchange>> = const { RefCell::new(None) };
}

/// The last exchange of this test.
pub fn last() -> Exchange {
    LAST.with_borrow(Clone::clone).unwrap()
}

/// Sends one request through a router and reads the answer to its end.
pub async fn send(router: Router, request: Request<Body>) -> Exchange {
    let (mut parts, body) = request.into_parts();
    // As every client does. Tests about the host itself name one, or an empty one for none.
    if !parts.headers.contains_key(header::HOST) {
        parts
            .headers
            .insert(header::HOST, HeaderValue::from_static(HOST));
    }
    // A body of unknown length is about how it arrives, and stays as it is.
    let (request_body, body) = if body.size_hint().exact().is_some() {
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        (bytes.clone(), Body::from(bytes))
    } else {
        (Bytes::new(), body)
    };
    let (method, target) = (parts.method.clone(), parts.uri.to_string());
    let request_headers = parts.headers.clone();
    let request = Request::from_parts(parts, body);
    let path = request.uri().path().to_owned();
    let (answer, touched) = Touched::observe(router.oneshot(request)).await;
    check_reach(&method, &path, &touched);
    let (answer, body) = answer.unwrap().into_parts();
    let exchange = Exchange {
        method,
        target,
        request_headers,
        request_body,
        status: answer.status,
        headers: answer.headers,
        body: to_bytes(body, usize::MAX).await.unwrap(),
    };
    if let Some(check) = CHECK.get() {
        check(&exchange);
    }
    LAST.set(Some(exchange.clone()));
    exchange
}

impl Exchange {
    /// Request and answer, without what differs from one service to the next.
    pub fn text(&self) -> String {
        let mut text = format!("{} {}\n", self.method, wrap(&shorten(&self.target)));
        for (name, shown) in [
            ("authorization", "Bearer vat_…"),
            ("x-vault-device", "…"),
            ("x-vault-timestamp", "…"),
            ("x-vault-signature", "…"),
            ("cookie", "…"),
            ("if-match", "\"…\""),
            ("content-type", ""),
        ] {
            if let Some(value) = self.request_headers.get(name) {
                let value = if shown.is_empty() {
                    value.to_str().unwrap()
                } else {
                    shown
                };
                let _ = writeln!(text, "{name}: {value}");
            }
        }
        add_body(&mut text, &self.request_body);
        let _ = writeln!(text, "\n{}", self.status);
        for name in ["content-type", "location", "etag"] {
            if let Some(value) = self.headers.get(name) {
                let _ = writeln!(text, "{name}: {}", wrap(&shorten(value.to_str().unwrap())));
            }
        }
        if self
            .headers
            .get("content-type")
            .is_none_or(|media| !media.as_bytes().starts_with(b"text/html"))
        {
            add_body(&mut text, &self.body);
        }
        text
    }
}

fn add_body(text: &mut String, body: &[u8]) {
    const MOST: usize = 900;
    if body.is_empty() {
        return;
    }
    let body = shorten(&omit_fields(&String::from_utf8_lossy(body)));
    let short: String = body.chars().take(MOST).collect();
    let end = if body.chars().count() > MOST {
        "…"
    } else {
        ""
    };
    let _ = writeln!(text, "\n{}{end}", wrap(short.trim_end()));
}

/// Omits the values of form fields that an authenticator makes: its signatures are random.
fn omit_fields(body: &str) -> String {
    let omitted = body.split('&').map(|field| match field.split_once('=') {
        Some((name @ ("credential" | "passkey"), _)) => format!("{name}=…"),
        _ => field.to_owned(),
    });
    omitted.collect::<Vec<_>>().join("&")
}

/// Cuts what is random, long or measured: runs of more than 44 letters and digits, and the time
/// that the database took.
fn shorten(text: &str) -> String {
    let latency = "\"latency_ms\":";
    if let Some((before, after)) = text.split_once(latency) {
        let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
        return format!("{before}{latency}0{after}");
    }
    let mut shortened = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-+/=.".contains(c);
    for run in text.split_inclusive(|c: char| !is_word(c)) {
        let word = run.trim_end_matches(|c: char| !is_word(c));
        if word.len() > 44 && !word.contains("://") {
            shortened.push_str(&word[..12]);
            shortened.push('…');
            shortened.push_str(&run[word.len()..]);
        } else {
            shortened.push_str(run);
        }
    }
    shortened
}

/// Breaks long lines between members and between parameters.
fn wrap(text: &str) -> String {
    const WIDTH: usize = 130;
    let mut wrapped = String::new();
    let mut width = 0;
    for part in text.split_inclusive([',', '&']) {
        let length = part.chars().count();
        if width > 0 && width + length > WIDTH {
            wrapped.push_str("\n  ");
            width = 2;
        }
        wrapped.push_str(part);
        width += length;
    }
    wrapped
}
