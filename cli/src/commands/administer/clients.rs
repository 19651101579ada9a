//! `vault clients`: lists the apps that are connected to the vault, and revokes one.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{EntryWords, pick_entry},
    output::{BOLD, Column, HINT, Report, TICK, Table, clean, count, either, format_day, paint},
    service::{OwnerClient, connection::Connection},
};
use vault_api::{Client, RevokedClient};

const CLIENTS: &str = "/admin/clients";

/// The arguments of `vault clients`.
#[derive(Args, Debug)]
#[command(after_help = "\
An app chooses its own name, and nobody verifies it: check the address that it redirects to. To \
use a revoked app again, connect it again.

Examples:
  vault clients list
  vault clients revoke cli_01kd1xq0r8vmzq3y5c7t9w2b4n
  vault clients revoke --all")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the connected apps
    List,
    /// Revoke an app and all its tokens
    Revoke {
        /// The app's id, or its name if only one app has that name
        #[arg(required_unless_present = "all")]
        client: Option<String>,
        /// End every token for this vault, yours included: all people and apps sign in again
        #[arg(long, conflicts_with = "client")]
        all: bool,
    },
}

fn quote_client_name(client: &Client) -> String {
    client
        // Quoted, because an app chooses its own name and may imitate other words of the table.
        .name
        .as_ref()
        .map_or_else(|| "-".to_owned(), |name| format!("\"{}\"", clean(name, 64)))
}

/// Lists the apps or revokes one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let owner = connection.owner_client(context)?;
    context.block_on(async {
        match &arguments.action {
            Action::List => {
                let clients: Vec<Client> = owner.list(CLIENTS).await?;
                Ok(show_clients(context, &clients, &owner.client_id().await))
            }
            Action::Revoke {
                client: Some(client),
                ..
            } => {
                let clients: Vec<Client> = owner.list(CLIENTS).await?;
                revoke_client(context, &owner, find_client(&clients, client)?).await
            }
            Action::Revoke { client: None, .. } => {
                sign_out_all(context, &owner, connection.slug.as_str()).await
            }
        }
    })
}

/// Ends every token for the vault.
async fn sign_out_all(
    context: &Context,
    owner: &OwnerClient,
    slug: &str,
) -> Result<Report, Failure> {
    // Only an owner sees the apps, and may end them.
    let _: Value = owner.get(&format!("{CLIENTS}?limit=1")).await?;
    let question = format!("End every token for {slug}, yours included?");
    context.ui.confirm_or_stop(&question)?;
    let path = format!("/admin/vaults/{slug}/sign-out");
    let done: Value = owner.post(&path, json!({ "slug": slug })).await?;
    let text = format!("{TICK} all people and apps are signed out of {BOLD}{slug}{BOLD:#}");
    Ok(Report::new(&done, text))
}

/// Shows the apps. `own` is the id of the sign-in that this command uses.
fn show_clients(context: &Context, clients: &[Client], own: &str) -> Report {
    if clients.is_empty() {
        return Report::new(clients, "No app is connected.");
    }
    let mut table = Table::new([
        Column::new("app").shrinks_to(20),
        Column::new("redirects to").shrinks_to(14),
        Column::new("users").leaves(3),
        Column::new("connected").leaves(2),
        Column::new("last used").leaves(4),
        Column::new("id").leaves(1),
        Column::new(""),
    ]);
    for client in clients {
        let used = client.last_used_at.map(|used| used.to_string());
        // Marked, because revoking it would sign this command line out.
        let mark = either(client.id == own, "(this sign-in)", "");
        table.push_row([
            paint(BOLD, quote_client_name(client)),
            // The hosts are what identifies an app, so they are painted and its name is not.
            paint(HINT, clean(&client.redirect_hosts.join(" "), 80)),
            client.users.to_string(),
            format_day(&client.connected_at.to_string()),
            format_day(&used.unwrap_or_default()),
            clean(&client.id, 40),
            mark.to_owned(),
        ]);
    }
    Report::new(clients, context.ui.format_table(&table))
}

async fn revoke_client(
    context: &Context,
    owner: &OwnerClient,
    client: &Client,
) -> Result<Report, Failure> {
    let question = format!(
        "Revoke {} and the tokens of {}?",
        quote_client_name(client),
        count(client.users, "user")
    );
    context.ui.confirm_or_stop(&question)?;
    let path = format!("{CLIENTS}/{}", client.id);
    let revoked: RevokedClient = owner.send(Method::DELETE, &path, None).await?;
    let text = format!(
        "{TICK} revoked {} and {}",
        quote_client_name(client),
        count(revoked.revoked_tokens, "token")
    );
    Ok(Report::new(&revoked, text))
}

fn find_client<'c>(clients: &'c [Client], asked: &str) -> Result<&'c Client, Failure> {
    // Names are not unique. If several apps have this one, the failure lists their ids.
    let kind = EntryWords {
        noun: "app",
        missing: ErrorCode::ClientNotFound,
        ambiguous: ErrorCode::ClientAmbiguous,
        list: "vault clients list",
    };
    pick_entry(
        &kind,
        clients,
        asked,
        |client| (&client.id, client.name.as_deref()),
        |client| clean(&client.id, 40),
    )
}

#[cfg(test)]
mod tests {
    use vault_format::time::Timestamp;

    use super::*;

    fn client(id: &str, name: &str) -> Client {
        Client {
            id: id.into(),
            name: Some(name.into()),
            redirect_hosts: Vec::new(),
            created_at: Timestamp::default(),
            connected_at: Timestamp::default(),
            last_used_at: None,
            users: 1,
        }
    }

    #[test]
    fn an_app_is_found_by_id_or_by_a_name_that_is_its_own() {
        let clients = [
            client("cli_a", "editor"),
            client("cli_b", "chat"),
            client("cli_c", "chat"),
        ];
        assert_eq!(find_client(&clients, "cli_b").unwrap().id, "cli_b");
        assert_eq!(find_client(&clients, "editor").unwrap().id, "cli_a");
        let both = find_client(&clients, "chat").unwrap_err();
        assert_eq!(both.code, ErrorCode::ClientAmbiguous);
        let missed = find_client(&clients, "edtior").unwrap_err();
        assert_eq!(missed.code, ErrorCode::ClientNotFound);
        assert!(missed.hint.as_ref().unwrap().contains("editor"));
    }
}
