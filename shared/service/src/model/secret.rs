//! Random secrets that are shown once and stored only as a hash: tokens, codes, invitations,
//! sessions.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use vault_format::hash::Digest;
use vault_store::random::{Random, random_bytes};
use zeroize::{Zeroize as _, Zeroizing};

/// Purpose of a secret, which the prefix of its text shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SecretKind {
    /// Access token, `vat_`.
    Access,
    /// Refresh token, `vrt_`.
    Refresh,
    /// Authorization code, `vac_`.
    Code,
    /// Link that sets a password, `vin_`.
    Invite,
    /// Cookie of a signed-in browser, `vse_`.
    Session,
    /// Cookie of a browser that signed in before, `vbr_`.
    Browser,
    /// Enrolment code, `vec_`; of 128 bits only, because people read it to each other.
    Enrolment,
    /// State of a sign-in through the identity provider, `vps_`.
    ProviderState,
    /// Nonce of a sign-in through the identity provider, `vpn_`.
    ProviderNonce,
    /// Code verifier (PKCE) of a sign-in through the identity provider, `vpv_`.
    ProviderVerifier,
}

impl SecretKind {
    /// Returns the four characters with which the secret's text begins.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Access => "vat_",
            Self::Refresh => "vrt_",
            Self::Code => "vac_",
            Self::Invite => "vin_",
            Self::Session => "vse_",
            Self::Browser => "vbr_",
            Self::Enrolment => "vec_",
            Self::ProviderState => "vps_",
            Self::ProviderNonce => "vpn_",
            Self::ProviderVerifier => "vpv_",
        }
    }

    const fn byte_count(self) -> usize {
        match self {
            Self::Enrolment => 16,
            _ => 32,
        }
    }
}

/// A secret as text: a prefix and 256 random bits, or as many as its kind says. It is shown once
/// and wiped from memory when dropped; only its hash is stored.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Creates a random secret of this kind.
    pub fn fresh(kind: SecretKind, random: &dyn Random) -> Self {
        let mut raw = random_bytes::<32>(random);
        let text = URL_SAFE_NO_PAD.encode(&raw[..kind.byte_count()]);
        let text = format!("{}{text}", kind.prefix());
        // The text is wiped when it is dropped, so its source must not stay in memory either.
        raw.zeroize();
        Self(Zeroizing::new(text))
    }

    /// Derives a secret from `from` and a salt (HMAC-SHA-256). The same two values give the same
    /// secret; the salt and the hash of `from` alone do not reveal it.
    pub fn derive_from(kind: SecretKind, from: &Self, salt: &str) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(from.0.as_bytes())
            .expect("HMAC takes a key of any length");
        for part in ["vault derived secret", kind.prefix(), salt] {
            // With its length, so that different parts never make the same input.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let mut raw = mac.finalize().into_bytes();
        let text = URL_SAFE_NO_PAD.encode(&raw[..kind.byte_count()]);
        raw.as_mut_slice().zeroize();
        Self(Zeroizing::new(format!("{}{text}", kind.prefix())))
    }

    /// Parses a secret from a request; returns `None` unless it has the form of its kind.
    pub fn parse(kind: SecretKind, text: &str) -> Option<Self> {
        let random = text.strip_prefix(kind.prefix())?;
        let decoded = URL_SAFE_NO_PAD.decode(random);
        let good = decoded.is_ok_and(|raw| raw.len() == kind.byte_count());
        good.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the text, for the only answer that contains it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the SHA-256 of the text, which is stored in its place.
    pub fn hash(&self) -> Digest {
        // Needs neither a salt nor a slow hash: 128 random bits and more cannot be guessed.
        Digest::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_testing::SeededRandom;

    #[test]
    fn a_secret_has_256_bits_and_is_never_printed() {
        let random = SeededRandom::new(1);
        for kind in [
            SecretKind::Access,
            SecretKind::Refresh,
            SecretKind::Code,
            SecretKind::Invite,
            SecretKind::Session,
            SecretKind::Browser,
        ] {
            let secret = Secret::fresh(kind, &random);
            assert_eq!(secret.text().len(), 4 + 43);
            assert_eq!(
                Secret::parse(kind, secret.text()).unwrap().hash(),
                secret.hash()
            );
            assert_eq!(format!("{secret:?}"), "Secret(…)");
            assert_ne!(secret.text(), Secret::fresh(kind, &random).text());
        }
    }

    #[test]
    fn a_derived_secret_follows_from_its_secret_and_its_salt() {
        let random = SeededRandom::new(1);
        let [one, other] = [(); 2].map(|()| Secret::fresh(SecretKind::Refresh, &random));
        let derive = |kind, from, salt| Secret::derive_from(kind, from, salt).hash();
        let first = derive(SecretKind::Refresh, &one, "salt");
        assert_eq!(derive(SecretKind::Refresh, &one, "salt"), first);
        for differs in [
            derive(SecretKind::Refresh, &other, "salt"),
            derive(SecretKind::Refresh, &one, "pepper"),
            derive(SecretKind::Access, &one, "salt"),
            one.hash(),
        ] {
            assert_ne!(differs, first);
        }
        let text = Secret::derive_from(SecretKind::Access, &one, "salt");
        assert!(Secret::parse(SecretKind::Access, text.text()).is_some());
    }

    #[test]
    fn other_text_is_no_secret() {
        let good = format!("vat_{}", "A".repeat(43));
        assert!(Secret::parse(SecretKind::Access, &good).is_some());
        for bad in [
            good.replace("vat", "vrt"),
            good.replace("vat_", "VAT_"),
            format!("{good}A"),
            good[..46].to_owned(),
            good.replace("AAA", "AA="),
            good.replace("AAA", "AA+"),
            String::new(),
        ] {
            assert!(Secret::parse(SecretKind::Access, &bad).is_none(), "{bad}");
        }
        let code = Secret::fresh(SecretKind::Enrolment, &SeededRandom::new(1));
        assert_eq!(code.text().len(), 4 + 22, "128 bits");
        assert!(Secret::parse(SecretKind::Enrolment, code.text()).is_some());
        let long = format!("vec_{}", "A".repeat(43));
        assert!(Secret::parse(SecretKind::Enrolment, &long).is_none());
    }
}
