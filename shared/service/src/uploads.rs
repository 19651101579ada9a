//! Storing objects of a namespace concurrently with garbage collection: the only way in, for pushes
//! and for the server's own library.
//!
//! A marked object is reported as missing, so it is uploaded again. The upload is recorded, and the
//! mark removed, in one commit before the bytes are stored. The sweep first moves the mark on,
//! under its revision; so if an upload and a sweep race, one of them gets a conflict.

use std::collections::HashSet;

use bytes::Bytes;
use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::objects::{ObjectKey, Stored};
use vault_store::records::{MAX_WRITES, When, Write};

use crate::app::App;
use crate::model::kept::{self, ObjectName, RootReason, UPLOAD_SECONDS};
use crate::transaction::Transaction;

/// Maximum number of records with object names in one commit: each may have 256 KiB.
const KEPT_AT_ONCE: usize = 10;

/// Returns the objects that have to be uploaded: not stored, stored with another size, or marked
/// for collection; in the order of `wanted`. Fails with `Invalid` for more than 10,000.
pub async fn list_missing(
    app: &App,
    namespace: NamespaceId,
    wanted: &[(ObjectKey, u64)],
) -> Result<Vec<ObjectKey>, StoreError> {
    let names: Vec<_> = wanted.iter().map(|(key, _)| (*key).into()).collect();
    // Marks are read before objects: an object without a mark now stays for another day, or is gone
    // already and will be found missing.
    let marked: HashSet<ObjectName> = kept::marks_of(app, &namespace, &names)
        .await?
        .iter()
        .map(|marked| marked.name)
        .collect();
    let absent = app.objects.find_missing(wanted).await?;
    if marked.is_empty() {
        return Ok(absent);
    }
    let absent: HashSet<_> = absent.into_iter().collect();
    let lacks = |key: &ObjectKey| absent.contains(key) || marked.contains(&(*key).into());
    Ok(wanted.iter().map(|(key, _)| *key).filter(lacks).collect())
}

/// Stores objects of one namespace, each under its hash, and keeps them for a week, within which a
/// release may name them.
///
/// Fails with `Conflict` while one of them is being deleted; a retry helps.
pub async fn put_objects(
    app: &App,
    namespace: NamespaceId,
    objects: Vec<(ObjectKey, Bytes)>,
) -> Result<Vec<Stored>, StoreError> {
    let names: Vec<_> = objects.iter().map(|(key, _)| (*key).into()).collect();
    app.change(async |tx| claim_objects(&tx, namespace, &names).await)
        .await?;
    app.objects.put_many(objects).await
}

/// Records the upload of these objects and removes their marks; conflicts while one of them is
/// being deleted.
async fn claim_objects(
    tx: &Transaction<'_>,
    namespace: NamespaceId,
    names: &[ObjectName],
) -> Result<(), StoreError> {
    let uploaded_names: HashSet<_> = names.iter().copied().collect();
    let mut marks = kept::marks_of(tx, &namespace, names).await?;
    marks.retain(|marked| uploaded_names.contains(&marked.name));
    let now = tx.now();
    if !marks.iter().all(|marked| marked.mark.is_liftable(now)) {
        return Err(tx.conflict());
    }
    let mut writes = kept::root_writes(tx, &namespace, RootReason::Upload, names, UPLOAD_SECONDS)?;
    let at_once = if writes.len() > KEPT_AT_ONCE {
        KEPT_AT_ONCE
    } else {
        MAX_WRITES
    };
    let lifted = marks.iter().map(|marked| {
        Write::delete(
            kept::mark_key(&namespace, marked.name),
            When::At(marked.revision),
        )
    });
    writes.extend(lifted);
    // Several commits are safe: a record that keeps an object without the upload only delays its
    // collection.
    for some in writes.chunks(at_once) {
        tx.write_all(some.to_vec());
        tx.commit_within(0).await?;
    }
    Ok(())
}
