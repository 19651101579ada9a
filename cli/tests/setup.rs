//! `vault setup` in a real terminal: what its screens show, and what it does when it is agreed to.
//!
//! `script` makes the terminal; where there is none the test says so. The screens stand in `tests/screens`.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves, and say what they leave out"
)]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const ENTER: &str = "\r";
const DOWN: &str = "\x1b[B";
const LEFT: &str = "\x1b[D";

/// A terminal of 110 columns whose lines never scroll away.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    pending: String,
}

impl Screen {
    fn feed(&mut self, bytes: &[u8]) {
        self.pending.push_str(&String::from_utf8_lossy(bytes));
        let text: Vec<char> = std::mem::take(&mut self.pending).chars().collect();
        let mut at = 0;
        while at < text.len() {
            match text[at] {
                '\x1b' => {
                    let Some(end) = end_of_escape(&text[at..]) else {
                        self.pending = text[at..].iter().collect();
                        return;
                    };
                    self.escape(&text[at..at + end]);
                    at += end;
                    continue;
                }
                '\r' => self.column = 0,
                '\n' => self.row += 1,
                '\x08' => self.column = self.column.saturating_sub(1),
                c if c >= ' ' => self.put(c),
                _ => {}
            }
            at += 1;
        }
    }

    fn put(&mut self, c: char) {
        if self.lines.len() <= self.row {
            self.lines.resize(self.row + 1, Vec::new());
        }
        let line = &mut self.lines[self.row];
        if line.len() <= self.column {
            line.resize(self.column + 1, ' ');
        }
        line[self.column] = c;
        self.column += 1;
    }

    fn escape(&mut self, sequence: &[char]) {
        let body: String = sequence[1..].iter().collect();
        let Some(rest) = body.strip_prefix('[') else {
            return;
        };
        let (numbers, last) = rest.split_at(rest.len() - 1);
        let number = numbers.parse::<usize>().unwrap_or(1).max(1);
        match last {
            "A" => self.row = self.row.saturating_sub(number),
            "B" => self.row += number,
            "C" => self.column += number,
            "D" => self.column = self.column.saturating_sub(number),
            "E" => {
                self.row += number;
                self.column = 0;
            }
            "F" => {
                self.row = self.row.saturating_sub(number);
                self.column = 0;
            }
            "G" => self.column = number - 1,
            "K" => {
                if let Some(line) = self.lines.get_mut(self.row) {
                    line.truncate(if numbers == "2" { 0 } else { self.column });
                }
            }
            "J" => {
                self.lines.truncate(self.row + 1);
                if let Some(line) = self.lines.get_mut(self.row) {
                    line.truncate(self.column);
                }
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| line.iter().collect::<String>().trim_end().to_owned())
            .collect();
        lines.join("\n").trim().to_owned() + "\n"
    }
}

/// How long an escape sequence is; `None` while the rest of it has not come.
fn end_of_escape(text: &[char]) -> Option<usize> {
    match text.get(1)? {
        '[' => text[2..]
            .iter()
            .position(|c| c.is_ascii_alphabetic() || *c == '~')
            .map(|end| end + 3),
        ']' => text.iter().position(|c| *c == '\x07').map(|end| end + 1),
        _ => Some(2),
    }
}

struct Terminal {
    child: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    screen: Screen,
}

impl Terminal {
    /// Starts `vault` with these arguments in a terminal; `None` where there is no `script`.
    fn start(home: &Path, arguments: &str) -> Option<Self> {
        let command = format!(
            "stty rows 50 cols 110; exec {} {arguments}",
            env!("CARGO_BIN_EXE_vault")
        );
        let mut child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .current_dir(home)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let keys = child.stdin.take().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Some(Self {
            child,
            keys,
            output,
            screen: Screen::default(),
        })
    }

    /// Waits until the screen shows a text, at most a minute.
    fn wait_for(&mut self, text: &str) {
        while !self.screen.text().contains(text) {
            match self.output.recv_timeout(Duration::from_mins(1)) {
                Ok(bytes) => self.screen.feed(&bytes),
                Err(gone) => panic!("{text:?} never came ({gone}):\n{}", self.screen.text()),
            }
        }
    }

    /// Waits for a question and answers it with these keys.
    fn answer(&mut self, question: &str, keys: &[&str]) {
        self.wait_for(question);
        for key in keys {
            self.keys.write_all(key.as_bytes()).unwrap();
            self.keys.flush().unwrap();
        }
    }

    /// Everything until it ends: the last screen and whether it ended well.
    fn finish(mut self) -> (String, bool) {
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_mins(1)) {
            self.screen.feed(&bytes);
        }
        drop(self.keys);
        let ended = self.child.wait().unwrap();
        (self.screen.text(), ended.success())
    }
}

fn home() -> tempfile::TempDir {
    // A short path of one length, so that tables look the same every time.
    let home = tempfile::Builder::new()
        .prefix("setup-")
        .rand_bytes(6)
        .tempdir_in("/tmp")
        .unwrap();
    for mark in [".claude/skills", ".codex", ".cursor"] {
        fs::create_dir_all(home.path().join(mark)).unwrap();
    }
    home
}

fn own_skill(home: &Path, name: &str, body: &str) {
    let folder = home.join(".claude/skills").join(name);
    fs::create_dir_all(&folder).unwrap();
    let text =
        format!("---\nname: {name}\ndescription: Does {name} the way I like it.\n---\n{body}\n");
    fs::write(folder.join("SKILL.md"), text).unwrap();
}

/// Compares a screen with the one that is kept. `SCREENS=overwrite` keeps what is shown now: look at it first.
#[expect(clippy::disallowed_methods, reason = "a switch of the test run")]
fn compare(name: &str, screen: &str, home: &Path) {
    // The name of a vault's key file is the vault's id.
    let screen = match screen.split_once("/keys/") {
        Some((before, after)) => format!("{before}/keys/[ID]{}", &after[26..]),
        None => screen.to_owned(),
    };
    let shown = screen
        .replace(&home.display().to_string(), "[HOME]")
        .replace(env!("CARGO_BIN_EXE_vault"), "vault");
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/screens")
        .join(name);
    if std::env::var_os("SCREENS").is_some_and(|value| value == "overwrite") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &shown).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(shown, kept, "{}", file.display());
}

#[test]
fn a_new_user_goes_through_with_backup_and_every_agent_sees_all() {
    let home = home();
    own_skill(home.path(), "my-notes", "Take notes.");
    let Some(mut terminal) = Terminal::start(home.path(), "setup") else {
        eprintln!("left out: there is no program `script` to make a terminal");
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("What should become of your own skills?", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, good) = terminal.finish();
    assert!(good, "{screen}");
    compare("setup.txt", &screen, home.path());
    for root in [".claude/skills", ".agents/skills", ".cursor/skills"] {
        for skill in ["my-notes", "code-review"] {
            let file = home.path().join(root).join(skill).join("SKILL.md");
            assert!(file.is_file(), "{}", file.display());
        }
    }
    assert!(
        home.path()
            .join(".claude/skills.bak/my-notes/SKILL.md")
            .is_file()
    );
}

#[test]
fn a_review_asks_about_each_and_advanced_about_the_rest() {
    let home = home();
    own_skill(home.path(), "first", "One.");
    own_skill(home.path(), "second", "Two.");
    let Some(mut terminal) = Terminal::start(home.path(), "setup --review --advanced") else {
        eprintln!("left out: there is no program `script` to make a terminal");
        return;
    };
    terminal.answer("Which agents should see", &[ENTER]);
    terminal.answer("Another folder of skills", &[ENTER]);
    terminal.answer("Only skills with one of these tags", &[ENTER]);
    terminal.answer("Refuse skills that the gate flags?", &[ENTER]);
    terminal.answer("Which starter skills", &[LEFT, ENTER]);
    terminal.answer("What should become of first?", &[DOWN, DOWN, ENTER]);
    terminal.answer("What should become of second?", &[ENTER]);
    terminal.answer("Go ahead?", &[ENTER]);
    let (screen, good) = terminal.finish();
    assert!(good, "{screen}");
    compare("setup-review.txt", &screen, home.path());
    let root = home.path().join(".claude/skills");
    assert!(
        fs::symlink_metadata(root.join("first"))
            .unwrap()
            .is_symlink()
    );
    assert!(fs::symlink_metadata(root.join("second")).unwrap().is_dir());
    assert!(!home.path().join(".claude/skills.bak").exists());
}

#[test]
fn who_says_no_has_changed_nothing() {
    let home = home();
    own_skill(home.path(), "mine", "One.");
    let Some(mut terminal) = Terminal::start(home.path(), "setup") else {
        eprintln!("left out: there is no program `script` to make a terminal");
        return;
    };
    terminal.answer("Which starter skills", &[ENTER]);
    terminal.answer("What should become of your own skills?", &[DOWN, ENTER]);
    terminal.answer("Go ahead?", &["n", ENTER]);
    let (screen, good) = terminal.finish();
    assert!(good, "{screen}");
    assert!(screen.contains("Nothing was changed."), "{screen}");
    assert!(!home.path().join(".vault").exists());
    assert!(home.path().join(".claude/skills/mine/SKILL.md").is_file());
}
