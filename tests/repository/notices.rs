//! THIRD-PARTY-NOTICES.md lists what the program `vault` contains.
//!
//! `VAULT_WRITE_NOTICES=1 cargo nextest run --workspace -E 'test(third_party_notices)'` writes it
//! anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::{cargo, packages, root, text};

/// Where releases run; the same list stands in deny.toml.
const TARGETS: [&str; 3] = [
    "--target=x86_64-unknown-linux-gnu",
    "--target=aarch64-unknown-linux-gnu",
    "--target=aarch64-apple-darwin",
];

const HEAD: &str = "\
# Third-party notices

The program `vault` contains the packages below. Where a package offers a choice of licences, vault uses it under
Apache-2.0, whose text is in LICENSE; the texts of all other licences follow the table. A test keeps this page current.

";

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of this test, not of the program"
)]
fn third_party_notices_are_current() {
    let page = root().join("THIRD-PARTY-NOTICES.md");
    let wanted = notices();
    if std::env::var_os("VAULT_WRITE_NOTICES").is_some() {
        std::fs::write(&page, &wanted).expect("a page");
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(
        found == wanted,
        "{} is stale: run this test with VAULT_WRITE_NOTICES=1",
        page.display()
    );
}

fn notices() -> String {
    let words = [
        "tree",
        "--locked",
        "-p",
        "vault-cli",
        "-e",
        "normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ];
    let tree = cargo(&[&words[..], &TARGETS].concat());
    // "NAME vVERSION", with a path behind it for packages of the workspace.
    let shipped: BTreeSet<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|line| !line.contains(" (/"))
        .collect();
    let mut table = String::from("| package | licence |\n|---|---|\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages(&[]) {
        let (name, version) = (text(&package, "name"), text(&package, "version"));
        if !shipped.contains(format!("{name} v{version}").as_str()) {
            continue;
        }
        let licence = text(&package, "license");
        table.push_str(&format!("| {name} {version} | {licence} |\n"));
        for text in texts_of(&package, licence) {
            texts
                .entry(text)
                .or_default()
                .push(format!("{name} {version}"));
        }
    }
    let mut sections: Vec<_> = texts
        .into_iter()
        .map(|(text, packages)| (packages, text))
        .collect();
    sections.sort();
    let sections = sections.iter().map(|(packages, text)| {
        let indented: String = text
            .lines()
            .map(|line| format!("    {line}").trim_end().to_owned() + "\n")
            .collect();
        format!("\n## {}\n\n{indented}", packages.join(", "))
    });
    format!("{HEAD}{table}{}", sections.collect::<String>())
}

/// The licence texts that must go along with a package.
fn texts_of(package: &Value, licence: &str) -> Vec<String> {
    let apache =
        !licence.contains(" AND ") && licence.split([' ', '/']).any(|one| one == "Apache-2.0");
    let folder = Path::new(text(package, "manifest_path"))
        .parent()
        .expect("a folder");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the package's sources: run `cargo fetch`")
        .filter_map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name()?.to_str()?.to_ascii_uppercase();
            let notice = name.starts_with("NOTICE");
            let other = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "UNLICENSE"];
            let other =
                other.iter().any(|start| name.starts_with(start)) && !name.contains("APACHE");
            (path.is_file() && (notice || (other && !apache))).then_some(path)
        })
        .collect();
    files.sort();
    if files.is_empty() && !apache {
        let authors = package["authors"].as_array().expect("authors").iter();
        let authors: Vec<_> = authors.filter_map(Value::as_str).collect();
        return vec![format!(
            "{licence}, copyright {}. The package has no licence text of its own: that of {licence} stands elsewhere on this page.",
            authors.join(", ")
        )];
    }
    let text = |path| std::fs::read_to_string(path).expect("a licence in UTF-8");
    files
        .iter()
        .map(text)
        .map(|text| text.trim().replace('\r', ""))
        .collect()
}
