//! A grant: the record of one consent of a person to an app. All tokens that come from the consent
//! (its family) depend on this record, so one write ends them all.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `grant/<namespace_id>` | `<client_id>/<grant_id>` | [`Grant`], until 180 days after the consent |
//! | `grant/service` | `<client_id>/<grant_id>` | [`Grant`] of an operator, 15 minutes |
//! | `acct/<account_id>` | `grant/<age>-<grant_id>` | [`AllowedApp`], for the person's own list, the newest first; ends with the grant |
//!
//! The grant names the newest refresh token. Each refresh replaces that token (rotation) with one
//! conditional write on the grant, so of two refreshes at once only one succeeds. A refresh token
//! of the family that is neither the newest nor the one just before it was stolen or replayed.

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

/// Lifetime of a grant in seconds, however often its tokens are refreshed: 180 days.
pub const GRANT_SECONDS: i64 = 180 * 24 * 3600;
/// Lifetime of an unused refresh token, in seconds: 30 days.
pub const REFRESH_SECONDS: i64 = 30 * 24 * 3600;
/// Lifetime of a token of an operator, in seconds: 15 minutes. It cannot be refreshed.
pub const OPERATOR_SECONDS: i64 = 15 * 60;
/// Time for which a client may repeat a refresh whose answer was perhaps lost, because its tokens
/// were not used yet, in seconds: 10 minutes.
pub const GRACE_SECONDS: i64 = 600;
/// Like [`GRACE_SECONDS`], for a refresh that an earlier version of vault answered, which did not
/// record the use of an access token.
const EARLIER_GRACE_SECONDS: i64 = 10;

/// The record of a consent, with the hashes of its newest tokens.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// Properties that the tokens share, such as account, client and namespace.
    pub family: Family,
    /// Scopes that the person consented to; no token of the family has others.
    pub scopes: Scopes,
    /// Time at which the authorization code was exchanged for the first tokens.
    pub created_at: Timestamp,
    /// Time at which the grant ends, however much it is used.
    pub ends_at: Timestamp,
    /// SHA-256 of the newest refresh token.
    pub refresh: Digest,
    /// SHA-256 of the access token that was issued together with the newest refresh token.
    pub access: Digest,
    /// The refresh token that the newest one replaced; `None` before the first refresh.
    pub previous: Option<Previous>,
    /// When and why the grant was revoked; `None` while it is not.
    pub revoked: Option<Revoked>,
}

/// The refresh token before the newest one, with what is needed to answer its refresh again.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Previous {
    /// SHA-256 of the refresh token that was replaced.
    pub refresh: Digest,
    /// Time at which the token was first used, and so replaced.
    pub rotated_at: Timestamp,
    /// Salt from which, with the refresh token itself, the pair of tokens that replaced it is
    /// derived again if an answer was lost. Empty if an earlier version of vault issued a random
    /// pair.
    #[serde(default)]
    pub salt: String,
    /// Scopes of the access token in the pair that replaced this token.
    #[serde(default)]
    pub scopes: Scopes,
    /// Whether the access token in the pair that replaced this token was used. (The use of the
    /// refresh token in that pair replaces this record.) Absent if an earlier version of vault
    /// issued the pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<bool>,
}

impl Previous {
    /// Whether the refresh may be answered again at `now` with the same pair, because the first
    /// answer was perhaps lost.
    pub fn is_repeatable(&self, now: Timestamp) -> bool {
        let seconds = match self.used {
            Some(true) => return false,
            Some(false) => GRACE_SECONDS,
            None => EARLIER_GRACE_SECONDS,
        };
        now <= self.rotated_at.plus_seconds(seconds)
    }
}

/// Early end of a grant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Revoked {
    /// Time of the revocation; no token of the family is valid from then on.
    pub at: Timestamp,
    /// Whether the client or the user requested the revocation, or a used code or token was
    /// presented again.
    pub why: RevocationReason,
}

/// Reason for revoking a grant.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RevocationReason {
    /// The client or the user of the grant requested the revocation.
    Asked,
    /// The authorization code of the grant was presented a second time.
    CodeReused,
    /// A refresh token that had been replaced was presented again.
    RefreshReused,
}

impl Grant {
    /// Returns the key of the grant's record.
    pub fn key(&self) -> RecordKey {
        let family = &self.family;
        grant_key(family.namespace_id(), &family.client, &family.grant)
    }

    /// Whether the grant's tokens may be valid at `now`: it is neither revoked nor at its end.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && now < self.ends_at
    }

    /// Returns the writes that revoke the grant, which was read at `revision`, and remove it from
    /// the list of its account. The record stays until its end, so that its tokens are known as
    /// revoked.
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
    /// Returns the grant after the use of its access token with this hash; `None` if the use
    /// changes nothing. From then on, the replaced refresh token is rejected: the client has
    /// received the answer, so a repeated refresh must come from somebody else.
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

    /// Returns the time at which tokens were last issued, accurate to [`GRACE_SECONDS`].
    pub fn last_issued_at(&self) -> Timestamp {
        self.previous
            .as_ref()
            .map_or(self.created_at, |previous| previous.rotated_at)
    }
}

/// An app that a person has given a consent, as an entry of the person's list.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AllowedApp {
    /// Namespace that its tokens are for; `None` for an app with the rights of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NamespaceRef>,
    /// Client id of the app.
    pub client: ClientId,
    /// Name that the app gave itself.
    pub name: Option<String>,
}

/// Prefix of the keys of [`AllowedApp`] entries in an account's partition.
pub const ALLOWED: &str = "grant/";

/// The last second (in the year 2286) that has ten digits. A key contains the number of seconds
/// left until then, so that newer consents sort first.
const LAST_SECOND: i64 = 9_999_999_999;

/// Returns the key of the entry with this name in the list of an account; see
/// [`Grant::name_in_list`].
pub fn allowed_key(account: &AccountId, name: &str) -> RecordKey {
    RecordKey::new(account_partition(account), format!("{ALLOWED}{name}"))
}

/// Returns the id of the grant with this name in the list; `None` if the text is no such name.
pub fn id_in_list(name: &str) -> Option<&str> {
    // The text comes from a request, and the id becomes part of a record key.
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.split_once('-')
        .filter(|(age, _)| age.len() == 10 && age.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(_, id)| id)
        .filter(|id| id.len() == 30 && id.bytes().all(plain))
}

impl Grant {
    /// Returns the name of the grant in the list of its account. Newer grants sort before older
    /// ones, as a person wants to see them.
    pub fn name_in_list(&self) -> String {
        // Clamped, so that a wrong clock still gives ten digits and keeps the order of the list.
        let age = (LAST_SECOND - self.created_at.unix()).clamp(0, LAST_SECOND);
        format!("{age:010}-{}", self.family.grant)
    }

    /// Returns the key of the grant's entry in the list of its account.
    pub fn allowed_key(&self) -> RecordKey {
        allowed_key(&self.family.account, &self.name_in_list())
    }

    /// Returns the write that puts the grant on the list of its account. Every rotation writes it,
    /// so that grants of earlier versions are listed too.
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

/// Returns the partition of the grants of a namespace, sorted by client; without a namespace, that
/// of operators' grants.
pub fn grants_partition(namespace: Option<&NamespaceId>) -> String {
    namespace.map_or_else(|| "grant/service".to_owned(), |id| format!("grant/{id}"))
}

/// Returns the key of the [`Grant`] with this id; without a namespace, of an operator's grant.
pub fn grant_key(namespace: Option<&NamespaceId>, client: &ClientId, grant: &str) -> RecordKey {
    RecordKey::new(grants_partition(namespace), format!("{client}/{grant}"))
}
