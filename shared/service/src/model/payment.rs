//! Reports of the payment provider about a subscription, and the vault that it pays for.
//!
//! | partition | key | document |
//! |---|---|---|
//! | `payment/<subscription id>` | `subscription` | [`PaidSubscription`]; 30 days while no sign-up is bound to it |
//! | `payment-event/<event id>` | `event` | the mark of an event that was taken, 90 days |
//!
//! Events arrive more than once and in any order. The mark of an event is written in the commit of
//! the change that the event makes, so an event has effect once. The state of a subscription is
//! that of the newest event by the provider's clock.

use serde::{Deserialize, Serialize};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, RecordKey, When, Write};

use super::namespace::Subscription;
use super::reference::Reference;
use crate::config::hosting::Offer;

/// Lifetime of the mark of an event, in days. The provider repeats events for three days, and
/// people can repeat them by hand for thirty.
const EVENT_DAYS: i64 = 90;
/// Lifetime of a subscription that no sign-up is bound to, in days.
const UNBOUND_DAYS: i64 = 30;
/// Maximum number of characters of an id that the provider assigns.
const MAX_ID_CHARS: usize = 128;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Parses an id: 1 to 128 characters A-Z, a-z, 0-9, `_` and `-`. `None` for other text.
            pub fn parse(text: &str) -> Option<Self> {
                // Ids come from outside and become parts of record keys.
                let good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                let fits = !text.is_empty() && text.len() <= MAX_ID_CHARS;
                (fits && text.bytes().all(good)).then(|| Self(text.to_owned()))
            }

            /// Returns the provider's text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
    };
}

id! {
    /// The provider's id of an event.
    EventId
}
id! {
    /// The provider's id of a subscription.
    SubscriptionId
}

/// What one event reports about a subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReportedState {
    /// The first payment has not arrived.
    Incomplete,
    /// Paid, or in a trial.
    Paid,
    /// A payment is overdue; the provider tries again.
    PastDue,
    /// A payment failed; the new state depends on the state before.
    PaymentFailed,
    /// Unpaid or paused; it may be paid again.
    Withheld,
    /// A state that this version does not know. Treated as [`ReportedState::Withheld`].
    Unknown,
    /// Ended for good.
    Ended,
}

impl ReportedState {
    /// Returns the report for a status of the provider.
    pub fn of_status(status: &str) -> Self {
        match status {
            "trialing" | "active" => Self::Paid,
            "past_due" => Self::PastDue,
            "incomplete" => Self::Incomplete,
            "unpaid" | "paused" => Self::Withheld,
            "incomplete_expired" | "canceled" => Self::Ended,
            // A state that the provider may add later must neither serve for free nor end the
            // vault.
            _ => Self::Unknown,
        }
    }
}

/// State of a subscription. Of two events of the same second, the one with the later state in this
/// order wins: every subscription begins as `incomplete`, and each of the others gives less access
/// than the one before.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionState {
    /// The first payment has not arrived.
    Incomplete,
    /// The payments are up to date, or a trial runs.
    Paid,
    /// A payment failed; the grace period runs.
    PastDue,
    /// Unpaid, paused, or in an unknown state.
    Withheld,
    /// Ended for good: no event changes it.
    Ended,
}

/// Price and currency of a subscription, from the newest event that contains them.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Terms {
    /// Time of the event that contained these terms, by the provider's clock.
    pub as_of: Timestamp,
    /// Ids of the prices that the customer pays.
    pub prices: Vec<String>,
    /// Currency, as three lower-case letters; `None` if no event contained it.
    pub currency: Option<String>,
}

/// How the terms of a subscription compare with those of its plan.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The terms are those of the plan.
    Fits,
    /// No event has contained the price yet.
    PriceAwaited,
    /// The subscription is for a price that is not one of the plan's.
    WrongPrice,
    /// The subscription is in a currency that is not one of the plan's.
    WrongCurrency,
}

/// A subscription, as the newest event reports it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PaidSubscription {
    /// Id of the subscription at the provider.
    pub id: SubscriptionId,
    /// Reference of the sign-up that the subscription pays for; `None` until a checkout contained
    /// it.
    pub reference: Option<Reference>,
    /// Id of the customer at the provider.
    pub customer: Option<String>,
    /// State after the newest event.
    pub standing: SubscriptionState,
    /// Time of the first failed payment since it was last paid; `None` while it is paid. The grace
    /// period counts from here, however many payments fail.
    pub failing_since: Option<Timestamp>,
    /// Time of the newest event, by the provider's clock.
    pub as_of: Timestamp,
    /// Price and currency; `None` until an event contained them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// Whether its checkout was compared with the plan. False for subscriptions of version 0.5.0,
    /// which compared nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked: bool,
    /// Result of the last comparison with its plan. It remains when the plan is no longer for sale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fit: Option<Fit>,
    /// The newest event, if it reported a state that this version does not know. Sent again to a
    /// newer version, the event is applied again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_event: Option<EventId>,
    /// The event that is on the operator's list of problems because no event has contained the
    /// price yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_awaited: Option<ListedEvent>,
}

/// An event in the operator's list of payments that went wrong.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ListedEvent {
    /// The provider's id of the event.
    pub event: EventId,
    /// Time of the event, by the provider's clock.
    pub at: Timestamp,
}

impl PaidSubscription {
    /// Creates a subscription before its first event, which happened at `created`.
    pub fn new(id: SubscriptionId, created: Timestamp) -> Self {
        Self {
            id,
            reference: None,
            customer: None,
            // The lowest state, so that the event below counts although its time is the same.
            standing: SubscriptionState::Incomplete,
            failing_since: None,
            as_of: created,
            terms: None,
            checked: false,
            last_fit: None,
            unknown_event: None,
            price_awaited: None,
        }
    }

    /// Returns the subscription after this event, like [`PaidSubscription::after_event`]. If the
    /// event came before and its state was unknown then, it is applied again as the newest one:
    /// this version may know the state.
    #[must_use]
    pub fn after_report(
        mut self,
        event: &EventId,
        reported: ReportedState,
        created: Timestamp,
    ) -> Self {
        if self.unknown_event.as_ref() == Some(event) {
            // Otherwise the two reports of one event would have the same time, and the stricter
            // state would win.
            self.as_of = created.plus_seconds(-1);
            self.unknown_event = None;
        }
        if created > self.as_of {
            self.unknown_event = None;
        }
        if created >= self.as_of && reported == ReportedState::Unknown {
            self.unknown_event = Some(event.clone());
        }
        self.after_event(reported, created)
    }

    /// Returns the subscription after an event. An event that is older than the newest one changes
    /// nothing, and neither does any event once the subscription has ended. Of two events of one
    /// second, the stricter state wins.
    #[must_use]
    pub fn after_event(self, reported: ReportedState, created: Timestamp) -> Self {
        if created < self.as_of || self.standing == SubscriptionState::Ended {
            return self;
        }
        let mut standing = match reported {
            // Every subscription begins as incomplete, and none becomes it again.
            ReportedState::Incomplete => self.standing,
            ReportedState::Paid => SubscriptionState::Paid,
            ReportedState::PastDue => SubscriptionState::PastDue,
            ReportedState::Withheld | ReportedState::Unknown => SubscriptionState::Withheld,
            ReportedState::Ended => SubscriptionState::Ended,
            // If the first payment fails, there is no grace period. If a later one fails again, the
            // state stays as it is.
            ReportedState::PaymentFailed => match self.standing {
                SubscriptionState::Paid => SubscriptionState::PastDue,
                other => other,
            },
        };
        if created == self.as_of {
            // The provider's clock has seconds; the stricter state wins whatever order the two come
            // in.
            standing = standing.max(self.standing);
        }
        let failing_since = match standing {
            SubscriptionState::Paid => None,
            // A first payment that is still being processed has not failed.
            SubscriptionState::Incomplete if reported != ReportedState::PaymentFailed => {
                self.failing_since
            }
            _ => self.failing_since.or(Some(created)),
        };
        Self {
            standing,
            failing_since,
            as_of: created,
            ..self
        }
    }

    /// Returns the subscription with the terms of an event, unless newer terms are known.
    #[must_use]
    pub fn with_terms(self, terms: Option<Terms>) -> Self {
        // Of two events of one second the greater terms win, so that their order changes nothing.
        let terms = self.terms.clone().max(terms);
        Self { terms, ..self }
    }

    /// Returns the subscription with the result of a new comparison with its plan, see
    /// [`PaidSubscription::fit`].
    #[must_use]
    pub fn with_fit(self, offer: Option<&Offer>) -> Self {
        let last_fit = Some(self.fit(offer));
        Self { last_fit, ..self }
    }

    /// Compares the terms with those of the plan that it pays for. `None` stands for a plan that is
    /// no longer for sale; its customers keep their last result.
    pub fn fit(&self, offer: Option<&Offer>) -> Fit {
        let Some(offer) = offer else {
            // A subscription that was never compared is from before plans had prices.
            return self.last_fit.unwrap_or(Fit::Fits);
        };
        let Some(terms) = &self.terms else {
            // A subscription from before plans had prices counts as fitting until an event contains
            // its price.
            return if offer.prices.is_empty() || !self.checked {
                Fit::Fits
            } else {
                Fit::PriceAwaited
            };
        };
        let is_offered = |price: &String| offer.prices.contains(price);
        if !offer.prices.is_empty() && !terms.prices.iter().any(is_offered) {
            return Fit::WrongPrice;
        }
        match &terms.currency {
            Some(currency) if !offer.accepts_currency(currency) => Fit::WrongCurrency,
            _ => Fit::Fits,
        }
    }

    /// Returns the state of the payments for its vault, which has this plan. A subscription with
    /// other terms than the plan's gives no access.
    pub fn access_under(&self, offer: Option<&Offer>, grace_days: i64) -> Subscription {
        match self.fit(offer) {
            Fit::Fits => self.vault_access(grace_days),
            _ => Subscription::Lapsed,
        }
    }

    /// Returns the state of the payments, without a comparison with the plan.
    fn vault_access(&self, grace_days: i64) -> Subscription {
        match (self.standing, self.failing_since) {
            (SubscriptionState::Paid, _) => Subscription::Active,
            (SubscriptionState::PastDue, Some(since)) => Subscription::PastDue {
                until: since.plus_days(grace_days),
            },
            _ => Subscription::Lapsed,
        }
    }

    /// Whether the first payment of the subscription is being processed: it was ordered and has not
    /// failed.
    pub fn is_processing(&self) -> bool {
        self.standing == SubscriptionState::Incomplete && self.failing_since.is_none()
    }

    /// Whether the subscription has ended, so that another one may take its place.
    pub fn is_over(&self) -> bool {
        self.standing == SubscriptionState::Ended
    }

    /// Returns the write that stores the subscription, under the condition `when`.
    pub fn to_write(&self, when: When, now: Timestamp) -> Result<Write, StoreError> {
        let (key, document) = (subscription_key(&self.id), Document::from_value(self)?);
        Ok(match &self.reference {
            Some(_) => Write::put(key, document, when),
            None => Write::put_until(key, document, when, now.plus_days(UNBOUND_DAYS)),
        })
    }
}

/// Returns the key of the [`PaidSubscription`] with this id.
pub fn subscription_key(id: &SubscriptionId) -> RecordKey {
    RecordKey::new(format!("payment/{}", id.as_str()), "subscription")
}

/// Returns the key of the mark of a handled event.
pub fn event_key(id: &EventId) -> RecordKey {
    RecordKey::new(format!("payment-event/{}", id.as_str()), "event")
}

/// Returns the write that marks an event as handled; it fails if the mark exists.
pub fn event_mark(id: &EventId, now: Timestamp) -> Result<Write, StoreError> {
    // Only the existence of the mark counts: it fails the commit of a repeated event.
    let nothing = Document::from_value(&serde_json::Map::new())?;
    let until = now.plus_days(EVENT_DAYS);
    Ok(Write::put_until(
        event_key(id),
        nothing,
        When::Absent,
        until,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix(seconds)
    }

    fn after(events: &[(ReportedState, i64)]) -> PaidSubscription {
        let id = SubscriptionId::parse("sub_1").unwrap();
        let mut events = events.iter();
        let (reported, created) = *events.next().unwrap();
        let first = PaidSubscription::new(id, at(created)).after_event(reported, at(created));
        events.fold(first, |held, (reported, created)| {
            held.after_event(*reported, at(*created))
        })
    }

    #[test]
    fn the_newest_event_says_what_a_vault_has() {
        use ReportedState::{Ended, Incomplete, Paid, PastDue, PaymentFailed, Unknown, Withheld};
        let grace = |since: i64| Subscription::PastDue {
            until: at(since).plus_days(7),
        };
        for (events, access) in [
            (&[(Incomplete, 1)][..], Subscription::Lapsed),
            (&[(Paid, 1)], Subscription::Active),
            (&[(PastDue, 1)], grace(1)),
            (&[(Withheld, 1)], Subscription::Lapsed),
            (&[(Unknown, 1)], Subscription::Lapsed),
            (&[(Ended, 1)], Subscription::Lapsed),
            // If the first payment fails, there is no grace period.
            (&[(PaymentFailed, 1)], Subscription::Lapsed),
            (&[(Incomplete, 1), (PaymentFailed, 2)], Subscription::Lapsed),
            (&[(Incomplete, 1), (Paid, 2)], Subscription::Active),
            (&[(Paid, 1), (Incomplete, 2)], Subscription::Active),
            // The grace period counts from the first failure, and begins again after a payment.
            (
                &[
                    (Paid, 1),
                    (PaymentFailed, 2),
                    (PastDue, 5),
                    (PaymentFailed, 9),
                ],
                grace(2),
            ),
            (
                &[(Paid, 1), (PastDue, 2), (Paid, 3), (PastDue, 4)],
                grace(4),
            ),
            (
                &[(Paid, 1), (PastDue, 2), (Withheld, 3), (PastDue, 4)],
                grace(2),
            ),
            (
                &[(Paid, 1), (Withheld, 2), (PaymentFailed, 3)],
                Subscription::Lapsed,
            ),
            (&[(Paid, 1), (Withheld, 2), (Paid, 3)], Subscription::Active),
            // Older events change nothing.
            (&[(Paid, 5), (Ended, 4)], Subscription::Active),
            (&[(PastDue, 5), (Paid, 4)], grace(5)),
            // An ended subscription stays ended.
            (&[(Ended, 1), (Paid, 2)], Subscription::Lapsed),
        ] {
            assert_eq!(after(events).vault_access(7), access, "{events:?}");
        }
    }

    #[test]
    fn events_of_one_second_count_the_same_in_either_order() {
        use ReportedState::{Ended, Incomplete, Paid, PastDue, PaymentFailed, Unknown, Withheld};
        let all = [Incomplete, Paid, PastDue, Withheld, Unknown, Ended];
        for one in all {
            for other in all {
                let there = after(&[(Paid, 0), (one, 1), (other, 1)]);
                let back = after(&[(Paid, 0), (other, 1), (one, 1)]);
                assert_eq!(there, back, "{one:?} {other:?}");
            }
        }
        // The events of a checkout arrive within one second.
        let paid = after(&[(Paid, 1), (Incomplete, 1), (Paid, 1)]);
        assert_eq!(paid.standing, SubscriptionState::Paid);
        let failed = after(&[(Paid, 0), (PaymentFailed, 1), (PastDue, 1)]);
        assert_eq!(
            failed,
            after(&[(Paid, 0), (PastDue, 1), (PaymentFailed, 1)])
        );
    }

    #[test]
    fn an_unknown_state_counts_anew_when_its_event_is_sent_to_a_version_that_knows_it() {
        use ReportedState::{Paid, PastDue, Unknown};
        let [first, second] = ["evt_1", "evt_2"].map(|id| EventId::parse(id).unwrap());
        let unknown = after(&[(Paid, 1)]).after_report(&first, Unknown, at(2));
        assert_eq!(unknown.vault_access(7), Subscription::Lapsed);
        let again = unknown.clone().after_report(&first, Paid, at(2));
        assert_eq!(again.vault_access(7), Subscription::Active);
        assert_eq!(again.unknown_event, None);
        // Another event of the same second is not mistaken for the repeated one.
        let other = unknown.clone().after_report(&second, Paid, at(2));
        assert_eq!(other.vault_access(7), Subscription::Lapsed);
        let again = other.after_report(&first, Paid, at(2));
        assert_eq!(again.vault_access(7), Subscription::Active);
        // A newer event wins, whatever state the older one had.
        let newer = unknown.after_report(&second, PastDue, at(3));
        let again = newer.clone().after_report(&first, Paid, at(2));
        assert_eq!(again, newer);
    }

    #[test]
    fn a_subscription_keeps_its_fit_when_its_plan_is_taken_off_sale() {
        let offer = Offer {
            prices: vec!["price_1".to_owned()],
            ..Offer::default()
        };
        let terms = |price: &str| Terms {
            as_of: at(1),
            prices: vec![price.to_owned()],
            currency: None,
        };
        for (price, access) in [
            ("price_1", Subscription::Active),
            ("price_9", Subscription::Lapsed),
        ] {
            let paid = after(&[(ReportedState::Paid, 1)]).with_terms(Some(terms(price)));
            let judged = paid.with_fit(Some(&offer));
            assert_eq!(judged.access_under(None, 7), access, "{price}");
            assert_eq!(judged.with_fit(None).access_under(None, 7), access);
        }
    }

    #[test]
    fn ids_hold_nothing_but_letters_digits_and_dashes() {
        assert!(EventId::parse("evt_1A-b").is_some());
        for bad in ["", "a/b", "a b", "é", &"x".repeat(129)] {
            assert!(EventId::parse(bad).is_none(), "{bad}");
        }
    }
}
