//! What goes into the audit log about people and their apps, besides what the admin routes write.
//!
//! Refusals of unauthenticated callers go to the program's log alone, because they could fill the
//! audit log of a vault.

use std::net::IpAddr;

use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use crate::app::App;
use crate::model::account::{self, Account, AccountId, partition};
use crate::model::audit::{Actor, Change, log_unwritten};
use crate::model::user::{MEMBERSHIPS, Membership};
use crate::web::browser::Browser;

/// In at most this many namespaces' logs a change of an account is written.
const MOST_LOGS: usize = 20;

/// The action of a sign-in.
pub const SIGN_IN: &str = "account.sign-in";
/// Equal refusals of one account are written once in this many seconds, so that guesses do not fill
/// a log.
const REFUSAL_SECONDS: i64 = 15 * 60;

/// Notes that a sign-in as the account of `typed` was refused, in the log of each of its
/// namespaces, or in the service's own where it has none. An address without an account costs the
/// same calls, and is noted nowhere. The refusal stands even if the log cannot be written.
pub async fn refused_sign_in(app: &App, typed: &str, source: Option<IpAddr>, outcome: &str) {
    let written = async {
        let who = Digest::of(typed.trim().to_ascii_lowercase().as_bytes());
        let mark = RecordKey::new(format!("limit/sign-in-noted/{who}"), outcome);
        let until = app.clock.now().plus_seconds(REFUSAL_SECONDS);
        let nothing = Document::of(&serde_json::Map::new())?;
        let mut writes = vec![Write::put_until(mark, nothing, When::Absent, until)];
        let account = match typed.parse() {
            Ok(email) => account::find(app, &email).await?,
            Err(_) => None,
        };
        let nobody = AccountId::from(who.to_string());
        let known = account.is_some();
        let id = account.map_or(nobody, |account| account.value.id);
        let entries = in_namespaces(app, &id, typed, source, SIGN_IN, outcome).await?;
        if known && entries.is_empty() {
            writes.push(in_service(app, &id, typed, source, SIGN_IN, outcome)?);
        }
        writes.extend(entries);
        app.records.commit(writes).await.map(|_| ())
    };
    log_unwritten(written.await);
}

/// The entries about an account itself: one in the log of each namespace that it has a part in, or
/// one in the service's own.
pub async fn about_account(
    app: &App,
    account: &Account,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let email = account.email.as_str();
    let mut entries = in_namespaces(app, &account.id, email, source, action, outcome).await?;
    if entries.is_empty() {
        let entry = in_service(app, &account.id, email, source, action, outcome)?;
        entries.push(entry);
    }
    Ok(entries)
}

/// The entry about an account without a namespace, in the log of the service.
fn in_service(
    app: &App,
    id: &AccountId,
    email: &str,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Write, StoreError> {
    let user = id.to_string();
    let about = About {
        user,
        email,
        source,
    };
    about.entry(app, None, action, outcome)
}

/// One entry in the log of each namespace that an account has a part in.
async fn in_namespaces(
    app: &App,
    id: &AccountId,
    email: &str,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let listed = app
        .records
        .list(&partition(id), MEMBERSHIPS, None, MOST_LOGS)
        .await?;
    let mut entries = Vec::new();
    for record in &listed {
        let part: Membership = record.read()?;
        let namespace = Some(&part.namespace.id);
        let about = About {
            user: part.user_id,
            email,
            source,
        };
        entries.push(about.entry(app, namespace, action, outcome)?);
    }
    Ok(entries)
}

/// Whom an entry is about.
struct About<'a> {
    user: String,
    email: &'a str,
    source: Option<IpAddr>,
}

impl About<'_> {
    fn entry(
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

/// Keeps that a form of a signed-in person was refused; the refusal stands even if the log cannot
/// be written.
pub async fn refused(
    app: &App,
    browser: &Browser,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) {
    let written = async {
        let Some(signed_in) = browser.signed_in(app).await? else {
            return Ok(());
        };
        let writes = about_account(app, &signed_in.account, source, action, outcome).await?;
        app.records.commit(writes).await.map(|_| ())
    };
    log_unwritten(written.await);
}
