//! Changes of a member that wait as drafts, through the built binary: what an owner accepts reaches
//! the machines, and nothing before.

use serde_json::{Value, json};
use vault_tests::app::App;
use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER, Person};
use vault_tests::place;
use vault_tests::server::{Database, Server};

use crate::people::{PASSWORD, accept_account};
use crate::support::{self, SLUG, block_on, pulled, text};

const DEFAULT: &str = "default";
const BOB: Person<'static> = Person {
    email: "bob@example.com",
    password: PASSWORD,
    scopes: &["read", "write"],
};

/// Calls a tool over MCP as an app of this person; its structured result.
fn call(server: &Server, person: Person<'_>, tool: &str, arguments: &Value) -> Value {
    block_on(async {
        let app = App::sign_in(&server.url, person).await;
        app.call(tool, arguments).await
    })
}

fn publish(server: &Server, person: Person<'_>, name: &str, body: &str) -> Value {
    let text = format!(
        "---\nname: {name}\ndescription: Does the work of {name} for whoever asks.\n---\n{body}\n"
    );
    call(
        server,
        person,
        "skill_publish",
        &json!({ "skill_md": text }),
    )
}

/// Connects a home to a vault that is there.
fn home_of(server: &Server, person: Person<'_>, slug: &str) -> Home {
    let home = Home::new();
    let connect = format!("cloud connect {}/v/{slug} --json", server.url);
    home.sign_in(&connect, person, Answer::Pasted).data();
    home
}

/// Invites BOB as a member who may write, who accepts and connects.
fn member_of(server: &Server, owner: &Home, slug: &str) -> Home {
    let email = BOB.email;
    owner.json(&format!("users invite {email} --scopes read,write"));
    let account = format!(
        "operator --url {} account invite {email} --json",
        server.url
    );
    let invited = owner.sign_in(&account, OWNER, Answer::Pasted).data();
    accept_account(&text(&invited["invite_url"]));
    home_of(server, BOB, slug)
}

/// With a server of the test's own, on each database.
fn on_both(test: impl Fn(&Database)) {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    test(&Database::Sqlite);
    support::on_postgres(&test);
}

/// The server's own vault: a member's change is signed when an owner accepts it, and the answer
/// says which release has it.
#[test]
fn a_member_s_change_of_the_server_s_vault_waits_for_an_owner() {
    on_both(|database| {
        let server = Server::start(database);
        let owner = home_of(&server, OWNER, DEFAULT);
        let bob = member_of(&server, &owner, DEFAULT);
        let signed = publish(&server, OWNER, "review", "One.");
        assert_eq!(signed["status"], "accepted", "{signed}");

        let drafted = publish(&server, BOB, "notes", "One.");
        assert_eq!(drafted["status"], "drafted", "{drafted}");
        assert_eq!(drafted["drafts_waiting"], 1);
        // What he may not see, he neither finds out about nor replaces.
        let hidden = publish(&server, BOB, "review", "Mine.");
        assert_eq!(hidden["status"], "drafted", "{hidden}");
        let names = || {
            let listed = call(&server, OWNER, "skill_list", &json!({}));
            let skills = listed["skills"].as_array().unwrap().clone();
            skills
                .iter()
                .map(|skill| text(&skill["name"]))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(), ["review"]);

        let id = text(&drafted["draft_id"]);
        let shown = owner.run(&format!("drafts show {id}")).ok().stdout;
        assert!(shown.contains("+ One."), "{shown}");
        // A member decides on nothing.
        bob.fails(
            &format!("drafts accept {id} --yes"),
            4,
            "publisher_required",
        );
        let accepted = owner.reviewed(&format!("drafts accept {id} --yes"));
        assert_eq!(names(), ["notes", "review"]);
        let mine = bob.json("drafts list --all");
        assert_eq!(mine[0]["state"], "accepted", "{mine}");
        assert_eq!(mine[0]["release"], accepted["release"], "{mine}");
        assert_eq!(mine[0]["submitted_by"]["email"], Value::Null);

        // A machine has it from that release.
        let machine = Home::new();
        let linked = machine.json(&format!("link {}/v/{DEFAULT}", server.url));
        let device = text(&linked["device_id"]);
        owner.json(&format!("devices admit {device}"));
        machine.json("cloud pull");
        assert!(pulled(&machine).contains_key("notes"));

        // The other one would replace what its author did not see.
        let id = text(&hidden["draft_id"]);
        owner.fails(&format!("drafts accept {id} --yes"), 3, "draft_outdated");
        owner.json(&["drafts", "decline", &id, "--reason", "There is one."]);
        let mine = bob.json("drafts list --all");
        assert_eq!(mine[1]["reason"], "There is one.", "{mine}");
        let again = publish(&server, BOB, "review", "Mine.");
        let id = text(&again["draft_id"]);
        let shown = owner.run(&format!("drafts show {id}")).ok().stdout;
        assert!(
            shown.contains("- One.") && shown.contains("+ Mine."),
            "{shown}"
        );
        owner.reviewed(&format!("drafts accept {id} --anyway --yes"));
        machine.json("cloud pull");
        assert!(
            pulled(&machine)["review"]["SKILL.md"]
                .1
                .ends_with(b"Mine.\n")
        );
        let log = owner.json("audit-log --action draft");
        let steps: Vec<_> = log
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| format!("{} {}", text(&entry["action"]), text(&entry["outcome"])))
            .collect();
        let wanted = [
            "draft.create done",
            "draft.create done",
            "draft.accept done",
            "draft.decline done",
            "draft.create done",
            "draft.accept done",
        ];
        assert_eq!(steps, wanted);
    });
}

/// A server that was told to sign for members, as before.
#[test]
fn a_server_may_sign_for_members() {
    if place::leaves_out("", "a setting of a server of the test's own") {
        return;
    }
    let server = Server::start_with(&Database::Sqlite, &[("VAULT_MEMBER_WRITES", "sign")]);
    let owner = home_of(&server, OWNER, DEFAULT);
    member_of(&server, &owner, DEFAULT);
    let signed = publish(&server, BOB, "notes", "One.");
    assert_eq!(signed["status"], "accepted", "{signed}");
}

/// A hosted vault: the owner's machine signs, and says which release has the draft.
#[test]
fn a_member_s_change_of_a_hosted_vault_waits_for_a_release() {
    on_both(|database| {
        let server = Server::start(database);
        let owner = Home::new();
        owner.add("alpha", "One.").ok();
        support::connect(&server, &owner, SLUG);
        owner.json("sync --cloud");
        let agent = owner.path().join(".claude/skills");
        std::fs::create_dir_all(&agent).unwrap();
        owner.json("sync-profiles --discover");
        let bob = member_of(&server, &owner, SLUG);
        let drafted = publish(&server, BOB, "notes", "One.");
        assert_eq!(drafted["status"], "drafted", "{drafted}");
        let id = text(&drafted["draft_id"]);
        owner.reviewed(&format!("drafts accept {id} --yes"));
        assert!(agent.join("notes/SKILL.md").is_file(), "agents see it");
        let mine = bob.json("drafts list --all");
        assert_eq!(
            (&mine[0]["state"], &mine[0]["release"]),
            (&json!("accepted"), &json!(2)),
            "{mine}"
        );
    });
}

/// The owner of a published vault, BOB as its second publisher, who has taken the skills over, and
/// the file of the recovery key.
pub fn two_publishers(server: &Server) -> (Home, Home, String) {
    let owner = Home::new();
    owner.add("alpha", "One.").ok();
    let stick = owner.path().join("vault.recovery");
    let stick = stick.to_str().unwrap().to_owned();
    owner.json(&["key", "recovery", "create", &stick, "--yes"]);
    support::connect(server, &owner, SLUG);
    owner.json("sync --cloud");
    member_of(server, &owner, SLUG);
    let bob = Home::new();
    support::link(server, &owner, &bob, SLUG);
    let request = format!(
        "publishers request {}/v/{SLUG} --name bob --json",
        server.url
    );
    let requested = bob.sign_in(&request, BOB, Answer::Pasted).data();
    let key = text(&requested["fingerprint"]);
    owner.json(&["publishers", "add", &key, "--root-key", &stick, "--yes"]);
    bob.reviewed("sync --cloud");
    (owner, bob, stick)
}

/// Where a release needs two signatures, a draft is accepted once its release is out.
#[test]
fn a_draft_whose_release_was_completed_by_another_publisher_is_closed_by_the_next_sync() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, bob, stick) = two_publishers(&server);
    let stick = &*stick;
    owner.json(&["publishers", "threshold", "2", "--root-key", stick, "--yes"]);

    let id = text(&publish(&server, BOB, "notes", "One.")["draft_id"]);
    let accepted = owner.reviewed(&format!("drafts accept {id}"));
    assert_eq!(accepted["waiting_for_signatures"], true, "{accepted}");
    bob.reviewed(&format!("release sign {}", text(&accepted["proposed"])));
    let state = || {
        let drafts = owner.json("drafts list --all");
        let mut drafts = drafts.as_array().unwrap().iter();
        drafts.find(|draft| draft["id"] == json!(id)).unwrap()["state"].clone()
    };
    assert_eq!(state(), "pending");
    owner.json("sync --cloud");
    assert_eq!(state(), "accepted");
}
