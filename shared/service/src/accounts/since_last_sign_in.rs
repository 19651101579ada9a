//! Notices to owners and operators after a sign-in: when and from where they last signed in, and
//! what has happened since in their vaults and in the service that an attacker with their password
//! would do.
//!
//! The search of the audit logs is bounded, and a notice says so if a bound was reached: an
//! attacker who fills a log must not hide in it.

use std::collections::HashSet;
use std::net::IpAddr;

use serde_json::json;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_PAGE, When, Write};

use super::memberships::load_all_members;
use crate::app::App;
use crate::model::account::Account;
use crate::model::audit::{self, Entry};
use crate::model::limits::Source;
use crate::model::session::{SessionEntry, sign_in_key};
use crate::model::user::Role;
use crate::web::layout::format_minute;

/// Maximum number of vaults whose logs are searched: the ones used last.
const MOST_VAULTS: usize = 5;
/// Maximum number of pages read of one log, of 1,000 entries each.
const MAX_PAGES: usize = 10;
/// Maximum number of notices about events; the most alarming are shown.
const MAX_LINES: usize = 12;
/// Time for which the newest sign-in is stored, in seconds: 400 days.
const REMEMBERED_SECONDS: i64 = 400 * 24 * 3600;

/// Returns the notices for a sign-in that begins now, and the write that stores its time and
/// network.
pub async fn load_notices(
    app: &App,
    account: &Account,
    source: Option<IpAddr>,
) -> Result<(Vec<String>, Write), StoreError> {
    let (key, now) = (sign_in_key(&account.id), app.clock.now());
    let before = app.get::<SessionEntry>(&key).await?;
    let present = SessionEntry {
        at: now,
        from: Source::of(source).to_string(),
    };
    let until = now.plus_seconds(REMEMBERED_SECONDS);
    let write = Write::put_until(key, Document::from_value(&present)?, When::Any, until);
    let Some(before) = before else {
        return Ok((Vec::new(), write));
    };
    let lines = notice_lines(app, account, &before.value).await?;
    Ok((lines, write))
}

/// Returns the notices since the sign-in `before`; none for a person who neither owns a vault nor
/// operates the service.
async fn notice_lines(
    app: &App,
    account: &Account,
    before: &SessionEntry,
) -> Result<Vec<String>, StoreError> {
    let members = load_all_members(app, account, None).await?;
    let owned = members
        .iter()
        .filter(|member| member.user.role == Role::Owner)
        .map(|member| &member.user.namespace);
    let owned: Vec<_> = owned.collect();
    if owned.is_empty() && !account.operator {
        return Ok(Vec::new());
    }
    let (at, from) = (before.at, &before.from);
    let mut lines = vec![format!(
        "Your last sign-in was on {} from {from}.",
        format_minute(at)
    )];
    let (mut notices, mut unread) = (Vec::new(), Vec::new());
    let looked_at = owned.iter().take(MOST_VAULTS);
    let mut logs: Vec<_> = looked_at
        .map(|home| (Some(&home.id), home.slug.to_string()))
        .collect();
    if account.operator {
        logs.push((None, "the service".to_owned()));
    }
    for (log, name) in logs {
        let (log_notices, whole) = find_notable(app, log, at, account).await?;
        notices.extend(
            log_notices
                .into_iter()
                .map(|(rank, what)| (rank, format!("{name}: {what}"))),
        );
        if !whole {
            unread.push(format!(
                "More happened in {name} than is looked at here: read its audit log."
            ));
        }
    }
    if owned.len() > MOST_VAULTS {
        unread.push(format!(
            "Only {MOST_VAULTS} of your {} vaults are looked at here: read the audit logs of the others.",
            owned.len()
        ));
    }
    // Events that take over a vault come first, because the list is cut below.
    notices.sort_by_key(|(rank, _)| *rank);
    let more = notices.len() > MAX_LINES;
    lines.extend(notices.into_iter().take(MAX_LINES).map(|(_, what)| what));
    if more {
        lines.push("There is more in the audit log.".to_owned());
    }
    // Added after the list is cut, so that a reached bound is always reported.
    lines.extend(unread);
    Ok(lines)
}

/// Searches an audit log since `at` for events that `account`, an owner or operator, should know
/// about; `None` for `log` is the log of the service. Also returns whether all of it was read.
async fn find_notable(
    app: &App,
    log: Option<&NamespaceId>,
    at: Timestamp,
    account: &Account,
) -> Result<(Vec<(Rank, String)>, bool), StoreError> {
    let (partition, mut after) = (audit::audit_partition(log), audit::key_before_second(at));
    let (mut events, mut apps) = (Vec::new(), NewApps::default());
    for _ in 0..MAX_PAGES {
        let page = app
            .records
            .list_page(&partition, "", Some(&after), MAX_PAGE)
            .await?;
        for record in &page {
            let entry: Entry = record.read()?;
            events.extend(describe_entry(&entry, account));
            apps.add(entry);
        }
        match page.last() {
            Some(last) if page.len() == MAX_PAGE => after.clone_from(&last.key.key),
            _ => {
                events.extend(apps.describe());
                return Ok((events, true));
            }
        }
    }
    events.extend(apps.describe());
    Ok((events, false))
}

/// The apps that people allowed. All of them share one notice, because members allow apps every
/// day.
#[derive(Default)]
struct NewApps {
    /// Client ids of the apps.
    ids: HashSet<String>,
    /// Audit entry of the newest consent.
    last: Option<Entry>,
}

impl NewApps {
    /// Adds the app of an entry about a consent; any other entry changes nothing.
    fn add(&mut self, entry: Entry) {
        if entry.action == "oauth.consent" && entry.outcome == "done" {
            self.ids.extend(entry.target.clone());
            self.last = Some(entry);
        }
    }

    fn describe(self) -> Option<(Rank, String)> {
        let last = self.last?;
        let after = last.after.as_ref();
        let name = after.and_then(|after| after["name"].as_str());
        let name = name.map_or_else(
            || "an app without a name".to_owned(),
            |name| format!("“{name}”"),
        );
        let day = format_minute(last.at);
        let text = match self.ids.len() {
            0 | 1 => format!("a new app, {name}, on {day}"),
            count => format!("{count} new apps, the last {name} on {day}"),
        };
        Some((Rank::App, text))
    }
}

/// Rank of an event in the list of notices; the most alarming comes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Rank {
    /// The pinned keys of a vault were reset.
    Pin,
    /// A new owner or operator, or a new passkey or second factor of the person's account.
    People,
    /// New apps that people allowed.
    App,
}

/// Describes an audit entry that an owner or operator should know about; `None` for any other. An
/// entry about a second factor or a passkey counts only if it is about `account`.
fn describe_entry(entry: &Entry, account: &Account) -> Option<(Rank, String)> {
    // A failed attempt changed nothing.
    if entry.outcome != "done" {
        return None;
    }
    let owner = json!(Role::Owner);
    let after = entry.after.as_ref();
    let is_owner = after.is_some_and(|value| value["role"] == owner);
    // Only for the person's own account: members set up passkeys every day.
    let is_own = entry.target.as_deref() == Some(account.email.as_str());
    let day = format_minute(entry.at);
    match entry.action.as_str() {
        "pin.reset" => Some((Rank::Pin, format!("the pin was reset on {day}"))),
        "membership.accept" | "user.role" if is_owner => {
            Some((Rank::People, format!("a new owner on {day}")))
        }
        "account.passkey-added" if is_own => Some((
            Rank::People,
            format!("a passkey was added to your account on {day}"),
        )),
        "account.second-factor-on" | "account.second-factor-moved" if is_own => Some((
            Rank::People,
            format!("a second factor was set up for your account on {day}"),
        )),
        "account.grant" => Some((Rank::People, format!("a new operator on {day}"))),
        _ => None,
    }
}
