//! A grant: one consent and the family of tokens that came from it. Ending it ends them all, by one
//! write.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `grant/<namespace_id>` | `<client_id>/<grant_id>` | [`Grant`], until 180 days after the consent |
//! | `grant/service` | `<client_id>/<grant_id>` | [`Grant`] of an operator, 15 minutes |
//! | `acct/<account_id>` | `grant/<age>-<grant_id>` | [`Allowed`], for the person's own list, the newest first; ends with the grant |
//!
//! The grant says which refresh token is the newest. Rotation is one conditional write on it, so
//! two refreshes at once cannot both win; a token of the family that is neither the newest nor the
//! one just before it was stolen or replayed.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account::{AccountId, partition};
use super::client::ClientId;
use super::family::Family;
use super::namespace::NamespaceRef;
use super::user::Scopes;

/// How long a grant lives, however often it is refreshed, in seconds: 180 days.
pub const GRANT_SECONDS: i64 = 180 * 24 * 3600;
/// How long a refresh token lives unless it is used, in seconds: 30 days.
pub const REFRESH_SECONDS: i64 = 30 * 24 * 3600;
/// How long a token of an operator lives, in seconds: 15 minutes. It cannot be refreshed.
pub const OPERATOR_SECONDS: i64 = 15 * 60;
/// How long the answer to a refresh may be asked for again, in seconds.
pub const GRACE_SECONDS: i64 = 10;

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
    /// With the refresh token itself it gives the pair that replaced it, for an answer that was
    /// lost. Empty where an earlier version of vault gave a random pair.
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
        let family = &self.family;
        grant_key(family.namespace_id(), &family.client, &family.grant)
    }

    /// Whether tokens of it are good at `now`.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.ends_at
    }

    /// The writes that end the grant, which was read at `revision`, and take it out of the list of
    /// its account. The record stays, so that its tokens are known as dead.
    pub fn revocation(
        &self,
        revision: u64,
        why: Why,
        now: Timestamp,
    ) -> Result<[Write; 2], StoreError> {
        let ended = Self {
            revoked: Some(Revoked { at: now, why }),
            ..self.clone()
        };
        let document = Document::of(&ended)?;
        Ok([
            Write::put_until(self.key(), document, When::At(revision), self.ends_at),
            Write::delete(self.allowed_key(), When::Any),
        ])
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
    /// Where; absent for an app that acts for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceRef>,
    /// The app.
    pub client: ClientId,
    /// What it calls itself.
    pub name: Option<String>,
}

/// The prefix of the apps in an account's partition.
pub const ALLOWED: &str = "grant/";

/// The seconds from a consent to the end of year 2286: ten digits that are less the newer the
/// consent is.
const LAST_SECOND: i64 = 9_999_999_999;

/// Where the grant of this name stands in the list of its account; see [`Grant::name_in_list`].
pub fn allowed_key(account: &AccountId, name: &str) -> RecordKey {
    RecordKey::new(partition(account), format!("{ALLOWED}{name}"))
}

/// The id of the grant that has this name in the list; `None` for a text that is no such name, and
/// so may go into no key.
pub fn id_in_list(name: &str) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.split_once('-')
        .filter(|(age, _)| age.len() == 10 && age.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(_, id)| id)
        .filter(|id| id.len() == 30 && id.bytes().all(plain))
}

impl Grant {
    /// The name of the grant in the list of its account: a newer grant stands before an older one,
    /// since a person looks for what is new.
    pub fn name_in_list(&self) -> String {
        let age = (LAST_SECOND - self.created_at.unix()).clamp(0, LAST_SECOND);
        format!("{age:010}-{}", self.family.grant)
    }

    /// Where it stands in the list of its account.
    pub fn allowed_key(&self) -> RecordKey {
        allowed_key(&self.family.account, &self.name_in_list())
    }

    /// The write that keeps the grant in the list of its account; written with every rotation, so
    /// that a grant of an earlier version comes into the list too.
    pub fn listed(&self, name: Option<&str>) -> Result<Write, StoreError> {
        let allowed = Allowed {
            namespace: self.family.namespace().cloned(),
            client: self.family.client.clone(),
            name: name.map(str::to_owned),
        };
        let document = Document::of(&allowed)?;
        let key = self.allowed_key();
        Ok(Write::put_until(key, document, When::Any, self.ends_at))
    }
}

/// The partition that lists the grants of a namespace, client by client; of operators without one.
pub fn grants_partition(namespace: Option<&NamespaceId>) -> String {
    namespace.map_or_else(|| "grant/service".to_owned(), |id| format!("grant/{id}"))
}

/// Where a grant stands.
pub fn grant_key(namespace: Option<&NamespaceId>, client: &ClientId, grant: &str) -> RecordKey {
    RecordKey::new(grants_partition(namespace), format!("{client}/{grant}"))
}
