//! Links and special files in the vault's folder, put there by somebody who can write nowhere else:
//! no command makes, changes or removes anything outside of it on their word, none hangs, and an
//! action runs from where they can't write.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vault_tests::home::{Home, Ran};

use crate::support::{FAILED, INTEGRITY, word};

fn add(home: &Home, name: &str) -> Ran {
    let folder = home.plain_skill(name, "Body.");
    home.run(&format!("add {}", folder.to_str().unwrap()))
}

/// A machine with the skill `alpha`, shown to one agent.
fn machine() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".claude/skills")).unwrap();
    add(&home, "alpha").ok();
    home.run("sync-profiles --discover").ok();
    home
}

/// The files and links below a folder with their bytes or targets.
fn content(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(path, target.into_os_string().into_encoded_bytes());
            } else if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
}

fn put_link(path: &Path, target: &Path) {
    remove(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, path).unwrap();
}

fn put_fifo(path: &Path) {
    remove(path);
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// Runs a command that must end by itself.
#[track_caller]
fn ends(home: &Home, arguments: &[&str]) {
    let mut command = home.command(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // A command that waits for ever is ended with the test: `.config/nextest.toml`.
    command.status().unwrap();
}

#[test]
fn nothing_behind_a_link_in_the_vaults_folder_is_made_or_removed() {
    let place = |home: &Home| {
        let target = home.path().join("Documents");
        for file in ["a.txt", "thesis/one.tex", "alpha", "notes/team.md", "7/x"] {
            let path = target.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "theirs").unwrap();
        }
        symlink("/etc/hosts", target.join("link")).unwrap();
        target
    };
    for folder in [
        "tmp",
        "store",
        "skills",
        "links",
        "profiles",
        "profiles/claude-code",
        "transforms",
        "transforms/notes",
    ] {
        let home = machine();
        let target = place(&home);
        let beta = home.plain_skill("beta", "Body.");
        put_link(&home.vault().join(folder), &target);
        let before = content(&target);
        for command in [
            &["add", beta.to_str().unwrap()][..],
            &["sync-profiles"],
            &["transform", "remove", "notes", "team"],
            &["doctor", "--clean"],
            &["doctor", "--repair", "--yes"],
            &["disable", "alpha"],
            &["remove", "alpha", "--yes"],
        ] {
            let ran = home.run(command);
            assert_eq!(content(&target), before, "{folder}: {command:?}: {ran:?}");
        }
        if !folder.contains('/') {
            let refused = add(&home, "gamma").expect_code(FAILED);
            assert!(
                refused.stderr.contains("it is a link"),
                "{}",
                refused.stderr
            );
        }
    }
}

#[test]
fn a_link_in_place_of_the_temporary_folder_costs_no_key() {
    let home = machine();
    put_link(&home.vault().join("tmp"), &home.config());
    let before = content(&home.config());
    add(&home, "beta").expect_code(FAILED);
    assert_eq!(content(&home.config()), before);
    remove(&home.vault().join("tmp"));
    add(&home, "beta").ok();
    home.run(&["verify"]).ok();
}

#[test]
fn the_index_makes_no_file_behind_a_link_and_waits_for_nobody() {
    let home = machine();
    let index = home.vault().join("index.db");
    for absent in [
        home.config().join("config.toml"),
        home.own_trust().join("withdrawn.json"),
    ] {
        put_link(&index, &absent);
        home.run("skill list").ok();
        add(&home, "beta").ok();
        assert!(!absent.exists(), "{}", absent.display());
    }
    remove(&index);
    for name in ["index.db", "index.db-journal"] {
        let path = home.vault().join(name);
        put_fifo(&path);
        ends(&home, &["skill", "list"]);
        ends(&home, &["doctor"]);
        remove(&path);
    }
    home.run("skill list").ok();
}

#[test]
fn an_action_runs_from_where_a_writer_of_the_vaults_folder_cannot_write() {
    let home = Home::new();
    let text = "---\nname: where\ndescription: Says where its files are when it runs.\nbin:\n  go:\n    command: scripts/go.sh\n---\nBody.\n";
    let folder = home.skill(
        "where",
        &[
            ("SKILL.md", text.as_bytes()),
            ("scripts/go.sh", b"#!/bin/sh\necho \"$0\"; pwd -P\n"),
        ],
    );
    home.run(&format!("add {}", folder.to_str().unwrap())).ok();
    let ran = home.run("skill go where").ok();
    let (vault, trust) = (
        home.vault().canonicalize().unwrap(),
        home.config().canonicalize().unwrap(),
    );
    for line in ran.stdout.lines() {
        let path = Path::new(line);
        assert!(!path.starts_with(&vault), "{line}");
        assert!(path.starts_with(&trust), "{line}");
        assert!(!path.exists(), "the copy is gone");
    }
    assert_eq!(ran.stdout.lines().count(), 2);
}

#[test]
fn the_vaults_folder_says_nothing_of_the_folders_of_agents() {
    let home = machine();
    let further = home.path().join("site-packages");
    fs::create_dir(&further).unwrap();
    let planted = format!(
        r#"{{"schema":"vault.profiles/1","roots":[{{"path":"{}","agents":["claude-code"],"scope":"given","mode":"copy"}}]}}"#,
        further.display()
    );
    for name in ["profiles.json", "agent-folders.json"] {
        fs::write(home.vault().join(name), &planted).unwrap();
    }
    let off = r#"{"disabled":[{"name":"alpha","agent":null}]}"#;
    fs::write(home.vault().join("disabled.json"), off).unwrap();
    add(&home, "beta").ok();
    home.run(&["sync-profiles"]).ok();
    assert_eq!(fs::read_dir(&further).unwrap().count(), 0);
    let shown = home.path().join(".claude/skills");
    assert!(shown.join("alpha/SKILL.md").exists());
    assert!(shown.join("beta/SKILL.md").exists());
    home.run("disable alpha").ok();
    fs::write(home.vault().join("disabled.json"), r#"{"disabled":[]}"#).unwrap();
    home.run(&["sync-profiles"]).ok();
    assert!(!shown.join("alpha").exists());
}

#[test]
fn a_name_that_stands_for_another_skill_is_shown_to_no_agent() {
    let home = machine();
    home.run("skill list").ok();
    let target = fs::read_link(home.vault().join("skills/alpha")).unwrap();
    symlink(target, home.vault().join("skills/zeta")).unwrap();
    let synced = home.run(&["sync-profiles"]);
    assert!(synced.stderr.contains("zeta"), "{}", synced.stderr);
    let shown = home.path().join(".claude/skills");
    assert!(shown.join("alpha").exists() && shown.join("zeta").symlink_metadata().is_err());
    home.run(&["verify"]).expect_code(INTEGRITY);
}

#[test]
fn an_emptied_folder_or_another_vault_in_it_is_said_to_be_one() {
    let home = machine();
    let vault = home.vault();
    let work = home.path().join("workplace");
    let folder = home.plain_skill("beta", "Body.");
    let work_vault = work.to_str().unwrap();
    home.run(&format!(
        "--vault {work_vault} add {}",
        folder.to_str().unwrap()
    ))
    .ok();
    let kept = home.path().join("kept");
    fs::create_dir(&kept).unwrap();
    let put = |from: Option<&Path>| {
        for entry in fs::read_dir(&vault).unwrap() {
            let path = entry.unwrap().path();
            let done = Command::new("rm").arg("-rf").arg(&path).status().unwrap();
            assert!(done.success());
        }
        if let Some(from) = from {
            let mut cp = Command::new("cp");
            let done = cp.arg("-a").arg(from.join(".")).arg(&vault).status();
            assert!(done.unwrap().success());
        }
    };
    let mut cp = Command::new("cp");
    let done = cp.arg("-a").arg(vault.join(".")).arg(&kept).status();
    assert!(done.unwrap().success());
    // The second is another vault of the same person, whose keys this machine has.
    for other in [None, Some(work.as_path())] {
        put(other);
        for command in [
            &["verify"][..],
            &["skill", "list"],
            &["doctor"],
            &["sync", "--cloud"],
            &["add", folder.to_str().unwrap()],
            &["key", "rotate", "--yes"],
        ] {
            let ran = home.run(&[command, &["--json"]].concat());
            let refused = (INTEGRITY, "vault_swapped".to_owned());
            assert_eq!((ran.code, word(&ran)), refused, "{command:?}: {ran:?}");
        }
    }
    put(Some(&kept));
    home.run(&["verify"]).ok();
    // The folder may lie elsewhere from now on, and the owner may want another vault in its place.
    let moved = home.path().join("moved");
    fs::rename(&vault, &moved).unwrap();
    home.run(&format!("--vault {} verify", moved.to_str().unwrap()))
        .ok();
    let refused = add(&home, "alpha").expect_code(INTEGRITY);
    let hint = refused.stderr.split("rm -r ").nth(1).unwrap();
    fs::remove_dir_all(hint.lines().next().unwrap().trim()).unwrap();
    add(&home, "alpha").ok();
}
