//! Tests that exports are reproducible and that verification detects changes.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{Home, set_mode, snapshot, write, write_skill};
use vault_format::hash::Digest;
use vault_format::root::VaultFingerprint;
use vault_library::export::{self, Fault, Form, SiteInput, Verified, VerifyError, ZipInput};
use vault_library::integrity::{self, KnownVault};
use vault_testing::assert_matches;

/// Writes a file into this folder.
fn put(folder: &Path, path: &str, text: &str, mode: u32) {
    write(&folder.join(path), text);
    set_mode(&folder.join(path), mode);
}

const RUN: &str = "#!/bin/sh\necho hi\n";

struct World {
    home: Home,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let home = Home::new(1);
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(2_000);
        for (name, description) in [
            ("pdf", "Reads PDF files with care."),
            ("long", long.as_str()),
        ] {
            let skill = folder.path().join(name);
            let text = format!("---\nname: {name}\ndescription: {description}\n---\nText.\n");
            write(&skill.join("SKILL.md"), text);
            if name == "pdf" {
                put(&skill, "bin/run.sh", RUN, 0o755);
            }
            home.add_folder(&skill);
        }
        Self { home, folder }
    }

    fn known(&self) -> Vec<KnownVault> {
        integrity::known_vaults(&self.home.vault).unwrap()
    }

    /// Verifies a path of the folder against the vault's signers.
    fn verify(&self, path: &str) -> Result<Vec<Verified>, VerifyError> {
        export::verify_export(&self.folder.path().join(path), None, &self.known(), None)
    }

    /// The error that verification of a path fails with.
    fn refusal(&self, path: &str) -> VerifyError {
        let error = self.verify(path).unwrap_err();
        assert!(error.is_wrong(), "{error}");
        error
    }

    fn site(&self, name: &str) -> std::path::PathBuf {
        let folder = self.folder.path().join(name);
        let input = SiteInput {
            folder: folder.clone(),
            skills: Vec::new(),
        };
        let report = export::export_site(&self.home.vault, &input).unwrap();
        assert_eq!(report.skills.len(), 2);
        folder
    }
}

#[test]
fn a_site_is_the_same_each_time_and_verifies() {
    let world = World::new();
    let (one, two) = (world.site("one"), world.site("two"));
    assert_eq!(snapshot(&one), snapshot(&two));
    let files: Vec<_> = snapshot(&one)
        .into_keys()
        .filter(|path| one.join(path).is_file())
        .collect();
    assert_eq!(
        files,
        [
            ".well-known/agent-skills/index.json",
            ".well-known/agent-skills/long.manifest.json",
            ".well-known/agent-skills/long/SKILL.md",
            ".well-known/agent-skills/pdf.manifest.json",
            ".well-known/agent-skills/pdf.tar.gz",
            ".well-known/agent-skills/reader.mjs",
            ".well-known/agent-skills/verify.html",
        ]
    );
    let index: serde_json::Value =
        serde_json::from_slice(&std::fs::read(one.join(&files[0])).unwrap()).unwrap();
    let shown = index["skills"][0]["description"].as_str().unwrap();
    assert_eq!(shown.encode_utf16().count(), 1024);
    assert_eq!(index["skills"][1]["url"], "pdf.tar.gz");
    let verified = world.verify("one").unwrap();
    assert_eq!(verified.len(), 2);
    assert!(verified.iter().all(|skill| skill.form == Form::Site));
}

#[test]
fn the_page_of_a_site_runs_its_reader_and_no_other_script() {
    let world = World::new();
    let folder = world.site("site").join(".well-known/agent-skills");
    let read = |name| std::fs::read_to_string(folder.join(name)).unwrap();
    let (page, reader) = (read("verify.html"), read("reader.mjs"));
    let script = format!("<script type=\"module\">{reader}</script>");
    assert!(page.contains(&script));
    assert_eq!(page.matches("<script").count(), 1);
    // The text must not end its own element.
    assert!(!reader.contains("</script") && !reader.contains("<!--"));
    let hash = Digest::of(reader.as_bytes());
    let allowed = format!("script-src 'sha256-{}';", STANDARD.encode(hash.as_bytes()));
    assert!(page.contains(&allowed), "the policy allows another script");
    assert!(!page.contains("unsafe-"));
}

#[test]
fn an_export_over_an_earlier_one_takes_away_what_is_gone() {
    let world = World::new();
    let folder = world.site("site");
    let stranger = folder.join(".well-known/agent-skills/other.txt");
    std::fs::write(&stranger, "mine").unwrap();
    let input = SiteInput {
        folder: folder.clone(),
        skills: vec!["long".parse().unwrap()],
    };
    let report = export::export_site(&world.home.vault, &input).unwrap();
    assert_eq!(report.removed.len(), 2);
    assert!(!folder.join(".well-known/agent-skills/pdf.tar.gz").exists());
    assert!(stranger.exists());
}

#[test]
fn what_was_changed_on_the_way_is_found() {
    let world = World::new();
    let known = world.known();
    let file = world.folder.path().join("pdf.zip");
    let input = ZipInput {
        skill: "pdf".parse().unwrap(),
        file: file.clone(),
        replace: false,
    };
    let pack = || export::export_zip(&world.home.vault, &input);
    pack().unwrap();
    let verified = world.verify("pdf.zip").unwrap();
    assert_eq!(verified[0].form, Form::Archive);
    assert_eq!(verified[0].manifest.files.len(), 2);
    assert_matches!(pack(), Err(export::ExportError::Exists(_)));

    // The skill's source folder against the same manifest.
    let folder = world.folder.path().join("pdf");
    assert_eq!(world.verify("pdf").unwrap()[0].form, Form::Folder);

    // Whoever knows nothing of the vault needs its fingerprint.
    let fingerprint = known[0].trust.fingerprint();
    let word = |known: &[KnownVault], expected: Option<&VaultFingerprint>| {
        let error = export::verify_export(&folder, None, known, expected).unwrap_err();
        assert!(error.is_wrong(), "{error}");
        error.fault_code()
    };
    assert_eq!(word(&[], None), Some("expect_key_needed"));
    export::verify_export(&folder, None, &[], Some(&fingerprint)).unwrap();
    let stranger = Home::new(7);
    let foreign = integrity::known_vaults(&stranger.vault).unwrap();
    assert_eq!(word(&foreign, None), Some("expect_key_needed"));
    let other = foreign[0].trust.fingerprint();
    assert_eq!(word(&[], Some(&other)), Some("vault_changed"));
    assert_eq!(word(&known, Some(&other)), Some("vault_changed"));

    let document = std::fs::read_to_string(folder.join("SKILL.md")).unwrap();
    for (path, text, mode, said) in [
        ("bin/run.sh", "#!/bin/sh\necho ho\n", 0o755, "modified"),
        ("SKILL.md", &document, 0o755, "executable"),
        ("bin/more.sh", "#!/bin/sh\n", 0o755, "not part"),
    ] {
        put(&folder, path, text, mode);
        let error = world.refusal("pdf");
        assert!(error.to_string().contains(said), "{error}");
        put(&folder, "bin/run.sh", RUN, 0o755);
        put(&folder, "SKILL.md", &document, 0o644);
    }
    std::fs::remove_file(folder.join("bin/more.sh")).unwrap();
    std::fs::remove_file(folder.join("bin/run.sh")).unwrap();
    let error = world.refusal("pdf");
    assert!(error.to_string().contains("missing"), "{error}");

    let cut = std::fs::read(&file).unwrap();
    std::fs::write(&file, &cut[..cut.len() - 30]).unwrap();
    let VerifyError::Wrong { fault, .. } = world.refusal("pdf.zip") else {
        panic!("another error");
    };
    assert_matches!(fault, Fault::Archive(_));

    write_skill(
        &world.folder.path().join("bare"),
        "bare",
        "Nobody signed this one.",
    );
    assert_matches!(world.verify("bare"), Err(VerifyError::Unsigned { .. }));
}

/// A folder with the signed manifest of `pdf` beside it, as `vault export` writes it.
fn folder_with_manifest(world: &World) -> std::path::PathBuf {
    let input = ZipInput {
        skill: "pdf".parse().unwrap(),
        file: world.folder.path().join("pdf.zip"),
        replace: false,
    };
    export::export_zip(&world.home.vault, &input).unwrap();
    world.folder.path().join("pdf")
}

#[test]
fn nothing_lies_beside_the_signed_files_but_metadata_of_systems() {
    let world = World::new();
    let folder = folder_with_manifest(&world);
    for metadata in [".DS_Store", "bin/Thumbs.db", "desktop.ini", "._SKILL.md"] {
        put(&folder, metadata, "x", 0o644);
    }
    world.verify("pdf").unwrap();
    for extra in [
        ".git/config",
        ".vscode/tasks.json",
        ".idea/x.xml",
        "SKILL.md~",
        ".SKILL.md.swp",
        ".Trashes/x",
        ".DS_Store.d/x",
        "._more/SKILL.md",
        ".vault/other.json",
        ".vault/manifest.json",
    ] {
        put(&folder, extra, "x", 0o644);
        let error = world.refusal("pdf").to_string();
        assert!(error.contains(&format!("{extra} is not part")), "{error}");
        std::fs::remove_file(folder.join(extra)).unwrap();
    }
}

#[test]
fn a_copy_of_the_manifest_in_the_folder_is_no_deviation() {
    let world = World::new();
    let folder = folder_with_manifest(&world);
    let beside = world.folder.path().join("pdf.manifest.json");
    let inside = folder.join(".vault/manifest.json");
    let bytes = std::fs::read_to_string(&beside).unwrap();
    // As exported, with the keys of the vault; and as the store and MCP servers show it, without.
    let stored = std::fs::canonicalize(world.home.path("vault/skills/pdf")).unwrap();
    let plain = std::fs::read_to_string(stored.join("../manifest.json")).unwrap();
    assert_ne!(bytes, plain);
    for copy in [&bytes, &plain] {
        write(&inside, copy);
        world.verify("pdf").unwrap();
    }
    // It is found where nothing lies beside the folder.
    std::fs::remove_file(&beside).unwrap();
    world.verify("pdf").unwrap();
    write(&folder.join("SKILL.md"), "another text");
    assert!(
        world
            .refusal("pdf")
            .to_string()
            .contains("modified after signing")
    );
}

#[test]
fn a_lost_executable_bit_is_noted_and_can_be_set_again() {
    let world = World::new();
    let folder = folder_with_manifest(&world);
    let script = folder.join("bin/run.sh");
    set_mode(&script, 0o640);
    let verified = world.verify("pdf").unwrap().remove(0);
    assert_eq!(verified.lost_modes.len(), 1);
    assert_eq!(verified.lost_modes[0].as_str(), "bin/run.sh");
    assert!(verified.fix_modes().unwrap());
    assert_eq!(crate::support::mode(&script), 0o750);
    assert!(world.verify("pdf").unwrap()[0].lost_modes.is_empty());
    // Nothing of an archive is changed.
    assert!(!world.verify("pdf.zip").unwrap()[0].fix_modes().unwrap());
    // What else is wrong is said, not the mode.
    set_mode(&script, 0o644);
    write(&folder.join("SKILL.md"), "another text");
    assert!(
        world
            .refusal("pdf")
            .to_string()
            .contains("SKILL.md was modified")
    );
}

#[test]
fn a_site_with_a_swapped_cut_or_missing_part_is_wrong() {
    let world = World::new();
    let folder = world.site("site").join(".well-known/agent-skills");
    let manifest = std::fs::read(folder.join("long.manifest.json")).unwrap();
    for (path, bytes, said) in [
        ("pdf.tar.gz", Some(&b"\x1f\x8b other"[..]), "another digest"),
        ("pdf.tar.gz", None, "is missing"),
        ("pdf.manifest.json", None, "no signed manifest"),
        ("pdf.manifest.json", Some(&manifest), "modified"),
        ("index.json", Some(b"{}"), "missing field"),
    ] {
        let file = folder.join(path);
        let before = std::fs::read(&file).unwrap();
        match bytes {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let error = world.refusal("site");
        assert!(error.to_string().contains(said), "{path}: {error}");
        std::fs::write(&file, before).unwrap();
    }
    let index_alone = world.verify("site/.well-known/agent-skills");
    assert!(index_alone.is_ok(), "{index_alone:?}");
}

#[test]
fn links_and_pipes_are_not_followed() {
    let world = World::new();
    let link = world.folder.path().join("link");
    std::os::unix::fs::symlink("pdf", &link).unwrap();
    assert_matches!(world.verify("link"), Err(VerifyError::Unknown(_)));
    let folder = world.folder.path().join("pdf");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("more")).unwrap();
    let signed = folder.join("SKILL.md");
    let error = export::verify_export(&folder, Some(&signed), &world.known(), None).unwrap_err();
    assert!(error.is_wrong());
    assert_matches!(error, VerifyError::Folder(_));
}
