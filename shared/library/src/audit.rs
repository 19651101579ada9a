//! Looking at skills where they lie: through the gate, without admitting, running or writing anything.
//!
//! What can't be read, and what no skill may hold, is a finding here, and the rest is judged all the same: a link beside
//! a SKILL.md must not hide what the SKILL.md says.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use vault_skill::document::Document;
use vault_skill::finding::{Finding, Level, printable, structure_rules};
use vault_skill::gate::similar::Sketch;
use vault_skill::gate::{self, GateOptions, RawFile};
use vault_skill::hash::Digest;
use vault_skill::manifest::{Manifest, SKILL_MD};
use vault_skill::report::{
    Audit, Audited, Bound, Excerpt, Located, Skipped, Verdict, decode, percent_encoded,
};

use crate::disk::source::{self, SourceError};
use crate::disk::{self, FileError, Kind};
use crate::installed::place;
use crate::store::LIMITS;
use crate::store::{self, Examined, Trusted};
use crate::vault::Vault;

/// How far a repository is looked through.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Levels of folders below the one that is named.
    pub depth: usize,
    /// Folders that are listed.
    pub folders: usize,
}

impl Default for Bounds {
    /// What the clients of the skills standard look through: agents find nothing beyond it either.
    fn default() -> Self {
        Self {
            depth: 6,
            folders: 2_000,
        }
    }
}

/// How to audit.
#[derive(Clone, Copy)]
pub struct Auditor<'a> {
    /// Whether flags block.
    pub strict: bool,
    /// How far to look.
    pub bounds: Bounds,
    /// The vault of this machine: what lies in its own store is judged with the exceptions that were signed with it.
    pub vault: Option<&'a Vault>,
    /// Microseconds since any moment: measures each skill.
    pub clock: &'a (dyn Fn() -> u64 + Sync),
    /// Is told of each skill that is done.
    pub progress: &'a (dyn Fn() + Sync),
}

/// Why nothing could be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// There is no file SKILL.md in the folder.
    #[error("there is no {SKILL_MD} in {}", .0.display())]
    NoSkill(PathBuf),
    /// The path names something else than a folder or a SKILL.md.
    #[error("{} is neither a folder nor a file named {SKILL_MD}", .0.display())]
    NotASkill(PathBuf),
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Folders that are never looked into.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// Audits one skill: its folder, or the SKILL.md in it. A link that is named itself is followed. Fails where there is no skill.
pub fn audit_skill(path: &Path, auditor: &Auditor<'_>) -> Result<Audited, AuditError> {
    let resolved = disk::resolve(path)?;
    let folder = match disk::kind(&resolved)? {
        Some(Kind::Dir) => resolved,
        Some(Kind::File) if resolved.file_name().is_some_and(is_document) => resolved
            .parent()
            .map_or_else(|| resolved.clone(), Path::to_owned),
        _ => return Err(AuditError::NotASkill(path.to_owned())),
    };
    let listed = disk::list_kept(&folder, usize::MAX, &|name, kind| {
        kind != Kind::Dir && is_document(name)
    })?;
    let document = document_of(&listed.kept).ok_or_else(|| AuditError::NoSkill(path.to_owned()))?;
    let found = Place {
        folder,
        path: PathBuf::new(),
        document,
    };
    let own = auditor
        .vault
        .and_then(|vault| Own::of(vault, &found.folder));
    let manifest = own.and_then(|own| own.manifest(&found.folder));
    Ok(judge(&found, manifest, auditor))
}

/// Audits the verified bytes of an installed skill, with the exceptions of its signed manifest.
pub fn audit_installed(examined: Examined, auditor: &Auditor<'_>) -> Audited {
    let started = (auditor.clock)();
    let Examined {
        manifest, files, ..
    } = examined;
    let raw = files.into_iter().map(RawFile::from).collect();
    let mut audited = gated(raw, &[], None, Some(manifest), auditor.strict);
    audited.microseconds = (auditor.clock)().saturating_sub(started);
    audited
}

/// Audits every SKILL.md in and below a folder, on all cores; the answer is the same whatever the timing, but for the times.
/// Fails where the folder itself can't be found.
pub fn audit_repository(root: &Path, auditor: &Auditor<'_>) -> Result<Audit, AuditError> {
    let folder = disk::resolve(root)?;
    if disk::kind(&folder)? != Some(Kind::Dir) {
        return Err(AuditError::NotASkill(root.to_owned()));
    }
    let walked = walk(&folder, auditor.bounds);
    let own = auditor.vault.and_then(|vault| Own::of(vault, &folder));
    let mut audit = Audit {
        root: root.to_string_lossy().into_owned(),
        base: String::new(),
        strict: auditor.strict,
        skills: walked
            .skills
            .par_iter()
            .with_max_len(1)
            .map(|place| {
                let manifest = own.as_ref().and_then(|own| own.manifest(&place.folder));
                let audited = judge(place, manifest, auditor);
                (auditor.progress)();
                audited
            })
            .collect(),
        skipped: walked.skipped,
        bounds: walked.bounds,
        folders: walked.folders,
    };
    audit.mark_duplicates();
    Ok(audit)
}

/// The store of this machine's vault, where what is audited lies in it or around it.
struct Own {
    store: PathBuf,
    /// Whom to believe about what: this vault, then each that is linked.
    trusted: Vec<Trusted>,
}

impl Own {
    fn of(vault: &Vault, audited: &Path) -> Option<Self> {
        let store = disk::resolve(&vault.store()).ok()?;
        if !store.starts_with(audited) && !audited.starts_with(&store) {
            return None;
        }
        let groups = place::places(vault).ok()?.groups;
        Some(Self {
            store,
            trusted: groups.into_iter().map(|group| group.trusted).collect(),
        })
    }

    /// The manifest of a skill in the store, where a key that this vault trusts signed it. Its exceptions name the bytes
    /// that they are for, so the files need no proof of their own.
    fn manifest(&self, folder: &Path) -> Option<Manifest> {
        let bundle = folder.strip_prefix(&self.store).ok()?;
        let bundle = bundle.to_str()?.strip_suffix("/files")?.parse().ok()?;
        self.trusted
            .iter()
            .find_map(|trusted| store::manifest(&self.store, &bundle, trusted))
    }
}

/// A folder with a SKILL.md.
struct Place {
    folder: PathBuf,
    /// Relative to what is audited.
    path: PathBuf,
    /// What the file is called.
    document: String,
}

#[derive(Default)]
struct Walked {
    skills: Vec<Place>,
    skipped: Vec<Skipped>,
    bounds: Vec<Bound>,
    folders: usize,
}

fn is_document(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.eq_ignore_ascii_case(SKILL_MD))
}

/// The name of the file that makes a folder a skill: SKILL.md itself, else what differs from it in case only.
fn document_of(kept: &[(std::ffi::OsString, Kind)]) -> Option<String> {
    let names = || kept.iter().filter(|(_, kind)| *kind != Kind::Dir);
    names()
        .find(|(name, _)| name == SKILL_MD)
        .or_else(|| names().next())
        .map(|(name, _)| name.to_string_lossy().into_owned())
}

/// Folders level by level, so that a bound cuts off what lies deepest. Links are not followed; `.gitignore` hides nothing.
fn walk(root: &Path, bounds: Bounds) -> Walked {
    let mut walked = Walked::default();
    let mut open = VecDeque::from([(PathBuf::new(), 0)]);
    let (mut too_deep, mut too_many) = (false, false);
    while let Some((path, depth)) = open.pop_front() {
        if walked.folders >= bounds.folders {
            too_many = true;
            break;
        }
        walked.folders += 1;
        let folder = root.join(&path);
        let wanted = |name: &OsStr, kind| match kind {
            Kind::Dir => !SKIPPED.iter().any(|skipped| name == *skipped),
            _ => is_document(name),
        };
        let listed = match disk::list_kept(&folder, bounds.folders, &wanted) {
            Ok(listed) => listed,
            Err(error) => {
                walked.skipped.push(Skipped {
                    path: shown(&path),
                    reason: error.cause.to_string(),
                });
                continue;
            }
        };
        too_many |= listed.cut;
        if let Some(document) = document_of(&listed.kept) {
            walked.skills.push(Place {
                folder,
                path: path.clone(),
                document,
            });
        }
        let below = listed.kept.iter().filter(|(_, kind)| *kind == Kind::Dir);
        for (name, _) in below {
            if depth < bounds.depth {
                open.push_back((path.join(name), depth + 1));
            } else {
                too_deep = true;
            }
        }
    }
    let reached = |unit, limit| Bound { unit, limit };
    if too_many {
        walked.bounds.push(reached("folders", bounds.folders));
    }
    if too_deep {
        walked.bounds.push(reached("levels", bounds.depth));
    }
    let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_owned();
    walked.skills.sort_by_cached_key(|place| bytes(&place.path));
    walked.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    walked
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        ".".to_owned()
    } else {
        path.to_string_lossy().into_owned()
    }
}

/// Reads and gates one skill; `manifest` is what was signed of it, where it lies in the store.
fn judge(place: &Place, manifest: Option<Manifest>, auditor: &Auditor<'_>) -> Audited {
    let started = (auditor.clock)();
    let read = source::read_leniently(&place.folder, LIMITS, &gate::is_ignored);
    let (raw, faults, name) = match read {
        Ok((folder, faults)) => (folder.files, faults, folder.name),
        Err(error) => (Vec::new(), vec![(String::new(), error)], None),
    };
    let mut audited = gated(raw, &faults, name.as_deref(), manifest, auditor.strict);
    audited.path = shown(&place.path);
    audited.uri = percent_encoded(place.path.as_os_str().as_bytes());
    audited.document.clone_from(&place.document);
    audited.microseconds = (auditor.clock)().saturating_sub(started);
    audited
}

fn gated(
    raw: Vec<RawFile>,
    faults: &[(String, SourceError)],
    folder: Option<&str>,
    manifest: Option<Manifest>,
    strict: bool,
) -> Audited {
    let complete = faults.is_empty();
    let hash = complete.then(|| hash(&raw));
    let sketch = complete.then(|| Sketch::of(raw.iter().map(|file| file.bytes.as_slice())));
    // SKILL.md itself may be what was not read; then the gate would only say that there is none.
    let has_document = raw.iter().any(|file| is_document(OsStr::new(&file.path)));
    let mut findings = Vec::new();
    let mut name = None;
    let mut verdict = Verdict::Blocked;
    let mut lines = Vec::new();
    if has_document {
        let (installed, waivers) = manifest
            .map(|manifest| (manifest.name, manifest.gate.waivers))
            .unzip();
        let options = GateOptions {
            strict,
            name: installed,
            folder,
            waivers: waivers.unwrap_or_default(),
            ..GateOptions::default()
        };
        let kept = raw.clone();
        let judged = gate::check(raw, &options);
        verdict = Verdict::of(judged.outcome);
        name = match &judged.package {
            Some(package) => Some(package.name.to_string()),
            None => author_name(&kept),
        };
        findings = judged.findings;
        lines = kept;
    }
    let mut more: Vec<Finding> = faults.iter().map(fault).collect();
    if !more.is_empty() {
        verdict = verdict.max(Verdict::Blocked);
    }
    if faults.iter().any(|(_, error)| is_unreadable(error)) {
        verdict = Verdict::Unreadable;
    }
    more.append(&mut findings);
    Audited {
        path: ".".to_owned(),
        uri: String::new(),
        document: SKILL_MD.to_owned(),
        name,
        verdict,
        hash,
        findings: located(more, &lines),
        sketch,
        duplicate_of: None,
        likeness: None,
        microseconds: 0,
    }
}

/// Paths and bytes of all files, each path before its hash: what makes two skills the same.
fn hash(files: &[RawFile]) -> Digest {
    let mut lines: Vec<(&str, Digest)> = files
        .iter()
        .map(|file| (file.path.as_str(), Digest::of(&file.bytes)))
        .collect();
    lines.sort_unstable_by_key(|(path, _)| *path);
    let mut text = String::new();
    for (path, digest) in lines {
        text.push_str(&format!("{path}\0{digest}\n"));
    }
    Digest::of(text.as_bytes())
}

/// What the author calls a skill that the gate refuses, where that can be read.
fn author_name(files: &[RawFile]) -> Option<String> {
    let document = files
        .iter()
        .find(|file| is_document(OsStr::new(&file.path)))?;
    let document = Document::parse(&document.bytes).ok()?;
    Some(document.frontmatter().name.clone())
}

/// The findings with their lines; each file is decoded once.
fn located(findings: Vec<Finding>, files: &[RawFile]) -> Vec<Located> {
    let mut last: Option<(String, String)> = None;
    findings
        .into_iter()
        .map(|finding| {
            let source = finding.line.and_then(|line| {
                if last.as_ref().is_none_or(|(path, _)| *path != finding.path) {
                    // The gate speaks of SKILL.md, whatever the case of its letters on disk.
                    let same = |file: &&RawFile| {
                        file.path == finding.path
                            || (finding.path == SKILL_MD && is_document(OsStr::new(&file.path)))
                    };
                    let file = files.iter().find(same)?;
                    last = Some((finding.path.clone(), decode(&file.bytes).into_owned()));
                }
                let (_, text) = last.as_ref()?;
                Excerpt::of(text, line, finding.column)
            });
            Located { finding, source }
        })
        .collect()
}

/// Whether nobody can say what stands there, as against what no skill may hold.
fn is_unreadable(error: &SourceError) -> bool {
    matches!(
        error,
        SourceError::File(_) | SourceError::Changed(_) | SourceError::Missing(_)
    )
}

/// What was met in place of a readable plain file, as a finding.
fn fault((path, error): &(String, SourceError)) -> Finding {
    let (rule, hint) = match error {
        SourceError::Link(_) | SourceError::Special { .. } | SourceError::HardLink(_) => (
            "file-kind",
            "put the file itself in its place, or leave it out",
        ),
        SourceError::Name(_) => ("path", "rename the file; paths are never corrected"),
        SourceError::TooLarge { unit, .. } => match *unit {
            "bytes in one file" => ("file-size", "split it, or fetch it when it is needed"),
            "bytes in one skill" => ("total-size", "leave out what is not needed"),
            _ => (
                "file-count",
                "leave out what is built or installed, or keep the skill in a folder of its own",
            ),
        },
        _ => (
            "file-unreadable",
            "let this user read it, and audit again when nothing writes to it",
        ),
    };
    let message = match error {
        SourceError::File(error) => format!("this cannot be read: {}", error.cause),
        other => other.to_string(),
    };
    let blank = structure_rules().iter().find(|known| known.name == rule);
    let known = blank.unwrap_or(&structure_rules()[0]);
    Finding::of(known, Level::Error, printable(&message))
        .at(path.as_str())
        .hint(hint)
}

#[cfg(test)]
mod tests;
