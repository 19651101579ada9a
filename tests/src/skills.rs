//! Creates files of skills, as people write them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Returns a SKILL.md with this name, a description and this body.
pub fn skill_md(name: &str, body: &str) -> Vec<u8> {
    format!("---\nname: {name}\ndescription: A skill that the tests made to see {name} through.\ntags: [test]\n---\n{body}\n").into_bytes()
}

/// Writes the files of a skill into a folder. A file that begins with `#!` becomes executable.
pub fn write(folder: &Path, files: &[(&str, &[u8])]) {
    fs::create_dir_all(folder).expect("a skill folder");
    for (path, bytes) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a file below the skill folder"))
            .expect("a sub-folder");
        fs::write(&path, bytes).expect("a file of the skill");
        let mode = if bytes.starts_with(b"#!") {
            0o755
        } else {
            0o644
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
}

/// Returns files whose bytes a careless tool would change: binary data, tabs, trailing blanks,
/// CRLF, a byte order mark, no last newline, NUL, wide characters.
pub fn awkward_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            "assets/every-byte.bin",
            (0..=255).cycle().take(70_000).collect(),
        ),
        ("assets/empty", Vec::new()),
        (
            "notes/blanks.txt",
            b"trailing blanks   \n\ttabs\t\n\n\n".to_vec(),
        ),
        ("notes/crlf.txt", b"one\r\ntwo\r\n".to_vec()),
        ("notes/bom.txt", b"\xef\xbb\xbfafter the mark\n".to_vec()),
        ("notes/no-newline.txt", b"ends here".to_vec()),
        ("notes/zero-byte.txt", b"a\0b\n".to_vec()),
        (
            "notes/wide.txt",
            "naïve – 漢字 – 🦀 – \u{2028}\n".as_bytes().to_vec(),
        ),
        ("bin/run.sh", b"#!/bin/sh\necho \"ran with $*\"\n".to_vec()),
    ]
}
