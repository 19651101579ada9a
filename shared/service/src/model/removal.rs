//! Deletion of a vault: the mark that is set at once, and the records that are removed afterwards.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `removals` | `<slug>` | [`Removal`], from the deletion until nothing of the vault is left but its tombstone |
//!
//! The deletion is one commit: the namespace's record becomes its own tombstone, which ends tokens,
//! memberships and devices, because every check reads it. Background work then removes records and
//! objects (`maintenance::remove`). Each of its steps may be repeated, since a removed record is not found
//! again.

use serde::{Deserialize, Serialize};
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::namespace::{Namespace, Pinned, Status};

/// The partition of the vaults that are being removed.
pub const REMOVALS: &str = "removals";
/// Seconds between the deletion and the start of the removal: no request that began before the
/// deletion still runs then.
pub const WAIT_SECONDS: i64 = 120;

/// A vault that is deleted and not removed yet.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Removal {
    /// Its name, which is not given out again.
    pub slug: Slug,
    /// The allocation whose records and objects are removed.
    pub namespace_id: NamespaceId,
    /// Time of the deletion.
    pub deleted_at: Timestamp,
}

impl Removal {
    /// Returns its key.
    pub fn key(&self) -> RecordKey {
        RecordKey::new(REMOVALS, self.slug.as_str())
    }

    /// Whether removing may begin.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now >= self.deleted_at.plus_seconds(WAIT_SECONDS)
    }
}

impl Namespace {
    /// Returns the writes that delete the vault as it was read at `revision`.
    pub fn deletion_writes(&self, revision: u64, now: Timestamp) -> Result<Vec<Write>, StoreError> {
        let removal = Removal {
            slug: self.slug.clone(),
            namespace_id: self.id,
            deleted_at: now,
        };
        let deleted = Self {
            status: Status::Deleted,
            // Ends every token of the namespace in the same write.
            epoch: self.epoch.wrapping_add(1),
            ..self.clone()
        };
        let key = removal.key();
        Ok(vec![
            deleted.update_write(revision)?,
            Write::put(key, Document::from_value(&removal)?, When::Any),
        ])
    }

    /// Returns the rest of a deleted vault: its name and allocation, and nothing about people or
    /// content.
    #[must_use]
    pub fn into_tombstone(self) -> Self {
        Self {
            status: Status::Deleted,
            owner: String::new(),
            pin: Pinned::Nothing,
            pin_reset: None,
            current: None,
            ..self
        }
    }
}

/// Returns the partitions that hold records of this allocation alone, in the order in which they
/// are emptied. Those of people are not among them: a user has an entry in the account's list, and
/// a grant one in the person's.
pub fn removal_partitions(slug: &Slug, namespace: &NamespaceId) -> Vec<String> {
    let by_id = [
        "conn",
        "enrol-code",
        "enrol-used",
        "enrol-app",
        "enrol-hour",
        "draft",
        "draft-ended",
        "draft-by",
        "draft-slot",
        "draft-count",
        "rel",
        "kept",
        "doomed",
        "stored",
        "notices",
        "outbox",
    ];
    let by_slug = ["dev", "devid", "pend", "seen", "withdrawn"];
    let ids = by_id.iter().map(|name| format!("{name}/{namespace}"));
    let slugs = by_slug.iter().map(|name| format!("{name}/{slug}"));
    slugs.chain(ids).collect()
}
