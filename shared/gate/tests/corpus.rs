//! The structural gate over real public skills: every one is accepted, or refused by a rule that
//! the format states.
//!
//! Runs where the corpora lie beside the checkout and `zstd` and `tar` are installed; says so when
//! they are not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vault_format::bundle;
use vault_format::bundle::Bundle;
use vault_format::hash::Digest;
use vault_format::keys::SecretKey;
use vault_format::manifest::{
    FileEntry, Gate, Manifest, ManifestExpectation, ManifestTrust, Mode, SignedManifest,
};
use vault_format::provenance::Provenance;
use vault_format::root::{KeyEntry, KeyName, RootEdit, RootState, SkillPlace};
use vault_format::time::Timestamp;
use vault_gate::package::Package;
use vault_gate::{self as gate, GateOptions, Level, Outcome, RawFile};

const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpora");

/// Rules of the format by which a real skill may be rejected.
const EXPECTED: [&str; 9] = [
    "frontmatter-missing",
    "frontmatter-unclosed",
    "frontmatter-yaml",
    "frontmatter-colon",
    "name-missing",
    "name-unusable",
    "description-missing",
    "skill-md-missing",
    "skill-md-name",
];

struct Skill {
    id: String,
    tier: String,
    folder: String,
}

fn benign() -> Vec<Skill> {
    let table = fs::read_to_string(format!("{CORPORA}/corpora.tsv"))
        .expect("the table lies beside the archive");
    let mut rows = table
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>());
    let head = rows.next().expect("a header line");
    let column = |name: &str| {
        head.iter()
            .position(|cell| *cell == name)
            .expect("the column is documented")
    };
    let (id, label, tier, path, kept) = (
        column("id"),
        column("label"),
        column("tier"),
        column("path"),
        column("in_tar"),
    );
    rows.filter(|row| row[label] == "benign" && row[kept] == "1")
        .map(|row| Skill {
            id: row[id].to_owned(),
            tier: row[tier].to_owned(),
            folder: row[path].rsplit('/').next().unwrap_or_default().to_owned(),
        })
        .collect()
}

fn unpack(into: &Path) {
    let mut zstd = Command::new("zstd")
        .args(["-dc", &format!("{CORPORA}/dev.tar.zst")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("zstd starts");
    let stream = zstd.stdout.take().expect("its output is piped");
    let tar = Command::new("tar")
        .arg("-xf")
        .arg("-")
        .arg("-C")
        .arg(into)
        .stdin(stream)
        .status()
        .expect("tar starts");
    assert!(tar.success() && zstd.wait().expect("zstd ends").success());
}

fn read(root: &Path, folder: &Path, files: &mut Vec<RawFile>) {
    for entry in fs::read_dir(folder).expect("a folder of the archive") {
        let path: PathBuf = entry.expect("an entry").path();
        if path.is_dir() {
            read(root, &path, files);
        } else {
            let executable = fs::metadata(&path).expect("a file").permissions().mode() & 0o100 != 0;
            files.push(RawFile {
                path: path
                    .strip_prefix(root)
                    .expect("below the root")
                    .to_str()
                    .expect("UTF-8")
                    .to_owned(),
                mode: if executable {
                    Mode::Executable
                } else {
                    Mode::Plain
                },
                bytes: fs::read(&path).expect("a file"),
            });
        }
    }
}

/// A vault whose one key is this one.
fn vault(key: &SecretKey) -> RootState {
    let public_key = key.public();
    let entry = KeyEntry {
        public_key,
        name: KeyName::default_for(&public_key),
    };
    let mut edit = RootEdit::begin_first(Timestamp::from_unix(1_700_000_000));
    edit.add_root_key(entry.clone()).expect("a new key");
    edit.add_publisher(entry).expect("a new key");
    let chain = edit.sign(&[key]).expect("a root version");
    RootState::new(chain, std::collections::BTreeSet::new())
}

fn manifest(package: &Package, vault: &RootState) -> Manifest {
    let entry = |file: &bundle::File| FileEntry {
        path: file.path.clone(),
        size: file.bytes.len() as u64,
        sha256: Digest::of(&file.bytes),
        mode: file.mode,
    };
    Manifest {
        vault_id: vault.vault_id(),
        name: package.name.clone(),
        frontmatter_name: package.frontmatter_name.clone(),
        version: 1,
        signed_at: Timestamp::from_unix(1_700_000_000),
        files: package.files.iter().map(entry).collect(),
        actions: package.actions.clone(),
        agents: package.frontmatter.agents.clone(),
        rendered_from: None,
        provenance: Provenance {
            identifier: "local:skill".parse().expect("an identifier"),
            revision: None,
            fetched_at: Timestamp::from_unix(1_700_000_000),
        },
        gate: Gate {
            strict: true,
            rules: gate::RULES.to_owned(),
            flags: package.flags.clone(),
            waivers: Vec::new(),
        },
    }
}

/// What the gate lets through can be signed, bundled, read again and verified, and is then still
/// the same.
fn survives_a_bundle(package: &Package) {
    let key = SecretKey::from_seed([7; 32]);
    let vault = vault(&key);
    let manifest = manifest(package, &vault);
    let signed = SignedManifest::sign(&manifest, &key)
        .expect("the gate leaves nothing for the manifest to refuse");
    let encoded = bundle::encode(&signed, &manifest, &package.files).expect("it can be bundled");
    let bundle =
        Bundle::parse(&encoded.bytes, &encoded.hash, encoded.bytes.len() as u64).expect("a bundle");
    let part = |hash: &Digest| {
        encoded
            .parts
            .iter()
            .find(|part| part.hash == *hash)
            .map(|part| part.bytes.clone())
    };
    let expected = ManifestExpectation {
        name: &manifest.name,
        version: Some(1),
        stored_version: None,
    };
    let trust = ManifestTrust {
        state: &vault,
        place: SkillPlace::Own { taken_over: false },
    };
    let opened = bundle.open(&part, &trust, &expected).expect("it verifies");
    assert_eq!(
        (opened.manifest, opened.files),
        (manifest, package.files.clone())
    );
}

#[test]
fn real_skills_are_accepted_or_refused_by_a_documented_rule() {
    if !Path::new(CORPORA).join("dev.tar.zst").exists() {
        eprintln!("left out: the corpora are not beside the checkout");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    unpack(folder.path());
    let mut refused = BTreeMap::<(&str, String), Vec<String>>::new();
    let mut said = BTreeMap::<&str, usize>::new();
    let mut flagged = 0;
    let mut tiers = BTreeMap::<String, [usize; 3]>::new();
    for skill in benign() {
        let root = folder.path().join(&skill.id);
        let mut files = Vec::new();
        read(&root, &root, &mut files);
        let before = files.clone();
        let verdict = gate::check(
            files,
            &GateOptions {
                folder: Some(&skill.folder),
                ..GateOptions::default()
            },
        );
        tiers.entry(skill.tier.clone()).or_default()[verdict.outcome as usize] += 1;
        for finding in &verdict.findings {
            *said.entry(finding.rule).or_default() += 1;
        }
        if verdict.outcome == Outcome::Blocked {
            let first = &verdict.findings[0];
            if first.level != Level::Error {
                flagged += 1; // the scanner's word: how often it is right is measured in `tests/gate-accuracy`
                continue;
            }
            refused
                .entry((first.rule, skill.tier))
                .or_default()
                .push(format!("{}: {first}", skill.id));
            continue;
        }
        let package = verdict.package.expect("what is not blocked has a package");
        survives_a_bundle(&package);
        for file in package.files {
            let same = before
                .iter()
                .find(|old| old.path.eq_ignore_ascii_case(file.path.as_str()))
                .expect("no file is invented");
            assert_eq!(
                (same.mode, &same.bytes),
                (file.mode, &file.bytes),
                "{}: bytes and modes are kept",
                skill.id
            );
        }
    }
    eprintln!("tier: accepted, with warnings, blocked");
    for (tier, counts) in &tiers {
        eprintln!("  {tier}: {counts:?}");
    }
    eprintln!("blocked by the scanner alone: {flagged}");
    eprintln!("findings by rule");
    for (rule, count) in &said {
        eprintln!("  {rule}: {count}");
    }
    eprintln!("refused by first rule");
    for ((rule, tier), skills) in &refused {
        eprintln!("  {rule} ({tier}): {}", skills.len());
        for line in skills {
            eprintln!("    {line}");
        }
    }
    let surprising: Vec<_> = refused
        .keys()
        .filter(|(rule, _)| !EXPECTED.contains(rule))
        .collect();
    assert!(
        surprising.is_empty(),
        "refused for another reason: {surprising:?}"
    );
    // Of the skills that vendors keep themselves nearly all must come in; 1.1 % have no
    // frontmatter.
    let [accepted, warned, blocked] = tiers["curated"];
    assert!(
        blocked * 50 <= accepted + warned + blocked,
        "{blocked} curated skills are refused"
    );
}
