//! Changes of a member that wait as drafts, through the built binary: what an owner accepts reaches the machines, and nothing before.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use vault_tests::browser::{self, Browser};
use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER, Person};
use vault_tests::place;
use vault_tests::server::{Database, Server};

use crate::people::PASSWORD;
use crate::support::{self, SLUG, block_on, pulled, text};

const BOB: &str = "bob@example.com";
const DEFAULT: &str = "default";

/// Sends JSON with the token of a home's sign-in; status and answer.
fn ask(
    server: &Server,
    home: &Home,
    slug: &str,
    (method, path): (Method, &str),
    body: &Value,
) -> (StatusCode, Value) {
    let token = home.access_token(&server.url, slug);
    block_on(async {
        let url = format!("{}{path}", server.url);
        let request = browser::client().request(method, url).bearer_auth(token);
        let request = request
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.to_string());
        let answer = request.send().await.unwrap();
        let status = answer.status();
        (status, answer.json().await.unwrap())
    })
}

/// Calls a tool over MCP; its structured result.
fn call(server: &Server, home: &Home, slug: &str, tool: &str, arguments: &Value) -> Value {
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": arguments },
    });
    let (status, answer) = ask(server, home, slug, (Method::POST, "/mcp"), &message);
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["result"]["structuredContent"].clone()
}

/// What a step on a draft answers the owner.
fn step(server: &Server, owner: &Home, slug: &str, id: &str, (word, body): (&str, Value)) -> Value {
    let path = format!("/admin/vaults/{slug}/drafts/{id}/{word}");
    let (status, answer) = ask(server, owner, slug, (Method::POST, &path), &body);
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

fn document(name: &str, body: &str) -> Value {
    let text = format!(
        "---\nname: {name}\ndescription: Does the work of {name} for whoever asks.\n---\n{body}\n"
    );
    json!({ "skill_md": text })
}

/// Connects a home as the first owner to a vault that is there.
fn owner_of(server: &Server, slug: &str) -> Home {
    let home = Home::new();
    let connect = format!("cloud connect {}/v/{slug} --json", server.url);
    home.sign_in(&connect, OWNER, Answer::Pasted).data();
    home
}

/// Invites BOB as a member who may write, who accepts and connects.
fn member_of(server: &Server, owner: &Home, slug: &str) -> Home {
    owner.json(&format!(
        "users invite {BOB} --role member --scopes read,write"
    ));
    let account = format!("operator --url {} account invite {BOB} --json", server.url);
    let link = owner.sign_in(&account, OWNER, Answer::Pasted).data();
    let link = text(&link["invite_url"]);
    let accepted = block_on(Browser::new().accept_invitation(&link, PASSWORD));
    assert_eq!(accepted, StatusCode::OK);
    let home = Home::new();
    let person = Person {
        email: BOB,
        password: PASSWORD,
        scopes: &["read", "write"],
    };
    let connect = format!("cloud connect {}/v/{slug} --json", server.url);
    home.sign_in(&connect, person, Answer::Pasted).data();
    home
}

/// With a server of the test's own, on each database.
fn on_both(test: impl Fn(&Database)) {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    test(&Database::Sqlite);
    support::on_postgres(&test);
}

/// The server's own vault: a member's change is signed when an owner accepts it, and the answer says which release has it.
#[test]
fn a_member_s_change_of_the_server_s_vault_waits_for_an_owner() {
    on_both(|database| {
        let server = Server::start(database);
        let owner = owner_of(&server, DEFAULT);
        let bob = member_of(&server, &owner, DEFAULT);
        let signed = call(
            &server,
            &owner,
            DEFAULT,
            "skill_publish",
            &document("review", "One."),
        );
        assert_eq!(signed["status"], "accepted", "{signed}");

        let drafted = call(
            &server,
            &bob,
            DEFAULT,
            "skill_publish",
            &document("notes", "One."),
        );
        assert_eq!(drafted["status"], "drafted", "{drafted}");
        assert_eq!(drafted["drafts_waiting"], 1);
        // What he may not see, he neither finds out about nor replaces.
        let hidden = call(
            &server,
            &bob,
            DEFAULT,
            "propose_skill",
            &document("review", "Mine."),
        );
        assert_eq!(hidden["status"], "drafted", "{hidden}");
        let names = || {
            let listed = call(&server, &owner, DEFAULT, "skill_list", &json!({}));
            let skills = listed["skills"].as_array().unwrap().clone();
            skills
                .iter()
                .map(|skill| text(&skill["name"]))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(), ["review"]);

        let id = text(&drafted["draft_id"]);
        let accepted = step(&server, &owner, DEFAULT, &id, ("accepted", json!({})));
        assert_eq!(accepted["state"], "accepted", "{accepted}");
        assert_eq!(accepted["submitted_by"]["email"], BOB);
        assert_eq!(names(), ["notes", "review"]);
        let release = format!("/admin/vaults/{DEFAULT}/releases/{}", accepted["release"]);
        let (status, shown) = ask(
            &server,
            &owner,
            DEFAULT,
            (Method::GET, &release),
            &Value::Null,
        );
        assert_eq!(status, StatusCode::OK, "{shown}");
        assert_eq!(shown["by"], "server");

        // A machine has it from that release.
        let machine = Home::new();
        let linked = machine.json(&format!("link {}/v/{DEFAULT}", server.url));
        let device = text(&linked["device_id"]);
        owner.json(&format!("devices admit {device}"));
        machine.json("cloud pull");
        assert!(pulled(&machine).contains_key("notes"));

        // The other one would replace what he did not see: the owner says no.
        let id = text(&hidden["draft_id"]);
        let path = format!("/admin/vaults/{DEFAULT}/drafts/{id}/accepted");
        let (status, refused) = ask(&server, &owner, DEFAULT, (Method::POST, &path), &json!({}));
        assert_eq!(
            (status, &refused["code"]),
            (StatusCode::CONFLICT, &json!("draft_base"))
        );
        let declined = step(
            &server,
            &owner,
            DEFAULT,
            &id,
            ("declined", json!({ "reason": "There is one." })),
        );
        assert_eq!(declined["state"], "declined");
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
            "draft.accept draft_base",
            "draft.decline done",
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
    let owner = owner_of(&server, DEFAULT);
    let bob = member_of(&server, &owner, DEFAULT);
    let signed = call(
        &server,
        &bob,
        DEFAULT,
        "skill_publish",
        &document("notes", "One."),
    );
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
        let bob = member_of(&server, &owner, SLUG);
        let drafted = call(
            &server,
            &bob,
            SLUG,
            "skill_publish",
            &document("notes", "One."),
        );
        assert_eq!(drafted["status"], "drafted", "{drafted}");
        let id = text(&drafted["draft_id"]);
        let path = format!("/admin/vaults/{SLUG}/drafts");
        let (_, listed) = ask(&server, &owner, SLUG, (Method::GET, &path), &Value::Null);
        assert_eq!(listed["items"][0]["id"], id.as_str());
        let one = format!("{path}/{id}");
        let (_, bytes) = ask(&server, &owner, SLUG, (Method::GET, &one), &Value::Null);
        assert_eq!(bytes["files"][0]["path"], "SKILL.md");

        owner.add("notes", "One.").ok();
        let synced = owner.json("sync --cloud");
        let release = synced["release"].as_u64().unwrap();
        let accepted = step(
            &server,
            &owner,
            SLUG,
            &id,
            ("accepted", json!({ "release": release })),
        );
        assert_eq!(
            (&accepted["state"], &accepted["release"]),
            (&json!("accepted"), &json!(release))
        );
        let (_, mine) = ask(
            &server,
            &bob,
            SLUG,
            (Method::GET, &format!("{path}?state=all")),
            &Value::Null,
        );
        assert_eq!(mine["items"][0]["state"], "accepted");
        assert_eq!(mine["items"][0]["submitted_by"]["email"], Value::Null);
    });
}
