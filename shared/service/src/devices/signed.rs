//! Verification of the signature of a device: the three headers, their form, the timestamp, and
//! Ed25519.

use std::time::{Duration, SystemTime};

use axum::http::Method;
use axum::http::header::{self, HeaderMap, HeaderValue};
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::name::Slug;
use vault_format::request::{
    DEVICE_HEADER, RequestError, SIGNATURE_HEADER, SignedRequest, TIMESTAMP_HEADER,
};
use vault_format::time::Timestamp;
use vault_store::recent::Recent;

use crate::error::{ErrorCode, Refusal};

/// The key that signed a request. A value proves that the signature was verified: only
/// [`verify_request`] creates one.
pub(super) struct Signer<'h> {
    key: PublicKey,
    text: &'h str,
    signature: &'h str,
    keys: &'h KeyCache,
    /// Vault that had admitted the key when this process last looked it up.
    admitted_by: Option<Slug>,
    is_repeated: bool,
}

impl<'h> Signer<'h> {
    pub(super) const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Returns the key's text as it was sent. A key has exactly one text, so records may be named
    /// by it.
    pub(super) const fn key_text(&self) -> &'h str {
        self.text
    }

    /// Whether this vault had admitted the key when this process last looked it up.
    pub(super) fn is_admitted_by(&self, slug: &Slug) -> bool {
        self.admitted_by.as_ref() == Some(slug)
    }

    /// Returns the SHA-256 of the signature's text. A signature has exactly one text, and signing
    /// the same request in another second gives another signature, so equal hashes mean a copied
    /// request.
    pub(super) fn signature_hash(&self) -> Digest {
        Digest::of(self.signature.as_bytes())
    }

    /// Whether the request is a copy of one that was counted before.
    pub(super) const fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Records whether the request is a copy of one that was counted before.
    pub(super) fn with_repeated(self, is_repeated: bool) -> Self {
        Self {
            is_repeated,
            ..self
        }
    }

    /// Returns the name of the device in the log: the first 12 characters of its key's hash.
    pub(super) fn short_id(&self) -> String {
        let mut id = self.key.key_id().to_string();
        id.truncate(12);
        id
    }

    /// Caches the parsed key for the next request. Call it only if this vault has admitted the key,
    /// so that other keys cannot displace admitted ones.
    pub(super) fn cache_key(&self, slug: &Slug) {
        if !self.is_admitted_by(slug) {
            let cached = (self.key, slug.clone());
            self.keys
                .0
                .insert_value(self.text.into(), cached, KEY_BYTES);
        }
    }
}

/// Verifies a request as far as that is possible without access to the store. Fails with 401:
/// `SignatureRequired`, `SignatureInvalid` or `TimestampOutOfRange`.
pub(super) fn verify_request<'h>(
    keys: &'h KeyCache,
    now: Timestamp,
    method: &Method,
    path: &str,
    headers: &'h HeaderMap,
) -> Result<Signer<'h>, Refusal> {
    let text = |name| match single_header(headers, name) {
        None => Ok(None),
        // A value that is not text counts as malformed, not as missing.
        Some(value) => value
            .to_str()
            .map(Some)
            .map_err(|_| Refusal::new(ErrorCode::SignatureInvalid)),
    };
    // All three must be present before the form of any is checked: the order is part of the
    // contract.
    if HEADERS
        .iter()
        .any(|name| single_header(headers, name).is_none())
    {
        return Err(ErrorCode::SignatureRequired.into());
    }
    let [device, timestamp, signature] = HEADERS.map(text);
    let (device, timestamp, signature) = (device?, timestamp?, signature?);

    // A cached key was parsed from exactly this text, so only parsing is saved; the signature is
    // verified in either case.
    let cached = device.and_then(|device| keys.0.find(device));
    let key_of = |text: &str| {
        cached
            .as_ref()
            .map_or_else(|| text.parse(), |(key, _)| Ok(*key))
    };
    let key = SignedRequest::parse_with(device, timestamp, signature, key_of)
        .and_then(|signed| signed.verify(method.as_str(), path, now))
        .map_err(|error| to_refusal(error, now))?;
    Ok(Signer {
        key,
        text: device.unwrap_or_default(),
        signature: signature.unwrap_or_default(),
        keys,
        admitted_by: cached.map(|(_, slug)| slug),
        is_repeated: false,
    })
}

/// Headers of a signed request, in the order of their checks.
const HEADERS: [&str; 3] = [DEVICE_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER];

fn to_refusal(error: RequestError, now: Timestamp) -> Refusal {
    match error {
        RequestError::SignatureRequired => ErrorCode::SignatureRequired.into(),
        RequestError::HeaderInvalid | RequestError::SignatureInvalid => {
            ErrorCode::SignatureInvalid.into()
        }
        // `Date` is the time that was compared, so that the device can tell by how much its clock
        // is off.
        RequestError::TimestampOutOfRange => {
            let refusal = Refusal::new(ErrorCode::TimestampOutOfRange);
            match HeaderValue::from_str(&http_date(now)) {
                Ok(date) => refusal.header(header::DATE, date),
                Err(_) => refusal,
            }
        }
    }
}

/// Returns the time as an IMF-fixdate (RFC 9110, section 5.6.7), for the header `Date`.
fn http_date(time: Timestamp) -> String {
    let since = Duration::from_secs(u64::try_from(time.unix()).unwrap_or_default());
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

/// Returns a header if it was sent exactly once.
fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    // Programs differ in which of two values they use, so a repeated header counts as missing.
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// Cache of the parsed keys of admitted devices, with the vaults that admitted them, by the text of
/// the key: parsing a key costs several times as much as verifying a signature. No decision depends
/// on the cache.
pub(super) struct KeyCache(Recent<Box<str>, (PublicKey, Slug)>);

/// Approximate maximum number of cached keys.
const MAX_KEYS: usize = 8192;

impl KeyCache {
    pub(super) fn new() -> Self {
        Self(Recent::new(MAX_KEYS * KEY_BYTES))
    }
}

/// Estimated size of a cached key with its text, in bytes.
const KEY_BYTES: usize = 512;
