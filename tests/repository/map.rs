//! ARCHITECTURE.md: its graph is that of cargo, and what it names exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::shape::{sources, used_modules};
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

/// The crates whose modules lie on floors, as the page names them, and their sources.
const FLOORS: &[(&str, &str)] = &[
    ("library", "shared/library/src"),
    ("service", "shared/service/src"),
    ("command line", "cli/src"),
];

/// The floor of each module of a crate, as the page lists them from the lowest.
fn floors<'p>(page: &'p str, name: &str) -> BTreeMap<&'p str, usize> {
    let list = page
        .split(&format!("Floors of the {name}"))
        .nth(1)
        .and_then(|text| text.split('`').nth(1))
        .unwrap_or_else(|| panic!("the page has no floors of the {name}"));
    let mut floor_of = BTreeMap::new();
    for (floor, modules) in list.split(" < ").enumerate() {
        floor_of.extend(modules.split(", ").map(|module| (module, floor)));
    }
    floor_of
}

#[test]
fn a_module_imports_only_from_floors_below() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let mut wrong = Vec::new();
    for (name, folder) in FLOORS {
        let (floor_of, sources) = (floors(&page, name), sources(&root().join(folder)));
        let mut missing: BTreeSet<_> = floor_of.keys().copied().collect();
        for source in &sources {
            let Some(room) = source.module.first() else {
                continue; // the root puts the rooms together
            };
            missing.remove(room.as_str());
            let Some(floor) = floor_of.get(room.as_str()) else {
                wrong.push(format!("{name}: {room} has no floor"));
                continue;
            };
            for used in used_modules(source, &sources) {
                // Without a room it is an alias at the root, which hides where it comes from.
                let used = used.first().map_or("", String::as_str);
                if used != room && floor_of.get(used).is_none_or(|below| below >= floor) {
                    wrong.push(format!("{name}: {} -> {used}", source.module.join("::")));
                }
            }
        }
        wrong.extend(
            missing
                .iter()
                .map(|room| format!("{name}: there is no {room}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
