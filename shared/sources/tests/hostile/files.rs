//! Archives in local files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use vault_sources::Source;

use super::Table;
use crate::archives::{gzip, zip_of};
use crate::support::{fetch, plain_fetcher, skill_md};

const BAD: &str = "source_malformed";
const GONE: &str = "source_not_found";

/// Name, what to put at a path, code and part of the message.
type Row = (
    &'static str,
    fn(&Path) -> PathBuf,
    &'static str,
    &'static str,
);

fn archive() -> Vec<u8> {
    zip_of(&[("SKILL.md", 0o644, skill_md("pdf").as_bytes())])
}

fn file(at: &Path, name: impl AsRef<OsStr>, bytes: &[u8]) -> PathBuf {
    let path = at.join(name.as_ref());
    std::fs::write(&path, bytes).unwrap();
    path
}

fn link(at: &Path, to: &str) -> PathBuf {
    file(at, "archive.zip", &archive());
    let path = at.join("link.zip");
    symlink(to, &path).unwrap();
    path
}

const NOT_ARCHIVE: &str = "it is neither zip, tar nor tar.gz";
const LINK: &str = "it is a symbolic link";
const SPECIAL: &str = "it is not a regular file";

const PLACES: &[Row] = &[
    ("missing", |at| at.join("none.zip"), GONE, "does not exist"),
    ("link", |at| link(at, "archive.zip"), BAD, LINK),
    ("link out", |at| link(at, "/etc/passwd"), BAD, LINK),
    ("link to nothing", |at| link(at, "nowhere"), BAD, LINK),
    ("link to itself", |at| link(at, "link.zip"), BAD, LINK),
    ("link to a device", |at| link(at, "/dev/zero"), BAD, LINK),
    (
        "device without an end",
        |_| "/dev/zero".into(),
        BAD,
        SPECIAL,
    ),
    ("empty device", |_| "/dev/null".into(), BAD, SPECIAL),
    ("folder", Path::to_path_buf, GONE, "holds no SKILL.md"),
    (
        "pipe that nobody writes to",
        |at| {
            let path = at.join("pipe.zip");
            mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
            path
        },
        BAD,
        SPECIAL,
    ),
    (
        "socket",
        |at| {
            let path = at.join("socket.zip");
            drop(UnixListener::bind(&path).unwrap());
            path
        },
        BAD,
        SPECIAL,
    ),
    (
        "memory of this process",
        |_| "/proc/self/mem".into(),
        BAD,
        "it cannot be read",
    ),
    (
        "file as a folder",
        |at| file(at, "a.zip", &archive()).join("b.zip"),
        BAD,
        "it cannot be read",
    ),
    (
        "name with NUL",
        |at| at.join("a\0b.zip"),
        BAD,
        "it cannot be read",
    ),
    (
        "name of 300 bytes",
        |at| at.join("a".repeat(300)),
        BAD,
        "it cannot be read",
    ),
    (
        "hole of one TiB",
        |at| {
            let path = file(at, "hole.zip", b"");
            let opened = std::fs::File::options().write(true).open(&path).unwrap();
            opened.set_len(1 << 40).unwrap();
            path
        },
        "source_too_large",
        "exceeds 10485760 bytes",
    ),
];

const NAMES: &[Row] = &[
    (
        "folder that turns the text",
        |at| {
            let folder = at.join("\u{202e}dm");
            std::fs::create_dir(&folder).unwrap();
            file(&folder, "a.zip", &zip_of(&[("a", 0o644, b"")]))
        },
        GONE,
        "\\u{202e}dm/a.zip holds no SKILL.md",
    ),
    (
        "name with an escape",
        |at| file(at, "\x1b[2J.zip", &archive()),
        BAD,
        "no source can be recorded",
    ),
    (
        "name with a line break",
        |at| file(at, "a\nb.zip", &archive()),
        BAD,
        "no source can be recorded",
    ),
    (
        "name with a backslash",
        |at| file(at, "..\\a.zip", &archive()),
        BAD,
        "no source can be recorded",
    ),
    (
        "text that is not UTF-8",
        |at| file(at, OsStr::from_bytes(b"\xff.zip"), b"x"),
        BAD,
        NOT_ARCHIVE,
    ),
];

const CONTENTS: &[Row] = &[
    ("nothing", |at| file(at, "a.zip", b""), BAD, NOT_ARCHIVE),
    (
        "skill in no archive",
        |at| file(at, "a.zip", skill_md("pdf").as_bytes()),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "web page",
        |at| file(at, "a.zip", b"<!doctype html><p>Log in"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "rar",
        |at| file(at, "a.zip", b"Rar!\x1a\x07\0"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "7z",
        |at| file(at, "a.zip", b"7z\xbc\xaf\x27\x1c"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "xz",
        |at| file(at, "a.tar", b"\xfd7zXZ\0"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "zstd",
        |at| file(at, "a.tar", b"\x28\xb5\x2f\xfd"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "bzip2",
        |at| file(at, "a.tar", b"BZh91AY&SY"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "program",
        |at| file(at, "a.tar", b"\x7fELF\x02\x01"),
        BAD,
        NOT_ARCHIVE,
    ),
    (
        "archive in an archive",
        |at| file(at, "a.zip", &zip_of(&[("a.zip", 0o644, &archive())])),
        GONE,
        "holds no SKILL.md",
    ),
    (
        "packed web page",
        |at| file(at, "a.tgz", &gzip(b"<!doctype html>")),
        BAD,
        "it cannot be unpacked",
    ),
];

#[tokio::test]
async fn a_local_archive() {
    let fetcher = plain_fetcher();
    let mut table = Table::default();
    for (row, put, code, part) in [PLACES, NAMES, CONTENTS].concat() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::Local(put(folder.path()));
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    }
    table.finish();
}
