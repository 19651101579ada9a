//! A simulated machine of one person: a temporary home folder, in which `vault` runs without the
//! variables of this process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Returns the path of the binary under test, which is beside the test binaries of the same build.
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
    /// Returns the arguments in order, without the name of the program.
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
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

#[expect(
    clippy::return_self_not_must_use,
    reason = "often only the check is wanted"
)]
impl Ran {
    /// Returns this result. Panics with both streams unless the command ended with `code`.
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

    /// Returns this result. Panics with both streams unless the command ended with 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.expect_code(0)
    }

    /// Parses standard output as one JSON value. Panics if it is none.
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
    /// Creates an empty home folder, which is removed together with this value.
    pub fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("vault-home-")
                .tempdir()
                .expect("a temporary folder"),
        }
    }

    /// The absolute path of the home folder.
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

    /// Returns the part of the trust folder that belongs to the vault of this home. Panics if there
    /// is no vault.
    pub fn own_trust(&self) -> PathBuf {
        let bytes = std::fs::read(self.vault().join("vault.json")).expect("a vault");
        let format: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        let id = format["vault_id"].as_str().expect("the id of a vault");
        self.config().join("vaults").join(id)
    }

    /// Returns the key files of the vault of this home.
    pub fn own_keys(&self) -> Vec<PathBuf> {
        let folder = std::fs::read_dir(self.own_trust().join("keys")).expect("a folder of keys");
        folder
            .map(|entry| entry.expect("a readable folder").path())
            .collect()
    }

    /// Changes the record of what this machine trusts about the vault with this id, for example to
    /// make it older.
    pub fn change_trust(&self, vault: &str, change: impl FnOnce(&mut serde_json::Value)) {
        let path = self.config().join("vaults").join(vault).join("trust.json");
        let bytes = std::fs::read(&path).expect("a vault that is trusted here");
        let mut trust = serde_json::from_slice(&bytes).expect("JSON");
        change(&mut trust);
        std::fs::write(&path, trust.to_string()).expect("a file of the test's own");
    }

    /// Creates a `vault` command that runs in this home, without other variables and without input.
    pub fn command(&self, arguments: &(impl Arguments + ?Sized)) -> Command {
        let mut command = Command::new(vault_binary());
        self.environment(&mut command);
        command
            .args(arguments.list())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Sets the environment of `command` to that of this home and nothing else. Temporary files go
    /// to the folder `tmp` of the home, if it exists.
    pub fn environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path().join(".config"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("NO_COLOR", "1");
        // A killed command leaves its temporary files behind. A test that looks for them creates
        // this folder.
        let temporary = self.path().join("tmp");
        if temporary.is_dir() {
            command.env("TMPDIR", temporary);
        }
        let agent = crate::ssh_agent::socket(self);
        if agent.exists() {
            command.env("SSH_AUTH_SOCK", agent);
        }
    }

    /// Runs `vault` to its end. If the service asks for a confirmation, confirms it as the person
    /// who signed in last in this home, and runs the command once more.
    pub fn run(&self, arguments: &(impl Arguments + ?Sized)) -> Ran {
        let ran = self.run_once(arguments);
        if self.confirm_wanted(&ran) {
            return self.run_once(arguments);
        }
        ran
    }

    /// Runs `vault` to its end. Does not confirm a change, so the command fails if the service asks
    /// for a confirmation.
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
