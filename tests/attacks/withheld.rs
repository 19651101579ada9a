//! A host that shows less, or older things, than there is.

use serde_json::json;
use vault_format::hash::Digest;
use vault_tests::home::Home;
use vault_tests::host::{Answer, Namespace};
use vault_tests::signed::{entry, first_root, now, skill, vault_of};

use crate::support::{DIFFERENCES, FIRST, INTEGRITY, NETWORK, NOT_ALLOWED, Scene, refused};

const NEXT: u64 = FIRST + 1;

#[test]
fn a_catalog_that_is_gone_is_a_rollback_for_those_who_saw_it() {
    let scene = Scene::new();
    let ran = scene.rejects("gone", Namespace::default(), "service_rolled_back");
    assert!(ran.stdout.contains("release 5 is pinned"), "{}", ran.stdout);
    let address = scene.host.address();
    refused(
        &scene.machine,
        "at another link",
        &format!("link {address} --json"),
        INTEGRITY,
        "service_rolled_back",
    );
    // For a machine that saw none it is a vault without a release.
    let other = Home::new();
    other.run(&format!("link {address}")).ok();
    let ran = other.run("cloud pull --json").ok();
    assert_eq!(ran.json()["data"]["release"], json!(null));
    scene.arrives();
}

#[test]
fn a_status_says_when_the_service_shows_less_than_is_pinned() {
    let scene = Scene::new();
    let ran = scene.machine.run("status --cloud --json").ok();
    assert_eq!(ran.json()["data"]["links"][0]["rolled_back"], false);
    let older = Namespace::new(scene.owner.signed(FIRST - 1, 0, &[]), &[]);
    for (shown, namespace) in [
        (json!(FIRST - 1), older),
        (json!(null), Namespace::default()),
    ] {
        scene.host.serve(namespace);
        let ran = refused_word(&scene.machine);
        assert_eq!(ran["links"][0]["offered_release"], shown);
        assert_eq!(ran["links"][0]["rolled_back"], true);
        let text = scene.machine.run("status --cloud");
        assert_eq!(text.code, INTEGRITY);
        assert!(
            text.stdout.contains("5, but the service shows"),
            "{}",
            text.stdout
        );
        assert!(text.stderr.contains("rolled back"), "{}", text.stderr);
    }
    scene.host.serve(scene.next.clone());
    let ran = scene.machine.run("status --cloud --json").ok();
    assert_eq!(ran.json()["data"]["links"][0]["rolled_back"], false);
}

#[test]
fn a_host_that_shuts_a_machine_out_takes_nothing_from_it() {
    let scene = Scene::new();
    let answers = [
        ("suspended", Answer::problem(403, "vault_suspended")),
        ("unknown", Answer::problem(403, "device_unknown")),
        ("gone", Answer::problem(404, "vault_not_found")),
        ("unsigned", Answer::problem(401, "signature_required")),
    ];
    for (name, answer) in answers {
        scene.host.serve(scene.next.clone());
        let shown = answer.clone();
        scene.host.attack(move |_| Some(shown.clone()));
        for command in [&["cloud", "pull"][..], &["status", "--cloud"]] {
            let ran = scene.machine.run(command);
            assert_ne!(ran.code, 0, "{name}: {}", ran.stdout);
        }
        scene.machine.run("skill which alpha").ok();
        scene.machine.run(&["verify"]).ok();
    }
    let mut revoked = scene.next.clone();
    revoked.status = Some("revoked".to_owned());
    scene.host.serve(revoked);
    let ran = scene.machine.run("cloud pull --json");
    assert_eq!(crate::support::word(&ran), "device_revoked");
    scene.machine.run("skill which alpha").ok();
    scene.arrives();
}

/// The data of a status that warns of a rollback.
fn refused_word(machine: &Home) -> serde_json::Value {
    let ran = machine.run("status --cloud --json");
    assert_eq!(ran.code, INTEGRITY, "{}", ran.stderr);
    let told = ran.json();
    let warnings = told["warnings"].as_array().unwrap();
    let is_word = |warning: &serde_json::Value| warning["code"] == "service_rolled_back";
    assert!(warnings.iter().any(is_word), "{told}");
    told["data"].clone()
}

#[test]
fn a_release_without_a_skill_is_an_older_one_or_the_owner_s_own() {
    let scene = Scene::new();
    scene.arrives();
    scene.rejects("the release before", scene.first.clone(), "catalog_release");
    let mut catalog = scene
        .owner
        .catalog(NEXT, 0, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.issued_at = now().plus_seconds(-60);
    let namespace = scene.with_catalog(scene.owner.sign(&catalog, 0));
    scene.rejects("the same without one skill", namespace, "catalog_release");
    // Cut out of the signed list, the signature no longer holds.
    let good = String::from_utf8(scene.next.catalog.clone().unwrap()).unwrap();
    let payload = good.rsplit("\"payload\":\"").next().unwrap();
    let payload = payload.split('"').next().unwrap();
    let namespace = scene.with_catalog(good.replace(payload, "e30="));
    scene.rejects("an empty payload", namespace, "signatures_missing");
}

#[test]
fn a_host_that_says_nothing_changed_freezes_and_nothing_worse() {
    let scene = Scene::new();
    let stored = scene.first.catalog.clone().unwrap();
    scene.host.serve(scene.next.clone());
    scene.host.attack(move |request| {
        request.is_for("GET", "devices/current").then(|| {
            Answer::json(&json!({
                "device_id": "dev_a", "status": "active",
                "catalog": { "sha256": Digest::of(&stored), "size": stored.len(), "release": FIRST },
            }))
        })
    });
    let ran = scene.machine.run("cloud pull --json").ok();
    assert_eq!(ran.json()["data"]["release"], FIRST);
    assert!(
        scene
            .host
            .requests()
            .iter()
            .all(|request| !request.path.contains("catalog"))
    );
    for status in [204, 304] {
        scene
            .host
            .answers("GET", "devices/current", Answer::new(status, ""));
        let code = if status == 204 {
            "answer_unreadable"
        } else {
            "redirect_refused"
        };
        refused(
            &scene.machine,
            "no news",
            "cloud pull --json",
            NETWORK,
            code,
        );
    }
    scene.arrives();
}

#[test]
fn a_release_that_is_shown_for_ever_is_stale_when_it_expires() {
    let scene = Scene::new();
    // Good for two more days at its pull; then the machine has seen later times.
    let id = first_root().vault_id();
    scene.machine.change_trust(id.as_str(), |trust| {
        trust["latest_seen_at"] = json!(now().plus_days(91));
    });

    let ran = scene.rejects("frozen", scene.first.clone(), "catalog_clock");
    assert!(ran.stdout.contains("--reset-clock"), "{}", ran.stdout);
    let status = scene.machine.run("status --cloud");
    let said = format!("{}{}", status.stdout, status.stderr);
    assert!(said.contains("stale since"), "{said}");
    // What is installed goes on working.
    let list = scene.machine.run("skill list").ok();
    assert!(list.stdout.contains("alpha"));
    // A renewed release ends it.
    let mut catalog = scene
        .owner
        .catalog(NEXT, 0, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.expires_at = now().plus_days(180);
    scene
        .host
        .serve(scene.with_catalog(scene.owner.sign(&catalog, 0)));
    scene.machine.run("cloud pull").ok();
}

#[test]
fn the_host_s_clock_decides_about_nothing() {
    let scene = Scene::new();
    let next = scene.next.catalog.clone().unwrap();
    for date in [
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "soon",
    ] {
        scene.host.serve(scene.next.clone());
        let answer = Answer::new(200, next.clone()).with("Date", date);
        scene
            .host
            .attack(crate::support::instead_of_catalog(answer));
        scene.machine.run("cloud pull").ok();
    }
    let mut catalog = scene
        .owner
        .catalog(NEXT + 1, 0, &[entry("alpha", 2, &scene.bundles[0])]);
    catalog.issued_at = now().plus_days(-91);
    catalog.expires_at = now().plus_days(-1);
    let expired = scene.owner.sign(&catalog, 0);
    scene.host.serve(scene.with_catalog(expired.clone()));
    let answer = Answer::new(200, expired).with("Date", "Thu, 01 Jan 1970 00:00:00 GMT");
    scene
        .host
        .attack(crate::support::instead_of_catalog(answer));
    refused(
        &scene.machine,
        "expired",
        "cloud pull --json",
        DIFFERENCES,
        "release_expired",
    );
    scene.arrives();
}

#[test]
fn what_a_host_says_of_a_device_opens_nothing() {
    let scene = Scene::new();
    // Pending: the catalog is pinned, nothing is installed or removed.
    let mut pending = scene.next.clone();
    pending.status = Some("pending".to_owned());
    scene.host.serve(pending);
    scene
        .machine
        .fails("cloud pull", NOT_ALLOWED, "device_pending");
    let list = scene.machine.run("skill list").ok().stdout;
    assert!(list.contains("alpha") && !list.contains("beta"), "{list}");
    let used = scene.machine.run("skill which alpha --json");
    assert_eq!(used.code, 0, "{}", used.stdout);
    scene.machine.run(&["verify"]).ok();
    scene
        .machine
        .run(&format!("link {}", scene.host.address()))
        .ok();
    scene.machine.run("skill which alpha").ok();
    scene.arrives();
    // Active for a machine that the vault does not know: it still has to be signed bytes.
    let stranger = Home::new();
    let theirs = skill("gamma", 1, &[]);
    let hostile = scene.owner.under(&vault_of(9, 9));
    let catalog = hostile.signed(NEXT, 9, &[entry("gamma", 1, &theirs)]);
    scene.host.serve(Namespace::new(catalog, &[&theirs]));
    stranger.run(&format!("link {}", scene.host.address())).ok();
    // The first look makes the index, which can be deleted at any time.
    stranger.run("cloud pull");
    refused(
        &stranger,
        "another key's skill",
        "cloud pull --json",
        INTEGRITY,
        "bundle_refused",
    );
    // A machine that is linked to nothing asks nobody.
    let unlinked = Home::new();
    scene.host.serve(scene.next.clone());
    refused(
        &unlinked,
        "not linked",
        "cloud pull --json",
        2,
        "not_linked",
    );
    assert_eq!(scene.host.requests().len(), 0);
}

#[test]
fn every_request_is_for_the_pinned_slug_and_carries_nothing_else() {
    let scene = Scene::new();
    scene.arrives();
    for request in scene.host.requests() {
        assert!(request.path.starts_with("/v/acme/"), "{}", request.path);
        assert_eq!(request.method, "GET");
        assert!(request.body.is_empty());
        for header in [
            "cookie",
            "authorization",
            "referer",
            "range",
            "if-none-match",
        ] {
            assert_eq!(request.header(header), None, "{header}");
        }
        assert!(request.header("x-vault-signature").is_some());
    }
}
