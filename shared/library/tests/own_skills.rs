//! Tests of adding and removing own skills.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    Home, add_folders, durable, for_agent, from_source, mode, name, removal, replacing, set_mode,
    skill_md, snapshot, write, write_skill,
};
use vault_gate::Outcome;
use vault_library::add_folder;
use vault_library::admit::remove::{self, remove_skills};
use vault_library::admit::{Admission, AdmitError, Options};
use vault_library::{LockError, VaultError, integrity, run, shelf};
use vault_testing::assert_matches;

#[test]
fn every_byte_and_mode_arrives_as_it_was() {
    let home = Home::new(1);
    let all: Vec<u8> = (0..=255).collect();
    let files: [(&str, &[u8]); 8] = [
        ("binary.bin", &all),
        ("empty", b""),
        ("crlf.txt", b"one\r\ntwo\r\n\r\n"),
        ("bom.txt", b"\xef\xbb\xbfwith a mark\n"),
        ("blanks.txt", b"tab\tand trailing   \n\t \n\n\n"),
        ("no-newline", b"last line without an end"),
        ("deep/er/file.md", b"# deep\n"),
        ("bin/run", b"#!/bin/sh\nexit 0\n"),
    ];
    let folder = home.source("exact", "Body with  two blanks  \r\n\tand a tab.", &files);
    let report = home.add_folder(&folder);
    assert_eq!(report.admission, Admission::Added);
    assert_eq!((report.version, report.files), (1, 9));
    assert_eq!(report.provenance.as_str(), "local:exact");

    let installed = home.path("vault/skills/exact");
    for (path, bytes) in files {
        let found = std::fs::read(installed.join(path)).unwrap();
        assert_eq!(found, bytes, "{path}");
    }
    let document = std::fs::read(folder.join("SKILL.md")).unwrap();
    assert_eq!(std::fs::read(installed.join("SKILL.md")).unwrap(), document);
    assert_eq!(mode(&installed.join("bin/run")), 0o555);
    assert_eq!(mode(&installed.join("empty")), 0o444);
    assert_eq!(mode(&installed.join("deep/er")), 0o555);
    assert!(home.is_clean());
}

#[test]
fn the_store_is_laid_out_as_the_design_draws_it() {
    let home = Home::new(1);
    let report = home.add("layout", "body");
    let root = home.path("vault");
    let target = std::fs::read_link(root.join("skills/layout")).unwrap();
    let files = format!("../store/{}/files", report.bundle);
    assert_eq!(target, Path::new(&files));
    let stored = home.stored(&report.bundle);
    assert_eq!(mode(&stored.join("manifest.json")), 0o444);
    assert_eq!(snapshot(&root.join("tmp")).len(), 0);
    for entry in snapshot(&home.path("config")).keys() {
        let mode = mode(&home.path("config").join(entry));
        assert!(mode.trailing_zeros() >= 6, "{entry}");
    }
    let everything = snapshot(&root);
    let key = home.vault.release_key().unwrap();
    let seed = std::fs::read_to_string(home.vault.keys().path(&key)).unwrap();
    let seed = seed.trim_end().rsplit(' ').next().unwrap();
    assert!(everything.values().all(|content| !content.contains(seed)));
}

#[test]
fn the_same_content_again_is_unchanged_and_other_content_is_the_next_version() {
    let home = Home::new(1);
    let first = home.add("steps", "one");
    home.clock.advance(100);
    let same = home.add("steps", "one");
    assert_eq!(same.admission, Admission::Unchanged);
    assert_eq!((same.version, same.bundle), (1, first.bundle));
    let second = home.add("steps", "two");
    assert_eq!(
        (second.admission, second.before),
        (Admission::Updated, Some(1))
    );
    assert_eq!(second.version, 2);
    let back = home.add("steps", "one");
    assert_eq!(back.version, 3, "going back is going on");
    assert_ne!(back.bundle, first.bundle);
    // A changed file mode is a changed skill.
    let folder = home.source("steps", "one", &[("notes.txt", b"notes\n")]);
    set_mode(&folder.join("notes.txt"), 0o755);
    assert_eq!(home.add_folder(&folder).version, 4);
    // So is a changed agent.
    let add = || home.add_with(&folder, &for_agent("codex")).unwrap();
    assert_eq!(add().version, 5);
    assert_eq!(add().admission, Admission::Unchanged);
}

#[test]
fn versions_go_on_after_a_removal_and_after_damage() {
    let home = Home::new(1);
    home.add("again", "one");
    let second = home.add("again", "two");
    let request = removal(&["again", "never-there", "Not A Name"]);
    let report = remove_skills(&home.vault, &request).unwrap();
    assert_eq!(report.removed.len(), 1);
    assert_eq!(report.removed[0].version, Some(2));
    assert_eq!(report.removed[0].bundle, second.bundle);
    assert_eq!(report.unknown, ["never-there", "Not A Name"]);
    assert!(home.listed().is_empty());
    let store = snapshot(&home.path("vault/store"));
    assert!(store.is_empty(), "its bytes are gone");
    let third = home.add("again", "three");
    assert_eq!((third.version, third.admission), (3, Admission::Added));
    // Even if its manifest is destroyed, adding its content again yields a higher version.
    let manifest = home.stored(&third.bundle).join("manifest.json");
    home.listed();
    std::thread::sleep(Duration::from_millis(120));
    home.listed();
    std::fs::write(&manifest, "{}").unwrap();
    assert_eq!(home.add("again", "three").version, 4);
    assert_eq!(home.listed()["again"], 4);
}

#[test]
fn the_gate_stands_before_everything_else() {
    let home = Home::new(1);
    home.add("good", "body");
    let before = durable(&home.vault);
    let folder = home.source("bad", "x", &[]);
    for text in [
        Some("no frontmatter"),
        Some("---\nname: bad\n---\nx\n"),
        Some("---\nname: bad\ndescription: d\nbin: 3\n---\n"),
        None,
    ] {
        match text {
            Some(text) => std::fs::write(folder.join("SKILL.md"), text).unwrap(),
            None => std::fs::remove_file(folder.join("SKILL.md")).unwrap(),
        }
        let refused = home.add_with(&folder, &Options::default());
        assert_matches!(refused, Err(AdmitError::Blocked { findings }) if !findings.is_empty());
    }
    assert_eq!(durable(&home.vault), before);
}

#[test]
fn names_are_derived_or_given_and_the_bytes_stay() {
    let home = Home::new(1);
    let folder = home.source("plain", "x", &[]);
    let text = skill_md("Code_Review Helper", "", "x");
    std::fs::write(folder.join("SKILL.md"), &text).unwrap();
    let report = home.add_folder(&folder);
    assert_eq!(report.name.as_str(), "code-review-helper");
    assert_eq!(report.outcome, Outcome::Accepted);
    let options = Options {
        name: Some(name("other")),
        ..Options::default()
    };
    let report = home.add_with(&folder.join("SKILL.md"), &options).unwrap();
    assert_eq!(report.name.as_str(), "other");
    for installed in ["code-review-helper", "other"] {
        let path = format!("vault/skills/{installed}/SKILL.md");
        assert_eq!(home.read(&path), text);
        let found = run::locate_skill(&home.vault, name(installed)).unwrap();
        let recorded = found.manifest.frontmatter_name.as_deref();
        assert_eq!(recorded, Some("Code_Review Helper"));
    }
}

#[test]
fn a_name_does_not_change_hands_silently() {
    let home = Home::new(1);
    let fetched = from_source("github:acme/skills/tool");
    let folder = home.source("tool", "one", &[]);
    home.add_with(&folder, &fetched).unwrap();
    let folder = home.source("tool", "two", &[]);
    let refused = home.add_with(&folder, &Options::default());
    assert_matches!(refused, Err(AdmitError::NameTaken { .. }));
    // Keeping the recorded source, or naming it explicitly, is allowed.
    let report = home.add_with(&folder, &fetched).unwrap();
    assert_eq!(report.version, 2);
    let report = home.add_with(&folder, &replacing()).unwrap();
    assert_eq!(
        (report.version, report.provenance.as_str()),
        (3, "local:tool")
    );
    // Another local folder is another source: two skills with the same name do not replace each
    // other.
    let moved = home.path("sources/moved");
    std::fs::rename(&folder, &moved).unwrap();
    write_skill(&moved, "tool", "three");
    let refused = home.add_with(&moved, &Options::default());
    assert_matches!(refused, Err(AdmitError::NameTaken { .. }));
    // A staged copy can keep the recorded source.
    let report = home.add_with(&moved, &from_source("local:tool")).unwrap();
    assert_eq!(report.version, 4);
}

#[test]
fn sources_that_are_not_here_are_named_as_such() {
    let home = Home::new(1);
    for source in [
        "https://example.com/a/SKILL.md",
        "acme/skills",
        "github:acme/skills",
        "git@host:a/b.git",
        "clawhub:@a/b",
    ] {
        let refused = home.add_with(Path::new(source), &Options::default());
        assert_matches!(
            refused,
            Err(AdmitError::SourceUnsupported { .. }),
            "{source}"
        );
    }
    for source in ["./nothing", "/nothing/here", "nothing"] {
        let refused = home.add_with(Path::new(source), &Options::default());
        assert_matches!(refused, Err(AdmitError::Source(_)), "{source}");
    }
}

#[test]
fn hostile_folders_change_nothing() {
    for linked in ["notes.md", "SKILL.md"] {
        let home = Home::new(1);
        home.add("good", "body");
        let folder = home.source("hostile", "x", &[("notes.md", b"x")]);
        std::fs::remove_file(folder.join(linked)).unwrap();
        symlink("/etc/passwd", folder.join(linked)).unwrap();
        let before = durable(&home.vault);
        let refused = home.add_with(&folder, &Options::default());
        assert_matches!(refused, Err(AdmitError::Source(_)), "{linked}");
        assert_eq!(durable(&home.vault), before, "{linked}");
    }
}

#[test]
fn ignored_metadata_is_never_stored() {
    let home = Home::new(1);
    let paths = [".DS_Store", ".git/config", "a/.idea/x", "a/file~", "a/kept"];
    let folder = home.source("clean", "x", &paths.map(|path| (path, &b"x"[..])));
    assert_eq!(home.add_folder(&folder).files, 2);
    let stored = snapshot(&home.path("vault/skills/clean/"));
    let stored: Vec<_> = stored.into_keys().collect();
    assert_eq!(stored, ["SKILL.md", "a", "a/kept"]);
}

/// Swaps a file for a symlink to a secret and back while it is read: the secret is never admitted.
#[test]
fn what_is_planted_during_the_reading_never_gets_in() {
    let home = Home::new(1);
    let secret = home.path("secret");
    std::fs::write(&secret, "SECRET").unwrap();
    let files = ["data.txt", "dir/inner.txt"].map(|path| (path, &b"PUBLIC"[..]));
    let folder = home.source("race", "x", &files);
    let outside = home.path("outside");
    write(&outside.join("inner.txt"), b"SECRET");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (data, aside) = (folder.join("data.txt"), folder.with_file_name("aside"));
            let (dir, dir_aside) = (folder.join("dir"), folder.with_file_name("dir-aside"));
            while !stop.load(Ordering::Relaxed) {
                std::fs::rename(&data, &aside).unwrap();
                symlink(&secret, &data).unwrap();
                std::fs::rename(&aside, &data).unwrap();
                std::fs::rename(&dir, &dir_aside).unwrap();
                symlink(&outside, &dir).unwrap();
                std::fs::remove_file(&dir).unwrap();
                std::fs::rename(&dir_aside, &dir).unwrap();
            }
        });
        let mut outcomes = (0, 0);
        for _ in 0..300 {
            match home.add_with(&folder, &Options::default()) {
                Ok(report) => {
                    outcomes.0 += 1;
                    let stored = home.stored(&report.bundle).join("files");
                    for path in ["data.txt", "dir/inner.txt"] {
                        if let Ok(bytes) = std::fs::read(stored.join(path)) {
                            assert_eq!(bytes, b"PUBLIC");
                        }
                    }
                }
                Err(AdmitError::Source(_)) => outcomes.1 += 1,
                Err(other) => panic!("{other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(outcomes.1 > 0, "the race was never met");
    });
}

#[test]
fn many_are_added_with_an_answer_each() {
    let home = Home::new(1);
    let mut requests: Vec<_> = (0..40)
        .map(|number| home.source(&format!("skill-{number:02}"), "x", &[("bin/run", b"x")]))
        .collect();
    std::fs::write(home.path("sources/skill-07/SKILL.md"), "broken").unwrap();
    let doubled = requests[3].clone();
    requests.push(doubled);
    let answers = add_folders(&home.vault, &requests);
    assert_eq!(answers.len(), 41);
    for (number, answer) in answers.iter().enumerate() {
        match number {
            7 => assert_matches!(answer, Err(AdmitError::Blocked { .. })),
            40 => assert_matches!(answer, Err(AdmitError::Twice(_))),
            _ => {
                let name = answer.as_ref().unwrap().name.as_str();
                assert_eq!(name, format!("skill-{number:02}"));
            }
        }
    }
    assert_eq!(home.listed().len(), 39);
    assert!(home.is_clean());
}

#[test]
fn writers_queue_and_readers_never_see_half_a_skill() {
    let home = Home::new(1);
    home.add("shared", "start");
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4_usize {
            let (home, done) = (&home, &done);
            scope.spawn(move || {
                for round in 0..6 {
                    let vault = home.again();
                    let own = format!("own-{writer}");
                    for name in ["shared", &own] {
                        let folder = home.path(&format!("w{writer}/{name}"));
                        write_skill(&folder, name, &format!("{writer} {round}"));
                        add_folder(&vault, &folder, &replacing()).unwrap();
                    }
                    if round % 2 == 1 {
                        remove_skills(&vault, &removal(&[&own])).unwrap();
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 4 {
            let listing = shelf::list_installed(&home.again()).unwrap();
            assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
            let mut skills = listing.skills.iter();
            assert!(skills.any(|skill| skill.name.as_str() == "shared"));
        }
    });
    assert_eq!(home.listed()["shared"], 25, "each admission is one version");
    assert!(home.is_clean());
    assert_eq!(snapshot(&home.path("vault/tmp")).len(), 0);
}

#[test]
fn a_busy_vault_says_who_holds_it() {
    let home = Home::new(1);
    let lock = std::fs::File::open(home.path("vault/lock")).unwrap();
    lock.lock().unwrap();
    let vault = home.again().with_wait(Duration::from_millis(10));
    let folder = home.source("waits", "x", &[]);
    let refused = add_folder(&vault, &folder, &Options::default());
    assert_matches!(
        refused,
        Err(AdmitError::Vault(VaultError::Lock(LockError::Busy { .. })))
    );
    assert!(home.listed().is_empty(), "readers do not wait");
    drop(lock);
    home.add_folder(&folder);
}

#[test]
fn the_generation_changes_with_every_change_and_only_then() {
    let home = Home::new(1);
    let generation = || home.again().generation().unwrap();
    let start = generation();
    home.add("counts", "one");
    let added = generation();
    assert!(added > start && added % 2 == 0);
    home.add("counts", "one");
    home.listed();
    assert_eq!(generation(), added);
    home.remove("counts", None);
    assert!(generation() > added);
}

#[test]
fn earlier_versions_stay_until_collected() {
    let home = Home::new(1);
    let first = home.add("kept", "one");
    home.add("kept", "two");
    let report = integrity::verify_all_installed(&home.vault).unwrap();
    assert_eq!(report.unreferenced, [first.bundle]);
    assert_eq!(
        remove::collect_unreferenced(&home.vault).unwrap(),
        [first.bundle]
    );
    let report = integrity::verify_all_installed(&home.vault).unwrap();
    assert!(report.unreferenced.is_empty());
    assert_eq!(home.listed()["kept"], 2);
}

#[test]
fn what_a_killed_writer_stored_and_did_not_link_goes_with_the_next_change() {
    let home = Home::new(1);
    let first = home.add("tool", "one");
    let second = home.add("tool", "two");
    let stored = |hash| home.stored(hash).exists();
    // An earlier version stays, because a rollback may need it.
    assert!(stored(&first.bundle) && stored(&second.bundle));
    // A killed writer's note lists both bundles as stored. Only the one that no symlink uses is
    // removed.
    let dead = home.path("vault/tmp/dead");
    std::fs::create_dir(&dead).unwrap();
    let note = format!("{}\n{}\nno hash\n", first.bundle, second.bundle);
    std::fs::write(dead.join("admitted"), note).unwrap();
    home.add("other", "one");
    assert!(!stored(&first.bundle) && stored(&second.bundle));
    assert!(!dead.exists());
    assert!(run::locate_skill(&home.vault, name("tool")).is_ok());
}
