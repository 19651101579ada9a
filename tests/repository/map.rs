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

/// The floors of the library, as the page lists them: a module imports only from floors below its
/// own.
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
            // What is no floor is an alias at the root of the crate, which hides where it comes
            // from.
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

/// Pages for people, apart from the notices of others.
fn pages() -> Vec<std::path::PathBuf> {
    let folders = ["", "docs", "infra", "localstack", "functions"];
    let entries = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(root().join(folder)).expect("a folder"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .filter(|path| !path.ends_with("THIRD-PARTY-NOTICES.md"))
        .collect()
}

/// The fragment by which a heading is linked: lower case, without punctuation, `-` for a space.
fn fragment_of(heading: &str) -> String {
    let heading = heading.trim().to_lowercase().replace(' ', "-");
    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist() {
    let (mut broken, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            seen += 1;
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.with_file_name(file),
            };
            let headings = std::fs::read_to_string(&target).unwrap_or_default();
            let mut headings = headings.lines().filter(|line| line.starts_with('#'));
            let leads = fragment.is_empty()
                || headings.any(|line| fragment_of(line.trim_start_matches('#')) == fragment);
            if !target.exists() || !leads {
                broken.push(format!("{} -> {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(seen > 50, "only {seen} links were found");
}

#[test]
fn every_page_of_the_docs_is_listed_in_the_readme() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the page");
    let docs = pages()
        .into_iter()
        .filter(|page| page.parent() == Some(&root().join("docs")));
    let missing: Vec<_> = docs
        .filter_map(|page| Some(format!("docs/{}", page.file_name()?.to_str()?)))
        .filter(|page| !readme.contains(&format!("]({page})")))
        .collect();
    assert!(missing.is_empty(), "README.md does not list {missing:?}");
}
