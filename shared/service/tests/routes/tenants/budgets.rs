//! Budgets of namespaces: each counts what callers of the namespace do, refuses by 429 what exceeds
//! it, and leaves other namespaces alone.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use vault_service::config::Limits;
use vault_service::model::audit::audit_partition;
use vault_service::model::device::DeviceStatus;
use vault_service::model::user::{Role, Scopes};
use vault_service::router;
use vault_store::StoreError;
use vault_testing::memory::hooked::{Call, Hook, Hooked};

use crate::admin::{ADA, BOB, Desk, desk_with, reference, token};
use crate::common::{self, PASSWORD, Visitor};
use crate::quota::bytes;
use crate::support::{Answer, World, bearer, get, key};

const JSON: &str = "application/json";

/// A desk with these limits.
async fn limited(change: impl FnOnce(&mut Limits)) -> Desk {
    desk_with(|config| change(&mut config.limits)).await
}

async fn send(desk: &Desk, token: &str, method: &str, path: &str) -> Answer {
    desk.world
        .send(bearer(token, method, path, None, &[]))
        .await
}

async fn call_tool(desk: &Desk, token: &str, name: &str, arguments: Value) -> Answer {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": arguments },
    });
    let body = Some((JSON, call.to_string().into_bytes()));
    desk.world
        .send(bearer(token, "POST", "/mcp", body, &[]))
        .await
}

/// Checks that an answer is the refusal of this limit.
fn assert_limited(answer: &Answer, limit: &str, seconds: u64) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("retry-after"), seconds.to_string());
    let state = format!("\"{limit}\";r=0;t={seconds}");
    assert_eq!(answer.header("ratelimit"), state);
    let policy = answer.header("ratelimit-policy");
    assert!(policy.starts_with(&format!("\"{limit}\";q=")), "{policy}");
}

/// Number of rows in the log of a namespace.
async fn log_rows(desk: &Desk) -> usize {
    let partition = audit_partition(Some(&desk.acme.id));
    let records = &desk.world.app.records;
    let rows = records.list_page(&partition, "", None, 1000).await.unwrap();
    rows.len()
}

#[tokio::test]
async fn requests_count_for_the_app_and_the_vault() {
    let desk = limited(|limits| {
        limits.requests_per_grant = 2;
        // Apps of owners may use three quarters of it.
        limits.requests_per_namespace = 4;
    })
    .await;
    let path = "/admin/vaults/acme/devices";
    let first = desk.get(path).await;
    assert_eq!(first.status, 200);
    assert_eq!(
        first.header("ratelimit-policy"),
        "\"grant\";q=2;w=60, \"namespace\";q=3;w=60"
    );
    // The clock stands 10 seconds after the minute.
    assert_eq!(
        first.header("ratelimit"),
        "\"grant\";r=1;t=50, \"namespace\";r=2;t=50"
    );
    let tool = call_tool(&desk, &desk.owner, "skill_list", json!({})).await;
    assert_eq!(tool.status, 200, "{tool:?}");
    let rows = log_rows(&desk).await;
    assert_limited(&desk.get(path).await, "grant", 50);
    let tool = call_tool(&desk, &desk.owner, "skill_list", json!({})).await;
    assert_limited(&tool, "grant", 50);
    assert_eq!(tool.json()["error"]["data"]["code"], "rate_limited");
    assert_eq!(log_rows(&desk).await, rows, "no row for what it refuses");
    // Another app of the vault has its own limit, but that of the vault is for all of them.
    let other = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    assert_eq!(send(&desk, &other, "GET", path).await.status, 200);
    let rows = log_rows(&desk).await;
    assert_limited(&send(&desk, &other, "GET", path).await, "namespace", 50);
    let change = send(&desk, &other, "POST", "/admin/vaults/acme/sign-out").await;
    assert_limited(&change, "namespace", 50);
    assert_eq!(
        log_rows(&desk).await,
        rows,
        "no row for what the limit refuses"
    );
    // Another vault and the next minute have all of theirs.
    let stranger = desk.stranger().await;
    let there = send(&desk, &stranger, "GET", "/admin/vaults/other/devices").await;
    assert_eq!(there.status, 200);
    desk.world.clock.advance(50);
    assert_eq!(desk.get(path).await.status, 200);
}

/// A store that answers nothing.
struct Down;

#[async_trait]
impl Hook for Down {
    async fn before(&self, _: Call<'_>) -> Result<(), StoreError> {
        Err(StoreError::unavailable("down"))
    }
}

#[tokio::test]
async fn a_caller_over_a_limit_is_refused_before_anything_is_read() {
    let desk = limited(|limits| limits.requests_per_grant = 1).await;
    let path = "/admin/vaults/acme/devices";
    assert_eq!(desk.get(path).await.status, 200);
    assert_limited(&desk.get(path).await, "grant", 50);
    let world = &desk.world;
    let mut app = world.app.clone();
    app.ports.records = Hooked::new(&world.memory, Arc::new(Down));
    let without_store = World {
        router: router(app.clone()),
        app,
        clock: world.clock.clone(),
        memory: world.memory.clone(),
    };
    let ask = async |token: &str| {
        let request = bearer(token, "GET", path, None, &[]);
        without_store.send(request).await
    };
    assert_limited(&ask(&desk.owner).await, "grant", 50);
    let other = token(world, ADA, "acme", Scopes::ALL).await;
    assert_eq!(ask(&other).await.status, 503, "another app is looked up");
    world.clock.advance(50);
    assert_eq!(ask(&desk.owner).await.status, 503, "the next minute");
}

#[tokio::test]
async fn strangers_use_up_nothing_of_a_vault() {
    let desk = limited(|limits| {
        limits.requests_per_namespace = 3;
        limits.reads_per_namespace = 2;
    })
    .await;
    let world = &desk.world;
    let path = "/admin/vaults/acme/devices";
    let stranger = desk.stranger().await;
    let machine = world.device("acme", 1, DeviceStatus::Active).await;
    let waiting = world.device("acme", 2, DeviceStatus::Pending).await;
    let revoked = world.device("acme", 3, DeviceStatus::Revoked).await;
    let catalog = "/v/acme/catalog.json";
    let now = world.signed(&machine, "GET", catalog);
    assert_eq!(world.send(now).await.status, 200);
    for _ in 0..5 {
        // Without a token, with a wrong one, and with that of another vault.
        assert_eq!(send(&desk, "", "GET", path).await.status, 401);
        assert_eq!(send(&desk, "vlt_at_x", "GET", path).await.status, 401);
        let answer = send(&desk, &stranger, "GET", path).await;
        assert!([404, 429].contains(&answer.status.as_u16()), "{answer:?}");
        // Unknown keys, and keys that no owner admitted, or admits no longer.
        assert_eq!(world.ask(&key(9), "GET", catalog).await.status, 401);
        assert_eq!(world.ask(&waiting, "GET", catalog).await.status, 200);
        assert_eq!(world.ask(&revoked, "GET", catalog).await.status, 403);
        assert_eq!(world.send(get("/console/acme")).await.status, 200);
    }
    for _ in 0..2 {
        assert_eq!(desk.get(path).await.status, 200);
    }
    assert_eq!(world.ask(&machine, "GET", catalog).await.status, 200);
}

#[tokio::test]
async fn machines_of_a_vault_share_its_reads() {
    let desk = limited(|limits| limits.reads_per_namespace = 3).await;
    let world = &desk.world;
    let one = world.device("acme", 1, DeviceStatus::Active).await;
    let two = world.device("acme", 2, DeviceStatus::Active).await;
    let there = world.device("other", 3, DeviceStatus::Active).await;
    let catalog = "/v/acme/catalog.json";
    assert_eq!(world.ask(&one, "GET", catalog).await.status, 200);
    assert_eq!(world.ask(&two, "GET", catalog).await.status, 200);
    let current = world.ask(&one, "GET", "/v/acme/devices/current").await;
    assert_eq!(current.status, 200);
    assert_limited(
        &world.ask(&two, "GET", catalog).await,
        "namespace-reads",
        50,
    );
    let elsewhere = world.ask(&there, "GET", "/v/other/devices/current").await;
    assert_eq!(elsewhere.status, 200);
    // A key that is not enrolled gets the answer that it always gets.
    assert_eq!(world.ask(&key(9), "GET", catalog).await.status, 401);
    world.clock.advance(50);
    assert_eq!(world.ask(&two, "GET", catalog).await.status, 200);
}

#[tokio::test]
async fn copies_of_a_machines_request_use_up_nothing_of_its_vault() {
    let desk = limited(|limits| limits.reads_per_namespace = 4).await;
    let world = &desk.world;
    let machine = world.device("acme", 1, DeviceStatus::Active).await;
    let catalog = "/v/acme/catalog.json";
    // From its second request on, the service knows the key.
    assert_eq!(world.ask(&machine, "GET", catalog).await.status, 200);
    world.clock.advance(1);
    for _ in 0..20 {
        let copy = world.signed(&machine, "GET", catalog);
        assert_eq!(world.send(copy).await.status, 200);
    }
    world.clock.advance(1);
    assert_eq!(world.ask(&machine, "GET", catalog).await.status, 200);
}

#[tokio::test]
async fn changes_are_counted_in_the_commits_that_make_them() {
    let desk = limited(|limits| {
        limits.writes_per_namespace = 3;
        limits.log_rows_per_namespace = 1000;
    })
    .await;
    let invite = async |email: &str| {
        let body = json!({ "email": email, "role": "role:member" });
        let body = Some((JSON, body.to_string().into_bytes()));
        let request = bearer(&desk.owner, "POST", "/admin/users", body, &[]);
        desk.world.send(request).await
    };
    for email in ["a@example.org", "b@example.org"] {
        desk.commits.clear();
        let made = invite(email).await;
        assert_eq!(made.status, 201, "{made:?}");
        let commits = desk.commits.partitions();
        assert_eq!(commits.len(), 1, "{commits:?}");
        assert!(commits[0].contains(&"limit".to_owned()), "{commits:?}");
    }
    let rows = log_rows(&desk).await;
    assert_limited(&invite("c@example.org").await, "namespace-writes", 50);
    assert_eq!(log_rows(&desk).await, rows);
    let users = desk.get("/admin/users").await.json();
    assert!(!users.to_string().contains("c@example.org"), "{users}");
    // Reads go on, and so do the changes of others.
    let stranger = desk.stranger().await;
    let body = json!({ "email": "d@example.org", "role": "role:member" }).to_string();
    let body = Some((JSON, body.into_bytes()));
    let there = bearer(&stranger, "POST", "/admin/users", body, &[]);
    assert_eq!(desk.world.send(there).await.status, 201);
    desk.world.clock.advance(50);
    assert_eq!(invite("c@example.org").await.status, 201);
}

/// An upload claims its objects in one commit, and settles the claim in another.
#[tokio::test]
async fn a_request_of_several_commits_counts_as_one_change() {
    // Apps of owners may use three quarters of it.
    let desk = limited(|limits| limits.writes_per_namespace = 4).await;
    for n in 0..3 {
        desk.commits.clear();
        let stored = desk.put_bytes("bundles", &bytes(n, 60)).await;
        assert_eq!(stored.status, 201, "{n}: {stored:?}");
        assert!(desk.commits.partitions().len() > 1);
    }
    let refused = desk.put_bytes("bundles", &bytes(3, 60)).await;
    assert_limited(&refused, "namespace-writes", 50);
}

/// The deletion of many entries of the log fills its commits, so that no room is left for a count.
#[tokio::test]
async fn a_change_that_fills_its_commit_is_counted_too() {
    let mut desk = limited(|limits| limits.writes_per_namespace = 1).await;
    desk.happen("usr_a", "device.admit", 150).await;
    let end = desk.world.now().plus_seconds(1);
    desk.world.clock.advance(91 * 24 * 3600);
    desk.owner = token(&desk.world, ADA, "acme", Scopes::ALL).await;
    let path = format!("/admin/audit?before={end}");
    let deleted = send(&desk, &desk.owner, "DELETE", &path).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let body = json!({ "email": "a@example.org", "role": "role:member" });
    let left = 60 - desk.world.now().unix() % 60;
    let refused = desk.post("/admin/users", &body).await;
    assert_limited(&refused, "namespace-writes", left.unsigned_abs());
}

#[tokio::test]
async fn refusals_fill_the_log_up_to_its_budget() {
    let desk = limited(|limits| limits.log_rows_per_namespace = 4).await;
    let rows = log_rows(&desk).await;
    // An id each: equal refusals are one entry.
    let refused = async |n: usize| {
        let path = format!("/admin/vaults/acme/devices/dev_{n}/admit");
        send(&desk, &desk.owner, "POST", &path).await
    };
    for n in 0..3 {
        assert_eq!(refused(n).await.status, 404);
    }
    // 02:00:10: 3,590 seconds of the hour are left.
    assert_limited(&refused(3).await, "namespace-log", 3590);
    assert_eq!(log_rows(&desk).await, rows + 3);
    assert_eq!(desk.get("/admin/vaults/acme/devices").await.status, 200);
    desk.world.clock.advance(3590);
    assert_eq!(refused(4).await.status, 404);
}

#[tokio::test]
async fn equal_refusals_use_up_one_entry_and_no_change() {
    let desk = limited(|limits| {
        limits.writes_per_namespace = 2;
        limits.log_rows_per_namespace = 4;
    })
    .await;
    let rows = log_rows(&desk).await;
    for _ in 0..30 {
        let path = "/admin/vaults/acme/devices/dev_x/admit";
        let refused = send(&desk, &desk.owner, "POST", path).await;
        assert_eq!(refused.status, 404, "{refused:?}");
    }
    assert_eq!(log_rows(&desk).await, rows + 1);
    let invite = async |email: &str| {
        let body = json!({ "email": email, "role": "role:member" });
        desk.post("/admin/users", &body).await
    };
    assert_eq!(invite("a@example.org").await.status, 201);
    assert_limited(&invite("b@example.org").await, "namespace-writes", 50);
}

#[tokio::test]
async fn what_a_member_uses_up_leaves_the_owner_room() {
    let desk = limited(|limits| {
        limits.requests_per_grant = 0;
        limits.requests_per_namespace = 40;
        limits.writes_per_namespace = 8;
        limits.log_rows_per_namespace = 32;
    })
    .await;
    let (app, acme) = (&desk.world.app, reference(&desk.acme));
    common::member(app, BOB, &acme, Role::Member, Scopes::ALL).await;
    let member = token(&desk.world, BOB, "acme", Scopes::ALL).await;
    let mut told = Vec::new();
    for n in 0..30 {
        // An id each, and so an entry each.
        let path = format!("/admin/vaults/acme/devices/dev_{n}/admit");
        told.push(send(&desk, &member, "POST", &path).await.status.as_u16());
    }
    assert_eq!(told[0], 403, "{told:?}");
    assert_eq!(told[29], 429, "{told:?}");
    // Refusals are no changes, and the owner's part of the requests and of the log is untouched.
    for n in 0..6 {
        let body = json!({ "email": format!("p{n}@example.org"), "role": "role:member" });
        let made = desk.post("/admin/users", &body).await;
        assert_eq!(made.status, 201, "{n}: {made:?}");
    }
    let email = "p9@example.org";
    let body = json!({ "email": email, "role": "role:member" });
    assert_limited(
        &desk.post("/admin/users", &body).await,
        "namespace-writes",
        50,
    );
    // An app of an owner cannot keep the owner from the console either.
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/console/acme/people").await;
    assert_eq!(visitor.log_in(&page, ADA, PASSWORD).await.status, 303);
    let page = visitor.get("/console/acme/people").await;
    assert_eq!(page.status, 200, "{}", page.body);
}

#[tokio::test]
async fn checks_of_proposed_skills_have_a_budget() {
    let desk = limited(|limits| limits.gate_gib_per_namespace = 1).await;
    let propose = async |desk: &Desk, n: usize| {
        let text = format!("---\nname: skill-{n}\ndescription: Sorts numbers.\n---\n# Sort\n");
        call_tool(
            desk,
            &desk.owner,
            "propose_skill",
            json!({ "skill_md": text }),
        )
        .await
    };
    let done = propose(&desk, 1).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(
        !done.body.is_empty() && done.json()["result"]["isError"] != true,
        "{done:?}"
    );
    // What the check left of its reservation is free again.
    assert_eq!(propose(&desk, 2).await.status, 200);
    let budgets = &desk.world.app.budgets;
    budgets.settle_gate_work(desk.acme.id, 0, 1 << 30, desk.world.now());
    assert_limited(&propose(&desk, 3).await, "namespace-gate", 3590);
    assert_eq!(desk.get("/admin/vaults/acme/devices").await.status, 200);
    desk.world.clock.advance(3590);
    assert_eq!(propose(&desk, 3).await.status, 200);
}

#[tokio::test]
async fn exports_have_a_budget_and_the_page_says_how_long_to_wait() {
    let desk = limited(|limits| limits.exports_per_namespace = 2).await;
    let mut visitor = Visitor::new(&desk.world.app);
    let page = visitor.get("/console/acme").await;
    assert_eq!(visitor.log_in(&page, ADA, PASSWORD).await.status, 303);
    for _ in 0..2 {
        let part = visitor.get("/console/acme/export.jsonl").await;
        assert_eq!(part.status, 200, "{}", part.body);
    }
    let full = visitor.get("/console/acme/export.jsonl").await;
    assert_eq!(full.status, 429, "{}", full.body);
    assert_eq!(full.header("retry-after"), "3590");
    assert_eq!(full.header("ratelimit"), "\"namespace-exports\";r=0;t=3590");
    assert!(
        full.body.contains("Too many parts of exports"),
        "{}",
        full.body
    );
    assert_eq!(visitor.get("/console/acme").await.status, 200);
    // The log has a file for apps too, and a list that is no export.
    let file = desk.get("/admin/audit?format=jsonl").await;
    assert_limited(&file, "namespace-exports", 3590);
    assert_eq!(desk.get("/admin/audit").await.status, 200);
}

#[tokio::test]
async fn the_vault_that_a_server_signs_has_no_limits_but_those_of_apps() {
    let change = |config: &mut vault_service::config::Config| {
        config.limits.requests_per_namespace = 1;
        config.limits.writes_per_namespace = 1;
        config.limits.requests_per_grant = 5;
    };
    let kind = vault_service::model::namespace::Kind::SelfSigned;
    let desk = crate::admin::desk_of(kind, change).await;
    let path = "/admin/vaults/acme/devices";
    for _ in 0..5 {
        assert_eq!(desk.get(path).await.status, 200);
    }
    assert_limited(&desk.get(path).await, "grant", 50);
}
