//! A client: an app that uses OAuth; and its connection to one namespace, which an owner there can
//! end.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `client/<client_id>` | `client` | [`Client`], a day until first used, 400 days from its last use |
//! | `conn/<namespace_id>` | `<client_id>` | [`Connection`]: a bearer check reads it, so ending it ends all its tokens there |
//!
//! A client either registers itself and gets a random id, or is identified by the https address of
//! a document with its metadata. Then its id is computed from the address, and its record is kept
//! like that of an unused registration. A client belongs to no namespace and may be connected to
//! several, so an owner ends a connection, not the client.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vault_api::Scopes;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::random::Random;
use vault_store::records::{Document, RecordKey, When, Write};

use super::limits::{NetworkLimit, Networks};
use super::redirect::RedirectUri;
use super::{fresh_id, is_id};

/// Lifetime of an unused registration, in seconds: a day. Apps send a person to the consent page
/// right after they register.
pub const UNUSED_SECONDS: i64 = 24 * 3600;
/// Lifetime of an unused record of a client's document, in seconds: a day, since it can be fetched
/// again.
pub const DOCUMENT_SECONDS: i64 = 24 * 3600;
/// Lifetime of a used registration after its last use, in seconds: 400 days, longer than any grant.
pub const USED_SECONDS: i64 = 400 * 24 * 3600;

/// The id of a client: `cli_` and 26 lower-case letters or digits.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct ClientId(String);

/// Error: a text is not a client id of this service.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not a client id")]
pub struct BadClientId;

impl ClientId {
    /// Creates a random id for a client that registers.
    pub fn fresh(now: Timestamp, random: &dyn Random) -> Self {
        Self(fresh_id("cli_", now, random))
    }

    /// Returns the id of a client whose document has the address with this SHA-256.
    pub fn of_document(address: &Digest) -> Self {
        // 26 hex digits are 104 bits: too many to find a second address with the same id.
        Self(format!("cli_{}", &address.to_string()[..26]))
    }

    /// Returns the text of the id, `cli_…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientId {
    type Err = BadClientId;

    fn from_str(text: &str) -> Result<Self, BadClientId> {
        // The id becomes part of record keys, so no other character may pass.
        if is_id("cli_", text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadClientId)
        }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<ClientId> for String {
    fn from(id: ClientId) -> Self {
        id.0
    }
}

impl TryFrom<String> for ClientId {
    type Error = BadClientId;

    fn try_from(text: String) -> Result<Self, BadClientId> {
        text.parse()
    }
}

/// A client, as it is stored. All values are what the app says about itself: untrusted text.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Client {
    /// Id by which tokens, consents and connections name the client.
    pub id: ClientId,
    /// Name for people, which may claim anything.
    pub name: Option<String>,
    /// Redirect URIs to which codes may be sent.
    pub redirect_uris: Vec<RedirectUri>,
    /// Scopes that the client registered for; no consent gives it others.
    pub scopes: Scopes,
    /// Time of the registration, or of the first reading of its document.
    pub created_at: Timestamp,
    /// Document that the values come from; `None` for a registered client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<ClientDocument>,
    /// Networks for which the registration counts as unused; removed at its first use. `None` also
    /// in records of an earlier version, which counted in another way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_of: Option<Networks>,
}

/// Returns the limit on registrations from one source that were never used. A registration counts
/// in the window of its creation; its first use takes the count back.
pub fn unused_limit(limit: u32) -> NetworkLimit<'static> {
    NetworkLimit {
        name: "register-unused",
        about: None,
        limit,
        seconds: UNUSED_SECONDS,
    }
}

/// Address of a client's document, and how long its content is cached.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ClientDocument {
    /// Address of the document, which is also the client's `client_id`.
    pub url: String,
    /// Host of the address, for people.
    pub host: String,
    /// Time from which the document must be fetched again before a person is asked for consent.
    pub fresh_until: Timestamp,
    /// Time before which the document is not fetched again, because its host failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

impl Client {
    /// Returns the writes that stop counting the client as an unused registration.
    pub fn used_writes(&self) -> Vec<Write> {
        let networks = self.unused_of.iter();
        // The limit may be anything but 0: the registration was counted, whatever the limit is now.
        let windows = networks.flat_map(|networks| unused_limit(1).windows(networks));
        windows
            .filter_map(|window| window.releasing_write(self.created_at))
            .collect()
    }

    /// Whether one of the client's redirect URIs permits `asked`.
    pub fn allows_redirect(&self, asked: &RedirectUri) -> bool {
        self.redirect_uris
            .iter()
            .any(|registered| registered.accepts(asked))
    }
}

/// The connection of a client to one namespace: consents there have effect only while it lasts.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Connection {
    /// Id of this connection. Tokens contain it, so that tokens of an ended connection stay invalid
    /// when the client is connected again.
    #[serde(default)]
    pub id: String,
    /// The connected client; its id is also the key of the record.
    pub client: ClientId,
    /// The client's name when it first connected.
    pub name: Option<String>,
    /// The address of the client's document, if it is known by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Time of the first consent of this connection.
    pub connected_at: Timestamp,
    /// Time at which an owner ended the connection. Its tokens are invalid from then on, and it
    /// gets no new ones.
    pub revoked_at: Option<Timestamp>,
    /// Time at which an owner ended the client's previous connection, if a new consent has
    /// connected the client again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_before_at: Option<Timestamp>,
}

impl Connection {
    /// Returns the time at which an owner last ended a connection of the client here, even if it is
    /// connected again. Consents from before that time are no longer valid.
    pub fn last_ended_at(&self) -> Option<Timestamp> {
        // If this connection has ended, its end is later than that of the one before.
        self.revoked_at.or(self.ended_before_at)
    }

    /// Returns the write that ends the connection, which was read at `revision`: all tokens of the
    /// client become invalid in this namespace. The record stays, so that no new token can be
    /// issued.
    pub fn ending_write(
        &self,
        namespace: &NamespaceId,
        revision: u64,
        now: Timestamp,
    ) -> Result<Write, StoreError> {
        let ended = Self {
            revoked_at: Some(now),
            ..self.clone()
        };
        Ok(Write::put(
            connection_key(namespace, &self.client),
            Document::from_value(&ended)?,
            When::At(revision),
        ))
    }
}

/// Returns the key of the [`Client`] with this id.
pub fn client_key(id: &ClientId) -> RecordKey {
    RecordKey::new(format!("client/{id}"), "client")
}

/// Returns the partition with the [`Connection`]s of a namespace, including those that have ended.
pub fn connections_partition(namespace: &NamespaceId) -> String {
    format!("conn/{namespace}")
}

/// Returns the key of a client's [`Connection`] to a namespace.
pub fn connection_key(namespace: &NamespaceId, id: &ClientId) -> RecordKey {
    RecordKey::new(connections_partition(namespace), id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_testing::SeededRandom;

    #[test]
    fn ids_are_plain() {
        let fresh = ClientId::fresh(Timestamp::from_unix(1_795_219_200), &SeededRandom::new(1));
        assert_eq!(fresh.as_str().parse(), Ok(fresh.clone()));
        for bad in [
            "",
            "cli_",
            "cli_ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            "https://a.example/client",
            "cli_abcdefghijklmnopqrstuvwxy/",
        ] {
            assert_eq!(bad.parse::<ClientId>(), Err(BadClientId), "{bad}");
        }
    }
}
