//! `vault notices`: sets to which webhooks a service sends notices about a vault, and whether
//! owners get them by mail. A notice reports an event, such as a machine that waits for approval.

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use vault_api::{
    NewWebhook, NoticeDestinations, NoticeMail, NoticeTopic, TestedWebhook, Webhook, WebhookState,
};
use vault_service::error::ErrorCode as ServiceCode;

use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{BOLD, Column, DIM, GOOD, HINT, Report, TICK, Table, WARN, clean, format_day, paint},
    service::{OwnerClient, connection::Connection, path_segment},
};

/// The arguments of `vault notices`.
#[derive(Args, Debug)]
#[command(after_help = "\
Owners can be told when a machine or a draft is waiting, when a release ends in 14 days, when a key \
was replaced and when a payment failed. A webhook gets signed JSON (Standard Webhooks). Mail goes \
to every owner.

Examples:
  vault notices list
  vault notices add https://hooks.example/vault
  vault notices add https://hooks.example/vault --events key_replaced
  vault notices test whk_01kb3c4d5e6f7g8h9j0k1m2n3p
  vault notices mail on")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the webhooks, and say whether owners get mail
    List,
    /// Add a webhook; its secret is shown once
    Add {
        /// The address that receives notices: https on a public host
        #[arg(value_name = "URL")]
        address: String,
        /// The events that it receives, separated by commas; the default is all
        #[arg(long, value_name = "EVENTS", value_delimiter = ',', value_parser = parse_topic)]
        events: Vec<NoticeTopic>,
    },
    /// Remove a webhook
    Remove(Which),
    /// Send a test notice to a webhook; if it arrives, the webhook is on again
    Test(Which),
    /// Send notices to every owner by mail, or stop
    Mail {
        /// Whether owners get mail
        mode: MailSwitch,
    },
}

#[derive(Args, Debug)]
struct Which {
    /// The webhook's id, as `vault notices list` shows it
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MailSwitch {
    /// Every owner gets mail
    On,
    /// Nobody gets mail
    Off,
}

fn parse_topic(text: &str) -> Result<NoticeTopic, String> {
    text.parse().map_err(|_| {
        let (last, others) = NoticeTopic::ALL.split_last().expect("there are topics");
        let others: Vec<_> = others.iter().map(|topic| topic.as_str()).collect();
        let text = clean(text, 40);
        format!(
            "`{text}` is not an event; use {} or {last}",
            others.join(", ")
        )
    })
}

/// Lists the webhooks and the setting for mail, or changes them.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner_client(context)?;
    let root = format!("/admin/vaults/{}/notices", connection.slug);
    context.block_on(async {
        match &arguments.action {
            Action::List => {
                let destinations: NoticeDestinations = client.get(&root).await?;
                Ok(destinations_report(context, &destinations))
            }
            Action::Add { address, events } => add_webhook(&client, &root, address, events).await,
            Action::Remove(Which { id }) => {
                let path = webhook_path(&root, id);
                let removed = client.send(Method::DELETE, &path, None).await;
                let removed: Webhook = removed.map_err(|failure| webhook_not_found(failure, id))?;
                let text = format!(
                    "{TICK} removed the webhook {}",
                    clean(&removed.address, 1024)
                );
                Ok(Report::new(&removed, text))
            }
            Action::Test(Which { id }) => test_webhook(&client, &root, id).await,
            Action::Mail { mode } => {
                let on = matches!(mode, MailSwitch::On);
                let body = Some(json!(NoticeMail { mail: on }));
                let path = format!("{root}/mail");
                let setting: Value = client.send(Method::PUT, &path, body).await?;
                let text = if on {
                    "every owner gets notices by mail"
                } else {
                    "no owner gets notices by mail"
                };
                Ok(Report::new(setting, format!("{TICK} {text}")))
            }
        }
    })
}

/// Returns the path of a webhook at the service. The id comes from the command line, so it is
/// escaped.
fn webhook_path(root: &str, id: &str) -> String {
    format!("{root}/{}", path_segment(id))
}

async fn add_webhook(
    client: &OwnerClient,
    root: &str,
    address: &str,
    events: &[NoticeTopic],
) -> Result<Report, Failure> {
    let body = NewWebhook {
        address: address.to_owned(),
        events: events.iter().map(|topic| (*topic).into()).collect(),
    };
    let created_webhook: Webhook = client.post(root, json!(body)).await?;
    // Only this answer contains the secret.
    let secret = clean(created_webhook.secret.as_deref().unwrap_or_default(), 64);
    let id = clean(&created_webhook.id, 40);
    let text = format!(
        "{TICK} added the webhook {}  {}\n\
         Secret:  {BOLD}{secret}{BOLD:#}\n\
         The endpoint verifies notices with this secret. It is not shown again.\n\
         Try it: vault notices test {id}",
        clean(&created_webhook.address, 1024),
        paint(HINT, &id),
    );
    Ok(Report::new(&created_webhook, text))
}

async fn test_webhook(client: &OwnerClient, root: &str, id: &str) -> Result<Report, Failure> {
    let path = format!("{}/test", webhook_path(root, id));
    let tested: TestedWebhook = client
        .post(&path, json!({}))
        .await
        .map_err(|failure| webhook_not_found(failure, id))?;
    let text = match &tested.failure {
        None => format!("{TICK} the test notice arrived"),
        // The service's text begins with "the notice did not arrive".
        Some(why) => paint(WARN, clean(why, 400)),
    };
    let report = Report::new(&tested, text);
    // The test itself has worked, so its result is printed. The exit code tells scripts that the
    // notice did not arrive.
    Ok(if tested.arrived {
        report
    } else {
        report.with_exit(Exit::Failed)
    })
}

fn destinations_report(context: &Context, found: &NoticeDestinations) -> Report {
    let mut text = if found.webhooks.is_empty() {
        "There are no webhooks. Add one: vault notices add <URL>".to_owned()
    } else {
        let mut table = Table::new([
            Column::new("webhook"),
            Column::new("state"),
            Column::new("address").shrinks_to(20),
            Column::new("events").shrinks_to(12).leaves(2),
            Column::new("added").leaves(1),
        ]);
        for webhook in &found.webhooks {
            let style = match webhook.state {
                WebhookState::On => GOOD,
                WebhookState::Failing => WARN,
                WebhookState::Off => DIM,
            };
            // All topics in one cell would make the table too wide for a terminal.
            let events = if webhook.events.len() == NoticeTopic::ALL.len() {
                "all".to_owned()
            } else {
                let events = webhook.events.iter().map(|topic| topic.as_str());
                events.collect::<Vec<_>>().join(", ")
            };
            table.push_row([
                clean(&webhook.id, 40),
                paint(style, webhook.state),
                clean(&webhook.address, 1024),
                events,
                format_day(&webhook.created_at.to_string()),
            ]);
        }
        context.ui.format_table(&table)
    };
    // The reason of a failure is too long for a cell.
    for webhook in &found.webhooks {
        if let (Some(since), Some(why)) = (&webhook.failing_since, &webhook.last_failure) {
            text.push_str(&format!(
                "\n\n{} has failed since {}: {}",
                clean(&webhook.id, 40),
                format_day(&since.to_string()),
                clean(why, 200)
            ));
        }
    }
    let mail = match (found.mail, found.mail_available) {
        (true, true) => "every owner gets them",
        (true, false) => "on, but this service sends no mail",
        (false, true) => "off; switch it on: vault notices mail on",
        (false, false) => "off; this service sends no mail",
    };
    Report::new(found, format!("{text}\n\nMail: {mail}"))
}

/// Replaces the service's "not found" by a failure that names the missing webhook.
fn webhook_not_found(failure: Failure, id: &str) -> Failure {
    if failure.code != ServiceCode::NotFound {
        return failure;
    }
    let message = format!("no webhook has the id {}", clean(id, 40));
    Failure::new(failure.code, message).hint("list the webhooks with: vault notices list")
}
