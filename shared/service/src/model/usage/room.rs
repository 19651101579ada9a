//! Checks whether an upload may be stored: within the quota, or within an allowance beyond it.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};
use vault_api::{FullQuota, QuotaName};

use super::{
    ALLOWANCE_BYTES, ALLOWANCE_OBJECTS, Amount, MAX_UNNAMED_BYTES, MAX_UNNAMED_OBJECTS, Tally,
    Usage,
};
use crate::config::quota::Quota;
use crate::units::{format_count, format_size};

/// Amounts that were permitted beyond the quota. Deletions reduce them, so a vault grows beyond its
/// quota by at most its allowances, however much it stored before it had one.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Beyond {
    /// Files of releases, by the allowance.
    pub files: Amount,
    /// Skills that were signed again after their key was revoked.
    pub again: Amount,
}

impl Beyond {
    /// Reduces the amounts by what was deleted: first those of skills signed again, whose former
    /// versions are deleted in the end.
    pub(super) fn shrink(&mut self, gone: Amount) {
        let of_again = self.again.min(gone);
        self.again = self.again - of_again;
        self.files = self.files - (gone - of_again);
    }

    /// Limits both amounts together to `most`.
    pub(super) fn limit_to(&mut self, most: Amount) {
        self.files = self.files.min(most);
        self.again = self.again.min(most - self.files);
    }
}

impl Add for Beyond {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            again: self.again + other.again,
        }
    }
}

impl Sub for Beyond {
    type Output = Self;

    /// Subtracts both amounts; a result below 0 becomes 0.
    fn sub(self, other: Self) -> Self {
        Self {
            files: self.files - other.files,
            again: self.again - other.again,
        }
    }
}

/// Result of the check: what to count for an upload.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// Amount that the upload adds to the usage.
    pub added: Tally,
    /// The part of `added` that is permitted beyond the quota.
    pub beyond: Beyond,
}

/// Amounts of an upload and what they may use beyond the quota.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needed {
    /// Files of a release, which may use the allowance.
    pub release_files: Tally,
    /// All objects of the upload that are not files of a release.
    pub other: Tally,
    /// Number of times that `release_files` may use the allowance.
    pub allowances: u64,
    /// Amount that `other` may go beyond the quota, for a vault that has to sign skills again.
    pub again: Amount,
}

impl Needed {
    /// Returns the amount of the whole upload.
    pub fn total(&self) -> Tally {
        self.release_files + self.other
    }
}

/// A limit that an upload can exceed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StorageLimit {
    /// Stored bytes, which the quota of the namespace limits.
    Bytes,
    /// Number of stored objects, which the quota of the namespace limits.
    Objects,
    /// Bytes of uploaded objects that no release names, which have a limit of their own beside the
    /// quota.
    UnnamedBytes,
    /// Number of uploaded objects that no release names, limited like [`Self::UnnamedBytes`].
    UnnamedObjects,
}

impl StorageLimit {
    /// Returns the name of the limit in answers.
    const fn name(self) -> QuotaName {
        match self {
            Self::Bytes => QuotaName::Bytes,
            Self::Objects => QuotaName::Objects,
            Self::UnnamedBytes => QuotaName::UnnamedBytes,
            Self::UnnamedObjects => QuotaName::UnnamedObjects,
        }
    }
}

/// Error: a limit has no room for an upload.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub struct FullStorage {
    /// The limit that the upload would exceed.
    pub of: StorageLimit,
    /// Amount that was stored before the upload, in bytes or objects.
    pub used: u64,
    /// Amount that the upload adds, in the same unit.
    pub asked: u64,
    /// Value of the limit, in the same unit.
    pub limit: u64,
}

impl fmt::Display for FullStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = |number: u64| format_count(number, "object", "objects");
        let text: &dyn Fn(u64) -> String = match self.of {
            StorageLimit::Bytes | StorageLimit::UnnamedBytes => &format_size,
            StorageLimit::Objects | StorageLimit::UnnamedObjects => &objects,
        };
        let (used, asked, limit) = (text(self.used), text(self.asked), text(self.limit));
        match self.of {
            StorageLimit::Bytes | StorageLimit::Objects => write!(
                f,
                "This vault stores {used} of at most {limit}, and this needs {asked} more. Objects \
                 that no release names any more are deleted after 30 days; the operator of this \
                 service can raise the quota."
            ),
            StorageLimit::UnnamedBytes | StorageLimit::UnnamedObjects => write!(
                f,
                "This vault stores {used} that no release names, of at most {limit}, and this needs \
                 {asked} more. Publish a release that names them, or wait: unused uploads are \
                 deleted."
            ),
        }
    }
}

impl FullStorage {
    /// Returns the numbers for the member `quota` of an answer.
    pub const fn to_quota(self) -> FullQuota {
        FullQuota {
            name: self.of.name(),
            used: self.used,
            asked: self.asked,
            limit: self.limit,
        }
    }
}

/// Checks that `used` plus `asked` is within the limit. An upload that adds nothing always passes.
fn check_limit(of: StorageLimit, used: u64, asked: u64, limit: u64) -> Result<(), FullStorage> {
    if asked == 0 || used.saturating_add(asked) <= limit {
        return Ok(());
    }
    Err(FullStorage {
        of,
        used,
        asked,
        limit,
    })
}

/// The amount that a vault may store beyond its quota for one purpose.
#[derive(Clone, Copy)]
struct Allowance {
    /// Amount of the allowance that was used before.
    taken: Amount,
    /// Size of the allowance.
    most: Amount,
}

impl Allowance {
    /// Returns the part of `asked` that is beyond the quota; fails if the allowance has no room for
    /// it. If more than the quota is stored already, the part is measured from there: a vault that
    /// stored more before the quota was set must still be able to publish. An upload that adds
    /// nothing always passes.
    fn count_beyond(
        self,
        used: Amount,
        asked: Amount,
        quota: &Quota,
    ) -> Result<Amount, FullStorage> {
        let Self { taken, most } = self;
        let bytes = Growth {
            used: used.bytes,
            asked: asked.bytes,
            limit: quota.bytes,
        };
        let objects = Growth {
            used: used.objects,
            asked: asked.objects,
            limit: quota.objects,
        };
        Ok(Amount {
            bytes: bytes.count_beyond(StorageLimit::Bytes, taken.bytes, most.bytes)?,
            objects: objects.count_beyond(StorageLimit::Objects, taken.objects, most.objects)?,
        })
    }
}

/// The growth of one number, bytes or objects.
#[derive(Clone, Copy)]
struct Growth {
    used: u64,
    asked: u64,
    /// Limit of the quota; 0 for none.
    limit: u64,
}

impl Growth {
    fn count_beyond(self, of: StorageLimit, taken: u64, most: u64) -> Result<u64, FullStorage> {
        let Self { used, asked, limit } = self;
        if limit == 0 {
            return Ok(0);
        }
        let beyond = used.saturating_add(asked).saturating_sub(limit.max(used));
        if beyond > 0 && taken.saturating_add(beyond) > most {
            return Err(FullStorage {
                of,
                used,
                asked,
                limit,
            });
        }
        Ok(beyond)
    }
}

impl Usage {
    /// Checks that an upload may be stored, and returns what to count for it. Fails with the first
    /// limit that it exceeds.
    pub fn check_room(&self, needed: &Needed, quota: &Quota) -> Result<Counted, FullStorage> {
        let (used, other) = (self.tally.stored, needed.other.stored);
        let again = Allowance {
            taken: self.beyond.again,
            most: needed.again,
        };
        let again = again.count_beyond(used, other, quota)?;
        let (unnamed, more) = (self.tally.unnamed, needed.other.unnamed);
        let bounds = [
            (
                StorageLimit::UnnamedBytes,
                unnamed.bytes,
                more.bytes,
                MAX_UNNAMED_BYTES + needed.again.bytes,
            ),
            (
                StorageLimit::UnnamedObjects,
                unnamed.objects,
                more.objects,
                MAX_UNNAMED_OBJECTS + needed.again.objects,
            ),
        ];
        for (of, used, asked, limit) in bounds {
            check_limit(of, used, asked, limit)?;
        }
        let files = Allowance {
            taken: self.beyond.files,
            most: Amount {
                bytes: ALLOWANCE_BYTES * needed.allowances,
                objects: ALLOWANCE_OBJECTS * needed.allowances,
            },
        };
        let files = files.count_beyond(used + other, needed.release_files.stored, quota)?;
        Ok(Counted {
            added: needed.total(),
            beyond: Beyond { files, again },
        })
    }
}
