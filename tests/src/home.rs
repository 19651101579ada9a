//! A person's machine: a home folder of its own, and `vault` run in it with nothing of this
//! machine's environment.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The binary under test: beside the test binaries of the same build.
pub fn vault_binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("vault")
}

/// A temporary home folder in which tests run `vault` as one user of one machine.
pub struct Home {
    folder: TempDir,
}

/// The arguments of a command: a line as people type it, divided at blanks, or a list where an
/// argument may hold one.
pub trait Arguments {
    /// The arguments one by one.
    fn list(&self) -> Vec<&str>;
}

impl Arguments for str {
    fn list(&self) -> Vec<&str> {
        self.split_whitespace().collect()
    }
}

impl Arguments for String {
    fn list(&self) -> Vec<&str> {
        self.as_str().list()
    }
}

impl<S: AsRef<str>> Arguments for [S] {
    fn list(&self) -> Vec<&str> {
        self.iter().map(AsRef::as_ref).collect()
    }
}

impl<S: AsRef<str>, const N: usize> Arguments for [S; N] {
    fn list(&self) -> Vec<&str> {
        self[..].list()
    }
}

impl<S: AsRef<str>> Arguments for Vec<S> {
    fn list(&self) -> Vec<&str> {
        self[..].list()
    }
}

impl<A: Arguments + ?Sized> Arguments for &A {
    fn list(&self) -> Vec<&str> {
        (**self).list()
    }
}

/// The exit code and the output of a command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

#[expect(
    clippy::return_self_not_must_use,
    reason = "often only the check is wanted"
)]
impl Ran {
    /// Panics with both streams unless the command ended with `code`.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        self.ended_with(code);
        self
    }

    /// Panics with both streams unless the command ended with `code`.
    #[track_caller]
    pub fn ended_with(&self, code: i32) {
        assert_eq!(
            self.code, code,
            "unexpected exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout, self.stderr
        );
    }

    /// Panics with both streams unless the command ended with 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.expect_code(0)
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!(
                "not JSON ({error})\n--- stdout\n{}\n--- stderr\n{}",
                self.stdout, self.stderr
            )
        })
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// A new empty home.
    pub fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("vault-home-")
                .tempdir()
                .expect("a temporary folder"),
        }
    }

    /// The home folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Path of the vault, which need not exist yet.
    pub fn vault(&self) -> PathBuf {
        self.path().join(".vault")
    }

    /// The trust folder: root versions, keys, pins and tokens.
    pub fn config(&self) -> PathBuf {
        self.path().join(".config/vault")
    }

    /// The part of the trust folder that belongs to the own vault.
    pub fn own_trust(&self) -> PathBuf {
        let bytes = std::fs::read(self.vault().join("vault.json")).expect("a vault");
        let format: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        let id = format["vault_id"].as_str().expect("the id of a vault");
        self.config().join("vaults").join(id)
    }

    /// The files of the own secret keys.
    pub fn own_keys(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.own_trust().join("keys")).expect("a folder of keys");
        folder
            .map(|entry| entry.expect("a readable folder").path())
            .collect()
    }

    /// Changes what this machine trusts about a vault, as if it had done so at another time.
    pub fn change_trust(&self, vault: &str, change: impl FnOnce(&mut serde_json::Value)) {
        let path = self.config().join("vaults").join(vault).join("trust.json");
        let bytes = std::fs::read(&path).expect("a vault that is trusted here");
        let mut trust = serde_json::from_slice(&bytes).expect("JSON");
        change(&mut trust);
        std::fs::write(&path, trust.to_string()).expect("a file of the test's own");
    }

    /// A `vault` command in this home: clean environment, no input.
    pub fn command(&self, arguments: &(impl Arguments + ?Sized)) -> Command {
        let mut command = Command::new(vault_binary());
        self.environment(&mut command);
        command
            .args(arguments.list())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Gives `command` this home's environment and nothing else; temporary files go to its folder
    /// `tmp`, where it has one.
    pub fn environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path().join(".config"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("NO_COLOR", "1");
        // Killed commands leave their temporary files: a home that is to hold them has a folder for
        // that.
        let temporary = self.path().join("tmp");
        if temporary.is_dir() {
            command.env("TMPDIR", temporary);
        }
        let agent = crate::ssh_agent::socket(self);
        if agent.exists() {
            command.env("SSH_AUTH_SOCK", agent);
        }
    }

    /// Runs `vault` to its end. Where it wants a person's confirmation, the person who signed in
    /// here confirms, and it runs once more.
    pub fn run(&self, arguments: &(impl Arguments + ?Sized)) -> Ran {
        let ran = self.run_once(arguments);
        if self.confirm_wanted(&ran) {
            return self.run_once(arguments);
        }
        ran
    }

    /// Runs `vault` to its end, without confirming a change that asks for it.
    pub fn run_once(&self, arguments: &(impl Arguments + ?Sized)) -> Ran {
        self.command(arguments)
            .output()
            .expect("the built binary")
            .into()
    }

    /// Writes a skill folder `name` under `work/` and returns its path.
    pub fn skill(&self, name: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let folder = self.path().join("work").join(name);
        crate::skills::write(&folder, files);
        folder
    }

    /// Writes a skill of one SKILL.md with this body under `work/` and returns its folder.
    pub fn plain_skill(&self, name: &str, body: &str) -> PathBuf {
        self.skill(name, &[("SKILL.md", &crate::skills::skill_md(name, body))])
    }

    /// Writes a skill with this name and body, and adds it to the vault.
    pub fn add(&self, name: &str, body: &str) -> Ran {
        let folder = self.plain_skill(name, body);
        self.run(&format!("add {}", folder.display()))
    }
}
