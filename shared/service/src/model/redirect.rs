//! Redirect URIs of clients: the rules for them at registration, in an authorize request, and in
//! the content security policy of the consent page.
//!
//! There are rules instead of a list of hosts: https anywhere, http only on the loopback names, and
//! private-use schemes that no browser acts on itself. URIs are compared as exact text; only the
//! port of a loopback address may differ (RFC 8252 section 7.3).

use std::fmt;

use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// Names of the parameters of this service's own answers (RFC 6749 section 4.1.2, RFC 9207).
const RESERVED: [&str; 4] = ["code", "state", "iss", "error"];
/// Maximum length of a redirect URI, in bytes.
pub const LONGEST: usize = 1024;

/// A redirect URI that satisfies the rules, with its text unchanged.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct RedirectUri {
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Kind {
    /// `origin` is written as in a browser; `None` if a content policy cannot contain it.
    Https {
        origin: Option<String>,
        host: String,
    },
    Loopback {
        host: String,
        port: Option<u16>,
        rest: String,
    },
    Private {
        scheme: String,
    },
}

/// Error: a redirect URI is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRedirect {
    /// Longer than [`LONGEST`] or empty.
    #[error("redirect URI must have 1 to 1024 bytes")]
    Length,
    /// Spaces, control characters, quotes or anything beyond ASCII.
    #[error("redirect URI must be ASCII")]
    Characters,
    /// No scheme, or a form that URL parsers repair, such as `https:host`.
    #[error("redirect URI must be absolute")]
    NotAbsolute,
    /// A fragment, which RFC 6749 section 3.1.2 forbids.
    #[error("redirect URI must not contain a fragment")]
    Fragment,
    /// A user name or a password before the host, which makes the host easy to mistake.
    #[error("redirect URI must not contain a user name")]
    UserInfo,
    /// http to a host that is not the user's own machine.
    #[error("redirect URI must use https, except for 127.0.0.1, [::1] and localhost")]
    PlainHttp,
    /// A scheme that browsers or systems act on themselves.
    #[error("redirect URI must not use this scheme")]
    Scheme,
    /// The host is empty or has characters that no host name has.
    #[error("the host is not a host name")]
    Host,
}

/// Schemes that browsers and systems handle themselves: a code sent there reaches no client, or
/// runs as script.
const REFUSED_SCHEMES: &[&str] = &[
    "about",
    "acap",
    "android-app",
    "blob",
    "cap",
    "chrome",
    "chrome-extension",
    "cid",
    "content",
    "data",
    "dav",
    "dns",
    "edge",
    "facetime",
    "feed",
    "file",
    "filesystem",
    "ftp",
    "ftps",
    "geo",
    "git",
    "gopher",
    "http",
    "https",
    "imap",
    "info",
    "intent",
    "ipp",
    "irc",
    "jar",
    "javascript",
    "ldap",
    "ldaps",
    "livescript",
    "magnet",
    "mailto",
    "mhtml",
    "mid",
    "mk",
    "mocha",
    "moz-extension",
    "ms-settings",
    "news",
    "nfs",
    "nntp",
    "opera",
    "pop",
    "resource",
    "rtsp",
    "search-ms",
    "sftp",
    "shell",
    "sip",
    "sips",
    "sms",
    "smb",
    "ssh",
    "tel",
    "telnet",
    "tftp",
    "urn",
    "vbscript",
    "view-source",
    "vnc",
    "webcal",
    "wss",
    "ws",
    "wyciwyg",
    "xmpp",
];

impl RedirectUri {
    /// Parses a redirect URI; fails with the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, BadRedirect> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(BadRedirect::Length);
        }
        // Browsers treat a backslash as a slash; quotes and angle brackets could break out of the
        // header or page in which the URI is shown.
        if !text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\\\"'<>^`{|}".contains(&byte))
        {
            return Err(BadRedirect::Characters);
        }
        if text.contains('#') {
            return Err(BadRedirect::Fragment);
        }
        let url = Url::parse(text).map_err(|_| BadRedirect::NotAbsolute)?;
        let kind = match url.scheme() {
            "https" | "http" => Kind::parse_web(text, &url)?,
            scheme => Kind::parse_private(text, scheme)?,
        };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }

    /// Returns a parameter of the service's own answers that the URI's query already contains, if
    /// any: the client could take its value for one of the service's.
    pub fn reserved_parameter(&self) -> Option<&'static str> {
        let query = self.text.split_once('?').map_or("", |(_, query)| query);
        // Decoded, because `%63ode` is `code` to the client that reads the answer.
        let names = || url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
        let held = |name: &&&str| names().any(|held| held == **name);
        RESERVED.iter().find(held).copied()
    }

    /// Returns the text as it was registered.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether an answer may be sent to `asked` because this URI is registered: the text is the
    /// same, or it is the same loopback address with another port.
    pub fn accepts(&self, asked: &Self) -> bool {
        match (&self.kind, &asked.kind) {
            (
                // An app on the user's machine gets another free port at each start.
                Kind::Loopback { host, rest, .. },
                Kind::Loopback {
                    host: asked_host,
                    rest: asked_rest,
                    ..
                },
            ) => host == asked_host && rest == asked_rest,
            _ => self.text == asked.text,
        }
    }

    /// Whether answers go to a program on the user's own machine, which any user of that machine
    /// may have started.
    pub const fn is_loopback(&self) -> bool {
        matches!(self.kind, Kind::Loopback { .. })
    }

    /// Whether answers go to any app on the user's machine that claims the scheme.
    pub const fn is_private_scheme(&self) -> bool {
        matches!(self.kind, Kind::Private { .. })
    }

    /// Returns the name for the consent page: the host, or the scheme of an app.
    pub fn display_name(&self) -> &str {
        match &self.kind {
            Kind::Https { host, .. } | Kind::Loopback { host, .. } => host,
            Kind::Private { scheme } => scheme,
        }
    }

    /// Returns the source expression for `form-action` in a content security policy: browsers apply
    /// it to all redirects that follow a form.
    pub fn policy_source(&self) -> String {
        match &self.kind {
            Kind::Https {
                origin: Some(origin),
                ..
            } => origin.clone(),
            // A content policy cannot contain an IPv6 address, so it permits the whole scheme.
            Kind::Https { origin: None, .. } => "https:".to_owned(),
            Kind::Loopback { host, .. } if host.starts_with('[') => "http:".to_owned(),
            Kind::Loopback {
                host,
                port: Some(port),
                ..
            } => format!("http://{host}:{port}"),
            Kind::Loopback {
                host, port: None, ..
            } => format!("http://{host}"),
            Kind::Private { scheme } => format!("{scheme}:"),
        }
    }
}

impl Kind {
    fn parse_web(text: &str, url: &Url) -> Result<Self, BadRedirect> {
        // The parser accepts `https:host`, and drops an empty user name. As URIs are compared as
        // text later, such spellings are rejected.
        let (_, after) = text.split_once("://").ok_or(BadRedirect::NotAbsolute)?;
        let end = after.find(['/', '?']).unwrap_or(after.len());
        let (authority, rest) = after.split_at(end);
        if authority.contains('@') {
            return Err(BadRedirect::UserInfo);
        }
        let host = match url.host() {
            Some(Host::Domain(name)) if plain_host(name) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => format!("[{address}]"),
            _ => return Err(BadRedirect::Host),
        };
        if url.scheme() == "https" {
            let origin = (!host.starts_with('[')).then(|| match url.port() {
                Some(port) => format!("https://{host}:{port}"),
                None => format!("https://{host}"),
            });
            return Ok(Self::Https { origin, host });
        }
        // Only the plain spelling is accepted: `127.1` or `0x7f.1` are the same address to a
        // parser, but only attackers write them.
        let written = authority
            .strip_prefix(&host)
            .ok_or(BadRedirect::PlainHttp)?;
        if !matches!(host.as_str(), "127.0.0.1" | "[::1]" | "localhost")
            || !(written.is_empty() || written.starts_with(':'))
        {
            return Err(BadRedirect::PlainHttp);
        }
        // With and without a slash it is the same request, and `rest` is compared as text.
        let rest = if rest.is_empty() { "/" } else { rest };
        Ok(Self::Loopback {
            host,
            port: url.port(),
            rest: rest.to_owned(),
        })
    }

    fn parse_private(text: &str, scheme: &str) -> Result<Self, BadRedirect> {
        if REFUSED_SCHEMES.contains(&scheme) || scheme.len() > 64 {
            return Err(BadRedirect::Scheme);
        }
        let authority = text.split_once("://").map_or("", |(_, after)| {
            after.split(['/', '?']).next().unwrap_or("")
        });
        if authority.contains('@') {
            return Err(BadRedirect::UserInfo);
        }
        Ok(Self::Private {
            scheme: scheme.to_owned(),
        })
    }
}

/// Whether a host name can be part of a content policy: any other character (`;`, `,`) could add a
/// directive to it.
fn plain_host(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte)
        })
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl From<RedirectUri> for String {
    fn from(uri: RedirectUri) -> Self {
        uri.text
    }
}

impl TryFrom<String> for RedirectUri {
    type Error = BadRedirect;

    fn try_from(text: String) -> Result<Self, BadRedirect> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uri(text: &str) -> RedirectUri {
        RedirectUri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn requirement_11_what_may_be_registered() {
        for (text, shown, source) in [
            (
                "https://claude.ai/api/mcp/auth_callback",
                "claude.ai",
                "https://claude.ai",
            ),
            (
                "https://app.example:8443/cb?x=1",
                "app.example",
                "https://app.example:8443",
            ),
            ("https://[2001:db8::1]/cb", "[2001:db8::1]", "https:"),
            ("http://127.0.0.1/", "127.0.0.1", "http://127.0.0.1"),
            (
                "http://127.0.0.1:33418",
                "127.0.0.1",
                "http://127.0.0.1:33418",
            ),
            (
                "http://localhost:7777/oauth/callback",
                "localhost",
                "http://localhost:7777",
            ),
            ("http://[::1]:9/cb", "[::1]", "http:"),
            (
                "cursor://anysphere.cursor-mcp/oauth/callback",
                "cursor",
                "cursor:",
            ),
            (
                "com.example.app:/oauth2redirect",
                "com.example.app",
                "com.example.app:",
            ),
        ] {
            let parsed = uri(text);
            assert_eq!(parsed.as_str(), text);
            assert_eq!(parsed.display_name(), shown, "{text}");
            assert_eq!(parsed.policy_source(), source, "{text}");
        }
    }

    #[test]
    fn requirement_11_what_may_not() {
        let long = format!("https://a.example/{}", "a".repeat(LONGEST));
        for (text, error) in [
            ("", BadRedirect::Length),
            (long.as_str(), BadRedirect::Length),
            ("/cb", BadRedirect::NotAbsolute),
            ("https:a.example/cb", BadRedirect::NotAbsolute),
            ("https://a.example/cb#", BadRedirect::Fragment),
            ("https://a.example/cb#x", BadRedirect::Fragment),
            ("https://user@a.example/cb", BadRedirect::UserInfo),
            ("https://user:word@a.example/cb", BadRedirect::UserInfo),
            ("https://@a.example/cb", BadRedirect::UserInfo),
            ("app://user@host/cb", BadRedirect::UserInfo),
            ("http://a.example/cb", BadRedirect::PlainHttp),
            ("http://127.0.0.1.a.example/cb", BadRedirect::PlainHttp),
            ("http://127.1/cb", BadRedirect::PlainHttp),
            ("http://0x7f000001/cb", BadRedirect::PlainHttp),
            ("http://localhost.a.example/cb", BadRedirect::PlainHttp),
            ("http://10.0.0.1/cb", BadRedirect::PlainHttp),
            ("javascript:alert(1)", BadRedirect::Scheme),
            ("JavaScript:alert(1)", BadRedirect::Scheme),
            ("data:text/html,x", BadRedirect::Scheme),
            ("file:///etc/passwd", BadRedirect::Scheme),
            ("vbscript:x", BadRedirect::Scheme),
            ("blob:https://a.example/x", BadRedirect::Scheme),
            ("about:blank", BadRedirect::Scheme),
            ("intent://x#Intent;end", BadRedirect::Fragment),
            ("https://a.example/c b", BadRedirect::Characters),
            ("https://a.example/\r\nX: y", BadRedirect::Characters),
            ("https://a.example\\@b.example/", BadRedirect::Characters),
            ("https://\u{e4}.example/", BadRedirect::Characters),
            ("https://a;script-src.example/", BadRedirect::Host),
            ("https://a,b.example/", BadRedirect::Host),
            ("https://*.example/", BadRedirect::Host),
        ] {
            assert_eq!(RedirectUri::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn requirement_18_only_the_loopback_port_may_differ() {
        for (registered, asked, accepted) in [
            ("https://a.example/cb", "https://a.example/cb", true),
            ("https://a.example/cb", "https://a.example/cb/", false),
            ("https://a.example/cb", "https://a.example/cb?x=1", false),
            ("https://a.example/cb", "https://a.example:443/cb", false),
            ("https://a.example/cb", "https://A.example/cb", false),
            ("https://a.example", "https://a.example/", false),
            ("http://127.0.0.1/", "http://127.0.0.1:51234/", true),
            ("http://127.0.0.1:33418", "http://127.0.0.1:51234/", true),
            ("http://127.0.0.1/", "http://127.0.0.1:51234", true),
            ("http://127.0.0.1/cb", "http://127.0.0.1:51234/other", false),
            (
                "http://127.0.0.1/cb",
                "http://127.0.0.1:51234/x/../cb",
                false,
            ),
            ("http://127.0.0.1/cb?a=1", "http://127.0.0.1:1/cb?a=1", true),
            ("http://127.0.0.1/cb?a=1", "http://127.0.0.1:1/cb", false),
            ("http://localhost:3000/cb", "http://localhost:4000/cb", true),
            (
                "http://localhost:3000/cb",
                "http://127.0.0.1:3000/cb",
                false,
            ),
            ("http://127.0.0.1/cb", "https://127.0.0.1:1/cb", false),
            ("http://[::1]/cb", "http://[::1]:5/cb", true),
            ("app://host/cb", "app://host/cb", true),
            ("app://host/cb", "app://host:1/cb", false),
        ] {
            assert_eq!(
                uri(registered).accepts(&uri(asked)),
                accepted,
                "{registered} {asked}"
            );
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_a_policy_source_is_one_word(text in "[ -~]{0,60}") {
            if let Ok(parsed) = RedirectUri::parse(&text) {
                let source = parsed.policy_source();
                prop_assert!(!source.contains([' ', ';', ',', '\'', '*']), "{}", source);
            }
        }

        #[test]
        fn hosts_cannot_write_policy(host in "[a-z;,'*\"%]{1,12}") {
            if let Ok(parsed) = RedirectUri::parse(&format!("https://{host}/")) {
                prop_assert!(!parsed.policy_source().contains([' ', ';', ',', '\'', '*']));
            }
        }
    }
}
