//! `docs/keys.md`, line by line: every command of every chapter, between the machines that it names and a service.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use vault_tests::home::{Home, Ran};
use vault_tests::person::{Answer, OWNER};
use vault_tests::server::{Database, OWNER_EMAIL, Server};
use vault_tests::skills;

use crate::support::{self, SLUG, text};

/// A command of the page.
struct Line {
    machine: String,
    /// Variables before the command.
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
    /// The exit code that the page states; 0 where it states none.
    code: i32,
}

/// The commands of the page, by chapter.
fn chapters() -> Vec<(String, Vec<Line>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/keys.md");
    let mut chapters: Vec<(String, Vec<Line>)> = Vec::new();
    let mut in_block = false;
    for line in fs::read_to_string(page).unwrap().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            chapters.push((heading.to_owned(), Vec::new()));
        }
        if line.starts_with("```") {
            in_block = line == "```console";
        } else if in_block {
            chapters.last_mut().unwrap().1.push(Line::parse(line));
        }
    }
    chapters
}

impl Line {
    fn parse(line: &str) -> Self {
        let (machine, command) = line.split_once("$ ").unwrap();
        let (command, code) = match command.split_once("    # ends with ") {
            Some((command, code)) => (command, code.parse().unwrap()),
            None => (command, 0),
        };
        let mut words: Vec<_> = command.split(' ').map(str::to_owned).collect();
        let at = words.iter().position(|word| word == "vault").unwrap();
        let arguments = words.split_off(at + 1);
        words.pop();
        let variables = words.iter().map(|word| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self {
            machine: machine.to_owned(),
            variables: variables.collect(),
            arguments,
            code,
        }
    }
}

/// The machines, the sticks, and what commands have shown.
struct Walk {
    server: Server,
    machines: BTreeMap<String, Home>,
    sticks: tempfile::TempDir,
    shown: BTreeMap<&'static str, String>,
}

impl Walk {
    /// Puts this test's places and shown values into a word of the page.
    fn real(&self, word: &str) -> String {
        let address = support::address(&self.server, SLUG);
        let mut real = word.replace("https://vault.example/v/team", &address);
        real = real.replace("/media", self.sticks.path().to_str().unwrap());
        for (name, value) in &self.shown {
            real = real.replace(&format!("<{name}>"), value);
        }
        assert!(!real.contains('<'), "nothing has shown {word}");
        real
    }

    /// Runs a line and keeps what it shows.
    fn run(&mut self, chapter: &str, line: &Line) {
        let arguments: Vec<_> = line.arguments.iter().map(|word| self.real(word)).collect();
        let variables: Vec<_> = line
            .variables
            .iter()
            .map(|(name, value)| (name, self.real(value)))
            .collect();
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        words.extend(["--json", "--yes"]);
        let home = self.machines.entry(line.machine.clone()).or_default();
        let needs_sign_in = words.starts_with(&["cloud", "connect"]) || words.contains(&"--from");
        let ran = if needs_sign_in {
            home.sign_in(&words, OWNER, Answer::Pasted)
        } else {
            let mut command: Command = home.command(&words);
            command.current_dir(home.path().join("work"));
            command.envs(variables);
            Ran::from(command.output().unwrap())
        };
        let context = format!("{chapter}: {} {:?}", line.machine, line.arguments);
        let (out, err) = (&ran.stdout, &ran.stderr);
        assert_eq!(ran.code, line.code, "{context}\n{out}\n{err}");
        let data = ran.json()["data"].clone();
        for (name, pointer) in [
            ("fingerprint", "/fingerprint"),
            ("machine", "/device_id"),
            ("release", "/links/0/release"),
            ("payload", "/links/0/payload_sha256"),
        ] {
            if let Some(value) = data.pointer(pointer) {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                self.shown.insert(name, value);
            }
        }
    }
}

fn work(home: &Home) -> PathBuf {
    home.path().join("work")
}

#[test]
fn every_chapter_of_the_page_about_keys_works() {
    let server = Server::start(&Database::Sqlite);
    let mut walk = Walk {
        server,
        machines: BTreeMap::new(),
        sticks: tempfile::tempdir().unwrap(),
        shown: BTreeMap::new(),
    };
    for name in ["anna", "laptop", "new", "restored"] {
        let home = Home::new();
        fs::create_dir_all(work(&home)).unwrap();
        walk.machines.insert(name.to_owned(), home);
    }
    for stick in ["stick", "second"] {
        fs::create_dir(walk.sticks.path().join(stick)).unwrap();
    }
    let passphrase = walk.sticks.path().join("second/passphrase");
    fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    let anna = &walk.machines["anna"];
    anna.skill(
        "tool",
        &[("SKILL.md", &skills::skill_md("tool", "A tool."))],
    );
    let slug = walk.server.named(SLUG);
    let create = ["operator", "--url", &walk.server.url, "namespace", "create"];
    let owned = [&slug[..], "--owner", OWNER_EMAIL, "--json"];
    anna.sign_in(&[&create[..], &owned].concat(), OWNER, Answer::Pasted)
        .data();

    let mut chapters = chapters();
    assert!(chapters.len() >= 10, "the page has its chapters");
    for (chapter, lines) in &mut chapters {
        for line in lines.iter() {
            walk.run(chapter, line);
        }
    }
    let files = support::pulled(&walk.machines["laptop"]);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["tool"]);
    let shown = text(&walk.machines["new"].json(&["key", "show"])["fingerprint"]);
    let pinned = walk.machines["laptop"].json(&["status", "--cloud"]);
    assert_eq!(text(&pinned["links"][0]["vault_fingerprint"]), shown);
}
