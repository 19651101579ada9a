//! What goes into the audit log about people and their apps, besides what the admin routes write.
//!
//! Refusals of strangers are only logged: whoever is nobody must not be able to fill the log of somebody.

use std::net::IpAddr;

use vault_format::name::NamespaceId;
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::records::Write;

use super::browser::Browser;
use crate::app::App;
use crate::model::account::{Email, partition};
use crate::model::audit::{Actor, Change};
use crate::model::user::{MEMBERSHIPS, Membership};

/// In at most this many namespaces' logs a change of an account is written.
const MOST_LOGS: usize = 20;

/// The entries about an account itself: one in the log of each namespace that it has a part in, or one in the service's own.
pub async fn about_account(
    app: &App,
    email: &Email,
    source: Option<IpAddr>,
    action: &str,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let listed = app
        .records
        .list(&partition(email), MEMBERSHIPS, None, MOST_LOGS)
        .await?;
    let entry = |namespace: Option<&NamespaceId>, user: String| {
        let actor = Actor {
            user,
            client: None,
            source,
        };
        let change = Change {
            target: Some(email.to_string()),
            ..Change::default()
        };
        app.audit(namespace, &actor, action, change, outcome)
    };
    if listed.is_empty() {
        return Ok(vec![entry(None, email.to_string())?]);
    }
    listed
        .iter()
        .map(|record| {
            let part: Membership = record.read()?;
            entry(Some(&part.namespace.id), part.user_id)
        })
        .collect()
}

/// Keeps that a form of a signed-in person was refused; the refusal stands even if the log cannot be written.
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
        let writes = about_account(app, &signed_in.account.email, source, action, outcome).await?;
        app.records.commit(writes).await.map(|_| ())
    };
    if let Err(error) = written.await {
        tracing::error!(
            error = error_chain(&error),
            "a refusal could not be written to the audit log"
        );
    }
}
