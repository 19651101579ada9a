//! The deeds of the killed process: what each needs beforehand and what must hold afterwards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::host::{BASE, Host, planned};
use crate::support::{Home, add_folders, name, recovery, sync_input, write, write_skill};
use vault_format::hash::Digest;
use vault_library::add_folder;
use vault_library::admit::Options;
use vault_library::admit::variants as transforms;
use vault_library::agents::Machine;
use vault_library::agents::setup::{self, AdoptionMode};
use vault_library::doctor::{self, DoctorInput, Severity};
use vault_library::publish::{self, PlanRequest};
use vault_library::recovery::NewRecovery;
use vault_library::subscribe::{self, AcceptOptions, Selection, StagedBundles};
use vault_library::{SyncProfilesInput, Vault, roots, shelf, sync_profiles};
use vault_testing::SeededRandom;
use vault_testing::TestClock;

use crate::Deed;

pub fn open(home: &Path) -> Vault {
    let clock = Arc::new(TestClock::default());
    crate::support::open(home, &clock, u64::from(std::process::id()))
}

fn source(home: &Path, name: &str, body: &str, files: usize) -> PathBuf {
    let folder = home.join("sources").join(name);
    let _absent = std::fs::remove_dir_all(&folder);
    write_skill(&folder, name, body);
    for number in 0..files {
        write(&folder.join(format!("part/{number}.txt")), body);
    }
    folder
}

fn add(vault: &Vault, folder: &Path) {
    add_folder(vault, folder, &Options::default()).unwrap();
}

/// Pulls the host's catalog and objects from the files that the parent process wrote for the
/// victim.
fn pull(home: &Path, release: u64) {
    let vault = open(home);
    let link = subscribe::list_links(&vault).unwrap().remove(0);
    let served = home.join("host");
    let bytes = std::fs::read(served.join(format!("catalog-{release}"))).unwrap();
    let object = |hash: &Digest| std::fs::read(served.join(hash.to_string())).ok();
    let offer = link
        .accept_catalog(&vault, &bytes, &AcceptOptions::default())
        .unwrap();
    let chosen = offer
        .resolve_selection(&Selection::default(), &object)
        .unwrap();
    let mut staged = StagedBundles::new(&vault).unwrap();
    for skill in offer.missing_bundles(&vault, &chosen) {
        let bytes = object(&skill.bundle_hash).unwrap();
        staged.add_bundle(&offer, &skill, &bytes, &object).unwrap();
    }
    subscribe::install_selection(&vault, &offer, &Selection::default(), &chosen, staged).unwrap();
}

/// Makes a recovery key. Given again, it goes on with the file that the killed run has written.
fn make_recovery(home: &Path) {
    // Random bytes that no other key was made of.
    let vault = Vault::open(
        open(home).paths().clone(),
        Arc::new(TestClock::default()),
        Arc::new(SeededRandom::new(u64::from(std::process::id()) + (1 << 32))),
    )
    .unwrap();
    let stick = home.join("stick");
    std::fs::create_dir_all(&stick).unwrap();
    let input = NewRecovery {
        files: vec![stick.join("0.json")],
        ..NewRecovery::default()
    };
    vault_library::recovery::create_recovery_key(&vault, None, input).unwrap();
}

/// Revokes the key that the vault had, and signs again what it had published.
fn recover(home: &Path) {
    let vault = open(home);
    let mut key = recovery::open(&home.join("stick/0.json"));
    let lost = std::fs::read_to_string(home.join("lost")).unwrap();
    let place = vault_library::recovery::RecoveredPlace {
        paths: vault.paths().clone(),
        clock: Arc::new(TestClock::default()),
        random: Arc::new(SeededRandom::new(u64::from(std::process::id()) + (2 << 32))),
        passphrases: Arc::new(vault_library::keys::NoPassphrases),
    };
    let input = vault_library::recovery::UseRecovery {
        key: &mut key,
        catalog: None,
        at_least: None,
        lost: Some(lost.parse().unwrap()),
        destroyed: false,
        name: None,
    };
    let (vault, _) = vault_library::recovery::recover_vault(&place, input).unwrap();
    roots::sign_again(&vault).unwrap();
}

pub fn act(deed: Deed, home: &Path) {
    let path = |name: &str| home.join("sources").join(name);
    match deed {
        Deed::Create => {
            open(home);
        }
        Deed::Add | Deed::Replace => add(&open(home), &path("subject")),
        Deed::AddMany => {
            let folders = ["subject", "second"].map(path);
            for answer in add_folders(&open(home), &folders) {
                answer.unwrap();
            }
        }
        Deed::Remove => {
            crate::support::remove(&open(home), "subject", Some("reason"));
        }
        Deed::Rotate => {
            roots::rotate_key(&open(home), None, None).unwrap();
        }
        Deed::Recovery => make_recovery(home),
        Deed::Recover => recover(home),
        Deed::Plan => {
            let vault = open(home);
            let slug = "acme".parse().unwrap();
            let plan = planned(&vault, &PlanRequest::new(BASE, &slug, None));
            publish::record_published(&vault, &plan).unwrap();
        }
        Deed::Pull => pull(home, 2),
        Deed::PullForAgents => {
            pull(home, 2);
            sync(home, deed);
        }
        Deed::Link | Deed::Render | Deed::CopyOut => sync(home, deed),
        Deed::Unlink => {
            crate::support::remove(&open(home), "subject", None);
            sync(home, deed);
        }
        Deed::Backup | Deed::InPlace => {
            let vault = open(home);
            let mode = if deed == Deed::Backup {
                AdoptionMode::Backup
            } else {
                AdoptionMode::InPlace
            };
            let found =
                setup::scan_folders(Some(&vault), &Machine::with_home(home), &[], true).unwrap();
            for skill in &found.skills {
                setup::adopt_skill(&vault, skill, mode, true, true).unwrap();
            }
            sync(home, deed);
        }
    }
}

fn sync(home: &Path, deed: Deed) {
    let given = (deed == Deed::CopyOut).then(|| {
        let agent = "claude-code".parse().unwrap();
        (agent, home.join("given"))
    });
    let input = SyncProfilesInput {
        discover: deed != Deed::CopyOut,
        copy: deed == Deed::CopyOut,
        profile_roots: given.into_iter().collect(),
        ..sync_input(home)
    };
    sync_profiles(&open(home), &input).unwrap();
}

/// What must hold for the agents' folders at every moment: no symlink dangles, and no file of the
/// user is lost.
pub fn agents_are_well(home: &Path, what: &str) {
    let (mut own, mut not_stored) = (0, 0);
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            // Staged symlinks may dangle before they are moved into place.
            let staged = path.starts_with(home.join("vault/tmp"));
            // The former set of a linked vault is there for readers that have it open.
            let former = kind.is_dir() && path.ends_with("sets");
            if kind.is_symlink() {
                let shown = path.display();
                assert!(staged || path.exists(), "{what}: {shown} leads nowhere");
            } else if kind.is_dir() {
                folders.extend((!former).then_some(path));
            } else {
                let bytes = std::fs::read(&path).unwrap_or_default();
                own += usize::from(bytes.ends_with(b"of my own\n"));
                not_stored += usize::from(bytes == b"work of a year\n");
            }
        }
    }
    assert!(own > 0, "{what}: the user's skill is lost");
    assert_eq!(not_stored, 1, "{what}: what the vault does not hold");
    let theirs = std::fs::read(home.join(".claude/skills/theirs.txt")).unwrap();
    assert_eq!(theirs, b"theirs", "{what}");
}

/// What the agents read of each skill: its last line, by folder and name.
pub fn agents_read(home: &Path) -> BTreeMap<&'static str, BTreeMap<String, String>> {
    let folders = [".claude/skills", ".cursor/skills"].into_iter();
    let read = folders.map(|folder| {
        let names = crate::support::file_names(&home.join(folder)).into_iter();
        let skills = names.filter_map(|name| {
            let file = home.join(folder).join(&name).join("SKILL.md");
            let text = std::fs::read_to_string(file).ok()?;
            Some((name, text.lines().last().unwrap_or_default().to_owned()))
        });
        (folder, skills.collect())
    });
    read.collect()
}

/// What must hold after the deed is complete and leftovers of a killed run are removed.
pub fn agents_are_done(home: &Path, what: &str) {
    let input = DoctorInput {
        machine: Some(Machine::with_home(home)),
        skill: None,
        clean: true,
        repair: false,
        strict: true,
        is_set: &|_| true,
    };
    let report = doctor::examine_vault(&open(home), &input).unwrap();
    let findings = report.findings.iter();
    let serious: Vec<_> = findings
        .filter(|finding| finding.code() != "no_recovery_key")
        .filter(|finding| finding.severity() != Severity::Note)
        .filter(|finding| !format!("{finding:?}").contains("of-my-own"))
        .collect();
    assert!(serious.is_empty(), "{what}: {serious:?}");
    let roots = [".claude/skills", ".cursor/skills", "given"];
    for root in roots.into_iter().filter(|root| home.join(root).exists()) {
        for path in crate::support::snapshot(&home.join(root)).into_keys() {
            assert!(!path.contains(".vault-aside"), "{what}: {root}/{path}");
        }
    }
}

/// Creates the state before the deed.
pub fn prepare(deed: Deed, home: &Path) {
    if deed == Deed::Create {
        return;
    }
    let vault = open(home);
    add(&vault, &source(home, "witness", "stays", 1));
    source(home, "subject", "new", 3);
    source(home, "second", "new", 20);
    match deed {
        Deed::Replace
        | Deed::Remove
        | Deed::Rotate
        | Deed::Recovery
        | Deed::Recover
        | Deed::Plan => {
            add(&vault, &source(home, "subject", "old", 2));
            source(home, "subject", "new", 3);
            if matches!(deed, Deed::Recovery | Deed::Recover) {
                let now = vault_store::clock::Clock::now(&TestClock::default());
                Host::new("acme").sync(&vault, now).unwrap();
            }
            if deed == Deed::Recover {
                make_recovery(home);
                let lost = vault.release_key().unwrap();
                std::fs::write(home.join("lost"), lost.to_string()).unwrap();
            }
        }
        Deed::Pull => serve(home, &vault),
        Deed::Create | Deed::Add | Deed::AddMany => {}
        _ => agents(deed, home, &vault),
    }
    shelf::list_installed(&vault).unwrap();
}

/// Creates two agents, a skill and a file of the user, and what else the deed needs.
fn agents(deed: Deed, home: &Path, vault: &Vault) {
    std::fs::create_dir_all(home.join(".cursor/skills")).unwrap();
    let skills = home.join(".claude/skills");
    write_skill(&skills.join("of-my-own"), "of-my-own", "of my own");
    write(&skills.join("of-my-own/.git/HEAD"), "work of a year\n");
    write(&skills.join("theirs.txt"), "theirs");
    add(vault, &source(home, "subject", "old", 2));
    match deed {
        Deed::Unlink => sync(home, deed),
        Deed::PullForAgents => {
            serve_for_agents(home, vault);
            sync(home, deed);
        }
        Deed::Render | Deed::CopyOut => {
            if deed == Deed::Render {
                let text = b"---\nagents: [cursor]\n---\nrendered\n";
                transforms::add_transform(vault, &name("subject"), name("t"), text).unwrap();
            }
            sync(home, deed);
            add(vault, &source(home, "subject", "new", 3));
        }
        _ => {}
    }
}

fn serve(home: &Path, vault: &Vault) {
    let owner = Home::new(77);
    let mut host = Host::new("acme");
    for skill in ["left", "moves", "goes"] {
        owner.add(skill, "one");
    }
    host.sync(&owner.vault, owner.now()).unwrap();
    let first = host.current.clone().unwrap();
    owner.add("moves", "two");
    owner.add("comes", "one");
    owner.remove("goes", Some("harmful"));
    host.sync(&owner.vault, owner.now()).unwrap();
    hand_over(home, vault, &host, &first);
}

/// Serves two releases that give cursor variants, of which the second leaves a skill out for one
/// agent, and ends one variant.
fn serve_for_agents(home: &Path, vault: &Vault) {
    let owner = Home::new(77);
    let mut host = Host::new("acme");
    for skill in ["moves", "plain", "varies", "goes"] {
        owner.add(skill, "one");
    }
    let text = "---\nname: tagged\ndescription: About it.\ntags: [ops]\n---\none\n";
    write(&owner.path("sources/tagged/SKILL.md"), text);
    owner.add_folder(&owner.path("sources/tagged"));
    let transform = |skill: &str, text: &str| {
        let text = format!("---\nagents: [cursor]\n---\n{text}\n");
        transforms::add_transform(&owner.vault, &name(skill), name("t"), text.as_bytes()).unwrap();
    };
    for skill in ["moves", "varies", "goes", "tagged"] {
        transform(skill, "rendered one");
    }
    host.sync(&owner.vault, owner.now()).unwrap();
    let first = host.current.clone().unwrap();
    owner.add("moves", "two");
    owner.add("plain", "two");
    transform("moves", "rendered two");
    transforms::remove_transform(&owner.vault, &name("varies"), &name("t")).unwrap();
    owner.add("varies", "two");
    owner.remove("goes", Some("harmful"));
    let rules = "[[profile]]\nname = \"a\"\nagent = \"cursor\"\nexclude_tags = [\"ops\"]\n";
    write(&owner.path("vault/profiles.toml"), rules);
    crate::support::approve_all(&owner.vault).unwrap();
    host.sync(&owner.vault, owner.now()).unwrap();
    hand_over(home, vault, &host, &first);
}

/// Writes what the host serves for the victim, and pulls its first release.
fn hand_over(home: &Path, vault: &Vault, host: &Host, first: &[u8]) {
    let served = home.join("host");
    std::fs::create_dir_all(&served).unwrap();
    std::fs::write(served.join("catalog-1"), first).unwrap();
    std::fs::write(served.join("catalog-2"), host.current.as_ref().unwrap()).unwrap();
    for (hash, bytes) in &host.objects {
        std::fs::write(served.join(hash.to_string()), bytes).unwrap();
    }
    subscribe::link_vault(vault, BASE, &host.slug).unwrap();
    pull(home, 1);
}
