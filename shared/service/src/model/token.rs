//! Records of authorization codes, access tokens and refresh tokens, each stored under its SHA-256.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `tok/<sha256>` | `tok` | [`Token`], until it expires |
//! | `code/<sha256>` | `code` | [`AuthorizationCode`], 60 seconds; once used it stays a day, so that a second use is seen |
//!
//! A token's record contains its whole [`Family`], the properties that all tokens of a consent
//! share. So a check of a token is one read of the token and one `get_many` of the records that the
//! family refers to.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::pkce::Challenge;
use super::user::Scopes;

pub use super::family::{Family, Reach};
pub use super::secret::{Secret, SecretKind};

/// Lifetime of an authorization code, in seconds.
pub const CODE_SECONDS: i64 = 60;
/// Time for which a used code is remembered, in seconds: a day.
pub const USED_CODE_SECONDS: i64 = 24 * 3600;

/// Kind of a token, which decides where it may be sent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenKind {
    /// Access token, sent with requests to the API.
    Access,
    /// Refresh token, sent only to the token endpoint.
    Refresh,
}

/// The record of an access or refresh token, which is stored under the hash of the token.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Token {
    /// Kind of the token: a refresh token opens no route of the API.
    pub kind: TokenKind,
    /// Properties that the token shares with the other tokens of its consent.
    pub family: Family,
    /// Scopes of the token; the user's current scopes limit them further.
    pub scopes: Scopes,
    /// Time at which the token was issued, by the service's clock.
    pub issued_at: Timestamp,
    /// First second at which the token is refused as expired.
    pub expires_at: Timestamp,
}

/// The record of an authorization code, which an app exchanges once for tokens.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AuthorizationCode {
    /// Family of the tokens for which an app exchanges the code. The grant is created only then.
    pub family: Family,
    /// Scopes that the person consented to.
    pub scopes: Scopes,
    /// Redirect URI to which the code was sent; the exchange must repeat it exactly.
    pub redirect_uri: String,
    /// PKCE challenge that the verifier must match.
    pub challenge: Challenge,
    /// First second at which the code is refused: [`CODE_SECONDS`] after its creation.
    pub expires_at: Timestamp,
    /// Whether an app has exchanged the code. A second exchange revokes the grant.
    pub used: bool,
}

/// Returns the key of the [`Token`] with this SHA-256.
pub fn token_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("tok/{hash}"), "tok")
}

/// Returns the key of the [`AuthorizationCode`] with this SHA-256.
pub fn code_key(hash: &Digest) -> RecordKey {
    RecordKey::new(format!("code/{hash}"), "code")
}
