//! A test program that starts itself again as another process.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a started process is to do: the name of its task, a space, its arguments.
const TASK: &str = "VAULT_SQL_TEST_TASK";
/// What begins a line that is meant for the parent; the test harness writes lines of its own.
const MARK: &str = ">> ";

/// The task given to this process, if a test has started it: a word and the rest.
#[expect(
    clippy::disallowed_methods,
    reason = "how a test's child learns what to do"
)]
pub fn task() -> Option<(String, String)> {
    let task = std::env::var(TASK).ok()?;
    let (name, rest) = task.split_once(' ')?;
    Some((name.to_owned(), rest.to_owned()))
}

/// Says a word to the parent.
pub fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone does not listen.
    let _ = writeln!(out, "\n{MARK}{word}").and_then(|()| out.flush());
}

/// Waits for a line from the parent, or its end.
pub fn wait() {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// This test program, running its test `child` with a task.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
}

impl Process {
    /// Starts it. `shell` may set limits first: the text of a shell script that ends in nothing.
    pub fn start(task: &str, shell: &str) -> Self {
        let program = std::env::current_exe().expect("the test program has a path");
        let mut command = Command::new("/bin/sh");
        command
            .args([
                "-c",
                &format!("{shell}\nexec \"$0\" --exact child --nocapture"),
            ])
            .arg(program);
        command
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("the test program starts");
        let stdin = child.stdin.take().expect("it is piped");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self {
            child,
            lines,
            stdin,
        }
    }

    /// The next word of the child, or `None` when it has ended.
    pub fn hear(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some(word) = line.strip_prefix(MARK) {
                return Some(word.to_owned());
            }
        }
    }

    /// Lets the child go on.
    pub fn go(&mut self) {
        self.stdin.write_all(b"go\n").expect("the child waits");
    }

    /// Ends the child as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is ours");
    }

    /// Waits for its end; true when all went well there.
    pub fn ended_well(mut self) -> bool {
        drop(self.stdin);
        self.child.wait().expect("it is ours").success()
    }
}
