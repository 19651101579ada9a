//! Notices to the owners of a vault: signed webhooks and mail.
//!
//! [`queue`] gives the writes that join the commit of an event. [`deliver()`] sends what is due, as
//! part of the background work. Both are bounded, so that neither a flood of events nor a slow
//! endpoint of one tenant delays the notices of another.

mod attempt;
mod deliver;
mod message;
mod recipients;
pub mod smtp;
pub mod webhook;

use std::sync::Arc;

use vault_store::StoreError;
use vault_store::records::{Document, Record, When, Write};

pub(crate) use attempt::try_webhook;
pub use deliver::{Delivered, deliver};

use self::smtp::{MailSettings, Smtp};
use self::webhook::Endpoints;
use crate::config::PublicUrl;
use crate::model::namespace::Namespace;
use crate::model::notice::{
    Destinations, Due, Event, MACHINES, MAX_UNSENT, MAX_UNSENT_DRAFTS, Outgoing, Topic,
    machines_key, outbox,
};
use crate::ports::Ports;
use crate::senders::{Mailer, Senders};

/// What sends notices in a running service. Fails where the certificates of the system cannot be
/// loaded.
pub fn senders(
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

/// The writes that queue a notice, for the commit of its event. There are none where nothing is
/// sent about it, and none while the outbox is full.
///
/// They carry no condition, so an event conflicts with others no more often than without them.
pub async fn queue(
    ports: &Ports,
    namespace: &Namespace,
    event: Event,
) -> Result<Vec<Write>, StoreError> {
    let (destinations, _) = Destinations::find(ports, &namespace.id).await?;
    if !destinations.want(event.topic()) {
        return Ok(Vec::new());
    }
    let partition = outbox(&namespace.id);
    let unsent = ports.records.list(&partition, "", None, MAX_UNSENT).await?;
    if is_full(&unsent, event.topic())? {
        tracing::warn!(
            namespace = %namespace.id,
            topic = event.word(),
            "dropped a notice because too many of this vault wait to be sent"
        );
        return Ok(Vec::new());
    }
    let now = ports.now();
    Ok(vec![
        Outgoing::new(event, now).write(&namespace.id, &ports.fresh_id(), When::Any)?,
        Due::write(namespace, now, When::Any)?,
    ])
}

/// The writes that note that a machine waits, for the commit that enrols it. Whatever their number,
/// the machines of one namespace make one notice each quarter of an hour, which says how many wait.
pub async fn queue_machine(ports: &Ports, namespace: &Namespace) -> Result<Vec<Write>, StoreError> {
    let (destinations, _) = Destinations::find(ports, &namespace.id).await?;
    if !destinations.want(Topic::MachineWaiting) {
        return Ok(Vec::new());
    }
    let mark = Document::of(&serde_json::json!({}))?;
    Ok(vec![
        Write::put(machines_key(&namespace.id), mark, When::Any),
        Due::write(namespace, ports.now(), When::Any)?,
    ])
}

/// Whether no further notice about this topic finds a place.
fn is_full(unsent: &[Record], topic: Option<Topic>) -> Result<bool, StoreError> {
    if unsent.len() >= MAX_UNSENT {
        return Ok(true);
    }
    if topic != Some(Topic::DraftWaiting) {
        return Ok(false);
    }
    let mut drafts = 0;
    for record in unsent.iter().filter(|record| record.key.key != MACHINES) {
        let waiting = record.read::<Outgoing>()?;
        drafts += usize::from(waiting.event.topic() == Some(Topic::DraftWaiting));
    }
    Ok(drafts >= MAX_UNSENT_DRAFTS)
}
