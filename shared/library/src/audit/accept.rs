//! What a committed list takes out of an audit: findings that its owners have read, errors of the
//! format at a path, and paths that are not judged.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use vault_format::hash::Digest;
use vault_format::manifest::{SKILL_MD, Waiver};
use vault_gate::RawFile;
use vault_gate::finding::{Finding, Level};
use vault_gate::report::{AcceptedFinding, Audited, Verdict};

use super::walk::is_document;

/// A path of the audited folder whose skills are not judged, with everything below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exclusion {
    /// The path, joined by `/`.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// A rule of the format whose errors are accepted at and below a path of the audited folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcceptedError {
    /// The rule, by name or id.
    pub rule: String,
    /// The path of a file or folder, joined by `/`.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// Removes and returns the flags and warnings that a list accepts for the bytes of their files.
pub(super) fn take_accepted(
    findings: &mut Vec<Finding>,
    files: &[RawFile],
    accepted: &[Waiver],
) -> Vec<AcceptedFinding> {
    if accepted.is_empty() {
        return Vec::new();
    }
    let mut digests = BTreeMap::new();
    let mut taken = Vec::new();
    findings.retain(|finding| {
        let Some(file) = file_of(finding, files).filter(|_| finding.level < Level::Error) else {
            return true;
        };
        let sha256 = *digests
            .entry(file.path.as_str())
            .or_insert_with(|| Digest::of(&file.bytes));
        let names = |waiver: &&Waiver| {
            waiver.sha256 == sha256 && (waiver.rule == finding.rule || waiver.rule == finding.id)
        };
        let Some(waiver) = accepted.iter().find(names) else {
            return true;
        };
        taken.push(AcceptedFinding {
            rule: finding.rule.to_owned(),
            by: waiver.rule.clone(),
            path: finding.path.clone(),
            line: finding.line,
            sha256: Some(sha256),
            within: None,
            reason: waiver.reason.clone(),
        });
        false
    });
    taken
}

/// Removes the errors of the format that a list accepts for the paths of their files.
pub(super) fn accept_errors(audited: &mut Audited, accepted: &[AcceptedError]) {
    let before = audited.accepted.len();
    for located in std::mem::take(&mut audited.findings) {
        let finding = &located.finding;
        let path = audited.path_of(finding);
        // Flags are about bytes, and stay.
        let by = accepted.iter().find(|by| {
            finding.level == Level::Error
                && (by.rule == finding.rule || by.rule == finding.id)
                && Path::new(&path).starts_with(&by.path)
        });
        match by {
            Some(by) => audited.accepted.push(AcceptedFinding {
                rule: finding.rule.to_owned(),
                by: by.rule.clone(),
                path: finding.path.clone(),
                line: finding.line,
                sha256: None,
                within: Some(by.path.clone()),
                reason: by.reason.clone(),
            }),
            None => audited.findings.push(located),
        }
    }
    if audited.accepted.len() > before {
        audited.verdict = verdict_of(audited.findings.iter().map(|located| &located.finding));
    }
}

/// Returns the verdict that follows from the findings of a skill of which everything was read.
pub(super) fn verdict_of<'f>(findings: impl Iterator<Item = &'f Finding>) -> Verdict {
    match findings.map(|finding| finding.level).max() {
        None | Some(Level::Note) => Verdict::Accepted,
        Some(Level::Warning) => Verdict::Warnings,
        Some(_) => Verdict::Blocked,
    }
}

/// Returns the file that a finding is about. The gate's findings use the path `SKILL.md`, whatever
/// the case of the name on disk.
pub(super) fn file_of<'a>(finding: &Finding, files: &'a [RawFile]) -> Option<&'a RawFile> {
    files.iter().find(|file| {
        file.path == finding.path
            || (finding.path == SKILL_MD && is_document(OsStr::new(&file.path)))
    })
}
