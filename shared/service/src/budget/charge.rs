//! The cost of one request for its namespace: its limits, and the store through which its writes
//! and log rows are counted in the commits that the request makes anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, MAX_WRITES, Record, RecordKey, Records, When, Write};

use super::Budget;
use crate::error::Refusal;

/// The charge of a request: the namespace whose budgets it uses, with the limits for its caller.
#[derive(Debug)]
pub struct Charge {
    namespace: NamespaceId,
    /// Partition of the namespace's audit log.
    log: String,
    /// The limit of each budget, by the budget's number; 0 is no limit.
    limits: [u64; Budget::ALL.len()],
    now: Timestamp,
    /// Whether the request was counted as a write already: it counts once, whatever the number of
    /// its commits.
    is_write: AtomicBool,
    /// The refusal to answer with, if a budget had no room for a part of the request.
    refusal: Mutex<Option<Refusal>>,
}

impl Charge {
    /// Creates the charge of a request at `now`. `log` is the partition of the namespace's audit
    /// log, `limit` returns the limit of a budget.
    pub fn new(
        namespace: NamespaceId,
        log: String,
        limit: impl Fn(Budget) -> u64,
        now: Timestamp,
    ) -> Self {
        Self {
            namespace,
            log,
            limits: Budget::ALL.map(limit),
            now,
            is_write: AtomicBool::new(false),
            refusal: Mutex::default(),
        }
    }

    /// Returns the namespace that pays for the request.
    pub const fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    /// Returns the limit of a budget; 0: no limit.
    pub const fn limit(&self, budget: Budget) -> u64 {
        self.limits[budget as usize]
    }

    /// Whether writes or log rows are limited, so that commits have to be counted.
    pub const fn counts_commits(&self) -> bool {
        self.limit(Budget::Writes) > 0 || self.limit(Budget::LogRows) > 0
    }

    /// Returns what [`Charge::refuse`] stored. The guard answers with it, whatever the handler
    /// returned.
    pub fn refusal(&self) -> Option<Refusal> {
        let refusal = self.refusal.lock();
        refusal.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the refusal, and returns the error with which the part of the request ends. Whatever
    /// callers make of the error, the guard answers with the stored refusal.
    pub fn refuse(&self, refusal: Refusal) -> StoreError {
        let mut held = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        *held = Some(refusal);
        // Not a conflict, which would be retried: another attempt would find no room either.
        StoreError::unavailable("a budget of the namespace is used up")
    }

    fn exceed(&self, budget: Budget) -> StoreError {
        self.refuse(budget.refusal(self.limit(budget), self.now))
    }

    /// Whether this write creates a row of the namespace's log. An update of a row, by which equal
    /// refusals are counted, creates none.
    fn is_new_row(&self, write: &Write) -> bool {
        let creates = |when: &When| !matches!(when, When::At(_));
        matches!(write, Write::Put { key, when, .. } if key.partition == self.log && creates(when))
    }

    /// Returns the writes that count a commit with `rows` new log rows; `is_change` tells whether
    /// it counts as a write.
    fn counting_writes(&self, rows: u64, is_change: bool) -> Vec<(Budget, Write)> {
        let is_counted = is_change && !self.is_write.load(Ordering::Relaxed);
        [(Budget::Writes, is_counted.into()), (Budget::LogRows, rows)]
            .into_iter()
            .filter(|(budget, by)| *by > 0 && self.limit(*budget) > 0)
            .map(|(budget, by)| (budget, self.counting_write(budget, by)))
            .collect()
    }

    fn counting_write(&self, budget: Budget, by: u64) -> Write {
        let start = budget.window_start(self.now);
        let partition = format!("limit/{}/{}", budget.as_str(), self.namespace);
        Write::Count {
            key: RecordKey::new(partition, start.to_string()),
            field: "n".to_owned(),
            by: i64::try_from(by).unwrap_or(i64::MAX),
            min: 0,
            max: i64::try_from(self.limit(budget)).unwrap_or(i64::MAX),
            expires_at: Some(Timestamp::from_unix(start + 2 * budget.seconds())),
        }
    }
}

/// Whether a write only records a request in the audit log or in a rate limit, as all writes about
/// a refusal do. A commit of only such writes is no change: otherwise callers without the right to
/// change anything could use up the writes of the others.
fn is_bookkeeping(write: &Write) -> bool {
    let partition = &write.key().partition;
    let is_of = |kind| partition.starts_with(kind);
    // The deletion of old entries of the log by an owner is a change.
    !matches!(write, Write::Delete { .. }) && (is_of("audit/") || is_of("limit/"))
}

/// A store of records whose commits are charged to a namespace.
pub struct ChargedRecords {
    inner: Arc<dyn Records>,
    charge: Arc<Charge>,
}

impl ChargedRecords {
    /// Wraps a store so that each commit is counted.
    pub const fn new(inner: Arc<dyn Records>, charge: Arc<Charge>) -> Self {
        Self { inner, charge }
    }

    /// Writes the counts in a commit of their own, before the commit that they charge. Fails with
    /// the refusal of the first budget that is used up.
    async fn count_before(
        &self,
        counting: Vec<Write>,
        budgets: &[Budget],
    ) -> Result<(), StoreError> {
        match self.inner.commit_writes(counting).await? {
            Commit::Done(_) => Ok(()),
            Commit::Failed { index, .. } => Err(self.exceed_at(budgets, index)),
        }
    }

    fn exceed_at(&self, budgets: &[Budget], index: usize) -> StoreError {
        let budget = budgets.get(index).copied().unwrap_or(Budget::Writes);
        self.charge.exceed(budget)
    }
}

#[async_trait]
impl Records for ChargedRecords {
    async fn get_many(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get_many(keys).await
    }

    async fn list_page(
        &self,
        partition: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.inner.list_page(partition, prefix, after, limit).await
    }

    async fn commit_writes(&self, mut writes: Vec<Write>) -> Result<Commit, StoreError> {
        let own = writes.len();
        let is_row = |write: &&Write| self.charge.is_new_row(write);
        let rows = writes.iter().filter(is_row).count() as u64;
        let is_change = !writes.iter().all(is_bookkeeping);
        let counting = self.charge.counting_writes(rows, is_change);
        let (budgets, counting): (Vec<_>, Vec<_>) = counting.into_iter().unzip();
        if own + budgets.len() > MAX_WRITES {
            // A commit of maximum size has no room for the counters. If that commit then fails, its
            // count stays, which is on the strict side.
            self.count_before(counting, &budgets).await?;
        } else {
            // Added last, so that a failed condition of the request itself is reported first.
            writes.extend(counting);
        }
        match self.inner.commit_writes(writes).await? {
            Commit::Done(mut revisions) => {
                if is_change {
                    self.charge.is_write.store(true, Ordering::Relaxed);
                }
                revisions.truncate(own);
                Ok(Commit::Done(revisions))
            }
            Commit::Failed { index, .. } if index >= own => {
                Err(self.exceed_at(&budgets, index - own))
            }
            failed @ Commit::Failed { .. } => Ok(failed),
        }
    }

    async fn sweep_expired(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.sweep_expired(limit).await
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.inner.check_health().await
    }
}
