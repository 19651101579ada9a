//! A stranger's repository against every command that works on a project: nothing outside of it
//! changes, and what it contains reaches no terminal as it is.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use vault_tests::home::{Home, Ran};
use vault_tests::tree;

use crate::projects::{hostile_repository, run_in};
use crate::support::{FAILED, USAGE, WRITERS, word};

/// Each command that takes a project, as a user types it in the repository.
const VERBS: &[&[&str]] = &[
    &["add", "./any/where/alpha", "--project"],
    &["add", "./any/where/alpha", "--project", "--dry-run"],
    &["list", "--project"],
    &["outdated", "--project"],
    &["update", "--project"],
    &["update", "--project", "--diff"],
    &["verify", "--project"],
    &["doctor", "--project"],
    &["remove", "alpha", "--project"],
    &["install"],
    &["install", "--frozen"],
    &["install", "--resolve"],
    &["setup", "--project", "--yes"],
];

/// A machine with a skill and an agent of the user's, a hostile repository, and a folder beside it
/// that nothing may change.
struct Scene {
    machine: Home,
    repository: PathBuf,
    outside: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let machine = Home::new();
        for folder in [".claude/skills", ".codex"] {
            fs::create_dir_all(machine.path().join(folder)).unwrap();
        }
        machine.add("mine", "My own text.").ok();
        let repository = hostile_repository(&machine);
        let outside = machine.path().join("outside");
        fs::create_dir_all(outside.join("skills")).unwrap();
        fs::write(outside.join("notes"), "Mine.\n").unwrap();
        Self {
            machine,
            repository,
            outside,
        }
    }

    fn lock(&self) -> PathBuf {
        self.repository.join("vault.lock")
    }

    /// Runs each command after `spoil` has changed the repository, from the same state each. What
    /// the repository contains may change; nothing else may, and the bytes of projects are in the
    /// store and in `projects`.
    fn every_command(&self, name: &str, spoil: impl Fn(&Self)) -> Vec<Ran> {
        let (pristine, projects) = (self.machine.path().join("pristine"), "repo");
        if !pristine.exists() {
            fs::rename(&self.repository, &pristine).unwrap();
        }
        let mut may_change = WRITERS.to_vec();
        may_change.extend([
            projects,
            ".vault/store",
            ".vault/generation",
            ".config/vault/projects",
        ]);
        let mut all = Vec::new();
        for verb in VERBS {
            if self.repository.symlink_metadata().is_ok() {
                fs::remove_dir_all(&self.repository).unwrap();
            }
            copy(&pristine, &self.repository);
            spoil(self);
            let before = tree::snapshot(self.machine.path(), &may_change);
            let arguments = [verb, &["--json", "--offline"][..]].concat();
            let ran = run_in(&self.machine, &self.repository, &arguments);
            let shown = format!("{name}: {verb:?}: {} {}", ran.stdout, ran.stderr);
            assert!((0..=10).contains(&ran.code), "{shown}");
            let raw = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
            assert!(!raw(&ran.stdout) && !raw(&ran.stderr), "{shown}");
            let after = tree::snapshot(self.machine.path(), &may_change);
            assert_eq!(before, after, "{shown}");
            all.push(ran);
        }
        all
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn code_of(ran: &Ran) -> String {
    if ran.code == 0 {
        String::new()
    } else {
        word(ran)
    }
}

#[test]
fn no_command_of_a_project_follows_its_links() {
    let scene = Scene::new();
    for target in [scene.outside.clone(), scene.machine.vault()] {
        for ran in scene.every_command(".vault is a link", |scene| {
            symlink(&target, scene.repository.join(".vault")).unwrap();
        }) {
            assert_eq!(
                (ran.code, code_of(&ran)),
                (USAGE, "project_invalid".to_owned())
            );
        }
    }
    scene.every_command("agents' folders are links", |scene| {
        symlink(&scene.outside, scene.repository.join(".claude")).unwrap();
        symlink(&scene.outside, scene.repository.join(".agents")).unwrap();
    });
    scene.every_command("the folders of skills are links", |scene| {
        for folder in [".claude", ".agents"] {
            fs::create_dir(scene.repository.join(folder)).unwrap();
            symlink(&scene.outside, scene.repository.join(folder).join("skills")).unwrap();
        }
    });
    for ran in scene.every_command("the lock is a link", |scene| {
        fs::copy(
            scene.lock(),
            scene.machine.path().join("repo/elsewhere.lock"),
        )
        .unwrap();
        fs::remove_file(scene.lock()).unwrap();
        symlink("elsewhere.lock", scene.lock()).unwrap();
    }) {
        assert_eq!(
            (ran.code, code_of(&ran)),
            (FAILED, "lock_invalid".to_owned())
        );
    }
}

#[test]
fn an_ignore_file_that_is_no_file_is_named_and_left_alone() {
    let scene = Scene::new();
    let folder = |scene: &Scene| {
        let folder = scene.repository.join(".claude/skills");
        fs::create_dir_all(&folder).unwrap();
        folder.join(".gitignore")
    };
    let is_named = |ran: &Ran| ran.stdout.contains("links_not_ignored");
    let link = scene.every_command("a link", |scene| {
        symlink(scene.outside.join("notes"), folder(scene)).unwrap();
    });
    let directory = scene.every_command("a folder", |scene| {
        fs::create_dir(folder(scene)).unwrap();
    });
    let pipe = scene.every_command("a pipe", |scene| {
        let made = std::process::Command::new("mkfifo")
            .arg(folder(scene))
            .status();
        assert!(made.unwrap().success());
    });
    let broken = scene.every_command("a block without an end", |scene| {
        let begin = "# BEGIN vault: links to the skills of vault.lock\n";
        fs::write(folder(scene), format!("*.log\n{begin}*.tmp\n")).unwrap();
    });
    let large = scene.every_command("too large", |scene| {
        fs::write(folder(scene), "x\n".repeat(1 << 20)).unwrap();
    });
    for all in [link, directory, pipe, broken, large] {
        for ran in all
            .iter()
            .zip(VERBS)
            .filter(|(_, verb)| verb[..] == ["install"])
        {
            assert!(is_named(ran.0), "{}", ran.0.stdout);
        }
    }
}

#[test]
fn a_hostile_lock_is_refused_by_every_command() {
    let scene = Scene::new();
    let entry = |name: &str, source: &str| {
        let digest = "0".repeat(64);
        format!(
            "schema = 1\n\n[[skill]]\nname = {name}\nsource = {source}\ndigest = \"{digest}\"\n"
        )
    };
    for (name, source) in [
        ("\"../../outside\"", "\"./any/where/alpha\""),
        ("\"al\\u001b[2Jpha\"", "\"./any/where/alpha\""),
        ("\"alpha\\n\"", "\"./any/where/alpha\""),
        ("\".gitignore\"", "\"./any/where/alpha\""),
    ] {
        for ran in scene.every_command(name, |scene| {
            fs::write(scene.lock(), entry(name, source)).unwrap();
        }) {
            assert_eq!(
                (ran.code, code_of(&ran)),
                (FAILED, "lock_invalid".to_owned()),
                "{name}"
            );
        }
    }
    for source in [
        "\"./../outside\"",
        "\"./any/../../outside\"",
        "\".//etc\"",
        "\"file:///etc\"",
        "\"ext::sh -c touch% outside/owned\"",
        "\"./\\u001b[31m\"",
        "\"git:https://a\\u0007.example/x.git\"",
    ] {
        scene.every_command(source, |scene| {
            fs::write(scene.lock(), entry("\"alpha\"", source)).unwrap();
        });
    }
    // Unknown members are named as what they are, and never as they are.
    scene.every_command("a member", |scene| {
        let lock = fs::read_to_string(scene.lock()).unwrap();
        fs::write(scene.lock(), format!("{lock}\"\\u001b[2J\" = 1\n")).unwrap();
    });
    // 100 MB are refused by the size alone.
    for ran in scene.every_command("100 MB", |scene| {
        let file = fs::File::options().write(true).open(scene.lock()).unwrap();
        file.set_len(100_000_000).unwrap();
    }) {
        assert_eq!(
            (ran.code, code_of(&ran)),
            (FAILED, "lock_too_large".to_owned())
        );
    }
    // Conflict markers whose labels are not for a terminal.
    scene.every_command("markers", |scene| {
        let lock = fs::read_to_string(scene.lock()).unwrap();
        let text = format!("<<<<<<< \u{1b}[2JHEAD\n{lock}=======\n{lock}>>>>>>> \u{7}x\n");
        fs::write(scene.lock(), text).unwrap();
    });
}

#[test]
fn a_root_leads_to_no_other_place() {
    let scene = Scene::new();
    let (home, vault) = (scene.machine.path().to_owned(), scene.machine.vault());
    let lock = fs::read_to_string(scene.lock()).unwrap();
    for folder in [&home, &vault, &vault.join("skills")] {
        fs::write(folder.join("vault.lock"), &lock).unwrap();
    }
    let link = home.join("link");
    symlink(&home, &link).unwrap();
    let file = scene.outside.join("notes");
    let may_change = WRITERS;
    let before = tree::snapshot(&home, may_change);
    for root in [
        &home,
        &link,
        &vault,
        &vault.join("skills"),
        &file,
        &home.join("none"),
        &PathBuf::from("/proc/1"),
    ] {
        for verb in VERBS.iter().filter(|verb| verb[0] != "setup") {
            let root = root.display().to_string();
            let arguments = [verb, &["--root", &root, "--json", "--offline"][..]].concat();
            let ran = run_in(&scene.machine, &scene.repository, &arguments);
            let shown = format!("{root}: {verb:?}: {} {}", ran.stdout, ran.stderr);
            assert!((1..=10).contains(&ran.code), "{shown}");
            assert_eq!(tree::snapshot(&home, may_change), before, "{shown}");
        }
    }
}
