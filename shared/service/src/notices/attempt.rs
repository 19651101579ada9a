//! One attempt to deliver a notice, and its effect on the state of the webhook.

use serde_json::json;
use vault_format::text::error_chain;
use vault_store::StoreError;

use super::message::{self, Notice};
use super::recipients;
use crate::app::App;
use crate::config::Config;
use crate::model::audit::{Actor, Change};
use crate::model::namespace::Namespace;
use crate::model::notice::{Destinations, Event, Recipient, Webhook};
use crate::senders::{SendError, Senders, WebhookMessage};

/// Returns the text that owners see for every failure. It is the same for all causes: an owner
/// chooses the host, and different texts would tell which names exist in the service's own network.
pub(crate) fn describe_failure(config: &Config) -> String {
    let ports = describe_ports(config);
    format!(
        "the notice did not arrive: the endpoint must be on a public host and the port {ports}, have a valid certificate, and answer with a status of 200 to 299 within 10 seconds, without a redirect"
    )
}

/// Returns the ports to which this service sends notices, for a sentence.
pub(crate) fn describe_ports(config: &Config) -> String {
    let ports: Vec<_> = config.webhook_ports.iter().map(u16::to_string).collect();
    ports.join(" or ")
}

#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// The recipient has accepted the notice.
    Arrived,
    /// The recipient no longer exists or wants no notices; the delivery ends.
    Gone,
    /// The notice was not accepted.
    Failed(SendError),
}

impl From<Result<(), SendError>> for AttemptOutcome {
    fn from(sent: Result<(), SendError>) -> Self {
        match sent {
            Ok(()) => Self::Arrived,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Sends a notice to one recipient, and records the result in the state of a webhook.
pub(super) async fn send_to_recipient(
    app: &App,
    senders: &Senders,
    namespace: &Namespace,
    notice: Notice<'_>,
    to: &Recipient,
) -> Result<AttemptOutcome, StoreError> {
    match to {
        Recipient::Webhook(id) => {
            // Read again for each attempt, since an owner may have removed the webhook in the
            // meantime.
            let (destinations, _) = Destinations::find(app, &namespace.id).await?;
            let webhook = destinations.find_webhook(id);
            let Some(webhook) = webhook.filter(|webhook| webhook.off_since.is_none()) else {
                return Ok(AttemptOutcome::Gone);
            };
            let sent = post_to_webhook(app, senders, namespace, webhook, notice).await;
            // Success is the usual case, and writes nothing unless it ends a failure.
            if sent.is_err() || webhook.failing_since.is_some() {
                record_outcome(app, namespace, id, &sent).await?;
            }
            Ok(sent.into())
        }
        Recipient::Owner(user_id) => {
            let Some(mailer) = &senders.mailer else {
                return Ok(AttemptOutcome::Gone);
            };
            let Some(to) = recipients::owner_address(app, namespace, user_id).await? else {
                return Ok(AttemptOutcome::Gone);
            };
            // Each owner's mail is a separate message with its own id.
            let id = &format!("{}.{user_id}", notice.id);
            let (slug, base) = (&namespace.slug, app.config.public_url.base());
            let mail = message::owner_mail(to, slug, base, Notice { id, ..notice });
            Ok(mailer.send(&mail).await.into())
        }
    }
}

async fn post_to_webhook(
    app: &App,
    senders: &Senders,
    namespace: &Namespace,
    webhook: &Webhook,
    notice: Notice<'_>,
) -> Result<(), SendError> {
    // Checked again here, because the setting may have changed since the address was stored.
    if !webhook.address.has_port_of(&app.config.webhook_ports) {
        return Err(SendError::Port);
    }
    let now = app.clock.now();
    let body = message::webhook_body(&namespace.slug, notice.event, notice.at);
    // The signature covers the time of the attempt, not of the event: endpoints reject old ones as
    // replays.
    let message = WebhookMessage {
        address: webhook.address.clone(),
        id: notice.id.to_owned(),
        at: now,
        signature: webhook.secret.sign(notice.id, now, &body),
        body,
    };
    senders.webhooks.post(&message).await
}

/// Sends a test notice to a webhook immediately, even if it is switched off. If the notice arrives,
/// the webhook is on again. `None` if there is no such webhook.
pub(crate) async fn test_webhook(
    app: &App,
    senders: &Senders,
    namespace: &Namespace,
    id: &str,
) -> Result<Option<Result<(), SendError>>, StoreError> {
    let (destinations, _) = Destinations::find(app, &namespace.id).await?;
    let Some(webhook) = destinations.find_webhook(id) else {
        return Ok(None);
    };
    let message_id = format!("msg_{}", app.fresh_id());
    let notice = Notice {
        id: &message_id,
        event: &Event::Test {},
        at: app.clock.now(),
    };
    let sent = post_to_webhook(app, senders, namespace, webhook, notice).await;
    record_outcome(app, namespace, id, &sent).await?;
    Ok(Some(sent))
}

/// Records the result of an attempt in the webhook's state, if it changes the state.
async fn record_outcome(
    app: &App,
    namespace: &Namespace,
    id: &str,
    sent: &Result<(), SendError>,
) -> Result<(), StoreError> {
    let now = app.clock.now();
    app.change(async |tx| {
        let (mut destinations, when) = Destinations::find(&tx, &namespace.id).await?;
        let webhook_entry = destinations
            .webhooks
            .iter_mut()
            .find(|webhook| webhook.id == id);
        let Some(webhook) = webhook_entry else {
            return Ok(());
        };
        let before = webhook.failing_since;
        // A success that changes nothing is not written: it must not conflict with an owner who
        // edits the destinations.
        let switched = match sent {
            Ok(()) if webhook.record_arrival() => false,
            Ok(()) => return Ok(()),
            Err(_) => webhook.record_failure(describe_failure(&app.config), now),
        };
        tx.write(destinations.to_write(&namespace.id, when)?);
        // In the audit log, since the service and not an owner switched it off.
        if switched {
            let change = Change::about(&id)
                .with_before(json!({ "failing_since": before }))
                .with_after(json!({ "off_since": now }));
            tx.audit(Some(&namespace.id), &Actor::server(), "notice.off", change)?;
        }
        Ok::<_, StoreError>(())
    })
    .await?;
    if let Err(error) = sent {
        tracing::info!(
            namespace = %namespace.id,
            webhook = id,
            error = error_chain(error),
            "a webhook did not take a notice"
        );
    }
    Ok(())
}
