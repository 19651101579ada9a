//! Tests that all ways of adding skills run the same checks: the gate, confusable names,
//! near-duplicates, the earlier version.

use std::path::Path;
use std::time::Duration;

use crate::support::host::Host;
use crate::support::{
    Home, PIPED, allowing_pipes, name, recovery, replacing, rules, set_mode, skill_md, words,
};
use vault_format::bundle;
use vault_format::catalog::SkillEntry;
use vault_format::hash::Digest;
use vault_format::manifest::{Mode, SKILL_MD, SignedManifest};
use vault_format::name::SkillName;
use vault_gate::RawFile;
use vault_library::admit::{
    AdmitError, Neighbours, Options, Source, admit_candidates, admit_one, examine_candidate,
    history, preview_admission,
};
use vault_library::shelf::LibraryShelf;
use vault_library::{
    LockError, ProposeSkill, Proposed, SourceError, VaultError, adopt, propose_skill, roots, shelf,
};
use vault_shelf::{Change, Shelf as _, Submitted};
use vault_testing::assert_matches;

fn lenient() -> Options {
    Options {
        strict: false,
        ..Options::default()
    }
}

#[test]
fn a_skill_that_names_any_agent_as_an_agent_is_refused() {
    let home = Home::new(1);
    let text = "---\nname: notes\ndescription: Takes notes of what was said.\n";
    let document = |agents: &str| format!("{text}{agents}---\nTake notes.\n").into_bytes();
    let options = |agents: &[&str]| Options {
        agents: agents.iter().map(|id| id.parse().unwrap()).collect(),
        ..lenient()
    };
    for (agents, given) in [
        ("agents: [any-agent]\n", &[][..]),
        ("agents: codex, any-agent\n", &[]),
        ("metadata:\n  agents: any-agent\n", &[]),
        ("", &["codex", "any-agent"]),
    ] {
        let document = document(agents);
        let folder = home.source("notes", "x", &[(SKILL_MD, &document)]);
        let text = Source::Text {
            files: vec![RawFile {
                path: SKILL_MD.to_owned(),
                mode: Mode::Plain,
                bytes: document,
            }],
            by: "user".to_owned(),
        };
        for source in [Source::folder(&folder), text] {
            let (vault, options) = (&home.vault, options(given));
            let refused = examine_candidate(source, &options, &mut Neighbours::for_vault(vault));
            let refused = refused.unwrap_err();
            assert_matches!(&refused, AdmitError::AnyAgent(name) if name.as_str() == "notes");
            assert!(refused.to_string().contains("any-agent is no agent"));
        }
    }
    let folder = home.source("notes", "x", &[(SKILL_MD, &document("agents: [codex]\n"))]);
    home.add_with(&folder, &options(&["claude-code"])).unwrap();
}

/// Forges a skill that an earlier gate may have admitted: signs the installed skill with the
/// vault's own key and marks it as strictly checked.
fn sign_as_strict(home: &Home, skill: &SkillName) -> SkillEntry {
    let installed = history::read_installed(&home.vault, skill);
    let installed = installed.unwrap().unwrap();
    let mut manifest = installed.manifest;
    manifest.gate.strict = true;
    manifest.gate.flags.clear();
    let key = home.vault.release_signer().unwrap();
    let envelope = SignedManifest::sign(&manifest, &*key).unwrap();
    let encoded = bundle::encode(&envelope, &manifest, &installed.files).unwrap();
    let link = home.path("vault/skills").join(skill.as_str());
    let before = std::fs::canonicalize(&link).unwrap();
    let before = before.parent().unwrap();
    set_mode(before, 0o755);
    let after = before.with_file_name(encoded.hash.to_string());
    std::fs::rename(before, &after).unwrap();
    let stored = after.join("manifest.json");
    set_mode(&stored, 0o644);
    std::fs::write(&stored, envelope.as_bytes()).unwrap();
    set_mode(&stored, 0o444);
    std::fs::remove_file(&link).unwrap();
    let target = format!("../store/{}/files", encoded.hash);
    std::os::unix::fs::symlink(target, &link).unwrap();
    SkillEntry {
        name: skill.clone(),
        version: manifest.version,
        bundle_hash: encoded.hash,
        size: encoded.bytes.len() as u64,
    }
}

#[test]
fn a_proposed_name_that_is_easily_confused_is_warned_of() {
    let home = Home::new(1);
    home.add("a-good-name", "x");
    let proposal =
        ProposeSkill::from_skill_md("ann", skill_md("a-good-namez", "", "Something else."));
    let check = ProposeSkill {
        check: true,
        ..proposal.clone()
    };
    let checked = propose_skill(&home.vault, &check);
    assert_eq!(rules(&checked.unwrap().findings), ["name-look-alike"]);
    let report = propose_skill(&home.vault, &proposal).unwrap();
    assert_eq!(report.outcome, Proposed::Accepted);
    assert_eq!(rules(&report.findings), ["name-look-alike"]);
}

#[tokio::test]
async fn a_tool_that_hands_in_a_copy_is_told_so() {
    let home = Home::new(1);
    let body = words(0..800);
    home.add("first", &body);
    let shelf = LibraryShelf::new(home.again(), "local");
    let by = vault_format::draft::Submitter {
        user_id: "usr_1".to_owned(),
        client_id: None,
    };
    let change = Change::Take {
        files: vec![RawFile {
            path: SKILL_MD.to_owned(),
            mode: Mode::Plain,
            bytes: skill_md("elsewhere", "", &body).into(),
        }],
        replace: false,
        check: false,
        hidden: false,
    };
    match shelf.submit(&by, change).await.unwrap() {
        Submitted::Signed { findings, .. } => assert_eq!(rules(&findings), ["duplicate"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_gate_refuses_now_is_not_signed_again_and_named() {
    let mut home = Home::new(1);
    let stick = recovery::create(&mut home);
    home.add("plain", "x");
    let folder = home.source("piped", "x", &[("setup.sh", PIPED.as_bytes())]);
    home.add_with(&folder, &lenient()).unwrap();
    let folder = home.source("allowed", "y", &[("setup.sh", PIPED.as_bytes())]);
    home.add_with(&folder, &allowing_pipes()).unwrap();
    let folder = home.source("lenient", "z", &[("setup.sh", PIPED.as_bytes())]);
    home.add_with(&folder, &lenient()).unwrap();
    sign_as_strict(&home, &name("piped"));

    Host::new("acme").sync(&home.vault, home.now()).unwrap();
    home.add("unpublished", "x");
    let stolen = home.vault.release_key().unwrap();
    let report = recovery::revoke(&home, &stick, stolen).unwrap();
    assert_eq!(report.lost, [name("unpublished")]);
    let waiting = ["allowed", "lenient", "piped", "plain"].map(name);
    assert_eq!(report.to_sign_again, waiting);
    home.remove("unpublished", None);
    let report = roots::sign_again(&home.vault).unwrap();
    // Exactly the recorded strictness and the signed exceptions apply.
    assert_eq!(
        report.signed,
        [name("allowed"), name("lenient"), name("plain")]
    );
    let [(refused, AdmitError::Blocked { findings })] = &report.refused[..] else {
        panic!("{:?}", report.refused);
    };
    assert_eq!(*refused, name("piped"));
    assert!(rules(findings).contains(&"download-pipe-shell"));
    assert!(report.damaged.is_empty());
    let listing = shelf::list_installed(&home.vault).unwrap();
    let damaged: Vec<_> = listing.damaged.iter().map(|(name, ..)| name).collect();
    assert_eq!(damaged, [refused], "nobody believes the stolen key's word");

    // When added again with other content, it continues above its earlier version.
    let folder = home.source("piped", "Nothing is piped.", &[]);
    let report = home.add_with(&folder, &replacing()).unwrap();
    assert_eq!(report.version, 2);
    assert!(
        shelf::list_installed(&home.vault)
            .unwrap()
            .damaged
            .is_empty()
    );
}

#[test]
fn a_rollback_is_as_strict_as_what_it_goes_back_to() {
    let home = Home::new(1);
    let folder = home.source("tool", "x", &[("setup.sh", PIPED.as_bytes())]);
    home.add_with(&folder, &lenient()).unwrap();
    sign_as_strict(&home, &name("tool"));
    home.add_folder(&home.source("tool", "Nothing is piped.", &[]));
    let refused = history::roll_back(&home.vault, &name("tool"), None, false);
    assert_matches!(
        refused,
        Err(history::RollbackError::Admit(AdmitError::Blocked { .. }))
    );
    assert_eq!(home.listed()["tool"], 2);
}

#[test]
fn what_the_gate_refuses_is_not_adopted_either() {
    let home = Home::new(1);
    let folder = home.source("tool", "x", &[("setup.sh", PIPED.as_bytes())]);
    home.add_with(&folder, &lenient()).unwrap();
    let entry = sign_as_strict(&home, &name("tool"));
    let own = adopt::Exceptions {
        strict: true,
        allow: Vec::new(),
        reason: None,
    };
    let refused = adopt::adopt_skills(&home.vault, &[entry], &own, &|_| None);
    assert_matches!(
        refused,
        Err(adopt::AdoptError::Refused {
            reason: AdmitError::Blocked { .. },
            ..
        })
    );
}

#[test]
fn a_busy_vault_is_busy_for_all_candidates_at_once() {
    let home = Home::new(1);
    let mut neighbours = Neighbours::for_vault(&home.vault);
    let candidates = ["one", "two", "three"].map(|skill| {
        let folder = home.source(skill, "x", &[]);
        let source = Source::folder(&folder);
        examine_candidate(source, &Options::default(), &mut neighbours).unwrap()
    });
    let lock = std::fs::File::open(home.path("vault/lock")).unwrap();
    lock.lock().unwrap();
    let waiting = home.again().with_wait(Duration::ZERO);
    let busy = admit_candidates(&waiting, &candidates).unwrap_err();
    assert_matches!(busy, VaultError::Lock(LockError::Busy { .. }));
    drop(lock);
    let reports = admit_candidates(&waiting, &candidates).unwrap();
    assert!(reports.iter().all(Result::is_ok), "{reports:?}");
}

#[test]
fn a_folder_that_changes_after_the_choice_is_not_taken() {
    let home = Home::new(1);
    let skill = home.source("pdf", "x", &[]);
    let foreign = home.source("foreign", "x", &[]);
    let top = home.path("coll");
    let listed = std::fs::read(skill.join("SKILL.md")).unwrap();
    let listed = Some(Digest::of(&listed));
    std::fs::create_dir(&top).unwrap();
    std::fs::rename(&skill, top.join("sk")).unwrap();
    let examine = |copy_links| {
        let source = Source::FolderBelow {
            top: top.clone(),
            below: "sk".to_owned(),
            document: listed,
        };
        let options = Options {
            copy_links,
            ..Options::default()
        };
        examine_candidate(source, &options, &mut Neighbours::for_vault(&home.vault))
    };
    let candidate = examine(false).unwrap();
    assert_eq!(candidate.package.name, name("pdf"));
    assert_eq!(candidate.local, Some(top.join("sk")));
    std::fs::rename(top.join("sk"), top.join("before")).unwrap();
    std::os::unix::fs::symlink(&foreign, top.join("sk")).unwrap();
    for copy_links in [false, true] {
        let refused = examine(copy_links).unwrap_err();
        assert_matches!(refused, AdmitError::Source(SourceError::Link(_)));
    }
    std::fs::remove_file(top.join("sk")).unwrap();
    std::fs::rename(&foreign, top.join("sk")).unwrap();
    let refused = examine(false).unwrap_err();
    assert_matches!(refused, AdmitError::Source(SourceError::Changed(_)));
}

#[test]
fn a_document_that_changes_after_the_choice_is_not_taken() {
    let home = Home::new(1);
    let top = home.source("top", "x", &[]);
    for (below, own) in [("", "top"), ("inner", "inner")] {
        let folder = top.join(below);
        let write = |text: &str| {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(SKILL_MD), text).unwrap();
            Some(Digest::of(text.as_bytes()))
        };
        let examine = |document| {
            let source = Source::FolderBelow {
                top: top.clone(),
                below: below.to_owned(),
                document,
            };
            let options = Options::default();
            examine_candidate(source, &options, &mut Neighbours::for_vault(&home.vault))
        };
        let listed = write(&skill_md(own, "", "First."));
        assert_eq!(examine(listed).unwrap().package.name, name(own));
        // The same name with other instructions, and then one that could be read only now.
        let now = write(&skill_md(own, "", "Second."));
        for earlier in [listed, None] {
            let refused = examine(earlier).unwrap_err();
            assert_matches!(refused, AdmitError::Source(SourceError::Changed(_)));
        }
        examine(now).unwrap();
    }
}

#[test]
fn a_preview_signs_nothing_and_finds_what_is_there() {
    let home = Home::new(1);
    let folder = home.source("tool", "x", &[]);
    let mut neighbours = Neighbours::for_vault(&home.vault);
    let source = Source::folder(&folder);
    let candidate = examine_candidate(source, &Options::default(), &mut neighbours).unwrap();
    assert!(
        preview_admission(&home.vault, &candidate)
            .unwrap()
            .is_none()
    );
    assert!(home.listed().is_empty());
    admit_one(&home.vault, &candidate).unwrap();
    let unchanged = preview_admission(&home.vault, &candidate).unwrap().unwrap();
    assert!(!unchanged.is_change());
}

/// Finds the files below this folder that call the functions that sign manifests or other
/// envelopes.
fn callers(folder: &Path, found: &mut Vec<String>, root: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["target", ".git", "node_modules"].contains(&name) {
            callers(&path, found, root);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let signs = [
                "SignedManifest::sign(",
                "Envelope::sign(",
                "Envelope::sign_with(",
            ];
            if signs.iter().any(|call| text.contains(call)) {
                let inner = path.strip_prefix(root).unwrap();
                found.push(inner.to_str().unwrap().to_owned());
            }
        }
    }
}

#[test]
fn admission_is_the_only_caller_of_what_signs_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    callers(&root, &mut found, &root);
    found.sort();
    assert_eq!(found, ALLOWED.map(str::to_owned));
}

/// The files that may do so: admission, the types of signed documents, and tests that forge
/// documents.
const ALLOWED: [&str; 33] = [
    "fuzz/fuzz_targets/bundle.rs",
    "fuzz/fuzz_targets/catalog.rs",
    "fuzz/fuzz_targets/root.rs",
    "shared/format/src/catalog/file.rs",
    "shared/format/src/dsse.rs",
    "shared/format/src/manifest/signed.rs",
    "shared/format/src/root/key_request.rs",
    "shared/format/src/root/write.rs",
    "shared/format/tests/core/formats.rs",
    "shared/format/tests/core/large.rs",
    "shared/format/tests/core/make.rs",
    "shared/format/tests/core/properties.rs",
    "shared/format/tests/core/root_model.rs",
    "shared/format/tests/core/roots.rs",
    "shared/format/tests/core/shapes.rs",
    "shared/format/tests/core/trust.rs",
    "shared/gate/tests/corpus.rs",
    "shared/library/src/admit/sign.rs",
    "shared/library/tests/admission.rs",
    "shared/library/tests/lying_host_owner/lies.rs",
    "shared/library/tests/lying_host_owner/skills.rs",
    "shared/library/tests/publishers.rs",
    "shared/service/tests/common/world.rs",
    "shared/service/tests/routes/admin/drafts/key_requests.rs",
    "shared/service/tests/routes/skills.rs",
    "shared/testing/src/memory/shelf.rs",
    "tests/attacks/archives.rs",
    "tests/attacks/catalogs.rs",
    "tests/attacks/disk.rs",
    "tests/attacks/installed.rs",
    "tests/attacks/lying_host_owner/machine.rs",
    "tests/attacks/roots.rs",
    "tests/src/signed.rs",
];
