//! Tests of adding and removing own skills.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod support;

use std::path::Path;
use std::time::Duration;

use support::{Home, durable, mode, name, skill_md, snapshot, write};
use vault_library::add_folder;
use vault_library::admit::remove::{self, RemoveSkills, remove_skills};
use vault_library::admit::{Admission, AdmitError, Options};
use vault_library::run;
use vault_library::{LockError, VaultError, integrity, shelf};
use vault_skill::gate::Outcome;

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
        assert_eq!(
            std::fs::read(installed.join(path)).unwrap(),
            bytes,
            "{path}"
        );
    }
    let document = std::fs::read(folder.join("SKILL.md")).unwrap();
    assert_eq!(std::fs::read(installed.join("SKILL.md")).unwrap(), document);
    assert_eq!(mode(&installed.join("bin/run")), 0o555);
    assert_eq!(mode(&installed.join("empty")), 0o444);
    assert_eq!(mode(&installed.join("deep/er")), 0o555);
    assert!(integrity::check(&home.vault).unwrap().is_clean());
}

#[test]
fn the_store_is_laid_out_as_the_design_draws_it() {
    let home = Home::new(1);
    let report = home.add("layout", "body");
    let root = home.path("vault");
    let target = std::fs::read_link(root.join("skills/layout")).unwrap();
    assert_eq!(
        target,
        Path::new(&format!("../store/{}/files", report.bundle))
    );
    let stored = root.join("store").join(report.bundle.to_string());
    assert_eq!(mode(&stored.join("manifest.json")), 0o444);
    assert_eq!(snapshot(&root.join("tmp")).len(), 0);
    for entry in snapshot(&home.path("config")).keys() {
        assert!(
            mode(&home.path("config").join(entry)).trailing_zeros() >= 6,
            "{entry}"
        );
    }
    let everything = snapshot(&root);
    let seed = std::fs::read_to_string(
        home.vault
            .keys()
            .path(vault_library::keys::KeyKind::Release),
    )
    .unwrap();
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
    assert_eq!(second.admission, Admission::Updated { from: 1 });
    assert_eq!(second.version, 2);
    let back = home.add("steps", "one");
    assert_eq!(back.version, 3, "going back is going on");
    assert_ne!(back.bundle, first.bundle);
    // A changed file mode is a changed skill.
    let folder = home.source("steps", "one", &[("notes.txt", b"notes\n")]);
    support::set_mode(&folder.join("notes.txt"), 0o755);
    assert_eq!(home.add_folder(&folder).version, 4);
    // So is a changed agent.
    let request = Options {
        agents: vec!["codex".parse().unwrap()],
        ..Options::default()
    };
    assert_eq!(
        add_folder(&home.vault, &folder, &request).unwrap().version,
        5
    );
    assert_eq!(
        add_folder(&home.vault, &folder, &request)
            .unwrap()
            .admission,
        Admission::Unchanged
    );
}

#[test]
fn versions_go_on_after_a_removal_and_after_damage() {
    let home = Home::new(1);
    home.add("again", "one");
    let second = home.add("again", "two");
    let request = RemoveSkills {
        roots: Vec::new(),
        names: vec![
            "again".to_owned(),
            "never-there".to_owned(),
            "Not A Name".to_owned(),
        ],
        withdraw: None,
    };
    let report = remove_skills(&home.vault, &request).unwrap();
    assert_eq!(report.removed.len(), 1);
    assert_eq!(
        (report.removed[0].version, report.removed[0].bundle),
        (Some(2), second.bundle)
    );
    assert_eq!(report.unknown, ["never-there", "Not A Name"]);
    assert!(home.listed().is_empty());
    assert_eq!(
        std::fs::read_dir(home.path("vault/store")).unwrap().count(),
        0,
        "its bytes are gone"
    );
    let third = home.add("again", "three");
    assert_eq!((third.version, third.admission), (3, Admission::Added));
    // Even if its manifest is destroyed, adding its content again yields a higher version.
    let manifest = home
        .path("vault/store")
        .join(third.bundle.to_string())
        .join("manifest.json");
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
        "no frontmatter",
        "---\nname: bad\n---\nx\n",
        "---\nname: bad\ndescription: d\nbin: 3\n---\n",
    ] {
        std::fs::write(folder.join("SKILL.md"), text).unwrap();
        let refused = add_folder(&home.vault, &folder, &Options::default());
        let Err(AdmitError::Blocked { findings }) = refused else {
            panic!("{refused:?}")
        };
        assert!(!findings.is_empty());
    }
    std::fs::remove_file(folder.join("SKILL.md")).unwrap();
    let refused = add_folder(&home.vault, &folder, &Options::default());
    assert!(
        matches!(refused, Err(AdmitError::Blocked { .. })),
        "{refused:?}"
    );
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
    assert_eq!(report.outcome, Outcome::AcceptedWithWarnings);
    let request = Options {
        name: Some(name("other")),
        ..Options::default()
    };
    assert_eq!(
        add_folder(&home.vault, &folder.join("SKILL.md"), &request)
            .unwrap()
            .name
            .as_str(),
        "other"
    );
    for installed in ["code-review-helper", "other"] {
        let path = home.path("vault/skills").join(installed).join("SKILL.md");
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        let found = run::which(&home.vault, &name(installed)).unwrap();
        assert_eq!(
            found.manifest.frontmatter_name.as_deref(),
            Some("Code_Review Helper")
        );
    }
}

#[test]
fn a_name_does_not_change_hands_silently() {
    let home = Home::new(1);
    let folder = home.source("tool", "one", &[]);
    let request = Options {
        provenance: Some("github:acme/skills/tool".parse().unwrap()),
        ..Options::default()
    };
    add_folder(&home.vault, &folder, &request).unwrap();
    let folder = home.source("tool", "two", &[]);
    let refused = add_folder(&home.vault, &folder, &Options::default());
    assert!(
        matches!(refused, Err(AdmitError::NameTaken { .. })),
        "{refused:?}"
    );
    // Keeping the recorded source, or naming it explicitly, is allowed.
    assert_eq!(
        add_folder(&home.vault, &folder, &request).unwrap().version,
        2
    );
    let replaced = Options {
        replace: true,
        ..Options::default()
    };
    let report = add_folder(&home.vault, &folder, &replaced).unwrap();
    assert_eq!(
        (report.version, report.provenance.as_str()),
        (3, "local:tool")
    );
    // Another local folder is another source: two skills with the same name do not replace each
    // other.
    let moved = home.path("sources/moved");
    std::fs::rename(&folder, &moved).unwrap();
    std::fs::write(moved.join("SKILL.md"), skill_md("tool", "", "three")).unwrap();
    let mut request = Options::default();
    let refused = add_folder(&home.vault, &moved, &request);
    assert!(
        matches!(refused, Err(AdmitError::NameTaken { .. })),
        "{refused:?}"
    );
    // A staged copy can keep the recorded source.
    request.provenance = Some("local:tool".parse().unwrap());
    assert_eq!(
        add_folder(&home.vault, &moved, &request).unwrap().version,
        4
    );
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
        let refused = add_folder(&home.vault, Path::new(source), &Options::default());
        assert!(
            matches!(refused, Err(AdmitError::SourceUnsupported { .. })),
            "{source}: {refused:?}"
        );
    }
    for source in ["./nothing", "/nothing/here", "nothing"] {
        let refused = add_folder(&home.vault, Path::new(source), &Options::default());
        assert!(
            matches!(refused, Err(AdmitError::Source(_))),
            "{source}: {refused:?}"
        );
    }
}

#[test]
fn hostile_folders_change_nothing() {
    type Plant = fn(&Path);
    let plants: [Plant; 6] = [
        |folder| std::os::unix::fs::symlink("/etc/passwd", folder.join("notes.md")).unwrap(),
        |folder| std::os::unix::fs::symlink("/etc", folder.join("docs")).unwrap(),
        |folder| std::os::unix::fs::symlink("missing", folder.join("dangling")).unwrap(),
        |folder| {
            std::fs::remove_file(folder.join("SKILL.md")).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", folder.join("SKILL.md")).unwrap();
        },
        |folder| {
            let status = std::process::Command::new("mkfifo")
                .arg(folder.join("pipe"))
                .status();
            assert!(status.unwrap().success());
        },
        |folder| drop(std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap()),
    ];
    for (number, plant) in plants.into_iter().enumerate() {
        let home = Home::new(1);
        home.add("good", "body");
        let folder = home.source("hostile", "x", &[("sub/file", b"x")]);
        plant(&folder);
        let before = durable(&home.vault);
        let refused = add_folder(&home.vault, &folder, &Options::default());
        assert!(
            matches!(refused, Err(AdmitError::Source(_))),
            "{number}: {refused:?}"
        );
        assert_eq!(durable(&home.vault), before, "{number}");
    }
}

#[test]
fn ignored_metadata_is_never_stored() {
    let home = Home::new(1);
    let folder = home.source(
        "clean",
        "x",
        &[
            (".DS_Store", b"x"),
            (".git/config", b"x"),
            ("a/.idea/x", b"x"),
            ("a/file~", b"x"),
            ("a/kept", b"x"),
        ],
    );
    assert_eq!(home.add_folder(&folder).files, 2);
    let stored: Vec<_> = snapshot(&home.path("vault/skills/clean/"))
        .into_keys()
        .collect();
    assert_eq!(stored, ["SKILL.md", "a", "a/kept"]);
}

/// Swaps a file for a symlink to a secret and back while it is read: the secret is never admitted.
#[test]
fn what_is_planted_during_the_reading_never_gets_in() {
    let home = Home::new(1);
    let secret = home.path("secret");
    std::fs::write(&secret, "SECRET").unwrap();
    let folder = home.source(
        "race",
        "x",
        &[("data.txt", b"PUBLIC"), ("dir/inner.txt", b"PUBLIC")],
    );
    let outside = home.path("outside");
    write(&outside.join("inner.txt"), b"SECRET", false);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (data, aside) = (folder.join("data.txt"), folder.with_file_name("aside"));
            let (dir, dir_aside) = (folder.join("dir"), folder.with_file_name("dir-aside"));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::fs::rename(&data, &aside).unwrap();
                std::os::unix::fs::symlink(&secret, &data).unwrap();
                std::fs::rename(&aside, &data).unwrap();
                std::fs::rename(&dir, &dir_aside).unwrap();
                std::os::unix::fs::symlink(&outside, &dir).unwrap();
                std::fs::remove_file(&dir).unwrap();
                std::fs::rename(&dir_aside, &dir).unwrap();
            }
        });
        let mut outcomes = (0, 0);
        for _ in 0..300 {
            match add_folder(&home.vault, &folder, &Options::default()) {
                Ok(report) => {
                    outcomes.0 += 1;
                    let stored = home
                        .path("vault/store")
                        .join(report.bundle.to_string())
                        .join("files");
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
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(outcomes.1 > 0, "the race was never met");
    });
}

#[test]
fn many_are_added_with_an_answer_each() {
    let home = Home::new(1);
    let mut requests: Vec<_> = (0..40)
        .map(|number| {
            home.source(
                &format!("skill-{number:02}"),
                "x",
                &[("bin/run", b"#!/bin/sh\n")],
            )
        })
        .collect();
    std::fs::write(home.path("sources/skill-07/SKILL.md"), "broken").unwrap();
    let doubled = requests[3].clone();
    requests.push(doubled);
    let answers = support::add_folders(&home.vault, &requests);
    assert_eq!(answers.len(), 41);
    for (number, answer) in answers.iter().enumerate() {
        match number {
            7 => assert!(matches!(answer, Err(AdmitError::Blocked { .. }))),
            40 => assert!(matches!(answer, Err(AdmitError::Twice(_)))),
            _ => assert_eq!(
                answer.as_ref().unwrap().name.as_str(),
                format!("skill-{number:02}")
            ),
        }
    }
    assert_eq!(home.listed().len(), 39);
    assert!(integrity::check(&home.vault).unwrap().is_clean());
}

#[test]
fn writers_queue_and_readers_never_see_half_a_skill() {
    let home = Home::new(1);
    home.add("shared", "start");
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for writer in 0..4_usize {
            let (home, done) = (&home, &done);
            scope.spawn(move || {
                for round in 0..6 {
                    let vault = home.again();
                    let folder = home.path(&format!("w{writer}/shared"));
                    write(
                        &folder.join("SKILL.md"),
                        skill_md("shared", "", &format!("{writer} {round}")).as_bytes(),
                        false,
                    );
                    add_folder(&vault, &folder, &Options::default()).unwrap();
                    let own = home.path(&format!("w{writer}/own-{writer}"));
                    write(
                        &own.join("SKILL.md"),
                        skill_md(&format!("own-{writer}"), "", &format!("{round}")).as_bytes(),
                        false,
                    );
                    add_folder(&vault, &own, &Options::default()).unwrap();
                    if round % 2 == 1 {
                        let names = vec![format!("own-{writer}")];
                        remove_skills(
                            &vault,
                            &RemoveSkills {
                                roots: Vec::new(),
                                names,
                                withdraw: None,
                            },
                        )
                        .unwrap();
                    }
                }
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        while done.load(std::sync::atomic::Ordering::SeqCst) < 4 {
            let listing = shelf::list(&home.again()).unwrap();
            assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
            assert!(
                listing
                    .skills
                    .iter()
                    .any(|skill| skill.name.as_str() == "shared")
            );
        }
    });
    assert_eq!(home.listed()["shared"], 25, "each admission is one version");
    assert!(integrity::check(&home.vault).unwrap().is_clean());
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
    assert!(
        matches!(
            &refused,
            Err(AdmitError::Vault(VaultError::Lock(LockError::Busy { .. })))
        ),
        "{refused:?}"
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
    let report = integrity::check(&home.vault).unwrap();
    assert_eq!(report.unreferenced, [first.bundle]);
    assert_eq!(remove::collect(&home.vault).unwrap(), [first.bundle]);
    assert!(
        integrity::check(&home.vault)
            .unwrap()
            .unreferenced
            .is_empty()
    );
    assert_eq!(home.listed()["kept"], 2);
}

#[test]
fn what_a_killed_writer_stored_and_did_not_link_goes_with_the_next_change() {
    let home = Home::new(1);
    let first = home.add("tool", "one");
    let second = home.add("tool", "two");
    let stored =
        |hash: &vault_skill::hash::Digest| home.path("vault/store").join(hash.to_string()).exists();
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
    assert!(run::which(&home.vault, &name("tool")).is_ok());
}
