//! The exit codes that scripts rely on, each once, from the real program.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

struct Home(TempDir);

impl Home {
    fn vault(&self, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
        let output = Command::new(env!("CARGO_BIN_EXE_vault"))
            .args(arguments)
            .arg("--json")
            .env_clear()
            .env("HOME", self.0.path())
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"));
        (output.status.code(), said)
    }

    fn skill(&self, name: &str, description: &str) -> String {
        let folder = self.0.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("SKILL.md"),
            format!("---\nname: {name}\ndescription: {description}\n---\nText.\n"),
        )
        .unwrap();
        folder.display().to_string()
    }
}

fn file_below(folder: &Path, ending: &str) -> PathBuf {
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                return path;
            }
        }
    }
    panic!("no file that ends with {ending}");
}

#[test]
fn every_code_of_the_table_means_what_it_says() {
    let home = Home(TempDir::new().unwrap());
    let good = home.skill("good", "Does good. Use when good is to be done.");
    let flagged = home.skill(
        "flagged",
        "Never says at which moment an agent should load it.",
    );
    let colon = home.skill("colon", "Has: a colon too many");
    let broken = home.skill("broken", "[never closed");
    assert_eq!(home.vault(&["add", &good]).0, Some(0));
    for (arguments, code, word) in [
        (&["version"][..], 0, None),
        (&["skill", "which", "god"], 1, Some("skill_not_found")),
        (&["show", "./nowhere"], 1, Some("source_unreadable")),
        (&["shwo"], 2, Some("usage")),
        (&["skill", "search", "x", "--top-k", "0"], 2, Some("usage")),
        (
            &["verify", "good", "--key", "short"],
            2,
            Some("key_invalid"),
        ),
        (&["lint", &flagged], 3, None),
        (&["fmt", &colon, "--check"], 3, None),
        (&["add", &broken], 5, Some("gate_blocked")),
        (&["show", &broken], 5, None),
        (&["verify", &good], 6, Some("not_signed")),
        (&["link", "http://127.0.0.1:1/v/acme"], 7, None),
    ] {
        let (found, said) = home.vault(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
        if let Some(word) = word {
            assert_eq!(said["error"]["code"], word, "{arguments:?}: {said}");
            assert_eq!(said["ok"], false);
        }
        assert_eq!(said["schema"], 1, "{arguments:?}");
    }

    let other = home.skill("other", "Does other things. Use when good is not enough.");
    let keys = fs::read_dir(home.0.path().join(".config/vault/keys")).unwrap();
    let key = keys
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_none())
        .unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, said) = home.vault(&["add", &other]);
    assert_eq!(
        (code, said["error"]["code"].as_str()),
        (Some(4), Some("key_open_to_others")),
        "{said}"
    );

    let stored = file_below(&home.0.path().join(".vault/store"), "SKILL.md");
    fs::set_permissions(&stored, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&stored, "changed").unwrap();
    fs::set_permissions(&stored, fs::Permissions::from_mode(0o444)).unwrap();
    for arguments in [
        &["verify"][..],
        &["verify", "good"],
        &["show", "good"],
        &["export", "zip", "good"],
    ] {
        assert_eq!(home.vault(arguments).0, Some(6), "{arguments:?}");
    }
}
