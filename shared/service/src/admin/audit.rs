//! `GET /admin/audit` and `GET /admin/operator/audit`: what people and clients did and were refused in the caller's namespace, and what
//! operators did and accounts without a namespace, oldest first.
//!
//! A request reads at most 1,000 entries, however many there are: with a filter, a page may be short or empty and still have a `next`.

use axum::http::StatusCode;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::Record;

use super::call::{Answer, Call, Items, OperatorCall, Page};
use crate::app::App;
use crate::error::{Code, Refusal};
use crate::http::json_answer;
use crate::model::audit::{Entry, before, partition};

/// Most entries that one request with a filter reads.
const MAX_SCAN: usize = 1000;

/// Which entries of a log are asked for.
#[derive(Default)]
pub(crate) struct Filter {
    /// The actor's id exactly.
    pub(crate) actor: Option<String>,
    /// The action exactly, or the word before its dot, as `user` for `user.scopes`.
    pub(crate) action: Option<String>,
    /// The target exactly.
    pub(crate) target: Option<String>,
}

impl Filter {
    fn of<C>(call: &Call<C>) -> Result<Self, Refusal> {
        let word = |name: &str| filter_word(call.query(name)).ok_or(Code::ParameterInvalid);
        Ok(Self {
            actor: word("actor")?,
            action: word("action")?,
            target: None,
        })
    }

    const fn is_open(&self) -> bool {
        self.actor.is_none() && self.action.is_none() && self.target.is_none()
    }

    fn lets_through(&self, entry: &Entry) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| value == Some(wanted))
        };
        let actor = is(&self.actor, Some(&entry.actor));
        let target = is(&self.target, entry.target.as_deref());
        let action = self.action.as_ref().is_none_or(|action| {
            entry
                .action
                .strip_prefix(action.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        actor && target && action
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

async fn listed<C>(call: &Call<C>, log: Option<&NamespaceId>) -> Answer {
    let page = call.page()?;
    let filter = Filter::of(call)?;
    let since = match call.query("since").filter(|since| !since.is_empty()) {
        Some(text) => Some(text.parse().map_err(|_| Code::ParameterInvalid)?),
        None => None,
    };
    let listed = entries(&call.app, log, &filter, (since, None), page).await?;
    Ok(json_answer(StatusCode::OK, &listed))
}

/// A word of a filter, `None` inside for an empty one; `None` for a word that no entry can have.
pub(crate) fn filter_word(word: Option<String>) -> Option<Option<String>> {
    let word = word.filter(|word| !word.is_empty());
    let is_good =
        |word: &String| word.len() <= 128 && word.bytes().all(|byte| byte.is_ascii_graphic());
    word.as_ref().is_none_or(is_good).then_some(word)
}

/// The entries of a log that the filter lets through, oldest first: from the first time on, before the second, and behind the page's
/// `after`.
pub(crate) async fn entries(
    app: &App,
    log: Option<&NamespaceId>,
    filter: &Filter,
    (since, until): (Option<Timestamp>, Option<Timestamp>),
    page: Page,
) -> Result<Items<Entry>, StoreError> {
    // Whichever is further on; `None` is before everything.
    let after = page.after.max(since.map(before));
    let window = if filter.is_open() {
        page.limit + 1
    } else {
        MAX_SCAN
    };
    let found = app
        .records
        .list(&partition(log), "", after.as_deref(), window)
        .await?;
    let until = until.map(before);
    let is_earlier = |record: &&Record| until.as_ref().is_none_or(|until| record.key.key < *until);
    let within = found.iter().take_while(is_earlier).count();
    let (items, next) = picked(&found[..within], filter, page.limit, window)?;
    Ok(Items { items, next })
}

/// The newest entries of a log that the filter lets through, newest first: from `since` on, and before the key `end`. `next` is the key
/// before which the older ones are; with a filter, or in a busy hour, a page may be short or empty and still have it.
///
/// Records are listed oldest first alone. So ever longer stretches before the end are read, each with one list of at most 1,000 entries,
/// until one has enough.
pub(crate) async fn newest(
    app: &App,
    log: Option<&NamespaceId>,
    filter: &Filter,
    (since, end): (Timestamp, End),
    limit: usize,
) -> Result<Items<Entry>, StoreError> {
    let mut shown = Stretch::default();
    for seconds in STRETCHES {
        let start = end.at.plus_seconds(-seconds).max(since);
        let key = before(start);
        let found = app
            .records
            .list(&partition(log), "", Some(&key), MAX_SCAN)
            .await?;
        let within = found.iter().take_while(|it| it.key.key < end.key).count();
        let is_whole = within < MAX_SCAN;
        if !is_whole && shown.start.is_some() {
            break;
        }
        let read = found[..within].iter().map(Record::read);
        let mut entries: Vec<Entry> = read.collect::<Result<_, _>>()?;
        entries.retain(|entry| filter.lets_through(entry));
        let is_last = start <= since || seconds == STRETCHES[STRETCHES.len() - 1];
        shown = Stretch {
            entries,
            start: (!is_last).then_some(key),
        };
        if !is_whole || is_last || shown.entries.len() > limit {
            break;
        }
    }
    let Stretch { mut entries, start } = shown;
    let more = entries.len() > limit;
    let mut items = entries.split_off(entries.len().saturating_sub(limit));
    items.reverse();
    let next = match items.last() {
        Some(oldest) if more => Some(oldest.id.clone()),
        _ => start,
    };
    Ok(Items { items, next })
}

/// The stretches that are read before the end, in seconds: from a second to the 400 days that entries are kept.
const STRETCHES: [i64; 7] = [
    1,
    60,
    3600,
    24 * 3600,
    7 * 24 * 3600,
    30 * 24 * 3600,
    401 * 24 * 3600,
];

/// The entries of a stretch, and the key before which there may be older ones.
#[derive(Default)]
struct Stretch {
    entries: Vec<Entry>,
    start: Option<String>,
}

/// The key before which entries are asked for, and the second that ends after it.
pub(crate) struct End {
    key: String,
    at: Timestamp,
}

impl End {
    /// Before this second.
    pub(crate) fn second(at: Timestamp) -> Self {
        Self {
            key: before(at),
            at,
        }
    }

    /// Before the key that `next` of a page names; `None` for a text that is none.
    pub(crate) fn key(text: &str) -> Option<Self> {
        // The time that begins a ULID, or all of it.
        let is_key = matches!(text.len(), 10 | 26);
        let id: ulid::Ulid = format!("{text:0<26}").parse().ok()?;
        let seconds = i64::try_from(id.timestamp_ms().div_ceil(1000)).ok()?;
        is_key.then(|| Self {
            key: text.to_owned(),
            at: Timestamp::from_unix(seconds),
        })
    }
}

/// Up to `limit` entries that the filter lets through, and where to go on: behind the last one that was looked at, if any may follow.
fn picked(
    found: &[Record],
    filter: &Filter,
    limit: usize,
    window: usize,
) -> Result<(Vec<Entry>, Option<String>), StoreError> {
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
