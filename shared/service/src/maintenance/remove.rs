//! Removing deleted vaults: records first, then objects, the log last. Every step is one commit, or
//! one deletion of an object, and what it removes is not found again: so a removal that is cut off
//! anywhere goes on where it stopped, and two at once do only the same work.

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

/// Most users or grants that one commit removes, with all that belongs to them.
const AT_ONCE: usize = 20;
/// Most vaults that one step looks at.
const MOST_VAULTS: usize = 100;

/// Goes on with the removals until all are done or `until` is reached.
pub(super) async fn step(app: &App, report: &mut Report, until: Instant) -> Result<(), StoreError> {
    let found = app.records.list(REMOVALS, "", None, MOST_VAULTS).await?;
    for record in found {
        let removal: Removal = record.read()?;
        if !removal.is_due(app.clock.now()) {
            continue;
        }
        match remove(app, &removal, report, until).await {
            Ok(true) => report.removed_vaults += 1,
            Ok(false) => return Ok(()),
            Err(error) => {
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

/// Removes a vault; false when the time was over before the end.
async fn remove(
    app: &App,
    removal: &Removal,
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    let (slug, id) = (&removal.slug, &removal.namespace_id);
    let users = users_partition(id);
    let grants = grants_partition(Some(id));
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
    // The log is last: until then it says what was there.
    let log = audit::partition(Some(id));
    done = done && empty(app, &log, (MAX_WRITES, &plain), report, until).await?;
    Ok(done && finish(app, removal).await?)
}

/// The writes that remove a grant with its tokens and the entry in the person's list.
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

/// What removes a record.
type Removing<'r> = &'r (dyn Fn(&Record) -> Result<Vec<Write>, StoreError> + Sync);

/// Removes the records of a partition, this many with each commit; false when the time was over.
async fn empty(
    app: &App,
    partition: &str,
    (at_once, removing): (usize, Removing<'_>),
    report: &mut Report,
    until: Instant,
) -> Result<bool, StoreError> {
    loop {
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
        // Two entries may share a key; a commit names each once.
        writes.sort_by(|one, other| one.key().cmp(other.key()));
        writes.dedup_by(|one, other| one.key() == other.key());
        if app.try_commit(writes).await? {
            report.removed_records += found.len();
        }
    }
}

/// Removes the objects of a class; false when the time was over.
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

/// Takes out of the tombstone what is about people and content, and ends the removal; false when
/// another worker was faster.
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
