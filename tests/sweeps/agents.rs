//! `kill -9` of the commands that change what agents see, with three agents whose folders hold
//! things of their own.
//!
//! What is listed and what each folder shows is the old or the new, entry by entry, at every point;
//! nothing of the user's is changed; the same command given again succeeds, and `vault doctor` has
//! nothing to say then.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use vault_tests::home::{Home, Ran};
use vault_tests::skills::skill_md;
use vault_tests::sweep::{self, Fault, Kept, Point};
use vault_tests::tree::{self, Entry};

use crate::state::{self, Seen};

/// The folders that the three agents read.
pub const ROOTS: [&str; 3] = [".claude/skills", ".agents/skills", ".cursor/skills"];

/// What is listed, what each agent's folder shows, and the project's lock. Panics at a link that
/// leads nowhere.
#[track_caller]
pub fn seen(home: &Home) -> Seen {
    let mut seen = state::seen(home);
    for root in ROOTS {
        let Ok(entries) = fs::read_dir(home.path().join(root)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(path.exists(), "{} leads nowhere", path.display());
            let kind = if path.is_symlink() { "link" } else { "folder" };
            let shown = format!("{kind} {}", state::content(&path));
            // A folder on its way out has a name of ours: no agent takes it for a skill.
            if !name.starts_with('.') {
                seen.insert(format!("{root}/{name}"), shown);
            }
        }
    }
    if let Ok(lock) = fs::read_to_string(home.path().join("vault.lock")) {
        seen.insert("vault.lock".to_owned(), lock);
    }
    seen
}

/// A home with three agents, things of the user's in their folders, and a vault that holds
/// `witness`.
pub fn three_agents() -> Home {
    let home = Home::new();
    for (path, text) in [
        (".claude/CLAUDE.md", "Mine.\n"),
        (".claude/skills/own/SKILL.md", "Not even a skill.\n"),
        (".claude/skills/own/notes.txt", "Kept.\n"),
        (".codex/config.toml", "model = \"x\"\n"),
        (".agents/skills/README.md", "About this folder.\n"),
        (".cursor/mcp.json", "{}\n"),
    ] {
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir(home.path().join("tmp")).unwrap();
    home.skill(
        "witness",
        &[
            ("SKILL.md", &skill_md("witness", "stays")),
            ("run.sh", b"#!/bin/sh\n"),
        ],
    );
    home.run("add work/witness").ok();
    home
}

/// The same, with `subject` in two files too, and every agent linked.
pub fn linked() -> Home {
    let home = three_agents();
    home.skill(
        "subject",
        &[("SKILL.md", &skill_md("subject", "one")), ("more.md", b"x")],
    );
    home.run("add work/subject").ok();
    home.run("sync-profiles --discover").ok();
    home
}

/// Every file that is the user's own.
pub fn files(home: &Home) -> BTreeMap<String, Entry> {
    tree::snapshot(
        home.path(),
        &[".vault/", ".config/", "tmp/", "vault.lock", ".cache"],
    )
    .into_iter()
    .filter(|(_, entry)| matches!(entry, Entry::File(..)))
    .collect()
}

/// Every file of the user's is where it was, or, where a command takes skills in, beside in `.bak`
/// or in the vault.
#[track_caller]
pub fn nothing_is_lost(home: &Home, files: &BTreeMap<String, Entry>, what: &str) {
    for (path, entry) in files {
        let Entry::File(_, size, hash) = entry else {
            continue;
        };
        let places = [
            path.clone(),
            path.replace("/skills/", "/skills.bak/"),
            path.replace(".claude/skills/", ".vault/skills/"),
        ];
        let is_there = places.iter().any(|place| {
            let place = home.path().join(place);
            let folder = place.parent().unwrap_or(&place);
            let name = place.file_name().unwrap().to_string_lossy().into_owned();
            // Through links: what an agent reads there.
            let found = fs::canonicalize(folder).map(|folder| tree::snapshot(&folder, &[]));
            matches!(found.ok().and_then(|mut all| all.remove(&name)),
                Some(Entry::File(_, found_size, found_hash)) if (found_size, &found_hash) == (*size, hash))
        });
        assert!(is_there, "{what}: {path} is lost");
    }
}

/// `vault doctor` has nothing to say but notes.
#[track_caller]
pub fn healthy(home: &Home, what: &str) {
    let ran = home.run("doctor --json");
    let said = ran.json();
    assert_eq!(
        (ran.code, &said["data"]["healthy"]),
        (0, &serde_json::json!(true)),
        "{what}: {said:#}"
    );
}

/// What is struck down.
pub struct Deed<'a> {
    /// What it is called in messages.
    pub label: &'a str,
    /// Does it under strace to its good end, and gives the points at which it changed something.
    pub points: &'a dyn Fn(&Home) -> Vec<Point>,
    /// Does it, struck at a point or not; `None` when it was killed there.
    pub act: &'a dyn Fn(&Home, Option<&Point>) -> Option<Ran>,
    /// What an agent may miss for a moment: a folder that makes room for a link.
    pub gap: Option<&'a str>,
    /// What else must hold at the end.
    pub after: &'a dyn Fn(&Home),
}

/// Whether a run comes to this point each time. The index notes only what was not written to a
/// moment ago, so its writes come or do not as the file system's clock ticks.
fn is_sure(point: &Point) -> bool {
    !matches!(point.call.as_str(), "pwrite64" | "ftruncate")
}

/// Kills the deed at a sample of its points, each in the home as it was, looks, does it again, and
/// looks again.
pub fn sweep(deed: &Deed<'_>, start: Home, most: usize) {
    let label = deed.label;
    let start = Kept::new(start);
    let home = start.restored();
    let before = seen(home);
    let files = files(home);
    healthy(home, label);
    let all = (deed.points)(home);
    let end = seen(home);
    assert_ne!(before, end, "{label} changes nothing");
    healthy(home, label);
    let mut tried = sweep::sample(all.clone(), most);
    let sampled = tried.len();
    // The last call of each kind comes when all is done: without it a small sample may see one side
    // only. A run that makes one call less than the counted one is not struck there, which is no
    // fault of the sweep.
    for point in sweep::last_of_each(&all) {
        if !tried.contains(&point) {
            tried.push(point);
        }
    }
    let (mut old, mut new, mut between, mut unharmed) = (0, 0, 0, 0);
    for (at, point) in tried.iter().enumerate() {
        let home = start.restored();
        if let Some(ran) = (deed.act)(home, Some(point)) {
            ran.ok();
            unharmed += usize::from(at < sampled && is_sure(point));
        }
        let what = format!("{label} killed at {point:?}");
        let now = seen(home);
        let names = now.keys().chain(before.keys()).chain(end.keys());
        for name in names {
            let shown = now.get(name);
            assert!(
                shown == before.get(name)
                    || shown == end.get(name)
                    || (shown.is_none() && deed.gap == Some(name)),
                "{what}: {name} is {shown:?}, not {:?} or {:?}",
                before.get(name),
                end.get(name)
            );
        }
        match (now == before, now == end) {
            (true, _) => old += 1,
            (_, true) => new += 1,
            _ => between += 1,
        }
        state::whole(home);
        state::private(home);
        nothing_is_lost(home, &files, &what);
        healthy(home, &what);
        let again = (deed.act)(home, None).expect("nobody kills it").ok();
        assert_eq!(seen(home), end, "{what} and done again: {again:?}");
        state::whole(home);
        clean_up(home, &what);
        state::swept(home);
        no_remains(home, &what);
        nothing_is_lost(home, &files, &what);
        healthy(home, &what);
        (deed.after)(home);
    }
    eprintln!(
        "{label}: {} of {} points; old {old}, new {new}, between {between}; of the {sampled} sampled ones not killed {unharmed}",
        tried.len(),
        all.len()
    );
    let sure = tried[..sampled].iter().filter(|point| is_sure(point));
    assert!(
        unharmed * 4 <= sure.count(),
        "{label}: the sweep missed its points"
    );
    assert!(
        old + between > 0 && new + between > 0,
        "{label}: both sides were seen"
    );
}

/// A command that finds nothing to do takes no lock, so it clears nothing away and settles no
/// number: then `vault doctor` says so, and does.
#[track_caller]
pub fn clean_up(home: &Home, what: &str) {
    let left = !tree::snapshot(&home.vault().join("tmp"), &[]).is_empty();
    if left {
        let said = home.run("doctor --json").ok().json();
        assert!(
            said.to_string().contains("\"unfinished\""),
            "{what}: {said}"
        );
    }
    if left || state::open(home).generation().unwrap() % 2 == 1 {
        home.run("doctor --clean").ok();
    }
}

/// Nothing of a killed command is left in the agents' folders.
#[track_caller]
pub fn no_remains(home: &Home, what: &str) {
    for root in ROOTS {
        for (path, _) in tree::snapshot(&home.path().join(root), &[]) {
            let hidden = Path::new(&path)
                .components()
                .any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
            assert!(!hidden, "{what}: left in {root}: {path}");
        }
    }
}

/// [`sweep`] of a command as it is typed.
pub fn sweep_command(
    label: &str,
    start: Home,
    arguments: &[&str],
    most: usize,
    after: &dyn Fn(&Home),
) {
    if !sweep::is_ready() {
        return;
    }
    let deed = Deed {
        label,
        points: &|home| {
            let points = sweep::points(home, arguments);
            points.into_iter().filter(|point| point.on_disk).collect()
        },
        act: &|home, point| match point {
            Some(point) => sweep::strike(home, arguments, point, Fault::Kill),
            None => Some(home.run(arguments)),
        },
        gap: None,
        after,
    };
    sweep(&deed, start, most);
}

const NOTHING_MORE: &dyn Fn(&Home) = &|_| {};

#[test]
fn linking_agents_for_the_first_time_is_finished_when_it_is_given_again() {
    let home = three_agents();
    sweep_command(
        "sync-profiles",
        home,
        &["sync-profiles", "--discover"],
        10,
        NOTHING_MORE,
    );
}

#[test]
fn other_profiles_take_and_give_without_a_link_that_dangles() {
    let home = linked();
    fs::write(
        home.vault().join("profiles.toml"),
        "[[profile]]\nname = \"claude\"\nagent = \"claude-code\"\ninclude_tags = [\"none\"]\n\n\
         [[profile]]\nname = \"codex\"\nagent = \"codex\"\ninclude_tags = [\"test\"]\n",
    )
    .unwrap();
    sweep_command(
        "sync-profiles by rules",
        home,
        &["sync-profiles", "--yes"],
        10,
        NOTHING_MORE,
    );
}

#[test]
fn a_removed_skill_leaves_agents_first_and_the_vault_last() {
    let home = linked();
    fs::write(
        home.path().join("work/team.md"),
        "---\nagents: [codex]\n---\nRun the checks.\n",
    )
    .unwrap();
    home.run("transform add subject work/team.md").ok();
    sweep_command(
        "remove, linked",
        home,
        &["remove", "subject"],
        10,
        &|home| {
            let listed = home.run("transform list --json").ok().json();
            assert!(!listed.to_string().contains("team"), "{listed}");
        },
    );
}

#[test]
fn a_transform_shows_its_variant_whole_or_not_at_all() {
    let home = linked();
    fs::write(
        home.path().join("work/team.md"),
        "---\nagents: [codex]\n---\nRun the checks.\n",
    )
    .unwrap();
    let arguments = ["transform", "add", "subject", "work/team.md"];
    sweep_command("transform add", home, &arguments, 9, NOTHING_MORE);
}

#[test]
fn a_switch_is_thrown_for_one_agent_or_for_all_or_not_at_all() {
    let arguments = ["disable", "subject", "--agent", "cursor"];
    sweep_command("disable", linked(), &arguments, 12, NOTHING_MORE);
    let home = linked();
    home.run("disable subject").ok();
    sweep_command("enable", home, &["enable", "subject"], 12, NOTHING_MORE);
}
