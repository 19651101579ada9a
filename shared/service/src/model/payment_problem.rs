//! Payments that went wrong, for the operator: somebody paid, but the service cannot accept the
//! payment.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `payment-problem` | `<time of the event, newest first>-<event id>` | [`StoredProblem`], 90 days |
//!
//! Only events with a valid signature create such records, one for each event, however often it is
//! delivered.

use serde::{Deserialize, Serialize};
use vault_api::PaymentProblemKind;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::payment::{EventId, SubscriptionId};

/// Partition of the payments that went wrong.
pub const PROBLEMS: &str = "payment-problem";
/// Lifetime of a [`StoredProblem`], in days.
const PROBLEM_DAYS: i64 = 90;

/// A payment that the service could not accept, with what an operator needs to settle it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StoredProblem {
    /// Id of the event at the provider.
    pub event: EventId,
    /// Time of the event, by the provider's clock.
    pub at: Timestamp,
    /// Kind of the problem, which [`StoredProblem::describe`] explains to the operator.
    pub problem: PaymentProblemKind,
    /// The link, price, currency or mode in the event; `None` for other kinds of problem.
    pub found: Option<String>,
    /// Name of the vault; `None` if the payment belongs to no sign-up.
    pub vault: Option<Slug>,
    /// Name of the plan of the sign-up; `None` without a sign-up or a plan.
    pub plan: Option<String>,
    /// Id of the subscription at the provider.
    pub subscription: Option<SubscriptionId>,
    /// Id of the customer at the provider.
    pub customer: Option<String>,
}

impl StoredProblem {
    /// Returns the write that stores the problem, in place of the record of an earlier delivery.
    pub fn to_write(&self, now: Timestamp) -> Result<Write, StoreError> {
        let key = problem_key(&self.event, self.at);
        let until = now.plus_days(PROBLEM_DAYS);
        Ok(Write::put_until(
            key,
            Document::from_value(self)?,
            When::Any,
            until,
        ))
    }

    /// Describes the problem and what to do about it, in sentences for the operator.
    pub fn describe(&self) -> String {
        use PaymentProblemKind as Kind;
        let found = self.found.as_deref().unwrap_or("none");
        let plan = self.plan.as_deref().unwrap_or("none");
        match self.problem {
            Kind::WrongMode => format!(
                "The event is of the {found} mode of the payment provider, and VAULT_PAYMENT_MODE names the other one, so the payment does not count. Refund it if money moved; or change VAULT_PAYMENT_MODE and send the event again."
            ),
            Kind::WrongLink => format!(
                "The checkout came by the payment link `{found}`, which is not one of the plan `{plan}`. Refund the payment; or add the link to the plan in VAULT_PLANS and send the event again."
            ),
            Kind::WrongPrice => format!(
                "The subscription is for the price `{found}`, which is not one of the plan `{plan}`, so the vault counts as unpaid. Refund the payment; or add the price to the plan in VAULT_PLANS and send the event again."
            ),
            Kind::WrongCurrency => format!(
                "The payment is in the currency `{found}`, which is not one of the plan `{plan}`. Refund the payment; or add the currency to the plan in VAULT_PLANS and send the event again."
            ),
            Kind::PlanNotForSale => format!(
                "The sign-up has the plan `{plan}`, which VAULT_PLANS does not list. Refund the payment; or list the plan again and send the event again."
            ),
            Kind::UnknownSignUp => "The checkout names no sign-up of this service, or one that has expired after 7 days. Refund the payment and ask the customer to sign up again.".to_owned(),
            Kind::OtherSignUp => "The subscription pays for another vault already, so it does not count for this one. Ask the customer to subscribe again with the link on the front page.".to_owned(),
            Kind::SecondSubscription => "The vault has more than one paid subscription. One decides, and the others take over when it ends. If the customer paid twice by mistake, cancel and refund either one.".to_owned(),
            Kind::TooManySubscriptions => "The vault has too many subscriptions, so this one does not count. Cancel and refund those that the customer does not need. If this one should count, send the event again after another one has ended.".to_owned(),
            Kind::VaultDeleted => "The vault that the subscription pays for was deleted. Cancel the subscription at the payment provider.".to_owned(),
            Kind::PriceAwaited => format!(
                "The checkout was paid, but no event has named the price of the subscription, so the vault does not count as paid under the plan `{plan}`. Let the payment provider send `customer.subscription.created` and `customer.subscription.updated` to this service, and send the one about this subscription again. That removes this entry."
            ),
            Kind::UnknownState => "The subscription has a state that this version of vault does not know, so its vault counts as unpaid. Update vault, and send the event again.".to_owned(),
        }
    }
}

/// Returns the key of the record about an event that happened at this time.
pub fn problem_key(event: &EventId, at: Timestamp) -> RecordKey {
    // Lists are in ascending order, and operators want the newest first. The event's id follows, so
    // that each delivery of an event has the same key.
    let before_end = i64::MAX - at.unix().max(0);
    RecordKey::new(PROBLEMS, format!("{before_end:019}-{}", event.as_str()))
}
