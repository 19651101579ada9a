//! Records of codes, access and refresh tokens, which are known by their hashes alone.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `tok/<sha256>` | `tok` | [`Token`], until it expires |
//! | `code/<sha256>` | `code` | [`AuthorizationCode`], 60 seconds; once used it stays a day, so that a second use is seen |
//!
//! A token names its whole [`Family`], so that a check is one reading of the token and one
//! `get_many` of grant, user, client, account and namespace.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::pkce::Challenge;
use super::user::Scopes;

pub use super::family::{Family, Reach};
pub use super::secret::{Secret, SecretKind};

/// Lifetime of a code, in seconds.
pub const CODE_SECONDS: i64 = 60;
/// Time for which a used code is remembered, in seconds: a day.
pub const USED_CODE_SECONDS: i64 = 24 * 3600;

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
    /// Account, client and target of the token.
    pub family: Family,
    /// The most it may be used for; the user's current scopes count as well.
    pub scopes: Scopes,
    /// Time at which it was given.
    pub issued_at: Timestamp,
    /// Time from which it is no longer valid.
    pub expires_at: Timestamp,
}

/// An authorization code, known by its hash.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AuthorizationCode {
    /// Family of the tokens that it will give; the grant does not exist before.
    pub family: Family,
    /// The scopes consented to.
    pub scopes: Scopes,
    /// The address it was sent to, exactly.
    pub redirect_uri: String,
    /// Challenge that the verifier must match.
    pub challenge: Challenge,
    /// Time from which it is no longer valid.
    pub expires_at: Timestamp,
    /// Whether it was exchanged.
    pub used: bool,
}

/// Returns the key of a token.
pub fn token_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("tok/{hash}"), "tok")
}

/// Returns the key of a code.
pub fn code_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("code/{hash}"), "code")
}
