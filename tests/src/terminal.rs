//! Runs a program in a pseudo-terminal, which the program `script` creates. A test presses keys,
//! and reads the screen as a person sees it.
//!
//! The tests in `cli/tests` include this file too.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary that includes it uses its own part"
)]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What the key Enter sends.
pub const ENTER: &str = "\r";
/// What the key Escape sends.
pub const ESCAPE: &str = "\x1b";
/// What Ctrl-C sends. The terminal turns it into SIGINT unless the program reads single keys.
pub const INTERRUPT: &str = "\x03";
/// What the key "arrow down" sends.
pub const DOWN: &str = "\x1b[B";
/// What the key "arrow right" sends.
pub const RIGHT: &str = "\x1b[C";
/// What the key "arrow left" sends.
pub const LEFT: &str = "\x1b[D";

/// The columns of a terminal for which a test names no width.
const COLUMNS: usize = 110;
/// Maximum number of pieces of output that a test waits through for a text: a spinner alone writes
/// ten a second.
const MOST_PIECES: usize = 1000;

/// A terminal whose lines never scroll away. A line that is wider than the terminal stays one line
/// here, so that a test can find it.
#[derive(Default)]
pub struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
    pending: String,
}

impl Screen {
    /// Applies output of the program to the screen: text, and the escape sequences that move the
    /// cursor or erase text. Keeps an incomplete sequence for the next call.
    pub fn feed(&mut self, bytes: &[u8]) {
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

    /// Returns the lines of the screen, without blanks at their ends.
    pub fn text(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|line| line.iter().collect::<String>().trim_end().to_owned())
            .collect();
        lines.join("\n").trim().to_owned() + "\n"
    }
}

/// Returns the length of the escape sequence at the start of `text`; `None` if it is incomplete.
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

/// Whether a screen shows a text. The text may be broken into lines between any two words.
pub fn reads(screen: &str, text: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    words(screen).contains(&words(text))
}

/// A program that runs in a terminal of 50 lines.
pub struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    screen: Screen,
}

impl Terminal {
    /// Runs a line of shell in a terminal of 110 columns, with `home` as the home folder and no
    /// other variables of this process. Prints a note and returns `None` if this machine has no
    /// program `script`.
    pub fn start(home: &Path, line: &str) -> Option<Self> {
        Self::start_sized(home, line, COLUMNS)
    }

    /// Like [`Self::start`], in a terminal of this width.
    #[expect(clippy::print_stderr, reason = "says what a test leaves out")]
    pub fn start_sized(home: &Path, line: &str, columns: usize) -> Option<Self> {
        let command = format!("stty rows 50 cols {columns}; exec {line}");
        // Put the folder of a program that is started by its path into `PATH`, so that the program
        // finds itself there, as an installed one does.
        let program = Path::new(line.split(' ').next().unwrap_or_default());
        let folder = program.parent().filter(|_| program.is_absolute());
        let path = folder.map_or_else(String::new, |folder| format!("{}:", folder.display()));
        let child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .current_dir(home)
            .env_clear()
            .env("PATH", format!("{path}/usr/bin:/bin"))
            .env("HOME", home)
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("left out: there is no program `script` to make a terminal");
            return None;
        };
        let keys = child.stdin.take();
        let mut out = child.stdout.take().expect("a pipe");
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

    /// Waits until the screen shows one of these texts, and returns its index; `None` if the
    /// program ended before. Panics if the program writes nothing for a minute, or a lot without
    /// any of the texts.
    pub fn wait_for_any(&mut self, texts: &[&str]) -> Option<usize> {
        for _ in 0..MOST_PIECES {
            let shown = self.screen.text();
            if let Some(found) = texts.iter().position(|text| reads(&shown, text)) {
                return Some(found);
            }
            match self.output.recv_timeout(Duration::from_mins(1)) {
                Ok(bytes) => self.screen.feed(&bytes),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(gone) => panic!("{texts:?} never came ({gone}):\n{}", self.screen.text()),
            }
        }
        panic!("{texts:?} never came:\n{}", self.screen.text())
    }

    /// Waits until the screen shows a text. Panics with the screen if the text does not appear.
    pub fn wait_for(&mut self, text: &str) {
        let found = self.wait_for_any(&[text]);
        assert!(
            found.is_some(),
            "{text:?} never came:\n{}",
            self.screen.text()
        );
    }

    /// Sends keys to the program. Does nothing if the program has ended.
    pub fn press(&mut self, keys: &[&str]) {
        let Some(input) = &mut self.keys else { return };
        for key in keys {
            let _gone = input.write_all(key.as_bytes());
            let _gone = input.flush();
        }
    }

    /// Waits until the screen shows the question, then presses these keys.
    pub fn answer(&mut self, question: &str, keys: &[&str]) {
        self.wait_for(question);
        self.press(keys);
    }

    /// Returns the text of the screen after the output that was read so far.
    pub fn shown(&self) -> String {
        self.screen.text()
    }

    /// Waits until the program ends. Returns its last screen and its exit code, 128 + n if signal n
    /// killed it.
    pub fn finish(mut self) -> (String, i32) {
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_mins(1)) {
            self.screen.feed(&bytes);
        }
        drop(self.keys.take());
        let ended = self.child.wait().expect("an end");
        (self.screen.text(), ended.code().unwrap_or(-1))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Kill the program, so that a failed test leaves none behind, such as a service that waits
        // for Ctrl-C.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
