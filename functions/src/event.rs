//! Parses the events that invoke a function: HTTP requests from the gateway (payload format 2.0),
//! the event of a schedule, and the event with which an operator invokes the function directly.
//!
//! The request is built here and not by `lambda_http`: its conversion cuts a decoded path at `?`,
//! and a malformed body, query or host ends the process. `rawPath` is used unchanged, because it is
//! the path that a device signed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use vault_service::http::{Peer, RawPath};

use crate::edge::{Edge, NotFromEdge};

/// An event that invokes a function.
pub enum Event<'e> {
    /// An HTTP request.
    Http(Box<HttpEvent<'e>>),
    /// The event of the schedule that starts background work.
    Schedule,
    /// An operator's request to reset the account with this address. The operator is authorized by
    /// the permission to invoke the function.
    ResetAccount(Cow<'e, str>),
    /// An event of a kind that no function handles, which fails the invocation.
    Other,
}

/// The members by which the kinds of events are told apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline<'e> {
    #[serde(borrow)]
    source: Option<Cow<'e, str>>,
    #[serde(borrow)]
    raw_path: Option<Cow<'e, str>>,
    #[serde(borrow, rename = "reset_account")]
    reset_account: Option<Cow<'e, str>>,
}

/// An HTTP request of a client, as the gateway describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpEvent<'e> {
    #[serde(borrow)]
    raw_path: Cow<'e, str>,
    // An emulator of the gateway may send null for an absent member.
    #[serde(borrow, default)]
    raw_query_string: Option<Cow<'e, str>>,
    #[serde(default)]
    cookies: Option<Vec<String>>,
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
    #[serde(borrow, default)]
    body: Option<Cow<'e, str>>,
    #[serde(default)]
    is_base64_encoded: Option<bool>,
    request_context: Context,
}

#[derive(Debug, Deserialize)]
struct Context {
    http: HttpContext,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HttpContext {
    method: String,
    #[serde(default)]
    source_ip: Option<String>,
}

/// The error of an event that has the shape of a request but is not a valid one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the event is not a request")]
pub struct BadRequest;

/// The reason why a request does not reach the router.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Rejected {
    /// A header, the path, the query or the body is invalid.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The request did not come through the content delivery network.
    #[error(transparent)]
    Edge(#[from] NotFromEdge),
}

impl<'e> Event<'e> {
    /// Parses an event. Fails if it has the shape of a request and is not a valid one.
    pub fn parse(text: &'e str) -> Result<Self, BadRequest> {
        let outline: Outline<'_> = match serde_json::from_str(text) {
            Ok(outline) => outline,
            Err(_) => return Ok(Self::Other),
        };
        // Look at `rawPath` first. The gateway sets it on every request, so no client can pass its
        // request off as a schedule or as the reset of an account.
        if outline.raw_path.is_some() {
            let event = serde_json::from_str(text).map_err(|_| BadRequest)?;
            return Ok(Self::Http(Box::new(event)));
        }
        if let Some(email) = outline.reset_account {
            return Ok(Self::ResetAccount(email));
        }
        // The `source` of an EventBridge rule and of the EventBridge scheduler.
        match outline.source.as_deref() {
            Some("aws.events" | "aws.scheduler") => Ok(Self::Schedule),
            _ => Ok(Self::Other),
        }
    }
}

impl HttpEvent<'_> {
    /// Converts the event to the client's request. Fails if one of its parts is invalid, or if it
    /// did not come through `edge`.
    pub fn into_request(self, edge: Option<&Edge>) -> Result<Request<Body>, Rejected> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.iter().flatten() {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| BadRequest)?,
                HeaderValue::from_bytes(value.as_bytes()).map_err(|_| BadRequest)?,
            );
        }
        let client = match edge {
            // Check the way of the request before any other part of it is read.
            Some(edge) => Some(edge.take_client(&mut headers)?),
            // Only the gateway knows the client's address. Headers that state one may come from the
            // client.
            None => self
                .request_context
                .http
                .source_ip
                .and_then(|text| text.parse::<IpAddr>().ok()),
        };
        let mut request = Request::new(decode_body(
            self.body,
            self.is_base64_encoded == Some(true),
        )?);
        *request.method_mut() = Method::from_bytes(self.request_context.http.method.as_bytes())
            .map_err(|_| BadRequest)?;
        *request.uri_mut() = build_uri(
            &self.raw_path,
            self.raw_query_string.as_deref().unwrap_or_default(),
        )?;
        // Payload format 2.0 moves the cookies from the headers to a list of their own.
        if let Some(cookies) = self.cookies.filter(|cookies| !cookies.is_empty()) {
            let joined = HeaderValue::from_bytes(cookies.join("; ").as_bytes());
            headers.insert(header::COOKIE, joined.map_err(|_| BadRequest)?);
        }
        *request.headers_mut() = headers;
        let extensions = request.extensions_mut();
        extensions.insert(RawPath(self.raw_path.into()));
        if let Some(address) = client {
            extensions.insert(Peer(SocketAddr::new(address, 0)));
        }
        Ok(request)
    }
}

fn decode_body(text: Option<Cow<'_, str>>, is_base64: bool) -> Result<Body, BadRequest> {
    match text {
        None => Ok(Body::empty()),
        Some(text) if is_base64 => STANDARD
            .decode(text.as_bytes())
            .map(Body::from)
            .map_err(|_| BadRequest),
        Some(text) => Ok(Body::from(text.into_owned())),
    }
}

/// Builds the URI for the router. The gateway has decoded the path, so characters that a path
/// cannot contain are encoded again.
fn build_uri(path: &str, query: &str) -> Result<Uri, BadRequest> {
    let mut text = String::with_capacity(path.len() + query.len() + 1);
    // A path in origin form begins with a slash, but `rawPath` may be empty.
    if !path.starts_with('/') {
        text.push('/');
    }
    push_encoded(&mut text, path, b"");
    if !query.is_empty() {
        text.push('?');
        push_encoded(&mut text, query, b"?");
    }
    // Parse the text as a path with query. As a whole URI, the text after two leading slashes would
    // be the host.
    let parts = axum::http::uri::PathAndQuery::try_from(text).map_err(|_| BadRequest)?;
    Ok(Uri::from(parts))
}

fn push_encoded(out: &mut String, text: &str, more: &[u8]) {
    for byte in text.bytes() {
        // `%` is not encoded: some gateways leave the path encoded, and encoding it twice would
        // change it.
        if byte.is_ascii_alphanumeric()
            || b"-._~!$&'()*+,;=:@/%".contains(&byte)
            || more.contains(&byte)
        {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for half in [byte >> 4, byte & 15] {
                out.push(char::from(b"0123456789ABCDEF"[usize::from(half)]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use serde_json::{Value, json};

    use super::*;

    fn event(change: impl FnOnce(&mut Value)) -> String {
        let mut event = json!({
            "version": "2.0", "rawPath": "/healthz", "rawQueryString": "", "headers": {"host": "vault.example"},
            "requestContext": {"http": {"method": "GET", "sourceIp": "192.0.2.7"}, "stage": "$default"},
            "isBase64Encoded": false,
        });
        change(&mut event);
        event.to_string()
    }

    fn request(change: impl FnOnce(&mut Value)) -> Result<Request<Body>, Rejected> {
        let text = event(change);
        match Event::parse(&text)? {
            Event::Http(event) => event.into_request(None),
            _ => panic!("{text}"),
        }
    }

    /// An absent member may be null, as `cargo lambda watch` sends it.
    #[test]
    fn null_is_what_is_not_there() {
        let request = request(|event| {
            for name in [
                "rawQueryString",
                "cookies",
                "headers",
                "body",
                "isBase64Encoded",
            ] {
                event[name] = Value::Null;
            }
            event["requestContext"]["http"]["sourceIp"] = Value::Null;
        });
        let request = request.unwrap();
        assert_eq!(request.uri(), "/healthz");
        assert!(request.headers().is_empty());
        assert!(request.extensions().get::<Peer>().is_none());
    }

    #[test]
    fn the_raw_path_stays_and_the_router_gets_an_address() {
        for (raw, query, address) in [
            ("/v/acme/catalog.json", "", "/v/acme/catalog.json"),
            ("/v/acme/catalog.json?x", "", "/v/acme/catalog.json%3Fx"),
            ("/v/a b/é", "", "/v/a%20b/%C3%A9"),
            ("/v/%61cme", "", "/v/%61cme"),
            ("//v/acme", "", "//v/acme"),
            ("/a#b", "", "/a%23b"),
            ("", "", "/"),
            (
                "/oauth/authorize",
                "a=%20b&c=d?e",
                "/oauth/authorize?a=%20b&c=d?e",
            ),
            ("/x", "q=\u{0}\u{7f}é\"<>", "/x?q=%00%7F%C3%A9%22%3C%3E"),
        ] {
            let request = request(|event| {
                event["rawPath"] = raw.into();
                event["rawQueryString"] = query.into();
            });
            let request = request.unwrap();
            assert_eq!(request.uri().to_string(), address, "{raw}");
            assert_eq!(request.uri().host(), None);
            assert_eq!(&*request.extensions().get::<RawPath>().unwrap().0, raw);
        }
    }

    #[tokio::test]
    async fn cookies_headers_source_and_body_arrive() {
        let got = request(|event| {
            event["cookies"] = json!(["a=1", "b=2"]);
            event["headers"]["x-forwarded-for"] = "203.0.113.9".into();
            event["headers"]["cloudfront-viewer-address"] = "203.0.113.9:1".into();
            event["headers"]["accept"] = "one,two".into();
            event["body"] = STANDARD.encode([0u8, 255, 10]).into();
            event["isBase64Encoded"] = true.into();
            event["requestContext"]["http"]["method"] = "PUT".into();
        });
        let got = got.unwrap();
        assert_eq!(got.headers()["cookie"], "a=1; b=2");
        assert_eq!(got.headers()["accept"], "one,two");
        assert_eq!(got.method(), "PUT");
        let peer = got.extensions().get::<Peer>().unwrap().0;
        assert_eq!(peer.ip().to_string(), "192.0.2.7", "never from a header");
        let body = to_bytes(got.into_body(), 10).await.unwrap();
        assert_eq!(&body[..], [0, 255, 10]);
    }

    #[test]
    fn what_is_no_request_is_told_and_nothing_panics() {
        for change in [
            (|e| e["isBase64Encoded"] = true.into()) as fn(&mut Value),
            |e| e["requestContext"]["http"]["method"] = "G T".into(),
            |e| e["headers"]["a b"] = "x".into(),
            |e| e["headers"]["a"] = "x\ny".into(),
            |e| e["cookies"] = json!(["a\nb"]),
            |e| e["requestContext"] = json!({}),
            |e| e["headers"] = json!([1]),
        ] {
            let refused = request(|event| {
                event["body"] = "no base64!".into();
                change(event);
            });
            assert_eq!(refused.err(), Some(BadRequest.into()));
        }
        let odd = request(|event| event["requestContext"]["http"]["sourceIp"] = "?".into());
        assert!(odd.unwrap().extensions().get::<Peer>().is_none());
    }

    #[test]
    fn a_schedule_and_a_reset_are_no_requests() {
        let kind = |text: &str| match Event::parse(text) {
            Ok(Event::Schedule) => "schedule",
            Ok(Event::ResetAccount(_)) => "reset",
            Ok(Event::Http(_)) => "http",
            Ok(Event::Other) => "other",
            Err(_) => "bad",
        };
        let rule = json!({"version": "0", "detail-type": "Scheduled Event", "source": "aws.events", "detail": {}});
        assert_eq!(kind(&rule.to_string()), "schedule");
        assert_eq!(kind(r#"{"source":"aws.scheduler"}"#), "schedule");
        // A client's request can contain any text and still is a request.
        let sly = event(|event| {
            event["source"] = "aws.events".into();
            event["reset_account"] = "ada@example.org".into();
        });
        assert_eq!(kind(&sly), "http");
        assert_eq!(kind(r#"{"reset_account":"ada@example.org"}"#), "reset");
        for text in [
            "{}",
            "[]",
            "null",
            "1",
            "\"aws.events\"",
            r#"{"source":"aws.s3"}"#,
        ] {
            assert_eq!(kind(text), "other", "{text}");
        }
    }
}
