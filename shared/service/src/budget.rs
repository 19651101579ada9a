//! Budgets of namespaces: how much of the service the members, apps and machines of one namespace
//! may use in a minute or an hour, so that no tenant takes the service from the others.
//!
//! Only requests whose callers are proven to belong to the namespace count. Each process counts
//! requests, reads of machines, exports and gate work in its memory, because a count in the store
//! would cost more than a read. (The gate is the security scanner for skills; its work is measured
//! in bytes.) Writes and rows of the audit log are counted in the store, in the commits that the
//! request makes anyway ([`charge`]).

pub mod charge;
mod headers;
mod refused;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_format::words;

use crate::config::Limits;
use crate::error::Refusal;
use crate::model::user::Role;

pub use headers::{FIELDS, LimitState, add_headers};
pub use refused::{FullLimit, RefusedTokens};

const MINUTE: i64 = 60;
const HOUR: i64 = 3600;
/// Unit of the setting for gate work, in bytes: 1 GiB.
const GIB: u64 = 1 << 30;
/// Maximum number of namespaces with counts of their own in one window. All others share one count:
/// no namespace pushes the count of another one out.
const MAX_NAMESPACES: usize = 65_536;
/// Maximum number of grants (consents to apps) of a namespace with counts of their own in one
/// minute. Further ones share one count.
const MAX_GRANTS: usize = 4096;

words! {
    /// A resource that is budgeted for each namespace. The word is its name in header fields, in
    /// record keys and in refusals.
    pub enum Budget {
        /// Requests at `/mcp`, `/admin` and `/console` in a minute (`VAULT_LIMIT_NAMESPACE`).
        Requests = "namespace",
        /// Reads of admitted machines under `/v/` in a minute (`VAULT_LIMIT_NAMESPACE_READS`).
        MachineReads = "namespace-reads",
        /// Requests that change something in a minute (`VAULT_LIMIT_NAMESPACE_WRITES`). Counted in
        /// the store.
        Writes = "namespace-writes",
        /// Rows of the audit log in an hour (`VAULT_LIMIT_NAMESPACE_LOG`). Counted in the store.
        LogRows = "namespace-log",
        /// Bytes that the gate scans in an hour (`VAULT_LIMIT_NAMESPACE_GATE`, in GiB).
        GateWork = "namespace-gate",
        /// Parts of exports in an hour (`VAULT_LIMIT_NAMESPACE_EXPORTS`).
        Exports = "namespace-exports",
    }
}

impl Budget {
    /// Returns the length of the window in which the budget is counted, in seconds.
    pub const fn seconds(self) -> i64 {
        match self {
            Self::Requests | Self::MachineReads | Self::Writes => MINUTE,
            Self::LogRows | Self::GateWork | Self::Exports => HOUR,
        }
    }

    /// Returns the limit of the budget for each namespace, as `limits` sets it; 0 is no limit.
    pub const fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Requests => limits.requests_per_namespace as u64,
            Self::MachineReads => limits.reads_per_namespace as u64,
            Self::Writes => limits.writes_per_namespace as u64,
            Self::LogRows => limits.log_rows_per_namespace as u64,
            Self::GateWork => limits.gate_gib_per_namespace as u64 * GIB,
            Self::Exports => limits.exports_per_namespace as u64,
        }
    }

    /// Returns the sentence for people whose request exceeds the budget.
    const fn detail(self) -> &'static str {
        match self {
            Self::Requests => "This vault has sent too many requests in this minute.",
            Self::MachineReads => "The machines of this vault have read too much in this minute.",
            Self::Writes => "Too much was changed in this vault in this minute.",
            Self::LogRows => {
                "This vault has written too many entries to its audit log in this hour."
            }
            Self::GateWork => {
                "The security checks of this vault have used up their time of this hour."
            }
            Self::Exports => {
                "Too many parts of exports of this vault were downloaded in this hour."
            }
        }
    }

    /// Returns the start of the window that contains `now`, in seconds since 1970.
    fn window_start(self, now: Timestamp) -> i64 {
        now.unix() - now.unix().rem_euclid(self.seconds())
    }

    /// Returns the state of the budget, for the header fields, after `used` of `limit` in the
    /// window of `now`.
    fn state(self, limit: u64, used: u64, now: Timestamp) -> LimitState {
        LimitState {
            name: self.as_str(),
            quota: limit,
            seconds: self.seconds(),
            remaining: limit.saturating_sub(used),
            resets_in: seconds_left(self.window_start(now), self.seconds(), now),
        }
    }

    /// Returns the refusal of a request for which the budget has no room: 429.
    fn refusal(self, limit: u64, now: Timestamp) -> Refusal {
        self.state(limit, limit, now)
            .refusal()
            .detail(self.detail())
    }
}

/// The share of a namespace's budgets that a caller may use. Members and publishers cannot use up
/// what an owner needs to end an abuse, and no app can use up what an owner needs in the console.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    /// A member, in the console or by an app: half of each budget.
    Member,
    /// A publisher, or an app of an owner: three quarters.
    Trusted,
    /// An owner in the console: the whole of each budget.
    OwnerInPerson,
}

impl Rank {
    /// Returns the rank of a user with this role, in the console (`in_person`) or by an app.
    pub fn of(role: Role, in_person: bool) -> Self {
        match (role, in_person) {
            (Role::Owner, true) => Self::OwnerInPerson,
            (Role::Owner, false) | (Role::Publisher, _) => Self::Trusted,
            (Role::Member, _) => Self::Member,
        }
    }

    /// Returns the part of a limit that this rank may use, at least 1; 0: no limit.
    pub fn share_of(self, limit: u64) -> u64 {
        let share = match self {
            Self::Member => limit / 2,
            Self::Trusted => limit - limit.div_ceil(4),
            Self::OwnerInPerson => limit,
        };
        share.max(limit.min(1))
    }
}

/// Name of the limit of a grant in the header fields and in refusals.
const GRANT: &str = "grant";

fn seconds_left(start: i64, seconds: i64, now: Timestamp) -> u64 {
    u64::try_from(start + seconds - now.unix()).unwrap_or(1)
}

/// The counts that one process keeps in memory.
#[derive(Debug, Default)]
pub struct Budgets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    minute: WindowCounts,
    hour: WindowCounts,
}

/// The counts of one minute or hour. No count is dropped before its window ends.
#[derive(Debug, Default)]
struct WindowCounts {
    start: i64,
    namespaces: HashMap<NamespaceId, NamespaceCounts>,
    /// Count of all namespaces without counts of their own.
    others: NamespaceCounts,
}

#[derive(Debug, Default)]
struct NamespaceCounts {
    used: [u64; Budget::ALL.len()],
    /// Part of the gate work that is reserved for checks that run.
    reserved: u64,
    grants: HashMap<Box<str>, u64>,
    /// Count of all grants without a count of their own.
    other_grants: u64,
}

impl WindowCounts {
    /// Drops the counts if the window that starts at `start` is a later one.
    fn begin_window(&mut self, start: i64) {
        // A request that is late belongs to a window that is over, and must not drop the counts.
        if self.start < start {
            *self = Self {
                start,
                ..Self::default()
            };
        }
    }

    fn of_namespace(&mut self, namespace: NamespaceId) -> &mut NamespaceCounts {
        if self.namespaces.len() >= MAX_NAMESPACES && !self.namespaces.contains_key(&namespace) {
            return &mut self.others;
        }
        self.namespaces.entry(namespace).or_default()
    }
}

impl NamespaceCounts {
    fn grant_count(&mut self, grant: &str) -> &mut u64 {
        let is_known = self.grants.contains_key(grant);
        if !is_known && self.grants.len() >= MAX_GRANTS {
            return &mut self.other_grants;
        }
        self.grants.entry(grant.into()).or_default()
    }
}

impl Budgets {
    fn lock_state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave unusable counts, so the lock is used even if it is poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_counts<T>(
        &self,
        namespace: NamespaceId,
        budget: Budget,
        now: Timestamp,
        work: impl FnOnce(&mut NamespaceCounts) -> T,
    ) -> T {
        let mut state = self.lock_state();
        let window = if budget.seconds() == MINUTE {
            &mut state.minute
        } else {
            &mut state.hour
        };
        window.begin_window(budget.window_start(now));
        work(window.of_namespace(namespace))
    }

    /// Counts a request of the namespace, and of the grant or person that it comes from.
    /// Returns the state of both limits. Fails if one of them has no room, and counts nothing then.
    pub fn count_request(
        &self,
        namespace: NamespaceId,
        grant: &str,
        limits: &RequestLimits,
        now: Timestamp,
    ) -> Result<Vec<LimitState>, FullLimit> {
        let budget = Budget::Requests;
        let start = budget.window_start(now);
        self.with_counts(namespace, budget, now, |counts| {
            let mut states = Vec::with_capacity(2);
            let of_namespace = counts.used[budget as usize];
            if limits.per_grant > 0 {
                let count = counts.grant_count(grant);
                let mut state = LimitState {
                    name: GRANT,
                    quota: limits.per_grant,
                    seconds: MINUTE,
                    remaining: 0,
                    resets_in: seconds_left(start, MINUTE, now),
                };
                if *count >= limits.per_grant {
                    return Err(FullLimit {
                        name: GRANT,
                        quota: limits.per_grant,
                        detail: "This app or browser has sent too many requests in this minute.",
                    });
                }
                // A request that the namespace has no room for does not count for the grant.
                if limits.per_namespace == 0 || of_namespace < limits.per_namespace {
                    *count += 1;
                }
                state.remaining = limits.per_grant - *count;
                states.push(state);
            }
            if limits.per_namespace > 0 {
                if of_namespace >= limits.per_namespace {
                    return Err(FullLimit {
                        name: budget.as_str(),
                        quota: limits.per_namespace,
                        detail: budget.detail(),
                    });
                }
                counts.used[budget as usize] += 1;
                states.push(budget.state(limits.per_namespace, of_namespace + 1, now));
            }
            Ok(states)
        })
    }

    /// Counts one unit of a budget. Fails with 429 if it has no room. A limit of 0 counts nothing.
    pub fn count_one(
        &self,
        namespace: NamespaceId,
        budget: Budget,
        limit: u64,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        if limit == 0 {
            return Ok(());
        }
        self.with_counts(namespace, budget, now, |counts| {
            let used = &mut counts.used[budget as usize];
            if *used >= limit {
                return Err(budget.refusal(limit, now));
            }
            *used += 1;
            Ok(())
        })
    }

    /// Reserves up to `most` bytes of gate work for a check before it runs, so that several checks
    /// at once do not exceed the budget together. Only the last one may go beyond it, because a
    /// check cannot stop midway. Returns the number of bytes. Fails with 429 if nothing is left. A
    /// limit of 0 reserves nothing.
    pub fn reserve_gate_work(
        &self,
        namespace: NamespaceId,
        most: u64,
        limit: u64,
        now: Timestamp,
    ) -> Result<u64, Refusal> {
        if limit == 0 {
            return Ok(0);
        }
        let budget = Budget::GateWork;
        self.with_counts(namespace, budget, now, |counts| {
            let unused = limit.saturating_sub(counts.used[budget as usize]);
            let reserved = unused.saturating_sub(counts.reserved).min(most);
            if reserved > 0 {
                counts.reserved += reserved;
                return Ok(reserved);
            }
            let refusal = budget.refusal(limit, now);
            // Checks that run give back what they do not use, usually within a second.
            Err(if unused > 0 {
                refusal.retry_after(1)
            } else {
                refusal
            })
        })
    }

    /// Counts the work that a check did, and frees the `reserved` bytes.
    pub fn settle_gate_work(
        &self,
        namespace: NamespaceId,
        reserved: u64,
        work: u64,
        reserved_at: Timestamp,
    ) {
        let budget = Budget::GateWork;
        let mut state = self.lock_state();
        // For a check that ends in a later hour, the counts with its reservation are gone.
        if state.hour.start != budget.window_start(reserved_at) {
            return;
        }
        let counts = state.hour.of_namespace(namespace);
        counts.reserved = counts.reserved.saturating_sub(reserved);
        let used = &mut counts.used[budget as usize];
        *used = used.saturating_add(work);
    }
}

/// The limits of requests in a minute; 0: no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestLimits {
    /// Requests of each grant, and of each person in the console (`VAULT_LIMIT_GRANT`).
    pub per_grant: u64,
    /// Requests of each namespace (`VAULT_LIMIT_NAMESPACE`): the share of the caller's [`Rank`].
    pub per_namespace: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(n: u64) -> NamespaceId {
        NamespaceId::from_parts(1_795_219_200_000, u128::from(n))
    }

    const LIMITS: RequestLimits = RequestLimits {
        per_grant: 2,
        per_namespace: 3,
    };

    /// Counts a request of namespace `n`. Returns what is left for the grant and for the namespace,
    /// or the name of the limit that is reached.
    fn request(budgets: &Budgets, n: u64, grant: &str, at: i64) -> Result<Vec<u64>, String> {
        let now = Timestamp::from_unix(at);
        let counted = budgets.count_request(namespace(n), grant, &LIMITS, now);
        match counted {
            Ok(states) => Ok(states.iter().map(|state| state.remaining).collect()),
            Err(full) => Err(full.refusal(now).to_string()),
        }
    }

    #[test]
    fn requests_count_for_their_grant_and_their_namespace_until_the_minute_ends() {
        let budgets = Budgets::default();
        assert_eq!(request(&budgets, 1, "a", 0), Ok(vec![1, 2]));
        assert_eq!(request(&budgets, 1, "a", 1), Ok(vec![0, 1]));
        let app = request(&budgets, 1, "a", 2).unwrap_err();
        assert!(app.starts_with("This app"), "{app}");
        assert_eq!(request(&budgets, 1, "b", 59), Ok(vec![1, 0]));
        let vault = request(&budgets, 1, "b", 59).unwrap_err();
        assert!(vault.starts_with("This vault"), "{vault}");
        // Another namespace has its own limits, and the next minute begins with full ones.
        assert_eq!(request(&budgets, 2, "b", 59), Ok(vec![1, 2]));
        assert_eq!(request(&budgets, 1, "b", 60), Ok(vec![1, 2]));
    }

    #[test]
    fn what_others_use_up_leaves_room_for_an_owner_in_person() {
        let ranks = [
            Rank::of(Role::Member, true),
            Rank::of(Role::Publisher, true),
            Rank::of(Role::Owner, false),
            Rank::of(Role::Owner, true),
        ];
        assert_eq!(ranks.map(|rank| rank.share_of(600)), [300, 450, 450, 600]);
        assert_eq!(ranks.map(|rank| rank.share_of(1)), [1; 4]);
        assert_eq!(ranks.map(|rank| rank.share_of(0)), [0; 4]);
        let budgets = Budgets::default();
        let now = Timestamp::from_unix(0);
        let count = |rank: Rank| {
            let limit = rank.share_of(8);
            budgets.count_one(namespace(1), Budget::Exports, limit, now)
        };
        let uses = |rank| (0..9).filter(|_| count(rank).is_ok()).count();
        // Each rank may continue where the one before had to stop.
        assert_eq!(ranks.map(uses), [4, 2, 0, 2]);
    }

    #[test]
    fn a_late_request_drops_no_counts() {
        let budgets = Budgets::default();
        let count = |at| {
            let now = Timestamp::from_unix(at);
            budgets.count_one(namespace(1), Budget::MachineReads, 1, now)
        };
        count(60).unwrap();
        assert!(count(59).is_err());
        assert!(count(61).is_err(), "the count of the later minute is gone");
    }

    #[test]
    fn a_limit_of_0_is_none() {
        let budgets = Budgets::default();
        let limits = RequestLimits {
            per_grant: 0,
            per_namespace: 0,
        };
        let now = Timestamp::from_unix(0);
        for _ in 0..10 {
            let counted = budgets.count_request(namespace(1), "a", &limits, now);
            assert_eq!(counted.unwrap(), []);
            let one = budgets.count_one(namespace(1), Budget::Exports, 0, now);
            assert!(one.is_ok());
        }
    }

    #[test]
    fn more_grants_or_namespaces_than_are_counted_alone_share_one_count() {
        let budgets = Budgets::default();
        let limits = RequestLimits {
            per_grant: 2,
            per_namespace: 0,
        };
        let now = Timestamp::from_unix(0);
        let admit = |n, grant: usize| {
            let grant = grant.to_string();
            budgets
                .count_request(namespace(n), &grant, &limits, now)
                .is_ok()
        };
        let admitted = (0..MAX_GRANTS + 10).filter(|grant| admit(1, *grant));
        assert_eq!(admitted.count(), MAX_GRANTS + 2);
        assert!(admit(1, 0), "the first has its count still");
        let count = |n| {
            budgets
                .count_one(namespace(n), Budget::MachineReads, 1, now)
                .is_ok()
        };
        let admitted = (2..MAX_NAMESPACES as u64 + 20).filter(|n| count(*n));
        // The namespace above has one of the counts; the shared count admits one more request.
        assert_eq!(admitted.count(), MAX_NAMESPACES - 1 + 1);
        assert!(!count(2), "nothing was forgotten to make room");
    }

    #[test]
    fn checks_at_once_do_not_exceed_the_gate_work_together() {
        let budgets = Budgets::default();
        let now = Timestamp::from_unix(3590);
        let reserve = |now| budgets.reserve_gate_work(namespace(1), 60, 100, now);
        assert_eq!(reserve(now).unwrap(), 60);
        assert_eq!(reserve(now).unwrap(), 40);
        let wait = |refusal: Refusal| {
            let wait = refusal.header_value(&axum::http::header::RETRY_AFTER);
            wait.unwrap().to_str().unwrap().to_owned()
        };
        // Both release the work that they reserved and did not do.
        assert_eq!(wait(reserve(now).unwrap_err()), "1");
        budgets.settle_gate_work(namespace(1), 60, 41, now);
        assert_eq!(reserve(now).unwrap(), 19);
        budgets.settle_gate_work(namespace(1), 40, 0, now);
        budgets.settle_gate_work(namespace(1), 19, 60, now);
        assert_eq!(wait(reserve(now).unwrap_err()), "10");
        // A check that ends in a later hour does not change the counts of that hour.
        let next = Timestamp::from_unix(3600);
        assert_eq!(reserve(next).unwrap(), 60);
        budgets.settle_gate_work(namespace(1), 60, 99, now);
        assert_eq!(reserve(next).unwrap(), 40);
    }
}
