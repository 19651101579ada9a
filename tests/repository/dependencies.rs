//! Every dependency is used, and release builds contain no test doubles.
//!
//! `cargo machete` checks neither development dependencies nor the rows of the workspace, and takes
//! 90 seconds to build; `cargo shear` needs a newer compiler than ours.

use std::collections::HashSet;
use std::path::Path;

use crate::{cargo, packages, root, text};

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    let mut named = HashSet::new();
    for package in packages(&["--no-deps"]) {
        let manifest = Path::new(text(&package, "manifest_path"));
        let mut sources = String::new();
        read_sources(manifest.parent().expect("a folder"), &mut sources);
        let crates = crates_in(&sources);
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let name = text(dependency, "name");
            if !crates.contains(name.replace('-', "_").as_str()) {
                unused.push(format!("{}: {name}", text(&package, "name")));
            }
            named.insert(name.to_owned());
        }
    }
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let rows = manifest["workspace"]["dependencies"]
        .as_table()
        .expect("rows");
    unused.extend(rows.keys().filter(|row| !named.contains(*row)).cloned());
    assert!(unused.is_empty(), "no code uses: {unused:?}");
}

/// Appends every Rust file of a package, and the files that they share with other packages.
fn read_sources(folder: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            // A package inside a package uses its own dependencies, not those of the outer one.
            if !path.join("Cargo.toml").exists() {
                read_sources(&path, sources);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).expect("a source file");
            for shared in source.split("#[path = \"").skip(1) {
                let shared = folder.join(shared.split('"').next().unwrap_or_default());
                sources.push_str(&std::fs::read_to_string(shared).expect("a file it shares"));
            }
            sources.push_str(&source);
        }
    }
}

/// The first names of all paths (`serde` of `serde::Serialize`), and names that `use` takes as they
/// are.
fn crates_in(sources: &str) -> HashSet<&str> {
    let code = sources
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| {
        let parts = line.split("::").collect::<Vec<_>>();
        let (_, before) = parts.split_last().expect("one part or more");
        let heads = before.iter().enumerate().filter_map(|(at, part)| {
            let start = part.rfind(|c: char| !c.is_alphanumeric() && c != '_');
            // A part that is one name, after another `::`, is no first name.
            let start = start.map(|at| at + 1).or((at == 0).then_some(0))?;
            Some(&part[start..])
        });
        let used = line.trim().strip_prefix("use ");
        let used = used.and_then(|rest| rest.split([' ', ';', ':']).next());
        heads.chain(used).collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn no_release_build_contains_test_doubles() {
    for shipped in ["vault-cli", "vault-functions"] {
        let tree = cargo(&[
            "tree", "--locked", "-p", shipped, "-e", "normal", "--prefix", "none",
        ]);
        assert!(tree.contains("vault-store"), "{tree}");
        assert!(
            !tree.contains("vault-testing"),
            "{shipped} is built with test doubles"
        );
    }
}
