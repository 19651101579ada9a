use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use vault_service::model::namespace::{self, Status};
use vault_service::model::user::Scopes;
use vault_service::shelf::Releases;
use vault_shelf::Writes;
use vault_store::StoreError;
use vault_testing::memory::hooked::{Call, Hook, Hooked};
use vault_testing::memory::shelf::Trouble;

use super::{World, rpc, world, world_with};
use crate::common::{OWNER, OWNER_PASSWORD, audited, home, put, send, sign_in};

const DOCUMENT: &str =
    "---\nname: new-skill\ndescription: Does one thing that is described well enough\n---\nbody";

/// Action, target and outcome of what stands in the audit log of `/mcp`.
async fn noted(world: &World) -> Vec<(String, Option<String>, String)> {
    let entries = audited(&world.app, "default").await.into_iter();
    entries
        .filter(|entry| entry.action.starts_with("mcp"))
        .map(|entry| (entry.action, entry.target, entry.outcome))
        .collect()
}

#[tokio::test]
async fn a_missing_scope_is_403_with_a_challenge_only_where_consent_can_help() {
    let world = world().await;
    let read = Scopes::READ;
    let reader = world.member("reader@example.org", read, read).await;
    let cautious = world.member("cautious@example.org", Scopes::ALL, read);
    let cautious = cautious.await;
    let challenge = "Bearer error=\"insufficient_scope\", resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";
    for (token, wanted) in [(&reader, ""), (&cautious, challenge)] {
        for tool in ["skill.publish", "skill_publish", "propose_skill"] {
            let arguments = json!({ "skill_md": DOCUMENT });
            let reply = world.call(token, tool, arguments).await;
            assert_eq!(reply.status, 403, "{tool}");
            assert_eq!(reply.header("www-authenticate"), wanted, "{tool}");
            let body = reply.json();
            assert_eq!(body["error"]["data"]["code"], "insufficient_scope");
            assert_eq!(body["id"], 1);
            assert_eq!(reply.header("cache-control"), "private, no-store");
        }
        let source = json!({ "source": "git", "identifier": "github:a/b" });
        for (tool, arguments) in [
            ("remove_skill", json!({ "name": "payroll" })),
            ("update_skill", json!({ "name": "nobody" })),
            ("add_skill", source),
            ("remove_skill", json!({ "no": "such argument" })),
        ] {
            let reply = world.call(token, tool, arguments).await;
            assert_eq!(reply.status, 403, "{tool}");
        }
        assert_eq!(world.call(token, "skill_list", json!({})).await.status, 200);
    }
    assert!(world.shelf.submitted().is_empty());
    let noted = noted(&world).await;
    assert_eq!(noted.len(), 14);
    for (action, _, outcome) in &noted {
        assert_eq!(
            (&action[..], &outcome[..]),
            ("mcp.call", "insufficient_scope")
        );
    }
    let published = Some("skill_publish".to_owned());
    assert!(noted.iter().any(|(_, target, _)| *target == published));
}

/// Whatever a caller makes up before, the log says which tool it tried, and how often.
#[tokio::test]
async fn a_refused_tool_is_named_behind_any_number_of_made_up_targets() {
    let world = world().await;
    let read = Scopes::READ;
    let reader = world.member("reader@example.org", read, read).await;
    for n in 0..30 {
        let path = format!("/admin/users/usr_{n:026}");
        let request = Request::delete(&path)
            .header("authorization", format!("Bearer {reader}"))
            .body(Body::empty());
        let reply = send(&world.app, request.unwrap()).await;
        assert_eq!(reply.status, 403, "{path}");
    }
    for tool in ["remove_skill", "skill_publish", "remove_skill"] {
        let reply = world
            .call(&reader, tool, json!({ "name": "payroll" }))
            .await;
        assert_eq!(reply.status, 403, "{tool}");
    }
    let targets: Vec<_> = noted(&world).await.into_iter().map(|row| row.1).collect();
    // An entry with a count stands here as often as it counts.
    let wanted =
        ["remove_skill", "remove_skill", "skill_publish"].map(|tool| Some(tool.to_owned()));
    assert_eq!(targets, wanted);
}

#[tokio::test]
async fn an_owner_without_the_scope_is_refused_too() {
    let world = world().await;
    let token = sign_in(&world.app, OWNER, OWNER_PASSWORD, Scopes::READ).await;
    let arguments = json!({ "skill_md": DOCUMENT });
    let reply = world.call(&token, "skill_publish", arguments.clone()).await;
    assert_eq!(reply.status, 403);
    let challenge = reply.header("www-authenticate");
    assert!(challenge.contains("insufficient_scope"), "{challenge}");
    let reply = world.call(&world.owner, "skill_publish", arguments).await;
    let outcome = &reply.json()["result"]["structuredContent"];
    assert_eq!(outcome["status"], "accepted", "{}", reply.body);
}

#[tokio::test]
async fn a_member_of_a_vault_without_a_policy_sees_nothing() {
    let world = world().await;
    let member = world
        .member("ana@example.org", Scopes::ALL, Scopes::ALL)
        .await;
    let listed = world.call(&member, "skill_list", json!({})).await;
    let listed = &listed.json()["result"]["structuredContent"];
    assert_eq!(listed["skills"], json!([]));
    let hidden = json!({ "id": "default/payroll" });
    let hidden = world.call(&member, "skill_fetch", hidden).await;
    let absent = json!({ "id": "default/nothing" });
    let absent = world.call(&member, "skill_fetch", absent).await;
    assert_eq!((hidden.status, hidden.body), (absent.status, absent.body));
}

/// Counts the calls of the stores.
#[derive(Default)]
struct Calls(AtomicUsize);

#[async_trait]
impl Hook for Calls {
    async fn before(&self, _: Call<'_>) -> Result<(), StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Whatever is asked of it, a skill that the policy hides answers and costs what one costs that
/// nobody has: of that the time is made.
#[tokio::test]
async fn a_hidden_skill_costs_what_an_absent_one_costs() {
    let mut world = world().await;
    let policy = "default_profile = \"docs\"\n[profiles.docs]\ngroups = [\"docs\"]\n[groups.docs]\nskills = [\"tag:docs\"]\n";
    let policy = vault_policy::Policy::from_toml(policy).unwrap();
    world.shelf.set_policy(Some(policy));
    let member = world
        .member("ana@example.org", Scopes::ALL, Scopes::ALL)
        .await;
    let calls = Arc::new(Calls::default());
    world.app.ports.records = Hooked::new(&world.memory, calls.clone());
    let (world, calls, member) = (&world, &calls, member.as_str());
    let asked = async |method: &str, params: Value| {
        let before = (calls.0.load(Ordering::Relaxed), world.shelf.loads());
        let reply = world.post(member, &rpc(method, &params)).await;
        let (calls, loads) = (calls.0.load(Ordering::Relaxed), world.shelf.loads());
        (reply, calls - before.0, loads - before.1)
    };
    let tool = |name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        ("tools/call".to_owned(), params)
    };
    let questions = |name: &str| {
        let uri = json!({ "uri": format!("skill://default/{name}/SKILL.md") });
        vec![
            ("resources/read".to_owned(), uri.clone()),
            ("skills/get".to_owned(), uri),
            tool("skill_fetch", json!({ "id": format!("default/{name}") })),
            tool("get_skill", json!({ "name": name })),
            tool("check_updates", json!({ "skill": name })),
            tool("remove_skill", json!({ "name": name })),
            tool("update_skill", json!({ "name": name })),
        ]
    };
    // The first question compiles the policy.
    asked("resources/list", json!({})).await;
    let hidden = questions("payroll");
    for (hidden, absent) in hidden.into_iter().zip(questions("paytoll")) {
        let (reply, calls, loads) = asked(&hidden.0, hidden.1.clone()).await;
        let wanted = asked(&absent.0, absent.1).await;
        let body = reply.body.replace("payroll", "paytoll");
        assert_eq!(
            (reply.status, body),
            (wanted.0.status, wanted.0.body),
            "{hidden:?}"
        );
        assert_eq!((calls, loads), (wanted.1, wanted.2), "{hidden:?}");
        assert_eq!(loads, 0, "{hidden:?}");
    }
}

#[tokio::test]
async fn the_policy_knows_members_by_address_and_profile() {
    let world = world().await;
    let policy = "default_profile = \"docs\"\n[profiles.docs]\ngroups = [\"docs\"]\n[profiles.all]\ngroups = [\"*\"]\n[groups.docs]\nskills = [\"tag:docs\"]\n[groups.rest]\nskills = [\"*\"]\n[callers.\"ana@example.org\"]\nprofile = \"all\"\n";
    let policy = vault_policy::Policy::from_toml(policy).unwrap();
    world.shelf.set_policy(Some(policy));
    for (email, count) in [("ana@example.org", 3), ("bob@example.org", 1)] {
        let token = world.member(email, Scopes::READ, Scopes::READ).await;
        let listed = world.call(&token, "skill_list", json!({})).await;
        let skills = &listed.json()["result"]["structuredContent"]["skills"];
        assert_eq!(skills.as_array().unwrap().len(), count, "{email}");
    }
}

#[tokio::test]
async fn a_suspended_vault_says_so() {
    let world = world().await;
    let member = world
        .member("ana@example.org", Scopes::ALL, Scopes::ALL)
        .await;
    let mut home = home(&world.app, "default").await;
    home.status = Status::Suspended;
    put(&world.app, namespace::namespace_key(&home.slug), &home).await;
    let reply = world.call(&member, "skill_list", json!({})).await;
    assert_eq!(reply.status, 403);
    assert_eq!(reply.json()["error"]["data"]["code"], "vault_suspended");
    let suspended = ("mcp.call".to_owned(), None, "vault_suspended".to_owned());
    assert_eq!(noted(&world).await, [suspended]);
}

#[tokio::test]
async fn a_fault_of_ours_is_503_and_never_a_refusal() {
    let world = world_with(Writes::Elsewhere, |_| {}).await;
    let payroll = json!({ "name": "payroll" });
    let reply = world.call(&world.owner, "remove_skill", payroll.clone());
    let reply = reply.await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, "1"));
    assert_eq!(reply.json()["error"]["data"]["code"], "library_elsewhere");
    world.shelf.set_trouble(Some(Trouble::Down));
    let list = json!({ "name": "skill_list", "arguments": {} });
    let uri = json!({ "uri": "skill://default/payroll/SKILL.md" });
    for (method, params) in [
        ("tools/call", list),
        ("resources/list", json!({})),
        ("skills/get", uri),
    ] {
        let reply = world.post(&world.owner, &rpc(method, &params)).await;
        assert_eq!(reply.status, 503, "{method}");
        assert_eq!(reply.header("retry-after"), "1", "{method}");
        assert_eq!(reply.json()["error"]["code"], -32603);
        assert!(!reply.body.contains("the store is down"));
    }
    world.shelf.set_trouble(Some(Trouble::Lapsed));
    let reply = world.call(&world.owner, "get_skill", payroll).await;
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("subscription_lapsed"));
    let listed = world.call(&world.owner, "skill_list", json!({})).await;
    assert_eq!(listed.status, 200);
}

#[tokio::test]
async fn a_hosted_namespace_serves_its_release_and_keeps_drafts() {
    // Without a shelf of its own the namespace `default` has no release yet: nothing to see, and
    // changes wait.
    let mut world = world().await;
    let releases = Arc::new(Releases::default());
    world.app = world.app.clone().with_shelves(releases);
    let owner = world.owner.as_str();
    let listed = world.call(owner, "skill_list", json!({})).await;
    let listed = &listed.json()["result"]["structuredContent"];
    assert_eq!(*listed, json!({ "skills": [] }));
    let arguments = json!({ "skill_md": DOCUMENT });
    let reply = world.call(owner, "propose_skill", arguments).await;
    let outcome = &reply.json()["result"]["structuredContent"];
    assert_eq!(outcome["status"], "drafted", "{}", reply.body);
    assert_eq!(outcome["id"], "default/new-skill");
    let payroll = json!({ "name": "payroll" });
    let reply = world.call(owner, "remove_skill", payroll).await;
    assert!(reply.body.contains("not_found"));
}
