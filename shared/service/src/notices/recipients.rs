//! The recipients of a notice: webhooks that want its topic, and owners by mail.

use vault_format::root::KeyFingerprint;
use vault_format::text::printable;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_PAGE, When, Write};

use super::WaitingTopics;
use crate::app::App;
use crate::model::device::{self, Device, Pending};
use crate::model::namespace::Namespace;
use crate::model::notice::{
    Delivery, Destinations, Event, MACHINES_PAUSE_SECONDS, Machine, Outgoing, Recipient, Topic,
    machines_key, machines_paused_key,
};
use crate::model::user::{Role, State, User, user_key, users_partition};
use crate::model::{Versioned, account};
use vault_api::Email;

/// Maximum number of owners of one namespace who get a mail.
const MAX_OWNERS: usize = 20;
/// Maximum number of pages of users that are searched for owners.
const MAX_SEARCH_PAGES: usize = 10;
/// Maximum number of machines that a notice lists; it also contains the number of all that wait.
const MAX_MACHINES: usize = 5;

/// Creates the deliveries of a notice about `topic`, due at once.
pub(super) async fn new_deliveries(
    app: &App,
    namespace: &Namespace,
    destinations: &Destinations,
    topic: Option<Topic>,
) -> Result<Vec<Delivery>, StoreError> {
    let webhooks = destinations.webhooks.iter();
    let mut recipients: Vec<_> = webhooks
        .filter(|webhook| webhook.wants_topic(topic))
        .map(|webhook| Recipient::Webhook(webhook.id.clone()))
        .collect();
    let has_mailer = app
        .senders
        .as_ref()
        .is_some_and(|senders| senders.mailer.is_some());
    if destinations.mail && has_mailer {
        recipients.extend(read_owners(app, namespace).await?);
    }
    let now = app.clock.now();
    Ok(recipients
        .into_iter()
        .map(|to| Delivery::new(to, now))
        .collect())
}

async fn read_owners(app: &App, namespace: &Namespace) -> Result<Vec<Recipient>, StoreError> {
    let partition = users_partition(&namespace.id);
    let mut owners = Vec::new();
    let mut after: Option<String> = None;
    // Users are not indexed by role, so owners are searched for; the bound keeps a vault with very
    // many members from slowing down the others.
    for _ in 0..MAX_SEARCH_PAGES {
        let page = app
            .records
            .list_page(&partition, "", after.as_deref(), MAX_PAGE);
        let page = page.await?;
        for record in &page {
            let user: User = record.read()?;
            if is_owner(&user) {
                owners.push(Recipient::Owner(user.id));
            }
        }
        after = page.last().map(|record| record.key.key.clone());
        if page.len() < MAX_PAGE || owners.len() >= MAX_OWNERS {
            break;
        }
    }
    owners.truncate(MAX_OWNERS);
    Ok(owners)
}

fn is_owner(user: &User) -> bool {
    user.role == Role::Owner && user.state() == State::Active
}

/// Returns the e-mail address of an owner; `None` if the user is no longer an owner or cannot sign
/// in.
pub(super) async fn owner_address(
    app: &App,
    namespace: &Namespace,
    user_id: &str,
) -> Result<Option<Email>, StoreError> {
    // Read again at each attempt: a former owner must not get mail about the vault.
    let user = app
        .records
        .get_one(&user_key(&namespace.id, user_id))
        .await?;
    let Some(user) = Versioned::<User>::read(user)?.map(|seen| seen.value) else {
        return Ok(None);
    };
    let Some(account) = user.account().filter(|_| is_owner(&user)) else {
        return Ok(None);
    };
    let account = app.records.get_one(&account::account_key(&account)).await?;
    let account = Versioned::<account::Account>::read(account)?;
    let may_sign_in = account.is_some_and(|account| account.value.can_sign_in());
    Ok(may_sign_in.then_some(user.email))
}

/// Replaces the mark that machines wait by a notice, unless owners got one in the last 15 minutes.
/// Returns when to try again if the mark stays.
pub(super) async fn announce_machines(
    app: &App,
    namespace: &Namespace,
    destinations: &Destinations,
) -> Result<Option<Timestamp>, StoreError> {
    let now = app.clock.now();
    let keys = [
        machines_key(&namespace.id),
        machines_paused_key(&namespace.id),
    ];
    let [mark, paused] = app.get_all(keys).await?;
    let Some(mark) = mark else {
        return Ok(None);
    };
    if let Some(paused) = paused {
        return Ok(paused.expires_at);
    }
    let mut writes = vec![Write::delete(mark.key, When::At(mark.revision))];
    let waiting = read_waiting_machines(app, namespace).await?;
    // An owner may have decided about all of them in the meantime.
    if !waiting.is_empty() && destinations.any_wants(Topic::MachineWaiting) {
        let topics = WaitingTopics::read(app, namespace).await?;
        if !topics.has_room(Some(Topic::MachineWaiting)) {
            return Ok(Some(now.plus_seconds(MACHINES_PAUSE_SECONDS)));
        }
        let event = Event::MachineWaiting {
            waiting: waiting.len(),
            machines: waiting.into_iter().take(MAX_MACHINES).collect(),
        };
        let notice = Outgoing::new(event, now);
        writes.push(notice.to_write(&namespace.id, &app.fresh_id(), When::Absent)?);
        writes.push(topics.guard_write(&namespace.id)?);
        writes.push(Write::put_until(
            machines_paused_key(&namespace.id),
            Document::from_value(&serde_json::json!({}))?,
            When::Absent,
            now.plus_seconds(MACHINES_PAUSE_SECONDS),
        ));
    }
    // Not committed if another machine enrolled, another notice was queued or another process was
    // faster; the next visit tries again.
    let is_committed = app.try_commit(writes).await?;
    Ok((!is_committed).then_some(now))
}

async fn read_waiting_machines(
    app: &App,
    namespace: &Namespace,
) -> Result<Vec<Machine>, StoreError> {
    let partition = device::pending_partition(&namespace.slug);
    let pending = app.records.list_page(&partition, "", None, 100).await?;
    let mut keys = Vec::new();
    for record in &pending {
        let key = record.read::<Pending>()?.public_key.to_string();
        keys.push(device::device_key(&namespace.slug, &key));
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut devices = Vec::new();
    for record in app.records.get_many(&keys).await?.into_iter().flatten() {
        let device: Device = record.read()?;
        if device.namespace_id == namespace.id {
            devices.push(device);
        }
    }
    devices.sort_by_key(|device| device.enrolled_at);
    let machine = |device: Device| Machine {
        // A machine chooses its name, so invisible characters in it are escaped for mail and
        // terminals.
        name: printable(&device.name()),
        fingerprint: KeyFingerprint::device(&device.public_key).to_string(),
    };
    Ok(devices.into_iter().map(machine).collect())
}
