//! What a host can do while a machine links: show another key, another vault, or things that paint
//! the terminal.

use serde_json::json;
use vault_tests::home::Home;
use vault_tests::host::{Answer, Host, Namespace};
use vault_tests::signed::{Owner, entry, first_root, now, skill, vault_of};

use crate::support::{
    DIFFERENCES, FAILED, FIRST, INTEGRITY, NETWORK, NOT_ALLOWED, Scene, refused, refused_but_for,
};

#[test]
fn an_expected_key_keeps_out_every_other() {
    let scene = Scene::new();
    let expected = first_root().fingerprint().to_string();
    let shown = vault_of(9, 9).fingerprint().to_string();
    let theirs = skill("alpha", 9, &[]);
    let hostile = scene.owner.under(&vault_of(9, 9));
    let catalog = hostile.signed(FIRST, 9, &[entry("alpha", 9, &theirs)]);
    let hostile = Namespace::new(catalog, &[&theirs]);
    let machine = Home::new();
    let address = scene.host.address();
    scene.host.serve(hostile.clone());
    let link = ["link", &address, "--expect-key", &expected, "--json"];
    let ran = machine.run(&link);
    ran.fails(INTEGRITY, "vault_changed");
    for fingerprint in [&expected, &shown] {
        assert!(ran.stdout.contains(fingerprint.as_str()), "{}", ran.stdout);
    }
    // The machine is enrolled, nothing is pinned: again, and at a pull, the key is asked for.
    refused(&machine, "again", &link, INTEGRITY, "vault_changed");
    refused(
        &machine,
        "pull",
        &format!("cloud pull --expect-key {expected} --json"),
        INTEGRITY,
        "vault_changed",
    );
    // What was expected once is expected of whoever comes next, also where nobody says so again.
    for command in [
        &["cloud", "pull", "--json"][..],
        &["link", &address, "--json"],
    ] {
        refused(
            &machine,
            "without the flag",
            command,
            INTEGRITY,
            "vault_changed",
        );
    }
    for nonsense in ["", "AAAA", &expected[..38], &format!("{expected}A")] {
        refused_but_for(
            &machine,
            nonsense,
            &["link", &address, "--expect-key", nonsense, "--json"],
            2,
            "usage",
            &[".vault/lock", ".vault/links/"],
        );
    }
    scene.host.serve(scene.first.clone());
    let ran = machine.run(&link).ok();
    assert_eq!(ran.json()["data"]["vault_fingerprint"], expected.as_str());

    // Pinned now: another key needs a word of its own.
    scene.host.serve(hostile.clone());
    refused(
        &machine,
        "pinned",
        &format!("link {address} --json"),
        INTEGRITY,
        "vault_changed",
    );
    refused(
        &machine,
        "pinned, the other key expected",
        &format!("link {address} --expect-key {shown} --json"),
        INTEGRITY,
        "vault_changed",
    );
    refused(
        &machine,
        "repin without a terminal",
        &format!("link {address} --repin --json"),
        2,
        "no_tty",
    );
    refused(
        &machine,
        "repin with the old key expected",
        &format!("link {address} --repin --expect-key {expected} --json"),
        INTEGRITY,
        "vault_changed",
    );
    machine
        .run(&format!("link {address} --repin --expect-key {shown}"))
        .ok();
}

#[test]
fn a_key_that_was_expected_before_the_first_release_is_asked_for_at_it() {
    let scene = Scene::new();
    let expected = first_root().fingerprint().to_string();
    let address = scene.host.address();
    let hostile = scene.owner.under(&vault_of(9, 9));
    let hostile = Namespace::new(hostile.signed(FIRST, 9, &[]), &[]);
    scene.host.serve(Namespace::default());
    let machine = Home::new();
    machine
        .run(&format!("link {address} --expect-key {expected}"))
        .ok();
    scene.host.serve(hostile);
    for command in [
        &["cloud", "pull", "--json"][..],
        &["link", &address, "--json"],
    ] {
        let ran = refused(
            &machine,
            "first catalog",
            command,
            INTEGRITY,
            "vault_changed",
        );
        assert!(ran.stdout.contains(&expected), "{}", ran.stdout);
    }
    scene.host.serve(scene.first.clone());
    machine.run("cloud pull").ok();
    let status = machine.run("status --cloud --json").ok();
    assert_eq!(
        status.json()["data"]["links"][0]["vault_fingerprint"],
        expected.as_str()
    );
}

#[test]
fn a_refused_key_says_that_the_machine_is_enrolled() {
    let scene = Scene::new();
    let machine = Home::new();
    let wrong = vault_of(9, 9).fingerprint().to_string();
    let address = scene.host.address();
    let ran = machine.run(&format!("link {address} --expect-key {wrong} --json"));
    assert_eq!(ran.code, INTEGRITY);
    let told = ran.json();
    assert!(
        told["data"]["device_id"]
            .as_str()
            .unwrap()
            .starts_with("dev_"),
        "{told}"
    );
    let fingerprint = told["data"]["device_fingerprint"].as_str().unwrap();
    let hint = told["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains(fingerprint) && hint.contains("enrolled"),
        "{told}"
    );
}

#[test]
fn the_key_that_is_shown_is_the_key_that_is_pinned() {
    let scene = Scene::new();
    let other = vault_of(9, 9);
    let catalog = scene.owner.under(&other).signed(FIRST, 9, &[]);
    scene.host.serve(Namespace::new(catalog, &[]));
    let machine = Home::new();
    let ran = machine.run(&format!("link {}", scene.host.address())).ok();
    assert!(
        ran.stdout.contains(&other.fingerprint().to_string()),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("this machine  dev:"), "{}", ran.stdout);
    // The honest vault comes too late: whoever compares fingerprints sees why.
    scene.host.serve(scene.first.clone());
    refused(
        &machine,
        "late",
        "cloud pull --json",
        INTEGRITY,
        "vault_changed",
    );
}

#[test]
fn a_first_catalog_is_held_to_address_and_clock_too() {
    let host = Host::start();
    let owner = Owner::at(&host);
    for (name, change, exit, code) in [
        (
            "another slug",
            (|c| c.slug = "other".parse().unwrap()) as fn(&mut vault_format::catalog::Catalog),
            INTEGRITY,
            "catalog_slug",
        ),
        (
            "another address",
            |c| c.audience = vec!["https://vault.example/v/acme/".into()],
            INTEGRITY,
            "catalog_audience",
        ),
        (
            "expired",
            |c| {
                c.issued_at = now().plus_days(-9);
                c.expires_at = now().plus_days(-1);
            },
            DIFFERENCES,
            "release_expired",
        ),
    ] {
        let mut catalog = owner.catalog(FIRST, 0, &[]);
        change(&mut catalog);
        host.serve(Namespace::new(owner.sign(&catalog, 0), &[]));
        let machine = Home::new();
        assert_eq!(
            machine
                .run(&format!("link {} --json", host.address()))
                .refused(exit)
                .code,
            code,
            "{name}"
        );
        // Nothing was pinned: the good one is the first.
        host.serve(Namespace::new(owner.signed(1, 0, &[]), &[]));
        let ran = machine.run(&format!("link {} --json", host.address())).ok();
        assert_eq!(ran.json()["data"]["release"], 1, "{name}");
    }
}

#[test]
fn two_vaults_do_not_become_one() {
    let scene = Scene::new();
    // The same publisher, another vault: a vault's id never changes.
    let renamed = vault_of(7, 0);
    let namespace = scene.with_catalog(scene.owner.under(&renamed).signed(FIRST + 1, 0, &[]));
    scene.rejects("another vault", namespace, "vault_changed");
    let mut catalog = scene.owner.catalog(FIRST + 1, 0, &[]);
    catalog.vault_id = renamed.vault_id();
    let namespace = scene.with_catalog(scene.owner.sign(&catalog, 0));
    scene.rejects("the id of another", namespace, "catalog_vault_id");
    // What is good at one address is not at another.
    let elsewhere = Host::start();
    elsewhere.serve(scene.next.clone());
    let machine = Home::new();
    machine.fails(
        &format!("link {}", elsewhere.address()),
        INTEGRITY,
        "catalog_audience",
    );
    // Nor does one device key serve two addresses.
    let device = |host: &Host| {
        host.requests()[0]
            .header("x-vault-device")
            .map(str::to_owned)
    };
    let other = Host::start();
    other.serve(Namespace::new(Owner::at(&other).signed(1, 0, &[]), &[]));
    machine.run(&format!("link {}", other.address())).ok();
    assert_ne!(device(&elsewhere), device(&other));
    scene.arrives();
}

#[test]
fn enrolments_that_are_refused_pin_nothing() {
    let host = Host::start();
    let owner = Owner::at(&host);
    for (answer, exit, code) in [
        (
            Answer::problem(404, "vault_not_found"),
            FAILED,
            "vault_not_found",
        ),
        (
            Answer::problem(409, "pending_queue_full"),
            FAILED,
            "pending_queue_full",
        ),
        (
            Answer::problem(403, "vault_suspended"),
            NOT_ALLOWED,
            "vault_suspended",
        ),
        (
            Answer::problem(429, "rate_limited"),
            NETWORK,
            "rate_limited",
        ),
        (Answer::new(201, "{}"), NETWORK, "answer_unreadable"),
        (Answer::new(200, "<html>"), NETWORK, "answer_unreadable"),
        (
            Answer::new(307, "").with("Location", "/elsewhere"),
            NETWORK,
            "redirect_refused",
        ),
        (
            Answer::new(
                201,
                json!({"device_id": "d", "status": "revoked"}).to_string(),
            ),
            NOT_ALLOWED,
            "device_revoked",
        ),
    ] {
        host.serve(Namespace::new(owner.signed(1, 0, &[]), &[]));
        host.answers("POST", "devices", answer);
        let machine = Home::new();
        machine.fails(&format!("link {}", host.address()), exit, code);
        assert!(
            host.requests()
                .iter()
                .all(|request| request.method == "POST"),
            "{code}"
        );
        host.relent();
        machine.run(&format!("link {}", host.address())).ok();
    }
}

#[test]
fn what_a_host_says_cannot_paint_the_terminal() {
    let host = Host::start();
    let owner = Owner::at(&host);
    let paint = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\r\n";
    for (status, body) in [
        (201, json!({"device_id": paint, "status": "pending"})),
        (201, json!({"device_id": "d", "status": paint})),
        (403, json!({"code": "vault_suspended", "detail": paint})),
        (403, json!({"code": paint, "title": paint})),
        (500, json!({"code": "internal", "request_id": paint})),
    ] {
        host.serve(Namespace::new(owner.signed(1, 0, &[]), &[]));
        host.answers(
            "POST",
            "devices",
            Answer::new(status, body.to_string()).with("Retry-After", "1\t2"),
        );
        let ran = Home::new().run(&format!("link {}", host.address()));
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(
            !said.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{said:?}"
        );
    }
}
