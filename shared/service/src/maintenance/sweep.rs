//! The sweep: decides about the objects of a page, some of which no root reaches, and then marks,
//! unmarks and deletes them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tokio::time::Instant;
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::Class;
use vault_store::records::{Commit, Document, MAX_WRITES, When, Write};

use super::Report;
use crate::app::App;
use crate::model::kept::{self, Mark, Marked, ObjectName};

/// The part of one class that a page covers: hashes above `after` and up to `last`, or to the end.
pub(super) struct PageRange {
    pub(super) class: Class,
    pub(super) after: Option<Digest>,
    pub(super) last: Option<Digest>,
}

impl PageRange {
    fn covers_object(&self, name: &ObjectName) -> bool {
        name.class == self.class
            && self.after.is_none_or(|after| name.digest > after)
            && self.last.is_none_or(|last| name.digest <= last)
    }
}

/// What is to be done with the objects of a page.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct SweepPlan {
    /// Unreachable objects that get a mark.
    mark: Vec<ObjectName>,
    /// Marks to remove, because their object is reachable again or gone.
    unmark: Vec<Marked>,
    /// Unreachable objects whose grace period is over.
    delete: Vec<Marked>,
}

/// The times by which objects and marks are compared with the grace period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    /// Time just before objects and roots were read, perhaps by an earlier run. The grace period
    /// must have ended by then: an upload since then has removed the mark, and a new mark is
    /// younger.
    pub(super) listed_at: Timestamp,
}

/// Decides about each object of a page without changing anything.
pub(super) fn plan_page(
    moment: Moment,
    range: &PageRange,
    listed: &[Digest],
    marks: &BTreeMap<ObjectName, Marked>,
    unreached: &BTreeSet<ObjectName>,
) -> SweepPlan {
    let Moment { now, listed_at } = moment;
    let mut plan = SweepPlan::default();
    let listed: HashSet<_> = listed
        .iter()
        .map(|digest| ObjectName::new(range.class, *digest))
        .collect();
    for name in &listed {
        let is_unreached = unreached.contains(name);
        match marks.get(name) {
            None if is_unreached => plan.mark.push(*name),
            // While a deletion runs, the mark belongs to it and must not be changed.
            Some(marked) if !is_unreached && marked.mark.is_liftable(now) => {
                plan.unmark.push(*marked);
            }
            Some(marked)
                if is_unreached
                    && marked.mark.is_grace_over(listed_at)
                    && marked.mark.is_liftable(now) =>
            {
                plan.delete.push(*marked);
            }
            // Nothing to do: the object is reachable and unmarked, within the grace period, or
            // being deleted.
            None | Some(_) => {}
        }
    }
    // If a deletion is interrupted after it has removed the object, its mark remains.
    let orphaned = marks.values().filter(|marked| {
        range.covers_object(&marked.name)
            && !listed.contains(&marked.name)
            && marked.mark.is_liftable(now)
    });
    plan.unmark.extend(orphaned);
    // `listed` is a hash set: without sorting, the order would differ in each run.
    plan.mark.sort_unstable();
    plan.unmark.sort_unstable_by_key(|marked| marked.name);
    plan.delete.sort_unstable_by_key(|marked| marked.name);
    plan
}

/// What [`carry_out_plan`] has done of a plan.
#[derive(Debug, Default)]
pub(super) struct SweptPage {
    /// Objects that were deleted, or were gone already.
    pub(super) deleted: HashSet<ObjectName>,
    /// Whether all of the plan was carried out before time ran out.
    pub(super) is_finished: bool,
}

/// Carries out a plan until its end, or until time runs out.
pub(super) async fn carry_out_plan(
    app: &App,
    namespace: NamespaceId,
    plan: SweepPlan,
    report: &mut Report,
    until: Instant,
) -> Result<SweptPage, StoreError> {
    let now = app.clock.now();
    let fresh = Document::from_value(&Mark {
        marked_at: now,
        deleting_since: None,
    })?;
    // `Absent` preserves the mark of another process: replacing it would restart the grace period.
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
    // Only deletions check the time, because each is a call of the object store. The first of a
    // page are always made, so that every run makes progress.
    let mut swept = SweptPage::default();
    for (at, some) in plan.delete.chunks(MAX_WRITES).enumerate() {
        if at > 0 && Instant::now() >= until {
            return Ok(swept);
        }
        let names = delete_objects(app, namespace, some).await?;
        report.deleted += names.len();
        swept.deleted.extend(names);
    }
    swept.is_finished = true;
    Ok(swept)
}

/// Commits writes in batches, without those whose condition no longer holds. Returns the number of
/// writes that were made.
async fn commit_each(app: &App, writes: Vec<Write>) -> Result<usize, StoreError> {
    let mut committed = 0;
    for some in writes.chunks(MAX_WRITES) {
        let indices: Vec<_> = (0..some.len()).collect();
        committed += commit_possible(app, indices, |index| some[*index].clone())
            .await?
            .len();
    }
    Ok(committed)
}

/// Commits one write for each item, without those whose condition no longer holds. Returns the
/// items whose writes were made, each with its new revision if the write has one.
async fn commit_possible<T>(
    app: &App,
    mut items: Vec<T>,
    write_of: impl Fn(&T) -> Write,
) -> Result<Vec<(T, Option<u64>)>, StoreError> {
    while !items.is_empty() {
        let writes = items.iter().map(&write_of).collect();
        match app.records.commit_writes(writes).await? {
            Commit::Done(revisions) => return Ok(items.into_iter().zip(revisions).collect()),
            Commit::Failed { index, .. } if index < items.len() => {
                // Another process was faster with this record. The others do not depend on it, so
                // they are tried again without it.
                drop(items.remove(index));
            }
            // The index is not that of a write of the batch, so no write can be left out: give up
            // instead of looping for ever.
            Commit::Failed { .. } => break,
        }
    }
    Ok(Vec::new())
}

/// Deletes up to 100 objects and returns which. First each mark gets `deleting_since`, under the
/// revision that was read: if an upload has removed the mark meanwhile, its object stays, and an
/// upload that comes later waits for the deletion.
async fn delete_objects(
    app: &App,
    namespace: NamespaceId,
    marked: &[Marked],
) -> Result<Vec<ObjectName>, StoreError> {
    let now = app.clock.now();
    let mut begun = Vec::with_capacity(marked.len());
    for marked in marked {
        let deleting = Document::from_value(&Mark {
            deleting_since: Some(now),
            ..marked.mark
        })?;
        begun.push((marked, deleting));
    }
    let begun = commit_possible(app, begun, |(marked, deleting)| {
        let key = kept::mark_key(&namespace, marked.name);
        Write::put(key, deleting.clone(), When::At(marked.revision))
    })
    .await?;
    let names: Vec<_> = begun.iter().map(|((marked, _), _)| marked.name).collect();
    let keys: Vec<_> = names.iter().map(|name| name.key(namespace)).collect();
    app.objects.delete_many(&keys).await?;
    // A mark that has changed meanwhile stays. A later visit removes it, since its object is gone.
    let ended = begun.iter().map(|((marked, _), revision)| {
        let when = revision.map_or(When::Any, When::At);
        Write::delete(kept::mark_key(&namespace, marked.name), when)
    });
    commit_each(app, ended.collect()).await?;
    Ok(names)
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

    fn moment(now: i64) -> Moment {
        Moment {
            now: Timestamp::from_unix(now),
            listed_at: Timestamp::from_unix(now),
        }
    }

    /// Whether the object is listed, whether a root reaches it, its mark (time, start of its
    /// deletion), and the expected decision.
    type Row = (bool, bool, Option<(i64, Option<i64>)>, &'static str);

    #[test]
    fn every_state_of_an_object_has_one_outcome() {
        const DAY: i64 = 24 * 3600;
        let now = 1_000_000;
        // listed, reached, mark → mark, unmark, delete
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
            let unreached: BTreeSet<_> = (!is_named).then(|| name(7)).into_iter().collect();
            let marks = mark.map(|(at, since)| marked(7, at, since)).into_iter();
            let range = PageRange {
                class: Class::Bundles,
                after: None,
                last: None,
            };
            let plan = plan_page(moment(now), &range, &listed, &marks.collect(), &unreached);
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
        let unmarked = plan_page(moment(10), &range, &[], &marks, &BTreeSet::new()).unmark;
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
            plan_page(moment(10), &other, &[], &marks, &BTreeSet::new()),
            SweepPlan::default()
        );
    }
}
