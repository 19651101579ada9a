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

/// What is known of the credentials behind a session.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(
    from = "StoredCredentials",
    rename_all = "snake_case",
    tag = "credentials"
)]
pub enum Credentials {
    /// The person entered them.
    Entered {
        /// Time of that.
        at: Timestamp,
    },
    /// It is not known that any were entered: the session continues an earlier one, or the identity
    /// provider was not asked to make the person enter them.
    NotEntered,
    /// The identity provider was asked to make the person enter them, and does not state that the
    /// person did.
    Unstated {
        /// Time of the sign-in.
        at: Timestamp,
    },
}

impl Credentials {
    /// Returns what a session has at `now` that follows another one: an unstated sign-in is as
    /// recent as its last step.
    #[must_use]
    pub const fn carried_on(self, now: Timestamp) -> Self {
        match self {
            Self::Unstated { .. } => Self::Unstated { at: now },
            Self::Entered { .. } | Self::NotEntered => self,
        }
    }

    /// Whether the identity provider did not state that the person entered them.
    pub const fn are_unstated(self) -> bool {
        matches!(self, Self::Unstated { .. })
    }
}

/// The word of [`Credentials`] in a record.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CredentialsWord {
    Entered,
    NotEntered,
    Unstated,
}

/// [`Credentials`] as a record has them. One of an earlier version has no word, but the last three
/// members.
#[derive(Debug, Deserialize)]
struct StoredCredentials {
    #[serde(default)]
    credentials: Option<CredentialsWord>,
    #[serde(default)]
    at: Option<Timestamp>,
    #[serde(default)]
    signed_in_at: Option<Timestamp>,
    #[serde(default)]
    without_credentials: bool,
    #[serde(default)]
    unstated_at: Option<Timestamp>,
}

impl From<StoredCredentials> for Credentials {
    fn from(stored: StoredCredentials) -> Self {
        match (stored.credentials, stored.at) {
            (Some(CredentialsWord::Entered), Some(at)) => return Self::Entered { at },
            (Some(CredentialsWord::Unstated), Some(at)) => return Self::Unstated { at },
            // Without its time a word opens nothing.
            (Some(_), _) => return Self::NotEntered,
            (None, _) => {}
        }
        match (stored.unstated_at, stored.signed_in_at) {
            (Some(at), _) => Self::Unstated { at },
            (None, Some(at)) if !stored.without_credentials => Self::Entered { at },
            (None, _) => Self::NotEntered,
        }
    }
}

/// A signed-in browser.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Session {
    /// Account that signed in.
    pub account: AccountId,
    /// What is known of the credentials behind it.
    #[serde(flatten)]
    pub credentials: Credentials,
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
}

impl Session {
    /// Returns a session that begins now.
    pub fn begin_now(account: &Account, service: Option<ServiceEpoch>, now: Timestamp) -> Self {
        Self {
            account: account.id.clone(),
            credentials: Credentials::Entered { at: now },
            ends_at: now.plus_seconds(SESSION_SECONDS),
            password_number: account.password_number,
            account_epoch: account.epoch,
            service_epoch: service.unwrap_or_default().epoch,
            code_due: false,
            second_factor: false,
            notices: Vec::new(),
            entered_for: None,
        }
    }

    /// Whether the person signed in through the identity provider at most [`FRESH_SECONDS`] ago,
    /// and the provider did not state whether credentials were entered.
    pub fn is_recent_unstated(&self, now: Timestamp) -> bool {
        matches!(self.credentials, Credentials::Unstated { at } if now < at.plus_seconds(FRESH_SECONDS))
    }

    /// Whether the person entered credentials at most [`FRESH_SECONDS`] ago.
    pub fn has_fresh_credentials(&self, now: Timestamp) -> bool {
        self.fresh_since(now).is_some()
    }

    /// Returns the time at which the person entered credentials, if that was at most
    /// [`FRESH_SECONDS`] ago.
    fn fresh_since(&self, now: Timestamp) -> Option<Timestamp> {
        match self.credentials {
            Credentials::Entered { at } => Some(at),
            Credentials::NotEntered | Credentials::Unstated { .. } => None,
        }
        .filter(|at| now < at.plus_seconds(FRESH_SECONDS))
    }

    /// Returns the time at which credentials were entered for the authorize request with this
    /// query, if that was a short time ago.
    pub fn entered_at(&self, query: &str, now: Timestamp) -> Option<Timestamp> {
        // Bound to the query: credentials that were entered for one app confirm no other.
        let entered = self.entered_for == Some(Digest::of(query.as_bytes()));
        self.fresh_since(now).filter(|_| entered)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The members of three versions: none of them, those of the version before, and the word.
    #[test]
    fn a_session_reads_what_earlier_versions_knew_of_its_credentials() {
        let at = |seconds: i64| Timestamp::from_unix(1_795_219_200 + seconds);
        let (entered, unstated) = (
            Credentials::Entered { at: at(0) },
            Credentials::Unstated { at: at(60) },
        );
        for (members, wanted) in [
            (json!({ "signed_in_at": at(0) }), entered),
            (
                json!({ "signed_in_at": at(0), "without_credentials": false }),
                entered,
            ),
            (
                json!({ "signed_in_at": at(0), "without_credentials": true }),
                Credentials::NotEntered,
            ),
            (
                json!({ "signed_in_at": at(0), "without_credentials": true, "unstated_at": at(60) }),
                unstated,
            ),
            (json!({ "credentials": "entered", "at": at(0) }), entered),
            (json!({ "credentials": "unstated", "at": at(60) }), unstated),
            (
                json!({ "credentials": "not_entered" }),
                Credentials::NotEntered,
            ),
            // Neither a time nor a word: nothing that opens anything.
            (json!({}), Credentials::NotEntered),
            (json!({ "credentials": "entered" }), Credentials::NotEntered),
        ] {
            let mut record =
                json!({ "account": "acc_00000000000000000000000000", "ends_at": at(8) });
            let more = members.as_object().unwrap().clone();
            record.as_object_mut().unwrap().extend(more);
            let session: Session = serde_json::from_value(record).unwrap();
            assert_eq!(session.credentials, wanted, "{members}");
            let written = serde_json::to_value(&session).unwrap();
            let read: Session = serde_json::from_value(written).unwrap();
            assert_eq!(read, session);
        }
    }

    #[test]
    fn only_entered_credentials_are_fresh_and_for_five_minutes() {
        let now = Timestamp::from_unix(1_795_219_200);
        let account: AccountId =
            serde_json::from_value(json!("acc_00000000000000000000000000")).unwrap();
        let email = "ada@example.org".parse().unwrap();
        let begun = Session::begin_now(&Account::new(account, email, now), None, now);
        let just_before = now.plus_seconds(FRESH_SECONDS - 1);
        let late = now.plus_seconds(FRESH_SECONDS);
        for (credentials, fresh, unstated) in [
            (Credentials::Entered { at: now }, true, false),
            (Credentials::NotEntered, false, false),
            (Credentials::Unstated { at: now }, false, true),
        ] {
            let session = Session {
                credentials,
                ..begun.clone()
            };
            assert_eq!(session.has_fresh_credentials(just_before), fresh);
            assert_eq!(session.is_recent_unstated(just_before), unstated);
            assert!(!session.has_fresh_credentials(late));
            assert!(!session.is_recent_unstated(late));
        }
    }
}
