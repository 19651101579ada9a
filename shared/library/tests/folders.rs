//! Tests of what is recorded of the folders that skills are added from, and of holds.

use crate::support::{Home, from_source, name, replacing, write, write_skill};
use vault_library::admit::{Admission, AdmitError, Options, history};
use vault_library::folders::{self, FolderState};
use vault_library::{AdmitReport, add_folder};
use vault_testing::assert_matches;

/// The state of the only recorded folder.
fn state(home: &Home) -> FolderState {
    let mut all = folders::compare_all(&home.vault).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).1
}

fn add_at(home: &Home, path: &str, body: &str) -> Result<AdmitReport, AdmitError> {
    let folder = home.path(path);
    write_skill(&folder, "notes", body);
    add_folder(&home.vault, &folder, &Options::default())
}

#[test]
fn a_folder_of_the_same_name_elsewhere_does_not_replace_a_skill() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    let refused = add_at(&home, "b/notes", "two");
    assert_matches!(&refused, Err(AdmitError::OtherPlace { recorded, given, .. })
        if recorded.ends_with("a/notes") && given.ends_with("b/notes"));
    assert_eq!(home.listed()["notes"], 1);
    // The recorded folder still updates the skill.
    assert_eq!(add_at(&home, "a/notes", "three").unwrap().version, 2);
}

/// Removes the recorded folders, as an earlier version left the record.
fn forget_folders(home: &Home) {
    let path = home.path(&format!(
        "config/vaults/{}/own-skills.json",
        home.vault.id()
    ));
    let mut record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for skill in record["skills"].as_object_mut().unwrap().values_mut() {
        assert!(skill.as_object_mut().unwrap().remove("local").is_some());
    }
    std::fs::write(&path, record.to_string()).unwrap();
}

#[test]
fn a_skill_whose_folder_is_not_recorded_is_replaced_only_on_request() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    forget_folders(&home);
    let refused = add_at(&home, "b/notes", "two");
    assert_matches!(&refused, Err(AdmitError::UnknownPlace { given, .. })
        if given.ends_with("b/notes"));
    assert!(refused.unwrap_err().is_other_source());
    assert_eq!(home.listed()["notes"], 1);
    home.add_with(&home.path("b/notes"), &replacing()).unwrap();
    assert_eq!(add_at(&home, "b/notes", "three").unwrap().version, 3);
}

#[test]
fn the_same_files_of_any_folder_repair_a_damaged_skill() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    let installed = home.path("vault/skills/notes/SKILL.md");
    for record in [true, false] {
        if !record {
            forget_folders(&home);
        }
        crate::support::set_mode(&installed, 0o644);
        write(&installed, "changed");
        assert_matches!(
            add_at(&home, "b/notes", "two"),
            Err(AdmitError::OtherPlace { .. } | AdmitError::UnknownPlace { .. })
        );
        let repaired = add_at(&home, "b/notes", "one").unwrap();
        assert!(repaired.is_change() || repaired.admission == Admission::Unchanged);
        assert!(home.read("vault/skills/notes/SKILL.md").contains("one"));
    }
}

#[test]
fn the_same_files_record_the_folder_where_none_is_recorded() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    forget_folders(&home);
    let same = add_at(&home, "a/notes", "one").unwrap();
    assert_eq!(same.admission, Admission::Unchanged);
    assert_eq!(add_at(&home, "a/notes", "two").unwrap().version, 2);
}

#[test]
fn replacing_records_the_new_folder() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    write_skill(&home.path("b/notes"), "notes", "two");
    home.add_with(&home.path("b/notes"), &replacing()).unwrap();
    assert_eq!(add_at(&home, "b/notes", "three").unwrap().version, 3);
    assert_matches!(
        add_at(&home, "a/notes", "four"),
        Err(AdmitError::OtherPlace { .. })
    );
}

#[test]
fn the_same_files_in_another_folder_change_nothing_until_they_are_to_replace() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    let same = add_at(&home, "b/notes", "one").unwrap();
    assert_eq!(same.admission, Admission::Unchanged);
    assert_matches!(
        add_at(&home, "b/notes", "two"),
        Err(AdmitError::OtherPlace { .. })
    );
    write_skill(&home.path("b/notes"), "notes", "one");
    let moved = home.add_with(&home.path("b/notes"), &replacing()).unwrap();
    assert_eq!(moved.admission, Admission::Unchanged);
    assert_eq!(add_at(&home, "b/notes", "two").unwrap().version, 2);
}

#[test]
fn a_staged_copy_takes_the_place_of_the_recorded_folder_by_its_source() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    write_skill(&home.path("staged"), "notes", "two");
    let staged = from_source("local:notes");
    let report = home.add_with(&home.path("staged"), &staged).unwrap();
    assert_eq!(report.version, 2);
    // The folder to compare with stays the first one, which is older than the copy.
    assert_eq!(state(&home), FolderState::Changed);
    assert_eq!(add_at(&home, "a/notes", "three").unwrap().version, 3);
}

#[test]
fn a_removed_skill_leaves_no_folder_behind() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    home.remove("notes", None);
    assert!(folders::compare_all(&home.vault).unwrap().is_empty());
    assert_eq!(add_at(&home, "b/notes", "two").unwrap().version, 2);
}

#[test]
fn a_folder_is_compared_by_bytes_and_modes() {
    let home = Home::new(1);
    let folder = home.source("tool", "Body.", &[("bin/run", b"#!/bin/sh\n")]);
    home.add_folder(&folder);
    assert_eq!(state(&home), FolderState::Same);
    // What the gate leaves out is no change.
    write(&folder.join(".DS_Store"), "x");
    assert_eq!(state(&home), FolderState::Same);
    crate::support::set_mode(&folder.join("bin/run"), 0o644);
    assert_eq!(state(&home), FolderState::Changed);
    crate::support::set_mode(&folder.join("bin/run"), 0o755);
    write(&folder.join("more.txt"), "more");
    assert_eq!(state(&home), FolderState::Changed);
    std::fs::remove_file(folder.join("more.txt")).unwrap();
    assert_eq!(state(&home), FolderState::Same);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(state(&home), FolderState::Missing);
    // A link in its place is not followed.
    std::os::unix::fs::symlink(home.path("sources"), &folder).unwrap();
    assert_matches!(state(&home), FolderState::Unreadable(_));
}

#[test]
fn a_document_in_small_letters_is_no_change() {
    let home = Home::new(1);
    let folder = home.source("tool", "Body.", &[]);
    std::fs::rename(folder.join("SKILL.md"), folder.join("skill.md")).unwrap();
    home.add_folder(&folder);
    assert_eq!(state(&home), FolderState::Same);
}

#[test]
fn the_record_of_folders_lies_in_the_trust_folder() {
    let home = Home::new(1);
    add_at(&home, "a/notes", "one").unwrap();
    let there = home.path("a/notes").canonicalize().unwrap();
    let there = there.to_str().unwrap();
    let record = format!("config/vaults/{}/own-skills.json", home.vault.id());
    assert!(home.read(&record).contains(there));
    let vault = crate::support::snapshot(&home.path("vault"));
    assert!(vault.values().all(|content| !content.contains(there)));
}

#[test]
fn a_rollback_holds_until_new_content_is_admitted() {
    let home = Home::new(1);
    home.add("steps", "one");
    home.add("steps", "two");
    let held = || history::is_held(&home.vault, &name("steps")).unwrap();
    assert!(!held());
    let back = history::roll_back(&home.vault, &name("steps"), None, true).unwrap();
    assert_eq!((back.to, back.report.version), (1, 3));
    assert!(held());
    home.add("steps", "three");
    assert!(!held());
}

#[test]
fn a_rollback_to_the_installed_files_holds_them() {
    let home = Home::new(1);
    home.add("steps", "one");
    let back = history::roll_back(&home.vault, &name("steps"), Some(1), true).unwrap();
    assert_eq!(back.report.admission, Admission::Unchanged);
    assert!(history::is_held(&home.vault, &name("steps")).unwrap());
    history::end_hold(&home.vault, &name("steps")).unwrap();
    assert!(history::list_held(&home.vault).unwrap().is_empty());
}

#[test]
fn a_removed_skill_is_held_no_more() {
    let home = Home::new(1);
    home.add("steps", "one");
    history::roll_back(&home.vault, &name("steps"), Some(1), true).unwrap();
    home.remove("steps", None);
    assert!(history::list_held(&home.vault).unwrap().is_empty());
}
