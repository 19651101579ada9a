//! Notices about releases that expire soon, queued by the visits of the garbage collection because
//! these reach every namespace regularly.

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::{Document, When, Write};

use crate::app::App;
use crate::model::namespace::Namespace;
use crate::model::notice::{Destinations, ENDS_NOTICE_DAYS, Event, Topic, ends_key};
use crate::{notices, publish};

/// Queues the notice that the current release expires in at most 14 days, once for each release.
pub(super) async fn announce_end(app: &App, namespace: &Namespace) -> Result<(), StoreError> {
    // One attempt without a retry: if another process commits first, it has queued the notice or
    // another one, and then a later visit tries again.
    let attempted = app.attempt(async |tx| {
        let Some(current) = namespace.readable_current() else {
            return Ok(());
        };
        let mark = ends_key(&namespace.id, &current.payload_sha256);
        let (destinations, _) = Destinations::find(&tx, &namespace.id).await?;
        // Checked before the catalog is read: most vaults want no notice, or have had the one about
        // this release.
        if !destinations.any_wants(Topic::ReleaseEnds) || tx.records.get_one(&mark).await?.is_some()
        {
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
        let notice = notices::queue_notice(&tx, namespace, event).await?;
        // Nothing was queued if the outbox is full. Without the mark a later visit tries again.
        if !notice.is_empty() {
            tx.write_all(notice);
            // The mark expires with the release, since there is nothing to announce after that.
            let document = Document::from_value(&json!({ "announced_at": now }))?;
            tx.write(Write::put_until(mark, document, When::Absent, ends_at));
        }
        Ok(())
    });
    attempted.await.map(drop)
}
