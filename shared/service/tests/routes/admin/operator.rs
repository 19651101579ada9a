//! `/admin/operator/namespaces`: allocating namespaces.

use serde_json::{Value, json};
use vault_service::model::namespace::Status;

use super::{ADA, BOB, Desk, desk};
use crate::common::Visitor;
use crate::support::Answer;

const PATH: &str = "/admin/operator/namespaces";

impl Desk {
    async fn create(&self, operator: &str, slug: &str, owner: &str) -> Answer {
        self.ask(
            operator,
            "POST",
            PATH,
            Some(&json!({"slug": slug, "owner": owner})),
        )
        .await
    }
}

#[tokio::test]
async fn a_namespace_is_made_for_an_account_that_is_invited_once() {
    let desk = desk().await;
    let operator = desk.operator().await;
    desk.commits.clear();
    let made = desk.create(&operator, "fresh", "New@Example.org").await;
    assert_eq!(made.status, 201);
    assert_eq!(
        (&made.json()["slug"], &made.json()["owner"]),
        (&json!("fresh"), &json!("new@example.org"))
    );
    let invite = made.json()["invite_url"].as_str().unwrap().to_owned();
    assert!(
        invite.starts_with("https://vault.example/oauth/invite/"),
        "{invite}"
    );
    let commits = desk.commits.partitions();
    assert_eq!(commits.len(), 1, "{commits:?}");
    for part in ["acct", "audit", "invite", "namespaces", "ns", "user"] {
        assert!(
            commits[0].contains(&part.to_owned()),
            "{part} in {commits:?}"
        );
    }
    let namespace = desk.world.read_namespace("fresh").await;
    assert_eq!(made.json()["namespace_id"], json!(namespace.id));
    let entries = desk.entries(&namespace).await;
    assert_eq!(
        (entries[0].action.as_str(), entries[0].target.as_deref()),
        ("namespace.create", Some("fresh"))
    );
    assert!(
        !format!("{entries:?}").contains(invite.rsplit('/').next().unwrap()),
        "the link is kept nowhere in clear"
    );

    // The link sets the password, and the new owner gets in.
    let path = invite.strip_prefix("https://vault.example").unwrap();
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get(path).await;
    let csrf = page.hidden(path, "csrf");
    let fields = [
        ("csrf", csrf.as_str()),
        ("password", crate::common::PASSWORD),
    ];
    assert_eq!(visitor.post(path, &fields).await.status, 200);
    let scopes = vault_service::model::user::Scopes::ALL;
    let token = super::token(&desk.world, "new@example.org", "fresh", scopes).await;
    let shown = desk
        .ask(&token, "GET", "/admin/vaults/fresh", None)
        .await
        .json();
    assert_eq!(
        (&shown["kind"], &shown["owner"]),
        (&json!("hosted"), &json!("new@example.org"))
    );

    // An account that can sign in gets a second namespace and no link.
    let second = desk.create(&operator, "second", "new@example.org").await;
    assert_eq!(
        (second.status.as_u16(), second.json().get("invite_url")),
        (201, None)
    );
    let vaults = desk.ask(&token, "GET", "/admin/vaults", None).await.json();
    assert_eq!(vaults["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn names_that_cannot_be_given_out() {
    let desk = desk().await;
    let operator = desk.operator().await;
    desk.world
        .change("other", |namespace| namespace.status = Status::Deleted)
        .await;
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
        assert_eq!(
            desk.create(&operator, slug, ADA).await.short(),
            wanted,
            "{slug}"
        );
    }
    for owner in [
        "",
        "ada",
        "@example.org",
        "a b@example.org",
        "\u{e4}@example.org",
        "a@example.org\nb",
    ] {
        assert_eq!(
            desk.create(&operator, "free", owner).await.short(),
            "422 email_invalid",
            "{owner}"
        );
    }
    let refused = desk
        .entries(&desk.world.read_namespace("default").await)
        .await;
    assert!(
        refused.iter().any(|entry| entry.outcome == "slug_reserved"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn bodies_that_are_none() {
    let desk = desk().await;
    let operator = desk.operator().await;
    let json = "application/json";
    let good = r#"{"slug":"free","owner":"ada@example.org"}"#;
    let large = format!(
        "{{\"slug\":\"free\",\"owner\":\"{}\"}}",
        "a".repeat(64 * 1024)
    );
    for (media, body, wanted) in [
        ("text/plain", large.as_str(), "413 body_too_large"),
        ("text/plain", good, "415 media_type"),
        (
            "application/x-www-form-urlencoded",
            "slug=free",
            "415 media_type",
        ),
        (json, "", "400 json_invalid"),
        (json, "{", "400 json_invalid"),
        (json, "[\"free\",\"ada@example.org\"]", "400 json_invalid"),
        (json, "{\"slug\":\"free\"}", "400 json_invalid"),
        (json, "{\"slug\":null,\"owner\":null}", "400 json_invalid"),
        (
            json,
            "{\"slug\":\"free\",\"slug\":\"other\",\"owner\":\"ada@example.org\"}",
            "400 json_invalid",
        ),
        (
            json,
            "{\"slug\":\"\\ud800\",\"owner\":\"ada@example.org\"}",
            "400 json_invalid",
        ),
        (
            json,
            "{\"slug\":\"free\",\"owner\":\"ada@example.org\",\"kind\":\"self_signed\"}",
            "201",
        ),
    ] {
        let answer = desk
            .send(&operator, "POST", PATH, Some((media, body.into())), &[])
            .await;
        assert_eq!(answer.short(), wanted, "{body}");
    }
    let made = desk
        .ask(&operator, "GET", &format!("{PATH}/free"), None)
        .await
        .json();
    assert_eq!(made["kind"], "hosted", "unknown members change nothing");
}

#[tokio::test]
async fn namespaces_are_listed_and_shown() {
    let desk = desk().await;
    let operator = desk.operator().await;
    desk.world
        .change("other", |namespace| namespace.status = Status::Deleted)
        .await;
    let listed = desk.ask(&operator, "GET", PATH, None).await.json();
    let short: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                item["slug"].clone(),
                item["status"].clone(),
                item["release"].clone(),
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            (json!("acme"), json!("active"), json!(42)),
            (json!("default"), json!("active"), Value::Null),
            (json!("other"), json!("deleted"), Value::Null),
        ]
    );
    let page = desk
        .ask(
            &operator,
            "GET",
            &format!("{PATH}?limit=1&after=acme"),
            None,
        )
        .await
        .json();
    assert_eq!(
        (&page["items"][0]["slug"], &page["next"]),
        (&json!("default"), &json!("default"))
    );
    let shown = desk
        .ask(&operator, "GET", &format!("{PATH}/acme"), None)
        .await
        .json();
    assert_eq!(
        shown,
        desk.get("/admin/vaults/acme").await.json(),
        "what its owner sees"
    );
    for odd in ["nobody", "ACME", "other", "%00", "a--b"] {
        let answer = desk
            .ask(&operator, "GET", &format!("{PATH}/{odd}"), None)
            .await;
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
        let all = [a, b, c, d];
        let won: Vec<_> = all.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(won.len(), 1);
        assert!(
            all.iter()
                .all(|answer| answer.status == 201 || answer.short() == "409 slug_taken")
        );
        let namespace = desk.world.read_namespace(&slug).await;
        assert_eq!(won[0].json()["owner"], json!(namespace.owner));
        let partition = vault_service::model::user::users_partition(&namespace.id);
        let users = desk
            .world
            .app
            .records
            .list(&partition, "", None, 10)
            .await
            .unwrap();
        assert_eq!(users.len(), 1);
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
    assert_eq!(
        (stopped.status.as_u16(), &stopped.json()["status"]),
        (200, &json!("suspended"))
    );
    assert_eq!(
        desk.get("/admin/users").await.short(),
        "403 vault_suspended",
        "it acts at once"
    );
    let device = crate::support::key(1);
    let enrolled = desk.world.enrol(&device, "acme", "laptop").await;
    assert_eq!(enrolled.short(), "403 vault_suspended");
    assert_eq!(set("suspend").await.status, 200, "again is no error");
    let resumed = set("resume").await;
    assert_eq!(
        (resumed.status.as_u16(), &resumed.json()["status"]),
        (200, &json!("active"))
    );
    let log = desk.get("/admin/audit?action=namespace").await.json();
    let entries = log["items"].as_array().unwrap();
    let mut kept: Vec<_> = entries
        .iter()
        .map(|entry| (&entry["action"], &entry["before"], &entry["after"]))
        .collect();
    // Ids of one moment sort by chance, and the clock stands still.
    kept.sort_by_key(|(action, ..)| action.to_string());
    assert_eq!(
        kept,
        [
            (
                &json!("namespace.resume"),
                &json!({"status": "suspended"}),
                &json!({"status": "active"})
            ),
            (
                &json!("namespace.suspend"),
                &json!({"status": "active"}),
                &json!({"status": "suspended"})
            ),
        ]
    );
    desk.world
        .change("acme", |namespace| namespace.status = Status::Deleted)
        .await;
    assert_eq!(set("resume").await.short(), "404 not_found");
    assert_eq!(set("suspend").await.short(), "404 not_found");
}
