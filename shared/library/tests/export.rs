//! Tests that exports are reproducible and that verification detects changes.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests panic like the tests themselves"
)]

mod support;

use std::path::Path;

use vault_library::add_folder;
use vault_library::admit::Options;
use vault_library::export::{self, Fault, Form, SiteInput, VerifyError, ZipInput};
use vault_library::integrity::{self, Signer};

fn write(folder: &Path, path: &str, text: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let file = folder.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
}

struct World {
    home: support::Home,
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let home = support::Home::new(1);
        let folder = tempfile::tempdir().unwrap();
        let vault = &home.vault;
        let long = "x".repeat(2_000);
        for (name, description) in [
            ("pdf", "Reads PDF files with care."),
            ("long", long.as_str()),
        ] {
            let skill = folder.path().join(name);
            write(
                &skill,
                "SKILL.md",
                &format!("---\nname: {name}\ndescription: {description}\n---\nText.\n"),
                0o644,
            );
            if name == "pdf" {
                write(&skill, "bin/run.sh", "#!/bin/sh\necho hi\n", 0o755);
            }
            add_folder(vault, &skill, &Options::default()).unwrap();
        }
        Self { home, folder }
    }

    fn signers(&self) -> Vec<Signer> {
        integrity::signers(&self.home.vault).unwrap()
    }

    fn site(&self, name: &str) -> std::path::PathBuf {
        let folder = self.folder.path().join(name);
        let input = SiteInput {
            folder: folder.clone(),
            skills: Vec::new(),
        };
        let report = export::well_known(&self.home.vault, &input).unwrap();
        assert_eq!(report.skills.len(), 2);
        folder
    }
}

fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let shown = path.strip_prefix(folder).unwrap().display().to_string();
                found.push((shown, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_site_is_the_same_each_time_and_verifies() {
    let world = World::new();
    let (one, two) = (world.site("one"), world.site("two"));
    assert_eq!(tree(&one), tree(&two));
    let names: Vec<_> = tree(&one).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            ".well-known/agent-skills/index.json",
            ".well-known/agent-skills/long.manifest.json",
            ".well-known/agent-skills/long/SKILL.md",
            ".well-known/agent-skills/pdf.manifest.json",
            ".well-known/agent-skills/pdf.tar.gz",
        ]
    );
    let index: serde_json::Value = serde_json::from_slice(&tree(&one)[0].1).unwrap();
    let shown = index["skills"][0]["description"].as_str().unwrap();
    assert_eq!(shown.encode_utf16().count(), 1024);
    assert_eq!(index["skills"][1]["url"], "pdf.tar.gz");
    let verified = export::verify(&one, None, &world.signers(), &[]).unwrap();
    assert_eq!(verified.len(), 2);
    assert!(verified.iter().all(|skill| skill.form == Form::Site));
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
    let report = export::well_known(&world.home.vault, &input).unwrap();
    assert_eq!(report.removed.len(), 2);
    assert!(!folder.join(".well-known/agent-skills/pdf.tar.gz").exists());
    assert!(stranger.exists());
}

#[test]
fn what_was_changed_on_the_way_is_found() {
    let world = World::new();
    let signers = world.signers();
    let vault = &world.home.vault;
    let file = world.folder.path().join("pdf.zip");
    let input = ZipInput {
        skill: "pdf".parse().unwrap(),
        file: file.clone(),
        replace: false,
    };
    export::zip(vault, &input).unwrap();
    let verified = export::verify(&file, None, &signers, &[]).unwrap();
    assert_eq!(
        (verified[0].form, verified[0].manifest.files.len()),
        (Form::Archive, 2)
    );
    assert!(matches!(
        export::zip(vault, &input),
        Err(export::ExportError::Exists(_))
    ));

    // The skill's source folder against the same manifest.
    let folder = world.folder.path().join("pdf");
    assert_eq!(
        export::verify(&folder, None, &signers, &[]).unwrap()[0].form,
        Form::Folder
    );

    let stranger = vault_skill::keys::SecretKey::from_seed([7; 32]);
    let foreign = [Signer {
        key: stranger.public(),
        ..signers[0].clone()
    }];
    let error = export::verify(&folder, None, &foreign, &[]).unwrap_err();
    assert!(error.is_unknown_signer() && error.is_wrong(), "{error}");
    let key = signers[0].key;
    assert!(
        export::verify(&folder, None, &foreign, &[key]).is_ok(),
        "a key that is given counts"
    );

    for (path, text, mode, said) in [
        ("bin/run.sh", "#!/bin/sh\necho ho\n", 0o755, "other bytes"),
        ("bin/run.sh", "#!/bin/sh\necho hi\n", 0o644, "executable"),
        ("bin/more.sh", "#!/bin/sh\n", 0o755, "not part"),
    ] {
        write(&folder, path, text, mode);
        let error = export::verify(&folder, None, &signers, &[]).unwrap_err();
        assert!(
            error.to_string().contains(said) && error.is_wrong(),
            "{error}"
        );
        write(&folder, "bin/run.sh", "#!/bin/sh\necho hi\n", 0o755);
    }
    std::fs::remove_file(folder.join("bin/more.sh")).unwrap();
    std::fs::remove_file(folder.join("bin/run.sh")).unwrap();
    let error = export::verify(&folder, None, &signers, &[]).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");

    let cut = std::fs::read(&file).unwrap();
    std::fs::write(&file, &cut[..cut.len() - 30]).unwrap();
    assert!(matches!(
        export::verify(&file, None, &signers, &[]),
        Err(VerifyError::Wrong {
            fault: Fault::Archive(_),
            ..
        })
    ));

    let bare = world.folder.path().join("bare");
    write(
        &bare,
        "SKILL.md",
        "---\nname: bare\ndescription: Nobody signed this one.\n---\n",
        0o644,
    );
    assert!(matches!(
        export::verify(&bare, None, &signers, &[]),
        Err(VerifyError::Unsigned { .. })
    ));
}

#[test]
fn a_site_with_a_swapped_cut_or_missing_part_is_wrong() {
    let world = World::new();
    let signers = world.signers();
    let folder = world.site("site").join(".well-known/agent-skills");
    let archive = folder.join("pdf.tar.gz");
    let good = std::fs::read(&archive).unwrap();
    let manifest = std::fs::read(folder.join("long.manifest.json")).unwrap();
    for (path, bytes, said) in [
        (
            "pdf.tar.gz",
            Some(b"\x1f\x8b other".to_vec()),
            "another digest",
        ),
        ("pdf.tar.gz", None, "is missing"),
        ("pdf.manifest.json", None, "no signed manifest"),
        ("pdf.manifest.json", Some(manifest), "other bytes"),
        ("index.json", Some(b"{}".to_vec()), "missing field"),
    ] {
        let file = folder.join(path);
        let before = std::fs::read(&file).unwrap();
        match bytes {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let error = export::verify(
            world.folder.path().join("site").as_path(),
            None,
            &signers,
            &[],
        )
        .unwrap_err();
        assert!(
            error.is_wrong() && error.to_string().contains(said),
            "{path}: {error}"
        );
        std::fs::write(&file, before).unwrap();
    }
    std::fs::write(&archive, good).unwrap();
    assert!(
        export::verify(&folder, None, &signers, &[]).is_ok(),
        "the folder of the index alone"
    );
}

#[test]
fn links_and_pipes_are_not_followed() {
    let world = World::new();
    let link = world.folder.path().join("link");
    std::os::unix::fs::symlink("pdf", &link).unwrap();
    assert!(matches!(
        export::verify(&link, None, &world.signers(), &[]),
        Err(VerifyError::Unknown(_))
    ));
    let folder = world.folder.path().join("pdf");
    std::os::unix::fs::symlink("/etc/passwd", folder.join("more")).unwrap();
    let error = export::verify(
        &folder,
        Some(&folder.join("SKILL.md")),
        &world.signers(),
        &[],
    )
    .unwrap_err();
    assert!(
        error.is_wrong() && matches!(error, VerifyError::Folder(_)),
        "{error}"
    );
}
