//! Settings of one instance of the service, as values that are already checked.
//!
//! Nothing here reads the environment: the command line and the functions fill in a [`Config`].

mod bad_setting;
pub mod hosting;
mod hosts;
mod limits;
pub mod quota;
mod sign_in;

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

pub use bad_setting::BadSetting;
use ipnet::IpNet;
pub use limits::Limits;
pub use sign_in::{
    BadSignIn, BadVariable, CLIENT_SECRET, Issuer, ProviderSettings, SignIn, SignUpRule,
};
use url::{Host, Url};

/// Minimum and maximum lifetime of an access token, in seconds.
const TOKEN_TTL: RangeInclusive<i64> = 60..=86_400;

/// Settings of one running service. Public fields hold checked values; set those with a rule
/// through the methods.
#[derive(Clone, Debug)]
pub struct Config {
    /// Public address of the service: OAuth issuer, audience of tokens and prefix of every route.
    pub public_url: PublicUrl,
    /// Rate limits (`VAULT_LIMIT_…`).
    pub limits: Limits,
    /// Lifetime of an access token in seconds (`VAULT_TOKEN_TTL`); 900 by default.
    pub token_ttl_seconds: i64,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Browser origins that may call `/mcp`, compared byte for byte.
    pub allowed_origins: Vec<String>,
    /// Hosts by which the service may be called besides that of the public URL, with a port unless
    /// it is the default.
    pub allowed_hosts: Vec<String>,
    /// People who must sign in with a second factor (`VAULT_SECOND_FACTOR`).
    pub second_factor: SecondFactorPolicy,
    /// What happens to members' changes on a server that signs (`VAULT_MEMBER_WRITES`): wait or be
    /// signed.
    pub member_writes: MemberWrites,
    /// Ways to sign in (`VAULT_SIGN_IN`, `VAULT_OIDC_…`, `VAULT_SIGN_UP`).
    pub sign_in: SignIn,
    /// Settings for the creation of vaults and for payment.
    pub hosting: hosting::Hosting,
    /// Ports of the webhook addresses to which this service sends notices (`VAULT_WEBHOOK_PORTS`).
    pub webhook_ports: Vec<u16>,
    /// Spelling of the names in lists of tools at `/mcp` (`VAULT_TOOL_NAMES`).
    pub tool_names: vault_mcp::Names,
    /// Maximum size of all immutable objects that one process caches, in bytes. At least twice the
    /// largest object (4 MiB): the cache keeps no object above half of its size. A larger cache
    /// gains little: the catalog is read most, and a database caches its own pages.
    pub cache_bytes: usize,
}

impl Config {
    /// Creates a configuration with this public URL; everything else has the default of its
    /// variable.
    pub fn new(public_url: PublicUrl) -> Self {
        Self {
            public_url,
            limits: Limits::default(),
            token_ttl_seconds: 900,
            trusted_proxies: Vec::new(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            second_factor: SecondFactorPolicy::Optional,
            member_writes: MemberWrites::Draft,
            sign_in: SignIn::Password,
            hosting: hosting::Hosting::default(),
            webhook_ports: vec![443, 8443],
            tool_names: vault_mcp::Names::Plain,
            cache_bytes: 10 * 1024 * 1024,
        }
    }

    /// Sets the lifetime of access tokens (`VAULT_TOKEN_TTL`), in seconds. Fails if it is below a
    /// minute or above a day.
    pub fn set_token_ttl(&mut self, seconds: i64) -> Result<(), BadSetting> {
        if !TOKEN_TTL.contains(&seconds) {
            return Err(BadSetting::TokenTtl);
        }
        self.token_ttl_seconds = seconds;
        Ok(())
    }

    /// Allows the pages of this origin to call `/mcp` (a member of `VAULT_ALLOWED_ORIGINS`). Fails
    /// if it is not written as browsers send it.
    pub fn allow_origin(&mut self, origin: &str) -> Result<(), BadSetting> {
        // The header is compared byte for byte, so another spelling would never match, and the
        // operator would not know why.
        let same = Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == origin);
        if !same {
            return Err(BadSetting::Origin(origin.to_owned()));
        }
        self.allowed_origins.push(origin.to_owned());
        Ok(())
    }

    /// Sets the allowed ports of webhooks (`VAULT_WEBHOOK_PORTS`). Fails for a text that is not a
    /// port from 1 to 65535.
    pub fn set_webhook_ports<'p>(
        &mut self,
        ports: impl Iterator<Item = &'p str>,
    ) -> Result<(), BadSetting> {
        let parse_port = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(BadSetting::WebhookPort(text.to_owned())),
            Ok(port) => Ok(port),
        };
        self.webhook_ports = ports.map(parse_port).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Whether `address` is a proxy whose forwarded headers are trusted.
    pub fn is_trusted_proxy(&self, address: IpAddr) -> bool {
        // A listener on `::` reports IPv4 peers as mapped addresses, but operators write plain
        // ones.
        let address = address.to_canonical();
        self.trusted_proxies
            .iter()
            .any(|net| net.contains(&address))
    }
}

/// Rule for who must sign in with a second factor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SecondFactorPolicy {
    /// Only people who have set up a second factor.
    Optional,
    /// All operators and all owners of a vault.
    Owners,
}

impl FromStr for SecondFactorPolicy {
    type Err = BadSetting;

    fn from_str(text: &str) -> Result<Self, BadSetting> {
        match text {
            "optional" => Ok(Self::Optional),
            "owners" => Ok(Self::Owners),
            other => Err(BadSetting::SecondFactor(other.to_owned())),
        }
    }
}

/// Rule for the changes of members and publishers in a namespace that its own server signs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MemberWrites {
    /// Changes wait as drafts until an owner accepts them.
    #[default]
    Draft,
    /// Changes are signed immediately, like those of an owner.
    Sign,
}

impl FromStr for MemberWrites {
    type Err = BadSetting;

    fn from_str(text: &str) -> Result<Self, BadSetting> {
        match text {
            "draft" => Ok(Self::Draft),
            "sign" => Ok(Self::Sign),
            other => Err(BadSetting::MemberWrites(other.to_owned())),
        }
    }
}

/// Parses the spelling of tool names in `VAULT_TOOL_NAMES`. Fails if it is unknown.
pub fn tool_names(text: &str) -> Result<vault_mcp::Names, BadSetting> {
    match text {
        "plain" => Ok(vault_mcp::Names::Plain),
        "dotted" => Ok(vault_mcp::Names::Dotted),
        other => Err(BadSetting::ToolNames(other.to_owned())),
    }
}

/// The public address of the service: an https origin, alone or with a path prefix; http only on
/// loopback.
#[derive(Clone, Eq, PartialEq)]
pub struct PublicUrl {
    text: String,
    base_length: usize,
    prefix_start: usize,
    loopback: bool,
    authority: String,
}

/// Why a public URL is refused. The text tells the operator what to write instead.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadPublicUrl {
    /// The text is not an absolute http or https URL.
    #[error("the public URL is not an absolute http(s) address")]
    NotAUrl,
    /// The URL begins with `http:`, but its host is not this machine.
    #[error("the public URL must be https; http is for loopback only")]
    NotHttps,
    /// The URL contains a user name, a query or a fragment.
    #[error("the public URL must be an origin, optionally with a path")]
    NotAnOrigin,
    /// Not the spelling that a browser would send, which the field holds.
    #[error("the public URL must be written as {0}")]
    NotCanonical(String),
    /// A path with characters that a proxy might rewrite, which would break the signatures of
    /// devices.
    #[error("the path of the public URL may hold only A-Z a-z 0-9 - . _ ~ and single slashes")]
    BadPath,
}

impl PublicUrl {
    /// Returns the text as it was configured: the OAuth issuer, byte for byte.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the address without a slash at its end; paths of routes are appended to it.
    pub fn base(&self) -> &str {
        &self.text[..self.base_length]
    }

    /// Returns scheme, host and port, without the path prefix.
    pub fn origin(&self) -> &str {
        &self.text[..self.prefix_start]
    }

    /// Returns the path prefix, empty or like `/base`.
    pub fn prefix(&self) -> &str {
        &self.text[self.prefix_start..self.base_length]
    }

    /// Returns the host, with the port unless it is the default of the scheme: the value that
    /// `Host` must have where it is checked.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether this is plain http on this machine; cookies cannot be `Secure` then.
    pub fn is_loopback_http(&self) -> bool {
        self.loopback && self.text.starts_with("http:")
    }

    /// Whether the host is this machine (loopback or `localhost`).
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Returns the address of a path below the base, for instance `/oauth/token`.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.base())
    }

    /// Returns the address of the metadata for the protected resource at `path`, which a 401 refers
    /// to. RFC 9728 puts the well-known part between host and path.
    pub fn resource_metadata(&self, path: &str) -> String {
        format!(
            "{}/.well-known/oauth-protected-resource{}{path}",
            self.origin(),
            self.prefix()
        )
    }
}

impl FromStr for PublicUrl {
    type Err = BadPublicUrl;

    fn from_str(text: &str) -> Result<Self, BadPublicUrl> {
        let url = Url::parse(text).map_err(|_| BadPublicUrl::NotAUrl)?;
        let loopback = is_this_machine(&url.host().ok_or(BadPublicUrl::NotAUrl)?);
        // Tokens and passwords travel to this address, so plain http is only for this machine.
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return Err(BadPublicUrl::NotHttps),
            _ => return Err(BadPublicUrl::NotAUrl),
        }
        if !url.username().is_empty()
            || url.password().is_some()
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(BadPublicUrl::NotAnOrigin);
        }
        let canonical = url.as_str();
        // The parser gives a bare origin the path `/`. The operator may write either form, and the
        // issuer keeps it byte for byte.
        if text != canonical && format!("{text}/") != canonical {
            return Err(BadPublicUrl::NotCanonical(
                canonical.trim_end_matches('/').to_owned(),
            ));
        }
        let base_length = text.strip_suffix('/').map_or(text.len(), str::len);
        let origin = url.origin().ascii_serialization();
        // Devices sign the raw path. Without escapes and empty segments, every proxy and gateway
        // passes it on unchanged.
        let path = &text[origin.len()..base_length];
        let is_plain_path = path.is_empty()
            || path[1..].split('/').all(|segment| {
                !segment.is_empty()
                    && segment
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
            });
        if !is_plain_path {
            return Err(BadPublicUrl::BadPath);
        }
        let authority = origin[origin.find("://").map_or(0, |at| at + 3)..].to_owned();
        Ok(Self {
            base_length,
            prefix_start: origin.len(),
            loopback,
            authority,
            text: text.to_owned(),
        })
    }
}

/// Whether a host is this machine (RFC 6761 for its names).
fn is_this_machine(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicUrl({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_with_and_without_prefix() {
        for (text, base, origin, prefix, authority) in [
            (
                "https://vault.example",
                "https://vault.example",
                "https://vault.example",
                "",
                "vault.example",
            ),
            (
                "https://vault.example/",
                "https://vault.example",
                "https://vault.example",
                "",
                "vault.example",
            ),
            (
                "https://vault.example:8443/a/b",
                "https://vault.example:8443/a/b",
                "https://vault.example:8443",
                "/a/b",
                "vault.example:8443",
            ),
            (
                "https://vault.example/a/",
                "https://vault.example/a",
                "https://vault.example",
                "/a",
                "vault.example",
            ),
            (
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080",
                "",
                "127.0.0.1:8080",
            ),
            (
                "http://[::1]:8080",
                "http://[::1]:8080",
                "http://[::1]:8080",
                "",
                "[::1]:8080",
            ),
            (
                "http://localhost/x",
                "http://localhost/x",
                "http://localhost",
                "/x",
                "localhost",
            ),
        ] {
            let url: PublicUrl = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(url.as_str(), text);
            assert_eq!(url.base(), base);
            assert_eq!(url.origin(), origin);
            assert_eq!(url.prefix(), prefix);
            assert_eq!(url.authority(), authority);
            assert_eq!(url.join("/mcp"), format!("{base}/mcp"));
        }
    }

    #[test]
    fn what_is_refused() {
        use BadPublicUrl::{BadPath, NotAUrl, NotAnOrigin, NotCanonical, NotHttps};
        for (text, why) in [
            ("", NotAUrl),
            ("vault.example", NotAUrl),
            ("ftp://vault.example", NotAUrl),
            ("http://vault.example", NotHttps),
            ("http://10.0.0.1", NotHttps),
            ("https://user@vault.example", NotAnOrigin),
            ("https://vault.example/?x", NotAnOrigin),
            ("https://vault.example/#x", NotAnOrigin),
            (
                "https://Vault.example",
                NotCanonical("https://vault.example".into()),
            ),
            (
                "https://vault.example:443",
                NotCanonical("https://vault.example".into()),
            ),
            (
                "https://vault.example/a/../b",
                NotCanonical("https://vault.example/b".into()),
            ),
            ("https://vault.example//", BadPath),
            ("https://vault.example/a//b", BadPath),
            ("https://vault.example/a%20b", BadPath),
            ("https://vault.example/a;b", BadPath),
        ] {
            assert_eq!(text.parse::<PublicUrl>(), Err(why), "{text}");
        }
    }

    #[test]
    fn settings_out_of_bounds_change_nothing() {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        for (seconds, good) in [
            (i64::MIN, false),
            (0, false),
            (59, false),
            (60, true),
            (86_400, true),
            (86_401, false),
        ] {
            let before = config.token_ttl_seconds;
            assert_eq!(config.set_token_ttl(seconds).is_ok(), good, "{seconds}");
            let wanted = if good { seconds } else { before };
            assert_eq!(config.token_ttl_seconds, wanted);
        }
        for good in ["https://app.example", "http://127.0.0.1:6274"] {
            config.allow_origin(good).unwrap();
        }
        for bad in [
            "",
            "*",
            "null",
            "app.example",
            "https://app.example/",
            "https://App.example",
            "https://app.example:443",
            "https://user@app.example",
        ] {
            let refused = config.allow_origin(bad);
            assert_eq!(refused, Err(BadSetting::Origin(bad.to_owned())));
        }
        assert_eq!(
            config.allowed_origins,
            ["https://app.example", "http://127.0.0.1:6274"]
        );
        config
            .set_webhook_ports(["443", "9443"].into_iter())
            .unwrap();
        for bad in ["0", "65536", "https", "-1", ""] {
            let refused = config.set_webhook_ports(["443", bad].into_iter());
            assert_eq!(refused, Err(BadSetting::WebhookPort(bad.to_owned())));
        }
        assert_eq!(config.webhook_ports, [443, 9443]);
        assert_eq!(tool_names("dotted"), Ok(vault_mcp::Names::Dotted));
        assert_eq!(tool_names("plain"), Ok(vault_mcp::Names::Plain));
        assert!(tool_names("Dotted").is_err());
    }

    #[test]
    fn mapped_addresses_match_plain_ranges() {
        let mut config = Config::new("https://vault.example".parse().unwrap());
        config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        assert!(config.is_trusted_proxy("10.1.2.3".parse().unwrap()));
        assert!(config.is_trusted_proxy("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!config.is_trusted_proxy("192.0.2.1".parse().unwrap()));
    }
}
