//! Checks that a request reached the function through the content delivery network in front of the
//! gateway, and reads the client's address that the network passes on.
//!
//! The network adds a secret header to each request. A deployment stores only the digest of that
//! secret with the functions, so whoever may read their configuration cannot imitate the network.
//! While an operator replaces the secret, two digests are accepted.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName};
use subtle::{Choice, ConstantTimeEq as _};
use vault_format::hash::Digest;

/// The header with the secret. If a client sends it, the network replaces it.
static SECRET: HeaderName = HeaderName::from_static("x-vault-origin");
/// The header with the client's address and port. If a client sends it, the network replaces it.
static VIEWER: HeaderName = HeaderName::from_static("cloudfront-viewer-address");
/// Maximum number of accepted digests: one for the secret and one for its predecessor.
const MAX_DIGESTS: usize = 2;

/// The digests of the secrets that the content delivery network sends.
#[derive(Clone, Debug)]
pub struct Edge {
    digests: Vec<Digest>,
}

/// A list of digests that is empty, too long, or contains an invalid digest.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("must be one or two SHA-256 digests in lower-case hex, separated by a comma")]
pub struct BadDigests;

/// A request that did not come through the network, or without the client's address.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the request did not come through the content delivery network")]
pub struct NotFromEdge;

impl Edge {
    /// Parses digests that are separated by commas.
    pub fn parse(text: &str) -> Result<Self, BadDigests> {
        let digests = text.split(',').map(|digest| digest.trim().parse());
        let digests: Vec<Digest> = digests.collect::<Result<_, _>>().map_err(|_| BadDigests)?;
        if digests.len() > MAX_DIGESTS {
            return Err(BadDigests);
        }
        Ok(Self { digests })
    }

    /// Returns the client's address. Removes both headers, so that the secret cannot reach a log or
    /// an answer. Fails if the secret is absent, repeated or wrong, or the address is invalid.
    pub fn take_client(&self, headers: &mut HeaderMap) -> Result<IpAddr, NotFromEdge> {
        let secret = take_single(headers, &SECRET);
        let viewer = take_single(headers, &VIEWER);
        let secret = Digest::of(&secret.ok_or(NotFromEdge)?);
        // Compare with every digest in constant time, so that the time does not tell which one is
        // close.
        let is_known = self.digests.iter().fold(Choice::from(0), |known, digest| {
            known | digest.as_bytes().ct_eq(secret.as_bytes())
        });
        if !bool::from(is_known) {
            return Err(NotFromEdge);
        }
        // Rate limits count clients by this address. Without it they would count the network
        // itself, so one client could use up the limits of all.
        let viewer = viewer.and_then(|text| parse_viewer(&text));
        if viewer.is_none() {
            tracing::error!(
                "a request through the content delivery network lacks CloudFront-Viewer-Address: check its origin request policy"
            );
        }
        viewer.ok_or(NotFromEdge)
    }
}

/// Removes a header and returns its value, if it has exactly one.
fn take_single(headers: &mut HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut values = headers.get_all(name).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes().to_vec()),
        _ => None,
    };
    headers.remove(name);
    value
}

/// Parses an address with a port. The network writes IPv6 addresses without brackets.
fn parse_viewer(text: &[u8]) -> Option<IpAddr> {
    let (address, port) = std::str::from_utf8(text).ok()?.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let bare = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(address).parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn edge(secrets: &[&str]) -> Edge {
        let digests: Vec<_> = secrets
            .iter()
            .map(|secret| Digest::of(secret.as_bytes()).to_string())
            .collect();
        Edge::parse(&digests.join(", ")).unwrap()
    }

    #[test]
    fn either_secret_counts_and_both_headers_go() {
        let edge = edge(&["new-secret", "old-secret"]);
        for secret in ["new-secret", "old-secret"] {
            let mut headers = headers(&[(&SECRET, secret), (&VIEWER, "203.0.113.9:46532")]);
            let client = edge.take_client(&mut headers).unwrap();
            assert_eq!(client.to_string(), "203.0.113.9");
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn a_missing_wrong_or_repeated_secret_is_rejected() {
        let edge = edge(&["secret"]);
        let viewer = (&VIEWER, "203.0.113.9:46532");
        for secrets in [
            &[][..],
            &[""],
            &["secre"],
            &["Secret"],
            &["secret,secret"],
            &["secret", "secret"],
            &["2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"],
        ] {
            let secrets = secrets.iter().map(|secret| (&SECRET, *secret));
            let pairs: Vec<_> = secrets.chain([viewer]).collect();
            let mut headers = headers(&pairs);
            assert_eq!(
                edge.take_client(&mut headers),
                Err(NotFromEdge),
                "{pairs:?}"
            );
            assert!(headers.is_empty(), "{headers:?}");
        }
    }

    #[test]
    fn viewer_addresses_have_a_port() {
        for (text, address) in [
            ("198.51.100.10:46532", Some("198.51.100.10")),
            ("2001:db8::7:46532", Some("2001:db8::7")),
            ("2001:db8:::46532", Some("2001:db8::")),
            (
                "2001:0db8:85a3:0000:0000:8a2e:0370:7334:443",
                Some("2001:db8:85a3::8a2e:370:7334"),
            ),
            ("[2001:db8::7]:46532", Some("2001:db8::7")),
            ("198.51.100.10", None),
            ("198.51.100.10:", None),
            ("198.51.100.10:70000", None),
            ("198.51.100.10:1, 192.0.2.1:1", None),
            ("ann:1", None),
            ("", None),
        ] {
            let mut headers = headers(&[(&SECRET, "secret"), (&VIEWER, text)]);
            let client = edge(&["secret"]).take_client(&mut headers).ok();
            let wanted = address.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(client, wanted, "{text}");
        }
        let mut none = headers(&[(&SECRET, "secret")]);
        assert_eq!(edge(&["secret"]).take_client(&mut none), Err(NotFromEdge));
    }

    #[test]
    fn one_or_two_digests_are_needed() {
        let digest = Digest::of(b"secret").to_string();
        for text in ["", ",", "secret", &digest[1..], &format!("{digest},")] {
            assert_eq!(Edge::parse(text).err(), Some(BadDigests), "{text}");
        }
        let three = [digest.as_str(); 3].join(",");
        assert_eq!(Edge::parse(&three).err(), Some(BadDigests));
        assert!(Edge::parse(&[digest.as_str(); 2].join(",")).is_ok());
    }
}
