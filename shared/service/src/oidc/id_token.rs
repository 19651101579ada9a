//! ID tokens: the statements that a provider signs about a person (OpenID Connect Core, sections 2
//! and 3.1.3.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use vault_format::time::Timestamp;

use super::keys::KeySet;

/// Accepted difference between the clocks of provider and service, in seconds: five minutes.
pub const SKEW_SECONDS: i64 = 300;
const MAX_ID_TOKEN_BYTES: usize = 16 * 1024;
/// Maximum length of a subject, in bytes (OpenID Connect Core, section 2).
const MAX_SUBJECT_BYTES: usize = 255;

/// An ID token, parsed but not verified yet.
pub struct IdToken<'t> {
    header: Header,
    /// The signed text: header and payload as received.
    signed: &'t str,
    payload: &'t str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default)]
    crit: Option<Value>,
}

/// The values that a token must have to be an answer to one sign-in.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedClaims<'e> {
    /// Issuer URL of the provider (`iss`).
    pub issuer: &'e str,
    /// Client id of this service at the provider (`aud`).
    pub client_id: &'e str,
    /// Nonce of the request that the token answers.
    pub nonce: &'e str,
    /// Time at which the browser was sent to the provider; a token from before is refused.
    pub asked_at: Timestamp,
    /// Time at which the token is verified, by the service's clock.
    pub now: Timestamp,
    /// Whether the provider was asked to make the person enter credentials.
    pub fresh: bool,
}

/// The person whom a verified token is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Person {
    /// Identifier of the person at the provider; the provider never gives it to another person.
    pub subject: String,
    /// E-mail address of the person, if the provider knows one.
    pub address: Address,
    /// Time at which the person entered credentials for this sign-in. `None` if the request did not
    /// ask for that or the provider does not state it. Never in the future.
    pub entered_at: Option<Timestamp>,
}

/// The e-mail address of a person, as the provider knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// The provider states no address.
    Missing,
    /// The provider has not verified that the address belongs to the person.
    Unverified(String),
    /// The provider has verified the address.
    Verified(String),
}

/// Reason why an ID token does not prove who signed in.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadIdToken {
    /// The text is not a signed JSON Web Token.
    #[error("the ID token is not valid")]
    Form,
    /// The provider has no key with this id and algorithm.
    #[error("no key of the provider has the name and the algorithm of the ID token")]
    UnknownKey,
    /// The provider's key did not make the signature, so nothing in the payload counts.
    #[error("the signature of the ID token is not valid")]
    Signature,
    /// `iss` is not the issuer in the settings of this service.
    #[error("the ID token is from another provider")]
    Issuer,
    /// `aud` lacks the client id of this service, or `azp` does not name it where it must.
    #[error("the ID token is for another client")]
    Audience,
    /// `nonce` is not that of the request, so the token answers another sign-in.
    #[error("the nonce of the ID token is not that of the request")]
    Nonce,
    /// The token has expired, or was not issued at the time of the request.
    #[error("the ID token has expired, or the clocks differ by more than five minutes")]
    Time,
    /// The person entered no credentials, although the request demanded it.
    #[error("the provider did not ask the person to sign in again")]
    NotFresh,
    /// `sub` is missing, empty or too long.
    #[error("the subject of the ID token is not valid")]
    Subject,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    #[serde(default)]
    azp: Option<String>,
    exp: Number,
    iat: Number,
    #[serde(default)]
    nonce: Option<String>,
    #[serde(default)]
    auth_time: Option<Number>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    email_verified: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl<'t> IdToken<'t> {
    /// Splits a token into its parts, without verifying it.
    pub fn parse(text: &'t str) -> Result<Self, BadIdToken> {
        let (signed, signature) = text.rsplit_once('.').ok_or(BadIdToken::Form)?;
        let (header, payload) = signed.split_once('.').ok_or(BadIdToken::Form)?;
        if text.len() > MAX_ID_TOKEN_BYTES || payload.contains('.') {
            return Err(BadIdToken::Form);
        }
        let header: Header = decode_json(header)?;
        // The service understands no critical extension (RFC 7515, section 4.1.11).
        if header.crit.is_some() {
            return Err(BadIdToken::Form);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature);
        Ok(Self {
            header,
            signed,
            payload,
            signature: signature.map_err(|_| BadIdToken::Form)?,
        })
    }

    /// Whether one of `keys` has the key id and the algorithm of the token.
    pub fn has_key(&self, keys: &KeySet) -> bool {
        self.find_key(keys).is_some()
    }

    fn find_key<'k>(&self, keys: &'k KeySet) -> Option<&'k super::keys::Key> {
        keys.find_key(self.header.kid.as_deref(), &self.header.alg)
    }

    /// Verifies the signature and all claims; returns the person whom the token is about.
    pub fn verify(
        &self,
        keys: &KeySet,
        expected: ExpectedClaims<'_>,
    ) -> Result<Person, BadIdToken> {
        // The signature is verified before anything of the payload is read.
        let key = self.find_key(keys).ok_or(BadIdToken::UnknownKey)?;
        if !key.verifies(self.signed.as_bytes(), &self.signature) {
            return Err(BadIdToken::Signature);
        }
        let claims: Claims = decode_json(self.payload)?;
        claims.check_claims(expected)?;
        let stated = claims.auth_time.as_ref().filter(|_| expected.fresh);
        // Cut to the present time of this service: a time in the future would stay fresh for
        // longer.
        let entered_at = stated
            .and_then(whole_seconds)
            .map(|at| at.min(expected.now.unix()));
        let address = Address::from_claims(claims.email, claims.email_verified.as_ref());
        Ok(Person {
            subject: claims.sub,
            address,
            // `check_claims` has refused a time that lies before the request by more than the
            // accepted difference of the clocks.
            entered_at: entered_at.map(Timestamp::from_unix),
        })
    }
}

impl Claims {
    fn check_claims(&self, expected: ExpectedClaims<'_>) -> Result<(), BadIdToken> {
        if self.iss != expected.issuer {
            return Err(BadIdToken::Issuer);
        }
        let (ours, others) = match &self.aud {
            Audience::One(one) => (one == expected.client_id, false),
            Audience::Many(many) => {
                let ours = many.iter().any(|one| one == expected.client_id);
                (ours, many.len() > 1)
            }
        };
        // A token for several audiences must name, in `azp`, the client that it was issued to.
        // Otherwise a token that another client obtained would sign its user in here.
        let authorized = match &self.azp {
            Some(azp) => azp == expected.client_id,
            None => !others,
        };
        if !ours || !authorized {
            return Err(BadIdToken::Audience);
        }
        // The nonce ties the token to the browser that began the sign-in; an injected token has
        // another.
        if self.nonce.as_deref() != Some(expected.nonce) {
            return Err(BadIdToken::Nonce);
        }
        let time = |number: &Number| whole_seconds(number).ok_or(BadIdToken::Time);
        let now = expected.now.unix();
        let (expires, issued) = (time(&self.exp)?, time(&self.iat)?);
        let request_time = expected.asked_at.unix();
        // A token from before the request cannot be an answer to it.
        if now >= expires.saturating_add(SKEW_SECONDS)
            || issued > now + SKEW_SECONDS
            || issued < request_time - SKEW_SECONDS
        {
            return Err(BadIdToken::Time);
        }
        // Providers that ignore `max_age` do not send the claim.
        if let Some(entered) = self.auth_time.as_ref().filter(|_| expected.fresh)
            && time(entered)? < request_time - SKEW_SECONDS
        {
            return Err(BadIdToken::NotFresh);
        }
        let printable = !self.sub.chars().any(char::is_control);
        if self.sub.is_empty() || self.sub.len() > MAX_SUBJECT_BYTES || !printable {
            return Err(BadIdToken::Subject);
        }
        Ok(())
    }
}

impl Address {
    /// Reads the address from the claims `email` and `email_verified`. Some providers send the
    /// latter as text.
    pub fn from_claims(email: Option<String>, verified: Option<&Value>) -> Self {
        let verified = match verified {
            Some(Value::Bool(verified)) => *verified,
            Some(Value::String(text)) => text == "true",
            _ => false,
        };
        match email {
            None => Self::Missing,
            Some(email) if verified => Self::Verified(email),
            Some(email) => Self::Unverified(email),
        }
    }
}

/// Returns the whole seconds of a `NumericDate`, which may have a fraction (RFC 7519, section 2).
fn whole_seconds(number: &Number) -> Option<i64> {
    if let Some(whole) = number.as_i64() {
        return Some(whole);
    }
    let text = number.as_f64()?.trunc().to_string();
    text.parse().ok()
}

fn decode_json<T: DeserializeOwned>(part: &str) -> Result<T, BadIdToken> {
    let bytes = URL_SAFE_NO_PAD.decode(part);
    let bytes = bytes.map_err(|_| BadIdToken::Form)?;
    serde_json::from_slice(&bytes).map_err(|_| BadIdToken::Form)
}
