//! The pair of access and refresh token that an answer carries, and the writes that make it valid.

use vault_format::hash::Digest;
use vault_store::random::Random;
use vault_store::records::Write;

use super::TokenAnswer;
use crate::model::token::{Secret, SecretKind};
use crate::model::user::{OPERATOR, Scope, Scopes};

/// A new access and refresh token, as hashes, writes and answer.
pub(super) struct TokenPair {
    pub(super) writes: Vec<Write>,
    pub(super) access: Digest,
    pub(super) refresh: Digest,
    pub(super) answer: TokenAnswer,
}

/// The secret texts of an access and a refresh token.
pub(super) struct PairSecrets {
    pub(super) access: Secret,
    pub(super) refresh: Secret,
}

impl PairSecrets {
    pub(super) fn fresh(random: &dyn Random) -> Self {
        Self {
            access: Secret::fresh(SecretKind::Access, random),
            refresh: Secret::fresh(SecretKind::Refresh, random),
        }
    }

    /// Derives the pair that replaces the `presented` refresh token: the same salt gives the same
    /// pair.
    pub(super) fn derive_from(presented: &Secret, salt: &str) -> Self {
        Self {
            access: Secret::derive_from(SecretKind::Access, presented, salt),
            refresh: Secret::derive_from(SecretKind::Refresh, presented, salt),
        }
    }

    pub(super) fn to_answer(&self, expires_in: i64, scopes: Scopes, operator: bool) -> TokenAnswer {
        let mut words: Vec<_> = scopes.iter().map(Scope::as_str).collect();
        words.extend(operator.then_some(OPERATOR));
        TokenAnswer {
            access_token: self.access.text().to_owned(),
            token_type: "Bearer".to_owned(),
            expires_in,
            // Operator rights end with the access token, so there is no refresh token.
            refresh_token: (!operator).then(|| self.refresh.text().to_owned()),
            scope: words.join(" "),
        }
    }
}
