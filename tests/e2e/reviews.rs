//! What a sync says where nobody can answer, and what it refuses where a person sees only a part.

use serde_json::json;
use vault_tests::home::{Home, vault_binary};
use vault_tests::place;
use vault_tests::server::{Database, Server};
use vault_tests::terminal::Terminal;

use crate::drafts::two_publishers;
use crate::support::{self, SLUG};

/// A timer that runs every hour does not send the same review every hour, and takes over nothing.
#[test]
fn a_review_that_waits_is_shown_once_a_day_and_on_a_terminal_whole_or_not_answered() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, bob, _) = two_publishers(&server);
    let lines: Vec<_> = (0..500).map(|at| format!("Line {at}.\n")).collect();
    let long = lines.concat();
    owner.add("long", &long).ok();
    owner.json("sync --cloud");

    let waits = |arguments: &str| {
        let ran = bob.run(arguments).expect_code(3);
        assert!(!bob.vault().join("skills/long").exists(), "{ran:?}");
        ran.stderr
    };
    let first = waits("sync --cloud");
    assert!(first.contains("+ Line 7."), "{first}");
    assert!(first.contains("more changed lines"), "{first}");
    let second = waits("sync --cloud");
    assert!(second.contains("waits for a review since"), "{second}");
    assert!(second.contains("--payload"), "{second}");
    assert!(!second.contains("Line 7."), "{second}");
    let full = waits("sync --cloud --full");
    assert!(full.contains("+ Line 499."), "{full}");

    let line = |more: &str| format!("{} sync --cloud {more}", vault_binary().display());
    let Some(terminal) = Terminal::start(bob.path(), &line("")) else {
        return;
    };
    let (shown, code) = terminal.finish();
    assert_eq!(code, 3, "{shown}");
    assert!(shown.contains("not shown"), "{shown}");
    let mut terminal = Terminal::start(bob.path(), &line("--full")).unwrap();
    terminal.answer("Take over release", &["y", "\r"]);
    let (shown, code) = terminal.finish();
    assert_eq!(code, 0, "{shown}");
    assert!(bob.vault().join("skills/long").exists());

    // What this machine has counted needs no review, and another payload than its own is an error.
    let other = "0".repeat(64);
    let rollback = format!("cloud rollback 2 --payload {other}");
    let refused = bob.fails(&rollback, 3, "review_needed");
    assert_eq!(refused.answer()[0], "--payload");
    let current = bob.json("sync --cloud");
    assert_eq!(current["changed"], json!(false), "{current}");
}

/// Two publishers who propose at once can both go on, and the author of a release that another one
/// completed has it with all its signatures.
#[test]
fn rival_proposals_end_and_their_author_exports_what_another_publisher_completed() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, bob, stick) = two_publishers(&server);
    let stick = &*stick;
    owner.json(&["publishers", "threshold", "2", "--root-key", stick, "--yes"]);
    let proposed = |home: &Home| {
        let ran = home.run("sync --cloud --json").ok();
        let data = ran.json()["data"].clone();
        let id = data["proposed"].as_str().unwrap().to_owned();
        let warnings = ran.json()["warnings"].to_string();
        (data["release"].as_u64().unwrap(), id, warnings)
    };
    let (first, mine, _) = proposed(&owner);
    let own = owner.json(&format!("release sign {mine}"));
    assert_eq!(
        (&own["signatures"], &own["published"]),
        (&json!(1), &json!(false))
    );
    bob.add("beta", "Two.").ok();
    let (second, theirs, said) = proposed(&bob);
    assert_eq!(first, second);
    assert!(said.contains(&mine), "{said}");
    owner.fails(&format!("release sign {theirs}"), 3, "proposal_outdated");
    bob.fails(&format!("release sign {mine}"), 3, "proposal_outdated");
    bob.json(&format!("drafts withdraw {theirs}"));
    let (later, theirs, _) = proposed(&bob);
    assert!(later > first, "{later}");
    owner.reviewed(&format!("release sign {theirs}"));

    // Bob's own record gets the signatures of both, so that what he exports is good elsewhere.
    bob.json("sync --cloud");
    let exported = bob.json("export zip beta");
    assert_eq!(exported["release_awaited"], json!(false), "{exported}");
    let fingerprint = bob.json("key show")["fingerprint"].clone();
    let archive = bob.path().join("beta.zip");
    let (archive, key) = (archive.to_str().unwrap(), fingerprint.as_str().unwrap());
    Home::new().json(&["verify", archive, "--expect-key", key]);

    // New keys come before the release under them, so that Bob can judge it.
    owner.json("sync --cloud");
    bob.add("gamma", "Three.").ok();
    let (_, waiting, _) = proposed(&bob);
    let rotate = ["key", "rotate", "--root-key", stick, "--yes", "--json"];
    let said = owner.run(&rotate).ok().json()["warnings"].to_string();
    assert!(said.contains(&format!("proposal {waiting} by")), "{said}");
    let (_, rotated, _) = proposed(&owner);
    bob.reviewed(&format!("release sign {rotated}"));
}

/// A publisher who has never seen a skill cannot know which version it had. The service names it.
#[test]
fn a_removed_name_that_another_publisher_uses_goes_on_above_its_last_version() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, bob, stick) = two_publishers(&server);
    let machine = Home::new();
    support::link(&server, &owner, &machine, SLUG);
    for body in ["One.", "Two.", "Three."] {
        owner.add("tool", body).ok();
        owner.json("sync --cloud");
    }
    machine.run("cloud pull").ok();
    owner.run("remove tool --yes").ok();
    owner.json("sync --cloud");

    bob.add("tool", "Mine.").ok();
    assert_eq!(bob.json("show tool")["version"], json!(1));
    bob.run("sync --cloud").ok();
    assert_eq!(bob.json("show tool")["version"], json!(4));
    machine.run("cloud pull").ok();
    assert_eq!(machine.json("show tool")["version"], json!(4));

    // The same for a proposal.
    bob.run("remove tool --yes").ok();
    bob.run("sync --cloud").ok();
    owner.json("sync --cloud");
    owner.json(&[
        "publishers",
        "threshold",
        "2",
        "--root-key",
        &stick,
        "--yes",
    ]);
    owner.add("tool", "Ours.").ok();
    let proposed = owner.run("sync --cloud --json").ok().json()["data"].clone();
    assert_eq!(owner.json("show tool")["version"], json!(5), "{proposed}");
}
