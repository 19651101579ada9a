//! A grant: one consent and the family of tokens that came from it. Ending it ends them all, by one write.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `grant/<namespace_id>` | `<client_id>/<grant_id>` | [`Grant`], until 180 days after the consent |
//!
//! The grant says which refresh token is the newest. Rotation is one conditional write on it, so two refreshes at once cannot
//! both win; a token of the family that is neither the newest nor the one just before it was stolen or replayed.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account::{Email, account_key};
use super::client::{ClientId, connection_key};
use super::namespace::NamespaceRef;
use super::user::{Scopes, user_key};

/// How long a grant lives, however often it is refreshed, in seconds: 180 days.
pub const GRANT_SECONDS: i64 = 180 * 24 * 3600;
/// How long a refresh token lives unless it is used, in seconds: 30 days.
pub const REFRESH_SECONDS: i64 = 30 * 24 * 3600;
/// How long the answer to a refresh may be asked for again, in seconds.
pub const GRACE_SECONDS: i64 = 10;

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

/// One consent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// Whose it is and what for.
    pub family: Family,
    /// The scopes consented to: no token of the family has more.
    pub scopes: Scopes,
    /// When the code was exchanged.
    pub created_at: Timestamp,
    /// When it ends, used or not.
    pub ends_at: Timestamp,
    /// The newest refresh token.
    pub refresh: Digest,
    /// The access token that came with it.
    pub access: Digest,
    /// The refresh token that the newest replaced.
    pub previous: Option<Previous>,
    /// When and why it was ended.
    pub revoked: Option<Revoked>,
}

/// A refresh token that was used.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Previous {
    /// Its hash.
    pub refresh: Digest,
    /// When it was used first.
    pub rotated_at: Timestamp,
}

/// The end of a grant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Revoked {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub why: Why,
}

/// Why a grant was ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its client or its user asked for it.
    Asked,
    /// Its code came a second time.
    CodeReused,
    /// A refresh token came again that had been replaced.
    RefreshReused,
}

impl Grant {
    /// Where it stands.
    pub fn key(&self) -> RecordKey {
        grant_key(
            &self.family.namespace.id,
            &self.family.client,
            &self.family.grant,
        )
    }

    /// Whether tokens of it are good at `now`.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.ends_at
    }

    /// The write that ends the grant, which was read at `revision`. The record stays, so that its tokens are known as dead.
    pub fn revocation(&self, revision: u64, why: Why, now: Timestamp) -> Result<Write, StoreError> {
        let ended = Self {
            revoked: Some(Revoked { at: now, why }),
            ..self.clone()
        };
        Ok(Write::put_until(
            self.key(),
            Document::of(&ended)?,
            When::At(revision),
            self.ends_at,
        ))
    }
}

impl Grant {
    /// When tokens of it were given the last time, to within [`GRACE_SECONDS`].
    pub fn last_given_at(&self) -> Timestamp {
        self.previous
            .as_ref()
            .map_or(self.created_at, |previous| previous.rotated_at)
    }
}

/// The partition that lists the grants of a namespace, client by client.
pub fn grants_partition(namespace: &NamespaceId) -> String {
    format!("grant/{namespace}")
}

/// Where a grant stands.
pub fn grant_key(namespace: &NamespaceId, client: &ClientId, grant: &str) -> RecordKey {
    RecordKey::new(grants_partition(namespace), format!("{client}/{grant}"))
}
