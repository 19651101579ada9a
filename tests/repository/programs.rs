//! Every file of tests belongs to a program that cargo runs.

use std::path::Path;

use crate::{packages, root, text};

/// A crate whose tests are one program turns cargo's own search off: a file that its `main.rs` does
/// not name would never run.
#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let packages = packages(&["--no-deps"]);
    let folders = packages
        .iter()
        .map(|package| Path::new(text(package, "manifest_path")).with_file_name("tests"));
    let mut seen = 0;
    for folder in folders.filter(|folder| folder.join("main.rs").is_file()) {
        let program = std::fs::read_to_string(folder.join("main.rs")).expect("a program");
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let Some(stem) = stem.filter(|stem| {
                *stem != "main" && path.extension().is_some_and(|kind| kind == "rs")
            }) else {
                continue;
            };
            assert!(
                program.contains(&format!("mod {stem};")),
                "{} never runs: main.rs does not name it",
                path.strip_prefix(root()).unwrap_or(&path).display()
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} files of tests were found");
}
