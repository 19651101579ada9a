//! The audit log of people's and clients' actions. An entry is written in the commit of its action
//! and never changed, but for the count of equal refusals ([`super::refusals`]). It is deleted
//! after 400 days.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `audit/<namespace_id>` | ULID | [`Entry`] |
//! | `audit/service` | ULID | [`Entry`], what operators do, and what accounts without a namespace do |

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use ulid::Ulid;
use vault_format::name::NamespaceId;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::clock::Clock;
use vault_store::random::{Random, ulid_parts};
use vault_store::records::{Document, RecordKey, When, Write};

use crate::ports::Ports;
use crate::transaction::Transaction;

pub use vault_api::AuditEntry as Entry;

/// Time for which an entry is kept, in seconds: 400 days.
pub const RETENTION_SECONDS: i64 = 400 * 24 * 3600;
/// Id of the service itself as an actor.
pub const SERVER: &str = "server";

/// Who performed an action, as the audit log names them.
#[derive(Clone, Debug, Default)]
pub struct Actor {
    /// Id of the user in the namespace; for an operator, or where no namespace is concerned, id of
    /// the account; or `server` for the service itself.
    pub user: String,
    /// Id of the OAuth client that sent the request; `None` for the console and the service.
    pub client: Option<String>,
    /// Address that the request came from; `None` if it is unknown, and for the service itself.
    pub source: Option<IpAddr>,
}

impl Actor {
    /// Returns the service itself as the actor, for example when it publishes its own library.
    pub fn server() -> Self {
        Self {
            user: SERVER.to_owned(),
            ..Self::default()
        }
    }
}

/// The target of an action, with the values that the log shows of it.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Id or name of the thing that the action is about; `None` if there is none.
    pub target: Option<String>,
    /// Values before the change; only those that matter for the log.
    pub before: Option<Value>,
    /// Values after the change; only those that matter for the log.
    pub after: Option<Value>,
}

impl Change {
    /// Creates a change of this target, which may be a device's id, a release or a slug.
    pub fn about(target: &(impl ToString + ?Sized)) -> Self {
        Self {
            target: Some(target.to_string()),
            ..Self::default()
        }
    }

    /// Adds the values before the change; `None` adds none.
    #[must_use]
    pub fn with_before(self, state: impl Into<Option<Value>>) -> Self {
        Self {
            before: state.into(),
            ..self
        }
    }

    /// Adds the values after the change; `None` adds none.
    #[must_use]
    pub fn with_after(self, state: impl Into<Option<Value>>) -> Self {
        Self {
            after: state.into(),
            ..self
        }
    }
}

impl Ports {
    /// Creates an audit entry, as a write for the commit of the action. `outcome` is `done`, or the
    /// error code of a refusal.
    pub fn audit_entry(
        &self,
        namespace: Option<&NamespaceId>,
        actor: &Actor,
        action: &str,
        change: Change,
        outcome: &str,
    ) -> Result<Write, StoreError> {
        let at = self.now();
        let entry = Entry {
            id: next_id(&LAST_ID, &self.clock, &self.random),
            at,
            actor: actor.user.clone(),
            client: actor.client.clone(),
            source: actor.source,
            action: action.to_owned(),
            target: change.target,
            before: change.before,
            after: change.after,
            outcome: outcome.to_owned(),
            count: None,
            last_at: None,
        };
        let key = RecordKey::new(audit_partition(namespace), entry.id.clone());
        // `Absent`, because an entry is never written over.
        Ok(Write::put_until(
            key,
            Document::from_value(&entry)?,
            When::Absent,
            at.plus_seconds(RETENTION_SECONDS),
        ))
    }
}

/// Id of the last entry that this process has created.
static LAST_ID: Mutex<Option<Ulid>> = Mutex::new(None);

/// Creates the id of an entry: a ULID that is above the last one of the same millisecond, so that
/// entries of one process are listed in the order of their creation.
fn next_id(last: &Mutex<Option<Ulid>>, clock: &dyn Clock, random: &dyn Random) -> String {
    let (millis, bits) = ulid_parts(clock, random);
    let fresh = Ulid::from_parts(millis, bits);
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let id = match *last {
        // In another millisecond, even of a clock that was set back, a new random part begins. It
        // has room for all entries of a millisecond, except with a probability of 2^-60.
        Some(last) if last.timestamp_ms() == millis && last >= fresh => {
            last.increment().unwrap_or(fresh)
        }
        _ => fresh,
    };
    *last = Some(id);
    id.to_string()
}

impl Transaction<'_> {
    /// Adds the audit entry of an action that succeeded to the commit.
    pub fn audit(
        &self,
        namespace: Option<&NamespaceId>,
        actor: &Actor,
        action: &str,
        change: Change,
    ) -> Result<(), StoreError> {
        self.write(self.audit_entry(namespace, actor, action, change, "done")?);
        Ok(())
    }
}

/// Writes to the program's log that a refusal could not be recorded in the audit log. The refusal
/// itself stands.
pub fn log_unwritten(written: Result<(), StoreError>) {
    if let Err(error) = written {
        // Logged only: rejecting a request must work while the store does not.
        tracing::error!(
            error = error_chain(&error),
            "a refusal could not be written to the audit log"
        );
    }
}

/// Returns the partition with a namespace's entries; without a namespace, that of the service's
/// log.
pub fn audit_partition(namespace: Option<&NamespaceId>) -> String {
    namespace.map_or_else(|| "audit/service".to_owned(), |id| format!("audit/{id}"))
}

/// Returns a key that sorts before every entry of this second and after every earlier one: the part
/// of a ULID that holds the time.
pub fn key_before_second(since: Timestamp) -> String {
    let millis = u64::try_from(since.unix())
        .unwrap_or(0)
        .saturating_mul(1000);
    let mut text = Ulid::from_parts(millis, 0).to_string();
    // The first ten characters of a ULID are its time, the others are random.
    text.truncate(10);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_store::random::new_ulid;
    use vault_testing::SeededRandom;
    use vault_testing::TestClock;

    #[test]
    fn a_second_begins_between_its_entries_and_those_before() {
        let at: Timestamp = "2026-11-21T02:00:10Z".parse().unwrap();
        let random = SeededRandom::new(1);
        for _ in 0..100 {
            let earlier = new_ulid(&TestClock::new(at.plus_seconds(-1)), &random);
            let same = new_ulid(&TestClock::new(at), &random);
            assert!(
                earlier < key_before_second(at) && key_before_second(at) < same,
                "{earlier} {same}"
            );
        }
        assert!(key_before_second(Timestamp::MIN) < new_ulid(&TestClock::new(at), &random));
    }

    #[test]
    fn entries_of_one_millisecond_are_in_the_order_of_their_creation() {
        let at: Timestamp = "2026-11-21T02:00:10Z".parse().unwrap();
        let (clock, random) = (TestClock::new(at), SeededRandom::new(1));
        let last = Mutex::new(None);
        let mut before = String::new();
        for n in 0..100 {
            let id = next_id(&last, &clock, &random);
            assert!(id > before, "{n}: {id} {before}");
            before = id;
        }
        clock.advance(1);
        assert!(next_id(&last, &clock, &random) > before);
    }
}
