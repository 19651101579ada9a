//! Real public skills through the whole product: those that the structural gate accepts are
//! admitted, published in one release, pulled on a second home, and compared file by file, byte by
//! byte, mode by mode. Every third of them: the tests of the gate judge, pack and sign all.
//!
//! Runs where the corpora lie beside the checkout and `zstd` and `tar` are installed; says so where
//! they are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use vault_store::clock::{Clock as _, SystemClock};
use vault_tests::home::Home;
use vault_tests::server::{Database, Server};
use vault_tests::tree;

use crate::support::{self, SLUG, names, pulled, text};

pub const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpora");
/// Folders named in one command.
const AT_ONCE: usize = 1500;

/// The ids of the benign skills in the archive: each is the name of a top folder.
pub fn benign() -> BTreeSet<String> {
    let table = fs::read_to_string(format!("{CORPORA}/corpora.tsv")).unwrap();
    let mut rows = table
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let head = rows.next().unwrap();
    let column = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let (id, label, kept) = (column("id"), column("label"), column("in_tar"));
    rows.filter(|row| row[label] == "benign" && row[kept] == "1")
        .map(|row| row[id].to_owned())
        .collect()
}

fn unpack(into: &Path) {
    let mut zstd = Command::new("zstd")
        .args(["-dc", &format!("{CORPORA}/dev.tar.zst")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let tar = Command::new("tar")
        .args(["-xf", "-", "-C"])
        .arg(into)
        .stdin(zstd.stdout.take().unwrap())
        .status()
        .unwrap();
    assert!(tar.success() && zstd.wait().unwrap().success());
}

#[test]
fn real_skills_arrive_as_they_are() {
    let tools = ["zstd", "tar"].map(|tool| Command::new(tool).arg("--version").output().is_ok());
    if !Path::new(CORPORA).join("dev.tar.zst").exists() || tools.contains(&false) {
        eprintln!("left out: the corpora are not beside the checkout, or zstd and tar are missing");
        return;
    }
    let owner = Home::new();
    let machine = Home::new();
    let begun = now();
    let source = owner.path().join("corpus");
    fs::create_dir(&source).unwrap();
    unpack(&source);
    let all = benign();
    assert!(all.len() > 1000, "{} benign skills", all.len());
    let skills: BTreeSet<_> = all.into_iter().step_by(3).collect();

    let unpacking = now() - begun;
    let began = now();
    let (installed, refused) = admit(&owner, &source, &skills);
    let adding = now() - began;
    assert_eq!(
        installed.len() + refused.values().sum::<usize>(),
        skills.len()
    );
    assert!(
        installed.len() * 100 >= skills.len() * 85,
        "{} of {}: {refused:?}",
        installed.len(),
        skills.len()
    );

    let server = Server::start(&Database::Sqlite);
    support::connect(&server, &owner, SLUG);
    let began = now();
    let synced = owner.json("sync --cloud");
    let syncing = now() - began;
    assert_eq!(synced["release"], 1);
    assert_eq!(synced["skills"].as_u64(), Some(installed.len() as u64));

    support::link(&server, &owner, &machine, SLUG);
    let began = now();
    let pull = machine.json("cloud pull");
    let pulling = now() - began;
    assert_eq!(names(&pull["installed"]).len(), installed.len());

    let began = now();
    let there = pulled(&machine);
    assert_eq!(there.len(), installed.len());
    let mut files = 0;
    let mut bytes = 0;
    for (name, folder) in &installed {
        let mut expected = tree::files(folder);
        // A document of another case gets the standard's name; what file managers and editors leave
        // behind is no part of a skill.
        if let Some(document) = expected.remove("skill.md") {
            expected.insert("SKILL.md".to_owned(), document);
        }
        expected.retain(|path, _| there[name].contains_key(path) || !is_litter(path));
        assert_eq!(there[name], expected, "{name} from {}", folder.display());
        files += expected.len();
        bytes += expected
            .values()
            .map(|(_, bytes)| bytes.len())
            .sum::<usize>();
    }
    let comparing = now() - began;
    let began = now();
    let again = owner.json("sync --cloud");
    assert_eq!(again["changed"], false);
    let nothing = now() - began;
    let whole = now() - begun;
    eprintln!(
        "{} of {} skills, {files} files, {bytes} bytes: unpack {unpacking} ms, add {adding} ms, sync {syncing} ms, pull {pulling} ms, compare {comparing} ms, sync of nothing {nothing} ms, all {whole} ms; refused {refused:?}",
        installed.len(),
        skills.len(),
    );
}

/// Admits every skill; those whose name is taken, under their id. Returns the folders by installed
/// name, and how many each code of refusal kept out.
fn admit(
    owner: &Home,
    source: &Path,
    skills: &BTreeSet<String>,
) -> (BTreeMap<String, PathBuf>, BTreeMap<String, usize>) {
    let folders: Vec<String> = skills
        .iter()
        .map(|id| source.join(id).to_str().unwrap().to_owned())
        .collect();
    let mut installed = BTreeMap::new();
    let mut refused = BTreeMap::new();
    let mut keep = |added: &Value, folder: &str| {
        let before = installed.insert(text(&added["name"]), PathBuf::from(folder));
        assert_eq!(before, None, "{added}");
    };
    let mut taken = Vec::new();
    for some in folders.chunks(AT_ONCE) {
        let mut arguments = vec!["add", "--json"];
        arguments.extend(some.iter().map(String::as_str));
        let ran = owner.run(&arguments);
        let data = ran.json()["data"].clone();
        let mut failed = BTreeSet::new();
        for failure in data["failed"].as_array().unwrap() {
            failed.insert(text(&failure["source"]));
            match text(&failure["code"]).as_str() {
                "name_taken" | "name_twice" => taken.push(text(&failure["source"])),
                "gate_blocked" => {
                    let finding = &failure["findings"].as_array().unwrap()[0];
                    *refused.entry(text(&finding["rule"])).or_default() += 1;
                }
                _ => panic!("{failure}"),
            }
        }
        let added = data["added"].as_array().unwrap();
        let mut sources = some.iter().filter(|folder| !failed.contains(*folder));
        for one in added {
            keep(one, sources.next().unwrap());
        }
        assert_eq!(sources.next(), None);
    }
    for folder in taken {
        let id = folder
            .rsplit('/')
            .next()
            .unwrap()
            .to_lowercase()
            .replace(['.', '_'], "-");
        let added = owner.json(&format!("add {folder} --name {id}"));
        keep(&added["added"][0], &folder);
    }
    (installed, refused)
}

fn now() -> u64 {
    SystemClock.now_millis()
}

pub fn is_litter(path: &str) -> bool {
    path.split('/')
        .any(|part| part == ".DS_Store" || part == "Thumbs.db" || part.starts_with("._"))
}
