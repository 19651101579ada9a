//! Parser for events of the payment provider, in the format of Stripe. All functions are pure.
//!
//! The parser reads only the members that it needs and ignores the others, so that a newer version
//! of the provider's API does not stop payments.

use serde_json::Value;
use vault_api::PaymentEvent;
use vault_format::time::Timestamp;

use crate::model::payment::{EventId, ReportedState, SubscriptionId, Terms};
use crate::model::provisioning::Reference;

/// Maximum length of an id of the provider, in characters.
const MAX_ID_CHARS: usize = 255;
/// Maximum number of prices of a subscription that are read. The provider allows 20.
const MAX_PRICES: usize = 20;

/// An event whose signature was verified.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// The provider's id of the event, the same in every delivery of it.
    pub id: EventId,
    /// Time of the event, by the provider's clock.
    pub created: Timestamp,
    /// Whether the event is from the provider's live mode, in which money moves, and not from its
    /// test mode.
    pub live: bool,
    pub content: EventContent,
}

/// What an event reports, as far as this service acts on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EventContent {
    /// A checkout was completed. It connects a subscription with the reference of a sign-up.
    Checkout(Checkout),
    /// A subscription has a new state.
    Subscription {
        subscription: SubscriptionId,
        reported: ReportedState,
        /// Prices and currency, if the event names them.
        terms: Option<Terms>,
    },
    /// This service does not act on the event: it has another type, or is about a payment without a
    /// subscription.
    Other {
        /// Type of the event, for the log.
        kind: String,
    },
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkout {
    /// Reference of the sign-up that was paid for; `None` if the event names none in the form of
    /// this service.
    pub reference: Option<Reference>,
    /// Subscription that the checkout has created at the provider.
    pub subscription: SubscriptionId,
    /// The provider's id of the customer; `None` if the event does not name one.
    pub customer: Option<String>,
    /// Id of the payment link that the person followed; `None` for a checkout without one.
    pub link: Option<String>,
    /// Currency of the checkout, as three lower-case letters; `None` if the event does not name
    /// one.
    pub currency: Option<String>,
    /// Whether the first payment arrived, or none is due.
    pub reported: ReportedState,
}

impl Event {
    /// Parses an event; `None` if it lacks an id, a type, a time or an object.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let wire: PaymentEvent = serde_json::from_slice(body).ok()?;
        let created = Timestamp::from_unix(wire.created);
        Some(Self {
            id: EventId::parse(&wire.id)?,
            created,
            live: wire.livemode,
            // An event without a meaning here must not be an error, or the provider would send it
            // again and again.
            content: parse_content(&wire.kind, &wire.data.object, created).unwrap_or_else(|| {
                EventContent::Other {
                    kind: wire.kind.chars().take(MAX_ID_CHARS).collect(),
                }
            }),
        })
    }
}

/// Returns the meaning of an event of type `kind` about `object`; `None` if this service does not
/// act on it.
fn parse_content(kind: &str, object: &Value, created: Timestamp) -> Option<EventContent> {
    let content = match kind {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
            // A trial or a full discount has the status `no_payment_required`, which counts as
            // paid. So only the status that reports missing money is tested.
            let unpaid = object["payment_status"] == "unpaid";
            EventContent::Checkout(Checkout {
                reference: bounded_text(&object["client_reference_id"]).and_then(Reference::parse),
                subscription: subscription_id(&object["subscription"])?,
                customer: id_text(&object["customer"]).map(str::to_owned),
                link: id_text(&object["payment_link"]).map(str::to_owned),
                currency: bounded_text(&object["currency"]).map(str::to_ascii_lowercase),
                reported: if unpaid {
                    ReportedState::Incomplete
                } else {
                    ReportedState::Paid
                },
            })
        }
        "customer.subscription.created"
        | "customer.subscription.updated"
        | "customer.subscription.paused"
        | "customer.subscription.resumed" => EventContent::Subscription {
            subscription: subscription_id(&object["id"])?,
            reported: ReportedState::of_status(bounded_text(&object["status"])?),
            terms: subscription_terms(object, created),
        },
        "customer.subscription.deleted" => EventContent::Subscription {
            subscription: subscription_id(&object["id"])?,
            reported: ReportedState::Ended,
            terms: subscription_terms(object, created),
        },
        "invoice.paid" => EventContent::Subscription {
            subscription: invoice_subscription(object)?,
            reported: ReportedState::Paid,
            // The lines of an invoice also contain prices that the customer no longer has.
            terms: None,
        },
        "invoice.payment_failed" => EventContent::Subscription {
            subscription: invoice_subscription(object)?,
            reported: ReportedState::PaymentFailed,
            terms: None,
        },
        _ => return None,
    };
    Some(content)
}

/// Returns the subscription of an invoice. Newer versions of the provider's API name it in
/// `parent`, older ones in the invoice itself, so both are read.
fn invoice_subscription(invoice: &Value) -> Option<SubscriptionId> {
    let parent = &invoice["parent"]["subscription_details"]["subscription"];
    subscription_id(parent).or_else(|| subscription_id(&invoice["subscription"]))
}

/// Returns the terms of a subscription as of the event's time; `None` if the object names no price.
fn subscription_terms(object: &Value, as_of: Timestamp) -> Option<Terms> {
    let items = object["items"]["data"].as_array()?.iter().take(MAX_PRICES);
    let prices = items.filter_map(|item| id_text(&item["price"]));
    let prices: Vec<_> = prices.map(str::to_owned).collect();
    (!prices.is_empty()).then(|| Terms {
        as_of,
        prices,
        currency: bounded_text(&object["currency"]).map(str::to_ascii_lowercase),
    })
}

fn subscription_id(value: &Value) -> Option<SubscriptionId> {
    id_text(value).and_then(SubscriptionId::parse)
}

/// Returns an id, which the provider sends either as text or as an object with the member `id`.
fn id_text(value: &Value) -> Option<&str> {
    bounded_text(value).or_else(|| bounded_text(&value["id"]))
}

fn bounded_text(value: &Value) -> Option<&str> {
    // A longer text is no id of the provider, and must not get into records and the log.
    value.as_str().filter(|text| text.len() <= MAX_ID_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(kind: &str, object: &Value) -> EventContent {
        let event = json!({
            "id": "evt_1", "object": "event", "type": kind, "created": 7, "livemode": false,
            "data": { "object": object },
        });
        let event = Event::parse(event.to_string().as_bytes()).unwrap();
        assert_eq!((event.id.as_str(), event.created.unix()), ("evt_1", 7));
        event.content
    }

    fn id(text: &str) -> SubscriptionId {
        SubscriptionId::parse(text).unwrap()
    }

    #[test]
    fn a_checkout_names_the_sign_up_and_the_subscription() {
        let reference = "0123456789abcdef0123456789abcdef";
        for (status, reported) in [
            ("paid", ReportedState::Paid),
            ("no_payment_required", ReportedState::Paid),
            ("unpaid", ReportedState::Incomplete),
        ] {
            let object = json!({
                "client_reference_id": reference, "subscription": "sub_1", "customer": "cus_1",
                "payment_status": status, "payment_link": "plink_1", "currency": "EUR",
            });
            let wanted = EventContent::Checkout(Checkout {
                reference: Reference::parse(reference),
                subscription: id("sub_1"),
                customer: Some("cus_1".to_owned()),
                link: Some("plink_1".to_owned()),
                currency: Some("eur".to_owned()),
                reported,
            });
            assert_eq!(parsed("checkout.session.completed", &object), wanted);
        }
        let object = json!({
            "client_reference_id": "a-vault", "customer": null,
            "subscription": { "id": "sub_1" }, "payment_status": "paid",
        });
        let wanted = EventContent::Checkout(Checkout {
            reference: None,
            subscription: id("sub_1"),
            customer: None,
            link: None,
            currency: None,
            reported: ReportedState::Paid,
        });
        assert_eq!(parsed("checkout.session.completed", &object), wanted);
    }

    #[test]
    fn subscriptions_and_invoices_report_a_state() {
        let status = |status: &str| json!({ "id": "sub_1", "status": status });
        let invoice = json!({ "id": "in_1", "subscription": "sub_1" });
        let parent = json!({ "parent": { "subscription_details": { "subscription": "sub_1" } } });
        for (kind, object, reported) in [
            (
                "customer.subscription.created",
                status("trialing"),
                ReportedState::Paid,
            ),
            (
                "customer.subscription.updated",
                status("active"),
                ReportedState::Paid,
            ),
            (
                "customer.subscription.resumed",
                status("active"),
                ReportedState::Paid,
            ),
            (
                "customer.subscription.updated",
                status("past_due"),
                ReportedState::PastDue,
            ),
            (
                "customer.subscription.created",
                status("incomplete"),
                ReportedState::Incomplete,
            ),
            (
                "customer.subscription.updated",
                status("incomplete_expired"),
                ReportedState::Ended,
            ),
            (
                "customer.subscription.updated",
                status("unpaid"),
                ReportedState::Withheld,
            ),
            (
                "customer.subscription.paused",
                status("paused"),
                ReportedState::Withheld,
            ),
            (
                "customer.subscription.updated",
                status("canceled"),
                ReportedState::Ended,
            ),
            (
                "customer.subscription.deleted",
                status("active"),
                ReportedState::Ended,
            ),
            (
                "customer.subscription.updated",
                status("new"),
                ReportedState::Unknown,
            ),
            ("invoice.paid", invoice.clone(), ReportedState::Paid),
            (
                "invoice.payment_failed",
                invoice,
                ReportedState::PaymentFailed,
            ),
            ("invoice.paid", parent, ReportedState::Paid),
        ] {
            let wanted = EventContent::Subscription {
                subscription: id("sub_1"),
                reported,
                terms: None,
            };
            assert_eq!(parsed(kind, &object), wanted, "{kind} {object}");
        }
    }

    #[test]
    fn a_subscription_names_its_prices_and_currency() {
        let items = json!({ "data": [{ "price": { "id": "price_1" } }, { "price": "price_2" }] });
        let object =
            json!({ "id": "sub_1", "status": "active", "items": items, "currency": "eur" });
        let terms = Terms {
            as_of: Timestamp::from_unix(7),
            prices: vec!["price_1".to_owned(), "price_2".to_owned()],
            currency: Some("eur".to_owned()),
        };
        let wanted = EventContent::Subscription {
            subscription: id("sub_1"),
            reported: ReportedState::Paid,
            terms: Some(terms),
        };
        assert_eq!(parsed("customer.subscription.updated", &object), wanted);
        for items in [json!(null), json!({ "data": [] }), json!({ "data": [{}] })] {
            assert_eq!(
                subscription_terms(&json!({ "items": items }), Timestamp::from_unix(7)),
                None
            );
        }
    }

    #[test]
    fn an_event_says_whether_money_moves() {
        for (mode, live) in [
            ("", false),
            (r#""livemode":false,"#, false),
            (r#""livemode":true,"#, true),
        ] {
            let body = format!(
                r#"{{"id":"evt_1","type":"x","created":7,{mode}"data":{{"object":{{}}}}}}"#
            );
            assert_eq!(Event::parse(body.as_bytes()).unwrap().live, live, "{mode}");
        }
    }

    #[test]
    fn what_is_not_about_a_subscription_is_other() {
        for (kind, object) in [
            ("customer.created", json!({ "id": "cus_1" })),
            (
                "invoice.paid",
                json!({ "id": "in_1", "subscription": null }),
            ),
            ("invoice.paid", json!([])),
            ("checkout.session.completed", json!({ "mode": "payment" })),
            ("customer.subscription.updated", json!({ "id": "sub_1" })),
            (
                "customer.subscription.updated",
                json!({ "id": "sub/1", "status": "active" }),
            ),
        ] {
            let wanted = EventContent::Other {
                kind: kind.to_owned(),
            };
            assert_eq!(parsed(kind, &object), wanted, "{kind} {object}");
        }
    }

    #[test]
    fn what_is_no_event_is_not_read() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"id":"evt_1","type":"x","created":1}"#,
            r#"{"id":"","type":"x","created":1,"data":{"object":{}}}"#,
            r#"{"id":"a b","type":"x","created":1,"data":{"object":{}}}"#,
            r#"{"id":"evt_1","type":"x","created":"1","data":{"object":{}}}"#,
            r#"{"id":"evt_1","id":"evt_2","type":"x","created":1,"data":{"object":{}}}"#,
        ] {
            assert_eq!(Event::parse(body.as_bytes()), None, "{body}");
        }
    }
}
