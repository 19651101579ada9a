//! Audit entries about people and their apps, besides those of the admin routes.
//!
//! Anyone can cause refused sign-ins, so equal ones at an account are recorded once in 15 minutes:
//! guesses must not fill the log of a vault.

use std::net::IpAddr;

use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use crate::app::App;
use crate::model::account::{self, Account, AccountId, account_partition};
use crate::model::audit::{Actor, Change, log_unwritten};
use crate::model::user::{MEMBERSHIPS, Membership};
use crate::web::browser::Browser;

/// Maximum number of namespaces in whose logs a change of an account is recorded.
const MAX_LOGS: usize = 20;

/// Action of a sign-in.
pub const SIGN_IN: &str = "account.sign-in";
/// Interval in which equal refusals at one account are recorded once, in seconds.
const REFUSAL_SECONDS: i64 = 15 * 60;

/// Records that a sign-in with the typed address was refused, in the log of each of the account's
/// namespaces, or in the service's own if it has none. An address without an account costs the same
/// calls and is recorded nowhere. If the log cannot be written, the failure is only logged and the
/// refusal stands.
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
        let entries = namespace_entries(app, &id, typed, source, SIGN_IN, outcome).await?;
        if has_account && entries.is_empty() {
            writes.push(service_entry(app, &id, typed, source, SIGN_IN, outcome)?);
        }
        writes.extend(entries);
        app.records.commit_writes(writes).await.map(|_| ())
    };
    log_unwritten(written.await);
}

/// Returns the entries about an account: one for the log of each of its namespaces, or one for the
/// service's own log if it has none.
pub async fn account_entries(
    app: &App,
    account: &Account,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let email = account.email.as_str();
    let mut entries = namespace_entries(app, &account.id, email, source, action, outcome).await?;
    if entries.is_empty() {
        let entry = service_entry(app, &account.id, email, source, action, outcome)?;
        entries.push(entry);
    }
    Ok(entries)
}

/// Returns the entry about an account without a namespace, for the log of the service.
fn service_entry(
    app: &App,
    id: &AccountId,
    email: &str,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Write, StoreError> {
    let user = id.to_string();
    let about = EntrySubject {
        user,
        email,
        source,
    };
    about.audit_entry(app, None, action, outcome)
}

/// Returns one entry for the log of each namespace that an account is a member of.
async fn namespace_entries(
    app: &App,
    id: &AccountId,
    email: &str,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let listed = app
        .records
        .list_page(&account_partition(id), MEMBERSHIPS, None, MAX_LOGS)
        .await?;
    let mut entries = Vec::new();
    for record in &listed {
        let part: Membership = record.read()?;
        let namespace = Some(&part.namespace.id);
        let about = EntrySubject {
            user: part.user_id,
            email,
            source,
        };
        entries.push(about.audit_entry(app, namespace, action, outcome)?);
    }
    Ok(entries)
}

/// Account that an entry is about.
struct EntrySubject<'a> {
    user: String,
    email: &'a str,
    source: Option<IpAddr>,
}

impl EntrySubject<'_> {
    fn audit_entry(
        self,
        app: &App,
        namespace: Option<&NamespaceId>,
        action: &str,
        outcome: &str,
    ) -> Result<Write, StoreError> {
        let actor = Actor {
            user: self.user,
            client: None,
            source: self.source,
        };
        let change = Change::about(&self.email);
        app.audit(namespace, &actor, action, change, outcome)
    }
}

/// Records that the form of a signed-in person was refused. If the log cannot be written, the
/// failure is only logged and the refusal stands.
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
        let writes = account_entries(app, &signed_in.account, source, action, outcome).await?;
        app.records.commit_writes(writes).await.map(|_| ())
    };
    log_unwritten(written.await);
}
