//! `vault clients`: lists the apps that are connected to the vault, and revokes one.

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{EntryWords, pick_entry},
    output::{
        BOLD, Column, HINT, Report, TICK, Table, clean, count, either, format_day, join, paint,
    },
    service::{OwnerClient, connection::Connection},
};
use vault_api::{Client, EndedKind, MadeByClient, RevokedClient};
use vault_format::time::Timestamp;

const CLIENTS: &str = "/admin/clients";

/// The arguments of `vault clients`.
#[derive(Args, Debug)]
#[command(after_help = "\
An app chooses its own name, and nobody verifies it: check the address that it redirects to. To \
use a revoked app again, connect it again.

Enrolment codes that the app made end with it. Machines that it admitted, invitations and webhooks \
go on unless `--end` names them; `vault clients revoke` lists what goes on.

Examples:
  vault clients list
  vault clients revoke cli_01kd1xq0r8vmzq3y5c7t9w2b4n
  vault clients revoke editor --end machines,invitations,webhooks
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
        /// Also end what the app made
        #[arg(
            long,
            value_enum,
            value_name = "KINDS",
            value_delimiter = ',',
            conflicts_with = "all"
        )]
        end: Vec<Kind>,
        /// Let the enrolment codes that the app made go on
        #[arg(long, conflicts_with = "all")]
        keep_codes: bool,
        /// End every token for this vault, yours included: all people and apps sign in again
        #[arg(long, conflicts_with = "client")]
        all: bool,
    },
}

/// Things that an app made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Kind {
    /// Revoke machines that it admitted
    Machines,
    /// Withdraw invitations that nobody has accepted
    Invitations,
    /// Remove webhooks
    Webhooks,
}

impl Kind {
    const fn of_wire(self) -> EndedKind {
        match self {
            Self::Machines => EndedKind::Machines,
            Self::Invitations => EndedKind::Invitations,
            Self::Webhooks => EndedKind::Webhooks,
        }
    }

    /// Returns the ids of this kind.
    fn ids_of(self, made: &MadeByClient) -> &[String] {
        match self {
            Self::Machines => &made.machines,
            Self::Invitations => &made.invitations,
            Self::Webhooks => &made.webhooks,
        }
    }
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
                end,
                keep_codes,
                ..
            } => {
                let clients: Vec<Client> = owner.list(CLIENTS).await?;
                let found = find_client(&clients, client).cloned();
                let client = found.or_else(|failure| ended_client(client, end).ok_or(failure))?;
                revoke_client(context, &owner, &client, (end, *keep_codes)).await
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
    (end, keep_codes): (&[Kind], bool),
) -> Result<Report, Failure> {
    let question = format!(
        "Revoke {} and the tokens of {}?",
        quote_client_name(client),
        count(client.users, "user")
    );
    context.ui.confirm_or_stop(&question)?;
    let path = revocation_path(client, end, keep_codes);
    let mut revoked: RevokedClient = owner.send(Method::DELETE, &path, None).await?;
    // One request ends as much as fits into a commit, and the same request goes on. It never ends
    // nothing and leaves something, so the loop ends.
    while end
        .iter()
        .any(|kind| !kind.ids_of(&revoked.left).is_empty())
    {
        let more: RevokedClient = owner.send(Method::DELETE, &path, None).await?;
        if more.ended.is_empty() {
            break;
        }
        revoked = join_answers(revoked, more);
    }
    let text = format!(
        "{TICK} revoked {} and {}{}",
        quote_client_name(client),
        count(revoked.revoked_tokens, "token"),
        describe_made(&revoked)
    );
    Ok(Report::new(&revoked, text))
}

/// Returns an app that is not in the list, so that the end of what it made can go on after the end of
/// the app.
fn ended_client(asked: &str, end: &[Kind]) -> Option<Client> {
    let is_id = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let is_id = asked.starts_with("cli_") && asked.bytes().all(is_id);
    (is_id && !end.is_empty()).then(|| Client {
        id: asked.to_owned(),
        name: None,
        redirect_hosts: Vec::new(),
        created_at: Timestamp::default(),
        connected_at: Timestamp::default(),
        last_used_at: None,
        users: 0,
    })
}

/// Returns the path that revokes the app and ends these things with it.
fn revocation_path(client: &Client, end: &[Kind], keep_codes: bool) -> String {
    let kinds: Vec<_> = end.iter().map(|kind| kind.of_wire().as_str()).collect();
    let mut query = Vec::new();
    if !kinds.is_empty() {
        query.push(format!("end={}", kinds.join(",")));
    }
    if keep_codes {
        query.push("keep=codes".to_owned());
    }
    let path = format!("{CLIENTS}/{}", client.id);
    if query.is_empty() {
        path
    } else {
        format!("{path}?{}", query.join("&"))
    }
}

/// Joins the answers to a request and to its repetition.
fn join_answers(first: RevokedClient, more: RevokedClient) -> RevokedClient {
    let append = |mut one: Vec<String>, other: Vec<String>| {
        one.extend(other);
        one
    };
    let (one, other) = (first.ended, more.ended);
    RevokedClient {
        ended: MadeByClient {
            codes: append(one.codes, other.codes),
            machines: append(one.machines, other.machines),
            invitations: append(one.invitations, other.invitations),
            users: append(one.users, other.users),
            webhooks: append(one.webhooks, other.webhooks),
            more: one.more || other.more,
        },
        left: more.left,
        ..first
    }
}

/// Describes what the app had made: what ended, and what goes on with the command that ends it.
fn describe_made(revoked: &RevokedClient) -> String {
    let kinds = |made: &MadeByClient| {
        [
            (
                made.codes.len(),
                "enrolment code",
                "vault devices end-code <id>",
            ),
            (made.machines.len(), "machine", "vault devices revoke <id>"),
            (
                made.invitations.len(),
                "invitation",
                "vault users remove <id>",
            ),
            (made.users.len(), "member", "vault users remove <id>"),
            (made.webhooks.len(), "webhook", "vault notices remove <id>"),
        ]
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .collect::<Vec<_>>()
    };
    let mut text = String::new();
    let ended = kinds(&revoked.ended);
    if !ended.is_empty() {
        let ended = ended.iter().map(|(number, noun, _)| count(*number, noun));
        text.push_str(&format!(
            "\nAlso ended, since the app made them: {}",
            join(ended)
        ));
    }
    for (number, noun, command) in kinds(&revoked.left) {
        let number = count(number, noun);
        text.push_str(&format!(
            "\nMade by the app and not ended: {number}. To end one: {command}"
        ));
    }
    if revoked.left.more {
        text.push_str("\nThere is more than this list shows: run the command again.");
    }
    if !revoked.left.is_empty() {
        text.push_str("\nThe ids are in the output of --json.");
    }
    text
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
        // Apps of one name differ by the time at which they were connected.
        |client| {
            format!(
                "{}, connected {}",
                clean(&client.id, 40),
                client.connected_at
            )
        },
    )
}

#[cfg(test)]
mod tests {
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
    fn what_an_app_made_is_told_with_the_command_that_ends_it() {
        let ids = |n: usize| vec!["x".to_owned(); n];
        let revoked = |ended, left| RevokedClient {
            client_id: "cli_a".into(),
            revoked_tokens: 2,
            ended,
            left,
        };
        let nothing = revoked(MadeByClient::default(), MadeByClient::default());
        assert_eq!(describe_made(&nothing), "");
        let ended = MadeByClient {
            codes: ids(1),
            machines: ids(2),
            ..MadeByClient::default()
        };
        let left = MadeByClient {
            machines: ids(3),
            more: true,
            ..MadeByClient::default()
        };
        let text = describe_made(&revoked(ended, left));
        for part in [
            "Also ended, since the app made them: 1 enrolment code, 2 machines",
            "not ended: 3 machines. To end one: vault devices revoke <id>",
            "run the command again",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn only_the_id_of_an_app_that_is_gone_ends_what_it_made() {
        let made = |asked, end: &[Kind]| ended_client(asked, end).map(|client| client.id);
        assert_eq!(made("cli_a1", &[Kind::Machines]).as_deref(), Some("cli_a1"));
        assert_eq!(made("cli_a1", &[]), None);
        assert_eq!(made("editor", &[Kind::Machines]), None);
        assert_eq!(made("cli_a/../b", &[Kind::Machines]), None);
    }

    #[test]
    fn a_path_names_what_ends() {
        let path = |end: &[Kind], keep| revocation_path(&client("cli_a", "a"), end, keep);
        assert_eq!(path(&[], false), "/admin/clients/cli_a");
        let both = [Kind::Machines, Kind::Webhooks];
        assert_eq!(
            path(&both, true),
            "/admin/clients/cli_a?end=machines,webhooks&keep=codes"
        );
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
