//! Writers that get in each other's way: tried again, and 503 in the end; never a refusal, never
//! half a change.

use serde_json::{Value, json};
use vault_service::config::Limits;
use vault_service::model::namespace::Kind;

use super::{Desk, desk_of};
use crate::support::{Answer, key, vector};

/// A desk with a device that waits, a release, and limits that count.
async fn busy() -> Desk {
    let limits = Limits {
        enrol_per_slug: 100,
        enrol_per_source: 100,
        ..Limits::disabled()
    };
    let desk = desk_of(Kind::Hosted, |config| config.limits = limits).await;
    desk.world.put_vectors(&desk.acme).await;
    let enrolled = desk.world.enrol(&key(1), "acme", "laptop").await;
    assert_eq!(enrolled.status, 201);
    desk
}

/// Everything that writes, by name: what it answers when all is well, and the request.
const WRITERS: [(&str, u16); 9] = [
    ("enrol", 201),
    ("admit", 200),
    ("deny-pending", 200),
    ("publish", 201),
    ("pin", 200),
    ("create", 201),
    ("invite", 201),
    ("scopes", 200),
    ("suspend", 200),
];

async fn write(desk: &Desk, operator: &str, what: &str) -> Answer {
    match what {
        "enrol" => desk.world.enrol(&key(2), "acme", "other").await,
        "admit" => {
            let id = vault_format::request::device_id(&"acme".parse().unwrap(), &key(1).public());
            let path = format!("/admin/vaults/acme/devices/{id}/admit");
            desk.post(&path, &Value::Null).await
        }
        "deny-pending" => {
            let path = "/admin/vaults/acme/devices/deny-pending";
            desk.post(path, &json!({})).await
        }
        "publish" => {
            let body = ("application/octet-stream", vector("catalog-42.json"));
            let first = [("if-none-match", "*")];
            let path = "/admin/vaults/acme/catalog";
            desk.send(&desk.owner, "PUT", path, Some(body), &first)
                .await
        }
        "pin" => {
            let body = json!({"slug": "acme"});
            desk.post("/admin/vaults/acme/pin/reset", &body).await
        }
        "invite" => {
            let body = json!({"email": "new@example.org"});
            desk.post("/admin/users", &body).await
        }
        "scopes" => {
            let users = desk.get("/admin/users").await.json();
            let path = format!(
                "/admin/users/{}/scopes",
                users["items"][0]["id"].as_str().unwrap()
            );
            desk.post(&path, &json!({"revoke": ["read"]})).await
        }
        "suspend" => {
            let path = "/admin/operator/namespaces/acme/suspend";
            desk.ask(operator, "POST", path, None).await
        }
        _ => {
            let body = json!({"slug": "fresh", "owner": "new@example.org"});
            desk.ask(operator, "POST", "/admin/operator/namespaces", Some(&body))
                .await
        }
    }
}

#[tokio::test]
async fn a_few_conflicts_cost_nothing() {
    for (what, status) in WRITERS {
        let desk = busy().await;
        let operator = desk.operator().await;
        desk.commits.interfere(3);
        let answer = write(&desk, &operator, what).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
    }
}

#[tokio::test]
async fn conflicts_without_end_are_503_and_change_nothing() {
    for (what, status) in WRITERS {
        let desk = busy().await;
        let operator = desk.operator().await;
        let before = (
            desk.world.read_namespace("acme").await,
            desk.outcomes().await,
        );
        desk.commits.clear();
        desk.commits.interfere(1000);
        let answer = write(&desk, &operator, what).await;
        assert_eq!(answer.short(), "503 unavailable", "{what}");
        assert_eq!(answer.header("retry-after"), "1", "{what}");
        desk.commits.interfere(0);
        let partitions = desk.commits.partitions();
        assert!(partitions.is_empty(), "{what}: {partitions:?}");
        let after = (
            desk.world.read_namespace("acme").await,
            desk.outcomes().await,
        );
        assert_eq!(after, before, "{what}");
        let again = write(&desk, &operator, what).await;
        assert_eq!(
            again.status, status,
            "{what}: the same request succeeds later"
        );
    }
}
