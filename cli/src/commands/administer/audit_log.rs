//! `vault audit-log`: shows the actions of people and apps on the vault that this machine is
//! connected to, and the requests that the service rejected. `vault operator audit-log` uses the
//! same functions for the log of the whole service.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vault_api::{AuditEntry, ListedDevice, User};
use vault_format::time::Timestamp;
use vault_gate::report::json::escape_invisible;
use vault_store::clock::{Clock as _, SystemClock};

use crate::{
    context::Context,
    errors::Failure,
    output::{BAD, Column, DIM, GOOD, Report, Table, clean, paint},
    service::{OwnerClient, connection::Connection, encode_form, users},
};

/// The arguments of `vault audit-log`.
#[derive(Args, Debug)]
#[command(after_help = "\
Events are listed oldest first, in UTC. An actor is a user id, the e-mail address of a current user, or \
`server`. An operator of the service appears as `an operator`. An action is a full name such as `user.scopes`, or a subject such as `user`. The \
outcome is `done` or the error code of the refusal. Removed people and machines appear by id.

Examples:
  vault audit-log --since 7d
  vault audit-log --action user --since 2026-11-01T00:00:00Z
  vault audit-log --actor ann@example.com --json
  vault audit-log --since 24h --json-lines >> audit.jsonl")]
pub struct Arguments {
    #[command(flatten)]
    filters: Filters,
}

/// Which entries of a log to show.
#[derive(Args, Clone, Debug)]
pub struct Filters {
    /// Show only the events of this person
    #[arg(long, value_name = "PERSON")]
    pub actor: Option<String>,
    /// Show only this action, or all actions on this subject
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Show only events since this time: a time in UTC, or an age such as 30m, 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<EventStart>,
    /// Print each event as a line of JSON
    #[arg(long)]
    json_lines: bool,
}

/// The value of `--since`: a time, or an age in seconds before now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum EventStart {
    At(Timestamp),
    Ago(i64),
}

/// An entry of the audit log, with the names that belong to its ids, as far as they are known.
#[derive(Debug, Deserialize, Serialize)]
pub struct NamedAuditEntry {
    #[serde(flatten)]
    record: AuditEntry,
    /// E-mail address of the person who acted; absent if the actor is not, or no longer, a user of
    /// the vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor_email: Option<String>,
    /// E-mail address of the person, or name of the machine, that the action changed; absent if the
    /// id is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_name: Option<String>,
}

/// Reads the entries that match the filters from the service, adds the names of people and
/// machines, and shows them.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let client = connection.owner_client(context)?;
    let filters = &arguments.filters;
    context.block_on(async {
        let actor = match &filters.actor {
            // The log identifies users by id, so resolve an e-mail address first.
            Some(email) if email.contains('@') => Some(users::find_user(&client, email).await?.id),
            actor => actor.clone(),
        };
        let mut entries = load_entries(&client, "/admin/audit", filters, actor).await?;
        // The names take two more requests, which an empty log does not need.
        if !entries.is_empty() {
            add_names(&mut entries, &load_names(&client, &connection).await?);
        }
        Ok(show_entries(context, filters, &entries, "an operator"))
    })
}

/// Reads the entries that match the filters from the log at the route `path`. `actor` is the id of
/// the person who acted, resolved from `filters.actor`; `None` selects entries of all.
pub async fn load_entries(
    client: &OwnerClient,
    path: &str,
    filters: &Filters,
    actor: Option<String>,
) -> Result<Vec<NamedAuditEntry>, Failure> {
    // The route takes a time. An age counts back from the clock of this machine.
    let since = filters.since.map(|since| match since {
        EventStart::At(at) => at.to_string(),
        EventStart::Ago(seconds) => SystemClock.now().plus_seconds(-seconds).to_string(),
    });
    let query: Vec<(&str, &str)> = [
        ("actor", actor.as_deref()),
        ("action", filters.action.as_deref()),
        ("since", since.as_deref()),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
    .collect();
    if query.is_empty() {
        return client.list(path).await;
    }
    client
        .list(&format!("{path}?{}", encode_form(&query)))
        .await
}

/// Fills the names of the entries from `names`, which maps the id of a person or machine to an
/// e-mail address or machine name.
pub fn add_names(entries: &mut [NamedAuditEntry], names: &BTreeMap<String, String>) {
    for entry in entries {
        entry.actor_email = names.get(&entry.record.actor).cloned();
        let target = entry.record.target.as_ref();
        entry.target_name = target.and_then(|target| names.get(target)).cloned();
    }
}

/// Reads the names of the vault's users and machines from the service: e-mail addresses and machine
/// names, by id.
async fn load_names(
    client: &OwnerClient,
    connection: &Connection,
) -> Result<BTreeMap<String, String>, Failure> {
    let users: Vec<User> = client.list(users::USERS).await?;
    let path = format!("/admin/vaults/{}/devices", connection.slug);
    let devices: Vec<ListedDevice> = client.list(&path).await?;
    let people = users
        .into_iter()
        .map(|user| (user.id, user.email.to_string()));
    let machines = devices.into_iter().map(|device| {
        (
            device.device.device_id.clone(),
            device.device.display_name(),
        )
    });
    Ok(people.chain(machines).collect())
}

/// Formats the entries as a table, or as lines of JSON with `--json-lines`. The table shows the
/// words `account` for an actor whose e-mail address is unknown.
pub fn show_entries(
    context: &Context,
    filters: &Filters,
    entries: &[NamedAuditEntry],
    account: &str,
) -> Report {
    if filters.json_lines {
        // Other people chose the texts in an entry, so invisible characters are escaped.
        let line = |entry| escape_invisible(&serde_json::json!(entry).to_string()) + "\n";
        return Report::raw_text(entries.iter().map(line).collect::<String>());
    }
    if entries.is_empty() {
        return Report::new(entries, "No entries.");
    }
    let mut table = Table::new([
        Column::new("time"),
        Column::new("who").shrinks_to(10),
        // People search for the action and the outcome, so the other columns are narrowed first.
        Column::new("action").shrinks_last_to(14),
        Column::new("target").shrinks_to(10).leaves(2),
        Column::new("outcome").shrinks_last_to(12),
        Column::new("change").shrinks_to(20).leaves(1),
    ]);
    for entry in entries {
        let style = if entry.record.outcome == "done" {
            GOOD
        } else {
            BAD
        };
        table.push_row([
            // The first 16 characters show the time to the minute.
            entry.record.at.to_string()[..16].replace('T', " "),
            format_actor(entry, account),
            clean(&entry.record.action, 40),
            format_target(entry),
            paint(style, clean(&entry.record.outcome, 40)),
            paint(DIM, format_changes(entry)),
        ]);
    }
    Report::new(entries, context.ui.format_table(&table))
}

fn format_actor(entry: &NamedAuditEntry, account: &str) -> String {
    match &entry.actor_email {
        Some(email) => clean(email, 40),
        // An account's id belongs to the service. Members of a vault cannot look it up, so words
        // are shown instead.
        None if entry.record.actor.starts_with("acc_") => account.to_owned(),
        None => clean(&entry.record.actor, 40),
    }
}

fn format_target(entry: &NamedAuditEntry) -> String {
    match (&entry.target_name, &entry.record.target) {
        // A machine chooses its own name, so it is quoted, to tell it from an e-mail address.
        (Some(name), _) if entry.record.action.starts_with("device.") => {
            format!("\"{}\"", clean(name, 32))
        }
        (Some(name), _) => clean(name, 40),
        (None, Some(id)) => clean(id, 40),
        (None, None) => "-".to_owned(),
    }
}

/// Formats what the action changed in one line, such as `status: pending → active`. For an entry
/// that stands for several equal refusals, the line begins with their number.
fn format_changes(entry: &NamedAuditEntry) -> String {
    let members = |value: &Option<Value>| match value {
        None => Map::new(),
        Some(Value::Object(members)) => members.clone(),
        // Some actions record a bare value and not an object. Under the name `value` it is compared
        // like a member.
        Some(other) => Map::from_iter([("value".to_owned(), other.clone())]),
    };
    let (before, after) = (members(&entry.record.before), members(&entry.record.after));
    // The names are sorted, so that the same change reads the same in every entry.
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changes = names.into_iter().filter_map(|name| {
        let name_text = clean(name, 24);
        match (before.get(name), after.get(name)) {
            (before, after) if before == after => None,
            // A member that was absent before and is null now did not change.
            (None, None | Some(Value::Null)) => None,
            (None, Some(after)) => Some(format!("{name_text}: {}", shorten_value(after))),
            (Some(before), after) => {
                let after = after.map_or_else(|| "-".to_owned(), shorten_value);
                Some(format!("{name_text}: {} → {after}", shorten_value(before)))
            }
        }
    });
    let count = entry.record.count.into_iter();
    let count = count.map(|count| format!("{count} times within a minute"));
    let changes: Vec<_> = count.chain(changes).collect();
    clean(&changes.join(", "), 100)
}

/// Formats a recorded value for one line of the table: a digest by its first eight characters, a
/// role without its prefix.
fn shorten_value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if is_digest(text) => format!("{}…", &text[..8]),
        Value::String(text) => clean(text.trim_start_matches("role:"), 40),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(shorten_value).collect();
            // The line is cut anyway, and a list may hold sentences.
            clean(&items.join(" "), 100)
        }
        other => clean(&other.to_string(), 40),
    }
}

/// Returns whether the text is a SHA-256 digest in hexadecimal. The table shows only its beginning.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses the value of `--since`: a time in UTC, or an age such as `30m`, `24h` or `7d`.
fn parse_since(text: &str) -> Result<EventStart, String> {
    if let Ok(at) = text.parse() {
        return Ok(EventStart::At(at));
    }
    let usage = "write a time as 2026-11-21T00:00:00Z, or how long ago as 30m, 24h or 7d";
    // The unit is the last character, which may have several bytes.
    let (number, unit) = text
        .char_indices()
        .next_back()
        .map(|(at, _)| text.split_at(at))
        .ok_or(usage)?;
    // With at most 32 bits for the number, the product below cannot overflow.
    let number: u32 = number.parse().map_err(|_| usage)?;
    let seconds = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(usage.to_owned()),
    };
    Ok(EventStart::Ago(i64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_names_the_members_that_differ() {
        for (before, after, shown) in [
            (
                json!({"status": "pending"}),
                json!({"status": "active"}),
                "status: pending → active",
            ),
            (
                json!({"status": "revoked"}),
                Value::Null,
                "status: revoked → -",
            ),
            (
                json!({"role": "role:member", "scopes": ["read"]}),
                json!({"role": "role:member", "scopes": ["read", "write"]}),
                "scopes: read → read write",
            ),
            (
                Value::Null,
                json!({"release": 4, "profile": null}),
                "release: 4",
            ),
            (
                json!({"profile": "reviewers", "role": "role:owner"}),
                json!({"profile": null, "role": "role:member"}),
                "profile: reviewers → -, role: owner → member",
            ),
            (
                Value::Null,
                json!({"sha256": "0123456789abcdef".repeat(4)}),
                "sha256: 01234567…",
            ),
            (Value::Null, Value::Null, ""),
        ] {
            let entry = json!({
                "id": "1", "at": "2026-11-21T02:00:10Z", "actor": "server", "action": "x",
                "before": before, "after": after, "outcome": "done",
            });
            let entry: NamedAuditEntry = serde_json::from_value(entry).unwrap();
            assert_eq!(format_changes(&entry), shown);
        }
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let at = "2026-11-21T00:00:00Z";
        for (text, wanted) in [
            (at, Some(EventStart::At(at.parse().unwrap()))),
            ("30m", Some(EventStart::Ago(1800))),
            ("24h", Some(EventStart::Ago(86_400))),
            ("7d", Some(EventStart::Ago(604_800))),
            ("", None),
            ("d", None),
            ("-1d", None),
            ("7w", None),
            ("7\u{e9}", None),
            ("2026-11-21", None),
            ("99999999999d", None),
        ] {
            assert_eq!(parse_since(text).ok(), wanted, "{text}");
        }
    }
}
