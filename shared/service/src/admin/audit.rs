//! `GET /admin/audit`: what people and clients did and were refused in the caller's namespace, oldest first.
//!
//! A request reads at most 1,000 entries, however many there are: with a filter, a page may be short or empty and still have a `next`.

use axum::http::StatusCode;
use ulid::Ulid;
use vault_format::time::Timestamp;
use vault_store::records::Record;

use super::call::{Answer, Call, Items};
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::audit::{Entry, partition};

/// Most entries that one request with a filter reads.
const MAX_SCAN: usize = 1000;

/// What the caller asks to see.
struct Filter {
    actor: Option<String>,
    action: Option<String>,
}

impl Filter {
    fn of(call: &Call) -> Result<Self, Refusal> {
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

/// Entries that the filters let through, from `since` on and behind `after`.
pub(super) async fn list(call: Call) -> Answer {
    let page = call.page()?;
    let filter = Filter::of(&call)?;
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
        .list(
            &partition(Some(&call.caller.namespace.id)),
            "",
            after.as_deref(),
            window,
        )
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

/// A key that stands before every entry of this second and behind every earlier one: the time that begins a ULID, without its chance.
fn before(since: Timestamp) -> String {
    let millis = u64::try_from(since.unix())
        .unwrap_or(0)
        .saturating_mul(1000);
    let mut text = Ulid::from_parts(millis, 0).to_string();
    text.truncate(10);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_store::random::ulid;
    use vault_testing::SeededRandom;
    use vault_testing::TestClock;

    #[test]
    fn a_second_begins_between_its_entries_and_those_before() {
        let at: Timestamp = "2026-11-21T02:00:10Z".parse().unwrap();
        let random = SeededRandom::new(1);
        for _ in 0..100 {
            let earlier = ulid(&TestClock::new(at.plus_seconds(-1)), &random);
            let same = ulid(&TestClock::new(at), &random);
            assert!(
                earlier < before(at) && before(at) < same,
                "{earlier} {same}"
            );
        }
        assert!(before(Timestamp::MIN) < ulid(&TestClock::new(at), &random));
    }
}
