//! Removal of deleted vaults: records first, then objects, the audit log last. Every step is one
//! commit or one deletion of an object, and what it removes is not found again. So a removal that
//! is interrupted continues where it stopped, and two at once only do the same work.

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
use crate::model::namespace::{self, Namespace, Status};
use crate::model::notice;
use crate::model::removal::{REMOVALS, Removal, partitions};
use crate::model::token::token_key;
use crate::model::user::{User, users_partition};

/// Maximum number of users or grants that one commit removes, with all records that belong to them.
const AT_ONCE: usize = 20;
/// Maximum number of vaults that one step looks at.
const MOST_VAULTS: usize = 100;

/// Continues the removals until all are done or `until` is reached.
pub(super) async fn step(app: &App, report: &mut Report, until: Instant) -> Result<(), StoreError> {
    let found = app.records.list(REMOVALS, "", None, MOST_VAULTS).await?;
    for record in found {
        let removal: Removal = record.read()?;
        // A request that began before the deletion may still write, so a removal waits two minutes.
        if !removal.is_due(app.clock.now()) {
            continue;
        }
        match remove(app, &removal, report, until).await {
            Ok(true) => report.removed_vaults += 1,
            Ok(false) => return Ok(()),
            Err(error) => {
                // The next vault still gets its turn. This one is tried again by the next run.
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

/// Removes a vault. Returns false when time ran out before the end.
async fn remove(
    app: &App,
    removal: &Removal,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    let (slug, id) = (&removal.slug, &removal.namespace_id);
    let users = users_partition(id);
    let grants = grants_partition(Some(id));
    // The keys of their further records stand in the documents of users and grants alone, so each
    // document is read before it is removed.
    let user = |record: &Record| -> Result<Vec<Write>, StoreError> {
        let user: User = record.read()?;
        Ok(user.removal(record.revision).to_vec())
    };
    let grant = |record: &Record| grant_writes(record);
    let plain = |record: &Record| Ok(vec![Write::delete(record.key.clone(), When::Any)]);
    let mut done = empty(app, &users, (AT_ONCE, &user), report, until).await?
        && empty(app, &grants, (AT_ONCE, &grant), report, until).await?;
    for partition in partitions(slug, id) {
        done = done && empty(app, &partition, (MAX_WRITES, &plain), report, until).await?;
    }
    for class in CLASSES {
        done = done && objects(app, removal, class, report, until).await?;
    }
    // The audit log goes last: until then it tells what was there.
    let log = audit::partition(Some(id));
    done = done && empty(app, &log, (MAX_WRITES, &plain), report, until).await?;
    Ok(done && finish(app, removal).await?)
}

/// Returns the writes that remove a grant with its tokens and its entry in the person's list.
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

/// Function that returns the writes which remove a record.
type Removing<'r> = &'r (dyn Fn(&Record) -> Result<Vec<Write>, StoreError> + Sync);

/// Removes the records of a partition, `at_once` with each commit. Returns false when time ran out.
async fn empty(
    app: &App,
    partition: &str,
    (at_once, removing): (usize, Removing<'_>),
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    loop {
        // Always from the beginning: what was removed is not listed again.
        let found = app.records.list(partition, "", None, at_once).await?;
        if found.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        let mut writes = Vec::new();
        for record in &found {
            writes.extend(removing(record)?);
        }
        // Two records may lead to the same key, which a commit may name only once.
        writes.sort_by(|one, other| one.key().cmp(other.key()));
        writes.dedup_by(|one, other| one.key() == other.key());
        // A commit that fails was overtaken by another process. The next turn lists what is left.
        if app.try_commit(writes).await? {
            report.removed_records += found.len();
        }
    }
}

/// Removes the objects of a class. Returns false when time ran out.
async fn objects(
    app: &App,
    removal: &Removal,
    class: Class,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    let id = removal.namespace_id;
    loop {
        let found = app.objects.list(&id, class, None, MAX_PAGE).await?;
        if found.is_empty() {
            return Ok(true);
        }
        for (digest, _) in found {
            if Instant::now() >= until {
                return Ok(false);
            }
            app.objects
                .delete(&ObjectKey::new(id, class, digest))
                .await?;
            report.deleted += 1;
        }
    }
}

/// Reduces the namespace's record to a tombstone without people and content, and ends the removal.
/// Returns false when another process was faster.
async fn finish(app: &App, removal: &Removal) -> Result<bool, StoreError> {
    let found = app.records.get(&namespace::key(&removal.slug)).await?;
    let mut writes = vec![
        Write::delete(removal.key(), When::Any),
        Write::delete(namespace::queue_key(&removal.slug), When::Any),
        Write::delete(notice::due_key(&removal.namespace_id), When::Any),
    ];
    writes.extend(provisioning::removal(app, &removal.slug, &removal.namespace_id).await?);
    if let Some(record) = found {
        let namespace: Namespace = record.read()?;
        if namespace.id == removal.namespace_id && namespace.status == Status::Deleted {
            writes.push(namespace.tombstone().update(record.revision)?);
        }
    }
    app.try_commit(writes).await
}
