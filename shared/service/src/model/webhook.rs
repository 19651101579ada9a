//! Webhooks: the address of an endpoint that receives notices, and the signatures by which it
//! recognizes them.
//!
//! Signatures follow the Standard Webhooks specification, version 1: HMAC-SHA256 over id, time and
//! body, so that an endpoint can reject forged, changed and old messages.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use url::{Host, Url};
use vault_format::address::is_public;
use vault_format::time::Timestamp;
use vault_store::random::{Random, random_bytes};
use zeroize::Zeroizing;

/// Maximum length of an endpoint's address, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 1024;
/// Prefix of a signing secret, as the specification writes it.
const SECRET_PREFIX: &str = "whsec_";

/// The address of an endpoint: https on a public host, or http on this machine.
///
/// A host name is resolved when a notice is sent, and every address of it is checked then.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct WebhookAddress(Url);

/// Error: a text is not the address of an endpoint.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadWebhookAddress {
    /// Not an absolute URL, or longer than [`MAX_ADDRESS_BYTES`].
    #[error("The address must be an absolute URL of at most {MAX_ADDRESS_BYTES} bytes.")]
    NotAUrl,
    /// Neither https nor plain http on this machine.
    #[error("The address must begin with https://.")]
    NotHttps,
    /// A user name or a password, which would be shown in lists.
    #[error("The address must not contain a user name or a password; notices are signed instead.")]
    Credentials,
    /// A fragment, which is never sent.
    #[error("The address must not contain a fragment.")]
    Fragment,
    /// The port is not one of `VAULT_WEBHOOK_PORTS`.
    #[error("The port of the address must be one of those to which this service sends notices.")]
    Port,
    /// An IP address that is not public.
    #[error("The address must be public: this service sends nothing into its own network.")]
    NotPublic,
}

impl WebhookAddress {
    /// Returns the address in the form in which it is requested.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether notices may be sent to the port of the address: one of `ports`, or any on this
    /// machine.
    pub fn has_port_of(&self, ports: &[u16]) -> bool {
        let port = self.0.port_or_known_default();
        self.is_local() || port.is_some_and(|port| ports.contains(&port))
    }

    /// Whether the endpoint is on this machine. The caller must accept such an address only if the
    /// service itself is reached on this machine.
    pub fn is_local(&self) -> bool {
        self.0.scheme() == "http"
    }
}

impl FromStr for WebhookAddress {
    type Err = BadWebhookAddress;

    fn from_str(text: &str) -> Result<Self, BadWebhookAddress> {
        if text.len() > MAX_ADDRESS_BYTES {
            return Err(BadWebhookAddress::NotAUrl);
        }
        let url = Url::parse(text.trim()).map_err(|_| BadWebhookAddress::NotAUrl)?;
        // Checked again, because escapes of the parser may lengthen the text.
        if url.as_str().len() > MAX_ADDRESS_BYTES {
            return Err(BadWebhookAddress::NotAUrl);
        }
        let ip = match url.host().ok_or(BadWebhookAddress::NotHttps)? {
            // A name may have another address by the time of sending, so a check here would prove
            // nothing.
            Host::Domain(_) => None,
            Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
            Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
        };
        // A user name and a password would be shown in lists and written to logs.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadWebhookAddress::Credentials);
        }
        if url.fragment().is_some() {
            return Err(BadWebhookAddress::Fragment);
        }
        match (url.scheme(), ip) {
            ("https", Some(ip)) if !is_public(ip) => Err(BadWebhookAddress::NotPublic),
            ("https", _) => Ok(Self(url)),
            // A name would have to be resolved; only a literal address proves that it is this
            // machine.
            ("http", Some(ip)) if ip.is_loopback() => Ok(Self(url)),
            _ => Err(BadWebhookAddress::NotHttps),
        }
    }
}

impl fmt::Display for WebhookAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl From<WebhookAddress> for String {
    fn from(address: WebhookAddress) -> Self {
        address.0.into()
    }
}

impl TryFrom<String> for WebhookAddress {
    type Error = BadWebhookAddress;

    fn try_from(text: String) -> Result<Self, BadWebhookAddress> {
        text.parse()
    }
}

/// The secret that signs the notices to one endpoint: 256 bits, shown once to the owner who adds
/// it.
///
/// It is stored itself and not as a hash, since every signature needs it.
#[derive(Clone, Deserialize, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct SigningSecret(Zeroizing<[u8; 32]>);

/// Error: a text is not a signing secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not `{SECRET_PREFIX}` with 32 bytes in base64")]
pub struct BadSigningSecret;

impl SigningSecret {
    /// Creates a random secret.
    pub fn fresh(random: &dyn Random) -> Self {
        Self(Zeroizing::new(random_bytes::<32>(random)))
    }

    /// Returns the text that the owner gives the endpoint: `whsec_` and base64.
    pub fn text(&self) -> String {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(*self.0))
    }

    /// Returns the value of the header `webhook-signature` for a message that is sent at `now`.
    pub fn sign(&self, id: &str, now: Timestamp, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("HMAC takes any key");
        mac.update(format!("{id}.{}.", now.unix()).as_bytes());
        mac.update(body.as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SigningSecret(…)")
    }
}

impl From<SigningSecret> for String {
    fn from(secret: SigningSecret) -> Self {
        secret.text()
    }
}

impl TryFrom<String> for SigningSecret {
    type Error = BadSigningSecret;

    fn try_from(text: String) -> Result<Self, BadSigningSecret> {
        let text = Zeroizing::new(text);
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(BadSigningSecret)?;
        let raw = STANDARD.decode(encoded).map_err(|_| BadSigningSecret)?;
        let raw = Zeroizing::new(raw);
        let raw = <[u8; 32]>::try_from(raw.as_slice()).map_err(|_| BadSigningSecret)?;
        Ok(Self(Zeroizing::new(raw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked with the library `standardwebhooks` 1.1.0 for Python.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let text = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let secret = SigningSecret::try_from(text.to_owned()).unwrap();
        assert_eq!(secret.text(), text);
        let body = r#"{"type":"machine_waiting","timestamp":"2026-11-24T10:00:00Z","data":{"vault":"team","waiting":1,"machines":[{"name":"laptop","fingerprint":"dev:aaaa"}]}}"#;
        for (id, at, body, signature) in [
            (
                "msg_01kt5m9a0000000000000000a1",
                1_795_514_400,
                body,
                "v1,CqbKkSktFbfhrYajnENAJVFAXGzz10thptfhububhVY=",
            ),
            (
                "msg_2",
                1_795_514_401,
                "{\"name\":\"B\u{fc}ro\"}",
                "v1,Xqt/j5/TJPxL6/LBolvheVtnGijLIHHduAYh3xo6P+0=",
            ),
        ] {
            assert_eq!(secret.sign(id, Timestamp::from_unix(at), body), signature);
        }
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
    }

    #[test]
    fn addresses_are_public_or_this_machine() {
        use BadWebhookAddress::{Credentials, Fragment, NotAUrl, NotHttps, NotPublic};
        for (text, outcome) in [
            ("https://hooks.example/vault", Ok(false)),
            ("https://hooks.example:8443/a?b=c", Ok(false)),
            ("https://1.1.1.1/a", Ok(false)),
            ("http://127.0.0.1:9000/a", Ok(true)),
            ("http://[::1]:9000/a", Ok(true)),
            ("http://hooks.example/vault", Err(NotHttps)),
            ("http://localhost/vault", Err(NotHttps)),
            ("http://10.0.0.1/", Err(NotHttps)),
            ("ftp://hooks.example/", Err(NotHttps)),
            ("mailto:ann@example.org", Err(NotHttps)),
            ("https://127.0.0.1/", Err(NotPublic)),
            ("https://169.254.169.254/latest", Err(NotPublic)),
            ("https://[fd00::1]/", Err(NotPublic)),
            ("https://0x7f.1/", Err(NotPublic)),
            ("https://ann:secret@hooks.example/", Err(Credentials)),
            ("https://hooks.example/#a", Err(Fragment)),
            ("hooks.example", Err(NotAUrl)),
            ("", Err(NotAUrl)),
        ] {
            let parsed = text.parse::<WebhookAddress>();
            assert_eq!(parsed.map(|address| address.is_local()), outcome, "{text}");
        }
        let long = format!("https://hooks.example/{}", "a".repeat(MAX_ADDRESS_BYTES));
        assert_eq!(long.parse::<WebhookAddress>(), Err(NotAUrl));
    }
}
