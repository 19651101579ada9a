//! Opens the states that earlier versions left (`tests/fixtures/state-*`) with the current program,
//! on each store, and finds in them what the earlier version found.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

#[path = "../fixtures/state-0.5/inventory.rs"]
mod inventory;
mod stores;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use vault_format::hash::Digest;
use vault_tests::home::Home;

/// The state of version 0.5.0, unpacked.
struct State {
    folder: TempDir,
    inventory: Value,
}

impl State {
    fn unpack() -> Self {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/state-0.5");
        let folder = tempfile::tempdir().unwrap();
        let status = Command::new("tar")
            .args(["-xpz", "--no-same-owner", "-f"])
            .arg(fixture.join("state.tar.gz"))
            .arg("-C")
            .arg(folder.path())
            .status();
        assert!(status.unwrap().success(), "tar");
        let inventory = fs::read(fixture.join("inventory.json")).unwrap();
        Self {
            inventory: serde_json::from_slice(&inventory).unwrap(),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A home with what this person's held.
    fn home(&self, name: &str) -> Home {
        let home = Home::new();
        let status = Command::new("cp")
            .arg("-a")
            .arg(self.path(name).join("."))
            .arg(home.path())
            .status();
        assert!(status.unwrap().success(), "cp");
        moved(&home);
        home
    }
}

/// Lets the records of a home that stood elsewhere name its folders where they are now. A vault's
/// folder, and a project with its vault, are known by the SHA-256 of their paths.
fn moved(home: &Home) {
    let config = home.config();
    for kind in ["folders", "projects", "vaults"] {
        let Ok(listing) = fs::read_dir(config.join(kind)) else {
            continue;
        };
        for folder in listing.map(|entry| entry.unwrap().path()) {
            for name in ["vault.json", "project.json", "own-skills.json"] {
                let Ok(text) = fs::read_to_string(folder.join(name)) else {
                    continue;
                };
                let begins = text.find("/tmp/vault-home-").unwrap();
                let former = &text[begins..begins + "/tmp/vault-home-XXXXXX".len()];
                let text = text.replace(former, home.path().to_str().unwrap());
                fs::write(folder.join(name), &text).unwrap();
                let record: Value = serde_json::from_str(&text).unwrap();
                let vault = home.vault().to_str().unwrap().to_owned();
                let known_by = match name {
                    "vault.json" => vault,
                    "project.json" => format!("{}\0{vault}", record["path"].as_str().unwrap()),
                    _ => continue,
                };
                let place = Digest::of(known_by.as_bytes()).to_string();
                fs::rename(&folder, config.join(kind).join(place)).unwrap();
            }
        }
    }
}

/// What is wanted and not found: each member and element of `wanted`, wherever it stands. The
/// current program may say more, but lists are as long as they were.
fn lacks(found: &Value, wanted: &Value, at: &str, lacking: &mut Vec<String>) {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            for (name, wanted) in wanted {
                let at = format!("{at}/{name}");
                lacks(
                    found.get(name).unwrap_or(&Value::Null),
                    wanted,
                    &at,
                    lacking,
                );
            }
        }
        (Value::Array(found), Value::Array(wanted)) if found.len() == wanted.len() => {
            for (place, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                lacks(found, wanted, &format!("{at}/{place}"), lacking);
            }
        }
        _ if found == wanted => {}
        _ => lacking.push(format!("{at}: {found}, not {wanted}")),
    }
}

#[track_caller]
fn holds(found: &Value, wanted: &Value) {
    let mut lacking = Vec::new();
    lacks(found, wanted, "", &mut lacking);
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}

#[test]
fn a_vault_and_its_trust_folder() {
    let state = State::unpack();
    for name in ["anna", "bob"] {
        let home = state.home(name);
        holds(&inventory::local(&home), &state.inventory["local"][name]);
    }
}

#[test]
fn a_project_and_its_lock() {
    let state = State::unpack();
    let anna = state.home("anna");
    let found = inventory::project(&anna, &anna.path().join("project"));
    holds(&found, &state.inventory["project"]);
}

/// The recovery key still changes the keys, and both publishers are known to it.
#[test]
fn a_recovery_key_that_still_counts() {
    let state = State::unpack();
    let anna = state.home("anna");
    anna.json("key recovery check stick/key");
    let threshold = [
        "publishers",
        "threshold",
        "2",
        "--root-key",
        "stick/key",
        "--yes",
    ];
    anna.json(&threshold);
}

/// What is asked notices one file that reads otherwise.
#[test]
fn a_vault_of_which_a_file_does_not_read_is_noticed() {
    let state = State::unpack();
    let anna = state.home("anna");
    let trust = anna.own_trust().join("trust.json");
    let text = fs::read_to_string(&trust).unwrap();
    let damaged = text.replacen("\"vault_id\"", "\"vault_identity\"", 1);
    assert_ne!(damaged, text);
    fs::write(&trust, damaged).unwrap();
    let mut lacking = Vec::new();
    let wanted = &state.inventory["local"]["anna"];
    lacks(&inventory::local(&anna), wanted, "", &mut lacking);
    assert!(!lacking.is_empty());
}
