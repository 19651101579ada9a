//! A lying host and a thief with one publisher's key against the machine of a vault's owner, through
//! the built binary: nothing is signed or taken over that was not shown, nothing that differs is
//! shown as nothing, and the gate is the owner's own.
//!
//! Each of the fifty histories has a seed that is printed when it fails: who left the vault and how,
//! how many must sign, lines of root versions that were given up and healed, and what the host
//! shows. `VAULT_TEST_LYING_HOST=SEED` runs one of them again. Ten thousand histories of the planner
//! are in the test of the same name in `shared/library`.

mod content;
mod machine;
mod served;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::Value;
use vault_format::catalog::SignedCatalog;
use vault_format::draft::{Draft, GateHint, Request, Source, Submitter};
use vault_format::hash::Digest;
use vault_tests::home::Ran;
use vault_tests::host::{Answer, Host};
use vault_tests::signed::{now, read_catalog};

use self::content::{Skill, Trick};
use self::machine::{HONEST, Machine, STOLEN, Story, signed};
use crate::support::{DIFFERENCES, INTEGRITY, word};

/// Runs ten histories; names the one that fails.
#[expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a person reads which history failed, and names it to run it again"
)]
fn ten(first: u64, history: impl Fn(u64)) {
    let only = std::env::var("VAULT_TEST_LYING_HOST").ok();
    let only: Option<u64> = only.map(|seed| seed.parse().unwrap());
    for seed in first..first + 10 {
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        if let Err(failure) = catch_unwind(AssertUnwindSafe(|| history(seed))) {
            eprintln!("seed {seed}: VAULT_TEST_LYING_HOST={seed} runs it again");
            resume_unwind(failure);
        }
    }
}

fn payload(file: &[u8]) -> String {
    let file = SignedCatalog::parse(file).unwrap();
    file.payload_sha256().to_string()
}

fn said(ran: &Ran) -> String {
    format!("{}{}", ran.stdout, ran.stderr)
}

/// A command that shows what somebody else made tells of the trick, or how much of it is left out,
/// and then all of it with `--full` and as files.
#[track_caller]
fn is_shown(story: &Story<'_>, command: &str, skill: &Skill) {
    let Some(trick) = skill.trick else { return };
    let shown = said(&story.run(command));
    if trick.is_cut() {
        assert!(shown.contains("(--full shows them)"), "{trick:?}: {shown}");
    } else {
        assert!(shown.contains(&skill.needle), "{trick:?}: {shown}");
    }
    let full = said(&story.run(&format!("{command} --full")));
    assert!(full.contains(&skill.needle), "{trick:?}");
    let folder = story.home.path().join("sides");
    story.run(&format!("{command} --out {}", folder.display()));
    let after = folder.join("after").join(skill.name.as_str());
    for file in &skill.files {
        let written = std::fs::read(after.join(file.path.as_str())).unwrap();
        assert_eq!(written, file.bytes, "{trick:?}: {}", file.path);
    }
}

/// Without the hash of exactly what was shown, nothing happens: not with `--yes`, and not with
/// another hash.
#[track_caller]
fn needs(story: &Story<'_>, command: &str, flag: &str) {
    let other = Digest::of(b"another");
    for command in [command.to_owned(), format!("{command} {flag} {other}")] {
        let ran = story.run(&format!("{command} --yes --json"));
        assert_eq!(word(&ran), "review_needed", "{command}: {ran:?}");
        assert_eq!(ran.code, DIFFERENCES);
    }
}

#[test]
fn sync_takes_over_what_counts_and_was_shown() {
    let machine = Machine::new(None);
    ten(1, |seed| sync(machine.story(seed), seed));
}

fn sync(mut story: Story<'_>, seed: u64) {
    for _ in 0..2 {
        let lie = story.lie();
        let adopts = story.dice.below(2) == 0;
        story.shows(lie);
        let command = if adopts {
            "sync --cloud --adopt"
        } else {
            "sync --cloud"
        };
        let ran = story.run(&format!("{command} --yes --json"));
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_ne!(
            word(&ran),
            "review_needed",
            "a forgery is no question: {ran:?}"
        );
        assert!(story.arrived().is_empty(), "{ran:?}");
        story.is_clean();
    }
    // What counts is shown, and only that is taken over.
    let trick = Trick::ALL[usize::try_from(seed).unwrap() % Trick::ALL.len()];
    let skill = Skill::with("common", trick, seed);
    let honest = story.honest();
    let by = story.publishers();
    let mut catalog = story.catalog(&honest, by);
    story.put(&mut catalog, &skill, 2, HONEST);
    let file = signed(&catalog, &story.chain, by);
    story.shows(Some(file.clone()));
    if let Some(code) = trick.refusal() {
        let ran = story.run(&format!("sync --cloud --json --payload {}", payload(&file)));
        assert_eq!(ran.code, code, "{trick:?}: {ran:?}");
        assert!(story.file("common", "run.sh").is_none());
        return;
    }
    is_shown(&story, "sync --cloud", &skill);
    needs(&story, "sync --cloud", "--payload");
    assert_ne!(
        story.file("common", "SKILL.md").as_ref(),
        Some(&skill.files[0].bytes)
    );
    let ran = story.run(&format!("sync --cloud --json --payload {}", payload(&file)));
    assert_eq!(ran.code, 0, "{ran:?}");
    for file in &skill.files {
        let taken = story.file("common", file.path.as_str());
        assert_eq!(taken.as_ref(), Some(&file.bytes), "{}", file.path);
    }
    story.keeps_its_variables(&skill);
    story.is_clean();
}

#[test]
fn a_rollback_signs_what_counted_and_was_shown() {
    let machine = Machine::new(None);
    ten(11, |seed| rollback(machine.story(seed), seed));
}

fn rollback(mut story: Story<'_>, seed: u64) {
    let honest = story.honest();
    for _ in 0..3 {
        let (catalog, file) = story.forged();
        // With all that the forgery needs.
        story.shows(Some(honest.clone()));
        // Under its own number, or under one that this machine knows.
        let asked = if story.dice.below(2) == 0 {
            catalog.release
        } else {
            2
        };
        story.hands_out(asked, file);
        let ran = story.run(&format!("cloud rollback {asked} --yes --json"));
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_ne!(
            word(&ran),
            "review_needed",
            "a forgery is no question: {ran:?}"
        );
        assert!(story.arrived().is_empty());
        story.is_clean();
    }
    // An honest release that this machine never had.
    let trick = Trick::ALL[usize::try_from(seed).unwrap() % Trick::ALL.len()];
    let skill = Skill::with("common", trick, seed);
    let by = story.publishers();
    let mut catalog = story.catalog(&honest, by);
    story.put(&mut catalog, &skill, 2, HONEST);
    let file = signed(&catalog, &story.chain, by);
    story.shows(Some(honest));
    story.hands_out(3, file.clone());
    let command = "cloud rollback 3";
    if let Some(code) = trick.refusal() {
        let ran = story.run(&format!("{command} --json --payload {}", payload(&file)));
        assert_eq!(ran.code, code, "{trick:?}: {ran:?}");
        assert!(story.file("common", "run.sh").is_none());
        return;
    }
    is_shown(&story, command, &skill);
    needs(&story, command, "--payload");
    assert!(story.arrived().is_empty());
    let ran = story.run(&format!("{command} --json --payload {}", payload(&file)));
    for file in &skill.files {
        let signed = story.file("common", file.path.as_str());
        assert_eq!(signed.as_ref(), Some(&file.bytes), "{ran:?}");
    }
    story.keeps_its_variables(&skill);
    story.is_clean();
}

#[test]
fn a_release_is_signed_as_it_was_shown() {
    let machine = Machine::new(None);
    ten(21, |seed| release(machine.story_with(seed, Some(2)), seed));
}

/// A proposal that the thief makes with the stolen key, which is one of two that are needed.
fn release(mut story: Story<'_>, seed: u64) {
    let honest = story.honest();
    let trick = Trick::ALL[usize::try_from(seed).unwrap() % Trick::ALL.len()];
    let skill = Skill::with("common", trick, seed);
    // The host shows the current release, or a fake one that has the same already.
    let fakes = seed.is_multiple_of(2);
    let mut catalog = story.catalog(&honest, &[STOLEN]);
    story.put(&mut catalog, &skill, 2, STOLEN);
    let mut needles = Vec::new();
    let mut lies = false;
    match story.dice.below(4) {
        0 => {
            catalog.withdrawn.clear();
            needles.push("no longer withdrawn: leaky");
        }
        1 => {
            catalog.skills.retain(|entry| entry.name.as_str() != "beta");
            story.set_index(&mut catalog);
            needles.push("- beta");
        }
        2 => {
            catalog
                .audience
                .push("https://elsewhere.example/v/acme/".to_owned());
            needles.push("elsewhere.example");
        }
        _ => {
            story.lie_in_index(&mut catalog);
            lies = true;
        }
    }
    let mut file = signed(&catalog, &story.chain, &[STOLEN]);
    story.shows(Some(honest.clone()));
    if fakes {
        let mut fake = catalog.clone();
        let older = story.chain.until_version(2).unwrap();
        fake.root_version = 2;
        fake.root_sha256 = *older.newest().payload_sha256();
        let shown = signed(&fake, &story.chain, &[STOLEN]);
        let above = story.catalog(&shown, &[STOLEN]);
        catalog.previous = above.previous;
        catalog.release = above.release;
        file = signed(&catalog, &story.chain, &[STOLEN]);
        story.shows(Some(shown));
    }
    let id = story.proposes(&file);
    let show = format!("release show {id}");
    let sign = format!("release sign {id}");
    let hash = payload(&file);
    let refusal = if lies {
        Some(INTEGRITY)
    } else {
        trick.refusal()
    };
    if let Some(code) = refusal {
        let ran = story.run(&format!("{sign} --json --payload {hash}"));
        assert!(
            [code, trick.refusal().unwrap_or(code)].contains(&ran.code),
            "{trick:?}: {ran:?}"
        );
        assert!(story.arrived().is_empty());
        return;
    }
    is_shown(&story, &show, &skill);
    let shown = story.run(&show).ok().stdout;
    for needle in needles {
        assert!(shown.contains(needle), "{needle}: {shown}");
    }
    assert!(shown.contains("common  version 1 → 2"), "{shown}");
    needs(&story, &sign, "--payload");
    // Other bytes under the same id are not what was read.
    let mut other = catalog.clone();
    other.expires_at = other.expires_at.plus_days(1);
    let other = signed(&other, &story.chain, &[STOLEN]);
    story.replaces_draft(&other);
    let ran = story.run(&format!("{sign} --json --payload {hash}"));
    assert_eq!(word(&ran), "review_needed", "{ran:?}");
    assert!(story.arrived().is_empty());
    story.replaces_draft(&file);
    // A host that hides what this machine published makes no proposal the first one.
    story.shows(None);
    let ran = story.run(&format!("{sign} --json --payload {hash}"));
    assert_eq!(word(&ran), "service_rolled_back", "{ran:?}");
    if fakes {
        return;
    }
    story.shows(Some(honest));
    let ran = story.run(&format!("{sign} --json --payload {hash}"));
    assert_eq!(ran.code, 0, "{ran:?}");
    let arrived = story.arrived();
    assert_eq!(
        arrived,
        [read_catalog(&file).unwrap()],
        "exactly what was shown"
    );
}

#[test]
fn a_draft_is_signed_as_it_was_shown() {
    let site = Host::start();
    let machine = Machine::new(Some(&site.url));
    ten(31, |seed| {
        draft(machine.story_with(seed, Some(1)), &site, seed);
    });
}

/// A member's draft: files, or a source that has other ones when it is asked again.
fn draft(mut story: Story<'_>, site: &Host, seed: u64) {
    story.shows(Some(story.honest()));
    let trick = Trick::FILES[usize::try_from(seed).unwrap() % Trick::FILES.len()];
    let name = format!("made-{seed}");
    let changes = story.dice.below(2) == 0;
    let skill = if changes {
        Skill::plain(&name, "Benign text.")
    } else {
        Skill::with(&name, trick, seed)
    };
    let request = if changes {
        serves(site, &name, &skill.files[0].bytes);
        let identifier = format!("registry:127.0.0.1/{name}");
        Request::Install {
            source: Source {
                identifier: identifier.parse().unwrap(),
                reference: None,
            },
        }
    } else {
        Request::Propose {
            files: skill.files.clone(),
        }
    };
    let made = Draft {
        draft_id: format!("01ARZ3NDEKTSV4RRFFQ69G5F{:02}", 0).parse().unwrap(),
        vault_id: Some(story.chain.vault_id()),
        slug: "acme".parse().unwrap(),
        name: skill.name.clone(),
        base_bundle_hash: None,
        submitted_at: now(),
        submitted_by: Submitter {
            user_id: "usr_a".to_owned(),
            client_id: None,
        },
        request,
        gate: GateHint {
            rules: "structure/1".to_owned(),
            flags: Vec::new(),
        },
    };
    let kind = if changes { "install" } else { "propose" };
    let id = story.lists(kind, Some(&name), &made.to_bytes().unwrap());
    let (show, accept) = (format!("drafts show {id}"), format!("drafts accept {id}"));
    let shown = story.run(&format!("{show} --json"));
    if let (false, Some(code)) = (changes, trick.refusal()) {
        assert_eq!(shown.code, code, "{trick:?}: {shown:?}");
        return;
    }
    assert_eq!(shown.code, 0, "{shown:?}");
    let hash = shown.json()["data"]["bundle"].as_str().unwrap().to_owned();
    if !changes {
        let read = show_with_files(&story, &show, &skill);
        assert!(read.contains(&hash), "{read}");
    }
    needs(&story, &accept, "--bundle");
    assert!(story.file(&name, "SKILL.md").is_none());
    if changes {
        let other = Skill::plain(&name, "OTHER TEXT that nobody reviewed.");
        serves(site, &name, &other.files[0].bytes);
        let ran = story.run(&format!("{accept} --json --bundle {hash}"));
        assert_eq!(word(&ran), "review_needed", "{ran:?}");
        assert!(story.file(&name, "SKILL.md").is_none());
        assert!(story.arrived().is_empty());
        serves(site, &name, &skill.files[0].bytes);
    }
    let ran = story.run(&format!("{accept} --json --yes --bundle {hash}"));
    for file in &skill.files {
        let taken = story.file(&name, file.path.as_str());
        assert_eq!(taken.as_ref(), Some(&file.bytes), "{ran:?}");
    }
    story.keeps_its_variables(&skill);
    story.is_clean();
}

#[track_caller]
fn show_with_files(story: &Story<'_>, show: &str, skill: &Skill) -> String {
    is_shown(story, show, skill);
    said(&story.run(show))
}

/// What the registry has of a skill from now on.
fn serves(site: &Host, name: &str, text: &[u8]) {
    let (path, text) = (format!("/skills/{name}/SKILL.md"), text.to_vec());
    site.attack(move |request| (request.path == path).then(|| Answer::new(200, text.clone())));
}

/// The member of an answer as a text.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
