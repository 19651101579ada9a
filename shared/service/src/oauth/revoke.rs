//! `POST /oauth/revoke` (RFC 7009): a client or a person ends a token.
//!
//! The caller must send the `client_id` of the token's client, or bear a valid token of the same
//! client or account. A token that the caller may not end gets the same answer as one that never
//! existed: 200, without effect.

use std::net::IpAddr;

use serde_json::json;
use vault_format::hash::Digest;
use vault_store::StoreError;
use vault_store::records::{When, Write};

use crate::model::Versioned;
use crate::model::account::AccountId;
use crate::model::audit::{Actor, Change};
use crate::model::client::ClientId;
use crate::model::grant::{Grant, RevocationReason, grant_key};
use crate::model::token::{Family, Secret, SecretKind, Token, TokenKind, token_key};
use crate::ports::Ports;

/// Caller of the revocation endpoint; at least one member is set.
#[derive(Clone, Debug, Default)]
pub struct RevocationCaller {
    /// Client whose `client_id` was sent. It is not authenticated, because clients have no secret.
    pub client: Option<ClientId>,
    /// Client and account of a valid access token.
    pub bearer: Option<(ClientId, AccountId)>,
}

impl RevocationCaller {
    // The unauthenticated `client_id` suffices here: whoever knows the token can do worse with it
    // than end it.
    fn may_end(&self, family: &Family) -> bool {
        let by_client = self.client.as_ref() == Some(&family.client);
        let by_bearer = self.bearer.as_ref().is_some_and(|(client, account)| {
            *client == family.client || *account == family.account
        });
        by_client || by_bearer
    }
}

/// Returns the hash of a presented token; `None` if the text is no token of this service.
pub fn hash_token(token: &str) -> Option<Digest> {
    [SecretKind::Access, SecretKind::Refresh]
        .into_iter()
        .find_map(|kind| Secret::parse(kind, token))
        .map(|secret| secret.hash())
}

/// Records about a token: itself and its grant, if they exist.
#[derive(Default)]
pub struct TokenRecords {
    token: Option<Versioned<Token>>,
    grant: Option<Versioned<Grant>>,
}

/// Loads the token with this hash, and its grant. Both are absent if no such token is stored.
pub async fn load_token(ports: &Ports, hash: &Digest) -> Result<TokenRecords, StoreError> {
    let Some(token) = ports.get::<Token>(&token_key(hash)).await? else {
        return Ok(TokenRecords::default());
    };
    let family = &token.value.family;
    let key = grant_key(family.namespace_id(), &family.client, &family.grant);
    Ok(TokenRecords {
        grant: ports.get(&key).await?,
        token: Some(token),
    })
}

/// Returns the writes of a revocation: an access token ends alone, a refresh token with its whole
/// family, and a token that the caller may not end stays. Each of these attempts is recorded in the
/// log of the token's namespace. For a token that does not exist or has ended, there is nothing to
/// write.
pub fn decide_revocation(
    ports: &Ports,
    hash: &Digest,
    known: &TokenRecords,
    asker: &RevocationCaller,
    source: Option<IpAddr>,
) -> Result<Vec<Write>, StoreError> {
    let Some(token) = known.token.as_ref() else {
        return Ok(Vec::new());
    };
    let family = &token.value.family;
    let (mut writes, what) = match (token.value.kind, &known.grant) {
        (TokenKind::Access, _) => {
            let end = Write::delete(token_key(hash), When::Any);
            (vec![end], "access")
        }
        (TokenKind::Refresh, Some(grant)) if grant.value.revoked.is_none() => {
            let end = (grant.value).revocation_writes(
                grant.revision,
                RevocationReason::Asked,
                ports.now(),
            )?;
            (end.to_vec(), "refresh")
        }
        (TokenKind::Refresh, _) => return Ok(Vec::new()),
    };
    let may = asker.may_end(family);
    let client = asker.bearer.as_ref().map(|(client, _)| client);
    let actor = Actor {
        user: family.actor().to_owned(),
        client: asker.client.as_ref().or(client).map(ToString::to_string),
        source,
    };
    let change = Change::about(&family.grant).with_before(json!({ "token": what }));
    let outcome = if may { "done" } else { "not_yours" };
    let namespace = family.namespace_id();
    let entry = ports.audit_entry(namespace, &actor, "token.revoke", change, outcome)?;
    // If the caller may not end the token, only the audit entry is written.
    writes.retain(|_| may);
    writes.push(entry);
    Ok(writes)
}
