//! Hostile shapes: at every place where a format has an object, an array with the same values in
//! the same order is put. serde takes such an array for a struct unless somebody prevents it.

use std::collections::HashMap;

use vault_format::bundle::Bundle;
use vault_format::catalog;
use vault_format::catalog::{ObjectEntry, PolicyEntry, ProfileEntry, Withdrawn};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::manifest;
use vault_format::manifest::{
    ActionSpec, AppliedTransform, Flag, RenderedFrom, SignedManifest, Waiver,
};

use crate::make::{
    self, catalog, entry, expectation, file, key, link, manifest, pull, sign, skill, trust,
};

/// Every text that differs from a compact JSON text in one object written as an array of its
/// values.
fn objects_as_arrays(text: &str) -> Vec<String> {
    let opens = outside_strings(text)
        .filter(|(_, byte)| *byte == b'{')
        .map(|(at, _)| at);
    opens.map(|open| as_array(text, open)).collect()
}

fn outside_strings(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let (mut inside, mut escaped) = (false, false);
    text.bytes().enumerate().filter(move |(_, byte)| {
        let was_inside = inside;
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ => {}
        }
        !was_inside
    })
}

fn as_array(text: &str, open: usize) -> String {
    let mut depth = 0;
    let mut from = open + 1; // where the current member begins
    let mut values = Vec::new();
    for (at, byte) in outside_strings(text).filter(|(at, _)| *at >= open) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b':' if depth == 1 => from = at + 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && byte == b',') {
            values.push(&text[from..at]);
            from = at + 1;
        }
        if depth == 0 {
            return format!("{}[{}]{}", &text[..open], values.join(","), &text[at + 1..]);
        }
    }
    panic!("not closed: {text}");
}

/// Every text that differs in one member that comes twice.
fn doubled_members(text: &str) -> Vec<String> {
    let quotes = outside_strings(text)
        .filter(|(at, byte)| *byte == b'"' && matches!(text.as_bytes()[at - 1], b'{' | b','));
    let mut texts = Vec::new();
    for (start, _) in quotes {
        let name_end = start + 1 + text[start + 1..].find('"').unwrap();
        if text.as_bytes().get(name_end + 1) != Some(&b':') {
            continue; // an element of a list
        }
        let mut depth = 0;
        let end = outside_strings(text)
            .filter(|(at, _)| *at > name_end + 1)
            .find(|(_, byte)| match byte {
                b'{' | b'[' => {
                    depth += 1;
                    false
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    false
                }
                b',' | b'}' | b']' => depth == 0,
                _ => false,
            });
        let member = &text[start..end.unwrap().0];
        texts.push(format!("{}{member},{}", &text[..start], &text[start..]));
    }
    texts
}

#[test]
fn the_tools_do_what_they_say() {
    let text = r#"{"a":{"b":[1,{"c":"{,\"}"}]},"d":2}"#;
    assert_eq!(
        objects_as_arrays(text),
        [
            r#"[{"b":[1,{"c":"{,\"}"}]},2]"#,
            r#"{"a":[[1,{"c":"{,\"}"}]],"d":2}"#,
            r#"{"a":{"b":[1,["{,\"}"]]},"d":2}"#
        ]
    );
    assert_eq!(
        doubled_members(r#"{"a":{"b":[1,"x"]},"d":2}"#),
        [
            r#"{"a":{"b":[1,"x"]},"a":{"b":[1,"x"]},"d":2}"#,
            r#"{"a":{"b":[1,"x"],"b":[1,"x"]},"d":2}"#,
            r#"{"a":{"b":[1,"x"]},"d":2,"d":2}"#
        ]
    );
}

/// Checks that a text is good and that every array for an object and every doubled member in it is
/// not.
fn refuses(text: &str, accepts: impl Fn(&str) -> bool) -> usize {
    assert!(accepts(text), "{text}");
    let arrays = objects_as_arrays(text);
    for bad in arrays.iter().chain(&doubled_members(text)) {
        assert!(!accepts(bad), "{bad}");
    }
    arrays.len()
}

fn full_catalog() -> catalog::Catalog {
    let mut full = catalog(9, 1);
    let object = ObjectEntry {
        bundle_hash: Digest::of(b"i"),
        size: 1,
    };
    full.skills = vec![entry("a"), entry("b")];
    full.index = vec![object];
    full.policy = Some(PolicyEntry {
        sha256: Digest::of(b"p"),
        size: 1,
    });
    full.profiles = vec![ProfileEntry {
        name: "x".to_owned(),
        agent: "codex".parse().unwrap(),
        bundle_hash: object.bundle_hash,
        size: 1,
    }];
    full.withdrawn = vec![Withdrawn {
        name: "c".parse().unwrap(),
        bundle_hash: Digest::of(b"c"),
        reason: "r".to_owned(),
        since_release: 2,
    }];
    full
}

#[test]
fn catalog_payload() {
    let text = String::from_utf8(vault_format::json::to_bytes(&full_catalog())).unwrap();
    let template = String::from_utf8(sign(&full_catalog(), 1)).unwrap();
    let own = String::from_utf8(
        Envelope::sign(catalog::PAYLOAD_TYPE, text.as_bytes(), &[&key(1)]).to_bytes(),
    )
    .unwrap();
    let count = refuses(&text, |text| {
        let envelope = String::from_utf8(
            Envelope::sign(catalog::PAYLOAD_TYPE, text.as_bytes(), &[&key(1)]).to_bytes(),
        )
        .unwrap();
        let bytes = template.replace(&own[1..], &envelope[1..]);
        pull(bytes.as_bytes(), None)
            .map_err(|error| assert_eq!(error.error_code(), "catalog_schema"))
            .is_ok()
    });
    assert_eq!(count, 8);
}

#[test]
fn catalog_file() {
    let text = String::from_utf8(sign(&full_catalog(), 1)).unwrap();
    assert_eq!(
        refuses(&text, |text| pull(text.as_bytes(), None).is_ok()),
        4
    );
}

#[test]
fn root_payload() {
    let chain = make::state().chain();
    let text = std::str::from_utf8(chain.newest().envelope().payload()).unwrap();
    let count = refuses(text, |text| {
        let root = vault_format::root::PAYLOAD_TYPE;
        let envelope = Envelope::sign(root, text.as_bytes(), &[&key(make::ROOT)]);
        let envelope = String::from_utf8(envelope.to_bytes()).unwrap();
        let digest = Digest::of(text.as_bytes());
        let mut catalog = full_catalog();
        catalog.vault_id = vault_format::root::VaultId::derive(&digest);
        catalog.root_sha256 = digest;
        let payload = vault_format::json::to_bytes(&catalog);
        let signed = Envelope::sign(catalog::PAYLOAD_TYPE, &payload, &[&key(1)]);
        let signed = String::from_utf8(signed.to_bytes()).unwrap();
        let public_key = key(1).public();
        let file = format!(
            r#"{{"public_key":"{public_key}","roots":[{envelope}],{}"#,
            &signed[1..]
        );
        link(file.as_bytes())
            .map_err(|error| assert_eq!(error.error_code(), "root_invalid", "{text}"))
            .is_ok()
    });
    assert_eq!(count, 6);
}

fn full_manifest() -> manifest::Manifest {
    let mut full = manifest("full", &[file("SKILL.md", "x")]);
    let action = ActionSpec {
        command: "git".to_owned(),
        args: vec![],
        cwd: ".".to_owned(),
        description: Some("d".to_owned()),
        requires_tty: true,
    };
    full.frontmatter_name = Some("Full".to_owned());
    full.actions = [
        ("one".parse().unwrap(), action.clone()),
        ("two".parse().unwrap(), action),
    ]
    .into();
    full.agents = vec!["codex".parse().unwrap()];
    full.rendered_from = Some(RenderedFrom {
        bundle_hash: Digest::of(b"b"),
        agent: "codex".parse().unwrap(),
        transforms: vec![AppliedTransform {
            name: "t".to_owned(),
            sha256: Digest::of(b"t"),
        }],
    });
    full.gate.flags = vec![Flag {
        rule: "r".to_owned(),
        path: "SKILL.md".to_owned(),
        line: 1,
    }];
    full.gate.waivers = vec![Waiver {
        rule: "r".to_owned(),
        sha256: Digest::of(b"w"),
        reason: "why".to_owned(),
    }];
    full
}

#[test]
fn manifest_payload() {
    let text = String::from_utf8(vault_format::json::to_bytes(&full_manifest())).unwrap();
    let count = refuses(&text, |text| {
        let envelope = Envelope::sign(manifest::PAYLOAD_TYPE, text.as_bytes(), &[&key(0)]);
        let signed = SignedManifest::parse(&envelope.to_bytes()).unwrap();
        let verified = signed.verify_signature(&trust());
        verified
            .map(|manifest| assert_eq!(manifest, full_manifest()))
            .map_err(|error| assert_eq!(error.error_code(), "manifest_schema"))
            .is_ok()
    });
    assert_eq!(count, 11);
}

#[test]
fn envelope() {
    let text =
        String::from_utf8(Envelope::sign("t", b"p", &[&key(0), &key(1)]).to_bytes()).unwrap();
    assert_eq!(
        refuses(&text, |text| Envelope::parse(text.as_bytes()).is_ok()),
        3
    );
}

#[test]
fn bundle_and_part() {
    let (encoded, manifest, _) = skill(
        "parts",
        vec![file("SKILL.md", "x"), file("a", vec![b'a'; 1 << 21])],
    );
    let text = String::from_utf8(encoded.bytes).unwrap();
    let parts: HashMap<_, _> = encoded
        .parts
        .iter()
        .map(|part| (part.hash, part.bytes.clone()))
        .collect();
    let open = |text: &str, parts: &HashMap<Digest, Vec<u8>>| {
        let bundle = Bundle::parse(
            text.as_bytes(),
            &Digest::of(text.as_bytes()),
            text.len() as u64,
        );
        let opened = bundle.and_then(|bundle| {
            bundle.open(
                &|hash| parts.get(hash).cloned(),
                &trust(),
                &expectation(&manifest),
            )
        });
        opened.is_ok()
    };
    assert_eq!(refuses(&text, |text| open(text, &parts)), 6);
    // The part as an array: the bundle names the hash of the changed part.
    let (hash, part) = parts.iter().next().unwrap();
    for bad in objects_as_arrays(std::str::from_utf8(part).unwrap()) {
        let text = text.replace(&hash.to_string(), &Digest::of(bad.as_bytes()).to_string());
        let text = text.replace(
            &format!(r#""size":{}}}"#, part.len()),
            &format!(r#""size":{}}}"#, bad.len()),
        );
        assert!(!open(
            &text,
            &[(Digest::of(bad.as_bytes()), bad.into_bytes())].into()
        ));
    }
}
