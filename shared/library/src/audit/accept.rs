//! Takes accepted findings and excluded paths out of an audit. A list in the audited repository
//! names them, each with a reason: findings that its owners have read and accept, errors of the
//! format at a path, and paths that are not audited.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use vault_format::hash::Digest;
use vault_format::manifest::{SKILL_MD, Waiver};
use vault_gate::RawFile;
use vault_gate::finding::{Finding, Level};
use vault_gate::report::{AcceptedFinding, Audited, Verdict};

use super::walk::is_document;

/// A path of the repository whose skills are left out of the audit, with everything below it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exclusion {
    /// Path relative to the audited folder, joined by `/`.
    pub path: String,
    /// The owners' reason, which the report repeats.
    pub reason: String,
}

/// A rule of the format (a structural rule, such as a limit on sizes) whose errors are accepted at
/// and below a path of the audited folder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcceptedError {
    /// Name or id of the rule.
    pub rule: String,
    /// Path of a file or folder relative to the audited folder, joined by `/`.
    pub path: String,
    /// The owners' reason, which the report repeats.
    pub reason: String,
}

/// Removes and returns the findings that a list accepts for the exact bytes of their files. Errors
/// of the format are never accepted this way.
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

/// Moves the errors of the format that a list accepts for the paths of their files to the accepted
/// findings.
pub(super) fn accept_errors(audited: &mut Audited, accepted: &[AcceptedError]) {
    let before = audited.accepted.len();
    for located in std::mem::take(&mut audited.findings) {
        let finding = &located.finding;
        let path = audited.path_of(finding);
        // Only errors of the format are accepted by path. A security flag depends on the bytes, so
        // it stays.
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

/// Returns the verdict that follows from the findings, for a skill whose files were all read.
pub(super) fn verdict_of<'f>(findings: impl Iterator<Item = &'f Finding>) -> Verdict {
    match findings.map(|finding| finding.level).max() {
        None | Some(Level::Note) => Verdict::Accepted,
        Some(Level::Warning) => Verdict::Warnings,
        Some(_) => Verdict::Blocked,
    }
}

/// Returns the file that a finding is about. The gate's findings name `SKILL.md` even if the file
/// on disk is written in another case.
pub(super) fn file_of<'a>(finding: &Finding, files: &'a [RawFile]) -> Option<&'a RawFile> {
    files.iter().find(|file| {
        file.path == finding.path
            || (finding.path == SKILL_MD && is_document(OsStr::new(&file.path)))
    })
}
