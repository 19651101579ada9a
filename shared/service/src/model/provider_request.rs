//! Sign-ins through the identity provider (OpenID Connect) in progress: a browser that was sent
//! there, and a person who came back and still has to prove the account.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256 of the cookie>` | `provider/<sha256 of the state>` | [`ProviderRequest`], 10 minutes, removed by its use |
//! | `session/<sha256 of the cookie>` | `connect` | [`PendingConnection`], 10 minutes, removed by its use |
//!
//! Both records are valid for one browser only: each browser has a partition of its own.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::account_id::AccountId;
use super::limits::{NetworkLimit, Networks, Window};
use super::session::session_partition;

/// Maximum time that a person may spend at the provider, and then again to prove the account, in
/// seconds: 10 minutes each.
pub const REQUEST_SECONDS: i64 = 600;
/// Length of the window in which unfinished sign-ins of a source are counted, in seconds.
const WINDOW_SECONDS: i64 = 15 * 60;

/// A sign-in for which the browser was sent to the provider.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProviderRequest {
    /// Page of this service to which the person returns after the sign-in.
    pub return_to: String,
    /// Whether the provider was asked to make the person enter credentials.
    pub fresh: bool,
    /// Time at which the browser was sent to the provider.
    pub at: Timestamp,
    /// Networks for which the sign-in counts as unfinished.
    #[serde(alias = "source")]
    pub networks: Networks,
}

/// A person who came back from the provider, with the e-mail address of an account that has other
/// ways to sign in. The person must prove once that this account is theirs; then the provider is
/// connected to it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PendingConnection {
    /// Account that has the address, and that the person has to prove.
    pub account: AccountId,
    /// Issuer identifier of the provider.
    pub issuer: String,
    /// The person: SHA-256 of issuer and subject ([`super::subject`]).
    pub subject: Digest,
}

impl ProviderRequest {
    /// Returns the windows in which the sign-in counts until it is finished: `limit` for one
    /// source, and more for wider networks.
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
            // A state belongs to one request and is never used for another.
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

/// Returns the key of a browser's [`ProviderRequest`], by the SHA-256 of its `state`.
pub fn request_key(browser: &Digest, state: &Digest) -> RecordKey {
    RecordKey::new(session_partition(browser), format!("provider/{state}"))
}

/// Returns the key of a browser's [`PendingConnection`], of which it has at most one.
pub fn pending_key(browser: &Digest) -> RecordKey {
    RecordKey::new(session_partition(browser), "connect")
}
