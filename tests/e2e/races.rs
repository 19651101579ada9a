//! Two of everything at once: pushes, adds, pulls, a pull during a push.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use serde_json::{Value, json};
use vault_tests::home::{Home, Ran};
use vault_tests::person::{Answer, OWNER};
use vault_tests::place;
use vault_tests::server::{Database, Server};
use vault_tests::sweep;

use crate::support::{self, SLUG, address, block_on, names, pulled, text};

/// Starts all commands, then waits for each.
fn at_once(commands: Vec<Command>) -> Vec<Ran> {
    let started: Vec<_> = commands
        .into_iter()
        .map(|mut command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let waiting: Vec<_> = started
        .into_iter()
        .map(|child| std::thread::spawn(move || Ran::from(child.wait_with_output().unwrap())))
        .collect();
    waiting
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

const SYNC: [&str; 3] = ["sync", "--cloud", "--json"];
const PULL: [&str; 3] = ["cloud", "pull", "--json"];

#[test]
fn of_two_homes_that_push_at_once_one_wins_on_sqlite() {
    two_homes_push(&Database::Sqlite);
}

#[test]
fn of_two_homes_that_push_at_once_one_wins_on_postgresql() {
    support::on_postgres(two_homes_push);
}

/// The owner works on two machines with the same vault and the same key, and pushes from both at
/// the same moment.
fn two_homes_push(database: &Database) {
    let server = Server::start(database);
    let desk = Home::new();
    desk.add("base", "There from the beginning.").ok();
    support::connect(&server, &desk, SLUG);
    desk.json("sync --cloud");
    let other = sweep::copy_home(&desk);
    // Tokens are not shared between machines.
    let vault = address(&server, SLUG);
    other
        .sign_in(
            &format!("cloud connect {vault} --json"),
            OWNER,
            Answer::Pasted,
        )
        .data();

    let mut expected = vec!["base".to_owned()];
    for round in 0..4 {
        for (home, name) in [(&desk, "desk"), (&other, "other")] {
            let name = format!("{name}-{round}");
            home.add(&name, "New on one machine.").ok();
            expected.push(name);
        }
        let ran = at_once(vec![desk.command(&SYNC), other.command(&SYNC)]);
        let won = ran.iter().filter(|ran| ran.code == 0).count();
        assert_eq!(won, 1, "{ran:#?}");
        let (winner, loser) = if ran[0].code == 0 {
            (&desk, &other)
        } else {
            (&other, &desk)
        };
        let lost = ran
            .into_iter()
            .find(|ran| ran.code != 0)
            .unwrap()
            .refused(3);
        assert_eq!(lost.code, "release_diverged", "{lost:?}");
        assert!(lost.hint.unwrap().contains("--adopt"));
        assert_eq!(names(&lost.data["theirs"]).len(), 1);
        // Trying again without deciding changes nothing; taking the others' skills in succeeds.
        loser.fails("sync --cloud", 3, "release_diverged");
        let synced = loser.reviewed("sync --cloud --adopt --yes");
        assert_eq!(synced["changed"], true, "{synced}");
        assert_eq!(names(&synced["adopted"]).len(), 1);
        let synced = winner.reviewed("sync --cloud --adopt --yes");
        assert_eq!(synced["changed"], false, "{synced}");
        assert_eq!(names(&synced["adopted"]).len(), 1);
    }
    expected.sort();
    let history = block_on(support::history(&server, &desk, SLUG));
    support::is_linear(&history);
    assert_eq!(history.len(), 9, "one release from each push that won");
    let last: Vec<String> = history
        .last()
        .unwrap()
        .1
        .skills
        .iter()
        .map(|skill| skill.name.to_string())
        .collect();
    assert_eq!(last, expected);
}

#[test]
fn two_syncs_of_one_home_publish_one_release() {
    let server = Server::start(&Database::Sqlite);
    let home = Home::new();
    home.add("base", "There from the beginning.").ok();
    support::connect(&server, &home, SLUG);
    home.json("sync --cloud");
    for round in 2..=5_u64 {
        home.add("base", &format!("Round {round}.")).ok();
        let ran = at_once((0..3).map(|_| home.command(&SYNC)).collect());
        let releases: Vec<Value> = ran
            .into_iter()
            .map(Ran::data)
            .map(|data| data["release"].clone())
            .collect();
        assert!(
            releases.iter().all(|release| *release == json!(round)),
            "{releases:?}"
        );
        assert_eq!(home.json("sync --cloud")["changed"], false);
    }
    let history = block_on(support::history(&server, &home, SLUG));
    support::is_linear(&history);
    assert_eq!(history.len(), 5);
}

#[test]
fn adds_at_once_on_a_new_home_make_one_vault_with_every_skill() {
    let home = Home::new();
    let folders: Vec<_> = (0..6)
        .map(|at| {
            let name = format!("skill-{at}");
            home.plain_skill(&name, "Added beside others.")
        })
        .collect();
    let ran = at_once(
        folders
            .iter()
            .map(|folder| home.command(&format!("add {} --json", folder.to_str().unwrap())))
            .collect(),
    );
    for ran in ran {
        assert_eq!(ran.data()["added"][0]["admission"], "added");
    }
    let list = home.run("skill list").ok().json();
    assert_eq!(list.as_array().unwrap().len(), 6, "{list}");
    // One key signed them all.
    let keys = home.own_keys();
    assert_eq!(keys.len(), 1, "{keys:?}");

    // The same folder twice at once: one version, not two.
    let folder = home.plain_skill("skill-0", "Changed.");
    let again = ["add", folder.to_str().unwrap(), "--json"];
    let ran = at_once((0..3).map(|_| home.command(&again)).collect());
    let mut words: Vec<String> = ran
        .into_iter()
        .map(|ran| {
            let added = &ran.data()["added"][0];
            assert_eq!(added["version"], 2);
            text(&added["admission"])
        })
        .collect();
    words.sort();
    assert_eq!(words, ["unchanged", "unchanged", "updated"]);
}

#[test]
fn pulls_at_once_leave_what_one_pull_leaves() {
    let server = Server::start(&Database::Sqlite);
    let owner = Home::new();
    for at in 0..8 {
        owner.add(&format!("skill-{at}"), "First.").ok();
    }
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    let machine = Home::new();
    support::link(&server, &owner, &machine, SLUG);
    let alone = sweep::copy_home(&machine);
    for round in 0..3 {
        let ran = at_once((0..3).map(|_| machine.command(&PULL)).collect());
        for ran in ran {
            assert_eq!(ran.data()["release"], round + 1);
        }
        alone.json("cloud pull");
        assert_eq!(pulled(&machine), pulled(&alone));
        // Nothing is left over in the store but what is linked.
        let stored = |home: &Home| {
            std::fs::read_dir(home.vault().join("store"))
                .unwrap()
                .count()
        };
        assert_eq!(stored(&machine), stored(&alone));
        owner.json(&format!("remove skill-{round}"));
        owner.add("skill-7", &format!("Round {round}.")).ok();
        owner.json("sync --cloud");
    }
}

#[test]
fn a_pull_during_pushes_gets_one_release_or_another_and_never_a_mixture() {
    const SKILLS: usize = 4;
    const RELEASES: u64 = 8;
    // The machine asks far more often than a machine does.
    let server = Server::start_with(&Database::Sqlite, &[("VAULT_LIMIT_CATALOG", "0")]);
    let owner = Home::new();
    let write = |release: u64| {
        let mut arguments = vec!["add".to_owned()];
        for at in 0..SKILLS {
            let name = format!("skill-{at}");
            let body = format!("This is release {release}.");
            let folder = owner.plain_skill(&name, &body);
            arguments.push(folder.to_str().unwrap().to_owned());
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        owner.json(&arguments);
    };
    write(1);
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    let machine = Home::new();
    support::link(&server, &owner, &machine, SLUG);

    let done = AtomicBool::new(false);
    let pulls = std::thread::scope(|scope| {
        scope.spawn(|| {
            for release in 2..=RELEASES {
                write(release);
                assert_eq!(owner.json("sync --cloud")["release"], release);
            }
            done.store(true, Ordering::Release);
        });
        let mut pulls = 0;
        let mut last = 0;
        loop {
            let finished = done.load(Ordering::Acquire);
            let pull = machine.json("cloud pull");
            pulls += 1;
            let release = pull["release"].as_u64().unwrap();
            assert!(release >= last, "a release never goes back");
            last = release;
            let body = format!("This is release {release}.\n");
            let there = pulled(&machine);
            assert_eq!(there.len(), SKILLS);
            for (name, files) in there {
                let text = String::from_utf8(files["SKILL.md"].1.clone()).unwrap();
                assert!(text.ends_with(&body), "{name} of release {release}: {text}");
            }
            if finished {
                assert_eq!(release, RELEASES);
                return pulls;
            }
            assert!(pulls < 2000, "the pushes never end");
        }
    });
    assert!(pulls > 1);
}

#[test]
fn what_strangers_write_stops_no_owner_on_sqlite() {
    if !place::leaves_out("", "a deployed service has limits of its own") {
        strangers_write(&Database::Sqlite);
    }
}

#[test]
fn what_strangers_write_stops_no_owner_on_postgresql() {
    support::on_postgres(strangers_write);
}

/// Ends the strangers, also when the owner's part fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Eight strangers register apps as fast as they can, past all limits: each is answered, and the
/// owner reads and writes all the while.
fn strangers_write(database: &Database) {
    let without_limits = [
        ("VAULT_LIMIT_REGISTER", "0"),
        ("VAULT_LIMIT_REGISTER_UNUSED", "0"),
    ];
    let server = Server::start_with(database, &without_limits);
    let desk = Home::new();
    support::connect(&server, &desk, SLUG);
    let (done, registered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let register = async || {
        let client = reqwest::Client::new();
        let url = format!("{}/oauth/register", server.url);
        let body = json!({ "redirect_uris": ["https://app.example/callback"] });
        while !done.load(Ordering::Relaxed) {
            let answer = client.post(&url).json(&body).send().await.unwrap();
            assert_eq!(answer.status(), 201);
            registered.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let strangers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| block_on(register())))
            .collect();
        let ended = Ended(&done);
        while registered.load(Ordering::Relaxed) < 8 {
            assert!(!strangers.iter().any(ScopedJoinHandle::is_finished));
            std::thread::yield_now();
        }
        for n in 0..10 {
            desk.json(&format!("users invite person-{n}@example.com"));
            let users = desk.json("users list");
            assert_eq!(users.as_array().unwrap().len(), n + 2);
        }
        drop(ended);
        for stranger in strangers {
            stranger.join().unwrap();
        }
    });
    assert!(registered.load(Ordering::Relaxed) > 20);
}
