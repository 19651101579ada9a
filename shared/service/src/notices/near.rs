//! Warnings to owners after a change of their quota, and about machines that were not counted. (If a
//! limit is nearly reached because something was added, the commit that adds it queues the warning.)

use tokio::time::Instant;
use vault_store::StoreError;
use vault_store::records::Write;

use super::queue_if_room;
use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::notice::Event;
use crate::model::places::{self, JudgedLimit, LimitWarning, MachineCount, PlaceKind};
use crate::ports::Ports;

/// Compares the limits of machines, people and drafts with the limits that were judged last. Warns
/// owners of each changed limit of which 80 % is used, if less than 80 % of the old limit was used or
/// the outbox had no room for the warning about it.
pub(crate) async fn warn_of_changed_limits(
    app: &App,
    namespace: &Namespace,
) -> Result<(), StoreError> {
    let quota = app.quota_of(namespace);
    let home = namespace.to_ref();
    app.change(async |tx| {
        let mut warnings = Vec::new();
        for place in PlaceKind::ALL {
            let limit = quota.limit_of(place.quota());
            let judged = JudgedLimit::read(&tx, &home, place).await?;
            if judged.limit == limit && !judged.is_owed {
                continue;
            }
            let (used, unchanged) = places::count_still(&tx, &home, place).await?;
            // The commit fails if a place is taken meanwhile: otherwise neither commit might warn.
            tx.write(unchanged);
            match judged.warning(place, (used, used), limit) {
                Some(warning) => warnings.push(warning),
                None => tx.write(judged.quiet_write(&home, place, limit)?),
            }
        }
        tx.write_all(queue_warnings(&tx, namespace, warnings).await?);
        Ok(())
    })
    .await
}

/// Returns the writes that queue these warnings and store that they were given. A warning for which
/// the outbox has no room is stored as owed: the next place that is taken, or the next visit of the
/// garbage collection, repeats it.
pub(crate) async fn queue_warnings(
    ports: &Ports,
    namespace: &Namespace,
    warnings: impl IntoIterator<Item = LimitWarning>,
) -> Result<Vec<Write>, StoreError> {
    queue_all(ports, namespace, Vec::new(), warnings).await
}

/// Returns the writes that queue the notice of an event together with the warning about the place
/// that it takes, as [`queue_warnings`] does.
pub(crate) async fn queue_event_and_warning(
    ports: &Ports,
    namespace: &Namespace,
    event: Event,
    warning: Option<LimitWarning>,
) -> Result<Vec<Write>, StoreError> {
    queue_all(ports, namespace, vec![event], warning).await
}

async fn queue_all(
    ports: &Ports,
    namespace: &Namespace,
    mut events: Vec<Event>,
    warnings: impl IntoIterator<Item = LimitWarning>,
) -> Result<Vec<Write>, StoreError> {
    let warnings: Vec<_> = warnings.into_iter().collect();
    events.extend(warnings.iter().map(LimitWarning::event));
    let (mut writes, dropped) = queue_if_room(ports, namespace, events).await?;
    for warning in warnings {
        let is_owed = dropped.contains(&warning.event());
        writes.push(warning.to_write(&namespace.to_ref(), is_owed)?);
    }
    Ok(writes)
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
        let place = PlaceKind::Machines;
        let judged = JudgedLimit::read(&tx, &home, place).await?;
        let before = stored.unwrap_or(correct.admitted);
        let warning = judged.warning(place, (before, correct.admitted), limit);
        if warning.is_none() {
            tx.write(judged.quiet_write(&home, place, limit)?);
        }
        tx.write(correct.to_write(&home)?);
        tx.write_all(queue_warnings(&tx, namespace, warning).await?);
        Ok(true)
    })
    .await
}
