//! A home for each test, and the built command in it.

pub mod agent;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A home whose commands see nothing of this machine's settings.
pub struct Home(TempDir);

/// How a command with `--json` ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub json: Value,
    pub out: String,
}

impl Home {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A home with a short path of constant length, which keeps the tables of snapshots identical.
    pub fn for_screens(prefix: &str) -> Self {
        let mut builder = tempfile::Builder::new();
        Self(
            builder
                .prefix(prefix)
                .rand_bytes(6)
                .tempdir_in("/tmp")
                .unwrap(),
        )
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file and the folders above it.
    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let file = self.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, bytes).unwrap();
        file
    }

    pub fn write_executable(&self, path: &str, text: &str) -> PathBuf {
        let file = self.write(path, text);
        set_mode(&file, 0o755);
        file
    }

    /// Writes a folder with the SKILL.md of a skill. Returns the folder.
    pub fn skill(&self, path: &str, description: &str) -> PathBuf {
        let folder = self.path(path);
        let name = folder.file_name().unwrap().to_str().unwrap();
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nText.\n");
        self.write(&format!("{path}/SKILL.md"), text);
        folder
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// This program in this home.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root())
            .env_clear()
            .env("HOME", self.root())
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        command
    }

    pub fn vault(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_vault"));
        command.args(arguments);
        command
    }

    /// Runs a command line of words without spaces, with `--json`.
    pub fn run_line(&self, line: &str) -> Ended {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs a command with `--json`.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.vault(arguments).arg("--json"))
    }
}

impl Ended {
    pub fn of(command: &mut Command) -> Self {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        Self {
            code: output.status.code().unwrap(),
            json: serde_json::from_str(&out).unwrap_or(Value::Null),
            out,
        }
    }

    /// Asserts that it succeeded. Returns its data.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.code, 0, "{}", self.out);
        self.json["data"].clone()
    }

    /// Asserts this exit code and this error. Returns the error.
    #[track_caller]
    pub fn fails(self, code: i32, word: &str) -> Value {
        let error = &self.json["error"];
        assert_eq!(
            (self.code, error["code"].as_str()),
            (code, Some(word)),
            "{}",
            self.out
        );
        error.clone()
    }
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs a program that must succeed.
pub fn run_program(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

pub fn make_fifo(path: &Path) {
    run_program(Command::new("mkfifo").arg(path));
}

/// Every file below a folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { &mut open } else { &mut files }.push(path);
        }
    }
    files.sort();
    files
}

/// Overwrites a read-only file of the store.
pub fn tamper(path: &Path, text: &str) {
    set_mode(path, 0o644);
    fs::write(path, text).unwrap();
    set_mode(path, 0o444);
}
