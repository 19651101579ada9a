//! Counts the requests to the stores, so that a test can assert the cost of a route.

use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;

/// The number of requests sent, by kind. Each retry and each page counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Calls {
    /// Reads of records by key. A `get_many` counts as one.
    pub record_reads: u64,
    /// Requests for one page of records of a partition.
    pub record_lists: u64,
    /// Transactions that write records, retries included.
    pub record_writes: u64,
    /// Reads of an object's bytes.
    pub object_reads: u64,
    /// Requests for an object's size or for the bucket itself.
    pub object_heads: u64,
    /// Pages of object keys.
    pub object_lists: u64,
    /// Requests that store one object.
    pub object_writes: u64,
    /// Requests that delete one object.
    pub object_deletes: u64,
}

impl Calls {
    /// Returns the number of requests of all kinds together.
    pub fn total_requests(&self) -> u64 {
        let records = self.record_reads + self.record_lists + self.record_writes;
        let object_queries = self.object_reads + self.object_heads + self.object_lists;
        records + object_queries + self.object_writes + self.object_deletes
    }
}

impl Sub for Calls {
    type Output = Self;

    /// Returns the requests that were sent after the `earlier` reading.
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

#[derive(Clone, Copy, Debug)]
enum Kind {
    RecordRead,
    RecordList,
    RecordWrite,
    ObjectRead,
    ObjectHead,
    ObjectList,
    ObjectWrite,
    ObjectDelete,
}

impl Kind {
    /// Returns the kind of the SDK operation of this name.
    fn from_operation(operation: &str) -> Option<Self> {
        Some(match operation {
            "GetItem" | "TransactGetItems" => Self::RecordRead,
            "Query" => Self::RecordList,
            "TransactWriteItems" => Self::RecordWrite,
            "GetObject" => Self::ObjectRead,
            "HeadObject" | "HeadBucket" => Self::ObjectHead,
            "ListObjectsV2" => Self::ObjectList,
            "PutObject" => Self::ObjectWrite,
            "DeleteObject" => Self::ObjectDelete,
            _ => return None,
        })
    }
}

/// The running counts, one for each [`Kind`]. The clients of both stores have it as an interceptor,
/// which counts each attempt to send a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Arc<[AtomicU64; 8]>);

impl Counters {
    fn count_operation(&self, operation: &str) {
        if let Some(kind) = Kind::from_operation(operation) {
            self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read_counts(&self) -> Calls {
        let count = |kind: Kind| self.0[kind as usize].load(Ordering::Relaxed);
        Calls {
            record_reads: count(Kind::RecordRead),
            record_lists: count(Kind::RecordList),
            record_writes: count(Kind::RecordWrite),
            object_reads: count(Kind::ObjectRead),
            object_heads: count(Kind::ObjectHead),
            object_lists: count(Kind::ObjectList),
            object_writes: count(Kind::ObjectWrite),
            object_deletes: count(Kind::ObjectDelete),
        }
    }
}

impl Intercept for Counters {
    fn name(&self) -> &'static str {
        "Counters"
    }

    fn read_before_attempt(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(operation) = config.load::<Metadata>() {
            self.count_operation(operation.name());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_alone() {
        let counters = Counters::default();
        let before = counters.read_counts();
        let operations = [
            "TransactGetItems",
            "Query",
            "TransactWriteItems",
            "GetObject",
            "HeadObject",
            "ListObjectsV2",
            "PutObject",
            "DeleteObject",
        ];
        for (times, operation) in operations.into_iter().enumerate() {
            for _ in 0..=times {
                counters.count_operation(operation);
            }
        }
        let counted = counters.read_counts() - before;
        assert_eq!(counted.total_requests(), (1..=8).sum::<u64>());
        assert_eq!((counted.record_reads, counted.record_lists), (1, 2));
        assert_eq!((counted.record_writes, counted.object_reads), (3, 4));
        assert_eq!((counted.object_heads, counted.object_lists), (5, 6));
        assert_eq!((counted.object_writes, counted.object_deletes), (7, 8));
    }
}
