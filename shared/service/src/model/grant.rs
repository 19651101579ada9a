//! A grant: one consent and the family of tokens that came from it. Ending it ends them all, by one write.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `grant/<namespace_id>` | `<client_id>/<grant_id>` | [`Grant`], until 180 days after the consent |
//! | `acct/<account_id>` | `grant/<grant_id>` | [`Allowed`], for the person's own list; ends with the grant |
//!
//! The grant says which refresh token is the newest. Rotation is one conditional write on it, so two refreshes at once cannot
//! both win; a token of the family that is neither the newest nor the one just before it was stolen or replayed.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account::{AccountId, Epochs, account_key, partition};
use super::client::{ClientId, connection_key};
use super::namespace::NamespaceRef;
use super::user::{Scopes, user_key};

/// How long a grant lives, however often it is refreshed, in seconds: 180 days.
pub const GRANT_SECONDS: i64 = 180 * 24 * 3600;
/// How long a refresh token lives unless it is used, in seconds: 30 days.
pub const REFRESH_SECONDS: i64 = 30 * 24 * 3600;
/// How long a token of an operator lives, in seconds: 15 minutes. It cannot be refreshed.
pub const OPERATOR_SECONDS: i64 = 15 * 60;
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
    pub account: AccountId,
    /// What the tokens were given under: they end when one of the numbers is raised.
    #[serde(default)]
    pub epochs: Epochs,
    /// The audience: the public URL, or it with `/mcp`.
    pub resource: String,
    /// When that person entered credentials for just this authorization; absent where an older sign-in of the browser did.
    #[serde(default)]
    pub auth_time: Option<Timestamp>,
    /// Whether the tokens act for an operator of the service, for a short while.
    #[serde(default)]
    pub operator: bool,
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
    /// With the refresh token itself it gives the pair that replaced it, for an answer that was lost. Empty where an earlier version of vault
    /// gave a random pair.
    #[serde(default)]
    pub salt: String,
    /// What the access token of that pair carries.
    #[serde(default)]
    pub scopes: Scopes,
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

/// An app that a person allowed, as the person's own list finds it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Allowed {
    /// Where.
    pub namespace: NamespaceRef,
    /// The app.
    pub client: ClientId,
    /// What it calls itself.
    pub name: Option<String>,
}

/// The prefix of the apps in an account's partition.
pub const ALLOWED: &str = "grant/";

/// Where a grant stands in the list of its account.
pub fn allowed_key(account: &AccountId, grant: &str) -> RecordKey {
    RecordKey::new(partition(account), format!("{ALLOWED}{grant}"))
}

impl Grant {
    /// The write that keeps the grant in the list of its account; written with every rotation, so that a grant of an earlier version
    /// comes into the list too.
    pub fn listed(&self, name: Option<&str>) -> Result<Write, StoreError> {
        let allowed = Allowed {
            namespace: self.family.namespace.clone(),
            client: self.family.client.clone(),
            name: name.map(str::to_owned),
        };
        let key = allowed_key(&self.family.account, &self.family.grant);
        let document = Document::of(&allowed)?;
        Ok(Write::put_until(key, document, When::Any, self.ends_at))
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
