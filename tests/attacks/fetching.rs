//! Addresses that are commands, and places that hold what no skill may be: refused before anything
//! runs or is made.

#[path = "../../shared/sources/tests/support/mod.rs"]
mod sources;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use sources::Repository;
use vault_tests::app::App;
use vault_tests::home::Home;
use vault_tests::person::OWNER;
use vault_tests::server::{Database, Server};
use vault_tests::{place, tree};

use crate::support::word;

/// What would run if anything of an address reached a shell, git's options, or a remote helper.
fn tricks(canary: &Path) -> Vec<String> {
    let canary = canary.display();
    vec![
        format!("--upload-pack=touch {canary}"),
        format!("--upload-pack=touch${{IFS}}{canary}"),
        format!("ext::sh -c touch% {canary}"),
        format!("git:ext::sh -c touch% {canary}"),
        format!("git::ext::touch% {canary}"),
        "fd::17/x".to_owned(),
        format!("-oProxyCommand=touch {canary}:a/b"),
        format!("ssh://-oProxyCommand=touch%20{canary}/a/b"),
        format!("git@-oProxyCommand=touch {canary}:a/b"),
        format!("git@host:--upload-pack=touch {canary}"),
        format!("acme/skills#--upload-pack=touch {canary}"),
        format!("acme/skills#$(touch {canary})"),
        format!("acme/skills/`touch {canary}`"),
        format!("https://example.com/a/b.git;touch {canary}"),
    ]
}

fn home() -> Home {
    let home = Home::new();
    std::fs::create_dir_all(home.config()).unwrap();
    std::fs::write(
        home.config().join("config.toml"),
        "sources_allow_loopback = true\n",
    )
    .unwrap();
    home
}

#[test]
fn an_address_that_is_a_command_never_runs_wherever_it_is_written() {
    let home = home();
    let canary = home.path().join("canary");
    let lock = home.path().join("shop/vault.lock");
    std::fs::create_dir(home.path().join("shop")).unwrap();
    let others = home.path().join("skills-lock.json");
    for trick in tricks(&canary) {
        let before = tree::snapshot(home.path(), &[]);
        // Without the network and a terminal: what may name a folder in a repository is asked
        // about, and no more.
        let ran = home.run(&["--json", "--offline", "add", "--", &trick]);
        assert!([2, 7].contains(&ran.code), "{trick}: {}", ran.stdout);
        assert!(
            ["source_invalid", "source_unreadable", "no_tty", "offline"]
                .contains(&word(&ran).as_str()),
            "{trick}: {}",
            ran.stdout
        );
        for option in ["--ref", "--path"] {
            let given = format!("{option}={trick}");
            let ran = home.run(&["--json", "--offline", "add", "github:acme/skills", &given]);
            assert!([2, 7].contains(&ran.code), "{given}: {}", ran.stdout);
        }
        assert_eq!(tree::snapshot(home.path(), &[]), before, "{trick}");

        let quoted = serde_json::Value::from(trick.clone());
        std::fs::write(
            &lock,
            format!("schema = 1\n\n[[skill]]\nname = \"evil\"\nsource = {quoted}\n"),
        )
        .unwrap();
        let ran = home.run("--json --offline install --root shop");
        assert_ne!(ran.code, 0, "{trick}: {}", ran.stdout);
        std::fs::write(
            &lock,
            format!(
                "schema = 1\n\n[[skill]]\nname = \"evil\"\nsource = \"git:https://example.com/a//evil\"\naddress = {quoted}\n\
                 revision = \"{}\"\ndigest = \"{}\"\n",
                "0".repeat(40),
                "0".repeat(64)
            ),
        )
        .unwrap();
        let ran = home.run("--json --offline install --root shop");
        assert_ne!(ran.code, 0, "{trick}: {}", ran.stdout);
        std::fs::remove_file(&lock).unwrap();
        let entry = serde_json::json!({ "version": 1, "skills": {
            "evil": { "source": trick, "sourceType": "git", "sourceUrl": trick },
        } });
        std::fs::write(&others, entry.to_string()).unwrap();
        let ran = home.run("--json --offline add --from-lock skills-lock.json");
        assert_ne!(ran.code, 0, "{trick}: {}", ran.stdout);
        std::fs::remove_file(&others).unwrap();
        assert!(!canary.exists(), "{trick} ran");
        assert!(!home.vault().exists(), "{trick} made a vault");
    }
}

#[test]
fn a_repository_with_what_no_skill_may_hold_is_refused() {
    type Plant = fn(&Repository);
    let cases: [(&str, Plant); 4] = [
        ("names that differ in case alone", |repository| {
            repository
                .write("evil/notes.md", "1")
                .write("evil/NOTES.md", "2");
        }),
        ("names that fold together", |repository| {
            repository
                .write("evil/straße", "1")
                .write("evil/STRASSE", "2");
        }),
        ("one name in two forms", |repository| {
            repository
                .write("evil/caf\u{e9}.md", "1")
                .write("evil/cafe\u{301}.md", "2");
        }),
        ("10,000 files", |repository| {
            for at in 0..10_000 {
                repository.write(&format!("evil/f{at}"), "");
            }
        }),
    ];
    for (what, plant) in cases {
        let repository = Repository::new();
        repository.write("evil/SKILL.md", sources::skill_md("evil"));
        plant(&repository);
        repository.commit();
        let home = home();
        let address = repository.address();
        let ran = home.run(&format!("--json add {address} --skill evil"));
        assert!([1, 5].contains(&ran.code), "{what}: {}", ran.stdout);
        assert!(!word(&ran).is_empty(), "{what}: {}", ran.stdout);
        assert!(!home.vault().exists(), "{what}");
    }
}

#[test]
fn an_archive_with_names_that_fold_or_links_of_any_kind_is_refused() {
    let make = |script: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("evil")).unwrap();
        std::fs::write(
            folder.path().join("evil/SKILL.md"),
            sources::skill_md("evil"),
        )
        .unwrap();
        let status = Command::new("sh")
            .args(["-ec", script])
            .current_dir(folder.path().join("evil"))
            .status()
            .unwrap();
        assert!(status.success(), "{script}");
        let packed = Command::new("tar")
            .args(["-cf", "evil.tar", "evil"])
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(packed.success());
        folder
    };
    for script in [
        "echo 1 >notes.md; echo 2 >NOTES.md",
        "echo 1 >straße; echo 2 >STRASSE",
        "echo 1 >one; ln one two",
        "ln SKILL.md copy.md",
        "ln -s /etc/passwd secret",
        "mkfifo pipe",
    ] {
        let folder = make(script);
        let home = home();
        let archive = folder.path().join("evil.tar");
        let ran = home.run(&format!("--json add {}", archive.to_str().unwrap()));
        assert!([1, 5].contains(&ran.code), "{script}: {}", ran.stdout);
        assert!(!word(&ran).is_empty(), "{script}: {}", ran.stdout);
        assert!(!home.vault().exists(), "{script}");
    }
}

#[test]
fn a_server_reaches_what_its_callers_name_without_a_proxy() {
    if place::leaves_out("", "the functions have no such variables") {
        return;
    }
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let registry = ("VAULT_CLAWHUB_URL", "https://registry.invalid");
    let mut variables = vec![registry];
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        variables.push((name, &address));
    }
    let server = Server::start_with(&Database::Sqlite, &variables);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let owner = App::sign_in(&server.url, OWNER).await;
        for (kind, identifier) in [
            ("wellknown", "wellknown:https://skills.invalid/pdf"),
            ("git", "https://skills.invalid/acme/skills.git"),
            ("registry", "clawhub:pdf"),
        ] {
            let asked = json!({ "source": kind, "identifier": identifier });
            let answer = owner.ask("add_skill", &asked).await.to_string();
            assert!(answer.contains("source_unreachable"), "{kind}: {answer}");
        }
    });
    let asked = proxy.accept().map(|(_, caller)| caller);
    assert!(asked.is_err(), "the proxy was asked by {asked:?}");
}
