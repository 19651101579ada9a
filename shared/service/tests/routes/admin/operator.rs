//! `/admin/operator/namespaces`: allocating namespaces.

use std::sync::Arc;

use serde_json::{Value, json};
use vault_service::config::hosting::Hosting;
use vault_service::model::kept;
use vault_service::model::namespace::{Kind, Namespace, Status};
use vault_service::model::user::{Scopes, users_partition};

use super::{ADA, BOB, Desk, desk, token};
use crate::common::{self, PASSWORD, Visitor};
use crate::support::Answer;

const PATH: &str = "/admin/operator/namespaces";

impl Desk {
    async fn create(&self, operator: &str, slug: &str, owner: &str) -> Answer {
        let body = json!({"slug": slug, "owner": owner});
        self.ask(operator, "POST", PATH, Some(&body)).await
    }
}

#[tokio::test]
async fn a_namespace_is_made_for_an_account_that_is_invited_once() {
    let desk = desk().await;
    let operator = desk.operator().await;
    desk.commits.clear();
    let made = desk.create(&operator, "fresh", "New@Example.org").await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json()["slug"], "fresh");
    assert_eq!(made.json()["owner"], "new@example.org");
    let invite = made.json()["invite_url"].as_str().unwrap().to_owned();
    let path = invite.strip_prefix("https://vault.example").unwrap();
    assert!(path.starts_with("/oauth/invite/"), "{invite}");
    let commits = desk.commits.partitions();
    assert_eq!(commits.len(), 1, "{commits:?}");
    for part in ["acct", "audit", "invite", "namespaces", "ns", "user"] {
        assert!(commits[0].iter().any(|name| name == part), "{commits:?}");
    }
    let namespace = desk.world.read_namespace("fresh").await;
    assert_eq!(made.json()["namespace_id"], json!(namespace.id));
    let entries = desk.entries(&namespace).await;
    assert_eq!(entries[0].action, "namespace.create");
    assert_eq!(entries[0].target.as_deref(), Some("fresh"));
    // The link is kept nowhere in clear.
    let secret = path.rsplit('/').next().unwrap();
    assert!(!format!("{entries:?}").contains(secret));

    // The link sets the password, and the new owner gets in.
    let set = Visitor::new(&desk.world.app).accept(path, PASSWORD).await;
    assert_eq!(set.status, 200);
    let token = token(&desk.world, "new@example.org", "fresh", Scopes::ALL).await;
    let shown = desk.ask(&token, "GET", "/admin/vaults/fresh", None).await;
    assert_eq!(shown.json()["kind"], "hosted");
    assert_eq!(shown.json()["owner"], "new@example.org");

    // An account that can sign in gets a second namespace and no link.
    let second = desk.create(&operator, "second", "new@example.org").await;
    assert_eq!(second.status, 201);
    assert_eq!(second.json().get("invite_url"), None);
    let vaults = desk.ask(&token, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn names_that_cannot_be_given_out() {
    let desk = desk().await;
    let operator = desk.operator().await;
    let change = |namespace: &mut Namespace| namespace.status = Status::Deleted;
    desk.world.change("other", change).await;
    let (longest, longer) = ("a".repeat(63), "a".repeat(64));
    for (slug, wanted) in [
        ("acme", "409 slug_taken"),
        ("other", "409 slug_taken"),
        ("default", "422 slug_reserved"),
        ("admin", "422 slug_reserved"),
        ("api", "422 slug_reserved"),
        ("console", "422 slug_reserved"),
        ("healthz", "422 slug_reserved"),
        ("hooks", "422 slug_reserved"),
        ("mcp", "422 slug_reserved"),
        ("oauth", "422 slug_reserved"),
        ("v", "422 slug_reserved"),
        ("www", "422 slug_reserved"),
        ("", "422 slug_invalid"),
        ("-a", "422 slug_invalid"),
        ("a-", "422 slug_invalid"),
        ("a--b", "422 slug_invalid"),
        ("A", "422 slug_invalid"),
        ("a.b", "422 slug_invalid"),
        ("a/b", "422 slug_invalid"),
        ("a b", "422 slug_invalid"),
        ("\u{e4}", "422 slug_invalid"),
        (&longer, "422 slug_invalid"),
        (&longest, "201"),
        ("7", "201"),
        ("7", "409 slug_taken"),
    ] {
        let answer = desk.create(&operator, slug, ADA).await;
        assert_eq!(answer.short(), wanted, "{slug}");
    }
    for owner in [
        "",
        "ada",
        "@example.org",
        "a b@example.org",
        "\u{e4}@example.org",
        "a@example.org\nb",
    ] {
        let answer = desk.create(&operator, "free", owner).await;
        assert_eq!(answer.short(), "422 email_invalid", "{owner}");
    }
    let mut refused = common::entries_of(&desk.world.app, None).await;
    refused.retain(|entry| entry.outcome == "slug_reserved");
    assert_eq!(refused.len(), 10);
}

#[tokio::test]
async fn bodies_that_are_none() {
    let desk = desk().await;
    let operator = desk.operator().await;
    let json = "application/json";
    let good = r#"{"slug":"free","owner":"ada@example.org"}"#;
    let large = format!("{good}{}", " ".repeat(70_000));
    let form = "application/x-www-form-urlencoded";
    let twice = r#"{"slug":"free","slug":"other","owner":"ada@example.org"}"#;
    let surrogate = r#"{"slug":"\ud800","owner":"ada@example.org"}"#;
    let more = r#"{"slug":"free","owner":"ada@example.org","kind":"self_signed"}"#;
    for (media, body, wanted) in [
        ("text/plain", large.as_str(), "413 body_too_large"),
        ("text/plain", good, "415 media_type"),
        (form, "slug=free", "415 media_type"),
        (json, "", "400 json_invalid"),
        (json, "{", "400 json_invalid"),
        (json, "[\"free\",\"ada@example.org\"]", "400 json_invalid"),
        (json, "{\"slug\":\"free\"}", "400 json_invalid"),
        (json, "{\"slug\":null,\"owner\":null}", "400 json_invalid"),
        (json, twice, "400 json_invalid"),
        (json, surrogate, "400 json_invalid"),
        (json, more, "400 json_invalid"),
    ] {
        let sent = Some((media, body.into()));
        let answer = desk.send(&operator, "POST", PATH, sent, &[]).await;
        assert_eq!(answer.short(), wanted, "{body}");
    }
    let path = format!("{PATH}/free");
    let made = desk.ask(&operator, "GET", &path, None).await;
    assert_eq!(made.short(), "404 not_found");
}

#[tokio::test]
async fn namespaces_are_listed_and_shown() {
    let desk = desk().await;
    let operator = desk.operator().await;
    let change = |namespace: &mut Namespace| namespace.status = Status::Deleted;
    desk.world.change("other", change).await;
    let listed = desk.ask(&operator, "GET", PATH, None).await.json();
    let items = listed["items"].as_array().unwrap().iter();
    let short: Vec<_> = items
        .map(|item| json!([item["slug"], item["status"], item["release"]]))
        .collect();
    let wanted = json!([
        ["acme", "active", 42],
        ["default", "active", null],
        ["other", "deleted", null],
    ]);
    assert_eq!(json!(short), wanted);
    let get = async |rest: &str| {
        let path = format!("{PATH}{rest}");
        desk.ask(&operator, "GET", &path, None).await
    };
    let page = get("?limit=1&after=acme").await.json();
    assert_eq!(page["items"][0]["slug"], "default");
    assert_eq!(page["next"], "default");
    let shown = get("/acme").await.json();
    let owners = desk.get("/admin/vaults/acme").await.json();
    assert_eq!(shown, owners, "what its owner sees");
    for odd in ["nobody", "ACME", "other", "%00", "a--b"] {
        let answer = get(&format!("/{odd}")).await;
        assert_eq!(answer.short(), "404 not_found", "{odd}");
    }
}

/// Of many allocations of one name one succeeds, and no account gets a part in what it did not get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_one_gets_the_name() {
    let desk = desk().await;
    let operator = desk.operator().await;
    for round in 0..10 {
        let slug = format!("race-{round}");
        let (a, b, c, d) = tokio::join!(
            desk.create(&operator, &slug, ADA),
            desk.create(&operator, &slug, BOB),
            desk.create(&operator, &slug, ADA),
            desk.create(&operator, &slug, BOB),
        );
        let (won, lost): (Vec<_>, Vec<_>) = [a, b, c, d]
            .into_iter()
            .partition(|answer| answer.status == 201);
        assert_eq!(won.len(), 1);
        assert!(lost.iter().all(|answer| answer.short() == "409 slug_taken"));
        let namespace = desk.world.read_namespace(&slug).await;
        assert_eq!(won[0].json()["owner"], json!(namespace.owner));
        let partition = users_partition(&namespace.id);
        let users = kept::all_records(&desk.world.app, &partition).await;
        assert_eq!(users.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn an_operator_suspends_and_resumes_and_the_owner_can_read_who() {
    let desk = desk().await;
    let operator = desk.operator().await;
    let set = async |what: &str| {
        let path = format!("{PATH}/acme/{what}");
        desk.ask(&operator, "POST", &path, None).await
    };
    let stopped = set("suspend").await;
    assert_eq!(stopped.status, 200);
    assert_eq!(stopped.json()["status"], "suspended");
    // It acts at once.
    let refused = desk.get("/admin/users").await;
    assert_eq!(refused.short(), "403 vault_suspended");
    let device = crate::support::key(1);
    let enrolled = desk.world.enrol(&device, "acme", "laptop").await;
    assert_eq!(enrolled.short(), "404 vault_not_found");
    assert_eq!(set("suspend").await.status, 200, "again is no error");
    let resumed = set("resume").await;
    assert_eq!(resumed.status, 200);
    assert_eq!(resumed.json()["status"], "active");
    let log = desk.get("/admin/audit?action=namespace").await.json();
    let entries = log["items"].as_array().unwrap();
    let mut kept: Vec<_> = entries
        .iter()
        .map(|entry| {
            json!([
                entry["action"],
                entry["before"]["status"],
                entry["after"]["status"]
            ])
        })
        .collect();
    // Ids of one moment sort by chance, and the clock stands still.
    kept.sort_by_key(|entry| entry[0].to_string());
    let wanted = json!([
        ["namespace.resume", "suspended", "active"],
        ["namespace.suspend", "active", "suspended"],
    ]);
    assert_eq!(json!(kept), wanted);
    let change = |namespace: &mut Namespace| namespace.status = Status::Deleted;
    desk.world.change("acme", change).await;
    assert_eq!(set("resume").await.short(), "404 not_found");
    assert_eq!(set("suspend").await.short(), "404 not_found");
}

#[tokio::test]
async fn an_operator_lapses_and_renews_a_namespace_and_both_logs_say_so() {
    let desk = desk().await;
    let operator = desk.operator().await;
    for (verb, subscription) in [
        ("lapse", "lapsed"),
        ("lapse", "lapsed"),
        ("renew", "active"),
        ("renew", "active"),
    ] {
        let path = format!("{PATH}/acme/{verb}");
        let answer = desk.ask(&operator, "POST", &path, None).await;
        assert_eq!(answer.status, 200, "again is no error");
        assert_eq!(answer.json()["subscription"], subscription);
    }
    let log = desk.get("/admin/audit?action=namespace").await.json();
    let service = "/admin/operator/audit?action=namespace";
    let service = desk.ask(&operator, "GET", service, None).await.json();
    for log in [log, service] {
        let entries = log["items"].as_array().unwrap().iter();
        let mut kept: Vec<_> = entries
            .map(|entry| {
                let subscription = |side: &str| entry[side]["subscription"].clone();
                json!([
                    entry["action"],
                    subscription("before"),
                    subscription("after")
                ])
            })
            .collect();
        kept.sort_by_key(|entry| entry[0].to_string());
        let wanted = json!([
            ["namespace.lapse", "none", "lapsed"],
            ["namespace.renew", "lapsed", "active"],
        ]);
        assert_eq!(json!(kept), wanted);
    }
    let nowhere = format!("{PATH}/nothing/lapse");
    let answer = desk.ask(&operator, "POST", &nowhere, None).await;
    assert_eq!(answer.short(), "404 not_found");
}

#[tokio::test]
async fn an_operator_sets_the_quota_of_a_namespace_and_both_logs_say_so() {
    let mut desk = desk().await;
    let mut config = (*desk.world.app.config).clone();
    let plans = "team=https://buy.example plink_1 bytes=5GiB";
    config.hosting = Hosting::from_variables_without_secrets(
        |name| (name == "VAULT_PLANS").then(|| plans.to_owned()),
        true,
    )
    .unwrap();
    desk.world.app.config = Arc::new(config);
    desk.world.router = vault_service::router(desk.world.app.clone());
    let operator = desk.operator().await;
    let quota = async |body: Value| {
        let path = format!("{PATH}/acme/quota");
        let answer = desk.ask(&operator, "POST", &path, Some(&body)).await;
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        let quota = answer.json()["quota"].clone();
        (quota["bytes"].clone(), quota["objects"].clone())
    };
    let gib = |n: u64| json!(n << 30);
    assert_eq!(quota(json!({})).await, (gib(2), json!(200_000)));
    let namespace = |namespace: &mut Namespace| namespace.plan = Some("team".to_owned());
    desk.world.change("acme", namespace).await;
    assert_eq!(quota(json!({})).await, (gib(5), json!(200_000)));
    let set = json!({ "bytes": 7, "objects": 0 });
    assert_eq!(quota(set.clone()).await, (json!(7), Value::Null));
    assert_eq!(quota(set).await, (json!(7), Value::Null));
    let plan = json!({ "bytes": "plan" });
    assert_eq!(quota(plan).await, (gib(5), Value::Null));
    assert_eq!(desk.count("namespace.quota done").await, 2, "changes alone");
    for (body, wanted) in [
        (json!({ "bytes": -1 }), "400 json_invalid"),
        (json!({ "bytes": "5GiB" }), "400 json_invalid"),
        (json!({ "seats": 1 }), "400 json_invalid"),
        (json!({ "objects": (1_u64 << 53) + 1 }), "400 json_invalid"),
    ] {
        let path = format!("{PATH}/acme/quota");
        let answer = desk.ask(&operator, "POST", &path, Some(&body)).await;
        assert_eq!(answer.short(), wanted, "{body}");
    }
    let own = |namespace: &mut Namespace| namespace.kind = Kind::SelfSigned;
    desk.world.change("acme", own).await;
    let path = format!("{PATH}/acme/quota");
    let answer = desk.ask(&operator, "POST", &path, Some(&json!({}))).await;
    assert_eq!(answer.short(), "409 namespace_self_signed");
}
