//! Commands that ask a question have made sure of everything before it: who is signed in, how long
//! ago, what they may do, and that the recovery key fits.

use serde_json::json;
use vault_tests::home::{Home, vault_binary};
use vault_tests::place;
use vault_tests::server::{Database, Server};
use vault_tests::terminal::Terminal;

use crate::drafts::two_publishers;
use crate::support::SLUG;

/// What a command shows in a terminal until one of these texts is there.
fn shown_until(home: &Home, command: &str, text: &str) -> Option<String> {
    let line = format!("{} {command}", vault_binary().display());
    let mut terminal = Terminal::start(home.path(), &line)?;
    terminal.wait_for(text);
    let shown = terminal.shown();
    terminal.press(&["\u{3}"]);
    Some(shown)
}

/// Makes the sign-in of a home look as old as one that no service takes for fresh.
fn age_sign_in(server: &Server, home: &Home) {
    let file = home.token_file(&server.url, SLUG);
    let mut tokens: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    tokens["signed_in_at"] = json!(0);
    std::fs::write(&file, tokens.to_string()).unwrap();
}

#[test]
fn what_would_fail_fails_before_the_question() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, bob, stick) = two_publishers(&server);
    // None of these has a terminal or `--yes`: a question would end with 2.
    for command in [
        "publishers threshold 2",
        "publishers remove bob",
        "key rotate",
        "key heal --above 9",
    ] {
        owner.fails(command, 4, "root_key_needed");
    }
    let threshold = |needed: u8| format!("publishers threshold {needed} --root-key {stick}");
    owner.fails(&threshold(3), 1, "root_not_made");
    owner.fails(&threshold(2), 2, "no_tty");
    // Bob has published since.
    bob.add("his", "One.").ok();
    bob.json("sync --cloud");
    let remove = format!("publishers remove bob --root-key {stick}");
    for command in [&threshold(2), &remove] {
        let refused = owner.fails(command, 3, "sync_first");
        let hint = refused.hint.unwrap();
        assert!(hint.ends_with("vault sync"), "{hint}");
    }
    // A stolen key is revoked whatever it published.
    owner.fails(&format!("{remove} --revoke"), 2, "no_tty");
}

#[test]
fn an_old_sign_in_is_renewed_in_the_browser_before_the_question() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, _bob, stick) = two_publishers(&server);
    let remove = format!("publishers remove bob --root-key {stick}");
    let reset = format!("cloud reset-pin {SLUG}");
    for (command, question) in [
        ("users remove bob@example.com", "Remove bob@example.com"),
        (&remove, "from the publishers?"),
        (&reset, "Reset the pin"),
    ] {
        age_sign_in(&server, &owner);
        let page = "Open this address in a browser";
        let Some(shown) = shown_until(&owner, command, page) else {
            return;
        };
        assert!(!shown.contains(question), "{shown}");
    }
}
