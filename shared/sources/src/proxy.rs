//! The proxy of a company, through which the command line reaches sites, archives and registries.

use url::{Host, Url};

/// A proxy, and the hosts that are reached without it.
#[derive(Clone)]
pub struct Proxy {
    /// May contain a password.
    address: Url,
    direct: Vec<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("direct", &self.direct)
            .finish_non_exhaustive()
    }
}

impl Proxy {
    /// Parses the values of `HTTPS_PROXY` and `NO_PROXY` as other tools read them: an address,
    /// whose scheme may be left out, and hosts separated by commas. Fails with the reason.
    pub fn parse(address: &str, direct: &str) -> Result<Self, &'static str> {
        let address = if address.contains("://") {
            address.to_owned()
        } else {
            format!("http://{address}")
        };
        let url: Url = address.parse().map_err(|_| "it is not an address")?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("only proxies at http and https addresses are supported");
        }
        let direct = direct.split(',').map(|host| {
            let host = host.trim().trim_start_matches("*.").trim_start_matches('.');
            host.to_ascii_lowercase()
        });
        Ok(Self {
            address: url,
            direct: direct.filter(|host| !host.is_empty()).collect(),
        })
    }

    /// The address of the proxy.
    pub(crate) const fn address(&self) -> &Url {
        &self.address
    }

    /// Returns whether a URL is reached through the proxy.
    pub(crate) fn serves(&self, url: &Url) -> bool {
        let host = match url.host() {
            Some(Host::Ipv6(ip)) => ip.to_string(),
            Some(host) => host.to_string(),
            None => return false,
        };
        let port = url.port_or_known_default().unwrap_or_default();
        let with_port = format!("{host}:{port}");
        !self.direct.iter().any(|entry| {
            let is_below = |name: &str| {
                let above = name.strip_suffix(entry.as_str());
                above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            };
            entry == "*" || is_below(&host) || is_below(&with_port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_names_hosts_and_what_is_below_them() {
        let list =
            " corp.example,.dot.example, *.star.example,port.example:8443,192.0.2.7,2001:db8::7";
        let proxy = Proxy::parse("proxy.example:3128", list).unwrap();
        for (url, expected) in [
            ("https://docs.example/a", true),
            ("https://corp.example/a", false),
            ("https://a.CORP.example/a", false),
            ("https://mycorp.example/a", true),
            ("https://corp.example.evil.example/a", true),
            ("https://a.dot.example/a", false),
            ("https://a.star.example/a", false),
            ("https://port.example:8443/a", false),
            ("https://port.example/a", true),
            ("https://192.0.2.7/a", false),
            ("https://[2001:db8::7]/a", false),
        ] {
            assert_eq!(proxy.serves(&url.parse().unwrap()), expected, "{url}");
        }
        let none = Proxy::parse("http://proxy.example", "*").unwrap();
        assert!(!none.serves(&"https://docs.example/a".parse().unwrap()));
        for bad in ["socks5://proxy.example", "http://", "ftp://proxy.example"] {
            assert!(Proxy::parse(bad, "").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let proxy = Proxy::parse("http://ann:secret@proxy.example", "").unwrap();
        assert!(!format!("{proxy:?}").contains("secret"));
    }
}
