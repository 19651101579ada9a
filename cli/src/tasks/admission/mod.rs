//! Admission, the way of a skill into the vault: vault's scanner (the *gate*) checks the files,
//! then the vault signs and stores them. This module formats its results and failures for people
//! and for `--json`.

pub mod outcomes;
pub mod texts;

use std::{collections::BTreeSet, path::Path};

use serde_json::json;
use vault_format::manifest::{Manifest, Waiver};
use vault_gate::finding::{Finding, Level};
use vault_library::SourceError;
use vault_library::admit::{
    Admission, AdmitError, AdmitReport, Candidate, Neighbours, Options, Source, examine_candidate,
    unknown_includes,
};
use vault_store::clock::{Clock as _, SystemClock};

use self::texts::Texts;
use crate::{
    context::Context,
    errors::{ErrorCode, Failure, message_chain},
    lookup::folder_of,
    output::{BOLD, DIM, GOOD, Warning, clean, count, either, format_size, paint},
};

/// Formats an admitted skill as one line for people.
pub fn admitted_text(report: &AdmitReport) -> String {
    let (done, version) = (paint(GOOD, "✓"), report.version);
    let (what, version) = match report.admission {
        Admission::Added => (done + " added", format!("version {version}")),
        Admission::Updated => {
            let before = report.before.unwrap_or_default();
            (done + " updated", format!("version {before} → {version}"))
        }
        Admission::Unchanged => (paint(DIM, "=") + " unchanged", format!("version {version}")),
    };
    let (files, size) = (
        count(report.files as u64, "file"),
        format_size(report.bytes),
    );
    let details = paint(DIM, format_args!("{version}, {files}, {size}"));
    format!("{what} {}  {details}", paint(BOLD, &report.name))
}

/// Renders a finding in a local folder in the style of compiler diagnostics.
pub fn render_folder_finding(source: &str, finding: &Finding) -> String {
    Texts::of_folder(source).render_finding(finding)
}

/// Checks a folder with the gate, without a vault. Returns the findings, and the candidate (the
/// skill ready to be signed) if the gate accepts it.
pub fn examine_folder(source: &str) -> Result<(Vec<Finding>, Option<Candidate>), Failure> {
    // Without a vault there are no installed skills to compare the name with.
    let mut nothing = Neighbours::new(None, SystemClock.now());
    let folder = Source::Folder(source.to_owned());
    match examine_candidate(folder, &Options::default(), &mut nothing) {
        Ok(candidate) => Ok((candidate.package.findings.clone(), Some(candidate))),
        Err(AdmitError::Blocked { findings }) => Ok((findings, None)),
        Err(error) => Err(admission_failure(source, &Texts::of_folder(source), error)),
    }
}

/// Converts the error of admitting the skill from `source` into a [`Failure`]. Findings are
/// rendered with lines of the files in `texts`.
pub fn admission_failure(source: &str, texts: &Texts, error: AdmitError) -> Failure {
    let message = message_chain(&error);
    match error {
        AdmitError::Blocked { findings } => {
            // Warnings are shown as well, but only the others block.
            let blocking = findings.iter().filter(|finding| finding.level > Level::Warning);
            let (source_shown, number) = (clean(source, 200), count(blocking.count() as u64, "finding"));
            fail!(GateBlocked, "the gate refused {source_shown}: {number}")
            .excerpts(findings.iter().map(|finding| texts.render_finding(finding)))
            .data(json!({ "source": source, "findings": findings }))
            // For a folder of skills, its subfolders are the better advice than flags for one
            // skill.
            .hint_if(below_hint(source).or_else(|| allow_hint(findings.iter())))
        }
        AdmitError::NameTaken { name, .. }
        | AdmitError::OtherPlace { name, .. }
        | AdmitError::OtherPart { name, .. }
        | AdmitError::UnknownPlace { name, .. } => {
            Failure::new(ErrorCode::NameTaken, message).hint(format!(
                "--replace replaces it, --name <other> keeps both; vault show {name} shows the installed one"
            ))
        }
        AdmitError::Signer { .. } => Failure::new(ErrorCode::SourceSigner, message)
            .hint("nothing was changed; ask the owner of the source, and if the change is intended: vault add <source> --replace"),
        AdmitError::OtherSkill { .. } => Failure::new(ErrorCode::SourceRemoved, message)
            .hint("nothing was changed; if this is the skill that you want: vault add <source> --replace"),
        AdmitError::SourceUnsupported { .. } => Failure::new(ErrorCode::SourceUnreadable, message),
        AdmitError::Source(
            SourceError::Link(path) | SourceError::HardLink(path) | SourceError::Special { path, .. },
        ) => link_failure(source, &path, &message),
        AdmitError::Source(error) => source_failure(source, &error, message),
        AdmitError::Derived(_) => Failure::new(ErrorCode::DerivedMismatch, message),
        AdmitError::BaseChanged(_) => Failure::new(ErrorCode::DraftOutdated, message),
        AdmitError::NotReviewed { .. } => Failure::new(ErrorCode::ReviewNeeded, message),
        AdmitError::Provenance(_) => Failure::new(ErrorCode::ProvenanceInvalid, message),
        AdmitError::AnyAgent(_) => Failure::new(ErrorCode::SourceMalformed, message)
            .hint("take it out: without `agents` a skill is for every agent"),
        AdmitError::Unsignable(_) => Failure::new(ErrorCode::SigningFailed, message),
        AdmitError::Occupied { .. } => Failure::new(ErrorCode::NameTaken, message),
        AdmitError::NotInstalled(_) => Failure::new(ErrorCode::SkillNotFound, message),
        AdmitError::Twice(_) => Failure::new(ErrorCode::NameTwice, message)
            .hint("add one of them separately: vault add <folder> --name <other>"),
        AdmitError::Vault(error) => error.into(),
    }
}

/// Converts the error about a file that is no plain file: a link of either kind, or a device.
fn link_failure(source: &str, path: &Path, message: &str) -> Failure {
    let folder = Path::new(source);
    let skill = folder_of(folder);
    // A file's path is relative to the skill, but the given path itself is already whole. A file may
    // have the name of the skill's folder.
    let is_whole = (path == folder || path == skill) && path.is_symlink();
    let whole = if is_whole {
        path.to_owned()
    } else {
        skill.join(path)
    };
    // The text of the error already tells links, hard links and devices apart.
    let what = message
        .split_once(" is a ")
        .map_or("symbolic link", |(_, what)| what);
    // Only a symbolic link has a target. For the other kinds, this fails.
    let target = std::fs::read_link(&whole).ok();
    let is_copyable = target.as_ref().is_some_and(|target| {
        // An absolute target counts as outside of the skill, and such a link is not copied.
        let is_relative = target.is_relative() && !is_whole;
        is_relative && whole.is_file()
    });
    let leads = match &target {
        Some(target) => {
            let to = clean(&target.display().to_string(), 200);
            let gone = either(whole.exists(), "", ", which does not exist");
            format!(" (it leads to {to}{gone})")
        }
        None => String::new(),
    };
    let shown = clean(&whole.display().to_string(), 400);
    fail!(Symlink, "{shown} is a {what}{leads}").hint(either(
        is_copyable,
        "put the file itself in its place, or pass --copy-links if it leads to a file of the same \
         skill",
        "put the file itself in its place, or leave it out",
    ))
}

/// Converts the error of a source that is too large or is no skill.
fn source_failure(source: &str, error: &SourceError, message: String) -> Failure {
    let hint = match error {
        SourceError::TooLarge { unit: "files", .. } => Some(MANY_FILES_HINT.to_owned()),
        SourceError::NotASkill(path) => archive_hint(path),
        _ => None,
    };
    let code = match error {
        SourceError::TooLarge { .. } => ErrorCode::SourceTooLarge,
        SourceError::Missing(_) => ErrorCode::SourceUnreadable,
        _ => ErrorCode::SourceMalformed,
    };
    // The paths in these errors are relative to the skill, and there may be several.
    let message = if message.contains(source) {
        message
    } else {
        format!("{}: {message}", clean(source, 200))
    };
    Failure::new(code, message).hint_if(hint.or_else(|| below_hint(source)))
}

/// Returns the owner's reason for exceptions to the rules in `allow`, or `None` if `allow` is
/// empty. Asks for a missing reason on a terminal, and fails elsewhere.
pub fn require_reason(
    context: &Context,
    allow: &[String],
    reason: Option<&str>,
) -> Result<Option<String>, Failure> {
    if allow.is_empty() {
        return Ok(None);
    }
    let ui = &context.ui;
    let reason = match reason {
        Some(reason) => reason.trim().to_owned(),
        None if ui.may_ask() && !ui.is_yes() => {
            let rules = clean(&allow.join(", "), 200);
            ui.ask_text(&format!("Why is {rules} accepted here?"))?
        }
        None => String::new(),
    };
    if reason.is_empty() {
        return Err(fail!(ReasonMissing, "--allow needs a reason")
            .hint("--reason \"…\": it is signed with the exception, and everyone who gets the skill sees it"));
    }
    Ok(Some(reason))
}

/// Warns of each rule after `--allow` or `--end-exception` that has no effect on this skill.
/// `installed` is the manifest of the installed version.
pub fn warn_of_unused_flags(
    context: &Context,
    candidate: &Candidate,
    installed: Option<&Manifest>,
) {
    let name = &candidate.package.name;
    let has_rule = |waivers: &[Waiver], named: &str| {
        // An option names a rule by its name or its id, and an exception by its name.
        let mut rules = vault_gate::scan_rules();
        let rule = rules.find(|rule| rule.id == named).map(|rule| rule.name);
        waivers
            .iter()
            .any(|waiver| waiver.rule == named || rule.is_some_and(|rule| waiver.rule == rule))
    };
    for rule in &candidate.options.allow {
        if !has_rule(&candidate.package.waivers, rule) {
            let rule = clean(rule, 80);
            let text = format!("--allow {rule} accepts nothing in {name}: the rule found nothing");
            context.ui.warn(Warning::new("exception_unused", text));
        }
    }
    for rule in &candidate.options.end_exceptions {
        if !installed.is_some_and(|installed| has_rule(&installed.gate.waivers, rule)) {
            let rule = clean(rule, 80);
            let text = format!("{name} has no exception to {rule} that could end");
            context.ui.warn(Warning::new("exception_unused", text));
        }
    }
}

/// Fails if `--include` names a file that no source has, or that does not look like a secret.
pub fn require_includes(sources: &[&Source], include: &[String]) -> Result<(), Failure> {
    let unknown = unknown_includes(sources, include);
    if unknown.is_empty() {
        return Ok(());
    }
    Err(include_unknown(&unknown.join(", ")))
}

/// Creates the failure for paths after `--include` that match no file that looks like a secret.
pub fn include_unknown(names: &str) -> Failure {
    fail!(
        IncludeUnknown,
        "--include {}: no file of this path looks like a secret",
        clean(names, 300)
    )
    .hint("write the path in the skill, as in --include config/.env; other files need no --include")
}

/// Suggests the `--allow` flags for the blocking findings. Returns `None` if there are none, or if
/// one of them cannot be allowed.
pub fn allow_hint<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<String> {
    let blocking = findings.filter(|finding| finding.level > Level::Warning);
    // A single finding that no flag allows makes the whole suggestion useless.
    let flags = blocking.map(|finding| (finding.level == Level::Flag).then_some(finding.rule));
    let flags: BTreeSet<&str> = flags.collect::<Option<_>>()?;
    if flags.is_empty() {
        return None;
    }
    let allowed: Vec<String> = flags.iter().map(|rule| format!("--allow {rule}")).collect();
    let allowed = allowed.join(" ");
    Some(format!(
        "reviewed it and still want it? {allowed} --reason \"…\" (applies to exactly these files)"
    ))
}

const MANY_FILES_HINT: &str = "remove what is built or installed, such as node_modules, or give the skill a folder of its own";

/// Returns a hint if the path names an archive of a kind that vault does not read.
fn archive_hint(path: &Path) -> Option<String> {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let endings = [
        ".tar.xz", ".tar.bz2", ".tar.zst", ".txz", ".tbz2", ".7z", ".rar", ".gz",
    ];
    let is_archive = endings.iter().any(|ending| name.ends_with(ending));
    is_archive.then(|| "vault reads archives of these kinds: zip, tar, tar.gz".to_owned())
}

/// Suggests adding the skills one level below, if `source` is a folder of skills and not a skill
/// itself.
fn below_hint(source: &str) -> Option<String> {
    let folder = Path::new(source);
    if folder.join("SKILL.md").exists() {
        return None;
    }
    let below = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let skills = below.filter(|entry| entry.path().join("SKILL.md").is_file());
    let number = skills.count() as u64;
    let verb = if number == 1 { "is" } else { "are" };
    let (skills, folder) = (
        count(number, "skill"),
        clean(source.trim_end_matches('/'), 200),
    );
    (number > 0).then(|| format!("there {verb} {skills} in this folder: vault add {folder}/*"))
}
