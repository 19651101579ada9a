//! VG-FI: files that cannot be read: what nobody can analyse is said, not passed over.

use crate::finding::{Finding, Level, Rule, Severity};
use crate::rule::{Act, RULE, ScanRule};

const WHY: &str = "What cannot be read cannot be judged.";

const fn rule(id: &'static str, name: &'static str, severity: Severity) -> Rule {
    Rule::new(id, name, "AST02", severity, WHY)
}

pub(super) const RULES: &[ScanRule] = &[
    LOCKED,
    ARCHIVE,
    MASKED,
    CUT,
    COMPILED,
    DAMAGED,
    PROGRAM_INSIDE,
];

const LOCKED: ScanRule = ScanRule {
    rule: rule("VG-FI-001", "encrypted-archive", Severity::High), // malicious 0, alone 0; real 0, flagged 0
    message: "the archive is encrypted, so its content cannot be scanned",
    mend: "ship the files themselves",
    ..RULE
};
const ARCHIVE: ScanRule = ScanRule {
    rule: rule("VG-FI-002", "archive-unread", Severity::Low), // malicious 0, alone 0; real 0, flagged 0
    act: Act::Warn,
    message: "not everything that is packed or encoded in this file could be read, so it was not scanned",
    mend: "ship the files themselves",
    ..RULE
};
const MASKED: ScanRule = ScanRule {
    rule: rule("VG-FI-003", "masked-ending", Severity::High), // malicious 0, alone 0; real 0, flagged 0
    message: "the file's name hides what it is",
    mend: "give it the ending of what it is",
    ..RULE
};
const CUT: ScanRule = ScanRule {
    rule: rule("VG-FI-004", "scan-cut", Severity::Medium), // malicious 0, alone 0; real 0, flagged 0
    act: Act::Warn,
    message: "there is more in the file than is scanned; the rest was not",
    mend: "split it, or leave it out",
    ..RULE
};
const COMPILED: ScanRule = ScanRule {
    rule: rule("VG-FI-005", "compiled-code", Severity::Medium), // malicious 0, alone 0; real 1, flagged 0
    act: Act::Warn,
    message: "this is compiled code, which nobody can read",
    mend: "ship its source",
    ..RULE
};
const DAMAGED: ScanRule = ScanRule {
    rule: rule("VG-FI-006", "not-utf-8", Severity::Low), // malicious 0, alone 0; real 0, flagged 0
    act: Act::Hint(1),
    message: "the text is not UTF-8",
    mend: "save it as UTF-8",
    ..RULE
};
const PROGRAM_INSIDE: ScanRule = ScanRule {
    rule: rule("VG-FI-007", "program-in-archive", Severity::High), // malicious 0, alone 0; real 0, flagged 0
    message: "the archive holds a program",
    mend: "ship its source, or say in SKILL.md where the program comes from",
    ..RULE
};

fn at(path: &str, rule: &'static ScanRule, act: Act) -> (&'static ScanRule, Act, Finding) {
    (
        rule,
        act,
        Finding::of(&rule.rule, Level::Warning, rule.message)
            .at(path)
            .hint(rule.mend),
    )
}

/// What the name and the first bytes of a file tell.
pub(crate) fn check(path: &str, bytes: &[u8]) -> Vec<(&'static ScanRule, Act, Finding)> {
    let mut found = Vec::new();
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if is_masked(&name) {
        found.push(at(path, &MASKED, Act::Block));
    }
    let begins = |head: &[u8]| bytes.starts_with(head);
    if begins(b"PK\x03\x04") && is_encrypted(bytes) {
        found.push(at(path, &LOCKED, Act::Block));
    } else if [
        b"Rar!\x1a\x07".as_slice(),
        b"7z\xbc\xaf\x27\x1c",
        b"BZh",
        b"\xfd7zXZ",
        b"\x28\xb5\x2f\xfd",
        b"\xd0\xcf\x11\xe0\xa1\xb1",
    ]
    .iter()
    .any(|head| begins(head))
    {
        found.push(at(path, &ARCHIVE, ARCHIVE.act));
    } else if matches!(name.rsplit_once('.'), Some((_, "pyc" | "class")))
        || bytes.starts_with(b"\0asm")
        || bytes.starts_with(b"\xca\xfe\xba\xbe\0\0\0\x34")
    {
        found.push(at(path, &COMPILED, COMPILED.act));
    }
    found
}

/// What reading a file as text showed.
pub(crate) fn reading(
    path: &str,
    cut: bool,
    damaged: bool,
) -> Vec<(&'static ScanRule, Act, Finding)> {
    let mut found = Vec::new();
    if cut {
        found.push(at(path, &CUT, CUT.act));
    }
    if damaged {
        found.push(at(path, &DAMAGED, DAMAGED.act));
    }
    found
}

/// A container of which something was not read.
pub(crate) fn unread(path: &str) -> (&'static ScanRule, Act, Finding) {
    at(path, &ARCHIVE, ARCHIVE.act)
}

/// A part of a container that is a program, by its name or its first bytes.
pub(crate) fn program_inside(
    path: &str,
    name: &str,
    bytes: &[u8],
) -> Option<(&'static ScanRule, Act, Finding)> {
    let name = name.to_ascii_lowercase();
    let is_program = [
        ".exe", ".scr", ".dll", ".msi", ".lnk", ".vbs", ".hta", ".bat", ".com",
    ]
    .iter()
    .any(|ending| name.ends_with(ending));
    if !is_program && !crate::files::is_native(bytes) {
        return None;
    }
    let (rule, act, mut finding) = at(path, &PROGRAM_INSIDE, Act::Block);
    finding.message = format!("{}: {}", rule.message, vault_format::text::quoted(&name));
    Some((rule, act, finding))
}

/// `report.pdf.exe`, `clip.mp4.lnk`.
fn is_masked(name: &str) -> bool {
    let mut parts = name.rsplit('.');
    let (Some(last), Some(before), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    matches!(
        last,
        "exe"
            | "scr"
            | "lnk"
            | "bat"
            | "cmd"
            | "com"
            | "vbs"
            | "pif"
            | "hta"
            | "js"
            | "jar"
            | "msi"
    ) && matches!(
        before,
        "pdf"
            | "doc"
            | "docx"
            | "xls"
            | "xlsx"
            | "jpg"
            | "jpeg"
            | "png"
            | "gif"
            | "mp4"
            | "mov"
            | "txt"
            | "zip"
            | "mp3"
    )
}

/// Whether a file of an archive is encrypted: local headers one after the other as far as they can be followed.
fn is_encrypted(bytes: &[u8]) -> bool {
    let mut at = 0_usize;
    for _ in 0..4_096 {
        let Some(header) = bytes
            .get(at..at.saturating_add(30))
            .filter(|header| header.starts_with(b"PK\x03\x04"))
        else {
            return false;
        };
        let short = |place: usize| usize::from(header[place]) | usize::from(header[place + 1]) << 8;
        if header[6] & 1 != 0 {
            return true;
        }
        at = at
            .saturating_add(30 + short(26) + short(28))
            .saturating_add(short(18) | short(20) << 16);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(path: &str, bytes: &[u8]) -> Vec<&'static str> {
        check(path, bytes)
            .into_iter()
            .map(|(rule, ..)| rule.rule.name)
            .collect()
    }

    fn header(name: &str, flag: u8) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04\x14\0".to_vec();
        bytes.push(flag);
        bytes.resize(26, 0);
        bytes.extend([u8::try_from(name.len()).unwrap(), 0, 0, 0]);
        bytes.extend(name.as_bytes());
        bytes
    }

    #[test]
    fn archives_and_masks_are_said() {
        assert_eq!(ids("a.zip", &header("notes.txt", 1)), ["encrypted-archive"]);
        assert!(ids("a.zip", &header("notes.txt", 0)).is_empty());
        assert_eq!(ids("a.7z", b"7z\xbc\xaf\x27\x1c"), ["archive-unread"]);
        assert!(program_inside("a.zip", "setup.exe", b"").is_some());
        assert!(program_inside("a.zip", "setup", b"\x7fELF").is_some());
        assert!(program_inside("a.zip", "notes.txt", b"x").is_none());
        assert_eq!(ids("x/report.pdf.exe", b""), ["masked-ending"]);
        assert!(ids("jquery.min.js", b"").is_empty() && ids("a.tar.gz", b"").is_empty());
        assert_eq!(ids("m.pyc", b""), ["compiled-code"]);
    }
}
