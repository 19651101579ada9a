//! A signed-in browser, and its decisions on the consent page.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256>` | `session` | [`Session`], 8 hours |
//! | `acct/<account_id>` | `session/<sha256>` | [`SessionEntry`], for the person's own list; ends with the session |
//! | `acct/<account_id>` | `sign-in` | [`SessionEntry`], the newest sign-in, 400 days |
//! | `session/<sha256>` | `approval/<sha256 of the query>` | [`Approval`], two minutes, removed by its use |
//! | `session/<sha256>` | `spent/<nonce>` | an empty mark: this form token was used |
//!
//! The hash is that of the cookie's value, which is stored nowhere.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::account::{self, Account, AccountId, ServiceEpoch};
use super::user::Scopes;

/// Lifetime of a session, in seconds: 8 hours, however much it is used.
pub const SESSION_SECONDS: i64 = 8 * 3600;
/// Time for which a sign-in waits for the code of the second factor, in seconds: 10 minutes.
pub const CODE_SECONDS: i64 = 600;
/// Age up to which entered credentials count as fresh, in seconds: five minutes.
pub const FRESH_SECONDS: i64 = 300;
/// Time for which a decision waits for the redirect that follows it, in seconds.
pub const APPROVAL_SECONDS: i64 = 120;

/// A signed-in browser.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Session {
    /// Account that signed in.
    pub account: AccountId,
    /// Time of the sign-in.
    pub signed_in_at: Timestamp,
    /// Time at which it ends.
    pub ends_at: Timestamp,
    /// Number of the account's password at the sign-in.
    #[serde(default)]
    pub password_number: u32,
    /// The account's epoch when it began.
    #[serde(default)]
    pub account_epoch: u32,
    /// The service's epoch when it began.
    #[serde(default)]
    pub service_epoch: u32,
    /// The password was right, and the code of the second factor is still due: the user is not
    /// signed in.
    #[serde(default)]
    pub code_due: bool,
    /// The sign-in took the code of a second factor.
    #[serde(default)]
    pub second_factor: bool,
    /// Messages to owners and operators about the time since their sign-in before.
    #[serde(default)]
    pub notices: Vec<String>,
    /// The hash of the authorize query that the credentials were entered for.
    #[serde(default)]
    pub entered_for: Option<Digest>,
    /// It is not known that credentials were entered for this session: it continues an earlier one,
    /// or the identity provider was not asked to make the person enter them, or does not state that
    /// the person did.
    #[serde(default)]
    pub without_credentials: bool,
    /// Time at which the identity provider signed the person in without a statement that
    /// credentials were entered; absent after any other sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstated_at: Option<Timestamp>,
}

impl Session {
    /// Returns a session that begins now.
    pub fn begin_now(account: &Account, service: Option<ServiceEpoch>, now: Timestamp) -> Self {
        Self {
            account: account.id.clone(),
            signed_in_at: now,
            ends_at: now.plus_seconds(SESSION_SECONDS),
            password_number: account.password_number,
            account_epoch: account.epoch,
            service_epoch: service.unwrap_or_default().epoch,
            code_due: false,
            second_factor: false,
            notices: Vec::new(),
            entered_for: None,
            without_credentials: false,
            unstated_at: None,
        }
    }

    /// Whether the person signed in through the identity provider at most [`FRESH_SECONDS`] ago,
    /// and the provider did not state whether credentials were entered.
    pub fn is_recent_unstated(&self, now: Timestamp) -> bool {
        self.unstated_at
            .is_some_and(|at| now < at.plus_seconds(FRESH_SECONDS))
    }

    /// Whether the person entered credentials at most [`FRESH_SECONDS`] ago.
    pub fn has_fresh_credentials(&self, now: Timestamp) -> bool {
        !self.without_credentials && now < self.signed_in_at.plus_seconds(FRESH_SECONDS)
    }

    /// Returns the time at which credentials were entered for the authorize request with this
    /// query, if that was a short time ago.
    pub fn entered_at(&self, query: &str, now: Timestamp) -> Option<Timestamp> {
        // Bound to the query: credentials that were entered for one app confirm no other.
        let entered = self.entered_for == Some(Digest::of(query.as_bytes()));
        (entered && self.has_fresh_credentials(now)).then_some(self.signed_in_at)
    }

    /// Returns the first half of a sign-in, which waits for the code of the second factor.
    pub fn begin_half(account: &Account, service: Option<ServiceEpoch>, now: Timestamp) -> Self {
        Self {
            // Short, because a thief of the password can guess codes only until then.
            ends_at: now.plus_seconds(CODE_SECONDS),
            code_due: true,
            ..Self::begin_now(account, service, now)
        }
    }

    /// Whether it still counts: it is not over, it is not from before the account's password was
    /// set anew or an epoch was raised, and the account is not disabled.
    pub fn is_valid(
        &self,
        account: &Account,
        service: Option<ServiceEpoch>,
        now: Timestamp,
    ) -> bool {
        now < self.ends_at
            && self.is_of_present(account)
            && self.service_epoch == service.unwrap_or_default().epoch
    }

    /// Whether it began with the account as it is now: the account is not disabled, and neither its
    /// ways to sign in nor its epoch have changed since. A change checks this for the account that
    /// it read itself.
    pub const fn is_of_present(&self, account: &Account) -> bool {
        !account.disabled
            && self.password_number == account.password_number
            && self.account_epoch == account.epoch
    }
}

/// A session, as an entry of the person's own list.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SessionEntry {
    /// Time of the sign-in.
    pub at: Timestamp,
    /// Network of the browser.
    pub from: String,
}

/// The prefix of the sessions in an account's partition.
pub const SESSIONS: &str = "session/";

/// Returns the key of the newest sign-in of an account.
pub fn sign_in_key(account: &AccountId) -> RecordKey {
    RecordKey::new(account::account_partition(account), "sign-in")
}

/// Returns the key of a session in the list of its account.
pub fn listed_session_key(account: &AccountId, session: &Digest) -> RecordKey {
    RecordKey::new(
        account::account_partition(account),
        format!("{SESSIONS}{session}"),
    )
}

/// Decision of a person about exactly one authorize request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum Approval {
    /// Yes: for this namespace, with these scopes.
    Approved {
        /// The namespace; absent for an operator's app.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Slug>,
        /// The boxes that were ticked.
        scopes: Scopes,
    },
    /// No.
    Denied {},
}

/// Returns the partition of a browser, by the hash of its cookie.
pub fn session_partition(session: &Digest) -> String {
    format!("session/{session}")
}

/// Returns the key of a session, by the hash of its cookie.
pub fn session_key(session: &Digest) -> RecordKey {
    RecordKey::new(session_partition(session), "session")
}

/// Returns the key of the decision about one authorize request.
pub fn approval_key(session: &Digest, query: &str) -> RecordKey {
    // A query may be longer than a key.
    let query = Digest::of(query.as_bytes());
    RecordKey::new(session_partition(session), format!("approval/{query}"))
}

/// Returns the key of the mark of a used form token.
pub fn spent_key(session: &Digest, nonce: &str) -> RecordKey {
    RecordKey::new(session_partition(session), format!("spent/{nonce}"))
}
