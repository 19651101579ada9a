//! Notices: messages to owners about events, their destinations, and the outbox of those not sent
//! yet.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `notices/<namespace_id>` | `destinations` | [`Destinations`]; with the signing secrets |
//! | `notices/<namespace_id>` | `machines-paused` | the mark that machines were announced lately |
//! | `notices/<namespace_id>` | `ends/<sha256>` | the mark that the end of this release was announced |
//! | `outbox/<namespace_id>` | `<ULID>` | [`Outgoing`], until every delivery of it has ended |
//! | `outbox/<namespace_id>` | `machines` | the mark that machines wait and are not announced yet |
//! | `outbox/<namespace_id>` | `queue` | `{}`, written with each notice, so that two commits at once cannot both take the last place |
//! | `outbox-due/<shard>` | `<namespace_id>` | [`Due`]: when the outbox of a namespace is visited next |
//! | `outbox-due` | `<namespace_id>` | the same, as earlier versions stored it |
//!
//! A notice is written to the outbox in the commit of its event, so it cannot be lost on its own.
//! Background work delivers it later. A visit of an outbox is one run of that work over the notices
//! of one namespace.

use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::{NamespaceId, Slug};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::client::ClientId;
use super::namespace::Namespace;
use super::webhook::{SigningSecret, WebhookAddress};

use crate::config::quota::QuotaKind;
use crate::ports::Ports;

pub use vault_api::NoticeTopic as Topic;

/// Maximum number of webhooks of one namespace.
pub const MAX_WEBHOOKS: usize = 3;
/// Maximum number of notices of one namespace that wait to be sent.
pub const MAX_UNSENT: usize = 100;
/// Maximum number of notices about drafts among the [`MAX_UNSENT`] waiting ones: members cause
/// these, and must not displace other notices.
pub const MAX_UNSENT_DRAFTS: usize = 50;
/// Maximum number of warnings about quotas among the [`MAX_UNSENT`] waiting notices: a member who
/// adds and deletes things across 80 % of a quota causes one each time.
pub const MAX_UNSENT_QUOTAS: usize = 10;
/// Maximum number of notices about waiting machines among the [`MAX_UNSENT`] waiting notices: anybody
/// can enrol machines, and an owner who denies them makes room for more.
pub const MAX_UNSENT_MACHINES: usize = 10;
/// Number of places that only notices about replaced keys may take, so that no other notices can
/// keep owners from learning of a new key.
pub const UNSENT_KEY_PLACES: usize = 20;
/// Minimum time between two notices about waiting machines, in seconds: 15 minutes.
pub const MACHINES_PAUSE_SECONDS: i64 = 15 * 60;
/// Number of days before the expiry of a release at which owners get a notice.
pub const ENDS_NOTICE_DAYS: i64 = 14;
/// Time after which a webhook is switched off if every delivery has failed, in seconds: 7 days.
pub const OFF_AFTER_SECONDS: i64 = 7 * 24 * 3600;
/// Time for which delivery of a notice is tried, in seconds: 7 days.
const KEPT_SECONDS: i64 = 7 * 24 * 3600;
/// Number of partitions over which the list of non-empty outboxes is spread: DynamoDB limits the
/// writes to one partition, and every notice of any namespace writes to this list.
const DUE_SHARDS: u8 = 16;
/// Partition of the list of non-empty outboxes in earlier versions.
const EARLIER_DUE: &str = "outbox-due";
/// Waits before each next attempt of a delivery, in seconds: 1 min, 5 min, 30 min, 2 h, 8 h, 24 h.
const RETRY_SECONDS: [i64; 6] = [60, 300, 1800, 7200, 28_800, 86_400];

/// A machine that waits for admission, as a notice describes it to owners.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Machine {
    /// Name that the machine gave itself, without control characters. It proves nothing.
    pub name: String,
    /// Fingerprint of the machine's key, which the owner compares with the machine's own screen.
    pub fingerprint: String,
}

/// An event, as the member `data` of a notice describes it. It contains no addresses of people or
/// machines.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Event {
    /// Machines wait for an owner.
    MachineWaiting {
        /// Number of all machines that wait; `machines` may list fewer.
        waiting: usize,
        /// The machines that have waited longest, oldest first; not all of them if there are many.
        machines: Vec<Machine>,
    },
    /// A draft waits for a decision.
    DraftWaiting {
        /// Id of the draft: a ULID.
        draft: String,
        /// Kind of request: `propose`, `install`, `remove`, `key_request` or `release`.
        kind: String,
        /// Name of the skill; `None` for key requests and releases.
        skill: Option<String>,
    },
    /// The current release expires soon: machines then install and update nothing until the next
    /// one.
    ReleaseEnds {
        /// Number of the release that expires.
        release: u64,
        /// Time at which the release expires.
        ends_at: Timestamp,
    },
    /// A new root document of the vault (the signed list of its keys) drops a key, asks for fewer
    /// signatures, or gives a key more rights.
    KeyReplaced {
        /// Number of the new root version.
        root_version: u64,
        /// New fingerprint of the vault, which owners compare.
        fingerprint: String,
        /// Differences to the root document before, a line each.
        #[serde(default)]
        changes: Vec<String>,
    },
    /// A payment for the vault failed.
    PaymentFailed {
        /// Time until which bundles are still served; `None` if they no longer are.
        served_until: Option<Timestamp>,
    },
    /// The namespace has reached 80 % of a limit of its quota.
    QuotaNear {
        /// Kind of the limit of which 80 % is used.
        quota: QuotaKind,
        /// Amount in use, in the unit of the limit.
        used: u64,
        /// Value of the limit: bytes for the limit of bytes, and a number for all others.
        limit: u64,
    },
    /// An owner tests a webhook.
    Test {},
}

impl Event {
    /// Returns the topic of the event, by which webhooks filter; `None` for a test, which is never
    /// filtered.
    pub const fn topic(&self) -> Option<Topic> {
        Some(match self {
            Self::MachineWaiting { .. } => Topic::MachineWaiting,
            Self::DraftWaiting { .. } => Topic::DraftWaiting,
            Self::ReleaseEnds { .. } => Topic::ReleaseEnds,
            Self::KeyReplaced { .. } => Topic::KeyReplaced,
            Self::PaymentFailed { .. } => Topic::PaymentFailed,
            Self::QuotaNear { .. } => Topic::QuotaNear,
            Self::Test {} => return None,
        })
    }

    /// Returns the word for the topic in the program's log; `test` for a test.
    pub fn topic_word(&self) -> &'static str {
        self.topic().map_or("test", Topic::as_str)
    }
}

/// The webhooks of a namespace, and whether its owners get mail.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Destinations {
    /// Webhooks, oldest first.
    #[serde(default)]
    pub webhooks: Vec<Webhook>,
    /// Whether every owner gets notices by mail.
    #[serde(default)]
    pub mail: bool,
}

/// An endpoint that receives notices.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Webhook {
    /// Id of the webhook, `whk_…`.
    pub id: String,
    /// Address to which notices are sent.
    pub address: WebhookAddress,
    /// Secret with which notices to the webhook are signed.
    pub secret: SigningSecret,
    /// Topics that are sent to the webhook; empty for all.
    pub events: Vec<Topic>,
    /// Id of the user who added the webhook.
    pub created_by: String,
    /// The app that added the webhook. Absent in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientId>,
    /// Time at which the webhook was added, by the service's clock.
    pub created_at: Timestamp,
    /// Time of the first of the failures since the last successful delivery; `None` if there were
    /// none.
    pub failing_since: Option<Timestamp>,
    /// Reason of the last failure, for the operator.
    pub last_failure: Option<String>,
    /// Time at which the service stopped sending to the webhook, because deliveries only failed;
    /// `None` while it is on.
    pub off_since: Option<Timestamp>,
}

impl Webhook {
    /// Whether notices about this topic are sent to the webhook.
    pub fn wants_topic(&self, topic: Option<Topic>) -> bool {
        let is_listed = |topic: Topic| self.events.contains(&topic);
        self.off_since.is_none() && (self.events.is_empty() || topic.is_some_and(is_listed))
    }

    /// Records that a delivery failed at `now`, and switches the webhook off if deliveries have
    /// failed for long enough. Returns whether this failure switched it off.
    pub fn record_failure(&mut self, why: String, now: Timestamp) -> bool {
        // Time counts from the first failure in a row; a delivery that arrives resets it.
        let since = *self.failing_since.get_or_insert(now);
        self.last_failure = Some(why);
        let off = self.off_since.is_none() && now >= since.plus_seconds(OFF_AFTER_SECONDS);
        if off {
            self.off_since = Some(now);
        }
        off
    }

    /// Records that a delivery arrived, which also switches the webhook on. Returns whether the
    /// record has changed.
    pub fn record_arrival(&mut self) -> bool {
        self.last_failure = None;
        // `|` and not `||`, because both fields must be cleared.
        self.off_since.take().is_some() | self.failing_since.take().is_some()
    }
}

impl Destinations {
    /// Whether any webhook or owner gets notices about this topic.
    pub fn any_wants(&self, topic: impl Into<Option<Topic>>) -> bool {
        let topic = topic.into();
        self.mail
            || self
                .webhooks
                .iter()
                .any(|webhook| webhook.wants_topic(topic))
    }

    /// Finds the webhook with this id; `None` if the namespace has none or it was removed.
    pub fn find_webhook(&self, id: &str) -> Option<&Webhook> {
        self.webhooks.iter().find(|webhook| webhook.id == id)
    }

    /// Reads the webhooks and the mail setting of a namespace, with the condition for a later
    /// write. A namespace without a record has no destinations.
    pub async fn find(ports: &Ports, namespace: &NamespaceId) -> Result<(Self, When), StoreError> {
        Ok(
            match ports.records.get_one(&destinations_key(namespace)).await? {
                None => (Self::default(), When::Absent),
                Some(record) => (record.read()?, When::At(record.revision)),
            },
        )
    }

    /// Returns the write that stores the destinations, under the condition that
    /// [`Destinations::find`] has returned.
    pub fn to_write(&self, namespace: &NamespaceId, when: When) -> Result<Write, StoreError> {
        Ok(Write::put(
            destinations_key(namespace),
            Document::from_value(self)?,
            when,
        ))
    }
}

/// A webhook or an owner to whom a notice is sent.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recipient {
    /// The webhook with this id.
    Webhook(String),
    /// The owner with this user id, by mail.
    Owner(String),
}

impl Recipient {
    /// Whether it is an owner, who gets mail.
    pub const fn is_owner(&self) -> bool {
        matches!(self, Self::Owner(_))
    }
}

/// The delivery of a notice to one recipient, with the attempts so far.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Delivery {
    /// The webhook or owner that gets the notice.
    pub to: Recipient,
    /// Number of attempts that have begun.
    pub attempts: u32,
    /// Time at which the next attempt is due.
    pub due_at: Timestamp,
}

impl Delivery {
    /// Creates a delivery that is due at once.
    pub const fn new(to: Recipient, now: Timestamp) -> Self {
        Self {
            to,
            attempts: 0,
            due_at: now,
        }
    }

    /// Returns the delivery as it must be stored before an attempt at `now`: as if the attempt had
    /// failed, so that nothing is lost if the process dies. Returns `None` for the last attempt.
    pub fn next_retry(&self, now: Timestamp) -> Option<Self> {
        // The table also limits the attempts: after its end there is no next one.
        let wait = RETRY_SECONDS.get(self.attempts as usize)?;
        Some(Self {
            to: self.to.clone(),
            attempts: self.attempts + 1,
            due_at: now.plus_seconds(*wait),
        })
    }
}

/// A notice that waits to be sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Outgoing {
    /// Event, from which the `type` and the `data` of the notice are written.
    pub event: Event,
    /// Time of the event. Delivery is tried until 7 days after it.
    pub at: Timestamp,
    /// Deliveries that have not ended; `None` until the recipients are chosen.
    pub deliveries: Option<Vec<Delivery>>,
}

impl Outgoing {
    /// Creates a notice about an event at `now`.
    pub const fn new(event: Event, now: Timestamp) -> Self {
        Self {
            event,
            at: now,
            deliveries: None,
        }
    }

    /// Returns the write that stores the notice under `id`.
    pub fn to_write(
        &self,
        namespace: &NamespaceId,
        id: &str,
        when: When,
    ) -> Result<Write, StoreError> {
        let key = RecordKey::new(outbox_partition(namespace), id);
        // With an expiry, so that an endpoint that has gone for good cannot fill the outbox.
        let until = self.at.plus_seconds(KEPT_SECONDS);
        Ok(Write::put_until(
            key,
            Document::from_value(self)?,
            when,
            until,
        ))
    }
}

/// The entry of an outbox in the list of non-empty outboxes: when it is visited next.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Due {
    /// Slug of the namespace whose outbox is not empty.
    pub slug: Slug,
    /// Id of the same namespace, which is also the key of the entry.
    pub namespace_id: NamespaceId,
    /// Earliest time of the visit.
    pub due_at: Timestamp,
}

impl Due {
    /// Returns the partitions over which the list of non-empty outboxes is spread.
    pub fn partitions() -> impl Iterator<Item = String> {
        let earlier = std::iter::once(EARLIER_DUE.to_owned());
        (0..DUE_SHARDS).map(shard_partition).chain(earlier)
    }

    /// Returns the write that schedules the next visit at `due_at` or later.
    pub fn due_write(
        namespace: &Namespace,
        due_at: Timestamp,
        when: When,
    ) -> Result<Write, StoreError> {
        let due = Self {
            slug: namespace.slug.clone(),
            namespace_id: namespace.id,
            due_at,
        };
        Ok(Write::put(
            due_key(&namespace.id),
            Document::from_value(&due)?,
            when,
        ))
    }
}

/// Returns the key of a namespace's entry in the list of non-empty outboxes.
pub fn due_key(namespace: &NamespaceId) -> RecordKey {
    let name = namespace.to_string();
    // Ids begin with the time of their creation, so only a digest spreads them evenly.
    let shard = Digest::of(name.as_bytes()).as_bytes()[0] % DUE_SHARDS;
    RecordKey::new(shard_partition(shard), name)
}

fn shard_partition(shard: u8) -> String {
    format!("{EARLIER_DUE}/{shard:x}")
}

/// Returns the partition of a namespace's waiting notices.
pub fn outbox_partition(namespace: &NamespaceId) -> String {
    format!("outbox/{namespace}")
}

/// Key, in an outbox, of the mark that machines wait and owners have no notice of it yet. It sorts
/// after every ULID.
const MACHINES: &str = "machines";
/// Key, in an outbox, of the record that every commit writes which queues a notice. It sorts after
/// every ULID.
const QUEUE: &str = "queue";

/// Whether a record of an outbox is a notice, and not one of the two other records there.
pub fn is_notice(key: &RecordKey) -> bool {
    ![MACHINES, QUEUE].contains(&&*key.key)
}

/// Returns the key of the mark that machines wait.
pub fn machines_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(outbox_partition(namespace), MACHINES)
}

/// Returns the key of the record that every commit writes which queues a notice.
pub fn notice_queue_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(outbox_partition(namespace), QUEUE)
}

/// Returns the key of the mark that owners got a notice about machines lately.
pub fn machines_paused_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(notices_partition(namespace), "machines-paused")
}

/// Returns the key of the mark that owners got the notice about the expiry of the release with this
/// payload.
pub fn ends_key(namespace: &NamespaceId, payload: &Digest) -> RecordKey {
    RecordKey::new(notices_partition(namespace), format!("ends/{payload}"))
}

/// Returns the key of a namespace's [`Destinations`]. A namespace without the record has none.
pub fn destinations_key(namespace: &NamespaceId) -> RecordKey {
    RecordKey::new(notices_partition(namespace), "destinations")
}

fn notices_partition(namespace: &NamespaceId) -> String {
    format!("notices/{namespace}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_delivery_has_seven_attempts_with_growing_waits() {
        let mut now = Timestamp::from_unix(1_795_219_200);
        let mut delivery = Delivery::new(Recipient::Webhook("whk_1".to_owned()), now);
        let mut waits = Vec::new();
        while let Some(next) = delivery.next_retry(now) {
            waits.push(next.due_at.unix() - now.unix());
            now = next.due_at;
            delivery = next;
        }
        assert_eq!(waits, RETRY_SECONDS);
        assert_eq!(delivery.attempts, 6);
    }

    #[test]
    fn outboxes_are_listed_in_all_partitions_but_the_earlier_one() {
        let partitions: BTreeSet<String> = (0..400u128)
            .map(|n| NamespaceId::from_parts(1_795_219_200_000, n))
            .map(|id| due_key(&id).partition)
            .collect();
        let listed: BTreeSet<String> = Due::partitions().collect();
        assert_eq!(partitions.len(), usize::from(DUE_SHARDS));
        let others: Vec<_> = listed.difference(&partitions).collect();
        assert_eq!(others, [EARLIER_DUE]);
    }

    #[test]
    fn an_event_reads_as_it_was_written() {
        for event in [
            Event::ReleaseEnds {
                release: 7,
                ends_at: Timestamp::from_unix(1_795_219_200),
            },
            Event::PaymentFailed { served_until: None },
            Event::Test {},
        ] {
            let text = serde_json::to_value(&event).unwrap();
            assert_eq!(text["type"], event.topic_word());
            assert_eq!(serde_json::from_value::<Event>(text).unwrap(), event);
        }
        assert!("test".parse::<Topic>().is_err());
    }
}
