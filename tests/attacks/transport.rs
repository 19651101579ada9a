//! What goes wrong below the bytes: redirects, encodings, lengths, broken connections, refusals
//! with any body.
//!
//! Trouble of the network is exit 7 (the next try may succeed); bytes that nobody signed are exit
//! 6.

use vault_tests::host::{Answer, Host, Wire};

use crate::support::{FAILED, INTEGRITY, NETWORK, NOT_ALLOWED, Scene, instead_of_catalog};

const GZIP_BOMB: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xed\xc1\x01\x0d\x00\x00\x00\xc2\xa0\xf7\x4f\x6d\x0e\x37\xa0";

/// Serves the next release honestly but for the catalog.
#[track_caller]
fn catalog_refused(scene: &Scene, name: &str, answer: Answer, exit: i32, code: &str) {
    scene.host.serve(scene.next.clone());
    scene.host.attack(instead_of_catalog(answer));
    scene.pull_refused(name, exit, code);
}

#[test]
fn no_redirect_is_followed() {
    let scene = Scene::new();
    // It would be believed if it were asked: the same bytes.
    let elsewhere = Host::start();
    elsewhere.serve(scene.next.clone());
    let same = format!("{}/v/acme/catalog.json?again", scene.host.url);
    let other = format!("{}/v/acme/catalog.json", elsewhere.url);
    for status in [300, 301, 302, 303, 304, 305, 307, 308, 399] {
        for target in [&same, &other, "/v/acme/catalog.json", "file:///etc/passwd"] {
            let answer = Answer::new(status, "").with("Location", target);
            let name = format!("{status} to {target}");
            catalog_refused(&scene, &name, answer, NETWORK, "redirect_refused");
        }
    }
    assert_eq!(elsewhere.requests().len(), 0);
    // Nor anywhere else: at the state of the device, and at bundles.
    for path in ["devices/current", "bundles/"] {
        scene.host.serve(scene.next.clone());
        let target = elsewhere.url.clone();
        scene.host.attack(move |request| {
            let location = format!("{target}{}", request.path);
            (request.path.contains(path)).then(|| Answer::new(307, "").with("Location", &location))
        });
        scene.pull_refused(path, NETWORK, "redirect_refused");
    }
    assert_eq!(elsewhere.requests().len(), 0);
    scene.arrives();
}

#[test]
fn no_encoding_is_undone() {
    let scene = Scene::new();
    let catalog = scene.next.catalog.clone().unwrap();
    for encoding in [
        "gzip",
        "br",
        "zstd",
        "deflate",
        "GZIP",
        "identity, gzip",
        "x",
    ] {
        let answer = Answer::new(200, GZIP_BOMB).with("Content-Encoding", encoding);
        catalog_refused(&scene, encoding, answer, NETWORK, "encoding_refused");
        let answer = Answer::new(200, catalog.clone()).with("Content-Encoding", encoding);
        catalog_refused(&scene, encoding, answer, NETWORK, "encoding_refused");
    }
    // Unannounced, it is bytes that nobody signed.
    catalog_refused(
        &scene,
        "bare gzip",
        Answer::new(200, GZIP_BOMB),
        INTEGRITY,
        "catalog_schema",
    );
    let asked = scene.host.requests();
    assert!(!asked.is_empty());
    for request in asked {
        assert_eq!(
            request.header("accept-encoding"),
            Some("identity"),
            "{}",
            request.path
        );
    }
    scene.arrives();
}

#[test]
fn lengths_that_lie_and_bodies_that_end_early() {
    let scene = Scene::new();
    let catalog = scene.next.catalog.clone().unwrap();
    let size = catalog.len() as u64;
    let body = |wire| Answer::new(200, catalog.clone()).over(wire);
    for (exit, code, cases) in [
        (
            NETWORK,
            "broken_off",
            vec![
                ("one byte more announced", body(Wire::Length(size + 1))),
                ("twice as much announced", body(Wire::Length(size * 2))),
                ("cut between two chunks", body(Wire::CutChunks)),
                ("no answer", Answer::new(0, "").over(Wire::Bare)),
                (
                    "not HTTP",
                    Answer::new(0, "220 mail ready\r\n").over(Wire::Bare),
                ),
                (
                    "half a head",
                    Answer::new(0, "HTTP/1.1 200 OK\r\nContent-Le").over(Wire::Bare),
                ),
                (
                    "two lengths",
                    body(Wire::Length(size)).with("Content-Length", "3"),
                ),
                (
                    "a length that is none",
                    Answer::new(0, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx")
                        .over(Wire::Bare),
                ),
                (
                    "a header without end",
                    Answer::new(200, "").with("X", &"y".repeat(2 << 20)),
                ),
            ],
        ),
        (
            INTEGRITY,
            "catalog_schema",
            vec![
                ("one byte less announced", body(Wire::Length(size - 1))),
                ("nothing announced", body(Wire::Length(0))),
            ],
        ),
        (
            NETWORK,
            "too_large",
            vec![
                ("too much announced", body(Wire::Length((4 << 20) + 1))),
                ("absurdly much announced", body(Wire::Length(1 << 60))),
            ],
        ),
    ] {
        for (name, answer) in cases {
            catalog_refused(&scene, name, answer, exit, code);
        }
    }
    scene.arrives();
}

#[test]
fn reading_stops_at_the_ceiling() {
    let scene = Scene::new();
    let endless = Answer::new(200, vec![b' '; 65_536]).over(Wire::Endless);
    catalog_refused(
        &scene,
        "an endless catalog",
        endless.clone(),
        NETWORK,
        "too_large",
    );
    // 4 MiB, and what lay in the system's buffers on the way; the host would send 64.
    assert!(
        scene.host.sent() < 32 << 20,
        "{} bytes were taken",
        scene.host.sent()
    );

    scene.host.serve(scene.next.clone());
    let attack = endless.clone();
    scene.host.answers("GET", "devices/current", attack);
    scene.pull_refused("an endless state", NETWORK, "too_large");
    assert!(
        scene.host.sent() < 32 << 20,
        "{} bytes were taken",
        scene.host.sent()
    );

    // An error may be as long as it likes: its status is what counts, and it is not read to its
    // end.
    catalog_refused(
        &scene,
        "an endless error",
        Answer {
            status: 503,
            ..endless
        },
        NETWORK,
        "http_503",
    );
    assert!(
        scene.host.sent() < 32 << 20,
        "{} bytes were taken",
        scene.host.sent()
    );
    scene.arrives();
}

#[test]
fn refusals_with_any_body_end_in_the_code_of_their_status() {
    let scene = Scene::new();
    let html = "<!doctype html><title>Welcome to the hotel</title>";
    let long = "x".repeat(1 << 20);
    for (status, exit, word) in [
        (400, FAILED, "http_400"),
        (401, NOT_ALLOWED, "http_401"),
        (402, 8, "http_402"),
        (403, NOT_ALLOWED, "http_403"),
        (404, FAILED, "http_404"),
        (405, FAILED, "http_405"),
        (408, NETWORK, "http_408"),
        (410, FAILED, "http_410"),
        (418, FAILED, "http_418"),
        (429, NETWORK, "http_429"),
        (500, NETWORK, "http_500"),
        (502, NETWORK, "http_502"),
        (503, NETWORK, "http_503"),
        (599, NETWORK, "http_599"),
    ] {
        for body in [
            "",
            html,
            "{",
            "null",
            "[]",
            "{\"code\":7}",
            "{\"code\":\"\\u001b[2J\"}",
            &long,
        ] {
            let name = format!("{status} {body:.20}");
            catalog_refused(&scene, &name, Answer::new(status, body), exit, word);
        }
        // The catalog itself under a refusal is a refusal.
        let catalog = scene.next.catalog.clone().unwrap();
        catalog_refused(&scene, "refused", Answer::new(status, catalog), exit, word);
    }
    // A word that means something elsewhere does not change what the status says.
    for (status, code, exit) in [
        (500, "device_revoked", NETWORK),
        (403, "unavailable", NOT_ALLOWED),
        (404, "device_pending", FAILED),
        (429, "catalog_not_published", NETWORK),
        (403, "catalog_not_published", NOT_ALLOWED),
    ] {
        catalog_refused(&scene, code, Answer::problem(status, code), exit, code);
    }
    scene.arrives();
}

#[test]
fn a_page_in_place_of_a_catalog_is_refused() {
    let scene = Scene::new();
    for (name, status, body) in [
        (
            "HTML",
            200,
            "<!doctype html><title>Sign in to the network</title>",
        ),
        ("nothing", 200, ""),
        ("no content", 204, ""),
        ("created", 201, "{}"),
        ("accepted", 202, "null"),
        ("partial", 206, "{\"public_key\":\"\"}"),
    ] {
        catalog_refused(
            &scene,
            name,
            Answer::new(status, body),
            INTEGRITY,
            "catalog_schema",
        );
    }
    scene.arrives();
}

#[test]
fn a_state_of_the_device_that_makes_no_sense_changes_nothing() {
    let scene = Scene::new();
    let huge = format!(
        "{{\"device_id\":\"{}\",\"status\":\"active\"}}",
        "d".repeat(5000)
    );
    for (exit, code, cases) in [
        (
            NETWORK,
            "answer_unreadable",
            vec![
                ("HTML", Answer::new(200, "<html>")),
                ("an array", Answer::new(200, "[]")),
                ("no status", Answer::new(200, "{\"device_id\":\"d\"}")),
                (
                    "a status of a wrong type",
                    Answer::new(200, "{\"device_id\":\"d\",\"status\":1}"),
                ),
                (
                    "a hash that is none",
                    Answer::new(
                        200,
                        "{\"device_id\":\"d\",\"status\":\"active\",\"catalog\":{\"sha256\":\"../x\",\"release\":6}}",
                    ),
                ),
            ],
        ),
        (
            NETWORK,
            "too_large",
            vec![("over 4 KiB", Answer::new(200, huge))],
        ),
        (
            NOT_ALLOWED,
            "device_revoked",
            vec![(
                "revoked",
                Answer::new(200, "{\"device_id\":\"d\",\"status\":\"revoked\"}"),
            )],
        ),
        (
            NOT_ALLOWED,
            "device_unknown",
            vec![("gone", Answer::problem(401, "device_unknown"))],
        ),
        (
            NOT_ALLOWED,
            "timestamp_out_of_range",
            vec![
                (
                    "a clock",
                    Answer::problem(401, "timestamp_out_of_range")
                        .with("Date", "Thu, 01 Jan 1970 00:00:00 GMT"),
                ),
                (
                    "a clock without a date",
                    Answer::problem(401, "timestamp_out_of_range").with("Date", "never"),
                ),
            ],
        ),
    ] {
        for (name, answer) in cases {
            scene.host.serve(scene.next.clone());
            scene.host.answers("GET", "devices/current", answer);
            scene.pull_refused(name, exit, code);
        }
    }
    scene.arrives();
}

#[test]
fn a_body_that_trickles_is_cut_off() {
    let scene = Scene::new();
    let slow = Answer::new(200, vec![b' '; 4000]).over(Wire::Trickle(50));
    catalog_refused(&scene, "twenty bytes a second", slow, NETWORK, "too_slow");
    scene.arrives();
}

#[test]
fn a_host_that_is_gone_is_a_matter_of_the_network() {
    let scene = Scene::new();
    let Scene { host, machine, .. } = scene;
    drop(host);
    let before = vault_tests::tree::snapshot(machine.path(), &[]);
    let ran = machine.run("cloud pull --json");
    assert_eq!(ran.code, NETWORK, "{}", ran.stdout);
    assert!(["unreachable", "broken_off"].contains(&crate::support::word(&ran).as_str()));
    crate::support::unchanged(&machine, "gone", &before);
    // What is installed goes on working.
    machine.run("skill list").ok();
}
