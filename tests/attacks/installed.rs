//! What lies beside the signed files of an installed skill, what its actions get to see, and
//! archives that tools read in different ways.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use vault_format::bundle;
use vault_format::bundle::{EncodedBundle, File};
use vault_format::manifest::{ActionSpec, Mode, SignedManifest};
use vault_tests::home::{Home, Ran};
use vault_tests::host::Namespace;
use vault_tests::signed::{entry, file, key, manifest};
use vault_tests::skills::skill_md;

use crate::support::{FIRST, GATE, INTEGRITY, Scene};

const TOKENS: (&str, &str) = ("VAULT_SOURCE_TOKENS", "git.example=not-for-skills");
const OTHER: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "not-for-strangers");

/// A SKILL.md with an action `show` that prints its environment, and declares one of vault's own
/// secrets.
fn leaking(name: &str, declares: &str) -> Vec<u8> {
    format!(
        "---\nname: {name}\ndescription: A skill that the tests made to print what it gets to see.\n\
         requires-secrets: [{{ name: {declares}, required: false }}]\n\
         bin:\n  show: {{ command: bin/show.sh }}\n---\nPrint it.\n"
    )
    .into_bytes()
}

const SHOW: &[u8] = b"#!/bin/sh\nenv\n";

/// That skill, as a hostile vault signs it: no gate has seen it.
fn leaking_bundle(name: &str) -> EncodedBundle {
    bundle_with_action(name, leaking(name, TOKENS.0))
}

/// A skill whose manifest has the action `show`, whatever its document declares.
fn bundle_with_action(name: &str, document: Vec<u8>) -> EncodedBundle {
    let script = File {
        mode: Mode::Executable,
        ..file("bin/show.sh", SHOW)
    };
    let files = [file("SKILL.md", document), script];
    let show = ActionSpec {
        command: "bin/show.sh".to_owned(),
        args: Vec::new(),
        cwd: ".".to_owned(),
        description: None,
        requires_tty: false,
    };
    let mut manifest = manifest(name, 1, &files);
    manifest.actions = BTreeMap::from([("show".parse().unwrap(), show)]);
    let signed = SignedManifest::sign(&manifest, &key(0)).unwrap();
    bundle::encode(&signed, &manifest, &files).unwrap()
}

fn run_action(home: &Home, flags: &[&str], name: &str) -> Ran {
    let arguments = [&["skill"], flags, &["show", name]].concat();
    let mut command = home.command(&arguments);
    command.env(TOKENS.0, TOKENS.1).env(OTHER.0, OTHER.1);
    Ran::from(command.output().unwrap()).ok()
}

/// A stolen key signs an action that nobody finds in the document.
#[test]
fn an_action_that_the_document_does_not_declare_is_not_installed() {
    let scene = Scene::new();
    let hidden = bundle_with_action("quiet", skill_md("quiet", "Nothing to run here."));
    let catalog = scene
        .owner
        .signed(FIRST + 1, 0, &[entry("quiet", 1, &hidden)]);
    scene.host.serve(Namespace::new(catalog, &[&hidden]));
    let refused = scene.machine.run("cloud pull --json");
    refused.fails(INTEGRITY, "derived_mismatch");
    let run = scene.machine.run("skill show quiet");
    assert_ne!(run.code, 0, "{}", run.stdout);
    assert!(!run.stdout.contains("PATH="), "{}", run.stdout);
}

#[test]
fn a_skill_of_a_linked_vault_gets_no_secret_of_this_machine() {
    let scene = Scene::new();
    let leak = leaking_bundle("leak");
    let catalog = scene.owner.signed(FIRST + 1, 0, &[entry("leak", 1, &leak)]);
    scene.host.serve(Namespace::new(catalog, &[&leak]));
    scene.machine.run("cloud pull").ok();
    for (flags, sees_other) in [
        (&[][..], false),
        (&["--clean-env"], false),
        (&["--inherit-env"], true),
    ] {
        let ran = run_action(&scene.machine, flags, "leak");
        let seen = format!("{}{}", ran.stdout, ran.stderr);
        assert!(seen.contains("PATH="), "{flags:?} {seen}");
        assert!(!seen.contains(TOKENS.1), "{flags:?} {seen}");
        assert_eq!(seen.contains(OTHER.1), sees_other, "{flags:?} {seen}");
    }
}

#[test]
fn an_own_skill_gets_no_setting_of_vault() {
    let home = Home::new();
    let refused = home.skill(
        "leak",
        &[
            ("SKILL.md", &leaking("leak", TOKENS.0)),
            ("bin/show.sh", SHOW),
        ],
    );
    let ran = home.run(&format!("add --json {}", refused.to_str().unwrap()));
    assert_eq!(ran.code, GATE, "{}", ran.stdout);
    assert!(ran.stdout.contains("variable-reserved"), "{}", ran.stdout);

    let folder = home.skill(
        "show",
        &[
            ("SKILL.md", &leaking("show", OTHER.0)),
            ("bin/show.sh", SHOW),
        ],
    );
    home.run(&format!("add {}", folder.to_str().unwrap())).ok();
    for flags in [&[][..], &["--clean-env"], &["--inherit-env"]] {
        let ran = run_action(&home, flags, "show");
        assert!(!ran.stdout.contains(TOKENS.1), "{flags:?} {}", ran.stdout);
        assert!(ran.stdout.contains(OTHER.1), "{flags:?} {}", ran.stdout);
    }
}

/// Writes a file into a read-only folder of the store, as a program of the same user can.
fn plant(folder: &Path, path: &str) -> PathBuf {
    let mode = |mode| std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode));
    mode(0o755).unwrap();
    let file = folder.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, b"x").unwrap();
    mode(0o555).unwrap();
    file
}

#[test]
fn a_file_beside_the_signed_ones_is_reported_and_never_run() {
    let home = Home::new();
    let name = "alpha";
    let folder = home.skill(
        name,
        &[("SKILL.md", &leaking(name, OTHER.0)), ("bin/show.sh", SHOW)],
    );
    home.run(&format!("add {}", folder.to_str().unwrap())).ok();
    let installed = std::fs::canonicalize(home.vault().join("skills").join(name)).unwrap();
    plant(&installed, ".DS_Store");
    home.run(&["verify"]).ok();
    for path in [
        ".git/config",
        ".vscode/tasks.json",
        "SKILL.md~",
        ".idea/x.xml",
    ] {
        plant(&installed, path);
        for command in [&["verify", "--json"][..], &["verify", name, "--json"]] {
            let ran = home.run(command);
            ran.fails(INTEGRITY, "skill_damaged");
            let top = path.split('/').next().unwrap();
            assert!(ran.stdout.contains(top), "{path}: {}", ran.stdout);
        }
        let doctor = home.run(&["doctor"]);
        assert_eq!(doctor.code, INTEGRITY, "{path}: {}", doctor.stdout);
        assert!(doctor.stdout.contains("--clean"), "{}", doctor.stdout);
        // An action runs from the verified bytes.
        run_action(&home, &[], name);
        home.run("doctor --clean").ok();
        home.run(&["verify"]).ok();
        assert!(!installed.join(path).exists());
    }
}

#[test]
fn a_variant_that_was_changed_is_reported_too() {
    let home = Home::new();
    std::fs::create_dir(home.path().join(".claude")).unwrap();
    home.add("alpha", "one").ok();
    home.run("sync-profiles --discover").ok();
    let transform = home.path().join("rules.md");
    let text = "---\nagents: [claude-code]\n---\nFollow our rules.\n";
    std::fs::write(&transform, text).unwrap();
    home.run("transform add alpha rules.md").ok();
    home.run(&["verify"]).ok();
    let seen = std::fs::canonicalize(home.path().join(".claude/skills/alpha")).unwrap();
    assert!(
        std::fs::read_to_string(seen.join("SKILL.md"))
            .unwrap()
            .contains("our rules")
    );
    plant(&seen, ".git/config");
    let ran = home.run("verify --json");
    ran.fails(INTEGRITY, "skill_damaged");
    assert!(ran.stdout.contains("a variant"), "{}", ran.stdout);
    assert_eq!(home.run(&["doctor"]).code, INTEGRITY);
}

/// A zip of two files `SKILL.md` and `SKILL.mX`, the second one under the name of the first.
fn zip_with_twins(first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, bytes) in [("SKILL.md", first), ("SKILL.mX", second)] {
        zip.start_file(name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    let mut bytes = zip.finish().unwrap().into_inner();
    for at in 0..bytes.len() - 8 {
        if &bytes[at..at + 8] == b"SKILL.mX" {
            bytes[at + 7] = b'd';
        }
    }
    bytes
}

#[test]
fn an_archive_with_two_files_of_one_path_is_neither_added_nor_verified() {
    let home = Home::new();
    let (good, evil) = (skill_md("alpha", "Good."), skill_md("alpha", "Another."));
    let folder = home.skill("alpha", &[("SKILL.md", &good)]);
    home.run(&format!("add {}", folder.to_str().unwrap())).ok();
    home.run("export zip alpha").ok();
    home.run("verify alpha.zip").ok();
    for twins in [zip_with_twins(&good, &evil), zip_with_twins(&evil, &good)] {
        std::fs::write(home.path().join("alpha.zip"), &twins).unwrap();
        let ran = home.run("verify alpha.zip --json");
        assert_eq!(ran.code, INTEGRITY, "{}", ran.stdout);
        home.run("add --replace --json ./alpha.zip")
            .fails(1, "source_malformed");
    }
    home.run(&["verify"]).ok();
}
