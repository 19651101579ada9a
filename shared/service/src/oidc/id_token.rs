//! ID tokens: what a provider signs about a person (OpenID Connect Core, sections 2 and 3.1.3.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use vault_format::time::Timestamp;

use super::keys::KeySet;

/// How far the clocks of provider and service may differ, in seconds: five minutes.
pub const SKEW_SECONDS: i64 = 300;
/// Longest token, in bytes.
const LONGEST: usize = 16 * 1024;
/// Longest subject, in bytes (OpenID Connect Core, section 2).
const LONGEST_SUBJECT: usize = 255;

/// A token whose signature is still unchecked.
pub struct IdToken<'t> {
    header: Header,
    /// What is signed: header and payload as they came.
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

/// What a token must be about.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'e> {
    /// The provider.
    pub issuer: &'e str,
    /// This service.
    pub client_id: &'e str,
    /// The nonce of the request that the token answers.
    pub nonce: &'e str,
    /// When that request was made.
    pub asked_at: Timestamp,
    /// The time.
    pub now: Timestamp,
    /// Whether the provider was asked to make the person enter credentials.
    pub fresh: bool,
}

/// What a good token says about a person.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Person {
    /// The provider's name for the person, which never goes to another one.
    pub subject: String,
    /// The address.
    pub address: Address,
}

/// The address of a person, as the provider knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Address {
    /// The provider names none.
    Missing,
    /// The provider has not verified that it is the person's.
    Unverified(String),
    /// The provider has verified it.
    Verified(String),
}

/// Why a token says nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadIdToken {
    /// Not a signed JSON Web Token.
    #[error("the ID token is not valid")]
    Form,
    /// No key of the provider has this name and algorithm.
    #[error("no key of the provider has the name and the algorithm of the ID token")]
    UnknownKey,
    /// The signature is not the key's.
    #[error("the signature of the ID token is not valid")]
    Signature,
    /// Another provider's.
    #[error("the ID token is from another provider")]
    Issuer,
    /// For another client of the provider.
    #[error("the ID token is for another client")]
    Audience,
    /// The answer to another request.
    #[error("the nonce of the ID token is not that of the request")]
    Nonce,
    /// Expired, or of another time than the request.
    #[error("the ID token has expired, or the clocks differ by more than five minutes")]
    Time,
    /// The person entered no credentials although the request asked for them.
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
    /// Takes a token apart.
    pub fn parse(text: &'t str) -> Result<Self, BadIdToken> {
        let (signed, signature) = text.rsplit_once('.').ok_or(BadIdToken::Form)?;
        let (header, payload) = signed.split_once('.').ok_or(BadIdToken::Form)?;
        if text.len() > LONGEST || payload.contains('.') {
            return Err(BadIdToken::Form);
        }
        let header: Header = decoded(header)?;
        // An extension that must be understood, and is not (RFC 7515, section 4.1.11).
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

    /// Whether one of `keys` has the name and the algorithm of the token.
    pub fn has_key(&self, keys: &KeySet) -> bool {
        self.key(keys).is_some()
    }

    fn key<'k>(&self, keys: &'k KeySet) -> Option<&'k super::keys::Key> {
        keys.find(self.header.kid.as_deref(), &self.header.alg)
    }

    /// What the token says about a person, once its signature and everything else is good.
    pub fn verify(&self, keys: &KeySet, expected: Expected<'_>) -> Result<Person, BadIdToken> {
        let key = self.key(keys).ok_or(BadIdToken::UnknownKey)?;
        if !key.verifies(self.signed.as_bytes(), &self.signature) {
            return Err(BadIdToken::Signature);
        }
        let claims: Claims = decoded(self.payload)?;
        claims.check(expected)?;
        let address = Address::of(claims.email, claims.email_verified.as_ref());
        Ok(Person {
            subject: claims.sub,
            address,
        })
    }
}

impl Claims {
    fn check(&self, expected: Expected<'_>) -> Result<(), BadIdToken> {
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
        let authorized = match &self.azp {
            Some(azp) => azp == expected.client_id,
            None => !others,
        };
        if !ours || !authorized {
            return Err(BadIdToken::Audience);
        }
        if self.nonce.as_deref() != Some(expected.nonce) {
            return Err(BadIdToken::Nonce);
        }
        let time = |number: &Number| seconds(number).ok_or(BadIdToken::Time);
        let now = expected.now.unix();
        let (expires, issued) = (time(&self.exp)?, time(&self.iat)?);
        let asked = expected.asked_at.unix();
        if now >= expires.saturating_add(SKEW_SECONDS)
            || issued > now + SKEW_SECONDS
            || issued < asked - SKEW_SECONDS
        {
            return Err(BadIdToken::Time);
        }
        // Providers that know nothing of `max_age` leave the claim out.
        if let Some(entered) = self.auth_time.as_ref().filter(|_| expected.fresh)
            && time(entered)? < asked - SKEW_SECONDS
        {
            return Err(BadIdToken::NotFresh);
        }
        let printable = !self.sub.chars().any(char::is_control);
        if self.sub.is_empty() || self.sub.len() > LONGEST_SUBJECT || !printable {
            return Err(BadIdToken::Subject);
        }
        Ok(())
    }
}

impl Address {
    /// The address of the claims `email` and `email_verified`. Some providers write the second as
    /// text.
    pub fn of(email: Option<String>, verified: Option<&Value>) -> Self {
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

/// Whole seconds of a `NumericDate`, which may have a fraction (RFC 7519, section 2).
fn seconds(number: &Number) -> Option<i64> {
    if let Some(whole) = number.as_i64() {
        return Some(whole);
    }
    let text = number.as_f64()?.trunc().to_string();
    text.parse().ok()
}

fn decoded<T: DeserializeOwned>(part: &str) -> Result<T, BadIdToken> {
    let bytes = URL_SAFE_NO_PAD.decode(part);
    let bytes = bytes.map_err(|_| BadIdToken::Form)?;
    serde_json::from_slice(&bytes).map_err(|_| BadIdToken::Form)
}
