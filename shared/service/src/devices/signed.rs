//! Device request signatures: headers, canonical form, timestamp, Ed25519.

use std::time::{Duration, SystemTime};

use axum::http::Method;
use axum::http::header::{self, HeaderMap, HeaderValue};
use vault_format::keys::PublicKey;
use vault_format::request::{
    DEVICE_HEADER, RequestError, SIGNATURE_HEADER, SignedRequest, TIMESTAMP_HEADER,
};
use vault_format::time::Timestamp;
use vault_store::recent::Recent;

use crate::error::{ErrorCode, Refusal};

/// The key that signed a request: proof that it did. Only [`verify`] makes one.
pub(super) struct Signer<'h> {
    key: PublicKey,
    text: &'h str,
    keys: &'h KnownKeys,
    is_known: bool,
}

impl<'h> Signer<'h> {
    /// The key.
    pub(super) const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The key's text as it was sent; there is only one text for a key.
    pub(super) const fn text(&self) -> &'h str {
        self.text
    }

    /// What the log calls this device: the beginning of its key's hash.
    pub(super) fn short_id(&self) -> String {
        let mut id = self.key.key_id().to_string();
        id.truncate(12);
        id
    }

    /// Keeps the parsed key for the next request; called once the key turned out to be enrolled, so
    /// unknown keys cannot push devices out.
    pub(super) fn remember(&self) {
        if !self.is_known {
            self.keys.0.insert(self.text.into(), self.key, KEY_BYTES);
        }
    }
}

/// Checks a request as far as it can be checked without a look-up; 401 in four words.
pub(super) fn verify<'h>(
    keys: &'h KnownKeys,
    now: Timestamp,
    method: &Method,
    path: &str,
    headers: &'h HeaderMap,
) -> Result<Signer<'h>, Refusal> {
    let text = |name| match once(headers, name) {
        None => Ok(None),
        // A value that is not text is there, but not in its form.
        Some(value) => value
            .to_str()
            .map(Some)
            .map_err(|_| Refusal::new(ErrorCode::SignatureInvalid)),
    };
    // All three are looked for before the form of any is judged.
    if HEADERS.iter().any(|name| once(headers, name).is_none()) {
        return Err(ErrorCode::SignatureRequired.into());
    }
    let [device, timestamp, signature] = HEADERS.map(text);
    let (device, timestamp, signature) = (device?, timestamp?, signature?);

    let held = device.and_then(|device| keys.0.find(device));
    let key_of = |text: &str| held.map_or_else(|| text.parse(), Ok);
    let key = SignedRequest::parse_with(device, timestamp, signature, key_of)
        .and_then(|signed| signed.verify(method.as_str(), path, now))
        .map_err(|error| refused(error, now))?;
    Ok(Signer {
        key,
        text: device.unwrap_or_default(),
        keys,
        is_known: held.is_some(),
    })
}

const HEADERS: [&str; 3] = [DEVICE_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER];

fn refused(error: RequestError, now: Timestamp) -> Refusal {
    match error {
        RequestError::SignatureRequired => ErrorCode::SignatureRequired.into(),
        RequestError::HeaderInvalid | RequestError::SignatureInvalid => {
            ErrorCode::SignatureInvalid.into()
        }
        // The device's owner is told by how much its clock is off: by the time that decided.
        RequestError::TimestampOutOfRange => {
            let refusal = Refusal::new(ErrorCode::TimestampOutOfRange);
            match HeaderValue::from_str(&http_date(now)) {
                Ok(date) => refusal.header(header::DATE, date),
                Err(_) => refusal,
            }
        }
    }
}

/// The time as an IMF-fixdate (RFC 9110, section 5.6.7), for the header `Date`.
fn http_date(time: Timestamp) -> String {
    let since = Duration::from_secs(u64::try_from(time.unix()).unwrap_or_default());
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

/// A header that was sent exactly once.
fn once<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// Parsed keys of enrolled devices by their text: parsing one costs several times what verifying a
/// signature costs. Holds nothing that a decision rests on.
pub(super) struct KnownKeys(Recent<Box<str>, PublicKey>);

/// Most keys that are kept, roughly.
const MAX_KEYS: usize = 8192;

impl KnownKeys {
    pub(super) fn new() -> Self {
        Self(Recent::new(MAX_KEYS * KEY_BYTES))
    }
}

/// What a key takes, with its text and its place.
const KEY_BYTES: usize = 512;
