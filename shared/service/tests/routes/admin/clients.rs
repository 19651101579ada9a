//! `/admin/clients`: the apps of a vault, and ending one with all its tokens.

use serde_json::{Value, json};
use vault_service::model::client::{client_key, connection_key};
use vault_service::model::user::{Role, Scopes};
use vault_store::records::{When, Write};

use super::{ADA, BOB, Desk, empty_desk, reference, token};
use crate::common::{self, CALLBACK, PASSWORD, Tokens, Visitor, authorize};
use crate::support::Answer;

const CLIENTS: &str = "/admin/clients";

impl Desk {
    async fn end(&self, client: &str) -> Answer {
        let path = format!("{CLIENTS}/{client}");
        self.ask(&self.owner, "DELETE", &path, None).await
    }
}

/// Tokens of a client that is registered already.
async fn more_tokens(desk: &Desk, client: &str, who: &str) -> Tokens {
    let app = &desk.world.app;
    let address = authorize(client, CALLBACK, &[("vault_namespace", "acme")]);
    let back = Visitor::new(app)
        .approve(&address, (who, PASSWORD), "acme", Scopes::READ)
        .await;
    let code = back.returned("code").unwrap();
    Tokens::of(client, &common::exchange(app, client, &code).await)
}

#[tokio::test]
async fn clients_are_listed_with_their_hosts_and_use() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::READ).await;
    desk.stranger().await;
    desk.world.clock.advance(100);
    let bobs = common::tokens(app, (BOB, PASSWORD), "acme", Scopes::READ).await;
    desk.world.clock.advance(100);
    more_tokens(&desk, &bobs.client, ADA).await;
    desk.world.clock.advance(100);
    assert_eq!(
        common::refresh(app, &bobs.client, &bobs.refresh)
            .await
            .status,
        200
    );
    let listed = desk.get(CLIENTS).await.json();
    let items = listed["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &listed["next"]),
        (2, &Value::Null),
        "the app of another vault is not here: {listed}"
    );
    assert_eq!(
        items[1],
        json!({
            "id": bobs.client,
            "name": "An app",
            "redirect_hosts": ["app.example"],
            "created_at": "2026-11-21T02:01:50Z",
            "connected_at": "2026-11-21T02:01:50Z",
            "last_used_at": "2026-11-21T02:05:10Z",
            "users": 2,
        })
    );
    assert_eq!(items[0]["users"], 1, "ADA's own");
    let first = desk.get("/admin/clients?limit=1").await.json();
    let next = first["next"].as_str().unwrap();
    let second = desk
        .get(&format!("/admin/clients?limit=1&after={next}"))
        .await
        .json();
    assert_eq!(
        (&second["items"][0]["id"], &second["next"]),
        (&json!(bobs.client), &Value::Null)
    );

    // A registration that has expired leaves what the connection knows.
    let gone = Write::delete(client_key(&bobs.client.parse().unwrap()), When::Any);
    assert!(
        app.records
            .commit_writes(vec![gone])
            .await
            .unwrap()
            .is_done()
    );
    let listed = desk.get(CLIENTS).await.json();
    assert_eq!(
        (
            &listed["items"][1]["redirect_hosts"],
            &listed["items"][1]["name"]
        ),
        (&json!([]), &json!("An app"))
    );
}

#[tokio::test]
async fn requirement_43_ending_a_client_ends_all_its_tokens_at_once_and_gives_no_new_ones() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::READ).await;
    let bobs = common::tokens(app, (BOB, PASSWORD), "acme", Scopes::READ).await;
    let adas = more_tokens(&desk, &bobs.client, ADA).await;
    let other = token(&desk.world, BOB, "acme", Scopes::READ).await;
    // A code that was given before, and is exchanged after.
    let address = authorize(&bobs.client, CALLBACK, &[("vault_namespace", "acme")]);
    let waiting = Visitor::new(app)
        .approve(&address, (BOB, PASSWORD), "acme", Scopes::READ)
        .await;
    desk.commits.clear();
    let ended = desk.end(&bobs.client).await;
    assert_eq!(ended.status, 200);
    assert_eq!(
        ended.json(),
        json!({"client_id": bobs.client, "revoked_tokens": 4})
    );
    assert_eq!(desk.commits.partitions(), [["audit", "conn"]]);
    for tokens in [&bobs, &adas] {
        let refused = desk.ask(&tokens.access, "GET", "/admin/vaults", None).await;
        assert_eq!(refused.short(), "401 token_invalid");
        let refused = common::refresh(app, &tokens.client, &tokens.refresh).await;
        assert_eq!(refused.short(), "401 invalid_client");
    }
    let code = waiting.returned("code").unwrap();
    let refused = common::exchange(app, &bobs.client, &code).await;
    assert_eq!(refused.short(), "401 invalid_client");
    assert_eq!(
        desk.ask(&other, "GET", "/admin/vaults", None).await.status,
        200,
        "another app of the same person goes on"
    );
    assert_eq!(desk.end(&bobs.client).await.short(), "404 client_not_found");
    let listed = desk.get(CLIENTS).await.json();
    let ids: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["id"])
        .collect();
    assert!(!ids.contains(&&json!(bobs.client)), "{ids:?}");
    let entries = desk.entries(&desk.acme).await;
    let entry = entries
        .iter()
        .find(|entry| entry.action == "client.revoke" && entry.outcome == "done")
        .unwrap();
    assert_eq!(entry.target.as_deref(), Some(bobs.client.as_str()));
    assert_eq!(
        (&entry.before, &entry.after),
        (
            &Some(json!({"name": "An app"})),
            &Some(json!({"revoked_tokens": 4}))
        )
    );
    assert_eq!(desk.count("client.revoke client_not_found").await, 1);
}

#[tokio::test]
async fn what_is_dead_already_is_not_counted() {
    let desk = empty_desk().await;
    let app = &desk.world.app;
    common::member(app, BOB, &reference(&desk.acme), Role::Member, Scopes::READ).await;
    let first = common::tokens(app, (BOB, PASSWORD), "acme", Scopes::READ).await;
    let second = more_tokens(&desk, &first.client, BOB).await;
    let fields = [
        ("client_id", first.client.as_str()),
        ("token", second.refresh.as_str()),
    ];
    let revoked = common::post_form(app, "/oauth/revoke", &fields).await;
    assert_eq!(revoked.status, 200);
    let fields = [
        ("client_id", first.client.as_str()),
        ("token", first.access.as_str()),
    ];
    common::post_form(app, "/oauth/revoke", &fields).await;
    assert_eq!(desk.end(&first.client).await.json()["revoked_tokens"], 1);
}

#[tokio::test]
async fn an_owner_can_end_the_app_in_use() {
    let desk = empty_desk().await;
    let listed = desk.get(CLIENTS).await.json();
    let own = listed["items"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(desk.end(&own).await.status, 200);
    assert_eq!(desk.get(CLIENTS).await.short(), "401 token_invalid");
}

#[tokio::test]
async fn clients_of_another_vault_and_odd_ids_are_not_there() {
    let desk = empty_desk().await;
    let stranger = desk.stranger().await;
    let theirs = desk.ask(&stranger, "GET", CLIENTS, None).await.json();
    let theirs = theirs["items"][0]["id"].as_str().unwrap().to_owned();
    let registered = common::register(&desk.world.app, CALLBACK).await;
    for id in [
        theirs.as_str(),
        &registered,
        "cli_00000000000000000000000000",
        "cli_",
        "CLI_00000000000000000000000000",
        "https:%2F%2Fapp.example%2Fclient",
    ] {
        assert_eq!(desk.end(id).await.short(), "404 client_not_found", "{id}");
    }
    assert_eq!(desk.ask(&stranger, "GET", CLIENTS, None).await.status, 200);
}

/// One record says it, whatever the client is told: a code that is exchanged at the same moment
/// gives no token that lives.
#[tokio::test]
async fn a_client_that_is_ended_during_an_exchange_keeps_nothing() {
    for _ in 0..20 {
        let desk = empty_desk().await;
        let app = &desk.world.app;
        let adas = common::tokens(app, (ADA, PASSWORD), "acme", Scopes::READ).await;
        let address = authorize(&adas.client, CALLBACK, &[("vault_namespace", "acme")]);
        let back = Visitor::new(app)
            .approve(&address, (ADA, PASSWORD), "acme", Scopes::READ)
            .await;
        let code = back.returned("code").unwrap();
        let (exchanged, ended) = tokio::join!(
            common::exchange(app, &adas.client, &code),
            desk.end(&adas.client)
        );
        assert_eq!(ended.status, 200);
        if exchanged.status == 200 {
            let access = exchanged.text("access_token");
            let refused = desk.ask(&access, "GET", "/admin/vaults", None).await;
            assert_eq!(refused.short(), "401 token_invalid");
        } else {
            assert_eq!(exchanged.short(), "401 invalid_client");
        }
        let connection = connection_key(&desk.acme.id, &adas.client.parse().unwrap());
        let kept = app.records.get_one(&connection).await.unwrap().unwrap();
        assert!(kept.document.as_str().contains("\"revoked_at\":\""));
    }
}
