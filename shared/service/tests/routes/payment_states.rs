//! What a vault and its owner have after payments that collide, or that do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Notify;
use vault_service::config::hosting::Hosting;
use vault_service::model::namespace::{Subscription, find_namespace};
use vault_service::model::payment::{SubscriptionId, subscription_key};
use vault_service::model::provisioning::MAX_STANDBY;
use vault_service::router;
use vault_store::StoreError;
use vault_store::records::Records;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common;
use crate::common::partitions::run_work;
use crate::hooks::{
    ADA, CREATED, Failing, checkout, choose, deliver_event, event, front, shop, signature,
    signed_in, subscription,
};
use crate::payments::{
    CHECKOUT, DELETED, UPDATED, access, has_vault, kinds, priced, problems, send_from, sign_up,
    with,
};
use crate::support::World;

/// Holds the first commit that writes a subscription until the test lets it go.
struct Hold {
    subscription: SubscriptionId,
    held: AtomicBool,
    reached: Notify,
    release: Notify,
}

#[async_trait]
impl Hook for Hold {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let key = subscription_key(&self.subscription);
        if let Call::Commit(writes) = call
            && writes.iter().any(|write| *write.key() == key)
            && !self.held.swap(true, Ordering::SeqCst)
        {
            self.reached.notify_one();
            self.release.notified().await;
        }
        Ok(())
    }
}

/// An event: its id, second, type and object.
type Given = (&'static str, i64, &'static str, Value);

/// The same service over these records.
fn world_over(world: &World, records: Arc<dyn Records>) -> World {
    let mut app = world.app.clone();
    app.ports.records = records;
    World {
        router: router(app.clone()),
        app,
        memory: world.memory.clone(),
        clock: world.clock.clone(),
    }
}

/// Processes `first` up to its commit, then does `second`, then commits `first` or tries it again.
async fn overtake(world: &World, first: Given, second: impl Future<Output = ()>) {
    let id = first.3["subscription"].as_str().or(first.3["id"].as_str());
    let hold = Arc::new(Hold {
        subscription: SubscriptionId::parse(id.unwrap()).unwrap(),
        held: AtomicBool::new(false),
        reached: Notify::new(),
        release: Notify::new(),
    });
    let slow = world_over(world, Hooked::new(&world.memory, hold.clone()));
    let overtaken = event(&slow, first.0, first.1, first.2, first.3);
    let overtaking = async {
        hold.reached.notified().await;
        second.await;
        hold.release.notify_one();
    };
    let (outcome, ()) = tokio::join!(overtaken, overtaking);
    assert_eq!(outcome, "200 taken");
}

#[tokio::test]
async fn an_end_that_a_second_payment_overtakes_does_not_lapse_the_vault() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let second = async {
        let done = event(&world, "evt_3", 3, CHECKOUT, checkout(&paid, "sub_2")).await;
        assert_eq!(done, "200 taken");
    };
    let end = ("evt_2", 2, DELETED, subscription("sub_1", "canceled"));
    overtake(&world, end, second).await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

#[tokio::test]
async fn a_subscription_that_ends_while_its_vault_is_allocated_lapses_it() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    // The payment is confirmed, and the allocation of the vault has not begun.
    let failing = Hooked::new(&world.memory, Arc::new(Failing::after(1)));
    let broken = world_over(&world, failing);
    let done = event(&broken, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    assert_eq!(done, "503 unavailable");
    assert!(!has_vault(&world, "acme").await);
    let allocation = async {
        let done = run_work(&world.app).await;
        assert_eq!(done.provisioned, 1);
    };
    let end = ("evt_2", 2, DELETED, subscription("sub_1", "canceled"));
    overtake(&world, end, allocation).await;
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
}

/// A subscription that stands by decides nothing yet, so its change touches nothing that the end of
/// the first one writes.
#[tokio::test]
async fn an_end_that_a_failure_of_the_second_subscription_overtakes_lapses_the_vault() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    event(&world, "evt_2", 2, CHECKOUT, checkout(&paid, "sub_2")).await;
    let second = async {
        let unpaid = subscription("sub_2", "unpaid");
        assert_eq!(
            event(&world, "evt_4", 4, UPDATED, unpaid).await,
            "200 taken"
        );
        assert_eq!(access(&world, "acme").await, Subscription::Active);
    };
    let end = ("evt_3", 3, DELETED, subscription("sub_1", "canceled"));
    overtake(&world, end, second).await;
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
}

#[tokio::test]
async fn a_payment_for_a_deleted_vault_is_listed_before_and_after_its_removal() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let slug = "acme".parse().unwrap();
    let (namespace, revision) = find_namespace(&world.app, &slug).await.unwrap().unwrap();
    let writes = namespace.deletion_writes(revision, world.now()).unwrap();
    common::commit(&world.app, writes).await;
    let invoice = || json!({ "subscription": "sub_1" });
    for (second, vault) in [(2, json!("acme")), (3, json!(null))] {
        let id = format!("evt_{second}");
        let outcome = event(&world, &id, second, "invoice.paid", invoice()).await;
        assert_eq!(outcome, "200 refused");
        let listed = &problems(&world).await[0];
        assert_eq!(listed["problem"], "vault_deleted", "{listed}");
        assert_eq!(listed["event"], id);
        assert_eq!(listed["vault"], vault);
        assert_eq!(listed["subscription"], "sub_1");
        assert!(!has_vault(&world, "acme").await);
        // The removal takes the sign-up with it.
        world.clock.advance(3600);
        run_work(&world.app).await;
    }
    assert_eq!(kinds(&world).await, ["vault_deleted", "vault_deleted"]);
}

#[tokio::test]
async fn a_vault_has_a_bounded_number_of_subscriptions() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    for number in 0..=MAX_STANDBY {
        let (id, bought) = (format!("evt_{number}"), format!("sub_{number}"));
        let outcome = event(&world, &id, 1, CHECKOUT, checkout(&paid, &bought)).await;
        assert_eq!(outcome, "200 taken", "{number}");
    }
    let further = || checkout(&paid, "sub_more");
    let outcome = event(&world, "evt_more", 2, CHECKOUT, further()).await;
    assert_eq!(outcome, "200 refused");
    assert_eq!(kinds(&world).await[0], "too_many_subscriptions");
    // One that it has already goes on.
    let again = event(&world, "evt_again", 2, CHECKOUT, checkout(&paid, "sub_1")).await;
    assert_eq!(again, "200 taken");
    // The same event counts once there is room.
    let over = subscription("sub_3", "canceled");
    event(&world, "evt_over", 3, DELETED, over).await;
    assert_eq!(
        event(&world, "evt_more", 2, CHECKOUT, further()).await,
        "200 taken"
    );
}

#[tokio::test]
async fn a_new_checkout_of_a_plan_that_is_not_for_sale_is_refused() {
    let mut world = shop().await;
    let (old, new) = (
        sign_up(&world, "acme", "solo").await,
        sign_up(&world, "other", "solo").await,
    );
    let bought = |reference: &str, id: &str| {
        with(checkout(reference, id), "payment_link", json!("plink_solo"))
    };
    let first = event(&world, "evt_1", 1, CHECKOUT, bought(&old, "sub_1")).await;
    assert_eq!(first, "200 taken");
    selling_plans(&mut world, "team=https://buy.example/team plink_team");
    let late = event(&world, "evt_2", 2, CHECKOUT, bought(&new, "sub_2")).await;
    assert_eq!(late, "200 refused");
    assert_eq!(kinds(&world).await, ["plan_not_for_sale"]);
    assert!(!has_vault(&world, "other").await);
    // Who bought it before keeps it.
    let again = event(&world, "evt_3", 3, CHECKOUT, bought(&old, "sub_1")).await;
    assert_eq!(again, "200 taken");
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

/// The same service with these plans.
fn selling_plans(world: &mut World, plans: &str) {
    let variable = |name: &str| match name {
        "VAULT_PLANS" => Some(plans.to_owned()),
        "VAULT_PAYMENT_SECRETS" => Some("whsec_0123456789abcdef".to_owned()),
        _ => None,
    };
    let mut config = (*world.app.config).clone();
    config.hosting = Hosting::from_variables(variable).unwrap();
    world.app.config = config.into();
    world.router = router(world.app.clone());
}

/// The front page of Ada.
async fn page_of_ada(world: &World) -> String {
    let mut ada = signed_in(world, ADA).await;
    front(&mut ada).await.body
}

#[tokio::test]
async fn a_lapsed_vault_offers_the_checkout_unless_an_invoice_of_its_plan_is_open() {
    const SUBSCRIBE: &str = "Subscribe again</a>";
    const INVOICE: &str = "as soon as the open invoice is paid";
    const OTHER_PRICE: &str = "Its subscription is for another price";
    let world = shop().await;
    let paid = sign_up(&world, "acme", "price").await;
    let bought = |id: &str| with(checkout(&paid, id), "currency", json!("eur"));
    event(&world, "evt_1", 1, CHECKOUT, bought("sub_1")).await;
    let state = |id: &str, status: &str| priced(id, status, "price_1");
    event(&world, "evt_2", 2, UPDATED, state("sub_1", "active")).await;
    event(&world, "evt_3", 3, CHECKOUT, bought("sub_2")).await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    let cheap = |status: &str| priced("sub_2", status, "price_9");
    for (second, kind, object, shown, hidden) in [
        // The first is over, and the second decides although it is for another price.
        (4, UPDATED, cheap("active"), "", SUBSCRIBE),
        (5, DELETED, state("sub_1", "canceled"), OTHER_PRICE, INVOICE),
        (6, UPDATED, state("sub_2", "unpaid"), INVOICE, SUBSCRIBE),
        (
            7,
            UPDATED,
            state("sub_2", "past_due"),
            "A payment failed",
            SUBSCRIBE,
        ),
        (8, DELETED, state("sub_2", "canceled"), SUBSCRIBE, INVOICE),
    ] {
        event(&world, &format!("evt_s{second}"), second, kind, object).await;
        let page = page_of_ada(&world).await;
        assert!(page.contains(shown), "{second}: {page}");
        assert!(!page.contains(hidden), "{second}: {page}");
        let offers = page.contains(&format!("client_reference_id={paid}"));
        assert_eq!(offers, matches!(second, 5 | 8), "{second}: {page}");
    }
}

#[tokio::test]
async fn a_payment_that_does_not_count_is_shown_to_the_person_until_one_counts() {
    const ASK: &str = "ask the operator before you pay again";
    for (name, value) in [
        ("payment_link", json!("plink_solo")),
        ("currency", json!("idr")),
        ("price", json!("price_9")),
        ("livemode", json!(false)),
    ] {
        let world = shop().await;
        let plan = if name == "payment_link" || name == "livemode" {
            "team"
        } else {
            "price"
        };
        let paid = sign_up(&world, "acme", plan).await;
        assert!(!page_of_ada(&world).await.contains(ASK));
        if name == "price" {
            event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
            let other = priced("sub_1", "active", "price_9");
            event(&world, "evt_2", 2, UPDATED, other).await;
        } else {
            let body = json!({
                "id": "evt_1", "type": CHECKOUT, "created": CREATED, "livemode": name != "livemode",
                "data": { "object": with(checkout(&paid, "sub_1"), name, value) },
            });
            assert_eq!(deliver_event(&world, &body).await, "200 refused");
        }
        let page = page_of_ada(&world).await;
        assert!(page.contains(ASK), "{name}: {page}");
        assert!(!page.contains("Continue to the checkout page"), "{name}");
        let mut ada = signed_in(&world, ADA).await;
        let refused = choose(&mut ada, "acme", &[("plan", "solo")]).await;
        assert_eq!(refused.status, 409);
        assert!(refused.body.contains("A payment has arrived"), "{name}");
        event(&world, "evt_3", 3, CHECKOUT, checkout(&paid, "sub_3")).await;
        let good = priced("sub_3", "active", "price_1");
        event(&world, "evt_4", 4, UPDATED, good).await;
        assert_eq!(access(&world, "acme").await, Subscription::Active);
        assert!(!page_of_ada(&world).await.contains(ASK), "{name}");
    }
}

#[tokio::test]
async fn a_payment_without_a_price_is_listed_until_an_event_names_it() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "price").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    assert_eq!(kinds(&world).await, ["price_awaited"]);
    // Once for each subscription, however many events come without a price.
    let invoice = json!({ "subscription": "sub_1" });
    event(&world, "evt_2", 2, "invoice.paid", invoice).await;
    assert_eq!(kinds(&world).await, ["price_awaited"]);
    let page = page_of_ada(&world).await;
    assert!(page.contains("Your payment arrived."), "{page}");
    assert!(!page.contains("client_reference_id"), "{page}");
    let named = priced("sub_1", "active", "price_1");
    event(&world, "evt_3", 3, UPDATED, named).await;
    assert_eq!(kinds(&world).await, Vec::<String>::new());
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

#[tokio::test]
async fn an_unpaid_sign_up_takes_another_plan_and_no_second_reservation() {
    let mut world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    let mut ada = signed_in(&world, ADA).await;
    let logged = common::entries_of(&world.app, None).await.len();
    for plan in ["solo", "team", "solo"] {
        let chosen = choose(&mut ada, "acme", &[("plan", plan)]).await;
        assert_eq!(chosen.status, 303, "{}", chosen.body);
    }
    assert_eq!(common::entries_of(&world.app, None).await.len(), logged);
    // The same after the reservation, which does not begin anew.
    world.clock.advance(24 * 3600);
    selling_plans(&mut world, "team=https://buy.example/team plink_team");
    let page = page_of_ada(&world).await;
    assert!(page.contains("This plan is no longer for sale"), "{page}");
    let mut ada = signed_in(&world, ADA).await;
    let chosen = choose(&mut ada, "acme", &[("plan", "team")]).await;
    assert_eq!(chosen.status, 303, "{}", chosen.body);
    let page = page_of_ada(&world).await;
    let link = format!("https://buy.example/team?client_reference_id={paid}");
    assert!(page.contains(&link), "{page}");
    assert!(page.contains("The name is no longer reserved"), "{page}");
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
}

#[tokio::test]
async fn a_payment_on_its_way_is_not_asked_for_again() {
    const PROCESSING: &str = "Your payment is being processed";
    const INVOICE: &str = "Pay the open invoice";
    let mut world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    let delayed = with(checkout(&paid, "sub_1"), "payment_status", json!("unpaid"));
    event(&world, "evt_1", 1, CHECKOUT, delayed).await;
    let offers = format!("client_reference_id={paid}");
    let page = page_of_ada(&world).await;
    assert!(page.contains(PROCESSING), "{page}");
    assert!(!page.contains(&offers), "{page}");
    // The same once the plan is no longer for sale: no other plan can be chosen meanwhile.
    let plans = "solo=https://buy.example/solo plink_solo";
    let selling = world.app.config.clone();
    selling_plans(&mut world, plans);
    let page = page_of_ada(&world).await;
    assert!(page.contains(PROCESSING), "{page}");
    assert!(!page.contains("another plan"), "{page}");
    world.app.config = selling;
    world.router = router(world.app.clone());
    let failed = json!({ "subscription": "sub_1" });
    event(&world, "evt_2", 2, "invoice.payment_failed", failed).await;
    let page = page_of_ada(&world).await;
    assert!(page.contains(INVOICE), "{page}");
    assert!(!page.contains(&offers), "{page}");
    // Nothing is left of it, so the person may pay anew.
    let expired = subscription("sub_1", "incomplete_expired");
    event(&world, "evt_3", 3, UPDATED, expired).await;
    let page = page_of_ada(&world).await;
    assert!(page.contains(&offers), "{page}");
}

#[tokio::test]
async fn a_plan_that_is_not_for_sale_is_replaced_or_the_operator_is_named() {
    const OTHER: &str = "with the same name and another plan";
    const ASK: &str = "Ask the operator of this service how to go on";
    let mut world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    // A first payment that was never completed leaves a subscription that is over.
    let delayed = with(checkout(&paid, "sub_1"), "payment_status", json!("unpaid"));
    event(&world, "evt_1", 1, CHECKOUT, delayed).await;
    let expired = subscription("sub_1", "incomplete_expired");
    event(&world, "evt_2", 2, UPDATED, expired).await;
    let mut config = (*world.app.config).clone();
    config.hosting.plans.clear();
    world.app.config = config.into();
    world.router = router(world.app.clone());
    let page = page_of_ada(&world).await;
    assert!(page.contains(ASK) && !page.contains(OTHER), "{page}");
    selling_plans(&mut world, "solo=https://buy.example/solo plink_solo");
    let page = page_of_ada(&world).await;
    assert!(page.contains(OTHER), "{page}");
    // What the page advises works.
    let mut ada = signed_in(&world, ADA).await;
    let chosen = choose(&mut ada, "acme", &[("plan", "solo")]).await;
    assert_eq!(chosen.status, 303, "{}", chosen.body);
    let page = page_of_ada(&world).await;
    assert!(
        page.contains(&format!("solo?client_reference_id={paid}")),
        "{page}"
    );
    let bought = with(
        checkout(&paid, "sub_2"),
        "payment_link",
        json!("plink_solo"),
    );
    event(&world, "evt_3", 3, CHECKOUT, bought).await;
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    // A vault keeps its plan, so only the operator can help once that is gone.
    selling_plans(&mut world, "team=https://buy.example/team plink_team");
    let over = subscription("sub_2", "canceled");
    event(&world, "evt_4", 4, DELETED, over).await;
    let page = page_of_ada(&world).await;
    assert!(
        page.contains("ask the operator of this service how to go on"),
        "{page}"
    );
    assert!(!page.contains("open invoice is paid"), "{page}");
}

#[tokio::test]
async fn a_checkout_of_another_product_is_ignored() {
    let world = shop().await;
    sign_up(&world, "acme", "team").await;
    for (number, reference) in [json!(null), json!("order-17")].into_iter().enumerate() {
        let other = with(checkout("", "sub_1"), "client_reference_id", reference);
        let id = format!("evt_{number}");
        let foreign = with(other.clone(), "payment_link", json!("plink_shop"));
        let outcome = event(&world, &id, 1, CHECKOUT, foreign).await;
        assert_eq!(outcome, "200 ignored");
        assert_eq!(kinds(&world).await.len(), number);
        // A link of a plan without a sign-up is a payment that the operator has to see.
        let id = format!("evt_link_{number}");
        let outcome = event(&world, &id, 1, CHECKOUT, other).await;
        assert_eq!(outcome, "200 refused");
        assert_eq!(kinds(&world).await.len(), number + 1);
    }
}

#[tokio::test]
async fn a_plan_that_is_taken_off_sale_serves_no_subscription_for_another_price() {
    let mut world = shop().await;
    let paid = sign_up(&world, "acme", "price").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let state = |price: &str| priced("sub_1", "active", price);
    event(&world, "evt_2", 2, UPDATED, state("price_1")).await;
    event(&world, "evt_3", 3, UPDATED, state("price_9")).await;
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
    selling_plans(&mut world, "team=https://buy.example/team plink_team");
    let invoice = json!({ "subscription": "sub_1" });
    event(&world, "evt_4", 4, "invoice.paid", invoice).await;
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
}

#[tokio::test]
async fn an_event_with_an_unknown_state_counts_when_it_is_sent_to_a_version_that_knows_it() {
    let world = shop().await;
    let paid = sign_up(&world, "acme", "team").await;
    event(&world, "evt_1", 1, CHECKOUT, checkout(&paid, "sub_1")).await;
    let new = subscription("sub_1", "resting");
    assert_eq!(event(&world, "evt_2", 2, UPDATED, new).await, "200 refused");
    assert_eq!(access(&world, "acme").await, Subscription::Lapsed);
    assert_eq!(kinds(&world).await, ["unknown_state"]);
    // What the new version reads in the same event.
    let known = subscription("sub_1", "active");
    assert_eq!(event(&world, "evt_2", 2, UPDATED, known).await, "200 taken");
    assert_eq!(access(&world, "acme").await, Subscription::Active);
    assert_eq!(kinds(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_network_sends_four_times_as_many_unsigned_bodies_and_old_events_are_not_counted() {
    let mut world = shop().await;
    let mut config = (*world.app.config).clone();
    config.limits.payment_failures = 2;
    world.app.config = config.into();
    world.router = router(world.app.clone());
    let body = r#"{"id":"evt_1","type":"x","created":1,"data":{"object":{}}}"#;
    let old = signature(body, world.now().unix() - 301);
    for network in ["192.0.2", "2001:db8:1:2::"] {
        let address = |host: usize| {
            if network.contains(':') {
                // Another /64 of the same /56 each time.
                format!("2001:db8:1:{host:x}::1")
            } else {
                format!("{network}.{host}")
            }
        };
        for _ in 0..20 {
            let answer = send_from(&world, &address(1), body, &old).await;
            assert_eq!(answer.short(), "400 payment_event_old");
        }
        for host in 1..=4 {
            for _ in 0..2 {
                let answer = send_from(&world, &address(host), body, "").await;
                assert_eq!(answer.short(), "400 payment_signature_invalid", "{host}");
            }
        }
        let answer = send_from(&world, &address(5), body, "").await;
        assert_eq!(answer.short(), "429 rate_limited", "{network}");
        let answer = send_from(&world, &address(5), body, &old).await;
        assert_eq!(answer.short(), "400 payment_event_old");
    }
}
