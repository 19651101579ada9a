//! `/admin/vaults/{slug}/notices`: where notices go.

use serde_json::{Value, json};
use vault_service::model::audit::Entry;
use vault_service::model::webhook::SigningSecret;

use super::{Desk, empty_desk};
use crate::support::Answer;

const PATH: &str = "/admin/vaults/acme/notices";

impl Desk {
    async fn add(&self, body: Value) -> Answer {
        self.post(PATH, &body).await
    }
}

#[tokio::test]
async fn a_secret_is_shown_once_and_stands_in_no_log() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    let made = desk
        .add(json!({ "address": "https://hooks.example/a" }))
        .await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let secret = made["secret"].as_str().unwrap().to_owned();
    assert!(SigningSecret::try_from(secret.clone()).is_ok(), "{secret}");
    let listed = desk.destinations().await;
    let id = made["id"].as_str().unwrap();
    assert_eq!(listed["webhooks"][0]["id"], id);
    assert_eq!(listed["webhooks"][0]["events"].as_array().unwrap().len(), 6);
    assert_eq!(
        (&listed["mail"], &listed["mail_available"]),
        (&json!(false), &json!(false))
    );
    let removed = desk
        .ask(&desk.owner, "DELETE", &format!("{PATH}/{id}"), None)
        .await;
    assert_eq!(removed.status, 200);
    let entries = desk.entries(&desk.acme).await;
    let said = |entry: &&Entry| entry.action.starts_with("notice.");
    let entries: Vec<_> = entries.iter().filter(said).collect();
    assert_eq!(entries.len(), 2);
    let added = entries.iter().find(|entry| entry.action == "notice.add");
    let address = &added.unwrap().after.as_ref().unwrap()["address"];
    assert_eq!(address, "https://hooks.example/a");
    for text in [
        listed.to_string(),
        removed.json().to_string(),
        serde_json::to_string(&entries).unwrap(),
    ] {
        assert!(
            !text.contains(&secret) && !text.contains("whsec_"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn addresses_and_events_are_checked_and_three_webhooks_are_enough() {
    let mut desk = empty_desk().await;
    desk.sending(false);
    for (body, wanted) in [
        (json!({}), "400 json_invalid"),
        (
            json!({ "address": "http://hooks.example/" }),
            "422 webhook_address_invalid",
        ),
        (
            json!({ "address": "http://127.0.0.1:9000/" }),
            "422 webhook_address_invalid",
        ),
        (
            json!({ "address": "https://10.0.0.1/" }),
            "422 webhook_address_invalid",
        ),
        (
            json!({ "address": "https://hooks.example:22/" }),
            "422 webhook_address_invalid",
        ),
        (
            json!({ "address": "https://hooks.example:6379/" }),
            "422 webhook_address_invalid",
        ),
        (
            json!({ "address": "https://hooks.example/", "events": ["test"] }),
            "422 parameter_invalid",
        ),
    ] {
        assert_eq!(desk.add(body.clone()).await.short(), wanted, "{body}");
    }
    assert_eq!(desk.destinations().await["webhooks"], json!([]));
    desk.allow_ports(&[9443]);
    let other = desk
        .add(json!({ "address": "https://hooks.example/" }))
        .await;
    let detail = other.json()["detail"].clone();
    assert_eq!(detail, "The port of the address must be 9443.");
    desk.allow_ports(&[443, 8443]);
    for n in 0..4 {
        let body = json!({
            "address": format!("https://hooks.example:8443/{n}"),
            "events": ["key_replaced", "key_replaced"],
        });
        let wanted = if n < 3 { "201" } else { "409 webhook_limit" };
        assert_eq!(desk.add(body).await.short(), wanted);
    }
    assert_eq!(
        desk.destinations().await["webhooks"][0]["events"],
        json!(["key_replaced"])
    );
}

#[tokio::test]
async fn a_service_on_this_machine_may_send_to_it() {
    let local = |config: &mut vault_service::config::Config| {
        config.public_url = "http://127.0.0.1:8080".parse().unwrap();
    };
    let mut desk = super::desk_of(vault_service::model::namespace::Kind::Hosted, local).await;
    desk.sending(false);
    let made = desk
        .add(json!({ "address": "http://127.0.0.1:9000/" }))
        .await;
    assert_eq!(made.short(), "201");
}

#[tokio::test]
async fn a_test_says_what_came_of_it() {
    let mut desk = empty_desk().await;
    let endpoints = desk.sending(false);
    let (id, _) = desk.webhook("hooks.example", &[]).await;
    // One text, whatever the cause: a refused address, no answer, a status. Another text for each
    // would tell which names exist in the network of the service.
    let mut answers = Vec::new();
    for cause in [1, 2, 404] {
        endpoints.answer("hooks.example", cause);
        let tested = desk.post(&format!("{PATH}/{id}/test"), &json!({})).await;
        assert_eq!(tested.json()["arrived"], false);
        let listed = desk.destinations().await["webhooks"][0]["last_failure"].clone();
        assert_eq!(listed, tested.json()["failure"]);
        answers.push(tested.json());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(desk.destinations().await["webhooks"][0]["state"], "failing");
    let unknown = desk
        .post(&format!("{PATH}/whk_nothing/test"), &json!({}))
        .await;
    assert_eq!(unknown.short(), "404 not_found");
    for _ in 3..30 {
        let tested = desk.post(&format!("{PATH}/{id}/test"), &json!({})).await;
        assert_eq!(tested.short(), "200");
    }
    let tested = desk.post(&format!("{PATH}/{id}/test"), &json!({})).await;
    assert_eq!(tested.short(), "429 rate_limited");
}

#[tokio::test]
async fn mail_needs_a_mail_server() {
    let mut desk = empty_desk().await;
    let put = async |desk: &Desk, on: bool| {
        let body = json!({ "mail": on });
        let path = format!("{PATH}/mail");
        desk.ask(&desk.owner, "PUT", &path, Some(&body))
            .await
            .short()
    };
    desk.sending(false);
    assert_eq!(put(&desk, true).await, "409 mail_unavailable");
    assert_eq!(put(&desk, false).await, "200");
    desk.sending(true);
    assert_eq!(put(&desk, true).await, "200");
    assert_eq!(desk.destinations().await["mail"], true);
    desk.sending(false);
    assert_eq!(put(&desk, false).await, "200");
    assert_eq!(desk.count("notice.mail done").await, 2);
}
