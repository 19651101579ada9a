//! Tests of profiles that stand for many agents, and of how an agent gets from one profile to
//! another.

use std::fs;

use serde_json::Value;
use vault_format::name::ANY_AGENT;
use vault_library::admit::variants as transforms;
use vault_library::agents::{HiddenReason, VariantMaker, set_enabled};
use vault_library::publish::PlanError;
use vault_testing::assert_matches;

use crate::linked_agents::{
    CLAUDE, CODEX, agent, is_variant, names, pair, profiles, pull, sync, transform, view,
};
use crate::support::host::Host;
use crate::support::pair::Pair;
use crate::support::{Home, add_folders, for_agent, name, nothing_dangles};

/// One profile for every agent keeps the names of a release within its bound.
#[test]
fn a_transform_without_agents_is_published_in_a_vault_of_1100_skills() {
    let owner = Home::new(1);
    let all: Vec<_> = (0..1_100).map(|number| format!("skill-{number}")).collect();
    let folders: Vec<_> = all
        .iter()
        .map(|skill| owner.source(skill, "plain", &[]))
        .collect();
    assert!(
        add_folders(&owner.vault, &folders)
            .iter()
            .all(Result::is_ok)
    );
    transform(&owner, "skill-7", "priority: 10", "For every agent.");
    let mut host = Host::new("acme");
    host.sync(&owner.vault, owner.now()).unwrap();
    let catalog = host.catalog();
    let [profile] = &catalog.profiles[..] else {
        panic!("{:?}", catalog.profiles);
    };
    assert_eq!(profile.agent.as_str(), ANY_AGENT);

    let agents: Vec<_> = (0..91).map(|number| format!("agent-{number}")).collect();
    let head = format!("agents: [{}]", agents.join(", "));
    transform(&owner, "skill-7", &head, "For 91 agents.");
    let refused = host.plan(&owner.vault).unwrap_err();
    let text = refused.to_string();
    assert_matches!(refused, PlanError::Published { .. });
    let named = "the transform own of skill-7 is for 91 agents";
    assert!(text.contains("100000") && text.ends_with(named), "{text}");
}

#[test]
fn every_agent_gets_the_transform_that_names_none() {
    let mut pair = pair(&["beta", "gamma"]);
    transform(
        &pair.owner,
        "gamma",
        "priority: 10",
        "For codex. And every other agent.",
    );
    let folder = pair.owner.source("only", "plain", &[]);
    pair.owner.add_with(&folder, &for_agent("cursor")).unwrap();
    pair.publish();
    let mut agents: Vec<_> = pair.host.catalog().profiles;
    agents.sort_by(|one, other| one.agent.cmp(&other.agent));
    let agents: Vec<_> = agents.iter().map(|entry| entry.agent.as_str()).collect();
    assert_eq!(agents, [ANY_AGENT, "codex", "cursor"]);
    fs::create_dir(pair.device.path(".cursor")).unwrap();
    pull(&pair);
    sync(&pair.device);
    for (folder, skill, expected) in [
        (CODEX, "beta", true),
        (CODEX, "gamma", true),
        (CLAUDE, "beta", false),
        (CLAUDE, "gamma", true),
        (".cursor/skills", "beta", false),
        (".cursor/skills", "gamma", true),
    ] {
        assert_eq!(
            is_variant(&pair, folder, skill),
            expected,
            "{folder} {skill}"
        );
    }
    assert_eq!(names(&pair, CLAUDE), ["beta", "gamma"]);
    assert_eq!(names(&pair, ".cursor/skills"), ["beta", "gamma", "only"]);
    let claude = view(&pair.device, "claude-code");
    assert_eq!(claude.variants[0].by, VariantMaker::Publisher);
    assert!(pair.is_clean());
    assert!(!sync(&pair.device).restart_required);
    // The transform ends: every agent is back at the plain skill with the pull.
    transforms::remove_transform(&pair.owner.vault, &name("gamma"), &name("own")).unwrap();
    pair.publish();
    pull(&pair);
    assert!(!is_variant(&pair, CLAUDE, "gamma") && is_variant(&pair, CODEX, "beta"));
    assert!(!sync(&pair.device).restart_required);
}

#[test]
fn an_agent_gets_its_first_profile_with_the_switch() {
    let mut pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    assert_eq!(names(&pair, CLAUDE), ["beta", "gamma"]);
    transform(
        &pair.owner,
        "beta",
        "agents: [claude-code]",
        "For codex. Not.",
    );
    pair.publish();
    pull(&pair);
    assert!(is_variant(&pair, CLAUDE, "beta"), "before any sync");
    assert!(!sync(&pair.device).restart_required);
    assert!(pair.is_clean());
}

#[test]
fn what_a_first_profile_leaves_out_goes_with_the_switch() {
    let mut pair = Pair::new(&["beta", "gamma"], "plain");
    fs::create_dir(pair.device.path(".claude")).unwrap();
    pull(&pair);
    sync(&pair.device);
    assert_eq!(names(&pair, CLAUDE), ["beta", "gamma"]);
    let text = "[[profile]]\nname = \"c\"\nagent = \"claude-code\"\ninclude_tags = [\"none\"]\n";
    profiles(&pair.owner, text);
    pair.publish();
    pull(&pair);
    assert!(names(&pair, CLAUDE).is_empty(), "before any sync");
}

/// A pull is killed after it has written the pin and before it switches the set.
#[test]
fn after_a_killed_switch_each_agent_keeps_what_the_old_set_gives_it() {
    let mut pair = Pair::new(&["beta", "gamma"], "plain");
    for mark in [".codex", ".claude"] {
        fs::create_dir(pair.device.path(mark)).unwrap();
    }
    let rule = |agent: &str, tags: &str| {
        format!("[[profile]]\nname = \"{agent}\"\nagent = \"{agent}\"\n{tags}\n")
    };
    let all = rule("codex", "") + &rule("claude-code", "");
    let none = rule("codex", "include_tags = [\"none\"]") + &rule("claude-code", "");
    profiles(&pair.owner, &all);
    pair.publish();
    pull(&pair);
    for (next, seen) in [(none, 2), (all, 0)] {
        sync(&pair.device);
        let current = pair.folder().join("current");
        let set = fs::read_link(&current).unwrap();
        let pin = pair
            .device
            .path("config/links")
            .join(pair.link.id().as_str());
        let pin = pin.join("pin.json");
        let read = || -> Value { serde_json::from_slice(&fs::read(&pin).unwrap()).unwrap() };
        let before = read();
        profiles(&pair.owner, &next);
        pair.publish();
        pull(&pair);
        let mut killed = read();
        killed["replaced"] = before["counted"].clone();
        fs::write(&pin, killed.to_string()).unwrap();
        fs::remove_file(&current).unwrap();
        std::os::unix::fs::symlink(&set, &current).unwrap();
        sync(&pair.device);
        assert_eq!(names(&pair, CODEX).len(), seen, "of the old set");
        let codex = view(&pair.device, "codex");
        let reasons: Vec<_> = codex.hidden.iter().map(|it| &it.reason).collect();
        assert!(
            reasons.iter().all(|it| **it == HiddenReason::Published),
            "{reasons:?}"
        );
        assert!(pair.is_clean());
        pull(&pair);
        sync(&pair.device);
        assert_eq!(names(&pair, CODEX).len(), 2 - seen);
    }
}

/// An earlier version of vault, and a sync after a killed pull, link an agent to the plain skills.
#[test]
fn an_agent_that_the_old_set_has_no_folder_for_loses_what_the_new_one_leaves_out() {
    let mut pair = Pair::new(&["beta", "gamma"], "plain");
    fs::create_dir(pair.device.path(".claude")).unwrap();
    pull(&pair);
    sync(&pair.device);
    fs::remove_file(pair.folder().join("current/agents/claude-code")).unwrap();
    let tree = pair.device.path("vault/profiles/claude-code");
    for skill in ["beta", "gamma"] {
        fs::remove_file(tree.join(skill)).unwrap();
        let target = format!("../../links/{}/skills/{skill}", pair.link.id());
        std::os::unix::fs::symlink(target, tree.join(skill)).unwrap();
    }
    let text = "[[profile]]\nname = \"c\"\nagent = \"claude-code\"\ninclude_tags = [\"none\"]\n";
    profiles(&pair.owner, text);
    pair.publish();
    pull(&pair);
    assert!(names(&pair, CLAUDE).is_empty(), "before any sync");
    sync(&pair.device);
    assert!(names(&pair, CLAUDE).is_empty());
}

#[test]
fn a_shared_folder_shows_its_readers_what_one_of_them_gets() {
    let home = Home::new(1);
    for mark in [".codex", ".cline", ".agents"] {
        fs::create_dir_all(home.path(mark)).unwrap();
    }
    home.add("greet", "one");
    sync(&home);
    assert!(view(&home, "cline").through_folder.is_empty());
    set_enabled(&home.vault, &name("greet"), Some(&agent("cline")), false).unwrap();
    sync(&home);
    let cline = view(&home, "cline");
    assert_eq!(cline.sees, [name("greet")], "the folder holds it");
    assert_eq!(cline.through_folder, [name("greet")]);
    assert!(cline.hidden.is_empty());
    assert!(view(&home, "codex").through_folder.is_empty());
    set_enabled(&home.vault, &name("greet"), Some(&agent("codex")), false).unwrap();
    sync(&home);
    let cline = view(&home, "cline");
    assert!(cline.sees.is_empty() && cline.hidden[0].reason == HiddenReason::Disabled);
}

#[test]
fn a_link_in_place_of_an_agents_folder_shows_nothing_else() {
    let pair = pair(&["beta", "gamma"]);
    pull(&pair);
    sync(&pair.device);
    let agents = pair.folder().join("current/agents");
    let claude = agents.join("claude-code");
    assert_eq!(fs::read_link(&claude).unwrap().to_str(), Some("../skills"));
    fs::remove_file(&claude).unwrap();
    std::os::unix::fs::symlink("codex", &claude).unwrap();
    sync(&pair.device);
    assert!(
        !is_variant(&pair, CLAUDE, "beta"),
        "a sync makes the link anew"
    );
    nothing_dangles(&pair.device.path(""));
    assert!(pair.is_clean());
}
