//! Values at and over the limits: too large to keep as vectors, so they are made here.

use std::collections::HashMap;

use vault_format::bundle::{Bundle, BundleError, MAX_INLINE_BYTES, MAX_OBJECT_BYTES, PART_BYTES};
use vault_format::catalog::{
    CatalogOutcome, LastCatalog, NewRoots, ReaderKind, ReleaseRef, SignedCatalog, judge_catalog,
};
use vault_format::hash::Digest;
use vault_format::manifest::{ManifestError, SignedManifest};
use vault_format::root::{MAX_CHAIN_BYTES, RootChain, RootState};

use crate::make::{
    self, catalog, catalog_of, entry, expectation, file, filled, key, last, manifest, pull, sign,
    skill, slug, state, trust,
};

fn round_trip(files: Vec<vault_format::bundle::File>) -> Vec<String> {
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
            .error_code(),
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
    let payload = vault_format::json::to_bytes(&manifest("large", &files(1_025)));
    let envelope = vault_format::dsse::Envelope::sign(
        vault_format::manifest::PAYLOAD_TYPE,
        &payload,
        &[&key(0)],
    );
    let signed = SignedManifest::parse(&envelope.to_bytes()).unwrap();
    assert_eq!(
        signed.verify_signature(&trust()).unwrap_err().error_code(),
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

/// What a reader makes of a release that counts: the state that it stores, the names in it, and the
/// reader's last catalog.
fn take(
    bytes: &[u8],
    side: ReaderKind,
    own: Option<&RootState>,
    held: Option<&LastCatalog>,
) -> (RootState, usize) {
    let slug = slug();
    let judged = judge_catalog(bytes, &make::reader(side, &slug, own, held));
    let taken = matches!(judged.roots, NewRoots::Now(_) | NewRoots::WithCatalog(_));
    assert_eq!(taken, own.is_none_or(|own| own.chain().version() == 1));
    match judged.outcome.unwrap() {
        CatalogOutcome::Release(release) => {
            let counted = release.settle_versions(|_| true).unwrap();
            (counted.state, counted.catalog.skills.len())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ten_thousand_skills_fit_under_the_longest_chain() {
    let chain = filled(state().chain());
    assert!(chain.byte_length() > MAX_CHAIN_BYTES - 2_048);
    let release = |chain: &RootChain, previous: Option<ReleaseRef>, skills: usize| {
        let number = previous.map_or(1, |previous| previous.release + 1);
        let mut new = catalog_of(chain, number, 0);
        new.previous = previous;
        // The longest names that a skill may have.
        new.skills = (0..skills)
            .map(|n| entry(&format!("{}-{n:05}", "n".repeat(58))))
            .collect();
        SignedCatalog::sign(&new, chain, &[&key(0)])
    };
    let first = release(&chain, None, 10_000).unwrap().to_bytes();
    let held = last(&first, &[0]);
    let second = release(&chain, Some(held.stored), 10_000).unwrap();
    for (side, own) in [
        (ReaderKind::Service, None),
        (ReaderKind::Service, Some(state())),
        (ReaderKind::Device, None),
        (ReaderKind::Device, Some(state())),
    ] {
        let (state, skills) = take(&first, side, own, None);
        assert_eq!((state.chain(), skills), (&chain, 10_000), "{side:?}");
    }
    // The next one, by a device that missed nothing: it knows the chain.
    let known = make::known(chain.clone());
    let (state, _) = take(
        &second.to_bytes(),
        ReaderKind::Device,
        Some(&known),
        Some(&held),
    );
    assert_eq!(state, known);
    // Root versions and skills share the 4 MiB, and the writer keeps to them.
    let short = make::state().chain();
    assert!(release(short, None, 11_000).is_ok());
    let over = release(&chain, None, 11_000).unwrap_err();
    assert_eq!(over.to_string(), "the catalog is larger than 4 MiB");
}
