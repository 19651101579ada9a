//! The proxy of a company, through which the command line reaches sites, archives and registries.

use std::net::IpAddr;

use ipnet::IpNet;
use url::{Host, Url};

use crate::error::{FetchError, Result};
use crate::source::is_loopback;

/// A proxy, and the hosts that are reached without it.
#[derive(Clone)]
pub struct Proxy {
    /// The address, which may contain a password, or the fault of the setting.
    address: std::result::Result<Url, String>,
    direct: Vec<String>,
    direct_ranges: Vec<IpNet>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("place", &self.place())
            .field("direct", &self.direct)
            .field("direct_ranges", &self.direct_ranges)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Reads the value of a variable such as `HTTPS_PROXY`, and that of `NO_PROXY`, as other tools
    /// do: an address, whose scheme may be left out, and hosts separated by commas or spaces, which
    /// may be ranges of addresses (`10.0.0.0/8`). A fault of the address is reported when a host is
    /// to be reached through the proxy, because folders and repositories do not need it.
    pub fn new(variable: &str, address: &str, direct: &str) -> Self {
        let is_separator = |c: char| c == ',' || c.is_whitespace();
        let direct = direct.split(is_separator).map(|host| {
            let host = host.trim_start_matches("*.").trim_start_matches('.');
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            // An IPv6 address, or a range of them, with the brackets of URLs.
            let inside = host.strip_prefix('[').and_then(|host| host.split_once(']'));
            match inside {
                Some((address, rest)) if rest.is_empty() || rest.starts_with('/') => {
                    format!("{address}{rest}")
                }
                _ => host,
            }
        });
        let direct: Vec<String> = direct.filter(|host| !host.is_empty()).collect();
        Self {
            address: parse_address(address).map_err(|fault| format!("{variable} {fault}")),
            direct_ranges: direct.iter().filter_map(|host| host.parse().ok()).collect(),
            direct,
        }
    }

    /// The address of the proxy. Fails if the setting is not one.
    pub(crate) fn address(&self) -> Result<&Url> {
        self.address
            .as_ref()
            .map_err(|message| FetchError::Setting {
                message: message.clone(),
                hint: "set it to an address such as http://proxy.example:3128",
            })
    }

    /// The host and port of the proxy for messages, without its password.
    pub(crate) fn place(&self) -> String {
        let Ok(address) = &self.address else {
            return String::new();
        };
        let host = address.host_str().unwrap_or_default();
        let port = address.port_or_known_default().unwrap_or_default();
        format!("{host}:{port}")
    }

    /// Returns whether a URL is reached through the proxy.
    pub(crate) fn serves(&self, url: &Url) -> bool {
        let (host, ip) = match url.host() {
            // The proxy would understand its own machine by an address of this one.
            Some(Host::Domain(name)) if is_this_machine(name) => return false,
            Some(_) if is_loopback(url) => return false,
            Some(Host::Domain(name)) => (name.to_owned(), None),
            Some(Host::Ipv4(ip)) => (ip.to_string(), Some(IpAddr::from(ip))),
            Some(Host::Ipv6(ip)) => (ip.to_string(), Some(IpAddr::from(ip))),
            None => return false,
        };
        // A name is not looked up for this: the proxy may know other addresses of it.
        let mut ranges = self.direct_ranges.iter();
        if ip.is_some_and(|ip| ranges.any(|range| range.contains(&ip))) {
            return false;
        }
        let host = host.trim_end_matches('.');
        let port = url.port_or_known_default().unwrap_or_default();
        let with_port = format!("{host}:{port}");
        !self.direct.iter().any(|entry| {
            let is_below = |name: &str| {
                let above = name.strip_suffix(entry.as_str());
                // An IP address has no parent domain, so `2.9` must not match 192.0.2.9.
                above.is_some_and(|above| above.is_empty() || ip.is_none() && above.ends_with('.'))
            };
            entry == "*" || is_below(host) || is_below(&with_port)
        })
    }
}

/// Returns whether a name stands for the machine that resolves it (RFC 6761).
fn is_this_machine(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Parses the address of a proxy. The fault does not quote it, because it may contain a password.
fn parse_address(text: &str) -> std::result::Result<Url, &'static str> {
    let address = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url: Url = address
        .parse()
        .map_err(|_| "is not the address of a proxy")?;
    // A character of a password that means something in an address would make a part of it the host.
    let is_bare =
        matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    match url.scheme() {
        "http" | "https" if is_bare => Ok(url),
        "http" | "https" => {
            Err("is not the address of a proxy: write /, ? and # in a password as %2F, %3F and %23")
        }
        _ => Err("names a proxy that is not at an http or https address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_names_hosts_and_what_is_below_them() {
        let list = " corp.example,.dot.example, *.star.example port.example:8443,192.0.2.7,\
                    2001:db8::7,[2001:db8::8],end.example.,198.51.100.0/25,2001:db8:1::/48,\
                    203.0.113.0/33,[2001:db8:5::]/48,2.9";
        let proxy = Proxy::new("HTTPS_PROXY", "proxy.example:3128", list);
        for (url, expected) in [
            ("https://docs.example/a", true),
            ("https://corp.example/a", false),
            ("https://corp.example./a", false),
            ("https://a.CORP.example/a", false),
            ("https://mycorp.example/a", true),
            ("https://corp.example.evil.example/a", true),
            ("https://a.dot.example/a", false),
            ("https://a.star.example/a", false),
            ("https://port.example:8443/a", false),
            ("https://port.example/a", true),
            ("https://192.0.2.7/a", false),
            ("https://192.0.2.77/a", true),
            ("https://[2001:db8::7]/a", false),
            ("https://[2001:db8::8]/a", false),
            ("https://[2001:db8::9]/a", true),
            ("https://end.example/a", false),
            ("https://198.51.100.127/a", false),
            ("https://198.51.100.128/a", true),
            ("https://[2001:db8:1:f::9]/a", false),
            ("https://[2001:db8:2::9]/a", true),
            ("https://203.0.113.0/a", true),
            ("https://[2001:db8:5:f::9]/a", false),
            ("https://[2001:db8:6::9]/a", true),
            ("https://192.0.2.9/a", true),
            ("https://1.2.9.example/a", true),
            ("https://198.51.100.0.example/a", true),
            ("https://localhost/a", false),
            ("https://localhost./a", false),
            ("https://a.LOCALHOST:8443/a", false),
            ("https://localhost.example/a", true),
            ("https://127.0.0.1/a", false),
        ] {
            assert_eq!(proxy.serves(&url.parse().unwrap()), expected, "{url}");
        }
        let none = Proxy::new("HTTPS_PROXY", "http://proxy.example", "*");
        assert!(!none.serves(&"https://docs.example/a".parse().unwrap()));
    }

    #[test]
    fn an_address_is_http_or_https_and_never_shown_with_its_password() {
        for (address, place) in [
            ("http://ann:secret@proxy.example", "proxy.example:80"),
            ("ann:secret@proxy.example:3128", "proxy.example:3128"),
            ("https://ann:secret@proxy.example", "proxy.example:443"),
        ] {
            let proxy = Proxy::new("HTTPS_PROXY", address, "");
            assert_eq!(proxy.place(), place);
            assert!(!format!("{proxy:?}").contains("secret"));
        }
        for address in [
            "socks5://ann:secret@proxy.example",
            "ftp://ann:secret@proxy.example",
            "http://ann:secret@",
            "ann:2026/secret@proxy.example:3128",
            "ann:2026?secret@proxy.example:3128",
            "http://ann:2026#secret@proxy.example",
            "http://ann:secret@proxy.example:port",
        ] {
            let proxy = Proxy::new("https_proxy", address, "");
            let fault = proxy.address().unwrap_err();
            assert!(fault.to_string().starts_with("https_proxy "), "{fault}");
            assert!(!format!("{fault} {fault:?} {proxy:?}").contains("secret"));
        }
    }
}
