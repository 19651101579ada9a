//! The stored vectors of indexes and drafts.

use std::collections::BTreeMap;

use serde_json::Value;
use vault_format::draft::{Draft, DraftContext, Request};
use vault_format::hash::Digest;
use vault_format::index;
use vault_format::index::IndexEntry;
use vault_format::name::{SkillName, Slug};
use vault_format::root::VaultId;

use crate::support::{bytes, case_bytes, file_names, json};

const VAULT: &str = "vlt_pfyefurw566ktcndi5ya46rqrj";

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
fn indexes_are_written_again_byte_for_byte_and_cover_their_catalogs() {
    let mut by_skills: BTreeMap<Vec<(SkillName, Digest)>, String> = BTreeMap::new();
    for name in file_names("index-") {
        let text = bytes(&name);
        let entries = index::parse_object(&text, &vault()).unwrap();
        let reversed: Vec<IndexEntry> = entries.iter().rev().cloned().collect();
        let written = index::build_objects(&vault(), reversed);
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
        let parts = [index::parse_object(&bytes(name), &vault()).unwrap()];
        assert!(index::covers_skills(
            &parts,
            skills.iter().map(|(name, hash)| (name, hash))
        ));
    }
}

#[test]
fn drafts_are_written_again_byte_for_byte() {
    let vault = vault();
    for name in file_names("draft-") {
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
        Err(error) => error.error_code(),
    }
}

#[test]
fn what_is_no_index_or_draft_is_refused_with_its_word() {
    let negative = json("negative.json");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in negative["cases"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        let word = match kind {
            "index" => index::parse_object(&case_bytes(case), &vault())
                .unwrap_err()
                .error_code(),
            "draft" => {
                let mut context = negative["contexts"]["draft"].clone();
                for (member, value) in case["context"].as_object().unwrap() {
                    context[member] = value.clone();
                }
                draft_word(&case_bytes(case), &context)
            }
            _ => continue,
        };
        let (id, change) = (&case["id"], &case["change"]);
        assert_eq!(word, case["error"].as_str().unwrap(), "{id}: {change}");
        *counts.entry(kind).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([("draft", 20), ("index", 9)]));
}
