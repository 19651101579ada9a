//! `VAULT_MCP_WRITES=draft`: what an agent changes over standard input and output waits until its
//! owner accepts it with `vault drafts`.

use serde_json::{Value, json};

use crate::support::agent::Agent;
use crate::support::{Home, files_below, set_mode};

fn document(body: &str) -> String {
    format!(
        "---\nname: greeting\ndescription: Greets whoever asks in a friendly way\n---\n\n{body}\n"
    )
}

/// Calls a tool as an agent whose changes wait. Returns the structured answer.
fn call(home: &Home, tool: &str, arguments: &Value) -> Value {
    let mut command = home.vault(&["mcp"]);
    command.env("VAULT_MCP_WRITES", "draft");
    let mut agent = Agent::start(command);
    agent.greet();
    let answer = agent.call(tool, arguments)["structuredContent"].clone();
    assert_eq!(agent.end().1, Some(0));
    answer
}

fn propose(home: &Home, body: &str) -> String {
    let answer = call(
        home,
        "skill_publish",
        &json!({ "skill_md": document(body) }),
    );
    assert_eq!(answer["status"], "drafted", "{answer}");
    answer["draft_id"].as_str().unwrap().to_owned()
}

fn names(home: &Home) -> Vec<String> {
    let listed = home.run(&["list"]).ok();
    let listed = listed["skills"].as_array().unwrap().clone();
    let name = |skill: &Value| skill["name"].as_str().unwrap().to_owned();
    listed.iter().map(name).collect()
}

/// Accepts exactly what `drafts show` shows.
fn accept(home: &Home, id: &str) -> Value {
    let shown = home.run(&["drafts", "show", id]).ok();
    let digest = shown["bundle"].as_str().unwrap().to_owned();
    home.run(&["drafts", "accept", id, "--bundle", &digest])
        .ok()
}

#[test]
fn a_change_waits_until_exactly_what_was_shown_is_accepted() {
    let home = Home::new();
    let id = propose(&home, "Say hello.");
    assert!(names(&home).is_empty());
    let listed = home.run(&["drafts", "list"]).ok();
    assert_eq!(listed[0]["id"], id.as_str());
    assert_eq!(listed[0]["kind"], "propose");
    home.run(&["drafts", "accept", &id, "--yes"])
        .fails(3, "review_needed");
    let other = "0".repeat(64);
    home.run(&["drafts", "accept", &id, "--bundle", &other])
        .fails(3, "review_needed");
    assert!(names(&home).is_empty());
    let accepted = accept(&home, &id);
    assert_eq!(accepted["accepted"][0], id.as_str());
    assert_eq!(names(&home), ["greeting"]);
    let got = call(&home, "skill_list", &json!({}));
    assert!(got.to_string().contains("greeting"), "{got}");
    home.run(&["drafts", "show", &id]).fails(2, "not_connected");
}

#[test]
fn a_draft_conflicts_when_the_skill_has_changed_meanwhile() {
    let home = Home::new();
    accept(&home, &propose(&home, "Say hello."));
    let (first, second) = (propose(&home, "Say hi."), propose(&home, "Say good day."));
    accept(&home, &first);
    let shown = home.run(&["drafts", "show", &second]).ok();
    let digest = shown["bundle"].as_str().unwrap();
    let accepts = ["drafts", "accept", &second, "--bundle", digest];
    home.run(&accepts).fails(3, "draft_outdated");
    let mut anyway = accepts.to_vec();
    anyway.push("--anyway");
    home.run(&anyway).ok();
    let removed = call(&home, "remove_skill", &json!({ "name": "greeting" }));
    assert_eq!(removed["status"], "drafted", "{removed}");
    assert_eq!(names(&home), ["greeting"]);
    accept(&home, removed["draft_id"].as_str().unwrap());
    assert!(names(&home).is_empty());
}

#[test]
fn a_draft_that_a_crash_left_behind_is_closed_without_another_signature() {
    let home = Home::new();
    let id = propose(&home, "Say hello.");
    let trust = home.path(".config/vault/vaults");
    let file = files_below(&trust)
        .into_iter()
        .find(|file| file.ends_with(&id))
        .unwrap();
    let bytes = std::fs::read(&file).unwrap();
    accept(&home, &id);
    // As if the command had been killed after it signed and before it removed the draft.
    std::fs::write(&file, bytes).unwrap();
    set_mode(&file, 0o600);
    let shown = home.run(&["drafts", "show", &id]).ok();
    assert_eq!(shown["taken"], true);
    home.run(&["drafts", "accept", &id]).ok();
    assert!(!file.exists());
    let listed = home.run(&["list"]).ok();
    assert_eq!(listed["skills"][0]["version"], 1, "{listed}");
}

#[test]
fn a_declined_draft_is_gone_and_signs_nothing() {
    let home = Home::new();
    let id = propose(&home, "Say hello.");
    let declined = home
        .run(&["drafts", "decline", &id, "--reason", "We have one."])
        .ok();
    assert_eq!(declined["state"], "declined");
    let id = propose(&home, "Say hello.");
    assert_eq!(
        home.run(&["drafts", "withdraw", &id]).ok()["state"],
        "withdrawn"
    );
    assert!(names(&home).is_empty());
    home.run(&["drafts", "list"]).fails(2, "not_connected");
}

#[test]
fn a_folder_is_read_again_when_its_draft_is_reviewed() {
    let home = Home::new();
    let folder = home.skill("notes", "Takes notes of a meeting for whoever asks.");
    let arguments = json!({
        "source": "local", "identifier": "local:notes", "skill_dir": folder.display().to_string(),
    });
    let drafted = call(&home, "add_skill", &arguments);
    assert_eq!(drafted["status"], "drafted", "{drafted}");
    let id = drafted["draft_id"].as_str().unwrap();
    let before = home.run(&["drafts", "show", id]).ok();
    home.write("notes/more.md", "More.\n");
    let digest = before["bundle"].as_str().unwrap();
    home.run(&["drafts", "accept", id, "--bundle", digest])
        .fails(3, "review_needed");
    assert!(names(&home).is_empty());
    accept(&home, id);
    assert_eq!(names(&home), ["notes"]);
}

#[test]
fn an_unknown_value_is_refused_at_the_start() {
    let home = Home::new();
    let mut command = home.vault(&["mcp"]);
    let output = command.env("VAULT_MCP_WRITES", "ask").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("VAULT_MCP_WRITES"), "{told}");
}

#[test]
fn mcp_install_writes_the_choice_into_the_entry() {
    let home = Home::new();
    std::fs::create_dir_all(home.path(".cursor")).unwrap();
    let added = home
        .run(&["mcp", "install", "--agent", "cursor", "--writes", "draft"])
        .ok();
    assert_eq!(
        added[0]["entry"]["env"]["VAULT_MCP_WRITES"], "draft",
        "{added}"
    );
    home.run(&["mcp", "install", "--agent", "cursor", "--writes", "never"])
        .fails(2, "usage");
}
