//! A grant: one consent and the family of tokens that came from it. Ending it ends them all, by one
//! write.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `grant/<namespace_id>` | `<client_id>/<grant_id>` | [`Grant`], until 180 days after the consent |
//! | `grant/service` | `<client_id>/<grant_id>` | [`Grant`] of an operator, 15 minutes |
//! | `acct/<account_id>` | `grant/<age>-<grant_id>` | [`AllowedApp`], for the person's own list, the newest first; ends with the grant |
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

use super::account::{AccountId, account_partition};
use super::client::ClientId;
use super::family::Family;
use super::namespace::NamespaceRef;
use super::user::Scopes;

/// Lifetime of a grant, however often it is refreshed, in seconds: 180 days.
pub const GRANT_SECONDS: i64 = 180 * 24 * 3600;
/// Lifetime of an unused refresh token, in seconds: 30 days.
pub const REFRESH_SECONDS: i64 = 30 * 24 * 3600;
/// Lifetime of a token of an operator, in seconds: 15 minutes. It cannot be refreshed.
pub const OPERATOR_SECONDS: i64 = 15 * 60;
/// Time for which a client may ask again for the answer to a refresh whose tokens were not used yet,
/// in seconds: 10 minutes.
pub const GRACE_SECONDS: i64 = 600;
/// The same for a refresh that an earlier version of vault answered, which did not record the use of
/// an access token.
const EARLIER_GRACE_SECONDS: i64 = 10;

/// One consent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// Account, client and target of its tokens.
    pub family: Family,
    /// The scopes consented to: no token of the family has more.
    pub scopes: Scopes,
    /// Time at which the code was exchanged.
    pub created_at: Timestamp,
    /// Time at which it ends, used or not.
    pub ends_at: Timestamp,
    /// The newest refresh token.
    pub refresh: Digest,
    /// The access token that came with it.
    pub access: Digest,
    /// The refresh token that the newest replaced.
    pub previous: Option<Previous>,
    /// End of the grant, if it was ended before its time.
    pub revoked: Option<Revoked>,
}

/// A refresh token that was used.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Previous {
    /// Its hash.
    pub refresh: Digest,
    /// Time of its first use.
    pub rotated_at: Timestamp,
    /// Salt that derives, from the refresh token itself, the pair that replaced it, for an answer
    /// that was lost. Empty if an earlier version of vault gave a random pair.
    #[serde(default)]
    pub salt: String,
    /// Scopes of the access token of that pair.
    #[serde(default)]
    pub scopes: Scopes,
    /// Whether the access token of that pair was used. The use of its refresh token replaces this
    /// record. Absent if an earlier version of vault gave the pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<bool>,
}

impl Previous {
    /// Whether its answer may be given again at `now`: perhaps it was lost.
    pub fn is_repeatable(&self, now: Timestamp) -> bool {
        let seconds = match self.used {
            Some(true) => return false,
            Some(false) => GRACE_SECONDS,
            None => EARLIER_GRACE_SECONDS,
        };
        now <= self.rotated_at.plus_seconds(seconds)
    }
}

/// The end of a grant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Revoked {
    /// Time of the end.
    pub at: Timestamp,
    /// Reason of the end.
    pub why: RevocationReason,
}

/// Reason for ending a grant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RevocationReason {
    /// Its client or its user asked for it.
    Asked,
    /// Its code came a second time.
    CodeReused,
    /// A refresh token came again that had been replaced.
    RefreshReused,
}

impl Grant {
    /// Returns its key.
    pub fn key(&self) -> RecordKey {
        let family = &self.family;
        grant_key(family.namespace_id(), &family.client, &family.grant)
    }

    /// Whether its tokens are good at `now`.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.ends_at
    }

    /// Returns the writes that end the grant, which was read at `revision`, and remove it from the
    /// list of its account. The record stays, so that its tokens are known as dead.
    pub fn revocation_writes(
        &self,
        revision: u64,
        why: RevocationReason,
        now: Timestamp,
    ) -> Result<[Write; 2], StoreError> {
        let ended = Self {
            revoked: Some(Revoked { at: now, why }),
            ..self.clone()
        };
        let document = Document::from_value(&ended)?;
        Ok([
            Write::put_until(self.key(), document, When::At(revision), self.ends_at),
            // `Any`, because a grant of an earlier version may not be listed.
            Write::delete(self.allowed_key(), When::Any),
        ])
    }
}

impl Grant {
    /// Returns the grant with a record of the use of its access token with this hash; `None` if
    /// that use changes nothing. From then on the refresh token that was replaced is no good: the
    /// client has the answer, so whoever asks for it again is somebody else.
    pub fn with_used_access(&self, access: &Digest, now: Timestamp) -> Option<Self> {
        let previous = self.previous.as_ref()?;
        let is_first = self.access == *access && previous.used == Some(false);
        (is_first && previous.is_repeatable(now)).then(|| Self {
            previous: Some(Previous {
                used: Some(true),
                ..previous.clone()
            }),
            ..self.clone()
        })
    }

    /// Returns the time at which tokens of it were last given, to within [`GRACE_SECONDS`].
    pub fn last_given_at(&self) -> Timestamp {
        self.previous
            .as_ref()
            .map_or(self.created_at, |previous| previous.rotated_at)
    }
}

/// An app that a person allowed, as an entry of that person's list.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AllowedApp {
    /// Namespace in which it acts; absent for an app that acts for an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceRef>,
    /// The app.
    pub client: ClientId,
    /// Name that the app gave itself.
    pub name: Option<String>,
}

/// The prefix of the apps in an account's partition.
pub const ALLOWED: &str = "grant/";

/// The seconds from a consent to the end of year 2286: ten digits that are less the newer the
/// consent is.
const LAST_SECOND: i64 = 9_999_999_999;

/// Returns the key of the grant of this name in the list of its account; see
/// [`Grant::name_in_list`].
pub fn allowed_key(account: &AccountId, name: &str) -> RecordKey {
    RecordKey::new(account_partition(account), format!("{ALLOWED}{name}"))
}

/// Returns the id of the grant that has this name in the list, or `None` if the text is no such
/// name and must not become part of a key.
pub fn id_in_list(name: &str) -> Option<&str> {
    // The text comes from a request, and the id becomes part of a record key.
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.split_once('-')
        .filter(|(age, _)| age.len() == 10 && age.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(_, id)| id)
        .filter(|id| id.len() == 30 && id.bytes().all(plain))
}

impl Grant {
    /// Returns the name of the grant in the list of its account. A newer grant sorts before an
    /// older one, because a person looks for what is new.
    pub fn name_in_list(&self) -> String {
        // Clamped, so that a wrong clock still gives ten digits and keeps the order of the list.
        let age = (LAST_SECOND - self.created_at.unix()).clamp(0, LAST_SECOND);
        format!("{age:010}-{}", self.family.grant)
    }

    /// Returns its key in the list of its account.
    pub fn allowed_key(&self) -> RecordKey {
        allowed_key(&self.family.account, &self.name_in_list())
    }

    /// Returns the write that lists the grant with its account. It is part of every rotation, so
    /// that a grant of an earlier version is listed too.
    pub fn listing_write(&self, name: Option<&str>) -> Result<Write, StoreError> {
        let allowed = AllowedApp {
            namespace: self.family.namespace().cloned(),
            client: self.family.client.clone(),
            name: name.map(str::to_owned),
        };
        let document = Document::from_value(&allowed)?;
        let key = self.allowed_key();
        // Each rotation writes the entry, so it may exist already.
        Ok(Write::put_until(key, document, When::Any, self.ends_at))
    }
}

/// Returns the partition that lists the grants of a namespace, client by client; without a
/// namespace, those of operators.
pub fn grants_partition(namespace: Option<&NamespaceId>) -> String {
    namespace.map_or_else(|| "grant/service".to_owned(), |id| format!("grant/{id}"))
}

/// Returns the key of a grant.
pub fn grant_key(namespace: Option<&NamespaceId>, client: &ClientId, grant: &str) -> RecordKey {
    RecordKey::new(grants_partition(namespace), format!("{client}/{grant}"))
}
