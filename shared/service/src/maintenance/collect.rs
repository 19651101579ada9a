//! Garbage collection, mark and sweep: marks objects that no root reaches, and deletes them if that
//! is still so after the grace period of 24 hours.
//!
//! A visit to a namespace goes through its objects in batches, and for each batch through the roots
//! (`roots.rs`). It stores its position among both, so it may end anywhere and the next run continues
//! from there. Nothing is marked or deleted in a namespace whose current release cannot be read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use tokio::time::Instant;
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_PAGE};
use vault_store::records::{Commit, Document, MAX_WRITES, When, Write};

use super::Report;
use super::ending::announce_end;
use super::roots::read_roots;
use crate::app::App;
use crate::drafts;
use crate::model::kept::{self, Mark, Marked, ObjectName};
use crate::model::namespace::{self, Namespace};
use crate::model::upkeep::{ObjectPosition, RootWalk, Visit};

/// Classes that are collected, in the order of a visit: those that a release names, then drafts.
pub(super) const CLASSES: [Class; 5] = [
    Class::Bundles,
    Class::Policies,
    Class::Catalogs,
    Class::Closures,
    Class::Drafts,
];
/// Maximum number of pages of one batch, for which the roots are read once. Its objects are held in
/// memory.
const BATCH_PAGES: usize = 25;
/// Continues or begins a visit, until its end or until `until` is reached; then the visit has the
/// position. After an error it has none.
pub(super) async fn visit_namespace(
    app: &App,
    slug: &Slug,
    visit: &mut Visit,
    report: &mut Report,
    until: Instant,
) -> Result<(), StoreError> {
    let within = visit.within.take();
    let current_namespace = namespace::find_namespace(app, slug).await?;
    // A deleted namespace is not visited: `remove` empties it as a whole. Nor is one whose release
    // an earlier version of vault published: its references cannot be read, so all its objects stay
    // until the next release.
    let collectable = current_namespace.filter(|(namespace, _)| {
        namespace.current.is_none() || namespace.readable_current().is_some()
    });
    let Some((namespace, _)) = collectable else {
        return Ok(());
    };
    let mut start = BatchStart::default();
    if let Some(position) = within {
        start.position = position;
        start.begun = RootWalk::load(app, &namespace.id, visit.began_at, position).await?;
    } else {
        begin_visit(app, &namespace, report).await;
    }
    loop {
        match collect_batch(app, &namespace, start, report, until).await? {
            BatchEnd::Last => break,
            BatchEnd::Next(position) if Instant::now() < until => {
                let begun = None;
                start = BatchStart { position, begun };
            }
            BatchEnd::Next(next) => {
                visit.within = Some(next);
                break;
            }
            BatchEnd::OutOfTime(mut walk) => {
                walk.began_at = visit.began_at;
                walk.store(app, &namespace.id).await?;
                visit.within = Some(walk.position);
                break;
            }
        }
    }
    Ok(())
}

/// Does what a visit does once, at its beginning.
async fn begin_visit(app: &App, namespace: &Namespace, report: &mut Report) {
    settle_drafts(app, namespace, report).await;
    if let Err(error) = announce_end(app, namespace).await {
        report.skipped += 1;
        tracing::error!(
            namespace = %namespace.id,
            error = error_chain(&error),
            "skipped the notice about the end of a release that could not be read"
        );
    }
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

/// A page of objects with their marks.
struct ObjectPage {
    position: ObjectPosition,
    range: PageRange,
    listed: Vec<Digest>,
    marks: BTreeMap<ObjectName, Marked>,
}

impl ObjectPage {
    /// Reads the page behind `position`, up to `end`; `None` behind it and behind the last class.
    async fn read(
        app: &App,
        namespace: NamespaceId,
        position: ObjectPosition,
        end: ObjectPosition,
    ) -> Result<Option<Self>, StoreError> {
        let ObjectPosition(class_at, after) = position;
        let class = CLASSES.get(class_at).copied();
        let Some(class) = class.filter(|_| position < end) else {
            return Ok(None);
        };
        let mut listed = app
            .objects
            .list_objects(&namespace, class, after.as_ref(), MAX_PAGE)
            .await?;
        let page_end = (listed.len() == MAX_PAGE)
            .then(|| listed.last().map(|(digest, _)| *digest))
            .flatten();
        let class_end = end.1.filter(|_| end.0 == class_at);
        // The earlier of the two, if there are both.
        let last = page_end.into_iter().chain(class_end).min();
        listed.retain(|(digest, _)| last.is_none_or(|last| *digest <= last));
        let marks = kept::marks_between(app, &namespace, class, after, last).await?;
        Ok(Some(Self {
            position,
            range: PageRange { class, after, last },
            listed: listed.into_iter().map(|(digest, _)| digest).collect(),
            marks: marks
                .into_iter()
                .map(|marked| (marked.name, marked))
                .collect(),
        }))
    }

    fn next_position(&self) -> ObjectPosition {
        let ObjectPosition(class_at, _) = self.position;
        match self.range.last {
            Some(last) => ObjectPosition(class_at, Some(last)),
            None => ObjectPosition(class_at + 1, None),
        }
    }

    fn plan(&self, moment: Moment, unreached: &BTreeSet<ObjectName>) -> SweepPlan {
        plan_page(moment, &self.range, &self.listed, &self.marks, unreached)
    }

    fn names(&self) -> impl Iterator<Item = ObjectName> {
        let class = self.range.class;
        self.listed
            .iter()
            .map(move |digest| ObjectName::new(class, *digest))
    }
}

/// End of a batch.
enum BatchEnd {
    /// Behind the last object of the namespace.
    Last,
    /// All its objects are judged; the next ones are behind this position.
    Next(ObjectPosition),
    /// Time ran out before that.
    OutOfTime(RootWalk),
}

/// Beginning of a batch: a position, and the walk that an earlier run began there.
#[derive(Default)]
struct BatchStart {
    position: ObjectPosition,
    begun: Option<RootWalk>,
}

/// Processes a batch of objects. However little time is left, it does a part of the first page.
async fn collect_batch(
    app: &App,
    namespace: &Namespace,
    start: BatchStart,
    report: &mut Report,
    until: Instant,
) -> Result<BatchEnd, StoreError> {
    let BatchStart { position, begun } = start;
    // Objects and marks are read before the roots. An upload writes its root before it puts the
    // bytes, so the root of every object that is listed here is among those read later.
    let is_begun = begun.is_some();
    let mut walk = begun.unwrap_or_else(|| RootWalk::begin(position, app.now()));
    let listed_end = ObjectPosition(CLASSES.len(), None);
    let end = if is_begun { walk.end } else { listed_end };
    let pages = read_pages(app, namespace.id, position..end, until).await?;
    let listed = pages.iter().flat_map(ObjectPage::names);
    walk.unreached = if is_begun {
        // What was not listed then may have had its root among those that are read already. It
        // counts as reached until the next visit.
        listed
            .filter(|name| walk.unreached.contains(name))
            .collect()
    } else {
        listed.collect()
    };
    if !read_roots(app, namespace, &mut walk, until).await? {
        return Ok(stop_before(walk, &pages));
    }
    let mut waiting = pages.as_slice();
    while let [page, behind @ ..] = waiting {
        let moment = Moment {
            now: app.now(),
            listed_at: walk.listed_at,
        };
        let has_time = page.position == position || Instant::now() < until;
        let plan = page.plan(moment, &walk.unreached);
        // The next run plans a page anew that was not finished, since marks may have changed by
        // then.
        if !has_time || !carry_out(app, namespace.id, plan, report, until).await? {
            return Ok(stop_before(walk, waiting));
        }
        waiting = behind;
    }
    let next = pages.last().map_or(listed_end, ObjectPage::next_position);
    Ok(if next < listed_end {
        BatchEnd::Next(next)
    } else {
        BatchEnd::Last
    })
}

/// Ends a batch in front of these pages. The walk goes on with as many of them as its record has
/// room for.
fn stop_before(walk: RootWalk, pages: &[ObjectPage]) -> BatchEnd {
    let mut unreached = BTreeSet::new();
    let mut end = walk.end;
    for page in pages {
        let of_page = page.names().filter(|name| walk.unreached.contains(name));
        let of_page: Vec<_> = of_page.collect();
        if !RootWalk::has_room(unreached.len() + of_page.len()) {
            break;
        }
        unreached.extend(of_page);
        end = page.next_position();
    }
    BatchEnd::OutOfTime(RootWalk {
        position: pages.first().map_or(walk.position, |page| page.position),
        end,
        unreached,
        ..walk
    })
}

/// Reads the pages of a batch: as many as a third of the time allows, and at least one if there is
/// one.
async fn read_pages(
    app: &App,
    namespace: NamespaceId,
    range: Range<ObjectPosition>,
    until: Instant,
) -> Result<Vec<ObjectPage>, StoreError> {
    let now = Instant::now();
    // The rest of the time is for the roots, and for what has to be done.
    let reading_until = now + until.saturating_duration_since(now) / 3;
    let mut position = range.start;
    let mut pages = Vec::new();
    while let Some(page) = ObjectPage::read(app, namespace, position, range.end).await? {
        position = page.next_position();
        pages.push(page);
        if pages.len() == BATCH_PAGES || Instant::now() >= reading_until {
            break;
        }
    }
    Ok(pages)
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

/// Times by which objects are judged.
#[derive(Clone, Copy, Debug)]
struct Moment {
    now: Timestamp,
    /// Time before objects and roots were read, perhaps by an earlier run. The grace period has to
    /// be over then: an upload since then has removed the mark, and a new one is younger.
    listed_at: Timestamp,
}

/// Decides about each object of a page without changing anything.
fn plan_page(
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
            // While a deletion runs the mark belongs to it, so a mark that is not liftable is left
            // alone.
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
    // Only deletions watch the time: each is a call of the object store. The first of a page are
    // made in any case, so that every run gets further.
    for (at, some) in plan.delete.chunks(MAX_WRITES).enumerate() {
        if at > 0 && Instant::now() >= until {
            return Ok(false);
        }
        report.deleted += delete_objects(app, namespace, some).await?;
    }
    Ok(true)
}

/// Commits writes in batches, leaving out each write whose condition no longer holds. Returns how
/// many were made.
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

/// Makes one commit of a write for each item, without those whose condition no longer holds.
/// Returns the items whose writes were made, each with its new revision if the write has one.
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
            // The index fits no write of the batch, so there is none to leave out: give up instead
            // of looping for ever.
            Commit::Failed { .. } => break,
        }
    }
    Ok(Vec::new())
}

/// Deletes up to 100 objects and returns how many. First each mark moves to `deleting_since` under
/// the revision that was read: an upload that has removed the mark meanwhile wins, and one that
/// comes later waits for the deletion.
async fn delete_objects(
    app: &App,
    namespace: NamespaceId,
    marked: &[Marked],
) -> Result<usize, StoreError> {
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
    let keys: Vec<_> = begun
        .iter()
        .map(|((marked, _), _)| marked.name.key(namespace))
        .collect();
    app.objects.delete_many(&keys).await?;
    // Where a mark has changed it stays. A later visit removes it, since its object is gone.
    let ended = begun.iter().map(|((marked, _), revision)| {
        let when = revision.map_or(When::Any, When::At);
        Write::delete(kept::mark_key(&namespace, marked.name), when)
    });
    commit_each(app, ended.collect()).await?;
    Ok(keys.len())
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
