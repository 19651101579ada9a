//! Searching with and without an index gives the same results after any sequence of changes.

use std::path::{Path, PathBuf};

use crate::support::pair::Pair;
use crate::support::{Home, name, removal, replacing, set_mode};
use proptest::prelude::*;
use vault_library::admit::remove::remove_skills;
use vault_library::{Origin, shelf};

const NAMES: [&str; 6] = [
    "alpha",
    "beta",
    "code-review",
    "delta",
    "deploy",
    "deploying",
];
const QUERIES: [&str; 6] = [
    "deploy",
    "work review",
    "alpha",
    "test",
    "rollback migration",
    "nothing-of-it",
];

/// All fields of a hit; scores are compared bit by bit.
type Answer = Vec<(String, Origin, u64, String, u64, String, u64)>;

fn answer(home: &Home, query: &str, top_k: usize) -> Answer {
    shelf::search_installed(&home.again(), query, top_k)
        .unwrap()
        .into_iter()
        .map(|hit| {
            let skill = hit.skill;
            assert!(!skill.shadowed);
            let texts = format!("{:?}", skill.texts);
            let name = skill.name.to_string();
            (
                name,
                skill.origin,
                skill.version,
                skill.bundle.to_string(),
                skill.size,
                texts,
                hit.score.to_bits(),
            )
        })
        .collect()
}

fn index(home: &Home) -> PathBuf {
    home.path("vault/index.db")
}

/// The result of a search without an index; leaves the index unchanged.
fn by_scan(home: &Home, query: &str, top_k: usize) -> Answer {
    let aside = home.path("index-aside");
    let kept = std::fs::rename(index(home), &aside).is_ok();
    let answer = answer(home, query, top_k);
    if kept {
        std::fs::rename(&aside, index(home)).unwrap();
    }
    answer
}

fn file_of(home: &Home, skill: &str) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(home.path("vault/skills").join(skill)).ok()?;
    Some(folder.join("notes.txt"))
}

/// Overwrites a stored file with different bytes of the same length; returns the original content.
fn tamper(path: &Path) -> Vec<u8> {
    let before = std::fs::read(path).unwrap();
    set_mode(path, 0o644);
    let after: Vec<u8> = before.iter().map(|byte| byte ^ 1).collect();
    std::fs::write(path, after).unwrap();
    set_mode(path, 0o444);
    before
}

#[derive(Clone, Debug)]
enum Step {
    Add(usize, String),
    Remove(usize),
    Tamper(usize),
    Unlink(usize),
    Publish(usize, String),
    Pull,
    Search(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..NAMES.len();
    let body = "[a-c]{1,3}";
    prop_oneof![
        3 => (at.clone(), body).prop_map(|(at, body)| Step::Add(at, body)),
        1 => at.clone().prop_map(Step::Remove),
        1 => at.clone().prop_map(Step::Tamper),
        1 => at.clone().prop_map(Step::Unlink),
        1 => (at.clone(), body).prop_map(|(at, body)| Step::Publish(at, body)),
        2 => Just(Step::Pull),
        4 => (0..QUERIES.len(), 1_usize..5).prop_map(|(query, top_k)| Step::Search(query, top_k)),
    ]
}

struct World {
    pair: Pair,
    /// Whether any skill was tampered with.
    tampered: bool,
}

impl World {
    fn new() -> Self {
        Self {
            pair: Pair::new(&["delta", "rollback-plan"], "linked"),
            tampered: false,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Add(at, body) => {
                let files: &[(&str, &[u8])] = &[("notes.txt", b"notes\n")];
                let folder = self.pair.device.source(NAMES[*at], body, files);
                // A tampered skill may be rejected; the vault is then unchanged.
                let _done = self.pair.device.add_with(&folder, &replacing());
            }
            Step::Remove(at) => {
                remove_skills(&self.pair.device.vault, &removal(&[NAMES[*at]])).unwrap();
            }
            Step::Tamper(at) => {
                if let Some(path) =
                    file_of(&self.pair.device, NAMES[*at]).filter(|path| path.exists())
                {
                    tamper(&path);
                    self.tampered = true;
                }
            }
            Step::Unlink(at) => {
                let _absent =
                    std::fs::remove_file(self.pair.device.path("vault/skills").join(NAMES[*at]));
            }
            Step::Publish(at, body) => {
                let owner = &self.pair.owner;
                owner.add(NAMES[*at], body);
                self.pair.host.sync(&owner.vault, owner.now());
            }
            Step::Pull => drop(self.pair.pull_all()),
            Step::Search(query, top_k) => self.compare(QUERIES[*query], *top_k),
        }
    }

    fn compare(&self, query: &str, top_k: usize) {
        let fast = answer(&self.pair.device, query, top_k);
        let full = by_scan(&self.pair.device, query, top_k);
        if !self.tampered {
            assert_eq!(fast, full, "{query}");
            return;
        }
        // A tampered skill still counts in the word statistics, but it is never returned as a hit.
        let good = vault_library::integrity::verify_all_installed(&self.pair.device.vault).unwrap();
        for hit in &fast {
            let mut skills = good.skills.iter();
            let checked =
                skills.find(|skill| skill.name.as_str() == hit.0 && skill.origin == hit.1);
            assert!(checked.unwrap().damage.is_none(), "{hit:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn a_search_answers_the_same_with_and_without_the_index(steps in proptest::collection::vec(step(), 1..14)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        for query in QUERIES {
            world.compare(query, 3);
        }
    }
}

fn three() -> Home {
    let home = Home::new(1);
    for skill in ["deploy", "deploying", "review"] {
        home.add(skill, "body");
    }
    home
}

fn names(answer: &Answer) -> Vec<&str> {
    answer.iter().map(|hit| hit.0.as_str()).collect()
}

#[test]
fn a_hit_that_was_tampered_with_is_left_out_and_back_when_it_is_mended() {
    let home = three();
    let whole = answer(&home, "deploy", 5);
    assert_eq!(names(&whole), ["deploy", "deploying"]);
    let path = file_of(&home, "deploy").unwrap();
    let before = tamper(&path);
    assert_eq!(names(&answer(&home, "deploy", 5)), ["deploying"]);
    // The same result as without an index, including the statistics.
    assert_eq!(answer(&home, "deploy", 5), by_scan(&home, "deploy", 5));
    assert_eq!(names(&answer(&home, "review", 5)), ["review"]);
    set_mode(&path, 0o644);
    std::fs::write(&path, before).unwrap();
    set_mode(&path, 0o444);
    assert_eq!(answer(&home, "deploy", 5), whole);
}

#[test]
fn an_index_that_lies_brings_nothing_in_that_is_not_installed() {
    let home = three();
    assert_eq!(names(&answer(&home, "deploy", 5)), ["deploy", "deploying"]);
    let before = std::fs::read(index(&home)).unwrap();
    home.remove("deploy", None);
    std::fs::write(index(&home), before).unwrap();
    assert_eq!(names(&answer(&home, "deploy", 5)), ["deploying"]);
}

#[test]
fn a_missing_broken_or_foreign_index_changes_no_answer() {
    let home = three();
    let expected = answer(&home, "deploy", 5);
    let good = std::fs::read(index(&home)).unwrap();
    let lies = [
        Vec::new(),
        b"SQLite format 3\0".to_vec(),
        good[..good.len() / 2].to_vec(),
        good[..50].to_vec(),
        vec![0xFF; 500],
    ];
    for lie in lies {
        std::fs::write(index(&home), &lie).unwrap();
        assert_eq!(answer(&home, "deploy", 5), expected);
        let written = std::fs::read(index(&home)).unwrap();
        assert_ne!(written, lie, "it is written anew");
    }
    std::fs::remove_file(index(&home)).unwrap();
    std::fs::create_dir(index(&home)).unwrap();
    assert_eq!(answer(&home, "deploy", 5), expected, "a folder");
}

#[test]
fn a_skill_that_was_damaged_comes_back_when_it_is_mended() {
    let home = three();
    let path = file_of(&home, "review").unwrap();
    let before = tamper(&path);
    std::fs::remove_file(index(&home)).unwrap();
    assert_eq!(names(&answer(&home, "deploy", 5)), ["deploy", "deploying"]);
    assert!(answer(&home, "review", 5).is_empty());
    set_mode(&path, 0o644);
    std::fs::write(&path, before).unwrap();
    set_mode(&path, 0o444);
    assert_eq!(names(&answer(&home, "review", 5)), ["review"]);
}

#[test]
fn many_searches_and_writers_at_once_agree_with_what_is_installed() {
    let home = three();
    let answers = std::thread::scope(|scope| {
        let search = || (0..25).map(|_| answer(&home, "deploy", 5)).collect();
        let readers = [(); 4].map(|()| scope.spawn(search));
        for body in ["two", "three", "four"] {
            home.add("deploy", body);
        }
        let answers: [Vec<Answer>; 4] = readers.map(|reader| reader.join().unwrap());
        answers.concat()
    });
    for one in answers {
        assert_eq!(names(&one), ["deploy", "deploying"]);
    }
    let last = answer(&home, "deploy", 5);
    assert_eq!(last, by_scan(&home, "deploy", 5));
    assert_eq!(last[0].2, 4, "the version of the last change");
    assert!(last.iter().any(|hit| hit.0 == name("deploying").as_str()));
}
