//! A signed-in browser, and what it decided on the consent page.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256>` | `session` | [`Session`], 8 hours |
//! | `session/<sha256>` | `approval/<sha256 of the query>` | [`Approval`], two minutes, removed by its use |
//! | `session/<sha256>` | `spent/<nonce>` | an empty mark: this form token was used |
//!
//! The hash is that of the cookie's value, which is stored nowhere.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::account::{Account, Email};
use super::user::Scopes;

/// How long a session lives, in seconds: 8 hours, however much it is used.
pub const SESSION_SECONDS: i64 = 8 * 3600;
/// How long a decision waits for the redirect that follows it, in seconds.
pub const APPROVAL_SECONDS: i64 = 120;

/// A signed-in browser.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Session {
    /// Who signed in.
    pub account: Email,
    /// When.
    pub signed_in_at: Timestamp,
    /// When it ends.
    pub ends_at: Timestamp,
    /// Which of the account's passwords it began with.
    #[serde(default)]
    pub password_number: u32,
}

impl Session {
    /// A session that begins now.
    pub fn begun(account: &Account, now: Timestamp) -> Self {
        Self {
            account: account.email.clone(),
            signed_in_at: now,
            ends_at: now.plus_seconds(SESSION_SECONDS),
            password_number: account.password_number,
        }
    }

    /// Whether it still counts: not over, and not from before the account's password was set anew.
    pub fn counts(&self, account: &Account, now: Timestamp) -> bool {
        now < self.ends_at && self.password_number == account.password_number
    }
}

/// What a person decided about exactly one authorize request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum Approval {
    /// Yes: for this namespace, with these scopes.
    Approved {
        /// The namespace.
        namespace: Slug,
        /// The boxes that were ticked.
        scopes: Scopes,
    },
    /// No.
    Denied {},
}

/// Where a session stands, by the hash of its cookie.
pub fn session_key(session: &Digest) -> RecordKey {
    RecordKey::new(format!("session/{session}"), "session")
}

/// Where the decision about one authorize request stands.
pub fn approval_key(session: &Digest, query: &str) -> RecordKey {
    RecordKey::new(
        format!("session/{session}"),
        format!("approval/{}", Digest::of(query.as_bytes())),
    )
}

/// Where the mark of a used form token stands.
pub fn spent_key(session: &Digest, nonce: &str) -> RecordKey {
    RecordKey::new(format!("session/{session}"), format!("spent/{nonce}"))
}
