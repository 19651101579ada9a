//! Notices over memory: what is queued with an event, and what is sent, when and to whom.

mod queueing;
mod recipients;
mod sending;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use vault_service::config::quota::QuotaKind;
use vault_service::model::namespace::Namespace;
use vault_service::model::notice::{Due, Event, notice_queue_key, outbox_partition};
use vault_service::notices::{self, Delivered, deliver_due};
use vault_service::router;
use vault_service::senders::{Mail, Mailer, SendError, Senders, WebhookMessage, Webhooks};
use vault_store::records::Record;

use crate::admin::Desk;
use crate::common::commit;
use crate::support::key;

/// Time for one pass, of which the tests need little even on a busy machine.
const A_PASS: Duration = Duration::from_mins(5);

/// What the endpoints of the tests do, by host, and what they got.
#[derive(Default)]
pub struct Endpoints {
    fails: Mutex<BTreeMap<String, u16>>,
    /// Hosts that answer when they are told to.
    slow: Mutex<BTreeSet<String>>,
    go_on: Notify,
    /// A slow host was asked.
    asked: Notify,
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
            self.asked.notify_one();
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

    /// Queues a notice; the number of writes.
    pub async fn queue_notice(&self, namespace: &Namespace, event: Event) -> usize {
        let writes = notices::queue_notice(&self.world.app, namespace, event).await;
        let writes = writes.unwrap();
        let count = writes.len();
        commit(&self.world.app, writes).await;
        count
    }

    async fn unsent(&self, namespace: &Namespace) -> Vec<Record> {
        let mut records = self.records_of(&outbox_partition(&namespace.id)).await;
        // The mark that machines wait stays in the list: the outbox is visited for it.
        records.retain(|record| record.key != notice_queue_key(&namespace.id));
        records
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
