//! Bundles and parts that are not what the catalog names, and catalogs that name what no vault
//! would make.

use serde_json::{Value, json};
use vault_format::bundle::EncodedBundle;
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_tests::host::{Answer, Namespace, Wire};
use vault_tests::signed::{bundle_of, entry, skill, skill_by};

use crate::support::{Dice, FAILED, FIRST, INTEGRITY, NETWORK, Scene, refused};

const NEXT: u64 = FIRST + 1;

impl Scene {
    /// The next release with `alpha` from other bytes than its hash says.
    fn alpha_as(&self, bytes: Vec<u8>) -> Namespace {
        let mut namespace = self.next.clone();
        namespace.put_as(&self.bundles[0].hash, bytes);
        namespace
    }

    /// A release, signed as it should be, with this bundle under this name and version.
    pub fn with_bundle(&self, name: &str, version: u64, bundle: &EncodedBundle) -> Namespace {
        let entries = [entry(name, version, bundle)];
        let mut namespace = self.with_catalog(self.owner.signed(NEXT, 0, &entries));
        namespace.put(bundle);
        namespace
    }
}

/// A bundle as values that can be changed: its manifest's payload and its files.
pub fn taken_apart(bundle: &EncodedBundle) -> (Value, Value) {
    let value: Value = serde_json::from_slice(&bundle.bytes).unwrap();
    let envelope = Envelope::parse(value["manifest"].to_string().as_bytes()).unwrap();
    (
        serde_json::from_slice(envelope.payload()).unwrap(),
        value["files"].clone(),
    )
}

#[test]
fn bytes_other_than_those_that_were_signed_for_are_refused() {
    let scene = Scene::new();
    let good = scene.bundles[0].bytes.clone();
    let mut dice = Dice::new(4);
    for _ in 0..40 {
        let at = dice.below(good.len());
        let mut bytes = good.clone();
        bytes[at] ^= 1 << dice.below(8);
        let name = format!("byte {at}");
        scene.rejects(&name, scene.alpha_as(bytes), "bundle_refused");
    }
    for length in [0, 1, good.len() / 2, good.len() - 1] {
        let bytes = good[..length].to_vec();
        let name = format!("cut at {length}");
        scene.rejects(&name, scene.alpha_as(bytes), "bundle_refused");
    }
    for (name, tail) in [
        ("a newline more", &b"\n"[..]),
        ("a letter more", b"x"),
        ("itself once more", &good),
    ] {
        let bytes = [&good[..], tail].concat();
        scene.rejects(name, scene.alpha_as(bytes), "bundle_refused");
    }
    for (name, bytes) in [
        ("another skill's bundle", scene.bundles[1].bytes.clone()),
        (
            "an older version",
            scene.first.objects.values().next().unwrap().clone(),
        ),
        ("the catalog", scene.next.catalog.clone().unwrap()),
        ("HTML", b"<!doctype html>".to_vec()),
    ] {
        scene.rejects(name, scene.alpha_as(bytes), "bundle_refused");
    }
    let mut swapped = scene.next.clone();
    swapped.put_as(&scene.bundles[0].hash, scene.bundles[1].bytes.clone());
    swapped.put_as(&scene.bundles[1].hash, scene.bundles[0].bytes.clone());
    scene.rejects("swapped", swapped, "bundle_refused");
    scene.arrives();
}

#[test]
fn a_bundle_that_does_not_come_stops_the_whole_pull() {
    let scene = Scene::new();
    let hash = scene.bundles[1].hash.to_string();
    let good = scene.bundles[1].bytes.clone();
    let size = good.len() as u64;
    for (name, answer, exit, code) in [
        (
            "404",
            Answer::problem(404, "bundle_not_found"),
            FAILED,
            "bundle_not_found",
        ),
        (
            "503",
            Answer::problem(503, "bundle_unavailable"),
            NETWORK,
            "bundle_unavailable",
        ),
        (
            "402",
            Answer::problem(402, "subscription_lapsed"),
            8,
            "subscription_lapsed",
        ),
        (
            "403",
            Answer::problem(403, "device_revoked"),
            4,
            "device_revoked",
        ),
        (
            "cut",
            Answer::new(200, good.clone()).over(Wire::Length(size + 1)),
            INTEGRITY,
            "bundle_refused",
        ),
        (
            "cut in chunks",
            Answer::new(200, &good[..10]).over(Wire::CutChunks),
            NETWORK,
            "broken_off",
        ),
        (
            "endless",
            Answer::new(200, vec![b'{'; 4096]).over(Wire::Endless),
            INTEGRITY,
            "bundle_refused",
        ),
        (
            "encoded",
            Answer::new(200, good.clone()).with("Content-Encoding", "gzip"),
            NETWORK,
            "encoding_refused",
        ),
        (
            "no content",
            Answer::new(204, ""),
            INTEGRITY,
            "bundle_refused",
        ),
        (
            "a long error",
            Answer::new(503, vec![b' '; 1 << 20]),
            NETWORK,
            "http_503",
        ),
    ] {
        scene.host.serve(scene.next.clone());
        let path = format!("bundles/{hash}.json");
        scene.host.answers("GET", &path, answer);
        refused(&scene.machine, name, "cloud pull --json", exit, code);
        assert!(
            scene.host.sent() < 32 << 20,
            "{name}: {}",
            scene.host.sent()
        );
    }
    scene.arrives();
}

#[test]
fn a_host_that_is_always_busy_is_given_up_on() {
    let scene = Scene::new();
    scene.host.serve(scene.next.clone());
    scene.host.attack(|request| {
        let busy = Answer::problem(429, "rate_limited").with("Retry-After", "0");
        request.path.contains("/bundles/").then_some(busy)
    });
    refused(
        &scene.machine,
        "busy",
        "cloud pull --json",
        NETWORK,
        "rate_limited",
    );
    let asked = scene.host.requests();
    let bundles = asked
        .iter()
        .filter(|request| request.path.contains("/bundles/"));
    assert!(bundles.count() <= 8, "at most four times for each of two");
    scene.arrives();
}

#[test]
fn sizes_in_the_catalog_that_are_not_true_are_refused() {
    let scene = Scene::new();
    for (name, by) in [("one more", 1_i64), ("one less", -1), ("nothing", i64::MIN)] {
        let mut one = entry("alpha", 2, &scene.bundles[0]);
        one.size = one.size.saturating_add_signed(by);
        let catalog = scene.owner.signed(NEXT, 0, &[one]);
        scene.rejects(name, scene.with_catalog(catalog), "bundle_refused");
    }
    scene.arrives();
}

#[test]
fn a_skill_of_another_name_version_vault_or_key_is_refused() {
    let scene = Scene::new();
    for (name, as_name, version, bundle) in [
        ("another name", "alpha", 3, skill("gamma", 3, &[])),
        ("a lower version", "alpha", 3, skill("alpha", 2, &[])),
        ("a higher version", "alpha", 3, skill("alpha", 4, &[])),
        ("another key", "alpha", 3, skill_by(9, "alpha", 3, &[])),
    ] {
        let namespace = scene.with_bundle(as_name, version, &bundle);
        scene.rejects(name, namespace, "bundle_refused");
    }
    let (mut manifest, files) = taken_apart(&skill("alpha", 3, &[]));
    manifest["vault_id"] = json!(vault_tests::signed::vault_of(9, 9).vault_id());
    let namespace = scene.with_bundle("alpha", 3, &bundle_of(&manifest, &files));
    scene.rejects("another vault", namespace, "bundle_refused");
    scene.arrives();
}

/// A part with the two bytes of a small file.
const PART: &[u8] = br#"{"schema":"vault.part/1","content":"QQo="}"#;

/// A change to a bundle before the owner's key signs it.
type Change = fn(&mut Value, &mut Value);

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn bundles_that_no_vault_would_make_are_refused_even_by_the_right_key() {
    let scene = Scene::new();
    let good = skill("alpha", 3, &[("notes/a.md", b"A\n"), ("z.bin", b"\0\xff")]);
    let (manifest, files) = taken_apart(&good);
    let cases: Vec<(&str, Change)> = vec![
        ("a size that is not true", |m, _| {
            m["files"][0]["size"] = json!(3);
        }),
        ("a hash that is not true", |m, _| {
            m["files"][0]["sha256"] = json!("0".repeat(64));
        }),
        ("a size over 4 MiB", |m, _| {
            m["files"][1]["size"] = json!((4 << 20) + 1);
        }),
        ("sizes over 16 MiB", |m, _| {
            for at in 0..3 {
                m["files"][at]["size"] = json!(6_u64 << 40);
            }
        }),
        ("a mode with set-user-id", |m, _| {
            m["files"][0]["mode"] = json!("4755");
        }),
        ("a mode that nobody can read", |m, _| {
            m["files"][0]["mode"] = json!("0000");
        }),
        ("a file that the manifest lacks", |m, _| {
            m["files"].as_array_mut().unwrap().remove(1);
        }),
        ("a file that the bundle lacks", |_, f| {
            f.as_array_mut().unwrap().remove(1);
        }),
        ("no SKILL.md", |m, f| {
            m["files"].as_array_mut().unwrap().remove(0);
            f.as_array_mut().unwrap().remove(0);
        }),
        ("no files", |m, f| {
            *f = json!([]);
            m["files"] = json!([]);
        }),
        ("another order", |m, f| {
            m["files"].as_array_mut().unwrap().reverse();
            f.as_array_mut().unwrap().reverse();
        }),
        ("one file twice", |m, f| {
            for list in [&mut m["files"], &mut *f] {
                let one = list[1].clone();
                list.as_array_mut().unwrap().insert(1, one);
            }
        }),
        ("text in base64", |_, f| {
            f[1]["encoding"] = json!("base64");
            f[1]["content"] = json!("QQo=");
        }),
        ("binary as text", |_, f| {
            f[2]["encoding"] = json!("utf-8");
            f[2]["content"] = json!("\0");
        }),
        ("base64 with bits at its end", |_, f| {
            f[2]["content"] = json!("AP9=");
        }),
        ("base64 of another alphabet", |_, f| {
            f[2]["content"] = json!("AP_=");
        }),
        ("an encoding that nobody knows", |_, f| {
            f[1]["encoding"] = json!("gzip");
        }),
        (
            "parts where none belong",
            |_, f| f[1] = json!({"path": "notes/a.md", "encoding": "parts", "parts": [{"bundle_hash": Digest::of(PART), "size": PART.len()}]}),
        ),
        (
            "parts, but none",
            |_, f| f[1] = json!({"path": "notes/a.md", "encoding": "parts", "parts": []}),
        ),
        ("another schema", |m, _| {
            m["schema"] = json!("vault.skill-manifest/3");
        }),
        ("version 0", |m, _| m["version"] = json!(0)),
        ("a name that climbs", |m, _| {
            m["name"] = json!("../../alpha");
        }),
        ("an action outside", |m, _| {
            m["actions"] = json!({"go": {"command": "../../bin/sh", "args": [], "cwd": "."}});
        }),
        (
            "an action called list",
            |m, _| m["actions"] = json!({"list": {"command": "sh", "args": [], "cwd": "."}}),
        ),
        (
            "an action in a folder outside",
            |m, _| m["actions"] = json!({"go": {"command": "sh", "args": [], "cwd": "../.."}}),
        ),
        ("secrets in the provenance", |m, _| {
            m["provenance"]["identifier"] = json!("git:https://user:secret@example.com/x");
        }),
    ];
    for (name, change) in cases {
        let (mut manifest, mut files) = (manifest.clone(), files.clone());
        change(&mut manifest, &mut files);
        let mut namespace = scene.with_bundle("alpha", 3, &bundle_of(&manifest, &files));
        namespace.put_as(&Digest::of(PART), PART.to_vec());
        let ran = scene.rejects(name, namespace, "bundle_refused");
        // For its own sake, not because the hand that wrote it writes differently from a vault.
        assert!(
            !ran.stdout.contains("checked again"),
            "{name}: {}",
            ran.stdout
        );
    }
    // The same content, but white space that no vault writes: it could not be checked again.
    let spaced = String::from_utf8(good.bytes.clone()).unwrap() + "\n";
    let spaced = EncodedBundle {
        hash: Digest::of(spaced.as_bytes()),
        bytes: spaced.into_bytes(),
        parts: Vec::new(),
    };
    let namespace = scene.with_bundle("alpha", 3, &spaced);
    scene.rejects("a newline that was signed for", namespace, "bundle_refused");
    scene.host.serve(scene.with_bundle("alpha", 3, &good));
    scene.machine.run("cloud pull").ok();
}

/// A change to the parts of a file, before the owner's key signs.
type ChangeParts = fn(&mut Value);

#[test]
fn parts_are_held_to_their_hashes_and_sizes() {
    let scene = Scene::new();
    let mut dice = Dice::new(5);
    let large: Vec<u8> = (0..3_400_000).map(|_| dice.byte()).collect();
    let bundle = skill("alpha", 3, &[("large.bin", &large)]);
    assert_eq!(bundle.parts.len(), 2);
    let namespace = scene.with_bundle("alpha", 3, &bundle);
    let [one, two] = &bundle.parts[..] else {
        panic!("two parts")
    };
    let mut flipped = one.bytes.clone();
    flipped[1_000_000] ^= 1;
    for (name, hash, bytes) in [
        ("a changed bit", &one.hash, flipped),
        ("the other part", &one.hash, two.bytes.clone()),
        (
            "the first part for the second",
            &two.hash,
            one.bytes.clone(),
        ),
        ("cut", &two.hash, two.bytes[..100].to_vec()),
        ("padded", &two.hash, [&two.bytes[..], b" "].concat()),
        ("the bundle", &two.hash, bundle.bytes.clone()),
    ] {
        let mut namespace = namespace.clone();
        namespace.put_as(hash, bytes);
        scene.rejects(name, namespace, "bundle_refused");
    }
    let mut missing = namespace.clone();
    missing.objects.remove(&two.hash.to_string());
    scene.refused("missing", missing, FAILED, "bundle_not_found");

    // Part lists that lie, by the owner's own key.
    let (manifest, files) = taken_apart(&bundle);
    let at = files
        .as_array()
        .unwrap()
        .iter()
        .position(|file| file["path"] == "large.bin")
        .unwrap();
    let cases: Vec<(&str, ChangeParts)> = vec![
        ("the order of the parts", |parts| {
            parts.as_array_mut().unwrap().reverse();
        }),
        ("a part twice", |parts| {
            let one = parts[0].clone();
            parts.as_array_mut().unwrap().push(one);
        }),
        ("a part less", |parts| {
            parts.as_array_mut().unwrap().pop();
        }),
        ("a size", |parts| {
            parts[1]["size"] = json!(parts[1]["size"].as_u64().unwrap() + 1);
        }),
        ("a size over 4 MiB", |parts| {
            parts[0]["size"] = json!(5 << 20);
        }),
        ("ten thousand parts", |parts| {
            let one = parts[0].clone();
            *parts = json!(vec![one; 10_000]);
        }),
    ];
    for (name, change) in cases {
        let mut files = files.clone();
        change(&mut files[at]["parts"]);
        let bundle = bundle_of(&manifest, &files);
        let mut lying = namespace.clone();
        lying.catalog = Some(scene.owner.signed(NEXT, 0, &[entry("alpha", 3, &bundle)]));
        lying.put(&bundle);
        scene.rejects(name, lying, "bundle_refused");
        assert!(
            scene.host.sent() < 32 << 20,
            "{name}: {}",
            scene.host.sent()
        );
    }
    scene.host.serve(namespace);
    scene.machine.run("cloud pull").ok();
    let installed = vault_tests::tree::files(
        &std::fs::read_dir(scene.machine.vault().join("links"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path()
            .join("skills/alpha"),
    );
    assert_eq!(installed["large.bin"].1, large);
}

#[test]
fn what_was_installed_is_not_touched_by_any_of_it() {
    let scene = Scene::new();
    let before = scene.machine.run("skill list").ok().stdout;
    let namespace = scene.alpha_as(b"{}".to_vec());
    scene.rejects("wrong", namespace, "bundle_refused");
    assert_eq!(scene.machine.run("skill list").ok().stdout, before);
}
