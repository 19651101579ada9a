//! Counting the requests that go to the stores, so that a test can say what a route costs.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests sent, by kind; each retry and each page is one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Calls {
    /// Readings of records by key: one for all keys of a `get_many`.
    pub record_reads: u64,
    /// Pages of a partition.
    pub record_lists: u64,
    /// Transactions that write.
    pub record_writes: u64,
    /// Readings of an object's bytes.
    pub object_reads: u64,
    /// Questions for an object's size, or for the bucket itself.
    pub object_heads: u64,
    /// Pages of object keys.
    pub object_lists: u64,
    /// Writings of an object.
    pub object_writes: u64,
    /// Deletions of an object.
    pub object_deletes: u64,
}

impl Calls {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        let records = self.record_reads + self.record_lists + self.record_writes;
        let looked = self.object_reads + self.object_heads + self.object_lists;
        records + looked + self.object_writes + self.object_deletes
    }
}

impl Sub for Calls {
    type Output = Self;

    /// What was sent between an `earlier` reading and this one.
    fn sub(self, earlier: Self) -> Self {
        Self {
            record_reads: self.record_reads - earlier.record_reads,
            record_lists: self.record_lists - earlier.record_lists,
            record_writes: self.record_writes - earlier.record_writes,
            object_reads: self.object_reads - earlier.object_reads,
            object_heads: self.object_heads - earlier.object_heads,
            object_lists: self.object_lists - earlier.object_lists,
            object_writes: self.object_writes - earlier.object_writes,
            object_deletes: self.object_deletes - earlier.object_deletes,
        }
    }
}

/// The kinds of request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    RecordRead,
    RecordList,
    RecordWrite,
    ObjectRead,
    ObjectHead,
    ObjectList,
    ObjectWrite,
    ObjectDelete,
}

/// The running counts, one for each [`Kind`].
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 8]);

impl Counters {
    pub(crate) fn count(&self, kind: Kind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Calls {
        let of = |kind: Kind| self.0[kind as usize].load(Ordering::Relaxed);
        Calls {
            record_reads: of(Kind::RecordRead),
            record_lists: of(Kind::RecordList),
            record_writes: of(Kind::RecordWrite),
            object_reads: of(Kind::ObjectRead),
            object_heads: of(Kind::ObjectHead),
            object_lists: of(Kind::ObjectList),
            object_writes: of(Kind::ObjectWrite),
            object_deletes: of(Kind::ObjectDelete),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_alone() {
        let counters = Counters::default();
        let before = counters.read();
        let kinds = [
            Kind::RecordRead,
            Kind::RecordList,
            Kind::RecordWrite,
            Kind::ObjectRead,
            Kind::ObjectHead,
            Kind::ObjectList,
            Kind::ObjectWrite,
            Kind::ObjectDelete,
        ];
        for (times, kind) in kinds.into_iter().enumerate() {
            for _ in 0..=times {
                counters.count(kind);
            }
        }
        let counted = counters.read() - before;
        assert_eq!(counted.total(), (1..=8).sum::<u64>());
        assert_eq!((counted.record_reads, counted.record_lists), (1, 2));
        assert_eq!((counted.record_writes, counted.object_reads), (3, 4));
        assert_eq!((counted.object_heads, counted.object_lists), (5, 6));
        assert_eq!((counted.object_writes, counted.object_deletes), (7, 8));
    }
}
