//! The skills that the skills of a project require: what comes along, and who needs what.
//!
//! Nothing comes silently. Each required skill is fetched, judged by the gate on its own and shown
//! before the question; what it requires itself is named and not fetched.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::SkillName;
use vault_gate::Level;
use vault_gate::requirements::{Accepted, Need, StatedRequirement};
use vault_library::admit::{self, Candidate, Options, examine_candidate};
use vault_shelf::fetch::FetchedSkill;
use vault_sources::{
    ParseOptions, Source,
    requirements::{
        BadRequirement, MissingSkill, ProjectSkill, ProjectSkills, RequirementConflict,
        SkillRequirement, SourceKey, fulfils, host_of,
    },
    short_commit,
};

use crate::{
    context::Context,
    errors::{Failure, Place},
    output::{clean, count, join},
    tasks::{
        admission::texts::Texts,
        fetch::{self, Fetching},
        project_install::{self, ProjectInstaller, project_failure},
        project_lock::{self, Lock, LockEntry},
    },
};

/// The largest number of skills that come along with one.
const MAX_ALONG: usize = vault_gate::requirements::MAX_REQUIREMENTS;

/// A required skill that passed the gate and waits for the user's answer.
pub struct RequiredSkill {
    /// The skill, which is not installed yet.
    pub candidate: Candidate,
    /// Its entry for the lock.
    pub entry: LockEntry,
    /// The skills that require it.
    needed_by: Vec<SkillName>,
}

/// A skill that came because others require it.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ShownRequirement {
    /// Name in the project.
    name: SkillName,
    /// The source, as the lock records it.
    source: String,
    /// The branch, tag or version that it follows; null for the default branch.
    reference: Option<String>,
    /// The exact commit, version or digest; null for a folder of the project.
    revision: Option<String>,
    /// Number of warnings of the gate about this skill.
    warnings: usize,
    /// The skills that require it.
    needed_by: Vec<SkillName>,
}

impl RequiredSkill {
    /// Describes the skill for the output.
    pub fn to_shown(&self) -> ShownRequirement {
        let findings = self.candidate.package.findings.iter();
        ShownRequirement {
            name: self.entry.name.clone(),
            source: self.entry.source.clone(),
            reference: self.entry.reference.clone(),
            revision: self.entry.revision.clone(),
            warnings: findings
                .filter(|finding| finding.level == Level::Warning)
                .count(),
            needed_by: self.needed_by.clone(),
        }
    }
}

impl ShownRequirement {
    /// Formats the line that is shown before the question.
    fn line(&self) -> String {
        let at = match (&self.reference, &self.revision) {
            (Some(reference), Some(revision)) => {
                format!(" at {reference} ({})", short_commit(revision))
            }
            (None, Some(revision)) => format!(" at {}", short_commit(revision)),
            (_, None) => String::new(),
        };
        let verdict = match self.warnings {
            0 => "the gate accepts it".to_owned(),
            warnings => format!("the gate accepts it with {}", count(warnings, "warning")),
        };
        let line = format!(
            "{}  {}{at}  needed by {}  {verdict}",
            self.name,
            self.source,
            join(&self.needed_by)
        );
        clean(&line, 600)
    }
}

/// Reads the requirements of all entries of a lock. Fails if an entry names a place that a
/// requirement may not name.
pub fn skills_of(context: &Context, lock: &Lock) -> Result<ProjectSkills, Failure> {
    let options = fetch::parse_options(context)?;
    let mut skills = ProjectSkills::default();
    for entry in &lock.skills {
        let skill = project_skill(entry, &options).map_err(|bad| {
            let text = clean(&format!("{}: {bad}", entry.name), 600);
            fail!(LockInvalid, "{text}").at(Place::new(&lock.path, None))
        })?;
        skills
            .add_skill(skill, false)
            .map_err(|found| conflict(&found))?;
    }
    Ok(skills)
}

fn project_skill(
    entry: &LockEntry,
    options: &ParseOptions,
) -> Result<ProjectSkill, BadRequirement> {
    let in_project = entry.source.starts_with("./");
    let stated = entry.requires.iter().cloned();
    let requires = stated.map(|stated| SkillRequirement::new(stated, in_project, options));
    Ok(ProjectSkill {
        name: entry.name.clone(),
        key: SourceKey::of_recorded(&entry.source),
        reference: entry.reference.clone(),
        revision: entry.revision.clone(),
        requires: requires.collect::<Result<_, _>>()?,
        as_requirement: entry.as_requirement,
    })
}

fn conflict(conflict: &RequirementConflict) -> Failure {
    let hint = match conflict {
        RequirementConflict::Cycle(_) => "one of them must stop requiring the other",
        RequirementConflict::TwoSources { .. } => {
            "remove the one that is there first, if the other is wanted"
        }
        RequirementConflict::Excluded { .. } | RequirementConflict::Exclusive { .. } => {
            "one of them must accept another version, or leave the project"
        }
    };
    let text = clean(&conflict.to_string(), 4_000);
    fail!(RequirementConflict, "{text}").hint(format!("nothing was changed; {hint}"))
}

/// Fetches and judges the skills that a new or changed entry requires and the project lacks, shows
/// them and asks. `coming` has the sources of skills that the same command adds. Fails if one is
/// refused, if requirements contradict each other, and if the answer is no. Changes nothing.
pub fn confirm_required(
    context: &Context,
    install: &mut ProjectInstaller<'_>,
    lock: &Lock,
    entry: &LockEntry,
    coming: &BTreeSet<SourceKey>,
) -> Result<Vec<RequiredSkill>, Failure> {
    let options = fetch::parse_options(context)?;
    let refused = |entry: &LockEntry, bad: BadRequirement| {
        let text = clean(&format!("{}: {bad}", entry.name), 600);
        fail!(RequirementRefused, "{text}").hint("nothing was changed; ask its author")
    };
    let new = project_skill(entry, &options).map_err(|bad| refused(entry, bad))?;
    let mut skills = skills_of(context, lock)?;
    skills
        .add_skill(new, true)
        .map_err(|found| conflict(&found))?;
    let mut found: Vec<RequiredSkill> = Vec::new();
    let own_host = remote_source(entry).as_ref().and_then(host_of);
    let missing = skills.missing_skills().map_err(|found| conflict(&found))?;
    for missing in missing {
        let is_coming = coming.contains(missing.requirement.key());
        if is_coming || !missing.needed_by.contains(&entry.name) {
            continue;
        }
        if found.len() == MAX_ALONG {
            return Err(fail!(
                RequirementRefused,
                "{} requires too many skills",
                entry.name
            ));
        }
        let required = examine_required(context, install, &missing, own_host.as_deref())?;
        let skill = project_skill(&required.entry, &options)
            .map_err(|bad| refused(&required.entry, bad))?;
        skills
            .add_skill(skill, false)
            .map_err(|found| conflict(&found))?;
        found.push(required);
    }
    skills
        .check_requirements()
        .map_err(|found| conflict(&found))?;
    if !found.is_empty() {
        let lines: Vec<String> = found
            .iter()
            .map(|required| required.to_shown().line())
            .collect();
        let them = if found.len() == 1 { "it" } else { "them" };
        let more = count(found.len(), "more skill");
        let question = format!("{} requires {more}. Add {them} too?", entry.name);
        context.ui.confirm_step(&question, &lines)?;
    }
    Ok(found)
}

/// Returns the source of an entry that is not a folder of the project.
fn remote_source(entry: &LockEntry) -> Option<Source> {
    let identifier = entry.source.parse().ok()?;
    Source::of_identifier(&identifier, None, &ParseOptions::default()).ok()
}

/// Reads or fetches one required skill, and runs the gate on it.
fn examine_required(
    context: &Context,
    install: &mut ProjectInstaller<'_>,
    missing: &MissingSkill,
    own_host: Option<&str>,
) -> Result<RequiredSkill, Failure> {
    let requirement = &missing.requirement;
    let label = clean(&requirement.stated().to_string(), 200);
    let because = |mut failure: Failure| {
        let by = join(&missing.needed_by);
        failure.message = format!("{label}, which {by} requires: {}", failure.message);
        failure
    };
    let source = match (requirement.folder(), requirement.source()) {
        (Some(folder), _) => admit::Source::InProject {
            project: install.folder().clone(),
            path: folder.to_owned(),
        },
        (None, Some(source)) => {
            let is_own_host = own_host.is_some() && requirement.host().as_deref() == own_host;
            let fetched = fetch_required(context, source, missing, is_own_host).map_err(because)?;
            admit::Source::Fetched(Box::new(fetched))
        }
        (None, None) => return Err(fail!(Internal, "{label} has no source")),
    };
    let texts = Texts::of_source(&label, &source);
    let options = Options {
        strict: context.is_strict()?,
        ..Options::default()
    };
    let candidate = examine_candidate(source, &options, &mut install.neighbours())
        .map_err(|error| because(project_failure(&label, &texts, error)))?;
    texts.warn_about_findings(context, &candidate.package.findings);
    let name = candidate.package.name.clone();
    let mut entry = match (project_lock::locked_entry(&candidate), requirement.folder()) {
        (Some(entry), _) => entry,
        (None, Some(folder)) => {
            let digest = project_lock::candidate_digest(&candidate);
            LockEntry::of_folder(name, folder, digest)
        }
        (None, None) => return Err(fail!(Internal, "{label} has no origin")),
    };
    // A repository with its only skill in a folder would be recorded as that folder, and the
    // requirement would never find it again.
    if SourceKey::of_recorded(&entry.source).as_ref() != Some(requirement.key()) {
        let found = clean(&entry.source, 200);
        return Err(fail!(
            RequirementRefused,
            "{label}, which {} requires, is {found}",
            join(&missing.needed_by)
        )
        .hint("nothing was changed; its author must name that source"));
    }
    let (reference, revision) = (entry.reference.as_deref(), entry.revision.as_deref());
    if !fulfils(&missing.accepted, reference, revision) {
        let now = clean(reference.or(revision).unwrap_or("no version"), 200);
        return Err(fail!(
            RequirementRefused,
            "{label}, which {} requires, is at {now}",
            join(&missing.needed_by)
        )
        .hint("nothing was changed; the source offers no version that is accepted"));
    }
    project_lock::check_lockable_source(context, &entry).map_err(because)?;
    entry.requires = project_install::stated_requirements(context, &candidate);
    entry.as_requirement = true;
    Ok(RequiredSkill {
        candidate,
        entry,
        needed_by: missing.needed_by.clone(),
    })
}

fn fetch_required(
    context: &Context,
    source: &Source,
    missing: &MissingSkill,
    is_own_host: bool,
) -> Result<FetchedSkill, Failure> {
    context.require_network()?;
    if let Source::Git(git) = source
        && git.is_ssh()
        && !is_own_host
    {
        return Err(fail!(
            RequirementRefused,
            "it would be fetched over SSH with your keys from a host that you did not name"
        )
        .hint("its author must name the https address; or add it first by yourself"));
    }
    let fetching = Fetching::for_requirement(context, is_own_host)?;
    let bar = context
        .ui
        .start_spinner(format!("Fetching {}", source.display_name()));
    let failed = |error: vault_sources::FetchError| fetch::fetch_failure(&error);
    let fetched = context.block_on(async {
        let (fetcher, policy) = (&fetching.fetcher, &fetching.policy);
        let source = match &missing.accepted {
            Accepted::Any => source.clone(),
            Accepted::Revision(name) => source
                .clone()
                .with_reference(name)
                .map_err(|bad| fetch::bad_source(&bad))?,
            Accepted::Range(range) => {
                let found = fetcher.find_version(source, range, policy).await;
                match found.map_err(failed)? {
                    Some(tag) => source
                        .clone()
                        .with_reference(&tag)
                        .map_err(|bad| fetch::bad_source(&bad))?,
                    None => source.clone(),
                }
            }
        };
        let opened = fetcher
            .open_source(&source, None, policy)
            .await
            .map_err(failed)?;
        let Some(found) = opened.listing.default_skill() else {
            return Err(fail!(
                RequirementRefused,
                "it is not one skill; the requirement must name its folder"
            ));
        };
        fetcher
            .take_skill(&opened, found, policy)
            .await
            .map_err(failed)
    });
    drop(bar);
    fetched
}

/// Warns of requirements that the project does not fulfil, with the command that adds each.
pub fn warn_of_unmet(context: &Context, lock: &Lock) -> Result<(), Failure> {
    for (code, text, hint) in unmet_requirements(context, lock)? {
        context.ui.warn_with(code, text, hint);
    }
    Ok(())
}

/// Returns the requirements that the project does not fulfil: a code, a message, and the command or
/// step that resolves it.
pub fn unmet_requirements(
    context: &Context,
    lock: &Lock,
) -> Result<Vec<(&'static str, String, String)>, Failure> {
    let skills = skills_of(context, lock)?;
    if let Err(conflict) = skills.check_requirements() {
        let text = clean(&conflict.to_string(), 4_000);
        let hint = "vault list --project shows who needs what".to_owned();
        return Ok(vec![("requirement_conflict", text, hint)]);
    }
    let missing = skills.missing_skills().map_err(|found| conflict(&found))?;
    let texts = missing.iter().map(|missing| {
        let (text, hint) = missing_texts(missing, lock);
        ("requirement_missing", text, hint)
    });
    Ok(texts.collect())
}

/// Returns the message about a missing skill, and the command that adds it.
fn missing_texts(missing: &MissingSkill, lock: &Lock) -> (String, String) {
    let requirement = missing.requirement.stated();
    let verb = if missing.needed_by.len() == 1 {
        "requires"
    } else {
        "require"
    };
    let text = format!(
        "{} {verb} {requirement}, which the project does not have",
        join(&missing.needed_by)
    );
    // A range is resolved only for the skill that requires it, so name that one again.
    let first = missing.needed_by.first();
    let requirer = first.and_then(|name| lock.find_entry(name));
    let again = match (requirement.accepted(), requirer) {
        // A lock may hold any text there, and this becomes a command that people copy.
        (Accepted::Range(_), Some(entry)) => {
            StatedRequirement::new(&entry.source, Accepted::Any).ok()
        }
        _ => None,
    };
    let command = add_command(again.as_ref().unwrap_or(requirement));
    (
        clean(&text, 600),
        clean(&format!("{command} --project"), 600),
    )
}

/// Returns the command that adds a skill at what a requirement accepts. A requirement holds nothing
/// that a shell would act on.
fn add_command(stated: &StatedRequirement) -> String {
    let source = stated.source();
    match stated.accepted() {
        Accepted::Any => format!("vault add {source}"),
        Accepted::Revision(name) => format!("vault add {source} --ref {name}"),
        // A personal `vault add` takes no range.
        Accepted::Range(range) => {
            format!("choose a version in {range}: vault add {source} --ref VERSION")
        }
    }
}

/// Names what a skill of the user's own requires, and the command for each: the personal vault never
/// takes anything that was not asked for.
pub fn note_requirements(context: &Context, candidate: &Candidate) -> Result<(), Failure> {
    let name = &candidate.package.name;
    let options = fetch::parse_options(context)?;
    for stated in project_install::stated_requirements(context, candidate) {
        let (text, hint) = match SkillRequirement::new(stated.clone(), false, &options) {
            Ok(_) => (
                format!("{name} requires {stated}, which was not added"),
                add_command(&stated),
            ),
            // Do not advise adding what vault would refuse in a project.
            Err(bad) => (format!("{name}: {bad}"), "ask its author".to_owned()),
        };
        let (text, hint) = (clean(&text, 600), clean(&hint, 600));
        context.ui.warn_with("requirement_not_added", text, hint);
    }
    Ok(())
}

/// Returns the skills that require each skill of a lock, by name. Empty if the requirements cannot
/// be read, which `vault install` reports.
pub fn needed_by(context: &Context, lock: &Lock) -> BTreeMap<SkillName, Vec<SkillName>> {
    let Ok(skills) = skills_of(context, lock) else {
        return BTreeMap::new();
    };
    let owned = |(name, by): (&SkillName, BTreeSet<&SkillName>)| {
        (name.clone(), by.into_iter().cloned().collect())
    };
    skills.requirers().into_iter().map(owned).collect()
}

/// Fails if a lock names a requirement that vault does not follow, or skills that require each
/// other.
pub fn check_lock(context: &Context, lock: &Lock) -> Result<(), Failure> {
    match skills_of(context, lock)?.check_requirements() {
        Err(found @ RequirementConflict::Cycle(_)) => {
            Err(conflict(&found).at(Place::new(&lock.path, None)))
        }
        // Versions that exclude each other are a warning after the installation: an update of one
        // skill must not keep a whole team from its others.
        _ => Ok(()),
    }
}

/// Fails if a skill that stays in the lock requires one of these.
pub fn check_unneeded(
    context: &Context,
    lock: &Lock,
    leaving: &[SkillName],
) -> Result<(), Failure> {
    let mut staying = lock.clone();
    for entry in &mut staying.skills {
        // What leaves needs nothing any more, and may be the entry that cannot be read.
        if leaving.contains(&entry.name) {
            entry.requires.clear();
        }
    }
    let skills = skills_of(context, &staying)?;
    let by = skills.requirers();
    for name in leaving {
        let needing = by.get(name).into_iter().flatten();
        let staying: Vec<&SkillName> = needing.copied().collect();
        if !staying.is_empty() {
            return Err(
                fail!(StillNeeded, "{name} is required by {}", join(&staying)).hint(format!(
                    "nothing was changed; --anyway removes it, or remove {} too",
                    join(&staying)
                )),
            );
        }
    }
    Ok(())
}

/// Warns of skills that came only as requirements and that no skill needs any more, and returns
/// them. They are not removed, because somebody may use them by now.
pub fn warn_of_unneeded(context: &Context, lock: &Lock) -> Vec<SkillName> {
    let Ok(skills) = skills_of(context, lock) else {
        return Vec::new();
    };
    let unneeded: Vec<SkillName> = skills.unneeded().into_iter().cloned().collect();
    for name in &unneeded {
        let text = format!("{name} came as a requirement, and no skill needs it any more");
        let hint = format!("vault remove {name} --project");
        context.ui.warn_with("no_longer_needed", text, hint);
    }
    unneeded
}

/// Returns the programs that are not in `PATH` and the variables that are not set.
pub fn unmet_needs(context: &Context, needs: &[Need]) -> Vec<String> {
    let is_unmet = |need: &&Need| match need {
        Need::Program(name) => context.process.find_program(name).is_none(),
        Need::Variable(name) => context.process.variable(name).is_none(),
    };
    needs
        .iter()
        .filter(is_unmet)
        .map(ToString::to_string)
        .collect()
}

/// Returns the requirements that none of these sources is, each with the command that adds it.
pub fn absent_skills(
    requires: &[StatedRequirement],
    present: &BTreeSet<SourceKey>,
) -> Vec<(String, String)> {
    let options = ParseOptions::default();
    let is_absent = |stated: &&StatedRequirement| {
        let read = SkillRequirement::new((*stated).clone(), false, &options);
        read.is_ok_and(|read| !present.contains(read.key()))
    };
    let absent = requires.iter().filter(is_absent);
    absent
        .map(|stated| {
            let command = add_command(stated);
            (clean(&stated.to_string(), 200), clean(&command, 400))
        })
        .collect()
}
