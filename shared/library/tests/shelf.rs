//! Tests of the library's shelf that the contract suite does not cover.

use std::sync::Arc;

use crate::support::{Home, acting_skill_md, approve_all, file_names, gets_all_variables, name};
use vault_format::bundle::files_sha256;
use vault_format::draft::Submitter;
use vault_format::hash::Digest;
use vault_format::manifest::Mode;
use vault_format::provenance::ProvenanceId;
use vault_gate::{GateOptions, RawFile};
use vault_library::admit::{Options, history};
use vault_library::agents::{Machine, sync_profiles};
use vault_library::shelf::LibraryShelf;
use vault_shelf::{Change, DriftState, Shelf, ShelfError, Submitted};
use vault_testing::assert_matches;

fn open(home: &Home) -> LibraryShelf {
    LibraryShelf::new(home.vault.clone(), "local")
}

fn by() -> Submitter {
    Submitter {
        user_id: "usr_1".to_owned(),
        client_id: None,
    }
}

#[tokio::test]
async fn an_unchanged_library_is_looked_at_once() {
    let home = Home::new(1);
    home.add("alpha", "one");
    let shelf = open(&home);
    let first = shelf.take_snapshot().await.unwrap();
    assert!(Arc::ptr_eq(&first, &shelf.take_snapshot().await.unwrap()));
    home.add("beta", "two");
    let second = shelf.take_snapshot().await.unwrap();
    assert_eq!(second.entries().len(), 2);
    assert_eq!(first.entries().len(), 1);
    let loaded = shelf.load_skill(&second.entries()[0]).await.unwrap();
    let again = shelf.load_skill(&first.entries()[0]).await.unwrap();
    assert_eq!(loaded.bundle_hash, again.bundle_hash);
    assert_eq!(loaded.find_file("notes.txt").unwrap().bytes, b"notes\n");
    assert_eq!(loaded.public_key, home.vault.release_key().unwrap());
}

#[tokio::test]
async fn a_number_left_odd_by_a_killed_writer_is_settled() {
    let home = Home::new(1);
    home.add("alpha", "one");
    let shelf = open(&home);
    shelf.take_snapshot().await.unwrap();
    std::fs::write(home.path("vault/generation"), "7\n").unwrap();
    let seen = shelf.take_snapshot().await.unwrap();
    assert_eq!(seen.entries().len(), 1);
    assert_eq!(home.vault.generation().unwrap(), 8);
    assert!(Arc::ptr_eq(&seen, &shelf.take_snapshot().await.unwrap()));
}

#[tokio::test]
async fn a_policy_takes_effect_when_it_is_approved() {
    let home = Home::new(1);
    home.add("alpha", "one");
    let shelf = open(&home);
    let path = home.path("vault/policy.toml");
    let snapshot = || async { shelf.take_snapshot().await.unwrap() };
    assert!(snapshot().await.policy.is_none());
    let good = "[profiles.all]\ngroups = [\"*\"]\n";
    std::fs::write(&path, good).unwrap();
    assert!(snapshot().await.policy.is_none(), "nobody approved it");
    approve_all(&home.vault).unwrap();
    let seen = snapshot().await;
    assert!(seen.policy.is_some() && seen.policy_sha256.is_some());
    assert_eq!(seen.entries().len(), 1, "owners see everything");
    assert!(Arc::ptr_eq(&seen, &snapshot().await));
    let refused: [(&[u8], &str); 3] = [
        (b"default_profile = \"nobody\"", "nobody"),
        (b"[profiles", "1:"),
        (&[0xff, 0xfe], "UTF-8"),
    ];
    for (text, reason) in refused {
        std::fs::write(&path, text).unwrap();
        let error = approve_all(&home.vault).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(snapshot().await.policy, seen.policy);
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(approve_all(&home.vault).is_err());
    assert_eq!(snapshot().await.policy, seen.policy);
    std::fs::remove_dir(&path).unwrap();
    assert_eq!(
        snapshot().await.policy,
        seen.policy,
        "deleted, not approved"
    );
    approve_all(&home.vault).unwrap();
    assert!(snapshot().await.policy.is_none());
}

#[tokio::test]
async fn a_folder_is_taken_in_under_the_source_that_its_owner_recorded() {
    let home = Home::new(1);
    let folder = home.source("alpha", "one", &[]);
    let source: ProvenanceId = "github:acme/x/alpha".parse().unwrap();
    let recorded = Options {
        provenance: Some(source.clone()),
        ..Options::default()
    };
    home.add_with(&folder, &recorded).unwrap();
    home.source("alpha", "two", &[]);
    let shelf = open(&home);
    let change = |identifier: &str| Change::Folder {
        path: folder.to_str().unwrap().to_owned(),
        identifier: identifier.to_owned(),
        skill: None,
        agents: Vec::new(),
    };
    let other = shelf.submit(&by(), change("github:acme/x/beta")).await;
    assert_matches!(other, Err(ShelfError::Identifier(_)));
    let done = shelf.submit(&by(), change(source.as_str())).await;
    assert_matches!(done, Ok(Submitted::Signed { version: 2, .. }));
    let found = vault_library::run::locate_skill(&home.vault, name("alpha")).unwrap();
    assert_eq!(found.manifest.provenance.identifier, source);
}

#[tokio::test]
async fn a_folder_is_taken_in_under_the_identifier_that_the_command_records() {
    let home = Home::new(1);
    let shelf = open(&home);
    let folder = home.source("alpha", "one", &[]);
    let change = |path: &std::path::Path, identifier: &str| Change::Folder {
        path: path.to_str().unwrap().to_owned(),
        identifier: identifier.to_owned(),
        skill: None,
        agents: vec!["codex".parse().unwrap()],
    };
    for wrong in ["local:beta", "alpha", "", "github:a/b"] {
        let refused = shelf.submit(&by(), change(&folder, wrong)).await;
        assert_matches!(refused, Err(ShelfError::Identifier(_)));
    }
    assert!(shelf.take_snapshot().await.unwrap().entries().is_empty());
    let done = shelf.submit(&by(), change(&folder, "local:alpha")).await;
    assert_matches!(done, Ok(Submitted::Signed { version: 1, .. }));
    let again = shelf.submit(&by(), change(&folder, "local:alpha")).await;
    assert_matches!(again, Ok(Submitted::Unchanged { version: 1, .. }));
    // The command line now adds the same skill from this folder.
    assert_eq!(home.add_folder(&folder).version, 2, "without the agent");
    let entry = shelf.take_snapshot().await.unwrap().entries()[0].clone();
    assert_eq!(entry.version, 2);
    for (path, identifier) in [
        ("nowhere", "local:nowhere"),
        ("vault/vault.json", "local:x"),
    ] {
        let change = change(&home.path(path), identifier);
        let refused = shelf.submit(&by(), change).await;
        assert_matches!(refused, Err(ShelfError::Source(_)));
    }
    let change = change("github:a/b".as_ref(), "github:a/b");
    let remote = shelf.submit(&by(), change).await;
    assert_matches!(remote, Err(ShelfError::SourceUnsupported(_)));
    let named = |skill: &str| Change::Folder {
        path: folder.to_str().unwrap().to_owned(),
        identifier: "local:alpha".to_owned(),
        skill: Some(name(skill)),
        agents: Vec::new(),
    };
    let other = shelf.submit(&by(), named("beta")).await;
    assert_matches!(other, Err(ShelfError::Source(text)) if text.contains("the skill alpha, not beta"));
    let same = shelf.submit(&by(), named("alpha")).await;
    assert_matches!(same, Ok(Submitted::Unchanged { .. }));
}

#[tokio::test]
async fn an_older_listing_still_loads_what_it_names_until_that_is_gone() {
    let home = Home::new(1);
    home.add("alpha", "one");
    let shelf = open(&home);
    let first = shelf.take_snapshot().await.unwrap();
    home.add("alpha", "two");
    shelf.take_snapshot().await.unwrap();
    let old = shelf.load_skill(&first.entries()[0]).await.unwrap();
    assert_eq!(old.bundle.manifest.version, 1);
    vault_library::admit::remove::collect_unreferenced(&home.vault).unwrap();
    home.add("beta", "one"); // a new look forgets what was kept
    shelf.take_snapshot().await.unwrap();
    let gone = shelf.load_skill(&first.entries()[0]).await.unwrap_err();
    assert_matches!(&gone, ShelfError::NotFound(gone) if *gone == name("alpha"));
}

#[tokio::test]
async fn a_change_of_a_tool_reaches_the_folders_of_agents() {
    let home = Home::new(1);
    std::fs::create_dir(home.path(".claude")).unwrap();
    home.add("alpha", "one");
    sync_profiles(&home.vault, &home.sync_input()).unwrap();
    let shelf = open(&home).with_agents(Some(Machine::with_home(home.path(""))));
    let change = Change::Folder {
        path: home.source("beta", "two", &[]).to_str().unwrap().to_owned(),
        identifier: "local:beta".to_owned(),
        skill: None,
        agents: Vec::new(),
    };
    let skills = home.path(".claude/skills");
    shelf.submit(&by(), change).await.unwrap();
    let links = shelf.refresh_agents().await.unwrap();
    assert_eq!(file_names(&skills), ["alpha", "beta"]);
    assert!(links.restart_required && links.unlinked_agents.is_empty());
    let root = &links.profiles.unwrap()["roots"][0];
    assert_eq!(root["agents"], serde_json::json!(["claude-code"]));
    assert_eq!(root["added"], serde_json::json!(["beta"]));
    assert!(!shelf.refresh_agents().await.unwrap().restart_required);
    let change = Change::Remove(name("alpha"));
    let removed = shelf.submit(&by(), change).await;
    assert_matches!(
        removed,
        Ok(Submitted::Removed {
            was_linked: true,
            ..
        })
    );
    shelf.refresh_agents().await.unwrap();
    assert_eq!(file_names(&skills), ["beta"]);
}

#[tokio::test]
async fn agents_that_are_not_linked_are_named() {
    let home = Home::new(1);
    std::fs::create_dir(home.path(".claude")).unwrap();
    home.add("alpha", "one");
    assert!(open(&home).refresh_agents().await.is_none());
    let shelf = open(&home).with_agents(Some(Machine::with_home(home.path(""))));
    let links = shelf.refresh_agents().await.unwrap();
    assert_eq!(links.unlinked_agents, ["Claude Code"]);
    assert!(links.profiles.is_none() && !links.restart_required);
}

/// Compares every skill and returns the states by name.
async fn drift_of(shelf: &LibraryShelf, named: bool) -> Vec<(String, DriftState)> {
    let snapshot = shelf.take_snapshot().await.unwrap();
    let entries: Vec<_> = snapshot.entries().iter().collect();
    let drifts = shelf.drift(&entries, named).await.unwrap().into_iter();
    drifts
        .map(|drift| (drift.name.to_string(), drift.state))
        .collect()
}

#[tokio::test]
async fn a_changed_folder_is_drift_for_callers_on_this_machine_only() {
    let home = Home::new(1);
    home.add("alpha", "one");
    home.add("beta", "one");
    home.source("alpha", "two", &[]);
    let there = drift_of(&open(&home), false).await;
    assert!(
        there
            .iter()
            .all(|(_, state)| matches!(state, DriftState::Unchecked(_))),
        "{there:?}"
    );
    let here = drift_of(&open(&home).with_folders(), false).await;
    let [(_, alpha), (_, beta)] = &here[..] else {
        panic!("{here:?}")
    };
    assert_matches!(alpha, DriftState::Drifted { recorded, .. } if recorded == "version 1");
    assert_eq!(*beta, DriftState::UpToDate);
}

#[tokio::test]
async fn a_held_skill_is_compared_only_if_it_is_named() {
    let home = Home::new(1);
    home.add("alpha", "one");
    home.add("alpha", "two");
    history::roll_back(&home.vault, &name("alpha"), None, true).unwrap();
    let shelf = open(&home).with_folders();
    let all = drift_of(&shelf, false).await;
    assert_matches!(&all[0].1, DriftState::Unchecked(why) if why.starts_with("held"));
    let named = drift_of(&shelf, true).await;
    assert_matches!(named[0].1, DriftState::Drifted { .. });
}

/// Where a server signs a draft: exactly the files that its owner read, as somebody else's work.
#[tokio::test]
async fn a_reviewed_change_has_the_reviewed_files_and_is_nobody_s_own_work() {
    let home = Home::new(1);
    let shelf = open(&home);
    let files: Vec<_> = [("SKILL.md", acting_skill_md("acts", "x"))]
        .map(|(path, text)| RawFile {
            path: path.to_owned(),
            mode: Mode::Plain,
            bytes: text.into_bytes(),
        })
        .into();
    let change = || Change::Take {
        files: files.clone(),
        replace: false,
        check: false,
        hidden: false,
    };
    let verdict = vault_gate::check(files.clone(), &GateOptions::in_service());
    let read = files_sha256(&verdict.package.unwrap().files);
    let admit = async |reviewed| {
        let prepared = shelf.prepare_change(change()).await.unwrap();
        shelf
            .admit_prepared(&by(), prepared.with_reviewed(Some(reviewed)))
            .await
    };
    let other = admit(Digest::of(b"other files")).await;
    assert_matches!(other, Err(ShelfError::NotReviewed(_)));
    assert!(home.listed().is_empty());
    let signed = admit(read).await;
    assert_matches!(signed, Ok(Submitted::Signed { version: 1, .. }));
    assert!(!gets_all_variables(&home.vault, "acts"));
}
