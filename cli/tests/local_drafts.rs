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
    // Without a service, the list is that of this machine.
    assert_eq!(home.run(&["drafts", "list"]).ok(), json!([]));
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

/// Calls a tool in a folder, as an agent whose changes wait.
fn call_in(home: &Home, folder: &str, arguments: &Value) -> Value {
    let mut command = home.vault(&["mcp"]);
    command.env("VAULT_MCP_WRITES", "draft");
    command.current_dir(home.path(folder));
    let mut agent = Agent::start(command);
    agent.greet();
    let answer = agent.call("add_skill", arguments);
    assert_eq!(agent.end().1, Some(0));
    answer
}

#[test]
fn a_folder_draft_is_about_the_skill_that_the_agent_named() {
    let home = Home::new();
    home.skill("work/notes", "Takes notes of a meeting for whoever asks.");
    home.skill("notes", "Another skill of this name, where the owner is.");
    let arguments = |skill: &str| {
        json!({
            "source": "local", "identifier": "local:notes", "skill_dir": "./notes", "skill": skill,
        })
    };
    let other = call_in(&home, "work", &arguments("csv"));
    assert!(
        other.to_string().contains("is the skill notes, not csv"),
        "{other}"
    );
    let drafted = call_in(&home, "work", &arguments("notes"));
    let drafted = drafted["structuredContent"].clone();
    let id = drafted["draft_id"].as_str().unwrap().to_owned();
    // The agent's folder, and not the one of that name where the owner reviews the draft.
    let shown = home.run(&["drafts", "show", &id]).ok().to_string();
    assert!(shown.contains("work/notes"), "{shown}");
    assert!(shown.contains("Takes notes of a meeting"), "{shown}");
    // Another skill is written into the folder before the review.
    let text = home.read("work/notes/SKILL.md");
    home.write(
        "work/notes/SKILL.md",
        text.replace("name: notes", "name: csv"),
    );
    let outdated = home
        .run(&["drafts", "show", &id])
        .fails(3, "draft_outdated");
    assert!(
        outdated["message"].to_string().contains("csv"),
        "{outdated}"
    );
    home.write("work/notes/SKILL.md", text);
    accept(&home, &id);
    assert_eq!(names(&home), ["notes"]);
}

#[test]
fn a_mode_that_changed_is_a_change_of_a_folder() {
    let home = Home::new();
    let folder = home.skill("notes", "Takes notes of a meeting for whoever asks.");
    let script = home.write("notes/run.sh", "#!/bin/sh\necho hi\n");
    home.run(&["add", folder.to_str().unwrap()]).ok();
    set_mode(&script, 0o755);
    let arguments = json!({
        "source": "local", "identifier": "local:notes", "skill_dir": folder.display().to_string(),
    });
    let drafted = call(&home, "add_skill", &arguments);
    let id = drafted["draft_id"].as_str().unwrap();
    let shown = home.run(&["drafts", "show", id]).ok();
    assert_eq!(shown["taken"], false, "{shown}");
    accept(&home, id);
    let listed = home.run(&["list"]).ok();
    assert_eq!(listed["skills"][0]["version"], 2, "{listed}");
}

#[test]
fn a_review_names_the_agents_that_a_draft_adds() {
    let home = Home::new();
    let folder = home.skill("notes", "Takes notes of a meeting for whoever asks.");
    home.run(&["add", folder.to_str().unwrap(), "--agent", "codex"])
        .ok();
    let arguments = json!({
        "source": "local", "identifier": "local:notes", "skill_dir": folder.display().to_string(),
    });
    let drafted = call(&home, "add_skill", &arguments);
    let id = drafted["draft_id"].as_str().unwrap();
    let shown = home.run(&["drafts", "show", id]).ok();
    let review = shown["review"].to_string();
    assert!(
        review.contains("it was for codex, and will be for all agents"),
        "{shown}"
    );
}

#[test]
fn a_review_names_the_source_that_a_draft_replaces() {
    let home = Home::new();
    let folder = home.skill("greeting", "Greets whoever asks in a friendly way");
    home.run(&["add", folder.to_str().unwrap()]).ok();
    let id = propose(&home, "Say hello.");
    let shown = home.run(&["drafts", "show", &id]).ok()["review"].to_string();
    assert!(
        shown.contains("it replaces the skill from local:greeting"),
        "{shown}"
    );
}

/// The digest stands for the agents too: what was read for one agent is not accepted for others.
#[test]
fn a_digest_covers_the_agents_that_a_draft_is_for() {
    let home = Home::new();
    let folder = home.skill("notes", "Takes notes of a meeting for whoever asks.");
    let add = |agent: &str| {
        let folder = folder.to_str().unwrap();
        home.run(&["add", folder, "--agent", agent, "--replace"])
            .ok();
    };
    add("codex");
    let document = std::fs::read_to_string(folder.join("SKILL.md")).unwrap();
    home.write("notes/more.md", "More.\n");
    let drafted = call(&home, "update_skill", &json!({ "name": "notes" }));
    let id = drafted["draft_id"].as_str().unwrap();
    let shown = home.run(&["drafts", "show", id]).ok();
    let digest = shown["bundle"].as_str().unwrap().to_owned();
    // The same skill is for another agent by now, and so would be the update.
    std::fs::remove_file(folder.join("more.md")).unwrap();
    home.run(&["remove", "notes", "--yes"]).ok();
    home.write("notes/SKILL.md", &document);
    add("cursor");
    home.write("notes/more.md", "More.\n");
    let accepts = ["drafts", "accept", id, "--anyway", "--bundle", &digest];
    home.run(&accepts).fails(3, "review_needed");
    let listed = home.run(&["list"]).ok();
    let version = listed["skills"][0]["version"].as_u64().unwrap();
    let again = home.run(&["drafts", "show", id]).ok();
    let digest = again["bundle"].as_str().unwrap();
    let accepts = ["drafts", "accept", id, "--anyway", "--bundle", digest];
    home.run(&accepts).ok();
    let listed = home.run(&["list"]).ok();
    assert_eq!(listed["skills"][0]["version"], version + 1);
}

#[test]
fn a_digest_covers_the_version_that_a_draft_replaces_and_a_hold() {
    let home = Home::new();
    accept(&home, &propose(&home, "Say hello."));
    accept(&home, &propose(&home, "Say hi."));
    let id = propose(&home, "Say good day.");
    let digest_of = || {
        let shown = home.run(&["drafts", "show", &id]).ok();
        shown["bundle"].as_str().unwrap().to_owned()
    };
    let digest = digest_of();
    // The owner goes back and holds the skill there, which nobody saw in that review.
    home.run(&["rollback", "greeting", "--yes"]).ok();
    let accepts = ["drafts", "accept", &id, "--anyway", "--bundle", &digest];
    home.run(&accepts).fails(3, "review_needed");
    let accepts = [
        "drafts",
        "accept",
        &id,
        "--anyway",
        "--bundle",
        &digest_of(),
    ];
    home.run(&accepts).ok();
}

#[test]
fn a_review_says_that_a_draft_ends_a_hold() {
    let home = Home::new();
    accept(&home, &propose(&home, "Say hello."));
    accept(&home, &propose(&home, "Say hi."));
    home.run(&["rollback", "greeting", "--yes"]).ok();
    let id = propose(&home, "Say good day.");
    let shown = home.run(&["drafts", "show", &id]).ok()["review"].to_string();
    assert!(shown.contains("it ends the hold"), "{shown}");
    accept(&home, &id);
    let id = propose(&home, "Say good evening.");
    let shown = home.run(&["drafts", "show", &id]).ok()["review"].to_string();
    assert!(!shown.contains("it ends the hold"), "{shown}");
}

#[test]
fn of_two_answers_at_once_only_one_counts() {
    let home = Home::for_screens("drafts-");
    accept(&home, &propose(&home, "Say hello."));
    let (first, second) = (propose(&home, "Say hi."), propose(&home, "Say good day."));
    for (asked, meanwhile, told) in [
        (
            &first,
            ["drafts", "withdraw", first.as_str()],
            "is decided already",
        ),
        (
            &second,
            ["remove", "greeting", "--yes"],
            "has changed since the draft",
        ),
    ] {
        let line = format!("drafts accept {asked}");
        let Some(mut terminal) = crate::screens::start(home.root(), &line) else {
            return;
        };
        terminal.wait_for("Accept this draft?");
        home.run(&meanwhile).ok();
        terminal.press(&["y", crate::screens::terminal::ENTER]);
        let (screen, code) = terminal.finish();
        assert_ne!(code, 0, "{screen}");
        let screen: Vec<_> = screen.split_whitespace().collect();
        assert!(screen.join(" ").contains(told), "{screen:?}");
    }
    assert!(names(&home).is_empty());
}

#[test]
fn setup_asks_what_becomes_of_changes_of_agents_and_keeps_the_answer() {
    use crate::screens::terminal::{DOWN, ENTER};
    let home = Home::for_screens("writes-");
    std::fs::create_dir_all(home.path(".cursor")).unwrap();
    home.write(
        ".config/vault/config.toml",
        "# mine\nlog_level = \"warn\"\n",
    );
    let Some(mut terminal) = crate::screens::start(home.root(), "setup --no-starters") else {
        return;
    };
    terminal.wait_for("It waits until you accept it with `vault drafts`");
    terminal.answer("What happens when an agent", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    let written = home.read(".config/vault/config.toml");
    assert_eq!(
        written,
        "# mine\nlog_level = \"warn\"\nmcp_writes = \"draft\"\n"
    );
    // No variable: the file decides, and the entries of agents need none.
    let mut agent = Agent::start(home.vault(&["mcp"]));
    agent.greet();
    let arguments = json!({ "skill_md": document("Say hello.") });
    let answer = agent.call("skill_publish", &arguments);
    assert_eq!(answer["structuredContent"]["status"], "drafted", "{answer}");
    agent.end();
    let Some(terminal) = crate::screens::start(home.root(), "mcp install --agent cursor") else {
        return;
    };
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    assert!(!home.read(".cursor/mcp.json").contains("VAULT_MCP_WRITES"));
}

#[test]
fn a_draft_that_cannot_be_read_hides_no_other_and_can_be_removed() {
    let home = Home::new();
    let (broken, good) = (propose(&home, "Say hi."), propose(&home, "Say good day."));
    let files = files_below(&home.path(".config/vault/vaults"));
    let file = files.iter().find(|file| file.ends_with(&broken)).unwrap();
    std::fs::write(file, "{").unwrap();
    let listed = home.run(&["drafts", "list"]);
    let warnings = listed.json["warnings"].to_string();
    assert!(warnings.contains(&broken), "{}", listed.out);
    assert_eq!(listed.ok()[0]["id"], good.as_str());
    home.run(&["drafts", "withdraw", &broken]).ok();
    assert!(!file.exists());
    accept(&home, &good);
    assert_eq!(names(&home), ["greeting"]);
}

#[test]
fn an_update_of_a_folder_waits_and_can_be_accepted() {
    let home = Home::new();
    let folder = home.skill("notes", "Takes notes of a meeting for whoever asks.");
    home.run(&["add", folder.to_str().unwrap()]).ok();
    home.write("notes/more.md", "More.\n");
    let drafted = call(&home, "update_skill", &json!({ "name": "notes" }));
    assert_eq!(drafted["status"], "drafted", "{drafted}");
    accept(&home, drafted["draft_id"].as_str().unwrap());
    let listed = home.run(&["list"]).ok();
    assert_eq!(listed["skills"][0]["version"], 2, "{listed}");
}

#[test]
fn installing_again_keeps_what_becomes_of_changes() {
    let home = Home::new();
    for mark in [".cursor", ".codex"] {
        std::fs::create_dir_all(home.path(mark)).unwrap();
    }
    let install = |flags: &[&str]| {
        let agents = ["mcp", "install", "--agent", "cursor", "--agent", "codex"];
        let changes = home.run(&[&agents[..], flags].concat()).ok();
        let changes = changes.as_array().unwrap().clone();
        changes
            .iter()
            .map(|change| change["entry"]["env"]["VAULT_MCP_WRITES"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(install(&["--writes", "draft"]), ["draft", "draft"]);
    assert_eq!(install(&[]), ["draft", "draft"]);
    assert_eq!(install(&["--writes", "sign"]), ["sign", "sign"]);
}

#[test]
fn mcp_install_asks_on_a_terminal() {
    use crate::screens::terminal::{DOWN, ENTER};
    let home = Home::for_screens("install-");
    std::fs::create_dir_all(home.path(".cursor")).unwrap();
    let Some(mut terminal) = crate::screens::start(home.root(), "mcp install --agent cursor")
    else {
        return;
    };
    terminal.answer("What happens when an agent", &[DOWN, ENTER]);
    let (screen, code) = terminal.finish();
    assert_eq!(code, 0, "{screen}");
    let entry: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    let writes = &entry["mcpServers"]["vault"]["env"]["VAULT_MCP_WRITES"];
    assert_eq!(*writes, "draft", "{entry}");
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
