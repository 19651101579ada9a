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
    // Another process that was faster has announced it.
    let attempted = app.attempt(async |tx| {
        let Some(current) = namespace.readable_current() else {
            return Ok(());
        };
        let mark = ends_key(&namespace.id, &current.payload_sha256);
        let (destinations, _) = Destinations::find(&tx, &namespace.id).await?;
        if !destinations.want(Topic::ReleaseEnds) || tx.records.get(&mark).await?.is_some() {
            return Ok(());
        }
        let catalog = publish::current_catalog(app, namespace.id, current).await?;
        let now = tx.now();
        let ends_at = catalog.expires_at;
        if now < ends_at.plus_days(-ENDS_NOTICE_DAYS) || now >= ends_at {
            return Ok(());
        }
        let event = Event::ReleaseEnds {
            release: current.release,
            ends_at,
        };
        let notice = notices::queue(&tx, namespace, event).await?;
        if !notice.is_empty() {
            tx.write_all(notice);
            let document = Document::of(&json!({ "announced_at": now }))?;
            tx.write(Write::put_until(mark, document, When::Absent, ends_at));
        }
        Ok(())
    });
    attempted.await.map(drop)
}
