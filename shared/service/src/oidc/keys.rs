//! The keys that sign a provider's ID tokens (RFC 7517), and the verification of signatures (RFC
//! 7515).
//!
//! The type of a key determines the algorithms that it verifies, so a token cannot choose `none`,
//! or an HMAC with a public key as its secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;

/// Maximum number of keys of one provider that are read.
const MAX_KEYS_READ: usize = 64;

/// The keys of a provider that can verify ID tokens.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<Key>);

/// A public key with its optional id (`kid`).
#[derive(Clone, Debug)]
pub struct Key {
    id: Option<String>,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// ECDSA on P-256: the public point, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<serde_json::Value>,
}

/// The members of a JSON Web Key that are used here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

/// Error: the document at a provider's `jwks_uri` is not a key set.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the document with the provider's keys is not valid")]
pub struct BadKeys;

impl KeySet {
    /// Parses a key set. Keys of unknown types and for other uses are ignored, as RFC 7517 section
    /// 5 says.
    pub fn parse_set(document: &[u8]) -> Result<Self, BadKeys> {
        let document: KeySetDocument = serde_json::from_slice(document).map_err(|_| BadKeys)?;
        let keys = document.keys.into_iter().take(MAX_KEYS_READ);
        // Each key is parsed on its own, so that one of an unknown form does not make the others
        // unusable.
        let keys = keys.filter_map(|key| serde_json::from_value(key).ok().and_then(Key::from_jwk));
        Ok(Self(keys.collect()))
    }

    /// Finds the key that a token names with `kid`; for a token without `kid`, the only key for the
    /// algorithm (OpenID Connect Core, section 10.1).
    pub fn find_key(&self, id: Option<&str>, algorithm: &str) -> Option<&Key> {
        let mut fitting = self.0.iter().filter(|key| {
            let named = id.is_none() || key.id.as_deref() == id;
            named && key.algorithms().contains(&algorithm)
        });
        // If two keys fit, the choice is ambiguous, and neither is used.
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Some(key),
            _ => None,
        }
    }
}

impl Key {
    fn from_jwk(jwk: Jwk) -> Option<Self> {
        if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let fixed = |text: &Option<String>| bytes(text).filter(|bytes| bytes.len() == 32);
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", None) => Material::Rsa {
                modulus: bytes(&jwk.n)?,
                exponent: bytes(&jwk.e)?,
            },
            ("EC", Some("P-256")) => {
                Material::P256([&[4], &*fixed(&jwk.x)?, &*fixed(&jwk.y)?].concat())
            }
            ("OKP", Some("Ed25519")) => Material::Ed25519(fixed(&jwk.x)?),
            _ => return None,
        };
        let key = Self {
            id: jwk.kid,
            material,
        };
        let fits = jwk.alg.is_none_or(|alg| key.algorithms().contains(&&*alg));
        fits.then_some(key)
    }

    /// Returns the names of the algorithm that this key verifies (`alg`).
    const fn algorithms(&self) -> &'static [&'static str] {
        match self.material {
            Material::Rsa { .. } => &["RS256"],
            Material::P256(_) => &["ES256"],
            // RFC 9864 defines a second name for EdDSA with this curve.
            Material::Ed25519(_) => &["EdDSA", "Ed25519"],
        }
    }

    /// Whether `signature` is valid for `message` under this key. RSA keys must have 2,048 to 8,192
    /// bits.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            Material::Rsa { modulus, exponent } => RsaPublicKeyComponents {
                // Some encoders put a leading zero before the number, which ring does not accept.
                n: modulus.strip_prefix(&[0]).unwrap_or(modulus),
                e: exponent,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Material::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Material::Ed25519(key) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
        };
        verified.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MESSAGE: &[u8] = b"what a provider signs";
    const RSA_MODULUS: &str = "\
        r7t2-sldMeBNd-hhWBrKqcB5MTyR0Bb3AcNeourFmkfBlQCbTyNW3rr2Lc2jbg9uh88nJbWiEkOB15fYCWSWXcLYar\
        eyQKCjHqKWtbmAQlzJgtQo-5qzqbWiUnQVgIWRYxE1gx2FfRkA3ymPOo-CF5J0BgKnU19ik8nD-Owp_8wdIbNNf53I\
        17LdENOA6YHfMI0UsHPymISX5z-KNb7bBID4GxKLewnvDogr9r2j0nj5WKab-nd2_ObS-I54IhN0BPhLjYiQ2YFS1h\
        ZWzbfTuMtWl-br9tccyC6LMUwiz1s114slyByTSqdBK2ohs1zIXqHJ6KOizfGJbmku6KfqLw";
    const RSA_SIGNATURE: &str = "\
        Hju7jbOL9QeAKqL8SAde90rJVXOdTWZwjW4pV2V_QYgyBLllieomr_xti1W4DZC31OWmTLDY1stRGkyt9ifpSy7knZ\
        p06RyRilypRGx075kfpyguY35VSVaz-e9sP_6vxEcNHRLwaEemwTb8-lyolx_0tahWjfaGZ-1SkYMELP_wnjyFFw4j\
        s1Zj0kIupuWGeZxX9qpzAZd7xNO1g--_6ZUMGmpClCTA09nyLLJ3ZTkIXictzBIq9FDvR3zdrg-cXiM07xX78BNg49\
        fpuiljrouPp3ZckqyEN3nF0fFPDy1oA2dGhh_9Mo2TMMQL4FIkZSlL5Q7Dm7tmovyu4d_e6w";
    const SHORT_MODULUS: &str = "\
        3sC2gMjHYnOTWh1rN7D8tBeCSDAf3CickwuNls5Hail9Uyd7K9xxRjoAIJkHIG1Y8ozZVdBai4F2Zfm9nsjvEMxdFI\
        zzhaClRzM_o10vurgGuvO1VGcBVcEIE-5GAz1Q7mhXEAJ_DwAsnqNbkmn1N20i8qIl8cw5Vbrw4D2JuN0";
    const SHORT_SIGNATURE: &str = "\
        YbZmCliaaQN8U_SPbg_QbgxxD09GPo2kURisIWg83XXHcWefyDHLnMV8kDWL2GFzE-QeNF4-YVE5LIFwAlDlY0Cue0\
        rB8jUc0W5UJc_YXhhjvT-6H_KqmhuAbPX72hn7u19ZfwJcA4bKI-PEbsfYRUF2Oks6WCkwjmAJ6hXpxBc";
    const P256_X: &str = "SB_dK3oPtlEJjFz5z3j0JFIPKHr27Y4yoRJWoQwzQGY";
    const P256_Y: &str = "aiip7suA408KN2cximXViw6UnrUtLHfAipYRZ09CLfA";
    const P256_SIGNATURE: &str = "\
        WZxRfZAL-T6FGFwJ1SpesKeC2nP6wjq1D0Y9Vcp28ffj59BbPWNjjnlXJsd7BszH5sLHCpIYUlwNfTF7SDYAXg";
    const ED25519_X: &str = "MFRzWdZkzI-t0VaaSwp73w7C6wyM1E5qkztlQUYiENI";
    const ED25519_SIGNATURE: &str = "\
        hF-7FgoUYT9jWf8z3ZqZqCLjR1NUHclrSdmkLfSB99_OcpgC5FB0uUcEIgZE7hMgelrryqbxwweBlKXRFe_mDA";

    fn rsa() -> Value {
        json!({ "kty": "RSA", "kid": "r", "n": RSA_MODULUS, "e": "AQAB" })
    }

    fn p256() -> Value {
        json!({ "kty": "EC", "kid": "p", "crv": "P-256", "x": P256_X, "y": P256_Y })
    }

    fn ed25519() -> Value {
        json!({ "kty": "OKP", "kid": "e", "crv": "Ed25519", "x": ED25519_X })
    }

    fn set(keys: &[Value]) -> KeySet {
        KeySet::parse_set(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_key_verifies_its_own_signatures_alone() {
        for (key, algorithm, signature) in [
            (rsa(), "RS256", RSA_SIGNATURE),
            (p256(), "ES256", P256_SIGNATURE),
            (ed25519(), "EdDSA", ED25519_SIGNATURE),
            (ed25519(), "Ed25519", ED25519_SIGNATURE),
        ] {
            let keys = set(&[key]);
            let key = keys.find_key(None, algorithm).unwrap();
            let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert!(key.verifies(MESSAGE, &signature), "{algorithm}");
            assert!(!key.verifies(b"something else", &signature));
            signature[0] ^= 1;
            assert!(!key.verifies(MESSAGE, &signature));
            assert!(!key.verifies(MESSAGE, b""));
        }
    }

    #[test]
    fn an_rsa_key_of_less_than_2048_bits_verifies_nothing() {
        let short = json!({ "kty": "RSA", "n": SHORT_MODULUS, "e": "AQAB" });
        let keys = set(&[short]);
        let signature = URL_SAFE_NO_PAD.decode(SHORT_SIGNATURE).unwrap();
        assert!(
            !keys
                .find_key(None, "RS256")
                .unwrap()
                .verifies(MESSAGE, &signature)
        );
    }

    #[test]
    fn the_type_of_a_key_says_its_algorithm() {
        let keys = set(&[rsa(), p256(), ed25519()]);
        for (id, algorithm, found) in [
            (Some("r"), "RS256", true),
            (None, "RS256", true),
            (Some("p"), "RS256", false),
            (Some("r"), "ES256", false),
            (Some("x"), "RS256", false),
            (Some("r"), "HS256", false),
            (Some("r"), "none", false),
            (None, "none", false),
            (None, "", false),
        ] {
            assert_eq!(
                keys.find_key(id, algorithm).is_some(),
                found,
                "{id:?} {algorithm}"
            );
        }
        let twice = set(&[rsa(), rsa()]);
        assert!(
            twice.find_key(None, "RS256").is_none(),
            "one of two without a name"
        );
    }

    #[test]
    fn keys_for_something_else_are_passed_over() {
        let with = |mut key: Value, name: &str, value: &str| {
            key[name] = json!(value);
            key
        };
        let others = [
            with(rsa(), "use", "enc"),
            with(rsa(), "alg", "HS256"),
            with(rsa(), "alg", "RS512"),
            with(rsa(), "n", "not base64!"),
            with(p256(), "crv", "P-384"),
            with(p256(), "x", "AQAB"),
            with(ed25519(), "crv", "X25519"),
            json!({ "kty": "oct", "k": "c2VjcmV0" }),
            json!("no key"),
        ];
        for other in &others {
            assert!(set(std::slice::from_ref(other)).0.is_empty(), "{other}");
        }
        let all: Vec<_> = others.into_iter().chain([rsa()]).collect();
        assert!(set(&all).find_key(Some("r"), "RS256").is_some());
        for bad in ["", "[]", "{}", "{\"keys\":1}"] {
            assert_eq!(
                KeySet::parse_set(bad.as_bytes()).unwrap_err(),
                BadKeys,
                "{bad}"
            );
        }
    }
}
