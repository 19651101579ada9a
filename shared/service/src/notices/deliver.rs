//! Delivery of due notices, in runs of bounded length.
//!
//! The notices of a namespace that wait to be sent are its outbox. A run visits the outboxes that
//! are due: concurrently, up to [`MAX_CONCURRENT`], and first those that have waited longest. Each
//! visit has a slice of time, and a recipient that fails gets no further attempt in the same visit.
//! An attempt is recorded before it is made, so that a process that dies neither loses a notice nor
//! repeats it forever. A notice arrives at least once; its id lets an endpoint drop repetitions.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use vault_format::text::error_chain;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Commit, MAX_PAGE, MAX_WRITES, Record, RecordKey, When, Write};

use super::attempt::{AttemptOutcome, send_to_recipient};
use super::message::Notice;
use super::recipients::{announce_machines, new_deliveries};
use crate::app::App;
use crate::model::limits::Window;
use crate::model::namespace::{self, Namespace, Status};
use crate::model::notice::{
    Delivery, Destinations, Due, Outgoing, Recipient, Topic, due_key, is_notice, outbox_partition,
};
use crate::senders::Senders;

/// Maximum number of namespaces that are processed at the same time.
const MAX_CONCURRENT: usize = 32;
/// Maximum time within which one visit starts attempts.
const SLICE: Duration = Duration::from_secs(10);
/// Maximum number of pages that one run reads of each partition of the list of non-empty outboxes.
const MAX_PAGES: usize = 10;
/// Maximum number of attempts per recipient and hour, for all notices but those about replaced keys.
const MAX_PER_HOUR: u32 = 60;
/// Maximum number of attempts per recipient and hour, for notices about replaced keys.
const MAX_KEYS_PER_HOUR: u32 = 20;
/// Pause after a failed attempt to a recipient, for all its notices, in seconds.
const FAILURE_PAUSE_SECONDS: i64 = 60;
/// Pause of the outbox of a suspended namespace, in seconds.
const SUSPENDED_SECONDS: i64 = 3600;
/// Pause of a notice that could not be read, in seconds.
const UNREADABLE_SECONDS: i64 = 3600;

/// Counts of one run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Delivered {
    /// Deliveries that arrived.
    pub arrived: usize,
    /// Attempts that failed, also those that will be repeated.
    pub failed: usize,
}

/// Sends the notices that are due, and starts no attempt after `until`. If the notices of one
/// namespace cannot be read, that is logged and the other namespaces are still visited.
pub async fn deliver_due(app: &App, until: Instant) -> Result<Delivered, StoreError> {
    let Some(senders) = app.senders.clone() else {
        return Ok(Delivered::default());
    };
    let mut waiting = list_due(app).await?.into_iter();
    let mut running = JoinSet::new();
    let mut delivered = Delivered::default();
    loop {
        while running.len() < MAX_CONCURRENT && Instant::now() < until {
            let Some(listed) = waiting.next() else {
                break;
            };
            let (app, senders) = (app.clone(), senders.clone());
            running.spawn(async move { visit_outbox(&app, &senders, listed, until).await });
        }
        let Some(visited) = running.join_next().await else {
            return Ok(delivered);
        };
        match visited {
            Ok(Ok(visited)) => {
                delivered.arrived += visited.arrived;
                delivered.failed += visited.failed;
            }
            Ok(Err(error)) => tracing::error!(
                error = error_chain(&error),
                "skipped the notices of a vault that could not be read"
            ),
            Err(error) => tracing::error!(%error, "a visit of an outbox ended early"),
        }
    }
}

/// An outbox that is due, with its record in the list of non-empty outboxes.
struct ListedOutbox {
    due: Due,
    key: RecordKey,
    revision: u64,
}

impl ListedOutbox {
    /// Returns the writes that schedule the next visit at `next`, or that take the outbox from the
    /// list if `next` is `None`, for an empty outbox.
    fn next_writes(
        &self,
        namespace: &Namespace,
        next: Option<Timestamp>,
    ) -> Result<Vec<Write>, StoreError> {
        let Some(next) = next else {
            return Ok(vec![self.removal()]);
        };
        let when = When::At(self.revision);
        if self.key == due_key(&namespace.id) {
            return Ok(vec![Due::due_write(namespace, next, when)?]);
        }
        // A record of an earlier version moves to the partition (shard) where this version stores
        // it.
        Ok(vec![
            self.removal(),
            Due::due_write(namespace, next, When::Absent)?,
        ])
    }

    fn removal(&self) -> Write {
        Write::delete(self.key.clone(), When::At(self.revision))
    }
}

/// Lists the outboxes that are due, first those that have waited longest.
async fn list_due(app: &App) -> Result<Vec<ListedOutbox>, StoreError> {
    let now = app.clock.now();
    let mut due_outboxes = Vec::new();
    for partition in Due::partitions() {
        let mut after: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = app
                .records
                .list_page(&partition, "", after.as_deref(), MAX_PAGE)
                .await?;
            for record in &page {
                match record.read::<Due>() {
                    Ok(due) if due.due_at <= now => due_outboxes.push(ListedOutbox {
                        due,
                        key: record.key.clone(),
                        revision: record.revision,
                    }),
                    Ok(_) => {}
                    // Written by a later version, or damaged. It must not keep the notices of all
                    // other vaults.
                    Err(error) => tracing::error!(
                        key = %record.key.key,
                        error = error_chain(&error),
                        "skipped an entry of the list of outboxes that could not be read"
                    ),
                }
            }
            after = page.last().map(|record| record.key.key.clone());
            if page.len() < MAX_PAGE {
                break;
            }
        }
    }
    due_outboxes.sort_by_key(|listed| listed.due.due_at);
    Ok(due_outboxes)
}

/// Sends the notices of one outbox, and stores when it is due again.
async fn visit_outbox(
    app: &App,
    senders: &Senders,
    listed: ListedOutbox,
    until: Instant,
) -> Result<Delivered, StoreError> {
    let due = &listed.due;
    let namespace_and_revision = namespace::find_namespace(app, &due.slug).await?;
    let namespace_and_revision =
        namespace_and_revision.filter(|(namespace, _)| namespace.id == due.namespace_id);
    let Some((namespace, _)) = namespace_and_revision else {
        discard_outbox(app, due).await?;
        app.try_commit(vec![listed.removal()]).await?;
        return Ok(Delivered::default());
    };
    let now = app.clock.now();
    let mut visit = Visit {
        app,
        senders,
        namespace: &namespace,
        until: until.min(Instant::now() + SLICE),
        paused_until: HashMap::new(),
        delivered: Delivered::default(),
    };
    let next = if namespace.status == Status::Suspended {
        Some(now.plus_seconds(SUSPENDED_SECONDS))
    } else {
        visit.send_outbox().await?
    };
    // Not earlier than now, so that outboxes which have waited longer come first in the next run.
    let next = next.map(|next| next.max(now));
    let writes = listed.next_writes(&namespace, next)?;
    let moves = writes.len() > 1;
    // The commit fails if a new event has made the outbox due again in the meantime, which is right
    // too.
    match app.records.commit_writes(writes).await {
        // The record of an earlier version could not move because a new event has already created
        // the record in the shard, so only the earlier record is removed.
        Ok(Commit::Failed { .. }) if moves => {
            app.try_commit(vec![listed.removal()]).await?;
        }
        // The store gave up on interfering writers: the outbox stays listed, and the next run
        // visits it again.
        Ok(_) | Err(StoreError::Conflict) => {}
        Err(error) => return Err(error),
    }
    Ok(visit.delivered)
}

/// Deletes the outbox of a namespace that no longer exists.
async fn discard_outbox(app: &App, due: &Due) -> Result<(), StoreError> {
    let partition = outbox_partition(&due.namespace_id);
    let records = app
        .records
        .list_page(&partition, "", None, MAX_PAGE)
        .await?;
    for some in records.chunks(MAX_WRITES) {
        let writes = some
            .iter()
            .map(|record| Write::delete(record.key.clone(), When::Any));
        // Without conditions nothing can fail but the store.
        let _ = app.records.commit_writes(writes.collect()).await?;
    }
    Ok(())
}

/// One visit of an outbox.
struct Visit<'a> {
    app: &'a App,
    senders: &'a Senders,
    namespace: &'a Namespace,
    until: Instant,
    /// Recipients that get no further attempt in this visit, with the time of their next one.
    paused_until: HashMap<Recipient, Timestamp>,
    delivered: Delivered,
}

/// A notice, as it is stored at present.
struct StoredNotice {
    id: String,
    outgoing: Outgoing,
    /// Revision of the record; `None` once the record is deleted.
    revision: Option<u64>,
}

impl Visit<'_> {
    /// Sends the notices of the outbox. Returns when the outbox is due next; `None` if it is empty.
    async fn send_outbox(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let (app, namespace) = (self.app, self.namespace);
        let (destinations, _) = Destinations::find(app, &namespace.id).await?;
        let mut next = announce_machines(app, namespace, &destinations).await?;
        let partition = outbox_partition(&namespace.id);
        let waiting = app
            .records
            .list_page(&partition, "", None, MAX_PAGE)
            .await?;
        let mut notices = Vec::new();
        for record in waiting.iter().filter(|record| is_notice(&record.key)) {
            match StoredNotice::read(record) {
                Ok(notice) => notices.push(notice),
                // Written by a later version, or damaged. It stays until it expires, and must not
                // keep the others.
                Err(error) => {
                    tracing::error!(
                        namespace = %namespace.id,
                        error = error_chain(&error),
                        "skipped a notice that could not be read"
                    );
                    let later = app.clock.now().plus_seconds(UNREADABLE_SECONDS);
                    next = earlier_time(next, Some(later));
                }
            }
        }
        // What an attacker with a stolen key would do is told first, and by mail before a webhook
        // that does not answer takes the time.
        notices.sort_by_key(|notice| !notice.is_about_keys());
        for notice in &mut notices {
            if notice.is_about_keys() {
                self.send_notice(notice, &destinations, Recipient::is_owner)
                    .await?;
            }
        }
        for notice in &mut notices {
            let due = self.send_notice(notice, &destinations, |_| true).await?;
            next = earlier_time(next, due);
        }
        Ok(next)
    }

    /// Sends one notice to those recipients that are due and `meant`. Returns when it is due next.
    async fn send_notice(
        &mut self,
        notice: &mut StoredNotice,
        destinations: &Destinations,
        meant: fn(&Recipient) -> bool,
    ) -> Result<Option<Timestamp>, StoreError> {
        // The recipients are chosen now and not at the event, whose commit should not read all
        // users of the vault.
        if notice.outgoing.deliveries.is_none() {
            let topic = notice.outgoing.event.topic();
            let chosen = new_deliveries(self.app, self.namespace, destinations, topic).await?;
            // If this fails, another process is choosing them; the next run sees its choice.
            let stored = self.store_deliveries(notice, chosen, None).await?;
            if !stored.is_done() {
                return Ok(Some(self.app.clock.now()));
            }
        }
        let mut deliveries = notice.outgoing.deliveries.clone().unwrap_or_default();
        deliveries.retain(|delivery| meant(&delivery.to));
        deliveries.sort_by_key(|delivery| !delivery.to.is_owner());
        let mut next = None;
        for delivery in &deliveries {
            let due_at = self.paused_until.get(&delivery.to).copied();
            let due_at = due_at.map_or(delivery.due_at, |at| at.max(delivery.due_at));
            if due_at > self.app.clock.now() || Instant::now() >= self.until {
                next = earlier_time(next, Some(due_at));
                continue;
            }
            next = earlier_time(next, self.attempt_delivery(notice, delivery).await?);
        }
        Ok(next)
    }

    /// Makes one attempt. Returns when the delivery is due next; `None` if it is finished.
    async fn attempt_delivery(
        &mut self,
        stored: &mut StoredNotice,
        delivery: &Delivery,
    ) -> Result<Option<Timestamp>, StoreError> {
        let app = self.app;
        let now = app.clock.now();
        // Stored as if the attempt had failed: if the process dies in the middle, the retry is
        // already scheduled.
        let retry = delivery.next_retry(now);
        let next = retry.as_ref().map(|retry| retry.due_at);
        let window = self.rate_window(stored, &delivery.to);
        let begun = stored.replace_delivery(delivery, retry);
        // The hourly count is in the same commit, so that several processes cannot exceed the limit
        // together.
        match self
            .store_deliveries(stored, begun, window.counting_write(now))
            .await?
        {
            StoreOutcome::Done => {}
            StoreOutcome::Limited => {
                let later = now.plus_seconds(window.seconds_left(now).cast_signed());
                // Notices about keys have a limit of their own, which pauses no others.
                if !stored.is_about_keys() {
                    self.paused_until.insert(delivery.to.clone(), later);
                }
                return Ok(Some(later));
            }
            // Another process is making this attempt.
            StoreOutcome::Changed => return Ok(Some(now.plus_seconds(FAILURE_PAUSE_SECONDS))),
        }
        let id = format!("msg_{}", stored.id);
        let notice = Notice {
            id: &id,
            event: &stored.outgoing.event,
            at: stored.outgoing.at,
        };
        match send_to_recipient(app, self.senders, self.namespace, notice, &delivery.to).await? {
            AttemptOutcome::Failed(error) => {
                self.delivered.failed += 1;
                let later = now.plus_seconds(FAILURE_PAUSE_SECONDS);
                self.paused_until.insert(delivery.to.clone(), later);
                if next.is_none() {
                    tracing::warn!(
                        namespace = %self.namespace.id,
                        topic = stored.outgoing.event.topic_word(),
                        error = error_chain(&error),
                        "gave up a notice after its last attempt"
                    );
                }
                Ok(next)
            }
            AttemptOutcome::Arrived => {
                self.delivered.arrived += 1;
                self.end_delivery(stored, delivery).await
            }
            AttemptOutcome::Gone => self.end_delivery(stored, delivery).await,
        }
    }

    /// Removes a finished delivery. If that fails, the notice is sent once more; the recipient can
    /// recognize it by its id.
    async fn end_delivery(
        &self,
        stored: &mut StoredNotice,
        delivery: &Delivery,
    ) -> Result<Option<Timestamp>, StoreError> {
        let rest = stored.replace_delivery(delivery, None);
        self.store_deliveries(stored, rest, None).await?;
        Ok(None)
    }

    /// Returns the window in which attempts to a recipient are counted. Members can use up the one
    /// of other notices, so those about replaced keys have their own.
    fn rate_window(&self, notice: &StoredNotice, to: &Recipient) -> Window<'static> {
        let (Recipient::Webhook(id) | Recipient::Owner(id)) = to;
        let recipient = format!("{}/{id}", self.namespace.id);
        if notice.is_about_keys() {
            return Window::about_subject("notices-keys", recipient, MAX_KEYS_PER_HOUR, 3600);
        }
        Window::about_subject("notices", recipient, MAX_PER_HOUR, 3600)
    }

    /// Replaces the deliveries of a notice, or deletes the notice if none are left.
    async fn store_deliveries(
        &self,
        stored: &mut StoredNotice,
        deliveries: Vec<Delivery>,
        counted: Option<Write>,
    ) -> Result<StoreOutcome, StoreError> {
        let Some(revision) = stored.revision else {
            return Ok(StoreOutcome::Done);
        };
        let when = When::At(revision);
        let is_over = deliveries.is_empty();
        let outgoing = Outgoing {
            deliveries: Some(deliveries),
            ..stored.outgoing.clone()
        };
        let write = if is_over {
            let key = RecordKey::new(outbox_partition(&self.namespace.id), stored.id.clone());
            Write::delete(key, when)
        } else {
            outgoing.to_write(&self.namespace.id, &stored.id, when)?
        };
        let is_counted = counted.is_some();
        let writes = std::iter::once(write).chain(counted).collect();
        match self.app.records.commit_writes(writes).await {
            Ok(Commit::Done(revisions)) => {
                stored.revision = revisions.first().copied().flatten().filter(|_| !is_over);
                stored.outgoing = outgoing;
                Ok(StoreOutcome::Done)
            }
            // The count is the second write.
            Ok(Commit::Failed { index: 1, .. }) if is_counted => Ok(StoreOutcome::Limited),
            Ok(Commit::Failed { .. }) | Err(StoreError::Conflict) => Ok(StoreOutcome::Changed),
            Err(error) => Err(error),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum StoreOutcome {
    Done,
    /// The recipient has had the maximum number of attempts of this hour.
    Limited,
    /// Another process has changed the notice; nothing was stored.
    Changed,
}

impl StoreOutcome {
    const fn is_done(self) -> bool {
        matches!(self, Self::Done)
    }
}

impl StoredNotice {
    fn read(record: &Record) -> Result<Self, StoreError> {
        Ok(Self {
            id: record.key.key.clone(),
            outgoing: record.read()?,
            revision: Some(record.revision),
        })
    }

    fn is_about_keys(&self) -> bool {
        self.outgoing.event.topic() == Some(Topic::KeyReplaced)
    }

    /// Returns the deliveries with `replacement` in place of `delivery`; without one, `delivery` is
    /// removed.
    fn replace_delivery(
        &self,
        delivery: &Delivery,
        replacement: Option<Delivery>,
    ) -> Vec<Delivery> {
        let deliveries = self.outgoing.deliveries.iter().flatten();
        let rest = deliveries.filter(|other| other.to != delivery.to).cloned();
        rest.chain(replacement).collect()
    }
}

fn earlier_time(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
