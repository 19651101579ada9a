//! Each of the 44 requirements of `REQUIREMENTS.md` has a test that carries its number, or a
//! reason.

use std::collections::BTreeSet;
use std::path::Path;

/// The requirements that the service does not offer; the page says why.
const HAS_A_REASON: [usize; 1] = [15];

/// The numbers in a test's name: `requirement_7_…`, `requirements_16_19_20_…`,
/// `requirements_30_and_34_…`, `requirements_1_to_5_…`.
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

/// The numbers that the names of all tests below a folder carry.
fn tested(folder: &Path, found: &mut BTreeSet<usize>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tested(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.split("fn requirement").skip(1) {
                let end = line.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
                found.extend(numbers(&format!("requirement{}", &line[..end.unwrap()])));
            }
        }
    }
}

#[test]
fn every_requirement_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::from(HAS_A_REASON);
    for folder in ["src", "tests"] {
        tested(&root.join(folder), &mut found);
    }
    let rows = include_str!("REQUIREMENTS.md").lines();
    let listed: Vec<usize> = rows
        .filter_map(|row| row.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    assert_eq!(listed, (1..=44).collect::<Vec<_>>());
    assert_eq!(found.into_iter().collect::<Vec<_>>(), listed);
}
