//! A vault in its own folder, with a manual clock and seeded keys.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod host;
pub mod pair;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vault_library::admit::remove::{RemoveReport, RemoveSkills, remove_skills};
use vault_library::admit::{AdmitError, AdmitReport, Neighbours, Options, Source, admit, examine};
use vault_library::{Vault, VaultPaths};
use vault_skill::name::SkillName;
use vault_store::clock::TestClock;
use vault_store::random::SeededRandom;

pub struct Home {
    pub folder: tempfile::TempDir,
    pub clock: Arc<TestClock>,
    pub vault: Vault,
}

impl Home {
    pub fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::default());
        let vault = open(folder.path(), &clock, seed);
        Self {
            folder,
            clock,
            vault,
        }
    }

    /// The same vault opened again, as another process would.
    pub fn again(&self) -> Vault {
        open(self.folder.path(), &self.clock, 99)
    }

    /// Another machine with a copy of this vault and its keys.
    pub fn copy(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for part in ["vault", "config"] {
            let copied = std::process::Command::new("cp")
                .arg("-a")
                .arg(self.path(part))
                .arg(folder.path().join(part))
                .status();
            assert!(copied.unwrap().success());
        }
        let clock = Arc::new(TestClock::default());
        let vault = open(folder.path(), &clock, 99);
        Self {
            folder,
            clock,
            vault,
        }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a skill folder with a SKILL.md and these files; names that begin with `bin/` are
    /// executable.
    pub fn source(&self, name: &str, body: &str, files: &[(&str, &[u8])]) -> PathBuf {
        let folder = self.path("sources").join(name);
        let _absent = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SKILL.md"), skill_md(name, "", body)).unwrap();
        for (path, bytes) in files {
            write(&folder.join(path), bytes, path.starts_with("bin/"));
        }
        folder
    }

    pub fn add(&self, name: &str, body: &str) -> AdmitReport {
        let folder = self.source(name, body, &[("notes.txt", b"notes\n")]);
        vault_library::add_folder(&self.vault, &folder, &Options::default()).unwrap()
    }

    pub fn add_folder(&self, folder: &Path) -> AdmitReport {
        vault_library::add_folder(&self.vault, folder, &Options::default()).unwrap()
    }

    pub fn remove(&self, name: &str, withdraw: Option<&str>) -> RemoveReport {
        remove(&self.vault, name, withdraw)
    }

    /// The listed own skills with their versions.
    pub fn listed(&self) -> BTreeMap<String, u64> {
        let listing = vault_library::shelf::list(&self.vault).unwrap();
        assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
        listing
            .skills
            .into_iter()
            .map(|skill| (skill.name.to_string(), skill.version))
            .collect()
    }
}

fn open(folder: &Path, clock: &Arc<TestClock>, seed: u64) -> Vault {
    let paths = VaultPaths::new(folder.join("vault"), folder.join("config"));
    Vault::open_or_create(
        paths,
        Arc::clone(clock) as _,
        Arc::new(SeededRandom::new(seed)),
    )
    .unwrap()
}

/// Removes an own skill; `withdraw` also withdraws its bundles, for this reason.
pub fn remove(vault: &Vault, name: &str, withdraw: Option<&str>) -> RemoveReport {
    let request = RemoveSkills {
        names: vec![name.to_owned()],
        withdraw: withdraw.map(str::to_owned),
        ..RemoveSkills::default()
    };
    remove_skills(vault, &request).unwrap()
}

pub fn skill_md(name: &str, more: &str, body: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Does the work of {name} in a test.\n{more}---\n{body}\n"
    )
}

pub fn write(path: &Path, bytes: &[u8], executable: bool) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
    set_mode(path, if executable { 0o755 } else { 0o644 });
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path)
        .unwrap()
        .permissions()
        .mode()
        & 0o7777
}

pub fn name(text: &str) -> SkillName {
    text.parse().unwrap()
}

/// Every path below a folder with its mode and content, or the target of a symlink.
pub fn snapshot(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let shown = path
                .strip_prefix(folder)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let found = std::fs::symlink_metadata(&path).unwrap();
            let text = if found.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if found.is_dir() {
                open.push(path.clone());
                format!("{:o} dir", mode(&path))
            } else {
                format!("{:o} {:?}", mode(&path), std::fs::read(&path).unwrap())
            };
            all.insert(shown, text);
        }
    }
    all
}

/// A snapshot of what a failed command must not change: everything except the rebuildable index,
/// the lock file and the temporary folder.
pub fn durable(vault: &Vault) -> BTreeMap<String, String> {
    let mut all = snapshot(&vault.paths().root);
    all.retain(|path, _| !path.starts_with("index.db") && path != "lock" && path != "tmp");
    all
}

impl Home {
    pub fn now(&self) -> vault_skill::time::Timestamp {
        vault_store::clock::Clock::now(&*self.clock)
    }
}

/// Adds several folders in one call, as the command line does; each has its own result.
pub fn add_folders(vault: &Vault, folders: &[PathBuf]) -> Vec<Result<AdmitReport, AdmitError>> {
    let mut neighbours = Neighbours::of(vault);
    let examined = folders
        .iter()
        .map(|folder| examine(Source::folder(folder), &Options::default(), &mut neighbours));
    let mut answers = Vec::new();
    let mut candidates = Vec::new();
    for examined in examined {
        answers.push(examined.map(|candidate| candidates.push(candidate)));
    }
    let mut reports = admit(vault, &candidates).unwrap().into_iter();
    answers
        .into_iter()
        .map(|answer| answer.and_then(|()| reports.next().unwrap()))
        .collect()
}
