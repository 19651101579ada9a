//! VG-FI: files that cannot be read: what cannot be analysed is reported, not passed over.

use crate::finding::{Finding, Level, Severity};
use crate::rule::{Act, RULE, ScanRule};

family!("AST02", "What cannot be read cannot be judged.");

pub(super) const RULES: &[ScanRule] = &[
    LOCKED,
    ARCHIVE,
    MASKED,
    CUT,
    COMPILED,
    DAMAGED,
    PROGRAM_INSIDE,
    NUL,
    NO_TEXT,
    LONG_LINE,
    UNWEIGHED,
    BEYOND,
    STOPPED,
];

const LOCKED: ScanRule = ScanRule {
    rule: rule("VG-FI-001", "encrypted-archive", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
    message: "the archive is encrypted, so its content cannot be scanned",
    mend: "ship the files themselves",
    ..RULE
};
const ARCHIVE: ScanRule = ScanRule {
    rule: rule("VG-FI-002", "archive-unread", Severity::Low), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
    act: Act::Warn,
    message: "not everything that is packed or encoded in this file could be read, so it was not scanned",
    mend: "ship the files themselves",
    ..RULE
};
const MASKED: ScanRule = ScanRule {
    rule: rule("VG-FI-003", "masked-ending", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
    message: "the file's name hides what it is",
    mend: "give it the ending of what it is",
    ..RULE
};
const CUT: ScanRule = ScanRule {
    rule: rule("VG-FI-004", "scan-cut", Severity::Medium), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
    message: "there is more in the file than is scanned; the rest was not",
    mend: "split it, or leave it out",
    ..RULE
};
const COMPILED: ScanRule = ScanRule {
    rule: rule("VG-FI-005", "compiled-code", Severity::Medium), // finds 0 malicious skills, sole flag on 0; finds 1 real skill, flags 0
    act: Act::Warn,
    message: "this is compiled code, which nobody can read",
    mend: "ship its source",
    ..RULE
};
const DAMAGED: ScanRule = ScanRule {
    rule: rule("VG-FI-006", "not-utf-8", Severity::Low), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
    act: Act::Hint(1),
    message: "the text is not UTF-8",
    mend: "save it as UTF-8",
    ..RULE
};
const PROGRAM_INSIDE: ScanRule = ScanRule {
    rule: rule("VG-FI-007", "program-in-archive", Severity::High), // finds 0 malicious skills, sole flag on 0; finds 0 real skills, flags 0
    message: "the archive holds a program",
    mend: "ship its source, or say in SKILL.md where the program comes from",
    ..RULE
};

const NUL: ScanRule = ScanRule {
    rule: rule("VG-FI-008", "nul-in-script", Severity::High),
    message: "the script holds NUL bytes, at which viewers stop and which a shell passes over",
    mend: "remove them",
    ..RULE
};
const NO_TEXT: ScanRule = ScanRule {
    rule: rule("VG-FI-009", "file-unread", Severity::Low),
    act: Act::Warn,
    message: "this is no text, picture or font, so it was not scanned",
    mend: "leave it out, or say in SKILL.md where it comes from",
    ..RULE
};

const LONG_LINE: ScanRule = ScanRule {
    rule: rule("VG-FI-010", "long-line", Severity::Medium),
    message: "a line has more than 16 KiB; it was read in pieces, and what reaches over two of them was not judged",
    mend: "break it",
    ..RULE
};

pub(crate) const UNWEIGHED: ScanRule = ScanRule {
    rule: rule("VG-FI-011", "too-many-matches", Severity::High),
    message: "a rule matches so often in one place that not every match was judged; this is the first that was not",
    mend: "split the place: fewer matches in one block, paragraph or file",
    bad: &[],
    good: &[],
    ..RULE
};

const BEYOND: ScanRule = ScanRule {
    rule: rule("VG-FI-012", "too-much-packed", Severity::Medium),
    message: "more is packed or encoded in the skill than is scanned, so the rest was not judged",
    mend: "ship the files themselves",
    ..RULE
};
const STOPPED: ScanRule = ScanRule {
    rule: rule("VG-FI-013", "scan-stopped", Severity::Medium),
    message: "the scan takes more work than is allowed here, so the skill was not judged",
    mend: "make it smaller; `vault add` has no such bound",
    ..RULE
};

fn at(path: &str, rule: &'static ScanRule, act: Act) -> (&'static ScanRule, Act, Finding) {
    (
        rule,
        act,
        Finding::of(&rule.rule, Level::Warning, rule.message)
            .at(path)
            .hint(rule.advice()),
    )
}

/// What the name and the first bytes of a file tell.
pub(crate) fn check(path: &str, bytes: &[u8]) -> Vec<(&'static ScanRule, Act, Finding)> {
    let mut found = Vec::new();
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if is_masked(&name) {
        found.push(at(path, &MASKED, Act::Block));
    }
    if is_compiled(path, bytes) {
        found.push(at(path, &COMPILED, COMPILED.act));
    }
    found
}

/// Whether a file is code that a compiler made for a virtual machine.
pub(crate) fn is_compiled(path: &str, bytes: &[u8]) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    matches!(name.rsplit_once('.'), Some((_, "pyc" | "class")))
        || bytes.starts_with(b"\0asm")
        || bytes.starts_with(b"\xca\xfe\xba\xbe\0\0\0\x34")
}

/// What reading a file as text showed.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Text {
    /// Its end was not read.
    pub is_cut: bool,
    /// A line of it was read in pieces.
    pub read_in_pieces: bool,
    /// It holds bytes that are not UTF-8.
    pub is_damaged: bool,
    /// It holds NUL bytes.
    pub has_nul: bool,
}

/// Findings about how a file reads as text.
pub(crate) fn reading(path: &str, text: Text) -> Vec<(&'static ScanRule, Act, Finding)> {
    let mut found = Vec::new();
    let mut say = |is_so, rule: &'static ScanRule| {
        if is_so {
            found.push(at(path, rule, rule.act));
        }
    };
    say(text.is_cut, &CUT);
    say(text.is_damaged, &DAMAGED);
    say(text.has_nul, &NUL);
    say(text.read_in_pieces, &LONG_LINE);
    found
}

/// An archive of which a part is encrypted.
pub(crate) fn locked(path: &str) -> (&'static ScanRule, Act, Finding) {
    at(path, &LOCKED, LOCKED.act)
}

/// A file that is neither text nor anything else that is known.
pub(crate) fn no_text(path: &str) -> (&'static ScanRule, Act, Finding) {
    at(path, &NO_TEXT, NO_TEXT.act)
}

/// A container of which something was not read.
pub(crate) fn unread(path: &str) -> (&'static ScanRule, Act, Finding) {
    at(path, &ARCHIVE, ARCHIVE.act)
}

/// A file at which the bound of what is unpacked and decoded was reached.
pub(crate) fn beyond(path: &str) -> (&'static ScanRule, Act, Finding) {
    at(path, &BEYOND, BEYOND.act)
}

/// Whether a finding says that the bound of work was reached.
pub(crate) fn is_stopped(finding: &Finding) -> bool {
    finding.id == STOPPED.rule.id
}

/// A file at which the bound of work was reached.
pub(crate) fn stopped(path: &str) -> (&'static ScanRule, Act, Finding) {
    at(path, &STOPPED, STOPPED.act)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(path: &str, bytes: &[u8]) -> Vec<&'static str> {
        check(path, bytes)
            .into_iter()
            .map(|(rule, ..)| rule.rule.name)
            .collect()
    }

    #[test]
    fn archives_and_masks_are_said() {
        assert!(program_inside("a.zip", "setup.exe", b"").is_some());
        assert!(program_inside("a.zip", "setup", b"\x7fELF").is_some());
        assert!(program_inside("a.zip", "notes.txt", b"x").is_none());
        assert_eq!(ids("x/report.pdf.exe", b""), ["masked-ending"]);
        assert!(ids("jquery.min.js", b"").is_empty() && ids("a.tar.gz", b"").is_empty());
        assert_eq!(ids("m.pyc", b""), ["compiled-code"]);
    }
}
