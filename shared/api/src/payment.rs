//! `POST /hooks/payment`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_format::name::Slug;
use vault_format::time::Timestamp;
use vault_format::words;

/// An event of the payment provider.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentEvent {
    /// The provider's id of the event, by which a repeated event is recognized.
    pub id: String,
    /// Type of the event, such as `checkout.session.completed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of the event, in seconds since 1970.
    pub created: i64,
    /// Whether it is of the provider's live mode; absent means the test mode.
    #[serde(default)]
    pub livemode: bool,
    /// The object of the provider that the event is about.
    pub data: PaymentData,
}

/// The object that an event is about.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentData {
    /// The provider's object, such as a checkout or a subscription.
    // JSON without a type: its form depends on the type of the event.
    pub object: Value,
}

words! {
    /// What an event of the payment provider has changed.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum PaymentOutcomeWord {
        /// The event has taken effect.
        Taken = "taken",
        /// The event had taken effect before.
        Repeated = "repeated",
        /// The event concerns nothing of this service.
        Ignored = "ignored",
        /// The payment does not count, and is in the list of the operator.
        Refused = "refused",
    }
}

/// The effect of an event.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentOutcome {
    /// The effect in one word.
    pub outcome: PaymentOutcomeWord,
}

words! {
    /// Why the service cannot accept a payment that a customer has made.
    #[derive(JsonSchema)]
    #[schemars(inline)]
    pub enum PaymentProblemKind {
        /// The event is of the test mode of the provider although the service counts live payments,
        /// or the other way round.
        WrongMode = "wrong_mode",
        /// The checkout came by a payment link that is none of the plan.
        WrongLink = "wrong_link",
        /// The subscription is for a price that is none of the plan.
        WrongPrice = "wrong_price",
        /// The payment is in a currency that is none of the plan.
        WrongCurrency = "wrong_currency",
        /// The sign-up has no plan that is for sale.
        PlanNotForSale = "plan_not_for_sale",
        /// The checkout names no sign-up of this service, or one that has expired.
        UnknownSignUp = "unknown_sign_up",
        /// The subscription pays for another sign-up already.
        OtherSignUp = "other_sign_up",
        /// The vault has more than one subscription. One decides whether it is paid; another takes
        /// over when that one ends.
        SecondSubscription = "second_subscription",
        /// The vault has the maximum number of subscriptions, so this one does not count.
        TooManySubscriptions = "too_many_subscriptions",
        /// The vault that the subscription paid for was deleted.
        VaultDeleted = "vault_deleted",
        /// No event has named the price of the subscription yet.
        PriceAwaited = "price_awaited",
        /// The subscription has a state that this version does not know.
        UnknownState = "unknown_state",
    }
}

/// A payment that went wrong, as operators see it.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
pub struct PaymentProblem {
    /// The provider's id of the event, at most 128 characters.
    pub event: String,
    /// Time of the event, by the provider's clock.
    pub at: Timestamp,
    /// Kind of the problem, to match on.
    pub problem: PaymentProblemKind,
    /// What is wrong and what to do, in a few sentences.
    pub detail: String,
    /// Name of the vault; null if the payment belongs to no sign-up.
    pub vault: Option<Slug>,
    /// Name of the plan of the sign-up; null if none is known.
    pub plan: Option<String>,
    /// The provider's id of the subscription, at most 128 characters.
    pub subscription: Option<String>,
    /// The provider's id of the customer, at most 255 characters.
    pub customer: Option<String>,
}
