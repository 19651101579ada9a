//! Values at and over the limits: too large to keep as vectors, so they are made here.

use std::collections::HashMap;

use vault_skill::bundle::{Bundle, BundleError, MAX_INLINE_BYTES, MAX_OBJECT_BYTES, PART_BYTES};
use vault_skill::catalog::SignedCatalog;
use vault_skill::hash::Digest;
use vault_skill::manifest::{ManifestError, SignedManifest};

use crate::make::{
    catalog, entry, expectation, file, key, manifest, pull, sign, skill, state, trust,
};

fn round_trip(files: Vec<vault_skill::bundle::File>) -> Vec<String> {
    let (encoded, manifest, files) = skill("large", files);
    assert!(encoded.bytes.len() <= MAX_OBJECT_BYTES);
    assert!(
        encoded.parts.iter().all(
            |part| part.bytes.len() <= MAX_OBJECT_BYTES && Digest::of(&part.bytes) == part.hash
        )
    );
    let parts: HashMap<_, _> = encoded
        .parts
        .iter()
        .map(|part| (part.hash, part.bytes.clone()))
        .collect();
    let bundle = Bundle::parse(&encoded.bytes, &encoded.hash, encoded.bytes.len() as u64).unwrap();
    let opened = bundle
        .open(
            &|hash| parts.get(hash).cloned(),
            &trust(),
            &expectation(&manifest),
        )
        .unwrap();
    assert_eq!(opened.files, files);
    let text = String::from_utf8(encoded.bytes).unwrap();
    let cut = files
        .iter()
        .filter(|file| text.contains(&format!(r#""path":"{}","encoding":"parts""#, file.path)));
    cut.map(|file| file.path.to_string()).collect()
}

#[test]
fn a_file_is_cut_when_its_encoded_content_is_over_1_mib() {
    let skill_md = || file("SKILL.md", "x");
    assert_eq!(
        round_trip(vec![skill_md(), file("a", vec![b'a'; MAX_INLINE_BYTES])]),
        [""; 0]
    );
    assert_eq!(
        round_trip(vec![
            skill_md(),
            file("a", vec![b'a'; MAX_INLINE_BYTES + 1])
        ]),
        ["a"]
    );
    // Escapes count, and base64 counts as such: 786,432 bytes are 1 MiB of base64.
    assert_eq!(
        round_trip(vec![
            skill_md(),
            file("a", vec![b'\n'; MAX_INLINE_BYTES / 2 + 1])
        ]),
        ["a"]
    );
    assert_eq!(
        round_trip(vec![
            skill_md(),
            file("a", vec![1; MAX_INLINE_BYTES / 6 + 1])
        ]),
        ["a"]
    );
    assert_eq!(
        round_trip(vec![skill_md(), file("a", vec![0; 786_432])]),
        [""; 0]
    );
    assert_eq!(
        round_trip(vec![skill_md(), file("a", vec![0; 786_433])]),
        ["a"]
    );
    // At the border between one part and two.
    assert_eq!(
        round_trip(vec![
            skill_md(),
            file("a", vec![7; PART_BYTES]),
            file("b", vec![7; PART_BYTES + 1])
        ]),
        ["a", "b"]
    );
}

#[test]
fn the_largest_files_are_cut_until_the_bundle_fits() {
    let mut files = vec![file("SKILL.md", "x")];
    files.extend((0..16).map(|n| file(&format!("f{n:02}"), vec![b'a'; 1_000_000 - n])));
    // 16 files of about a million bytes each: four fit, the largest go first.
    let cut: Vec<_> = (0..12).map(|n| format!("f{n:02}")).collect();
    assert_eq!(round_trip(files), cut);
    let equal = vec![
        file("SKILL.md", "x"),
        file("a", vec![b'a'; 900_000]),
        file("b", vec![b'a'; 900_000]),
        file("c", vec![b'a'; 900_000]),
        file("d", vec![b'a'; 900_000]),
        file("e", vec![b'a'; 900_000]),
    ];
    assert_eq!(round_trip(equal), ["e"]); // of equals the later path
}

#[test]
fn another_choice_of_parts_is_refused() {
    // One file of just 1 MiB, forced into parts by hand.
    let content = vec![b'a'; MAX_INLINE_BYTES];
    let (encoded, manifest, _) = skill(
        "large",
        vec![file("SKILL.md", "x"), file("a", content.clone())],
    );
    let part = crate::support::cut(&content).remove(0);
    let inline = format!(
        r#""encoding":"utf-8","content":"{}""#,
        "a".repeat(MAX_INLINE_BYTES)
    );
    let parts = format!(
        r#""encoding":"parts","parts":[{{"bundle_hash":"{}","size":{}}}]"#,
        part.hash,
        part.bytes.len()
    );
    let text = String::from_utf8(encoded.bytes)
        .unwrap()
        .replace(&inline, &parts);
    let bundle = Bundle::parse(
        text.as_bytes(),
        &Digest::of(text.as_bytes()),
        text.len() as u64,
    )
    .unwrap();
    let opened = bundle.open(
        &|_| Some(part.bytes.clone()),
        &trust(),
        &expectation(&manifest),
    );
    assert!(matches!(opened, Err(BundleError::Encoding(path)) if path == "a"));
}

#[test]
fn a_bundle_over_4_mib_is_refused_before_it_is_read() {
    let bytes = vec![b' '; MAX_OBJECT_BYTES + 1];
    assert_eq!(
        Bundle::parse(&bytes, &Digest::of(&bytes), bytes.len() as u64)
            .unwrap_err()
            .word(),
        "bundle_size"
    );
}

#[test]
fn files_of_a_skill_have_a_number() {
    let files = |count: usize| {
        let mut files: Vec<_> = (1..count)
            .map(|n| file(&format!("f/{n:04}"), "x"))
            .collect();
        files.insert(0, file("SKILL.md", "x"));
        files
    };
    assert_eq!(round_trip(files(1_024)), [""; 0]);
    let error = SignedManifest::sign(&manifest("large", &files(1_025)), &key(0)).unwrap_err();
    assert!(matches!(error, ManifestError::Files(_)), "{error}");
    // A writer that does not check is met by a reader that does.
    let payload = vault_skill::json::to_bytes(&manifest("large", &files(1_025)));
    let envelope = vault_skill::dsse::Envelope::sign(
        vault_skill::manifest::PAYLOAD_TYPE,
        &payload,
        &[&key(0)],
    );
    let signed = SignedManifest::parse(&envelope.to_bytes()).unwrap();
    assert_eq!(
        signed.verify_signature(&trust()).unwrap_err().word(),
        "manifest_files"
    );
}

#[test]
fn files_of_a_skill_have_a_size() {
    for (files, good) in [
        (vec![file("SKILL.md", vec![b'a'; 256 << 10])], true),
        (vec![file("SKILL.md", vec![b'a'; (256 << 10) + 1])], false),
        (
            vec![file("SKILL.md", "x"), file("a", vec![b'a'; 4 << 20])],
            true,
        ),
        (
            vec![file("SKILL.md", "x"), file("a", vec![b'a'; (4 << 20) + 1])],
            false,
        ),
        (
            [
                vec![file("SKILL.md", "")],
                ["a", "b", "c", "d"]
                    .map(|path| file(path, vec![b'a'; 4 << 20]))
                    .to_vec(),
            ]
            .concat(),
            true,
        ),
        (
            [
                vec![file("SKILL.md", "x")],
                ["a", "b", "c", "d"]
                    .map(|path| file(path, vec![b'a'; 4 << 20]))
                    .to_vec(),
            ]
            .concat(),
            false,
        ),
    ] {
        let signed = SignedManifest::sign(&manifest("large", &files), &key(0));
        assert_eq!(signed.is_ok(), good, "{:?}", signed.map(|_| ()));
    }
}

#[test]
fn ten_thousand_skills_fit_and_five_mib_do_not() {
    let mut new = catalog(1, 0);
    new.skills = (0..10_000)
        .map(|n| entry(&format!("a-usual-skill-name-{n:05}")))
        .collect();
    let bytes = sign(&new, 0);
    assert!(
        (2 << 20..MAX_OBJECT_BYTES).contains(&bytes.len()),
        "{}",
        bytes.len()
    );
    let accepted = pull(&bytes, None).unwrap().release();
    assert_eq!(accepted.catalog, new);
    assert_eq!(
        accepted.catalog.skill(&new.skills[7_777].name),
        Some(&new.skills[7_777])
    );
    new.skills = (0..20_000)
        .map(|n| entry(&format!("a-usual-skill-name-{n:05}")))
        .collect();
    assert_eq!(
        SignedCatalog::sign(&new, state().chain(), &[&key(0)])
            .unwrap_err()
            .to_string(),
        "the catalog is larger than 4 MiB"
    );
    let padded = [bytes, vec![b' '; 3 << 20]].concat();
    assert_eq!(
        pull(&padded, None).unwrap_err().to_string(),
        "the catalog is larger than 4 MiB"
    );
}
