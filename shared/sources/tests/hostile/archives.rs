//! Archives at an address: zip, tar and tar.gz.

use super::Table;
use crate::archives::{
    CENTRAL, END, File, LOCAL, TAR_END, gzip, patched, replaced, tar_entry, tar_of,
    without_last_listed, zip_of,
};
use crate::support::{SiteServer, fetch, fetcher, parse};

const BAD: &str = "source_malformed";
const LARGE: &str = "source_too_large";
const GONE: &str = "source_not_found";
const BACKSLASH: &str = "has a backslash in its name";
const LONG: &str = "has a path that is too long";
const EMPTY: &str = "has an empty part or `.` in its path";

/// Name, archive, code and part of the message.
type Row = (&'static str, Vec<u8>, &'static str, &'static str);

const DOCUMENT: &[u8] = b"---\nname: pdf\ndescription: Works with PDF files.\n---\n";
const GOOD: File<'_> = ("SKILL.md", 0o644, DOCUMENT);

/// Fetches each archive from a site, whose names end in `ending`.
async fn check(rows: Vec<Row>, ending: &str) {
    let site = SiteServer::new();
    let fetcher = fetcher(&site.base);
    let mut table = Table::default();
    for (at, (row, bytes, code, part)) in rows.into_iter().enumerate() {
        let path = format!("/{at}{ending}");
        site.body(&path, "application/octet-stream", bytes);
        let source = parse(&format!("{}{path}", site.base));
        table.check(row, fetch(&fetcher, &source, None).await, code, part);
    }
    table.finish();
}

/// Files whose number exceeds the limit, without their contents.
fn many(names: &[String]) -> Vec<File<'_>> {
    let names = names.iter().map(|name| (name.as_str(), 0o644, &b""[..]));
    std::iter::once(GOOD).chain(names).collect()
}

fn names(count: usize, ending: &str) -> Vec<String> {
    (0..count).map(|at| format!("f{at}{ending}")).collect()
}

/// A skill and one more file of this path.
fn zip_with(path: &str) -> Vec<u8> {
    zip_of(&[GOOD, (path, 0o644, b"another")])
}

fn zips_with_bad_paths() -> Vec<Row> {
    let out = "points out of the archive";
    let folded = "which are the same name where letter case does not count";
    let twice = replaced(&zip_with("SKILL.mX"), b"SKILL.mX", b"SKILL.md");
    vec![
        ("parent", zip_with("../evil"), BAD, out),
        ("parent inside", zip_with("a/../../evil"), BAD, out),
        ("absolute", zip_with("/etc/evil"), BAD, out),
        ("drive", zip_with("C:/evil.md"), BAD, "letter of a drive"),
        ("backslash", zip_with("a\\..\\evil"), BAD, BACKSLASH),
        ("share", zip_with("\\\\host\\evil"), BAD, BACKSLASH),
        ("backslash at the end", zip_with("evil\\"), BAD, BACKSLASH),
        (
            "empty, with a backslash at the end",
            zip_of(&[GOOD, ("evil\\", 0o644, b"")]),
            BAD,
            BACKSLASH,
        ),
        ("dot", zip_with("a/./evil"), BAD, EMPTY),
        ("empty part", zip_with("a//evil"), BAD, EMPTY),
        ("NUL", zip_with("evil\0.md"), BAD, "has a NUL in its name"),
        ("long path", zip_with(&"a".repeat(1025)), BAD, LONG),
        (
            "many folders",
            zip_with(&format!("{}x", "a/".repeat(64))),
            BAD,
            LONG,
        ),
        (
            "folder with content",
            replaced(&zip_with("evilX"), b"evilX", b"evil/"),
            BAD,
            "evil/ is a folder with content",
        ),
        (
            "hidden in the message",
            zip_with("../\u{202e}dm.live"),
            BAD,
            "\\u{202e}",
        ),
        (
            "not UTF-8",
            replaced(&zip_with("evil.md"), b"evil", b"\xff\xfe\xfd\xfc"),
            BAD,
            "not UTF-8",
        ),
        ("twice", twice, BAD, "duplicate file names"),
        ("other letter case", zip_with("skill.MD"), BAD, folded),
        (
            "other Unicode form",
            zip_of(&[GOOD, ("caf\u{e9}", 0o644, b""), ("cafe\u{301}", 0o644, b"")]),
            BAD,
            folded,
        ),
        (
            "letters that fold to two",
            zip_of(&[GOOD, ("stra\u{df}e", 0o644, b""), ("STRASSE", 0o644, b"")]),
            BAD,
            folded,
        ),
        (
            "another name in the member",
            patched(zip_with("evil.md"), LOCAL, 30, b"good"),
            BAD,
            "header inconsistency",
        ),
        (
            "member that is not listed",
            without_last_listed(zip_with("evil.md")),
            BAD,
            "missing from central directory",
        ),
        (
            "only folders",
            zip_of(&[("a/", 0o755, b""), ("b/", 0o755, b"")]),
            BAD,
            "it holds no files",
        ),
        (
            "no skill",
            zip_of(&[("README.md", 0o644, b"x")]),
            GONE,
            "holds no SKILL.md",
        ),
    ]
}

/// A zip whose last member has this mode.
fn zip_mode(mode: u32) -> Vec<u8> {
    let attributes = (mode << 16).to_le_bytes();
    let made_by_unix = patched(zip_with("evil"), CENTRAL, 5, &[3]);
    patched(made_by_unix, CENTRAL, 38, &attributes)
}

/// A zip whose last member and its entry in the directory have these bytes, at the offset of the
/// member. In the directory a field lies two bytes further.
fn zip_field(offset: usize, by: &[u8]) -> Vec<u8> {
    let zip = patched(zip_with("evil.md"), LOCAL, offset, by);
    patched(zip, CENTRAL, offset + 2, by)
}

fn zips_with_lies() -> Vec<Row> {
    let special = "is not a regular file";
    let zeroes = vec![0; 26 << 20];
    let good = zip_of(&[GOOD]);
    let headless = [b"#!/bin/sh\n", &good[..]].concat();
    let half = good.len() / 2;
    vec![
        (
            "symbolic link",
            zip_mode(0o120_777),
            BAD,
            "evil is a symbolic link",
        ),
        ("pipe", zip_mode(0o010_644), BAD, special),
        ("socket", zip_mode(0o140_644), BAD, special),
        ("block device", zip_mode(0o060_644), BAD, special),
        ("character device", zip_mode(0o020_644), BAD, special),
        (
            "bomb",
            zip_of(&[GOOD, ("zeroes", 0o644, &zeroes)]),
            LARGE,
            "unpacked, exceeds 26214400 bytes",
        ),
        (
            "too many files",
            zip_of(&many(&names(20_000, ""))),
            LARGE,
            "exceeds 20000 files",
        ),
        (
            "too many folders",
            zip_of(&many(&names(40_000, "/"))),
            LARGE,
            "exceeds 20000 files",
        ),
        (
            "too large",
            vec![b'P'; (10 << 20) + 1],
            LARGE,
            "exceeds 10485760 bytes",
        ),
        (
            "a byte behind the end",
            [&good[..], b"x"].concat(),
            BAD,
            "behind its end",
        ),
        (
            "a comment longer than the rest",
            patched(good.clone(), b"PK\x05\x06", 20, &[1, 0]),
            BAD,
            "",
        ),
        (
            "file that is a folder",
            zip_of(&[GOOD, ("a/b", 0o644, b""), ("A", 0o644, b"")]),
            BAD,
            "A is a file, and the folder of a/b",
        ),
        ("checksum", zip_field(14, &[1, 2, 3, 4]), BAD, "checksum"),
        ("size", zip_field(22, &[1, 0, 0, 0]), BAD, "evil.md"),
        ("encrypted", zip_field(6, &[1, 0]), BAD, "assword"),
        ("unknown method", zip_field(8, &[99, 0]), BAD, "ompression"),
        (
            "members that overlap",
            patched(zip_with("evil.md"), CENTRAL, 42, &[0; 4]),
            BAD,
            "header inconsistency",
        ),
        (
            "more members than there are",
            patched(good.clone(), END, 8, &[9, 0, 9, 0]),
            BAD,
            "cannot be unpacked",
        ),
        (
            "directory behind the end",
            patched(good.clone(), END, 16, &[0xff, 0xff, 0xff, 0x7f]),
            BAD,
            "cannot be unpacked",
        ),
        ("cut", good[..half].to_vec(), BAD, "cannot be unpacked"),
        ("empty", zip_of(&[]), BAD, "it holds no files"),
        ("program before it", headless, BAD, "neither zip, tar nor"),
        (
            "text",
            b"no archive at all".to_vec(),
            BAD,
            "neither zip, tar nor",
        ),
    ]
}

#[tokio::test]
async fn a_zip() {
    check([zips_with_bad_paths(), zips_with_lies()].concat(), ".zip").await;
}

/// A tar of a skill and these entries.
fn tar_with(entries: &[Vec<u8>]) -> Vec<u8> {
    let good = tar_entry(b'0', b"SKILL.md", 0o644, DOCUMENT);
    [&good[..], &entries.concat(), &TAR_END].concat()
}

/// A tar of a skill and one more file of this path.
fn tar_path(path: &[u8]) -> Vec<u8> {
    tar_with(&[tar_entry(b'0', path, 0o644, b"another")])
}

/// A tar of a skill and an entry of this type.
fn tar_kind(kind: u8) -> Vec<u8> {
    tar_with(&[tar_entry(kind, b"evil", 0o644, b"")])
}

/// A tar of a skill, and a file after an extended header with this record.
fn tar_pax(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let record = format!("{}{rest}", rest.len() + 2);
    assert_eq!(record.len(), rest.len() + 2, "a length of two digits");
    tar_with(&[
        tar_entry(b'x', b"pax", 0o644, record.as_bytes()),
        tar_entry(b'0', b"good", 0o644, b"x"),
    ])
}

fn tars_with_bad_paths() -> Vec<Row> {
    let out = "points out of the archive";
    let folded = "letter case does not count";
    let long_name = |name: &[u8]| {
        let name = tar_entry(b'L', b"././@LongLink", 0o644, name);
        tar_with(&[name, tar_entry(b'0', b"good", 0o644, b"x")])
    };
    vec![
        ("parent", tar_path(b"../../evil"), BAD, out),
        ("parent inside", tar_path(b"a/../../evil"), BAD, out),
        ("absolute", tar_path(b"/etc/evil"), BAD, out),
        ("backslash", tar_path(b"..\\evil"), BAD, BACKSLASH),
        ("empty part", tar_path(b"a//evil"), BAD, EMPTY),
        ("empty", tar_path(b""), BAD, EMPTY),
        ("not UTF-8", tar_path(b"\xff\xfe"), BAD, "not UTF-8"),
        ("long name", long_name(b"../../evil\0"), BAD, out),
        ("extended name", tar_pax("path", "../../evil"), BAD, out),
        (
            "extended NUL",
            tar_pax("path", "evil\0.md"),
            BAD,
            "has a NUL in its name",
        ),
        ("terminal escape", tar_path(b"../\x1b[2J"), BAD, "\\u{1b}"),
        (
            "twice",
            tar_path(b"SKILL.md"),
            BAD,
            "it holds SKILL.md twice",
        ),
        (
            "twice behind a dot",
            tar_path(b"./SKILL.md"),
            BAD,
            "it holds SKILL.md twice",
        ),
        ("other letter case", tar_path(b"Skill.MD"), BAD, folded),
        (
            "other Unicode form",
            tar_of(&[GOOD, ("caf\u{e9}", 0o644, b""), ("cafe\u{301}", 0o644, b"")]),
            BAD,
            folded,
        ),
        (
            "no skill",
            tar_of(&[("README.md", 0o644, b"x")]),
            GONE,
            "holds no SKILL.md",
        ),
    ]
}

/// A tar of a skill, and a file whose header has these bytes at this offset and a right checksum.
fn tar_field(offset: usize, by: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..4].copy_from_slice(b"evil");
    header.as_mut_bytes()[offset..offset + by.len()].copy_from_slice(by);
    header.set_cksum();
    tar_with(&[header.as_bytes().to_vec()])
}

/// So many MiB of zeroes, as parts of a gzip stream.
fn zeroes(mebibytes: usize) -> Vec<u8> {
    gzip(&vec![0; 1 << 20]).repeat(mebibytes)
}

/// So many thousand entries of folders, as parts of a gzip stream.
fn folders(thousands: usize) -> Vec<u8> {
    let entry = tar_entry(b'5', b"folder/", 0o755, b"");
    gzip(&entry.repeat(1000)).repeat(thousands)
}

fn tars_with_lies() -> Vec<Row> {
    let (link, special) = ("evil is a link", "evil is not a regular file");
    let good = tar_of(&[GOOD]);
    let mut header = good.clone();
    header[0] = b's';
    // From the size of the entry to its type.
    let long_name = b"00210000000\x0000000000000\0        L";
    let broken = "cannot be unpacked";
    vec![
        (
            "symbolic link",
            tar_kind(b'2'),
            BAD,
            "evil is a symbolic link",
        ),
        ("hard link", tar_kind(b'1'), BAD, link),
        ("character device", tar_kind(b'3'), BAD, special),
        ("block device", tar_kind(b'4'), BAD, special),
        ("pipe", tar_kind(b'6'), BAD, special),
        ("sparse file", tar_kind(b'S'), BAD, "sparse entry"),
        ("continued volume", tar_kind(b'M'), BAD, special),
        ("unknown type", tar_kind(b'Z'), BAD, special),
        ("checksum of a header", header, BAD, "checksum mismatch"),
        (
            "size in letters",
            tar_field(124, b"lots of it!"),
            BAD,
            broken,
        ),
        (
            "size beyond the end",
            tar_field(124, b"00000077777"),
            BAD,
            broken,
        ),
        (
            "size of 64 bits",
            tar_field(124, b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
            BAD,
            broken,
        ),
        (
            "extended size",
            tar_pax("size", "99999999999999"),
            BAD,
            broken,
        ),
        (
            "two long names",
            tar_with(&[
                tar_entry(b'L', b"x", 0o644, b"a\0"),
                tar_entry(b'L', b"x", 0o644, b"b\0"),
            ]),
            BAD,
            broken,
        ),
        ("cut", good[..700].to_vec(), BAD, broken),
        (
            "second archive behind the end",
            [good.clone(), tar_path(b"evil")].concat(),
            BAD,
            "behind its end",
        ),
        (
            "too many files",
            tar_of(&many(&names(20_000, ""))),
            LARGE,
            "exceeds 20000 files",
        ),
        (
            "too many folders",
            [folders(40), gzip(&tar_of(&[GOOD]))].concat(),
            LARGE,
            "exceeds 20000 files",
        ),
        (
            "bomb",
            [gzip(&tar_field(124, b"00150000000")), zeroes(26)].concat(),
            LARGE,
            "unpacked, exceeds 26214400 bytes",
        ),
        (
            "long name that is a bomb",
            [gzip(&tar_field(124, long_name)), zeroes(34)].concat(),
            LARGE,
            "unpacked, exceeds 26214400 bytes",
        ),
    ]
}

fn gzips_with_lies() -> Vec<Row> {
    let packed = gzip(&tar_of(&[GOOD]));
    let end = packed.len();
    let with = |at: usize, by: &[u8]| [&packed[..at], by].concat();
    let broken = "cannot be unpacked";
    vec![
        ("cut stream", with(30, b""), BAD, broken),
        (
            "checksum of the stream",
            with(end - 8, &[0; 8]),
            BAD,
            broken,
        ),
        ("stream without an end", with(end - 8, b""), BAD, broken),
        (
            "zip behind the stream",
            with(end, &zip_with("evil")),
            BAD,
            broken,
        ),
        ("packed twice", gzip(&packed), BAD, broken),
        ("packed zip", gzip(&zip_with("a")), BAD, broken),
        ("packed nothing", gzip(b""), BAD, "it holds no files"),
        (
            "unknown method",
            patched(packed.clone(), &[0x1f, 0x8b], 2, &[9]),
            BAD,
            broken,
        ),
    ]
}

#[tokio::test]
async fn a_tar() {
    let rows = [tars_with_bad_paths(), tars_with_lies(), gzips_with_lies()];
    check(rows.concat(), ".tar.gz").await;
}
