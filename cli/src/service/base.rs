//! Addresses of services and of the vaults on them: parsing, and one canonical text for each
//! address.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url, form_urlencoded::byte_serialize};
use vault_format::{hash::Digest, name::Slug};

/// The base address of a service in canonical form: scheme, host, port if it is not the default,
/// and path prefix, without a trailing slash.
///
/// Only https is valid, and http on loopback. The address has no user, query or fragment.
#[derive(Clone, Debug, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Base {
    text: String,
    /// Length of the origin within `text`, in bytes.
    origin: usize,
    loopback: bool,
}

/// The parsed form of an address that users type: a service, or with `/v/<slug>` a vault on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// Scheme, host and port of the service.
    pub base: Base,
    /// The name of the vault on the service; `None` for the service alone.
    pub slug: Option<Slug>,
}

/// Escapes a text from the command line for one segment of a path of the service, so that it
/// cannot address another route.
pub fn path_segment(text: &str) -> String {
    // Form encoding leaves letters, digits and `*-._` as they are. It writes a space as `+`, which
    // means a plus sign in a path, so it is replaced below; a real `+` has become `%2B`.
    let segment = byte_serialize(text.as_bytes()).collect::<String>();
    match segment.as_str() {
        // URL parsers resolve `.` and `..`, even if they are escaped once. Escaped twice, they
        // reach the service as text. No id has that text, so the service answers "not found".
        "." => "%252E".to_owned(),
        ".." => "%252E%252E".to_owned(),
        _ => segment.replace('+', "%20"),
    }
}

impl Base {
    /// Returns the scheme, host and port.
    pub fn origin(&self) -> &str {
        &self.text[..self.origin]
    }

    /// Returns the path prefix: empty, or starting with a slash.
    pub fn prefix(&self) -> &str {
        &self.text[self.origin..]
    }

    /// Returns the canonical address, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the host is a loopback address or `localhost`.
    pub const fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Returns the host name if it always means this machine (RFC 6761): `localhost` or a name
    /// below it.
    pub fn localhost_name(&self) -> Option<&str> {
        let (_, rest) = self.origin().split_once("://")?;
        let name = rest.split(':').next()?;
        is_localhost(name).then_some(name)
    }

    /// Returns whether the scheme is http.
    pub fn is_plain(&self) -> bool {
        self.text.starts_with("http:")
    }

    /// Returns the full address of a path of the service.
    pub fn address_of(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }

    /// Returns whether an address has the same scheme, host and port.
    pub fn is_origin_of(&self, address: &str) -> bool {
        Url::parse(address).is_ok_and(|url| url.origin().ascii_serialization() == self.origin())
    }

    /// Returns a file name that is unique to this service. If scheme, host and port do not identify
    /// the address, the name includes a hash.
    pub fn file_name(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let host = self.text.replacen("://", "_", 1);
        let name = host.replace(|c| !plain(c), "_");
        let (scheme, rest) = self.text.split_once("://").unwrap_or_default();
        let (host, port) = rest.split_once(':').unwrap_or((rest, "0"));
        // Two addresses could get the same name by the replacement of characters, so add a hash
        // then.
        let says_all = !scheme.is_empty()
            && host.chars().all(plain)
            && port.bytes().all(|byte| byte.is_ascii_digit());
        if says_all {
            return name;
        }
        let hash = Digest::of(self.text.as_bytes()).to_string();
        // The name is ASCII by now, so it can be cut at any byte.
        format!("{}_{}", &name[..name.len().min(100)], &hash[..20])
    }
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The error for a text that is not the address of a service.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}; an address looks like https://vault.example or https://vault.example/v/team")]
pub struct BadAddress(String);

impl FromStr for Base {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Ok(text.parse::<Address>()?.base)
    }
}

impl TryFrom<String> for Base {
    type Error = BadAddress;

    fn try_from(text: String) -> Result<Self, BadAddress> {
        text.parse()
    }
}

impl From<Base> for String {
    fn from(base: Base) -> Self {
        base.text
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let refuse = |why: &str| BadAddress(why.to_owned());
        // The URL parser would silently normalize these. Accept only addresses that need no
        // correction.
        let untidy = |segment| matches!(segment, "." | "..");
        if text.contains(['%', '\\']) || text.split(['/', '?', '#']).any(untidy) {
            let why = "it has escapes, backslashes, or segments that only have dots";
            return Err(refuse(why));
        }
        let url = Url::parse(text).map_err(|error| refuse(&error.to_string()))?;
        let loopback = match url.host() {
            Some(Host::Domain(name)) => is_localhost(name),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => return Err(refuse("it names no host")),
        };
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return Err(refuse("http is allowed only for this machine; use https")),
            _ => return Err(refuse("it must begin with https://")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("it carries a user name or password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("it has a query or fragment"));
        }
        let path = url.path().trim_end_matches('/');
        let (prefix, slug) = match path.rsplit_once("/v/") {
            Some((prefix, slug)) if !slug.contains('/') => {
                let slug = slug
                    .parse()
                    .map_err(|_| refuse("the part after /v/ is not the name of a vault"))?;
                (prefix, Some(slug))
            }
            _ => (path, None),
        };
        // Devices sign the prefix byte by byte, so accept only characters that are never escaped.
        let good = prefix
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~/".contains(&b));
        if !good || prefix.contains("//") {
            let why = "its path has characters that an address of a vault never has";
            return Err(refuse(why));
        }
        let origin = url.origin().ascii_serialization();
        Ok(Self {
            base: Base {
                origin: origin.len(),
                text: format!("{origin}{prefix}"),
                loopback,
            },
            slug,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_text() {
        for line in [
            "https://Vault.Example -> https://vault.example",
            "https://vault.example:443/ -> https://vault.example",
            "https://vault.example/v/team -> https://vault.example team",
            "https://vault.example/skills/v/team/ -> https://vault.example/skills team",
            "http://127.0.0.1:8080/v/default -> http://127.0.0.1:8080 default",
            "http://[::1]:8080 -> http://[::1]:8080",
            "http://localhost:3000 -> http://localhost:3000",
            "http://a1b2.api.localhost:4566/v/team -> http://a1b2.api.localhost:4566 team",
        ] {
            let (text, expected) = line.split_once(" -> ").unwrap();
            let Address { base, slug } = text.parse().unwrap();
            let slug = slug.map_or_else(String::new, |slug| format!(" {slug}"));
            assert_eq!(format!("{base}{slug}"), expected);
        }
    }

    #[test]
    fn a_text_stays_one_segment_of_a_path() {
        for (text, expected) in [
            ("whk_1", "/a/whk_1"),
            ("ann+x@example.com", "/a/ann%2Bx%40example.com"),
            ("a/b?c#d é", "/a/a%2Fb%3Fc%23d%20%C3%A9"),
            (".", "/a/%252E"),
            ("..", "/a/%252E%252E"),
            ("%2e%2E", "/a/%252e%252E"),
            ("...", "/a/..."),
        ] {
            let address = format!("https://vault.example/a/{}", path_segment(text));
            assert_eq!(Url::parse(&address).unwrap().path(), expected, "{text}");
        }
    }

    #[test]
    fn what_could_lead_elsewhere_is_refused() {
        for text in [
            "vault.example",
            "http://vault.example",
            "http://notlocalhost",
            "http://a.localhost.example",
            "ftp://vault.example",
            "https://user@vault.example",
            "https://user:secret@vault.example",
            "https://vault.example/?a=b",
            "https://vault.example/#a",
            "https://vault.example/v/UPPER",
            "https://vault.example/v/a%2Fb",
            "https://vault.example/a%20b",
            "https://vault.example/v/../team",
            "https://vault.example/./v/team",
            "https://vault.example/v/%2e%2e/team",
            "https://vault.example\\v\\team",
            "https://vault.example//x",
            "file:///etc/passwd",
            "",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_stays_apart_from_the_origin() {
        let base: Base = "https://vault.example/skills/v/a".parse().unwrap();
        assert_eq!(
            (base.origin(), base.prefix()),
            ("https://vault.example", "/skills")
        );
    }

    #[test]
    fn names_of_this_machine_are_known() {
        for (text, name) in [
            ("http://localhost:3000", Some("localhost")),
            ("https://a.b.localhost/base", Some("a.b.localhost")),
            ("https://localhost.example", None),
            ("http://127.0.0.1:8080", None),
            ("http://[::1]:8080", None),
        ] {
            let base: Base = text.parse().unwrap();
            assert_eq!(base.localhost_name(), name, "{text}");
        }
    }

    #[test]
    fn two_services_never_share_a_file() {
        let texts = [
            "https://vault.example",
            "https://vault.example:8443",
            "https://vault.example/8443",
            "https://vault.example_8443",
            "http://vault.localhost",
            "http://localhost",
            "https://localhost",
            "https://vault.example/a/b",
            "https://vault.example/a_b",
            "https://vault.example/A_b",
            "https://vault.example/a~b",
            "http://[::1]:80",
            "http://[::1]:8080",
        ];
        let bases: Vec<Base> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        let names: std::collections::BTreeSet<_> = bases.iter().map(Base::file_name).collect();
        assert_eq!(names.len(), bases.len(), "{names:?}");
        assert!(names.contains("https_vault.example_8443"));
        for name in names {
            assert!(!name.contains('/') && name.len() < 130, "{name}");
        }
    }

    #[test]
    fn an_origin_is_the_whole_of_it() {
        let address: Address = "https://vault.example/skills".parse().unwrap();
        for (endpoint, same) in [
            ("https://vault.example/oauth/token", true),
            ("https://vault.example:443/oauth/token", true),
            ("https://vault.example.evil.example/oauth/token", false),
            ("https://vault.example@evil.example/oauth/token", false),
            ("https://vault.example:8443/oauth/token", false),
            ("http://vault.example/oauth/token", false),
            ("/oauth/token", false),
            ("", false),
        ] {
            assert_eq!(address.base.is_origin_of(endpoint), same, "{endpoint}");
        }
    }
}
