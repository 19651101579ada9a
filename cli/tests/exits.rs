//! Checks each exit code that scripts rely on once, with the real binary.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use crate::screens;
use crate::support::{Ended, Home, files_below, run_program, set_mode, tamper};

const EXPECTED: &str = "vlt:geo3-kyh5-d63n-52jg-tewr-yb54-mipy-vvuo/2";

#[test]
fn an_index_path_where_no_file_can_be_is_one_warning() {
    let home = Home::new();
    home.skill("good", "Does good. Use when good is to be done.");
    home.run(&["add", "./good"]).ok();
    for path in ["/proc/nowhere/index.db", "/usr"] {
        let mut command = home.vault(&["list", "--json"]);
        let ended = Ended::of(command.env("VAULT_DB_PATH", path));
        let warnings = ended.json["warnings"].as_array().unwrap();
        let codes: Vec<_> = warnings.iter().map(|warning| &warning["code"]).collect();
        assert_eq!(codes, ["index_unusable"], "{path}");
        assert_eq!(ended.ok()["skills"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn the_folder_of_the_index_is_made_where_it_is_missing() {
    let home = Home::new();
    home.skill("good", "Does good. Use when good is to be done.");
    let path = home.path("cache/of/vault/index.db");
    for line in [&["add", "./good"][..], &["list"]] {
        let mut command = home.vault(&[line, &["--json"]].concat());
        let ended = Ended::of(command.env("VAULT_DB_PATH", &path));
        assert_eq!(ended.json["warnings"], serde_json::json!([]), "{line:?}");
        ended.ok();
    }
    assert!(path.is_file());
    assert!(!home.path(".vault/index.db").exists());
}

#[test]
fn every_code_of_the_table_means_what_it_says() {
    let home = Home::new();
    home.skill("good", "Does good. Use when good is to be done.");
    let description = "Never says at which moment an agent should load it.";
    home.skill("flagged", description);
    home.skill("colon", "Has: a colon too many");
    home.skill("broken", "[never closed");
    home.skill("other", "Does other things. Use when good is not enough.");
    home.skill("linked", "Holds a link. Use when links are to be refused.");
    std::os::unix::fs::symlink("SKILL.md", home.path("linked/more.md")).unwrap();
    // A vault that is missing does not make the answer "verified".
    home.run(&["verify", "--expect-key", EXPECTED])
        .fails(2, "usage");
    home.run(&["add", "./good"]).ok();
    home.run(&["verify", "--expect-key", EXPECTED])
        .fails(2, "usage");
    for (line, code, word) in [
        ("version", 0, None),
        ("skill which god", 1, Some("skill_not_found")),
        ("show ./nowhere", 2, Some("source_unreadable")),
        ("add nowhere", 2, Some("source_unreadable")),
        ("lint nowhere", 2, Some("source_unreadable")),
        ("shwo", 2, Some("usage")),
        ("skill search x --top-k 0", 2, Some("usage")),
        ("skill --clean-env list", 2, Some("usage")),
        ("skill --inherit-env list", 2, Some("usage")),
        ("skill --inherit-env --clean-env x y", 2, Some("usage")),
        ("verify good --expect-key short", 2, Some("usage")),
        ("disable good --agent any-agent", 2, Some("usage")),
        ("add ./good --agent any-agent", 2, Some("usage")),
        ("lint ./flagged", 0, None),
        ("lint ./flagged --fail-on warnings", 3, None),
        ("lint ./broken", 5, None),
        ("lint ./broken --fail-on never", 0, None),
        ("audit ./broken", 5, None),
        ("audit-repo ./broken", 5, None),
        ("add ./broken --dry-run", 5, None),
        ("add ./linked", 5, Some("symlink")),
        ("show ./linked", 5, None),
        ("fmt ./colon --check", 3, None),
        ("add ./broken", 5, Some("gate_blocked")),
        ("show ./broken", 5, None),
        ("verify ./good", 6, Some("not_signed")),
        ("link http://127.0.0.1:1/v/acme", 7, None),
    ] {
        let ended = home.run_line(line);
        assert_eq!(ended.json["schema"], 1, "{line}");
        if let Some(word) = word {
            assert_eq!(ended.json["ok"], false);
            ended.fails(code, word);
        } else {
            assert_eq!(ended.code, code, "{line}: {}", ended.out);
        }
    }

    let trust = files_below(&home.path(".config/vault"));
    let key = trust
        .iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "key"));
    set_mode(key.unwrap(), 0o644);
    home.run(&["add", "./other"]).fails(4, "key_open_to_others");

    let stored = files_below(&home.path(".vault/store"));
    let document = stored.iter().find(|path| path.ends_with("SKILL.md"));
    tamper(document.unwrap(), "changed");
    let reads = [
        "verify",
        "verify good",
        "show good",
        "export zip good",
        "skill which good",
        "skill run good", // nothing of a changed skill runs
    ];
    for line in reads {
        let ended = home.run_line(line);
        assert_eq!(ended.code, 6, "{line}: {}", ended.out);
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
    let home = Home::new();
    let base = answers(
        "HTTP/1.1 402 Payment Required\r\nContent-Type: application/problem+json\r\nContent-Length: 80\r\n\
         Connection: close\r\n\r\n\
         {\"code\":\"subscription_lapsed\",\"detail\":\"The subscription of this vault is over\"}",
    );
    let ended = home.run(&["link", &format!("{base}/v/acme")]);
    let error = ended.fails(8, "subscription_lapsed");
    assert!(error["message"].as_str().unwrap().contains("is over"));
}

#[test]
fn what_is_interrupted_ends_with_130() {
    // Interrupted at a prompt.
    let home = Home::new();
    for name in ["one", "two"] {
        home.skill(name, "Does it. Use when it is to be done.");
    }
    if let Some(mut terminal) = screens::start(home.root(), "add .") {
        terminal.answer("Which skills of .?", &["\x03"]);
        let (screen, code) = terminal.finish();
        assert_eq!(code, 130, "{screen}");
        assert!(screen.contains("interrupted"), "{screen}");
    }
    // Interrupted during a request. The process dies of the signal, which a shell reports as 130.
    let base = answers("");
    let mut command = home.vault(&["link", &format!("{base}/v/acme")]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    run_program(home.command("kill").args(["-INT", &child.id().to_string()]));
    let ended = child.wait().unwrap();
    let interrupted = ended.code() == Some(130) || ended.signal() == Some(2);
    assert!(interrupted, "{ended:?}");
}

#[test]
fn a_lost_executable_bit_is_a_note_or_a_difference() {
    let home = Home::new();
    home.write(
        "tool/SKILL.md",
        "---\nname: tool\ndescription: Runs. Use when it is to run.\n---\nRun it.\n",
    );
    home.write_executable("tool/scripts/run.sh", "#!/bin/sh\n");
    home.run(&["add", "./tool"]).ok();
    home.run(&["export", "zip", "tool"]).ok();
    // As tools do that install from an archive and keep no modes.
    set_mode(&home.path("tool/scripts/run.sh"), 0o644);
    let verify = |flag: &[&str]| {
        let arguments = ["verify", "./tool", "--manifest", "tool.manifest.json"];
        home.run(&[&arguments, flag].concat())
    };
    let noted = verify(&[]);
    assert_eq!(noted.code, 0);
    let noted = noted.json;
    assert_eq!(noted["warnings"][0]["code"], "mode_lost", "{noted}");
    assert_eq!(verify(&["--strict-modes"]).code, 3);
    verify(&["--fix-modes"]).ok();
    assert_eq!(verify(&["--strict-modes"]).code, 0);
    set_mode(&home.path("tool/SKILL.md"), 0o755);
    assert_eq!(verify(&[]).code, 6);
}
