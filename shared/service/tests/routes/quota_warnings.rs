//! The notice to owners at 80 % of each limit of the quota: one for each crossing, and none that is
//! false.

use std::sync::Arc;

use serde_json::{Value, json};
use vault_service::config::hosting::Hosting;
use vault_service::model::namespace::Namespace;
use vault_service::model::user::Scopes;

use crate::admin::{ADA, Desk, desk, empty_desk, token};
use crate::notices::{Endpoints, quota_near};
use crate::quota_races::counted;
use crate::support::key;
use crate::team::propose_skill;

const DAY: i64 = 24 * 3600;

impl Desk {
    /// A desk whose owners get warnings about its quota.
    pub async fn watched() -> (Self, Arc<Endpoints>) {
        let mut desk = desk().await;
        let endpoints = desk.sending(false);
        desk.webhook("hooks.example", &["quota_near"]).await;
        (desk, endpoints)
    }

    /// Sends what is due; the warnings, each with its numbers.
    pub async fn warnings(&self, endpoints: &Endpoints) -> Vec<(String, u64, u64)> {
        self.world.work().await;
        let events = endpoints.events().into_iter();
        let numbers = events.map(|(kind, data)| {
            assert_eq!(kind, "quota_near");
            let number = |name: &str| data[name].as_u64().unwrap();
            let quota = data["quota"].as_str().unwrap().to_owned();
            (quota, number("used"), number("limit"))
        });
        numbers.collect()
    }

    pub async fn set_quota(&self, operator: &str, limits: &Value) {
        let path = "/admin/operator/namespaces/acme/quota";
        let answer = self.ask(operator, "POST", path, Some(limits)).await;
        assert_eq!(answer.status, 200, "{:?}", answer.json());
    }

    async fn invite_person(&self, email: &str) -> String {
        let body = json!({ "email": email, "role": "role:member", "scopes": ["read"] });
        let invited = self.post("/admin/users", &body).await;
        assert_eq!(invited.status, 201, "{:?}", invited.json());
        invited.json()["id"].as_str().unwrap().to_owned()
    }

    pub async fn admit(&self, n: u8) {
        let path = self.enrolled(n).await;
        assert_eq!(
            self.post(&format!("{path}/admit"), &Value::Null)
                .await
                .status,
            200
        );
    }

    /// Enrols a machine that waits; its path.
    pub async fn enrolled(&self, n: u8) -> String {
        let name = format!("machine {n}");
        let enrolled = self.world.enrol(&key(n), "acme", &name).await;
        let id = enrolled.json()["device_id"].as_str().unwrap().to_owned();
        format!("/admin/vaults/acme/devices/{id}")
    }
}

/// The one warning about a limit.
pub fn warning(quota: &str, used: u64, limit: u64) -> Vec<(String, u64, u64)> {
    vec![(quota.to_owned(), used, limit)]
}

#[tokio::test]
async fn each_crossing_by_a_machine_is_one_warning() {
    let (desk, endpoints) = Desk::watched().await;
    let limit = |namespace: &mut Namespace| namespace.quota.machines = Some(5);
    desk.world.change("acme", limit).await;
    for n in 1..=3 {
        desk.admit(n).await;
    }
    assert_eq!(desk.warnings(&endpoints).await, []);
    // By a code, which a machine uses itself.
    let made = desk
        .post("/admin/vaults/acme/enrolment-codes", &json!({ "uses": 9 }))
        .await;
    let body =
        json!({ "public_key": key(4).public(), "hostname": "four", "code": made.json()["code"] });
    let enrolled = desk
        .world
        .post_devices(&key(4), "acme", &body.to_string())
        .await;
    assert_eq!(enrolled.status, 201, "{:?}", enrolled.json());
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));
    desk.admit(5).await;
    desk.world.clock.advance(6 * 3600);
    assert_eq!(
        desk.warnings(&endpoints).await,
        [],
        "not again while it is so"
    );
    let owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let desk = Desk { owner, ..desk };
    for n in [4, 5] {
        let path = desk.enrolled(n).await;
        assert_eq!(
            desk.post(&format!("{path}/revoke"), &Value::Null)
                .await
                .status,
            200
        );
    }
    desk.admit(6).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("machines", 4, 5));
}

#[tokio::test]
async fn each_crossing_by_a_person_is_one_warning_also_after_an_invitation_has_ended() {
    let (desk, endpoints) = Desk::watched().await;
    let limit = |namespace: &mut Namespace| namespace.quota.people = Some(3);
    desk.world.change("acme", limit).await;
    // The owner and one more are two of three.
    desk.invite_person("one@example.org").await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    desk.invite_person("two@example.org").await;
    assert_eq!(desk.warnings(&endpoints).await, warning("people", 3, 3));
    // The same person again takes no further place.
    desk.invite_person("two@example.org").await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    desk.world.clock.advance(8 * DAY);
    let owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let desk = Desk { owner, ..desk };
    desk.invite_person("three@example.org").await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    desk.invite_person("four@example.org").await;
    assert_eq!(desk.warnings(&endpoints).await, warning("people", 3, 3));
}

#[tokio::test]
async fn a_limit_that_an_operator_lowers_warns_at_once_and_only_where_it_crosses() {
    let (desk, endpoints) = Desk::watched().await;
    let operator = desk.operator().await;
    desk.invite_person("one@example.org").await;
    desk.admit(1).await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    desk.set_quota(&operator, &json!({ "people": 9, "machines": 9 }))
        .await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    desk.set_quota(&operator, &json!({ "people": 2, "machines": 1 }))
        .await;
    let mut both = warning("machines", 1, 1);
    both.extend(warning("people", 2, 2));
    let mut told = desk.warnings(&endpoints).await;
    told.sort();
    assert_eq!(told, both);
    // Still more than 80 %: no further warning, whether the limit falls or rises.
    desk.set_quota(&operator, &json!({ "people": 1 })).await;
    desk.set_quota(&operator, &json!({ "people": 2 })).await;
    assert_eq!(desk.warnings(&endpoints).await, []);
    // Below, and lowered again.
    desk.set_quota(&operator, &json!({ "people": 9 })).await;
    desk.set_quota(&operator, &json!({ "people": 2 })).await;
    assert_eq!(desk.warnings(&endpoints).await, warning("people", 2, 2));
    // Stored bytes have their own count.
    let stored = desk.get("/admin/vaults/acme").await.json()["usage"]["bytes"].as_u64();
    let stored = stored.unwrap();
    desk.set_quota(&operator, &json!({ "bytes": stored })).await;
    assert_eq!(
        desk.warnings(&endpoints).await,
        warning("bytes", stored, stored)
    );
}

/// A plan changes with the settings, which a service reads when it starts.
#[tokio::test]
async fn a_plan_that_changes_warns_once_after_the_restart() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("hooks.example", &["quota_near"]).await;
    let plan = |namespace: &mut Namespace| namespace.plan = Some("team".to_owned());
    desk.world.change("acme", plan).await;
    desk.invite_person("one@example.org").await;
    let mut told = Vec::new();
    for people in [9, 2, 2, 9, 2] {
        let mut config = (*desk.world.app.config).clone();
        let plans = format!("team=https://buy.example plink_1 people={people}");
        let read = |name: &str| (name == "VAULT_PLANS").then(|| plans.clone());
        config.hosting = Hosting::from_variables_without_secrets(read, true).unwrap();
        desk.world.app.config = Arc::new(config);
        desk.world.clock.advance(7 * 3600);
        desk.world.work().await;
        told.push(desk.warnings(&endpoints).await);
    }
    let crossed = || warning("people", 2, 2);
    assert_eq!(told, [vec![], crossed(), vec![], vec![], crossed()]);
}

impl Desk {
    /// Leaves no room for warnings about quotas among the notices that wait to be sent.
    async fn fill_outbox(&self) {
        for n in 0..10 {
            self.queue_notice(&self.acme, quota_near(n)).await;
        }
    }

    /// Sends what is due; the warnings about this limit.
    async fn warnings_of(&self, endpoints: &Endpoints, quota: &str) -> Vec<(String, u64, u64)> {
        let mut all = self.warnings(endpoints).await;
        all.retain(|warning| warning.0 == quota);
        all
    }

    /// Enrols and admits a machine by a code.
    async fn admit_by_code(&self, n: u8) {
        let path = "/admin/vaults/acme/enrolment-codes";
        let made = self.post(path, &json!({ "uses": 1 })).await.json();
        let body = json!({ "public_key": key(n).public(), "hostname": "x", "code": made["code"] });
        let body = body.to_string();
        let enrolled = self.world.post_devices(&key(n), "acme", &body).await;
        assert_eq!(enrolled.status, 201, "{:?}", enrolled.json());
    }
}

#[tokio::test]
async fn a_warning_about_machines_without_room_in_the_outbox_comes_later() {
    for by_code in [false, true] {
        let (desk, endpoints) = counted(7, 10, true).await;
        desk.fill_outbox().await;
        let admit = async |n: u8| {
            if by_code {
                desk.admit_by_code(n).await;
            } else {
                desk.admit(n).await;
            }
        };
        admit(100).await;
        assert_eq!(desk.warnings_of(&endpoints, "machines").await, []);
        admit(101).await;
        let warned = desk.warnings_of(&endpoints, "machines").await;
        assert_eq!(warned, warning("machines", 9, 10));
        // Given once, it is not repeated.
        admit(102).await;
        assert_eq!(desk.warnings_of(&endpoints, "machines").await, []);
    }
    // Without a further machine, the garbage collection warns.
    let (desk, endpoints) = counted(7, 10, true).await;
    desk.fill_outbox().await;
    desk.admit(100).await;
    assert_eq!(desk.warnings_of(&endpoints, "machines").await, []);
    for wanted in [warning("machines", 8, 10), vec![]] {
        desk.world.clock.advance(6 * 3600);
        desk.world.work().await;
        assert_eq!(desk.warnings_of(&endpoints, "machines").await, wanted);
    }
}

#[tokio::test]
async fn a_warning_about_people_or_drafts_without_room_in_the_outbox_comes_later() {
    let (desk, endpoints) = Desk::watched().await;
    let limit = |namespace: &mut Namespace| {
        namespace.quota.people = Some(5);
        namespace.quota.drafts = Some(5);
    };
    desk.world.change("acme", limit).await;
    let propose = async |n: usize| {
        let name = format!("skill-{n}");
        let drafted = propose_skill(&desk.world, &desk.owner, "acme", &name).await;
        assert_eq!(drafted.status, 201, "{:?}", drafted.json());
    };
    for n in 0..2 {
        desk.invite_person(&format!("p{n}@example.org")).await;
    }
    for n in 0..3 {
        propose(n).await;
    }
    desk.fill_outbox().await;
    desk.invite_person("crossing@example.org").await;
    propose(3).await;
    let sent = desk.warnings(&endpoints).await;
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|warning| warning.0 == "bytes"), "{sent:?}");
    desk.invite_person("last@example.org").await;
    propose(4).await;
    let mut warned = desk.warnings(&endpoints).await;
    warned.sort();
    let wanted = [warning("drafts", 5, 5), warning("people", 5, 5)].concat();
    assert_eq!(warned, wanted);
}

/// The draft and the warning are two notices of one commit.
#[tokio::test]
async fn a_draft_that_reaches_80_percent_is_stored_with_both_notices() {
    let mut desk = desk().await;
    let endpoints = desk.sending(false);
    desk.webhook("hooks.example", &[]).await;
    let limit = |namespace: &mut Namespace| namespace.quota.drafts = Some(1);
    desk.world.change("acme", limit).await;
    let drafted = propose_skill(&desk.world, &desk.owner, "acme", "alpha").await;
    assert_eq!(drafted.status, 201, "{:?}", drafted.json());
    desk.world.work().await;
    let mut topics: Vec<_> = endpoints
        .events()
        .into_iter()
        .map(|event| event.0)
        .collect();
    topics.sort();
    assert_eq!(topics, ["draft_waiting", "quota_near"]);
}

#[tokio::test]
async fn a_warning_about_a_lower_limit_without_room_in_the_outbox_comes_later() {
    let (desk, endpoints) = Desk::watched().await;
    let operator = desk.operator().await;
    desk.fill_outbox().await;
    desk.set_quota(&operator, &json!({ "people": 1 })).await;
    assert_eq!(desk.warnings_of(&endpoints, "people").await, []);
    for wanted in [warning("people", 1, 1), vec![]] {
        desk.world.clock.advance(6 * 3600);
        desk.world.work().await;
        assert_eq!(desk.warnings_of(&endpoints, "people").await, wanted);
    }
}
