//! The subscriptions of a sign-up: which of them decides, and what it gives the vault.
//!
//! A person may pay twice. The second subscription stands by and takes over when the first one no
//! longer pays. What a vault has follows from the states of all its subscriptions, so it is the
//! same in whatever order their events arrive.

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

/// Use of a subscription for its vault, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Use {
    Paid,
    /// A payment failed. Of two, the one whose grace period ends later is better.
    Grace(Reverse<Timestamp>),
    /// Not paid, or not for the plan of the vault.
    Nothing,
    /// Over for good.
    Over,
}

/// The subscriptions of a sign-up, judged together.
pub(super) struct Judged {
    /// The one that decides; `None` where there is none.
    pub(super) deciding: Option<SubscriptionId>,
    /// The others that are not over, in the order in which they were bound.
    pub(super) standby: Vec<SubscriptionId>,
    /// What they give the vault.
    pub(super) access: Subscription,
    /// Those that are paid, or in their grace period.
    pub(super) serving: Vec<SubscriptionId>,
    /// Checks that the subscriptions are as they were read, for the commit.
    pub(super) checks: Vec<Write>,
}

/// Judges the subscriptions of a sign-up. `updated` stands for the stored version of the one that
/// is written in the same commit; it is judged too where the sign-up does not list it yet.
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
        // Two events about two subscriptions may arrive at once, and each decides by both.
        let (when, ranked) = match &stored {
            Some(held) => (
                When::At(held.revision),
                rank_subscription(&held.value, offer, hosting.grace_days),
            ),
            // Without its record nothing shows that a subscription was paid.
            None => (When::Absent, (Use::Over, Subscription::Lapsed)),
        };
        checks.push(Write::check(key, when));
        candidates.push((ranked.0, id, ranked.1));
    }
    // Stable: of two that are equal, the one that decides now goes on deciding.
    candidates.sort_by_key(|(rank, _, _)| *rank);
    let is_serving = |rank: &Use| matches!(rank, Use::Paid | Use::Grace(_));
    let serving = candidates.iter().filter(|(rank, _, _)| is_serving(rank));
    let serving = serving.map(|(_, id, _)| id.clone()).collect();
    let others = candidates.iter().skip(1);
    let standby = others.filter(|(rank, _, _)| *rank != Use::Over);
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

/// What a person can do about a sign-up or vault that is not paid for, the best last.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Remedy {
    /// Subscribe, for the first time or again.
    Subscribe,
    /// Change a subscription for another price or currency back, or subscribe again.
    ChangePrice,
    /// Wait until the payment provider has named the price of what was paid.
    AwaitPrice,
    /// Wait until the payment provider reports a first payment, which may take days for a transfer
    /// or direct debit.
    AwaitPayment,
    /// Pay the open invoice of a subscription for the plan, or ask the operator.
    PayInvoice,
}

/// Returns the remedy for a sign-up that is not paid for. The best one counts: a further
/// subscription for another price must not hide that an invoice is open.
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
        // Nothing can be paid or changed where it is over.
        let Some(paid) = stored.map(|held| held.value).filter(|paid| !paid.is_over()) else {
            continue;
        };
        found = found.max(match paid.fit(offer) {
            // A person who is led to a second payment meanwhile pays twice.
            Fit::Fits | Fit::PriceAwaited if paid.is_processing() => Remedy::AwaitPayment,
            // Also if it is paid: then the operator has ended the access by hand, and the person
            // must not be led to pay a second time.
            Fit::Fits => Remedy::PayInvoice,
            Fit::PriceAwaited => Remedy::AwaitPrice,
            Fit::WrongPrice | Fit::WrongCurrency => Remedy::ChangePrice,
        });
    }
    Ok(found)
}

/// Returns what pays for the plan of a sign-up; `None` where the plan is not for sale.
pub(super) fn plan_offer<'h>(hosting: &'h Hosting, sign_up: &Provisioning) -> Option<&'h Offer> {
    let plan = hosting.plan(sign_up.plan.as_deref()?)?;
    Some(&plan.offer)
}

/// Returns the use of a subscription, and what it gives the vault.
fn rank_subscription(
    paid: &PaidSubscription,
    offer: Option<&Offer>,
    grace_days: i64,
) -> (Use, Subscription) {
    let access = paid.access_under(offer, grace_days);
    let rank = match access {
        Subscription::Active => Use::Paid,
        Subscription::PastDue { until } => Use::Grace(Reverse(until)),
        _ if paid.is_over() => Use::Over,
        _ => Use::Nothing,
    };
    (rank, access)
}
