//! Tests of adopting skills from the agents' own folders: what is found, what moves where, and what
//! is never lost.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod support;

use std::fs;
use std::os::unix::fs::symlink;

use support::{Home, skill_md, snapshot, write};
use vault_library::agents::Machine;
use vault_library::agents::setup::{
    AdoptNativeError, AdoptionMode, NativeSkill, NativeState, Scan, adopt, scan,
};
use vault_library::agents::{SyncProfilesInput, sync_profiles};

fn native(home: &Home, root: &str, name: &str, body: &str) {
    let folder = home.path(root).join(name);
    write(
        &folder.join("SKILL.md"),
        skill_md(name, "", body).as_bytes(),
        false,
    );
    write(&folder.join("bin/run"), b"#!/bin/sh\n", true);
}

fn look(home: &Home) -> Scan {
    let machine = Machine::at(home.path(""));
    scan(Some(&home.vault), &machine, &[], true).unwrap()
}

fn find<'s>(scan: &'s Scan, name: &str) -> &'s NativeSkill {
    scan.skills
        .iter()
        .find(|skill| skill.name.as_str() == name)
        .unwrap()
}

fn sync(home: &Home) {
    let input = SyncProfilesInput {
        machine: Machine::at(home.path("")),
        discover: true,
        ..SyncProfilesInput::default()
    };
    sync_profiles(&home.vault, &input).unwrap();
}

#[test]
fn own_skills_are_found_and_everything_else_is_left_out() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "new", "x");
    native(&home, ".claude/skills", "differs", "x");
    native(&home, ".claude/skills", "My Notes", "x");
    native(&home, "elsewhere", "target", "x");
    write(
        &home.path(".claude/skills/bad/SKILL.md"),
        b"no frontmatter",
        false,
    );
    write(&home.path(".claude/skills/plain/README.md"), b"x", false);
    symlink(
        home.path("elsewhere/target"),
        home.path(".claude/skills/target"),
    )
    .unwrap();
    home.add("differs", "other");
    home.add("linked", "one");
    sync(&home);
    let before = snapshot(&home.path(".claude"));
    let found = look(&home);
    assert!(snapshot(&home.path(".claude")) == before);
    let names: Vec<_> = found
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .collect();
    assert_eq!(names, ["bad", "differs", "my-notes", "new"]);
    assert!(matches!(find(&found, "new").state, NativeState::New));
    assert!(matches!(
        find(&found, "differs").state,
        NativeState::Differs
    ));
    assert!(matches!(
        find(&found, "bad").state,
        NativeState::Refused { .. }
    ));
    assert_eq!(find(&found, "new").agents[0].as_str(), "claude-code");
    assert_eq!(found.roots, [home.path(".claude/skills")]);
}

#[test]
fn a_backup_keeps_the_folder_beside_and_links_the_skill() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let bytes = snapshot(&home.path(".claude/skills/mine"));
    let found = look(&home);
    let done = adopt(
        &home.vault,
        find(&found, "mine"),
        AdoptionMode::Backup,
        false,
        true,
    )
    .unwrap();
    let backup = done.backup.unwrap();
    assert_eq!(backup, home.path(".claude/skills.bak/mine"));
    assert!(snapshot(&backup) == bytes);
    sync(&home);
    let link = home.path(".claude/skills/mine");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(
        fs::read(link.join("SKILL.md")).unwrap(),
        fs::read(backup.join("SKILL.md")).unwrap()
    );
    assert_eq!(support::mode(&link.join("bin/run")), 0o555);
    // Adopting the same skill again does not replace the backup.
    fs::remove_file(&link).unwrap();
    native(&home, ".claude/skills", "mine", "x");
    let found = look(&home);
    assert!(matches!(find(&found, "mine").state, NativeState::Same));
    let again = adopt(
        &home.vault,
        find(&found, "mine"),
        AdoptionMode::Backup,
        false,
        true,
    )
    .unwrap();
    assert_eq!(
        again.backup.unwrap(),
        home.path(".claude/skills.bak/mine-1")
    );
    assert_eq!(again.report.version, 1);
}

#[test]
fn in_place_removes_the_folder_once_the_vault_has_its_bytes() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let found = look(&home);
    let done = adopt(
        &home.vault,
        find(&found, "mine"),
        AdoptionMode::InPlace,
        false,
        true,
    )
    .unwrap();
    assert!(done.backup.is_none());
    assert!(
        fs::read_dir(home.path(".claude/skills"))
            .unwrap()
            .next()
            .is_none()
    );
    sync(&home);
    let text = fs::read_to_string(home.path(".claude/skills/mine/SKILL.md")).unwrap();
    assert!(text.ends_with("x\n"));
}

#[test]
fn what_changed_since_it_was_looked_at_is_not_moved() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let found = look(&home);
    write(&home.path(".claude/skills/mine/late.md"), b"late", false);
    for mode in [AdoptionMode::Backup, AdoptionMode::InPlace] {
        let refused = adopt(&home.vault, find(&found, "mine"), mode, false, true).unwrap_err();
        assert!(matches!(refused, AdoptNativeError::Changed(_)), "{refused}");
        assert!(home.path(".claude/skills/mine/late.md").exists());
    }
}

#[test]
fn another_skill_of_the_name_is_replaced_only_when_asked() {
    let home = Home::new(1);
    home.add("mine", "the vault's");
    native(&home, ".claude/skills", "mine", "x");
    let folder = home.path(".claude/skills/mine");
    write(
        &folder.join("SKILL.md"),
        skill_md(
            "mine",
            "metadata:\n  github-repo: https://github.com/acme/skills\n",
            "x",
        )
        .as_bytes(),
        false,
    );
    let found = look(&home);
    let skill = find(&found, "mine");
    assert_eq!(
        skill.provenance.as_ref().unwrap().as_str(),
        "github:acme/skills"
    );
    assert_eq!(skill.recorded_by, Some("gh skill"));
    let refused = adopt(&home.vault, skill, AdoptionMode::InPlace, false, true).unwrap_err();
    assert!(matches!(refused, AdoptNativeError::Admit(_)), "{refused}");
    assert!(folder.join("SKILL.md").exists());
    let done = adopt(&home.vault, skill, AdoptionMode::InPlace, true, true).unwrap();
    assert_eq!(done.report.version, 2);
    assert_eq!(done.report.provenance.as_str(), "github:acme/skills");
}
