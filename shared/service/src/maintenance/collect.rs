//! Garbage collection of objects by mark and sweep: marks objects that no root reaches, and deletes
//! them if no root reaches them after the grace period of 24 hours either. The roots are the
//! current release and other records that protect objects (`roots.rs`).
//!
//! A visit is the work on one namespace. It goes through the namespace's objects in batches, and
//! compares each batch with all roots. The visit stores its position among both, so it may be
//! interrupted anywhere and the next run continues from there. Nothing is marked or deleted in a
//! namespace whose current release cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tokio::time::Instant;
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_PAGE};

use super::ending::announce_end;
use super::roots::read_roots;
use super::sweep::{Moment, PageRange, SweepPlan, SweptPage, carry_out_plan, plan_page};
use super::{Report, recount};
use crate::app::App;
use crate::drafts;
use crate::model::kept::{self, Marked, ObjectName};
use crate::model::namespace::{self, Namespace};
use crate::model::upkeep::{ObjectPosition, RootWalk, Visit};
use crate::model::usage::ListedUsage;
use crate::uploads;

/// Classes of objects that are collected, in the order of a visit: first those that a release
/// names, then drafts.
pub(super) const CLASSES: [Class; 5] = [
    Class::Bundles,
    Class::Policies,
    Class::Catalogs,
    Class::Closures,
    Class::Drafts,
];
/// Maximum number of pages of objects in one batch, for which the roots are read once. They are
/// held in memory.
const BATCH_PAGES: usize = 25;
/// Continues or begins a visit, until it ends or until `until`; in the second case `visit` has the
/// position. After an error it has none, so that the next visit begins again.
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
    // A deleted namespace is skipped, because `remove` empties it as a whole. So is one whose
    // current release was published by an earlier version of vault: its references cannot be read,
    // so all its objects stay until the next release.
    let collectable = current_namespace.filter(|(namespace, _)| {
        namespace.current.is_none() || namespace.readable_current().is_some()
    });
    let Some((mut namespace, _)) = collectable else {
        return Ok(());
    };
    let mut start = BatchStart::default();
    if let Some(position) = within {
        start.position = position;
        start.begun = RootWalk::load(app, &namespace.id, visit.began_at, position).await?;
    } else {
        begin_visit(app, &namespace, report).await;
        namespace = recount::adopt_plan(app, namespace).await;
        recount::begin_recount(app, &namespace, began_at, until).await;
        visit.listed = ListedUsage::default();
    }
    loop {
        let progress = Progress {
            report: &mut *report,
            listed: &mut visit.listed,
            until,
        };
        match collect_batch(app, &namespace, start, progress).await? {
            BatchEnd::Last => {
                recount::end_recount(app, &namespace, began_at, visit.listed).await;
                break;
            }
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

/// Does the steps at the beginning of a visit.
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

async fn settle_drafts(app: &App, namespace: &Namespace, report: &mut Report) {
    if let Err(error) = drafts::settle_proposals(app, namespace).await {
        // Only logged: the collection derives the state of each draft itself and does not need
        // these records to be up to date.
        report.skipped += 1;
        tracing::error!(
            namespace = %namespace.id,
            error = error_chain(&error),
            "skipped the proposals of a namespace that could not be read"
        );
    }
}

/// A page of the objects of one class, with their sizes and marks.
struct ObjectPage {
    position: ObjectPosition,
    range: PageRange,
    listed: Vec<Digest>,
    sizes: Vec<u64>,
    marks: BTreeMap<ObjectName, Marked>,
}

impl ObjectPage {
    /// Reads the page after `position`, up to `end`. `None` if `position` has reached `end` or the
    /// last class.
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
        // The smaller of the two, if there are both.
        let last = page_end.into_iter().chain(class_end).min();
        listed.retain(|(digest, _)| last.is_none_or(|last| *digest <= last));
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

    fn plan(&self, moment: Moment, unreached: &BTreeSet<ObjectName>) -> SweepPlan {
        plan_page(moment, &self.range, &self.listed, &self.marks, unreached)
    }

    fn names(&self) -> impl Iterator<Item = ObjectName> {
        let class = self.range.class;
        self.listed
            .iter()
            .map(move |digest| ObjectName::new(class, *digest))
    }

    /// Returns the amounts of the objects that were just deleted, and of those that still exist. The
    /// latter are 0 for an unfinished page, whose objects are listed again.
    fn count_swept(&self, swept: &SweptPage, walk: &RootWalk) -> ListedUsage {
        let mut listed = ListedUsage::default();
        for (name, size) in self.names().zip(&self.sizes) {
            let tally = uploads::tally_of_object(name.class, *size);
            if swept.deleted.contains(&name) {
                listed.deleted = listed.deleted + tally.unnamed;
                continue;
            }
            if !swept.is_finished {
                continue;
            }
            listed.stored = listed.stored + tally.stored;
            if walk.not_current.contains(&name) {
                listed.not_current = listed.not_current + tally.unnamed;
            }
            if walk.unreached.contains(&name) {
                listed.unreached = listed.unreached + tally.unnamed;
            }
        }
        listed
    }
}

/// The results of a visit so far, and the time until which it may work.
struct Progress<'a> {
    report: &'a mut Report,
    listed: &'a mut ListedUsage,
    until: Instant,
}

/// Outcome of a batch.
enum BatchEnd {
    /// The last object of the namespace was handled.
    Last,
    /// All objects of the batch were handled; the next batch begins after this position.
    Next(ObjectPosition),
    /// Time ran out before the end of the batch.
    OutOfTime(RootWalk),
}

/// Beginning of a batch: a position, and the progress with the roots if an earlier run has begun
/// this batch.
#[derive(Default)]
struct BatchStart {
    position: ObjectPosition,
    begun: Option<RootWalk>,
}

/// Handles a batch of objects, and adds the amounts of those that are left to the count. It handles
/// at least a part of the first page, however little time is left, so that every run makes
/// progress.
async fn collect_batch(
    app: &App,
    namespace: &Namespace,
    start: BatchStart,
    progress: Progress<'_>,
) -> Result<BatchEnd, StoreError> {
    let Progress {
        report,
        listed: counted,
        until,
    } = progress;
    let BatchStart { position, begun } = start;
    // Objects and marks are read before the roots. An upload writes its root before it puts the
    // bytes, so the root of every object that is listed here is among those read later.
    let is_begun = begun.is_some();
    let mut walk = begun.unwrap_or_else(|| RootWalk::begin(position, app.now()));
    let listed_end = ObjectPosition(CLASSES.len(), None);
    let end = if is_begun { walk.end } else { listed_end };
    let pages = read_pages(app, namespace.id, position..end, until).await?;
    let listed = || pages.iter().flat_map(ObjectPage::names);
    walk.not_current = listed().collect();
    walk.unreached = if is_begun {
        // For an object that was not listed by the earlier run, its root may be among those that
        // were read then. It counts as reached until the next visit.
        listed()
            .filter(|name| walk.unreached.contains(name))
            .collect()
    } else {
        listed().collect()
    };
    if !read_roots(app, namespace, &mut walk, until).await? {
        return Ok(end_batch_before(walk, &pages));
    }
    let mut waiting = pages.as_slice();
    while let [page, behind @ ..] = waiting {
        let moment = Moment {
            now: app.now(),
            listed_at: walk.listed_at,
        };
        let has_time = page.position == position || Instant::now() < until;
        let plan = page.plan(moment, &walk.unreached);
        // If a page is not finished, the next run plans it again, since marks may have changed by
        // then.
        let swept = if has_time {
            carry_out_plan(app, namespace.id, plan, report, until).await?
        } else {
            SweptPage::default()
        };
        *counted = *counted + page.count_swept(&swept, &walk);
        if !swept.is_finished {
            return Ok(end_batch_before(walk, waiting));
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

/// Ends a batch before these pages. The stored walk covers as many of them as its record has room
/// for.
fn end_batch_before(walk: RootWalk, pages: &[ObjectPage]) -> BatchEnd {
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

/// Reads the pages of a batch: as many as a third of the time allows, but at least one if there is
/// one.
async fn read_pages(
    app: &App,
    namespace: NamespaceId,
    range: Range<ObjectPosition>,
    until: Instant,
) -> Result<Vec<ObjectPage>, StoreError> {
    let now = Instant::now();
    // The rest of the time is for reading the roots and for the sweep.
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
