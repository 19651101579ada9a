//! Notices about releases that end soon, found on the rounds of the background work.

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::notice::{Destinations, ENDS_NOTICE_DAYS, Event, Topic, ends_key};
use crate::{notices, publish};

/// Queues the notice that the current release ends in at most 14 days, once for each release.
pub(super) async fn announce_end(app: &App, namespace: &Namespace) -> Result<(), StoreError> {
    let Some(current) = namespace.readable_current() else {
        return Ok(());
    };
    let mark = ends_key(&namespace.id, &current.payload_sha256);
    let (destinations, _) = Destinations::find(&*app.records, &namespace.id).await?;
    if !destinations.want(Topic::ReleaseEnds) || app.records.get(&mark).await?.is_some() {
        return Ok(());
    }
    let catalog = publish::current_catalog(app, namespace.id, current).await?;
    let now = app.clock.now();
    let ends_at = catalog.expires_at;
    if now < ends_at.plus_days(-ENDS_NOTICE_DAYS) || now >= ends_at {
        return Ok(());
    }
    let event = Event::ReleaseEnds {
        release: current.release,
        ends_at,
    };
    let mut writes = notices::queue(app, namespace, event).await?;
    if writes.is_empty() {
        return Ok(());
    }
    let document = Document::of(&json!({ "announced_at": now }))?;
    writes.push(Write::put_until(mark, document, When::Absent, ends_at));
    // Another process that announced it first leaves nothing to do.
    app.try_commit(writes).await?;
    Ok(())
}
