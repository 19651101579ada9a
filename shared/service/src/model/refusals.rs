//! Refusals in the audit log. Equal refusals of one actor within a minute are one entry with a
//! count. Refusals about more than a few targets that do not exist are one entry too, without the
//! targets. So an actor cannot fill the log with made-up targets; but a target that exists, or one
//! that the service itself names, is always in the log.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `limit/refused/<sha256 of the refusal>` | first second of the minute | a mark: the entry of the minute, gone two minutes later |
//!
//! The first refusal of a minute is written at once, in whichever process it happens. Later equal
//! ones are counted in memory, and the count is written whenever it has doubled. The remainder is
//! written with a later refusal in the same log, or by [`RefusalCounts::write_counts`]. So a caller
//! who is refused all the time causes a few writes a minute, and a process that dies loses at most
//! half of a count, never the entry.

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
/// Maximum number of entries whose counts a process keeps in memory. Further refusals are added to
/// their entries one by one.
const MAX_COUNTED: usize = 16_384;
/// Maximum number of entries of one actor in a minute, in one process, about targets that may not
/// exist. Further refusals about such targets become one entry for each action and outcome.
const MAX_OF_ACTOR: usize = 20;
/// Target of the entry for refusals beyond [`MAX_OF_ACTOR`]. No id or name contains a blank.
const FURTHER_TARGETS: &str = "further targets";
/// Maximum number of ended counts that are written along with another refusal.
const MAX_ALONG: usize = 20;
/// Name of the action whose refusals are never combined.
const EACH_RECORDED: &str = "user.scopes";

/// Origin of the target of a refusal.
#[derive(Clone, Debug)]
pub enum NamedBy {
    /// The service: the target is the name of one of its tools, or from one of its records.
    Service,
    /// The caller, who may have made it up. The target is looked up in this vault; without a vault
    /// it counts as made up.
    Caller(Option<NamespaceRef>),
}

/// A refused request of an authenticated actor.
#[derive(Clone, Debug)]
pub struct RefusedRequest {
    /// Namespace in whose log it is recorded; `None` for the log of the service.
    pub namespace: Option<NamespaceId>,
    /// Sender of the request, as the log names it.
    pub actor: Actor,
    /// Name of the requested action.
    pub action: String,
    /// Target and values for the entry.
    pub change: Change,
    /// Origin of the target: a caller may have made it up.
    pub named_by: NamedBy,
    /// Error code of the refusal.
    pub outcome: String,
}

impl RefusedRequest {
    /// Returns a hash that is the same for equal refusals. The source address is not part of it,
    /// because an actor could use another one for each request.
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

    fn log(&self) -> String {
        audit::audit_partition(self.namespace.as_ref())
    }

    /// Whether the target is certainly not made up by the caller. True without a target too: there
    /// are only as many such refusals as actions and error codes.
    async fn has_known_target(&self, ports: &Ports) -> Result<bool, StoreError> {
        match (&self.named_by, &self.change.target) {
            (_, None) | (NamedBy::Service, _) => Ok(true),
            (NamedBy::Caller(None), Some(_)) => Ok(false),
            (NamedBy::Caller(Some(vault)), Some(target)) => {
                target_exists(ports, vault, self, target).await
            }
        }
    }

    /// Returns a hash of the actor and the log.
    fn actor_identity(&self) -> Digest {
        let log = self.log();
        let client = self.actor.client.as_deref().unwrap_or_default();
        // The parts contain no line feed, because ids of users and clients have none.
        Digest::of(format!("{log}\n{}\n{client}", self.actor.user).as_bytes())
    }

    /// Returns the refusal without its target, as it is counted together with refusals about other
    /// targets.
    fn without_target(&self) -> Self {
        Self {
            change: Change::about(FURTHER_TARGETS),
            ..self.clone()
        }
    }

    /// Returns the write of an entry for this refusal alone.
    pub fn entry_write(&self, ports: &Ports) -> Result<Write, StoreError> {
        let (namespace, change) = (self.namespace.as_ref(), self.change.clone());
        ports.audit_entry(namespace, &self.actor, &self.action, change, &self.outcome)
    }
}

/// The record of a minute that leads to the entry in which equal refusals are counted.
#[derive(Debug, Deserialize, Serialize)]
struct Mark {
    partition: String,
    key: String,
}

/// Counts of refusals that this process keeps in memory.
#[derive(Debug, Default)]
pub struct RefusalCounts {
    equal: Mutex<HashMap<Digest, Counted>>,
    actors: Mutex<ActorEntries>,
}

/// Number of entries that each actor has caused in one minute.
#[derive(Debug, Default)]
struct ActorEntries {
    minute: i64,
    numbers: HashMap<Digest, usize>,
}

impl ActorEntries {
    /// Counts another entry of an actor; false if the actor has reached [`MAX_OF_ACTOR`].
    fn count_entry(&mut self, actor: Digest, minute: i64) -> bool {
        // A refusal that arrives late counts in the latest minute, so that it does not reset the
        // counts.
        if self.minute < minute {
            self.minute = minute;
            self.numbers.clear();
        }
        // When the map is full, further actors get no entries with made-up targets.
        if self.numbers.len() >= MAX_COUNTED && !self.numbers.contains_key(&actor) {
            return false;
        }
        let number = self.numbers.entry(actor).or_default();
        *number += 1;
        *number <= MAX_OF_ACTOR
    }
}

/// Equal refusals of one minute.
#[derive(Debug)]
struct Counted {
    /// First second of the minute.
    minute: i64,
    /// Key of the entry in the audit log; `None` until it is written.
    entry: Option<RecordKey>,
    /// Whether writing the entry has failed, so that the next refusal writes it.
    is_unwritten: bool,
    /// Number of refusals that this process has written.
    written: u64,
    /// Refusals that are counted only in memory.
    pending: Pending,
}

/// Number and last time of refusals that are not written yet.
#[derive(Clone, Copy, Debug)]
struct Pending {
    number: u64,
    last_at: Timestamp,
}

/// The key of an entry, and the refusals to add to its count.
type Addition = (RecordKey, Pending);

/// Next step for a refusal.
enum Step {
    /// The refusal is the first of its minute in this process, so its entry is written. A remainder
    /// of an earlier minute is added to the entry of that minute.
    Write(Option<Addition>),
    /// The count of refusals has doubled since it was last written, so it is written again.
    Add(Addition),
    /// The refusal was only counted in memory; nothing is written now.
    Done,
}

impl RefusalCounts {
    /// Records a refusal in the audit log, or only counts it in memory.
    pub async fn record(&self, ports: &Ports, refused: &RefusedRequest) -> Result<(), StoreError> {
        if refused.action == EACH_RECORDED {
            let entry = refused.entry_write(ports)?;
            return ports.records.commit_writes(vec![entry]).await.map(|_| ());
        }
        let now = ports.now();
        let refused = &*self.limit_targets(ports, refused, now).await?;
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
        // Only counts of the same log, so that no request waits for the log of another namespace.
        let log = refused.log();
        for ended in self.take_ended(now, MAX_ALONG, |entry| entry.partition == log) {
            add_to_entry(ports, &ended).await?;
        }
        Ok(())
    }

    /// Writes all counts of minutes that are over, or, at the end of a process (`is_ending`), all
    /// counts. Continues after a failure, and fails with the last error.
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

    /// Returns the refusal as it is to be recorded: without its target if the actor has caused many
    /// entries in this minute and the target does not exist.
    async fn limit_targets<'r>(
        &self,
        ports: &Ports,
        refused: &'r RefusedRequest,
        now: Timestamp,
    ) -> Result<Cow<'r, RefusedRequest>, StoreError> {
        let (identity, minute) = (refused.identity()?, minute_of(now));
        let counted = self
            .lock_counts()
            .get(&identity)
            .map(|counted| counted.minute);
        if counted == Some(minute) {
            return Ok(Cow::Borrowed(refused)); // it needs no entry of its own
        }
        if self.count_entry(refused, minute) || refused.has_known_target(ports).await? {
            return Ok(Cow::Borrowed(refused));
        }
        Ok(Cow::Owned(refused.without_target()))
    }

    /// Counts another entry of the actor of a refusal; false if the actor has reached
    /// [`MAX_OF_ACTOR`].
    fn count_entry(&self, refused: &RefusedRequest, minute: i64) -> bool {
        let mut actors = self.actors.lock().unwrap_or_else(PoisonError::into_inner);
        actors.count_entry(refused.actor_identity(), minute)
    }

    fn lock_counts(&self) -> MutexGuard<'_, HashMap<Digest, Counted>> {
        self.equal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, identity: Digest, now: Timestamp) -> Step {
        let mut counts = self.lock_counts();
        let minute = minute_of(now);
        let counted = counts.get_mut(&identity);
        let Some(counted) = counted.filter(|counted| counted.minute == minute) else {
            let before = counts.remove(&identity);
            if counts.len() < MAX_COUNTED {
                counts.insert(identity, Counted::new(now));
            }
            return Step::Write(before.and_then(Counted::into_refusals_to_add));
        };
        if std::mem::take(&mut counted.is_unwritten) {
            return Step::Write(None);
        }
        counted.pending.number += 1;
        counted.pending.last_at = now;
        match &counted.entry {
            Some(entry) if counted.pending.number >= counted.written => {
                let addition = (entry.clone(), counted.pending);
                counted.written += counted.pending.number;
                counted.pending.number = 0;
                Step::Add(addition)
            }
            _ => Step::Done,
        }
    }

    /// Counts a refusal whose entry could not be written, so that the next equal one of its minute
    /// writes the entry.
    fn return_unwritten(&self, identity: Digest, now: Timestamp) {
        let mut counts = self.lock_counts();
        let counted = counts.get_mut(&identity);
        if let Some(counted) = counted.filter(|counted| counted.minute == minute_of(now)) {
            counted.is_unwritten = true;
            counted.pending.number += 1;
        }
    }

    fn remember_entry(&self, identity: Digest, entry: RecordKey, now: Timestamp) {
        let mut counts = self.lock_counts();
        let counted = counts.get_mut(&identity);
        if let Some(counted) = counted.filter(|counted| counted.minute == minute_of(now)) {
            counted.entry = Some(entry);
        }
    }

    /// Removes up to `most` counts of minutes before `now` from memory, of entries that `is_wanted`
    /// accepts, and returns what has to be added to the entries.
    fn take_ended(
        &self,
        now: Timestamp,
        most: usize,
        is_wanted: impl Fn(&RecordKey) -> bool,
    ) -> Vec<Addition> {
        let minute = minute_of(now);
        let mut taken = 0;
        let mut counts = self.lock_counts();
        let ended = counts.extract_if(|_, counted| {
            let is_here = counted.entry.as_ref().is_none_or(&is_wanted);
            let is_taken = counted.minute < minute && taken < most && is_here;
            taken += usize::from(is_taken && counted.pending.number > 0);
            is_taken
        });
        ended
            .filter_map(|(_, counted)| counted.into_refusals_to_add())
            .collect()
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

    /// Returns the refusals to add to the entry; `None` if there are none, or no entry is known.
    fn into_refusals_to_add(self) -> Option<Addition> {
        let entry = self.entry.filter(|_| self.pending.number > 0)?;
        Some((entry, self.pending))
    }
}

fn minute_of(now: Timestamp) -> i64 {
    now.unix() - now.unix().rem_euclid(MINUTE)
}

/// Writes the entry of a minute, or adds to the entry that another process has written. Returns its
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
        // Only if there is no mark of this minute: otherwise another process has written the entry.
        When::Absent,
        until,
    );
    match ports.records.commit_writes(vec![mark, entry]).await {
        Ok(Commit::Done(_)) => return Ok(key),
        Ok(Commit::Failed { .. }) | Err(StoreError::Conflict) => {}
        Err(error) => return Err(error),
    }
    let mark = ports.get::<Mark>(&mark_key).await?;
    // The other process has not written the entry after all.
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
