//! ARCHITECTURE.md: its graph is that of cargo, and what it names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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

/// The floors of the library, as the page lists them: a module imports only from floors below its own.
#[test]
fn the_library_imports_only_from_floors_below() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let floors = page
        .split('`')
        .find(|text| text.starts_with("disk < "))
        .expect("the floors");
    let mut floor_of = BTreeMap::new();
    for (floor, modules) in floors.split(" < ").enumerate() {
        floor_of.extend(modules.split(", ").map(|module| (module, floor)));
    }
    let sources = root().join("shared/library/src");
    let mut upward = Vec::new();
    for (module, floor) in &floor_of {
        let mut text = String::new();
        for path in [sources.join(module), sources.join(format!("{module}.rs"))] {
            read_code(&path, &mut text);
        }
        assert!(!text.is_empty(), "there is no module {module}");
        for path in text.split("crate::").skip(1) {
            let end = path
                .find(|c: char| c != '_' && !c.is_alphanumeric())
                .unwrap_or(path.len());
            let used = &path[..end];
            // What is no floor is an alias at the root of the crate, which hides where it comes from.
            if used != *module && floor_of.get(used).is_none_or(|below| below >= floor) {
                upward.push(format!("{module} -> {used}"));
            }
        }
    }
    assert!(upward.is_empty(), "{upward:?}");
}

/// Appends the code of a file, or of all files of a folder, up to their tests.
fn read_code(path: &Path, text: &mut String) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            read_code(&entry.expect("an entry").path(), text);
        }
    } else if path.extension().is_some_and(|kind| kind == "rs")
        && !path.ends_with("tests.rs")
        && path.exists()
    {
        let file = std::fs::read_to_string(path).expect("a source file");
        let code = file.split("#[cfg(test)]").next().unwrap_or_default();
        text.extend(
            code.lines()
                .filter(|line| !line.trim_start().starts_with("//")),
        );
    }
}

#[test]
fn the_map_names_files_that_exist() {
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(page)).expect("the page");
        let named = text.split('`').skip(1).step_by(2);
        let path = |name: &&str| {
            let (top, below) = name.split_once('/').unwrap_or_default();
            let is_here = !top.is_empty() && top != "..";
            is_here && !below.contains(['<', ' ']) && root().join(top).is_dir()
        };
        let missing: Vec<_> = named
            .filter(path)
            .filter(|name| !root().join(name).exists())
            .collect();
        assert!(missing.is_empty(), "{page} names {missing:?}");
    }
}
