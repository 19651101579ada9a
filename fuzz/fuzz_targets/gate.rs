//! The whole gate over files as strangers write them: a verdict in linear time, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vault_gate::{GateOptions, RawFile, check};
use vault_format::manifest::Mode;

const PATHS: [&str; 12] = ["SKILL.md", "skill.md", "run.sh", "a.py", "a.js", "a.json", "a.zip", "notes", "a.pdf", "a.svg", "a.ipynb", "a.tar.gz"];

fuzz_target!(|data: &[u8]| {
    // The first byte says what the file is; a zero byte pair parts a second file from the first.
    let Some((kind, rest)) = data.split_first() else { return };
    let cut = rest.windows(2).position(|two| two == b"\0\0").unwrap_or(rest.len());
    let file = |kind: u8, bytes: &[u8]| RawFile {
        path: PATHS[usize::from(kind) % PATHS.len()].to_owned(),
        mode: Mode::Plain,
        bytes: bytes.to_vec(),
    };
    let mut files = vec![file(*kind, &rest[..cut])];
    if cut < rest.len() {
        files.push(file(kind.wrapping_add(1), &rest[cut + 2..]));
    }
    let options = GateOptions { folder: Some("folder"), ..GateOptions::default() };
    let first = check(files.clone(), &options);
    files.reverse();
    let second = check(files, &options);
    assert_eq!(first.findings, second.findings, "the order of files changes nothing");
});
