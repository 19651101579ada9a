//! Catalogs that were changed, made up, or signed for something else.

use serde_json::{Value, json};
use vault_format::catalog::{Catalog, Withdrawn};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json::to_bytes;
use vault_format::time::Timestamp;
use vault_tests::host::Namespace;
use vault_tests::signed::{
    RECOVERY, entry, envelopes, file_of, first_root, key, now, roots_range, sign_anything, skill,
    vault_of,
};

use crate::support::{DIFFERENCES, Dice, FIRST, INTEGRITY, NETWORK, Scene, USAGE};

const NEXT: u64 = FIRST + 1;

/// A file with a change to what stands behind the root versions.
fn with_tail(file: &str, change: impl FnOnce(&str) -> String) -> String {
    let (head, tail) = file.split_at(roots_range(file.as_bytes()).end);
    format!("{head}{}", change(tail))
}

/// The text of the catalog's own payload.
fn payload_of(file: &str) -> &str {
    let tail = file.rsplit("\"payload\":\"").next().unwrap();
    tail.split('"').next().unwrap()
}

#[test]
fn one_changed_bit_anywhere_is_refused() {
    let scene = Scene::new();
    let good = scene.next.catalog.clone().unwrap();
    let text = String::from_utf8_lossy(&good);
    let payload = text.rfind("\"payload\":\"").unwrap() + 11;
    let end = text.rfind("\"keyid\":\"").unwrap() - 40;
    let roots = roots_range(&good);
    let mut dice = Dice::new(1);
    // Every third byte around the payload, and fifty places in it; the format crate's own tests
    // change each. Root versions have attacks of their own.
    let mut places: Vec<usize> = (0..payload)
        .chain(end..good.len())
        .filter(|at| !roots.contains(at))
        .step_by(3)
        .collect();
    places.extend((0..50).map(|_| payload + dice.below(end - payload)));
    for at in places {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << dice.below(8);
        let name = format!("byte {at} of {}", good.len());
        scene.host.serve(scene.with_catalog(bytes));
        let before = vault_tests::tree::snapshot(scene.machine.path(), &[]);
        let ran = scene.machine.run("cloud pull --json");
        let word = crate::support::word(&ran);
        assert_eq!(ran.code, INTEGRITY, "{name}: {}", ran.stdout);
        assert!(
            matches!(
                word.as_str(),
                "catalog_schema" | "signatures_missing" | "catalog_key"
            ),
            "{name}: {word}"
        );
        crate::support::unchanged(&scene.machine, &name, &before);
    }
    scene.arrives();
}

#[test]
fn what_is_not_signed_may_change_and_means_nothing() {
    let scene = Scene::new();
    let good = scene.next.catalog.clone().unwrap();
    scene.arrives();
    let text = String::from_utf8(good.clone()).unwrap();
    let unknown = format!("\"signatures\":[{}", extra("whoever"));
    let signed = with_tail(&text, |tail| tail.replacen("\"signatures\":[", &unknown, 1));
    let mut spaced = good.clone();
    spaced.extend_from_slice(b" \n\t\r\n");
    let more =
        String::from_utf8(good.clone())
            .unwrap()
            .replacen('{', "{\"note\":\"from the host\",", 1);
    for bytes in [signed.into_bytes(), spaced, more.into_bytes(), good] {
        scene.host.serve(scene.with_catalog(bytes));
        let ran = scene.machine.run("cloud pull --json").ok();
        let data = &ran.json()["data"];
        assert_eq!(
            (&data["release"], &data["fetched"]),
            (&json!(NEXT), &json!(0))
        );
    }
}

#[test]
fn truncated_and_padded_files_are_refused() {
    let scene = Scene::new();
    let good = scene.next.catalog.clone().unwrap();
    let mut dice = Dice::new(2);
    let mut lengths = vec![0, 1, 2, good.len() / 2, good.len() - 2, good.len() - 1];
    lengths.extend((0..20).map(|_| dice.below(good.len())));
    for length in lengths {
        let namespace = scene.with_catalog(&good[..length]);
        let name = format!("cut at {length}");
        scene.rejects(&name, namespace, "catalog_schema");
    }
    for (name, tail) in [
        ("a letter", &b"x"[..]),
        ("a brace", b"}"),
        ("NUL", b"\0"),
        ("a second file", &good),
        ("a comment", b"// fine"),
        ("a vertical tab", b"\x0b"),
        ("a no-break space", b"\xc2\xa0"),
    ] {
        let namespace = scene.with_catalog([&good[..], tail].concat());
        scene.rejects(name, namespace, "catalog_schema");
    }
    for (name, head) in [
        ("a BOM", &b"\xef\xbb\xbf"[..]),
        ("a letter", b"x"),
        ("[", b"["),
    ] {
        let namespace = scene.with_catalog([head, &good[..]].concat());
        scene.rejects(name, namespace, "catalog_schema");
    }
    scene.arrives();
}

/// A change to a good catalog of the next release, which is then signed as it should be.
type Change = fn(&mut Catalog);

#[test]
fn a_catalog_that_was_signed_for_something_else_is_refused() {
    let scene = Scene::new();
    let entries = [entry("alpha", 2, &scene.bundles[0])];
    let cases: [(&str, Vec<(&str, Change)>); 6] = [
        (
            "catalog_slug",
            vec![("another slug", |c| c.slug = "other".parse().unwrap())],
        ),
        (
            "catalog_vault_id",
            vec![("another vault", |c| c.vault_id = vault_of(9, 9).vault_id())],
        ),
        (
            "catalog_audience",
            vec![
                ("no audience", |c| c.audience.clear()),
                ("another host", |c| {
                    c.audience = vec!["https://vault.example/v/acme/".into()];
                }),
                ("another scheme", |c| {
                    c.audience[0] = c.audience[0].replace("http:", "https:");
                }),
                ("an audience without its last slash", |c| {
                    c.audience[0] = c.audience[0].trim_end_matches('/').into();
                }),
                ("an audience in capitals", |c| {
                    c.audience[0] = c.audience[0].to_uppercase();
                }),
                ("an audience that only begins so", |c| {
                    c.audience[0].push_str("more/");
                }),
            ],
        ),
        (
            "catalog_release",
            vec![
                ("an older release", |c| c.release = FIRST - 1),
                ("release 1", |c| {
                    c.release = 1;
                    c.previous = None;
                }),
                ("the same release, other content", |c| c.release = FIRST),
                ("a release far away", |c| c.release = FIRST + 1_000_001),
            ],
        ),
        (
            "release_expired",
            vec![
                ("expired a second ago", |c| {
                    c.issued_at = now().plus_days(-90).plus_seconds(-1);
                    c.expires_at = now().plus_seconds(-1);
                }),
                ("expired years ago", |c| {
                    c.issued_at = now().plus_days(-3000);
                    c.expires_at = now().plus_days(-2900);
                }),
            ],
        ),
        (
            "root_invalid",
            vec![
                ("another number of its root version", |c| c.root_version = 2),
                ("a root version that nobody has seen", |c| {
                    c.root_sha256 = Digest::of(b"nobody");
                }),
            ],
        ),
    ];
    for (code, cases) in cases {
        // What is over is no sign of an attack.
        let exit = if code == "release_expired" {
            DIFFERENCES
        } else {
            INTEGRITY
        };
        for (name, change) in cases {
            let mut catalog = scene.owner.catalog(NEXT, 0, &entries);
            change(&mut catalog);
            let namespace = scene.with_catalog(scene.owner.sign(&catalog, 0));
            scene.refused(name, namespace, exit, code);
        }
    }
    scene.arrives();
    // The replay of a release that was good once.
    scene.rejects(
        "the first release again",
        scene.first.clone(),
        "catalog_release",
    );
}

#[test]
fn the_same_release_twice_says_that_two_catalogs_exist() {
    let scene = Scene::new();
    let catalog = scene
        .owner
        .catalog(FIRST, 0, &[entry("beta", 1, &scene.bundles[1])]);
    let namespace = scene.with_catalog(scene.owner.sign(&catalog, 0));
    let ran = scene.rejects("two", namespace, "catalog_release");
    assert!(
        ran.stdout
            .contains("two different catalogs carry release 5"),
        "{}",
        ran.stdout
    );
    scene.arrives();
}

#[test]
fn a_catalog_under_another_key_is_refused() {
    let scene = Scene::new();
    let entries = [entry("alpha", 2, &scene.bundles[0])];
    let mine = scene.owner.catalog(NEXT, 0, &entries);
    let theirs = scene.owner.catalog(NEXT, 9, &entries);
    let recovery = scene.owner.catalog(NEXT, RECOVERY, &entries);
    let roots = envelopes(&first_root());
    let signed_as = |kind: &str, catalog: &Catalog, signer: u8, named: u8| {
        let envelope = Envelope::sign(kind, &to_bytes(catalog), &[&key(signer)]);
        file_of(&envelope, &roots, named)
    };
    let catalog_type = vault_format::catalog::PAYLOAD_TYPE;
    let type_of = |kind: &str| signed_as(kind, &mine, 0, 0);
    for (code, cases) in [
        (
            "signatures_missing",
            vec![
                ("another key throughout", scene.owner.sign(&theirs, 9)),
                ("the recovery key", scene.owner.sign(&recovery, RECOVERY)),
                (
                    "another key that claims to be the pinned one",
                    signed_as(catalog_type, &mine, 9, 0),
                ),
            ],
        ),
        (
            "catalog_key",
            vec![
                (
                    "the publisher inside, another key outside",
                    signed_as(catalog_type, &mine, 0, 9),
                ),
                (
                    "another key inside, the publisher outside",
                    signed_as(catalog_type, &theirs, 0, 0),
                ),
            ],
        ),
        (
            "catalog_schema",
            vec![
                (
                    "signed as a manifest",
                    type_of(vault_format::manifest::PAYLOAD_TYPE),
                ),
                (
                    "signed as a root version",
                    type_of(vault_format::root::PAYLOAD_TYPE),
                ),
                (
                    "a type that differs by case",
                    type_of("application/vnd.vault.Catalog.v2+json"),
                ),
                (
                    "no signature",
                    String::from_utf8(scene.owner.sign(&mine, 0))
                        .unwrap()
                        .rsplit_once("\"signatures\":")
                        .map(|(head, _)| format!("{head}\"signatures\":[]}}"))
                        .unwrap()
                        .into_bytes(),
                ),
            ],
        ),
    ] {
        for (name, bytes) in cases {
            scene.rejects(name, scene.with_catalog(bytes), code);
        }
    }
    scene.arrives();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_good_signature_over_bad_json_is_refused() {
    let scene = Scene::new();
    let entries = [
        entry("alpha", 2, &scene.bundles[0]),
        entry("beta", 1, &scene.bundles[1]),
    ];
    let good = String::from_utf8(to_bytes(&scene.owner.catalog(NEXT, 0, &entries))).unwrap();
    let value: Value = serde_json::from_str(&good).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        value.to_string().into_bytes()
    };
    let set =
        |place: &str, member: Value| with(&|v| *v.pointer_mut(place).unwrap() = member.clone());
    let text = |from: &str, to: &str| good.replacen(from, to, 1).into_bytes();
    let release = |text_of: &str| text("\"release\":6", &format!("\"release\":{text_of}"));
    let name = |name: &str| set("/skills/0/name", json!(name));
    let life = |end: Timestamp| {
        with(&|v| {
            v["issued_at"] = json!(now());
            v["expires_at"] = json!(end);
        })
    };
    let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
    let mut not_utf_8 = text("acme", "ac\u{7f}\u{7f}me");
    not_utf_8
        .iter_mut()
        .filter(|byte| **byte == 0x7f)
        .for_each(|byte| *byte = 0xff);
    let withdrawn = json!([{
        "name": "alpha", "bundle_hash": value["skills"][0]["bundle_hash"],
        "reason": "", "since_release": 6,
    }]);
    let members: Vec<_> = value.as_object().unwrap().values().collect();
    let refused = |name: &str, payload: &[u8], code: &str| {
        let file = sign_anything(payload, &envelopes(&first_root()), 0);
        scene.rejects(name, scene.with_catalog(file), code);
    };
    for (name, payload) in [
        ("a BOM", [b"\xef\xbb\xbf", good.as_bytes()].concat()),
        ("a member twice", release("6,\"release\":7")),
        (
            "a member twice, once escaped",
            release("6,\"r\\u0065lease\":7"),
        ),
        (
            "a skill's member twice",
            text("\"version\":2", "\"version\":2,\"version\":3"),
        ),
        (
            "too deep in a member that nobody reads",
            text("{", &format!("{{\"x\":{deep},")),
        ),
        ("an array for an object", json!(members).to_string().into()),
        ("text after the end", format!("{good}{{}}").into()),
        ("an empty payload", Vec::new()),
        ("null", b"null".to_vec()),
        ("invalid UTF-8", not_utf_8),
        ("a lone surrogate", text("\"acme\"", "\"\\ud800\"")),
        ("another schema", set("/schema", json!("vault.catalog/3"))),
        (
            "an earlier schema",
            set("/schema", json!("vault.catalog/1")),
        ),
        ("a fraction", release("6.0")),
        ("an exponent", release("6e0")),
        ("minus zero", release("-0")),
        ("a number as text", set("/release", json!("6"))),
        ("release 0", set("/release", json!(0))),
        ("2^53", set("/release", json!(1_u64 << 53))),
        ("2^64", release("18446744073709551616")),
        (
            "a time with an offset",
            set("/issued_at", json!("2026-11-21T02:00:05+00:00")),
        ),
        (
            "a member missing",
            with(&|v| drop(v.as_object_mut().unwrap().remove("withdrawn"))),
        ),
        (
            "skills out of order",
            with(&|v| v["skills"].as_array_mut().unwrap().reverse()),
        ),
        (
            "a skill twice",
            with(&|v| {
                let one = v["skills"][0].clone();
                v["skills"].as_array_mut().unwrap().insert(0, one);
            }),
        ),
        (
            "another path",
            set("/skills/0/path", json!("bundles/../../etc/passwd")),
        ),
        (
            "the path of another bundle",
            set("/skills/0/path", value["skills"][1]["path"].clone()),
        ),
        (
            "a hash in capitals",
            set("/skills/0/bundle_hash", json!("A".repeat(64))),
        ),
        ("version 0", set("/skills/0/version", json!(0))),
        (
            "over 4 MiB announced",
            set("/skills/0/size", json!((4 << 20) + 1)),
        ),
        ("a name that climbs", name("../alpha")),
        ("a name with a slash", name("a/b")),
        ("a name in capitals", name("Alpha")),
        ("a name that Windows keeps", name("aux")),
        ("an empty name", name("")),
        ("a name of 65", name(&"a".repeat(65))),
        ("a slug that climbs", set("/slug", json!("../acme"))),
        ("offered and withdrawn", set("/withdrawn", withdrawn)),
    ] {
        refused(name, &payload, "catalog_schema");
    }
    for (name, end) in [
        ("a life of 401 days", now().plus_days(401)),
        ("a life of an hour", now().plus_seconds(3600)),
        ("it ends before it begins", now().plus_days(-1)),
    ] {
        refused(name, &life(end), "catalog_clock");
    }
    scene.arrives();
}

#[test]
fn bad_json_around_a_good_signature_is_refused() {
    let scene = Scene::new();
    let good = String::from_utf8(scene.next.catalog.clone().unwrap()).unwrap();
    let payload = payload_of(&good);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (name, text) in [
        (
            "the payload twice",
            with_tail(&good, |tail| {
                tail.replacen("\"payload\":", "\"payload\":\"e30=\",\"payload\":", 1)
            }),
        ),
        (
            "the key twice",
            good.replacen(
                "{\"public_key\":",
                &format!("{{\"public_key\":\"{}\",\"public_key\":", key(9).public()),
                1,
            ),
        ),
        ("depth", good.replacen('{', &format!("{{\"x\":{deep},"), 1)),
        (
            "base64 without padding",
            good.replacen(payload, payload.trim_end_matches('='), 1)
                + if payload.ends_with('=') { "" } else { "x" },
        ),
        (
            "base64 with a line break",
            good.replacen(
                payload,
                &format!("{}\\n{}", &payload[..4], &payload[4..]),
                1,
            ),
        ),
        (
            "seventeen signatures",
            with_tail(&good, |tail| {
                let more: String = (0..16).map(|number| extra(&number.to_string())).collect();
                tail.replacen("\"signatures\":[", &format!("\"signatures\":[{more}"), 1)
            }),
        ),
        (
            "two signatures of one key",
            with_tail(&good, |tail| {
                let more = extra(&key(0).public().key_id().to_string());
                tail.replacen("\"signatures\":[", &format!("\"signatures\":[{more}"), 1)
            }),
        ),
        (
            "no root versions",
            good.replacen("\"roots\":", "\"root\":", 1),
        ),
        ("an array", format!("[{good}]")),
        ("UTF-16", good.chars().flat_map(|c| ['\0', c]).collect()),
    ] {
        scene.rejects(name, scene.with_catalog(text), "catalog_schema");
    }
    scene.arrives();
}

/// An entry with a signature that is no good, before others.
fn extra(keyid: &str) -> String {
    format!(
        "{{\"keyid\":\"{keyid}\",\"sig\":\"{}==\"}},",
        "A".repeat(86)
    )
}

#[test]
fn an_extra_bad_signature_does_not_hurt_a_good_one() {
    let scene = Scene::new();
    let good = String::from_utf8(scene.next.catalog.clone().unwrap()).unwrap();
    let more = extra(&key(5).public().key_id().to_string());
    let file = with_tail(&good, |tail| {
        tail.replacen("\"signatures\":[", &format!("\"signatures\":[{more}"), 1)
    });
    scene.host.serve(scene.with_catalog(file));
    scene.machine.run("cloud pull").ok();
    scene.arrives();
}

#[test]
fn a_machine_whose_clock_was_ahead_is_told_and_refuses_what_is_expired_by_then() {
    let scene = Scene::new();
    // As a machine leaves it whose clock stood a hundred days ahead at its last pull.
    let id = first_root().vault_id();
    scene.machine.change_trust(id.as_str(), |trust| {
        trust["latest_seen_at"] = json!(now().plus_days(100));
    });
    scene.rejects(
        "expired by the latest time seen",
        scene.next.clone(),
        "catalog_clock",
    );

    let mut catalog = scene
        .owner
        .catalog(NEXT, 0, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.expires_at = now().plus_days(200);
    scene
        .host
        .serve(scene.with_catalog(scene.owner.sign(&catalog, 0)));
    let ran = scene.machine.run("cloud pull --json").ok();
    assert_eq!(ran.json()["warnings"][0]["code"], "clock_went_back");
}

#[test]
fn a_time_that_a_clock_showed_by_mistake_is_forgotten_only_when_its_owner_says_so() {
    let scene = Scene::new();
    let id = first_root().vault_id();
    scene.machine.change_trust(id.as_str(), |trust| {
        trust["latest_seen_at"] = json!(now().plus_days(100));
    });
    let warned = |command: &str| {
        let ran = scene.machine.run(command);
        ran.stdout.contains("clock_was_ahead")
    };
    assert!(warned("status --json") && warned("doctor --json"));
    scene.machine.fails("doctor --reset-clock", USAGE, "no_tty");
    scene.rejects("not reset", scene.next.clone(), "catalog_clock");
    let ran = scene.machine.run("doctor --reset-clock --yes --json").ok();
    assert_eq!(ran.json()["data"]["clock_reset"], true);
    assert!(!warned("status --json") && !warned("doctor --json"));
    scene.arrives();
}

#[test]
fn a_catalog_from_the_future_is_good_with_a_warning() {
    let scene = Scene::new();
    let mut catalog = scene
        .owner
        .catalog(NEXT, 0, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.issued_at = now().plus_days(10);
    scene
        .host
        .serve(scene.with_catalog(scene.owner.sign(&catalog, 0)));
    let ran = scene.machine.run("cloud pull --json").ok();
    let warnings = ran.json()["warnings"].to_string();
    assert!(warnings.contains("issued_in_future"), "{warnings}");
}

#[test]
fn withdrawn_bytes_go_even_where_the_rest_of_the_release_is_withheld() {
    let scene = Scene::new();
    let old = skill("alpha", 1, &[]);
    let mut catalog = scene
        .owner
        .catalog(NEXT, 0, &[entry("beta", 1, &scene.bundles[1])]);
    let mut bundle = Namespace::default();
    bundle.put(&old);
    catalog.withdrawn.push(Withdrawn {
        name: "alpha".parse().unwrap(),
        bundle_hash: scene.first.objects.keys().next().unwrap().parse().unwrap(),
        reason: "it leaks".to_owned(),
        since_release: NEXT,
    });
    let mut namespace = scene.with_catalog(scene.owner.sign(&catalog, 0));
    scene.host.serve(namespace.clone());
    scene.host.attack(|request| {
        request
            .path
            .contains("/bundles/")
            .then(|| vault_tests::host::Answer::problem(503, "bundle_unavailable"))
    });
    let there = |name: &str| {
        let listed = scene.machine.run("list --json").ok();
        listed.stdout.contains(&format!("\"name\":\"{name}\""))
    };
    assert!(there("alpha"));
    scene
        .machine
        .fails("cloud pull", NETWORK, "bundle_unavailable");
    assert!(!there("alpha") && !there("beta"));
    namespace
        .objects
        .retain(|hash, _| *hash == scene.bundles[1].hash.to_string());
    scene.host.serve(namespace);
    scene.machine.run("cloud pull --json").ok();
    assert!(!there("alpha") && there("beta"));
}
