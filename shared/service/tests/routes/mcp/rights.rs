use serde_json::json;
use vault_service::model::audit;
use vault_service::model::namespace::{self, Namespace, Status};
use vault_service::model::user::Scopes;
use vault_shelf::Writes;
use vault_testing::memory::shelf::Trouble;

use super::{World, rpc, world, world_with};

const DOCUMENT: &str =
    "---\nname: new-skill\ndescription: Does one thing that is described well enough\n---\nbody";

async fn home(world: &World) -> (Namespace, u64) {
    namespace::find(&*world.app.records, &"default".parse().unwrap())
        .await
        .unwrap()
        .unwrap()
}

/// Action, target and outcome of what stands in the audit log of `/mcp`.
async fn audited(world: &World) -> Vec<(String, Option<String>, String)> {
    let partition = audit::partition(Some(&home(world).await.0.id));
    let records = world
        .app
        .records
        .list(&partition, "", None, 1000)
        .await
        .unwrap();
    let entries = records
        .iter()
        .map(|record| record.read::<audit::Entry>().unwrap());
    entries
        .filter(|entry| entry.action.starts_with("mcp"))
        .map(|entry| (entry.action, entry.target, entry.outcome))
        .collect()
}

#[tokio::test]
async fn a_missing_scope_is_403_with_a_challenge_only_where_consent_can_help() {
    let world = world().await;
    let reader = world
        .member("reader@example.org", Scopes::READ, Scopes::READ)
        .await;
    let cautious = world
        .member("cautious@example.org", Scopes::ALL, Scopes::READ)
        .await;
    let challenge = "Bearer error=\"insufficient_scope\", resource_metadata=\"https://vault.example/.well-known/oauth-protected-resource/mcp\", scope=\"read write\"";
    for (token, wanted) in [(&reader, ""), (&cautious, challenge)] {
        for tool in ["skill.publish", "skill_publish", "propose_skill"] {
            let reply = world
                .call(token, tool, json!({ "skill_md": DOCUMENT }))
                .await;
            assert_eq!(
                (reply.status, reply.header("www-authenticate")),
                (403, wanted),
                "{tool}"
            );
            let body = reply.json();
            assert_eq!(body["error"]["data"]["code"], "insufficient_scope");
            assert_eq!(body["id"], 1);
            assert_eq!(reply.header("cache-control"), "private, no-store");
        }
        for (tool, arguments) in [
            ("remove_skill", json!({ "name": "payroll" })),
            ("update_skill", json!({ "name": "nobody" })),
            (
                "add_skill",
                json!({ "source": "git", "identifier": "github:a/b" }),
            ),
            ("remove_skill", json!({ "no": "such argument" })),
        ] {
            assert_eq!(
                world.call(token, tool, arguments).await.status,
                403,
                "{tool}"
            );
        }
        assert_eq!(world.call(token, "skill_list", json!({})).await.status, 200);
    }
    assert!(world.shelf.submitted().is_empty());
    let audited = audited(&world).await;
    assert_eq!(audited.len(), 14);
    assert!(
        audited
            .iter()
            .all(|(action, _, outcome)| action == "mcp.call" && outcome == "insufficient_scope")
    );
    assert!(
        audited
            .iter()
            .any(|(_, target, _)| target.as_deref() == Some("skill_publish"))
    );
}

#[tokio::test]
async fn an_owner_without_the_scope_is_refused_too() {
    let world = world().await;
    let token = crate::common::sign_in(
        &world.app,
        crate::common::OWNER,
        crate::common::OWNER_PASSWORD,
        Scopes::READ,
    )
    .await;
    let reply = world
        .call(&token, "skill_publish", json!({ "skill_md": DOCUMENT }))
        .await;
    assert_eq!(reply.status, 403);
    assert!(
        reply
            .header("www-authenticate")
            .contains("insufficient_scope")
    );
    let reply = world
        .call(
            &world.owner,
            "skill_publish",
            json!({ "skill_md": DOCUMENT }),
        )
        .await;
    assert_eq!(
        reply.json()["result"]["structuredContent"]["status"],
        "accepted",
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn a_member_of_a_vault_without_a_policy_sees_nothing() {
    let world = world().await;
    let member = world
        .member("ana@example.org", Scopes::ALL, Scopes::ALL)
        .await;
    let listed = world.call(&member, "skill_list", json!({})).await;
    assert_eq!(
        listed.json()["result"]["structuredContent"]["skills"],
        json!([])
    );
    let hidden = world
        .call(&member, "skill_fetch", json!({ "id": "default/payroll" }))
        .await;
    let absent = world
        .call(&member, "skill_fetch", json!({ "id": "default/nothing" }))
        .await;
    assert_eq!((hidden.status, hidden.body), (absent.status, absent.body));
}

#[tokio::test]
async fn the_policy_knows_members_by_address_and_profile() {
    let world = world().await;
    let policy = "default_profile = \"docs\"\n[profiles.docs]\ngroups = [\"docs\"]\n[profiles.all]\ngroups = [\"*\"]\n[groups.docs]\nskills = [\"tag:docs\"]\n[groups.rest]\nskills = [\"*\"]\n[callers.\"ana@example.org\"]\nprofile = \"all\"\n";
    world
        .shelf
        .set_policy(Some(vault_policy::Policy::from_toml(policy).unwrap()));
    for (email, count) in [("ana@example.org", 3), ("bob@example.org", 1)] {
        let token = world.member(email, Scopes::READ, Scopes::READ).await;
        let listed = world.call(&token, "skill_list", json!({})).await;
        let skills = listed.json()["result"]["structuredContent"]["skills"]
            .as_array()
            .unwrap()
            .len();
        assert_eq!(skills, count, "{email}");
    }
}

#[tokio::test]
async fn a_suspended_vault_says_so() {
    let world = world().await;
    let member = world
        .member("ana@example.org", Scopes::ALL, Scopes::ALL)
        .await;
    let (mut home, revision) = home(&world).await;
    home.status = Status::Suspended;
    let write = home.update(revision).unwrap();
    assert!(
        world
            .app
            .records
            .commit(vec![write])
            .await
            .unwrap()
            .is_done()
    );
    let reply = world.call(&member, "skill_list", json!({})).await;
    assert_eq!(reply.status, 403);
    assert_eq!(reply.json()["error"]["data"]["code"], "vault_suspended");
    assert_eq!(
        audited(&world).await,
        [("mcp.call".to_owned(), None, "vault_suspended".to_owned())]
    );
}

#[tokio::test]
async fn a_fault_of_ours_is_503_and_never_a_refusal() {
    let world = world_with(Writes::Elsewhere, |_| {}).await;
    let reply = world
        .call(&world.owner, "remove_skill", json!({ "name": "payroll" }))
        .await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, "1"));
    assert_eq!(reply.json()["error"]["data"]["code"], "library_elsewhere");
    world.shelf.set_trouble(Some(Trouble::Down));
    for (method, params) in [
        (
            "tools/call",
            json!({ "name": "skill_list", "arguments": {} }),
        ),
        ("resources/list", json!({})),
        (
            "skills/get",
            json!({ "uri": "skill://default/payroll/SKILL.md" }),
        ),
    ] {
        let reply = world.post(&world.owner, &rpc(method, &params)).await;
        assert_eq!(
            (reply.status, reply.header("retry-after")),
            (503, "1"),
            "{method}"
        );
        assert_eq!(reply.json()["error"]["code"], -32603);
        assert!(!reply.body.contains("the store is down"));
    }
    world.shelf.set_trouble(Some(Trouble::Lapsed));
    let reply = world
        .call(&world.owner, "get_skill", json!({ "name": "payroll" }))
        .await;
    assert_eq!(reply.status, 200);
    assert!(reply.body.contains("subscription_lapsed"));
    assert_eq!(
        world
            .call(&world.owner, "skill_list", json!({}))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_hosted_namespace_serves_its_release_and_keeps_drafts() {
    // Without a shelf of its own the namespace `default` has no release yet: nothing to see, and changes wait.
    let mut world = world().await;
    world.app = world.app.clone().with_shelves(std::sync::Arc::new(
        vault_service::shelf::Releases::default(),
    ));
    let listed = world.call(&world.owner, "skill_list", json!({})).await;
    assert_eq!(
        listed.json()["result"]["structuredContent"],
        json!({ "skills": [] })
    );
    let reply = world
        .call(
            &world.owner,
            "propose_skill",
            json!({ "skill_md": DOCUMENT }),
        )
        .await;
    let outcome = reply.json()["result"]["structuredContent"].clone();
    assert_eq!(outcome["status"], "drafted", "{}", reply.body);
    assert_eq!(outcome["id"], "default/new-skill");
    let reply = world
        .call(&world.owner, "remove_skill", json!({ "name": "payroll" }))
        .await;
    assert!(reply.body.contains("not_found"));
}
