//! Audits skills in place: runs the gate on them without admitting, running or writing anything.
//!
//! Unreadable files and files that a skill must not contain become findings, and the other files
//! are checked anyway. For example, a symlink next to a SKILL.md must not hide problems in the
//! SKILL.md.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use vault_format::hash::Digest;
use vault_format::manifest::{self, Manifest, Mode, SKILL_MD, Waiver};
use vault_format::text::{printable, quoted};
use vault_gate::document::Document;
use vault_gate::finding::{Finding, Level, structure_rules};
use vault_gate::report::{
    Audit, Audited, Excerpt, Excluded, Located, Verdict, decode_text, percent_encoded,
};
use vault_gate::similar::Sketch;
use vault_gate::{self as gate, GateOptions, RawFile, Rule};

use crate::disk::source::{self, SourceError};
use crate::disk::{self, FileError, HeldPath, Kind, Location};
use crate::installed::installations;
use crate::store::LIMITS;
use crate::store::{self, Examined, Trusted};
use crate::vault::Vault;

mod accept;
mod walk;

pub use self::accept::{AcceptedError, Exclusion};
use self::accept::{accept_errors, file_of, take_accepted, verdict_of};
use self::walk::{SkillFolder, belongs_to_a_skill, display_path, document_of, is_document, walk};

/// Limits on the walk through the folders of a repository.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of levels below the root at which folders are still listed. By default only the
    /// length of a path bounds it, as in `vault add`.
    pub depth: usize,
    /// Maximum number of folders that are listed.
    pub folders: usize,
}

impl Default for Bounds {
    /// Far beyond any repository, so that only a hostile tree is not read to its end.
    fn default() -> Self {
        Self {
            depth: usize::MAX,
            folders: 1_000_000,
        }
    }
}

/// The strictness, limits and accepted findings of an audit.
#[derive(Clone, Copy)]
pub struct Auditor<'a> {
    /// Whether security flags (findings about dangerous content) block a skill.
    pub strict: bool,
    /// Limits on the walk through a repository. They do not limit the scan of a skill.
    pub bounds: Bounds,
    /// This machine's vault, if any. Skills in its store are checked with the exceptions in their
    /// signed manifests.
    pub vault: Option<&'a Vault>,
    /// The owner or host that publishes the skills, such as the owner of the repository. A command
    /// that installs software from there causes only a warning.
    pub publisher: Option<&'a str>,
    /// Whether each weak hint is reported as a note. Otherwise hints are reported only where
    /// several of them add up to a warning.
    pub hints: bool,
    /// Findings that are accepted for the exact bytes of a file. Errors of the format are never
    /// accepted this way.
    pub accepted: &'a [Waiver],
    /// Errors of the format that are accepted below a path of the repository.
    pub accepted_errors: &'a [AcceptedError],
    /// Paths of a repository that are left out of the audit.
    pub excluded: &'a [Exclusion],
    /// Returns a time in microseconds from any origin, for measuring how long each skill takes.
    pub clock: &'a (dyn Fn() -> u64 + Sync),
    /// Called after each skill of a repository, from any thread.
    pub progress: &'a (dyn Fn() + Sync),
}

impl Auditor<'_> {
    /// Returns an auditor with default limits. It knows no vault, accepts nothing, and measures no
    /// time.
    pub fn new(strict: bool) -> Self {
        Self {
            strict,
            bounds: Bounds::default(),
            vault: None,
            publisher: None,
            hints: false,
            accepted: &[],
            accepted_errors: &[],
            excluded: &[],
            clock: &|| 0,
            progress: &|| (),
        }
    }
}

/// Error of an audit. Nothing was audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The folder contains no SKILL.md.
    #[error("there is no {SKILL_MD} in {}", .0.display())]
    NoSkill(PathBuf),
    /// The path is neither a folder nor a SKILL.md.
    #[error("{} is neither a folder nor a file named {SKILL_MD}", .0.display())]
    NotASkill(PathBuf),
    /// The folder can't be listed or read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Audits one skill, given its folder or the SKILL.md in it. Follows `path` if it is a symlink.
/// Fails if there is no skill.
pub fn audit_skill(path: &Path, auditor: &Auditor<'_>) -> Result<Audited, AuditError> {
    let resolved = disk::resolve(path)?;
    let folder = match disk::kind_at(&resolved)? {
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
    let skill_folder = SkillFolder {
        folder,
        path: PathBuf::new(),
        document,
    };
    let own = auditor
        .vault
        .and_then(|vault| TrustedStore::find_overlapping(vault, &skill_folder.folder));
    let manifest = own.and_then(|own| own.signed_manifest(&skill_folder.folder));
    Ok(audit_place(
        &skill_folder,
        &skill_folder.folder,
        manifest,
        auditor,
    ))
}

/// Audits the verified bytes of an installed skill, applying the exceptions in its signed manifest.
pub fn audit_installed(examined: Examined, auditor: &Auditor<'_>) -> Audited {
    let started = (auditor.clock)();
    let Examined {
        manifest, files, ..
    } = examined;
    let raw = files.into_iter().map(RawFile::from).collect();
    let mut audited = run_gate(raw, &[], None, Some(manifest), auditor);
    audited.microseconds = (auditor.clock)().saturating_sub(started);
    audited
}

/// Audits every SKILL.md in and below a folder, in parallel. Except for the measured times, the
/// result does not depend on timing. Fails if the folder does not exist.
pub fn audit_repository(root: &Path, auditor: &Auditor<'_>) -> Result<Audit, AuditError> {
    let folder = disk::resolve(root)?;
    if disk::kind_at(&folder)? != Some(Kind::Dir) {
        return Ok(Audit {
            root: root.to_string_lossy().into_owned(),
            base: String::new(),
            strict: auditor.strict,
            skills: vec![audit_skill(root, auditor)?],
            left_out: Vec::new(),
            skipped: Vec::new(),
            excluded: Vec::new(),
            bounds: Vec::new(),
            folders: 1,
        });
    }
    let mut walked = walk(&folder, auditor.bounds);
    let mut excluded = Vec::new();
    let mut is_included = |path: &Path| {
        let mut exclusions = auditor.excluded.iter();
        let by = exclusions.find(|exclusion| path.starts_with(&exclusion.path));
        excluded.extend(by.map(|by| Excluded {
            path: display_path(path),
            by: by.path.clone(),
            reason: by.reason.clone(),
        }));
        by.is_none()
    };
    walked.skills.retain(|place| is_included(&place.path));
    walked
        .left_out
        .retain(|left| is_included(Path::new(&left.path)));
    let own = auditor
        .vault
        .and_then(|vault| TrustedStore::find_overlapping(vault, &folder));
    let mut audit = Audit {
        root: root.to_string_lossy().into_owned(),
        base: String::new(),
        strict: auditor.strict,
        skills: walked
            .skills
            .par_iter()
            // Skills differ widely in size, so each is scheduled alone.
            .with_max_len(1)
            .map(|place| {
                let manifest = own
                    .as_ref()
                    .and_then(|own| own.signed_manifest(&place.folder));
                let audited = audit_place(place, &folder, manifest, auditor);
                (auditor.progress)();
                audited
            })
            .collect(),
        left_out: walked.left_out,
        skipped: walked.skipped,
        excluded,
        bounds: walked.bounds,
        folders: walked.folders,
    };
    audit.mark_duplicates();
    Ok(audit)
}

/// The store of this machine's vault. Its skills are in the audited folder, so their signed
/// manifests are known.
struct TrustedStore {
    store: HeldPath,
    /// The store's folder, with every symbolic link resolved.
    folder: PathBuf,
    /// Trust for the signatures of this vault and of each linked one.
    trusted: Vec<Trusted>,
}

impl TrustedStore {
    /// Returns the vault's store if it lies in the audited folder, or the other way round.
    fn find_overlapping(vault: &Vault, audited: &Path) -> Option<Self> {
        let store = vault.store_folder();
        let folder = disk::resolve(&store.path()).ok()?;
        // The audited folder may contain the store or lie in it.
        if !folder.starts_with(audited) && !audited.starts_with(&folder) {
            return None;
        }
        let groups = installations::list_skill_places(vault).ok()?.groups;
        Some(Self {
            store,
            folder,
            trusted: groups.into_iter().map(|group| group.trusted).collect(),
        })
    }

    /// Returns the manifest of a skill in the store, if a trusted key signed it. Its exceptions
    /// name the hash of the bytes they apply to, so the files need not be verified here.
    fn signed_manifest(&self, folder: &Path) -> Option<Manifest> {
        let bundle = folder.strip_prefix(&self.folder).ok()?;
        let bundle = bundle.to_str()?.strip_suffix("/files")?.parse().ok()?;
        self.trusted
            .iter()
            .find_map(|trusted| store::read_manifest(&self.store, &bundle, trusted))
    }
}

/// Reads one skill and runs the gate on it. `root` is the audited folder: a link to a file below it
/// is followed. `manifest` is the signed manifest, for a skill in the vault's store.
fn audit_place(
    place: &SkillFolder,
    root: &Path,
    manifest: Option<Manifest>,
    auditor: &Auditor<'_>,
) -> Audited {
    let started = (auditor.clock)();
    let left_out = RefCell::new(Vec::new());
    let ignored = |name: &str| {
        let is_ignored = gate::is_ignored(name);
        if is_ignored && !gate::is_system_metadata(name) && name != ".git" {
            left_out.borrow_mut().push(name.to_owned());
        }
        is_ignored
    };
    let read = source::read_leniently(&place.folder, LIMITS, &ignored);
    let (mut raw, mut faults, name) = match read {
        Ok((folder, faults)) => (folder.files, faults, folder.name),
        Err(error) => (Vec::new(), vec![(String::new(), error)], None),
    };
    let mut beside = named_but_left_out(&left_out.into_inner(), &raw);
    let size = |files: &[RawFile]| {
        files
            .iter()
            .map(|file| file.bytes.len() as u64)
            .sum::<u64>()
    };
    // Files behind links count towards the limit of the skill, so that links can't make an audit
    // endless.
    let mut left = LIMITS.total_bytes.saturating_sub(size(&raw));
    faults.retain(
        |fault| match follow_link(fault, &place.folder, root, left) {
            Some((file, finding)) => {
                left -= size(file.as_slice());
                raw.extend(file);
                beside.push(finding);
                false
            }
            None => true,
        },
    );
    // Every entry with a fault has bytes that nobody read, except a link.
    let is_link = |(_, error): &(String, SourceError)| matches!(error, SourceError::Link(..));
    let is_judged =
        raw.iter().any(|file| is_document(OsStr::new(&file.path))) && faults.iter().all(is_link);
    let mut audited = run_gate(raw, &faults, name.as_deref(), manifest, auditor);
    if beside.iter().any(|finding| finding.level == Level::Warning) {
        audited.verdict = audited.verdict.max(Verdict::Warnings);
    }
    audited.findings.extend(add_excerpts(beside, &[]));
    audited.path = display_path(&place.path);
    audited.uri = percent_encoded(place.path.as_os_str().as_bytes());
    audited.document.clone_from(&place.document);
    // Files that the gate has not read may contain more than an error of the format.
    if is_judged && audited.verdict != Verdict::Unreadable {
        accept_errors(&mut audited, auditor.accepted_errors);
    }
    audited.microseconds = (auditor.clock)().saturating_sub(started);
    audited
}

/// Reports files that look like an editor's leftovers although the skill's text names them. They
/// are not part of the skill when it is added, so nothing checks them, but using the skill in this
/// folder would use them.
fn named_but_left_out(left_out: &[String], files: &[RawFile]) -> Vec<Finding> {
    let is_named = |name: &str| {
        let mut texts = files.iter().map(|file| file.bytes.as_slice());
        texts.any(|text| {
            text.windows(name.len())
                .any(|window| window == name.as_bytes())
        })
    };
    let named = left_out.iter().filter(|name| is_named(name));
    named
        .map(|name| {
            let message = format!(
                "{} is left out of a skill, but its text names it",
                quoted(name)
            );
            Finding::of(
                find_structure_rule("file-left-out"),
                Level::Warning,
                message,
            )
            .hint("rename it so that it is part of the skill and is judged, or remove it")
        })
        .collect()
}

/// Follows a symbolic link to something in the audited folder. A linked file is checked as if it
/// lay at the place of the link; a linked folder needs nothing more if it belongs to a skill, which
/// is audited itself. Both cause a finding, because `vault add` rejects links. Returns `None` for
/// any other target, and for a file of more than `most` bytes.
fn follow_link(
    (path, error): &(String, SourceError),
    skill: &Path,
    root: &Path,
    most: u64,
) -> Option<(Option<RawFile>, Finding)> {
    if !matches!(error, SourceError::Link(..)) || path.is_empty() {
        return None;
    }
    let link = skill.join(path);
    let target = disk::resolve(&link).ok()?;
    // Do not read a target outside of the audited folder. The finding about the link stays.
    let shown = target
        .strip_prefix(disk::resolve(root).ok()?)
        .ok()?
        .to_owned();
    let (file, level) = match disk::kind_at(&target).ok()? {
        Some(Kind::File) => {
            let most = manifest::MAX_FILE_BYTES.min(most);
            let bytes = disk::read(&target, most).ok()??;
            let file = RawFile {
                path: path.clone(),
                mode: Mode::Plain,
                bytes,
            };
            (Some(file), Level::Warning)
        }
        // The audit reads a folder by itself only if it belongs to a skill. For any other folder
        // the message "was judged" would be untrue, so the finding about the link stays.
        Some(Kind::Dir) if belongs_to_a_skill(&shown, root) => (None, Level::Note),
        _ => return None,
    };
    let message = format!(
        "{} is a symbolic link to {}, which was judged; a link cannot be added",
        quoted(path),
        quoted(&shown.to_string_lossy())
    );
    let finding = Finding::of(find_structure_rule("file-kind"), level, message)
        .at(path.as_str())
        .hint("put the file itself in its place, or leave it out");
    Some((file, finding))
}

fn find_structure_rule(name: &str) -> &'static Rule {
    let known = structure_rules().iter().find(|rule| rule.name == name);
    // All callers name an existing rule. A fallback is better than a panic.
    known.unwrap_or(&structure_rules()[0])
}

/// Runs the gate on the files of a skill. A skill with unread files gets no hash and no sketch,
/// because its unread part could tell it from another skill.
fn run_gate(
    raw: Vec<RawFile>,
    faults: &[(String, SourceError)],
    folder: Option<&str>,
    manifest: Option<Manifest>,
    auditor: &Auditor<'_>,
) -> Audited {
    let complete = faults.is_empty();
    let hash = complete.then(|| content_hash(&raw));
    let sketch = complete.then(|| Sketch::of(raw.iter().map(|file| file.bytes.as_slice())));
    // Skip the gate if SKILL.md itself could not be read: it would only report a missing SKILL.md.
    let has_document = raw.iter().any(|file| is_document(OsStr::new(&file.path)));
    let mut findings = Vec::new();
    let mut name = None;
    let mut verdict = Verdict::Blocked;
    let mut lines = Vec::new();
    if has_document {
        // As at admission, software from the skill's own publisher causes only a warning.
        let source = manifest.as_ref().and_then(|manifest| {
            gate::publisher_of_source(manifest.provenance.identifier.as_str())
        });
        let (installed, waivers) = manifest
            .map(|manifest| (manifest.name, manifest.gate.waivers))
            .unzip();
        let options = GateOptions {
            strict: auditor.strict,
            name: installed,
            folder,
            waivers: waivers.unwrap_or_default(),
            publisher: auditor
                .publisher
                .map(str::to_owned)
                .into_iter()
                .chain(source)
                .collect(),
            hints: auditor.hints,
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
    let mut more: Vec<Finding> = faults.iter().map(fault_finding).collect();
    if !more.is_empty() {
        verdict = verdict.max(Verdict::Blocked);
    }
    // Unread content may be anything, so this verdict outweighs a block.
    if faults.iter().any(|(_, error)| is_unreadable(error)) {
        verdict = Verdict::Unreadable;
    }
    more.append(&mut findings);
    let accepted = take_accepted(&mut more, &lines, auditor.accepted);
    if !accepted.is_empty() && verdict != Verdict::Unreadable {
        verdict = verdict_of(more.iter());
    }
    Audited {
        path: ".".to_owned(),
        uri: String::new(),
        document: SKILL_MD.to_owned(),
        name,
        verdict,
        hash,
        findings: add_excerpts(more, &lines),
        accepted,
        sketch,
        duplicate_of: None,
        likeness: None,
        microseconds: 0,
    }
}

/// Returns SHA-256 over all paths and contents, without file modes. Skills with the same hash are
/// reported as duplicates.
pub fn content_hash(files: &[RawFile]) -> Digest {
    let mut lines: Vec<(&str, Digest)> = files
        .iter()
        .map(|file| (file.path.as_str(), Digest::of(&file.bytes)))
        .collect();
    lines.sort_unstable_by_key(|(path, _)| *path);
    let mut text = String::new();
    for (path, digest) in lines {
        // A path has no NUL, so paths and digests can't run into each other.
        text.push_str(&format!("{path}\0{digest}\n"));
    }
    Digest::of(text.as_bytes())
}

/// Returns the name in the SKILL.md of a skill that the gate blocks; `None` if it can't be parsed.
fn author_name(files: &[RawFile]) -> Option<String> {
    let document = files
        .iter()
        .find(|file| is_document(OsStr::new(&file.path)))?;
    let document = Document::parse(&document.bytes).ok()?;
    Some(document.frontmatter().name.clone())
}

/// Adds the line of the file to each finding. Findings of one file follow each other, so each file
/// is decoded once.
fn add_excerpts(findings: Vec<Finding>, files: &[RawFile]) -> Vec<Located> {
    let mut last: Option<(String, String)> = None;
    findings
        .into_iter()
        .map(|finding| {
            let source = finding.line.and_then(|line| {
                if last.as_ref().is_none_or(|(path, _)| *path != finding.path) {
                    let file = file_of(&finding, files)?;
                    last = Some((finding.path.clone(), decode_text(&file.bytes).into_owned()));
                }
                let (_, text) = last.as_ref()?;
                Excerpt::of(text, line, finding.column)
            });
            Located { finding, source }
        })
        .collect()
}

/// Returns whether the error means that content could not be read, and not that a skill must not
/// contain the entry.
fn is_unreadable(error: &SourceError) -> bool {
    matches!(
        error,
        SourceError::File(_) | SourceError::Changed(_) | SourceError::Missing(_)
    )
}

/// Turns the error about one entry of a skill's folder into a finding.
fn fault_finding((path, error): &(String, SourceError)) -> Finding {
    let (rule, hint) = match error {
        SourceError::Link(..)
        | SourceError::Outside(_)
        | SourceError::Special { .. }
        | SourceError::HardLink(_) => (
            "file-kind",
            "put the file itself in its place, or leave it out",
        ),
        SourceError::Name(_) => ("path", "rename the file; paths are never corrected"),
        SourceError::TooLarge { unit, .. } => match *unit {
            "bytes in one file" => ("file-size", "split it, or fetch it when it is needed"),
            "bytes in one skill" => ("total-size", "remove what is not needed"),
            _ => (
                "file-count",
                "remove what is built or installed, or give the skill a folder of its own",
            ),
        },
        _ => (
            "file-unreadable",
            "give this user the right to read it, and audit again when nothing writes to it",
        ),
    };
    let message = match error {
        SourceError::File(error) => format!("this cannot be read: {}", error.cause),
        other => other.to_string(),
    };
    // The message may contain a file name with control characters.
    Finding::of(find_structure_rule(rule), Level::Error, printable(&message))
        .at(path.as_str())
        .hint(hint)
}

#[cfg(test)]
mod tests;
