//! Random secrets that are shown once and known by their hash alone: tokens, codes, invitations, sessions.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use vault_format::hash::Digest;
use vault_store::random::{Random, bytes};
use zeroize::{Zeroize as _, Zeroizing};

/// What a secret is for; its text says so by a prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SecretKind {
    /// `vat_`
    Access,
    /// `vrt_`
    Refresh,
    /// `vac_`
    Code,
    /// `vin_`
    Invite,
    /// `vse_`
    Session,
}

impl SecretKind {
    /// The first characters of the text.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Access => "vat_",
            Self::Refresh => "vrt_",
            Self::Code => "vac_",
            Self::Invite => "vin_",
            Self::Session => "vse_",
        }
    }
}

/// 256 random bits as text, shown once and wiped when dropped; only its hash is stored.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A new one.
    pub fn fresh(kind: SecretKind, random: &dyn Random) -> Self {
        let mut raw = bytes::<32>(random);
        let text = format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(raw));
        raw.zeroize();
        Self(Zeroizing::new(text))
    }

    /// A secret as it came in a request; `None` unless it has the form of its kind.
    pub fn parse(kind: SecretKind, text: &str) -> Option<Self> {
        let random = text.strip_prefix(kind.prefix())?;
        let good = random.len() == 43 && URL_SAFE_NO_PAD.decode(random).is_ok();
        good.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// The text, for the one answer that carries it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What is stored.
    pub fn hash(&self) -> Digest {
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
    }
}
