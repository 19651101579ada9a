//! PKCE, the proof key for code exchange (RFC 7636): a client sends a challenge, the hash of a
//! secret verifier, with its authorize request, and the verifier when it exchanges the code. Only
//! the method S256 is accepted: `plain` and a missing method are refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// A code challenge: 43 characters of base64url that encode a SHA-256.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Challenge(String);

/// Error: an authorize request has no PKCE challenge that this service accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadChallenge {
    /// No `code_challenge`: the client does not use PKCE, which this service requires.
    #[error("code_challenge is required")]
    Missing,
    /// `code_challenge_method` is absent, which means plain, or anything but S256.
    #[error("code_challenge_method must be S256")]
    Method,
    /// The challenge is not 43 characters of base64url.
    #[error("code_challenge must be 43 characters of base64url")]
    Malformed,
}

impl Challenge {
    /// Parses the parameters `code_challenge` and `code_challenge_method` of an authorize request.
    pub fn parse(challenge: Option<&str>, method: Option<&str>) -> Result<Self, BadChallenge> {
        let challenge = challenge.ok_or(BadChallenge::Missing)?;
        // `plain` would put the verifier itself into the authorize request, where it can be read.
        if method != Some("S256") {
            return Err(BadChallenge::Method);
        }
        match URL_SAFE_NO_PAD.decode(challenge) {
            Ok(bytes) if bytes.len() == 32 && challenge.len() == 43 => {
                Ok(Self(challenge.to_owned()))
            }
            _ => Err(BadChallenge::Malformed),
        }
    }

    /// Returns the challenge that belongs to `verifier`.
    pub fn of_verifier(verifier: &str) -> Self {
        Self(URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)))
    }

    /// Returns the challenge as sent by the client.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `verifier` has 43 to 128 unreserved characters and hashes to this challenge. The
    /// comparison takes constant time.
    pub fn answered_by(&self, verifier: &str) -> bool {
        // A shorter verifier could be guessed from the challenge, which is not secret.
        (43..=128).contains(&verifier.len())
            && verifier
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
            && bool::from(
                Self::of_verifier(verifier)
                    .0
                    .as_bytes()
                    .ct_eq(self.0.as_bytes()),
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix B of RFC 7636.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn the_example_of_rfc_7636() {
        let challenge = Challenge::parse(Some(CHALLENGE), Some("S256")).unwrap();
        assert!(challenge.answered_by(VERIFIER));
        assert!(!challenge.answered_by(&VERIFIER.replace('d', "e")));
        assert!(!challenge.answered_by(CHALLENGE));
    }

    #[test]
    fn requirement_16_only_s256_and_canonical_text() {
        let padded = format!("{CHALLENGE}=");
        for (challenge, method, error) in [
            (None, Some("S256"), BadChallenge::Missing),
            (None, None, BadChallenge::Missing),
            (Some(CHALLENGE), None, BadChallenge::Method),
            (Some(CHALLENGE), Some("plain"), BadChallenge::Method),
            (Some(CHALLENGE), Some("s256"), BadChallenge::Method),
            (Some(&CHALLENGE[1..]), Some("S256"), BadChallenge::Malformed),
            (Some(padded.as_str()), Some("S256"), BadChallenge::Malformed),
            (
                Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"),
                Some("S256"),
                BadChallenge::Malformed,
            ),
        ] {
            assert_eq!(
                Challenge::parse(challenge, method),
                Err(error),
                "{challenge:?} {method:?}"
            );
        }
    }

    #[test]
    fn requirement_16_verifiers_have_43_to_128_unreserved_characters() {
        for (verifier, good) in [
            ("a".repeat(43), true),
            ("~".repeat(128), true),
            ("a".repeat(42), false),
            ("a".repeat(129), false),
            (format!("{} ", "a".repeat(43)), false),
            (format!("{}+", "a".repeat(43)), false),
        ] {
            assert_eq!(
                Challenge::of_verifier(&verifier).answered_by(&verifier),
                good,
                "{verifier}"
            );
        }
    }
}
