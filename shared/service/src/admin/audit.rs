//! `GET /admin/audit` lists the audit log of the caller's namespace: actions and refusals of people
//! and clients. `GET /admin/operator/audit` lists the log of the service: actions of operators and
//! of accounts without a namespace. `DELETE /admin/audit` deletes old entries of the namespace's
//! log.
//!
//! Both lists begin with the oldest entry. A request with a filter reads at most 1,000 entries, so
//! a page may be short or empty and still have a `next`.

use axum::http::StatusCode;
use serde_json::{Value, json};
use vault_api::DeletedEntries;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{MAX_PAGE, MAX_WRITES, Record, RecordKey, When, Write};

use super::call::{Answer, Call, Items, OperatorCall, Page};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::{json_answer, lines_answer};
use crate::model::audit::{Change, Entry, audit_partition, key_before_second};
use crate::spending::count_export;
use crate::transaction::Transaction;

/// Maximum number of entries that one request with a filter reads.
const MAX_SCAN: usize = 1000;
/// Maximum number of entries that one answer or file exports.
pub(crate) const MAX_EXPORTED: usize = 5_000;
/// Maximum size of an export, in bytes: a function on AWS answers with at most 6 MB.
const MAX_EXPORT_BYTES: usize = 4 * 1024 * 1024;
/// Maximum number of entries that one step of an export reads. The step reads one more to see
/// whether entries follow, and the store lists at most [`MAX_PAGE`] records at once.
const PART_ENTRIES: usize = MAX_PAGE - 1;
/// Maximum number of steps of one export. With a filter that few entries match, an export may
/// therefore end before it is full.
const MAX_LISTS: usize = 50;
/// Minimum age of entries that an owner may delete, in seconds: 90 days.
const DELETABLE_SECONDS: i64 = 90 * 24 * 3600;

/// Filter for the entries of an audit log; an entry must match all its conditions.
#[derive(Default)]
pub(crate) struct Filter {
    /// Id that the actor of the entry must have; `None` for any.
    pub(crate) actor: Option<String>,
    /// The whole action, or the word before its dot: `user` matches `user.scopes`.
    pub(crate) action: Option<String>,
    /// Ids of targets, one of which must match exactly; empty for any target.
    pub(crate) targets: Vec<String>,
}

impl Filter {
    fn from_query<C>(call: &Call<C>) -> Result<Self, Refusal> {
        let word = |name: &str| filter_word(call.query_param(name));
        Ok(Self {
            actor: word("actor")?,
            action: word("action")?,
            targets: Vec::new(),
        })
    }

    const fn is_open(&self) -> bool {
        self.actor.is_none() && self.action.is_none() && self.targets.is_empty()
    }

    fn matches_entry(&self, entry: &Entry) -> bool {
        let actor = self.actor.as_ref().is_none_or(|it| *it == entry.actor);
        let is_target = |target: &String| self.targets.contains(target);
        let target = self.targets.is_empty() || entry.target.as_ref().is_some_and(is_target);
        // A plain prefix would let `user` match `user-import.start` too.
        let action = self.action.as_ref().is_none_or(|action| {
            entry
                .action
                .strip_prefix(action.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        actor && target && action
    }
}

pub(super) async fn list_namespace_log(call: Call) -> Answer {
    list_log(&call, Some(&call.caller.namespace.id)).await
}

pub(super) async fn list_service(call: OperatorCall) -> Answer {
    list_log(&call, None).await
}

async fn list_log<C>(call: &Call<C>, log: Option<&NamespaceId>) -> Answer {
    let page = call.page_params()?;
    let filter = Filter::from_query(call)?;
    let since = match call.query_param("since") {
        Some(text) => Some(text.parse().map_err(|_| ErrorCode::ParameterInvalid)?),
        None => None,
    };
    let period = Period { since, until: None };
    let app = &call.app;
    match call.query_param("format").as_deref() {
        None | Some("json") => {
            let log_entries = read_entries(app, log, &filter, period, page).await?;
            Ok(json_answer(StatusCode::OK, &log_entries))
        }
        Some("jsonl") => {
            count_export(app)?;
            let exported = read_export(app, log, &filter, period, page.after).await?;
            let next = exported.next.map(|next| json!({ "next": next }));
            let lines = write_lines(&exported.items, next)?;
            Ok(lines_answer(lines))
        }
        Some(_) => Err(ErrorCode::ParameterInvalid.into()),
    }
}

/// Deletes entries of the namespace's log from before a time, the oldest first, up to 1,000 in a
/// request. The deletion is logged as an entry itself. Fails with 422 if the time is less than 90
/// days ago.
pub(super) async fn handle_delete_entries(call: Call) -> Answer {
    let before = call.query_param("before");
    let before = before.and_then(|text| text.parse::<Timestamp>().ok());
    let now = call.app.clock.now();
    let before = before.filter(|before| *before <= now.plus_seconds(-DELETABLE_SECONDS));
    let before = before.ok_or(ErrorCode::ParameterInvalid)?;
    let log = audit_partition(Some(&call.caller.namespace.id));
    let oldest = call.app.records.list_page(&log, "", None, MAX_PAGE).await?;
    let end = key_before_second(before);
    let old = oldest.iter().take_while(|record| record.key.key < end);
    let old: Vec<_> = old.map(|record| record.key.clone()).collect();
    // One write of the first commit is the entry about the deletion. If a later commit fails, the
    // request can be sent again.
    let (first, rest) = old.split_at(old.len().min(MAX_WRITES - 1));
    let delete = |key: &RecordKey| Write::delete(key.clone(), When::Any);
    if !first.is_empty() {
        let after = json!({ "before": before, "entries": old.len() });
        let change = Change::default().with_after(after);
        let begin = async |tx: Transaction<'_>| {
            call.write_audit(&tx, "audit.delete", change.clone())?;
            tx.write_all(first.iter().map(delete));
            Ok::<_, Refusal>(())
        };
        call.app.change(begin).await?;
    }
    for part in rest.chunks(MAX_WRITES) {
        let writes = part.iter().map(delete).collect();
        let _ = call.app.records.commit_writes(writes).await?;
    }
    let deleted = DeletedEntries {
        deleted: old.len(),
        more: old.len() == MAX_PAGE,
    };
    Ok(json_answer(StatusCode::OK, &deleted))
}

/// Reads a word of a filter; `None` if it is empty. Fails with 422 for a word that no entry can
/// contain.
pub(crate) fn filter_word(word: Option<String>) -> Result<Option<String>, Refusal> {
    let word = word.filter(|word| !word.is_empty());
    let is_good =
        |word: &String| word.len() <= 128 && word.bytes().all(|byte| byte.is_ascii_graphic());
    if word.as_ref().is_none_or(is_good) {
        Ok(word)
    } else {
        Err(ErrorCode::ParameterInvalid.into())
    }
}

/// A period of a log. `None` leaves that end open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// First second of the period.
    pub(crate) since: Option<Timestamp>,
    /// Second after the last one of the period.
    pub(crate) until: Option<Timestamp>,
}

/// Reads one page of the entries of a period that match the filter, oldest first, after the key in
/// `page.after`.
pub(crate) async fn read_entries(
    app: &App,
    log: Option<&NamespaceId>,
    filter: &Filter,
    period: Period,
    page: Page,
) -> Result<Items<Entry>, StoreError> {
    // The later of the two keys; `None` is less than any key.
    let after = page.after.max(period.since.map(key_before_second));
    // Without a filter every entry read is shown. With one, few may match, so a longer window is
    // read to fill the page.
    let window = if filter.is_open() {
        page.limit + 1
    } else {
        MAX_SCAN
    };
    let page_records = app
        .records
        .list_page(&audit_partition(log), "", after.as_deref(), window)
        .await?;
    let until = period.until.map(key_before_second);
    // Keys begin with the time, so the end of the period is found without decoding entries.
    let is_earlier = |record: &&Record| until.as_ref().is_none_or(|until| record.key.key < *until);
    let within = page_records.iter().take_while(is_earlier).count();
    let (items, next) = filter_entries(&page_records[..within], filter, page.limit, window)?;
    Ok(Items { items, next })
}

/// Reads entries of a period for an export, oldest first, after the key `after`. `next` in the
/// result is the key after which the export continues.
pub(crate) async fn read_export(
    app: &App,
    log: Option<&NamespaceId>,
    filter: &Filter,
    period: Period,
    mut after: Option<String>,
) -> Result<Items<Entry>, StoreError> {
    let (mut exported, mut bytes) = (Vec::new(), 0);
    for _ in 0..MAX_LISTS {
        let part = Page {
            limit: PART_ENTRIES.min(MAX_EXPORTED - exported.len()),
            after: after.clone(),
        };
        let listed = read_entries(app, log, filter, period, part).await?;
        bytes += listed.items.iter().map(estimate_size).sum::<usize>();
        exported.extend(listed.items);
        after = listed.next;
        // Half of the limit, because sizes are estimates and the last list was added as a whole.
        if after.is_none() || exported.len() >= MAX_EXPORTED || bytes >= MAX_EXPORT_BYTES / 2 {
            break;
        }
    }
    Ok(Items {
        items: exported,
        next: after,
    })
}

fn estimate_size(entry: &Entry) -> usize {
    let text = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.to_string().len());
    200 + text(&entry.before) + text(&entry.after)
}

/// Writes entries as JSON lines. If another part of the export follows, `next` is added as the last
/// line.
pub(crate) fn write_lines(entries: &[Entry], next: Option<Value>) -> Result<String, StoreError> {
    let mut text = String::new();
    for entry in entries {
        let line = serde_json::to_string(entry).map_err(|error| {
            StoreError::Corrupt(format!("an entry of the log cannot be written: {error}"))
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    if let Some(next) = next {
        text.push_str(&next.to_string());
        text.push('\n');
    }
    Ok(text)
}

/// Entries of a log from the second `since` up to a key.
pub(crate) struct LogRange {
    pub(crate) since: Timestamp,
    pub(crate) end: PeriodEnd,
}

/// Reads the newest entries of the range that match the filter, newest first. `next` in the result
/// is a key: older entries come before it. If few entries match the filter, a page may be short or
/// empty and still have a `next`.
pub(crate) async fn read_newest(
    app: &App,
    log: Option<&NamespaceId>,
    filter: &Filter,
    mut range: LogRange,
    limit: usize,
) -> Result<Items<Entry>, StoreError> {
    let (mut entries, mut start) = (Vec::new(), None);
    // The last period may have few entries and follow a busy one, so a few periods are read.
    for _ in 0..MAX_PERIODS {
        let mut stretch = read_last_period(app, log, filter, &range, limit).await?;
        stretch.entries.append(&mut entries);
        (entries, start) = (stretch.entries, stretch.start);
        match start.as_deref().and_then(PeriodEnd::before_key) {
            Some(older) if entries.len() <= limit => range.end = older,
            _ => break,
        }
    }
    let more = entries.len() > limit;
    let mut items = entries.split_off(entries.len().saturating_sub(limit));
    items.reverse();
    let next = match items.last() {
        Some(oldest) if more => Some(oldest.id.clone()),
        _ => start,
    };
    Ok(Items { items, next })
}

/// Reads the last entries of the range that match the filter, oldest first: more than `limit` of
/// them if a few lists suffice.
///
/// The store lists records only in ascending order. So the function guesses a period before the end
/// and reads it with one list of at most 1,000 entries; then it tries a longer period if there were
/// too few entries, and a shorter one if there were too many.
async fn read_last_period(
    app: &App,
    log: Option<&NamespaceId>,
    filter: &Filter,
    range: &LogRange,
    limit: usize,
) -> Result<LogPeriod, StoreError> {
    let (mut period, mut search) = (LogPeriod::default(), PeriodSearch::default());
    while let Some(seconds) = search.next_seconds() {
        let start = range.end.at.plus_seconds(-seconds).max(range.since);
        let key = key_before_second(start);
        let page_records = app
            .records
            .list_page(&audit_partition(log), "", Some(&key), MAX_SCAN)
            .await?;
        let within = page_records
            .iter()
            .take_while(|it| it.key.key < range.end.key)
            .count();
        let is_whole = within < MAX_SCAN;
        // Even a single second may have more entries than one list reads. It cannot be divided
        // further, so only those that were read are returned.
        if is_whole || seconds == 1 {
            let read = page_records[..within].iter().map(Record::read);
            let mut entries: Vec<Entry> = read.collect::<Result<_, _>>()?;
            entries.retain(|entry| filter.matches_entry(entry));
            let is_last = start <= range.since || seconds == MAX_PERIOD_SECONDS;
            let is_enough = entries.len() > limit;
            period = LogPeriod {
                entries,
                start: (!is_last).then_some(key),
            };
            if is_last || is_enough || !is_whole {
                break;
            }
        }
        search.record_result(seconds, is_whole);
    }
    Ok(period)
}

/// Maximum number of periods that one page reads.
const MAX_PERIODS: usize = 3;
/// Maximum length of a period, in seconds; entries are kept for 400 days.
const MAX_PERIOD_SECONDS: i64 = 401 * 24 * 3600;
/// Maximum number of lists that are read to find the length of one period.
const MAX_PERIOD_LISTS: usize = 10;

/// Search for the longest period whose entries one read of the log returns completely; a read
/// returns at most [`MAX_SCAN`] entries.
#[derive(Default)]
struct PeriodSearch {
    /// Longest period, in seconds, whose entries are known to fit into one read.
    whole: Option<i64>,
    /// Shortest period, in seconds, whose entries are known not to fit into one read.
    cut: Option<i64>,
    lists: usize,
}

impl PeriodSearch {
    /// Returns the length of the next period to try, in seconds; `None` if another try would gain
    /// little.
    fn next_seconds(&mut self) -> Option<i64> {
        self.lists += 1;
        let next = match (self.whole, self.cut) {
            // An hour is a guess: enough for a page of a small vault, and few lists away from a
            // busy one.
            (None, None) => Some(3600),
            (Some(whole), None) => Some(whole.saturating_mul(24).min(MAX_PERIOD_SECONDS)),
            (None, Some(cut)) => Some((cut / 60).max(1)),
            // The geometric mean: the length of a good period may differ from the first guess by
            // orders of magnitude.
            (Some(whole), Some(cut)) => {
                (cut / whole > 2).then(|| whole * (cut / whole).isqrt().max(2))
            }
        };
        next.filter(|_| self.lists <= MAX_PERIOD_LISTS)
    }

    fn record_result(&mut self, seconds: i64, is_whole: bool) {
        if is_whole {
            self.whole = Some(seconds);
        } else {
            self.cut = Some(seconds);
        }
    }
}

/// The matching entries of a period. `start` is the key before which there may be older entries;
/// `None` if there are none.
#[derive(Default)]
struct LogPeriod {
    entries: Vec<Entry>,
    start: Option<String>,
}

/// The end of a period: `key` comes after all entries of the period, and `at` is the end of the
/// second that contains it.
pub(crate) struct PeriodEnd {
    key: String,
    at: Timestamp,
}

impl PeriodEnd {
    /// Creates the end of a period that excludes this second and later ones.
    pub(crate) fn before_second(at: Timestamp) -> Self {
        Self {
            key: key_before_second(at),
            at,
        }
    }

    /// Creates the end of a period from the `next` of a page; `None` if no page has such a `next`.
    pub(crate) fn before_key(text: &str) -> Option<Self> {
        // `next` is the time at the start of a ULID (10 characters), or a whole ULID (26).
        let is_key = matches!(text.len(), 10 | 26);
        // Padded with zeros, the text becomes the lowest ULID of that time.
        let id: ulid::Ulid = format!("{text:0<26}").parse().ok()?;
        let seconds = i64::try_from(id.timestamp_ms().div_ceil(1000)).ok()?;
        is_key.then(|| Self {
            key: text.to_owned(),
            at: Timestamp::from_unix(seconds),
        })
    }
}

/// Returns up to `limit` of the entries that match the filter. If more may follow, also returns the
/// key of the last entry that was examined.
fn filter_entries(
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
        if filter.matches_entry(&entry) {
            items.push(entry);
        }
    }
    // A full window means that the store may have more, even if nothing read was left over.
    let more = looked_at < found.len() || found.len() == window;
    let last = found[..looked_at].last();
    let next = last.filter(|_| more).map(|record| record.key.key.clone());
    Ok((items, next))
}
