//! Sessions of signed-in browsers, and people's decisions on the consent page.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `session/<sha256>` | `session` | [`Session`], 8 hours |
//! | `acct/<account_id>` | `session/<sha256>` | [`SessionEntry`], for the person's own list; ends with the session |
//! | `acct/<account_id>` | `sign-in` | [`SessionEntry`], the newest sign-in, 400 days |
//! | `session/<sha256>` | `approval/<sha256 of the query>` | [`Approval`], two minutes, removed by its use |
//! | `session/<sha256>` | `spent/<nonce>` | an empty mark: this form token was used |
//!
//! The SHA-256 is that of the cookie's value, which itself is not stored.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::records::RecordKey;

use super::account::{self, Account, AccountId, ServiceEpoch};
use super::user::Scopes;

/// Lifetime of a session in seconds, however much it is used: 8 hours.
pub const SESSION_SECONDS: i64 = 8 * 3600;
/// Time for which a sign-in waits for the code of the second factor, in seconds: 10 minutes.
pub const CODE_SECONDS: i64 = 600;
/// Maximum age of entered credentials that count as fresh, in seconds: five minutes.
pub const FRESH_SECONDS: i64 = 300;
/// Time within which the redirect after a decision must arrive, in seconds.
pub const APPROVAL_SECONDS: i64 = 120;

/// Whether and when the person entered credentials for a session.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(
    from = "StoredCredentials",
    rename_all = "snake_case",
    tag = "credentials"
)]
pub enum Credentials {
    /// The person is known to have entered credentials.
    Entered {
        /// Time at which the person entered credentials.
        at: Timestamp,
    },
    /// No entry is known: the session continues an earlier one, or the identity provider was not
    /// asked to make the person enter credentials.
    NotEntered,
    /// The identity provider was asked to make the person enter credentials, but does not state
    /// whether the person did.
    Unstated {
        /// Time at which the sign-in made its last step.
        at: Timestamp,
    },
}

impl Credentials {
    /// Returns the value for a session that follows this one at `now`. For an unstated entry, the
    /// time becomes `now`, since the sign-in has just made its last step.
    #[must_use]
    pub const fn continued_at(self, now: Timestamp) -> Self {
        match self {
            Self::Unstated { .. } => Self::Unstated { at: now },
            Self::Entered { .. } | Self::NotEntered => self,
        }
    }

    /// Whether the identity provider did not state that the person entered credentials.
    pub const fn are_unstated(self) -> bool {
        matches!(self, Self::Unstated { .. })
    }
}

/// The variant of [`Credentials`] in a record.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CredentialsWord {
    Entered,
    NotEntered,
    Unstated,
}

/// The form of [`Credentials`] in records. A record of an earlier version lacks `credentials` and
/// has the last three members.
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
            // A variant without its time gives no right.
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

/// The record of a signed-in browser, or of one that still lacks the code of the second factor.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Session {
    /// Account that signed in.
    pub account: AccountId,
    /// Whether and when the person entered credentials.
    #[serde(flatten)]
    pub credentials: Credentials,
    /// First second at which the session has ended, whether or not it is in use.
    pub ends_at: Timestamp,
    /// [`Account::password_number`] at the sign-in.
    #[serde(default)]
    pub password_number: u32,
    /// Epoch of the account at the sign-in. When it is raised, the session ends.
    #[serde(default)]
    pub account_epoch: u32,
    /// Epoch of the service at the sign-in. When it is raised, the session ends.
    #[serde(default)]
    pub service_epoch: u32,
    /// Whether the password was right but the code of the second factor is still missing: the
    /// person is not signed in yet.
    #[serde(default)]
    pub code_due: bool,
    /// Whether a second factor was used for the sign-in.
    #[serde(default)]
    pub second_factor: bool,
    /// Messages for owners and operators about events since their previous sign-in.
    #[serde(default)]
    pub notices: Vec<String>,
    /// SHA-256 of the query of the authorize request for which the credentials were entered.
    #[serde(default)]
    pub entered_for: Option<Digest>,
}

impl Session {
    /// Creates a session that begins now, with credentials entered now.
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
    /// query, if that was at most [`FRESH_SECONDS`] ago.
    pub fn entered_at(&self, query: &str, now: Timestamp) -> Option<Timestamp> {
        // Bound to the query: credentials that were entered for one app must not confirm another.
        let entered = self.entered_for == Some(Digest::of(query.as_bytes()));
        self.fresh_since(now).filter(|_| entered)
    }

    /// Creates the session of a sign-in that still lacks the code of the second factor.
    pub fn begin_awaiting_code(
        account: &Account,
        service: Option<ServiceEpoch>,
        now: Timestamp,
    ) -> Self {
        Self {
            // Short, because until then a thief of the password can guess codes.
            ends_at: now.plus_seconds(CODE_SECONDS),
            code_due: true,
            ..Self::begin_now(account, service, now)
        }
    }

    /// Whether the session is valid: it has not ended, the account is not disabled, and since its
    /// beginning neither a way to sign in was replaced or removed nor an epoch raised.
    pub fn is_valid(
        &self,
        account: &Account,
        service: Option<ServiceEpoch>,
        now: Timestamp,
    ) -> bool {
        now < self.ends_at
            && self.matches_present_account(account)
            && self.service_epoch == service.unwrap_or_default().epoch
    }

    /// Whether the account is not disabled and neither its ways to sign in nor its epoch have
    /// changed since the session began. A change of the account checks this for the record that it
    /// read itself.
    pub const fn matches_present_account(&self, account: &Account) -> bool {
        !account.disabled
            && self.password_number == account.password_number
            && self.account_epoch == account.epoch
    }
}

/// Entry of a session in the list of its account, which the account page shows; also the record of
/// the newest sign-in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SessionEntry {
    /// Time of the sign-in with which the session began.
    pub at: Timestamp,
    /// Network that the browser signed in from, as the person sees it.
    pub from: String,
}

/// Prefix of the keys of [`SessionEntry`] records in an account's partition.
pub const SESSIONS: &str = "session/";

/// Returns the key of the [`SessionEntry`] of an account's newest sign-in.
pub fn sign_in_key(account: &AccountId) -> RecordKey {
    RecordKey::new(account::account_partition(account), "sign-in")
}

/// Returns the key of the [`SessionEntry`] of a session in the list of its account.
pub fn listed_session_key(account: &AccountId, session: &Digest) -> RecordKey {
    RecordKey::new(
        account::account_partition(account),
        format!("{SESSIONS}{session}"),
    )
}

/// Decision of a person about one authorize request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum Approval {
    /// The person approved the request for this namespace, with these scopes.
    Approved {
        /// Slug of the namespace; absent for an app with the rights of an operator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<Slug>,
        /// Scopes whose boxes were ticked.
        scopes: Scopes,
    },
    /// The person denied the request.
    Denied {},
}

/// Returns the partition of a browser, by the SHA-256 of its cookie.
pub fn session_partition(session: &Digest) -> String {
    format!("session/{session}")
}

/// Returns the key of the [`Session`] whose cookie has this SHA-256.
pub fn session_key(session: &Digest) -> RecordKey {
    RecordKey::new(session_partition(session), "session")
}

/// Returns the key of the [`Approval`] of the authorize request with this query.
pub fn approval_key(session: &Digest, query: &str) -> RecordKey {
    // A query may be longer than a key.
    let query = Digest::of(query.as_bytes());
    RecordKey::new(session_partition(session), format!("approval/{query}"))
}

/// Returns the key of the mark that the form token with this nonce was used.
pub fn spent_key(session: &Digest, nonce: &str) -> RecordKey {
    RecordKey::new(session_partition(session), format!("spent/{nonce}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Records of three versions: without credentials, with the members of the version before, and
    /// with the variant.
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
            // A record with neither a time nor a variant gives no right.
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
