//! `vault clients`: lists the apps that are connected to the vault on the service, and revokes one.
//! An *app* is any program that a user has allowed to act on the vault (an OAuth client); this
//! command line is one too. What an app made (enrolment codes, machines, invitations, webhooks) may
//! outlive its access, and can be ended with it.

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    lookup::{EntryWords, pick_entry},
    output::{
        BOLD, Column, HINT, Report, TICK, Table, clean, count, either, format_day, format_minute,
        join, paint,
    },
    service::{OwnerClient, connection::Connection},
};
use vault_api::{Client, EndedKind, MadeByClient, RevokedClient};

/// The route of the service that lists and revokes apps.
const CLIENTS: &str = "/admin/clients";

/// The arguments of `vault clients`.
#[derive(Args, Debug)]
#[command(after_help = "\
An app chooses its own name, and nobody verifies it: check the address that it redirects to. To \
use a revoked app again, connect it again.

Enrolment codes that the app made end with its access, unless `--keep-codes` keeps them. Machines \
that it admitted, invitations and webhooks go on unless `--end` names them; the command lists what \
goes on. Give it again with the app's id to end more of that; codes that were kept stay (`vault \
devices end-code` ends one).

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
    /// End the access of an app: all its tokens
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

    /// All kinds, in the order in which they are listed.
    const ALL: [Self; 3] = [Self::Machines, Self::Invitations, Self::Webhooks];

    /// Returns the singular noun of this kind, for messages.
    const fn noun(self) -> &'static str {
        match self {
            Self::Machines => "machine",
            Self::Invitations => "invitation",
            Self::Webhooks => "webhook",
        }
    }

    /// Formats how many things of this kind the app made, such as "2 machines".
    fn count_in(self, made: &MadeByClient) -> String {
        count(self.ids_of(made).len(), self.noun())
    }

    fn ids_of(self, made: &MadeByClient) -> &[String] {
        match self {
            Self::Machines => &made.machines,
            Self::Invitations => &made.invitations,
            Self::Webhooks => &made.webhooks,
        }
    }
}

/// Joins the kinds with commas, as both `--end` and the service's query parameter `end` expect
/// them.
fn wire_words(kinds: &[Kind]) -> String {
    let words: Vec<_> = kinds.iter().map(|kind| kind.of_wire().as_str()).collect();
    words.join(",")
}

fn kind_words(kinds: &[Kind]) -> String {
    join(kinds.iter().map(|kind| format!("{}s", kind.noun())))
}

fn quote_client_name(client: &Client) -> String {
    client
        // The name is quoted, because an app chooses it and could imitate other words of the table.
        .name
        .as_ref()
        .map_or_else(|| "-".to_owned(), |name| format!("\"{}\"", clean(name, 64)))
}

/// Lists the apps, revokes one, or ends every token for the vault (`revoke --all`).
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
                let app = match find_client(&clients, client) {
                    Ok(found) => RevokedApp::connected(found),
                    Err(failure) => RevokedApp::ended(client, end).ok_or(failure)?,
                };
                revoke_client(context, &owner, &app, (end, *keep_codes)).await
            }
            Action::Revoke { client: None, .. } => {
                sign_out_all(context, &owner, connection.slug.as_str()).await
            }
        }
    })
}

/// Ends every token for the vault, after a question: all people and apps have to sign in again,
/// this command too.
async fn sign_out_all(
    context: &Context,
    owner: &OwnerClient,
    slug: &str,
) -> Result<Report, Failure> {
    // Only an owner may list the apps. If this request is refused, the command fails before its
    // question.
    let _: Value = owner.get(&format!("{CLIENTS}?limit=1")).await?;
    let question = format!("End every token for {slug}, yours included?");
    context.ui.confirm_or_stop(&question)?;
    let path = format!("/admin/vaults/{slug}/sign-out");
    let done: Value = owner.post(&path, json!({ "slug": slug })).await?;
    let text = format!("{TICK} all people and apps are signed out of {BOLD}{slug}{BOLD:#}");
    Ok(Report::new(&done, text))
}

/// Formats the list of apps. `own` is the id under which this command line is signed in; its row is
/// marked.
fn show_clients(context: &Context, clients: &[Client], own: &str) -> Report {
    if clients.is_empty() {
        return Report::new(clients, "No app is connected.");
    }
    Report::new(
        clients,
        context.ui.format_table(&clients_table(clients, own)),
    )
}

fn clients_table(clients: &[Client], own: &str) -> Table {
    let mut table = Table::new([
        Column::new("app").shrinks_to(20),
        Column::new("redirects to").shrinks_to(14),
        Column::new("users").leaves(2),
        // Apps of the same name differ by the time at which they were connected, so this column is
        // dropped last.
        Column::new("connected").leaves(4),
        Column::new("last used").leaves(3),
        Column::new("id").leaves(1),
        Column::new(""),
    ]);
    for client in clients {
        let used = client.last_used_at.map(|used| used.to_string());
        // The row of this command line is marked, because revoking it would sign the user out.
        let mark = either(client.id == own, "(this sign-in)", "");
        table.push_row([
            paint(BOLD, quote_client_name(client)),
            // An app is identified by the hosts that it redirects to, not by the name that it
            // chose. So the hosts are coloured.
            paint(HINT, clean(&client.redirect_hosts.join(" "), 80)),
            client.users.to_string(),
            format_minute(&client.connected_at.to_string()),
            format_day(&used.unwrap_or_default()),
            clean(&client.id, 40),
            mark.to_owned(),
        ]);
    }
    table
}

struct RevokedApp {
    id: String,
    /// The app's name in quotation marks, or its id if the name is not known.
    name: String,
    /// The number of users who have connected the app and whose tokens end; `None` if its access
    /// has ended already.
    users: Option<usize>,
}

impl RevokedApp {
    fn connected(client: &Client) -> Self {
        Self {
            id: client.id.clone(),
            name: quote_client_name(client),
            users: Some(client.users),
        }
    }

    /// Returns an app that is not in the list because its access has ended, so that a later command
    /// can still end what the app made. `None` if `end` is empty, or `asked` does not have the form
    /// of an app's id.
    fn ended(asked: &str, end: &[Kind]) -> Option<Self> {
        let is_id = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let is_id = asked.starts_with("cli_") && asked.bytes().all(is_id);
        (is_id && !end.is_empty()).then(|| Self {
            id: asked.to_owned(),
            name: asked.to_owned(),
            users: None,
        })
    }

    fn question(&self, end: &[Kind]) -> String {
        match self.users {
            Some(users) => format!(
                "End the access of {} and the tokens of {}?",
                self.name,
                count(users, "user")
            ),
            None => format!("End what {} made: {}?", self.name, kind_words(end)),
        }
    }
}

/// Ends the access of an app and the things of the kinds `end` that it made, after a question. Its
/// enrolment codes end too, unless `keep_codes` is set.
async fn revoke_client(
    context: &Context,
    owner: &OwnerClient,
    app: &RevokedApp,
    (end, keep_codes): (&[Kind], bool),
) -> Result<Report, Failure> {
    context.ui.confirm_or_stop(&app.question(end))?;
    let path = revocation_path(&app.id, end, keep_codes);
    let mut revoked: RevokedClient = owner.send(Method::DELETE, &path, None).await?;
    // One request ends as many things as the service changes at once, and the same request again
    // ends more. Every request ends something or nothing is left, so the loop stops.
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
    let text = describe_revocation(app, &revoked);
    Ok(Report::new(&revoked, text))
}

/// Formats what a revocation did: whether it ended the app's access, which things of the app it
/// ended, and which are left.
fn describe_revocation(app: &RevokedApp, revoked: &RevokedClient) -> String {
    let name = &app.name;
    let mut text = match app.users {
        Some(_) => {
            let tokens = count(revoked.revoked_tokens, "token");
            format!("{TICK} ended the access of {name} and {tokens}")
        }
        None if revoked.ended.is_empty() => {
            format!("{name} had no access any more, and nothing that it made had to end")
        }
        None => format!("{TICK} {name} had no access any more"),
    };
    text.push_str(&describe_made(&app.id, revoked));
    text
}

/// Returns the path and query of the request that revokes the app and ends the things of the kinds
/// `end`.
fn revocation_path(id: &str, end: &[Kind], keep_codes: bool) -> String {
    let mut query = Vec::new();
    if !end.is_empty() {
        query.push(format!("end={}", wire_words(end)));
    }
    if keep_codes {
        query.push("keep=codes".to_owned());
    }
    let path = format!("{CLIENTS}/{id}");
    if query.is_empty() {
        path
    } else {
        format!("{path}?{}", query.join("&"))
    }
}

/// Joins the answers to a request and to the same request again: what ended is the sum, and what is
/// left is that of the later one.
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

/// Formats what the app made: the number of things that ended, and of those that are left, with the
/// command that ends them.
fn describe_made(id: &str, revoked: &RevokedClient) -> String {
    let mut text = String::new();
    let ended = count_kinds(&revoked.ended);
    if !ended.is_empty() {
        text.push_str(&format!(
            "\nAlso ended, since the app made them: {}",
            join(ended)
        ));
    }
    let left = &revoked.left;
    let has_some = |kind: &Kind| !kind.ids_of(left).is_empty();
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(has_some).collect();
    if !kinds.is_empty() {
        let numbers = kinds.iter().map(|kind| kind.count_in(left));
        text.push_str(&format!(
            "\nStill there: {}. End them: vault clients revoke {id} --end {}",
            join(numbers),
            wire_words(&kinds)
        ));
    }
    for (ids, noun, command) in [
        (&left.codes, "enrolment code", "vault devices end-code <id>"),
        (&left.users, "member", "vault users remove <id>"),
    ] {
        if !ids.is_empty() {
            text.push_str(&format!(
                "\nStill there: {}. To end one: {command} (the ids are in the output of --json)",
                count(ids.len(), noun)
            ));
        }
    }
    if left.more {
        text.push_str("\nThere is more than this list shows: run the command again.");
    }
    text
}

/// Formats the number of things of each kind, and leaves out the kinds of which there are none.
fn count_kinds(made: &MadeByClient) -> Vec<String> {
    let codes = (made.codes.len(), "enrolment code");
    let kinds = Kind::ALL.map(|kind| (kind.ids_of(made).len(), kind.noun()));
    let numbers = std::iter::once(codes).chain(kinds);
    let numbers = numbers.filter(|(number, _)| *number > 0);
    numbers.map(|(number, noun)| count(number, noun)).collect()
}

/// Finds an app by its id, or by its name if only one app has that name.
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
    fn what_an_app_made_is_told_with_the_command_that_ends_it() {
        let ids = |n: usize| vec!["x".to_owned(); n];
        let revoked = |ended, left| RevokedClient {
            client_id: "cli_a".into(),
            revoked_tokens: 2,
            ended,
            left,
        };
        let app = RevokedApp::connected(&client("cli_a", "editor"));
        let nothing = revoked(MadeByClient::default(), MadeByClient::default());
        assert_eq!(
            describe_revocation(&app, &nothing),
            format!("{TICK} ended the access of \"editor\" and 2 tokens")
        );
        let ended = MadeByClient {
            codes: ids(1),
            machines: ids(2),
            ..MadeByClient::default()
        };
        let left = MadeByClient {
            codes: ids(1),
            invitations: ids(1),
            webhooks: ids(3),
            more: true,
            ..MadeByClient::default()
        };
        let text = describe_revocation(&app, &revoked(ended, left));
        for part in [
            "Also ended, since the app made them: 1 enrolment code, 2 machines",
            "\nStill there: 1 invitation, 3 webhooks. End them: vault clients revoke cli_a --end \
             invitations,webhooks\n",
            "Still there: 1 enrolment code. To end one: vault devices end-code <id>",
            "run the command again",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_second_end_of_an_app_is_told_as_such() {
        let app = RevokedApp::ended("cli_a1", &[Kind::Machines, Kind::Webhooks]).unwrap();
        assert_eq!(
            app.question(&[Kind::Machines, Kind::Webhooks]),
            "End what cli_a1 made: machines, webhooks?"
        );
        let revoked = |ended| RevokedClient {
            client_id: "cli_a1".into(),
            revoked_tokens: 0,
            ended,
            left: MadeByClient::default(),
        };
        assert_eq!(
            describe_revocation(&app, &revoked(MadeByClient::default())),
            "cli_a1 had no access any more, and nothing that it made had to end"
        );
        let ended = MadeByClient {
            machines: vec!["dev_a".to_owned()],
            ..MadeByClient::default()
        };
        assert_eq!(
            describe_revocation(&app, &revoked(ended)),
            format!(
                "{TICK} cli_a1 had no access any more\nAlso ended, since the app made them: 1 machine"
            )
        );
    }

    #[test]
    fn only_the_id_of_an_app_that_is_gone_ends_what_it_made() {
        let made = |asked, end: &[Kind]| RevokedApp::ended(asked, end).map(|app| app.id);
        assert_eq!(made("cli_a1", &[Kind::Machines]).as_deref(), Some("cli_a1"));
        assert_eq!(made("cli_a1", &[]), None);
        assert_eq!(made("editor", &[Kind::Machines]), None);
        assert_eq!(made("cli_a/../b", &[Kind::Machines]), None);
    }

    #[test]
    fn a_path_names_what_ends() {
        let path = |end: &[Kind], keep| revocation_path("cli_a", end, keep);
        assert_eq!(path(&[], false), "/admin/clients/cli_a");
        let both = [Kind::Machines, Kind::Webhooks];
        assert_eq!(
            path(&both, true),
            "/admin/clients/cli_a?end=machines,webhooks&keep=codes"
        );
    }

    #[test]
    fn apps_of_one_name_differ_at_80_columns() {
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let one = Client {
            connected_at: at("2026-11-21T10:00:00Z"),
            redirect_hosts: vec!["127.0.0.1".to_owned()],
            ..client("cli_01kd1xq0r8vmzq3y5c7t9w2b4n", "vault on laptop (team)")
        };
        let other = Client {
            connected_at: at("2026-11-21T10:07:00Z"),
            ..one.clone()
        };
        let shown = clients_table(&[one, other], "cli_own").to_text(Some(80));
        for time in ["2026-11-21 10:00", "2026-11-21 10:07"] {
            assert!(shown.contains(time), "{shown}");
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
