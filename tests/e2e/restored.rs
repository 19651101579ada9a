//! A service that was restored from an older backup: what machines and the owner see, and how they
//! come together again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use vault_tests::home::Home;
use vault_tests::server::{Database, Server};
use vault_tests::sweep::copy_home;
use vault_tests::{place, tree};

use crate::support::{self, Files, SLUG, pulled, text};

/// The files of the service's database, as an operator copies them while it is stopped.
fn back_up(server: &mut Server) -> BTreeMap<String, Vec<u8>> {
    server.stop();
    let files = fs::read_dir(server.home.path()).unwrap();
    let kept = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| name(path).starts_with("vault.db"))
        .map(|path| (name(&path), fs::read(path).unwrap()))
        .collect();
    server.resume();
    kept
}

fn restore(server: &mut Server, backup: &BTreeMap<String, Vec<u8>>) {
    server.stop();
    for name in ["vault.db", "vault.db-wal", "vault.db-shm"] {
        let path = server.home.path().join(name);
        match backup.get(name) {
            Some(bytes) => fs::write(path, bytes).unwrap(),
            None => {
                let _ = fs::remove_file(path);
            }
        }
    }
    server.resume();
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn add(home: &Home, line: &str) -> BTreeMap<String, Files> {
    home.add("tool", line).ok();
    BTreeMap::from([(
        "tool".to_owned(),
        tree::files(&home.path().join("work/tool")),
    )])
}

/// An owner with a recovery key, two machines that installed release 1, and a backup of the service
/// from then.
struct Scene {
    server: Server,
    owner: Home,
    seen: Home,
    late: Home,
    sticks: tempfile::TempDir,
    backup: BTreeMap<String, Vec<u8>>,
}

impl Scene {
    fn new() -> Self {
        let mut server = Server::start(&Database::Sqlite);
        let (owner, seen, late) = (Home::new(), Home::new(), Home::new());
        let sticks = tempfile::tempdir().unwrap();
        let first = add(&owner, "As it was at first.");
        let stick = sticks.path().join("vault.recovery");
        owner.json(&format!(
            "key recovery create {} --yes",
            stick.to_str().unwrap()
        ));
        support::connect(&server, &owner, SLUG);
        owner.json("sync --cloud");
        for machine in [&seen, &late] {
            support::link(&server, &owner, machine, SLUG);
            machine.json("cloud pull");
            assert_eq!(pulled(machine), first);
        }
        let backup = back_up(&mut server);
        Self {
            server,
            owner,
            seen,
            late,
            sticks,
            backup,
        }
    }

    fn stick(&self) -> String {
        let path = self.sticks.path().join("vault.recovery");
        path.to_str().unwrap().to_owned()
    }

    fn rotate(&self, home: &Home) -> u64 {
        let rotated = home.json(&format!("key rotate --root-key {} --yes", self.stick()));
        rotated["root_version"].as_u64().unwrap()
    }
}

#[test]
fn a_restored_service_is_noticed_and_the_next_sync_brings_everybody_together() {
    if place::leaves_out("", "the database of the test's own server is copied back") {
        return;
    }
    let mut scene = Scene::new();
    // Two changes of the key between two pulls of a machine.
    scene.rotate(&scene.owner);
    let version = scene.rotate(&scene.owner);
    let second = add(&scene.owner, "As it is now.");
    scene.owner.json("sync --cloud");
    scene.seen.json("cloud pull");
    assert_eq!(pulled(&scene.seen), second);

    restore(&mut scene.server, &scene.backup);
    // Who saw more keeps it, and says that the service went back.
    let refused = scene.seen.refused("cloud pull", 6);
    assert_eq!(refused.code, "signatures_missing", "a key that was retired");
    assert_eq!(pulled(&scene.seen), second);
    let status = scene.seen.run("status --cloud --json").expect_code(6);
    assert_eq!(status.json()["data"]["links"][0]["rolled_back"], true);
    // So does the owner's sync, which then publishes what was lost, above every number that anybody
    // saw.
    scene.owner.fails("sync --cloud", 6, "service_rolled_back");
    let synced = scene.owner.json("sync --cloud --replace");
    assert_eq!(synced["changed"], true, "{synced}");
    for machine in [&scene.seen, &scene.late] {
        machine.json("cloud pull");
        assert_eq!(pulled(machine), second);
        let link = &machine.json("status --cloud")["links"][0];
        assert_eq!(
            (&link["root_version"], &link["release"]),
            (&version.into(), &synced["release"])
        );
        machine.run(&["doctor"]).ok();
    }
}

#[test]
fn a_fork_is_healed_for_machines_that_saw_either_history() {
    if place::leaves_out("", "the database of the test's own server is copied back") {
        return;
    }
    let mut scene = Scene::new();
    let copy = copy_home(&scene.owner);
    // The second file of the recovery key, which does not know what the first one signs.
    let second = scene.sticks.path().join("second.recovery");
    let second = second.to_str().unwrap().to_owned();
    fs::copy(scene.stick(), &second).unwrap();
    scene.rotate(&scene.owner);
    add(&scene.owner, "In the history that is lost.");
    let lost = scene.owner.json("sync --cloud");
    scene.seen.json("cloud pull");

    // The service and the owner's machine both come back from before.
    restore(&mut scene.server, &scene.backup);
    let Scene { seen, late, .. } = &scene;
    let rotate = ["key", "rotate", "--yes", "--root-key"];
    let refused = copy.refused(&[&rotate[..], &[&scene.stick()]].concat(), 6);
    assert_eq!(refused.code, "root_rolled_back", "the file knows better");
    copy.json(&[&rotate[..], &[&second]].concat());
    let files = add(&copy, "In the history that goes on.");
    copy.json("sync --cloud");
    late.json("cloud pull");
    assert_eq!(pulled(late), files);
    seen.fails("cloud pull", 6, "root_forked");
    // The highest numbers that any machine has seen.
    let link = seen.run("status --cloud --json").expect_code(6).json();
    let link = &link["data"]["links"][0];
    assert_eq!(link["release"], lost["release"]);
    let (above, release) = (
        link["root_version"].to_string(),
        lost["release"].to_string(),
    );
    let stick = scene.stick();
    copy.json(&format!(
        "key heal --above {above} --root-key {stick} --yes"
    ));
    copy.json(&format!("sync --cloud --above-release {release} --renew"));
    copy.json("sync --cloud --renew");
    let ran = seen.run("cloud pull --json").ok();
    let warnings = ran.json()["warnings"].to_string();
    assert!(warnings.contains("root_history_differs"), "{warnings}");
    late.json("cloud pull");
    let payloads = [seen, late].map(|machine| {
        assert_eq!(pulled(machine), files);
        machine.run(&["doctor"]).ok();
        let status = machine.json("status --cloud");
        text(&status["links"][0]["payload_sha256"])
    });
    assert_eq!(payloads[0], payloads[1]);
    // The home with the history that was given up publishes nothing more: the vault knows no key of
    // its own now.
    add(&scene.owner, "Once more in the history that is lost.");
    scene.owner.fails("sync --cloud", 6, "skill_damaged");
    late.json("cloud pull");
    assert_eq!(pulled(late), files);
}
