//! `/hooks/payment` and what follows from it: from a sign-up to a vault that is paid for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use axum::body::Body;
use axum::http::Request;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use vault_format::name::NamespaceId;
use vault_service::config::Config;
use vault_service::config::hosting::Hosting;
use vault_service::model::namespace::Subscription;
use vault_service::{hosting::provisioning, router};
use vault_store::StoreError;
use vault_store::fair::Lane;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::common::partitions::run_work;
use crate::common::{self, PASSWORD, Reply, Visitor};
use crate::support::{Answer, World, world_with};

pub const ADA: &str = "ada@example.org";
pub const BOB: &str = "bob@example.org";
const SECRET: &str = "whsec_0123456789abcdef";
/// The time of the first event, by the provider's clock.
pub const CREATED: i64 = 1_795_000_000;

pub fn selling(config: &mut Config) {
    let variable = |name: &str| {
        let text = match name {
            "VAULT_PLANS" => {
                "team=https://buy.example/team plink_team,solo=https://buy.example/solo plink_solo,\
                 price=https://buy.example/price price_1 price_2 eur"
            }
            "VAULT_PAYMENT_SECRETS" => "whsec_fedcba9876543210,whsec_0123456789abcdef",
            _ => return None,
        };
        Some(text.to_owned())
    };
    config.hosting = Hosting::from_variables(variable).unwrap();
}

pub async fn shop() -> World {
    let world = world_with(selling);
    common::bootstrap(&world.app).await;
    for email in [ADA, BOB] {
        common::proven(&world.app, email).await;
    }
    world
}

pub fn signature(body: &str, at: i64) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{at}.{body}").as_bytes());
    let mac = mac.finalize().into_bytes();
    let hex = mac.iter().fold(String::new(), |mut hex, byte| {
        use std::fmt::Write as _;
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    format!("t={at},v1={hex}")
}

pub async fn deliver(world: &World, body: &str, header: &str) -> Answer {
    let request = Request::post("/hooks/payment").header("stripe-signature", header);
    world
        .send(request.body(Body::from(body.to_owned())).unwrap())
        .await
}

/// Sends an event that happened `second` seconds after the first one; the answer, in short.
pub async fn event(world: &World, id: &str, second: i64, kind: &str, object: Value) -> String {
    let body = json!({
        "id": id, "type": kind, "created": CREATED + second, "livemode": true,
        "data": { "object": object },
    });
    deliver_event(world, &body).await
}

/// Delivers an event as the provider signs it; the answer, in short.
pub async fn deliver_event(world: &World, body: &Value) -> String {
    let body = body.to_string();
    let answer = deliver(world, &body, &signature(&body, world.now().unix())).await;
    match answer.json()["outcome"].as_str() {
        Some(outcome) => format!("{} {outcome}", answer.status.as_u16()),
        None => answer.short(),
    }
}

pub fn checkout(reference: &str, subscription: &str) -> Value {
    json!({
        "client_reference_id": reference, "subscription": subscription, "customer": "cus_1",
        "payment_status": "paid", "payment_link": "plink_team", "currency": "eur",
    })
}

pub fn subscription(id: &str, status: &str) -> Value {
    json!({ "id": id, "customer": "cus_1", "status": status })
}

/// A signed-in browser.
pub async fn signed_in<'w>(world: &'w World, email: &str) -> Visitor<'w> {
    let mut visitor = Visitor::new(&world.app);
    let page = visitor.get("/account").await;
    visitor.log_in(&page, email, PASSWORD).await;
    visitor
}

pub async fn front(visitor: &mut Visitor<'_>) -> Reply {
    let request = Request::get("/").header("accept", "text/html");
    visitor.send(request.body(Body::empty()).unwrap()).await
}

pub async fn choose(visitor: &mut Visitor<'_>, slug: &str, more: &[(&str, &str)]) -> Reply {
    let page = visitor.get("/account/new-vault").await;
    let csrf = page.hidden("/account/new-vault", "csrf");
    let fields = [("csrf", csrf.as_str()), ("slug", slug)];
    visitor
        .post("/account/new-vault", &[&fields, more].concat())
        .await
}

/// Signs up for a vault; the reference that its checkout link carries.
pub async fn reference(visitor: &mut Visitor<'_>, slug: &str) -> String {
    let more = [
        ("plan", "team"),
        ("skill-code-review", "yes"),
        ("skill-flaky-test", "yes"),
    ];
    let done = choose(visitor, slug, &more).await;
    assert_eq!(
        (done.status, done.header("location")),
        (303, "/"),
        "{}",
        done.body
    );
    let page = front(visitor).await.body;
    let from = page.find("client_reference_id=").unwrap() + "client_reference_id=".len();
    page[from..from + 32].to_owned()
}

pub async fn steps(world: &World, slug: &str) -> String {
    let namespace = world.read_namespace(slug).await;
    let steps = provisioning::namespace_steps(&world.app, &namespace)
        .await
        .unwrap();
    let steps = json!(steps);
    let steps = steps.as_array().unwrap().iter();
    steps
        .map(|step| &step["state"].as_str().unwrap()[..1])
        .collect()
}

async fn drafts(world: &World, slug: &str) -> usize {
    let namespace = world.read_namespace(slug).await;
    let open = vault_service::model::draft::open_drafts(&world.app, &namespace.id);
    open.await.unwrap().len()
}

#[tokio::test]
async fn a_sign_up_becomes_a_vault_when_its_payment_is_confirmed() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    let reference = reference(&mut ada, "acme").await;
    let page = front(&mut ada).await.body;
    let link = "https://buy.example/team?client_reference_id=";
    assert!(
        page.contains(link) && page.contains("prefilled_email=ada%40example.org"),
        "{page}"
    );
    assert!(
        page.contains("Confirm the payment <span class=\"soft\">(pending)"),
        "{page}"
    );
    // Twice, and whichever event comes first: none does anything twice.
    let paid = checkout(&reference, "sub_1");
    let before = event(
        &world,
        "evt_0",
        0,
        "customer.subscription.created",
        subscription("sub_1", "active"),
    );
    assert_eq!(before.await, "200 taken");
    for outcome in ["200 taken", "200 repeated"] {
        let kind = "checkout.session.completed";
        assert_eq!(event(&world, "evt_1", 1, kind, paid.clone()).await, outcome);
    }
    let namespace = world.read_namespace("acme").await;
    assert_eq!(namespace.subscription, Subscription::Active);
    assert_eq!(namespace.owner, ADA);
    assert_eq!(steps(&world, "acme").await, "ddddp");
    assert_eq!(drafts(&world, "acme").await, 2);
    let page = front(&mut ada).await.body;
    for text in [
        "vault cloud connect https://vault.example/v/acme",
        "vault cloud pull --pending",
        "vault sync",
        "You are an owner",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("buy.example"), "{page}");
    let actions: Vec<_> = common::audited(&world.app, "acme").await;
    assert!(
        actions
            .iter()
            .any(|entry| entry.action == "namespace.create")
    );
    // Bob sees nothing of it.
    let mut bob = signed_in(&world, BOB).await;
    assert!(!front(&mut bob).await.body.contains("acme"));
}

#[tokio::test]
async fn a_vault_lapses_after_its_grace_period_and_continues_when_it_is_paid() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    let reference = reference(&mut ada, "acme").await;
    let kind = "checkout.session.completed";
    event(&world, "evt_1", 1, kind, checkout(&reference, "sub_1")).await;
    let invoice = || json!({ "subscription": "sub_1" });
    let failed = event(&world, "evt_2", 10, "invoice.payment_failed", invoice());
    assert_eq!(failed.await, "200 taken");
    let until = vault_format::time::Timestamp::from_unix(CREATED + 10).plus_days(7);
    let past_due = Subscription::PastDue { until };
    assert_eq!(world.read_namespace("acme").await.subscription, past_due);
    // An older event changes nothing, and neither does one of another type.
    let older = event(&world, "evt_3", 5, "invoice.paid", invoice());
    assert_eq!(older.await, "200 taken");
    let other = event(&world, "evt_4", 50, "charge.refunded", invoice());
    assert_eq!(other.await, "200 ignored");
    assert_eq!(world.read_namespace("acme").await.subscription, past_due);
    let kind = "customer.subscription.updated";
    event(&world, "evt_5", 60, kind, subscription("sub_1", "unpaid")).await;
    assert_eq!(
        world.read_namespace("acme").await.subscription,
        Subscription::Lapsed
    );
    let page = front(&mut ada).await.body;
    assert!(page.contains("The subscription has lapsed"), "{page}");
    event(&world, "evt_6", 70, "invoice.paid", invoice()).await;
    assert_eq!(
        world.read_namespace("acme").await.subscription,
        Subscription::Active
    );
    // Over for good: only a new subscription of the same sign-up continues.
    let kind = "customer.subscription.deleted";
    event(&world, "evt_7", 80, kind, subscription("sub_1", "canceled")).await;
    event(&world, "evt_8", 90, "invoice.paid", invoice()).await;
    assert_eq!(
        world.read_namespace("acme").await.subscription,
        Subscription::Lapsed
    );
    let page = front(&mut ada).await.body;
    assert!(
        page.contains(&format!("client_reference_id={reference}")),
        "{page}"
    );
    let kind = "checkout.session.completed";
    event(&world, "evt_9", 100, kind, checkout(&reference, "sub_2")).await;
    assert_eq!(
        world.read_namespace("acme").await.subscription,
        Subscription::Active
    );
    // The one that it replaced decides nothing any more.
    let kind = "customer.subscription.deleted";
    event(
        &world,
        "evt_10",
        110,
        kind,
        subscription("sub_1", "canceled"),
    )
    .await;
    assert_eq!(
        world.read_namespace("acme").await.subscription,
        Subscription::Active
    );
}

#[tokio::test]
async fn nobody_pays_for_a_vault_by_its_name_or_for_one_that_is_unknown() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    reference(&mut ada, "acme").await;
    let kind = "checkout.session.completed";
    for (id, reference) in [
        ("evt_1", "acme"),
        ("evt_2", "0123456789abcdef0123456789abcdef"),
    ] {
        let done = event(&world, id, 1, kind, checkout(reference, "sub_1")).await;
        assert_eq!(done, "200 refused", "{reference}");
    }
    let page = front(&mut ada).await.body;
    assert!(
        page.contains("Confirm the payment <span class=\"soft\">(pending)"),
        "{page}"
    );
}

#[tokio::test]
async fn an_event_that_is_forged_or_old_is_rejected_and_changes_nothing() {
    let world = shop().await;
    let body = r#"{"id":"evt_1","type":"invoice.paid","created":1,"data":{"object":{}}}"#;
    let now = world.now().unix();
    for (header, short) in [
        (String::new(), "400 payment_signature_invalid"),
        (signature("other", now), "400 payment_signature_invalid"),
        (signature(body, now - 301), "400 payment_event_old"),
        (signature(body, now), "200"),
    ] {
        let answer = deliver(&world, body, &header).await;
        assert_eq!(answer.short().trim_end(), short, "{header}");
    }
    let no_event = "{}";
    let answer = deliver(&world, no_event, &signature(no_event, now)).await;
    assert_eq!(answer.short(), "400 json_invalid");
    let large = " ".repeat(64 * 1024 + 1);
    let answer = deliver(&world, &large, &signature(&large, now)).await;
    assert_eq!(answer.short(), "413 body_too_large");
    // Without a secret there is no such route.
    let free = world_with(|_| {});
    let answer = deliver(&free, body, &signature(body, now)).await;
    assert_eq!(answer.short(), "404 not_found");
}

/// Places for large bodies are for tenants: anybody may send a body to the hook.
#[tokio::test]
async fn a_body_for_the_hook_needs_no_place_for_large_ones() {
    let world = shop().await;
    let mut places = Vec::new();
    for tenant in [1, 1, 1, 2, 2, 2, 3, 3] {
        let lane = Lane::Namespace(NamespaceId::from_parts(1_795_219_200_000, tenant));
        let body = Body::from(vec![b'x'; 100_000]);
        places.push(world.app.bodies.read(lane, body, 100_000).await.unwrap());
    }
    let now = world.now().unix();
    let event = r#"{"id":"evt_1","type":"x","created":1,"data":{"object":{}}}"#;
    let padded = format!("{event}{}", " ".repeat(64 * 1024 - event.len()));
    let answer = deliver(&world, &padded, &signature(&padded, now)).await;
    assert_eq!(answer.short().trim_end(), "200");
    let large = "x".repeat(200_000);
    let answer = deliver(&world, &large, "t=1,v1=00").await;
    assert_eq!(answer.short(), "413 body_too_large");
}

#[tokio::test]
async fn a_name_is_reserved_for_a_day_and_what_was_paid_stays() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    let paid = reference(&mut ada, "acme").await;
    // Again is the same sign-up; for anybody else the name is taken.
    let again = choose(&mut ada, "acme", &[("plan", "team")]).await;
    assert_eq!(again.status, 303);
    let mut bob = signed_in(&world, BOB).await;
    let taken = choose(&mut bob, "acme", &[("plan", "solo")]).await;
    assert_eq!(taken.status, 409);
    assert!(taken.body.contains("The name is taken"), "{}", taken.body);
    let operator = common::operator_token(&world.app).await;
    let create = |operator: String| {
        let body = json!({ "slug": "acme", "owner": BOB }).to_string();
        let request = Request::post("/admin/operator/namespaces")
            .header("authorization", format!("Bearer {operator}"))
            .header("content-type", "application/json");
        world.send(request.body(Body::from(body)).unwrap())
    };
    assert_eq!(create(operator).await.short(), "409 slug_taken");
    world.clock.advance(24 * 3600);
    let mut bob = signed_in(&world, BOB).await;
    let free = choose(&mut bob, "acme", &[("plan", "solo")]).await;
    assert_eq!(free.status, 303, "{}", free.body);
    // Ada's payment arrives late: she chooses another name.
    let kind = "checkout.session.completed";
    let done = event(&world, "evt_1", 1, kind, checkout(&paid, "sub_1")).await;
    assert_eq!(done, "200 taken");
    let mut ada = signed_in(&world, ADA).await;
    let page = front(&mut ada).await;
    assert!(
        page.body.contains("What you paid stays yours"),
        "{}",
        page.body
    );
    let action = "/account/new-vault/name";
    let csrf = page.hidden(action, "csrf");
    let rename = |slug: &'static str| {
        [
            ("csrf", csrf.clone()),
            ("reference", paid.clone()),
            ("slug", slug.into()),
        ]
    };
    // A sign-up of somebody else is as unknown as any other.
    let page = bob.get("/account/new-vault").await;
    let hers = page.hidden("/account/new-vault", "csrf");
    let fields = [
        ("csrf", hers.as_str()),
        ("reference", &paid),
        ("slug", "acme-3"),
    ];
    assert_eq!(bob.post(action, &fields).await.status, 409);
    for (slug, status) in [
        ("acme", 409),
        ("Not A Name", 422),
        ("admin", 422),
        ("acme-2", 303),
    ] {
        let fields = rename(slug);
        let fields = fields
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        assert_eq!(ada.post(action, &fields).await.status, status, "{slug}");
    }
    assert_eq!(world.read_namespace("acme-2").await.owner, ADA);
    assert_eq!(steps(&world, "acme-2").await, "ddddp");
}

#[tokio::test]
async fn an_account_has_at_most_three_unpaid_sign_ups() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    for slug in ["one", "two", "three"] {
        assert_eq!(
            choose(&mut ada, slug, &[("plan", "team")]).await.status,
            303
        );
    }
    let fourth = choose(&mut ada, "four", &[("plan", "team")]).await;
    assert_eq!(fourth.status, 409);
    world.clock.advance(24 * 3600);
    let mut ada = signed_in(&world, ADA).await;
    assert_eq!(
        choose(&mut ada, "four", &[("plan", "team")]).await.status,
        303
    );
    // A plan that is not for sale, or none, is no form of ours.
    for more in [&[("plan", "other")][..], &[]] {
        assert_eq!(choose(&mut ada, "five", more).await.status, 400);
    }
}

#[tokio::test]
async fn a_free_vault_is_there_at_once_where_the_operator_lets_people_create_them() {
    let world = world_with(|config| config.hosting.sign_up = true);
    common::bootstrap(&world.app).await;
    common::proven(&world.app, ADA).await;
    let mut ada = signed_in(&world, ADA).await;
    let done = choose(&mut ada, "acme", &[("skill-code-review", "yes")]).await;
    assert_eq!(done.status, 303, "{}", done.body);
    assert_eq!(
        world.read_namespace("acme").await.subscription,
        Subscription::None
    );
    assert_eq!(steps(&world, "acme").await, "ddddp");
    assert_eq!(drafts(&world, "acme").await, 1);
    for slug in ["two", "three"] {
        assert_eq!(choose(&mut ada, slug, &[]).await.status, 303);
    }
    assert_eq!(choose(&mut ada, "four", &[]).await.status, 409);
    let closed = world_with(|_| {});
    common::bootstrap(&closed.app).await;
    common::proven(&closed.app, ADA).await;
    let mut ada = signed_in(&closed, ADA).await;
    let page = ada.get("/account/new-vault").await;
    assert_eq!(page.page(), "404 You cannot create a vault here");
}

/// Fails every commit after some number of them.
#[derive(Default)]
pub struct Failing {
    commits_left: AtomicUsize,
}

impl Failing {
    pub fn after(commits: usize) -> Self {
        let commits_left = AtomicUsize::new(commits);
        Self { commits_left }
    }
}

#[async_trait]
impl Hook for Failing {
    async fn before(&self, call: Call<'_>) -> Result<(), StoreError> {
        let is_commit = matches!(call, Call::Commit(_));
        let left = |left: usize| left.checked_sub(1);
        if is_commit
            && self
                .commits_left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
                .is_err()
        {
            return Err(StoreError::unavailable("the store does not answer"));
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_store_that_fails_leaves_nothing_half_done_and_the_next_event_goes_on() {
    // One commit binds the payment, one allocates, one saves each draft, one notes them.
    for commits in 0..5 {
        let mut world = shop().await;
        let paid = {
            let mut ada = signed_in(&world, ADA).await;
            reference(&mut ada, "acme").await
        };
        let good = world.app.records.clone();
        let failing = Failing::after(commits);
        world.app.ports.records = Hooked::new(&world.memory, Arc::new(failing));
        world.router = router(world.app.clone());
        let kind = "checkout.session.completed";
        let done = event(&world, "evt_1", 1, kind, checkout(&paid, "sub_1")).await;
        assert_eq!(done, "503 unavailable", "after {commits} commits");
        world.app.ports.records = good;
        world.router = router(world.app.clone());
        // By turns the provider's repetition and background work.
        if commits % 2 == 0 {
            event(&world, "evt_1", 1, kind, checkout(&paid, "sub_1")).await;
        } else {
            assert_eq!(run_work(&world.app).await.provisioned, 1);
        }
        assert_eq!(
            steps(&world, "acme").await,
            "ddddp",
            "after {commits} commits"
        );
        assert_eq!(drafts(&world, "acme").await, 2, "after {commits} commits");
        assert_eq!(run_work(&world.app).await.provisioned, 0);
    }
}

#[tokio::test]
async fn two_runs_at_once_do_every_step_once() {
    let world = shop().await;
    let mut ada = signed_in(&world, ADA).await;
    let paid = reference(&mut ada, "acme").await;
    let kind = "checkout.session.completed";
    let (one, other, third) = tokio::join!(
        event(&world, "evt_1", 1, kind, checkout(&paid, "sub_1")),
        event(&world, "evt_1", 1, kind, checkout(&paid, "sub_1")),
        event(
            &world,
            "evt_2",
            1,
            "invoice.paid",
            json!({ "subscription": "sub_1" })
        ),
    );
    for outcome in [one, other, third] {
        assert!(outcome.starts_with("200"), "{outcome}");
    }
    assert_eq!(steps(&world, "acme").await, "ddddp");
    assert_eq!(drafts(&world, "acme").await, 2);
    let log = common::audited(&world.app, "acme").await;
    let made = log
        .iter()
        .filter(|entry| entry.action == "namespace.create");
    assert_eq!(made.count(), 1);
}
