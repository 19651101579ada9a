//! ARCHITECTURE.md: its graph is that of cargo, and what it names exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::{packages, root, text};

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_graph_of_the_map_is_that_of_cargo() {
    assert_eq!(written(), real());
}

/// The lines `a -> b, c` of the page.
fn written() -> Graph {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let lines = page.lines().filter_map(|line| line.split_once(" -> "));
    lines
        .filter(|(_, used)| !used.starts_with("everything"))
        .map(|(user, used)| {
            let used = used.split(", ").filter(|name| *name != "nothing of ours");
            (user.trim().to_owned(), used.map(str::to_owned).collect())
        })
        .collect()
}

/// Which of our crates each of them uses, dependencies of tests left out.
fn real() -> Graph {
    let short = |name: &str| name.strip_prefix("vault-").map(str::to_owned);
    let packages = packages(&["--no-deps"]);
    let ours = packages
        .iter()
        .filter(|package| !text(package, "manifest_path").contains("/tests/"));
    ours.map(|package| {
        let rows = package["dependencies"].as_array().expect("dependencies");
        let used = rows.iter().filter(|row| row["kind"].is_null());
        let used = used.filter_map(|row| short(text(row, "name"))).collect();
        (short(text(package, "name")).expect("a name of ours"), used)
    })
    .collect()
}

#[test]
fn the_map_names_files_that_exist() {
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(page)).expect("the page");
        let named = text.split('`').skip(1).step_by(2);
        let path = |name: &&str| {
            let (top, below) = name.split_once('/').unwrap_or_default();
            !top.is_empty() && !below.contains(['<', ' ']) && root().join(top).is_dir()
        };
        let missing: Vec<_> = named
            .filter(path)
            .filter(|name| !root().join(name).exists())
            .collect();
        assert!(missing.is_empty(), "{page} names {missing:?}");
    }
}
