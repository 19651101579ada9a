//! Ends sign-ins of the command line, after a machine that had one was lost or copied.
//!
//! Each sign-in is an app (OAuth client) of its own at the service. The service lists the apps of
//! all users of a vault; only the audit log tells which account connected an app.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::Value;
use vault_api::{AuditEntry, Client};

use super::OwnerClient;
use crate::{errors::Failure, output::clean};

/// Returns whether the name of an app is one under which this program registers itself (`vault on
/// <machine>`).
fn is_command_line(client: &Client) -> bool {
    let name = client.name.as_deref().unwrap_or_default();
    name == "vault" || name.starts_with("vault on ")
}

/// Ends all other sign-ins of the command line by the account of `owner`, and with `own` also that
/// of `owner` itself. Returns the names of the apps whose sign-ins it ended.
pub async fn end_sign_ins(owner: &OwnerClient, own: bool) -> Result<Vec<String>, Failure> {
    let own_id = owner.client_id().await;
    let consents: Vec<AuditEntry> = owner.list("/admin/audit?action=oauth.consent").await?;
    let is_own = |id: &str| id == own_id;
    // The consent for this client's own id tells which account is the user's.
    let mut mine = consents
        .iter()
        .filter(|consent| consent.target.as_deref().is_some_and(is_own));
    let account = mine
        .next_back()
        .map(|consent| &consent.actor)
        .ok_or_else(|| {
            fail!(
                AnswerUnreadable,
                "the service does not say which sign-ins are yours"
            )
        })?;
    let ids: HashSet<&str> = consents
        .iter()
        .filter(|consent| consent.actor == *account)
        .filter_map(|consent| consent.target.as_deref())
        .collect();
    let mut clients: Vec<Client> = owner.list("/admin/clients").await?;
    clients.retain(|client| is_command_line(client) && ids.contains(&*client.id));
    // The sign-in of this client comes last, because without it the others could not be ended.
    clients.sort_by_key(|client| is_own(&client.id));
    let mut ended = Vec::new();
    for client in clients {
        if is_own(&client.id) && !own {
            continue;
        }
        let path = format!("/admin/clients/{}", client.id);
        owner.send::<Value>(Method::DELETE, &path, None).await?;
        ended.push(clean(client.name.as_deref().unwrap_or_default(), 64));
    }
    Ok(ended)
}
