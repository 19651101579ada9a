//! The pages about formats, the device protocol and security name what exists, and the program has
//! no format or device route that they leave out.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::Value;

use crate::citations::files;
use crate::root;

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("the page")
}

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("an expression")
}

/// Sources of the crates that ship, without the lines from their unit tests on.
fn shipped_sources() -> Vec<(String, String)> {
    let ships = |path: &str| {
        let is_rust = Path::new(path).extension().is_some_and(|kind| kind == "rs");
        let is_source = is_rust && path.contains("/src/");
        let is_test = path.starts_with("tests/") || path.contains("/tests");
        is_source && !is_test && !path.starts_with("shared/testing/")
    };
    let sources = files().into_iter().filter(|(path, _)| ships(path));
    let shown = |text: String| {
        let end = text.find("#[cfg(test)]").unwrap_or(text.len());
        text[..end].to_owned()
    };
    sources.map(|(path, text)| (path, shown(text))).collect()
}

#[test]
fn every_format_and_payload_type_is_on_the_page() {
    let page = page("formats.md");
    // A type that is written without its number and end, to look for other numbers, is left out.
    let name =
        expression(r#""(vault\.[a-z-]+/[0-9]+|application/vnd\.vault\.[a-z0-9.+-]*[a-z]{2})""#);
    let (mut missing, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in shipped_sources() {
        for found in name.captures_iter(&text) {
            seen.insert(found[1].to_owned());
            if !page.contains(&format!("`{}`", &found[1])) {
                missing.insert(format!("{path}: {}", &found[1]));
            }
        }
    }
    assert!(seen.len() >= 15, "only {seen:?} were found");
    assert!(
        missing.is_empty(),
        "docs/formats.md describes none of {missing:#?}"
    );
}

#[test]
fn every_device_route_is_on_the_page() {
    let page = page("device-protocol.md");
    let routes = std::fs::read_to_string(root().join("shared/service/src/devices/mod.rs"));
    let routes = routes.expect("the routes");
    let row = expression(r#""(GET|POST)",?\s+"(/v/[^"]+)""#);
    let mut seen = 0;
    for found in row.captures_iter(&routes) {
        let path = found[2].replace("{slug}", "<slug>");
        let path = path.replace("{bundle_hash}", "<hash>");
        let written = format!("`{} {path}`", &found[1]);
        assert!(
            page.contains(&written),
            "docs/device-protocol.md lacks {written}"
        );
        seen += 1;
    }
    assert_eq!(seen, 4, "rows of device routes");
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let sources: String = files().into_iter().map(|(_, text)| text).collect();
    let defined = expression(r"\bfn ([a-z0-9_]+)");
    let defined: BTreeSet<&str> = defined
        .captures_iter(&sources)
        .filter_map(|found| found.get(1))
        .map(|name| name.as_str())
        .collect();
    let page = page("security.md");
    let named = expression("`([a-z0-9_]+)`");
    // The last column of a table whose last column is called "Test".
    let (mut in_table, mut seen, mut missing) = (false, 0, Vec::new());
    for line in page.lines() {
        in_table = line.starts_with('|') && (in_table || line.ends_with("| Test |"));
        let Some((_, tests)) = line.trim_end_matches(" |").rsplit_once(" | ") else {
            continue;
        };
        for found in named.captures_iter(tests).filter(|_| in_table) {
            seen += 1;
            if !defined.contains(&found[1]) {
                missing.push(found[1].to_owned());
            }
        }
    }
    assert!(seen > 60, "only {seen} tests are named");
    assert!(missing.is_empty(), "there are no tests {missing:#?}");
}

/// The texts of a file that an example may show: the file itself, and the payload of its envelope.
fn example_texts(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(file)).expect("a vector");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    let payload = value["payload"].as_str().unwrap_or_default();
    let payload = STANDARD.decode(payload).expect("base64");
    vec![text, String::from_utf8(payload).expect("a text")]
}

#[test]
fn every_example_of_the_formats_page_is_a_vector() {
    let page = page("formats.md");
    let named = expression(r"`(tests/vectors/[^`*]+\.json)`");
    let files: BTreeSet<&str> = named
        .captures_iter(&page)
        .filter_map(|found| found.get(1))
        .map(|name| name.as_str())
        .collect();
    let mut known: BTreeSet<String> = files.iter().flat_map(|file| example_texts(file)).collect();
    // An entry of a file of several is shown in its own line there.
    let entries = std::fs::read_to_string(root().join("tests/vectors/roots/releases.json"));
    for line in entries.expect("the entries").lines() {
        if let Some((_, entry)) = line.split_once(": ") {
            known.insert(entry.trim_end_matches(',').to_owned());
        }
    }
    let mut wrong = String::new();
    let mut seen = 0;
    for block in page.split("```json\n").skip(1) {
        let shown = block.split("\n```").next().unwrap_or_default();
        seen += 1;
        if !known.contains(shown) {
            writeln!(wrong, "{}…", shown.get(..60).unwrap_or(shown)).expect("a text");
        }
    }
    assert!(seen >= 12, "only {seen} examples were found");
    assert!(wrong.is_empty(), "in no file that the page names:\n{wrong}");
}

#[test]
fn examples_of_device_requests_are_vectors() {
    let page = page("device-protocol.md");
    let vectors = root().join("tests/vectors/device-requests.json");
    let vectors = std::fs::read(vectors).expect("the vectors");
    let vectors: Value = serde_json::from_slice(&vectors).expect("JSON");
    for name in ["laptop: catalog", "laptop: enrol"] {
        assert!(page.contains(&format!("`{name}`")), "{name} is not named");
        let requests = vectors["requests"].as_array().expect("requests");
        let request = requests.iter().find(|request| request["name"] == name);
        let headers = &request.expect("the request")["headers"];
        let signature = headers["X-Vault-Signature"].as_str().expect("a signature");
        assert!(page.contains(signature), "{name}: another signature");
    }
}
