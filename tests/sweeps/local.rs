//! `kill -9` of `vault add`, `vault remove` and `vault key rotate` at a sample of the
//! state-changing calls.

use vault_format::keys::PublicKey;
use vault_tests::home::{Home, Ran};
use vault_tests::skills::{awkward_files, skill_md};
use vault_tests::sweep::{self, Fault};
use vault_tests::tree;

use crate::state::{self, Seen};

/// What readers may see after a kill.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Between {
    /// The state before or the state after.
    OldOrNew,
    /// Each skill old or new by itself: the command promises one switch a skill.
    EachOldOrNew,
}

/// Writes `work/subject` in its second shape, with files that a careless tool would change.
fn write_subject(home: &Home, body: &str) {
    let text = skill_md("subject", body);
    let mut files: Vec<(&str, &[u8])> = vec![("SKILL.md", &text)];
    let awkward = awkward_files();
    files.extend(awkward.iter().map(|(path, bytes)| (*path, &bytes[..])));
    home.skill("subject", &files);
}

/// A home with a vault that holds `witness` and, where wanted, `subject` and `second` in an earlier
/// shape.
fn prepared(with_subjects: bool) -> Home {
    let home = Home::new();
    home.skill(
        "witness",
        &[
            ("SKILL.md", &skill_md("witness", "stays")),
            ("run.sh", b"#!/bin/sh\n"),
        ],
    );
    home.plain_skill("second", "one");
    home.plain_skill("subject", "one");
    home.run("add work/witness").ok();
    if with_subjects {
        home.run("add work/subject work/second").ok();
    }
    write_subject(&home, "two");
    home
}

/// Kills `vault arguments` at a sample of its points in a copy of `start`, looks, gives it again,
/// and looks again. `after` says what else must hold at the end, given what the repeated command
/// said.
fn sweep(
    label: &str,
    start: &Home,
    arguments: &[&str],
    between: Between,
    most: usize,
    after: impl Fn(&Home, &Ran),
) {
    if !sweep::is_ready() {
        return;
    }
    let before = state::seen(start);
    let work = tree::snapshot(&start.path().join("work"), &[]);
    let model = sweep::copy_home(start);
    let all = sweep::points(&model, arguments);
    let end = state::seen(&model);
    assert!(all.len() > 10, "{label}: {all:?}");
    let tried = sweep::sample(all.clone(), most);
    let (mut old, mut new, mut mixed, mut unharmed) = (0, 0, 0, 0);
    for point in &tried {
        let home = sweep::copy_home(start);
        if let Some(ran) = sweep::strike(&home, arguments, point, Fault::Kill) {
            ran.ok();
            unharmed += 1;
        }
        let now = state::seen(&home);
        if now == before {
            old += 1;
        } else if now == end {
            new += 1;
        } else {
            assert!(
                between == Between::EachOldOrNew && is_mixture(&now, &before, &end),
                "{label} killed at {point:?} shows {now:#?}"
            );
            mixed += 1;
        }
        state::which(&home, "subject", &now);
        state::whole(&home);
        state::private(&home);
        let again = home.run(arguments).ok();
        let finally = state::seen(&home);
        assert_eq!(
            finally, end,
            "{label} killed at {point:?} and given again: {again:?}"
        );
        state::whole(&home);
        state::swept(&home);
        assert_eq!(tree::snapshot(&home.path().join("work"), &[]), work);
        after(&home, &again);
    }
    eprintln!(
        "{label}: {} of {} points; old {old}, new {new}, between {mixed}; not killed {unharmed}",
        tried.len(),
        all.len()
    );
    assert!(
        unharmed * 4 <= tried.len(),
        "{label}: the sweep missed its points"
    );
    assert!(
        old > 0 && new > 0,
        "{label}: both sides of the switch were seen"
    );
}

fn is_mixture(now: &Seen, before: &Seen, end: &Seen) -> bool {
    let names: std::collections::BTreeSet<_> = now
        .keys()
        .chain(before.keys())
        .chain(end.keys())
        .cloned()
        .collect();
    names
        .iter()
        .all(|name| now.get(name) == before.get(name) || now.get(name) == end.get(name))
}

/// The vault's key is the one that signed what is listed: the next change works.
fn goes_on(home: &Home) {
    home.add("next", "after").ok();
    state::whole(home);
}

#[test]
fn the_first_add_makes_the_vault_and_its_keys_once() {
    let start = Home::new();
    write_subject(&start, "two");
    sweep(
        "first add",
        &start,
        &["add", "work/subject"],
        Between::OldOrNew,
        15,
        |home, _| {
            let keys = home.own_keys();
            assert_eq!(keys.len(), 1, "one key in both roles: {keys:?}");
        },
    );
}

#[test]
fn an_added_skill_is_there_whole_or_not_at_all() {
    let start = prepared(false);
    sweep(
        "add",
        &start,
        &["add", "work/subject"],
        Between::OldOrNew,
        15,
        |home, _| assert_eq!(state::whole(home), 0, "a bundle that nothing refers to"),
    );
}

#[test]
fn a_replaced_skill_is_the_old_version_or_the_new_one() {
    let start = prepared(true);
    sweep(
        "replace",
        &start,
        &["add", "work/subject"],
        Between::OldOrNew,
        15,
        |_, _| {},
    );
}

#[test]
fn of_several_added_skills_each_is_whole() {
    let start = prepared(false);
    sweep(
        "add several",
        &start,
        &["add", "work/subject", "work/second"],
        Between::EachOldOrNew,
        15,
        |_, _| {},
    );
}

#[test]
fn a_removal_is_finished_when_it_is_given_again() {
    let start = prepared(true);
    let arguments = ["remove", "subject", "second", "--withdraw", "holds a key"];
    sweep(
        "remove",
        &start,
        &arguments,
        Between::EachOldOrNew,
        15,
        |home, _| {
            let vault = state::open(home);
            let withdrawn = vault_library::admit::remove::list_withdrawn(&vault).unwrap();
            assert_eq!(withdrawn.len(), 2, "both are withdrawn, each once");
            assert_eq!(state::whole(home), 0, "the withdrawn bytes are gone");
        },
    );
}

#[test]
fn a_rotation_leaves_one_key_that_everything_follows() {
    let start = prepared(true);
    // Nothing that is listed changes: what does change is looked at by itself.
    if !sweep::is_ready() {
        return;
    }
    let arguments = ["--yes", "key", "rotate"];
    let before = state::seen(&start);
    let first = key(&start);
    let all = sweep::points(&sweep::copy_home(&start), &arguments);
    let tried = sweep::sample(all.clone(), 15);
    let (mut old, mut new) = (0, 0);
    for point in &tried {
        let home = sweep::copy_home(&start);
        if let Some(ran) = sweep::strike(&home, &arguments, point, Fault::Kill) {
            ran.ok();
        }
        assert_eq!(state::seen(&home), before, "{point:?}");
        state::which(&home, "subject", &before);
        state::whole(&home);
        state::private(&home);
        if key(&home) == first {
            old += 1;
        } else {
            new += 1;
        }
        home.run(&arguments).ok();
        state::swept(&home);
        assert_eq!(state::seen(&home), before, "{point:?}");
        let trust = state::open(&home).require_trust().unwrap();
        let chain = trust.chain();
        assert!((2..=3).contains(&chain.version()), "{point:?}: {chain:?}");
        assert_eq!(chain.first().document().release().keys(), [first]);
        assert_eq!(chain.document().release().keys(), [key(&home)], "{point:?}");
        assert!(chain.versions()[1..].iter().all(|version| {
            // One key in both roles, and never the one before.
            let document = version.document();
            document.keys().len() == 1 && !document.release().contains(&first)
        }));
        goes_on(&home);
    }
    eprintln!(
        "rotate: {} of {} points; old {old}, new {new}",
        tried.len(),
        all.len()
    );
    assert!(old > 0 && new > 0);
}

/// The one publisher of the home's own vault.
fn key(home: &Home) -> PublicKey {
    state::open(home).release_key().unwrap()
}

#[test]
fn a_refused_first_skill_leaves_no_vault_behind() {
    let home = Home::new();
    home.skill("bad", &[("SKILL.md", b"no frontmatter\n")]);
    home.run("add work/bad").expect_code(5);
    for made in [home.vault(), home.config()] {
        assert!(!made.exists(), "{} was made", made.display());
    }
}
