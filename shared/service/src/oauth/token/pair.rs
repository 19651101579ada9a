//! The pair of access and refresh token that an answer carries, and the writes that make it valid.

use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, When, Write};

use super::{TokenAnswer, TokenTerms};
use crate::model::grant::REFRESH_SECONDS;
use crate::model::token::{Family, Secret, SecretKind, Token, TokenKind, token_key};
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

/// Creates the tokens of `family`, valid from `now` on. The access token has `scopes`, a subset of
/// the `granted` ones. No token outlives `ends_at`.
pub(super) fn issue_pair(
    secrets: &PairSecrets,
    family: &Family,
    (granted, scopes): (Scopes, Scopes),
    (now, ends_at): (Timestamp, Timestamp),
    terms: TokenTerms<'_>,
) -> Result<TokenPair, StoreError> {
    let PairSecrets { access, refresh } = secrets;
    let access_until = now.plus_seconds(terms.access_seconds).min(ends_at);
    let refresh_until = now.plus_seconds(REFRESH_SECONDS).min(ends_at);
    let write = |kind, scopes, secret: &Secret, expires_at| -> Result<Write, StoreError> {
        let token = Token {
            kind,
            family: family.clone(),
            scopes,
            issued_at: now,
            expires_at,
        };
        Ok(Write::put_until(
            token_key(&secret.hash()),
            Document::from_value(&token)?,
            When::Absent,
            expires_at,
        ))
    };
    let mut writes = vec![write(TokenKind::Access, scopes, access, access_until)?];
    if !family.is_operator() {
        // A refresh token keeps the granted scopes, whatever was asked for this time (RFC 6749
        // section 6).
        writes.push(write(TokenKind::Refresh, granted, refresh, refresh_until)?);
    }
    Ok(TokenPair {
        writes,
        access: access.hash(),
        refresh: refresh.hash(),
        answer: secrets.to_answer(
            access_until.unix() - now.unix(),
            scopes,
            family.is_operator(),
        ),
    })
}
