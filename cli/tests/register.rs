//! `vault mcp install` on existing configuration files: only the entry changes, and uninstalling
//! leaves no trace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, path: &str, text: &str) -> PathBuf {
        let file = self.0.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    fn vault(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_vault"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.vault(&[arguments, &["--json"]].concat());
        (
            output.status.code(),
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}")),
        )
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.path().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

const CODEX: &str = "# my own\nmodel = \"m\"   # why\n\n[mcp_servers.other]\ncommand = \"x\"\n";
const ZED: &str = "// settings\n{\n  \"theme\": \"One\", // dark\n  \"context_servers\": {\n    \"a\": {\"command\": \"a\"},\n  },\n}\n";

#[test]
fn files_become_what_they_were() {
    let home = Home::new();
    let codex = home.file(".codex/config.toml", CODEX);
    let zed = home.file(".config/zed/settings.json", ZED);
    fs::set_permissions(&codex, fs::Permissions::from_mode(0o640)).unwrap();
    let agents = ["--agent", "codex", "--agent", "zed"];
    let (code, dry) = home.json(&[&["mcp", "install"][..], &agents, &["--dry-run"]].concat());
    assert_eq!(
        (code, dry["data"][0]["written"].as_bool()),
        (Some(0), Some(false))
    );
    assert_eq!(fs::read_to_string(&codex).unwrap(), CODEX);

    assert!(
        home.vault(&[&["mcp", "install"][..], &agents].concat())
            .status
            .success()
    );
    let written = fs::read_to_string(&codex).unwrap();
    assert!(
        written.starts_with(CODEX) && written.contains("[mcp_servers.vault]\ncommand = "),
        "{written}"
    );
    assert!(
        fs::read_to_string(&zed)
            .unwrap()
            .starts_with("// settings\n{\n  \"theme\": \"One\", // dark\n")
    );
    assert_eq!(
        fs::metadata(&codex).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(
        fs::read_to_string(codex.with_file_name("config.toml.before-vault")).unwrap(),
        CODEX
    );

    let (_, again) = home.json(&[&["mcp", "install"][..], &agents].concat());
    assert!(
        again["data"]
            .as_array()
            .unwrap()
            .iter()
            .all(|step| step["change"] == "unchanged"),
        "{again}"
    );

    assert!(
        home.vault(&[&["mcp", "uninstall"][..], &agents].concat())
            .status
            .success()
    );
    assert_eq!(fs::read_to_string(&codex).unwrap(), CODEX);
    assert_eq!(fs::read_to_string(&zed).unwrap(), ZED);
    assert_eq!(home.names(".codex"), ["config.toml"]);
    assert_eq!(home.names(".config/zed"), ["settings.json"]);
}

#[test]
fn what_was_written_meanwhile_stays() {
    let home = Home::new();
    let file = home.file(
        ".cursor/mcp.json",
        "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n",
    );
    assert!(
        home.vault(&["mcp", "install", "--agent", "cursor"])
            .status
            .success()
    );
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("\"a\": {},", "\"b\": {}, // new");
    fs::write(&file, text).unwrap();
    assert!(
        home.vault(&["mcp", "uninstall", "--agent", "cursor"])
            .status
            .success()
    );
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "{\n  \"mcpServers\": {\n    \"b\": {} // new\n  }\n}\n"
    );
}

#[test]
fn a_file_that_it_made_goes_again_and_a_link_stays_one() {
    let home = Home::new();
    fs::create_dir(home.0.path().join(".cursor")).unwrap();
    assert!(
        home.vault(&["mcp", "install", "--agent", "cursor"])
            .status
            .success()
    );
    assert_eq!(home.names(".cursor"), ["mcp.json"]);
    assert!(
        home.vault(&["mcp", "uninstall", "--agent", "cursor"])
            .status
            .success()
    );
    assert!(home.names(".cursor").is_empty());

    let kept = home.file("dotfiles/mcp.json", "{}\n");
    let link = home.0.path().join(".cursor/mcp.json");
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    assert!(
        home.vault(&["mcp", "install", "--agent", "cursor"])
            .status
            .success()
    );
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&kept).unwrap().contains("mcpServers"));
}

#[test]
fn what_cannot_be_read_is_left_and_nothing_else_is_written() {
    let home = Home::new();
    let good = home.file(".cursor/mcp.json", "{}\n");
    let bad = home.file(".gemini/settings.json", "{\n  \"a\": 1,\n  oops\n}\n");
    let (code, said) = home.json(&[
        "mcp",
        "install",
        "--agent",
        "cursor",
        "--agent",
        "gemini-cli",
    ]);
    assert_eq!(
        (code, said["error"]["code"].as_str()),
        (Some(1), Some("mcp_config_unreadable"))
    );
    assert_eq!(said["error"]["at"]["line"], 3);
    assert_eq!(fs::read_to_string(&good).unwrap(), "{}\n");
    assert!(fs::read_to_string(&bad).unwrap().contains("oops"));
    assert_eq!(home.names(".cursor"), ["mcp.json"]);
}

#[test]
fn another_server_of_the_name_is_not_touched() {
    let home = Home::new();
    let text = "{\"mcpServers\":{\"vault\":{\"command\":\"docker\",\"args\":[\"run\",\"vault\"]}}}";
    let file = home.file(".cursor/mcp.json", text);
    let (code, said) = home.json(&["mcp", "install", "--agent", "cursor"]);
    assert_eq!(
        (code, said["error"]["code"].as_str()),
        (Some(1), Some("mcp_name_taken"))
    );
    let (_, said) = home.json(&["mcp", "uninstall", "--agent", "cursor"]);
    assert_eq!(said["data"][0]["change"], "absent");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(
        home.vault(&["mcp", "install", "--agent", "cursor", "--name", "skills"])
            .status
            .success()
    );
    assert!(fs::read_to_string(&file).unwrap().contains("\"skills\""));
}

#[test]
fn a_project_s_file_starts_vault_by_its_name() {
    let home = Home::new();
    assert!(
        home.vault(&["mcp", "install", "--agent", "vscode", "--project"])
            .status
            .success()
    );
    let text = fs::read_to_string(home.0.path().join(".vscode/mcp.json")).unwrap();
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["servers"]["vault"]["command"], "vault");
    assert_eq!(read["servers"]["vault"]["type"], "stdio");
}
