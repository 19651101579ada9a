//! Removal of deleted vaults: records first, then objects, the audit log last. Every step is one
//! commit or one deletion of objects, and removed things are not found again. So an interrupted
//! removal continues where it stopped, and two processes at once only do the same work twice.

use tokio::time::Instant;
use vault_format::text::error_chain;
use vault_store::StoreError;
use vault_store::objects::{Class, MAX_PAGE, ObjectKey};
use vault_store::records::{MAX_WRITES, Record, When, Write};

use super::Report;
use super::collect::CLASSES;
use crate::app::App;
use crate::hosting::provisioning;
use crate::model::audit;
use crate::model::grant::{Grant, grants_partition};
use crate::model::namespace::{self, Namespace, NamespaceRef, Status};
use crate::model::notice;
use crate::model::places;
use crate::model::removal::{REMOVALS, Removal, removal_partitions};
use crate::model::token::token_key;
use crate::model::upkeep::RootWalk;
use crate::model::user::{User, users_partition};

/// Maximum number of users or grants that one commit removes, with all records that belong to them.
/// (A commit has at most 100 writes.)
const OWNERS_PER_COMMIT: usize = 20;
/// Maximum number of deleted vaults that one step reads.
const MAX_VAULTS: usize = 100;

/// Continues the removals of deleted vaults until all are done or until `until`.
pub(super) async fn removal_step(
    app: &App,
    report: &mut Report,
    until: Instant,
) -> Result<(), StoreError> {
    let removals = app
        .records
        .list_page(REMOVALS, "", None, MAX_VAULTS)
        .await?;
    let mut waiting = u32::try_from(removals.len()).unwrap_or(u32::MAX);
    for record in removals {
        let removal: Removal = record.read()?;
        // A request that began before the deletion may still write, so a removal waits two minutes.
        if !removal.is_due(app.clock.now()) {
            continue;
        }
        let now = Instant::now();
        // Each gets a share of the time, so that a large vault does not delay the others.
        let slice = until.saturating_duration_since(now) / waiting.max(1);
        waiting = waiting.saturating_sub(1);
        match remove_vault(app, &removal, report, now + slice).await {
            Ok(true) => report.removed_vaults += 1,
            Ok(false) => {}
            Err(error) => {
                // The other vaults are still handled. This one is tried again by the next run.
                report.skipped += 1;
                tracing::error!(
                    namespace = %removal.namespace_id,
                    error = error_chain(&error),
                    "the removal of a deleted vault stopped early"
                );
            }
        }
    }
    Ok(())
}

/// Does the steps of a removal in order. Returns false when time ran out before the last one.
async fn remove_vault(
    app: &App,
    removal: &Removal,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    let (slug, id) = (&removal.slug, &removal.namespace_id);
    let users = users_partition(id);
    let grants = grants_partition(Some(id));
    // The keys of further records are only in the documents of users and grants, so each document
    // is read before it is removed.
    let user = |record: &Record| -> Result<Vec<Write>, StoreError> {
        let user: User = record.read()?;
        Ok(user.removal_writes(record.revision).to_vec())
    };
    let grant = |record: &Record| grant_writes(record);
    let plain = |record: &Record| Ok(vec![Write::delete(record.key.clone(), When::Any)]);
    let owners_of = |writes| RecordRemoval {
        at_once: OWNERS_PER_COMMIT,
        writes,
    };
    let plain = RecordRemoval {
        at_once: MAX_WRITES,
        writes: &plain,
    };
    let mut done = empty_partition(app, &users, owners_of(&user), report, until).await?
        && empty_partition(app, &grants, owners_of(&grant), report, until).await?;
    for partition in removal_partitions(slug, id) {
        done = done && empty_partition(app, &partition, plain, report, until).await?;
    }
    for class in CLASSES {
        done = done && delete_objects(app, removal, class, report, until).await?;
    }
    // The audit log is removed last: until then it shows what happened in the vault.
    let log = audit::audit_partition(Some(id));
    done = done && empty_partition(app, &log, plain, report, until).await?;
    Ok(done && finish_removal(app, removal).await?)
}

/// Returns the writes that remove a grant, its tokens and its entry in the person's list.
fn grant_writes(record: &Record) -> Result<Vec<Write>, StoreError> {
    let grant: Grant = record.read()?;
    let keys = [
        record.key.clone(),
        grant.allowed_key(),
        token_key(&grant.access),
        token_key(&grant.refresh),
    ];
    Ok(keys.map(|key| Write::delete(key, When::Any)).to_vec())
}

/// Function that returns the writes to remove a record and the records that belong to it.
type RemovalWrites<'r> = &'r (dyn Fn(&Record) -> Result<Vec<Write>, StoreError> + Sync);

/// How the records of a partition are removed.
#[derive(Clone, Copy)]
struct RecordRemoval<'r> {
    /// Maximum number of records that one commit removes, with the records that belong to them.
    at_once: usize,
    writes: RemovalWrites<'r>,
}

/// Removes the records of a partition. Returns false when time ran out.
async fn empty_partition(
    app: &App,
    partition: &str,
    removal: RecordRemoval<'_>,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    loop {
        // Always from the beginning, because removed records are not listed again.
        let records = app
            .records
            .list_page(partition, "", None, removal.at_once)
            .await?;
        if records.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        let mut writes = Vec::new();
        for record in &records {
            writes.extend((removal.writes)(record)?);
        }
        // Two records may lead to the same key, but a commit may contain a key only once.
        writes.sort_by(|one, other| one.key().cmp(other.key()));
        writes.dedup_by(|one, other| one.key() == other.key());
        // If the commit fails, another process was faster. The next iteration lists the remaining
        // records.
        if app.try_commit(writes).await? {
            report.removed_records += records.len();
        }
    }
}

/// Removes the objects of a class. Returns false when time ran out.
async fn delete_objects(
    app: &App,
    removal: &Removal,
    class: Class,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    let id = removal.namespace_id;
    loop {
        let listed = app.objects.list_objects(&id, class, None, MAX_PAGE).await?;
        if listed.is_empty() {
            return Ok(true);
        }
        for some in listed.chunks(MAX_WRITES) {
            if Instant::now() >= until {
                return Ok(false);
            }
            let keys: Vec<_> = some
                .iter()
                .map(|(digest, _)| ObjectKey::new(id, class, *digest))
                .collect();
            app.objects.delete_many(&keys).await?;
            report.deleted += keys.len();
        }
    }
}

/// Reduces the namespace's record to a tombstone without people and content, and ends the removal.
/// Returns false when another process was faster.
async fn finish_removal(app: &App, removal: &Removal) -> Result<bool, StoreError> {
    let namespace_record = app
        .records
        .get_one(&namespace::namespace_key(&removal.slug))
        .await?;
    let mut writes = vec![
        Write::delete(removal.key(), When::Any),
        Write::delete(namespace::device_queue_key(&removal.slug), When::Any),
        Write::delete(notice::due_key(&removal.namespace_id), When::Any),
        Write::delete(RootWalk::key(&removal.namespace_id), When::Any),
    ];
    let home = NamespaceRef {
        slug: removal.slug.clone(),
        id: removal.namespace_id,
    };
    let of_places = places::quota_place_keys(&home).map(|key| Write::delete(key, When::Any));
    writes.extend(of_places);
    writes.extend(provisioning::removal_writes(app, &removal.slug, &removal.namespace_id).await?);
    if let Some(record) = namespace_record {
        let namespace: Namespace = record.read()?;
        if namespace.id == removal.namespace_id && namespace.status == Status::Deleted {
            writes.push(namespace.into_tombstone().update_write(record.revision)?);
        }
    }
    app.try_commit(writes).await
}
