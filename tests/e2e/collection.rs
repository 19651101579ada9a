//! Sixty real public skills as a repository, a site and archives of both kinds: added, updated,
//! rolled back, linked for three agents, with the same bytes and modes in the end as in the
//! beginning.
//!
//! Runs where the corpora lie beside the checkout; says so where they do not.

#[path = "../../shared/sources/tests/support/mod.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sources::{Answer, Repository, SiteServer};
use vault_format::hash::Digest;
use vault_tests::home::Home;
use vault_tests::tree;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::corpus::{CORPORA, benign, is_litter};
use crate::support::text;

/// How many skills are taken.
const SKILLS: usize = 60;
/// How many of them change at their source.
const CHANGED: usize = 12;
/// The folders that the three agents read.
const ROOTS: [&str; 3] = [".claude/skills", ".agents/skills", ".cursor/skills"];

/// Files by path: whether they may be executed, and their bytes.
type Files = BTreeMap<String, (bool, Vec<u8>)>;

fn shell(script: &str, arguments: &[&Path]) {
    let status = Command::new("sh")
        .args(["-ec", script, "sh"])
        .args(arguments)
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}

/// Unpacks skills, spread over the collection, each into a folder of its frontmatter's name; those
/// only that the gate lets through and whose name no other has.
fn taken(into: &Path) -> BTreeSet<String> {
    let ids: Vec<String> = benign().into_iter().collect();
    // A few more, since the gate may refuse some and some share a name.
    let step = ids.len() * 3 / (SKILLS * 4);
    let unpacked = tempfile::tempdir().unwrap();
    let list = unpacked.path().join("list");
    let some: Vec<&str> = ids
        .iter()
        .step_by(step.max(1))
        .map(String::as_str)
        .collect();
    fs::write(&list, some.join("\n")).unwrap();
    let archive = PathBuf::from(format!("{CORPORA}/dev.tar.zst"));
    shell(
        "zstd -dc \"$1\" | tar -xf - -C \"$2\" -T \"$2/list\"",
        &[&archive, unpacked.path()],
    );
    let folders: Vec<String> = some
        .iter()
        .map(|id| unpacked.path().join(id))
        .filter(|folder| folder.join("SKILL.md").is_file())
        .map(|folder| folder.display().to_string())
        .collect();
    let mut arguments = vec!["add", "--dry-run", "--json"];
    arguments.extend(folders.iter().map(String::as_str));
    let judged = Home::new().run(&arguments).json();
    let mut names = BTreeSet::new();
    for skill in judged["data"].as_array().unwrap() {
        let Some(name) = skill["name"].as_str().map(str::to_owned) else {
            continue;
        };
        let from = PathBuf::from(text(&skill["source"]));
        if names.len() < SKILLS && names.insert(name.clone()) {
            fs::rename(&from, into.join(&name)).unwrap();
        }
    }
    assert_eq!(names.len(), SKILLS, "{judged}");
    names
}

fn contents(folder: &Path, names: &BTreeSet<String>) -> BTreeMap<String, Files> {
    names
        .iter()
        .map(|name| {
            let mut files = tree::files(&folder.join(name));
            files.retain(|path, _| !is_litter(path));
            (name.clone(), files)
        })
        .collect()
}

fn pack(folder: &Path) -> Vec<u8> {
    Command::new("tar")
        .args(["-czf", "-", "-C"])
        .arg(folder)
        .args(["--exclude=.git", "."])
        .output()
        .unwrap()
        .stdout
}

fn zipped(folder: &Path) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, (executable, bytes)) in tree::files(folder) {
        if path.starts_with(".git/") {
            continue;
        }
        let mode = if executable { 0o755 } else { 0o644 };
        let options = SimpleFileOptions::default().unix_permissions(mode);
        archive.start_file(path, options).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// Puts every skill on the site: an index with an archive for each, of one kind and the other in
/// turn.
fn publish(site: &SiteServer, folder: &Path, names: &BTreeSet<String>) {
    let mut entries = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let folder = folder.join(name);
        let (ending, kind, packed) = if number % 2 == 0 {
            ("tar.gz", "application/gzip", pack(&folder))
        } else {
            ("zip", "application/zip", zipped(&folder))
        };
        let digest = Digest::of(&packed);
        entries.push(format!(
            r#"{{"name":"{name}","type":"archive","description":"x","url":"/{name}.{ending}","digest":"sha256:{digest}"}}"#
        ));
        site.put(&format!("/{name}.{ending}"), Answer::Body(kind, packed));
    }
    let index = format!(
        r#"{{"$schema":"{}","skills":[{}]}}"#,
        vault_sources::site::SCHEMA,
        entries.join(",")
    );
    site.json("/.well-known/agent-skills/index.json", index);
}

fn home() -> Home {
    let home = Home::new();
    for agent in [".claude", ".codex", ".cursor"] {
        fs::create_dir(home.path().join(agent)).unwrap();
    }
    fs::create_dir_all(home.config()).unwrap();
    let config = home.config().join("config.toml");
    fs::write(config, "sources_allow_loopback = true\n").unwrap();
    home
}

/// Every agent reads exactly these bytes and modes.
#[track_caller]
fn agents_see(home: &Home, expected: &BTreeMap<String, Files>, what: &str) {
    for root in ROOTS {
        let root = home.path().join(root);
        assert_eq!(
            fs::read_dir(&root).unwrap().count(),
            expected.len(),
            "{what}"
        );
        for (name, files) in expected {
            assert_eq!(&tree::files(&root.join(name)), files, "{what}: {name}");
        }
    }
}

fn list(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[test]
fn a_collection_from_anywhere_is_added_updated_rolled_back_and_linked_as_it_is() {
    if !Path::new(CORPORA).join("dev.tar.zst").exists() {
        eprintln!("left out: the corpora are not beside the checkout");
        return;
    }
    let repository = Repository::new();
    let source = repository.path().to_owned();
    let names = taken(&source);
    let first = contents(&source, &names);
    repository.commit();
    let site = SiteServer::new();
    publish(&site, &source, &names);
    let aside = tempfile::tempdir().unwrap();
    let archives = ["all.tar.gz", "all.zip"].map(|name| aside.path().join(name));
    let write = || {
        fs::write(&archives[0], pack(&source)).unwrap();
        fs::write(&archives[1], zipped(&source)).unwrap();
    };
    write();
    let shown = archives.each_ref().map(|path| path.display().to_string());
    let mut places = vec![repository.address(), site.base.clone()];
    places.extend_from_slice(&shown);
    let homes: Vec<Home> = places
        .iter()
        .map(|place| {
            let home = home();
            let added = home.run(&format!("add {place} --all --json")).ok().json();
            assert_eq!(list(&added["data"]["added"]), SKILLS, "{place}: {added}");
            home.run("sync-profiles --discover").ok();
            agents_see(&home, &first, place);
            home
        })
        .collect();

    // A fifth of them changes: a line more, a file more, a mode.
    let changed: Vec<&String> = names.iter().step_by(SKILLS / CHANGED).collect();
    for name in &changed {
        let folder = source.join(name);
        let mut document = fs::read(folder.join("SKILL.md")).unwrap();
        document.extend_from_slice(b"\nAsk before anything is sent.\r\n");
        fs::write(folder.join("SKILL.md"), document).unwrap();
        fs::write(folder.join("added-later.sh"), "#!/bin/sh\necho later\n").unwrap();
        shell("chmod 755 \"$1\"", &[&folder.join("added-later.sh")]);
    }
    repository.commit();
    publish(&site, &source, &names);
    write();
    let second = contents(&source, &names);
    for (place, home) in places.iter().zip(&homes) {
        let updated = if shown.contains(place) {
            // An archive of this machine is no place to ask again: it is added again.
            let added = home.run(&format!("add {place} --all --json")).ok().json();
            let all = added["data"]["added"].as_array().unwrap();
            all.iter().filter(|one| one["version"] == 2).count()
        } else {
            home.run(&["outdated"]).expect_code(3);
            let updated = home.run("update --json").ok().json();
            list(&updated["data"]["updated"])
        };
        assert_eq!(updated, CHANGED, "{place}");
        agents_see(home, &second, place);
        for name in &changed {
            home.run(&format!("rollback {name}")).ok();
        }
        agents_see(home, &first, place);
        home.run(&["verify"]).ok();
        home.run(&["doctor"]).ok();
    }
}
