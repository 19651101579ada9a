//! Payments that count for a plan, those that do not, and vaults that were paid for twice.

use std::net::SocketAddr;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use vault_service::config::hosting::Hosting;
use vault_service::http::Peer;
use vault_service::model::namespace::Subscription;

use crate::common::{self, Reply, Visitor};
use crate::hooks::{
    ADA, BOB, CREATED, checkout, choose, deliver_event, event, front, reference, shop, signature,
    signed_in, subscription,
};
use crate::support::{Answer, World};

pub const CHECKOUT: &str = "checkout.session.completed";
pub const UPDATED: &str = "customer.subscription.updated";
pub const DELETED: &str = "customer.subscription.deleted";

/// The operator's list of payments that went wrong.
pub async fn problems(world: &World) -> Vec<Value> {
    let operator = common::operator_token(&world.app).await;
    let request = Request::get("/admin/operator/payments")
        .header("authorization", format!("Bearer {operator}"));
    let answer = world.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    answer.json()["items"].as_array().unwrap().clone()
}

/// The kinds in that list, the newest first.
pub async fn kinds(world: &World) -> Vec<String> {
    let problems = problems(world).await;
    let kind = |problem: &Value| problem["problem"].as_str().unwrap().to_owned();
    problems.iter().map(kind).collect()
}

/// Signs up for a plan; the reference that its checkout link carries.
pub async fn sign_up(world: &World, slug: &str, plan: &str) -> String {
    let mut ada = signed_in(world, ADA).await;
    assert_eq!(choose(&mut ada, slug, &[("plan", plan)]).await.status, 303);
    let page = front(&mut ada).await.body;
    let from = page.find("client_reference_id=").unwrap() + "client_reference_id=".len();
    page[from..from + 32].to_owned()
}

pub fn with(mut object: Value, name: &str, value: Value) -> Value {
    object[name] = value;
    object
}

pub fn priced(id: &str, status: &str, price: &str) -> Value {
    let items = json!({ "data": [{ "price": { "id": price } }] });
    with(subscription(id, status), "items", items)
}

pub async fn has_vault(world: &World, slug: &str) -> bool {
    let slug = slug.parse().unwrap();
    let found = vault_service::model::namespace::find_namespace(&world.app, &slug).await;
    found.unwrap().is_some()
}

pub async fn access(world: &World, slug: &str) -> Subscription {
    world.read_namespace(slug).await.subscription
}

#[tokio::test]
async fn a_payment_for_another_offer_buys_no_vault_and_is_shown_to_the_operator() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    let good = || checkout(&paid, "sub_1");
    for (id, live, object, problem) in [
        (
            "evt_1",
            true,
            with(good(), "payment_link", json!("plink_solo")),
            "wrong_link",
        ),
        (
            "evt_2",
            true,
            with(good(), "payment_link", json!(null)),
            "wrong_link",
        ),
        ("evt_3", false, good(), "wrong_mode"),
        (
            "evt_4",
            true,
            with(good(), "client_reference_id", json!("0".repeat(32))),
            "unknown_sign_up",
        ),
    ] {
        let body = json!({
            "id": id, "type": CHECKOUT, "created": CREATED, "livemode": live,
            "data": { "object": object },
        });
        // The provider may deliver it again: the list has it once.
        for _ in 0..2 {
            assert_eq!(
                deliver_event(&world, &body).await,
                "200 refused",
                "{object}"
            );
        }
        assert!(!has_vault(&world, "acme").await, "{object}");
        let listed = problems(&world).await;
        let its: Vec<_> = listed.iter().filter(|it| it["event"] == id).collect();
        assert_eq!(its.len(), 1, "{listed:?}");
        assert_eq!(its[0]["problem"], problem);
        assert_eq!(
            (&its[0]["subscription"], &its[0]["customer"]),
            (&json!("sub_1"), &json!("cus_1"))
        );
    }
    // What the subscription reports afterwards binds nothing either.
    assert_eq!(
        event(&world, "evt_5", 1, UPDATED, subscription("sub_1", "active")).await,
        "200 taken"
    );
    assert!(!has_vault(&world, "acme").await);
    // The right payment still counts.
    assert_eq!(
        event(&world, "evt_6", 2, CHECKOUT, good()).await,
        "200 taken"
    );
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

#[tokio::test]
async fn an_event_that_was_refused_counts_when_it_is_sent_again_after_the_settings_are_corrected() {
    let mut world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    let object = with(checkout(&paid, "sub_1"), "payment_link", json!("plink_new"));
    assert_eq!(
        event(&world, "evt_1", 1, CHECKOUT, object.clone()).await,
        "200 refused"
    );
    let listed = problems(&world).await;
    assert_eq!(
        (&listed[0]["vault"], &listed[0]["plan"]),
        (&json!("acme"), &json!("team"))
    );
    let detail = listed[0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("`plink_new`") && detail.contains("`team`"),
        "{detail}"
    );
    let mut config = (*world.app.config).clone();
    let variable = |name: &str| match name {
        "VAULT_PLANS" => Some("team=https://buy.example/team plink_new".to_owned()),
        "VAULT_PAYMENT_SECRETS" => Some("whsec_0123456789abcdef".to_owned()),
        _ => None,
    };
    config.hosting = Hosting::from_variables(variable).unwrap();
    world.app.config = config.into();
    world.router = vault_service::router(world.app.clone());
    assert_eq!(
        event(&world, "evt_1", 1, CHECKOUT, object).await,
        "200 taken"
    );
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    assert_eq!(kinds(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_plan_with_a_price_counts_once_an_event_names_that_price() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "price").await;
    assert_eq!(
        event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await,
        "200 taken"
    );
    assert!(
        !has_vault(&world, "acme").await,
        "nothing has named the price"
    );
    let other = priced("sub_1", "active", "price_9");
    assert_eq!(
        event(&world, "evt_2", 2, UPDATED, other).await,
        "200 refused"
    );
    assert!(!has_vault(&world, "acme").await);
    assert_eq!(kinds(&world).await, ["wrong_price"]);
    let good = priced("sub_1", "active", "price_2");
    assert_eq!(event(&world, "evt_3", 3, UPDATED, good).await, "200 taken");
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    // A customer who changes to a cheaper price at the provider no longer pays for the plan.
    let cheap = priced("sub_1", "active", "price_9");
    assert_eq!(
        event(&world, "evt_4", 4, UPDATED, cheap).await,
        "200 refused"
    );
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
    // Late news of an older price changes nothing, and neither does an invoice.
    let late = priced("sub_1", "active", "price_1");
    event(&world, "evt_5", 3, UPDATED, late).await;
    event(
        &world,
        "evt_6",
        5,
        "invoice.paid",
        json!({ "subscription": "sub_1" }),
    )
    .await;
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
    let back = priced("sub_1", "active", "price_1");
    event(&world, "evt_7", 6, UPDATED, back).await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

#[tokio::test]
async fn a_plan_with_a_currency_takes_no_other() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "price").await;
    let rupiah = with(checkout(&paid, "sub_1"), "currency", json!("idr"));
    assert_eq!(
        event(&world, "evt_1", 1, CHECKOUT, rupiah).await,
        "200 refused"
    );
    assert_eq!(
        event(&world, "evt_2", 2, CHECKOUT, checkout(&paid, "sub_2")).await,
        "200 taken"
    );
    let rupiah = with(
        priced("sub_2", "active", "price_1"),
        "currency",
        json!("idr"),
    );
    assert_eq!(
        event(&world, "evt_3", 3, UPDATED, rupiah).await,
        "200 refused"
    );
    assert!(!has_vault(&world, "acme").await);
    assert_eq!(kinds(&world).await, ["wrong_currency", "wrong_currency"]);
    let euro = with(
        priced("sub_2", "active", "price_1"),
        "currency",
        json!("EUR"),
    );
    assert_eq!(event(&world, "evt_4", 4, UPDATED, euro).await, "200 taken");
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

#[tokio::test]
async fn a_subscription_moves_to_no_other_sign_up_and_a_deleted_vault_is_not_paid_in_silence() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let mut bob = signed_in(&world, BOB).await;
    let other = reference(&mut bob, "bobs").await;
    let moved = event(&world, "evt_2", 2, CHECKOUT, checkout(&other, "sub_1"));
    assert_eq!(moved.await, "200 refused");
    assert!(!has_vault(&world, "bobs").await);
    assert_eq!(kinds(&world).await, ["other_sign_up"]);
}

/// One event: its number, the second at which it happened, its type and object.
type Given = (&'static str, i64, &'static str, Value);

/// All orders of these events.
fn orders(events: &[Given]) -> Vec<Vec<Given>> {
    if events.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in events.iter().enumerate() {
        let mut rest = events.to_vec();
        rest.remove(at);
        for mut order in orders(&rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}

#[tokio::test]
async fn a_second_subscription_takes_over_when_the_first_ends_in_every_order_of_events() {
    let events = |paid: &str| {
        [
            ("evt_1", 1, CHECKOUT, checkout(paid, "sub_1")),
            ("evt_2", 2, CHECKOUT, checkout(paid, "sub_2")),
            ("evt_3", 3, DELETED, subscription("sub_1", "canceled")),
            (
                "evt_4",
                4,
                "invoice.paid",
                json!({ "subscription": "sub_2" }),
            ),
        ]
    };
    for number in 0..orders(&events("")).len() {
        let world = shop().await;
        let paid = sign_up(&world, "acme", "team").await;
        let order = orders(&events(&paid)).remove(number);
        // Each twice: a repetition changes nothing.
        for (id, second, kind, object) in order.iter().chain(&order) {
            let outcome = event(&world, id, *second, kind, object.clone()).await;
            assert!(outcome.starts_with("200 "), "{outcome}");
        }
        let names: Vec<_> = order.iter().map(|event| event.0).collect();
        assert_eq!(
            access(&world, "acme").await,
            Subscription::Active,
            "{names:?}"
        );
        event(
            &world,
            "evt_5",
            9,
            DELETED,
            subscription("sub_2", "canceled"),
        )
        .await;
        assert_eq!(
            access(&world, "acme").await,
            Subscription::Lapsed,
            "{names:?}"
        );
    }
}

#[tokio::test]
async fn a_second_subscription_stands_by_and_the_operator_sees_it_once() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let second = event(&world, "evt_2", 2, CHECKOUT, checkout(&paid, "sub_2"));
    assert_eq!(second.await, "200 taken");
    event(
        &world,
        "evt_3",
        3,
        "invoice.paid",
        json!({ "subscription": "sub_2" }),
    )
    .await;
    assert_eq!(kinds(&world).await, ["second_subscription"]);
    let log = common::audited(&world.app, "acme").await;
    let noted = log.iter().filter(|entry| entry.action == "payment.second");
    assert_eq!(noted.count(), 1);
    // The end of either one takes nothing away while the other is paid.
    event(&world, "evt_4", 4, UPDATED, subscription("sub_1", "unpaid")).await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    event(&world, "evt_5", 5, UPDATED, subscription("sub_1", "active")).await;
    event(
        &world,
        "evt_6",
        6,
        DELETED,
        subscription("sub_2", "canceled"),
    )
    .await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    event(&world, "evt_7", 7, UPDATED, subscription("sub_1", "unpaid")).await;
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
}

#[tokio::test]
async fn two_events_at_once_leave_the_vault_with_what_is_paid() {
    for _ in 0..8 {
        let world = shop().await;
        let paid = sign_up(&world, "acme", "team").await;
        event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
        event(&world, "evt_2", 2, CHECKOUT, checkout(&paid, "sub_2")).await;
        event(&world, "evt_3", 3, UPDATED, subscription("sub_2", "unpaid")).await;
        let (one, other) = tokio::join!(
            event(
                &world,
                "evt_4",
                4,
                DELETED,
                subscription("sub_1", "canceled")
            ),
            event(&world, "evt_5", 5, UPDATED, subscription("sub_2", "active")),
        );
        assert_eq!((one.as_str(), other.as_str()), ("200 taken", "200 taken"));
        assert_eq!(access(&world, "acme").await, Subscription::Active);
    }
}

/// Sends a body with a signature from an address.
pub async fn send_from(world: &World, source: &str, body: &str, header: &str) -> Answer {
    let peer = Peer(SocketAddr::new(source.parse().unwrap(), 1));
    let request = Request::post("/hooks/payment")
        .header("stripe-signature", header)
        .extension(peer);
    world
        .send(request.body(Body::from(body.to_owned())).unwrap())
        .await
}

#[tokio::test]
async fn a_stranger_sends_a_few_unsigned_bodies_a_minute_and_the_provider_any_number() {
    let mut world = shop().await;
    let mut config = (*world.app.config).clone();
    config.limits.payment_failures = 20;
    world.app.config = config.into();
    world.router = vault_service::router(world.app.clone());
    let body = r#"{"id":"evt_1","type":"x","created":1,"data":{"object":{}}}"#;
    let (stranger, other) = ("192.0.2.1", "192.0.2.2");
    let large = "x".repeat(64 * 1024 + 1);
    for (number, sent) in [body, &large].iter().cycle().take(20).enumerate() {
        let answer = send_from(&world, stranger, sent, "t=1,v1=00").await;
        assert!(
            [400, 413].contains(&answer.status.as_u16()),
            "{number}: {}",
            answer.short()
        );
    }
    let refused = send_from(&world, stranger, body, "").await;
    assert_eq!(refused.short(), "429 rate_limited");
    assert_eq!(refused.header("retry-after"), "50");
    // A signed event counts, even from the same address: the provider may be behind the same proxy.
    for source in [stranger, other] {
        for _ in 0..40 {
            let good = signature(body, world.now().unix());
            assert_eq!(
                send_from(&world, source, body, &good).await.status,
                200,
                "{source}"
            );
        }
    }
    assert_eq!(send_from(&world, stranger, body, "").await.status, 429);
    // Nobody else is refused, and the next minute begins anew.
    assert_eq!(send_from(&world, other, body, "").await.status, 400);
    world.clock.advance(60);
    assert_eq!(send_from(&world, stranger, body, "").await.status, 400);
}

async fn rename(visitor: &mut Visitor<'_>, paid: &str, slug: &str) -> Reply {
    let page = visitor.get("/account/new-vault").await;
    let csrf = page.hidden("/account/new-vault", "csrf");
    let fields = [("csrf", csrf.as_str()), ("reference", paid), ("slug", slug)];
    visitor.post("/account/new-vault/name", &fields).await
}

#[tokio::test]
async fn an_unpaid_name_stays_and_leaves_nothing_in_the_audit_log() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    let paid = reference(&mut ada, "acme").await;
    let logged = common::entries_of(&world.app, None).await.len();
    for slug in ["other", "acme", "third"] {
        let refused = rename(&mut ada, &paid, slug).await;
        assert_eq!(refused.status, 409);
        assert!(
            refused
                .body
                .contains("Nothing has been paid for this vault yet"),
            "{}",
            refused.body
        );
    }
    assert_eq!(common::entries_of(&world.app, None).await.len(), logged);
    let mut bob = signed_in(&world, BOB).await;
    let free = choose(&mut bob, "other", &[("plan", "team")]).await;
    assert_eq!(free.status, 303);
    // The reservation ends a day after the sign-up.
    world.clock.advance(24 * 3600);
    let mut bob = signed_in(&world, BOB).await;
    let free = choose(&mut bob, "acme", &[("plan", "team")]).await;
    assert_eq!(free.status, 303);
    let mut ada = signed_in(&world, ADA).await;
    let page = front(&mut ada).await.body;
    assert!(page.contains("The name is no longer reserved"), "{page}");
}

#[tokio::test]
async fn a_name_that_was_held_and_not_paid_for_is_not_held_again() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    let first = reference(&mut ada, "acme").await;
    world.clock.advance(24 * 3600);
    let mut ada = signed_in(&world, ADA).await;
    // The name leads back to the sign-up that can still be paid, without a reservation.
    let again = choose(&mut ada, "acme", &[("plan", "team")]).await;
    assert_eq!(again.status, 303);
    let page = front(&mut ada).await.body;
    assert!(page.contains("The name is no longer reserved"), "{page}");
    assert!(page.contains(&first), "{page}");
    let mut bob = signed_in(&world, BOB).await;
    let free = choose(&mut bob, "acme", &[("plan", "team")]).await;
    assert_eq!(free.status, 303);
    // After a week nothing is known of it any more.
    world.clock.advance(7 * 24 * 3600);
    let mut ada = signed_in(&world, ADA).await;
    let again = choose(&mut ada, "acme", &[("plan", "team")]).await;
    assert_eq!(again.status, 303);
}

#[tokio::test]
async fn an_owner_finds_the_console_and_the_billing_page_on_the_front_page() {
    let mut world = shop().await;
    let mut config = (*world.app.config).clone();
    config.hosting.billing = Some("https://billing.example/p/login".parse().unwrap());
    world.app.config = config.into();
    world.router = vault_service::router(world.app.clone());
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let mut ada = signed_in(&world, ADA).await;
    let page = front(&mut ada).await.body;
    for text in [
        r#"<a href="/console/acme" aria-label="Manage acme">Manage</a>"#,
        r#"<a href="https://billing.example/p/login" rel="external noreferrer" aria-label="Billing of acme">Billing</a>"#,
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert_eq!(ada.get("/console/acme").await.status, 200);
}

/// A vault that an earlier version sold does not name its plan.
#[tokio::test]
async fn the_plan_of_a_vault_is_taken_over_from_its_sign_up() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    let bought = event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    assert_eq!(bought, "200 taken");
    let plan = world.read_namespace("acme").await.plan;
    assert_eq!(plan.as_deref(), Some("team"));
    world
        .change("acme", |namespace| namespace.plan = None)
        .await;
    world.clock.advance(7 * 3600);
    world.work().await;
    assert_eq!(world.read_namespace("acme").await.plan, plan);
}
