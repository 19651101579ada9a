//! Bearer tokens for HTTPS sources, by host. A token is sent only to its own host, also after a
//! redirect.

use url::Url;
use zeroize::Zeroizing;

/// Bearer tokens by host. The `Debug` output shows only the hosts.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(String, Zeroizing<String>)>);

/// The error for a malformed entry: its position, starting at 1. The entry's text is left out
/// because it may contain a token.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("entry {0} is not <host>=<token>")]
pub struct BadToken(pub usize);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(host, _)| host))
            .finish()
    }
}

impl Tokens {
    /// Parses a comma-separated list of `<host>[:<port>]=<token>`. Fails on a malformed entry, or
    /// on characters that a host or a bearer token cannot contain.
    pub fn parse(text: &str) -> Result<Self, BadToken> {
        let mut tokens = Vec::new();
        for (at, entry) in text.split(',').map(str::trim).enumerate() {
            if entry.is_empty() {
                continue;
            }
            let (host, token) = entry.split_once('=').ok_or(BadToken(at + 1))?;
            let host_fits = (1..=259).contains(&host.len())
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':'));
            // RFC 6750, section 2.1: b64token.
            let token_fits = (1..=4096).contains(&token.len())
                && token.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric()
                        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=')
                });
            if !host_fits || !token_fits {
                return Err(BadToken(at + 1));
            }
            // A URL with the default port contains no port, so `:443` would never match.
            let host = host.strip_suffix(":443").unwrap_or(host);
            tokens.push((host.to_ascii_lowercase(), Zeroizing::new(token.to_owned())));
        }
        Ok(Self(tokens))
    }

    /// Returns the token for the host of a URL. A port other than the default one must match too.
    pub(crate) fn for_url(&self, url: &Url) -> Option<&str> {
        let host = url.host_str()?;
        // Another port of the host may be a service of another party, which must not get the token.
        let wanted = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        self.0
            .iter()
            .find(|(host, _)| *host == wanted)
            .map(|(_, token)| token.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_host_and_never_shown() {
        let tokens = Tokens::parse("Docs.example:443=abc.DEF, docs.example:8443=xyz==,").unwrap();
        for (url, wanted) in [
            ("https://docs.example/a", Some("abc.DEF")),
            ("https://docs.example:443/a", Some("abc.DEF")),
            ("https://docs.example:8443/a", Some("xyz==")),
            ("https://docs.example:8444/a", None),
            ("https://evil.docs.example/a", None),
            ("https://docs.example.evil/a", None),
        ] {
            assert_eq!(tokens.for_url(&url.parse().unwrap()), wanted, "{url}");
        }
        assert_eq!(
            format!("{tokens:?}"),
            r#"["docs.example", "docs.example:8443"]"#
        );
        for (bad, at) in [
            ("abc", 1),
            ("a=b,=c", 2),
            ("a=", 1),
            ("a=b\r\nx: y", 1),
            ("https://a=b", 1),
        ] {
            assert_eq!(Tokens::parse(bad).unwrap_err(), BadToken(at), "{bad:?}");
        }
    }
}
