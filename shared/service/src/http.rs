//! Helpers for handlers around HTTP: unread bodies, media types, JSON answers, the address of the
//! caller.
//!
//! [`crate::bodies`] reads bodies and limits them meanwhile; a handler reads a body at the point
//! where its order of checks needs it.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Extensions, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use vault_store::objects::MAX_OBJECT_BYTES;

use crate::config::Config;
use crate::error::{ErrorCode, Refusal};

/// Maximum size of a JSON body, in bytes, if a route sets no other limit.
pub const MAX_JSON_BYTES: usize = 64 * 1024;
/// Maximum time for a body to arrive; above it 408.
pub const BODY_TIME: Duration = Duration::from_secs(15);
/// Number of bytes of an oversized body that are read and dropped, so that its sender receives the
/// 413 and not a connection reset.
pub(crate) const DRAIN_BYTES: usize = 1024 * 1024;

/// The address of the other end of the connection, a client or a proxy. The code that accepts the
/// connection puts it into the extensions of each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// A refusal whose body the route has already written in its own format. It is put into the
/// answer's extensions only for the log line.
#[derive(Clone, Debug)]
pub struct Logged(pub Refusal);

/// The path exactly as it was sent, for front ends that change the `Uri` (a gateway decodes it, a
/// function runtime encodes it again).
#[derive(Clone, Debug)]
pub struct RawPath(pub Arc<str>);

/// Facts about the caller for the log line; guards and handlers put them into the answer's
/// extensions.
#[derive(Clone, Debug, Default)]
pub struct LogFields {
    /// Slug of the requested namespace; set only after its form was checked.
    pub slug: Option<String>,
    /// Id of the caller's user, or the beginning of a hash of a device's key; never a token or an
    /// address.
    pub caller: Option<String>,
}

/// Returns the path exactly as it was sent: devices sign it, and routes under `/v/` are found by
/// it.
pub fn raw_path<'r>(uri: &'r Uri, extensions: &'r Extensions) -> &'r str {
    extensions
        .get::<RawPath>()
        .map_or_else(|| uri.path(), |raw| &raw.0)
}

/// Reads and drops the rest of a body, up to the largest that any route accepts, so that its sender
/// receives the refusal and not a connection reset. Reads nothing from a client that waits for `100
/// Continue`: it has sent no body yet.
pub(crate) async fn drop_body(headers: &HeaderMap, mut body: Body) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let mut left = MAX_OBJECT_BYTES + DRAIN_BYTES;
    if HttpBody::size_hint(&body).lower() > left as u64 {
        return;
    }
    let dropping = async {
        while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let size = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(size) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    // A slower sender has had enough time to read the answer.
    let _ = timeout(BODY_TIME, dropping).await;
}

/// Parses a JSON object strictly: UTF-8, no duplicate members, no arrays in place of objects. Fails
/// with 400.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    vault_format::json::parse(bytes).map_err(|_| ErrorCode::JsonInvalid.into())
}

/// Checks that `Content-Type` is `wanted`, ignoring parameters; fails with 415, also if the header
/// occurs twice.
pub fn require_media_type(headers: &HeaderMap, wanted: &str) -> Result<(), Refusal> {
    let mut content_types = headers.get_all(header::CONTENT_TYPE).iter();
    let essence = match (content_types.next(), content_types.next()) {
        (Some(one), None) => one.to_str().unwrap_or_default(),
        _ => "",
    };
    let essence = essence.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case(wanted) {
        Ok(())
    } else {
        Err(ErrorCode::MediaType.into())
    }
}

/// Creates an answer with this value as JSON (`application/json`).
pub fn json_answer(status: axum::http::StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (
            status,
            [(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            )],
            bytes,
        )
            .into_response(),
        Err(error) => Refusal::new(ErrorCode::Internal)
            .cause(error)
            .into_response(),
    }
}

/// Creates an answer of JSON lines (`application/jsonl`): one JSON value on each line.
pub fn lines_answer(lines: String) -> Response {
    let lines_type = HeaderValue::from_static("application/jsonl");
    ([(header::CONTENT_TYPE, lines_type)], lines).into_response()
}

/// Returns the address of the caller: the peer, or, if the peer is a trusted proxy, the right-most
/// address in `X-Forwarded-For` that is not a trusted proxy.
///
/// `None` if no peer is known, as in tests that call the router directly.
pub fn client_address(
    config: &Config,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Option<IpAddr> {
    let peer = extensions.get::<Peer>()?.0.ip().to_canonical();
    if config.trusted_proxies.is_empty() || !config.is_trusted_proxy(peer) {
        return Some(peer);
    }
    let mut client = peer;
    let hops = headers
        .get_all("x-forwarded-for")
        .iter()
        .rev()
        .flat_map(|value| value.to_str().unwrap_or("?").rsplit(','));
    for hop in hops {
        // A trusted proxy appends an address. Any other text was sent by the client, so everything
        // to the left of it is untrusted.
        let Some(address) = hop_address(hop.trim()) else {
            break;
        };
        client = address;
        if !config.is_trusted_proxy(address) {
            break;
        }
    }
    Some(client)
}

fn hop_address(hop: &str) -> Option<IpAddr> {
    let address = hop
        .parse::<IpAddr>()
        .or_else(|_| hop.parse::<SocketAddr>().map(|with_port| with_port.ip()))
        .ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(peer: &str, trusted: &[&str], forwarded: &[&str]) -> String {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        config.trusted_proxies = trusted.iter().map(|net| net.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        let mut extensions = Extensions::new();
        extensions.insert(Peer(SocketAddr::new(peer.parse().unwrap(), 1)));
        client_address(&config, &headers, &extensions)
            .unwrap()
            .to_string()
    }

    #[test]
    fn the_right_most_untrusted_address_is_the_client() {
        let proxies = ["10.0.0.0/8"];
        for (peer, trusted, forwarded, client) in [
            (
                "192.0.2.1",
                &proxies[..],
                &["198.51.100.1"][..],
                "192.0.2.1",
            ),
            ("10.0.0.1", &[][..], &["198.51.100.1"][..], "10.0.0.1"),
            ("10.0.0.1", &proxies, &["198.51.100.1"], "198.51.100.1"),
            (
                "10.0.0.1",
                &proxies,
                &["203.0.113.9, 198.51.100.1, 10.0.0.2"],
                "198.51.100.1",
            ),
            (
                "10.0.0.1",
                &proxies,
                &["203.0.113.9", "198.51.100.1"],
                "198.51.100.1",
            ),
            (
                "10.0.0.1",
                &proxies,
                &["spoof, 198.51.100.1:4711"],
                "198.51.100.1",
            ),
            ("10.0.0.1", &proxies, &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &proxies, &["10.0.0.7, 10.0.0.2"], "10.0.0.7"),
            ("10.0.0.1", &proxies, &["[2001:db8::1]:80"], "2001:db8::1"),
            (
                "::ffff:10.0.0.1",
                &proxies,
                &["::ffff:198.51.100.1"],
                "198.51.100.1",
            ),
            ("10.0.0.1", &proxies, &[], "10.0.0.1"),
        ] {
            assert_eq!(
                address(peer, trusted, forwarded),
                client,
                "{peer} {forwarded:?}"
            );
        }
    }

    #[test]
    fn media_types_are_compared_without_parameters_and_case() {
        for (given, good) in [
            (&["application/json"][..], true),
            (&["Application/JSON; charset=utf-8"], true),
            (&["application/json ; x"], true),
            (&["application/jsonx"], false),
            (&["text/plain"], false),
            (&[], false),
            (&["application/json", "application/json"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(header::CONTENT_TYPE, value.parse().unwrap());
            }
            assert_eq!(
                require_media_type(&headers, "application/json").is_ok(),
                good,
                "{given:?}"
            );
        }
    }
}
