//! Events of the payment provider: what a verified event changes.
//!
//! An event, the subscription that it is about, the sign-up and the vault that it pays for are one
//! commit, so that nothing is half done and a repetition does nothing. What follows from it, such
//! as the allocation of a namespace, is done afterwards and can be repeated by anything.

pub(crate) mod event;
pub(crate) mod signature;

use serde_json::json;
use vault_store::StoreError;
use vault_store::records::{When, Write};

use self::event::{Checkout, Content, Event};
use crate::app::App;
use crate::model::audit::{Actor, Change};
use crate::model::namespace::{self, Subscription};
use crate::model::payment::{
    PaidSubscription, Reported, SubscriptionId, event_key, event_mark, subscription_key,
};
use crate::model::provisioning::{Happened, Provisioning, Reference};
use crate::model::{Versioned, notice, read_all};
use crate::notices;
use crate::provisioning;
use crate::retry::retry;

pub(crate) use vault_api::PaymentOutcomeWord as Outcome;

/// Takes a verified event. Fails only when the store does; then the provider sends it again.
pub(crate) async fn receive(app: &App, event: &Event) -> Result<Outcome, StoreError> {
    let (outcome, reference) = retry(&*app.random, || attempt(app, event)).await?;
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

type Attempt = Option<(Outcome, Option<Reference>)>;

/// What an event changes.
struct Effect {
    /// The subscription, as it stands then; `None` leaves it as it is.
    paid: Option<PaidSubscription>,
    /// What else is written in the same commit.
    writes: Vec<Write>,
}

/// One try; `None` when something changed meanwhile.
async fn attempt(app: &App, event: &Event) -> Result<Attempt, StoreError> {
    let (id, reported) = match &event.content {
        Content::Other { .. } => return Ok(Some((Outcome::Ignored, None))),
        Content::Checkout(checkout) => (&checkout.subscription, checkout.reported),
        Content::Subscription {
            subscription,
            reported,
        } => (subscription, *reported),
    };
    let keys = [event_key(&event.id), subscription_key(id)];
    let [mark, held] = read_all(&*app.records, keys).await?;
    let held = Versioned::<PaidSubscription>::read(held)?;
    if mark.is_some() {
        let reference = held.and_then(|held| held.value.reference);
        return Ok(Some((Outcome::Repeated, reference)));
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
    let effect = match &event.content {
        Content::Checkout(checkout) => bind(app, paid, checkout).await?,
        _ => follow(app, paid).await?,
    };
    let now = app.clock.now();
    let mut writes = vec![event_mark(&event.id, now)?];
    writes.extend(effect.writes);
    let (outcome, reference) = match effect.paid {
        None => (Outcome::Ignored, None),
        Some(paid) => {
            writes.push(paid.write(when, now)?);
            (Outcome::Taken, paid.reference)
        }
    };
    let done = app.try_commit(writes).await?;
    Ok(done.then_some((outcome, reference)))
}

/// What a new state of a subscription changes for the sign-up that is bound to it.
async fn follow(app: &App, paid: PaidSubscription) -> Result<Effect, StoreError> {
    let mut writes = Vec::new();
    if let Some(reference) = &paid.reference
        && let Some(sign_up) = provisioning::find(app, reference).await?
        // A subscription that another one has replaced decides nothing any more.
        && sign_up.value.subscription.as_ref() == Some(&paid.id)
    {
        let after = sign_up.value.clone();
        writes = effects(app, &sign_up, after, &paid).await?;
    }
    Ok(Effect {
        paid: Some(paid),
        writes,
    })
}

/// Binds a subscription to the sign-up that its checkout names.
async fn bind(
    app: &App,
    paid: PaidSubscription,
    checkout: &Checkout,
) -> Result<Effect, StoreError> {
    let subscription = paid.id.as_str().to_owned();
    let nothing = Effect {
        paid: None,
        writes: Vec::new(),
    };
    let sign_up = match &checkout.reference {
        Some(reference) => provisioning::find(app, reference).await?,
        None => None,
    };
    let Some(sign_up) = sign_up else {
        tracing::error!(
            subscription,
            "payment: a checkout names no sign-up of this service, or one that has expired"
        );
        return Ok(nothing);
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
        return Ok(nothing);
    }
    if let Some(writes) = second(app, &sign_up.value, &paid.id).await? {
        tracing::error!(
            subscription,
            "payment: a vault that is paid for was paid for again; refund one of the two"
        );
        return Ok(Effect { paid: None, writes });
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
    let writes = effects(app, &sign_up, bound, &paid).await?;
    Ok(Effect {
        paid: Some(paid),
        writes,
    })
}

/// The audit entries about a second subscription for a sign-up whose first one is not over; `None`
/// where there is no such subscription.
async fn second(
    app: &App,
    sign_up: &Provisioning,
    id: &SubscriptionId,
) -> Result<Option<Vec<Write>>, StoreError> {
    let Some(first) = sign_up.subscription.as_ref().filter(|first| *first != id) else {
        return Ok(None);
    };
    let held = app.records.get(&subscription_key(first)).await?;
    let held = Versioned::<PaidSubscription>::read(held)?;
    if held.is_none_or(|held| held.value.is_over()) {
        return Ok(None);
    }
    let change = Change {
        target: Some(sign_up.slug.to_string()),
        before: Some(json!({ "subscription_id": first })),
        after: Some(json!({ "subscription_id": id })),
    };
    noted(app, sign_up, "payment.second", &change, "ignored").map(Some)
}

/// The writes by which a sign-up, read as `seen` and changed to `after`, and its vault follow the
/// subscription that pays for them.
async fn effects(
    app: &App,
    seen: &Versioned<Provisioning>,
    after: Provisioning,
    paid: &PaidSubscription,
) -> Result<Vec<Write>, StoreError> {
    let access = paid.access(app.config.hosting.grace_days);
    let confirmed = match access {
        Subscription::Active => after.after(Happened::Paid).ok().flatten(),
        _ => None,
    };
    let is_confirmed = confirmed.is_some();
    let after = confirmed.unwrap_or(after);
    let mut writes = Vec::new();
    if after != seen.value {
        writes.push(after.write(When::At(seen.revision))?);
        let change = Change {
            target: Some(after.slug.to_string()),
            before: Some(json!({ "paid_access": seen.value.paid_access })),
            after: Some(json!({
                "paid_access": after.paid_access, "subscription_id": paid.id,
            })),
        };
        writes.extend(noted(app, &after, "payment.bind", &change, "done")?);
    }
    if is_confirmed {
        writes.extend(provisioning::confirmed(app, &after).await?);
    }
    let Some(reference) = &after.namespace else {
        return Ok(writes);
    };
    let found = namespace::find(&*app.records, &reference.slug).await?;
    let Some((mut namespace, revision)) = found.filter(|(found, _)| found.id == reference.id)
    else {
        tracing::warn!(
            subscription = paid.id.as_str(),
            "payment: the vault that a subscription pays for was deleted"
        );
        return Ok(writes);
    };
    if namespace.subscription != access {
        let change = Change {
            target: Some(namespace.slug.to_string()),
            before: Some(json!({ "subscription": namespace.subscription })),
            after: Some(json!({ "subscription": access })),
        };
        namespace.subscription = access;
        let served_until = match access {
            Subscription::None | Subscription::Active => None,
            Subscription::PastDue { until } => Some(Some(until)),
            Subscription::Lapsed => Some(None),
        };
        if let Some(served_until) = served_until {
            let event = notice::Event::PaymentFailed { served_until };
            writes.extend(notices::queue(app, &namespace, event).await?);
        }
        writes.push(namespace.update(revision)?);
        writes.extend(noted(app, &after, "payment.change", &change, "done")?);
    }
    Ok(writes)
}

/// The audit entries of what a payment did, in the log of the service and in that of the vault.
fn noted(
    app: &App,
    sign_up: &Provisioning,
    action: &str,
    change: &Change,
    outcome: &str,
) -> Result<Vec<Write>, StoreError> {
    let vault = sign_up
        .namespace
        .as_ref()
        .map(|namespace| Some(&namespace.id));
    let logs = std::iter::once(None).chain(vault);
    logs.map(|log| app.audit(log, &Actor::server(), action, change.clone(), outcome))
        .collect()
}
