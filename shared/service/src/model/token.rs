//! Random secrets that are shown once, and the records that know them by hash alone: codes, access and refresh tokens.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `tok/<sha256>` | `tok` | [`Token`], until it expires |
//! | `code/<sha256>` | `code` | [`Code`], 60 seconds; once used it stays a day, so that a second use is seen |
//!
//! A token names its whole [`Family`], so that a check is one reading of the token and one `get_many` of grant, user, client,
//! account and namespace.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::random::{Random, bytes};
use vault_store::records::RecordKey;
use zeroize::{Zeroize as _, Zeroizing};

use super::account::{Email, account_key};
use super::client::{ClientId, connection_key};
use super::grant::grant_key;
use super::user::{NamespaceRef, Scopes, user_key};
use crate::oauth::pkce::Challenge;

/// How long a code can be used, in seconds.
pub const CODE_SECONDS: i64 = 60;
/// How long a used code is remembered, in seconds: a day.
pub const USED_CODE_SECONDS: i64 = 24 * 3600;

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

/// What all tokens of one consent have in common.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Family {
    /// The grant's id.
    pub grant: String,
    /// The one namespace that the tokens act on.
    pub namespace: NamespaceRef,
    /// The client.
    pub client: ClientId,
    /// Which of the client's connections to the namespace the tokens belong to; empty in a code, which is not exchanged yet.
    #[serde(default)]
    pub connection: String,
    /// The user's id in that namespace.
    pub user: String,
    /// The user's account.
    pub account: Email,
    /// The audience: the public URL, or it with `/mcp`.
    pub resource: String,
    /// When the person who consented had signed in.
    pub signed_in_at: Timestamp,
}

impl Family {
    /// Where grant, user, the client's connection and the account stand, in this order.
    pub fn keys(&self) -> [RecordKey; 4] {
        [
            grant_key(&self.namespace.id, &self.client, &self.grant),
            user_key(&self.namespace.id, &self.user),
            connection_key(&self.namespace.id, &self.client),
            account_key(&self.account),
        ]
    }
}

/// Access or refresh.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// Shown to the resource server.
    Access,
    /// Shown to the token endpoint.
    Refresh,
}

/// An access or refresh token, known by its hash.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Token {
    /// Access or refresh.
    pub kind: TokenKind,
    /// Whose it is and what for.
    pub family: Family,
    /// The most it may be used for; the user's current scopes count as well.
    pub scopes: Scopes,
    /// When it was given.
    pub issued_at: Timestamp,
    /// From this second on it is no token.
    pub expires_at: Timestamp,
}

/// An authorization code, known by its hash.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Code {
    /// What it will give; the grant does not exist before.
    pub family: Family,
    /// The scopes consented to.
    pub scopes: Scopes,
    /// The address it was sent to, exactly.
    pub redirect_uri: String,
    /// What the verifier has to answer.
    pub challenge: Challenge,
    /// From this second on it is no code.
    pub expires_at: Timestamp,
    /// Whether it was exchanged.
    pub used: bool,
}

/// Where a token stands.
pub fn token_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("tok/{hash}"), "tok")
}

/// Where a code stands.
pub fn code_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("code/{hash}"), "code")
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
