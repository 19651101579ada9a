//! Runs `vault mcp` as an agent does: it reads and writes only frames, and ends with its input.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::Stdio;

use serde_json::json;

use crate::support::agent::{Agent, greeting};
use crate::support::{Home, make_fifo};

fn start(home: &Home, arguments: &[&str], variables: &[(&str, &str)]) -> Agent {
    let mut command = home.vault(arguments);
    command.envs(variables.iter().copied());
    Agent::start(command)
}

const DOCUMENT: &str =
    "---\nname: greeting\ndescription: Greets whoever asks in a friendly way\n---\n\nSay hello.\n";

#[test]
fn an_owner_at_the_machine_reads_and_changes_the_library() {
    for (arguments, variables) in [(&["mcp"][..], &[][..]), (&[], &[("VAULT_MODE", "local")])] {
        let home = Home::new();
        let mut agent = start(&home, arguments, variables);
        agent.greet();
        let tools = agent.ask("tools/list", &json!({}));
        assert_eq!(tools["tools"].as_array().unwrap().len(), 10);
        let added = agent.call("propose_skill", &json!({ "skill_md": DOCUMENT }));
        assert_eq!(added["structuredContent"]["status"], "accepted", "{added}");
        assert_eq!(added["structuredContent"]["id"], "local/greeting");
        let got = agent.call("get_skill", &json!({ "name": "greeting" }));
        assert_eq!(got["content"][0]["text"], DOCUMENT);
        let uri = json!({ "uri": "skill://local/greeting/SKILL.md" });
        let read = agent.ask("resources/read", &uri);
        assert_eq!(read["contents"][0]["text"], DOCUMENT);
        assert_eq!(agent.end(), (Vec::new(), Some(0)));
    }
}

#[test]
fn a_change_reports_what_the_agents_see() {
    let home = Home::new();
    std::fs::create_dir_all(home.path(".claude")).unwrap();
    home.skill("notes", "Body of notes.");
    home.run(&["add", "notes"]).ok();
    let mut agent = start(&home, &["mcp"], &[]);
    agent.greet();
    let added = agent.call("propose_skill", &json!({ "skill_md": DOCUMENT }));
    let added = &added["structuredContent"];
    assert_eq!(added["restart_required"], false, "{added}");
    assert!(added["profiles"].is_null());
    let message = added["message"].as_str().unwrap();
    assert!(message.contains("Not linked: Claude Code"), "{message}");
    home.run(&["sync-profiles"]).ok();
    let removed = agent.call("remove_skill", &json!({ "name": "greeting" }));
    let removed = removed["structuredContent"].to_string();
    // Once: the report of the agents' folders does not know of the link that is gone.
    assert_eq!(removed.matches("restart_required").count(), 1, "{removed}");
    assert!(removed.contains("\"restart_required\":true"), "{removed}");
    let added = agent.call("propose_skill", &json!({ "skill_md": DOCUMENT }));
    let added = &added["structuredContent"];
    assert_eq!(added["restart_required"], true, "{added}");
    // The same members as `vault add --json`.
    let root = &added["profiles"]["roots"][0];
    assert_eq!(root["agents"], json!(["claude-code"]));
    assert_eq!(root["added"], json!(["greeting"]));
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn updates_are_those_that_outdated_reports() {
    let home = Home::new();
    for name in ["notes", "steps"] {
        home.skill(name, "one");
        home.run(&["add", name]).ok();
        home.skill(name, "two");
    }
    home.run(&["update", "steps"]).ok();
    home.run(&["rollback", "steps"]).ok();
    let mut agent = start(&home, &["mcp"], &[]);
    agent.greet();
    let found = agent.call("check_updates", &json!({}));
    let found = &found["structuredContent"];
    let outdated = home.run(&["outdated"]).json["data"].clone();
    let names = |list: &serde_json::Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&found["drifted"]), ["notes"], "{found}");
    assert_eq!(found["drifted"], outdated["drifted"]);
    assert_eq!(names(&found["unchecked"]), ["steps"], "{found}");
    assert_eq!(names(&outdated["unchecked"]), ["steps"]);
    let named = agent.call("check_updates", &json!({ "skill": "steps" }));
    assert_eq!(names(&named["structuredContent"]["drifted"]), ["steps"]);
    for name in ["notes", "steps"] {
        let updated = agent.call("update_skill", &json!({ "name": name }));
        assert_eq!(
            updated["structuredContent"]["status"], "accepted",
            "{updated}"
        );
    }
    let found = agent.call("check_updates", &json!({}));
    assert_eq!(
        found["structuredContent"]["up_to_date"],
        json!(["notes", "steps"]),
        "{found}"
    );
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn the_revision_without_a_greeting_is_spoken() {
    let mut agent = start(&Home::new(), &["mcp"], &[("VAULT_TOOL_NAMES", "dotted")]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = agent.ask("server/discover", &json!({ "_meta": meta }));
    assert_eq!(found["resultType"], "complete", "{found}");
    let tools = agent.ask("tools/list", &json!({ "_meta": meta }));
    assert!(tools.to_string().contains("\"skill.fetch\""));
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn a_line_that_is_not_json_gets_a_parse_error() {
    let mut agent = start(&Home::new(), &["mcp"], &[]);
    agent.greet();
    for line in ["no json", "{\"jsonrpc\":", "{} trailing"] {
        let answer = agent.write_line(line);
        assert_eq!(answer["error"]["code"], -32700, "{line}: {answer}");
        assert!(answer["id"].is_null());
        let tools = agent.ask("tools/list", &json!({}));
        assert!(tools["tools"].is_array(), "{line}: {tools}");
    }
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn a_list_with_a_cursor_that_is_no_text_is_refused() {
    let mut agent = start(&Home::new(), &["mcp"], &[]);
    agent.greet();
    let line = r#"{"jsonrpc":"2.0","id":7,"method":"resources/list","params":{"cursor":1}}"#;
    let answer = agent.write_line(line);
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert_eq!(answer["error"]["data"]["member"], "params.cursor");
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn a_vault_is_created_with_the_first_change() {
    let home = Home::new();
    let mut agent = start(&home, &["mcp"], &[]);
    agent.greet();
    let listed = agent.call("skill_list", &json!({}));
    assert_eq!(listed["structuredContent"]["skills"], json!([]), "{listed}");
    let check = json!({ "skill_md": DOCUMENT, "check": true });
    let checked = agent.call("propose_skill", &check);
    assert_eq!(
        checked["structuredContent"]["status"], "would_accept",
        "{checked}"
    );
    let missing = agent.call("remove_skill", &json!({ "name": "greeting" }));
    assert_eq!(missing["isError"], true, "{missing}");
    assert!(!home.path(".vault").exists() && !home.path(".config/vault/vaults").exists());
    let added = agent.call("propose_skill", &json!({ "skill_md": DOCUMENT }));
    assert_eq!(added["structuredContent"]["status"], "accepted", "{added}");
    assert!(home.path(".vault").exists());
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn a_vault_that_another_command_creates_is_found() {
    let home = Home::new();
    let mut agent = start(&home, &["mcp"], &[]);
    agent.greet();
    home.skill("notes", "Body of notes.");
    home.run(&["add", "notes"]).ok();
    let got = agent.call("get_skill", &json!({ "name": "notes" }));
    assert_eq!(got["isError"], false, "{got}");
    assert_eq!(agent.end(), (Vec::new(), Some(0)));
}

#[test]
fn a_new_vault_names_the_command_for_a_recovery_key() {
    let home = Home::new();
    let log = |changes: bool| {
        let file = home.path("log");
        let written = std::fs::File::create(&file).unwrap();
        let mut agent = Agent::start_with_log(home.vault(&["mcp"]), written.into());
        agent.greet();
        if changes {
            agent.call("propose_skill", &json!({ "skill_md": DOCUMENT }));
        }
        assert_eq!(agent.end(), (Vec::new(), Some(0)));
        std::fs::read_to_string(file).unwrap()
    };
    assert_eq!(log(false), "", "a start alone creates nothing");
    let first = log(true);
    assert!(first.contains("created a new vault"), "{first}");
    assert!(first.contains("vault key recovery create"), "{first}");
    assert_eq!(log(false), "", "a later start has nothing to report");
}

#[test]
fn an_input_that_ends_at_once_is_no_failure() {
    assert_eq!(
        start(&Home::new(), &["mcp"], &[]).end(),
        (Vec::new(), Some(0))
    );
}

#[test]
fn bare_vault_in_no_mode_shows_its_help_and_speaks_nothing() {
    let (lines, code) = start(&Home::new(), &[], &[]).end();
    assert_eq!((lines, code), (Vec::new(), Some(2)));
}

#[test]
fn the_server_ends_when_who_started_it_is_gone() {
    let home = Home::new();
    let pipe = home.path("pipe");
    make_fifo(&pipe);
    // Open the pipe for reading and writing. Opening then does not block, and the server's input
    // never ends.
    let mut options = std::fs::File::options();
    let mut input = options.read(true).write(true).open(&pipe).unwrap();
    // The shell starts the server and exits after reading a line.
    let mut shell = home
        .command("/bin/sh")
        .args(["-c", "\"$VAULT\" mcp <\"$HOME/pipe\" & read -r told"])
        .env("VAULT", env!("CARGO_BIN_EXE_vault"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let greeting =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting() });
    writeln!(input, "{greeting}").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("2025-06-18"), "it runs: {line}");
    writeln!(shell.stdin.take().unwrap(), "end").unwrap();
    assert!(shell.wait().unwrap().success());
    // Only the server still holds the output open, so the output ends when the server exits.
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}
