//! Deletion of a vault: the mark that is written at once, and the removal of its records
//! afterwards. A tombstone is the rest of the namespace's record, which keeps the name taken.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `removals` | `<slug>` | [`Removal`], from the deletion until nothing of the vault is left but its tombstone |
//!
//! The deletion is one commit: the namespace's record becomes its own tombstone, which ends tokens,
//! memberships and devices, because every check reads it. Background work then removes records and
//! objects (`maintenance::remove`). Each of its steps can be repeated, since a removed record is
//! simply not found again.

use serde::{Deserialize, Serialize};
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::namespace::{Namespace, Pinned, Status};

/// Partition of the vaults whose removal has not ended.
pub const REMOVALS: &str = "removals";
/// Time between the deletion and the start of the removal, in seconds: by then, no request that
/// began before the deletion is still running.
pub const WAIT_SECONDS: i64 = 120;

/// A deleted vault whose records and objects are not all removed yet.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Removal {
    /// Name of the vault, which is not given out again.
    pub slug: Slug,
    /// Id of the namespace whose records and objects are removed.
    pub namespace_id: NamespaceId,
    /// Time of the deletion; the removal waits for [`WAIT_SECONDS`] from then.
    pub deleted_at: Timestamp,
}

impl Removal {
    /// Returns the key of the record, which is the name of the vault.
    pub fn key(&self) -> RecordKey {
        RecordKey::new(REMOVALS, self.slug.as_str())
    }

    /// Whether the removal may begin: [`WAIT_SECONDS`] have passed since the deletion.
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

    /// Returns the tombstone of a deleted vault: its name and id, and nothing about people or
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

/// Returns the partitions that contain only records of this namespace, in the order in which they
/// are emptied. Partitions about people are not among them: users and grants also have entries in
/// the lists of accounts, which are removed together with them.
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
