//! `…/notices`: the destinations of a vault's notices, which are messages about events to webhooks
//! and, by mail, to owners.

use axum::http::StatusCode;
use serde_json::json;
use vault_api::{Given, NewWebhook, NoticeDestinations, NoticeMail, TestedWebhook, WebhookState};

use super::call::{Answer, Call};
use super::principal::{Principal, require_consent};
use crate::app::App;
use crate::error::{ErrorCode, Refusal};
use crate::http::json_answer;
use crate::model::audit::Change;
use crate::model::fresh_id;
use crate::model::limits::{self, Window};
use crate::model::notice::{Destinations, MAX_WEBHOOKS, Topic, Webhook};
use crate::model::webhook::{BadWebhookAddress, SigningSecret, WebhookAddress};
use crate::notices;
use crate::senders::Senders;
use crate::transaction::Transaction;

/// Maximum number of test notices per vault and hour, because the service sends each one
/// immediately.
const MAX_TESTS: u32 = 30;

/// Converts a webhook to its form in the API; `secret` is shown only once, to the owner who adds
/// it.
fn to_api_webhook(app: &App, webhook: &Webhook, secret: Option<String>) -> vault_api::Webhook {
    let events = match webhook.events.as_slice() {
        // An empty filter means all topics. It stays empty in the record, so that a webhook gets
        // topics of later versions too.
        [] => Topic::ALL.to_vec(),
        some => some.to_vec(),
    };
    let state = match (webhook.off_since, webhook.failing_since) {
        (Some(_), _) => WebhookState::Off,
        (None, Some(_)) => WebhookState::Failing,
        (None, None) => WebhookState::On,
    };
    vault_api::Webhook {
        id: webhook.id.clone(),
        address: webhook.address.as_str().to_owned(),
        secret,
        events,
        state,
        failing_since: webhook.failing_since,
        // The stored text is not shown: earlier versions stored the cause there, which is for the
        // operator alone.
        last_failure: webhook
            .last_failure
            .as_ref()
            .map(|_| notices::describe_failure(&app.config)),
        off_since: webhook.off_since,
        created_by: webhook.created_by.clone(),
        client_id: webhook.client.clone().map(Into::into),
        created_at: webhook.created_at,
    }
}

/// Lists the webhooks, and whether owners get mail.
pub(super) async fn list_destinations(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let (destinations, _) = Destinations::find(&call.app, &namespace.id).await?;
    let destination_list = NoticeDestinations {
        webhooks: destinations
            .webhooks
            .iter()
            .map(|webhook| to_api_webhook(&call.app, webhook, None))
            .collect(),
        mail: destinations.mail,
        mail_available: has_mailer(&call),
    };
    Ok(json_answer(StatusCode::OK, &destination_list))
}

/// Adds a webhook. Only this answer contains its secret.
pub(super) async fn add_webhook(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let new_webhook: NewWebhook = call.json_body().await?;
    let address = parse_address(&call, &new_webhook.address)?;
    let events = parse_topics(&new_webhook.events)?;
    let (now, random) = (call.app.clock.now(), &call.app.random);
    let webhook = Webhook {
        id: fresh_id("whk_", now, random),
        address,
        secret: SigningSecret::fresh(random),
        events,
        created_by: call.actor.user.clone(),
        client: Some(call.caller.consent.client.clone()),
        created_at: now,
        failing_since: None,
        last_failure: None,
        off_since: None,
    };
    let add = async |tx: Transaction<'_>| {
        require_consent(&tx, Some(&call.caller.consent)).await?;
        let (mut destinations, when) = Destinations::find(&tx, &namespace.id).await?;
        if destinations.webhooks.len() >= MAX_WEBHOOKS {
            return Err(Refusal::new(ErrorCode::WebhookLimit));
        }
        destinations.webhooks.push(webhook.clone());
        let change = Change::about(&webhook.id)
            .with_after(json!({ "address": webhook.address, "events": webhook.events }));
        tx.write(destinations.to_write(&namespace.id, when)?);
        call.write_audit(&tx, "notice.add", change)
    };
    call.app.change(add).await?;
    let added = to_api_webhook(&call.app, &webhook, Some(webhook.secret.text()));
    Ok(json_answer(StatusCode::CREATED, &added))
}

/// Parses the address of a new webhook; fails with 422 and the reason.
fn parse_address(call: &Call, text: &str) -> Result<WebhookAddress, Refusal> {
    let address: Result<WebhookAddress, _> = text.parse();
    // Addresses on this machine are for trying webhooks out. A service with a public address could
    // be made to call its own internal ports.
    let is_here = call.app.config.public_url.is_loopback();
    let address = address.and_then(|address| {
        if address.is_local() && !is_here {
            return Err(BadWebhookAddress::NotHttps);
        }
        // Other ports may be those of databases, mail and shells, which notices must not reach.
        if !address.has_port_of(&call.app.config.webhook_ports) {
            return Err(BadWebhookAddress::Port);
        }
        Ok(address)
    });
    address.map_err(|error| {
        let detail = match error {
            BadWebhookAddress::Port => {
                let ports = notices::describe_ports(&call.app.config);
                format!("The port of the address must be {ports}.")
            }
            other => other.to_string(),
        };
        Refusal::new(ErrorCode::WebhookAddressInvalid).detail(detail)
    })
}

/// Parses the topics of a webhook's filter, without duplicates. An empty filter stands for all
/// topics.
fn parse_topics(words: &[Given<Topic>]) -> Result<Vec<Topic>, Refusal> {
    let mut topics = Vec::new();
    for word in words {
        let topic = word.parse_or(ErrorCode::ParameterInvalid)?;
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    }
    Ok(topics)
}

/// Removes a webhook. Notices that wait for it are no longer sent.
pub(super) async fn remove_webhook(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let id = call.param("id");
    let remove = async |tx: Transaction<'_>| {
        let (mut destinations, when) = Destinations::find(&tx, &namespace.id).await?;
        let at = destinations.webhooks.iter().position(|held| held.id == id);
        let removed = destinations.webhooks.remove(at.ok_or(ErrorCode::NotFound)?);
        let change = removal_change(&removed);
        tx.write(destinations.to_write(&namespace.id, when)?);
        call.write_audit(&tx, "notice.remove", change)?;
        Ok::<_, Refusal>(removed)
    };
    let removed = call.app.change(remove).await?;
    Ok(json_answer(
        StatusCode::OK,
        &to_api_webhook(&call.app, &removed, None),
    ))
}

/// Returns the content of the log entry about the removal of a webhook.
fn removal_change(webhook: &Webhook) -> Change {
    let before = json!({ "address": webhook.address, "events": webhook.events });
    Change::about(&webhook.id).with_before(before)
}

/// Removes the webhooks with these ids in the commit of the transaction, and logs each removal.
pub(super) async fn remove_webhooks(
    tx: &Transaction<'_>,
    by: &Principal<'_>,
    ids: &[String],
) -> Result<(), Refusal> {
    let namespace = &by.namespace.id;
    let (mut destinations, when) = Destinations::find(tx, namespace).await?;
    let is_named = |webhook: &Webhook| ids.contains(&webhook.id);
    let (removed, kept) = destinations.webhooks.into_iter().partition(is_named);
    destinations.webhooks = kept;
    let removed: Vec<Webhook> = removed;
    if removed.is_empty() {
        return Ok(());
    }
    tx.write(destinations.to_write(namespace, when)?);
    for webhook in &removed {
        by.write_audit(tx, "notice.remove", removal_change(webhook))?;
    }
    Ok(())
}

/// Sends a test notice immediately. If it arrives, a webhook that was switched off is on again.
pub(super) async fn test_webhook(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let id = call.param("id");
    let (destinations, _) = Destinations::find(&call.app, &namespace.id).await?;
    if destinations.find_webhook(id).is_none() {
        return Err(ErrorCode::NotFound.into());
    }
    let senders = require_senders(&call)?;
    let (app, now) = (&call.app, call.app.clock.now());
    let vault = namespace.id.to_string();
    let window = Window::about_subject("notice-tests", vault, MAX_TESTS, 3600);
    // Counted before the request is sent: an owner could otherwise have the service flood a host of
    // their choice.
    limits::count_or_refuse(app, &[window], now).await?;
    let sent = notices::test_webhook(app, senders, &namespace, id).await?;
    let sent = sent.ok_or(ErrorCode::NotFound)?;
    let tested = TestedWebhook {
        id: id.to_owned(),
        arrived: sent.is_ok(),
        failure: sent.err().map(|_| notices::describe_failure(&app.config)),
    };
    Ok(json_answer(StatusCode::OK, &tested))
}

/// Sets whether every owner gets notices by mail.
pub(super) async fn set_mail(call: Call) -> Answer {
    let (namespace, _) = call.path_namespace()?;
    let setting: NoticeMail = call.json_body().await?;
    if setting.mail && !has_mailer(&call) {
        return Err(ErrorCode::MailUnavailable.into());
    }
    let set = async |tx: Transaction<'_>| {
        let (mut destinations, when) = Destinations::find(&tx, &namespace.id).await?;
        let before = destinations.mail;
        if before == setting.mail {
            return Ok(());
        }
        destinations.mail = setting.mail;
        let change = Change::about(&namespace.slug)
            .with_before(json!({ "mail": before }))
            .with_after(json!({ "mail": setting.mail }));
        tx.write(destinations.to_write(&namespace.id, when)?);
        call.write_audit(&tx, "notice.mail", change)
    };
    call.app.change(set).await?;
    Ok(json_answer(StatusCode::OK, &setting))
}

fn has_mailer(call: &Call) -> bool {
    let senders = call.app.senders.as_ref();
    senders.is_some_and(|senders| senders.mailer.is_some())
}

fn require_senders(call: &Call) -> Result<&Senders, Refusal> {
    Ok(call.app.senders.as_ref().ok_or(ErrorCode::Unavailable)?)
}
