//! What each route asks of the stores: with one of everything and with many, so that nothing asks
//! once for each. The samples say how much each may cost.
//!
//! Counted at the ports. `read` is one reading by keys (one transaction of DynamoDB, up to 100
//! keys), `list` one page of a partition, `commit` one transaction that writes; `get` and `put` are
//! one object each, `ask` is one question which objects are missing. A user who was not seen for a
//! minute costs one `commit` more.

mod ask;
mod drafts;
mod people;
mod scene;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vault_service::model::user::{Role, Scopes};

use crate::admin::{ADA, reference, token};
use crate::common::exchange::{self, Exchange};
use crate::common::samples::samples;
use crate::common::{self};
use crate::support::vector;

use ask::ask;
use scene::{Call, Scene};

/// How many there are of everything in the larger world: devices, releases, skills, users,
/// namespaces, clients.
const MANY: usize = 24;
/// Hashes in one question, for each of those: more than one reading may name.
const HASHES: usize = 20;

/// A route, which of several ways through it (empty for the only one), and the status of its
/// answer.
type Row = (&'static str, &'static str, u16);

/// In this order: a row may leave something for those behind it.
const ROWS: &[Row] = &[
    ("health.show", "", 200),
    ("oauth.metadata", "", 200),
    ("oauth.openid", "", 200),
    ("oauth.resource", "", 200),
    ("oauth.resource_mcp", "", 200),
    ("client.register", "", 201),
    ("oauth.authorize", "nobody signed in", 200),
    ("oauth.login", "", 303),
    ("oauth.authorize", "all namespaces", 200),
    ("oauth.authorize", "namespace named", 200),
    ("oauth.consent", "", 303),
    ("oauth.authorize", "decided", 302),
    ("oauth.logout", "", 303),
    ("token.grant", "a code", 200),
    ("token.grant", "a refresh token", 200),
    ("token.revoke", "", 200),
    ("device.enrol", "new", 201),
    ("device.enrol", "known", 200),
    ("device.current", "", 200),
    ("catalog.read", "cold", 200),
    ("catalog.read", "warm", 200),
    ("bundle.read", "cold", 200),
    ("bundle.read", "warm", 200),
    ("bundle.read", "of no release", 404),
    ("vault.list", "", 200),
    ("vault.show", "", 200),
    ("object.missing", "", 200),
    ("object.pack", "", 200),
    ("object.put", "", 201),
    ("object.read", "cold", 200),
    ("object.read", "warm", 200),
    ("catalog.current", "", 200),
    ("release.list", "", 200),
    ("release.show", "", 200),
    ("release.catalog", "", 200),
    ("device.list", "all", 200),
    ("device.list", "waiting", 200),
    ("device.admit", "", 200),
    ("device.deny", "", 200),
    ("device.revoke", "", 200),
    ("device.forget", "", 200),
    ("device.deny-pending", "", 200),
    ("mcp.call", "", 200),
    ("user.list", "", 200),
    ("user.create", "somebody new", 201),
    ("user.create", "invited anew", 201),
    ("user.create", "for an account", 201),
    ("account.show", "", 200),
    ("membership.answer", "", 303),
    ("user.profile", "", 200),
    ("user.role", "", 200),
    ("user.role", "stepping back", 200),
    ("user.scopes", "", 200),
    ("membership.leave", "", 303),
    ("user.remove", "", 200),
    ("confirmation.ask", "", 201),
    ("confirmation.show", "", 200),
    ("confirmation.page", "", 200),
    ("confirmation.decide", "", 200),
    ("client.list", "", 200),
    ("client.revoke", "", 200),
    ("audit.list", "", 200),
    ("audit.list", "filtered", 200),
    ("namespace.suspend", "", 200),
    ("namespace.resume", "", 200),
    ("namespace.lapse", "", 200),
    ("namespace.quota", "", 200),
    ("namespace.renew", "", 200),
    ("namespace.list", "", 200),
    ("namespace.create", "for an account", 201),
    ("namespace.create", "for somebody new", 201),
    ("namespace.show", "", 200),
    ("invite.show", "", 200),
    ("invite.accept", "", 200),
    ("catalog.publish", "nothing new", 200),
    ("catalog.publish", "new skills", 200),
    ("catalog.publish", "withdrawing", 200),
    ("bundle.read", "withdrawn", 404),
    ("pin.reset", "", 200),
    ("draft.create", "a skill", 201),
    ("draft.create", "a key", 201),
    ("draft.create", "a release", 201),
    ("draft.list", "state=pending", 200),
    ("draft.list", "state=all&kind=propose", 200),
    ("draft.read", "", 200),
    ("draft.accept", "", 200),
    ("draft.decline", "", 200),
    ("draft.withdraw", "", 200),
    ("app.end", "", 303),
    ("session.end", "", 303),
    ("session.end-all", "", 303),
    ("sign-in.end", "", 303),
    ("second-factor.show", "", 200),
    ("second-factor.change", "", 200),
    ("oauth.second-factor", "", 303),
    ("passkey.show", "", 200),
    ("passkey.new", "", 200),
    ("passkey.add", "", 303),
    ("passkey.ask", "", 200),
    ("passkey.sign-in", "", 303),
    ("passkey.remove", "", 303),
    ("account.list", "", 200),
    ("account.invite", "", 201),
    ("account.reset", "", 200),
    ("account.disable", "", 200),
    ("account.enable", "", 200),
    ("account.sign-out", "", 200),
    ("account.grant", "", 200),
    ("account.revoke", "", 200),
    ("account.delete", "", 200),
    ("confirmation.ask-operator", "", 201),
    ("vault.sign-out", "", 200),
    ("namespace.sign-out", "", 200),
    ("service.sign-out", "", 200),
    ("audit.delete", "", 200),
    ("enrolment.invite", "", 201),
    ("enrolment.list", "", 200),
    ("enrolment.end", "", 200),
    // Behind everything that enrols.
    ("enrolment.set", "", 200),
    ("password.show", "", 200),
    ("password.change", "", 200),
];

/// The rows above, and those of routes whose sample says all.
fn rows() -> Vec<Row> {
    let mut rows = ROWS.to_vec();
    for sample in samples() {
        let name = sample.route.name;
        if !ROWS.iter().any(|row| row.0 == name) {
            rows.push((name, "", sample.answer[..3].parse().unwrap()));
        }
    }
    rows
}

/// What each route answers where it has something to do, by the name of the route.
pub async fn examples() -> BTreeMap<&'static str, Exchange> {
    let mut scene = Scene::of(1).await;
    let mut examples = BTreeMap::new();
    for row in rows() {
        assert_eq!(ask(&mut scene, &row).await, row.2, "{row:?}");
        examples.entry(row.0).or_insert_with(exchange::last);
    }
    examples
}

/// What grows with the number of things: readings and writings for each but the first.
const fn for_each(name: &str) -> (usize, usize) {
    match name.as_bytes() {
        // Each object of the pack is put.
        b"object.pack" => (0, 1),
        // Each bundle that the release before did not name is read once, for the parts that it
        // names.
        b"catalog.publish" | b"draft.create" => (1, 0),
        _ => (0, 0),
    }
}

/// Readings and writings.
fn cost(calls: &[Call]) -> (usize, usize) {
    let writings = calls.iter().filter(|call| **call == Call::Write).count();
    (calls.len() - writings, writings)
}

/// The budget of a sample holds with one of everything and with many, on each way through its
/// route.
#[tokio::test]
async fn no_route_asks_once_for_each() {
    let mut scenes = [Scene::of(1).await, Scene::of(MANY).await];
    let mut wrong = Vec::new();
    let mut most: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for row in rows() {
        let (name, case, wanted) = row;
        let each = for_each(name);
        for scene in &mut scenes {
            let status = ask(scene, &row).await;
            let (reads, writes) = cost(&scene.counting.take());
            let more = scene.n - 1;
            let cost = (
                reads.saturating_sub(each.0 * more),
                writes.saturating_sub(each.1 * more),
            );
            let most = most.entry(name).or_default();
            *most = (most.0.max(cost.0), most.1.max(cost.1));
            if status != wanted {
                wrong.push(format!("{name} {case} with {}: {status}", scene.n));
            }
        }
    }
    for sample in samples() {
        let (name, budget) = (sample.route.name, sample.budget);
        match most.get(name) {
            Some(cost) if cost.0 <= budget.0 && cost.1 <= budget.1 => {}
            cost => wrong.push(format!("{name} costs {cost:?}, not {budget:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A device, its namespace and its last visit, in one reading; the catalog from memory. Only the
/// first visit of a day is written.
#[tokio::test]
async fn a_warm_signed_catalog_is_three_record_reads_and_no_object() {
    let scene = Scene::of(MANY).await;
    assert_eq!(scene.read("/v/acme/catalog.json").await, 200);
    let cold = scene.counting.take();
    assert_eq!(cold, [Call::Read(3), Call::Get, Call::Write]);
    for _ in 0..3 {
        assert_eq!(scene.read("/v/acme/catalog.json").await, 200);
        assert_eq!(scene.counting.take(), [Call::Read(3)]);
    }
}

/// The token, then all that it names; list, policy and skill from memory.
#[tokio::test]
async fn a_warm_tool_is_two_record_reads_and_no_object() {
    let (world, counting) = Scene::counted();
    common::bootstrap(&world.app).await;
    let acme = world.acme().await;
    world.clock.advance(31 * 3600);
    let rotated = vector("catalog-43-rotated.json");
    world.publish("acme", rotated).await.unwrap();
    common::member(&world.app, ADA, &reference(&acme), Role::Owner, Scopes::ALL).await;
    let owner = token(&world, ADA, "acme", Scopes::ALL).await;
    let scene = Scene {
        n: 1,
        world,
        counting,
        owner: owner.clone(),
        operator: String::new(),
        devices: Vec::new(),
        fresh: 1,
        invitation: String::new(),
    };
    let call = |name: &str, arguments: Value| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": arguments },
        })
    };
    let calls = [
        call("skill_list", json!({})),
        call("get_skill", json!({ "name": "commit-log" })),
        call("get_skill", json!({ "query": "log" })),
        call("skill_fetch", json!({ "id": "acme/commit-log" })),
    ];
    for message in &calls {
        let (status, answer) = scene.tool(&owner, message).await;
        assert_eq!(
            (status, &answer["result"]["isError"]),
            (200, &json!(false)),
            "{answer}"
        );
    }
    for message in &calls {
        assert_eq!(scene.tool(&owner, message).await.0, 200);
        let warm = scene.counting.take();
        assert_eq!(warm, [Call::Read(1), Call::Read(6)], "{message}");
    }
}
