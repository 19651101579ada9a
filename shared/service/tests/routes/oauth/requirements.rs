//! The page `docs/oauth.md` answers each of the 44 requirements with tests that exist and carry its number, or with a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The requirements that are no MUST: a reason may stand in place of a test.
const MAY_HAVE_A_REASON: [usize; 1] = [15];

/// The numbers in a test's name: `requirement_7_…`, `requirements_16_19_20_…`, `requirements_30_and_34_…`, `requirements_1_to_5_…`.
fn numbers(name: &str) -> BTreeSet<usize> {
    let mut words = name.split('_');
    let mut found = BTreeSet::new();
    if !matches!(words.next(), Some("requirement" | "requirements")) {
        return found;
    }
    let mut range = false;
    for word in words {
        match (word, word.parse::<usize>()) {
            (_, Ok(number)) => {
                let from = if range {
                    *found.last().unwrap()
                } else {
                    number
                };
                found.extend(from..=number);
                range = false;
            }
            ("to", _) => range = true,
            ("and", _) => {}
            _ => break,
        }
    }
    found
}

/// The names of all tests of this crate that carry numbers, with them.
fn tests(folder: &Path, found: &mut BTreeMap<String, BTreeSet<usize>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.split("fn requirement").skip(1) {
                let end = line.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
                let name = format!("requirement{}", &line[..end.unwrap()]);
                let numbers = numbers(&name);
                found.insert(name, numbers);
            }
        }
    }
}

#[test]
fn every_requirement_is_answered_by_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeMap::new();
    for folder in ["src", "tests"] {
        tests(&root.join(folder), &mut known);
    }
    let page = std::fs::read_to_string(root.join("../../docs/oauth.md")).unwrap();
    let mut answered = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(number) = cells.first().and_then(|cell| cell.parse::<usize>().ok()) else {
            continue;
        };
        let named = cells.last().unwrap().split('`').skip(1).step_by(2);
        let named: Vec<_> = named.map(str::to_owned).collect();
        for name in &named {
            let numbers = known.get(name);
            let carries = numbers.is_some_and(|numbers| numbers.contains(&number));
            assert!(
                carries,
                "{number}: there is no test {name} with this number"
            );
        }
        assert!(
            !named.is_empty() || MAY_HAVE_A_REASON.contains(&number),
            "{number}: no test"
        );
        assert_eq!(answered.insert(number, named), None, "{number}: twice");
    }
    assert_eq!(
        answered.keys().copied().collect::<Vec<_>>(),
        (1..=44).collect::<Vec<_>>()
    );
}
