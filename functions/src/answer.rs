//! Converts the service's HTTP responses to the answers that a Lambda function returns to an HTTP
//! API gateway (payload format 2.0).
//!
//! A stored object is sent in base64, whatever its content type: as JSON text its bytes would be
//! escaped, and a quote or a control character would then take two to six bytes.

use std::collections::BTreeMap;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use vault_service::error::{ErrorCode, Refusal};
use vault_service::mcp::{MAX_ANSWER_BYTES, answer_bytes, escaped_bytes};

/// Maximum size of a function's answer, in bytes of JSON.
pub const MAX_EVENT_BYTES: usize = 6_000_000;
/// Longest body, in bytes, that is sent as text without comparing sizes. For a longer body, the
/// shorter of text and base64 is sent.
const MAX_TEXT_BYTES: usize = 512 * 1024;

/// The answer to an HTTP event, in the JSON that the gateway expects.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    status_code: u16,
    headers: BTreeMap<String, String>,
    /// Serialised even if it is empty: `cargo lambda watch` rejects an answer without it.
    cookies: Vec<String>,
    body: String,
    is_base64_encoded: bool,
}

impl Answer {
    /// Converts the response to a request with this method. Answers 500 if the response is larger
    /// than a function may send.
    pub async fn from_response(method: &Method, response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let body = if method == Method::HEAD {
            // A server drops the body of a HEAD response when it writes it. A function has to do
            // that itself.
            Bytes::new()
        } else {
            // Lambda treats a larger answer as a failed invocation, so replace it by an error in
            // the service's own format, and log it. The limit of `to_bytes` counts raw bytes;
            // escapes and base64 can still push the answer over it.
            match to_bytes(body, MAX_ANSWER_BYTES).await {
                Ok(body) if in_event(&parts.headers, &body) <= MAX_ANSWER_BYTES => body,
                Ok(body) => {
                    let bytes = body.len();
                    tracing::error!(bytes, "the answer is larger than a function may send");
                    return Self::from_refusal(&ErrorCode::Internal.into(), "");
                }
                Err(error) => {
                    tracing::error!(%error, "the answer is larger than a function may send");
                    return Self::from_refusal(&ErrorCode::Internal.into(), "");
                }
            }
        };
        Self::new(parts.status, &parts.headers, &body)
    }

    /// Creates the answer for an error outside the service's router.
    pub fn from_refusal(refusal: &Refusal, request_id: &str) -> Self {
        let mut headers = HeaderMap::new();
        let media = header::HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media);
        let never = header::HeaderValue::from_static("private, no-store");
        headers.insert(header::CACHE_CONTROL, never);
        Self::new(refusal.status(), &headers, &refusal.problem(request_id))
    }

    fn new(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        // The format has one value per header name. Repeated headers are joined, except cookies: a
        // value of `Set-Cookie` may contain a comma.
        let mut cookies = Vec::new();
        let mut joined: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            if name == header::SET_COOKIE {
                cookies.push(value.into_owned());
            } else if let Some(joined_value) = joined.get_mut(name.as_str()) {
                joined_value.push_str(", ");
                joined_value.push_str(&value);
            } else {
                joined.insert(name.as_str().to_owned(), value.into_owned());
            }
        }
        let in_base64 = body.len().div_ceil(3) * 4;
        // A JSON string must be UTF-8, so any other body is sent as base64 too.
        let text = (!is_exact(headers))
            .then(|| std::str::from_utf8(body).ok())
            .flatten()
            .filter(|text| body.len() <= MAX_TEXT_BYTES || escaped_bytes(text) <= in_base64);
        Self {
            status_code: status.as_u16(),
            headers: joined,
            cookies,
            is_base64_encoded: text.is_none(),
            body: text.map_or_else(|| STANDARD.encode(body), str::to_owned),
        }
    }
}

/// Returns the size that a body takes in the answer's JSON, in bytes.
fn in_event(headers: &HeaderMap, body: &[u8]) -> usize {
    if is_exact(headers) {
        body.len().div_ceil(3) * 4
    } else {
        answer_bytes(body)
    }
}

/// Returns whether the body is a stored object's exact bytes. Only such responses have a
/// `Repr-Digest` or an `ETag` header.
fn is_exact(headers: &HeaderMap) -> bool {
    headers.contains_key("repr-digest") || headers.contains_key(header::ETAG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
        let mut builder = Response::builder();
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(body.into()).unwrap()
    }

    /// The worst bytes for JSON text: each is a control character and takes six bytes when escaped.
    #[tokio::test]
    async fn the_worst_object_of_4_mib_fits() {
        const MIB_4: usize = 4 * 1024 * 1024;
        for (byte, escaped) in [(0x01u8, 6), (b'"', 2), (0xff, 0), (b'a', 1)] {
            for media in ["application/json", "application/octet-stream", "text/plain"] {
                let digest = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
                let headers = [("content-type", media), ("repr-digest", digest)];
                let answer =
                    Answer::from_response(&Method::GET, response(&headers, vec![byte; MIB_4]))
                        .await;
                let event = serde_json::to_vec(&answer).unwrap();
                assert!(answer.is_base64_encoded, "{media}");
                assert!(event.len() < 5_700_000 && event.len() < MAX_EVENT_BYTES);
                assert_eq!(STANDARD.decode(&answer.body).unwrap(), vec![byte; MIB_4]);
                if escaped >= 2 {
                    let text = String::from_utf8(vec![byte; MIB_4]).unwrap();
                    let as_text = serde_json::to_vec(&text).unwrap();
                    assert!(as_text.len() > MAX_EVENT_BYTES, "why base64 it is");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_small_object_is_base64_too_and_a_longer_answer_is_a_fault_of_ours() {
        for tag in ["repr-digest", "etag"] {
            let headers = [("content-type", "application/json"), (tag, "x")];
            let answer = Answer::from_response(&Method::GET, response(&headers, "{}")).await;
            assert_eq!(
                (answer.body.as_str(), answer.is_base64_encoded),
                ("e30=", true)
            );
        }
        for (byte, bytes, status, in_base64) in [
            (b'a', 600_000, 200, false),
            (b'"', 500_000, 200, false),
            (b'"', 600_000, 200, true),
            (b'"', 4_400_000, 200, true),
            (b'"', 4_500_000, 500, false),
            (b'a', 5_800_000, 200, false),
            (b'a', 5_900_001, 500, false),
        ] {
            let answer =
                Answer::from_response(&Method::GET, response(&[], vec![byte; bytes])).await;
            assert_eq!(
                (answer.status_code, answer.is_base64_encoded),
                (status, in_base64),
                "{bytes}"
            );
            let event = serde_json::to_vec(&answer).unwrap();
            assert!(event.len() < MAX_EVENT_BYTES, "{bytes}");
        }
    }

    #[tokio::test]
    async fn cookies_stand_apart_headers_are_joined_and_head_has_no_body() {
        let headers = [
            ("set-cookie", "a=1; Path=/"),
            ("set-cookie", "b=2, c"),
            ("vary", "origin"),
            ("vary", "accept"),
            ("content-type", "text/html"),
        ];
        let answer = Answer::from_response(&Method::GET, response(&headers, "<p>")).await;
        assert_eq!(answer.cookies, ["a=1; Path=/", "b=2, c"]);
        assert_eq!(answer.headers["vary"], "origin, accept");
        assert_eq!(
            (answer.body.as_str(), answer.is_base64_encoded),
            ("<p>", false)
        );
        let head = Answer::from_response(&Method::HEAD, response(&headers, "<p>")).await;
        assert_eq!((head.body.as_str(), head.headers), ("", answer.headers));
    }
}
