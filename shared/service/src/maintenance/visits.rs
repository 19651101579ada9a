//! The order in which the garbage collection visits namespaces (works on them). Each namespace that
//! is due gets a slice of the time of a run, first the one that has waited longest. So a namespace
//! with many objects delays only itself.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use vault_format::name::Slug;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{RecordKey, When};

use super::{Report, collect};
use crate::app::App;
use crate::model::namespace::DIRECTORY;
use crate::model::upkeep::{self, ObjectPosition, StepLock, VISITS, Visit};
use crate::model::{Versioned, kept};

/// Minimum time between the beginnings of two visits to a namespace, in seconds: 6 hours.
const PAUSE_SECONDS: i64 = 6 * 3600;
/// Maximum time for which a process holds the lock of this step, in seconds.
const BUSY_SECONDS: i64 = 60;
/// Minimum time that a visit gets, even if many namespaces are due.
const MIN_SLICE: Duration = Duration::from_secs(1);

/// Expected maximum duration of a visit, in seconds: 3 days. A visit takes longer only if a
/// namespace has more objects and roots than the runs can read.
const LONGEST_VISIT_SECONDS: i64 = 3 * 24 * 3600;

/// A namespace whose visit is due.
#[derive(Debug)]
struct DueVisit {
    slug: Slug,
    visit: Visit,
    when: When,
}

/// Visits the namespaces that are due until none is left or `until` is reached. Returns whether the
/// visit to a namespace is late then; `None` while another process visits.
pub(super) async fn collect_step(
    app: &App,
    report: &mut Report,
    until: Instant,
) -> Result<Option<bool>, StoreError> {
    // Most runs find nothing to do, and need no lock.
    if list_due(app).await?.is_empty() {
        return Ok(Some(false));
    }
    let key = RecordKey::new("work", "collection");
    let Some(revision) = StepLock::take(app, key.clone(), BUSY_SECONDS).await? else {
        return Ok(None);
    };
    let outcome = visit_due(app, report, until).await.map(Some);
    // Released after an error too, so that the next run does not have to wait.
    StepLock::release(app, key, revision).await?;
    outcome
}

/// Makes the visits of [`collect_step`]. Returns whether one of those that have not ended is late.
async fn visit_due(app: &App, report: &mut Report, until: Instant) -> Result<bool, StoreError> {
    // Read again under the lock: another process may have made the visits that were due before.
    let mut due = list_due(app).await?;
    let mut is_first = true;
    // Without the exception for the first, work that comes before could take all time of every run.
    while let Some(mut next) = due.pop_front_if(|_| is_first || Instant::now() < until) {
        let now = Instant::now();
        is_first = false;
        let others = u32::try_from(due.len()).unwrap_or(u32::MAX);
        let slice = until.saturating_duration_since(now) / others.saturating_add(1);
        let end = until.min(now + slice.max(MIN_SLICE));
        let is_saved = visit_slice(app, &mut next, report, end).await?;
        if next.visit.within.is_none() {
            report.namespaces += 1;
        } else if is_saved {
            // After all others; without others it continues at once.
            due.push_back(next);
        }
    }
    let now = app.now();
    Ok(due.iter().any(|due| periods_late(&due.visit, now) > 0))
}

/// Visits a namespace until `end` and stores the state of the visit. Returns whether it was stored;
/// otherwise another process continues the visit.
async fn visit_slice(
    app: &App,
    due: &mut DueVisit,
    report: &mut Report,
    end: Instant,
) -> Result<bool, StoreError> {
    let visit = &mut due.visit;
    if visit.within.is_none() {
        visit.began_at = Some(app.now());
        // Stored before the work: if this process ends within the slice, the visit continues behind
        // those of the others. Otherwise a namespace whose first steps take too long would be the
        // first one in every run, and stop the collection of all.
        let begun = Visit {
            visited_at: visit.began_at,
            within: Some(ObjectPosition::default()),
            ..visit.clone()
        };
        let Some(revision) = upkeep::save(app, Visit::key(&due.slug), &begun, due.when).await?
        else {
            return Ok(false);
        };
        due.when = When::At(revision);
    }
    // On the heap: the state of a visit is large, and would be part of the future of every run.
    let visited = Box::pin(collect::visit_namespace(app, &due.slug, visit, report, end)).await;
    if let Err(error) = visited {
        // The rest of this namespace is handled by the next visit, and one damaged namespace does
        // not stop the others.
        visit.within = None;
        report.skipped += 1;
        tracing::error!(
            slug = %due.slug,
            error = error_chain(&error),
            "skipped the garbage collection of a namespace that could not be read"
        );
    } else if visit.within.is_none() {
        visit.ended_at = Some(app.now());
    }
    let now = app.now();
    if let Some(days) = late_days(visit, now) {
        // The visit continues, but garbage may arrive faster than the runs collect it. This is not
        // counted as a failure of the run: otherwise a tenant could hide failures behind an alarm
        // that never ends. Alarms look for this text (infra/alarms.tf).
        report.late += 1;
        tracing::error!(slug = %due.slug, days, "garbage collection is late");
    }
    visit.visited_at = Some(now);
    let saved = upkeep::save(app, Visit::key(&due.slug), visit, due.when).await?;
    due.when = saved.map_or(When::Any, When::At);
    Ok(saved.is_some())
}

/// Returns the age in days of a visit that has not ended in time. Only the first run after each
/// multiple of [`LONGEST_VISIT_SECONDS`] gets it, so that each is reported once.
fn late_days(visit: &Visit, now: Timestamp) -> Option<i64> {
    let reported = visit.visited_at.map_or(0, |at| periods_late(visit, at));
    let began = visit.began_at?;
    (periods_late(visit, now) > reported).then(|| (now.unix() - began.unix()) / (24 * 3600))
}

/// Returns how many times [`LONGEST_VISIT_SECONDS`] a visit that has not ended is old; 0 for one that
/// has.
fn periods_late(visit: &Visit, at: Timestamp) -> i64 {
    let began = visit.began_at.filter(|_| visit.within.is_some());
    began.map_or(0, |began| {
        ((at.unix() - began.unix()) / LONGEST_VISIT_SECONDS).max(0)
    })
}

/// Lists the namespaces whose visit is due, first the one that has waited longest.
async fn list_due(app: &App) -> Result<VecDeque<DueVisit>, StoreError> {
    let mut visits = HashMap::new();
    for record in kept::all_records(app, VISITS).await? {
        let slug = record.key.key.clone();
        visits.insert(slug, Versioned::<Visit>::read(Some(record))?);
    }
    let mut due = Vec::new();
    for record in kept::all_records(app, DIRECTORY).await? {
        let (visit, when) = match visits.remove(&record.key.key).flatten() {
            Some(seen) => (seen.value, When::At(seen.revision)),
            None => (Visit::default(), When::Absent),
        };
        let slug = record.key.key.parse();
        let slug = slug.map_err(|_| StoreError::Corrupt("a namespace has no name".to_owned()))?;
        due.push(DueVisit { slug, visit, when });
    }
    Ok(select_due(due, app.now()))
}

fn select_due(mut all: Vec<DueVisit>, now: Timestamp) -> VecDeque<DueVisit> {
    all.retain(|due| due.visit.is_due(now, PAUSE_SECONDS));
    // `None` sorts first, so a namespace that was never visited comes first.
    all.sort_by(|one, other| {
        let key = |due: &DueVisit| due.visit.visited_at;
        (key(one), &one.slug).cmp(&(key(other), &other.slug))
    });
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::usage::ListedUsage;

    #[test]
    fn the_namespace_that_waits_longest_comes_first() {
        const HOUR: i64 = 3600;
        let time = |hours: i64| Timestamp::from_unix(hours * HOUR);
        // name, began, last visited, unfinished
        let rows = [
            ("new", None, false),
            ("also-new", None, false),
            ("done-lately", Some((95, 95)), false),
            ("done", Some((94, 96)), false),
            ("unfinished", Some((80, 99)), true),
            ("unfinished-before", Some((99, 98)), true),
        ];
        let all = rows.map(|(slug, times, is_unfinished)| DueVisit {
            slug: slug.parse().unwrap(),
            visit: Visit {
                began_at: times.map(|(began, _)| time(began)),
                visited_at: times.map(|(_, visited)| time(visited)),
                ended_at: None,
                within: is_unfinished.then(ObjectPosition::default),
                listed: ListedUsage::default(),
            },
            when: When::Any,
        });
        let due = select_due(all.into(), time(100));
        let order: Vec<_> = due.iter().map(|due| due.slug.as_str()).collect();
        assert_eq!(
            order,
            ["also-new", "new", "done", "unfinished-before", "unfinished"]
        );
    }
}
