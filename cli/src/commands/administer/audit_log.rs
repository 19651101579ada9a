//! `vault audit-log`: shows the actions of people and apps on the connected vault, and the requests
//! that the service rejected.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_skill::time::Timestamp;
use vault_store::clock::{Clock as _, SystemClock};

use crate::{
    context::Context,
    errors::Failure,
    output::{BAD, DIM, GOOD, Report, Table, clean, paint},
    service::{connection::Connection, form, users},
};

/// The arguments of `vault audit-log`.
#[derive(Args, Debug)]
#[command(after_help = "\
Events are listed oldest first. An actor is a user id, the e-mail address of a current user, or \
`server`. An action is a full name such as `user.scopes`, or a subject such as `user`. The \
outcome is `done` or the error code of the refusal.

Examples:
  vault audit-log --since 7d
  vault audit-log --action user --since 2026-11-01T00:00:00Z
  vault audit-log --actor ann@example.com --json")]
pub struct Arguments {
    /// Show only the events of this user
    #[arg(long, value_name = "USER")]
    actor: Option<String>,
    /// Show only this action, or all actions on this subject
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Show only events since this time: a time in UTC, or an age such as 30m, 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Since>,
}

/// A point in time, or an age in seconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Since {
    At(Timestamp),
    Ago(i64),
}

/// A log entry as the service returns it.
#[derive(Debug, Deserialize, Serialize)]
struct Entry {
    id: String,
    at: String,
    actor: String,
    client: Option<String>,
    source: Option<String>,
    action: String,
    target: Option<String>,
    before: Option<Value>,
    after: Option<Value>,
    outcome: String,
}

/// Shows the log, filtered as the arguments require.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let client = Connection::load(context)?.owner(context)?;
    let since = arguments.since.map(|since| match since {
        Since::At(at) => at.to_string(),
        Since::Ago(seconds) => SystemClock.now().plus_seconds(-seconds).to_string(),
    });
    context.block_on(async {
        let actor = match &arguments.actor {
            // The log identifies users by id, so resolve an e-mail address first.
            Some(email) if email.contains('@') => Some(users::find(&client, email).await?.id),
            actor => actor.clone(),
        };
        let asked: Vec<(&str, &str)> = [
            ("actor", actor.as_deref()),
            ("action", arguments.action.as_deref()),
            ("since", since.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
        .collect();
        let path = if asked.is_empty() {
            "/admin/audit".to_owned()
        } else {
            format!("/admin/audit?{}", form(&asked))
        };
        Ok(show(&client.list(&path).await?))
    })
}

fn show(entries: &[Entry]) -> Report {
    if entries.is_empty() {
        return Report::new(entries, "The log has nothing like that.");
    }
    let mut table = Table::new(&["TIME", "ACTOR", "ACTION", "TARGET", "OUTCOME", "CHANGE"]);
    for entry in entries {
        let style = if entry.outcome == "done" { GOOD } else { BAD };
        table.row([
            clean(&entry.at, 20),
            clean(&entry.actor, 40),
            clean(&entry.action, 40),
            clean(entry.target.as_deref().unwrap_or("-"), 64),
            paint(style, clean(&entry.outcome, 40)),
            paint(DIM, changed(entry)),
        ]);
    }
    Report::new(entries, table.text())
}

/// Formats the state before and after the action in one line.
fn changed(entry: &Entry) -> String {
    let short = |value: &Value| clean(&value.to_string(), 100);
    match (&entry.before, &entry.after) {
        (None, None) => String::new(),
        (None, Some(after)) => short(after),
        (Some(before), None) => format!("{} → -", short(before)),
        (Some(before), Some(after)) => format!("{} → {}", short(before), short(after)),
    }
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = text.parse() {
        return Ok(Since::At(at));
    }
    let words = "write a time as 2026-11-21T00:00:00Z, or how long ago as 30m, 24h or 7d";
    let (number, unit) = text
        .char_indices()
        .next_back()
        .map(|(at, _)| text.split_at(at))
        .ok_or(words)?;
    let number: u32 = number.parse().map_err(|_| words)?;
    let seconds = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(words.to_owned()),
    };
    Ok(Since::Ago(i64::from(number) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let at = "2026-11-21T00:00:00Z";
        for (text, wanted) in [
            (at, Some(Since::At(at.parse().unwrap()))),
            ("30m", Some(Since::Ago(1800))),
            ("24h", Some(Since::Ago(86_400))),
            ("7d", Some(Since::Ago(604_800))),
            ("", None),
            ("d", None),
            ("-1d", None),
            ("7w", None),
            ("7\u{e9}", None),
            ("2026-11-21", None),
            ("99999999999d", None),
        ] {
            assert_eq!(since(text).ok(), wanted, "{text}");
        }
    }
}
