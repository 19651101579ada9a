//! `docs/keys.md`, line by line: every command of every chapter, between the machines that it names
//! and a service.

use std::fs;

use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER};
use vault_tests::server::{Database, OWNER_EMAIL, Server};

use crate::page::{Walk, chapters};
use crate::support::{self, SLUG, text};

#[test]
fn every_chapter_of_the_page_about_keys_works() {
    let server = Server::start(&Database::Sqlite);
    let sticks = tempfile::tempdir().unwrap();
    let address = support::address(&server, SLUG);
    let media = sticks.path().display().to_string();
    let real = [
        ("https://vault.example/v/team", &address[..]),
        ("/media", &media),
    ];
    let mut walk = Walk::new(OWNER, &real);
    for name in ["anna", "laptop", "new", "restored"] {
        let home = Home::new();
        fs::create_dir_all(home.path().join("work")).unwrap();
        walk.machines.insert(name.to_owned(), home);
    }
    for stick in ["stick", "second"] {
        fs::create_dir(sticks.path().join(stick)).unwrap();
    }
    let passphrase = sticks.path().join("second/passphrase");
    fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    let anna = &walk.machines["anna"];
    anna.plain_skill("tool", "A tool.");
    let slug = server.named(SLUG);
    let create = ["operator", "--url", &server.url, "namespace", "create"];
    let owned = [&slug[..], "--owner", OWNER_EMAIL, "--json"];
    anna.sign_in(&[&create[..], &owned].concat(), OWNER, Answer::Pasted)
        .data();

    let chapters = chapters("docs/keys.md");
    assert!(chapters.len() >= 10, "the page has its chapters");
    for (chapter, lines) in &chapters {
        for line in lines {
            walk.run(chapter, line);
        }
    }
    let files = support::pulled(&walk.machines["laptop"]);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["tool"]);
    let shown = text(&walk.machines["new"].json("key show")["fingerprint"]);
    let pinned = walk.machines["laptop"].json("status --cloud");
    assert_eq!(text(&pinned["links"][0]["vault_fingerprint"]), shown);
}
