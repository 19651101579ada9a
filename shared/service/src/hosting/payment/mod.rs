//! Events of the payment provider: what a verified event changes.
//!
//! An event, the subscription that it is about, the sign-up and the vault that it pays for are one
//! commit, so that nothing is half done and a repetition does nothing. What follows from it, such
//! as the allocation of a namespace, is done afterwards and can be repeated by anything.

pub(crate) mod event;
pub(crate) mod hook;
pub(crate) mod signature;

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::When;

use super::payment::event::{Checkout, Content, Event};
use super::provisioning;
use crate::app::App;
use crate::model::audit::{self, Actor, Change};
use crate::model::namespace::{self, Subscription};
use crate::model::payment::{
    PaidSubscription, Reported, SubscriptionId, event_key, event_mark, subscription_key,
};
use crate::model::provisioning::{Happened, Provisioning, Reference};
use crate::model::{Versioned, notice};
use crate::notices;
use crate::transaction::Transaction;

pub(crate) use vault_api::PaymentOutcomeWord as Outcome;

/// Takes a verified event. Fails only when the store does; then the provider sends it again.
pub(crate) async fn receive(app: &App, event: &Event) -> Result<Outcome, StoreError> {
    let take = async |tx| take(&tx, app, event).await;
    let (outcome, reference) = app.change(take).await?;
    let (id, outcome_word) = (event.id.as_str(), outcome.as_str());
    match &event.content {
        Content::Other { kind } => tracing::info!(event = id, kind, "payment: not acted on"),
        Content::Subscription {
            subscription,
            reported: Reported::Unknown,
        } => tracing::error!(
            event = id,
            subscription = subscription.as_str(),
            "payment: the state of a subscription is unknown to this version; its vault counts as lapsed"
        ),
        _ => tracing::info!(event = id, outcome = outcome_word, "payment"),
    }
    // A repeated event goes on with what the first delivery left undone.
    if let Some(reference) = reference {
        provisioning::advance(app, &reference).await?;
    }
    Ok(outcome)
}

/// Takes an event in the commit of `tx`. Answers the sign-up that it is about too.
async fn take(
    tx: &Transaction<'_>,
    app: &App,
    event: &Event,
) -> Result<(Outcome, Option<Reference>), StoreError> {
    let (id, reported) = match &event.content {
        Content::Other { .. } => return Ok((Outcome::Ignored, None)),
        Content::Checkout(checkout) => (&checkout.subscription, checkout.reported),
        Content::Subscription {
            subscription,
            reported,
        } => (subscription, *reported),
    };
    let keys = [event_key(&event.id), subscription_key(id)];
    let [mark, held] = tx.get_all(keys).await?;
    let held = Versioned::<PaidSubscription>::read(held)?;
    if mark.is_some() {
        let reference = held.and_then(|held| held.value.reference);
        return Ok((Outcome::Repeated, reference));
    }
    let (paid, when) = match held {
        Some(held) => (
            held.value.after(reported, event.created),
            When::At(held.revision),
        ),
        None => (
            PaidSubscription::new(id.clone(), reported, event.created),
            When::Absent,
        ),
    };
    tx.write(event_mark(&event.id, tx.now())?);
    let paid = match &event.content {
        Content::Checkout(checkout) => bind(tx, app, paid, checkout).await?,
        _ => Some(follow(tx, app, paid).await?),
    };
    let Some(paid) = paid else {
        return Ok((Outcome::Ignored, None));
    };
    tx.write(paid.write(when, tx.now())?);
    Ok((Outcome::Taken, paid.reference))
}

/// Has the sign-up that is bound to a subscription follow its new state.
async fn follow(
    tx: &Transaction<'_>,
    app: &App,
    paid: PaidSubscription,
) -> Result<PaidSubscription, StoreError> {
    if let Some(reference) = &paid.reference
        && let Some(sign_up) = provisioning::find(tx, reference).await?
        // A subscription that another one has replaced decides nothing any more.
        && sign_up.value.subscription.as_ref() == Some(&paid.id)
    {
        let after = sign_up.value.clone();
        settle(tx, app, &sign_up, after, &paid).await?;
    }
    Ok(paid)
}

/// Binds a subscription to the sign-up that its checkout names. Answers the subscription as it
/// stands then; `None` leaves it as it is.
async fn bind(
    tx: &Transaction<'_>,
    app: &App,
    paid: PaidSubscription,
    checkout: &Checkout,
) -> Result<Option<PaidSubscription>, StoreError> {
    let subscription = paid.id.as_str().to_owned();
    let sign_up = match &checkout.reference {
        Some(reference) => provisioning::find(tx, reference).await?,
        None => None,
    };
    let Some(sign_up) = sign_up else {
        tracing::error!(
            subscription,
            "payment: a checkout names no sign-up of this service, or one that has expired"
        );
        return Ok(None);
    };
    let reference = sign_up.value.reference.clone();
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
    let bound = sign_up.value.after(Happened::Bound(paid.id.clone()));
    let bound = bound
        .ok()
        .flatten()
        .unwrap_or_else(|| sign_up.value.clone());
    settle(tx, app, &sign_up, bound, &paid).await?;
    Ok(Some(paid))
}

/// Whether a sign-up has a first subscription that is not over; then the audit log says so.
async fn is_second(
    tx: &Transaction<'_>,
    sign_up: &Provisioning,
    id: &SubscriptionId,
) -> Result<bool, StoreError> {
    let Some(first) = sign_up.subscription.as_ref().filter(|first| *first != id) else {
        return Ok(false);
    };
    let held = tx.get::<PaidSubscription>(&subscription_key(first)).await?;
    if held.is_none_or(|held| held.value.is_over()) {
        return Ok(false);
    }
    let change = Change::about(&sign_up.slug)
        .before(json!({ "subscription_id": first }))
        .after(json!({ "subscription_id": id }));
    log(tx, sign_up, "payment.second", &change, "ignored")?;
    Ok(true)
}

/// Has a sign-up, read as `seen` and changed to `after`, and its vault follow the subscription that
/// pays for them.
async fn settle(
    tx: &Transaction<'_>,
    app: &App,
    seen: &Versioned<Provisioning>,
    after: Provisioning,
    paid: &PaidSubscription,
) -> Result<(), StoreError> {
    let access = paid.access(app.config.hosting.grace_days);
    let confirmed = match access {
        Subscription::Active => after.after(Happened::Paid).ok().flatten(),
        _ => None,
    };
    let is_confirmed = confirmed.is_some();
    let after = confirmed.unwrap_or(after);
    if after != seen.value {
        tx.write(after.write(When::At(seen.revision))?);
        let change = Change::about(&after.slug)
            .before(json!({ "paid_access": seen.value.paid_access }))
            .after(json!({
                "paid_access": after.paid_access, "subscription_id": paid.id,
            }));
        log(tx, &after, "payment.bind", &change, "done")?;
    }
    if is_confirmed {
        tx.write_all(provisioning::confirmed(tx, &after).await?);
    }
    let Some(reference) = &after.namespace else {
        return Ok(());
    };
    let found = namespace::find(tx, &reference.slug).await?;
    let Some((mut namespace, revision)) = found.filter(|(found, _)| found.id == reference.id)
    else {
        tracing::warn!(
            subscription = paid.id.as_str(),
            "payment: the vault that a subscription pays for was deleted"
        );
        return Ok(());
    };
    if namespace.subscription != access {
        let change = Change::about(&namespace.slug)
            .before(json!({ "subscription": namespace.subscription }))
            .after(json!({ "subscription": access }));
        namespace.subscription = access;
        let served_until = match access {
            Subscription::None | Subscription::Active => None,
            Subscription::PastDue { until } => Some(Some(until)),
            Subscription::Lapsed => Some(None),
        };
        if let Some(served_until) = served_until {
            let event = notice::Event::PaymentFailed { served_until };
            tx.write_all(notices::queue(tx, &namespace, event).await?);
        }
        tx.write(namespace.update(revision)?);
        log(tx, &after, "payment.change", &change, "done")?;
    }
    Ok(())
}

/// Adds the audit records of what a payment did, in the log of the service and in that of the vault.
fn log(
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
        let entry = audit::entry(tx, log, &Actor::server(), action, change.clone(), outcome)?;
        tx.write(entry);
    }
    Ok(())
}
