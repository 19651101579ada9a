//! Notices over memory: what is queued with an event, and what is sent, when and to whom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use vault_service::config::quota::QuotaKind;
use vault_service::model::namespace::{Kind, Namespace, Status};
use vault_service::model::notice::{Destinations, Due, Event, due_key, outbox_partition};
use vault_service::model::user::{Role, Scopes, User};
use vault_service::notices::{self, Delivered, deliver_due};
use vault_service::router;
use vault_service::senders::{Mail, Mailer, SendError, Senders, WebhookMessage, Webhooks};
use vault_store::records::{Record, RecordKey, When, Write};

use crate::admin::{ADA, BOB, Desk, EVE, desk, empty_desk, reference, token};
use crate::common::{self, commit};
use crate::quota::bytes;
use crate::support::key;
use crate::team::{Team, propose_skill};

/// Time for one pass, of which the tests need little even on a busy machine.
const A_PASS: Duration = Duration::from_mins(5);

/// What the endpoints of the tests do, by host, and what they got.
#[derive(Default)]
pub struct Endpoints {
    fails: Mutex<BTreeMap<String, u16>>,
    /// Hosts that answer when they are told to.
    slow: Mutex<BTreeSet<String>>,
    go_on: Notify,
    arrived: Notify,
    got: Mutex<Vec<WebhookMessage>>,
    mails: Mutex<Vec<Mail>>,
}

impl Endpoints {
    /// Lets a host answer with this status from now on.
    pub fn answer(&self, host: &str, status: u16) {
        self.fails.lock().unwrap().insert(host.to_owned(), status);
    }

    /// What came since the last call.
    fn got(&self) -> Vec<WebhookMessage> {
        std::mem::take(&mut self.got.lock().unwrap())
    }

    /// Type and data of what came.
    pub fn events(&self) -> Vec<(String, Value)> {
        let event = |message: &WebhookMessage| {
            let body: Value = serde_json::from_str(&message.body).unwrap();
            (
                body["type"].as_str().unwrap().to_owned(),
                body["data"].clone(),
            )
        };
        self.got().iter().map(event).collect()
    }

    fn mails(&self) -> Vec<Mail> {
        std::mem::take(&mut self.mails.lock().unwrap())
    }
}

#[async_trait]
impl Webhooks for Endpoints {
    async fn post(&self, message: &WebhookMessage) -> Result<(), SendError> {
        let url = url::Url::parse(message.address.as_str()).unwrap();
        let host = url.host_str().unwrap().to_owned();
        if self.slow.lock().unwrap().contains(&host) {
            self.go_on.notified().await;
        }
        self.got.lock().unwrap().push(message.clone());
        self.arrived.notify_one();
        match self.fails.lock().unwrap().get(&host) {
            None | Some(200) => Ok(()),
            Some(1) => Err(SendError::NotPublic),
            Some(2) => Err(SendError::Timeout),
            Some(status) => Err(SendError::Status(*status)),
        }
    }
}

#[async_trait]
impl Mailer for Endpoints {
    async fn send(&self, mail: &Mail) -> Result<(), SendError> {
        self.mails.lock().unwrap().push(mail.clone());
        Ok(())
    }
}

impl Desk {
    /// The same service with these endpoints and this mail server.
    pub fn sending(&mut self, mail: bool) -> Arc<Endpoints> {
        let endpoints = Arc::new(Endpoints::default());
        let mailer: Arc<dyn Mailer> = endpoints.clone();
        let senders = Senders {
            webhooks: endpoints.clone(),
            mailer: mail.then_some(mailer),
        };
        self.world.app = self.world.app.clone().with_senders(senders);
        self.world.router = router(self.world.app.clone());
        endpoints
    }

    /// Lets the service send notices to these ports of public hosts.
    pub fn allow_ports(&mut self, ports: &[u16]) {
        let mut config = (*self.world.app.config).clone();
        config.webhook_ports = ports.to_vec();
        self.world.app.config = Arc::new(config);
        self.world.router = router(self.world.app.clone());
    }

    /// Adds a webhook of ADA at this host; its id and secret.
    pub async fn webhook(&self, host: &str, events: &[&str]) -> (String, String) {
        let body = json!({ "address": format!("https://{host}/hook"), "events": events });
        let made = self.post("/admin/vaults/acme/notices", &body).await;
        assert_eq!(made.status, 201, "{:?}", made.json());
        let made = made.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("id"), text("secret"))
    }

    pub async fn destinations(&self) -> Value {
        self.get("/admin/vaults/acme/notices").await.json()
    }

    async fn send_due(&self) -> (usize, usize) {
        let until = Instant::now() + A_PASS;
        let Delivered { arrived, failed } = deliver_due(&self.world.app, until).await.unwrap();
        (arrived, failed)
    }

    pub async fn queue_notice(&self, namespace: &Namespace, event: Event) -> usize {
        let writes = notices::queue_notice(&self.world.app, namespace, event).await;
        let writes = writes.unwrap();
        let count = writes.len();
        commit(&self.world.app, writes).await;
        count
    }

    async fn unsent(&self, namespace: &Namespace) -> Vec<Record> {
        self.records_of(&outbox_partition(&namespace.id)).await
    }

    async fn due(&self) -> usize {
        let mut due = 0;
        for partition in Due::partitions() {
            due += self.records_of(&partition).await.len();
        }
        due
    }

    async fn records_of(&self, partition: &str) -> Vec<Record> {
        let records = &self.world.app.records;
        records.list_page(partition, "", None, 1000).await.unwrap()
    }

    async fn ask_in(&self, n: u8, name: &str) -> String {
        self.world.enrol(&key(n), "acme", name).await.short()
    }
}

fn draft(n: usize) -> Event {
    Event::DraftWaiting {
        draft: format!("drf_{n}"),
        kind: "propose".to_owned(),
        skill: Some("alpha".to_owned()),
    }
}

pub fn quota_near(used: u64) -> Event {
    Event::QuotaNear {
        quota: QuotaKind::Bytes,
        used,
        limit: 1,
    }
}

fn replaced_key() -> Event {
    Event::KeyReplaced {
        root_version: 2,
        fingerprint: "SHA256:new".to_owned(),
        changes: Vec::new(),
    }
}

fn payment() -> Event {
    Event::PaymentFailed { served_until: None }
}

#[tokio::test]
async fn machines_that_wait_make_one_notice_each_quarter_of_an_hour() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 1..=7 {
        assert_eq!(desk.ask_in(n, &format!("machine {n}")).await, "201");
    }
    assert_eq!(desk.unsent(&desk.acme).await.len(), 1);
    assert_eq!(desk.send_due().await, (1, 0));
    let (topic, data) = endpoints.events().remove(0);
    assert_eq!(topic, "machine_waiting");
    assert_eq!(
        (&data["vault"], &data["waiting"]),
        (&json!("acme"), &json!(7))
    );
    let machines = data["machines"].as_array().unwrap();
    assert_eq!(machines.len(), 5);
    for machine in machines {
        let fingerprint = machine["fingerprint"].as_str().unwrap();
        assert!(fingerprint.starts_with("dev:"), "{machine}");
        assert!(machine["name"].as_str().unwrap().starts_with("machine "));
    }
    // The next machines are announced when the quarter of an hour is over.
    assert_eq!(desk.ask_in(8, "late").await, "201");
    desk.world.clock.advance(15 * 60 - 1);
    assert_eq!(desk.send_due().await, (0, 0));
    desk.world.clock.advance(1);
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.events()[0].1["waiting"], 8);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn machines_that_no_longer_wait_make_no_notice() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    let path = "/admin/vaults/acme/devices/deny-pending";
    assert_eq!(desk.post(path, &json!({})).await.status, 200);
    assert_eq!(desk.send_due().await, (0, 0));
    assert!(endpoints.got().is_empty());
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn nothing_is_written_where_nothing_is_sent() {
    let mut desk = empty_desk().await;
    desk.sending(true);
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    assert_eq!(desk.queue_notice(&desk.acme, draft(1)).await, 0);
    desk.webhook("a.example", &["payment_failed"]).await;
    assert_eq!(desk.ask_in(2, "laptop").await, "201");
    assert_eq!(desk.queue_notice(&desk.acme, draft(1)).await, 0);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
    assert_eq!(desk.queue_notice(&desk.acme, payment()).await, 2);
}

#[tokio::test]
async fn an_event_whose_commit_fails_leaves_no_notice() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 1..=20 {
        assert_eq!(desk.ask_in(n, "machine").await, "201");
    }
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(desk.ask_in(21, "machine").await, "409 pending_queue_full");
    assert!(desk.unsent(&desk.acme).await.is_empty());
    // A commit that another writer got in the way of is made again, with one notice.
    endpoints.got();
    desk.commits.interfere(1);
    let proposed = propose_skill(&desk.world, &desk.owner, "acme", "alpha").await;
    assert_eq!(proposed.status, 201, "{:?}", proposed.json());
    assert_eq!(desk.unsent(&desk.acme).await.len(), 1);
    assert_eq!(desk.send_due().await, (1, 0));
    let (topic, data) = endpoints.events().remove(0);
    assert_eq!(topic, "draft_waiting");
    assert_eq!(data["draft"], proposed.json()["id"]);
    assert_eq!(
        (&data["kind"], &data["skill"]),
        (&json!("propose"), &json!("alpha"))
    );
}

#[tokio::test]
async fn a_notice_is_retried_with_the_same_id_and_then_given_up() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("dead.example", &[]).await;
    endpoints.answer("dead.example", 500);
    desk.queue_notice(&desk.acme, payment()).await;
    let mut ids = BTreeSet::new();
    for wait in [0, 60, 300, 1800, 7200, 28_800, 86_400] {
        if wait > 0 {
            desk.world.clock.advance(wait - 1);
            assert_eq!(desk.send_due().await, (0, 0), "{wait}");
            desk.world.clock.advance(1);
        }
        assert_eq!(desk.send_due().await, (0, 1), "{wait}");
        let now = desk.world.now();
        let message = endpoints.got().remove(0);
        assert_eq!(message.at, now, "each attempt is signed anew");
        ids.insert((message.id, message.body));
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let shown = &desk.destinations().await["webhooks"][0];
    assert_eq!(shown["state"], "failing");
    let failure = shown["last_failure"].as_str().unwrap();
    assert!(
        failure.starts_with("the notice did not arrive: the endpoint must be on a public host and the port 443 or 8443, have"),
        "{failure}"
    );

    // A week in which everything failed switches it off; a test that arrives switches it on.
    desk.world.clock.advance(7 * 24 * 3600);
    desk.queue_notice(&desk.acme, payment()).await;
    assert_eq!(desk.send_due().await, (0, 1));
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    assert_eq!(desk.destinations().await["webhooks"][0]["state"], "off");
    assert_eq!(desk.count("notice.off done").await, 1);
    assert_eq!(desk.queue_notice(&desk.acme, payment()).await, 0);
    endpoints.answer("dead.example", 200);
    let path = format!("/admin/vaults/acme/notices/{id}/test");
    assert_eq!(
        desk.post(&path, &json!({})).await.json(),
        json!({ "id": id, "arrived": true, "failure": null })
    );
    assert_eq!(desk.destinations().await["webhooks"][0]["state"], "on");
}

#[tokio::test]
async fn an_outbox_that_an_earlier_version_listed_is_sent_and_listed_anew() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for event_meanwhile in [false, true] {
        desk.queue_notice(&desk.acme, payment()).await;
        // As version 0.5 listed it.
        let key = due_key(&desk.acme.id);
        let listed = desk.world.app.records.get_one(&key).await.unwrap();
        let earlier = RecordKey::new("outbox-due", desk.acme.id.to_string());
        let document = listed.unwrap().document;
        let mut writes = vec![Write::put(earlier, document, When::Absent)];
        if !event_meanwhile {
            writes.push(Write::delete(key.clone(), When::Any));
        }
        commit(&desk.world.app, writes).await;
        endpoints.answer("a.example", 500);
        assert_eq!(desk.send_due().await, (0, 1));
        assert_eq!(desk.records_of("outbox-due").await.len(), 0);
        assert_eq!(desk.records_of(&key.partition).await.len(), 1);
        endpoints.answer("a.example", 200);
        desk.world.clock.advance(60);
        assert_eq!(desk.send_due().await, (1, 0));
        assert_eq!(
            (desk.unsent(&desk.acme).await.len(), desk.due().await),
            (0, 0)
        );
    }
}

/// Other writers may get in the way of the commit that moves the record. The outbox is still listed
/// then, and visited again.
#[tokio::test]
async fn an_outbox_whose_move_fails_stays_listed() {
    let mut desk = empty_desk().await;
    let _endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let key = due_key(&desk.acme.id);
    let listed = desk.world.app.records.get_one(&key).await.unwrap();
    let earlier = RecordKey::new("outbox-due", desk.acme.id.to_string());
    let document = listed.unwrap().document;
    let writes = vec![
        Write::put(earlier, document, When::Absent),
        Write::delete(key.clone(), When::Any),
    ];
    commit(&desk.world.app, writes).await;
    // A visit of a suspended vault makes this one commit.
    let suspend = |vault: &mut Namespace| vault.status = Status::Suspended;
    desk.world.change("acme", suspend).await;
    desk.commits.interfere(1);
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(desk.records_of("outbox-due").await.len(), 1);
    assert_eq!(desk.records_of(&key.partition).await.len(), 0);
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(desk.records_of("outbox-due").await.len(), 0);
    assert_eq!(desk.records_of(&key.partition).await.len(), 1);
}

/// The operator may allow fewer ports than at the time when an owner added the webhook.
#[tokio::test]
async fn a_webhook_whose_port_is_no_longer_allowed_gets_nothing() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("hooks.example", &[]).await;
    desk.allow_ports(&[8443]);
    desk.queue_notice(&desk.acme, payment()).await;
    assert_eq!(desk.send_due().await, (0, 1));
    let path = format!("/admin/vaults/acme/notices/{id}/test");
    let tested = desk.post(&path, &json!({})).await.json();
    assert_eq!(tested["arrived"], false);
    assert!(endpoints.got().is_empty());
    let shown = &desk.destinations().await["webhooks"][0];
    assert_eq!(shown["state"], "failing");
    let failure = shown["last_failure"].as_str().unwrap();
    assert!(failure.contains("the port 8443, have"), "{failure}");
    assert_eq!(failure, tested["failure"]);
    desk.allow_ports(&[443]);
    desk.world.clock.advance(60);
    assert_eq!(desk.send_due().await, (1, 0));
}

#[tokio::test]
async fn a_slow_endpoint_of_one_tenant_keeps_no_notice_of_another() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("slow.example", &[]).await;
    let other = desk.stranger().await;
    let body = json!({ "address": "https://quick.example/" });
    let made = desk.ask(&other, "POST", "/admin/vaults/other/notices", Some(&body));
    assert_eq!(made.await.status, 201);
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    desk.queue_notice(&desk.acme, payment()).await;
    desk.world.clock.advance(1);
    desk.queue_notice(&desk.other, payment()).await;
    let app = desk.world.app.clone();
    let until = Instant::now() + A_PASS;
    let pass = tokio::spawn(async move { deliver_due(&app, until).await.unwrap() });
    endpoints.arrived.notified().await;
    let quick = endpoints.got().remove(0);
    assert_eq!(quick.address.as_str(), "https://quick.example/");
    endpoints.go_on.notify_one();
    let done = Delivered {
        arrived: 2,
        failed: 0,
    };
    assert_eq!(pass.await.unwrap(), done);
}

#[tokio::test]
async fn a_dead_endpoint_keeps_nothing_from_another_of_the_same_vault() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("dead.example", &[]).await;
    desk.webhook("good.example", &[]).await;
    endpoints.answer("dead.example", 503);
    for n in 0..5 {
        desk.world.clock.advance(1);
        desk.queue_notice(&desk.acme, draft(n)).await;
    }
    // The dead one is tried once a visit, the good one gets everything, in order.
    assert_eq!(desk.send_due().await, (5, 1));
    let good = |message: &WebhookMessage| message.address.as_str().contains("good");
    let bodies: Vec<_> = endpoints.got().into_iter().filter(good).collect();
    for (n, message) in bodies.iter().enumerate() {
        assert!(message.body.contains(&format!("drf_{n}")), "{message:?}");
    }
    assert_eq!(desk.unsent(&desk.acme).await.len(), 5);
}

#[tokio::test]
async fn a_recipient_gets_a_bounded_number_of_notices_an_hour() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &["payment_failed"]).await;
    for _ in 0..70 {
        desk.queue_notice(&desk.acme, payment()).await;
    }
    assert_eq!(desk.send_due().await, (60, 0));
    assert_eq!(desk.send_due().await, (0, 0));
    desk.world.clock.advance(3600);
    assert_eq!(desk.send_due().await, (10, 0));
    assert_eq!(endpoints.got().len(), 70);
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn drafts_of_members_leave_room_for_other_notices() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 0..60 {
        let queued = desk.queue_notice(&desk.acme, draft(n)).await;
        assert_eq!(queued, if n < 50 { 2 } else { 0 }, "{n}");
    }
    for n in 0..60 {
        let queued = desk.queue_notice(&desk.acme, payment()).await;
        assert_eq!(queued, if n < 30 { 2 } else { 0 }, "{n}");
    }
}

#[tokio::test]
async fn a_warning_without_room_in_the_outbox_comes_later() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &["quota_near"]).await;
    desk.limit(1000, 0).await;
    for n in 0..10 {
        desk.queue_notice(&desk.acme, quota_near(n)).await;
    }
    desk.put_bytes("bundles", &bytes(1, 850)).await;
    assert_eq!(desk.unsent(&desk.acme).await.len(), 10);
    assert_eq!(desk.send_due().await, (10, 0));
    endpoints.events();
    desk.put_bytes("bundles", &bytes(2, 8)).await;
    desk.send_due().await;
    let warning = json!({ "vault": "acme", "quota": "bytes", "used": 858, "limit": 1000 });
    assert_eq!(endpoints.events(), [("quota_near".to_owned(), warning)]);
    // Given once, it is not repeated.
    desk.put_bytes("bundles", &bytes(3, 8)).await;
    assert_eq!(desk.send_due().await, (0, 0));
}

#[tokio::test]
async fn no_flood_of_notices_hides_a_replaced_key() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    desk.webhook("a.example", &[]).await;
    for n in 0..20 {
        let queued = desk.queue_notice(&desk.acme, quota_near(n)).await;
        assert_eq!(queued, if n < 10 { 2 } else { 0 }, "{n}");
    }
    for _ in 0..90 {
        desk.queue_notice(&desk.acme, payment()).await;
    }
    assert_eq!(desk.unsent(&desk.acme).await.len(), 80);
    for n in 0..25 {
        let queued = desk.queue_notice(&desk.acme, replaced_key()).await;
        assert_eq!(queued, if n < 20 { 2 } else { 0 }, "{n}");
    }
}

#[tokio::test]
async fn two_processes_send_a_notice_once() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("slow.example", &[]).await;
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    desk.queue_notice(&desk.acme, payment()).await;
    let pass = || {
        let app = desk.world.app.clone();
        let until = Instant::now() + A_PASS;
        async move { deliver_due(&app, until).await.unwrap() }
    };
    let first = tokio::spawn(pass());
    // The second pass begins while the first one waits for the endpoint.
    while desk.unsent(&desk.acme).await[0]
        .document
        .as_str()
        .contains("\"attempts\":0")
        || desk.unsent(&desk.acme).await[0]
            .document
            .as_str()
            .contains("\"deliveries\":null")
    {
        tokio::task::yield_now().await;
    }
    assert_eq!(pass().await, Delivered::default());
    endpoints.go_on.notify_one();
    assert_eq!(first.await.unwrap().arrived, 1);
    assert_eq!(endpoints.got().len(), 1);
}

#[tokio::test]
async fn a_process_that_dies_during_an_attempt_loses_nothing() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("slow.example", &[]).await;
    endpoints
        .slow
        .lock()
        .unwrap()
        .insert("slow.example".to_owned());
    desk.queue_notice(&desk.acme, payment()).await;
    let app = desk.world.app.clone();
    let until = Instant::now() + A_PASS;
    let dying = tokio::spawn(async move { deliver_due(&app, until).await });
    while !desk.unsent(&desk.acme).await[0]
        .document
        .as_str()
        .contains("\"attempts\":1")
    {
        tokio::task::yield_now().await;
    }
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());
    endpoints.slow.lock().unwrap().clear();
    desk.world.clock.advance(60);
    assert_eq!(desk.send_due().await, (1, 0));
}

#[tokio::test]
async fn a_removed_webhook_and_a_deleted_vault_get_nothing_more() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("a.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let path = format!("/admin/vaults/acme/notices/{id}");
    assert_eq!(
        desk.ask(&desk.owner, "DELETE", &path, None).await.status,
        200
    );
    assert_eq!(desk.send_due().await, (0, 0));
    desk.webhook("b.example", &[]).await;
    desk.queue_notice(&desk.acme, payment()).await;
    let status = async |status| {
        desk.world
            .change("acme", |vault| vault.status = status)
            .await;
    };
    status(Status::Suspended).await;
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(
        desk.unsent(&desk.acme).await.len(),
        1,
        "a suspended vault waits"
    );
    status(Status::Deleted).await;
    desk.world.clock.advance(3600);
    assert_eq!(desk.send_due().await, (0, 0));
    assert!(endpoints.got().is_empty());
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn owners_get_mail_and_nobody_else() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(true);
    let (app, home) = (&desk.world.app, reference(&desk.acme));
    common::member(app, BOB, &home, Role::Member, Scopes::ALL).await;
    let eve = common::member(app, EVE, &home, Role::Owner, Scopes::ALL).await;
    let on = json!({ "mail": true });
    let path = "/admin/vaults/acme/notices/mail";
    assert_eq!(
        desk.ask(&desk.owner, "PUT", path, Some(&on)).await.json(),
        on
    );
    desk.queue_notice(&desk.acme, payment()).await;
    assert_eq!(desk.send_due().await, (2, 0));
    let mails = endpoints.mails();
    let to: BTreeSet<_> = mails.iter().map(|mail| mail.to.as_str()).collect();
    assert_eq!(to, BTreeSet::from([ADA, EVE]));
    let ids: BTreeSet<_> = mails.iter().map(|mail| mail.id.as_str()).collect();
    assert_eq!(ids.len(), 2);
    let text = &mails[0].text;
    assert!(
        text.contains("https://vault.example") && !text.contains('@'),
        "{text}"
    );
    // Who is no owner any more when the mail leaves gets none.
    desk.queue_notice(&desk.acme, payment()).await;
    let demoted = User {
        role: Role::Member,
        ..eve.clone()
    };
    common::put(app, eve.key(), &demoted).await;
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.mails()[0].to.as_str(), ADA);
    // A service whose mail server was taken away drops what waits for it.
    desk.queue_notice(&desk.acme, payment()).await;
    desk.sending(false);
    assert_eq!(desk.send_due().await, (0, 0));
    assert_eq!(
        (desk.unsent(&desk.acme).await.len(), desk.due().await),
        (0, 0)
    );
}

#[tokio::test]
async fn the_end_of_a_release_is_announced_once_14_days_before() {
    let mut desk = desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let vault_service::maintenance::Report { sent, .. } = desk.world.work().await;
    assert_eq!(sent, 0);
    let bytes = crate::support::vector("catalog-42.json");
    let ends_at = crate::support::read_file(&bytes).0.expires_at;
    desk.world
        .clock
        .set(ends_at.plus_days(-14).plus_seconds(-1));
    desk.world.work().await;
    desk.world.clock.advance(6 * 3600);
    desk.world.work().await;
    // The round that finds it and the pass that sends it run side by side.
    desk.send_due().await;
    let data = json!({ "vault": "acme", "release": 42, "ends_at": ends_at });
    assert_eq!(endpoints.events(), [("release_ends".to_owned(), data)]);
    for _ in 0..3 {
        desk.world.clock.advance(6 * 3600);
        desk.world.work().await;
        desk.send_due().await;
    }
    assert!(endpoints.got().is_empty());
}

#[tokio::test]
async fn a_replaced_key_is_announced_and_an_added_one_is_not() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let team = Team::new("acme", 3, 1);
    team.publish(&desk.world, &[team.skill("alpha", "one")])
        .await;
    desk.send_due().await;
    assert!(
        endpoints.got().is_empty(),
        "the first release replaces nothing"
    );
    let added = team.changed(|edit| {
        edit.add_publisher(crate::team::entry(&key(9))).unwrap();
    });
    added
        .publish(&desk.world, &[added.skill("alpha", "two")])
        .await;
    desk.send_due().await;
    assert!(endpoints.got().is_empty(), "an added key replaces nothing");
    let removed = added.changed(|edit| {
        edit.remove_publisher(&team.key(2).public()).unwrap();
    });
    removed
        .publish(&desk.world, &[removed.skill("alpha", "three")])
        .await;
    assert_eq!(desk.send_due().await, (1, 0));
    let (topic, mut data) = endpoints.events().remove(0);
    assert_eq!(topic, "key_replaced");
    let changes = data.as_object_mut().unwrap().remove("changes").unwrap();
    let changed = changes[0].as_str().unwrap();
    assert!(changed.starts_with("key removed: \""), "{changes}");
    let fingerprint = removed.chain().fingerprint().to_string();
    let wanted = json!({ "vault": "acme", "root_version": 3, "fingerprint": fingerprint });
    assert_eq!(data, wanted);
    // More signatures are no news. Fewer are: with them one stolen key is enough again.
    let raised = removed.changed(|edit| {
        edit.set_release_threshold(2);
    });
    let lowered = raised.changed(|edit| {
        edit.set_release_threshold(1);
    });
    for (team, body, notices) in [(&raised, "four", 0), (&lowered, "five", 1)] {
        team.publish(&desk.world, &[team.skill("alpha", body)])
            .await;
        assert_eq!(desk.send_due().await, (notices, 0), "{body}");
    }
    let told = json!(["a release needs 1 signature instead of 2"]);
    let (_, data) = endpoints.events().pop().unwrap();
    assert_eq!(data["changes"], told);
    let log = desk
        .get("/admin/audit?action=catalog.publish&limit=100")
        .await;
    let log = log.json();
    let mut entries = log["items"].as_array().unwrap().iter();
    let is_told = entries.any(|entry| entry["after"]["keys"] == told);
    assert!(is_told, "{log}");
    // After a reset of the pin another vault takes the place of this one.
    let (path, slug) = ("/admin/vaults/acme/pin/reset", json!({ "slug": "acme" }));
    assert_eq!(desk.post(path, &slug).await.status, 200);
    let stranger = Team::new("acme", 1, 1);
    stranger
        .publish(&desk.world, &[stranger.skill("beta", "one")])
        .await;
    desk.send_due().await;
    assert_eq!(endpoints.events()[0].0, "key_replaced");
}

#[tokio::test]
async fn a_vault_that_signs_itself_has_notices_too() {
    let mut desk = crate::admin::desk_of(Kind::SelfSigned, |_| {}).await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &["machine_waiting"]).await;
    assert_eq!(desk.ask_in(1, "laptop").await, "201");
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.events()[0].0, "machine_waiting");
}

/// What an earlier version of vault or another hand wrote is skipped, and keeps nothing of others.
#[tokio::test]
async fn an_outbox_that_cannot_be_read_keeps_no_notice_of_another() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("a.example", &[]).await;
    let (acme, other) = (desk.acme.clone(), desk.other.clone());
    desk.queue_notice(&acme, payment()).await;
    let key = desk.unsent(&acme).await[0].key.clone();
    common::put(&desk.world.app, key, &json!({ "event": "?" })).await;
    let destinations = Destinations::find(&desk.world.app, &acme.id).await;
    let (destinations, when) = destinations.unwrap();
    let writes: Vec<Write> = vec![
        destinations
            .to_write(&other.id, vault_store::records::When::Any)
            .unwrap(),
    ];
    assert!(matches!(when, vault_store::records::When::At(_)));
    commit(&desk.world.app, writes).await;
    desk.queue_notice(&other, payment()).await;
    assert_eq!(desk.send_due().await, (1, 0));
    assert_eq!(endpoints.events()[0].1["vault"], "other");
}
