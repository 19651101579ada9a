//! Warnings to owners after a change of their quota, and about machines that were not counted. (If a
//! limit is nearly reached because something was added, the commit that adds it queues the warning.)

use tokio::time::Instant;
use vault_store::StoreError;
use vault_store::records::Write;

use super::queue_notices;
use crate::app::App;
use crate::config::quota::is_near;
use crate::model::namespace::{Namespace, NamespaceRef};
use crate::model::notice::Event;
use crate::model::places::{self, JudgedLimit, MachineCount, PlaceKind};
use crate::ports::Ports;

/// Compares the limits of machines, people and drafts with the limits that were judged last. Warns
/// owners of each changed limit of which 80 % is used, if less than 80 % of the old limit was used.
pub(crate) async fn warn_of_changed_limits(
    app: &App,
    namespace: &Namespace,
) -> Result<(), StoreError> {
    let quota = app.quota_of(namespace);
    let home = namespace.to_ref();
    app.change(async |tx| {
        let mut events = Vec::new();
        for place in PlaceKind::ALL {
            let limit = quota.limit_of(place.quota());
            let change = LimitChange::read(&tx, &home, place, limit).await?;
            if change.judged.limit == limit {
                continue;
            }
            let (used, unchanged) = places::count_still(&tx, &home, place).await?;
            events.extend(change.warning(used, used));
            // The commit fails if a place is taken meanwhile: otherwise neither commit might warn.
            tx.write(unchanged);
            tx.write(change.to_write(&home)?);
        }
        tx.write_all(queue_notices(&tx, namespace, events).await?);
        Ok(())
    })
    .await
}

/// Counts the machines of a namespace one by one if their number is limited, and corrects the stored
/// number: processes of earlier versions admit machines without counting them. Warns owners if the
/// correct number reaches 80 % of the limit. Returns false if `until` is reached before all are
/// counted; the next visit of the garbage collection tries again.
pub(crate) async fn correct_machines(
    app: &App,
    namespace: &Namespace,
    until: Instant,
) -> Result<bool, StoreError> {
    let (limit, home) = (app.quota_of(namespace).machines, namespace.to_ref());
    if limit == 0 {
        return Ok(true);
    }
    app.change(async |tx| {
        // After a conflict all are counted again, as long as there is time.
        let counted = MachineCount::count_until(&tx, &home, until).await?;
        let Some((stored, correct)) = counted else {
            tracing::warn!(
                namespace = %namespace.id,
                "the machines of a namespace are not counted before the next garbage collection"
            );
            return Ok(false);
        };
        if stored == Some(correct.admitted) {
            return Ok(true);
        }
        let change = LimitChange::read(&tx, &home, PlaceKind::Machines, limit).await?;
        let warning = change.warning(stored.unwrap_or(correct.admitted), correct.admitted);
        tx.write(correct.to_write(&home)?);
        tx.write(change.to_write(&home)?);
        tx.write_all(queue_notices(&tx, namespace, warning.into_iter().collect()).await?);
        Ok(true)
    })
    .await
}

/// A limit on machines, people or drafts, and the limit that was in force when owners were last
/// warned or not.
struct LimitChange {
    place: PlaceKind,
    judged: JudgedLimit,
    limit: u64,
}

impl LimitChange {
    async fn read(
        ports: &Ports,
        home: &NamespaceRef,
        place: PlaceKind,
        limit: u64,
    ) -> Result<Self, StoreError> {
        let judged = JudgedLimit::read(ports, home, place).await?;
        Ok(Self {
            place,
            judged,
            limit,
        })
    }

    /// Returns the warning if 80 % of the limit is used, and `before` was less than 80 % of the old
    /// limit.
    fn warning(&self, before: u64, used: u64) -> Option<Event> {
        let (quota, limit) = (self.place.quota(), self.limit);
        let is_crossed = is_near(used, limit) && !is_near(before, self.judged.limit);
        is_crossed.then_some(Event::QuotaNear { quota, used, limit })
    }

    /// Returns the write that stores the limit, so that the next change is compared with it.
    fn to_write(&self, home: &NamespaceRef) -> Result<Write, StoreError> {
        places::judged_write(home, self.place, self.limit, self.judged.when)
    }
}
