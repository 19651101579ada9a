//! A namespace whose content is replaced from outside: by another vault after its pin was reset,
//! and by an older backup.

use std::fs;
use std::path::Path;

use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER};
use vault_tests::place;
use vault_tests::server::{Database, Server};

use crate::support::{self, SLUG, address, fingerprint, link, pulled};

const INTEGRITY: i32 = 6;

#[track_caller]
fn add(home: &Home, name: &str) {
    home.add(name, "A skill.").ok();
}

#[track_caller]
fn connect(server: &Server, home: &Home) {
    let vault = address(server, SLUG);
    let connect = ["cloud", "connect", &vault, "--json"];
    home.sign_in(&connect, OWNER, Answer::Pasted).data();
}

#[test]
fn a_new_vault_follows_once_the_pin_is_reset() {
    let server = Server::start(&Database::Sqlite);
    let (old, new) = (Home::new(), Home::new());
    add(&old, "before");
    support::connect(&server, &old, SLUG);
    old.json("sync --cloud");
    let laptop = Home::new();
    link(&server, &old, &laptop, SLUG);
    laptop.json("cloud pull");

    add(&new, "after");
    connect(&server, &new);
    let sync = ["sync", "--cloud"];
    new.fails(&sync, INTEGRITY, "vault_changed");
    // The slug is typed, and a machine without a terminal answers the question by a flag.
    let slug = support::slug(&server);
    let reset = ["cloud", "reset-pin", &slug, "--yes"];
    let other = ["cloud", "reset-pin", "another", "--yes"];
    new.fails(&other, 2, "slug_twice");
    new.refused(&reset[..3], 2);
    new.fails(&sync, INTEGRITY, "vault_changed");
    new.json(&reset);
    assert_eq!(new.json(&sync)["changed"], true);
    assert_eq!(new.json(&sync)["changed"], false);

    // The reset changes no linked machine, and the old vault can't come back by itself.
    laptop.fails("cloud pull", INTEGRITY, "vault_changed");
    assert!(pulled(&laptop).contains_key("before"));
    old.fails(&sync, INTEGRITY, "vault_changed");
    let other = Home::new();
    link(&server, &new, &other, SLUG);
    other.json("cloud pull");
    assert!(pulled(&other).contains_key("after"));
}

/// Puts the database back as it was.
fn restore(server: &mut Server, backup: &Path) {
    server.stop().ok();
    for entry in fs::read_dir(server.home.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("vault.db") {
            fs::remove_file(path).unwrap();
        }
    }
    fs::copy(backup, server.home.path().join("vault.db")).unwrap();
    server.resume();
}

/// The catalog and the pin of the service are older than what its owner and a machine have seen.
#[test]
fn a_restored_backup_is_noticed_and_the_owner_publishes_over_it() {
    if place::leaves_out("", "the database of a deployed service is not put back") {
        return;
    }
    let mut server = Server::start(&Database::Sqlite);
    let (owner, laptop, late) = (Home::new(), Home::new(), Home::new());
    let stick = owner.path().join("vault.recovery");
    let stick = stick.to_str().unwrap();
    add(&owner, "one");
    owner.json(&format!("key recovery create {stick} --yes"));
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    for machine in [&laptop, &late] {
        link(&server, &owner, machine, SLUG);
        machine.json("cloud pull");
    }
    server.stop().ok();
    let backup = server.home.path().join("backup");
    fs::copy(server.home.path().join("vault.db"), &backup).unwrap();
    server.resume();

    // Another key, another release: this machine has seen both, the late one neither.
    owner.json(&format!("key rotate --root-key {stick} --yes"));
    add(&owner, "two");
    owner.json("sync --cloud");
    laptop.json("cloud pull");
    let seen = laptop.json("status --cloud");
    restore(&mut server, &backup);

    laptop.fails("cloud pull", INTEGRITY, "signatures_missing");
    assert_eq!(pulled(&laptop).len(), 2, "installed skills stay");
    let status = laptop.run("status --cloud --json");
    let status = status.expect_code(INTEGRITY).json();
    let link = &status["data"]["links"][0];
    assert_eq!(link["root_version"], seen["links"][0]["root_version"]);
    assert_eq!(link["rolled_back"], true);
    // The late machine has nothing newer to compare with.
    late.json("cloud pull");
    let sync = ["sync", "--cloud"];
    owner.fails(&sync, INTEGRITY, "service_rolled_back");
    let synced = owner.json("sync --cloud --replace");
    assert_eq!(synced["changed"], true);
    for machine in [&laptop, &late] {
        machine.json("cloud pull");
        assert_eq!(pulled(machine).len(), 2);
        machine.json(&["doctor"]);
    }
    let own = fingerprint(&owner);
    let status = laptop.json("status --cloud");
    assert_eq!(status["links"][0]["vault_fingerprint"], own.as_str());
}
