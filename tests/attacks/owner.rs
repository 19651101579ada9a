//! A hostile host against the owner: it claims to have what it lacks, shows other catalogs than
//! were pushed, and asks for what it must not get. Nothing is signed because a host says so.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use vault_format::catalog::SignedCatalog;
use vault_format::hash::Digest;
use vault_tests::home::{Home, Ran};
use vault_tests::host::{Answer, Host, Namespace};
use vault_tests::signed::{Owner, key, roots_of, roots_range, sign_anything};
use vault_tests::sweep::copy_home;

use crate::support::{
    DIFFERENCES, Dice, FAILED, INTEGRITY, NETWORK, NOT_ALLOWED, WRITERS, connect, refused,
    refused_but_for, unchanged_but_for,
};

const SYNC: &[&str] = &["sync", "--cloud", "--json"];

/// An owner's machine, connected, with release 1 published.
fn publisher() -> (Host, Home) {
    let host = Host::start();
    let home = Home::new();
    add(&home, "alpha", "one");
    connect(&home, &host.address(), Some).ok();
    assert_eq!(sync(&home)["release"], 1);
    (host, home)
}

fn add(home: &Home, name: &str, body: &str) {
    let folder = home.plain_skill(name, body);
    home.run(&format!("add --replace {}", folder.to_str().unwrap()))
        .ok();
}

#[track_caller]
fn sync(home: &Home) -> Value {
    home.run(SYNC).ok().json()["data"].clone()
}

/// A sync that must end so, change nothing here and write nothing there.
#[track_caller]
fn sync_refused(host: &Host, home: &Home, name: &str, exit: i32, code: &str) -> Ran {
    let ran = refused_but_for(home, name, SYNC, exit, code, WRITERS);
    for request in host.requests() {
        assert_eq!(request.method, "GET", "{name}: {}", request.path);
    }
    ran
}

fn payload(catalog: &[u8]) -> Value {
    let file: Value = serde_json::from_slice(catalog).unwrap();
    let envelope = json!({
        "payloadType": file["payloadType"], "payload": file["payload"], "signatures": file["signatures"],
    });
    let envelope = vault_format::dsse::Envelope::parse(envelope.to_string().as_bytes()).unwrap();
    serde_json::from_slice(envelope.payload()).unwrap()
}

fn puts(host: &Host) -> usize {
    let requests = host.requests();
    let puts = requests
        .iter()
        .filter(|request| request.is_for("PUT", "catalog"));
    puts.count()
}

#[test]
fn a_current_catalog_that_is_not_ours_stops_the_sync() {
    let (host, home) = publisher();
    let good = host.namespace();
    let catalog = good.catalog.clone().unwrap();
    add(&home, "beta", "new");
    let serve = |catalog: Option<Vec<u8>>| {
        host.serve(Namespace {
            catalog,
            ..good.clone()
        });
    };

    serve(None);
    sync_refused(&host, &home, "nothing", INTEGRITY, "service_rolled_back");
    serve(Some(Owner::at(&host).signed(9, 9, &[])));
    sync_refused(&host, &home, "another vault", INTEGRITY, "vault_changed");
    let mut theirs = payload(&catalog);
    theirs["public_key"] = json!(key(9).public());
    theirs["release"] = json!(7);
    let roots = roots_of(&catalog);
    let payload = theirs.to_string();
    serve(Some(sign_anything(payload.as_bytes(), &roots, 9)));
    sync_refused(&host, &home, "another key", INTEGRITY, "catalog_not_ours");
    let inside = self::payload(&catalog)["public_key"]
        .as_str()
        .unwrap()
        .to_owned();
    let outside = String::from_utf8(catalog.clone()).unwrap();
    let outside = outside.replacen(&inside, &key(9).public().to_string(), 1);
    serve(Some(outside.into_bytes()));
    sync_refused(
        &host,
        &home,
        "another key outside",
        INTEGRITY,
        "catalog_key",
    );
    let mut dice = Dice::new(6);
    for _ in 0..20 {
        let mut bytes = catalog.clone();
        let at = dice.below(bytes.len());
        bytes[at] ^= 1 << dice.below(8);
        if roots_range(&catalog).contains(&at) {
            continue; // the owner has these versions, with signatures of its own
        }
        serve(Some(bytes));
        let before = vault_tests::tree::snapshot(home.path(), WRITERS);
        let ran = home.run(SYNC);
        assert_eq!(ran.code, INTEGRITY, "byte {at}: {}", ran.stdout);
        unchanged_but_for(&home, "a bit", &before, WRITERS);
    }
    for (name, bytes) in [
        ("cut", catalog[..catalog.len() - 1].to_vec()),
        ("padded", [&catalog[..], b"x"].concat()),
        ("HTML", b"<html>".to_vec()),
        ("empty", Vec::new()),
    ] {
        serve(Some(bytes));
        sync_refused(&host, &home, name, INTEGRITY, "catalog_schema");
    }
    for (name, answer, exit, code) in [
        (
            "a redirect",
            Answer::new(302, "").with("Location", "/x"),
            NETWORK,
            "redirect_refused",
        ),
        (
            "an encoding",
            Answer::new(200, catalog.clone()).with("Content-Encoding", "gzip"),
            NETWORK,
            "encoding_refused",
        ),
        ("down", Answer::new(503, ""), NETWORK, "http_503"),
        (
            "not an owner",
            Answer::problem(403, "forbidden"),
            NOT_ALLOWED,
            "forbidden",
        ),
        (
            "gone",
            Answer::problem(404, "not_found"),
            FAILED,
            "not_found",
        ),
    ] {
        host.serve(good.clone());
        host.answers_below("/admin", answer);
        sync_refused(&host, &home, name, exit, code);
    }
    host.serve(good);
    assert_eq!(sync(&home)["release"], 2);
}

#[test]
fn older_releases_and_second_catalogs_are_noticed() {
    let (host, home) = publisher();
    let first = host.namespace();
    let twin = copy_home(&home);
    add(&home, "beta", "ours");
    assert_eq!(sync(&home)["release"], 2);
    let second = host.namespace();
    // The same key on another machine, which saw release 1 alone.
    add(&twin, "gamma", "theirs");
    host.serve(first.clone());
    assert_eq!(sync(&twin)["release"], 2);
    let rival = host.namespace();
    add(&twin, "gamma", "theirs, again");
    assert_eq!(sync(&twin)["release"], 3);
    let ahead = host.namespace();

    host.serve(first);
    let ran = sync_refused(
        &host,
        &home,
        "release 1 again",
        INTEGRITY,
        "service_rolled_back",
    );
    assert!(
        ran.stdout.contains("release 2 was published"),
        "{}",
        ran.stdout
    );
    host.serve(rival);
    sync_refused(&host, &home, "another release 2", INTEGRITY, "two_catalogs");
    host.serve(ahead.clone());
    sync_refused(
        &host,
        &home,
        "release 3 of another machine, after another release 2",
        INTEGRITY,
        "catalog_previous",
    );

    // To take theirs in is a decision, and still only what was signed for is taken.
    let file = SignedCatalog::parse(ahead.catalog.as_ref().unwrap()).unwrap();
    let payload = file.payload_sha256();
    let adopt = format!("sync --cloud --adopt --yes --last-good 3:{payload}");
    let mut lying = ahead.clone();
    for bytes in lying.objects.values_mut() {
        bytes[10] ^= 1;
    }
    host.serve(lying);
    refused_but_for(
        &home,
        "adopting changed bytes",
        &format!("{adopt} --json"),
        INTEGRITY,
        "bundle_refused",
        WRITERS,
    );
    host.serve(ahead);
    // Nobody is asked without a terminal, and nothing is taken in unseen.
    let asked = home.run(&adopt).expect_code(3);
    assert!(
        asked.stderr.contains("+ gamma  version"),
        "{}",
        asked.stderr
    );
    home.run(&format!("{adopt} --payload {payload}")).ok();
    assert!(home.run("skill list").ok().stdout.contains("gamma"));

    host.serve(second);
    sync_refused(
        &host,
        &home,
        "release 2 again",
        INTEGRITY,
        "service_rolled_back",
    );
}

#[test]
fn a_host_that_claims_to_have_everything_is_not_told_twice_for_ever() {
    let (host, home) = publisher();
    let good = host.namespace();
    add(&home, "beta", "new");
    host.attack(|request| {
        if request.is_for("POST", "objects/missing") {
            return Some(Answer::json(&json!({ "missing": [] })));
        }
        request
            .is_for("PUT", "catalog")
            .then(|| Answer::problem(409, "objects_missing"))
    });
    home.run(SYNC).fails(FAILED, "objects_missing");
    assert_eq!(puts(&host), 2);
    // Honest again, the same bytes go on: no number is used for two catalogs.
    let sent = host
        .requests()
        .into_iter()
        .find(|request| request.is_for("PUT", "catalog"))
        .unwrap()
        .body;
    host.relent();
    let data = sync(&home);
    assert_eq!(
        (&data["release"], &data["resumed"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(host.namespace().catalog.unwrap(), sent);

    // It takes the release all the same: the owner cannot see that, the machines do, and nothing of
    // theirs changes.
    host.serve(good);
    let machine = Home::new();
    machine.run(&format!("link {}", host.address())).ok();
    machine.run("cloud pull").ok();
    add(&home, "gamma", "newer");
    host.serve(Namespace {
        catalog: Some(sent),
        ..host.namespace()
    });
    host.attack(|request| {
        request
            .is_for("POST", "objects/missing")
            .then(|| Answer::json(&json!({ "missing": [] })))
    });
    assert_eq!(sync(&home)["release"], 3);
    refused(
        &machine,
        "absent",
        "cloud pull --json",
        FAILED,
        "bundle_not_found",
    );
}

#[test]
fn a_host_gets_what_was_planned_and_nothing_that_it_asks_for_besides() {
    let (host, home) = publisher();
    add(&home, "beta", "new");
    let secret = std::fs::read(&home.own_keys()[0]).unwrap();
    let wanted = [
        Digest::of(&secret),
        Digest::of(b"anything"),
        Digest::of(b""),
    ];
    host.attack(move |request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let mut all: Vec<Value> = asked["objects"]
            .as_array()?
            .iter()
            .map(|object| object["sha256"].clone())
            .collect();
        all.extend(wanted.iter().map(|hash| json!(hash)));
        request
            .is_for("POST", "objects/missing")
            .then(|| Answer::json(&json!({ "missing": all })))
    });
    assert_eq!(sync(&home)["release"], 2);
    for (hash, bytes) in host.namespace().objects {
        assert!(!wanted.iter().any(|wanted| wanted.to_string() == hash));
        assert_eq!(Digest::of(&bytes).to_string(), hash);
    }
    for request in host.requests() {
        let holds = request
            .body
            .windows(secret.len())
            .any(|window| window == secret);
        assert!(!holds, "{} carries a key", request.path);
    }
    // What is no list of hashes is no answer.
    add(&home, "gamma", "newer");
    for answer in [
        json!({ "missing": ["../../keys"] }),
        json!({ "missing": "all" }),
        json!([]),
        json!(null),
    ] {
        let answer = Answer::json(&answer);
        host.answers("POST", "objects/missing", answer);
        home.run(SYNC).fails(NETWORK, "answer_unreadable");
        assert_eq!(puts(&host), 0);
    }
}

#[test]
fn a_conflict_without_end_burns_no_numbers() {
    let (host, home) = publisher();
    add(&home, "beta", "new");
    host.answers("PUT", "catalog", Answer::problem(412, "release_conflict"));
    for _ in 0..3 {
        home.run(SYNC).fails(DIFFERENCES, "release_conflict");
    }
    let put: Vec<_> = host
        .requests()
        .into_iter()
        .filter(|request| request.is_for("PUT", "catalog"))
        .map(|request| request.body)
        .collect();
    assert_eq!(put.len(), 6);
    assert!(
        put.iter().all(|body| *body == put[0]),
        "one number, one catalog"
    );
    host.relent();
    assert_eq!(sync(&home)["release"], 2);
}

#[test]
fn a_push_that_was_acknowledged_and_dropped_is_noticed_at_the_next() {
    let (host, home) = publisher();
    add(&home, "beta", "new");
    host.attack(|request| {
        request
            .is_for("PUT", "catalog")
            .then(|| Answer::json(&json!({ "release": { "release": 2 } })))
    });
    assert_eq!(sync(&home)["release"], 2);
    let kept = host.namespace();
    host.serve(kept);
    sync_refused(&host, &home, "dropped", INTEGRITY, "service_rolled_back");
    // A restore on purpose is the owner's own word.
    let ran = home.run("sync --cloud --replace --json").ok();
    assert_eq!(ran.json()["data"]["release"], 3);
    let previous = payload(&host.namespace().catalog.unwrap())["previous"]["release"].clone();
    assert_eq!(previous, 1, "it follows what the service has");
}

#[test]
fn a_push_that_arrived_but_was_not_acknowledged_is_the_same_push() {
    let (host, home) = publisher();
    add(&home, "beta", "new");
    host.answers("PUT", "catalog", Answer::new(500, ""));
    let ran = home.run(SYNC);
    assert_eq!(ran.code, NETWORK, "{}", ran.stdout);
    let sent = host
        .requests()
        .into_iter()
        .find(|request| request.is_for("PUT", "catalog"))
        .unwrap()
        .body;
    host.serve(Namespace {
        catalog: Some(sent),
        ..host.namespace()
    });
    let data = sync(&home);
    assert_eq!(
        (&data["release"], &data["changed"]),
        (&json!(2), &json!(false))
    );
    assert_eq!(puts(&host), 0);
}

#[test]
fn a_rollback_signs_the_release_that_was_asked_for_and_no_other() {
    let (host, home) = publisher();
    let mut releases = vec![host.namespace().catalog.unwrap()];
    for body in ["two", "three"] {
        add(&home, "alpha", body);
        sync(&home);
        releases.push(host.namespace().catalog.unwrap());
    }
    let good = host.namespace();
    let asked = ["--yes", "cloud", "rollback", "2", "--json"];
    let mut theirs = payload(&releases[1]);
    theirs["public_key"] = json!(key(9).public());
    for (name, bytes, code) in [
        ("release 1", releases[0].clone(), "catalog_release"),
        ("release 3", releases[2].clone(), "catalog_release"),
        (
            "another key",
            sign_anything(theirs.to_string().as_bytes(), &roots_of(&releases[1]), 9),
            "catalog_not_ours",
        ),
        (
            "another vault",
            Owner::at(&host).signed(2, 9, &[]),
            "catalog_not_ours",
        ),
        ("HTML", b"<html>".to_vec(), "catalog_schema"),
    ] {
        host.serve(good.clone());
        let answer = Answer::new(200, bytes);
        host.answers("GET", "releases/2/catalog", answer);
        refused_but_for(&home, name, &asked, INTEGRITY, code, WRITERS);
        for request in host.requests() {
            assert_eq!(request.method, "GET", "{name}");
        }
    }
    host.serve(good);
    let ran = home.run(&asked).ok();
    assert_eq!(ran.json()["data"]["sync"]["release"], 4);
    let text = std::fs::read_to_string(home.vault().join("skills/alpha/SKILL.md")).unwrap();
    assert!(text.contains("two"));
}

#[test]
fn a_bearer_goes_to_its_own_service_and_is_refreshed_once() {
    let (host, home) = publisher();
    let elsewhere = Host::start();
    let tries = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&tries);
    host.attack(move |request| {
        if request.path == "/oauth/token" {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        request
            .path
            .starts_with("/admin")
            .then(|| Answer::problem(401, "token_invalid"))
    });
    home.run(SYNC).fails(NOT_ALLOWED, "signed_out");
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    // Redirected to another origin, neither bearer nor refresh token follows.
    for path in ["/admin", "/oauth/token"] {
        let target = elsewhere.url.clone();
        host.attack(move |request| {
            if request.path.starts_with(path) {
                let location = format!("{target}{}", request.path);
                return Some(Answer::new(307, "").with("Location", &location));
            }
            request
                .path
                .starts_with("/admin")
                .then(|| Answer::problem(401, "token_invalid"))
        });
        home.run(SYNC).fails(NETWORK, "redirect_refused");
    }
    assert_eq!(elsewhere.requests().len(), 0);
    // Nor does a library that is connected elsewhere take it along.
    home.run(&format!(
        "cloud connect {} --no-sign-in",
        elsewhere.address()
    ))
    .ok();
    home.run(SYNC).fails(NOT_ALLOWED, "signed_out");
    assert_eq!(elsewhere.requests().len(), 0);
}

#[test]
fn what_a_host_tells_an_owner_cannot_paint_the_terminal() {
    let (host, home) = publisher();
    let paint = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\r\n";
    let device = json!({
        "device_id": paint, "status": "pending", "hostname": paint, "public_key": paint,
        "enrolled_at": paint, "last_seen_at": paint,
    });
    let vault =
        json!({ "slug": paint, "role": paint, paint: paint, "pin": { "key": paint, paint: 1 } });
    host.attack(move |request| {
        if request.path.contains("/devices") {
            return Some(Answer::json(&json!({ "items": [device], "next": null })));
        }
        (request.path == "/admin/vaults/acme").then(|| Answer::json(&vault))
    });
    for command in [
        &["devices", "list"][..],
        &["status", "--cloud"],
        &["devices", "admit", "nobody"],
        &["sync", "--cloud"],
    ] {
        let ran = home.run(command);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            !said.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{command:?}: {said:?}"
        );
    }
}
