//! The machine that pulls: what it selects, what its agents see, and how it ends the link.

use std::fs;

use vault_tests::home::Home;
use vault_tests::place;
use vault_tests::server::{Database, Server};

use crate::support::{self, SLUG, address, names, pulled, text};

/// An owner with three published skills, of which two have the tag `git`, and a machine with an
/// agent that is linked and admitted.
fn team() -> (Server, Home, Home) {
    let server = Server::start(&Database::Sqlite);
    let (owner, machine) = (Home::new(), Home::new());
    for name in ["alpha", "beta", "gamma"] {
        let tags = if name == "gamma" { "" } else { "tags: [git]\n" };
        let document = format!(
            "---\nname: {name}\ndescription: Does {name} whenever it is asked to.\n{tags}---\nText.\n"
        );
        let folder = owner.skill(name, &[("SKILL.md", document.as_bytes())]);
        owner.json(&format!("add {}", folder.to_str().unwrap()));
    }
    support::connect(&server, &owner, SLUG);
    owner.json("sync --cloud");
    support::link(&server, &owner, &machine, SLUG);
    fs::create_dir(machine.path().join(".claude")).unwrap();
    (server, owner, machine)
}

/// The names of the skills in the agent's folder.
fn seen(machine: &Home) -> Vec<String> {
    let Ok(folder) = fs::read_dir(machine.path().join(".claude/skills")) else {
        return Vec::new();
    };
    let entries = folder.map(|entry| entry.unwrap().path());
    // A link that leads nowhere shows nothing.
    let names = entries.filter(|path| path.join("SKILL.md").is_file());
    let mut names: Vec<_> = names
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_sync_names_changed_folders_and_both_sides_are_told_of_a_release_that_ends() {
    if place::leaves_out(
        "",
        "what the program warns of does not depend on the service",
    ) {
        return;
    }
    let (_server, owner, machine) = team();
    owner.plain_skill("alpha", "Changed.");
    let warnings = |home: &Home, command: &[&str]| {
        let answer = home.run(command).ok().json();
        let warnings = answer["warnings"].as_array().unwrap().iter();
        warnings
            .map(|warning| text(&warning["code"]))
            .collect::<Vec<_>>()
    };
    let synced = warnings(&owner, &["sync", "--renew", "--days", "7", "--json"]);
    assert!(synced.contains(&"source_changed".to_owned()), "{synced:?}");
    assert!(synced.contains(&"release_ends".to_owned()), "{synced:?}");
    let pulled = warnings(&machine, &["cloud", "pull", "--json"]);
    assert!(pulled.contains(&"release_ends".to_owned()), "{pulled:?}");
}

#[test]
fn a_pull_reaches_the_agents_and_keeps_its_selection_until_the_link_ends() {
    if place::leaves_out(
        "",
        "what a machine does with a pull does not depend on the service",
    ) {
        return;
    }
    let (server, owner, machine) = team();

    // Without a terminal the pull names the command that links the agents, which then asks nothing.
    let first = machine.run("cloud pull").ok();
    let next = "\nNext: vault sync-profiles links the skills for Claude Code\n";
    assert!(first.stdout.ends_with(next), "{}", first.stdout);
    assert!(seen(&machine).is_empty());
    machine.run(&["sync-profiles"]).ok();
    assert_eq!(seen(&machine), ["alpha", "beta", "gamma"]);

    // A misspelt name uninstalls nothing.
    for (option, wrong, code) in [
        ("--tag", "gti", "tag_not_in_catalog"),
        ("--agent", "nobodys-agent", "agent_unknown"),
    ] {
        let refused = machine.refused(&["cloud", "pull", option, wrong], 2);
        assert_eq!(refused.code, code);
    }
    machine.run("cloud pull --agent claud-code").expect_code(2);
    // A selection that removes skills asks.
    machine.fails("cloud pull --tag git", 2, "no_tty");
    assert_eq!(pulled(&machine).len(), 3);
    let selected = machine.json("cloud pull --tag git --yes");
    assert_eq!(names(&selected["removed"]), ["gamma".to_owned()].into());
    assert_eq!(selected["restart_required"], true);
    assert_eq!(selected["profiles"]["roots"][0]["skills"], 2);
    assert_eq!(seen(&machine), ["alpha", "beta"]);

    // It is kept, shown, and ended.
    let later = machine.json("cloud pull");
    assert_eq!(later["selection"]["tag"], "git");
    assert_eq!(
        (
            later["unchanged"].as_u64(),
            later["restart_required"].as_bool()
        ),
        (Some(2), Some(false))
    );
    let status = machine.run("status --cloud").ok();
    assert!(status.stdout.contains("--tag git"), "{}", status.stdout);
    owner.add("delta", "More.").ok();
    owner.json("sync --cloud");
    machine.json("cloud pull");
    assert_eq!(seen(&machine), ["alpha", "beta"]);
    let all = machine.json("cloud pull --all");
    assert!(all["selection"].is_null());
    assert_eq!(seen(&machine), ["alpha", "beta", "delta", "gamma"]);

    // One skill of a link is not the machine's to remove; the whole link is.
    let refused = machine.refused("remove alpha", 1);
    assert!(
        refused.message.contains("comes from a linked vault"),
        "{}",
        refused.message
    );
    machine.fails(&["unlink"], 2, "no_tty");
    assert_eq!(seen(&machine).len(), 4);
    let unlinked = machine.json(&format!("unlink {} --yes", address(&server, SLUG)));
    assert_eq!(names(&unlinked["removed"]).len(), 4);
    assert_eq!(unlinked["restart_required"], true);
    assert!(seen(&machine).is_empty());
    assert_eq!(
        machine.json(&["list"])["skills"].as_array().map(Vec::len),
        Some(0)
    );
    machine.fails("cloud pull", 2, "not_linked");
    let kept = fs::read_dir(machine.config().join("links")).map_or(0, Iterator::count);
    assert_eq!(kept, 0, "the device key is gone");
    // The service still lists it.
    let device = text(&unlinked["device_fingerprint"]);
    let devices = owner.json("devices list");
    assert_eq!(devices[0]["fingerprint"], device);
}

#[test]
fn an_expected_fingerprint_can_be_replaced() {
    if place::leaves_out("", "what a machine expects does not depend on the service") {
        return;
    }
    let (server, owner, _) = team();
    let vault = address(&server, SLUG);
    let right = support::fingerprint(&owner);
    let other = Home::new();
    other.add("other", "Text.").ok();
    let wrong = support::fingerprint(&other);
    let machine = Home::new();
    // What is no fingerprint is refused before anything is sent.
    for bad in ["aaaa-bbbb", ""] {
        machine
            .run(&["link", &vault, "--expect-key", bad])
            .expect_code(2);
    }
    assert!(owner.json("devices list").as_array().unwrap().len() == 1);
    let told = machine
        .run(&format!("link {vault} --expect-key {wrong}"))
        .expect_code(6);
    let replace = format!("vault link {vault} --expect-key <fingerprint>");
    assert!(told.stderr.contains(&replace), "{}", told.stderr);
    let later = machine.run("cloud pull").expect_code(6);
    assert!(later.stderr.contains(&replace), "{}", later.stderr);
    let status = machine.json("status --cloud");
    assert_eq!(status["links"][0]["expected_fingerprint"], wrong.as_str());
    machine.json(&format!("link {vault} --expect-key {right}"));
    let status = machine.json("status --cloud");
    assert!(status["links"][0]["expected_fingerprint"].is_null());
}

/// Where codes are needed, a code admits the machines that it is for, at once; a forgotten one is a
/// stranger again.
#[test]
fn a_machine_of_ci_enrols_with_a_code_pulls_and_is_forgotten() {
    let (server, owner, _) = team();
    let (vault, key) = (address(&server, SLUG), support::fingerprint(&owner));
    owner.json(&["devices", "enrolment", "codes"]);
    let ci = Home::new();
    let link = ["link", &vault, "--hostname", "ci-1", "--expect-key", &key];
    assert_eq!(ci.refused(&link, 4).code, "enrolment_needs_code");
    let made = owner.json(&["devices", "invite", "--name", "ci-*", "--expires", "1h"]);
    let code = text(&made["code"]);
    let wrong = ["link", &vault, "--hostname", "laptop", "--code", &code];
    assert_eq!(ci.refused(&wrong, 4).code, "enrolment_code_invalid");
    let linked = ci.json(&[&link[..], &["--code", &code]].concat());
    assert_eq!(linked["status"], "active");
    ci.json(&["cloud", "pull"]);
    assert_eq!(pulled(&ci).len(), 3);
    let codes = owner.json(&["devices", "codes"]);
    assert_eq!(
        (&codes[0]["used"], &codes[0]["id"]),
        (&1.into(), &made["id"])
    );
    owner.json(&["devices", "end-code", &text(&made["id"])]);
    assert_eq!(owner.json(&["devices", "codes"]), serde_json::json!([]));
    let device = text(&linked["device_id"]);
    for verb in ["revoke", "forget"] {
        owner.json(&["devices", verb, &device]);
    }
    assert_eq!(ci.refused(&["cloud", "pull"], 4).code, "device_unknown");
}

/// A code admits no key that waits already, so the machine enrols another key with it.
#[test]
fn a_machine_that_waits_enrols_a_new_key_with_a_code() {
    let (server, owner, _) = team();
    let (vault, key) = (address(&server, SLUG), support::fingerprint(&owner));
    let laptop = Home::new();
    let link = ["link", &vault, "--hostname", "laptop", "--expect-key", &key];
    let waiting = laptop.json(&link);
    assert_eq!(waiting["status"], "pending");
    let made = owner.json(&["devices", "invite", "--name", "laptop"]);
    let code = text(&made["code"]);
    let wrong = format!("vec_{}", "A".repeat(22));

    // A wrong code changes nothing here, and leaves no key behind.
    let refused = laptop.refused(&[&link[..], &["--code", &wrong]].concat(), 4);
    assert_eq!(refused.code, "enrolment_code_invalid");
    assert_eq!(laptop.json(&link), waiting);
    let links = vault_tests::tree::snapshot(&laptop.config().join("links"), &[]);
    assert!(!links.keys().any(|path| path.ends_with("device.next")));

    let admitted = laptop.json(&[&link[..], &["--code", &code]].concat());
    assert_eq!(admitted["status"], "active");
    assert_eq!(admitted["link"], waiting["link"]);
    assert_eq!(admitted["vault_fingerprint"], key.as_str());
    assert_ne!(
        admitted["device_fingerprint"],
        waiting["device_fingerprint"]
    );
    laptop.json("cloud pull");
    assert_eq!(pulled(&laptop).len(), 3);

    // The owner sees the earlier request, which still waits.
    let devices = owner.json("devices list");
    let state_of = |machine: &serde_json::Value| {
        let mut listed = devices.as_array().unwrap().iter();
        let found = listed.find(|device| device["fingerprint"] == machine["device_fingerprint"]);
        text(&found.expect("it is listed")["status"])
    };
    assert_eq!(state_of(&waiting), "pending");
    assert_eq!(state_of(&admitted), "active");
    let earlier = text(&waiting["device_fingerprint"]);
    owner.json(&["devices", "deny", &earlier]);
    laptop.json("cloud pull");
}
