//! Garbage collection, mark and sweep: marks objects that no root reaches, and deletes them if that
//! is still so after the grace period of 24 hours.
//!
//! A visit to a namespace goes through its objects in batches. It stores its position, so it may end
//! anywhere and the next run continues from there. Nothing is marked or deleted in a namespace whose
//! current release cannot be read.

use std::collections::{BTreeMap, HashSet};

use tokio::time::Instant;
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_PAGE};
use vault_store::records::{Commit, Document, MAX_WRITES, When, Write};

use super::ending::announce_end;
use super::{Report, recount};
use crate::app::App;
use crate::drafts;
use crate::model::kept::{self, Mark, Marked, ObjectName};
use crate::model::namespace::{self, Namespace};
use crate::model::release::Closure;
use crate::model::upkeep::{ObjectPosition, Visit};
use crate::model::usage::Tally;
use crate::publish;
use crate::uploads;

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
/// Pages of temporary roots that a batch reads however little time is left. A namespace with more
/// has them read within its time, or it is not collected: it keeps its own objects, and delays no
/// other namespace.
const MIN_ROOT_PAGES: usize = 100;

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
    let began_at = visit.began_at.unwrap_or_else(|| app.now());
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
    let mut position = match within {
        Some(position) => position,
        None => {
            begin_visit(app, &namespace, report).await;
            recount::begin(app, &namespace, began_at).await;
            visit.counted = Tally::default();
            ObjectPosition::default()
        }
    };
    let counted = &mut visit.counted;
    while let Some(next) =
        collect_batch(app, &namespace, position, (report, counted), until).await?
    {
        if Instant::now() >= until {
            visit.within = Some(next);
            return Ok(());
        }
        position = next;
    }
    recount::end(app, &namespace, began_at, visit.counted).await;
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
    sizes: Vec<u64>,
    marks: BTreeMap<ObjectName, Marked>,
}

impl ObjectPage {
    async fn read(
        app: &App,
        namespace: NamespaceId,
        position: ObjectPosition,
    ) -> Result<Option<Self>, StoreError> {
        let ObjectPosition(class_at, after) = position;
        let Some(class) = CLASSES.get(class_at).copied() else {
            return Ok(None);
        };
        let listed = app
            .objects
            .list_objects(&namespace, class, after.as_ref(), MAX_PAGE)
            .await?;
        let last = (listed.len() == MAX_PAGE)
            .then(|| listed.last().map(|(digest, _)| *digest))
            .flatten();
        let marks = kept::marks_between(app, &namespace, class, after, last).await?;
        Ok(Some(Self {
            position,
            range: PageRange { class, after, last },
            sizes: listed.iter().map(|(_, size)| *size).collect(),
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

    fn names(&self) -> impl Iterator<Item = ObjectName> {
        let class = self.range.class;
        self.listed
            .iter()
            .map(move |digest| ObjectName::new(class, *digest))
    }

    /// Counts the objects that are left when those in `deleted` are gone.
    fn count_left(&self, deleted: &HashSet<ObjectName>, reachable: &Reachable) -> Tally {
        let objects = self.names().zip(&self.sizes);
        let left = objects.filter(|(name, _)| !deleted.contains(name));
        let named = &reachable.named;
        left.map(|(name, size)| uploads::tally_of_object(name.class, *size, named.contains(&name)))
            .fold(Tally::default(), |tally, one| tally + one)
    }
}

/// Objects that a root reaches.
#[derive(Default)]
struct Reachable {
    /// All of them.
    all: HashSet<ObjectName>,
    /// Those that the current release or a former one names.
    named: HashSet<ObjectName>,
}

/// Processes a batch of objects; adds those that are left to `counted`. Returns the position behind
/// what was done, `None` after the last class. It always does a part of the first page.
async fn collect_batch(
    app: &App,
    namespace: &Namespace,
    position: ObjectPosition,
    (report, counted): (&mut Report, &mut Tally),
    until: Instant,
) -> Result<Option<ObjectPosition>, StoreError> {
    // Objects and marks are read before the roots. An upload writes its root before it puts the
    // bytes, so the root of every object that is listed here is among those read later.
    let pages = read_pages(app, namespace.id, position, until).await?;
    let listed: HashSet<_> = pages.iter().flat_map(ObjectPage::names).collect();
    let Some(reachable) = reachable_objects(app, namespace, listed, until).await? else {
        return Ok(Some(position));
    };
    let mut next = None;
    for page in pages {
        if next.is_some() && Instant::now() >= until {
            return Ok(next);
        }
        let plan = plan_page(
            app.clock.now(),
            &page.range,
            &page.listed,
            &page.marks,
            &reachable.all,
        );
        let Some(deleted) = carry_out(app, namespace.id, plan, report, until).await? else {
            // Out of time. The next run plans the same page anew, since marks and roots may have
            // changed by then.
            return Ok(Some(page.position));
        };
        *counted = *counted + page.count_left(&deleted, &reachable);
        next = Some(page.next_position());
    }
    Ok(next.filter(|ObjectPosition(class_at, _)| *class_at < CLASSES.len()))
}

/// Reads the pages of a batch: as many as a third of the time allows, and at least one unless all
/// classes were visited.
async fn read_pages(
    app: &App,
    namespace: NamespaceId,
    mut position: ObjectPosition,
    until: Instant,
) -> Result<Vec<ObjectPage>, StoreError> {
    let now = Instant::now();
    // The rest of the time is for the roots, and for what has to be done.
    let reading_until = now + until.saturating_duration_since(now) / 3;
    let mut pages = Vec::new();
    while let Some(page) = ObjectPage::read(app, namespace, position).await? {
        position = page.next_position();
        pages.push(page);
        if pages.len() == BATCH_PAGES || Instant::now() >= reading_until {
            break;
        }
    }
    Ok(pages)
}

/// Returns those of the `listed` objects that a root reaches now; `None` if time runs out before all
/// roots are read.
async fn reachable_objects(
    app: &App,
    namespace: &Namespace,
    listed: HashSet<ObjectName>,
    until: Instant,
) -> Result<Option<Reachable>, StoreError> {
    let mut reachable = Reachable::default();
    // Only listed ones are kept, so that memory does not grow with what a namespace names.
    let is_listed = |name: &ObjectName| listed.contains(name);
    // Read again, since a release may have become current after the visit began.
    let reread = namespace::find_namespace(app, &namespace.slug).await?;
    let unchanged = reread.filter(|(found, _)| found.id == namespace.id);
    let namespace = unchanged.as_ref().map_or(namespace, |(found, _)| found);
    if let Some(current) = &namespace.current {
        let closure: Closure = publish::current_closure(app, namespace.id, current).await?;
        let own = [
            ObjectName::new(Class::Catalogs, current.sha256),
            ObjectName::new(Class::Closures, current.closure),
        ];
        let names = closure.object_names().chain(own);
        reachable.named.extend(names.filter(is_listed));
    }
    // Judged by the same state of the namespace as the release above: a proposal that is published
    // meanwhile still counts as waiting, so its objects are kept.
    let pending = drafts::pending_objects(app, namespace).await?;
    reachable.all.extend(pending.into_iter().filter(is_listed));
    // Read after the current release: where that is replaced in between, the same commit wrote what
    // its successor dropped into these records.
    let uploaded_since = recount::oldest_upload(app, namespace).await?;
    let (mut after, mut pages) = (None, 0);
    while let Some(roots) = kept::roots_page(app, &namespace.id, after, uploaded_since).await? {
        reachable
            .named
            .extend(roots.former.into_iter().filter(is_listed));
        reachable
            .all
            .extend(roots.uploaded.into_iter().filter(is_listed));
        after = Some(roots.last);
        pages += 1;
        if pages >= MIN_ROOT_PAGES && Instant::now() >= until {
            tracing::warn!(
                namespace = %namespace.id,
                pages,
                "did not collect a namespace: its uploads of a week are more than can be read in its time"
            );
            return Ok(None);
        }
    }
    reachable.all.extend(&reachable.named);
    Ok(Some(reachable))
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

/// Carries out a plan. Returns what it has deleted; `None` when time ran out before the end.
async fn carry_out(
    app: &App,
    namespace: NamespaceId,
    plan: SweepPlan,
    report: &mut Report,
    until: Instant,
) -> Result<Option<HashSet<ObjectName>>, StoreError> {
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
    let mut deleted = HashSet::new();
    for (at, some) in plan.delete.chunks(MAX_WRITES).enumerate() {
        if at > 0 && Instant::now() >= until {
            return Ok(None);
        }
        let names = delete_objects(app, namespace, some).await?;
        report.deleted += names.len();
        deleted.extend(names);
    }
    Ok(Some(deleted))
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

/// Deletes up to 100 objects and returns which. First each mark moves to `deleting_since` under
/// the revision that was read: an upload that has removed the mark meanwhile wins, and one that
/// comes later waits for the deletion.
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
    // Where a mark has changed it stays. A later visit removes it, since its object is gone.
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
