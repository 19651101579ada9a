//! Notices to the owners of a vault, by signed webhook and by mail.
//!
//! [`queue_notice`] returns the writes that join the commit of an event, so that an event and its
//! notice are stored together or not at all. [`deliver_due()`] sends the notices that are due, as
//! part of background work. Both are bounded: neither a flood of events nor a slow endpoint of one
//! vault delays the notices of another. A handler never sends a notice itself, except for the test
//! that an owner requests.

mod attempt;
mod deliver;
mod message;
mod near;
mod recipients;
pub mod smtp;
pub mod webhook;

use std::sync::Arc;

use vault_format::name::NamespaceId;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_PAGE, Record, When, Write};

pub(crate) use attempt::{describe_failure, describe_ports, test_webhook};
pub use deliver::{Delivered, deliver_due};
pub(crate) use message::describe_key_changes;
pub(crate) use near::{
    correct_machines, queue_event_and_warning, queue_warnings, warn_of_changed_limits,
};

use self::smtp::{MailSettings, Smtp};
use self::webhook::Endpoints;
use crate::config::PublicUrl;
use crate::model::namespace::Namespace;
use crate::model::notice::{
    Destinations, Due, Event, MAX_UNSENT, MAX_UNSENT_DRAFTS, MAX_UNSENT_MACHINES,
    MAX_UNSENT_QUOTAS, Outgoing, Topic, UNSENT_KEY_PLACES, is_notice, machines_key,
    notice_queue_key, outbox_partition,
};
use crate::ports::Ports;
use crate::senders::{Mailer, Senders};

/// Creates the senders of a running service; without mail settings, only the sender to webhooks.
/// Fails if the certificates of the system cannot be loaded.
pub fn create_senders(
    public_url: &PublicUrl,
    mail: Option<MailSettings>,
) -> Result<Senders, lettre::transport::smtp::Error> {
    let mailer = match mail {
        None => None,
        Some(mail) => Some(Arc::new(Smtp::new(mail)?) as Arc<dyn Mailer>),
    };
    Ok(Senders {
        webhooks: Arc::new(Endpoints::new(public_url)),
        mailer,
    })
}

/// Returns the writes that queue a notice, for the commit of its event. Empty if no destination
/// wants the notice, or if the outbox is full.
///
/// A commit may have the writes of one call only. It fails if another one has queued a notice since,
/// so that the bounds of the outbox hold; the change is then tried again.
pub async fn queue_notice(
    ports: &Ports,
    namespace: &Namespace,
    event: Event,
) -> Result<Vec<Write>, StoreError> {
    let (writes, _) = queue_if_room(ports, namespace, vec![event]).await?;
    Ok(writes)
}

/// Returns the writes that queue the notices of all events of one commit, as [`queue_notice`] does,
/// and the events for which the outbox had no room, so that the caller can try again later.
pub(crate) async fn queue_if_room(
    ports: &Ports,
    namespace: &Namespace,
    events: Vec<Event>,
) -> Result<(Vec<Write>, Vec<Event>), StoreError> {
    let wanted = retain_wanted(ports, namespace, events).await?;
    if wanted.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut waiting = WaitingTopics::read(ports, namespace).await?;
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for event in wanted {
        let topic = event.topic();
        // Dropped instead of refused: the event itself, such as a publish, must not fail because
        // nobody reads its notices.
        if waiting.has_room(topic) {
            waiting.topics.push(topic);
            kept.push(event);
            continue;
        }
        let (namespace, topic_word) = (namespace.id, event.topic_word());
        if topic == Some(Topic::QuotaNear) {
            // Each change repeats such a warning until there is room.
            tracing::debug!(%namespace, topic = topic_word, "a notice waits for room");
        } else {
            tracing::warn!(
                %namespace,
                topic = topic_word,
                "dropped a notice because too many of this vault wait to be sent"
            );
        }
        dropped.push(event);
    }
    // A commit with a notice about replaced keys changes the record of the namespace too, so that two
    // at once never pass. Without this condition, no other notices can make a publish fail.
    let shares_places = |event: &Event| event.topic() != Some(Topic::KeyReplaced);
    let is_guarded = kept.iter().any(shares_places);
    let mut writes = outgoing_writes(ports, namespace, kept)?;
    if is_guarded {
        writes.push(waiting.guard_write(&namespace.id)?);
    }
    Ok((writes, dropped))
}

/// Returns the events about which a destination wants notices.
async fn retain_wanted(
    ports: &Ports,
    namespace: &Namespace,
    mut events: Vec<Event>,
) -> Result<Vec<Event>, StoreError> {
    // Most commits have no event, and must not cost a read.
    if !events.is_empty() {
        let (destinations, _) = Destinations::find(ports, &namespace.id).await?;
        events.retain(|event| destinations.any_wants(event.topic()));
    }
    Ok(events)
}

fn outgoing_writes(
    ports: &Ports,
    namespace: &Namespace,
    events: Vec<Event>,
) -> Result<Vec<Write>, StoreError> {
    let now = ports.now();
    let mut writes = Vec::new();
    for event in events {
        let outgoing = Outgoing::new(event, now);
        writes.push(outgoing.to_write(&namespace.id, &ports.fresh_id(), When::Any)?);
    }
    if !writes.is_empty() {
        writes.push(Due::due_write(namespace, now, When::Any)?);
    }
    Ok(writes)
}

/// Returns the writes that mark that a machine waits, for the commit that enrols it. A namespace
/// gets at most one notice per quarter of an hour, with the number of waiting machines.
pub async fn queue_machine(ports: &Ports, namespace: &Namespace) -> Result<Vec<Write>, StoreError> {
    let (destinations, _) = Destinations::find(ports, &namespace.id).await?;
    if !destinations.any_wants(Topic::MachineWaiting) {
        return Ok(Vec::new());
    }
    // One mark for all machines: anybody can enrol machines, and a record for each would let them
    // fill the outbox.
    let mark = Document::from_value(&serde_json::json!({}))?;
    Ok(vec![
        Write::put(machines_key(&namespace.id), mark, When::Any),
        Due::due_write(namespace, ports.now(), When::Any)?,
    ])
}

/// The notices of a vault that wait to be sent.
struct WaitingTopics {
    /// Their topics; `None` for a notice without a topic, or one that this version cannot read.
    topics: Vec<Option<Topic>>,
    /// The condition that holds as long as no other commit queues a notice.
    when: When,
}

impl WaitingTopics {
    async fn read(ports: &Ports, namespace: &Namespace) -> Result<Self, StoreError> {
        let partition = outbox_partition(&namespace.id);
        let unsent = ports
            .records
            .list_page(&partition, "", None, MAX_PAGE)
            .await?;
        let notices = unsent.iter().filter(|record| is_notice(&record.key));
        let topic = |record: &Record| record.read::<Outgoing>().ok()?.event.topic();
        let guard_key = notice_queue_key(&namespace.id);
        let guard = unsent.iter().find(|record| record.key == guard_key);
        Ok(Self {
            topics: notices.map(topic).collect(),
            when: guard.map_or(When::Absent, |guard| When::At(guard.revision)),
        })
    }

    /// Returns the write that makes the commit of a notice fail if another one was queued since.
    fn guard_write(&self, namespace: &NamespaceId) -> Result<Write, StoreError> {
        let document = Document::from_value(&serde_json::json!({}))?;
        Ok(Write::put(notice_queue_key(namespace), document, self.when))
    }

    /// Whether the outbox has room for a notice about this topic.
    fn has_room(&self, topic: Option<Topic>) -> bool {
        let number = |wanted: Topic| {
            self.topics
                .iter()
                .filter(|topic| **topic == Some(wanted))
                .count()
        };
        let of_keys = number(Topic::KeyReplaced);
        // Notices about replaced keys have places of their own, which no other notices can take.
        if topic == Some(Topic::KeyReplaced) {
            return of_keys < UNSENT_KEY_PLACES;
        }
        if self.topics.len() - of_keys >= MAX_UNSENT - UNSENT_KEY_PLACES {
            return false;
        }
        // These have a lower limit than the outbox: members or strangers can cause them, and must not
        // crowd out other notices.
        match topic {
            Some(topic @ Topic::MachineWaiting) => number(topic) < MAX_UNSENT_MACHINES,
            Some(topic @ Topic::DraftWaiting) => number(topic) < MAX_UNSENT_DRAFTS,
            Some(topic @ Topic::QuotaNear) => number(topic) < MAX_UNSENT_QUOTAS,
            _ => true,
        }
    }
}
