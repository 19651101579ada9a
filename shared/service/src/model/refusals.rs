//! Refusals in the audit log: equal ones of one actor within a minute are one entry with a count.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/refused/<sha256 of the refusal>` | first second of the minute | a mark: the entry of the minute, gone two minutes later |
//!
//! The first refusal of a minute is written at once, in whichever process it happens. Equal ones
//! after it are counted in memory, and written whenever their number has doubled. What is left is
//! written with a later refusal in the same log, or by [`RefusalCounts::write_counts`]. So a caller
//! who is refused without end causes a few writes a minute, and a process that ends without a
//! warning loses at most half of a count, never the entry.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, Document, RecordKey, When, Write};

use super::audit::{self, Actor, Change, Entry};
use crate::ports::Ports;
use crate::transaction::Transaction;

/// Length of the window in which equal refusals are one entry, in seconds.
const MINUTE: i64 = 60;
/// Most entries whose counts a process holds in memory. Further refusals are added to their entries
/// one by one.
const MAX_COUNTED: usize = 16_384;
/// Most counts that are written along with another refusal.
const MAX_ALONG: usize = 20;
/// Action each of whose requests has an entry of its own.
const EACH_RECORDED: &str = "user.scopes";

/// A refused request of a known actor.
#[derive(Clone, Debug)]
pub struct RefusedRequest {
    /// Namespace in whose log it is recorded; `None` for the log of the service.
    pub namespace: Option<NamespaceId>,
    /// The actor.
    pub actor: Actor,
    /// The requested action.
    pub action: String,
    /// The target, and what else is recorded.
    pub change: Change,
    /// The code of the refusal.
    pub outcome: String,
}

impl RefusedRequest {
    /// Returns the hash of everything in which equal refusals agree. The source is not part of it:
    /// an actor could have an address for each request.
    fn identity(&self) -> Result<Digest, StoreError> {
        let change = &self.change;
        let text = serde_json::to_vec(&(
            audit::audit_partition(self.namespace.as_ref()),
            (&self.actor.user, &self.actor.client),
            (&self.action, &self.outcome),
            (&change.target, &change.before, &change.after),
        ));
        let text = text.map_err(|error| StoreError::invalid(error.to_string()))?;
        Ok(Digest::of(&text))
    }

    /// Returns the entry as a write of its own, for the commit of something else.
    pub fn entry_write(&self, ports: &Ports) -> Result<Write, StoreError> {
        audit::entry_write(
            ports,
            self.namespace.as_ref(),
            &self.actor,
            &self.action,
            self.change.clone(),
            &self.outcome,
        )
    }
}

/// The entry in which the refusals of a minute are counted.
#[derive(Debug, Deserialize, Serialize)]
struct Mark {
    partition: String,
    key: String,
}

/// Counts of equal refusals in this process.
#[derive(Debug, Default)]
pub struct RefusalCounts(Mutex<HashMap<Digest, Counted>>);

/// The refusals of one minute that are equal.
#[derive(Debug)]
struct Counted {
    /// First second of the minute.
    minute: i64,
    /// Their entry; `None` until it is written.
    entry: Option<RecordKey>,
    /// Whether writing the entry has failed, so that the next refusal writes it.
    is_unwritten: bool,
    /// Number that this process has written.
    written: u64,
    /// Those that are counted here alone.
    pending: Pending,
}

/// Refusals that are not written yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    last_at: Timestamp,
}

/// Refusals that have to be added to an entry.
type Addition = (RecordKey, Pending);

/// Step that a refusal needs.
enum Step {
    /// It is the first of its minute in this process; what an earlier minute has left is added to
    /// that one's entry.
    Write(Option<Addition>),
    /// The count has doubled.
    Add(Addition),
    /// It is counted.
    Done,
}

impl RefusalCounts {
    /// Records a refusal.
    pub async fn record(&self, ports: &Ports, refused: &RefusedRequest) -> Result<(), StoreError> {
        if refused.action == EACH_RECORDED {
            let entry = refused.entry_write(ports)?;
            return ports.records.commit_writes(vec![entry]).await.map(|_| ());
        }
        let (identity, now) = (refused.identity()?, ports.now());
        match self.count(identity, now) {
            Step::Done => {}
            Step::Add(addition) => add_to_entry(ports, &addition).await?,
            Step::Write(left) => {
                let written = write_first(ports, refused, identity, now).await;
                match written {
                    Ok(entry) => self.remember_entry(identity, entry, now),
                    Err(error) => {
                        self.return_unwritten(identity, now);
                        return Err(error);
                    }
                }
                if let Some(left) = left {
                    add_to_entry(ports, &left).await?;
                }
            }
        }
        // Those of the same log alone, so that nobody's request waits for the log of somebody else.
        let log = audit::audit_partition(refused.namespace.as_ref());
        for ended in self.take_ended(now, MAX_ALONG, |entry| entry.partition == log) {
            add_to_entry(ports, &ended).await?;
        }
        Ok(())
    }

    /// Writes all counts of minutes that are over, or all of them at the end of a process. One that
    /// cannot be written keeps no other from the log; fails with the last error.
    pub async fn write_counts(&self, ports: &Ports, is_ending: bool) -> Result<(), StoreError> {
        let now = ports.now().plus_seconds(if is_ending { MINUTE } else { 0 });
        let mut outcome = Ok(());
        for ended in self.take_ended(now, usize::MAX, |_| true) {
            if let Err(error) = add_to_entry(ports, &ended).await {
                outcome = Err(error);
            }
        }
        outcome
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<Digest, Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refusal. Returns what has to be written.
    fn count(&self, identity: Digest, now: Timestamp) -> Step {
        let mut counts = self.lock_counts();
        let minute = minute_of(now);
        let held = counts.get_mut(&identity);
        let Some(held) = held.filter(|held| held.minute == minute) else {
            let before = counts.remove(&identity);
            if counts.len() < MAX_COUNTED {
                counts.insert(identity, Counted::new(now));
            }
            return Step::Write(before.and_then(Counted::into_addition));
        };
        if std::mem::take(&mut held.is_unwritten) {
            return Step::Write(None);
        }
        held.pending.number += 1;
        held.pending.last_at = now;
        match &held.entry {
            Some(entry) if held.pending.number >= held.written => {
                let addition = (entry.clone(), held.pending);
                held.written += held.pending.number;
                held.pending.number = 0;
                Step::Add(addition)
            }
            _ => Step::Done,
        }
    }

    /// Counts a refusal whose entry could not be written with the equal ones of its minute. The next
    /// of them writes the entry.
    fn return_unwritten(&self, identity: Digest, now: Timestamp) {
        let mut counts = self.lock_counts();
        let held = counts.get_mut(&identity);
        if let Some(held) = held.filter(|held| held.minute == minute_of(now)) {
            held.is_unwritten = true;
            held.pending.number += 1;
        }
    }

    fn remember_entry(&self, identity: Digest, entry: RecordKey, now: Timestamp) {
        let mut counts = self.lock_counts();
        let held = counts.get_mut(&identity);
        if let Some(held) = held.filter(|held| held.minute == minute_of(now)) {
            held.entry = Some(entry);
        }
    }

    /// Takes up to `most` counts of minutes before `now` from memory, of entries that `is_wanted`
    /// accepts, with what has to be added.
    fn take_ended(
        &self,
        now: Timestamp,
        most: usize,
        is_wanted: impl Fn(&RecordKey) -> bool,
    ) -> Vec<Addition> {
        let minute = minute_of(now);
        let mut taken = 0;
        let mut counts = self.lock_counts();
        let ended = counts.extract_if(|_, held| {
            let is_here = held.entry.as_ref().is_none_or(&is_wanted);
            let is_taken = held.minute < minute && taken < most && is_here;
            taken += usize::from(is_taken && held.pending.number > 0);
            is_taken
        });
        ended.filter_map(|(_, held)| held.into_addition()).collect()
    }
}

impl Counted {
    fn new(now: Timestamp) -> Self {
        Self {
            minute: minute_of(now),
            entry: None,
            is_unwritten: false,
            written: 1,
            pending: Pending {
                number: 0,
                last_at: now,
            },
        }
    }

    /// Returns what has to be added to the entry, if it is known.
    fn into_addition(self) -> Option<Addition> {
        let entry = self.entry.filter(|_| self.pending.number > 0)?;
        Some((entry, self.pending))
    }
}

fn minute_of(now: Timestamp) -> i64 {
    now.unix() - now.unix().rem_euclid(MINUTE)
}

/// Writes the entry of a minute, or adds to the one that another process has written. Returns its
/// key.
async fn write_first(
    ports: &Ports,
    refused: &RefusedRequest,
    identity: Digest,
    now: Timestamp,
) -> Result<RecordKey, StoreError> {
    let entry = refused.entry_write(ports)?;
    let key = entry.key().clone();
    let minute = minute_of(now);
    let mark_key = RecordKey::new(format!("limit/refused/{identity}"), minute.to_string());
    let mark = Mark {
        partition: key.partition.clone(),
        key: key.key.clone(),
    };
    let until = Timestamp::from_unix(minute + 3 * MINUTE);
    let mark = Write::put_until(
        mark_key.clone(),
        Document::from_value(&mark)?,
        // There may be no mark of this minute yet: an equal refusal has the entry otherwise.
        When::Absent,
        until,
    );
    match ports.records.commit_writes(vec![mark, entry]).await {
        Ok(Commit::Done(_)) => return Ok(key),
        Ok(Commit::Failed { .. }) | Err(StoreError::Conflict) => {}
        Err(error) => return Err(error),
    }
    let mark = ports.get::<Mark>(&mark_key).await?;
    // The other writer has failed after all.
    let mark = mark.ok_or(StoreError::Conflict)?.value;
    let key = RecordKey::new(mark.partition, mark.key);
    let pending = Pending {
        number: 1,
        last_at: now,
    };
    add_to_entry(ports, &(key.clone(), pending)).await?;
    Ok(key)
}

/// Adds refusals to the count of their entry. Does nothing if the entry was deleted.
async fn add_to_entry(ports: &Ports, (key, pending): &Addition) -> Result<(), StoreError> {
    let add = async |tx: Transaction<'_>| {
        let Some(stored) = tx.get::<Entry>(key).await? else {
            return Ok(());
        };
        let mut entry = stored.value;
        let count = entry.count.unwrap_or(1);
        entry.count = Some(count.saturating_add(pending.number));
        let last_at = entry.last_at.unwrap_or(entry.at);
        entry.last_at = Some(last_at.max(pending.last_at));
        tx.write(Write::Put {
            key: key.clone(),
            document: Document::from_value(&entry)?,
            expires_at: stored.expires_at,
            when: When::At(stored.revision),
        });
        Ok::<_, StoreError>(())
    };
    ports.change(add).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use async_trait::async_trait;
    use vault_testing::TestClock;
    use vault_testing::memory::Memory;
    use vault_testing::memory::hooked::{Call, Hook, Hooked};

    use super::*;

    /// Counts commits, and fails them while the store is down.
    #[derive(Default)]
    struct Commits(AtomicUsize, AtomicBool);

    #[async_trait]
    impl Hook for Commits {
        async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
            if matches!(call, Call::Commit(_)) {
                self.0.fetch_add(1, Ordering::Relaxed);
                if self.1.load(Ordering::Relaxed) {
                    return Err(StoreError::unavailable("down"));
                }
            }
            Ok(())
        }
    }

    struct Place {
        clock: Arc<TestClock>,
        commits: Arc<Commits>,
        ports: Ports,
    }

    impl Place {
        fn new() -> Self {
            let at: Timestamp = "2026-11-21T02:00:10Z".parse().unwrap();
            let clock = Arc::new(TestClock::new(at));
            let memory = Arc::new(Memory::new(clock.clone()));
            let commits = Arc::new(Commits::default());
            let mut ports = Ports::in_memory(clock.clone());
            ports.records = Hooked::new(&memory, commits.clone());
            Self {
                clock,
                commits,
                ports,
            }
        }

        /// The entries of the service's log: action, count, and seconds from the first to the last.
        async fn entries(&self) -> Vec<(String, Option<u64>, Option<i64>)> {
            let listed = self
                .ports
                .records
                .list_page("audit/service", "", None, 1000);
            let listed = listed.await.unwrap();
            let entries = listed.iter().map(|record| record.read::<Entry>().unwrap());
            entries
                .map(|entry| {
                    let last = entry.last_at.map(|last| last.unix() - entry.at.unix());
                    (entry.action, entry.count, last)
                })
                .collect()
        }
    }

    fn refused(action: &str) -> RefusedRequest {
        RefusedRequest {
            namespace: None,
            actor: Actor {
                user: "usr_1".to_owned(),
                ..Actor::default()
            },
            action: action.to_owned(),
            change: Change::about("usr_2"),
            outcome: "role_insufficient".to_owned(),
        }
    }

    fn one(action: &str, count: u64, last: i64) -> (String, Option<u64>, Option<i64>) {
        (action.to_owned(), Some(count), Some(last))
    }

    fn single(action: &str) -> (String, Option<u64>, Option<i64>) {
        (action.to_owned(), None, None)
    }

    #[tokio::test]
    async fn a_hundred_thousand_equal_refusals_are_one_entry_and_few_writes() {
        let place = Place::new();
        let counts = RefusalCounts::default();
        let refused = refused("audit.list");
        for n in 0..100_000 {
            if n % 10_000 == 0 {
                place.clock.advance(1);
            }
            counts.record(&place.ports, &refused).await.unwrap();
        }
        assert!(place.commits.0.load(Ordering::Relaxed) <= 20);
        place.clock.advance(60);
        counts.write_counts(&place.ports, false).await.unwrap();
        assert_eq!(place.entries().await, [one("audit.list", 100_000, 9)]);
        counts.record(&place.ports, &refused).await.unwrap();
        let next_minute = [one("audit.list", 100_000, 9), single("audit.list")];
        assert_eq!(place.entries().await, next_minute);
    }

    /// Without any later call at least half of a count is in the log.
    #[tokio::test]
    async fn a_process_that_ends_early_loses_at_most_half_of_a_count() {
        for number in [1, 2, 3, 7, 8, 1000] {
            let place = Place::new();
            let counts = RefusalCounts::default();
            for _ in 0..number {
                counts.record(&place.ports, &refused("x.y")).await.unwrap();
            }
            drop(counts);
            let entries = place.entries().await;
            let count = entries[0].1.unwrap_or(1);
            assert!(entries.len() == 1 && count * 2 > number, "{count} {number}");
        }
    }

    #[tokio::test]
    async fn what_differs_has_an_entry_of_its_own() {
        let place = Place::new();
        let counts = RefusalCounts::default();
        let first = refused("x.y");
        let mut others = vec![first.clone(); 4];
        others[0].actor.user = "usr_3".to_owned();
        others[1].actor.client = Some("cli_1".to_owned());
        others[2].change.target = None;
        others[3].outcome = "not_found".to_owned();
        let mut elsewhere = first.clone();
        elsewhere.actor.source = "192.0.2.1".parse().ok();
        for refused in std::iter::once(&first).chain(&others).chain([&elsewhere]) {
            counts.record(&place.ports, refused).await.unwrap();
        }
        let entries = place.entries().await;
        assert_eq!(entries.len(), 5);
        let counted = entries.iter().filter(|(_, count, _)| *count == Some(2));
        assert_eq!(counted.count(), 1);
        // Changes of scopes are recorded one by one.
        for _ in 0..3 {
            let refused = refused("user.scopes");
            counts.record(&place.ports, &refused).await.unwrap();
        }
        assert_eq!(place.entries().await.len(), 8);
    }

    #[tokio::test]
    async fn several_processes_write_one_entry() {
        let place = Place::new();
        let processes = [(); 3].map(|()| RefusalCounts::default());
        for counts in processes.iter().cycle().take(30) {
            counts.record(&place.ports, &refused("x.y")).await.unwrap();
        }
        for counts in &processes {
            counts.write_counts(&place.ports, true).await.unwrap();
        }
        assert_eq!(place.entries().await, [one("x.y", 30, 0)]);
    }

    #[tokio::test]
    async fn an_entry_that_could_not_be_written_is_written_by_the_next_refusal() {
        let place = Place::new();
        let counts = RefusalCounts::default();
        place.commits.1.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            let recorded = counts.record(&place.ports, &refused("x.y")).await;
            assert!(recorded.is_err());
        }
        place.commits.1.store(false, Ordering::Relaxed);
        counts.record(&place.ports, &refused("x.y")).await.unwrap();
        assert_eq!(place.entries().await, [single("x.y")]);
        counts.write_counts(&place.ports, true).await.unwrap();
        assert_eq!(place.entries().await, [one("x.y", 4, 0)]);
    }

    /// Nobody's request waits for the log of a namespace that it is not about.
    #[tokio::test]
    async fn a_refusal_writes_what_is_left_in_its_own_log_alone() {
        let place = Place::new();
        let counts = RefusalCounts::default();
        for _ in 0..7 {
            counts.record(&place.ports, &refused("x.y")).await.unwrap();
        }
        place.clock.advance(60);
        let mut elsewhere = refused("a.b");
        elsewhere.namespace = Some(NamespaceId::from_parts(1_795_219_200_000, 1));
        counts.record(&place.ports, &elsewhere).await.unwrap();
        assert_eq!(place.entries().await, [one("x.y", 4, 0)]);
        counts.write_counts(&place.ports, false).await.unwrap();
        assert_eq!(place.entries().await, [one("x.y", 7, 0)]);
    }

    /// A count that is left over is written with the next refusal in the same log.
    #[tokio::test]
    async fn a_later_refusal_writes_what_is_left() {
        let place = Place::new();
        let counts = RefusalCounts::default();
        for _ in 0..7 {
            counts.record(&place.ports, &refused("x.y")).await.unwrap();
        }
        assert_eq!(place.entries().await, [one("x.y", 4, 0)]);
        place.clock.advance(60);
        counts.record(&place.ports, &refused("a.b")).await.unwrap();
        assert_eq!(place.entries().await, [one("x.y", 7, 0), single("a.b")]);
        assert_eq!(counts.lock_counts().len(), 1);
    }
}
