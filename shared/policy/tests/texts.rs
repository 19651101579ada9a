//! The stored vectors of SKILL.md, policy, index, profile and draft: what they say is what the crate does.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is the failure"
)]

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use vault_format::draft::{Draft, DraftContext, Request};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::index::IndexEntry;
use vault_format::manifest::Mode;
use vault_format::name::{SkillName, Slug};
use vault_format::root::VaultId;
use vault_gate::document::Document;
use vault_gate::{self as gate, GateOptions, Outcome, RawFile};
use vault_policy::Policy;
use vault_policy::profile::Profile;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/formats");
const VAULT: &str = "vlt_pfyefurw566ktcndi5ya46rqrj";

fn bytes(name: &str) -> Vec<u8> {
    fs::read(format!("{FOLDER}/{name}")).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

/// Names of the exact files that begin so.
fn files(beginning: &str) -> Vec<String> {
    let list = json("files.json");
    let list = list
        .as_array()
        .or_else(|| list["files"].as_array())
        .expect("a list of files")
        .clone();
    let names = list
        .iter()
        .map(|entry| entry["file"].as_str().unwrap().to_owned());
    let found: Vec<_> = names.filter(|name| name.starts_with(beginning)).collect();
    assert!(!found.is_empty(), "{beginning}");
    found
}

fn vault() -> VaultId {
    VAULT.parse().unwrap()
}

fn slug() -> Slug {
    "acme".parse().unwrap()
}

/// The catalog's payload, unverified: only to compare names.
fn catalog_skills(name: &str) -> Vec<(SkillName, Digest)> {
    use base64::Engine as _;
    let payload = base64::engine::general_purpose::STANDARD
        .decode(json(name)["payload"].as_str().unwrap())
        .unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    let entry = |entry: &Value| {
        (
            entry["name"].as_str().unwrap().parse().unwrap(),
            entry["bundle_hash"].as_str().unwrap().parse().unwrap(),
        )
    };
    payload["skills"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect()
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

#[test]
fn the_policy_gives_its_exact_object() {
    let text = String::from_utf8(bytes("policy.toml")).unwrap();
    let policy = Policy::from_toml(&text).unwrap();
    let object = policy.to_object();
    let [name] = files("policy-").try_into().unwrap();
    assert_eq!(
        String::from_utf8(object.clone()).unwrap(),
        String::from_utf8(bytes(&name)).unwrap()
    );
    assert_eq!(name, format!("policy-{}.json", Digest::of(&object)));
    assert_eq!(Policy::from_object(&object).unwrap(), policy);
}

#[test]
fn indexes_are_written_again_byte_for_byte_and_cover_their_catalogs() {
    let mut by_skills: BTreeMap<Vec<(SkillName, Digest)>, String> = BTreeMap::new();
    for name in files("index-") {
        let text = bytes(&name);
        let entries = index::parse(&text, &vault()).unwrap();
        let reversed: Vec<IndexEntry> = entries.iter().rev().cloned().collect();
        let written = index::build(&vault(), reversed);
        assert_eq!(written, std::slice::from_ref(&text), "{name}");
        assert_eq!(name, format!("index-{}.json", Digest::of(&text)));
        by_skills.insert(
            entries
                .iter()
                .map(|entry| (entry.name.clone(), entry.bundle_hash))
                .collect(),
            name,
        );
    }
    for catalog in [
        "catalog-42.json",
        "catalog-43-rotated.json",
        "catalog-44-withdrawn.json",
        "catalog-45-chain.json",
        "catalog-46-chain.json",
    ] {
        let skills = catalog_skills(catalog);
        let name = by_skills
            .get(&skills)
            .unwrap_or_else(|| panic!("{catalog} has an index"));
        let parts = [index::parse(&bytes(name), &vault()).unwrap()];
        assert!(index::covers(
            &parts,
            skills.iter().map(|(name, hash)| (name, hash))
        ));
    }
}

#[test]
fn profiles_are_written_again_byte_for_byte() {
    for name in files("profile-") {
        let text = bytes(&name);
        let profile = Profile::parse(&text).unwrap();
        assert_eq!(profile.to_object(), text, "{name}");
        assert_eq!(name, format!("profile-{}.json", Digest::of(&text)));
        assert_eq!(
            (profile.name.as_str(), profile.agent.as_str()),
            ("claude-code", "claude-code")
        );
    }
}

#[test]
fn drafts_are_written_again_byte_for_byte() {
    let vault = vault();
    for name in files("draft-") {
        let vault_id = (name != "draft-first.json").then_some(&vault);
        let text = bytes(&name);
        let draft = Draft::parse(
            &text,
            &DraftContext {
                slug: &slug(),
                vault_id,
            },
        )
        .unwrap();
        assert_eq!(draft.to_bytes().unwrap(), text, "{name}");
        let kind = match draft.request {
            Request::Propose { .. } => "propose",
            Request::Install { .. } => "install",
            Request::Remove => "remove",
        };
        assert!(name == "draft-first.json" || name == format!("draft-{kind}.json"));
        assert_eq!(
            draft.submitted_by.client_id.is_none(),
            name == "draft-first.json"
        );
    }
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
    Document::parse(text).unwrap_err().word()
}

fn draft_word(text: &[u8], context: &Value) -> &'static str {
    let slug: Slug = context["slug"].as_str().unwrap().parse().unwrap();
    let vault_id: Option<VaultId> = context["vault_id"].as_str().map(|id| id.parse().unwrap());
    let current: Option<Digest> = context["current_bundle_hash"]
        .as_str()
        .map(|hash| hash.parse().unwrap());
    let draft = Draft::parse(
        text,
        &DraftContext {
            slug: &slug,
            vault_id: vault_id.as_ref(),
        },
    );
    match draft.and_then(|draft| draft.check_base(current.as_ref())) {
        Ok(()) => "accepted",
        Err(error) => error.word(),
    }
}

#[test]
fn every_negative_case_is_refused_with_its_word() {
    let negative = json("negative.json");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in negative["cases"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        if ![
            "skill",
            "policy",
            "policy_object",
            "index",
            "profile",
            "draft",
        ]
        .contains(&kind)
        {
            continue;
        }
        let text = if let Some(text) = case["bytes"].as_str() {
            text.as_bytes().to_vec()
        } else {
            assert_eq!(case["bytes_of_file"], true);
            bytes(case["file"].as_str().unwrap())
        };
        let word = match kind {
            "skill" => skill_word(&text),
            "policy" => {
                let error = Policy::from_toml(std::str::from_utf8(&text).unwrap()).unwrap_err();
                assert!(error.position().is_some(), "{error}");
                error.word()
            }
            "policy_object" => Policy::from_object(&text).unwrap_err().word(),
            "index" => index::parse(&text, &vault()).unwrap_err().word(),
            "profile" => Profile::parse(&text).unwrap_err().word(),
            _ => {
                let mut context = negative["contexts"]["draft"].clone();
                for (member, value) in case["context"].as_object().unwrap() {
                    context[member] = value.clone();
                }
                draft_word(&text, &context)
            }
        };
        assert_eq!(
            word,
            case["error"].as_str().unwrap(),
            "{}: {}",
            case["id"],
            case["change"]
        );
        *counts.entry(kind).or_default() += 1;
    }
    let wanted = [
        ("draft", 16),
        ("index", 8),
        ("policy", 8),
        ("policy_object", 6),
        ("profile", 6),
        ("skill", 8),
    ];
    assert_eq!(counts, BTreeMap::from(wanted));
}
