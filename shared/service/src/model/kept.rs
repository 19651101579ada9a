//! Records of the garbage collection of objects. An object is kept if a root reaches it: the
//! current release is one, and this module has the temporary ones. An object that no root reaches
//! gets a mark, and is deleted after a grace period.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `kept/<namespace_id>` | ULID | [`TemporaryRoots`], a root for the 7 days of an upload or the 30 days of a former release |
//! | `doomed/<namespace_id>` | `<class>/<sha256>` | [`Mark`] of an object that no root reaches |
//!
//! The root of a former release lists only the objects that its successor dropped. The others are
//! reachable from the successor, and so on up to the current release. So the records of the last 30
//! days and the current release's list of objects are all roots, however many releases there were.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::objects::{Class, ObjectKey};
use vault_store::records::{Document, MAX_KEYS, MAX_PAGE, RecordKey, When, Write};

use crate::ports::Ports;

/// Time for which an upload keeps its objects, in seconds: 7 days.
pub const UPLOAD_SECONDS: i64 = 7 * 24 * 3600;
/// Time for which a former release keeps its objects, in seconds: 30 days.
pub const FORMER_SECONDS: i64 = 30 * 24 * 3600;
/// Grace period: time for which an object stays marked before the sweep may delete it, in seconds:
/// 24 hours.
pub const GRACE_SECONDS: i64 = 24 * 3600;
/// Seconds after which an unfinished deletion counts as abandoned: no function and no step of
/// background work runs that long.
pub const DELETING_SECONDS: i64 = 120;
/// Maximum number of object names in one record; with 76 bytes each the record stays below 256 KiB.
pub(super) const MAX_NAMES: usize = 3000;
/// Number of records with object names that are read at once: up to 5 MiB.
const ROOTS_PER_PAGE: usize = 20;
/// Maximum number of such pages that [`find_former`] reads.
const FORMER_PAGES: usize = 50;

/// Name of an object inside its namespace, with class and hash. As text it is `<class>/<sha256>`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct ObjectName {
    /// Class of the object, which tells what its bytes are, for example a bundle.
    pub class: Class,
    /// SHA-256 of the object's bytes.
    pub digest: Digest,
}

impl ObjectName {
    /// Names the object of this class whose bytes have this SHA-256.
    pub const fn new(class: Class, digest: Digest) -> Self {
        Self { class, digest }
    }

    /// Returns the key of the object in the object store.
    pub fn key(self, namespace: NamespaceId) -> ObjectKey {
        ObjectKey::new(namespace, self.class, self.digest)
    }
}

impl From<ObjectKey> for ObjectName {
    fn from(key: ObjectKey) -> Self {
        Self::new(key.class, key.digest)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.class, self.digest)
    }
}

/// Error: a text does not have the form of an object's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("object name must be a class, a slash and 64 hex characters")]
pub struct BadObjectName;

impl FromStr for ObjectName {
    type Err = BadObjectName;

    fn from_str(text: &str) -> Result<Self, BadObjectName> {
        let (class, digest) = text.split_once('/').ok_or(BadObjectName)?;
        Ok(Self {
            class: class.parse().map_err(|_| BadObjectName)?,
            digest: digest.parse().map_err(|_| BadObjectName)?,
        })
    }
}

impl From<ObjectName> for String {
    fn from(name: ObjectName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for ObjectName {
    type Error = BadObjectName;

    fn try_from(text: String) -> Result<Self, BadObjectName> {
        text.parse()
    }
}

/// Reason why objects are temporary roots.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootReason {
    /// The objects were uploaded, and a release that names them may follow.
    Upload,
    /// A former release named the objects, and the release after it does not.
    FormerRelease,
}

/// Objects that are roots until the record expires.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TemporaryRoots {
    /// Whether the objects come from an upload or from a former release.
    pub why: RootReason,
    /// Names of the objects, at most 3,000 in one record.
    pub objects: Vec<ObjectName>,
}

/// The mark of an object that no root reaches. An upload treats a marked object as missing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Mark {
    /// Time at which the object was marked; stored under the field's former name.
    #[serde(rename = "doomed_at")]
    pub marked_at: Timestamp,
    /// Time at which the deletion of the object began. Until the deletion has ended, the object
    /// must not be uploaded again: the deletion could remove the new bytes.
    pub deleting_since: Option<Timestamp>,
}

impl Mark {
    /// Whether [`GRACE_SECONDS`] have passed since the marking, so that the sweep may delete the
    /// object.
    pub fn is_grace_over(&self, now: Timestamp) -> bool {
        now >= self.marked_at.plus_seconds(GRACE_SECONDS)
    }

    /// Whether an upload may remove the mark: no deletion of the object is running.
    pub fn is_liftable(&self, now: Timestamp) -> bool {
        self.deleting_since
            .is_none_or(|since| now >= since.plus_seconds(DELETING_SECONDS))
    }
}

/// The mark of an object, as it was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Marked {
    /// Name of the marked object, from the key of the record.
    pub name: ObjectName,
    /// When the object was marked, and whether its deletion has begun.
    pub mark: Mark,
    /// Revision of the mark's record, for a conditional write.
    pub revision: u64,
}

/// Returns the writes that make `objects` temporary roots for `seconds` from now; empty if there
/// are no objects.
pub fn root_writes(
    ports: &Ports,
    namespace: &NamespaceId,
    why: RootReason,
    objects: &[ObjectName],
    seconds: i64,
) -> Result<Vec<Write>, StoreError> {
    let until = ports.now().plus_seconds(seconds);
    let write = |objects: &[ObjectName]| {
        let kept = TemporaryRoots {
            why,
            objects: objects.to_vec(),
        };
        let key = RecordKey::new(kept_partition(namespace), ports.fresh_id().to_string());
        Ok(Write::put_until(
            key,
            Document::from_value(&kept)?,
            When::Any,
            until,
        ))
    };
    // A record may have 256 KiB, and a release may name more objects than fit.
    objects.chunks(MAX_NAMES).map(write).collect()
}

/// Returns the partition with a namespace's [`TemporaryRoots`].
pub fn kept_partition(namespace: &NamespaceId) -> String {
    format!("kept/{namespace}")
}

/// Returns the key of the [`Mark`] of an object.
pub fn mark_key(namespace: &NamespaceId, name: ObjectName) -> RecordKey {
    RecordKey::new(marks_partition(namespace), name.to_string())
}

fn marks_partition(namespace: &NamespaceId) -> String {
    format!("doomed/{namespace}")
}

/// Returns the marks of these objects. The result may contain marks of other objects too.
pub async fn find_marks(
    ports: &Ports,
    namespace: &NamespaceId,
    names: &[ObjectName],
) -> Result<Vec<Marked>, StoreError> {
    // One read has a maximum number of keys. A list of all marks mostly costs fewer calls than
    // several reads, but a namespace may have many more marks than there are names.
    if names.len() > MAX_KEYS {
        let pages = names.len().div_ceil(MAX_KEYS);
        if let Some(all) = list_marks(ports, namespace, pages).await? {
            return Ok(all);
        }
    }
    let mut marks = Vec::new();
    for some in names.chunks(MAX_KEYS) {
        let keys: Vec<_> = some.iter().map(|name| mark_key(namespace, *name)).collect();
        let found = ports.records.get_many(&keys).await?;
        for record in found.iter().flatten() {
            marks.push(parse_mark(record)?);
        }
    }
    Ok(marks)
}

/// Returns all marks of a namespace; `None` if they have more than `pages` pages.
async fn list_marks(
    ports: &Ports,
    namespace: &NamespaceId,
    pages: usize,
) -> Result<Option<Vec<Marked>>, StoreError> {
    let partition = marks_partition(namespace);
    let mut marks = Vec::new();
    let mut after: Option<String> = None;
    for _ in 0..pages {
        let page = ports
            .records
            .list_page(&partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        for record in &page {
            marks.push(parse_mark(record)?);
        }
        if page.len() < MAX_PAGE {
            return Ok(Some(marks));
        }
        after = page.into_iter().last().map(|record| record.key.key);
    }
    Ok(None)
}

/// Returns the marks of objects of a class whose hash is above `after` and at most `last`.
pub async fn marks_between(
    ports: &Ports,
    namespace: &NamespaceId,
    class: Class,
    after: Option<Digest>,
    last: Option<Digest>,
) -> Result<Vec<Marked>, StoreError> {
    let (partition, prefix) = (marks_partition(namespace), format!("{class}/"));
    let mut marks = Vec::new();
    let mut after = after.map(|digest| ObjectName::new(class, digest).to_string());
    loop {
        let page = ports
            .records
            .list_page(&partition, &prefix, after.as_deref(), MAX_PAGE)
            .await?;
        for record in &page {
            let marked = parse_mark(record)?;
            if last.is_some_and(|last| marked.name.digest > last) {
                return Ok(marks);
            }
            marks.push(marked);
        }
        if page.len() < MAX_PAGE {
            return Ok(marks);
        }
        after = page.into_iter().last().map(|record| record.key.key);
    }
}

/// A page of the objects that temporary roots name.
#[derive(Debug, Default)]
pub struct RootsPage {
    /// Names of the objects. A name may occur more than once.
    pub names: Vec<ObjectName>,
    /// Key of the last record of the page, after which the next page begins.
    pub last: String,
}

/// Returns a page of the objects that temporary roots name, without objects that were uploaded
/// before `uploaded_since`. `None` after the last page.
pub async fn roots_page(
    ports: &Ports,
    namespace: &NamespaceId,
    after: Option<String>,
    uploaded_since: Option<Timestamp>,
) -> Result<Option<RootsPage>, StoreError> {
    let partition = kept_partition(namespace);
    let page = ports
        .records
        .list_page(&partition, "", after.as_deref(), ROOTS_PER_PAGE)
        .await?;
    let mut roots = RootsPage::default();
    let too_old = |until: Timestamp| {
        uploaded_since.is_some_and(|since| until < since.plus_seconds(UPLOAD_SECONDS))
    };
    for record in page {
        let found = record.read::<TemporaryRoots>()?;
        roots.last = record.key.key;
        match found.why {
            RootReason::Upload if record.expires_at.is_some_and(too_old) => {}
            RootReason::Upload | RootReason::FormerRelease => roots.names.extend(found.objects),
        }
    }
    Ok((!roots.last.is_empty()).then_some(roots))
}

/// Returns those of these objects that a former release of the last 30 days named. `None` if the
/// namespace has more temporary roots than one request may read.
pub async fn find_former(
    ports: &Ports,
    namespace: &NamespaceId,
    names: &BTreeSet<ObjectName>,
) -> Result<Option<BTreeSet<ObjectName>>, StoreError> {
    let partition = kept_partition(namespace);
    let mut former = BTreeSet::new();
    let mut after: Option<String> = None;
    for _ in 0..FORMER_PAGES {
        let page = ports
            .records
            .list_page(&partition, "", after.as_deref(), ROOTS_PER_PAGE)
            .await?;
        for record in &page {
            let roots = record.read::<TemporaryRoots>()?;
            if roots.why == RootReason::FormerRelease {
                former.extend(roots.objects.iter().filter(|name| names.contains(name)));
            }
        }
        if page.len() < ROOTS_PER_PAGE {
            return Ok(Some(former));
        }
        after = page.into_iter().last().map(|record| record.key.key);
    }
    Ok(None)
}

/// Returns all marks of a namespace, however many there are.
pub async fn all_marks(ports: &Ports, namespace: &NamespaceId) -> Result<Vec<Marked>, StoreError> {
    let found = all_records(ports, &marks_partition(namespace)).await?;
    found.iter().map(parse_mark).collect()
}

/// Returns every record of a partition, in the order of the keys. All of them are in memory at
/// once.
pub async fn all_records(
    ports: &Ports,
    partition: &str,
) -> Result<Vec<vault_store::records::Record>, StoreError> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = ports
            .records
            .list_page(partition, "", after.as_deref(), MAX_PAGE)
            .await?;
        let full = page.len() == MAX_PAGE;
        after = page.last().map(|record| record.key.key.clone());
        found.extend(page);
        if !full {
            return Ok(found);
        }
    }
}

fn parse_mark(record: &vault_store::records::Record) -> Result<Marked, StoreError> {
    let name = record.key.key.parse();
    Ok(Marked {
        // An error, because without its mark a marked object would count as present.
        name: name.map_err(|_| StoreError::Corrupt("a mark names no object".to_owned()))?,
        mark: record.read()?,
        revision: record.revision,
    })
}
