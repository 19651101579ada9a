//! `vault mcp install` on existing configuration files: only the entry changes, and uninstalling
//! leaves no trace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::support::{Home, set_mode};

fn names(home: &Home, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(home.path(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap()
}

/// Runs `vault mcp` with a subcommand for these agents.
fn mcp(home: &Home, subcommand: &str, agents: &[&str]) -> Value {
    let agents = agents.join(" --agent ");
    home.run_line(&format!("mcp {subcommand} --agent {agents}"))
        .ok()
}

const CODEX: &str = "# my own\nmodel = \"m\"   # why\n\n[mcp_servers.other]\ncommand = \"x\"\n";
const ZED: &str = "// settings\n{\n  \"theme\": \"One\", // dark\n  \"context_servers\": {\n    \"a\": {\"command\": \"a\"},\n  },\n}\n";

#[test]
fn files_become_what_they_were() {
    let home = Home::new();
    let codex = home.write(".codex/config.toml", CODEX);
    let zed = home.write(".config/zed/settings.json", ZED);
    set_mode(&codex, 0o640);
    let agents = ["codex", "zed"];
    let dry = home
        .run_line("mcp install --dry-run --agent codex --agent zed")
        .ok();
    assert_eq!(dry[0]["written"], false);
    assert_eq!(read(&codex), CODEX);

    mcp(&home, "install", &agents);
    let written = read(&codex);
    assert!(written.starts_with(CODEX), "{written}");
    assert!(
        written.contains("[mcp_servers.vault]\ncommand = "),
        "{written}"
    );
    assert!(read(&zed).starts_with("// settings\n{\n  \"theme\": \"One\", // dark\n"));
    let mode = fs::metadata(&codex).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(home.read(".codex/config.toml.before-vault"), CODEX);

    let again = mcp(&home, "install", &agents);
    let mut steps = again.as_array().unwrap().iter();
    assert!(steps.all(|step| step["change"] == "unchanged"), "{again}");

    mcp(&home, "uninstall", &agents);
    assert_eq!(read(&codex), CODEX);
    assert_eq!(read(&zed), ZED);
    assert_eq!(names(&home, ".codex"), ["config.toml"]);
    assert_eq!(names(&home, ".config/zed"), ["settings.json"]);
}

#[test]
fn what_was_written_meanwhile_stays() {
    let home = Home::new();
    let servers = "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n";
    let file = home.write(".cursor/mcp.json", servers);
    mcp(&home, "install", &["cursor"]);
    let text = read(&file).replace("\"a\": {},", "\"b\": {}, // new");
    fs::write(&file, text).unwrap();
    mcp(&home, "uninstall", &["cursor"]);
    let kept = "{\n  \"mcpServers\": {\n    \"b\": {} // new\n  }\n}\n";
    assert_eq!(read(&file), kept);
}

#[test]
fn a_file_that_it_made_goes_again_and_a_link_stays_one() {
    let home = Home::new();
    fs::create_dir(home.path(".cursor")).unwrap();
    mcp(&home, "install", &["cursor"]);
    assert_eq!(names(&home, ".cursor"), ["mcp.json"]);
    mcp(&home, "uninstall", &["cursor"]);
    assert!(names(&home, ".cursor").is_empty());

    let kept = home.write("dotfiles/mcp.json", "{}\n");
    let link = home.path(".cursor/mcp.json");
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    mcp(&home, "install", &["cursor"]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(read(&kept).contains("mcpServers"));
}

#[test]
fn what_cannot_be_read_is_left_and_nothing_else_is_written() {
    let home = Home::new();
    let good = home.write(".cursor/mcp.json", "{}\n");
    let bad = home.write(".gemini/settings.json", "{\n  \"a\": 1,\n  oops\n}\n");
    let both = "mcp install --agent cursor --agent gemini-cli";
    let error = home.run_line(both).fails(1, "mcp_config_unreadable");
    assert_eq!(error["at"]["line"], 3);
    assert_eq!(read(&good), "{}\n");
    assert!(read(&bad).contains("oops"));
    assert_eq!(names(&home, ".cursor"), ["mcp.json"]);
}

#[test]
fn another_server_of_the_name_is_not_touched() {
    let home = Home::new();
    let text = "{\"mcpServers\":{\"vault\":{\"command\":\"docker\",\"args\":[\"run\",\"vault\"]}}}";
    let file = home.write(".cursor/mcp.json", text);
    home.run_line("mcp install --agent cursor")
        .fails(1, "mcp_name_taken");
    let removed = mcp(&home, "uninstall", &["cursor"]);
    assert_eq!(removed[0]["change"], "absent");
    assert_eq!(read(&file), text);
    home.run_line("mcp install --agent cursor --name skills")
        .ok();
    assert!(read(&file).contains("\"skills\""));
}

#[test]
fn a_project_s_file_starts_vault_by_its_name() {
    let home = Home::new();
    home.run_line("mcp install --agent vscode --project").ok();
    let text = home.read(".vscode/mcp.json");
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["servers"]["vault"]["command"], "vault");
    assert_eq!(read["servers"]["vault"]["type"], "stdio");
}
