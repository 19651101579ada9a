//! `kill -9` of `vault sync --cloud`, `vault cloud pull` and `vault link` at a sample of the
//! state-changing calls, with a running server.

use std::fs;
use std::path::PathBuf;

use vault_tests::home::Home;
use vault_tests::server::{Database, Server};
use vault_tests::skills::skill_md;
use vault_tests::sweep::{self, Fault, Point};
use vault_tests::team::Team;
use vault_tests::tree;

use crate::state::{self, Seen};

/// Limits that a sweep would run into are off: they have tests of their own.
pub const NO_LIMITS: [(&str, &str); 6] = [
    ("VAULT_LIMIT_ENROL_SLUG", "0"),
    ("VAULT_LIMIT_ENROL_SOURCE", "0"),
    ("VAULT_LIMIT_CATALOG", "0"),
    ("VAULT_LIMIT_BUNDLES", "0"),
    ("VAULT_LIMIT_TOKEN", "0"),
    ("VAULT_LIMIT_REFRESH", "0"),
];

/// A team whose library holds `witness`, `changes` and `goes`, published as release 1.
pub fn team() -> Team {
    let owner = Home::new();
    owner.plain_skill("witness", "stays");
    owner.plain_skill("goes", "one");
    owner.run("add work/witness work/goes").ok();
    let team = Team::new(Server::start_with(&Database::Sqlite, &NO_LIMITS), owner);
    change(&team, 1);
    assert_eq!(team.sync()["release"], 1);
    team
}

/// Gives `changes` its n-th content, with one file so large that it travels alone.
pub fn change(team: &Team, number: usize) {
    let text = skill_md("changes", &format!("content {number}"));
    let large = vec![u8::try_from(number % 251).unwrap(); 300 * 1024];
    let script = format!("#!/bin/sh\necho {number}\n");
    team.owner.skill(
        "changes",
        &[
            ("SKILL.md", &text),
            ("assets/large.bin", &large),
            ("bin/run.sh", script.as_bytes()),
        ],
    );
    team.owner.run("add work/changes").ok();
}

/// A machine with a skill of its own that is linked to the team and admitted.
pub fn machine(team: &Team, name: &str) -> Home {
    let home = Home::new();
    home.add("own", "mine").ok();
    team.admit(&home, name);
    home
}

/// `vault cloud pull`, which must succeed; the release that it ends with.
#[track_caller]
pub fn pull(home: &Home) -> u64 {
    let pulled = home.run("--json cloud pull").ok().json();
    pulled["data"]["release"].as_u64().expect("a release")
}

/// What is installed from the link, by name and content, and that it is what the owner's library
/// holds.
#[track_caller]
pub fn same_as_owner(team: &Team, machine: &Home) {
    let contents = |seen: Seen, origin: &str| -> Vec<(String, String)> {
        seen.into_iter()
            .filter_map(|(name, shown)| {
                Some((name, shown.strip_prefix(origin)?.trim_start().to_owned()))
            })
            .collect()
    };
    assert_eq!(
        contents(state::seen(machine), "link"),
        contents(state::seen(&team.owner), "local")
    );
}

/// Makes the stored access token look ended, so that the next call exchanges it.
fn end_access_token(home: &Home) {
    for path in token_files(home) {
        let mut tokens: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        tokens["expires_at"] = 1.into();
        fs::write(&path, serde_json::to_vec(&tokens).unwrap()).unwrap();
    }
}

/// The files of the tokens for the team.
pub fn token_files(home: &Home) -> Vec<PathBuf> {
    let root = home.config().join("services");
    tree::snapshot(&root, &[])
        .into_keys()
        .filter(|path| path.ends_with(&format!("{}.json", vault_tests::team::SLUG)))
        .map(|path| root.join(path))
        .collect()
}

/// Sampled so that the whole sweep stays in its time: a round costs six commands.
const SYNC_POINTS: usize = 24;

#[test]
fn a_sync_publishes_the_next_release_or_nothing_and_goes_on() {
    if !sweep::is_ready() {
        return;
    }
    let team = team();
    let reader = machine(&team, "reader");
    assert_eq!(pull(&reader), 1);
    let arguments = ["--json", "sync", "--cloud"];
    change(&team, 2);
    end_access_token(&team.owner);
    let all = sweep::points(&team.owner, &arguments);
    assert_eq!(pull(&reader), 2);
    let tried = sweep::sample(all.clone(), SYNC_POINTS);
    let mut release = 2;
    let (mut old, mut new, mut unharmed) = (0, 0, 0);
    for (round, point) in tried.iter().enumerate() {
        let before = state::seen(&reader);
        change(&team, round + 3);
        // Each round exchanges a token too, which is a change of state at both ends.
        end_access_token(&team.owner);
        let own = state::seen(&team.owner);
        if let Some(ran) = sweep::strike(&team.owner, &arguments, point, Fault::Kill) {
            ran.ok();
            unharmed += 1;
        }
        assert_eq!(state::seen(&team.owner), own, "{point:?}");
        state::whole(&team.owner);
        state::private(&team.owner);
        let shown = pull(&reader);
        if shown == release {
            assert_eq!(state::seen(&reader), before, "{point:?}");
            old += 1;
        } else {
            assert_eq!(shown, release + 1, "{point:?}");
            same_as_owner(&team, &reader);
            new += 1;
        }
        let again = team.sync();
        release += 1;
        assert_eq!(
            again["release"], release,
            "no number is used twice or lost: {point:?} {again}"
        );
        assert_eq!(pull(&reader), release);
        same_as_owner(&team, &reader);
        state::swept(&team.owner);
        state::whole(&reader);
        let pending = tree::snapshot(&team.owner.vault().join("cloud"), &[])
            .into_keys()
            .filter(|path| path.ends_with(".pending.json"))
            .count();
        assert_eq!(pending, 0, "{point:?}");
        if round % 8 == 7 {
            assert_eq!(team.sync()["changed"], false);
        }
    }
    eprintln!(
        "sync: {} of {} points; old {old}, new {new}; not killed {unharmed}",
        tried.len(),
        all.len()
    );
    assert!(old > 0 && new > 0 && unharmed * 5 <= tried.len());
}

#[test]
fn a_pull_installs_the_new_release_or_leaves_the_old_one() {
    if !sweep::is_ready() {
        return;
    }
    let team = team();
    let start = machine(&team, "laptop");
    assert_eq!(pull(&start), 1);
    let before = state::seen(&start);
    // Withdrawn skills go first, so that they go even where the rest fails.
    let mut without_withdrawn = before.clone();
    assert!(without_withdrawn.remove("goes").is_some());
    change(&team, 2);
    team.owner.add("comes", "new").ok();
    let withdraw = ["remove", "goes", "--withdraw", "harmful"];
    team.owner.run(&withdraw).ok();
    team.sync();
    let arguments = ["--json", "cloud", "pull"];
    let model = sweep::copy_home(&start);
    let all = sweep::points(&model, &arguments);
    let end = state::seen(&model);
    same_as_owner(&team, &model);
    let tried = sweep::sample(all.clone(), 24);
    let (mut old, mut new, mut unharmed) = (0, 0, 0);
    for point in &tried {
        let home = sweep::copy_home(&start);
        if let Some(ran) = sweep::strike(&home, &arguments, point, Fault::Kill) {
            ran.ok();
            unharmed += 1;
        }
        let now = state::seen(&home);
        // The pin changes before the skills do: until then it keeps the catalog that lists them.
        if now == before || now == without_withdrawn {
            assert!([1, 2].contains(&state::pinned(&home)), "{point:?}");
            old += 1;
        } else {
            assert_eq!(now, end, "{point:?}");
            assert_eq!(state::pinned(&home), 2, "{point:?}");
            new += 1;
        }
        state::which(&home, "comes", &now);
        state::which(&home, "goes", &now);
        state::whole(&home);
        state::private(&home);
        assert_eq!(pull(&home), 2);
        assert_eq!(state::seen(&home), end, "{point:?}");
        assert_eq!(
            state::whole(&home),
            0,
            "replaced and withdrawn bytes are gone: {point:?}"
        );
        state::swept(&home);
    }
    eprintln!(
        "pull: {} of {} points; old {old}, new {new}; not killed {unharmed}",
        tried.len(),
        all.len()
    );
    assert!(old > 0 && new > 0 && unharmed * 5 <= tried.len());
}

/// The fingerprints of all machines that the owner sees, with their state.
fn devices(team: &Team) -> Vec<(String, String)> {
    let listed = team.owner.run("--json devices list").ok().json();
    let devices = listed["data"].as_array().expect("a list");
    devices
        .iter()
        .map(|device| {
            let text = |field: &str| device[field].as_str().unwrap_or_default().to_owned();
            (text("fingerprint"), text("status"))
        })
        .collect()
}

#[test]
fn a_link_has_one_key_and_enrols_once() {
    if !sweep::is_ready() {
        return;
    }
    let team = team();
    let start = Home::new();
    start.add("own", "mine").ok();
    let before = state::seen(&start);
    let (address, key) = (team.address(), team.fingerprint());
    let arguments = [
        "--json",
        "link",
        &address,
        "--expect-key",
        &key,
        "--hostname",
        "laptop",
    ];
    let all = sweep::points(&sweep::copy_home(&start), &arguments);
    let tried = sweep::spread(all.clone(), 20);
    let (mut enrolled_at_once, mut unharmed) = (0, 0);
    for (round, point) in tried.iter().enumerate() {
        team.owner.run("--yes devices deny --all-pending").ok();
        let home = sweep::copy_home(&start);
        if let Some(ran) = sweep::strike(&home, &arguments, point, Fault::Kill) {
            ran.ok();
            unharmed += 1;
        }
        assert_eq!(state::seen(&home), before, "{point:?}");
        state::whole(&home);
        state::private(&home);
        let waiting = |team: &Team| {
            devices(team)
                .into_iter()
                .filter(|(_, status)| status == "pending")
                .map(|(fingerprint, _)| fingerprint)
                .collect::<Vec<_>>()
        };
        let first = waiting(&team);
        assert!(first.len() <= 1, "{point:?}: {first:?}");
        enrolled_at_once += first.len();
        // A reader of the link in between is told what to do, in words.
        let early = home.run("--json cloud pull");
        let code = early.json()["error"]["code"]
            .as_str()
            .unwrap_or("")
            .to_owned();
        assert!(
            ["not_linked", "device_unknown", "device_pending"].contains(&&*code),
            "{point:?}: {early:?}"
        );
        let linked = home.run(&arguments).ok().json();
        let mine = linked["data"]["device_fingerprint"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(waiting(&team), [mine], "one key, enrolled once: {point:?}");
        assert_eq!(linked["data"]["vault_fingerprint"], key.as_str());
        let links = tree::snapshot(&home.config().join("links"), &[]);
        let keys = links.keys().filter(|path| path.ends_with("/device.key"));
        assert_eq!(keys.count(), 1, "{point:?}: {links:?}");
        state::swept(&home);
        assert_eq!(state::pinned(&home), 1, "{point:?}");
        if round % 8 == 0 {
            let device = linked["data"]["device_id"].as_str().unwrap();
            team.owner.run(&format!("devices admit {device}")).ok();
            assert_eq!(pull(&home), 1);
            state::whole(&home);
        }
    }
    eprintln!(
        "link: {} of {} points; enrolled before the kill {enrolled_at_once}; not killed {unharmed}",
        tried.len(),
        all.len()
    );
    assert!(enrolled_at_once > 0 && unharmed * 5 <= tried.len());
}

#[test]
fn machines_follow_a_rotation_that_was_killed() {
    if !sweep::is_ready() {
        return;
    }
    let team = team();
    let reader = machine(&team, "reader");
    assert_eq!(pull(&reader), 1);
    let arguments = ["--yes", "key", "rotate"];
    // The traced copy must not publish: the service would know its key and not the owner's.
    let traced = ["--offline", "--yes", "key", "rotate"];
    let all = sweep::points(&sweep::copy_home(&team.owner), &traced);
    // Where the order matters most: around the renames that make the new key the key.
    let tried: Vec<Point> = all
        .iter()
        .filter(|point| point.call.starts_with("rename") || point.call.starts_with("unlink"))
        .cloned()
        .collect();
    for point in &tried {
        if let Some(ran) = sweep::strike(&team.owner, &arguments, point, Fault::Kill) {
            ran.ok();
        }
        // The release between the kill and the next try is good too.
        let half = team.sync()["release"].as_u64();
        assert_eq!(Some(pull(&reader)), half, "{point:?}");
        team.owner.run(&arguments).ok();
        let whole = team.sync()["release"].as_u64();
        assert_eq!(Some(pull(&reader)), whole, "{point:?}");
        same_as_owner(&team, &reader);
        state::whole(&reader);
        state::swept(&team.owner);
    }
    eprintln!(
        "rotate and publish: {} of {} points",
        tried.len(),
        all.len()
    );
    assert!(tried.len() >= 3);
}
