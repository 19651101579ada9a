//! The gate: the scan that decides whether a skill may enter a vault. A set of files becomes a
//! [`Package`], or a list of reasons why it is rejected.
//!
//! Errors always block. Flags block unless the owner runs the gate without being strict. Warnings
//! and notes never block, and notes do not change the outcome. Bytes are never changed: a name that
//! does not fit is derived beside the author's own, and metadata files of editors and systems are
//! left out. The same files give the same findings in the same order, in whatever order the files
//! come.
//!
//! | rule | level | what |
//! |---|---|---|
//! | `file-count`, `file-size`, `total-size`, `skill-md-size` | error | limits of the format |
//! | `file-count-high` | warning | more files than MCP hosts must accept |
//! | `path`, `path-clash` | error | a path that some system cannot hold, two that are one somewhere |
//! | `skill-md-missing`, `skill-md-encoding` | error | there is no SKILL.md that can be read |
//! | `skill-md-name` | warning | it is called `skill.md`, which some agents do not find |
//! | `frontmatter-missing`, `-unclosed`, `-size`, `-yaml`, `-colon` | error | the frontmatter cannot be read; `-colon` is a warning where the value can be read as if it were quoted |
//! | `frontmatter-type`, `frontmatter-spelling` | warning | a key that is not read |
//! | `name-missing`, `name-length`, `name-hidden`, `name-unusable` | error | no name, and none to be derived; `name-missing` is a warning where the folder or the owner gives one |
//! | `frontmatter-name` | note | the vault's name is not the author's |
//! | `description-missing`, `description-length` | error | none, or over 4,096 characters |
//! | `description-template` | error | still the text that a new skill begins with |
//! | `description-short`, `description-long` | warning | under 20, over 1,024 characters |
//! | `bin` | error | a declared action of a wrong shape or name |
//! | `action-command`, `action-cwd` | error | a command or a folder that the skill lacks |
//! | `variable-reserved` | error | a declared variable that is a setting of vault |
//! | `hidden-text` | flag | control, direction or tag characters in the frontmatter |
//! | `native-executable` | warning | a compiled program among the files |
//!
//! After these checks, the scanner (`scan`) runs the security rules (`rules`, one file for each
//! family of related rules) over every file.

mod actions;
mod base64;
pub mod derived;
mod difference;
pub mod document;
mod effects;
mod files;
pub mod finding;
pub mod links;
pub mod lint;
mod look_alike;
mod name;
pub mod names;
pub mod package;
pub mod report;
pub mod requirements;
mod rule;
mod rules;
mod scan;
pub mod secrets;
pub mod similar;
pub mod skill_folders;
mod texts;

pub use crate::finding::{Finding, Level, Rule};
pub use files::{
    MANY_FILES, RawFile, UNSEARCHED_FOLDERS, is_document_name, is_ignored, is_lfs_pointer,
    is_system_metadata,
};
pub use vault_format::text::Position;

use crate::document::SKILL_MD;
use crate::package::Package;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::manifest::{Flag, Waiver};
use vault_format::name::SkillName;
use vault_format::text::printable;

/// Name of this rule set in the member `gate.rules` of a manifest.
pub const RULES: &str = "gate/1";

/// The largest amount of work of a scan in a service, for [`GateOptions::most_work`]. Work is
/// counted in bytes and not measured in time, so that every service rejects the same skills. The
/// slowest known inputs take 0.6 to 1.2 GB of counted work a second on one core of a release build,
/// so a scan ends within about 11 seconds.
pub const SERVICE_WORK: u64 = 6 << 30;

/// Returns the publisher that a source names (the owner of the repository, or the host), for
/// [`GateOptions::publisher`]. A host on which anybody can publish names no publisher.
pub fn publisher_of_source(source: &str) -> Option<String> {
    rules::hosts::publisher(source)
}

/// Returns every rule of the scanner, in a fixed order.
pub fn scan_rules() -> impl Iterator<Item = &'static Rule> {
    rules::all().map(|rule| &rule.rule).chain([
        &names::LOOK_ALIKE,
        &similar::DUPLICATE_RULE,
        &similar::ALIKE_RULE,
    ])
}

/// Options for one run of the gate.
#[derive(Clone, Debug)]
pub struct GateOptions<'a> {
    /// Whether flags block; true by default.
    pub strict: bool,
    /// Name that the owner chose. It takes precedence over the one in the frontmatter.
    pub name: Option<SkillName>,
    /// Name of the skill's folder, from which a name is derived if the frontmatter gives none that
    /// is usable.
    pub folder: Option<&'a str>,
    /// Names or ids of rules whose flags the owner accepts for exactly these bytes (waivers).
    pub allow: Vec<String>,
    /// The owner's reason for `allow`. It replaces the reason that an earlier version recorded.
    pub reason: Option<&'a str>,
    /// Waivers of an earlier version. Each holds only for a file with the bytes that it names.
    pub waivers: Vec<Waiver>,
    /// Waivers of the skill from which this variant is rendered. Each holds for any bytes.
    pub inherited: Vec<Waiver>,
    /// Names or ids of rules whose waivers of an earlier version end.
    pub ended: Vec<String>,
    /// Publishers from whom the skill comes (owners of repositories and hosts), lower case. A call
    /// of their own installers is a warning instead of a flag. Empty if the source is unknown;
    /// claims in the skill itself do not count.
    pub publisher: Vec<String>,
    /// Whether hints (weak signs of a problem) that do not add up to a warning are reported as
    /// notes. Otherwise they are dropped.
    pub hints: bool,
    /// Files of the nearest known version. Lines that were added since then are also judged by
    /// themselves.
    pub before: &'a [File],
    /// Work in bytes after which the scan stops with a flag. `None`: no bound. Services set it to
    /// [`SERVICE_WORK`].
    pub most_work: Option<u64>,
}

impl GateOptions<'_> {
    /// Returns the default options with the bound of work for services.
    pub fn in_service() -> Self {
        Self {
            most_work: Some(SERVICE_WORK),
            ..Self::default()
        }
    }

    fn known_names(&self) -> name::NameSources<'_> {
        name::NameSources {
            owner: self.name.as_ref(),
            folder: self.folder,
        }
    }
}

impl Default for GateOptions<'_> {
    fn default() -> Self {
        Self {
            strict: true,
            name: None,
            folder: None,
            allow: Vec::new(),
            reason: None,
            waivers: Vec::new(),
            inherited: Vec::new(),
            ended: Vec::new(),
            publisher: Vec::new(),
            hints: false,
            before: &[],
            most_work: None,
        }
    }
}

/// Outcome of a run of the gate.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Admitted without warnings.
    Accepted,
    /// Admitted with at least one warning.
    AcceptedWithWarnings,
    /// Not admitted.
    Blocked,
}

impl Outcome {
    /// Returns the outcome for one more warning.
    #[must_use]
    pub const fn with_warning(self) -> Self {
        match self {
            Self::Accepted => Self::AcceptedWithWarnings,
            other => other,
        }
    }
}

/// The result of a scan.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Outcome of the run.
    pub outcome: Outcome,
    /// All findings: errors first, then flags, warnings and notes, each by path and place.
    pub findings: Vec<Finding>,
    /// The skill, unless it is blocked.
    pub package: Option<Package>,
    /// Amount of work of the scan in bytes, as [`GateOptions::most_work`] bounds it.
    pub work: u64,
}

impl Verdict {
    /// Adds a warning that the caller found beyond these files, such as a confusable name in the
    /// same vault. It comes last and never blocks.
    pub fn add_warning(&mut self, warning: Finding) {
        if let Some(package) = &mut self.package {
            package.findings.push(warning.clone());
        }
        self.findings.push(warning);
        self.outcome = self.outcome.with_warning();
    }

    /// Returns the findings that block: all errors, and flags that are not accepted.
    pub fn blocking_findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|finding| finding.level > Level::Warning)
    }
}

/// Scans the files of a skill and decides about its admission.
pub fn check(files: Vec<RawFile>, options: &GateOptions<'_>) -> Verdict {
    let mut findings = Vec::new();
    let files = files::check_files(files, &mut findings);
    let scan = scan::scan_files(&files, &options.publisher, options.most_work);
    let mut work = scan.work;
    findings.extend(scan.into_findings(options.hints));
    // If the first scan was stopped, the skill is rejected and more work is pointless.
    let is_stopped = findings.iter().any(scan::is_stopped);
    if !options.before.is_empty() && !is_stopped {
        let (added, work_on_added) =
            difference::find_in_added_lines(options.before, &files, &options.publisher, &findings);
        work = work.saturating_add(work_on_added);
        // Report each match once, at the higher of its two levels.
        findings.retain(|whole| {
            !added.iter().any(|found| {
                found.rule == whole.rule
                    && found.path == whole.path
                    && found.line == whole.line
                    && found.level > whole.level
            })
        });
        findings.extend(added);
    }
    // Hash the files before `build_package` takes them: a waiver names the bytes of its file.
    let digests = digests_of_flagged(&files, &findings);
    let admitted = build_package(files, options, &mut findings);
    // Apply waivers first: a flag that the owner accepts is recorded as a waiver with its reason.
    // Only the others are recorded as flags that passed because the scan was not strict.
    let waivers = apply_waivers(&mut findings, &digests, options);
    let flags = if options.strict {
        Vec::new()
    } else {
        downgrade_flags(&mut findings)
    };
    // Sort, because the order of the input files must not change the result.
    sort_findings(&mut findings);
    let blocked = findings
        .iter()
        .any(|finding| finding.level > Level::Warning);
    let package = admitted.filter(|_| !blocked).map(|package| Package {
        flags,
        waivers,
        findings: findings.clone(),
        ..package
    });
    let is_clean = findings.iter().all(|finding| finding.level == Level::Note);
    let outcome = match (&package, is_clean) {
        (None, _) => Outcome::Blocked,
        (Some(_), true) => Outcome::Accepted,
        (Some(_), false) => Outcome::AcceptedWithWarnings,
    };
    Verdict {
        outcome,
        findings,
        package,
        work,
    }
}

/// Reads SKILL.md and checks everything that depends on it. Returns `None` and reports the reason
/// if no package can be made.
fn build_package(
    files: Vec<File>,
    options: &GateOptions<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Package> {
    let document = files.iter().find(|file| file.path.as_str() == SKILL_MD)?;
    let document = match name::read_named_document(&document.bytes, options.known_names()) {
        Ok(document) => document,
        Err(error) => {
            // The document is rejected already. Its actions are checked all the same, so that the
            // author sees every fault in one run.
            actions::check_declared(error.actions(), &files, findings);
            findings.extend(error.into_findings());
            return None;
        }
    };
    let name = name::choose_name(&document, options.known_names(), findings);
    texts::check_texts(&document, findings);
    let actions = actions::read_valid_actions(document.frontmatter(), &files, findings);
    let (frontmatter, warnings) = document.into_parts();
    findings.extend(warnings);
    // Stop for a missing name only here, so that the checks above report their findings without
    // one, too.
    let (name, frontmatter_name) = name?;
    Some(Package {
        name,
        frontmatter_name,
        frontmatter,
        actions,
        files,
        flags: Vec::new(),
        waivers: Vec::new(),
        findings: Vec::new(),
    })
}

/// Returns the name that these files would get in the vault and, if it differs, the author's.
/// Returns `None` if they would get no name.
pub fn name_in_vault(
    files: &[RawFile],
    options: &GateOptions<'_>,
) -> Option<(SkillName, Option<String>)> {
    // `check` stores `skill.md` under the name SKILL.md, so accept both spellings here.
    let document = files
        .iter()
        .find(|file| files::is_document_name(&file.path))?;
    let document = name::read_named_document(&document.bytes, options.known_names()).ok()?;
    name::choose_name(&document, options.known_names(), &mut Vec::new())
}

/// Returns the SHA-256 of the files to which flags refer, by path.
fn digests_of_flagged(
    files: &[File],
    findings: &[Finding],
) -> std::collections::BTreeMap<String, Digest> {
    let flagged: std::collections::BTreeSet<&str> = findings
        .iter()
        .filter(|finding| finding.level == Level::Flag)
        .map(|finding| finding.path.as_str())
        .collect();
    files
        .iter()
        // Always include SKILL.md: `build_package` finds flags about hidden text in it only later.
        .filter(|file| flagged.contains(file.path.as_str()) || file.path.as_str() == SKILL_MD)
        .map(|file| (file.path.as_str().to_owned(), Digest::of(&file.bytes)))
        .collect()
}

/// The recorded reason of a waiver for which the owner gives none.
const ALLOWED: &str = "allowed by the owner";

/// Turns the flags that the owner accepts into warnings. Returns their waivers as the manifest
/// records them, sorted.
fn apply_waivers(
    findings: &mut [Finding],
    digests: &std::collections::BTreeMap<String, Digest>,
    options: &GateOptions<'_>,
) -> Vec<Waiver> {
    let mut waivers: Vec<Waiver> = Vec::new();
    for finding in findings
        .iter_mut()
        .filter(|finding| finding.level == Level::Flag)
    {
        // A finding about the skill as a whole names no file, so no waiver can name its bytes and
        // it stays a flag.
        let Some(sha256) = digests.get(&finding.path).copied() else {
            continue;
        };
        let names = |rules: &[String]| {
            let mut rules = rules.iter();
            rules.any(|rule| rule == finding.rule || rule == finding.id)
        };
        let earlier = options
            .waivers
            .iter()
            .find(|waiver| waiver.rule == finding.rule && waiver.sha256 == sha256)
            .filter(|_| !names(&options.ended))
            .map(|waiver| waiver.reason.clone());
        let is_allowed = names(&options.allow);
        // Escape the reason: it is signed and shown on the terminals of everyone who gets the
        // skill.
        let given = options.reason.filter(|_| is_allowed).map(printable);
        let inherited = || {
            let mut waivers = options.inherited.iter();
            let waiver = waivers.find(|waiver| waiver.rule == finding.rule)?;
            Some(waiver.reason.clone())
        };
        let without = || is_allowed.then(|| ALLOWED.to_owned());
        let reason = given.or(earlier).or_else(inherited).or_else(without);
        let Some(reason) = reason else {
            continue;
        };
        finding.level = Level::Warning;
        finding.hint = format!("allowed for these bytes: {reason}");
        // One waiver covers every place in the file that the rule matched.
        if !waivers
            .iter()
            .any(|waiver| waiver.rule == finding.rule && waiver.sha256 == sha256)
        {
            waivers.push(Waiver {
                rule: finding.rule.to_owned(),
                sha256,
                reason,
            });
        }
    }
    waivers.sort_by(|a, b| (&a.rule, a.sha256).cmp(&(&b.rule, b.sha256)));
    waivers
}

/// Turns all flags into warnings and returns them as the manifest records them, sorted.
fn downgrade_flags(findings: &mut [Finding]) -> Vec<Flag> {
    let mut flags = Vec::new();
    for finding in findings
        .iter_mut()
        .filter(|finding| finding.level == Level::Flag)
    {
        finding.level = Level::Warning;
        flags.push(Flag {
            rule: finding.rule.to_owned(),
            path: finding.path.clone(),
            line: u64::from(finding.line.unwrap_or_default()),
        });
    }
    flags.sort();
    flags.dedup();
    flags
}

fn sort_findings(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        let key = |f: &Finding| {
            (
                std::cmp::Reverse(f.level),
                f.path.clone(),
                f.line,
                f.column,
                f.rule,
                f.message.clone(),
            )
        };
        key(a).cmp(&key(b))
    });
}

#[cfg(test)]
mod tests;
