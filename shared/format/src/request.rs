//! Requests that devices sign with their key, and the strict parser of paths under `/v/`.
//!
//! The signed bytes are METHOD LF path LF seconds, with the path exactly as sent and without its
//! query. Nothing is normalised, decoded or trimmed on either side: two texts that differ are two
//! requests. The checks in this module need no store; whether the key belongs to an enrolled device
//! is checked elsewhere.

use crate::hash::Digest;
use crate::keys::{BadKey, PublicKey, SecretKey, Signature};
use crate::name::Slug;
use crate::text::encode_base32;
use crate::time::Timestamp;

/// Name of the header with the device's public key.
pub const DEVICE_HEADER: &str = "x-vault-device";
/// Name of the header with the time of the request in Unix seconds.
pub const TIMESTAMP_HEADER: &str = "x-vault-timestamp";
/// Name of the header with the signature.
pub const SIGNATURE_HEADER: &str = "x-vault-signature";

/// The largest difference between the clocks of device and service, in seconds, inclusive.
pub const MAX_SKEW_SECONDS: u64 = 300;

/// The three headers of a signed request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceHeaders {
    /// `X-Vault-Device`: the public key.
    pub device: String,
    /// `X-Vault-Timestamp`: Unix seconds in decimal.
    pub timestamp: String,
    /// `X-Vault-Signature`: the signature.
    pub signature: String,
}

/// Signs a request. `path` is the path as it will be sent, without query and with the prefix of the
/// service's address.
pub fn sign_request(key: &SecretKey, method: &str, path: &str, now: Timestamp) -> DeviceHeaders {
    DeviceHeaders {
        device: key.public().to_string(),
        timestamp: now.unix().to_string(),
        signature: key
            .sign(&signed_bytes(method, path, now.unix()))
            .to_string(),
    }
}

fn signed_bytes(method: &str, path: &str, seconds: i64) -> Vec<u8> {
    // No method, path or number can contain a line feed, so no two requests have the same bytes.
    // The host is left out, because a device uses each key for one origin and slug only.
    format!("{method}\n{path}\n{seconds}").into_bytes()
}

/// A reason to reject a signed request, in the order of the checks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// One of the three headers is missing.
    #[error("the request carries no device signature")]
    SignatureRequired,
    /// A header is not in its canonical form, or the key fails a check of [`PublicKey`].
    #[error("a header of the device signature is not in its canonical form")]
    HeaderInvalid,
    /// The time of the request is more than 300 seconds away from the service's clock.
    #[error("the time of the request is more than {MAX_SKEW_SECONDS} seconds away")]
    TimestampOutOfRange,
    /// The signature does not cover this request.
    #[error("the device signature is not valid for this request")]
    SignatureInvalid,
}

/// The headers of a signed request: well-formed, but not verified.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest {
    key: PublicKey,
    seconds: u64,
    signature: Signature,
}

impl SignedRequest {
    /// Reads the three headers. Fails with `SignatureRequired` if one is missing, and with
    /// `HeaderInvalid` if one is not canonical. The caller passes a repeated header joined by
    /// commas, or as missing.
    pub fn parse(
        device: Option<&str>,
        timestamp: Option<&str>,
        signature: Option<&str>,
    ) -> Result<Self, RequestError> {
        Self::parse_with(device, timestamp, signature, str::parse)
    }

    /// Like [`SignedRequest::parse`], with a function that parses the key, so that a service can
    /// reuse keys that it has parsed before: the full check of a key costs about as much as the
    /// signature.
    pub fn parse_with(
        device: Option<&str>,
        timestamp: Option<&str>,
        signature: Option<&str>,
        key_of: impl FnOnce(&str) -> Result<PublicKey, BadKey>,
    ) -> Result<Self, RequestError> {
        let (Some(device), Some(timestamp), Some(signature)) = (device, timestamp, signature)
        else {
            return Err(RequestError::SignatureRequired);
        };
        // Run the cheap checks first. The check of the key is the expensive one.
        let seconds = parse_seconds(timestamp).ok_or(RequestError::HeaderInvalid)?;
        let signature = signature.parse().map_err(|_| RequestError::HeaderInvalid)?;
        let key = key_of(device).map_err(|_| RequestError::HeaderInvalid)?;
        Ok(Self {
            key,
            seconds,
            signature,
        })
    }

    /// The key that the request names. It proves nothing until [`SignedRequest::verify`] succeeds.
    pub const fn claimed_key(&self) -> &PublicKey {
        &self.key
    }

    /// Checks time, then signature, and returns the key that signed; `raw_path` is the path as
    /// received, without query.
    pub fn verify(
        &self,
        method: &str,
        raw_path: &str,
        now: Timestamp,
    ) -> Result<PublicKey, RequestError> {
        let seconds = i64::try_from(self.seconds).map_err(|_| RequestError::TimestampOutOfRange)?;
        // Check the time before the signature: a device with a wrong clock then learns the reason,
        // and an old request costs no verification.
        if seconds.abs_diff(now.unix()) > MAX_SKEW_SECONDS {
            return Err(RequestError::TimestampOutOfRange);
        }
        if self
            .key
            .verify(&signed_bytes(method, raw_path, seconds), &self.signature)
        {
            Ok(self.key)
        } else {
            Err(RequestError::SignatureInvalid)
        }
    }
}

/// Reads decimal seconds without sign or leading zero, at most 20 digits. A number that does not
/// fit becomes the largest one, which no clock shows.
fn parse_seconds(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().unwrap_or(u64::MAX))
}

/// Derives the id of a device in a namespace from slug and key. Two concurrent enrolments of one
/// key so get the same id.
pub fn device_id(slug: &Slug, key: &PublicKey) -> String {
    let mut text =
        // The prefix keeps this digest apart from every other use of SHA-256 over slug and key.
        encode_base32(Digest::of(format!("vault-device/1\n{slug}\n{key}").as_bytes()).as_bytes());
    text.truncate(26);
    format!("dev_{text}")
}

pub mod route {
    //! The four routes under `/v/`, with one function that parses a raw path and one that writes
    //! it.

    use std::fmt;

    use crate::hash::Digest;
    use crate::name::Slug;

    /// The longest path that can be valid, in bytes.
    pub const MAX_PATH: usize = 255;

    /// A route under `/v/`. `Display` writes the path, beginning with `/v/`.
    #[derive(Clone, Debug, Eq, Hash, PartialEq)]
    pub enum Route {
        /// `/v/<slug>/devices`: enrolment.
        Devices {
            /// Slug of the namespace.
            slug: Slug,
        },
        /// `/v/<slug>/devices/current`: the state of the device that sends the request.
        DeviceCurrent {
            /// Slug of the namespace.
            slug: Slug,
        },
        /// `/v/<slug>/catalog.json`: the signed catalog.
        Catalog {
            /// Slug of the namespace.
            slug: Slug,
        },
        /// `/v/<slug>/bundles/<hash>.json`: a stored object.
        Bundle {
            /// Slug of the namespace.
            slug: Slug,
            /// SHA-256 of the object's bytes.
            hash: Digest,
        },
    }

    impl Route {
        /// The slug of the namespace, which every route has.
        pub const fn slug(&self) -> &Slug {
            match self {
                Self::Devices { slug }
                | Self::DeviceCurrent { slug }
                | Self::Catalog { slug }
                | Self::Bundle { slug, .. } => slug,
            }
        }
    }

    /// Parses a raw path that begins with `/v/`, without the prefix of the service's address.
    /// `None` means 404. Escapes, double slashes, dot segments, a slash at the end and an
    /// upper-case hash are other paths, not spellings of the same one.
    pub fn parse_route(path: &str) -> Option<Route> {
        if path.len() > MAX_PATH {
            return None;
        }
        let (slug, rest) = path.strip_prefix("/v/")?.split_once('/')?;
        let slug = slug.parse().ok()?;
        match rest {
            "devices" => Some(Route::Devices { slug }),
            "devices/current" => Some(Route::DeviceCurrent { slug }),
            "catalog.json" => Some(Route::Catalog { slug }),
            _ => {
                let hash = rest
                    .strip_prefix("bundles/")?
                    .strip_suffix(".json")?
                    .parse()
                    .ok()?;
                Some(Route::Bundle { slug, hash })
            }
        }
    }

    impl fmt::Display for Route {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Devices { slug } => write!(f, "/v/{slug}/devices"),
                Self::DeviceCurrent { slug } => write!(f, "/v/{slug}/devices/current"),
                Self::Catalog { slug } => write!(f, "/v/{slug}/catalog.json"),
                Self::Bundle { slug, hash } => write!(f, "/v/{slug}/bundles/{hash}.json"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_760_000_000);

    fn key() -> SecretKey {
        SecretKey::from_seed([7; 32])
    }

    fn read(headers: &DeviceHeaders) -> Result<SignedRequest, RequestError> {
        SignedRequest::parse(
            Some(&headers.device),
            Some(&headers.timestamp),
            Some(&headers.signature),
        )
    }

    #[test]
    fn a_signed_request_is_good_for_itself_alone() {
        let request = read(&sign_request(&key(), "GET", "/v/acme/catalog.json", NOW)).unwrap();
        assert_eq!(
            request.verify("GET", "/v/acme/catalog.json", NOW),
            Ok(key().public())
        );
        for (method, path) in [
            ("HEAD", "/v/acme/catalog.json"),
            ("GET", "/v/acme/catalog.json/"),
            ("GET", "/v/acme/catalog.json?x"),
            ("get", "/v/acme/catalog.json"),
        ] {
            assert_eq!(
                request.verify(method, path, NOW),
                Err(RequestError::SignatureInvalid)
            );
        }
    }

    #[test]
    fn time_is_checked_before_the_signature() {
        let mut headers = sign_request(&key(), "GET", "/", NOW.plus_seconds(-301));
        assert_eq!(
            read(&headers).unwrap().verify("POST", "/", NOW),
            Err(RequestError::TimestampOutOfRange)
        );
        headers.timestamp = "99999999999999999999".to_owned();
        assert_eq!(
            read(&headers).unwrap().verify("GET", "/", NOW),
            Err(RequestError::TimestampOutOfRange)
        );
    }

    #[test]
    fn header_syntax() {
        let good = sign_request(&key(), "GET", "/", NOW);
        for timestamp in [
            "",
            "01",
            "00",
            "+1",
            "-1",
            "1.0",
            "1e9",
            " 1",
            "1 ",
            "0x1",
            "١",
            "1760000000,1760000000",
            "111111111111111111111",
        ] {
            let headers = DeviceHeaders {
                timestamp: timestamp.to_owned(),
                ..good.clone()
            };
            assert_eq!(
                read(&headers).unwrap_err(),
                RequestError::HeaderInvalid,
                "{timestamp}"
            );
        }
        let joined = DeviceHeaders {
            device: format!("{0},{0}", good.device),
            ..good.clone()
        };
        assert_eq!(read(&joined).unwrap_err(), RequestError::HeaderInvalid);
        let joined = DeviceHeaders {
            signature: format!("{0}, {0}", good.signature),
            ..good
        };
        assert_eq!(read(&joined).unwrap_err(), RequestError::HeaderInvalid);
        // A missing header is reported before a malformed one.
        assert_eq!(
            SignedRequest::parse(Some("x"), Some("y"), None).unwrap_err(),
            RequestError::SignatureRequired
        );
    }

    #[test]
    fn device_ids_follow_from_slug_and_key() {
        let (acme, other) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let id = device_id(&acme, &key().public());
        assert_eq!(id, device_id(&acme, &key().public()));
        assert_ne!(id, device_id(&other, &key().public()));
        assert!(id.len() == 30 && id.starts_with("dev_"), "{id}");
    }

    #[test]
    fn strict_paths() {
        let hash = "0123456789abcdef".repeat(4);
        for good in [
            "/v/acme/devices",
            "/v/acme/devices/current",
            "/v/acme/catalog.json",
            &format!("/v/a-b/bundles/{hash}.json"),
        ] {
            assert_eq!(route::parse_route(good).unwrap().to_string(), good);
        }
        for bad in [
            "",
            "/",
            "/v",
            "/v/",
            "/v/acme",
            "/v/acme/",
            "v/acme/devices",
            "//v/acme/devices",
            "/v//acme/devices",
            "/v/acme//devices",
            "/v/acme/devices/",
            "/v/acme/devices//current",
            "/v/acme/devices/current/",
            "/v/acme/devices/other",
            "/v/acme/./devices",
            "/v/acme/../acme/devices",
            "/v/acme/x/../devices",
            "/v/acme/devices;x=1",
            "/v/acme;x/devices",
            "/v/acme/devices%2Fcurrent",
            "/v/%61cme/devices",
            "/v/acme/devices?x",
            "/v/acme/devices#x",
            "/v/Acme/devices",
            "/v/acme-/devices",
            "/v/a--b/devices",
            "/V/acme/devices",
            "/v/acme/Devices",
            "/v/acme/catalog.JSON",
            "/v/acme/catalog.json/",
            "/v/acme/catalog",
            "/v/acme/bundles",
            "/v/acme/bundles/",
            "/v/acme/bundles/x.json",
            "/v/äcme/devices",
            "/v/acme/devices ",
            " /v/acme/devices",
            "/v/acme/devices\n",
            "/base/v/acme/devices",
            &format!("/v/acme/bundles/{hash}"),
            &format!("/v/acme/bundles/{}.json", hash.to_uppercase()),
            &format!("/v/acme/bundles/{hash}.json.json"),
            &format!("/v/acme/bundles/{hash}0.json"),
            &format!("/v/acme/bundles//{hash}.json"),
            &format!("/v/acme/bundles/{hash}.json?download"),
            &format!("/v/{}/devices", "a".repeat(64)),
            &format!("/v/acme/bundles/{}", "/".repeat(300)),
        ] {
            assert_eq!(route::parse_route(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn routes_survive_a_round_trip(slug in "[a-z0-9]([a-z0-9]{0,30})(-[a-z0-9]{1,30})?", hash: [u8; 32]) {
            let slug: Slug = slug.parse().unwrap();
            let hash = Digest::from_bytes(hash);
            for route in [
                route::Route::Devices { slug: slug.clone() },
                route::Route::DeviceCurrent { slug: slug.clone() },
                route::Route::Catalog { slug: slug.clone() },
                route::Route::Bundle { slug: slug.clone(), hash },
            ] {
                prop_assert_eq!(route::parse_route(&route.to_string()), Some(route));
            }
        }

        #[test]
        fn a_path_that_parses_is_the_only_spelling(path in "/v/[a-zA-Z/.%;-]{0,12}(/(devices|catalog.json|bundles/[0-9a-fA-F]{63,65}.json|[a-z./%]{0,9}))?|.{0,300}") {
            if let Some(route) = route::parse_route(&path) {
                prop_assert_eq!(route.to_string(), path);
            }
        }

        #[test]
        fn headers_never_panic(device in ".{0,50}", timestamp in "[0-9+.e-]{0,22}|.{0,9}", signature in "[A-Za-z0-9_-]{86}|.{0,9}", now: i64) {
            let key = key().public().to_string();
            for device in [device.as_str(), &key] {
                if let Ok(request) = SignedRequest::parse(Some(device), Some(&timestamp), Some(&signature)) {
                    prop_assert!(request.verify("GET", "/", Timestamp::from_unix(now)).is_err());
                }
            }
        }

        #[test]
        fn what_is_signed_verifies(seed: [u8; 32], method in "[A-Z]{1,8}", path in "/.{0,40}", seconds in 0..=Timestamp::MAX.unix()) {
            let (key, now) = (SecretKey::from_seed(seed), Timestamp::from_unix(seconds));
            prop_assert_eq!(read(&sign_request(&key, &method, &path, now)).unwrap().verify(&method, &path, now), Ok(key.public()));
        }
    }
}
