//! Audit entries about accounts and their apps; the admin routes write their own.
//!
//! An account may be a member of several namespaces. An entry about it goes to the audit log of
//! each of them, where the account is known by its user id there; an account without a namespace is
//! recorded in the log of the service.
//!
//! Anyone can cause refused sign-ins, so equal ones at one account are recorded once in 15 minutes:
//! an attacker must not fill the log of a vault. Equal refusals of forms that a signed-in person
//! sends become one entry a minute.

use std::net::IpAddr;

use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::records::{Document, Record, RecordKey, When, Write};

use crate::app::App;
use crate::model::account::{self, Account, AccountId, account_partition};
use crate::model::audit::{Actor, Change, log_unwritten};
use crate::model::refusals::{NamedBy, RefusedRequest};
use crate::model::user::{MEMBERSHIPS, Membership};
use crate::web::browser::Browser;

/// Maximum number of namespaces in whose audit logs one change of an account is recorded.
const MAX_LOGS: usize = 20;

/// Audit log action: an account signed in.
pub const SIGN_IN: &str = "account.sign-in";
/// Interval in which equal refused sign-ins at one account are recorded once, in seconds.
const REFUSAL_SECONDS: i64 = 15 * 60;

/// Records that a sign-in with the typed address was refused, in the log of each namespace of the
/// account. For an address without an account it makes the same calls to the store and records
/// nothing. If the log cannot be written, the failure is only logged, and the sign-in stays
/// refused.
pub async fn record_refused_sign_in(app: &App, typed: &str, source: Option<IpAddr>, outcome: &str) {
    let written = async {
        let who = Digest::of(typed.trim().to_ascii_lowercase().as_bytes());
        let mark = RecordKey::new(format!("limit/sign-in-noted/{who}"), outcome);
        let until = app.clock.now().plus_seconds(REFUSAL_SECONDS);
        let nothing = Document::from_value(&serde_json::Map::new())?;
        // The mark may not exist yet, so the whole commit fails when an equal refusal was recorded
        // within the interval.
        let mut writes = vec![Write::put_until(mark, nothing, When::Absent, until)];
        let account = match typed.parse() {
            Ok(email) => account::find_account(app, &email).await?,
            Err(_) => None,
        };
        // An unknown address reads a partition too, so that the response time does not reveal
        // accounts.
        let absent_account = AccountId::from(who.to_string());
        let has_account = account.is_some();
        let id = account.map_or(absent_account, |account| account.value.id);
        let mut subjects = namespace_subjects(app, &id, typed, source).await?;
        if has_account && subjects.is_empty() {
            subjects.push(EntrySubject::of_service(&id, typed, source));
        }
        for subject in subjects {
            writes.push(subject.audit_entry(app, SIGN_IN, outcome)?);
        }
        app.records.commit_writes(writes).await.map(|_| ())
    };
    log_unwritten(written.await);
}

/// Returns the writes of the audit entries about an account: one for the log of each of its
/// namespaces, or one for the log of the service if it has none.
pub async fn account_entries(
    app: &App,
    account: &Account,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let subjects = account_subjects(app, account, source).await?;
    let subjects = subjects.into_iter();
    subjects
        .map(|subject| subject.audit_entry(app, action, outcome))
        .collect()
}

/// Returns the account as each audit log identifies it: in each of its namespaces, or in the log of
/// the service if it has none.
async fn account_subjects<'a>(
    app: &App,
    account: &'a Account,
    source: Option<IpAddr>,
) -> Result<Vec<EntrySubject<'a>>, StoreError> {
    let email = account.email.as_str();
    let mut subjects = namespace_subjects(app, &account.id, email, source).await?;
    if subjects.is_empty() {
        subjects.push(EntrySubject::of_service(&account.id, email, source));
    }
    Ok(subjects)
}

/// Returns the account as the logs of its namespaces identify it; empty if it has none.
async fn namespace_subjects<'a>(
    app: &App,
    id: &AccountId,
    email: &'a str,
    source: Option<IpAddr>,
) -> Result<Vec<EntrySubject<'a>>, StoreError> {
    let listed = app
        .records
        .list_page(&account_partition(id), MEMBERSHIPS, None, MAX_LOGS)
        .await?;
    let subject = |record: &Record| {
        let part: Membership = record.read()?;
        Ok(EntrySubject {
            log: Some(part.namespace.id),
            user: part.user_id,
            email,
            source,
        })
    };
    listed.iter().map(subject).collect()
}

/// The account that an entry is about, as one audit log identifies it.
struct EntrySubject<'a> {
    /// Namespace in whose log the entry is; `None` for the log of the service.
    log: Option<NamespaceId>,
    user: String,
    email: &'a str,
    source: Option<IpAddr>,
}

impl<'a> EntrySubject<'a> {
    /// Returns the account as the log of the service identifies it.
    fn of_service(id: &AccountId, email: &'a str, source: Option<IpAddr>) -> Self {
        Self {
            log: None,
            user: id.to_string(),
            email,
            source,
        }
    }

    fn to_actor(&self) -> Actor {
        Actor {
            user: self.user.clone(),
            client: None,
            source: self.source,
        }
    }

    fn audit_entry(&self, app: &App, action: &str, outcome: &str) -> Result<Write, StoreError> {
        let change = Change::about(self.email);
        app.audit_entry(self.log.as_ref(), &self.to_actor(), action, change, outcome)
    }
}

/// Records that a form of a signed-in person was refused. If the log cannot be written, the failure
/// is only logged, and the form stays refused.
pub async fn record_refusal(
    app: &App,
    browser: &Browser,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) {
    let written = async {
        // Without a session there is no account whose log could be meant.
        let Some(signed_in) = browser.load_signed_in(app).await? else {
            return Ok(());
        };
        for subject in account_subjects(app, &signed_in.account, source).await? {
            let refused = RefusedRequest {
                namespace: subject.log,
                actor: subject.to_actor(),
                action: action.to_owned(),
                change: Change::about(subject.email),
                named_by: NamedBy::Service,
                outcome: outcome.to_owned(),
            };
            app.refusals.record(app, &refused).await?;
        }
        Ok(())
    };
    log_unwritten(written.await);
}
