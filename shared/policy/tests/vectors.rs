//! The stored vectors of policies and profiles: what they say is what the crate does.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is the failure"
)]

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use vault_format::hash::Digest;
use vault_policy::Policy;
use vault_policy::profile::Profile;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/formats");

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
fn what_is_no_policy_or_profile_is_refused_with_its_word() {
    let negative = json("negative.json");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for case in negative["cases"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        let text = || case["bytes"].as_str().unwrap();
        let word = match kind {
            "policy" => {
                let error = Policy::from_toml(text()).unwrap_err();
                assert!(error.position().is_some(), "{error}");
                error.word()
            }
            "policy_object" => Policy::from_object(text().as_bytes()).unwrap_err().word(),
            "profile" => Profile::parse(text().as_bytes()).unwrap_err().error_code(),
            _ => continue,
        };
        let (id, change) = (&case["id"], &case["change"]);
        assert_eq!(word, case["error"].as_str().unwrap(), "{id}: {change}");
        *counts.entry(kind).or_default() += 1;
    }
    let wanted = [("policy", 8), ("policy_object", 6), ("profile", 9)];
    assert_eq!(counts, BTreeMap::from(wanted));
}
