//! The whole gate over files as strangers write them: a verdict in bounded time, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_format::bundle::File;
use vault_format::manifest::Mode;
use vault_format::path::FilePath;
use vault_gate::{Finding, GateOptions, Level, Outcome, RawFile, check};

const PATHS: [&str; 20] = [
    "SKILL.md", "skill.md", "run.sh", "a.py", "a.js", "a.json", "a.zip", "notes", "a.pdf", "a.svg",
    "a.ipynb", "a.tar.gz", "a.docx", "a.xlsx", "a.yaml", "a.toml", "a.rb", "a.ps1", "a.md", "a.gz",
];

/// A document for files that come without one, so that more than their structure is judged.
const DOCUMENT: &[u8] =
    b"---\nname: folder\ndescription: Counts the words of a text.\n---\nRun it.\n";

fn flags(findings: &[Finding]) -> Vec<(&'static str, String)> {
    let flags = findings
        .iter()
        .filter(|finding| finding.level == Level::Flag);
    let mut flags: Vec<_> = flags.map(|flag| (flag.rule, flag.path.clone())).collect();
    flags.sort();
    flags.dedup();
    flags
}

fuzz_target!(|data: &[u8]| {
    // The first byte says what the file is, the second one how the gate is asked; a pair of zero bytes parts a second
    // file from the first.
    let [kind, how, rest @ ..] = data else { return };
    let cut = rest
        .windows(2)
        .position(|two| two == b"\0\0")
        .unwrap_or(rest.len());
    let file = |kind: u8, bytes: &[u8]| RawFile {
        path: PATHS[usize::from(kind) % PATHS.len()].to_owned(),
        mode: Mode::Plain,
        bytes: bytes.to_vec(),
    };
    let mut files = vec![file(*kind, &rest[..cut])];
    if cut < rest.len() {
        files.push(file(kind.wrapping_add(1), &rest[cut + 2..]));
    }
    if how & 1 != 0
        && !files
            .iter()
            .any(|file| file.path.eq_ignore_ascii_case("SKILL.md"))
    {
        files.push(file(0, DOCUMENT));
    }
    let options = GateOptions {
        folder: Some("folder"),
        ..GateOptions::default()
    };
    let plain = check(files.clone(), &options);

    files.reverse();
    let turned = check(files.clone(), &options);
    assert_eq!(
        plain.findings, turned.findings,
        "the order of files changes nothing"
    );

    if how & 2 != 0 {
        let told = check(
            files.clone(),
            &GateOptions {
                hints: true,
                ..options.clone()
            },
        );
        assert_eq!(plain.outcome, told.outcome, "notes change no verdict");
    }
    if how & 4 != 0 {
        let publisher = vec!["acme".to_owned(), "tools.example.net".to_owned()];
        let own = check(
            files.clone(),
            &GateOptions {
                publisher,
                ..options.clone()
            },
        );
        assert!(
            own.outcome != Outcome::Blocked || plain.outcome == Outcome::Blocked,
            "a publisher blocks nothing"
        );
    }
    if how & 8 != 0 {
        let path: FilePath = "SKILL.md".parse().expect("a path");
        let before = [File {
            path,
            mode: Mode::Plain,
            bytes: rest[..cut / 2].to_vec(),
        }];
        let later = flags(
            &check(
                files,
                &GateOptions {
                    before: &before,
                    ..options.clone()
                },
            )
            .findings,
        );
        assert!(
            flags(&plain.findings)
                .iter()
                .all(|flag| later.contains(flag)),
            "what was before excuses nothing"
        );
    }
});
