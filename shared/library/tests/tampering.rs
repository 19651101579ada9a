//! Tests that any change in the store is detected: by the integrity check, by listing, and before
//! publishing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Home, copy_folder, name, set_mode, write};
use vault_format::hash::Digest;
use vault_library::admit::variants as transforms;
use vault_library::admit::{AdmitError, Options};
use vault_library::agents::sync_profiles;
use vault_library::publish::{self, PlanError, PlanRequest};
use vault_library::{Damage, Vault, VaultError, integrity, roots, run, shelf};
use vault_store::random::SystemRandom;
use vault_testing::assert_matches;

/// Makes a read-only folder of the store writable for the test.
fn thaw(folder: &Path) {
    for path in crate::support::snapshot(folder).keys() {
        let path = folder.join(path);
        if path.is_dir() && !path.is_symlink() {
            set_mode(&path, 0o755);
        }
    }
    set_mode(folder, 0o755);
}

fn freeze(folder: &Path) {
    for (path, what) in crate::support::snapshot(&folder.join("files")) {
        if what.ends_with("dir") {
            set_mode(&folder.join("files").join(path), 0o555);
        }
    }
    set_mode(&folder.join("files"), 0o555);
}

type Change = fn(&Path, &Path);
type Verdict = fn(&Damage) -> bool;

/// The changes to `store/<bundle of victim>` (each also gets the folder of another skill), with the
/// expected verdict.
const CHANGES: [(&str, Change, Verdict); 17] = [
    (
        "a changed byte",
        |one, _| std::fs::write(one.join("files/notes.txt"), "notex\n").unwrap(),
        |damage| matches!(damage, Damage::Changed(_)),
    ),
    (
        "a byte more",
        |one, _| std::fs::write(one.join("files/notes.txt"), "notes\n\n").unwrap(),
        |damage| matches!(damage, Damage::Changed(_)),
    ),
    (
        "an emptied file",
        |one, _| std::fs::write(one.join("files/SKILL.md"), "").unwrap(),
        |damage| matches!(damage, Damage::Changed(_)),
    ),
    (
        "an extra file",
        |one, _| write(&one.join("files/extra"), b"x"),
        |damage| matches!(damage, Damage::Extra(_)),
    ),
    (
        "an extra file beside the manifest",
        |one, _| write(&one.join("extra"), b"x"),
        |damage| matches!(damage, Damage::Extra(_)),
    ),
    (
        "an empty folder",
        |one, _| std::fs::create_dir(one.join("files/new")).unwrap(),
        |damage| matches!(damage, Damage::Extra(_)),
    ),
    (
        "a missing file",
        |one, _| std::fs::remove_file(one.join("files/notes.txt")).unwrap(),
        |damage| matches!(damage, Damage::Missing(_)),
    ),
    (
        "a renamed file",
        |one, _| std::fs::rename(one.join("files/notes.txt"), one.join("files/Notes.txt")).unwrap(),
        |damage| matches!(damage, Damage::Extra(_)),
    ),
    (
        "an executable bit",
        |one, _| set_mode(&one.join("files/notes.txt"), 0o555),
        |damage| matches!(damage, Damage::Mode { .. }),
    ),
    (
        "a writable file",
        |one, _| set_mode(&one.join("files/notes.txt"), 0o644),
        |damage| matches!(damage, Damage::Mode { .. }),
    ),
    (
        "a link to the same bytes",
        |one, two| {
            std::fs::remove_file(one.join("files/notes.txt")).unwrap();
            std::os::unix::fs::symlink(two.join("files/notes.txt"), one.join("files/notes.txt"))
                .unwrap();
        },
        |damage| matches!(damage, Damage::Foreign(_)),
    ),
    (
        "no manifest",
        |one, _| std::fs::remove_file(one.join("manifest.json")).unwrap(),
        |damage| matches!(damage, Damage::Missing(_)),
    ),
    (
        "the manifest of another skill",
        |one, two| {
            std::fs::remove_file(one.join("manifest.json")).unwrap();
            std::fs::copy(two.join("manifest.json"), one.join("manifest.json")).unwrap();
        },
        |damage| matches!(damage, Damage::Manifest(_)),
    ),
    (
        "an unsigned manifest",
        |one, _| {
            let path = one.join("manifest.json");
            let text = std::fs::read_to_string(&path).unwrap();
            let at = text.find("\"sig\":\"").unwrap() + 9;
            let changed = if &text[at..=at] == "A" { "B" } else { "A" };
            let text = format!("{}{changed}{}", &text[..at], &text[at + 1..]);
            std::fs::write(&path, text).unwrap();
        },
        |damage| matches!(damage, Damage::Manifest(_)),
    ),
    (
        "an emptied manifest",
        |one, _| std::fs::write(one.join("manifest.json"), "").unwrap(),
        |damage| matches!(damage, Damage::Manifest(_)),
    ),
    (
        "another skill in its place",
        |one, two| {
            let place = one.to_owned();
            std::fs::rename(one, one.with_extension("gone")).unwrap();
            crate::support::copy_folder(two, &place);
        },
        |damage| matches!(damage, Damage::Manifest(_)),
    ),
    (
        "nothing at all",
        |one, _| std::fs::rename(one, one.with_extension("gone")).unwrap(),
        |damage| matches!(damage, Damage::Missing(_)),
    ),
];

#[test]
fn every_change_is_noticed_by_check_list_and_release() {
    for (what, change, expected) in CHANGES {
        let home = Home::new(1);
        let victim = home.add("victim", "the one");
        home.add("witness", "the other");
        // Wait until the index has recorded the skill, so that listing relies on file metadata.
        std::thread::sleep(Duration::from_millis(70));
        home.listed();
        std::thread::sleep(Duration::from_millis(70));
        home.listed();
        let one = home.stored(&victim.bundle);
        let witness = vault_library::run::locate_skill(&home.vault, name("witness")).unwrap();
        let two = home.stored(&witness.bundle);
        thaw(&one);
        change(&one, &two);
        if one.join("files").exists() && what != "an empty folder" {
            freeze(&one);
        } else if one.exists() {
            set_mode(&one.join("files"), 0o555);
        }

        let report = integrity::verify_all_installed(&home.vault).unwrap();
        let damage = |skill: &str| {
            let mut skills = report.skills.iter();
            let found = skills.find(|found| found.name.as_str() == skill);
            found.unwrap().damage.as_ref()
        };
        let found = damage("victim");
        assert!(found.is_some_and(expected), "{what}: {found:?}");
        assert!(damage("witness").is_none(), "{what}");

        // A file next to the manifest is not part of the skill: only the full check reports it.
        if what != "an extra file beside the manifest" {
            let listing = shelf::list_installed(&home.vault).unwrap();
            assert_eq!(listing.skills.len(), 1, "{what}");
            assert_eq!(listing.damaged.len(), 1, "{what}");
            let slug = "acme".parse().unwrap();
            let request = PlanRequest::new("https://vault.example", &slug, None);
            let refused = publish::plan_release(&home.vault, &request);
            assert_matches!(refused, Err(PlanError::Damaged(_)), "{what}");
        }
        // Adding the skill again repairs it.
        let healed = home.add("victim", "the one");
        if what != "an extra file beside the manifest" {
            assert!(healed.version >= 1, "{what}");
        }
        let listing = shelf::list_installed(&home.vault).unwrap();
        assert_eq!(listing.skills.len(), 2, "{what}: {:?}", listing.damaged);
    }
}

#[test]
fn what_was_changed_is_said_before_a_mode_that_came_with_it() {
    let home = Home::new(1);
    let added = home.add("victim", "the one");
    let stored = home.stored(&added.bundle);
    // As an editor that writes a new file leaves it.
    thaw(&stored);
    write(&stored.join("files/SKILL.md"), b"other");
    let damage = || {
        let report = integrity::verify_all_installed(&home.vault).unwrap();
        report.skills.into_iter().next().unwrap().damage.unwrap()
    };
    assert_matches!(damage(), Damage::Changed(path) if path == "SKILL.md");
    std::fs::remove_file(stored.join("files/SKILL.md")).unwrap();
    assert_matches!(damage(), Damage::Missing(path) if path == "SKILL.md");
}

#[test]
fn files_of_editors_are_deviations_that_no_action_uses() {
    let home = Home::new(1);
    let folder = home.source("victim", "the one", &[]);
    let more = "bin:\n  see: { command: ls, args: [-A] }\n";
    write(
        &folder.join("SKILL.md"),
        crate::support::skill_md("victim", more, "x").as_bytes(),
    );
    let added = home.add_folder(&folder);
    let stored = home.stored(&added.bundle);
    let damage = || {
        let report = integrity::verify_all_installed(&home.vault).unwrap();
        report.skills.into_iter().next().unwrap().damage
    };
    let deviation = || {
        let found = run::inspect_skill(&home.vault, name("victim")).unwrap();
        found.examined.first_deviation()
    };
    for (path, is_metadata) in [
        ("files/.DS_Store", true),
        ("files/._SKILL.md", true),
        (".DS_Store", true),
        ("files/.git/config", false),
        ("files/.vscode/tasks.json", false),
        ("files/SKILL.md~", false),
        ("files/.x.swp", false),
        ("files/.DS_Store.d~/x", false),
        ("files/._d/x", false),
    ] {
        thaw(&stored);
        let folder = stored.join(path).parent().unwrap().to_owned();
        std::fs::create_dir_all(&folder).unwrap();
        write(&stored.join(path), b"x");
        freeze(&stored);
        assert_eq!(damage().is_none(), is_metadata, "{path}: {:?}", damage());
        assert_eq!(deviation().is_none(), is_metadata, "{path}");
        if !is_metadata {
            assert_matches!(damage().unwrap(), Damage::Extra(_), "{path}");
        }
        // The action sees the signed files alone.
        let variables = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let environment = run::Environment {
            variables,
            scope: run::Scope::ByOrigin,
        };
        let see = "see".parse().unwrap();
        let skill = name("victim");
        let mut action = run::prepare_run(&home.vault, None, &skill, &see, &environment).unwrap();
        let seen = action.command.output().unwrap().stdout;
        assert_eq!(String::from_utf8(seen).unwrap(), "SKILL.md\n", "{path}");
        thaw(&stored);
        if folder != stored && folder != stored.join("files") {
            std::fs::remove_dir_all(&folder).unwrap();
        } else {
            std::fs::remove_file(stored.join(path)).unwrap();
        }
        freeze(&stored);
        assert!(damage().is_none(), "{path}");
    }
}

#[test]
fn foreign_entries_among_the_links_are_no_skills() {
    let home = Home::new(1);
    let good = home.add("good", "x");
    let skills = home.path("vault/skills");
    let stored = format!("../store/{}", good.bundle);
    let files = format!("{stored}/files");
    for (target, name) in [
        ("/etc", "outside"),
        (&stored, "not-files"),
        (&files, "Bad Name"),
        (&files, "alias"),
    ] {
        std::os::unix::fs::symlink(target, skills.join(name)).unwrap();
    }
    write(&skills.join("folder/SKILL.md"), b"x");
    write(&home.path("vault/store/strange"), b"x");
    let listing = shelf::list_installed(&home.vault).unwrap();
    let names: Vec<_> = listing
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .collect();
    assert_eq!(names, ["good"]);
    // A valid bundle linked under another name: its manifest has a different name.
    assert_eq!(listing.damaged.len(), 1);
    let report = integrity::verify_all_installed(&home.vault).unwrap();
    assert_eq!(
        report.strange,
        [
            "store/strange",
            "skills/Bad Name",
            "skills/folder",
            "skills/not-files",
            "skills/outside"
        ]
    );
    // A folder in place of a symlink belongs to the user and is left alone.
    let folder = home.source("folder", "x", &[]);
    assert!(home.add_with(&folder, &Options::default()).is_err());
    assert!(skills.join("folder/SKILL.md").exists());
}

#[test]
fn ignored_metadata_in_the_store_is_no_damage() {
    let home = Home::new(1);
    let good = home.add("good", "x");
    let files = home.stored(&good.bundle).join("files");
    set_mode(&files, 0o755);
    write(&files.join(".DS_Store"), b"x");
    set_mode(&files, 0o555);
    assert!(home.is_clean());
    assert_eq!(home.listed().len(), 1);
}

/// Whoever writes to the vault's folder plants a skill by another key, and every file that might
/// make that key count. It counts for nothing, and no command signs it.
#[test]
fn what_is_planted_in_the_vault_folder_is_neither_trusted_nor_signed() {
    let home = Home::new(1);
    home.add("mine", "x");
    let thief = Home::new(9);
    let evil = thief.add("evil", "x").bundle.to_string();
    copy_folder(
        &thief.path("vault/store").join(&evil),
        &home.path("vault/store").join(&evil),
    );
    let link = home.path("vault/skills/evil");
    let target = Path::new("../store").join(&evil).join("files");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let key = thief.vault.release_key().unwrap();
    let retiring = format!(r#"{{"rotations":[],"retiring":["{key}"]}}"#);
    write(&home.path("vault/rotations.json"), retiring.as_bytes());
    let trust = thief.path("config/vaults").join(thief.vault.id().as_str());
    let planted = home.path("vault/vaults").join(home.vault.id().as_str());
    std::fs::create_dir(home.path("vault/vaults")).unwrap();
    copy_folder(&trust, &planted);
    write(
        &home.path("vault/trust.json"),
        std::fs::read(trust.join("trust.json")).unwrap(),
    );
    let untrusted = |home: &Home| {
        let listing = shelf::list_installed(&home.vault).unwrap();
        let names = listing.damaged.iter().map(|(name, ..)| name.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["evil"]);
        assert!(
            !integrity::verify_all_installed(&home.vault)
                .unwrap()
                .is_clean()
        );
        assert!(run::locate_skill(&home.vault, name("evil")).is_err());
        let slug = "acme".parse().unwrap();
        let request = PlanRequest::new("https://vault.example", &slug, None);
        let refused = publish::plan_release(&home.vault, &request);
        assert_matches!(refused, Err(PlanError::Damaged(_)));
    };
    untrusted(&home);
    // Any writing command, and those that change keys.
    home.add("other", "x");
    home.remove("other", None);
    roots::rotate_key(&home.vault, None, None).unwrap();
    roots::sign_again(&home.vault).unwrap();
    untrusted(&home);
    assert_eq!(std::fs::read_link(&link).unwrap(), target);
    // The folder names another vault: this machine knows which one it held.
    let named = thief.path("vault/vault.json");
    std::fs::copy(named, home.path("vault/vault.json")).unwrap();
    let paths = home.vault.paths().clone();
    let opened = Vault::open(paths, Arc::clone(&home.clock) as _, Arc::new(SystemRandom));
    assert_matches!(opened, Err(VaultError::Swapped(_)));
    // Even without that record it knows nothing of the other vault.
    std::fs::remove_dir_all(home.path("config/folders")).unwrap();
    let other = home.again();
    assert!(shelf::list_installed(&other).unwrap().skills.is_empty());
    assert_matches!(other.release_key(), Err(VaultError::Untrusted(_)));
}

/// Own skills have the owner's signature in every version, so the record in the trust folder says
/// which of them counts.
#[test]
fn an_older_version_and_a_removed_skill_do_not_come_back() {
    let home = Home::new(1);
    let old = home.add("greet", "leaks");
    home.add("greet", "mended");
    let removed = home.add("removed", "leaks");
    let (kept, link) = (home.path("kept"), home.path("vault/skills/greet"));
    crate::support::copy_folder(&home.stored(&removed.bundle), &kept);
    home.remove("removed", None);
    crate::support::copy_folder(&kept, &home.stored(&removed.bundle));
    let relink = |name: &str, bundle: &Digest| {
        let link = home.path("vault/skills").join(name);
        let _absent = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("../store/{bundle}/files"), link).unwrap();
    };
    assert!(home.is_clean());
    for (name, bundle) in [("greet", &old.bundle), ("removed", &removed.bundle)] {
        relink(name, bundle);
        let report = integrity::verify_all_installed(&home.vault).unwrap();
        let mut skills = report.skills.iter();
        let found = skills.find(|found| found.name.as_str() == name).unwrap();
        assert_matches!(found.damage, Some(Damage::Older { .. }), "{name}");
        assert!(vault_library::run::locate_skill(&home.vault, crate::support::name(name)).is_err());
        let listing = shelf::list_installed(&home.vault).unwrap();
        assert!(
            listing
                .skills
                .iter()
                .all(|skill| skill.name.as_str() != name)
        );
        let slug = "acme".parse().unwrap();
        let request = PlanRequest::new("https://vault.example", &slug, None);
        let refused = publish::plan_release(&home.vault, &request);
        assert_matches!(refused, Err(PlanError::Damaged(_)), "{name}");
        // Adding it again makes a later version.
        let again = home.add(name, "good");
        assert!(again.version > 1, "{name}: {}", again.version);
        assert!(home.is_clean());
    }
    std::fs::remove_file(link).unwrap();
    let report = integrity::verify_all_installed(&home.vault).unwrap();
    let damaged: Vec<_> = report
        .skills
        .iter()
        .filter(|skill| skill.damage.is_some())
        .map(|skill| skill.name.as_str())
        .collect();
    assert_eq!(damaged, ["greet"], "it is gone, and nobody removed it");
    let listing = shelf::list_installed(&home.vault).unwrap();
    assert_eq!(listing.damaged.len(), 1);
    // A command that removes it ends that.
    home.remove("greet", None);
    assert!(home.is_clean());
}

#[test]
fn the_name_of_a_planted_file_makes_no_line_of_a_message() {
    let home = Home::new(1);
    let greet = home.add("greet", "x");
    let files = home.stored(&greet.bundle).join("files");
    set_mode(&files, 0o755);
    write(&files.join("x\n✓ all is well"), b"x");
    let report = integrity::verify_all_installed(&home.vault).unwrap();
    let damage = report.skills[0].damage.as_ref().unwrap().to_string();
    assert_eq!(damage.lines().count(), 1, "{damage}");
    thaw(&home.stored(&greet.bundle));
}

/// The owner's key signs variants of skills for single agents too. None of them is the skill,
/// whether the skill is there, has a later version, or was removed.
#[test]
fn a_variant_stands_in_no_skills_place() {
    let home = Home::new(1);
    std::fs::create_dir_all(home.path(".cursor")).unwrap();
    let greet = name("greet");
    home.add("greet", "leaks");
    let transform = b"---\nagents: [cursor]\n---\nMore.\n";
    transforms::add_transform(&home.vault, &greet, name("rules"), transform).unwrap();
    let sync = || sync_profiles(&home.vault, &home.sync_input()).unwrap();
    sync();
    let variant = integrity::verify_all_installed(&home.vault)
        .unwrap()
        .variants[0]
        .bundle;
    let (kept, stored) = (home.path("kept"), home.stored(&variant));
    copy_folder(&stored, &kept);
    let put = || {
        if !stored.exists() {
            copy_folder(&kept, &stored);
        }
        let link = home.path("vault/skills/greet");
        let before = std::fs::read_link(&link).ok();
        let _absent = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("../store/{variant}/files"), link).unwrap();
        before
    };
    let refused = |when: &str| {
        let report = integrity::verify_all_installed(&home.vault).unwrap();
        assert_matches!(report.skills[0].damage, Some(Damage::Variant(_)), "{when}");
        assert!(
            shelf::list_installed(&home.vault)
                .unwrap()
                .skills
                .is_empty(),
            "{when}"
        );
        assert!(
            run::locate_skill(&home.vault, greet.clone()).is_err(),
            "{when}"
        );
        let slug = "acme".parse().unwrap();
        let request = PlanRequest::new("https://vault.example", &slug, None);
        let planned = publish::plan_release(&home.vault, &request);
        assert_matches!(planned, Err(PlanError::Damaged(_)), "{when}");
    };
    let put_back = |target: std::path::PathBuf| {
        let link = home.path("vault/skills/greet");
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
        assert!(home.is_clean());
    };
    let before = put().unwrap();
    refused("beside its skill");
    put_back(before);
    roots::rotate_key(&home.vault, None, None).unwrap();
    assert!(home.is_clean());
    let before = put().unwrap();
    refused("after a rotation");
    put_back(before);
    home.add("greet", "mended");
    sync();
    put();
    refused("below its skill's version");
    home.remove("greet", None);
    put();
    refused("after a removal");
}

#[test]
fn a_folder_that_others_can_change_is_read_and_not_signed_in() {
    let home = Home::new(1);
    home.add("greet", "one");
    for folder in [
        "vault",
        "vault/store",
        "vault/skills",
        "vault/links",
        "vault/tmp",
    ] {
        for mode in [0o770, 0o702] {
            set_mode(&home.path(folder), mode);
            let source = home.source("other", "x", &[]);
            let refused = home.add_with(&source, &Options::default()).unwrap_err();
            assert_matches!(
                refused,
                AdmitError::Vault(VaultError::WritableByOthers { .. }),
                "{folder}"
            );
            assert_eq!(home.listed().len(), 1);
            set_mode(&home.path(folder), 0o700);
        }
    }
    assert!(home.vault.check_folders().is_ok());
}
