//! A browser on its way to the identity provider, and back from it.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256 of the cookie>` | `provider/<sha256 of the state>` | [`ProviderRequest`], 10 minutes, removed by its use |
//! | `session/<sha256 of the cookie>` | `connect` | [`PendingConnection`], 10 minutes, removed by its use |
//!
//! Both belong to one browser: another one has another partition.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account_id::AccountId;
use super::limits::{NetworkLimit, Networks, Window};
use super::session::session_partition;

/// Time that a person may take at the provider, and then again to prove the account, in seconds: 10
/// minutes each.
pub const REQUEST_SECONDS: i64 = 600;
/// Window in which the unfinished sign-ins of a source are counted, in seconds.
const WINDOW_SECONDS: i64 = 15 * 60;

/// A browser that was sent to the provider.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProviderRequest {
    /// The page of ours that the person is on the way to.
    pub return_to: String,
    /// Whether the provider was asked to make the person enter credentials.
    pub fresh: bool,
    /// Time of the request.
    pub at: Timestamp,
    /// Networks against whose limits the request counts.
    #[serde(alias = "source")]
    pub networks: Networks,
}

/// A person who came back, whose address belongs to an account with other proofs: the person must
/// prove that account once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PendingConnection {
    /// The account with the address.
    pub account: AccountId,
    /// The provider.
    pub issuer: String,
    /// The person, by the name in [`super::subject`].
    pub subject: Digest,
}

impl ProviderRequest {
    /// Returns the windows in which the request counts until the sign-in is done: `limit` requests
    /// of a source, and more of a wider network.
    pub fn sign_in_windows(&self, limit: u32) -> Vec<Window<'static>> {
        let limit = NetworkLimit {
            name: "sign-in-provider",
            about: None,
            limit,
            seconds: WINDOW_SECONDS,
        };
        limit.windows(&self.networks)
    }

    /// Returns the write that stores the request of a browser.
    pub fn creation_write(&self, browser: &Digest, state: &Digest) -> Result<Write, StoreError> {
        Ok(Write::put_until(
            request_key(browser, state),
            Document::from_value(self)?,
            // A state belongs to one request and is never taken over by another.
            When::Absent,
            self.at.plus_seconds(REQUEST_SECONDS),
        ))
    }
}

impl PendingConnection {
    /// Returns the write that stores the connection for a browser, in place of an earlier one.
    pub fn creation_write(&self, browser: &Digest, now: Timestamp) -> Result<Write, StoreError> {
        Ok(Write::put_until(
            pending_key(browser),
            Document::from_value(self)?,
            When::Any,
            now.plus_seconds(REQUEST_SECONDS),
        ))
    }
}

/// Returns the key of the request with this state of a browser.
pub fn request_key(browser: &Digest, state: &Digest) -> RecordKey {
    RecordKey::new(session_partition(browser), format!("provider/{state}"))
}

/// Returns the key of the pending connection of a browser.
pub fn pending_key(browser: &Digest) -> RecordKey {
    RecordKey::new(session_partition(browser), "connect")
}
