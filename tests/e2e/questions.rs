//! Commands that ask a question have made sure of everything before it: who is signed in, what they
//! may do, and that the recovery key fits. Those that a person confirms in the browser wait.

use vault_tests::browser::Browser;
use vault_tests::home::vault_binary;
use vault_tests::place;
use vault_tests::server::{Database, OWNER_EMAIL, OWNER_PASSWORD, Server};
use vault_tests::terminal::Terminal;

use crate::drafts::two_publishers;
use crate::support::block_on;

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

/// On a terminal the command waits for the person, who confirms on the page or declines.
#[test]
fn a_dangerous_command_waits_for_the_confirmation_on_the_page() {
    if place::leaves_out("", "its people are accounts, which all tests there share") {
        return;
    }
    let server = Server::start(&Database::Sqlite);
    let (owner, _bob, _) = two_publishers(&server);
    let page = "/account/confirm/";
    for (command, decision) in [
        ("users role bob@example.com member --yes", "confirm"),
        ("users remove bob@example.com --yes", "decline"),
    ] {
        let line = format!("{} {command}", vault_binary().display());
        let Some(mut terminal) = Terminal::start(owner.path(), &line) else {
            return;
        };
        terminal.wait_for(page);
        let shown = terminal.shown();
        let address = shown
            .split_whitespace()
            .find(|word| word.contains(page))
            .unwrap()
            .to_owned();
        let told = block_on(async {
            let mut browser = Browser::new();
            browser
                .decide(&address, (OWNER_EMAIL, OWNER_PASSWORD), decision)
                .await
        });
        let (shown, code) = terminal.finish();
        if decision == "confirm" {
            assert!(told.contains("Confirmed"), "{told}");
            assert!(shown.contains("is a member now"), "{shown}");
            assert_eq!(code, 0, "{shown}");
        } else {
            assert!(told.contains("Declined"), "{told}");
            assert!(shown.contains("you declined this"), "{shown}");
            assert_eq!(code, 4, "{shown}");
        }
    }
    // Without a terminal nothing waits, and the address is in the failure.
    let remove = ["users", "remove", "bob@example.com", "--yes", "--json"];
    let refused = owner.run_once(&remove).refused(4);
    assert_eq!(refused.code, "confirmation_declined");
    let role = ["users", "role", "bob@example.com", "publisher", "--json"];
    let refused = owner.run_once(&role).refused(4);
    assert_eq!(refused.code, "confirmation_needed");
    assert!(refused.message.contains(page), "{}", refused.message);
}
