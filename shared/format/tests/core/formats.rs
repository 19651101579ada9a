//! The vectors of `tests/vectors/formats`: every example byte for byte, every case to accept, every
//! case to refuse.

use std::collections::HashMap;

use crate::support::{
    Judged, by_rule, bytes, case_bytes, cut, file_names, json, judge_case, listed, member, newest,
    owned, parts, secret, state,
};
use serde_json::Value;
use vault_format::bundle::{Bundle, BundleError, File, OpenedBundle, encode};
use vault_format::catalog::{Catalog, CatalogWarning, SignedCatalog};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::keys::PublicKey;
use vault_format::manifest;
use vault_format::manifest::{ManifestExpectation, ManifestTrust, SignedManifest};
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_format::root::RootChain;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("{name} in {value}"))
}

fn cases(file: &str) -> Vec<Value> {
    json(file)["cases"].as_array().unwrap().clone()
}

#[test]
fn files_are_the_listed_bytes() {
    for file in json("files.json")["files"].as_array().unwrap() {
        let bytes = bytes(text(file, "file"));
        assert_eq!(bytes.len() as u64, file["size"].as_u64().unwrap(), "{file}");
        assert_eq!(
            Digest::of(&bytes).to_string(),
            text(file, "sha256"),
            "{file}"
        );
    }
}

#[test]
fn keys_follow_from_their_seeds() {
    let vectors = json("keys.json");
    let names = vectors
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| *name != "about");
    assert_eq!(names.clone().count(), 8);
    for name in names {
        let public = secret(name).public();
        assert_eq!(public.to_string(), text(&vectors[name], "public_key"));
        assert_eq!(public.key_id().to_string(), text(&vectors[name], "keyid"));
        assert_eq!(text(&vectors[name], "public_key").parse(), Ok(public));
    }
}

fn all_keys() -> Vec<PublicKey> {
    json("keys.json")
        .as_object()
        .unwrap()
        .keys()
        .filter(|name| *name != "about")
        .map(|name| secret(name).public())
        .collect()
}

#[test]
fn manifest_is_encoded_and_verified() {
    let bytes = bytes("manifest.dsse.json");
    let signed = SignedManifest::parse(&bytes).unwrap();
    assert_eq!(signed.as_bytes(), bytes);
    let first = state(&serde_json::json!(["1"]));
    let manifest = signed.verify_signature(&owned(&first)).unwrap();
    assert_eq!(signed.signer(&first), Some(secret("release 0").public()));
    assert_eq!(
        signed.verify_signature(&listed(&newest())).unwrap(),
        manifest
    );
    assert_eq!(
        SignedManifest::sign(&manifest, &secret("release 0"))
            .unwrap()
            .as_bytes(),
        bytes
    );
    for other in ["release 1", "recovery", "stranger"] {
        let signed = SignedManifest::sign(&manifest, &secret(other)).unwrap();
        let error = signed.verify_signature(&owned(&first)).unwrap_err();
        assert_eq!(error.error_code(), "manifest_signature", "{other}");
    }
    assert_eq!(Envelope::parse(&bytes).unwrap().to_bytes(), bytes);
}

fn open(
    bytes: &[u8],
    hash: &str,
    size: u64,
    trust: &ManifestTrust<'_>,
    expected: &ManifestExpectation<'_>,
) -> Result<OpenedBundle, BundleError> {
    let parts = parts();
    Bundle::parse(bytes, &hash.parse().unwrap(), size)?.open(
        &|hash| parts.get(hash).cloned(),
        trust,
        expected,
    )
}

fn open_any(bytes: &[u8]) -> OpenedBundle {
    let (hash, state) = (Digest::of(bytes).to_string(), newest());
    let name: SkillName = {
        let envelope = serde_json::from_slice::<Value>(bytes).unwrap()["manifest"].to_string();
        let signed = SignedManifest::parse(envelope.as_bytes()).unwrap();
        signed.verify_signature(&listed(&state)).unwrap().name
    };
    let expected = ManifestExpectation {
        name: &name,
        version: None,
        stored_version: None,
    };
    open(bytes, &hash, bytes.len() as u64, &listed(&state), &expected).unwrap()
}

#[test]
fn bundles_are_decoded_and_encoded_to_the_same_bytes() {
    for name in file_names("bundle-") {
        let bytes = bytes(&name);
        let opened = open_any(&bytes);
        let encoded = encode(&opened.signed, &opened.manifest, &opened.files).unwrap();
        assert_eq!(encoded.bytes, bytes, "{name}");
        assert_eq!(name, format!("bundle-{}.json", encoded.hash));
        for (file, entry) in opened.files.iter().zip(&opened.manifest.files) {
            assert_eq!(
                (file.bytes.len() as u64, Digest::of(&file.bytes)),
                (entry.size, entry.sha256)
            );
        }
        let signer = opened.signed.signer(&newest()).unwrap();
        assert!(all_keys().contains(&signer));
        let again = Envelope::parse(opened.signed.as_bytes()).unwrap();
        assert_eq!(
            again.payload(),
            vault_format::json::to_bytes(&opened.manifest),
            "{name}: the payload is written as it was"
        );
    }
}

/// An envelope that stands in a list of cases; the order of members in `Value` is not that of the
/// format.
fn signed_of(envelope: &Value) -> SignedManifest {
    let signature = &envelope["signatures"][0];
    let text = format!(
        r#"{{"payloadType":{},"payload":{},"signatures":[{{"keyid":{},"sig":{}}}]}}"#,
        envelope["payloadType"], envelope["payload"], signature["keyid"], signature["sig"]
    );
    SignedManifest::parse(text.as_bytes()).unwrap()
}

#[test]
fn large_files_become_parts_by_rule() {
    for case in cases("parts.json") {
        let mut rules: HashMap<_, _> = case["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| (text(rule, "path").to_owned(), by_rule(rule)))
            .collect();
        for (path, content) in case["inline"].as_object().into_iter().flatten() {
            rules.insert(path.clone(), content.as_str().unwrap().as_bytes().to_vec());
        }
        let kept = case["bundle"].as_str().map(|name| open_any(&bytes(name)));
        if let Some(opened) = &kept {
            rules.insert("SKILL.md".to_owned(), opened.files[0].bytes.clone());
        }
        let signed = kept.map_or_else(|| signed_of(&case["manifest"]), |opened| opened.signed);
        let manifest = signed.verify_signature(&listed(&newest())).unwrap();
        for (entry, listed) in manifest.files.iter().zip(case["files"].as_array().unwrap()) {
            let content = &rules[entry.path.as_str()];
            assert_eq!(content.len() as u64, listed["size"].as_u64().unwrap());
            assert_eq!(Digest::of(content).to_string(), text(listed, "sha256"));
        }
        let files = manifest.files.iter().map(|entry| File {
            path: entry.path.clone(),
            mode: entry.mode,
            bytes: rules[entry.path.as_str()].clone(),
        });
        let files: Vec<_> = files.collect();
        let encoded = encode(&signed, &manifest, &files).unwrap();
        assert_eq!(encoded.hash.to_string(), text(&case, "bundle_hash"));
        assert_eq!(
            encoded.bytes.len() as u64,
            case["bundle_size"].as_u64().unwrap()
        );
        let mut expected = Vec::new();
        for (path, listed) in case["parts"].as_object().unwrap() {
            for (part, listed) in cut(&rules[path])
                .into_iter()
                .zip(listed.as_array().unwrap())
            {
                assert_eq!(part.hash.to_string(), text(listed, "bundle_hash"));
                assert_eq!(part.bytes.len() as u64, listed["size"].as_u64().unwrap());
                expected.push(part);
            }
        }
        assert_eq!(encoded.parts, expected);
        let opened = open_any(&encoded.bytes);
        assert_eq!(opened.files, files);
        let bundle =
            Bundle::parse(&encoded.bytes, &encoded.hash, encoded.bytes.len() as u64).unwrap();
        assert_eq!(
            bundle.part_hashes(),
            expected.iter().map(|part| part.hash).collect::<Vec<_>>()
        );
    }
}

#[test]
fn catalogs_are_decoded_and_encoded_to_the_same_bytes() {
    let signers: HashMap<_, _> = [
        ("catalog-1-first.json", "release 0"),
        ("catalog-41.json", "release 0"),
        ("catalog-42.json", "release 0"),
        ("catalog-42-other.json", "release 0"),
        ("catalog-43-rotated.json", "release 1"),
        ("catalog-43-fork.json", "release fork"),
        ("catalog-44-withdrawn.json", "release 1"),
        ("catalog-45-chain.json", "release 2"),
        ("catalog-45-thief.json", "release 1"),
        ("catalog-46-chain.json", "release 3"),
    ]
    .into();
    let sizes: HashMap<String, u64> = json("files.json")["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            (
                text(file, "sha256").to_owned(),
                file["size"].as_u64().unwrap(),
            )
        })
        .collect();
    let mut previous = HashMap::new();
    let names = file_names("catalog-");
    assert_eq!(names.len(), signers.len());
    for name in &names {
        let bytes = bytes(name);
        let file = SignedCatalog::parse(&bytes).unwrap();
        let catalog = file.read_counted(&file.payload_sha256()).unwrap();
        let chain = RootChain::verify(file.roots()).unwrap();
        let again = SignedCatalog::sign(&catalog, &chain, &[&secret(signers[name.as_str()])]);
        assert_eq!(again.unwrap().to_bytes(), bytes, "{name}");
        let skills = catalog.skills.iter().map(|e| (e.bundle_hash, e.size));
        let index = catalog.index.iter().map(|e| (e.bundle_hash, e.size));
        let profiles = catalog.profiles.iter().map(|e| (e.bundle_hash, e.size));
        let policy = catalog.policy.iter().map(|e| (e.sha256, e.size));
        for (hash, size) in skills.chain(index).chain(profiles).chain(policy) {
            assert_eq!(sizes[&hash.to_string()], size, "{name}");
        }
        previous.insert((catalog.release, file.payload_sha256()), name.clone());
    }
    for name in &names {
        let catalog = read_catalog(name);
        if let Some(before) = catalog.previous.filter(|before| before.release > 40) {
            assert!(
                previous.contains_key(&(before.release, before.payload_sha256)),
                "{name}"
            );
        }
    }
    let withdrawn = read_catalog("catalog-44-withdrawn.json").withdrawn;
    assert_eq!(
        (withdrawn[0].name.as_str(), withdrawn[0].since_release),
        ("commit-log", 44)
    );
}

fn read_catalog(name: &str) -> Catalog {
    let file = SignedCatalog::parse(&bytes(name)).unwrap();
    file.read_counted(&file.payload_sha256()).unwrap()
}

#[test]
fn accepted_cases() {
    let default = &json("accept.json")["context"];
    let cases = cases("accept.json");
    assert_eq!(cases.len(), 21);
    for case in cases {
        let why = text(&case, "why");
        let judged = judge_case(&case_bytes(&case), &case, default)
            .unwrap_or_else(|error| panic!("{why}: {error}"));
        let Judged::Release(counted) = judged else {
            assert!(why.contains("again"), "{why}");
            continue;
        };
        assert!(!why.contains("again"), "{why}");
        let found = serde_json::json!({
            "public_key": counted.catalog.public_key,
            "root_version": counted.state.chain().version(),
            "stored": counted.stored,
        });
        for (member, found) in found.as_object().unwrap() {
            assert_eq!(*found, case["result"][member], "{why}: {member}");
        }
        assert_eq!(counted.signers, [counted.catalog.public_key], "{why}");
        assert_eq!(
            counted.warnings == [CatalogWarning::IssuedInFuture],
            why.contains("future"),
            "{why}"
        );
        assert!(!counted.voids_last, "{why}");
        // The bundles that the release names are signed by keys that it allows, and open.
        for skill in &counted.catalog.skills {
            let bundle = bytes(&format!("bundle-{}.json", skill.bundle_hash));
            let expected = ManifestExpectation {
                name: &skill.name,
                version: Some(skill.version),
                stored_version: None,
            };
            open(
                &bundle,
                &skill.bundle_hash.to_string(),
                skill.size,
                &listed(&counted.state),
                &expected,
            )
            .unwrap_or_else(|error| panic!("{why}: {}: {error}", skill.name));
        }
    }
}

#[test]
fn refused_catalogs_manifests_and_bundles() {
    let negative = json("negative.json");
    let mut counts = HashMap::new();
    for case in cases("negative.json") {
        let kind = text(&case, "kind");
        *counts.entry(kind.to_owned()).or_insert(0) += 1;
        let error = match kind {
            "catalog" => judge_case(&case_bytes(&case), &case, &json("accept.json")["context"])
                .err()
                .map(|error| error.error_code()),
            "manifest" | "bundle" => refused(&case, &negative["contexts"][kind]),
            _ => continue,
        };
        let expected = Some(text(&case, "error"));
        assert_eq!(error, expected, "{}: {}", case["id"], case["change"]);
    }
    assert_eq!(
        ["catalog", "manifest", "bundle"].map(|kind| counts[kind]),
        [88, 113, 27]
    );
}

/// The word with which a manifest or a bundle of a case is refused.
fn refused(case: &Value, default: &Value) -> Option<&'static str> {
    let member = |name: &str| member(case, default, name);
    let name = member("name").as_str().unwrap().parse().unwrap();
    let state = state(member("roots"));
    let expected = ManifestExpectation {
        name: &name,
        version: member("version").as_u64(),
        stored_version: member("stored_version").as_u64(),
    };
    let (bytes, trust) = (case_bytes(case), owned(&state));
    if case["kind"] == "manifest" {
        let signed = SignedManifest::parse(&bytes);
        let verified = signed.and_then(|signed| signed.verify(&trust, &expected));
        return verified.err().map(|error| error.error_code());
    }
    let hash = member("bundle_hash").as_str().unwrap();
    let size = member("size").as_u64().unwrap();
    let opened = open(&bytes, hash, size, &trust, &expected);
    opened.err().map(|error| error.error_code())
}

#[test]
fn provenance_identifiers() {
    let cases = cases("provenance.json");
    assert_eq!(cases.len(), 26);
    for case in cases {
        let identifier = text(&case, "identifier").parse::<ProvenanceId>();
        assert_eq!(
            identifier.is_ok(),
            case["valid"].as_bool().unwrap(),
            "{case}"
        );
        if let Ok(identifier) = identifier {
            assert_eq!(identifier.kind().as_str(), text(&case, "kind"), "{case}");
            assert_eq!(identifier.as_str(), text(&case, "identifier"));
        }
    }
}

#[test]
fn one_changed_bit_anywhere_is_refused_but_for_signatures_of_known_roots() {
    let default = json("accept.json")["context"].clone();
    let good = bytes("catalog-42.json");
    let own = serde_json::json!({"context": {"roots": null}});
    for (case, root_may_change) in [(&Value::Null, true), (&own, false)] {
        let mut survivors = Vec::new();
        for index in 0..good.len() {
            let mut bytes = good.clone();
            bytes[index] ^= 1;
            if judge_case(&bytes, case, &default).is_ok() {
                survivors.push(index);
            }
        }
        // A root that the reader holds already is known by its payload; nothing else of it is
        // looked at.
        let text = std::str::from_utf8(&good).unwrap();
        let unread: Vec<usize> = ["\"payloadType\":\"", "\"keyid\":\"", "\"sig\":\""]
            .iter()
            .filter(|_| root_may_change)
            .flat_map(|name| {
                let from = text.find(name).unwrap() + name.len();
                from..from + text[from..].find('"').unwrap()
            })
            .collect();
        assert!(
            survivors.iter().all(|index| unread.contains(index)),
            "{survivors:?}"
        );
        assert_eq!(survivors.is_empty(), unread.is_empty());
    }
}

#[test]
fn a_truncated_or_padded_file_is_refused() {
    let default = json("accept.json")["context"].clone();
    let good = bytes("catalog-42.json");
    for length in 0..good.len() {
        assert!(
            judge_case(&good[..length], &Value::Null, &default).is_err(),
            "{length}"
        );
    }
    for padding in ["x", "\0", "}", "{}"] {
        assert!(
            judge_case(
                &[&good, padding.as_bytes()].concat(),
                &Value::Null,
                &default
            )
            .is_err(),
            "{padding:?}"
        );
    }
    assert!(judge_case(&[&good, "\n".as_bytes()].concat(), &Value::Null, &default).is_ok());
    assert_eq!(manifest::MAX_FILES, 1024);
}
