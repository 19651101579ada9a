//! Verification of a payment event's signature, in Stripe's scheme. All functions are pure.
//!
//! `Stripe-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>…]`, where each `v1` may be the
//! HMAC-SHA-256 of `<t>.<body>` under one of the secrets. Members of other schemes are ignored.
//! Source: <https://docs.stripe.com/webhooks#verify-manually>.

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use vault_format::time::Timestamp;

/// Maximum difference between the signature's time and the service's clock, in seconds, in either
/// direction.
pub const TOLERANCE_SECONDS: i64 = 300;
/// Maximum number of signatures that the header may contain.
const MAX_SIGNATURES: usize = 16;

/// Reason to reject an event because of its signature.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSignature {
    /// None of the signatures was made with a secret of this service.
    #[error("no signature of the event is by a secret of this service")]
    Forged,
    /// The signature is valid, but was made too long ago or in the future.
    #[error("the event was signed more than {TOLERANCE_SECONDS} seconds from now")]
    Old,
}

/// Verifies that `header` contains a signature over exactly the bytes of `body`, made with one of
/// the secrets at most [`TOLERANCE_SECONDS`] from `now`.
pub fn verify_signature(
    header: &str,
    body: &[u8],
    secrets: &[SecretString],
    now: Timestamp,
) -> Result<(), BadSignature> {
    let signed = SignatureHeader::parse(header).ok_or(BadSignature::Forged)?;
    let message = |secret: &SecretString| {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(signed.time.as_bytes());
        mac.update(b".");
        mac.update(body);
        mac
    };
    // Any of the secrets is accepted, so that a new one can replace an old one without a gap.
    // `verify_slice` takes constant time, so response times reveal no byte of a valid signature.
    let is_good = secrets.iter().map(message).any(|mac| {
        let mut signatures = signed.signatures.iter();
        signatures.any(|signature| mac.clone().verify_slice(signature).is_ok())
    });
    if !is_good {
        return Err(BadSignature::Forged);
    }
    // Only now is the time known to be the signer's. The tolerance bounds for how long a recorded
    // event can be replayed.
    let seconds: i64 = signed.time.parse().map_err(|_| BadSignature::Forged)?;
    if seconds.abs_diff(now.unix()) > TOLERANCE_SECONDS.unsigned_abs() {
        return Err(BadSignature::Old);
    }
    Ok(())
}

/// The members of the header that are used.
struct SignatureHeader<'h> {
    time: &'h str,
    signatures: Vec<[u8; 32]>,
}

impl<'h> SignatureHeader<'h> {
    /// Parses the header; `None` unless it has exactly one time and at most [`MAX_SIGNATURES`]
    /// signatures.
    fn parse(header: &'h str) -> Option<Self> {
        let mut time = None;
        let mut signatures = Vec::new();
        for member in header.split(',') {
            match member.trim().split_once('=') {
                Some(("t", text)) if time.replace(text).is_some() => return None,
                Some(("v1", text)) => signatures.extend(from_hex(text)),
                _ => {}
            }
        }
        let time = time.filter(|_| signatures.len() <= MAX_SIGNATURES)?;
        Some(Self { time, signatures })
    }
}

/// Decodes 64 hexadecimal digits; `None` for anything else.
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // `from_str_radix` would accept a sign, as in `+f`, so each character must be a digit.
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_0123456789abcdef";
    const OTHER: &str = "whsec_another_secret_of_ours";
    const BODY: &str = r#"{"id":"evt_1","type":"invoice.paid","created":1795219200,"data":{"object":{"subscription":"sub_1"}}}"#;
    const GOOD: &str =
        "t=1795219200,v1=b1c3838844fa20fa697dfa9e48bbcb7a16c69d2142169d653e914cdaa40539da";
    const BY_OTHER: &str =
        "t=1795219200,v1=8f3ebe99983085df191f60640f58c46bf719fa8fd205f57988302efc429ad458";
    const TIME: i64 = 1_795_219_200;

    fn judge(header: &str, body: &str, secrets: &[&str], now: i64) -> Result<(), BadSignature> {
        let secrets: Vec<_> = secrets.iter().map(|text| (*text).into()).collect();
        let now = Timestamp::from_unix(now);
        verify_signature(header, body.as_bytes(), &secrets, now)
    }

    /// Made by `webhooks.generateTestHeaderString` of the npm package stripe 23.1.0.
    #[test]
    fn headers_of_the_official_library_count() {
        let umlaut =
            "t=1795219501,v1=dbc818ced5423b2306c67eeb243b18e042e390848d334dd8d3e19a1c50d8814e";
        let empty =
            "t=1795219200,v1=b7709122427963b98c8af98c25cbe93b03a2927bbc97c274ba4a88ce26e51883";
        for (header, body, secret, now) in [
            (GOOD, BODY, SECRET, TIME),
            (BY_OTHER, BODY, OTHER, TIME),
            (
                umlaut,
                "{\"id\":\"evt_2\",\"note\":\"Größe 😀\"}\n",
                SECRET,
                TIME + 301,
            ),
            (empty, "", SECRET, TIME),
        ] {
            assert_eq!(judge(header, body, &[secret], now), Ok(()), "{header}");
        }
    }

    #[test]
    fn any_secret_and_any_signature_counts() {
        assert_eq!(judge(GOOD, BODY, &[OTHER, SECRET], TIME), Ok(()));
        let zeros = "0".repeat(64);
        let several = format!("{GOOD},v0=abc,v1={zeros}, v1=zz");
        assert_eq!(judge(&several, BODY, &[SECRET], TIME), Ok(()));
        let last = GOOD.replace(",v1", &format!(",v1={zeros},v1"));
        assert_eq!(judge(&last, BODY, &[SECRET], TIME), Ok(()));
    }

    #[test]
    fn an_event_counts_for_300_seconds_around_its_time() {
        for (now, outcome) in [
            (TIME - 301, Err(BadSignature::Old)),
            (TIME - 300, Ok(())),
            (TIME + 300, Ok(())),
            (TIME + 301, Err(BadSignature::Old)),
        ] {
            assert_eq!(judge(GOOD, BODY, &[SECRET], now), outcome, "{now}");
        }
        // Without a valid signature, anybody may have written the time, so the answer does not
        // depend on it.
        assert_eq!(
            judge(GOOD, BODY, &[OTHER], TIME + 301),
            Err(BadSignature::Forged)
        );
    }

    #[test]
    fn everything_else_is_forged() {
        let signature = &GOOD[GOOD.find("v1=").unwrap()..];
        let many = format!("{GOOD}{}", format!(",{signature}").repeat(MAX_SIGNATURES));
        for header in [
            "",
            "t=1795219200",
            signature,
            &GOOD.replace("v1", "v0"),
            &GOOD.replace("t=1795219200", "t=1795219201"),
            &GOOD.replace("t=1795219200", "t=01795219200"),
            &format!("{GOOD},t=1795219200"),
            &GOOD[..GOOD.len() - 2],
            &GOOD.replace("b1c3", "b1c4"),
            &many,
            "t=,v1=",
            "é=é,v1=é",
        ] {
            let outcome = judge(header, BODY, &[SECRET], TIME);
            assert_eq!(outcome, Err(BadSignature::Forged), "{header}");
        }
        for body in [&BODY[1..], "", &format!("{BODY}\n")] {
            let outcome = judge(GOOD, body, &[SECRET], TIME);
            assert_eq!(outcome, Err(BadSignature::Forged), "{body}");
        }
        assert_eq!(judge(GOOD, BODY, &[], TIME), Err(BadSignature::Forged));
    }
}
