//! The long-running commands: `vault serve` with its log, and `vault demo`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use serde_json::Value;

use crate::support::{Ended, Home, run_program};

#[test]
fn the_demo_runs_every_step_and_leaves_nothing_behind() {
    let home = Home::new();
    let mut demo = home.vault(&["demo", "--exit", "--json"]);
    let said = Ended::of(demo.env("TMPDIR", home.root())).ok();
    let steps = said.as_array().unwrap();
    assert_eq!(steps.len(), 12, "{said}");
    assert_eq!(steps[0]["added"].as_array().unwrap().len(), 5);
    assert_eq!(steps[1]["failed"][0]["code"], "gate_blocked", "{said}");
    assert_eq!(steps[4]["release"], 1, "{said}");
    assert_eq!(steps[7]["installed"].as_array().unwrap().len(), 5);
    assert_eq!(home.root().read_dir().unwrap().count(), 0);
}

#[test]
fn the_settings_show_the_port_that_counts() {
    let home = Home::new();
    let mut command = home.vault(&[
        "serve",
        "--public-url",
        "http://127.0.0.1:8080",
        "--print-config",
        "--json",
    ]);
    command
        .env("PORT", "9")
        .env("VAULT_ADMIN_EMAIL", "ann@example.com");
    let output = command
        .env("VAULT_ADMIN_PASSWORD", "twelve characters")
        .output();
    let shown: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let rows = shown["data"]["settings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "VAULT_PORT").unwrap();
    assert_eq!(
        (&row["value"], &row["source"]),
        (&"9".into(), &"PORT".into())
    );
}

/// The words of a line of the demo, with `#` for what differs from run to run.
fn words_of(line: &str) -> Vec<&str> {
    let differs = |word: &str| {
        word.starts_with('/')
            || word.contains(|c: char| c.is_ascii_digit())
            || ["dev_", "dev:"].iter().any(|mark| word.contains(mark))
    };
    line.split_whitespace()
        .map(|word| if differs(word) { "#" } else { word })
        .collect()
}

/// The lines of text in an SVG.
fn lines_of(picture: &str) -> Vec<String> {
    let texts = picture.split("<text ").skip(1);
    let texts = texts.map(|text| text.split("</text>").next().unwrap());
    texts
        .map(|text| {
            let pieces = text.split('<');
            let plain: String = pieces
                .filter_map(|piece| Some(piece.split_once('>')?.1))
                .collect();
            let plain = plain.replace("&lt;", "<").replace("&gt;", ">");
            plain.replace("&amp;", "&").replace('\u{a0}', " ")
        })
        .collect()
}

#[test]
fn the_picture_in_the_readme_shows_what_the_demo_prints() {
    let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/demo.svg");
    let picture = fs::read_to_string(picture).unwrap();
    let drawn = lines_of(&picture);
    let home = Home::new();
    let mut demo = home.vault(&["demo", "--exit"]);
    let output = demo.env("TMPDIR", home.root()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed: Vec<_> = printed.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(drawn[0], "$ vault demo --exit");
    assert_eq!(
        drawn.len() - 1,
        printed.len(),
        "draw it again: tests/picture"
    );
    for (drawn, printed) in drawn[1..].iter().zip(printed) {
        assert_eq!(
            words_of(drawn),
            words_of(printed),
            "draw it again: tests/picture"
        );
    }
}

#[test]
fn every_log_line_is_one_json_object_and_the_last_one_is_written_at_a_stop() {
    let home = Home::new();
    let serve = ["serve", "--port", "0", "--public-url", "http://127.0.0.1:1"];
    let mut server = home
        .vault(&[&serve[..], &["--log-level", "debug"]].concat())
        .env("VAULT_ADMIN_EMAIL", "owner@example.com")
        .env("VAULT_ADMIN_PASSWORD", "a password of many words")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut log: Vec<Value> = Vec::new();
    let address = loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let listening = line["message"] == "listening";
        let address = line["address"].as_str().map(str::to_owned);
        log.push(line);
        if listening {
            break address.unwrap();
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let mut stream = TcpStream::connect(&address).unwrap();
                    let request =
                        "GET /nothing-here HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
                    stream.write_all(request.as_bytes()).unwrap();
                    stream.read_to_end(&mut Vec::new()).unwrap();
                }
            });
        }
    });
    let id = server.id().to_string();
    run_program(home.command("kill").args(["-TERM", &id]));
    log.extend(lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()));
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let requests = log.iter().filter(|line| line["status"].is_number()).count();
    assert!(requests >= 100, "{requests} of 100 requests are logged");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/serve.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, chapter) = page.split_once("## Watch").unwrap();
    let requests = log.iter().filter(|line| line["message"] == "request");
    for field in requests.flat_map(|line| line.as_object().unwrap().keys()) {
        assert!(
            chapter.contains(&format!("`{field}`")),
            "undocumented: {field}"
        );
    }
    let is_whole = |line: &Value| line["timestamp"].is_string() && line["level"].is_string();
    assert!(log.iter().all(is_whole));
    let last: Vec<_> = log
        .iter()
        .rev()
        .take(2)
        .map(|line| &line["message"])
        .collect();
    assert_eq!(last, ["stopped", "stopping"]);
}

#[test]
fn a_refused_start_is_one_line_of_the_log() {
    let home = Home::new();
    home.write("unknown.toml", "colour = \"blue\"\n");
    // No start gets beyond the last case: this machine does not have the address.
    let good = [
        "--public-url",
        "http://127.0.0.1:1",
        "--bind",
        "192.0.2.1",
        "--port",
        "0",
    ];
    let local = ["--public-url", "http://127.0.0.1:1", "--port", "0"];
    let email = ("VAULT_ADMIN_EMAIL", "owner@example.com");
    for (arguments, variable, code) in [
        (&[][..], email, "setting_missing"),
        (&good, ("VAULT_TOKEN_TTL", "59"), "setting_invalid"),
        (&["--port", "eighty"], email, "setting_invalid"),
        (&["--config", "unknown.toml"], email, "setting_unknown"),
        (&[], ("VAULT_LOG_LEVEL", "loud"), "setting_invalid"),
        (
            &good,
            ("VAULT_TRUSTED_PROXIES", "10.0.0.0/99"),
            "setting_invalid",
        ),
        (
            // The port is bound before the database is looked at.
            &local,
            ("VAULT_DATABASE_URL", "mysql://a"),
            "setting_invalid",
        ),
        (&good, email, "address_in_use"),
    ] {
        let mut command = home.vault(&[&["serve"], arguments].concat());
        command.env("VAULT_ADMIN_PASSWORD", "a password of many words");
        command.envs([email, variable]);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let exit = if code == "address_in_use" { 1 } else { 2 };
        let ended = (output.status.code(), stderr.lines().count());
        assert_eq!(ended, (Some(exit), 1), "{stderr}");
        let line: Value = serde_json::from_str(&stderr).expect(&stderr);
        assert_eq!(
            (&line["level"], &line["code"]),
            (&"ERROR".into(), &code.into()),
            "{line}"
        );
        assert!(output.stdout.is_empty());
        assert!(!home.path("data").exists(), "{arguments:?}");
    }
}

/// Starts `vault serve` and stops it once it listens. Returns the log up to that line.
fn start_and_stop(home: &Home, arguments: &[&str]) -> Vec<Value> {
    let serve = ["serve", "--port", "0", "--public-url", "http://127.0.0.1:1"];
    let mut server = home
        .vault(&[&serve[..], arguments].concat())
        .env("VAULT_ADMIN_EMAIL", "owner@example.com")
        .env("VAULT_ADMIN_PASSWORD", "a password of many words")
        .env("VAULT_LIMIT_FOO_BAR_BAZ", "1")
        .env("VAULT_PUBLIC_ULR", "https://vault.example")
        .env("VAULT_NO_SETUP", "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut log: Vec<Value> = Vec::new();
    while log.last().is_none_or(|line| line["message"] != "listening") {
        let line = lines.next().expect("it ended before it listened").unwrap();
        log.push(serde_json::from_str(&line).unwrap());
    }
    let id = server.id().to_string();
    run_program(home.command("kill").args(["-TERM", &id]));
    lines.for_each(drop);
    assert!(server.wait().unwrap().success());
    log
}

#[test]
fn a_server_serves_a_library_of_its_own_unless_one_is_named() {
    let home = Home::new();
    let place = |path: &str| home.path(path).display().to_string();
    let named = place("named");
    let database = place("db/vault.db");
    std::fs::create_dir_all(home.path("db")).unwrap();
    for (arguments, library, from) in [
        (&[][..], place("data/library"), "default"),
        (
            &["--database-url", &database],
            place("db/library"),
            "default",
        ),
        (&["--library", &named], named.clone(), "--library"),
        // It exists by now.
        (&["--vault", &named], named.clone(), "--vault"),
    ] {
        let log = start_and_stop(&home, arguments);
        let listening = log.last().unwrap();
        assert_eq!(
            (&listening["library"], &listening["library_from"]),
            (&library.clone().into(), &from.into())
        );
        assert!(std::path::Path::new(&library).is_dir(), "{library}");
    }
    assert!(!home.path(".vault").exists());
}

#[test]
fn a_server_warns_once_of_each_variable_that_nothing_reads() {
    let home = Home::new();
    let log = start_and_stop(&home, &[]);
    let warned: Vec<_> = log
        .iter()
        .filter(|line| line["level"] == "WARN")
        .map(|line| (&line["variable"], &line["did_you_mean"]))
        .collect();
    assert_eq!(
        warned,
        [
            (&"VAULT_LIMIT_FOO_BAR_BAZ".into(), &Value::Null),
            (&"VAULT_PUBLIC_ULR".into(), &"VAULT_PUBLIC_URL".into()),
        ]
    );
}

#[test]
fn a_server_that_cannot_start_writes_nothing() {
    let home = Home::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let start = |email: &str, arguments: &[&str]| {
        let serve = ["serve", "--public-url", "http://127.0.0.1:1", "--json"];
        let mut command = home.vault(&[&serve[..], arguments].concat());
        command.env("VAULT_ADMIN_EMAIL", email);
        command.env("VAULT_ADMIN_PASSWORD", "a password of many words");
        Ended::of(&mut command)
    };
    let good = "owner@example.com";
    start(good, &["--port", &port]).fails(1, "address_in_use");
    let recovery = home.path("vault.recovery");
    let recovery = ["--port", &port, "--recovery", recovery.to_str().unwrap()];
    start(good, &recovery).fails(1, "address_in_use");
    start("no address", &["--port", "0"]).fails(2, "setting_invalid");
    start(good, &["--port", "0", "--vault", "typo"]).fails(2, "vault_folder_missing");
    assert_eq!(home.root().read_dir().unwrap().count(), 0);
}

#[test]
fn the_first_start_of_a_server_can_make_a_recovery_key() {
    let home = Home::new();
    let file = home.path("vault.recovery");
    let file = file.to_str().unwrap();
    let vault = home.path(".vault");
    let library = ["--library", vault.to_str().unwrap()];
    let recovery = [&library[..], &["--recovery", file]].concat();
    // Nothing is made where the file cannot be.
    let nowhere = home.path("nowhere/vault.recovery");
    let nowhere = nowhere.to_str().unwrap();
    let serve = ["serve", "--public-url", "http://127.0.0.1:1", "--json"];
    let start = |recovery: &[&str]| {
        let mut command = home.vault(&[&serve[..], recovery].concat());
        command.env("VAULT_ADMIN_EMAIL", "owner@example.com");
        command.env("VAULT_ADMIN_PASSWORD", "a password of many words");
        Ended::of(&mut command)
    };
    start(&[&library[..], &["--recovery", nowhere]].concat()).fails(1, "io");
    assert!(!home.path(".vault").exists());

    start_and_stop(&home, &recovery);
    let keys = home.run_line("publishers list").ok();
    assert_eq!(
        (
            &keys["root_version"],
            keys["keys"].as_array().unwrap().len()
        ),
        (&1.into(), 2)
    );
    for key in keys["keys"].as_array().unwrap() {
        assert_eq!(key["publishes"], key["here"], "{key}");
        assert_eq!(
            key["publishes"] == true,
            key["changes_keys"] == false,
            "{key}"
        );
    }
    home.run(&["key", "recovery", "check", file]).ok();

    let refused = start(&recovery);
    refused.fails(1, "folder_exists");
    start_and_stop(&home, &library);
}
