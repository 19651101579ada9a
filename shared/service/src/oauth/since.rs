//! What owners and operators are shown after signing in: the sign-in before, and what happened in their vaults since then that somebody
//! with their password would have done.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `acct/<account_id>` | `sign-in` | [`Begun`], the newest sign-in |

use std::net::IpAddr;

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_PAGE, RecordKey, When, Write};

use super::members::members;
use super::pages::minute;
use crate::app::App;
use crate::model::Seen;
use crate::model::account::{Account, partition};
use crate::model::audit::{self, Entry};
use crate::model::limits::Source;
use crate::model::session::Begun;
use crate::model::user::Role;

/// In at most this many vaults' logs a sign-in looks.
const MOST_VAULTS: usize = 5;
/// Most lines that are shown.
const MOST_LINES: usize = 12;

/// What to show after a sign-in that begins now, and the write that remembers it.
pub async fn begin(
    app: &App,
    account: &Account,
    source: Option<IpAddr>,
) -> Result<(Vec<String>, Write), StoreError> {
    let key = RecordKey::new(partition(&account.id), "sign-in");
    let before = Seen::<Begun>::read(app.records.get(&key).await?)?;
    let present = Begun {
        at: app.clock.now(),
        from: Source::of(source).to_string(),
    };
    let write = Write::put(key, Document::of(&present)?, When::Any);
    let Some(before) = before else {
        return Ok((Vec::new(), write));
    };
    let before = before.value;
    let members = members(app, account, None).await?;
    let owned = members
        .iter()
        .filter(|member| member.user.role == Role::Owner)
        .map(|member| &member.user.namespace);
    let owned: Vec<_> = owned.take(MOST_VAULTS).collect();
    if owned.is_empty() && !account.operator {
        return Ok((Vec::new(), write));
    }
    let (at, from) = (before.at, &before.from);
    let mut lines = vec![format!(
        "Your last sign-in was on {} from {from}.",
        minute(at)
    )];
    for home in owned {
        let partition = audit::partition(Some(&home.id));
        let after = audit::before(at);
        let found = app.records.list(&partition, "", Some(&after), MAX_PAGE);
        for record in found.await? {
            let entry: Entry = record.read()?;
            lines.extend(told(&entry).map(|what| format!("{}: {what}", home.slug)));
        }
    }
    if lines.len() > MOST_LINES {
        lines.truncate(MOST_LINES);
        lines.push("There is more in the audit log.".to_owned());
    }
    Ok((lines, write))
}

/// What an entry says that an owner should not be surprised by.
fn told(entry: &Entry) -> Option<String> {
    if entry.outcome != "done" {
        return None;
    }
    let owner = json!(Role::Owner);
    let text = |name: &str| {
        let value = entry.after.as_ref()?.get(name)?.as_str()?;
        Some(value.to_owned())
    };
    let role = |value: &Option<serde_json::Value>| {
        value.as_ref().is_some_and(|value| value["role"] == owner)
    };
    let day = minute(entry.at);
    match entry.action.as_str() {
        "oauth.consent" => {
            let name = text("name").unwrap_or_else(|| "an app without a name".to_owned());
            Some(format!("a new app, “{name}”, on {day}"))
        }
        "membership.accept" | "user.role" if role(&entry.after) => {
            Some(format!("a new owner on {day}"))
        }
        "pin.reset" => Some(format!("the pin was reset on {day}")),
        _ => None,
    }
}
