//! `vault add --dry-run`: reports what adding would do, and changes nothing.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    bundle::File, manifest::Mode, name::SkillName, path::FilePath, provenance::ProvenanceId,
};
use vault_gate::{
    Outcome, document::Secret, finding::Level, package::Package, report::Audited,
    requirements::read_requirements,
};
use vault_library::{
    Origin, Vault,
    admit::{self, Admission, AdmitError, Candidate, Neighbours, Secrets, examine_candidate},
    run,
};
use vault_store::clock::{Clock as _, SystemClock};

use super::Arguments;
use super::checks::{check_items, check_rules};
use super::gather::{GatherResult, SkillToAdd, gather_items};
use super::project;
use super::report::{LeftOutSkill, SkillsReport, code_of_several, failed_part};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{BAD, BOLD, DIM, GOOD, Report, clean, count, format_size, format_thousands, paint},
    tasks::{
        admission::{
            admission_failure, allow_hint, outcomes::FailedSkill, require_reason, texts::Texts,
            warn_of_unused_flags,
        },
        audit_report::audited_skill,
        project_lock::{Lock, LockEntry},
        project_scope::LockedProject,
    },
};

/// A skill that was judged, a skill or source that could not be, or a skill that was left out.
#[derive(Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum CheckedSource {
    Skill(Box<CheckedSkill>),
    Failed(FailedSkill),
    LeftOut(LeftOutSkill),
}

/// A skill that was judged and not added.
#[derive(Debug, JsonSchema, Serialize)]
pub struct CheckedSkill {
    #[serde(flatten)]
    audit: Audited,
    /// The source, as it was named.
    source: String,
    /// The gate's outcome.
    outcome: Outcome,
    #[serde(flatten)]
    addition: Option<Addition>,
}

/// The effect of adding a skill that the gate accepts. A blocked skill has none of the members.
#[derive(Debug, JsonSchema, Serialize)]
struct Addition {
    /// The effect on the installed skills.
    admission: Admission,
    /// The source that would be recorded.
    provenance: ProvenanceId,
    /// The exact commit, version or digest at the source; null if it has none.
    revision: Option<String>,
    /// Files that the vault would store.
    files: Vec<FileSummary>,
    /// Environment variables that the skill declares.
    environment: Vec<Secret>,
    /// Skills that it requires. A dry run neither fetches nor judges them.
    requires: Vec<String>,
    /// How much text an agent has to read because of the skill.
    context: ContextCost,
    #[serde(flatten)]
    secrets: Secrets,
}

/// A file of a skill, without its content.
#[derive(Debug, JsonSchema, Serialize)]
struct FileSummary {
    /// Path below the skill's folder, with `/` between names.
    path: FilePath,
    /// Size in bytes.
    size: usize,
    /// `0755` if the file is executable, else `0644`.
    mode: Mode,
}

impl From<File> for FileSummary {
    fn from(File { path, mode, bytes }: File) -> Self {
        let size = bytes.len();
        Self { path, size, mode }
    }
}

/// The context that a skill costs an agent, in tokens of four bytes, estimated.
#[derive(Debug, JsonSchema, Serialize)]
struct ContextCost {
    /// Tokens of the name and the description. Every conversation pays these, even if the skill is
    /// not used.
    listed_tokens: u64,
    /// Tokens of SKILL.md. A conversation pays these when it uses the skill.
    read_tokens: u64,
}

impl ContextCost {
    fn from_package(package: &Package) -> Self {
        let own = &package.frontmatter;
        let tokens = |bytes: usize| (bytes as u64).div_ceil(4);
        Self {
            listed_tokens: tokens(own.name.len() + own.description.len()),
            read_tokens: tokens(package.document().len()),
        }
    }
}

/// Scans the skills, predicts the effect of adding each, and creates the report. Creates no vault.
/// With `project`, they would be added to it.
pub fn check_skills(
    items: Vec<GatherResult<SkillToAdd>>,
    report: SkillsReport<'_>,
    project: Option<&LockedProject>,
) -> Result<Report, Failure> {
    let context = report.context;
    let single = items.len() == 1;
    let vault = context.existing_vault()?;
    let mut judge = SkillJudge {
        context,
        vault: vault.as_ref(),
        lock: project.map(|project| &project.lock),
        neighbours: match project {
            Some(project) => {
                Neighbours::for_project(vault.as_ref(), &project.folder, SystemClock.now())
            }
            None => Neighbours::new(vault.as_ref(), SystemClock.now()),
        },
        names: BTreeSet::new(),
        lines: Vec::new(),
    };
    let (mut checked, mut codes, mut refused) = (Vec::new(), Vec::new(), 0);
    let mut is_judged = true;
    for item in items {
        let (place, failure) = match item.and_then(|item| judge.judge_item(item)) {
            Ok(skill) => {
                if skill.outcome == Outcome::Blocked {
                    codes.push(ErrorCode::GateBlocked.into());
                    refused += 1;
                }
                checked.push(CheckedSource::Skill(Box::new(skill)));
                continue;
            }
            Err(failed) => failed,
        };
        // With a single source, its failure is the failure of the command, with its code and hint.
        if single {
            return Err(report.of_single(place, failure));
        }
        context.ui.note_failure(&failure);
        refused += 1;
        is_judged = false;
        checked.push(CheckedSource::Failed(failed_part(place, &failure)));
        codes.push(failure.code);
    }
    let taken = checked.len() - refused;
    report.print_left_out(taken, refused);
    let total = count(checked.len() as u64, "skill");
    checked.extend(report.left_out.into_iter().map(CheckedSource::LeftOut));
    match code_of_several(codes, taken > 0) {
        None => Ok(Report::view(checked, judge.lines.join("\n"))),
        // The verdict of the gate is what a dry run is asked for, as in an audit.
        Some(code) if is_judged => {
            let exit = code.exit();
            Ok(Report::view(checked, judge.lines.join("\n")).with_exit(exit))
        }
        Some(code) => {
            for line in judge.lines {
                context.ui.print_line(line);
            }
            let message = format!("{refused} of {total} would not be added");
            Err(Failure::new(code, message).data(checked))
        }
    }
}

/// Scans the skills of one command and predicts the effect of adding them.
struct SkillJudge<'a> {
    context: &'a Context,
    vault: Option<&'a Vault>,
    lock: Option<&'a Lock>,
    neighbours: Neighbours<'a>,
    /// The names of the skills that passed the gate.
    names: BTreeSet<SkillName>,
    lines: Vec<String>,
}

impl SkillJudge<'_> {
    /// Scans a skill and predicts the effect of adding it. Adds the lines for people, and returns
    /// the entry for `--json`.
    fn judge_item(&mut self, item: SkillToAdd) -> GatherResult<CheckedSkill> {
        let (context, lines) = (self.context, &mut self.lines);
        let place = item.place;
        let texts = Texts::of_source(&place.label, &item.source);
        let (label, source) = (clean(&place.label, 200), place.label.clone());
        let folder = project::folder_inside(&item.source);
        // Include the preview: a skill can pass the gate and still be rejected, for example because
        // its name belongs to a skill from another source.
        let examined = examine_candidate(item.source, &item.options, &mut self.neighbours)
            .and_then(|candidate| {
                let name = &candidate.package.name;
                if !self.names.insert(name.clone()) {
                    return Err(AdmitError::Twice(name.clone()));
                }
                // The lock of a project, not the vault, says what it has.
                let admission = match self.lock {
                    Some(_) => Admission::Added,
                    None => predict_admission(self.vault, &candidate)?,
                };
                Ok((candidate, admission))
            });
        let examined = match (examined, self.lock) {
            (Ok((mut candidate, _)), Some(lock)) => {
                match project::entry_for(context, lock, &mut candidate, folder) {
                    Ok(entry) => Ok((candidate, predict_locked(lock, &entry))),
                    Err(failure) => return Err((place, failure)),
                }
            }
            (examined, _) => examined,
        };
        match examined {
            Ok((candidate, admission)) => {
                let package = &candidate.package;
                let all = context.ui.is_verbose();
                let findings = package.findings.iter();
                let findings = findings.filter(|finding| all || finding.level > Level::Note);
                lines.extend(findings.map(|finding| texts.render_finding(finding)));
                let mark = match admission {
                    Admission::Unchanged => paint(DIM, "= unchanged"),
                    Admission::Updated => paint(GOOD, "✓ would be updated"),
                    Admission::Added => paint(GOOD, "✓ would be added"),
                };
                lines.push(format!("{mark} {label}"));
                lines.extend(package_lines(&candidate));
                let audit =
                    audited_skill(&source, candidate.outcome, Some(package), &package.findings);
                Ok(CheckedSkill {
                    audit,
                    source,
                    outcome: candidate.outcome,
                    addition: Some(Addition::new(candidate, admission)),
                })
            }
            // A blocked skill is a result of this command and no failure: it is in the same list as
            // the accepted ones.
            Err(AdmitError::Blocked { findings }) => {
                lines.extend(findings.iter().map(|finding| texts.render_finding(finding)));
                lines.push(format!("{BAD}✗ would be refused{BAD:#} {label}"));
                // A project takes no exceptions.
                let hint = allow_hint(findings.iter()).filter(|_| self.lock.is_none());
                lines.extend(hint.map(|hint| format!("  {hint}")));
                let outcome = Outcome::Blocked;
                Ok(CheckedSkill {
                    audit: audited_skill(&source, outcome, None, &findings),
                    source,
                    outcome,
                    addition: None,
                })
            }
            Err(error) => {
                let failure = admission_failure(&source, &texts, error);
                Err((place, failure))
            }
        }
    }
}

/// Predicts the effect of a new lock entry.
fn predict_locked(lock: &Lock, entry: &LockEntry) -> Admission {
    match lock.find_entry(&entry.name) {
        None => Admission::Added,
        Some(locked) if locked.digest == entry.digest => Admission::Unchanged,
        Some(_) => Admission::Updated,
    }
}

/// Predicts whether adding a skill would add, update or leave unchanged. Fails if the vault would
/// reject it.
fn predict_admission(
    vault: Option<&Vault>,
    candidate: &Candidate,
) -> Result<Admission, AdmitError> {
    let Some(vault) = vault else {
        return Ok(Admission::Added);
    };
    if admit::preview_admission(vault, candidate)?.is_some() {
        return Ok(Admission::Unchanged);
    }
    Ok(match run::find_skill(vault, &candidate.package.name) {
        // A linked vault's skill may have the same name. Only this vault's own one would be
        // updated.
        Ok(Some(found)) if found.origin == Origin::Local => Admission::Updated,
        _ => Admission::Added,
    })
}

impl Addition {
    fn new(candidate: Candidate, admission: Admission) -> Self {
        let requires = requires_of(&candidate.package);
        let package = candidate.package;
        Self {
            admission,
            provenance: candidate.provenance.identifier,
            revision: candidate.provenance.revision,
            context: ContextCost::from_package(&package),
            files: package.files.into_iter().map(FileSummary::from).collect(),
            environment: package.frontmatter.requires_secrets,
            requires,
            secrets: candidate.secrets,
        }
    }
}

/// Returns what a skill requires; nothing if that cannot be read.
fn requires_of(package: &Package) -> Vec<String> {
    let stated = read_requirements(&package.frontmatter.metadata).unwrap_or_default();
    stated.iter().map(ToString::to_string).collect()
}

/// Formats the name, files, requirements, variables and context cost of a skill that passed the gate.
fn package_lines(candidate: &Candidate) -> Vec<String> {
    let package = &candidate.package;
    let bytes: usize = package.files.iter().map(|file| file.bytes.len()).sum();
    let (files, bytes) = (
        count(package.files.len(), "file"),
        format_size(bytes as u64),
    );
    let name = paint(BOLD, &package.name);
    let from = clean(candidate.provenance.identifier.as_str(), 200);
    let mut lines = vec![format!("  {name}  {files}, {bytes}, from {from}")];
    for file in &package.files {
        let mark = if file.mode.bits() & 0o111 == 0 {
            ' '
        } else {
            '*'
        };
        let path = clean(file.path.as_str(), 200);
        let bytes = format_size(file.bytes.len() as u64);
        lines.push(format!("{DIM}    {path}{mark} {bytes}{DIM:#}"));
    }
    for required in requires_of(package) {
        lines.push(format!("  requires {}", clean(&required, 200)));
    }
    for secret in &package.frontmatter.requires_secrets {
        let need = if secret.required { "needs" } else { "may use" };
        let name = clean(&secret.name, 100);
        lines.push(format!("  {need} the variable {name}"));
    }
    let cost = ContextCost::from_package(package);
    let (listed, read) = (
        count(cost.listed_tokens, "token"),
        format_thousands(cost.read_tokens),
    );
    lines.push(format!(
        "  costs about {listed} of context in every list, {read} when it is read"
    ));
    lines
}

/// A skill that was fetched and judged, and would be accepted.
pub struct ExaminedSkill {
    /// The source, as it was named.
    pub source: String,
    /// Its files, and what the gate read from them.
    pub candidate: Candidate,
    /// The findings, files, variables and context cost, for people.
    pub lines: Vec<String>,
}

/// Finds the one skill that the arguments select, and judges it. Adds nothing. Fails like `vault
/// add` if the gate refuses it.
pub fn examine_single(context: &Context, arguments: &Arguments) -> Result<ExaminedSkill, Failure> {
    check_rules(arguments)?;
    let reason = require_reason(context, &arguments.allow, arguments.reason.as_deref())?;
    let arguments = &Arguments {
        reason,
        ..arguments.clone()
    };
    let gathered = gather_items(context, arguments, context.is_strict()?)?;
    check_items(arguments, &gathered.items)?;
    let number = gathered.items.len();
    let mut items = gathered.items.into_iter();
    let (Some(item), 1) = (items.next(), number) else {
        return Err(fail!(
            Usage,
            "{} were chosen, and this command takes one",
            count(number, "skill")
        )
        .hint("name it: --skill NAME"));
    };
    let SkillToAdd {
        place,
        source,
        options,
    } = item.map_err(|(_, failure)| failure)?;
    let texts = Texts::of_source(&place.label, &source);
    let vault = context.existing_vault()?;
    let mut neighbours = Neighbours::new(vault.as_ref(), SystemClock.now());
    let examined = examine_candidate(source, &options, &mut neighbours);
    let candidate = examined.map_err(|error| admission_failure(&place.label, &texts, error))?;
    warn_of_unused_flags(context, &candidate, None);
    let findings = candidate.package.findings.iter();
    let all = context.ui.is_verbose();
    let findings = findings.filter(|finding| all || finding.level > Level::Note);
    let mut lines: Vec<_> = findings
        .map(|finding| texts.render_finding(finding))
        .collect();
    lines.extend(package_lines(&candidate));
    Ok(ExaminedSkill {
        source: place.label,
        candidate,
        lines,
    })
}
