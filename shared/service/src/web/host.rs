//! Check of the host that a request names (RFC 9112, section 3.2). A page of an attacker can reach
//! a service on this machine or in a private network by a host name of its own that resolves there
//! (DNS rebinding). But its requests then name that host, and not the host of the service.

use std::net::Ipv6Addr;

use axum::http::Version;
use axum::http::header::{self, HeaderMap};
use axum::http::uri::{Authority, Uri};

use crate::config::{Config, PublicUrl};

/// Names of this machine, as browsers write them.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Error: the `Host` header of a request is missing, repeated or malformed. It is answered with
/// 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HostFault {
    /// The header is missing or repeated; a repeated one could make a proxy and this service see
    /// different hosts.
    #[error("A request must have exactly one Host header.")]
    NotOne,
    /// The value of the header is not a host with an optional port.
    #[error("The Host header must be a name or an address, with an optional port.")]
    NotAHost,
}

/// Checks that a request has one valid `Host` header. HTTP/1.0 requests may lack it.
pub fn check_host_header(version: Version, headers: &HeaderMap) -> Result<(), HostFault> {
    let mut values = headers.get_all(header::HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(()),
        (Some(host), None) => match host.to_str() {
            Ok(host) if is_host(host) => Ok(()),
            _ => Err(HostFault::NotAHost),
        },
        _ => Err(HostFault::NotOne),
    }
}

/// Whether a text is a host with an optional port (RFC 3986, section 3.2.2). An empty host is
/// refused, since http cannot reach it.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
    let is_known = match host.strip_prefix('[') {
        Some(address) => address
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.bytes().all(is_name_byte),
    };
    is_known && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a request names a host of this service: that of the public URL, another name of this
/// machine if the public URL is on it, or one that the operator allows. A request with no host or
/// with two names none.
///
/// A host in the request target takes precedence over the header (RFC 9112, section 3.2.2).
pub fn names_our_host(config: &Config, headers: &HeaderMap, uri: &Uri) -> bool {
    let mut host_values = headers.get_all(header::HOST).iter();
    let host = match (uri.authority(), host_values.next(), host_values.next()) {
        (_, Some(_), Some(_)) | (None, None, _) => None,
        (Some(target), ..) => Some(Authority::as_str(target)),
        (None, Some(one), None) => one.to_str().ok(),
    };
    host.is_some_and(|host| is_our_host(config, host))
}

fn is_our_host(config: &Config, host: &str) -> bool {
    let public = &config.public_url;
    let default_port = default_port(public);
    // The default port of the scheme may be present or not.
    let bare = |host: &str| {
        let host = host.to_ascii_lowercase();
        host.strip_suffix(default_port)
            .map_or_else(|| host.clone(), str::to_owned)
    };
    let host = bare(host);
    let mut ours = std::iter::once(public.authority().to_owned())
        .chain(loopback_hosts(public))
        .chain(config.allowed_hosts.iter().cloned());
    ours.any(|ours| bare(&ours) == host)
}

/// Returns the other host names of a service on this machine, with its port; none if the public URL
/// is elsewhere.
fn loopback_hosts(public: &PublicUrl) -> impl Iterator<Item = String> {
    let authority = public.authority();
    // The colons of an IPv6 address are within brackets.
    let port = authority
        .rsplit_once(':')
        .map(|(_, port)| port)
        .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let names = LOOPBACK_NAMES.into_iter().map(move |name| match port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    });
    names.filter(|_| public.is_loopback())
}

fn default_port(public: &PublicUrl) -> &'static str {
    if public.as_str().starts_with("https:") {
        ":443"
    } else {
        ":80"
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn config(public: &str) -> Config {
        let mut config = Config::new(public.parse().unwrap());
        for host in ["inner.example:8443", "Vault.internal"] {
            config.allow_host(host).unwrap();
        }
        config
    }

    #[test]
    fn the_host_is_the_public_one_or_one_that_is_allowed() {
        for (public, host, good) in [
            ("https://vault.example", "vault.example", true),
            ("https://vault.example", "Vault.Example", true),
            ("https://vault.example", "vault.example:443", true),
            ("https://vault.example", "vault.example:80", false),
            ("https://vault.example", "vault.example.", false),
            ("https://vault.example", "evil.example", false),
            ("https://vault.example", "vault.example.evil.example", false),
            ("https://vault.example", "localhost", false),
            ("https://vault.example", "127.0.0.1", false),
            ("https://vault.example", "", false),
            ("https://vault.example", ":443", false),
            ("https://vault.example", "vault.internal", true),
            ("https://vault.example", "vault.internal:443", true),
            ("https://vault.example", "vault.internal:8443", false),
            ("https://vault.example", "inner.example:8443", true),
            ("https://vault.example", "inner.example", false),
            ("https://vault.example:8443/x", "vault.example:8443", true),
            ("https://vault.example:8443/x", "vault.example", false),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://127.0.0.1:8080", "localhost:8080", true),
            ("http://127.0.0.1:8080", "[::1]:8080", true),
            ("http://127.0.0.1:8080", "localhost", false),
            ("http://127.0.0.1:8080", "localhost:9090", false),
            (
                "http://127.0.0.1:8080",
                "127.0.0.1.evil.example:8080",
                false,
            ),
            ("http://[::1]:8080", "127.0.0.1:8080", true),
            ("http://[::1]", "localhost", true),
            ("http://localhost", "localhost:80", true),
            ("http://localhost", "evil.example", false),
        ] {
            let request = Request::post("/mcp").header("host", host);
            let request = request.body(()).unwrap();
            let found = names_our_host(&config(public), request.headers(), request.uri());
            assert_eq!(found, good, "{public} {host:?}");
        }
    }

    #[test]
    fn a_request_with_no_host_or_with_two_is_not_ours() {
        let names_ours = |uri: &str, hosts: &[&str]| {
            let mut builder = Request::post(uri);
            for host in hosts {
                builder = builder.header("host", *host);
            }
            let request = builder.body(()).unwrap();
            let config = config("https://vault.example");
            names_our_host(&config, request.headers(), request.uri())
        };
        assert!(!names_ours("/mcp", &[]));
        assert!(!names_ours("/mcp", &["vault.example"; 2]));
        assert!(names_ours("https://vault.example/mcp", &[]));
    }

    /// RFC 9112, section 3.2.2: the target names the host, whatever the header says.
    #[test]
    fn the_host_of_the_target_wins() {
        for (uri, host, good) in [
            ("https://vault.example/mcp", "evil.example", true),
            ("https://evil.example/mcp", "vault.example", false),
            ("http://evil@vault.example/mcp", "vault.example", false),
        ] {
            let request = Request::post(uri).header("host", host);
            let request = request.body(()).unwrap();
            let config = config("https://vault.example");
            let found = names_our_host(&config, request.headers(), request.uri());
            assert_eq!(found, good, "{uri} {host}");
        }
    }

    #[test]
    fn a_host_header_is_one_host_with_an_optional_port() {
        let check = |version, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append("host", host.parse().unwrap());
            }
            check_host_header(version, &headers)
        };
        for good in [
            "vault.example",
            "vault.example:8080",
            "vault.example:",
            "127.0.0.1:80",
            "[::1]",
            "[2001:db8::1]:8443",
            "a_b.example",
        ] {
            assert_eq!(check(Version::HTTP_11, &[good]), Ok(()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "vault.example:port",
            "vault.example:123456",
            "http://vault.example",
            "user@vault.example",
            "vault.example/",
            "vault.example evil.example",
            "vault.example, evil.example",
            "a:b:80",
            "::1",
            "[::1",
            "[vault]",
            "[]",
        ] {
            let found = check(Version::HTTP_11, &[bad]);
            assert_eq!(found, Err(HostFault::NotAHost), "{bad}");
        }
        for (version, hosts, fault) in [
            (Version::HTTP_10, &[][..], Ok(())),
            (Version::HTTP_11, &[], Err(HostFault::NotOne)),
            (Version::HTTP_10, &["a", "a"], Err(HostFault::NotOne)),
            (Version::HTTP_11, &["a", "a"], Err(HostFault::NotOne)),
        ] {
            assert_eq!(check(version, hosts), fault, "{hosts:?}");
        }
    }
}
