//! Commands of the documentation: read from the blocks of a page, then run between the machines
//! that their prompts name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use vault_tests::home::{Home, Ran, vault_binary};
use vault_tests::person::{Answer, Person};

/// A command of a page.
#[derive(Debug)]
pub struct Line {
    /// What stands before `$`; empty where nothing does.
    pub machine: String,
    /// Variables before the command.
    pub variables: Vec<(String, String)>,
    /// The arguments of `vault`.
    pub arguments: Vec<String>,
    /// The exit code that the page states; 0 where it states none.
    pub code: i32,
}

/// The commands of a page by chapter: the heading of second order, and each line of its `console`
/// blocks.
pub fn chapters(page: &str) -> Vec<(String, Vec<Line>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let mut chapters: Vec<(String, Vec<Line>)> = Vec::new();
    let mut in_block = false;
    for line in fs::read_to_string(page).unwrap().lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            chapters.push((heading.to_owned(), Vec::new()));
        }
        if line.starts_with("```") {
            in_block = line == "```console";
        } else if in_block {
            chapters.last_mut().unwrap().1.extend(Line::parse(line));
        }
    }
    chapters
}

impl Line {
    /// Parses `machine$ NAME=value vault arguments    # comment`. `None` for a line that runs
    /// another program.
    fn parse(line: &str) -> Option<Self> {
        let (machine, command) = line.split_once("$ ")?;
        let (command, comment) = command.split_once("  # ").unwrap_or((command, ""));
        let code = comment.strip_prefix("ends with ");
        let mut words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        let at = words.iter().position(|word| word == "vault")?;
        let arguments = words.split_off(at + 1);
        words.pop();
        let variables = words.iter().map(|word| {
            let (name, value) = word.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        });
        Some(Self {
            machine: machine.to_owned(),
            variables: variables.collect(),
            arguments,
            code: code.map_or(0, |code| code.parse().unwrap()),
        })
    }
}

/// The machines of a page, who sits at them, and what takes the place of its words.
pub struct Walk {
    /// The person who signs in where `people` names nobody.
    pub person: Person<'static>,
    /// Who sits at which machine.
    pub people: BTreeMap<&'static str, Person<'static>>,
    /// A home for each name before `$`.
    pub machines: BTreeMap<String, Home>,
    /// Texts of the page, and those of this test that take their place.
    pub real: Vec<(String, String)>,
    /// How often a browser was needed.
    pub sign_ins: usize,
}

/// What commands show that later lines name in angle brackets: how the command begins, and where
/// its JSON has it. The first that fits counts.
const SHOWN: [(&str, &str, &str); 9] = [
    ("<key>", "publishers request", "/fingerprint"),
    ("<fingerprint>", "key ", "/fingerprint"),
    ("<device-fingerprint>", "", "/device_fingerprint"),
    ("<machine>", "", "/device_id"),
    ("<release>", "", "/links/0/release"),
    ("<payload>", "", "/links/0/payload_sha256"),
    ("<draft>", "drafts list", "/0/id"),
    ("<proposal>", "release list", "/0/id"),
    ("<proposal>", "sync", "/proposed"),
];

impl Walk {
    /// A walk without machines yet.
    pub fn new(person: Person<'static>, real: &[(&str, &str)]) -> Self {
        let real = real
            .iter()
            .map(|(written, real)| ((*written).to_owned(), (*real).to_owned()));
        Self {
            person,
            people: BTreeMap::new(),
            machines: BTreeMap::new(),
            real: real.collect(),
            sign_ins: 0,
        }
    }

    /// Puts this test's addresses, places and shown values into a word of the page.
    pub fn word(&self, word: &str) -> String {
        let mut text = word.to_owned();
        for (written, real) in &self.real {
            text = text.replace(written, real);
        }
        assert!(!text.contains('<'), "nothing has shown {word}");
        text
    }

    /// Runs a line, which must end as the page says, and keeps what it shows. Returns the member
    /// `data` of its JSON.
    pub fn run(&mut self, chapter: &str, line: &Line) -> Value {
        let arguments: Vec<_> = line.arguments.iter().map(|word| self.word(word)).collect();
        let variables: Vec<_> = line
            .variables
            .iter()
            .map(|(name, value)| (name, self.word(value)))
            .collect();
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        words.extend(["--json", "--yes"]);
        let needs_sign_in = words.starts_with(&["cloud", "connect"])
            || words.starts_with(&["operator"])
            || words.starts_with(&["publishers", "request"])
            || words.contains(&"--from");
        let home = self.machines.entry(line.machine.clone()).or_default();
        let ran = if needs_sign_in {
            self.sign_ins += 1;
            let person = self.people.get(&*line.machine).unwrap_or(&self.person);
            home.sign_in(&words, *person, Answer::Pasted)
        } else {
            let run = |words: &[&str]| {
                let mut command: Command = home.command(words);
                let work = home.path().join("work");
                fs::create_dir_all(&work).unwrap();
                command.current_dir(work);
                command.envs(variables.clone());
                Ran::from(command.output().unwrap())
            };
            let mut ran = run(&words);
            // A person opens the page of a dangerous act and confirms it there.
            if home.confirm_wanted(&ran) {
                ran = run(&words);
            }
            if ran.code == 3 && ran.json()["error"]["code"] == "review_needed" {
                // A person reads it on a terminal and answers.
                let answer = ran.refused(3).answer();
                words.extend(answer.iter().map(String::as_str));
                run(&words)
            } else {
                ran
            }
        };
        let context = format!("{chapter}: {} {:?}", line.machine, line.arguments);
        let (out, err) = (&ran.stdout, &ran.stderr);
        assert_eq!(ran.code, line.code, "{context}\n{out}\n{err}");
        let data = ran.json()["data"].clone();
        let command = line.arguments.join(" ");
        let mut told = BTreeSet::new();
        for (name, beginning, pointer) in SHOWN {
            let Some(value) = data.pointer(pointer) else {
                continue;
            };
            if command.starts_with(beginning) && told.insert(pointer) {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                self.real.retain(|(written, _)| written != name);
                self.real.push((name.to_owned(), value));
            }
        }
        data
    }
}

/// A `vault serve` as a page starts it. It ends with this value.
pub struct Serving(Option<Child>);

impl Serving {
    /// Starts it in this home and waits until it listens. The port takes the place of 8080.
    pub fn start(
        home: &Home,
        arguments: &[String],
        variables: &[(String, String)],
        port: u16,
    ) -> Self {
        let mut command = Command::new(vault_binary());
        home.environment(&mut command);
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env("VAULT_PORT", port.to_string())
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = log.any(|line| line.unwrap().contains("\"listening\""));
        assert!(listens, "the server ended before it listened");
        // A full pipe would stop the server.
        std::thread::spawn(move || log.for_each(drop));
        Self(Some(child))
    }

    /// Asks it to stop, as systemd does, and waits for its end.
    pub fn stop(mut self) {
        let mut child = self.0.take().unwrap();
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &id])
                .status()
                .unwrap()
                .success()
        );
        assert!(child.wait().unwrap().success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
