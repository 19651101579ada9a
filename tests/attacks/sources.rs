//! What lies in a folder that is added: links, pipes, sockets, devices, names that travel badly,
//! bytes that must not change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vault_tests::home::{Home, Ran};
use vault_tests::skills::{awkward_files, skill_md, write};
use vault_tests::tree;

use crate::support::{unchanged, word};

/// Adds a folder; a command that hangs (at a pipe, say) is a failure.
fn add(home: &Home, folder: &Path) -> Ran {
    let mut child = home
        .command(&format!("add --json {}", folder.to_str().unwrap()))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut looks = 0;
    while child.try_wait().unwrap().is_none() {
        if looks == 12_000 {
            child.kill().unwrap();
            panic!("`vault add {}` hangs", folder.display());
        }
        looks += 1;
        std::thread::park_timeout(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// What is planted in a skill folder; false where this machine cannot.
type Plant = fn(&Path) -> bool;

#[test]
fn a_folder_with_anything_but_files_and_folders_is_refused() {
    let cases: [(&str, Plant); 12] = [
        ("a link to a file outside", |f| {
            symlink("/etc/passwd", f.join("notes.md")).is_ok()
        }),
        ("a link to a folder outside", |f| {
            symlink("/etc", f.join("docs")).is_ok()
        }),
        ("a link within the skill", |f| {
            symlink("SKILL.md", f.join("copy.md")).is_ok()
        }),
        ("a link to itself", |f| {
            symlink("loop", f.join("loop")).is_ok()
        }),
        ("a link to nothing", |f| {
            symlink("missing", f.join("gone")).is_ok()
        }),
        ("a link to the folder above", |f| {
            symlink("..", f.join("sub/up")).is_ok()
        }),
        ("SKILL.md as a link", |f| {
            std::fs::rename(f.join("SKILL.md"), f.join("real.md")).is_ok()
                && symlink("real.md", f.join("SKILL.md")).is_ok()
        }),
        ("SKILL.md as a folder", |f| {
            std::fs::remove_file(f.join("SKILL.md")).is_ok()
                && std::fs::create_dir(f.join("SKILL.md")).is_ok()
        }),
        ("a pipe", |f| {
            run("mkfifo", &[f.join("pipe").to_str().unwrap()])
        }),
        ("SKILL.md as a pipe", |f| {
            std::fs::remove_file(f.join("SKILL.md")).is_ok()
                && run("mkfifo", &[f.join("SKILL.md").to_str().unwrap()])
        }),
        ("a socket", |f| {
            std::os::unix::net::UnixListener::bind(f.join("s")).is_ok()
        }),
        ("a device", |f| {
            run("mknod", &[f.join("zero").to_str().unwrap(), "c", "1", "5"])
        }),
    ];
    let home = Home::new();
    home.add("good", "x").ok();
    for (name, plant) in cases {
        // Short, since the path of a socket may have 107 bytes only.
        let folder = home.path().join("w").join("hostile");
        write(
            &folder,
            &[("SKILL.md", &skill_md("hostile", "x")), ("sub/file", b"x")],
        );
        if plant(&folder) {
            let before = tree::snapshot(home.path(), &[]);
            let ran = add(&home, &folder);
            assert!(
                [1, 5].contains(&ran.code),
                "{name}: {} {}",
                ran.code,
                ran.stdout
            );
            assert!(!word(&ran).is_empty(), "{name}");
            unchanged(&home, name, &before);
        } else {
            // Only a device needs rights that a test may lack.
            assert_eq!(name, "a device");
            eprintln!("left out: {name} cannot be made here");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn names_that_travel_badly_are_refused() {
    let names: [(&str, &[u8]); 21] = [
        ("a backslash", b"a\\b"),
        ("a colon", b"a:b"),
        ("a line end", b"a\nb"),
        ("escape", b"a\x1b[2J"),
        ("not UTF-8", b"a\xff\xfeb"),
        ("not NFC", "cafe\u{301}".as_bytes()),
        ("right to left", "a\u{202e}b".as_bytes()),
        ("zero width", "a\u{200b}b".as_bytes()),
        ("a blank at its end", b"a "),
        ("a dot at its end", b"a."),
        ("a device", b"aux.md"),
        ("a device with a superscript digit", "com¹".as_bytes()),
        ("the console", b"CONOUT$"),
        ("a repository in other letters", b".GIT"),
        ("a repository by its short name", b"git~1"),
        ("a soft hyphen", "a\u{ad}b".as_bytes()),
        ("a tag character", "a\u{e0041}b".as_bytes()),
        ("ours", b".vault-x"),
        ("a star", b"a*b"),
        ("101 bytes", &[b'n'; 101]),
        ("case of SKILL.md", b"skill.MD"),
    ];
    let home = Home::new();
    home.add("good", "x").ok();
    // The first command that looks at the neighbours fills the index, which is a cache.
    home.run("skill list").ok();
    for (name, bytes) in names {
        let folder = home.plain_skill("named", "x");
        std::fs::write(folder.join(OsStr::from_bytes(bytes)), b"x").unwrap();
        let before = tree::snapshot(home.path(), &[]);
        let ran = add(&home, &folder);
        assert!(
            [1, 5].contains(&ran.code),
            "{name}: {} {}",
            ran.code,
            ran.stdout
        );
        unchanged(&home, name, &before);
        std::fs::remove_dir_all(&folder).unwrap();
    }
    for pair in [
        ["notes.md", "NOTES.md"],
        ["straße", "STRASSE"],
        ["Bin/x", "bin/y"],
    ] {
        let folder = home.skill(
            "named",
            &[
                ("SKILL.md", &skill_md("named", "x")),
                (pair[0], b"1"),
                (pair[1], b"2"),
            ],
        );
        if std::fs::metadata(folder.join(pair[0])).unwrap().ino()
            == std::fs::metadata(folder.join(pair[1])).unwrap().ino()
        {
            eprintln!("left out: this file system folds case");
            continue;
        }
        let before = tree::snapshot(home.path(), &[]);
        let ran = add(&home, &folder);
        assert_eq!(ran.code, 5, "{pair:?}: {}", ran.stdout);
        unchanged(&home, pair[0], &before);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn every_byte_of_awkward_files_is_kept() {
    let home = Home::new();
    let mut document = b"---\r\nname: awkward\r\ndescription: A skill whose bytes a careless tool would change.\r\n---\r\n".to_vec();
    document.extend_from_slice(
        "\tTab,  two blanks  \r\n\u{feff}a mark within\r\n\r\n\r\nno end".as_bytes(),
    );
    let mut files = awkward_files();
    files.push(("SKILL.md", document));
    files.push(("notes/only-cr.txt", b"one\rtwo\r".to_vec()));
    files.push(("notes/utf-16.txt", b"\xff\xfea\0\n\0".to_vec()));
    files.push(("notes/blank", b" ".to_vec()));
    let borrowed: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(path, bytes)| (*path, &bytes[..]))
        .collect();
    let folder = home.skill("awkward", &borrowed);
    let ran = add(&home, &folder);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let installed = tree::files(&home.vault().join("skills/awkward"));
    assert_eq!(installed, tree::files(&folder));
    assert_eq!(installed.len(), files.len());
}

#[test]
fn a_skill_md_that_begins_with_a_mark_is_kept_or_refused_but_never_mended() {
    let home = Home::new();
    let document = [b"\xef\xbb\xbf", &skill_md("marked", "x")[..]].concat();
    let folder = home.skill("marked", &[("SKILL.md", &document)]);
    let ran = add(&home, &folder);
    if ran.code == 0 {
        let kept = std::fs::read(home.vault().join("skills/marked/SKILL.md")).unwrap();
        assert_eq!(kept, document);
    } else {
        assert_eq!(ran.code, 5, "{}", ran.stdout);
    }
    assert_eq!(std::fs::read(folder.join("SKILL.md")).unwrap(), document);
}

#[test]
fn a_hard_link_brings_its_bytes_and_nothing_else() {
    let home = Home::new();
    let folder = home.plain_skill("linked", "x");
    let other = home.path().join("elsewhere.txt");
    std::fs::write(&other, b"mine\n").unwrap();
    std::fs::hard_link(&other, folder.join("mine.txt")).unwrap();
    let ran = add(&home, &folder);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let installed = home.vault().join("skills/linked/mine.txt");
    assert_eq!(std::fs::metadata(&installed).unwrap().nlink(), 1);
    std::fs::write(&other, b"changed\n").unwrap();
    assert_eq!(std::fs::read(&installed).unwrap(), b"mine\n");
}

#[test]
fn modes_become_one_of_two() {
    let home = Home::new();
    let folder = home.skill(
        "modes",
        &[
            ("SKILL.md", &skill_md("modes", "x")),
            ("run", b"#!/bin/sh\n"),
            ("plain", b"x"),
        ],
    );
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&folder.join("run"), 0o6777);
    mode(&folder.join("plain"), 0o666);
    let ran = add(&home, &folder);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let installed = home.vault().join("skills/modes");
    let of = |name: &str| std::fs::metadata(installed.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((of("run"), of("plain")), (0o555, 0o444));
}
