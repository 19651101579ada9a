//! Properties of every parser (it never panics) and of every pair of encoder and decoder (what goes
//! in comes out).

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use vault_format::bundle::{Bundle, File};
use vault_format::catalog::{
    Catalog, ObjectEntry, PolicyEntry, ProfileEntry, ReleaseRef, SkillEntry, Withdrawn,
};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::manifest::{
    ActionSpec, AppliedTransform, Flag, Gate, Manifest, Mode, RenderedFrom, SignedManifest, Waiver,
};
use vault_format::path::{FilePath, check_paths};
use vault_format::provenance::Provenance;
use vault_format::time::Timestamp;

use crate::make::{self, Pulled, key, manifest, pull, push, sign, trust};

fn digest() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::from_bytes)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0..4_000_000_000_i64).prop_map(Timestamp::from_unix)
}

fn integer() -> impl Strategy<Value = u64> {
    1..1_u64 << 53
}

fn text() -> impl Strategy<Value = String> {
    "[^\u{0}]{0,20}".prop_map(|text| {
        text.chars()
            .filter(|c| !vault_format::name::is_deceptive(*c))
            .collect()
    })
}

fn files() -> impl Strategy<Value = Vec<File>> {
    let bytes = prop_oneof![
        any::<Vec<u8>>(),
        ".{0,60}".prop_map(String::into_bytes),
        "[\"\\\\\r\n\t/\u{1}\u{7f}\u{2028}🔒]{0,30}".prop_map(String::into_bytes)
    ];
    let file = ("[a-z]{1,3}(/[a-zü _.]{1,5}){0,3}", bytes, any::<bool>());
    prop::collection::vec(file, 0..6).prop_map(|files| {
        let mut kept: BTreeMap<FilePath, (Vec<u8>, bool)> =
            [("SKILL.md".parse().unwrap(), (b"x".to_vec(), false))].into();
        for (path, bytes, executable) in files {
            let Ok(path) = path.parse::<FilePath>() else {
                continue;
            };
            if check_paths(kept.keys().chain([&path])).is_ok() {
                kept.insert(path, (bytes, executable));
            }
        }
        let mode = |executable| {
            if executable {
                Mode::Executable
            } else {
                Mode::Plain
            }
        };
        kept.into_iter()
            .map(|(path, (bytes, executable))| File {
                path,
                mode: mode(executable),
                bytes,
            })
            .collect()
    })
}

fn action() -> impl Strategy<Value = ActionSpec> {
    (
        prop::sample::select(vec!["git", "SKILL.md"]),
        prop::collection::vec(text(), 0..4),
        prop::option::of(text()),
        any::<bool>(),
    )
        .prop_map(|(command, args, description, requires_tty)| ActionSpec {
            command: command.to_owned(),
            args,
            cwd: ".".to_owned(),
            description,
            requires_tty,
        })
}

fn gate() -> impl Strategy<Value = Gate> {
    let flag =
        (text(), text(), 0..1_u64 << 53).prop_map(|(rule, path, line)| Flag { rule, path, line });
    let waiver = (text(), digest(), text()).prop_map(|(rule, sha256, reason)| Waiver {
        rule,
        sha256,
        reason,
    });
    (
        any::<bool>(),
        text(),
        prop::collection::vec(flag, 0..3),
        prop::collection::vec(waiver, 0..3),
    )
        .prop_map(|(strict, rules, flags, waivers)| Gate {
            strict,
            rules,
            flags,
            waivers,
        })
}

fn provenance() -> impl Strategy<Value = Provenance> {
    let places = [
        "local:x",
        "github:acme/x",
        "https:https://a.example/x",
        "vault:https://vault.example/v/acme/x",
        "inline:usr_01",
    ];
    (
        prop::sample::select(places.to_vec()),
        prop::option::of("[0-9a-f]{40}"),
        time(),
    )
        .prop_map(|(place, revision, fetched_at)| Provenance {
            identifier: place.parse().unwrap(),
            revision,
            fetched_at,
        })
}

fn rendered() -> impl Strategy<Value = RenderedFrom> {
    let transform = (text(), digest()).prop_map(|(name, sha256)| AppliedTransform { name, sha256 });
    (
        digest(),
        "[a-z0-9-]{1,9}",
        prop::collection::vec(transform, 0..3),
    )
        .prop_map(|(bundle_hash, agent, transforms)| RenderedFrom {
            bundle_hash,
            agent: agent.parse().unwrap(),
            transforms,
        })
}

prop_compose! {
    fn manifests()(
        files in files(),
        frontmatter_name in prop::option::of(text()),
        version in integer(),
        signed_at in time(),
        actions in prop::collection::btree_map("[a-k][a-z0-9-]{0,9}", action(), 0..4),
        agents in prop::collection::vec("[a-z0-9-]{1,9}", 0..3),
        rendered_from in prop::option::of(rendered()),
        provenance in provenance(),
        gate in gate(),
    ) -> (Manifest, Vec<File>) {
        let manifest = Manifest {
            frontmatter_name,
            version,
            signed_at,
            actions: actions.into_iter().map(|(name, action)| (name.parse().unwrap(), action)).collect(),
            agents: agents.into_iter().map(|agent| agent.parse().unwrap()).collect(),
            rendered_from,
            provenance,
            gate,
            ..manifest("made", &files)
        };
        (manifest, files)
    }
}

prop_compose! {
    fn catalogs()(
        release in integer(),
        audience in prop::collection::vec(text(), 0..3),
        previous in prop::option::of((integer(), digest())),
        skills in prop::collection::btree_map("[a-z]{1,9}-x", (integer(), digest(), 0..4_u64 << 20), 0..6),
        index in prop::collection::vec((digest(), 0..4_u64 << 20), 0..3),
        policy in prop::option::of((digest(), 0..4_u64 << 20)),
        profiles in prop::collection::btree_map(text(), (digest(), 0..4_u64 << 20), 0..3),
        withdrawn in prop::collection::vec((digest(), text(), integer()), 0..3),
        days in 1_i64..=400,
    ) -> Catalog {
        Catalog {
            audience: [vec!["https://vault.example/v/acme/".to_owned()], audience].concat(),
            previous: previous.map(|(release, payload_sha256)| ReleaseRef { release, payload_sha256 }),
            expires_at: make::NOW.plus_days(days),
            skills: skills
                .into_iter()
                .map(|(name, (version, bundle_hash, size))| SkillEntry { name: name.parse().unwrap(), version, bundle_hash, size })
                .collect(),
            index: index.into_iter().map(|(bundle_hash, size)| ObjectEntry { bundle_hash, size }).collect(),
            policy: policy.map(|(sha256, size)| PolicyEntry { sha256, size }),
            profiles: profiles
                .into_iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, (bundle_hash, size))| ProfileEntry { name, agent: "codex".parse().unwrap(), bundle_hash, size })
                .collect(),
            withdrawn: withdrawn
                .into_iter()
                .map(|(bundle_hash, reason, since_release)| Withdrawn { name: "gone".parse().unwrap(), bundle_hash, reason, since_release })
                .collect(),
            ..make::catalog(release, 0)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn manifests_survive_a_round_trip((manifest, _) in manifests()) {
        let signed = SignedManifest::sign(&manifest, &key(0)).unwrap();
        let read = SignedManifest::parse(signed.as_bytes()).unwrap();
        prop_assert_eq!(&read, &signed);
        prop_assert_eq!(read.verify(&trust(), &make::expectation(&manifest)).unwrap(), manifest.clone());
        let stranger = SignedManifest::sign(&manifest, &key(2)).unwrap();
        prop_assert_eq!(stranger.verify_signature(&trust()).unwrap_err().error_code(), "catalog_signer");
    }

    #[test]
    fn bundles_survive_a_round_trip((manifest, files) in manifests()) {
        let signed = SignedManifest::sign(&manifest, &key(0)).unwrap();
        let encoded = vault_format::bundle::encode(&signed, &manifest, &files).unwrap();
        let bundle = Bundle::parse(&encoded.bytes, &encoded.hash, encoded.bytes.len() as u64).unwrap();
        let opened = bundle.open(&|_| None, &trust(), &make::expectation(&manifest)).unwrap();
        prop_assert_eq!(&opened.manifest, &manifest);
        prop_assert_eq!(&opened.files, &files);
        let again = vault_format::bundle::encode(&opened.signed, &opened.manifest, &opened.files).unwrap();
        prop_assert_eq!(again, encoded);
    }

    #[test]
    fn catalogs_survive_a_round_trip(catalog in catalogs()) {
        let bytes = sign(&catalog, 0);
        let counted = pull(&bytes, None).unwrap().release();
        prop_assert_eq!(&counted.catalog, &catalog);
        prop_assert_eq!(sign(&counted.catalog, 0), bytes.clone());
        let last = make::last(&bytes, &[0]);
        prop_assert!(matches!(pull(&bytes, Some(&last)), Ok(Pulled::Equal)));
        prop_assert!(matches!(push(&bytes, Some(&last)), Ok(Pulled::Equal)));
    }

    /// Bytes with a hole, a flipped bit or something put in are refused or read as the same value;
    /// nothing panics.
    #[test]
    fn damaged_bytes_never_panic(catalog in catalogs(), at: prop::sample::Index, length in 0_usize..9, insert in ".{0,9}") {
        let bytes = sign(&catalog, 0);
        let at = at.index(bytes.len());
        let end = (at + length).min(bytes.len());
        let damaged = [&bytes[..at], insert.as_bytes(), &bytes[end..]].concat();
        if let Ok(pulled) = pull(&damaged, None) {
            prop_assert_eq!(pulled.release().catalog, catalog);
        }
    }

    #[test]
    fn any_signed_payload_never_panics(payload in ".{0,60}", bytes: Vec<u8>) {
        for payload in [payload.as_bytes(), &bytes] {
            let key = key(0);
            let roots = String::from_utf8(vault_format::json::to_bytes(make::state().chain())).unwrap();
            for kind in [vault_format::catalog::PAYLOAD_TYPE, vault_format::manifest::PAYLOAD_TYPE] {
                let envelope = Envelope::sign(kind, payload, &[&key]);
                let text = String::from_utf8(envelope.to_bytes()).unwrap();
                let _ = SignedManifest::parse(text.as_bytes()).unwrap().verify_signature(&trust());
                let file = format!(r#"{{"public_key":"{}","roots":{roots},{}"#, key.public(), &text[1..]);
                let _ = pull(file.as_bytes(), None);
            }
            let root = Envelope::sign(vault_format::root::PAYLOAD_TYPE, payload, &[&make::key(make::ROOT)]);
            let root = String::from_utf8(root.to_bytes()).unwrap();
            for roots in [format!("[{root}]"), format!("{},{root}]", &roots[..roots.len() - 1])] {
                let file = format!(r#"{{"public_key":"{}","roots":{roots},"payloadType":"{}","payload":"","signatures":[]}}"#, key.public(), vault_format::catalog::PAYLOAD_TYPE);
                prop_assert!(pull(file.as_bytes(), None).is_err());
            }
            let _ = Bundle::parse(payload, &Digest::of(payload), payload.len() as u64);
        }
    }

    /// A part that comes back wrong, whatever it is, is refused.
    #[test]
    fn wrong_parts_are_refused(wrong: Vec<u8>, length in 1_048_577_usize..1_050_000) {
        let (encoded, manifest, _) = make::skill("parts", vec![make::file("SKILL.md", "x"), make::file("a", vec![b'a'; length])]);
        let open = |parts: &dyn Fn(&Digest) -> Option<Vec<u8>>| {
            let bundle = Bundle::parse(&encoded.bytes, &encoded.hash, encoded.bytes.len() as u64).unwrap();
            bundle.open(parts, &trust(), &make::expectation(&manifest)).map(|opened| opened.files.len())
        };
        let good: HashMap<_, _> = encoded.parts.iter().map(|part| (part.hash, part.bytes.clone())).collect();
        prop_assert_eq!(open(&|hash| good.get(hash).cloned()).unwrap(), 2);
        prop_assert_eq!(open(&|_| Some(wrong.clone())).unwrap_err().error_code(), "bundle_parts");
        prop_assert_eq!(open(&|_| None).unwrap_err().error_code(), "bundle_parts");
    }
}
