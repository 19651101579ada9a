//! Garbage collection, mark and sweep: marks objects that no root reaches, and deletes them if that
//! is still so after the grace period of 24 hours.
//!
//! One round visits every namespace. A cursor stores the position, so a step may end anywhere and
//! the next one continues from there. Nothing is marked or deleted in a namespace whose current
//! release cannot be read.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_PAGE};
use vault_store::records::{Commit, Document, MAX_WRITES, RecordKey, When, Write};

use super::Report;
use super::ending::announce_end;
use crate::app::App;
use crate::drafts;
use crate::model::kept::{self, Mark, Marked, ObjectName, TemporaryRoots};
use crate::model::namespace::{self, DIRECTORY, Namespace};
use crate::model::release::Closure;
use crate::publish;

/// The least time between the beginnings of two rounds, in seconds: 6 hours.
const ROUND_SECONDS: i64 = 6 * 3600;
/// Seconds for which a step has the round to itself. Two steps at once would do no harm, only the
/// same work twice.
const BUSY_SECONDS: i64 = 60;
/// Classes that are collected, in the order of a visit: those that a release names, then drafts.
pub(super) const CLASSES: [Class; 5] = [
    Class::Bundles,
    Class::Policies,
    Class::Catalogs,
    Class::Closures,
    Class::Drafts,
];

/// Position among the objects of a namespace: an index into [`CLASSES`], and the last object of
/// that class that was visited.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
struct ObjectPosition(usize, Option<Digest>);

/// Position of the round, stored in the record `work` | `collection`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct CollectionCursor {
    started_at: Option<Timestamp>,
    /// The last namespace that was visited to its end, in the order of the operator's list.
    after: Option<Slug>,
    /// Position inside the next namespace.
    within: Option<ObjectPosition>,
    ended: bool,
    busy_until: Option<Timestamp>,
}

/// Continues the round until it ends or `until` is reached.
pub(super) async fn collect_step(
    app: &App,
    report: &mut Report,
    until: Instant,
) -> Result<(), StoreError> {
    let now = app.clock.now();
    let stored = app.get::<CollectionCursor>(&cursor_key()).await?;
    let (mut cursor, when) = match stored {
        Some(seen) => (seen.value, When::At(seen.revision)),
        None => (CollectionCursor::default(), When::Absent),
    };
    let rests = cursor.ended
        && cursor
            .started_at
            .is_some_and(|started| now < started.plus_seconds(ROUND_SECONDS));
    if rests || cursor.busy_until.is_some_and(|busy| now < busy) {
        return Ok(());
    }
    if cursor.ended || cursor.started_at.is_none() {
        cursor = CollectionCursor {
            started_at: Some(now),
            ..CollectionCursor::default()
        };
    }
    // Written before the work, under the revision that was read, so that only one of two processes
    // that start at once makes the visit.
    cursor.busy_until = Some(now.plus_seconds(BUSY_SECONDS));
    let Some(revision) = save_cursor(app, &cursor, when).await? else {
        return Ok(());
    };
    let outcome = visit_namespaces(app, &mut cursor, report, until).await;
    // Released after an error too, so that the next run does not have to wait.
    cursor.busy_until = None;
    // Not written where this step outlived its time and another process moved the cursor on: that
    // position is the right one.
    save_cursor(app, &cursor, When::At(revision)).await?;
    outcome
}

fn cursor_key() -> RecordKey {
    RecordKey::new("work", "collection")
}

/// Stores the cursor. Returns its new revision; `None` when another process changed it meanwhile.
async fn save_cursor(
    app: &App,
    cursor: &CollectionCursor,
    when: When,
) -> Result<Option<u64>, StoreError> {
    let write = Write::put(cursor_key(), Document::from_value(cursor)?, when);
    match app.records.commit_writes(vec![write]).await? {
        Commit::Done(revisions) => Ok(revisions.first().copied().flatten()),
        Commit::Failed { .. } => Ok(None),
    }
}

/// Visits namespaces from the cursor on, until the last one or `until` is reached.
async fn visit_namespaces(
    app: &App,
    cursor: &mut CollectionCursor,
    report: &mut Report,
    until: Instant,
) -> Result<(), StoreError> {
    while Instant::now() < until {
        let after = cursor.after.as_ref().map(Slug::as_str);
        let listed = app.records.list_page(DIRECTORY, "", after, 1).await?;
        let Some(record) = listed.first() else {
            cursor.ended = true;
            return Ok(());
        };
        let slug = record.read::<namespace::NamespaceEntry>()?.slug;
        let current_namespace = namespace::find_namespace(app, &slug).await?;
        let mut within = Some(cursor.within.take().unwrap_or_default());
        // A deleted namespace is not visited: `remove` empties it as a whole. Nor is one whose
        // release an earlier version of vault published: its references cannot be read, so all its
        // objects stay until the next release.
        let collectable = current_namespace.filter(|(namespace, _)| {
            namespace.current.is_none() || namespace.readable_current().is_some()
        });
        if let Some((namespace, _)) = collectable {
            // On the first page only, so that a later step that continues the visit does not repeat
            // it.
            if within == Some(ObjectPosition::default()) {
                settle_drafts(app, &namespace, report).await;
                if let Err(error) = announce_end(app, &namespace).await {
                    report.skipped += 1;
                    tracing::error!(
                        namespace = %namespace.id,
                        error = error_chain(&error),
                        "skipped the notice about the end of a release that could not be read"
                    );
                }
            }
            while let Some(position) = within.take() {
                if Instant::now() >= until {
                    cursor.within = Some(position);
                    return Ok(());
                }
                match process_page(app, &namespace, position, report, until).await {
                    Ok(next) => within = next,
                    Err(error) => {
                        // `within` stays empty, so the rest of this namespace waits for the next
                        // round, and one damaged namespace does not stop the others.
                        report.skipped += 1;
                        tracing::error!(
                            namespace = %namespace.id,
                            error = error_chain(&error),
                            "skipped the garbage collection of a namespace that could not be read"
                        );
                    }
                }
            }
        }
        report.namespaces += 1;
        cursor.after = Some(slug);
    }
    Ok(())
}

/// Ends the records of proposals that are over, at the beginning of a visit.
async fn settle_drafts(app: &App, namespace: &Namespace, report: &mut Report) {
    if let Err(error) = drafts::settle_proposals(app, namespace).await {
        // Logged only: the collection works out the state of each draft itself and does not need
        // these records to be up to date.
        report.skipped += 1;
        tracing::error!(
            namespace = %namespace.id,
            error = error_chain(&error),
            "skipped the proposals of a namespace that could not be read"
        );
    }
}

/// Processes one page of objects. Returns the position of the next page; `None` after the last
/// class.
async fn process_page(
    app: &App,
    namespace: &Namespace,
    position: ObjectPosition,
    report: &mut Report,
    until: Instant,
) -> Result<Option<ObjectPosition>, StoreError> {
    let ObjectPosition(class_at, after) = position;
    let Some(class) = CLASSES.get(class_at).copied() else {
        return Ok(None);
    };
    // Objects are listed before the roots are read. An upload writes its root before it puts the
    // bytes, so the root of every object that is listed here is among those read later.
    let listed = app
        .objects
        .list_objects(&namespace.id, class, after.as_ref(), MAX_PAGE)
        .await?;
    let last = (listed.len() == MAX_PAGE)
        .then(|| listed.last().map(|(digest, _)| *digest))
        .flatten();
    let listed: Vec<_> = listed.iter().map(|(digest, _)| *digest).collect();
    let marks: BTreeMap<_, _> = kept::all_marks(app, &namespace.id)
        .await?
        .into_iter()
        .map(|marked| (marked.name, marked))
        .collect();
    let reachable = reachable_objects(app, namespace).await?;
    let range = PageRange { class, after, last };
    let plan = plan_page(app.clock.now(), &range, &listed, &marks, &reachable);
    if !carry_out(app, namespace.id, plan, report, until).await? {
        // Out of time. The next step plans the same page anew, since marks and roots may have
        // changed by then.
        return Ok(Some(position));
    }
    Ok(match last {
        Some(last) => Some(ObjectPosition(class_at, Some(last))),
        None if class_at + 1 < CLASSES.len() => Some(ObjectPosition(class_at + 1, None)),
        None => None,
    })
}

/// Returns every object of a namespace that a root reaches now.
async fn reachable_objects(
    app: &App,
    namespace: &Namespace,
) -> Result<HashSet<ObjectName>, StoreError> {
    let mut reachable = HashSet::new();
    // Read again, since a release may have become current after the visit began.
    let reread = namespace::find_namespace(app, &namespace.slug).await?;
    let unchanged = reread.filter(|(found, _)| found.id == namespace.id);
    let namespace = unchanged.as_ref().map_or(namespace, |(found, _)| found);
    if let Some(current) = &namespace.current {
        let closure: Closure = publish::current_closure(app, namespace.id, current).await?;
        reachable.extend(closure.object_names());
        reachable.insert(ObjectName::new(Class::Catalogs, current.sha256));
        reachable.insert(ObjectName::new(Class::Closures, current.closure));
    }
    // Judged by the same state of the namespace as the release above: a proposal that is published
    // meanwhile still counts as waiting, so its objects are kept.
    reachable.extend(drafts::pending_objects(app, namespace).await?);
    // Read after the current release: where that is replaced in between, the same commit wrote what
    // its successor dropped into these records.
    for record in kept::all_records(app, &kept::kept_partition(&namespace.id)).await? {
        reachable.extend(record.read::<TemporaryRoots>()?.objects);
    }
    Ok(reachable)
}

/// Part of one class that a page covers: behind `after`, up to `last` or to the end.
struct PageRange {
    class: Class,
    after: Option<Digest>,
    last: Option<Digest>,
}

impl PageRange {
    fn covers_object(&self, name: &ObjectName) -> bool {
        name.class == self.class
            && self.after.is_none_or(|after| name.digest > after)
            && self.last.is_none_or(|last| name.digest <= last)
    }
}

/// Decisions about the objects of a page.
#[derive(Debug, Default, Eq, PartialEq)]
struct SweepPlan {
    /// Unreachable objects that get a mark.
    mark: Vec<ObjectName>,
    /// Marks to remove, because their object is reachable again or gone.
    unmark: Vec<Marked>,
    /// Unreachable objects whose grace period is over.
    delete: Vec<Marked>,
}

/// Decides about each object of a page without changing anything.
fn plan_page(
    now: Timestamp,
    range: &PageRange,
    listed: &[Digest],
    marks: &BTreeMap<ObjectName, Marked>,
    named: &HashSet<ObjectName>,
) -> SweepPlan {
    let mut plan = SweepPlan::default();
    let listed: HashSet<_> = listed
        .iter()
        .map(|digest| ObjectName::new(range.class, *digest))
        .collect();
    for name in &listed {
        match marks.get(name) {
            None if !named.contains(name) => plan.mark.push(*name),
            // While a deletion runs the mark belongs to it, so a mark that is not liftable is left
            // alone.
            Some(marked) if named.contains(name) && marked.mark.is_liftable(now) => {
                plan.unmark.push(*marked);
            }
            Some(marked)
                if !named.contains(name)
                    && marked.mark.is_grace_over(now)
                    && marked.mark.is_liftable(now) =>
            {
                plan.delete.push(*marked);
            }
            // Nothing to do: reachable and unmarked, within the grace period, or being deleted.
            None | Some(_) => {}
        }
    }
    // A deletion that was interrupted after it removed the object leaves its mark behind.
    let orphaned = marks.values().filter(|marked| {
        range.covers_object(&marked.name)
            && !listed.contains(&marked.name)
            && marked.mark.is_liftable(now)
    });
    plan.unmark.extend(orphaned);
    // `listed` is a hash set: without sorting the order would differ in each run.
    plan.mark.sort_unstable();
    plan.unmark.sort_unstable_by_key(|marked| marked.name);
    plan.delete.sort_unstable_by_key(|marked| marked.name);
    plan
}

/// Carries out a plan. Returns false when time ran out before the end.
async fn carry_out(
    app: &App,
    namespace: NamespaceId,
    plan: SweepPlan,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    let now = app.clock.now();
    let fresh = Document::from_value(&Mark {
        marked_at: now,
        deleting_since: None,
    })?;
    // `Absent` keeps the mark of another process: replacing it would restart the grace period.
    let mark = plan.mark.into_iter().map(|name| {
        Write::put(
            kept::mark_key(&namespace, name),
            fresh.clone(),
            When::Absent,
        )
    });
    report.marked += commit_each(app, mark.collect()).await?;
    let unmark = plan.unmark.iter().map(|marked| {
        Write::delete(
            kept::mark_key(&namespace, marked.name),
            When::At(marked.revision),
        )
    });
    report.unmarked += commit_each(app, unmark.collect()).await?;
    // Only deletions watch the time: marks are written in batches, but each deletion is a call of
    // the object store.
    for marked in plan.delete {
        if Instant::now() >= until {
            return Ok(false);
        }
        if delete_object(app, namespace, marked).await? {
            report.deleted += 1;
        }
    }
    Ok(true)
}

/// Commits writes in batches, leaving out each write whose condition no longer holds. Returns how
/// many were made.
async fn commit_each(app: &App, writes: Vec<Write>) -> Result<usize, StoreError> {
    let mut committed = 0;
    for some in writes.chunks(MAX_WRITES) {
        let mut remaining = some.to_vec();
        while !remaining.is_empty() {
            match app.records.commit_writes(remaining.clone()).await? {
                Commit::Done(_) => {
                    committed += remaining.len();
                    break;
                }
                Commit::Failed { index, .. } if index < remaining.len() => {
                    // Another process was faster with this record. The others do not depend on it,
                    // so they are tried again without it.
                    remaining.remove(index);
                }
                // The index fits no write of the batch, so there is none to leave out: give up
                // instead of looping for ever.
                Commit::Failed { .. } => break,
            }
        }
    }
    Ok(committed)
}

/// Deletes one object. First the mark moves to `deleting_since` under the revision that was read:
/// an upload that has removed the mark meanwhile wins, and one that comes later waits for the
/// deletion.
async fn delete_object(
    app: &App,
    namespace: NamespaceId,
    marked: Marked,
) -> Result<bool, StoreError> {
    let key = kept::mark_key(&namespace, marked.name);
    let deleting = Document::from_value(&Mark {
        deleting_since: Some(app.clock.now()),
        ..marked.mark
    })?;
    let begin = Write::put(key.clone(), deleting, When::At(marked.revision));
    let Commit::Done(revisions) = app.records.commit_writes(vec![begin]).await? else {
        return Ok(false);
    };
    app.objects
        .delete_object(&marked.name.key(namespace))
        .await?;
    let when = revisions
        .first()
        .copied()
        .flatten()
        .map_or(When::Any, When::At);
    // Where the mark has changed it stays. A later round removes it, since its object is gone.
    let _ = app
        .records
        .commit_writes(vec![Write::delete(key, when)])
        .await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u8) -> ObjectName {
        ObjectName::new(Class::Bundles, Digest::from_bytes([n; 32]))
    }

    fn marked(n: u8, marked_at: i64, deleting_since: Option<i64>) -> (ObjectName, Marked) {
        let mark = Mark {
            marked_at: Timestamp::from_unix(marked_at),
            deleting_since: deleting_since.map(Timestamp::from_unix),
        };
        let marked = Marked {
            name: name(n),
            mark,
            revision: u64::from(n),
        };
        (name(n), marked)
    }

    /// Whether it is there, whether it is named, its mark; and what happens to it.
    type Row = (bool, bool, Option<(i64, Option<i64>)>, &'static str);

    #[test]
    fn every_state_of_an_object_has_one_outcome() {
        const DAY: i64 = 24 * 3600;
        let now = 1_000_000;
        // there, named, mark → mark, unmark, delete
        let table: &[Row] = &[
            (true, true, None, "-"),
            (true, false, None, "mark"),
            (false, false, None, "-"),
            (true, true, Some((now - 1, None)), "unmark"),
            (true, true, Some((now - 9 * DAY, None)), "unmark"),
            (true, false, Some((now, None)), "-"),
            (true, false, Some((now - DAY + 1, None)), "-"),
            (true, false, Some((now - DAY, None)), "delete"),
            // A deletion is running: the mark stays until its process must have ended.
            (true, false, Some((now - 2 * DAY, Some(now - 119))), "-"),
            (true, true, Some((now - 2 * DAY, Some(now - 119))), "-"),
            (false, false, Some((now - 2 * DAY, Some(now - 119))), "-"),
            (
                true,
                false,
                Some((now - 2 * DAY, Some(now - 120))),
                "delete",
            ),
            (true, true, Some((now - 2 * DAY, Some(now - 120))), "unmark"),
            (
                false,
                false,
                Some((now - 2 * DAY, Some(now - 120))),
                "unmark",
            ),
            (false, true, Some((now - 1, None)), "unmark"),
        ];
        for (row, (there, is_named, mark, outcome)) in table.iter().enumerate() {
            let listed: Vec<_> = there.then(|| name(7).digest).into_iter().collect();
            let named: HashSet<_> = is_named.then(|| name(7)).into_iter().collect();
            let marks = mark.map(|(at, since)| marked(7, at, since)).into_iter();
            let range = PageRange {
                class: Class::Bundles,
                after: None,
                last: None,
            };
            let plan = plan_page(
                Timestamp::from_unix(now),
                &range,
                &listed,
                &marks.collect(),
                &named,
            );
            let told = match (plan.mark.len(), plan.unmark.len(), plan.delete.len()) {
                (0, 0, 0) => "-",
                (1, 0, 0) => "mark",
                (0, 1, 0) => "unmark",
                (0, 0, 1) => "delete",
                _ => "more than one",
            };
            assert_eq!(told, *outcome, "row {row}");
        }
    }

    #[test]
    fn marks_outside_the_page_are_left_alone() {
        let marks = [marked(1, 0, None), marked(5, 0, None), marked(9, 0, None)].into();
        let range = PageRange {
            class: Class::Bundles,
            after: Some(name(1).digest),
            last: Some(name(5).digest),
        };
        let now = Timestamp::from_unix(10);
        let unmarked = plan_page(now, &range, &[], &marks, &HashSet::new()).unmark;
        assert_eq!(
            unmarked.iter().map(|m| m.name).collect::<Vec<_>>(),
            [name(5)]
        );
        let other = PageRange {
            class: Class::Policies,
            after: None,
            last: None,
        };
        assert_eq!(
            plan_page(now, &other, &[], &marks, &HashSet::new()),
            SweepPlan::default()
        );
    }
}
