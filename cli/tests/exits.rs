//! Checks each exit code that scripts rely on once, with the real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

#[path = "screens/mod.rs"]
mod screens;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt as _;
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
        (&["show", "./nowhere"], 2, Some("source_unreadable")),
        (&["add", "nowhere"], 2, Some("source_unreadable")),
        (&["lint", "nowhere"], 2, Some("source_unreadable")),
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

/// Starts a server that sends every request this response.
fn answers(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let _read = stream.read(&mut head);
            let _written = stream.write_all(answer.as_bytes());
            if answer.is_empty() {
                // Keep the connection open until the client closes it.
                let _gone = stream.read(&mut head);
            }
        }
    });
    base
}

#[test]
fn a_lapsed_subscription_ends_with_8() {
    let home = Home(TempDir::new().unwrap());
    let base = answers(
        "HTTP/1.1 402 Payment Required\r\nContent-Type: application/problem+json\r\nContent-Length: 80\r\n\
         Connection: close\r\n\r\n\
         {\"code\":\"subscription_lapsed\",\"detail\":\"The subscription of this vault is over\"}",
    );
    let (code, said) = home.vault(&["link", &format!("{base}/v/acme")]);
    assert_eq!(
        (code, said["error"]["code"].as_str()),
        (Some(8), Some("subscription_lapsed")),
        "{said}"
    );
    assert!(
        said["error"]["message"]
            .as_str()
            .unwrap()
            .contains("is over")
    );
}

#[test]
fn what_is_interrupted_ends_with_130() {
    // Interrupted at a prompt.
    let home = Home(TempDir::new().unwrap());
    for name in ["one", "two"] {
        home.skill(name, "Does it. Use when it is to be done.");
    }
    if let Some(mut terminal) = screens::start(home.0.path(), "add .") {
        terminal.answer("Which skills of .?", &["\x03"]);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 130, "{screen}");
        assert!(screen.contains("interrupted"), "{screen}");
    }
    // Interrupted during a request. The process dies of the signal, which a shell reports as 130.
    let base = answers("");
    let mut child = Command::new(env!("CARGO_BIN_EXE_vault"))
        .args(["link", &format!("{base}/v/acme")])
        .env_clear()
        .env("HOME", home.0.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let ended = child.wait().unwrap();
    assert!(
        ended.code() == Some(130) || ended.signal() == Some(2),
        "{ended:?}"
    );
}
