//! Judges the subscriptions of a sign-up together: which of them decides, and which access the
//! vault has.
//!
//! A person may pay twice. The second subscription stands by, and takes over when the first one no
//! longer pays. The access of a vault follows from the states of all its subscriptions, so the
//! order in which their events arrive does not matter.

use std::cmp::Reverse;

use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{When, Write};

use crate::config::hosting::{Hosting, Offer};
use crate::model::Versioned;
use crate::model::namespace::Subscription;
use crate::model::payment::{Fit, PaidSubscription, SubscriptionId, subscription_key};
use crate::model::provisioning::Provisioning;
use crate::ports::Ports;

/// Rank of a subscription by its use for the vault, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum SubscriptionRank {
    /// The subscription is paid, for the plan of the vault.
    Paid,
    /// A payment failed, and the grace period runs. The later it ends, the better.
    Grace(Reverse<Timestamp>),
    /// The subscription is not paid, or not for the plan of the vault, but may still be corrected.
    Nothing,
    /// The subscription is over and never comes back.
    Over,
}

/// What the subscriptions of a sign-up mean for its vault.
pub(super) struct Judged {
    /// The subscription that decides; `None` if there is none.
    pub(super) deciding: Option<SubscriptionId>,
    /// The other subscriptions that are not over, by rank; equal ones in the order in which they
    /// were bound.
    pub(super) standby: Vec<SubscriptionId>,
    /// The access that the deciding subscription gives the vault.
    pub(super) access: Subscription,
    /// The subscriptions that are paid or in their grace period. More than one means that the
    /// person pays twice.
    pub(super) serving: Vec<SubscriptionId>,
    /// Writes that fail the commit if a subscription has changed since it was read.
    pub(super) checks: Vec<Write>,
}

/// Judges the subscriptions of a sign-up. `updated` replaces the stored version of a subscription
/// that is written in the same commit; it is judged even if the sign-up does not list it yet.
pub(super) async fn judge_subscriptions(
    ports: &Ports,
    hosting: &Hosting,
    sign_up: &Provisioning,
    updated: Option<&PaidSubscription>,
) -> Result<Judged, StoreError> {
    let listed = sign_up.subscription.iter().chain(&sign_up.standby);
    let mut ids: Vec<_> = listed.cloned().collect();
    if let Some(updated) = updated.filter(|updated| !ids.contains(&updated.id)) {
        ids.push(updated.id.clone());
    }
    let offer = plan_offer(hosting, sign_up);
    let mut candidates = Vec::with_capacity(ids.len());
    let mut checks = Vec::new();
    for id in ids {
        if let Some(updated) = updated.filter(|updated| updated.id == id) {
            let (rank, access) = rank_subscription(updated, offer, hosting.grace_days);
            candidates.push((rank, id, access));
            continue;
        }
        let key = subscription_key(&id);
        let stored: Option<Versioned<PaidSubscription>> = ports.get(&key).await?;
        // Two events about two subscriptions may arrive at once, and the result of each depends on
        // both.
        let (when, ranked) = match &stored {
            Some(held) => (
                When::At(held.revision),
                rank_subscription(&held.value, offer, hosting.grace_days),
            ),
            // Without a record, nothing proves that the subscription was paid.
            None => (When::Absent, (SubscriptionRank::Over, Subscription::Lapsed)),
        };
        checks.push(Write::check(key, when));
        candidates.push((ranked.0, id, ranked.1));
    }
    // The sort is stable, so the present deciding subscription stays before an equal one.
    candidates.sort_by_key(|(rank, _, _)| *rank);
    let is_serving = |rank: &SubscriptionRank| {
        matches!(rank, SubscriptionRank::Paid | SubscriptionRank::Grace(_))
    };
    let serving = candidates.iter().filter(|(rank, _, _)| is_serving(rank));
    let serving = serving.map(|(_, id, _)| id.clone()).collect();
    let others = candidates.iter().skip(1);
    let standby = others.filter(|(rank, _, _)| *rank != SubscriptionRank::Over);
    let standby = standby.map(|(_, id, _)| id.clone()).collect();
    let first = candidates.first();
    Ok(Judged {
        deciding: first.map(|(_, id, _)| id.clone()),
        standby,
        access: first.map_or(Subscription::None, |(_, _, access)| *access),
        serving,
        checks,
    })
}

/// What a person can do about a sign-up or vault that is not paid for; the best comes last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Remedy {
    /// Subscribe, for the first time or once more.
    Subscribe,
    /// Correct a subscription that has another price or currency, or subscribe once more.
    ChangePrice,
    /// Wait until the payment provider reports the price of what was paid.
    AwaitPrice,
    /// Wait until the payment provider reports a first payment, which may take days for a transfer
    /// or direct debit.
    AwaitPayment,
    /// Pay the open invoice of a subscription for the plan, or ask the operator.
    PayInvoice,
}

/// Returns the best remedy that any subscription of an unpaid sign-up allows: a second subscription
/// with another price must not hide that an invoice of the first one is open.
pub(super) async fn find_remedy(
    ports: &Ports,
    hosting: &Hosting,
    sign_up: &Provisioning,
) -> Result<Remedy, StoreError> {
    let offer = plan_offer(hosting, sign_up);
    let ids = sign_up.subscription.iter().chain(&sign_up.standby);
    let keys: Vec<_> = ids.map(subscription_key).collect();
    if keys.is_empty() {
        return Ok(Remedy::Subscribe);
    }
    let mut found = Remedy::Subscribe;
    for record in ports.records.get_many(&keys).await? {
        let stored = Versioned::<PaidSubscription>::read(record)?;
        // A subscription that is over can be neither paid nor changed.
        let Some(paid) = stored.map(|held| held.value).filter(|paid| !paid.is_over()) else {
            continue;
        };
        found = found.max(match paid.fit(offer) {
            // The page must not offer another checkout while a payment is on its way, or the person
            // would pay twice.
            Fit::Fits | Fit::PriceAwaited if paid.is_processing() => Remedy::AwaitPayment,
            // This includes a paid subscription: then the operator has ended the access by hand,
            // and the person must not pay once more.
            Fit::Fits => Remedy::PayInvoice,
            Fit::PriceAwaited => Remedy::AwaitPrice,
            Fit::WrongPrice | Fit::WrongCurrency => Remedy::ChangePrice,
        });
    }
    Ok(found)
}

/// Returns the links, prices and currencies that pay for the plan of a sign-up; `None` if the plan
/// is not for sale.
pub(super) fn plan_offer<'h>(hosting: &'h Hosting, sign_up: &Provisioning) -> Option<&'h Offer> {
    let plan = hosting.plan(sign_up.plan.as_deref()?)?;
    Some(&plan.offer)
}

/// Returns the rank of a subscription, and the access that it gives the vault.
fn rank_subscription(
    paid: &PaidSubscription,
    offer: Option<&Offer>,
    grace_days: i64,
) -> (SubscriptionRank, Subscription) {
    let access = paid.access_under(offer, grace_days);
    let rank = match access {
        Subscription::Active => SubscriptionRank::Paid,
        Subscription::PastDue { until } => SubscriptionRank::Grace(Reverse(until)),
        _ if paid.is_over() => SubscriptionRank::Over,
        _ => SubscriptionRank::Nothing,
    };
    (rank, access)
}
