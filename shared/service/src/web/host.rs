//! Check of the host that a request names. A page of an attacker can reach a service on this
//! machine or in a private network by a name of its own that leads there (DNS rebinding), but it
//! cannot name the service's host.

use axum::http::header::{self, HeaderMap};
use axum::http::uri::{Authority, Uri};

use crate::config::{Config, PublicUrl};

/// Names of this machine, as browsers write them.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Whether a request names a host of this service: that of the public URL, another name of this
/// machine if the public URL is on it, or one that the operator allows. A request that names no
/// host, or two, is for no service.
pub fn names_our_host(config: &Config, headers: &HeaderMap, uri: &Uri) -> bool {
    let mut host_values = headers.get_all(header::HOST).iter();
    let host = match (host_values.next(), host_values.next()) {
        (Some(one), None) => one.to_str().ok(),
        (None, _) => uri.authority().map(Authority::as_str),
        (Some(_), Some(_)) => None,
    };
    host.is_some_and(|host| is_our_host(config, host))
}

fn is_our_host(config: &Config, host: &str) -> bool {
    let public = &config.public_url;
    let default_port = default_port(public);
    // A port that the scheme implies may be written or left out.
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

/// Returns the other names of a service on this machine, with its port.
fn loopback_hosts(public: &PublicUrl) -> impl Iterator<Item = String> {
    let authority = public.authority();
    // The colons of an IPv6 address stand within brackets.
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
}
