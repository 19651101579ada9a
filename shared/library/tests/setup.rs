//! Tests of adopting skills from the agents' own folders: what is found, what moves where, and what
//! is never lost.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Home, mode, set_mode, skill_md, snapshot, write, write_skill};
use vault_library::agents::Machine;
use vault_library::agents::setup::{
    AdoptNativeError, Adopted, AdoptionMode, NativeSkill, NativeState, Scan, adopt_skill,
    scan_folders,
};
use vault_library::agents::sync_profiles;
use vault_library::folders;
use vault_testing::assert_matches;

fn native(home: &Home, root: &str, name: &str, body: &str) {
    let folder = home.path(root).join(name);
    write_skill(&folder, name, body);
    write(&folder.join("bin/run"), "#!/bin/sh\n");
    set_mode(&folder.join("bin/run"), 0o755);
}

fn look(home: &Home) -> Scan {
    let machine = Machine::with_home(home.path(""));
    scan_folders(Some(&home.vault), &machine, &[], true).unwrap()
}

fn find<'s>(scan: &'s Scan, name: &str) -> &'s NativeSkill {
    let mut skills = scan.skills.iter();
    skills.find(|skill| skill.name.as_str() == name).unwrap()
}

/// Adopts the skill `mine`, as the last scan found it.
fn adopt_mine(home: &Home, found: &Scan, mode: AdoptionMode) -> Result<Adopted, AdoptNativeError> {
    adopt_skill(&home.vault, find(found, "mine"), mode, false, true)
}

fn sync(home: &Home) {
    sync_profiles(&home.vault, &home.sync_input()).unwrap();
}

#[test]
fn own_skills_are_found_and_everything_else_is_left_out() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "new", "x");
    native(&home, ".claude/skills", "differs", "x");
    native(&home, ".claude/skills", "My Notes", "x");
    native(&home, "elsewhere", "target", "x");
    write(&home.path(".claude/skills/bad/SKILL.md"), "no frontmatter");
    write(&home.path(".claude/skills/plain/README.md"), b"x");
    let target = home.path("elsewhere/target");
    symlink(target, home.path(".claude/skills/target")).unwrap();
    home.add("differs", "other");
    home.add("linked", "one");
    sync(&home);
    let before = snapshot(&home.path(".claude"));
    let found = look(&home);
    assert!(snapshot(&home.path(".claude")) == before);
    let skills = found.skills.iter();
    let names: Vec<_> = skills.map(|skill| skill.name.as_str()).collect();
    assert_eq!(names, ["bad", "differs", "my-notes", "new"]);
    assert_matches!(find(&found, "new").state, NativeState::New);
    assert_matches!(find(&found, "differs").state, NativeState::Differs);
    assert_matches!(find(&found, "bad").state, NativeState::Refused { .. });
    assert_eq!(find(&found, "new").agents[0].as_str(), "claude-code");
    assert_eq!(found.roots, [home.path(".claude/skills")]);
}

#[test]
fn a_backup_keeps_the_folder_beside_and_links_the_skill() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let bytes = snapshot(&home.path(".claude/skills/mine"));
    let found = look(&home);
    let done = adopt_mine(&home, &found, AdoptionMode::Backup).unwrap();
    let backup = done.backup.unwrap();
    assert_eq!(backup, home.path(".claude/skills.bak/mine"));
    assert!(snapshot(&backup) == bytes);
    let recorded = || {
        folders::recorded_folders(&home.vault)
            .unwrap()
            .pop()
            .unwrap()
            .path
    };
    assert_eq!(recorded(), backup, "an edit there updates the skill");
    sync(&home);
    let link = home.path(".claude/skills/mine");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let [shown, kept] = [&link, &backup].map(|at| fs::read(at.join("SKILL.md")).unwrap());
    assert_eq!(shown, kept);
    assert_eq!(mode(&link.join("bin/run")), 0o555);
    // Adopting the same skill again does not replace the backup.
    fs::remove_file(&link).unwrap();
    native(&home, ".claude/skills", "mine", "x");
    let found = look(&home);
    assert_matches!(find(&found, "mine").state, NativeState::Same);
    let again = adopt_mine(&home, &found, AdoptionMode::Backup).unwrap();
    let backup = home.path(".claude/skills.bak/mine-1");
    assert_eq!(again.backup.unwrap(), backup);
    assert_eq!(again.report.version, 1);
    assert_eq!(recorded(), home.path(".claude/skills.bak/mine"));
}

#[test]
fn in_place_removes_the_folder_once_the_vault_has_its_bytes() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let found = look(&home);
    let done = adopt_mine(&home, &found, AdoptionMode::InPlace).unwrap();
    assert!(done.backup.is_none());
    assert!(
        fs::read_dir(home.path(".claude/skills"))
            .unwrap()
            .next()
            .is_none()
    );
    sync(&home);
    let text = home.read(".claude/skills/mine/SKILL.md");
    assert!(text.ends_with("x\n"));
}

#[test]
fn in_place_deletes_nothing_that_the_vault_does_not_hold() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let folder = home.path(".claude/skills/mine");
    for path in [
        ".git/HEAD",
        ".git/refs/heads/main",
        ".idea/ws.xml",
        "bin/draft~",
        "notes.swp",
        ".DS_Store",
    ] {
        write(&folder.join(path), path);
    }
    symlink("HEAD", folder.join(".git/link")).unwrap();
    fs::create_dir_all(folder.join(".git/objects")).unwrap();
    set_mode(&folder.join("bin"), 0o555);
    // An entry of that name is there already, and stays as it is.
    write(&home.path(".claude/skills.bak/mine/SKILL.md"), "older");
    let mut before = snapshot(&folder);
    let found = look(&home);
    let done = adopt_mine(&home, &found, AdoptionMode::InPlace).unwrap();
    let kept = home.path(".claude/skills.bak/mine-1");
    assert_eq!(done.backup.as_ref(), Some(&kept));
    assert_eq!(
        done.not_stored,
        [".DS_Store", ".git/", ".idea/", "bin/draft~", "notes.swp"]
    );
    assert!(!folder.exists());
    before.retain(|path, _| path != "SKILL.md" && path != "bin/run" && path != "bin");
    let mut after = snapshot(&kept);
    after.retain(|path, _| path != "bin");
    assert!(before == after, "{:?} {:?}", before.keys(), after.keys());
    let older = home.read(".claude/skills.bak/mine/SKILL.md");
    assert_eq!(older, "older");
}

#[test]
fn originals_are_moved_only_to_a_plain_folder() {
    for mode in [AdoptionMode::Backup, AdoptionMode::InPlace] {
        let home = Home::new(1);
        native(&home, ".claude/skills", "mine", "x");
        let bytes = snapshot(&home.path(".claude/skills"));
        let backups = home.path(".claude/skills.bak");
        let elsewhere = home.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        let found = look(&home);
        let plants: [&dyn Fn(); 3] = [
            &|| write(&backups, "a file"),
            &|| symlink(&elsewhere, &backups).unwrap(),
            &|| symlink("nowhere", &backups).unwrap(),
        ];
        for plant in plants {
            plant();
            let refused = adopt_mine(&home, &found, mode).unwrap_err().to_string();
            assert!(refused.contains("skills.bak"), "{refused}");
            fs::remove_file(&backups).unwrap();
        }
        assert!(snapshot(&home.path(".claude/skills")) == bytes);
        assert!(fs::read_dir(&elsewhere).unwrap().next().is_none());
        assert!(!home.path("vault/skills/mine").exists());
    }
}

#[test]
fn a_copy_with_files_of_the_user_is_not_removed() {
    let home = Home::new(1);
    home.add("greet", "one");
    let input = vault_library::SyncProfilesInput {
        copy: true,
        profile_roots: vec![("claude-code".parse().unwrap(), home.path("given"))],
        ..home.sync_input()
    };
    fs::create_dir_all(home.path("given")).unwrap();
    sync_profiles(&home.vault, &input).unwrap();
    let copy = home.path("given/greet");
    set_mode(&copy, 0o755);
    write(&copy.join(".git/HEAD"), "work of a year");
    write(&copy.join("draft~"), "unsaved");
    home.add("greet", "two");
    sync_profiles(&home.vault, &input).unwrap();
    home.remove("greet", None);
    sync_profiles(&home.vault, &input).unwrap();
    for file in [".git/HEAD", "draft~"] {
        assert!(copy.join(file).exists(), "{file}");
    }
}

#[test]
fn what_changed_since_it_was_looked_at_is_not_moved() {
    let home = Home::new(1);
    native(&home, ".claude/skills", "mine", "x");
    let found = look(&home);
    write(&home.path(".claude/skills/mine/late.md"), b"late");
    for mode in [AdoptionMode::Backup, AdoptionMode::InPlace] {
        let refused = adopt_mine(&home, &found, mode).unwrap_err();
        assert_matches!(refused, AdoptNativeError::Changed(_));
        assert!(home.path(".claude/skills/mine/late.md").exists());
    }
}

#[test]
fn another_skill_of_the_name_is_replaced_only_when_asked() {
    let home = Home::new(1);
    home.add("mine", "the vault's");
    native(&home, ".claude/skills", "mine", "x");
    let folder = home.path(".claude/skills/mine");
    let more = "metadata:\n  github-repo: https://github.com/acme/skills\n";
    write(&folder.join("SKILL.md"), skill_md("mine", more, "x"));
    let found = look(&home);
    let skill = find(&found, "mine");
    let provenance = skill.provenance.as_ref().unwrap();
    assert_eq!(provenance.as_str(), "github:acme/skills");
    assert_eq!(skill.recorded_by, Some("gh skill"));
    let refused = adopt_skill(&home.vault, skill, AdoptionMode::InPlace, false, true).unwrap_err();
    assert_matches!(refused, AdoptNativeError::Admit(_));
    assert!(folder.join("SKILL.md").exists());
    let done = adopt_skill(&home.vault, skill, AdoptionMode::InPlace, true, true).unwrap();
    assert_eq!(done.report.version, 2);
    assert_eq!(done.report.provenance.as_str(), "github:acme/skills");
}
