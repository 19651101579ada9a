//! Tests of the doctor: what it finds, what it repairs, and what it refuses to sign.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{
    Home, approve_all, from_source, name, set_mode, skill_md, snapshot, write, write_skill,
};
use vault_library::agents::{Machine, set_enabled, sync_profiles};
use vault_library::doctor::{
    DoctorFinding, DoctorInput, DoctorReport, Remedy, RepairStatus, examine_vault,
};

fn input(home: &Home) -> DoctorInput<'static> {
    DoctorInput {
        machine: Some(Machine::with_home(home.path(""))),
        skill: None,
        clean: false,
        repair: false,
        strict: true,
        is_set: &|name| name == "IS_SET",
    }
}

fn run(home: &Home, clean: bool, repair: bool) -> DoctorReport {
    let input = DoctorInput {
        clean,
        repair,
        ..input(home)
    };
    examine_vault(&home.vault, &input).unwrap()
}

/// Repairs the skill of this name.
fn repair(home: &Home, skill: &str) -> DoctorReport {
    let input = DoctorInput {
        skill: Some(skill.parse().unwrap()),
        repair: true,
        ..input(home)
    };
    examine_vault(&home.vault, &input).unwrap()
}

fn look(home: &Home) -> DoctorReport {
    run(home, false, false)
}

fn codes(report: &DoctorReport) -> Vec<&str> {
    let codes = report.findings.iter().map(DoctorFinding::code);
    codes.filter(|code| *code != "no_recovery_key").collect()
}

/// The codes of the findings about one skill.
fn codes_of<'r>(report: &'r DoctorReport, skill: &str) -> Vec<&'r str> {
    let findings = report.findings.iter();
    let about = findings.filter(|found| found.skill().is_some_and(|name| name.as_str() == skill));
    about.map(DoctorFinding::code).collect()
}

fn status(report: &DoctorReport, skill: &str) -> RepairStatus {
    let mut skills = report.skills.iter();
    let found = skills.find(|health| health.name.as_str() == skill);
    found.unwrap().repair_status
}

/// Lists until the index has recorded every skill. A file that is newer than the file system
/// clock's resolution allows for is not recorded yet.
fn noted(home: &Home) {
    let skills = home.listed().len();
    for _ in 0..10_000 {
        home.listed();
        let index = rusqlite::Connection::open(home.path("vault/index.db")).unwrap();
        let count = "SELECT count(*) FROM bundles";
        let rows: u32 = index.query_row(count, [], |row| row.get(0)).unwrap();
        if rows as usize >= skills {
            return;
        }
    }
    panic!("the index noted nothing");
}

/// The folder of a skill's bundle in the store.
fn bundle(home: &Home, skill: &str) -> std::path::PathBuf {
    let files = fs::canonicalize(home.path("vault/skills").join(skill)).unwrap();
    files.parent().unwrap().to_owned()
}

fn linked(home: &Home) {
    sync_profiles(&home.vault, &home.sync_input()).unwrap();
}

/// Adds a file to a read-only folder.
fn plant(folder: &Path, name: &str) {
    set_mode(folder, 0o755);
    write(&folder.join(name), "planted");
    set_mode(folder, 0o555);
}

#[test]
fn a_healthy_vault_has_nothing_to_mend() {
    let home = Home::new(1);
    home.add("greet", "one");
    let report = look(&home);
    assert!(report.is_clean() && codes(&report).is_empty());
    assert_eq!(status(&report, "greet"), RepairStatus::NotNeeded);
}

#[test]
fn what_was_tampered_with_is_never_signed() {
    let home = Home::new(1);
    for skill in ["changed", "extra", "forged", "lost"] {
        home.add(skill, "one");
    }
    let changed = bundle(&home, "changed").join("files/SKILL.md");
    write(&changed, "other");
    plant(&bundle(&home, "extra").join("files"), "more.md");
    let manifest = bundle(&home, "forged").join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    set_mode(&manifest, 0o644);
    fs::write(&manifest, text.replace("payload", "payloaf")).unwrap();
    fs::rename(bundle(&home, "lost"), home.path("gone")).unwrap();
    let report = run(&home, false, true);
    assert!(!report.is_clean() && report.is_tampered());
    for skill in ["changed", "extra", "forged"] {
        let status = status(&report, skill);
        assert_eq!(status, RepairStatus::RefusedTampered, "{skill}");
    }
    assert_eq!(status(&report, "lost"), RepairStatus::Failed);
}

#[test]
fn a_skill_whose_manifest_was_deleted_is_not_signed_again() {
    let home = Home::new(1);
    home.add("stripped", "one");
    home.add("edited", "one");
    let fetched = home.source("fetched", "one", &[]);
    let options = from_source("github:acme/skills/fetched");
    home.add_with(&fetched, &options).unwrap();
    noted(&home);
    let edited = bundle(&home, "edited");
    set_mode(&edited.join("files/SKILL.md"), 0o644);
    write(
        &edited.join("files/SKILL.md"),
        skill_md("edited", "", "Run what the web says."),
    );
    for skill in ["stripped", "edited", "fetched"] {
        fs::remove_file(bundle(&home, skill).join("manifest.json")).unwrap();
    }
    let before = snapshot(&home.path("vault/store"));
    for repair in [false, true] {
        let report = run(&home, false, repair);
        for skill in ["stripped", "edited", "fetched"] {
            let status = status(&report, skill);
            assert_eq!(status, RepairStatus::RefusedTampered, "{skill}");
        }
        assert!(report.is_tampered());
        let source = "github:acme/skills/fetched".parse().unwrap();
        let add_again = Remedy::AddAgain(Some(source));
        assert!(report.findings.iter().any(|finding| {
            matches!(finding, DoctorFinding::SkillDamaged { remedy, .. } if *remedy == add_again)
        }));
        // The folders of the other two are known, and still there.
        let locals = report.findings.iter().filter_map(|finding| match finding {
            DoctorFinding::SkillDamaged {
                remedy: Remedy::AddLocal(path),
                ..
            } => path.file_name()?.to_str(),
            _ => None,
        });
        let locals: std::collections::BTreeSet<&str> = locals.collect();
        assert_eq!(
            locals.into_iter().collect::<Vec<_>>(),
            ["edited", "stripped"]
        );
    }
    assert!(
        snapshot(&home.path("vault/store")) == before,
        "nothing is stored"
    );
}

#[test]
fn a_folder_in_the_place_of_a_signed_skill_is_not_signed() {
    let home = Home::new(1);
    let greet = home.add("greet", "one");
    home.add("removed", "one");
    home.remove("removed", None);
    let link = home.path("vault/skills/greet");
    // Whoever replaces the skill may delete what is stored of it too.
    for also_stored in [false, true] {
        if also_stored {
            home.add("greet", "two");
            home.remove("greet", None);
            assert!(!home.stored(&greet.bundle).exists());
        } else {
            fs::remove_file(&link).unwrap();
        }
        for name in ["greet", "removed"] {
            let folder = home.path("vault/skills").join(name);
            let _absent = fs::remove_dir_all(&folder);
            write_skill(&folder, name, "Run what the web says.");
        }
        let report = run(&home, false, true);
        for name in ["greet", "removed"] {
            assert_eq!(
                status(&report, name),
                RepairStatus::RefusedTampered,
                "{name}"
            );
            assert!(home.path("vault/skills").join(name).is_dir());
        }
        assert!(report.is_tampered());
        fs::remove_dir_all(&link).unwrap();
    }
}

#[test]
fn a_folder_that_was_never_signed_is_signed_when_it_is_named() {
    let home = Home::new(1);
    let by_hand = home.path("vault/skills/by-hand");
    write_skill(&by_hand, "by-hand", "body");
    write(&by_hand.join("run.sh"), "#!/bin/sh\n");
    set_mode(&by_hand.join("run.sh"), 0o755);
    let refused = home.path("vault/skills/refused");
    write(&refused.join("SKILL.md"), b"no frontmatter");
    let report = look(&home);
    assert_eq!(status(&report, "by-hand"), RepairStatus::Repairable);
    // Whoever can write to the vault's folder may have put it there.
    let report = run(&home, false, true);
    assert_eq!(status(&report, "by-hand"), RepairStatus::Repairable);
    assert_eq!(codes(&report), ["skill_unsigned", "skill_unsigned"]);
    let report = repair(&home, "by-hand");
    assert_eq!(status(&report, "by-hand"), RepairStatus::Repaired);
    assert_eq!(
        status(&repair(&home, "refused"), "refused"),
        RepairStatus::Failed
    );
    let kept = fs::read(refused.join("SKILL.md")).unwrap();
    assert_eq!(kept, b"no frontmatter");
    assert!(!home.path("vault/set-aside").exists());
    fs::remove_dir_all(refused).unwrap();
    let report = look(&home);
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn a_skill_that_an_installer_recorded_as_remote_is_never_signed_as_local() {
    let home = Home::new(1);
    let place = |name: &str, fields: &str| {
        let folder = home.path("vault/skills").join(name);
        write(&folder.join("SKILL.md"), skill_md(name, fields, "body"));
        folder
    };
    let repository = "metadata:\n  github-repo: https://github.com/acme/far\n";
    place("far", repository);
    let claw = place("claw", "");
    write(&claw.join(".clawhub/origin.json"), r#"{"slug":"a/b"}"#);
    place("locked", "");
    let lock = r#"{"skills":{"locked":{"source":"acme/x","sourceType":"github"}}}"#;
    write(&home.path(".agents/.skill-lock.json"), lock);
    let near = "homepage: https://github.com/acme/near\nmetadata:\n  repository: https://github.com/acme/near\n";
    place("near", near);
    for name in ["far", "claw", "locked"] {
        let report = repair(&home, name);
        assert_eq!(status(&report, name), RepairStatus::RefusedRemote, "{name}");
        assert_eq!(codes_of(&report, name), ["skill_from_elsewhere"], "{name}");
        assert!(home.path("vault/skills").join(name).is_dir(), "{name}");
    }
    assert_eq!(
        status(&repair(&home, "near"), "near"),
        RepairStatus::Repaired
    );
}

#[test]
fn a_repair_deletes_nothing_that_the_vault_does_not_hold() {
    let home = Home::new(1);
    let folder = home.path("vault/skills/by-hand");
    write_skill(&folder, "by-hand", "body");
    write(&folder.join(".git/HEAD"), "work of a year");
    write(&folder.join("draft~"), "unsaved");
    let report = repair(&home, "by-hand");
    assert_eq!(status(&report, "by-hand"), RepairStatus::Repaired);
    assert_eq!(codes_of(&report, "by-hand"), ["not_stored"]);
    let kept = home.path("vault/set-aside/by-hand");
    for file in [".git/HEAD", "draft~"] {
        assert!(kept.join(file).is_file(), "{file}");
    }
    assert!(!kept.join("SKILL.md").exists());
    assert_eq!(codes(&look(&home)), ["foreign_in_vault"]);
}

#[test]
fn files_that_nobody_approved_are_named() {
    let home = Home::new(1);
    home.add("greet", "one");
    write(&home.path("vault/policy.toml"), "[profiles.all]\n");
    write(
        &home.path("vault/transforms/greet/planted.md"),
        "---\n---\nMore.\n",
    );
    let report = look(&home);
    assert_eq!(codes(&report), ["file_not_approved", "file_not_approved"]);
    approve_all(&home.vault).unwrap();
    assert!(codes(&look(&home)).is_empty());
    fs::remove_file(home.path("vault/policy.toml")).unwrap();
    symlink("/etc/hostname", home.path("vault/profiles.toml")).unwrap();
    let report = look(&home);
    let paths: Vec<_> = report
        .findings
        .iter()
        .filter_map(DoctorFinding::path)
        .collect();
    let expected = ["vault/policy.toml", "vault/profiles.toml"].map(|path| home.path(path));
    assert_eq!(paths, expected, "a deleted file, and a link");
}

#[test]
fn metadata_and_left_overs_are_removed_when_asked() {
    let home = Home::new(1);
    home.add("greet", "one");
    let files = bundle(&home, "greet").join("files");
    plant(&files, ".DS_Store");
    fs::create_dir(home.path("vault/tmp/dead")).unwrap();
    assert_eq!(codes(&look(&home)), ["ignored_metadata", "unfinished"]);
    let report = run(&home, true, false);
    assert_eq!(report.cleaned.len(), 2, "{:?}", report.cleaned);
    assert!(codes(&look(&home)).is_empty());
    assert_eq!(crate::support::mode(&files), 0o555);
}

#[test]
fn files_of_editors_are_damage_that_is_cleaned_when_asked() {
    let home = Home::new(1);
    home.add("greet", "one");
    let files = bundle(&home, "greet").join("files");
    plant(&files, ".DS_Store");
    plant(&files, "SKILL.md~");
    let report = look(&home);
    assert_eq!(codes(&report), ["skill_tampered", "ignored_metadata"]);
    assert!(report.is_tampered() && !report.is_clean());
    assert!(report.findings.iter().any(|finding| {
        matches!(finding, DoctorFinding::SkillDamaged { remedy, .. } if *remedy == Remedy::Clean)
    }));
    // A repair would sign nothing here.
    assert!(run(&home, false, true).is_tampered());
    let report = run(&home, true, false);
    assert_eq!(report.cleaned.len(), 2, "{:?}", report.cleaned);
    assert!(report.is_clean() && !report.is_tampered());
    assert!(codes(&look(&home)).is_empty());
    // What is no metadata of anything stays for its owner to look at.
    plant(&files, "SKILL.md~");
    plant(&files, "run.sh");
    assert!(run(&home, true, false).is_tampered());
    assert!(files.join("run.sh").exists());
}

#[test]
fn a_linked_vault_whose_release_has_expired_is_named() {
    let pair = crate::support::pair::Pair::new(&["alpha"], "one");
    let look = || {
        let report = look(&pair.device);
        let mut findings = report.findings.into_iter();
        findings.find(|finding| finding.code() == "link_expired")
    };
    assert!(look().is_none());
    pair.pull_all();
    assert!(look().is_none());
    pair.device.clock.advance(91 * 86_400);
    let found = look().unwrap();
    assert!(
        matches!(&found, DoctorFinding::LinkExpired { address, .. } if address.ends_with("/v/acme")),
        "{found:?}"
    );
}

#[test]
fn a_release_that_ends_within_a_month_is_named_for_its_owner_and_its_machines() {
    let pair = crate::support::pair::Pair::new(&["alpha"], "one");
    pair.pull_all();
    let ends = |home: &Home| {
        let findings = look(home).findings.into_iter();
        let ends = findings.filter_map(|finding| match finding {
            DoctorFinding::ReleaseEnds { own, .. } => Some(own),
            _ => None,
        });
        ends.collect::<Vec<_>>()
    };
    pair.device.clock.advance(59 * 86_400);
    pair.owner.clock.advance(59 * 86_400);
    assert_eq!((ends(&pair.owner), ends(&pair.device)), (vec![], vec![]));
    pair.device.clock.advance(2 * 86_400);
    pair.owner.clock.advance(2 * 86_400);
    assert_eq!(ends(&pair.device), [false]);
    assert_eq!(ends(&pair.owner), [true]);
    pair.device.clock.advance(30 * 86_400);
    assert!(ends(&pair.device).is_empty());
    assert!(codes(&look(&pair.device)).contains(&"link_expired"));
}

#[test]
fn a_signer_outside_of_the_verified_chain_is_named() {
    let home = Home::new(1);
    let stranger = Home::new(2);
    home.add("greet", "one");
    stranger.add("evil", "one");
    // Whoever writes to the vault's folder puts a skill there that another key signed.
    let evil = bundle(&stranger, "evil");
    let place = home.path("vault/store").join(evil.file_name().unwrap());
    crate::support::copy_folder(&evil, &place);
    for (path, mode) in [
        ("files/SKILL.md", 0o444),
        ("manifest.json", 0o444),
        ("files", 0o555),
    ] {
        set_mode(&place.join(path), mode);
    }
    let target = Path::new("../store")
        .join(evil.file_name().unwrap())
        .join("files");
    symlink(target, home.path("vault/skills/evil")).unwrap();
    let report = run(&home, true, true);
    assert_eq!(codes(&report), ["skill_tampered"]);
    assert_eq!(status(&report, "evil"), RepairStatus::RefusedTampered);
    let found = report
        .findings
        .iter()
        .find(|finding| finding.code() == "skill_tampered");
    let DoctorFinding::SkillDamaged { damage, .. } = found.unwrap() else {
        panic!("{found:?}");
    };
    assert!(
        damage.to_string().contains("not signed by a publisher"),
        "{damage}"
    );
}

#[test]
fn keys_and_folders_that_are_open_to_others_are_named() {
    let home = Home::new(1);
    home.add("greet", "one");
    let key = home.vault.keys().path(&home.vault.release_key().unwrap());
    set_mode(&key, 0o644);
    set_mode(&home.path("vault"), 0o777);
    assert_eq!(codes(&look(&home)), ["key_open", "open_to_others"]);
    set_mode(&home.path("vault"), 0o700);
    for folder in ["store", "skills", "links", "tmp"] {
        let folder = home.path("vault").join(folder);
        set_mode(&folder, 0o770);
        assert_eq!(codes(&look(&home)), ["key_open", "open_to_others"]);
        set_mode(&folder, 0o700);
    }
    fs::remove_file(&key).unwrap();
    assert_eq!(codes(&look(&home)), ["key_missing"]);
    // Without the trust folder nothing says which keys count.
    fs::remove_dir_all(home.path("config")).unwrap();
    let report = look(&home);
    assert_eq!(codes(&report), ["key_missing", "skill_tampered"]);
}

#[test]
fn who_sees_what_and_why_not_is_said() {
    let home = Home::new(1);
    for mark in [".claude/skills/taken", ".codex"] {
        fs::create_dir_all(home.path(mark)).unwrap();
    }
    home.add("greet", "one");
    home.add("taken", "one");
    assert_eq!(codes(&look(&home)), ["agent_not_linked"]);
    linked(&home);
    let codex = "codex".parse().unwrap();
    set_enabled(&home.vault, &name("greet"), Some(&codex), false).unwrap();
    assert!(codes(&look(&home)).contains(&"links_stale"));
    linked(&home);
    let report = look(&home);
    let mut hidden = Vec::new();
    for agent in &report.agents.agents {
        for skill in &agent.hidden {
            hidden.push(format!(
                "{} {} {}",
                agent.agent,
                skill.skill,
                skill.reason.code()
            ));
        }
    }
    assert_eq!(
        hidden,
        ["claude-code taken foreign", "codex greet disabled"]
    );
    assert_eq!(report.context.len(), 2);
    assert!(report.context[0].characters > 10);
}

#[test]
fn links_that_lead_nowhere_are_found_and_ours_are_removed() {
    let home = Home::new(1);
    fs::create_dir_all(home.path(".claude")).unwrap();
    home.add("greet", "one");
    linked(&home);
    let folder = home.path(".claude/skills");
    let ours = home.path("vault/profiles/claude-code/old");
    symlink(ours, folder.join("old")).unwrap();
    symlink(home.path("nowhere"), folder.join("theirs")).unwrap();
    let found = look(&home);
    assert!(!found.is_clean());
    assert_eq!(
        codes(&found),
        ["dangling_link", "dangling_link", "links_stale"]
    );
    let report = run(&home, true, false);
    assert_eq!(report.cleaned.len(), 1);
    assert_eq!(
        codes(&look(&home)),
        ["dangling_link"],
        "what is not ours stays"
    );
    assert!(look(&home).is_clean());
}

#[test]
fn variables_that_a_skill_needs_and_does_not_get_are_named() {
    let home = Home::new(1);
    let folder = home.path("sources/needy");
    let more = "requires-secrets: [{name: IS_SET}, {name: NOT_SET}]\n";
    write(&folder.join("SKILL.md"), skill_md("needy", more, "body"));
    home.add_folder(&folder);
    let report = look(&home);
    assert_eq!(codes(&report), ["environment_unset"]);
    assert_eq!(report.skills[0].unset_environment, ["NOT_SET"]);
}

#[test]
fn an_agent_sees_what_its_folder_holds_and_not_what_is_planned() {
    let home = Home::new(1);
    fs::create_dir(home.path(".claude")).unwrap();
    home.add("greet", "one");
    linked(&home);
    home.add("pdf", "one");
    let report = look(&home);
    assert!(codes(&report).contains(&"links_stale"));
    let claude = &report.agents.agents[0];
    assert_eq!(claude.sees, [name("greet")]);
    let hidden = &claude.hidden[0];
    assert_eq!(
        (hidden.skill.as_str(), hidden.reason.code()),
        ("pdf", "not_synced")
    );
    linked(&home);
    assert_eq!(
        look(&home).agents.agents[0].sees,
        [name("greet"), name("pdf")]
    );
    // The link of a skill that somebody took away shows nothing either.
    fs::remove_file(home.path(".claude/skills/pdf")).unwrap();
    assert_eq!(look(&home).agents.agents[0].sees, [name("greet")]);
}
