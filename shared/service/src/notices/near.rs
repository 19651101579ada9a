//! Warnings to owners after a change of their quota. (If a limit is nearly reached because
//! something was added, the commit that adds it queues the warning.)

use vault_store::StoreError;

use super::queue_notices;
use crate::app::App;
use crate::config::quota::is_near;
use crate::model::namespace::Namespace;
use crate::model::notice::Event;
use crate::model::places::{self, PlaceKind};

/// Compares the limits of machines, people and drafts with the limits that were judged last. Warns
/// owners of each changed limit of which 80 % is used, if less than 80 % of the old limit was used.
pub(crate) async fn judge_limits(app: &App, namespace: &Namespace) -> Result<(), StoreError> {
    let quota = app.quota_of(namespace);
    let home = namespace.to_ref();
    app.change(async |tx| {
        let mut events = Vec::new();
        for place in PlaceKind::ALL {
            let limit = quota.limit_of(place.quota());
            let (judged, when) = places::judged_limit(&tx, &home, place).await?;
            if judged == limit {
                continue;
            }
            let used = places::count_places(&tx, &home, place).await?;
            if is_near(used, limit) && !is_near(used, judged) {
                let quota = place.quota();
                events.push(Event::QuotaNear { quota, used, limit });
            }
            tx.write(places::judged_write(&home, place, limit, when)?);
        }
        tx.write_all(queue_notices(&tx, namespace, events).await?);
        Ok(())
    })
    .await
}
