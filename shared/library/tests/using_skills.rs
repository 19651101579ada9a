//! Tests of listing, searching, running and auditing own skills.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::support::{
    Home, PIPED, acting_skill, allowing_pipes, copy_folder, gets_all_variables, name, skill_md,
    snapshot,
};
use vault_gate::report::{Audited, Verdict};
use vault_library::add_folder;
use vault_library::admit::Options;
use vault_library::audit::{self, Auditor};
use vault_library::run::{self, Environment, RunError, Scope};
use vault_library::{Damage, Vault, VaultPaths, shelf};
use vault_testing::assert_matches;

#[test]
fn list_and_search_read_frontmatter_and_manifest() {
    let home = Home::new(1);
    let folder = home.source("review", "x", &[("bin/check.sh", b"#!/bin/sh\n")]);
    let more = "tags: [git, quality]\nwhen_to_use: Before a merge.\nagents: [codex]\nbin:\n  check: { command: bin/check.sh }\n";
    std::fs::write(folder.join("SKILL.md"), skill_md("review", more, "x")).unwrap();
    home.add_folder(&folder);
    home.add("cooking", "pots");
    let listing = shelf::list_installed(&home.vault).unwrap();
    let mut skills = listing.skills.iter();
    let review = skills
        .find(|skill| skill.name.as_str() == "review")
        .unwrap();
    assert_eq!(review.texts.tags, ["git", "quality"]);
    assert_eq!(review.texts.actions[0].as_str(), "check");
    assert_eq!(review.texts.agents[0].as_str(), "codex");
    assert_eq!(review.texts.provenance, "local:review");
    for _ in 0..2 {
        let hits = shelf::search_installed(&home.vault, "merge", 10).unwrap();
        assert_eq!(hits.len(), 1);
        assert_eq!(hits[0].skill.name.as_str(), "review");
        std::thread::sleep(Duration::from_millis(60));
    }
    let none = shelf::search_installed(&home.vault, "nonsense", 10).unwrap();
    assert!(none.is_empty());
}

#[test]
fn an_action_runs_from_verified_bytes_in_its_folder() {
    let home = Home::new(1);
    let script = b"#!/bin/sh\npwd > \"$OUT\"\nprintf '%s\\n' \"$@\" >> \"$OUT\"\ncat note >> \"$OUT\"\nprintf '%s' \"$VAULT_ADMIN_PASSWORD\" >> \"$OUT\"\nexit 7\n";
    let files: [(&str, &[u8]); 2] = [("bin/act", script), ("data/note", b"note\n")];
    let folder = home.source("acts", "x", &files);
    crate::support::set_mode(&folder.join("bin/act"), 0o644);
    let more = "bin:\n  act: { command: bin/act, args: [first], cwd: data }\n  say: { command: echo, args: [hello] }\n";
    std::fs::write(folder.join("SKILL.md"), skill_md("acts", more, "x")).unwrap();
    home.add_folder(&folder);

    let found = run::locate_skill(&home.vault, name("acts")).unwrap();
    let act = &found.actions[0];
    assert!(act.command.ends_with("/files/bin/act") && Path::new(&act.command).exists());
    assert!(act.cwd.ends_with("files/data"));
    assert_eq!(found.actions[1].command, "echo");

    let out = home.path("out");
    let variable = |name: &str, value: &Path| (OsString::from(name), value.as_os_str().to_owned());
    let environment = Environment {
        variables: vec![
            variable("PATH", Path::new("/usr/bin:/bin")),
            variable("OUT", &out),
            variable("VAULT_ADMIN_PASSWORD", Path::new("hidden")),
        ],
        scope: Scope::ByOrigin,
    };
    let prepare = |skill: &str, action: &str| {
        let action = action.parse().unwrap();
        let mut run = run::prepare_run(&home.vault, None, name(skill), &action, &environment)?;
        run.command.arg("second two");
        Ok::<_, RunError>(run)
    };
    let run = prepare("acts", "act").unwrap();
    assert_eq!(run.status().unwrap().code(), Some(7));
    let text = std::fs::read_to_string(&out).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].ends_with("/files/data"), "{text}");
    assert_eq!(&lines[1..], ["first", "second two", "note"]);
    assert!(
        snapshot(&home.path("vault/tmp")).is_empty(),
        "the copy is gone"
    );

    assert_matches!(
        prepare("acts", "other"),
        Err(RunError::UnknownAction { .. })
    );
    assert_matches!(prepare("nobody", "act"), Err(RunError::UnknownSkill(_)));
    assert!(prepare("acts", "say").unwrap().status().unwrap().success());

    // If one byte in the skill changes, no action runs.
    let stored = home.stored(&found.bundle);
    std::fs::write(stored.join("files/data/note"), "nota\n").unwrap();
    assert_matches!(prepare("acts", "say"), Err(RunError::Damaged { .. }));
    let found = run::locate_skill(&home.vault, name("acts"));
    assert_matches!(found, Err(RunError::Damaged { .. }));
}

#[test]
fn a_vault_without_its_key_reads_nothing_as_good() {
    let home = Home::new(1);
    home.add("kept", "one");
    let copy = home.path("copy");
    copy_folder(&home.path("vault"), &copy);
    let vault = Vault::open(
        VaultPaths::new(&copy, home.path("other-config")),
        home.clock.clone(),
        std::sync::Arc::new(vault_testing::SeededRandom::new(5)),
    )
    .unwrap();
    assert_eq!(vault.id(), home.vault.id());
    let listing = shelf::list_installed(&vault).unwrap();
    assert!(listing.skills.is_empty());
    assert_matches!(
        &listing.damaged[..],
        [(kept, _, Damage::Untrusted(_))] if *kept == name("kept")
    );
    assert!(run::locate_skill(&vault, name("kept")).is_err());
    let folder = home.source("new", "x", &[]);
    assert!(add_folder(&vault, &folder, &Options::default()).is_err());
}

#[test]
fn an_audit_of_what_is_installed_honours_the_signed_exceptions() {
    let home = Home::new(1);
    let folder = home.source(
        "setup",
        "Run `bin/setup.sh`.",
        &[("bin/setup.sh", PIPED.as_bytes())],
    );
    home.add_with(&folder, &allowing_pipes()).unwrap();
    let auditor = Auditor {
        vault: Some(&home.vault),
        ..Auditor::new(true)
    };
    let found = run::inspect_skill(&home.vault, name("setup")).unwrap();
    let audited = audit::audit_installed(found.examined, &auditor);
    let told = |audited: &Audited| {
        let hints = audited.findings.iter().map(|at| at.finding.hint.clone());
        (audited.verdict, hints.collect::<Vec<_>>())
    };
    let reason = vec!["allowed for these bytes: read line by line".to_owned()];
    assert_eq!(told(&audited), (Verdict::Warnings, reason.clone()));

    let files = std::fs::canonicalize(home.path("vault/skills/setup")).unwrap();
    for (root, verdict) in [
        (home.path("vault"), Verdict::Warnings),
        (home.path("vault/store"), Verdict::Warnings),
        (home.folder.path().join("vault/.."), Verdict::Warnings),
        (files, Verdict::Warnings),
        (home.path("sources"), Verdict::Blocked),
    ] {
        let audit = audit::audit_repository(&root, &auditor).unwrap();
        let of = |skill: &&Audited| skill.path.contains("files") || audit.skills.len() == 1;
        let skill = audit.skills.iter().find(of).unwrap();
        assert_eq!(skill.verdict, verdict, "{}", root.display());
    }

    // A manifest signed by an untrusted key grants no exceptions.
    let other = Home::new(2);
    let stranger = Auditor {
        vault: Some(&other.vault),
        ..auditor
    };
    let audit = audit::audit_repository(&home.path("vault"), &stranger).unwrap();
    assert_eq!(audit.skills[0].verdict, Verdict::Blocked);
}

/// Every manifest can claim that its skill was made here: this machine's record decides.
#[test]
fn an_action_that_somebody_else_wrote_gets_only_the_variables_it_declares() {
    let home = Home::new(1);
    for (body, by_others) in [("own", false), ("a member's", true), ("own again", false)] {
        let folder = acting_skill(&home, "acts", body);
        let options = Options {
            by_others,
            ..Options::default()
        };
        home.add_with(&folder, &options).unwrap();
        assert_eq!(
            gets_all_variables(&home.vault, "acts"),
            !by_others,
            "{body}"
        );
    }
}
