//! `GET /admin/audit` and `GET /admin/operator/audit`: what people and clients did and were refused in the caller's namespace, and what
//! operators did and accounts without a namespace, oldest first.
//!
//! A request reads at most 1,000 entries, however many there are: with a filter, a page may be short or empty and still have a `next`.

use axum::http::StatusCode;
use vault_format::name::NamespaceId;
use vault_store::records::Record;

use super::call::{Answer, Call, Items, OperatorCall};
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::audit::{Entry, before, partition};

/// Most entries that one request with a filter reads.
const MAX_SCAN: usize = 1000;

/// What the caller asks to see.
struct Filter {
    actor: Option<String>,
    action: Option<String>,
}

impl Filter {
    fn of<C>(call: &Call<C>) -> Result<Self, Refusal> {
        let word = |name: &str| {
            let word = call.query(name).filter(|word| !word.is_empty());
            let good = |word: &String| {
                word.len() <= 128 && word.bytes().all(|byte| byte.is_ascii_graphic())
            };
            match word {
                Some(word) if !good(&word) => Err(Refusal::from(Code::ParameterInvalid)),
                word => Ok(word),
            }
        };
        Ok(Self {
            actor: word("actor")?,
            action: word("action")?,
        })
    }

    const fn is_open(&self) -> bool {
        self.actor.is_none() && self.action.is_none()
    }

    /// The actor exactly; the action exactly, or the word before its dot, as `user` for `user.scopes`.
    fn lets_through(&self, entry: &Entry) -> bool {
        let actor = self
            .actor
            .as_ref()
            .is_none_or(|actor| *actor == entry.actor);
        let action = self.action.as_ref().is_none_or(|action| {
            entry
                .action
                .strip_prefix(action.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        actor && action
    }
}

/// The log of the caller's namespace.
pub(super) async fn list(call: Call) -> Answer {
    listed(&call, Some(&call.caller.namespace.id)).await
}

/// The log of the service.
pub(super) async fn list_service(call: OperatorCall) -> Answer {
    listed(&call, None).await
}

/// Entries that the filters let through, from `since` on and behind `after`.
async fn listed<C>(call: &Call<C>, log: Option<&NamespaceId>) -> Answer {
    let page = call.page()?;
    let filter = Filter::of(call)?;
    let since = match call.query("since").filter(|since| !since.is_empty()) {
        Some(text) => Some(text.parse().map_err(|_| Code::ParameterInvalid)?),
        None => None,
    };
    // Whichever is further on; `None` is before everything.
    let after = page.after.max(since.map(before));
    let window = if filter.is_open() {
        page.limit + 1
    } else {
        MAX_SCAN
    };
    let found = call
        .app
        .records
        .list(&partition(log), "", after.as_deref(), window)
        .await?;
    let (items, next) = picked(&found, &filter, page.limit, window)?;
    Ok(json_answer(StatusCode::OK, &Items { items, next }))
}

/// Up to `limit` entries that the filter lets through, and where to go on: behind the last one that was looked at, if any may follow.
fn picked(
    found: &[Record],
    filter: &Filter,
    limit: usize,
    window: usize,
) -> Result<(Vec<Entry>, Option<String>), Refusal> {
    let mut items = Vec::new();
    let mut looked_at = 0;
    for record in found {
        if items.len() == limit {
            break;
        }
        looked_at += 1;
        let entry: Entry = record.read()?;
        if filter.lets_through(&entry) {
            items.push(entry);
        }
    }
    let more = looked_at < found.len() || found.len() == window;
    let last = found[..looked_at].last();
    let next = last.filter(|_| more).map(|record| record.key.key.clone());
    Ok((items, next))
}
