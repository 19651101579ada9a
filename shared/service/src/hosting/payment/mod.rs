//! Applies verified payment events to subscriptions, sign-ups and vaults.
//!
//! One commit changes the event's mark, its subscription, the sign-up and the vault that it pays
//! for: nothing is half done, and a repeated event changes nothing. Later steps, such as the
//! allocation of a namespace, are commits of their own, which any process can repeat.

pub(crate) mod event;
pub(crate) mod hook;
pub(crate) mod signature;

use serde_json::json;
use vault_api::PaymentProblemKind as Kind;
use vault_store::StoreError;
use vault_store::records::{When, Write};

use super::payment::event::{Checkout, Event, EventContent};
use super::provisioning;
use super::subscriptions::{Judged, judge_subscriptions, plan_offer};
use crate::app::App;
use crate::config::hosting::Offer;
use crate::model::audit::{Actor, Change};
use crate::model::namespace::{self, Subscription};
use crate::model::payment::{
    Fit, ListedEvent, PaidSubscription, ReportedState, SubscriptionState, event_key, event_mark,
    subscription_key,
};
use crate::model::payment_problem::{StoredProblem, problem_key};
use crate::model::provisioning::{
    MAX_STANDBY, Provisioning, ProvisioningEvent, Reference, provisioning_key,
};
use crate::model::{Versioned, notice};
use crate::notices;
use crate::transaction::Transaction;

pub(crate) use vault_api::PaymentOutcomeWord as Outcome;

/// What an event does to the subscription that it is about.
struct EventEffect {
    /// The subscription after the event; `None` if the event does not change it.
    paid: Option<PaidSubscription>,
    problem: Option<Problem>,
    /// Whether the event is about something else that the operator sells through the provider.
    is_foreign: bool,
}

/// A payment that is put into the operator's list of problems.
struct Problem {
    kind: Kind,
    /// The link, price or currency that the payment names.
    found: Option<String>,
    /// The sign-up, for the name and plan of the vault.
    sign_up: Option<Provisioning>,
}

impl Problem {
    fn new(kind: Kind, sign_up: &Provisioning) -> Self {
        Self {
            kind,
            found: None,
            sign_up: Some(sign_up.clone()),
        }
    }

    /// Sets the link, price or currency that the payment has in place of the plan's.
    fn with_found(self, found: Option<String>) -> Self {
        Self { found, ..self }
    }

    /// Whether the payment counts in spite of the problem, or will count.
    const fn is_remark(&self) -> bool {
        matches!(self.kind, Kind::SecondSubscription | Kind::PriceAwaited)
    }
}

impl EventEffect {
    const fn refused(problem: Problem) -> Self {
        Self {
            paid: None,
            problem: Some(problem),
            is_foreign: false,
        }
    }

    const fn taken(paid: PaidSubscription, problem: Option<Problem>) -> Self {
        Self {
            paid: Some(paid),
            problem,
            is_foreign: false,
        }
    }

    const FOREIGN: Self = Self {
        paid: None,
        problem: None,
        is_foreign: true,
    };

    /// Whether the event was refused, and is in the operator's list for that.
    fn is_refused(&self) -> bool {
        self.problem.as_ref().is_some_and(|it| !it.is_remark())
    }

    fn outcome(&self) -> Outcome {
        match self {
            _ if self.is_foreign => Outcome::Ignored,
            _ if self.is_refused() => Outcome::Refused,
            _ => Outcome::Taken,
        }
    }
}

/// Processes a verified event. Fails only if the store does; the provider then sends the event
/// again.
pub(crate) async fn process_event(app: &App, event: &Event) -> Result<Outcome, StoreError> {
    let take = async |tx| apply_event(&tx, app, event).await;
    let (outcome, reference) = app.change(take).await?;
    let (id, outcome_word) = (event.id.as_str(), outcome.as_str());
    match &event.content {
        EventContent::Other { kind } => tracing::info!(event = id, kind, "payment: not acted on"),
        _ => tracing::info!(event = id, outcome = outcome_word, "payment"),
    }
    // Also after a repeated event: it continues what the first delivery left undone.
    if let Some(reference) = reference {
        provisioning::advance_sign_up(app, &reference).await?;
    }
    Ok(outcome)
}

/// Applies an event in the commit of `tx`. Also returns the reference of the sign-up that it is
/// about.
async fn apply_event(
    tx: &Transaction<'_>,
    app: &App,
    event: &Event,
) -> Result<(Outcome, Option<Reference>), StoreError> {
    let (id, reported, terms) = match &event.content {
        EventContent::Other { .. } => return Ok((Outcome::Ignored, None)),
        EventContent::Checkout(checkout) => (&checkout.subscription, checkout.reported, None),
        EventContent::Subscription {
            subscription,
            reported,
            terms,
        } => (subscription, *reported, terms.clone()),
    };
    let problem_key = problem_key(&event.id, event.created);
    let keys = [event_key(&event.id), subscription_key(id), problem_key];
    let [mark, record, reported_problem] = tx.get_all(keys).await?;
    let stored = Versioned::<PaidSubscription>::read(record)?;
    let is_bound =
        |subscription: &Versioned<PaidSubscription>| subscription.value.reference.is_some();
    // The commit of the effects also writes the mark, so if it exists, they are done. Version 0.5.0
    // also marked checkouts that it ignored; these are judged now.
    let is_checkout = matches!(event.content, EventContent::Checkout(_));
    if mark.is_some() && (!is_checkout || stored.as_ref().is_some_and(is_bound)) {
        let reference = stored.and_then(|subscription| subscription.value.reference);
        return Ok((Outcome::Repeated, reference));
    }
    let before = stored
        .as_ref()
        .map(|subscription| subscription.value.clone());
    // Events arrive in any order; one that is older than the newest changes nothing.
    let (paid, when) = match stored {
        Some(subscription) => (subscription.value, When::At(subscription.revision)),
        None => (
            PaidSubscription::new(id.clone(), event.created),
            When::Absent,
        ),
    };
    let paid = paid.after_report(&event.id, reported, event.created);
    let paid = (paid.with_terms(terms), before.as_ref());
    let mut applied = match &event.content {
        EventContent::Checkout(checkout) if is_foreign(app, &paid.0, checkout) => {
            EventEffect::FOREIGN
        }
        _ if event.live != app.config.hosting.live_payments => refuse_wrong_mode(tx, event).await?,
        EventContent::Checkout(checkout) => bind_subscription(tx, app, paid, checkout).await?,
        _ => update_sign_up(tx, app, paid, reported).await?,
    };
    // A refused event gets no mark: once the operator has corrected the settings, it can be sent
    // again. The same holds for an ignored one.
    let outcome = applied.outcome();
    if outcome == Outcome::Taken && mark.is_none() {
        tx.write(event_mark(&event.id, tx.now())?);
    }
    track_awaited_price(tx, event, &mut applied);
    let seen_problem = reported_problem.map(|record| record.revision);
    write_problem(tx, event, &applied, seen_problem)?;
    let reference = applied
        .paid
        .as_ref()
        .and_then(|paid| paid.reference.clone());
    if let Some(paid) = applied.paid {
        tx.write(paid.to_write(when, tx.now())?);
    }
    Ok((outcome, reference))
}

/// Whether a checkout is for something else that the operator sells through the provider: it names
/// no sign-up, and no link or price of a plan.
fn is_foreign(app: &App, paid: &PaidSubscription, checkout: &Checkout) -> bool {
    let is_offered = |offer: &Offer| {
        let prices = paid.terms.iter().flat_map(|terms| &terms.prices);
        let has_link = checkout.link.iter().any(|link| offer.links.contains(link));
        has_link || prices.into_iter().any(|price| offer.prices.contains(price))
    };
    let mut plans = app.config.hosting.plans.iter();
    checkout.reference.is_none()
        && paid.reference.is_none()
        && !plans.any(|plan| is_offered(&plan.offer))
}

/// Refuses an event of the mode (live or test) that this service does not accept.
async fn refuse_wrong_mode(tx: &Transaction<'_>, event: &Event) -> Result<EventEffect, StoreError> {
    if let EventContent::Checkout(checkout) = &event.content
        && let Some(reference) = &checkout.reference
        && let Some(sign_up) = provisioning::find_sign_up(tx, reference).await?
    {
        note_refusal(tx, &sign_up)?;
    }
    let mode = if event.live { "live" } else { "test" };
    Ok(EventEffect::refused(Problem {
        kind: Kind::WrongMode,
        found: Some(mode.to_owned()),
        sign_up: None,
    }))
}

/// Records on a sign-up that a payment was refused, so that its page warns the owner before a
/// second payment.
fn note_refusal(tx: &Transaction<'_>, seen: &Versioned<Provisioning>) -> Result<(), StoreError> {
    let refused = seen.value.after_event(ProvisioningEvent::Refused(tx.now()));
    if let Some(after) = refused.ok().flatten() {
        tx.write(after.to_write(When::At(seen.revision))?);
    }
    Ok(())
}

/// Records the event by which a subscription got into the operator's list because its price is not
/// known yet. Once the price is known, removes that entry from the list.
fn track_awaited_price(tx: &Transaction<'_>, event: &Event, applied: &mut EventEffect) {
    let Some(paid) = &mut applied.paid else {
        return;
    };
    let is_listed = |problem: &Problem| problem.kind == Kind::PriceAwaited;
    if applied.problem.as_ref().is_some_and(is_listed) {
        paid.price_awaited = Some(ListedEvent {
            event: event.id.clone(),
            at: event.created,
        });
    } else if (paid.last_fit != Some(Fit::PriceAwaited) || paid.is_over())
        && let Some(listed) = paid.price_awaited.take()
        && listed.event != event.id
    {
        let key = problem_key(&listed.event, listed.at);
        tx.write(Write::delete(key, When::Any));
    }
}

/// Writes the problem with an event to the operator's list, or removes the entry of an earlier
/// delivery.
fn write_problem(
    tx: &Transaction<'_>,
    event: &Event,
    applied: &EventEffect,
    seen: Option<u64>,
) -> Result<(), StoreError> {
    let Some(problem) = &applied.problem else {
        let key = problem_key(&event.id, event.created);
        tx.write_all(seen.map(|seen| Write::delete(key, When::At(seen))));
        return Ok(());
    };
    let (subscription, customer) = match &event.content {
        EventContent::Checkout(checkout) => (&checkout.subscription, checkout.customer.clone()),
        EventContent::Subscription { subscription, .. } => {
            let paid = applied.paid.as_ref();
            (subscription, paid.and_then(|paid| paid.customer.clone()))
        }
        EventContent::Other { .. } => return Ok(()),
    };
    let sign_up = problem.sign_up.as_ref();
    let stored = StoredProblem {
        event: event.id.clone(),
        at: event.created,
        problem: problem.kind,
        found: problem.found.clone(),
        vault: sign_up.map(|sign_up| sign_up.slug.clone()),
        plan: sign_up.and_then(|sign_up| sign_up.plan.clone()),
        subscription: Some(subscription.clone()),
        customer,
    };
    // A missing price is not an error yet: it usually follows within seconds.
    if problem.kind != Kind::PriceAwaited {
        tracing::error!(
            event = event.id.as_str(),
            subscription = subscription.as_str(),
            problem = problem.kind.as_str(),
            "payment: {}",
            stored.describe()
        );
    }
    tx.write(stored.to_write(tx.now())?);
    Ok(())
}

/// Applies the new state of a subscription to the sign-up that it is bound to.
async fn update_sign_up(
    tx: &Transaction<'_>,
    app: &App,
    (paid, before): (PaidSubscription, Option<&PaidSubscription>),
    reported: ReportedState,
) -> Result<EventEffect, StoreError> {
    let Some(reference) = &paid.reference else {
        return Ok(EventEffect::taken(paid, None));
    };
    let Some(sign_up) = provisioning::find_sign_up(tx, reference).await? else {
        // Deleting a vault does not end its subscription. Only the provider can do that, so the
        // operator must know.
        let problem = (reported == ReportedState::Paid).then_some(Problem {
            kind: Kind::VaultDeleted,
            found: None,
            sign_up: None,
        });
        return Ok(EventEffect::taken(paid, problem));
    };
    let listed = &sign_up.value;
    let mut ids = listed.subscription.iter().chain(&listed.standby);
    if !ids.any(|id| *id == paid.id) {
        // The subscription is over, and another one replaced it.
        return Ok(EventEffect::taken(paid, None));
    }
    let paid = paid.with_fit(plan_offer(&app.config.hosting, listed));
    let settled = settle_sign_up(tx, app, &sign_up, &paid).await?;
    let problem = match reported {
        ReportedState::Unknown => Some(Problem::new(Kind::UnknownState, listed)),
        _ => find_problem(app, listed, (&paid, before), &settled),
    };
    Ok(EventEffect::taken(paid, problem))
}

/// Returns the problem, if any, that the operator must see about a subscription that is bound to a
/// sign-up.
fn find_problem(
    app: &App,
    sign_up: &Provisioning,
    (paid, before): (&PaidSubscription, Option<&PaidSubscription>),
    settled: &Settled,
) -> Option<Problem> {
    let hosting = &app.config.hosting;
    let offer = plan_offer(hosting, sign_up);
    let terms = paid.terms.as_ref();
    // A subscription that is over collects no more payments, so there is nothing to correct.
    if paid.is_over() {
        return None;
    }
    // The sign-up of a deleted vault stays until background work has removed the vault's content.
    if settled.is_deleted {
        let is_paid = paid.standing == SubscriptionState::Paid;
        return is_paid.then(|| Problem::new(Kind::VaultDeleted, sign_up));
    }
    match paid.fit(offer) {
        // A subscription without a known price is listed once, until an event names its price.
        Fit::PriceAwaited if paid.price_awaited.is_some() => return None,
        Fit::PriceAwaited => return Some(Problem::new(Kind::PriceAwaited, sign_up)),
        Fit::WrongPrice => {
            let prices = terms.map(|terms| terms.prices.join(", "));
            return Some(Problem::new(Kind::WrongPrice, sign_up).with_found(prices));
        }
        Fit::WrongCurrency => {
            let currency = terms.and_then(|terms| terms.currency.clone());
            return Some(Problem::new(Kind::WrongCurrency, sign_up).with_found(currency));
        }
        Fit::Fits => {}
    }
    // A second subscription is reported once, by the event with which the vault is paid for twice.
    let served_before = before.is_some_and(|before| {
        let access = before.access_under(offer, hosting.grace_days);
        before.reference.is_some() && access != Subscription::Lapsed
    });
    let serving = &settled.judged.serving;
    let is_second = serving.len() > 1 && serving.contains(&paid.id);
    (is_second && !served_before).then(|| Problem::new(Kind::SecondSubscription, sign_up))
}

/// Binds a subscription to the sign-up that its checkout names, if the checkout pays for the plan
/// of that sign-up.
async fn bind_subscription(
    tx: &Transaction<'_>,
    app: &App,
    (paid, before): (PaidSubscription, Option<&PaidSubscription>),
    checkout: &Checkout,
) -> Result<EventEffect, StoreError> {
    let sign_up = match &checkout.reference {
        Some(reference) => provisioning::find_sign_up(tx, reference).await?,
        None => None,
    };
    let Some(sign_up) = sign_up else {
        // The provider gets no error, because it would send the event again, and would not find the
        // sign-up then either.
        return Ok(EventEffect::refused(Problem {
            kind: Kind::UnknownSignUp,
            found: None,
            sign_up: None,
        }));
    };
    let present = &sign_up.value;
    // A later checkout must not move a subscription away from the vault that it pays for.
    if let Some(bound) = &paid.reference
        && *bound != present.reference
    {
        note_refusal(tx, &sign_up)?;
        return Ok(EventEffect::refused(Problem::new(
            Kind::OtherSignUp,
            present,
        )));
    }
    if let Some(problem) = compare_checkout(app, present, &paid, checkout) {
        note_refusal(tx, &sign_up)?;
        return Ok(EventEffect::refused(problem));
    }
    let mut listed = present.subscription.iter().chain(&present.standby);
    if present.standby.len() >= MAX_STANDBY && !listed.any(|id| *id == paid.id) {
        note_refusal(tx, &sign_up)?;
        let problem = Problem::new(Kind::TooManySubscriptions, present);
        return Ok(EventEffect::refused(problem));
    }
    let paid = PaidSubscription {
        reference: Some(present.reference.clone()),
        customer: checkout.customer.clone().or(paid.customer),
        checked: true,
        ..paid
    };
    let paid = paid.with_fit(plan_offer(&app.config.hosting, present));
    let settled = settle_sign_up(tx, app, &sign_up, &paid).await?;
    let problem = find_problem(app, present, (&paid, before), &settled);
    if let Some(problem) = &problem
        && problem.kind == Kind::SecondSubscription
    {
        let change = Change::about(&present.slug)
            .with_before(json!({ "subscription_id": present.subscription }))
            .with_after(json!({ "subscription_id": paid.id }));
        write_audits(tx, present, "payment.second", &change)?;
    }
    Ok(EventEffect::taken(paid, problem))
}

/// Compares a checkout with the plan of its sign-up. Returns the first difference.
fn compare_checkout(
    app: &App,
    sign_up: &Provisioning,
    paid: &PaidSubscription,
    checkout: &Checkout,
) -> Option<Problem> {
    let Some(offer) = plan_offer(&app.config.hosting, sign_up) else {
        // Existing customers of a plan that is no longer for sale keep it.
        let is_new = paid.reference.is_none();
        return is_new.then(|| Problem::new(Kind::PlanNotForSale, sign_up));
    };
    let is_offered = |link: &String| offer.links.contains(link);
    if !offer.links.is_empty() && !checkout.link.as_ref().is_some_and(is_offered) {
        let problem = Problem::new(Kind::WrongLink, sign_up);
        return Some(problem.with_found(checkout.link.clone()));
    }
    let is_accepted = |currency: &String| offer.accepts_currency(currency);
    if !offer.currencies.is_empty() && !checkout.currency.as_ref().is_some_and(is_accepted) {
        let problem = Problem::new(Kind::WrongCurrency, sign_up);
        return Some(problem.with_found(checkout.currency.clone()));
    }
    None
}

struct Settled {
    judged: Judged,
    /// Whether the vault of the sign-up was deleted.
    is_deleted: bool,
}

/// Judges the subscriptions of a sign-up (read as `seen`), among them `paid` in its new state.
/// Applies the result to the sign-up and to its vault.
async fn settle_sign_up(
    tx: &Transaction<'_>,
    app: &App,
    seen: &Versioned<Provisioning>,
    paid: &PaidSubscription,
) -> Result<Settled, StoreError> {
    let judged = judge_subscriptions(tx, &app.config.hosting, &seen.value, Some(paid)).await?;
    tx.write_all(judged.checks.iter().cloned());
    let subscriptions = ProvisioningEvent::Bound(judged.deciding.clone(), judged.standby.clone());
    // If the same subscription stays the deciding one, nothing changes.
    let bound = seen.value.after_event(subscriptions).ok().flatten();
    let bound = bound.unwrap_or_else(|| seen.value.clone());
    let is_misfit = matches!(paid.last_fit, Some(Fit::WrongPrice | Fit::WrongCurrency));
    let happened = match judged.access {
        Subscription::Active => Some(ProvisioningEvent::Paid),
        Subscription::Lapsed if is_misfit && !paid.is_over() => {
            Some(ProvisioningEvent::Refused(tx.now()))
        }
        // A first payment that failed confirms nothing: the sign-up keeps waiting.
        _ => None,
    };
    let moved = happened.and_then(|happened| bound.after_event(happened).ok().flatten());
    let after = moved.unwrap_or_else(|| bound.clone());
    let is_confirmed = after.payment != seen.value.payment;
    // The commit requires the sign-up as it was read: an event about another subscription, or the
    // allocation, may have changed its list of subscriptions or its vault meanwhile.
    let when = When::At(seen.revision);
    tx.write(if after == seen.value {
        Write::check(provisioning_key(&after.reference), when)
    } else {
        after.to_write(when)?
    });
    if is_confirmed || bound != seen.value {
        let change = Change::about(&after.slug)
            .with_before(json!({
                "paid_access": seen.value.payment,
                "subscription_id": seen.value.subscription,
            }))
            .with_after(json!({
                "paid_access": after.payment, "subscription_id": after.subscription,
            }));
        write_audits(tx, &after, "payment.bind", &change)?;
    }
    if is_confirmed {
        tx.write_all(provisioning::confirmation_writes(tx, &after).await?);
    }
    let is_deleted = !settle_namespace(tx, &after, judged.access).await?;
    Ok(Settled { judged, is_deleted })
}

/// Gives the vault of a sign-up the access that its subscriptions pay for. Returns false if the
/// vault was deleted.
async fn settle_namespace(
    tx: &Transaction<'_>,
    sign_up: &Provisioning,
    access: Subscription,
) -> Result<bool, StoreError> {
    let Some(reference) = &sign_up.namespace else {
        return Ok(true);
    };
    // The id is compared: the slug may name another allocation than the one that was paid for.
    let namespace_and_revision = namespace::find_namespace(tx, &reference.slug).await?;
    let Some((mut namespace, revision)) =
        namespace_and_revision.filter(|(namespace, _)| namespace.id == reference.id)
    else {
        return Ok(false);
    };
    if namespace.subscription != access {
        let change = Change::about(&namespace.slug)
            .with_before(json!({ "subscription": namespace.subscription }))
            .with_after(json!({ "subscription": access }));
        namespace.subscription = access;
        // The owners get one notice for each change of state, however many attempts to collect a
        // payment fail.
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
        write_audits(tx, sign_up, "payment.change", &change)?;
    }
    Ok(true)
}

/// Adds the audit entries about a payment, to the log of the service and to that of the vault.
fn write_audits(
    tx: &Transaction<'_>,
    sign_up: &Provisioning,
    action: &str,
    change: &Change,
) -> Result<(), StoreError> {
    let vault = sign_up
        .namespace
        .as_ref()
        .map(|namespace| Some(&namespace.id));
    for log in std::iter::once(None).chain(vault) {
        tx.audit(log, &Actor::server(), action, change.clone())?;
    }
    Ok(())
}
