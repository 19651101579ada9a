//! Effects of verified payment events.
//!
//! An event, its subscription, the sign-up and the vault that it pays for change in one commit, so
//! that nothing is half done and a repeated event changes nothing. What follows from it, such as
//! the allocation of a namespace, is done in later commits, which any process can repeat.

pub(crate) mod event;
pub(crate) mod hook;
pub(crate) mod signature;

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::When;

use super::payment::event::{Checkout, Event, EventContent};
use super::provisioning;
use crate::app::App;
use crate::model::audit::{self, Actor, Change};
use crate::model::namespace::{self, Subscription};
use crate::model::payment::{
    PaidSubscription, ReportedState, SubscriptionId, event_key, event_mark, subscription_key,
};
use crate::model::provisioning::{Provisioning, ProvisioningEvent, Reference};
use crate::model::{Versioned, notice};
use crate::notices;
use crate::transaction::Transaction;

pub(crate) use vault_api::PaymentOutcomeWord as Outcome;

/// Processes a verified event. Fails only when the store does; the provider then sends it again.
pub(crate) async fn process_event(app: &App, event: &Event) -> Result<Outcome, StoreError> {
    let take = async |tx| apply_event(&tx, app, event).await;
    let (outcome, reference) = app.change(take).await?;
    let (id, outcome_word) = (event.id.as_str(), outcome.as_str());
    match &event.content {
        EventContent::Other { kind } => tracing::info!(event = id, kind, "payment: not acted on"),
        EventContent::Subscription {
            subscription,
            reported: ReportedState::Unknown,
        } => tracing::error!(
            event = id,
            subscription = subscription.as_str(),
            "payment: the state of a subscription is unknown to this version; its vault counts as lapsed"
        ),
        _ => tracing::info!(event = id, outcome = outcome_word, "payment"),
    }
    // For a repeated event too: it continues what the first delivery left undone.
    if let Some(reference) = reference {
        provisioning::advance_sign_up(app, &reference).await?;
    }
    Ok(outcome)
}

/// Processes an event in the commit of `tx`. Also returns the sign-up that it is about.
async fn apply_event(
    tx: &Transaction<'_>,
    app: &App,
    event: &Event,
) -> Result<(Outcome, Option<Reference>), StoreError> {
    let (id, reported) = match &event.content {
        EventContent::Other { .. } => return Ok((Outcome::Ignored, None)),
        EventContent::Checkout(checkout) => (&checkout.subscription, checkout.reported),
        EventContent::Subscription {
            subscription,
            reported,
        } => (subscription, *reported),
    };
    let keys = [event_key(&event.id), subscription_key(id)];
    let [mark, record] = tx.get_all(keys).await?;
    let stored = Versioned::<PaidSubscription>::read(record)?;
    // The mark is part of the commit of all effects, so where it exists they are done.
    if mark.is_some() {
        let reference = stored.and_then(|held| held.value.reference);
        return Ok((Outcome::Repeated, reference));
    }
    // Events arrive in any order, and one that is older than the newest changes nothing.
    let (paid, when) = match stored {
        Some(held) => (
            held.value.after_event(reported, event.created),
            When::At(held.revision),
        ),
        None => (
            PaidSubscription::new(id.clone(), reported, event.created),
            When::Absent,
        ),
    };
    // An event that is ignored below is marked too, so that it is not judged again when it is
    // repeated.
    tx.write(event_mark(&event.id, tx.now())?);
    let paid = match &event.content {
        EventContent::Checkout(checkout) => bind_subscription(tx, app, paid, checkout).await?,
        _ => Some(update_sign_up(tx, app, paid).await?),
    };
    let Some(paid) = paid else {
        return Ok((Outcome::Ignored, None));
    };
    tx.write(paid.to_write(when, tx.now())?);
    Ok((Outcome::Taken, paid.reference))
}

/// Applies the new state of a subscription to the sign-up that it is bound to.
async fn update_sign_up(
    tx: &Transaction<'_>,
    app: &App,
    paid: PaidSubscription,
) -> Result<PaidSubscription, StoreError> {
    if let Some(reference) = &paid.reference
        && let Some(sign_up) = provisioning::find_sign_up(tx, reference).await?
        // A subscription that was replaced by another one no longer decides anything.
        && sign_up.value.subscription.as_ref() == Some(&paid.id)
    {
        let after = sign_up.value.clone();
        settle_sign_up(tx, app, &sign_up, after, &paid).await?;
    }
    Ok(paid)
}

/// Binds a subscription to the sign-up that its checkout names. Returns the subscription as it is
/// then; `None` leaves it unchanged.
async fn bind_subscription(
    tx: &Transaction<'_>,
    app: &App,
    paid: PaidSubscription,
    checkout: &Checkout,
) -> Result<Option<PaidSubscription>, StoreError> {
    let subscription = paid.id.as_str().to_owned();
    let sign_up = match &checkout.reference {
        Some(reference) => provisioning::find_sign_up(tx, reference).await?,
        None => None,
    };
    let Some(sign_up) = sign_up else {
        // Ignored and not an error: the provider's repetitions would not find the sign-up either.
        tracing::error!(
            subscription,
            "payment: a checkout names no sign-up of this service, or one that has expired"
        );
        return Ok(None);
    };
    let reference = sign_up.value.reference.clone();
    // A later checkout must not move a subscription away from the vault that it pays for.
    if paid
        .reference
        .as_ref()
        .is_some_and(|bound| *bound != reference)
    {
        tracing::error!(
            subscription,
            "payment: a subscription is bound to another sign-up"
        );
        return Ok(None);
    }
    // The second subscription stays unbound, so refunding it does not take the vault away.
    if is_second(tx, &sign_up.value, &paid.id).await? {
        tracing::error!(
            subscription,
            "payment: a vault that is paid for was paid for again; refund one of the two"
        );
        return Ok(None);
    }
    let paid = PaidSubscription {
        reference: Some(reference),
        customer: checkout.customer.clone().or(paid.customer),
        ..paid
    };
    let bound = sign_up
        .value
        .after_event(ProvisioningEvent::Bound(paid.id.clone()));
    // Nothing changes where the sign-up is bound to this subscription already.
    let bound = bound
        .ok()
        .flatten()
        .unwrap_or_else(|| sign_up.value.clone());
    settle_sign_up(tx, app, &sign_up, bound, &paid).await?;
    Ok(Some(paid))
}

/// Returns whether a sign-up has another subscription that is not over, and adds that to the audit
/// log.
async fn is_second(
    tx: &Transaction<'_>,
    sign_up: &Provisioning,
    id: &SubscriptionId,
) -> Result<bool, StoreError> {
    let Some(first) = sign_up.subscription.as_ref().filter(|first| *first != id) else {
        return Ok(false);
    };
    let first_paid = tx.get::<PaidSubscription>(&subscription_key(first)).await?;
    if first_paid.is_none_or(|held| held.value.is_over()) {
        return Ok(false);
    }
    let change = Change::about(&sign_up.slug)
        .with_before(json!({ "subscription_id": first }))
        .with_after(json!({ "subscription_id": id }));
    write_audits(tx, sign_up, "payment.second", &change, "ignored")?;
    Ok(true)
}

/// Applies a subscription to the sign-up that it pays for, read as `seen` and changed to `after`,
/// and to the vault of the sign-up.
async fn settle_sign_up(
    tx: &Transaction<'_>,
    app: &App,
    seen: &Versioned<Provisioning>,
    after: Provisioning,
    paid: &PaidSubscription,
) -> Result<(), StoreError> {
    let access = paid.vault_access(app.config.hosting.grace_days);
    // A first payment that failed confirms nothing: the sign-up goes on waiting.
    let confirmed = match access {
        Subscription::Active => after.after_event(ProvisioningEvent::Paid).ok().flatten(),
        _ => None,
    };
    let is_confirmed = confirmed.is_some();
    let after = confirmed.unwrap_or(after);
    if after != seen.value {
        tx.write(after.to_write(When::At(seen.revision))?);
        let change = Change::about(&after.slug)
            .with_before(json!({ "paid_access": seen.value.paid_access }))
            .with_after(json!({
                "paid_access": after.paid_access, "subscription_id": paid.id,
            }));
        write_audits(tx, &after, "payment.bind", &change, "done")?;
    }
    if is_confirmed {
        tx.write_all(provisioning::confirmation_writes(tx, &after).await?);
    }
    let Some(reference) = &after.namespace else {
        return Ok(());
    };
    // The id decides, since a slug does not say which allocation was paid for.
    let namespace_and_revision = namespace::find_namespace(tx, &reference.slug).await?;
    let Some((mut namespace, revision)) =
        namespace_and_revision.filter(|(found, _)| found.id == reference.id)
    else {
        tracing::warn!(
            subscription = paid.id.as_str(),
            "payment: the vault that a subscription pays for was deleted"
        );
        return Ok(());
    };
    if namespace.subscription != access {
        let change = Change::about(&namespace.slug)
            .with_before(json!({ "subscription": namespace.subscription }))
            .with_after(json!({ "subscription": access }));
        namespace.subscription = access;
        // One notice for each change of state, however many attempts to collect a payment fail.
        let served_until = match access {
            Subscription::None | Subscription::Active => None,
            Subscription::PastDue { until } => Some(Some(until)),
            Subscription::Lapsed => Some(None),
        };
        if let Some(served_until) = served_until {
            let event = notice::Event::PaymentFailed { served_until };
            tx.write_all(notices::queue_notice(tx, &namespace, event).await?);
        }
        tx.write(namespace.update_write(revision)?);
        write_audits(tx, &after, "payment.change", &change, "done")?;
    }
    Ok(())
}

/// Adds the audit entries about a payment, to the log of the service and to that of the vault.
fn write_audits(
    tx: &Transaction<'_>,
    sign_up: &Provisioning,
    action: &str,
    change: &Change,
    outcome: &str,
) -> Result<(), StoreError> {
    let vault = sign_up
        .namespace
        .as_ref()
        .map(|namespace| Some(&namespace.id));
    for log in std::iter::once(None).chain(vault) {
        let entry = audit::entry_write(tx, log, &Actor::server(), action, change.clone(), outcome)?;
        tx.write(entry);
    }
    Ok(())
}
