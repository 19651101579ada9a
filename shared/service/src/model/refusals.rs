//! Refusals in the audit log: equal ones of one actor within a minute are one entry with a count, and
//! so are those about an endless series of targets that do not exist. A target that exists is named
//! however many others an actor names before it, and so is what the service itself names.
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

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::NamespaceId;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, Document, RecordKey, When, Write};

use super::audit::{self, Actor, Change, Entry};
use super::namespace::NamespaceRef;
use crate::ports::Ports;
use crate::transaction::Transaction;

mod target;

use target::target_exists;

/// Length of the window in which equal refusals are one entry, in seconds.
const MINUTE: i64 = 60;
/// Most entries whose counts a process holds in memory. Further refusals are added to their entries
/// one by one.
const MAX_COUNTED: usize = 16_384;
/// Most entries of one actor in a minute, in one process, about targets that need not exist. Further
/// refusals about such targets are one entry for each action and outcome.
const MAX_OF_ACTOR: usize = 20;
/// Target of the entry of these further refusals. No id and no name has a blank.
const FURTHER_TARGETS: &str = "further targets";
/// Most counts that are written along with another refusal.
const MAX_ALONG: usize = 20;
/// Action each of whose requests has an entry of its own.
const EACH_RECORDED: &str = "user.scopes";

/// Origin of the target that a refusal names.
#[derive(Clone, Debug)]
pub enum NamedBy {
    /// The service: the name of one of its tools, or what it has read from a record.
    Service,
    /// The caller, who may have made it up. It is looked up in this vault; without one it counts as
    /// made up.
    Caller(Option<NamespaceRef>),
}

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
    /// Origin of the target.
    pub named_by: NamedBy,
    /// The code of the refusal.
    pub outcome: String,
}

impl RefusedRequest {
    /// Returns the hash of everything in which equal refusals agree. The source is not part of it:
    /// an actor could have an address for each request.
    fn identity(&self) -> Result<Digest, StoreError> {
        let change = &self.change;
        let text = serde_json::to_vec(&(
            self.log(),
            (&self.actor.user, &self.actor.client),
            (&self.action, &self.outcome),
            (&change.target, &change.before, &change.after),
        ));
        let text = text.map_err(|error| StoreError::invalid(error.to_string()))?;
        Ok(Digest::of(&text))
    }

    /// Returns the partition of the log.
    fn log(&self) -> String {
        audit::audit_partition(self.namespace.as_ref())
    }

    /// Returns whether its target is none that its caller has made up. A refusal without a target is
    /// named too: there are no more of them than actions and reasons.
    async fn has_known_target(&self, ports: &Ports) -> Result<bool, StoreError> {
        match (&self.named_by, &self.change.target) {
            (_, None) | (NamedBy::Service, _) => Ok(true),
            (NamedBy::Caller(None), Some(_)) => Ok(false),
            (NamedBy::Caller(Some(vault)), Some(target)) => {
                target_exists(ports, vault, self, target).await
            }
        }
    }

    /// Returns the hash of the actor and the log.
    fn actor_identity(&self) -> Digest {
        let log = self.log();
        let client = self.actor.client.as_deref().unwrap_or_default();
        // A text from a caller has no line feed: ids of users and clients have none.
        Digest::of(format!("{log}\n{}\n{client}", self.actor.user).as_bytes())
    }

    /// Returns the refusal as it is counted with those about other targets.
    fn without_target(&self) -> Self {
        Self {
            change: Change::about(FURTHER_TARGETS),
            ..self.clone()
        }
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
pub struct RefusalCounts {
    equal: Mutex<HashMap<Digest, Counted>>,
    actors: Mutex<ActorEntries>,
}

/// How many entries each actor has caused in one minute.
#[derive(Debug, Default)]
struct ActorEntries {
    minute: i64,
    numbers: HashMap<Digest, usize>,
}

impl ActorEntries {
    /// Counts one more entry of an actor; false if the actor has had as many as there may be.
    fn count_entry(&mut self, actor: Digest, minute: i64) -> bool {
        // A refusal that is late counts in the latest minute: it must not begin the count anew.
        if self.minute < minute {
            self.minute = minute;
            self.numbers.clear();
        }
        // Beyond the bound of the map, unknown actors have no entries with targets.
        if self.numbers.len() >= MAX_COUNTED && !self.numbers.contains_key(&actor) {
            return false;
        }
        let number = self.numbers.entry(actor).or_default();
        *number += 1;
        *number <= MAX_OF_ACTOR
    }
}

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
        let now = ports.now();
        let refused = &*self.within_bound(ports, refused, now).await?;
        let identity = refused.identity()?;
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
        let log = refused.log();
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

    /// Returns the refusal as it is recorded: if its actor has caused many entries in this minute, and
    /// its target does not exist, as one without its target.
    async fn within_bound<'r>(
        &self,
        ports: &Ports,
        refused: &'r RefusedRequest,
        now: Timestamp,
    ) -> Result<Cow<'r, RefusedRequest>, StoreError> {
        let (identity, minute) = (refused.identity()?, minute_of(now));
        let held = self.lock_counts().get(&identity).map(|held| held.minute);
        if held == Some(minute) {
            return Ok(Cow::Borrowed(refused)); // it needs no entry of its own
        }
        if self.count_entry(refused, minute) || refused.has_known_target(ports).await? {
            return Ok(Cow::Borrowed(refused));
        }
        Ok(Cow::Owned(refused.without_target()))
    }

    /// Counts one more entry of the actor of a refusal; false if the actor has had as many as there
    /// may be.
    fn count_entry(&self, refused: &RefusedRequest, minute: i64) -> bool {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        actors.count_entry(refused.actor_identity(), minute)
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<Digest, Counted>> {
        self.equal.lock().unwrap_or_else(PoisonError::into_inner)
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
mod tests;
