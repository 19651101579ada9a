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
    direct: Vec<DirectHost>,
}

/// An entry of `NO_PROXY`: what is reached without the proxy.
#[derive(Clone, Debug, Eq, PartialEq)]
enum DirectHost {
    /// Every host (`*`).
    Any,
    /// The addresses of a range, or a single one. An entry may be about one port only.
    Addresses(IpNet, Option<u16>),
    /// A host and all names below it. An entry may be about one port only.
    Name(String, Option<u16>),
}

impl DirectHost {
    /// Reads an entry in the forms in which people write it: in any case of letters, with a dot or
    /// `*.` before a name, with a dot at its end, and with or without the brackets of URLs around
    /// an IPv6 address.
    fn parse(entry: &str) -> Self {
        if entry == "*" {
            return Self::Any;
        }
        let entry = entry.trim_start_matches("*.").trim_start_matches('.');
        // Without the brackets of an IPv6 address, if nothing but a length follows them.
        let unwrapped = entry
            .strip_prefix('[')
            .and_then(|entry| entry.split_once(']'));
        let range = unwrapped.map_or_else(|| entry.to_owned(), |(ip, rest)| format!("{ip}{rest}"));
        let has_port = unwrapped.is_some_and(|(_, rest)| rest.starts_with(':'));
        if !has_port && let Some(range) = parse_range(&range) {
            return Self::Addresses(range, None);
        }
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().ok())
            }
            _ => (entry, None),
        };
        // An entry with a port that is none is about no host.
        if port.is_none() && host.len() < entry.len() {
            return Self::Name(entry.to_owned(), None);
        }
        let host = host.trim_end_matches('.');
        // As the host of a URL is read: in lower case, and other letters than ASCII encoded.
        match Host::parse(host) {
            Ok(Host::Ipv4(ip)) => Self::Addresses(IpNet::from(IpAddr::from(ip)), port),
            Ok(Host::Ipv6(ip)) => Self::Addresses(IpNet::from(ip.to_canonical()), port),
            Ok(Host::Domain(name)) => Self::Name(name, port),
            Err(_) => Self::Name(host.to_ascii_lowercase(), port),
        }
    }

    /// Tells whether the entry is about this host and port.
    fn covers(&self, host: &Host<&str>, at: u16) -> bool {
        let is_port = |port: Option<u16>| port.is_none_or(|port| port == at);
        let covers_ip = |ip: IpAddr| match self {
            Self::Any => true,
            Self::Addresses(range, port) => range.contains(&ip) && is_port(*port),
            Self::Name(..) => false,
        };
        match host {
            Host::Ipv4(ip) => covers_ip(IpAddr::from(*ip)),
            Host::Ipv6(ip) => covers_ip(ip.to_canonical()),
            Host::Domain(host) => match self {
                Self::Any => true,
                // A name is not looked up for this: the proxy may know other addresses of it.
                Self::Addresses(..) => false,
                Self::Name(name, port) => {
                    let above = host.trim_end_matches('.').strip_suffix(name.as_str());
                    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
                        && is_port(*port)
                }
            },
        }
    }
}

/// Parses a range of addresses, or a single address.
fn parse_range(text: &str) -> Option<IpNet> {
    let single = || text.parse::<IpAddr>().ok();
    let range = text.parse().ok();
    range.or_else(|| Some(IpNet::from(single()?.to_canonical())))
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("place", &self.place())
            .field("direct", &self.direct)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Reads the value of a variable such as `HTTPS_PROXY`, and that of `NO_PROXY`, as other tools
    /// do: an address, whose scheme may be left out, and hosts separated by commas or spaces, which
    /// may be ranges of addresses (`10.0.0.0/8`). A fault of the address is reported when a host is
    /// to be reached through the proxy, because folders and repositories do not need it.
    pub fn new(variable: &str, address: &str, direct: &str) -> Self {
        let entries = direct.split(|c: char| c == ',' || c.is_whitespace());
        let entries = entries.filter(|entry| !entry.trim_matches('.').is_empty());
        Self {
            address: parse_address(address).map_err(|fault| format!("{variable} {fault}")),
            direct: entries.map(DirectHost::parse).collect(),
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
        let host = match url.host() {
            // The proxy would understand its own machine by an address of this one.
            Some(Host::Domain(name)) if is_this_machine(name) => return false,
            Some(_) if is_loopback(url) => return false,
            Some(host) => host,
            None => return false,
        };
        let port = url.port_or_known_default().unwrap_or_default();
        !self.direct.iter().any(|entry| entry.covers(&host, port))
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
                    203.0.113.0/33,[2001:db8:5::]/48,2.9,[2001:DB8:6::7]:8443,2001:DB8:7:0::7,\
                    2001:db8:8::7:8443,192.0.2.8:8443,dot.port.example.:8443,b\u{fc}cher.example,\
                    ::ffff:192.0.2.10,bad.port.example:x,bare.example:,.,*.";
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
            ("https://[2001:db8:6::7]:8443/a", false),
            ("https://[2001:db8:6::7]/a", true),
            ("https://[2001:db8:7::7]/a", false),
            // Without brackets, the last part of an address is no port.
            ("https://[2001:db8:8::7]:8443/a", true),
            ("https://[2001:db8:8::7:8443]/a", false),
            ("https://192.0.2.8:8443/a", false),
            ("https://192.0.2.8/a", true),
            ("https://dot.port.example:8443/a", false),
            ("https://dot.port.example/a", true),
            ("https://a.b\u{fc}cher.example/a", false),
            ("https://192.0.2.10/a", false),
            ("https://[::ffff:192.0.2.10]/a", false),
            ("https://bad.port.example/a", true),
            ("https://bare.example/a", true),
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
