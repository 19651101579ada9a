//! The server's own vault `default`: what changes in its library is published by itself, and
//! machines pull it.

use std::fs;

use vault_tests::home::Home;
use vault_tests::person::{Answer, OWNER, wait_for};
use vault_tests::server::{Database, Server};
use vault_tests::{place, skills, tree};

use crate::support::{self, address, names, pulled, text};

#[test]
fn a_change_of_the_servers_library_publishes_a_release_on_sqlite() {
    if place::leaves_out("", "a hosted service has no library of its own") {
        return;
    }
    publishes_by_itself(&Database::Sqlite);
}

#[test]
fn a_change_of_the_servers_library_publishes_a_release_on_postgresql() {
    support::on_postgres(publishes_by_itself);
}

/// Pulls until the release is there, and returns what the pull said.
#[track_caller]
fn pull_release(machine: &Home, release: u64) -> serde_json::Value {
    wait_for(|| {
        let pull = machine.json("cloud pull");
        (pull["release"].as_u64() >= Some(release)).then_some(pull)
    })
}

fn publishes_by_itself(database: &Database) {
    // The library lies where VAULT_STORAGE_PATH says, its keys in the configuration folder of
    // whoever serves.
    let storage = tempfile::tempdir().unwrap();
    let root = storage.path().join("library");
    let root = root.to_str().unwrap();
    let mut server = Server::start_with(
        database,
        &[("VAULT_STORAGE_PATH", root), ("VAULT_LIMIT_CATALOG", "0")],
    );
    let vault = address(&server, "default");
    // The same user on the same machine, beside the server.
    let beside = |arguments: &[&str]| {
        let arguments = [arguments, &["--vault", root, "--json"]].concat();
        server.home.run(&arguments).data()
    };

    let machine = Home::new();
    let linked = machine.json(&format!("link {vault}"));
    assert!(linked["release"].is_null(), "{linked}");
    let owner = Home::new();
    let connected = owner
        .sign_in(
            &format!("cloud connect {vault} --json"),
            OWNER,
            Answer::Pasted,
        )
        .data();
    assert_eq!(text(&connected["kind"]), "self_signed");
    owner.json(&format!("devices admit {}", text(&linked["device_id"])));
    assert!(machine.json("cloud pull")["release"].is_null());

    // Added beside the running server.
    let files = skills::awkward_files();
    let mut files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(path, bytes)| (*path, &bytes[..]))
        .collect();
    let first = skills::skill_md("first", "Admitted by the server's library.");
    files.push(("SKILL.md", &first));
    let folder = server.home.skill("first", &files);
    beside(&["add", folder.to_str().unwrap()]);
    let pull = pull_release(&machine, 1);
    assert_eq!(names(&pull["installed"]).len(), 1);
    assert_eq!(
        text(&pull["pinned_fingerprint"]),
        text(&beside(&["key", "show"])["fingerprint"])
    );
    assert_eq!(pulled(&machine)["first"], tree::files(&folder));

    // Changed, and another one added: however many releases that takes, the last one holds both.
    fs::write(folder.join("more.txt"), "more\n").unwrap();
    beside(&["add", folder.to_str().unwrap()]);
    let second = server.home.plain_skill("second", "Another.");
    beside(&["add", second.to_str().unwrap()]);
    wait_for(|| {
        machine.json("cloud pull");
        (pulled(&machine).len() == 2).then_some(())
    });
    assert_eq!(pulled(&machine)["first"], tree::files(&folder));

    // Nobody can push into it, and the refusal says where to go.
    let pushed = Home::new();
    pushed.json(&format!("add {}", folder.to_str().unwrap()));
    pushed
        .sign_in(
            &format!("cloud connect {vault} --json"),
            OWNER,
            Answer::Pasted,
        )
        .data();
    let refused = pushed.fails("sync --cloud", 1, "namespace_self_signed");
    assert!(refused.hint.unwrap().contains("on the server"));

    // What changes while the server is down is published when it is up again.
    let stopped = server.stop();
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    let arguments = ["remove", "second", "--vault", root, "--json"];
    server.home.run(&arguments).data();
    server.resume();
    wait_for(|| {
        machine.json("cloud pull");
        (pulled(&machine).len() == 1).then_some(())
    });
    assert_eq!(pulled(&machine)["first"], tree::files(&folder));
    assert_eq!(server.stop().code, 0);
}
