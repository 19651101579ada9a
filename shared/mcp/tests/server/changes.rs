use serde_json::{Value, json};
use vault_mcp::{DraftRequestKind, Fault, Names, Person, Right, Session, hand_in};
use vault_shelf::{Change, Submitted, Writes};

use super::support::{member, owner, policy, stocked};

fn document(name: &str, more: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Does one thing that is described well enough\n---\n\n# {name}\n{more}"
    )
}

#[tokio::test]
async fn a_proposal_is_taken_once_and_never_over_another() {
    let world = stocked(Writes::Signed);
    let arguments = |more: &str, check: bool| {
        json!({
            "skill_md": document("new-skill", more),
            "resources": [{ "path": "data.bin", "content": "AAEC", "encoding": "base64" }, { "path": "a.txt", "content": "text" }],
            "check": check,
        })
    };
    for (arguments, status, version) in [
        (arguments("", true), "would_accept", Value::Null),
        (arguments("", false), "accepted", json!(1)),
        (arguments("", false), "duplicate", json!(1)),
        (arguments("", true), "duplicate", json!(1)),
    ] {
        let reply = world.owner_calls("propose_skill", arguments).await;
        let outcome = reply.structured();
        assert_eq!(outcome["status"], status);
        assert_eq!(outcome["id"], "acme/new-skill");
        assert_eq!(outcome["version"], version);
    }
    let reply = world
        .owner_calls("propose_skill", arguments("other", false))
        .await;
    assert_eq!(reply.code(), "name_taken");
    let mut publish = arguments("other", false);
    publish.as_object_mut().unwrap().remove("check");
    let reply = world.owner_calls("skill_publish", publish).await;
    assert_eq!(
        (
            &reply.structured()["status"],
            &reply.structured()["version"]
        ),
        (&json!("accepted"), &json!(2))
    );
    let fetched = world
        .owner_calls("skill_fetch", json!({ "id": "acme/new-skill" }))
        .await;
    assert_eq!(fetched.structured()["files"][2]["content"], "AAEC");
}

#[tokio::test]
async fn what_is_no_skill_is_said_with_findings() {
    let world = stocked(Writes::Signed);
    for (skill_md, status) in [
        ("no frontmatter".to_owned(), "invalid"),
        ("---\nname: x\n---\n".to_owned(), "invalid"),
        (
            document("hidden", "").replace("Does one", "Does\u{202e} one"),
            "security_blocked",
        ),
    ] {
        let reply = world
            .owner_calls("propose_skill", json!({ "skill_md": skill_md }))
            .await;
        let outcome = reply.structured();
        assert_eq!(outcome["status"], status, "{}", reply.text);
        assert!(outcome["findings"][0]["rule"].is_string());
    }
    for arguments in [
        json!({}),
        json!({ "skill_md": 1 }),
        json!({ "skill_md": "x", "resources": [{ "path": "a", "content": "!", "encoding": "base64" }] }),
        json!({ "skill_md": "x", "resources": [{ "path": "a", "content": "x", "encoding": "latin-1" }] }),
        json!({ "skill_md": "x", "resources": [{ "path": "a", "content": "x", "mode": "0755" }] }),
    ] {
        let reply = world.owner_calls("skill_publish", arguments).await;
        assert_eq!(reply.code(), "invalid_arguments");
    }
    let evil = json!({ "skill_md": document("evil", ""), "resources": [{ "path": "../../x", "content": "x" }] });
    let reply = world.owner_calls("skill_publish", evil).await;
    assert_eq!(reply.structured()["status"], "invalid");
}

#[tokio::test]
async fn a_hosted_vault_makes_drafts_and_says_so() {
    let world = stocked(Writes::Drafted);
    for (tool, arguments) in [
        (
            "propose_skill",
            json!({ "skill_md": document("new-skill", "") }),
        ),
        (
            "skill_publish",
            json!({ "skill_md": document("payroll", "again") }),
        ),
        ("remove_skill", json!({ "name": "payroll" })),
    ] {
        let reply = world.owner_calls(tool, arguments).await;
        let outcome = reply.structured();
        assert_eq!(outcome["status"], "drafted", "{tool}");
        assert!(outcome["draft_id"].is_string());
        assert_eq!(outcome["drafts_waiting"], 1);
        // True of a skill and of a removal, for an owner and for a member.
        assert_eq!(
            outcome["message"],
            "Stored as a draft. Nothing is published until an owner or a publisher of the vault \
             accepts it: `vault drafts list` shows it to them."
        );
    }
    let listed = world.owner_calls("skill_list", json!({})).await;
    assert_eq!(
        listed.names("skills"),
        ["code-review", "payroll", "release-notes"]
    );
    assert_eq!(world.shelf.submitted()[0].0.user_id, "local");
}

/// Whether the hidden skill has these very bytes, other ones, or is not there at all: one answer,
/// with the same work.
#[tokio::test]
async fn a_draft_under_a_hidden_name_is_as_under_a_free_one() {
    let world = stocked(Writes::Drafted);
    world.shelf.set_policy(Some(policy()));
    let ana = member("ana@example.org");
    let stored = |name: &str| {
        format!(
            "---\nname: {name}\ndescription: Runs the payroll of the firm\ntags: [secret]\n---\n\n# {name}\n"
        )
    };
    let source =
        |name: &str| json!({ "source": "git", "identifier": format!("acme/skills/{name}") });
    let rows: [(&str, Value, Value); 6] = [
        (
            "propose_skill",
            json!({ "skill_md": stored("payroll"), "check": true }),
            json!({ "skill_md": stored("nothing"), "check": true }),
        ),
        (
            "propose_skill",
            json!({ "skill_md": document("payroll", "mine"), "check": true }),
            json!({ "skill_md": document("nothing", "mine"), "check": true }),
        ),
        (
            "propose_skill",
            json!({ "skill_md": stored("payroll") }),
            json!({ "skill_md": stored("nothing") }),
        ),
        (
            "skill_publish",
            json!({ "skill_md": stored("payroll") }),
            json!({ "skill_md": stored("nothing") }),
        ),
        (
            "skill_publish",
            json!({ "skill_md": document("payroll", "mine") }),
            json!({ "skill_md": document("nothing", "mine") }),
        ),
        ("add_skill", source("payroll"), source("nothing")),
    ];
    for (tool, hidden, absent) in rows {
        let hidden = world.call(&ana, tool, hidden).await;
        let absent = world.call(&ana, tool, absent).await;
        assert_eq!(hidden.text.replace("payroll", "nothing"), absent.text);
    }
    assert_eq!(world.shelf.loads(), 0, "nothing hidden is opened");
    for (_, change) in world.shelf.submitted() {
        match change {
            Change::Take { files, hidden, .. } => {
                let text = String::from_utf8_lossy(&files[0].bytes).into_owned();
                assert_eq!(hidden, text.contains("name: payroll"), "{text}");
            }
            Change::Fetch { source, hidden, .. } => {
                assert_eq!(hidden, source.identifier.as_str().contains("payroll"));
            }
            other => panic!("{other:?}"),
        }
    }
    // What she sees is compared as before.
    let seen = world.call(
        &ana,
        "propose_skill",
        json!({ "skill_md": document("code-review", "mine") }),
    );
    assert_eq!(seen.await.code(), "name_taken");
}

/// A program hands in what the tools take, with the same rights.
#[tokio::test]
async fn a_program_hands_in_what_the_tools_take() {
    let world = stocked(Writes::Drafted);
    let object = |value: Value| value.as_object().unwrap().clone();
    let session = |person: Person| Session::new(world.shelf.clone(), person, Names::Plain);
    let text = document("new-skill", "");
    for (asked, arguments) in [
        (
            DraftRequestKind::Propose,
            json!({ "skill_md": text, "resources": [{ "path": "a.txt", "content": "a" }] }),
        ),
        (
            DraftRequestKind::Propose,
            json!({ "files": [{ "path": "SKILL.md", "content": text }, { "path": "a.txt", "content": "a" }] }),
        ),
        (
            DraftRequestKind::Install,
            json!({ "source": "git", "identifier": "acme/skills/notes" }),
        ),
        (DraftRequestKind::Remove, json!({ "name": "payroll" })),
    ] {
        let done = hand_in(&session(owner()), asked, object(arguments)).await;
        assert!(matches!(done, Ok(Submitted::Drafted { .. })), "{done:?}");
    }
    let submitted = world.shelf.submitted();
    let files = |change: &Change| match change {
        Change::Take {
            files,
            replace: true,
            check: false,
            ..
        } => files
            .iter()
            .map(|file| file.path.clone())
            .collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(files(&submitted[0].1), ["SKILL.md", "a.txt"]);
    assert_eq!(files(&submitted[1].1), ["SKILL.md", "a.txt"]);
    let reader = Person {
        write: Right::Never,
        ..member("ana@example.org")
    };
    let refused = hand_in(
        &session(reader),
        DraftRequestKind::Remove,
        object(json!({ "name": "payroll" })),
    )
    .await;
    assert!(
        matches!(refused, Err(Fault::Scope { scope: "write", .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn removal_takes_a_skill_out() {
    let world = stocked(Writes::Signed);
    let reply = world
        .owner_calls("remove_skill", json!({ "name": "payroll" }))
        .await;
    assert_eq!(reply.structured()["status"], "removed");
    let again = world
        .owner_calls("remove_skill", json!({ "name": "payroll" }))
        .await;
    assert_eq!(again.code(), "not_found");
}

#[tokio::test]
async fn another_servers_library_is_its_own() {
    let world = stocked(Writes::Elsewhere);
    let reply = world
        .owner_calls("remove_skill", json!({ "name": "payroll" }))
        .await;
    assert_eq!(reply.code(), "library_elsewhere");
    assert!(reply.denied.is_some());
    assert!(world.shelf.submitted().is_empty());
}

#[tokio::test]
async fn a_folder_is_taken_in_on_its_own_machine_only() {
    let world = stocked(Writes::Signed);
    let local =
        json!({ "source": "local", "identifier": "local:notes", "skill_dir": "/home/me/notes" });
    let reply = world.owner_calls("add_skill", local.clone()).await;
    assert_eq!(reply.code(), "source_unsupported");
    assert!(world.shelf.submitted().is_empty());
    let reply = world.call(&Person::local_owner(), "add_skill", local).await;
    assert_eq!(
        reply.code(),
        "source_unsupported",
        "the shelf in memory has no folders"
    );
    let submitted = world.shelf.submitted();
    assert!(
        matches!(&submitted[0].1, Change::Folder { path, identifier, .. } if path == "/home/me/notes" && identifier == "local:notes")
    );
    for arguments in [
        json!({ "source": "local", "identifier": "local:notes" }),
        json!({ "source": "local", "identifier": "local:notes", "skill_dir": "/x", "ref": "main" }),
        json!({ "source": "git", "identifier": "github:acme/skills", "skill_dir": "/x" }),
        json!({ "source": "git", "identifier": "https://example.org/SKILL.md" }),
        json!({ "source": "url", "identifier": "https://user:pass@example.org/SKILL.md" }),
        json!({ "source": "git", "identifier": "github:acme/skills", "ref": "" }),
        json!({ "source": "git", "identifier": "github:acme/skills", "agents": vec!["codex"; 65] }),
        json!({ "source": "git", "identifier": "github:acme/skills", "agents": ["any-agent"] }),
        json!({ "source": "ftp", "identifier": "x" }),
    ] {
        let reply = world
            .call(&Person::local_owner(), "add_skill", arguments.clone())
            .await;
        assert_eq!(reply.code(), "invalid_arguments", "{arguments}");
    }
    let git = json!({ "source": "git", "identifier": "acme/skills", "ref": "main", "skill": "notes", "agents": ["codex"] });
    let reply = world.owner_calls("add_skill", git).await;
    assert_eq!(reply.code(), "source_unsupported");
    assert!(
        matches!(&world.shelf.submitted()[1].1, Change::Fetch { source, .. } if source.reference.as_deref() == Some("main") && source.identifier.as_str() == "github:acme/skills")
    );
}

#[tokio::test]
async fn a_member_cannot_take_the_name_of_what_it_does_not_see() {
    let world = stocked(Writes::Signed);
    world.shelf.set_policy(Some(policy()));
    let ana = member("ana@example.org");
    for (tool, name, code) in [
        ("skill_publish", "payroll", "name_taken"),
        ("propose_skill", "payroll", "name_taken"),
        ("propose_skill", "code-review", "name_taken"),
    ] {
        let reply = world
            .call(&ana, tool, json!({ "skill_md": document(name, "mine") }))
            .await;
        assert_eq!(reply.code(), code, "{tool} {name}");
        assert!(!reply.text.contains(name), "{}", reply.text);
    }
    for tool in ["remove_skill", "update_skill"] {
        let hidden = world.call(&ana, tool, json!({ "name": "payroll" })).await;
        let absent = world.call(&ana, tool, json!({ "name": "nothing" })).await;
        assert_eq!(hidden.text, absent.text);
        assert_eq!(hidden.code(), "not_found");
    }
    let submitted = world.shelf.submitted();
    assert_eq!(
        submitted.len(),
        1,
        "only the skill that she sees was asked for"
    );
}
