//! The stored vectors of SKILL.md: what they say is what the gate does.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is the failure"
)]

use std::fs;

use serde_json::Value;
use vault_format::manifest::Mode;
use vault_gate::document::Document;
use vault_gate::{self as gate, GateOptions, Outcome, RawFile};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/formats");

fn bytes(name: &str) -> Vec<u8> {
    fs::read(format!("{FOLDER}/{name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

#[test]
fn frontmatter_fields_are_as_expected_and_the_bytes_never_change() {
    for (document, expected) in [
        ("SKILL.md", "expected.json"),
        ("SKILL-metadata.md", "expected-metadata.json"),
    ] {
        let text = bytes(&format!("skill-md/{document}"));
        let parsed = Document::parse(&text).unwrap();
        assert_eq!(parsed.bytes(), text, "{document}");
        assert_eq!(
            serde_json::to_value(parsed.frontmatter()).unwrap(),
            json(&format!("skill-md/{expected}")),
            "{document}"
        );
        assert!(
            parsed.findings().is_empty(),
            "{document}: {:?}",
            parsed.findings()
        );
    }
}

#[test]
fn the_examples_pass_the_gate() {
    let file = |path: &str, bytes: Vec<u8>| RawFile {
        path: path.to_owned(),
        mode: Mode::Plain,
        bytes,
    };
    let script = || file("bin/check.sh", b"#!/bin/sh\n".to_vec());
    let verdict = gate::check(
        vec![script(), file("SKILL.md", bytes("skill-md/SKILL.md"))],
        &GateOptions::default(),
    );
    assert_eq!(verdict.outcome, Outcome::Accepted, "{:?}", verdict.findings);
    let verdict = gate::check(
        vec![file("SKILL.md", bytes("skill-md/SKILL-metadata.md"))],
        &GateOptions::default(),
    );
    let rules: Vec<_> = verdict
        .findings
        .iter()
        .map(|finding| finding.rule)
        .collect();
    assert_eq!(rules, ["description-short"]);
}

fn skill_word(text: &[u8]) -> &'static str {
    // Through the gate as well: what the document refuses never becomes a package.
    let file = |path: &str, bytes: &[u8]| RawFile {
        path: path.to_owned(),
        mode: Mode::Plain,
        bytes: bytes.to_vec(),
    };
    for strict in [true, false] {
        let options = GateOptions {
            strict,
            ..GateOptions::default()
        };
        let verdict = gate::check(
            vec![file("bin/check.sh", b"#!/bin/sh\n"), file("SKILL.md", text)],
            &options,
        );
        assert!(verdict.package.is_none());
        assert!(
            verdict.findings[0].position().is_some(),
            "{}",
            verdict.findings[0]
        );
    }
    Document::parse(text).unwrap_err().error_class()
}

#[test]
fn what_no_agent_can_read_is_refused_with_its_word() {
    let negative = json("negative.json");
    let cases = negative["cases"].as_array().unwrap().iter();
    let cases: Vec<_> = cases.filter(|case| case["kind"] == "skill").collect();
    assert_eq!(cases.len(), 8);
    for case in cases {
        let text = case["bytes"].as_str().unwrap();
        let expected = case["error"].as_str().unwrap();
        assert_eq!(skill_word(text.as_bytes()), expected, "{}", case["id"]);
    }
}
