//! `vault add --project`: records skills in the project's `vault.lock` and installs them for it, as
//! `vault install` would. Changes nothing of the user's own.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::SkillName;
use vault_library::{
    admit::{AdmitError, AdmitReport, Candidate, Source, examine_candidate},
    agents::ProjectLinks,
};
use vault_sources::requirements::SourceKey;

use super::gather::{GatherResult, SkillToAdd};
use super::report::{AddOutcome, AddedSkills, SkillsReport, origin_line};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{DIM, Report, clean, join, paint},
    tasks::{
        admission::{admitted_text, texts::Texts},
        project_install::{self, ProjectInstaller, project_failure},
        project_lock::{self, Lock, LockEntry},
        project_scope::LockedProject,
        requirements::{self, ShownRequirement},
    },
};

/// The skills that were added to a project.
#[derive(Debug, JsonSchema, Serialize)]
pub struct AddedToProject {
    #[serde(flatten)]
    skills: AddedSkills,
    /// Skills that came along because an added one requires them.
    required: Vec<ShownRequirement>,
    /// Path of the folder that contains the project's `vault.lock`.
    project: PathBuf,
    #[serde(flatten)]
    links: ProjectLinks,
}

/// Makes local folders sources of the project, which are read without following symbolic links and
/// must lie in it. Other sources stay as they are.
pub fn items_of_project(
    project: &LockedProject,
    items: Vec<GatherResult<SkillToAdd>>,
) -> Vec<GatherResult<SkillToAdd>> {
    let place_inside = |mut item: SkillToAdd| {
        let source = match item.source.folder_path() {
            // The gate reports a path that is no folder.
            Some(path) if path.exists() => match lockable_folder(project, &path, &item) {
                Ok(source) => source,
                Err(failure) => return Err((item.place, failure)),
            },
            _ => item.source,
        };
        if let Some(archive) = &item.options.archive {
            let archive = clean(&archive.display().to_string(), 400);
            let failure = fail!(Usage, "vault.lock cannot name the archive {archive}")
                .hint("unpack it into a folder of the project, or add it from its address");
            return Err((item.place, failure));
        }
        item.source = source;
        Ok(item)
    };
    let items = items.into_iter();
    items.map(|item| item.and_then(place_inside)).collect()
}

fn lockable_folder(
    project: &LockedProject,
    path: &Path,
    item: &SkillToAdd,
) -> Result<Source, Failure> {
    if item.options.copy_links {
        let text = "vault.lock cannot name a folder whose links are taken as copies";
        return Err(fail!(Usage, "{text}")
            .hint("leave out --copy-links, and put the files in the place of the links"));
    }
    let path = project.lock.path_inside(path)?;
    let project = project.folder.clone();
    Ok(Source::InProject { project, path })
}

/// Installs the skills for the project, writes its lock, and reports the outcome of each.
pub fn add_skills(
    context: &Context,
    project: LockedProject,
    items: Vec<GatherResult<SkillToAdd>>,
    report: SkillsReport<'_>,
) -> Result<Report, Failure> {
    let LockedProject { lock, folder, .. } = project;
    let single = items.len() == 1;
    let path = folder.path().to_owned();
    let before = lock.skills.clone();
    let mut adder = ProjectAdder {
        context,
        install: ProjectInstaller::new(context, folder)?,
        lock,
        names: BTreeSet::new(),
        coming: items.iter().filter_map(source_key).collect(),
        required: Vec::new(),
    };
    let outcomes: Vec<_> = items.into_iter().map(|item| adder.add_item(item)).collect();
    let ProjectAdder {
        install,
        lock,
        required,
        ..
    } = adder;
    let is_added = outcomes.iter().any(|outcome| outcome.result.is_ok());
    if lock.skills != before {
        lock.record(context)?;
    }
    // If every skill was rejected, change nothing, not even the agents' folders.
    let links = if is_added {
        install.link_skills(&lock.names())?
    } else {
        ProjectLinks::default()
    };
    let skills = report.print_outcomes(outcomes, single);
    if is_added {
        requirements::warn_of_unmet(context, &lock)?;
        requirements::warn_of_unneeded(context, &lock);
    }
    let skills = skills?;
    let text = linked_text(&links);
    let view = AddedToProject {
        skills,
        required,
        project: path,
        links,
    };
    Ok(Report::view(view, text))
}

/// Formats where agents find the skills of the project.
pub fn linked_text(links: &ProjectLinks) -> String {
    if links.folders.is_empty() {
        return paint(
            DIM,
            "no agent of this machine reads skills of a project; they are in .vault/skills",
        );
    }
    let folders = links.folders.iter().map(|folder| folder.display());
    paint(DIM, format!("linked in {}", join(folders)))
}

struct ProjectAdder<'a> {
    context: &'a Context,
    install: ProjectInstaller<'a>,
    lock: Lock,
    /// The names of the skills of this command.
    names: BTreeSet<SkillName>,
    /// Sources of the skills that this command adds. If one of them requires another, nothing is
    /// asked.
    coming: BTreeSet<SourceKey>,
    /// The skills that came along.
    required: Vec<ShownRequirement>,
}

/// Returns the source of a skill that is to be added, if a requirement can mean it.
fn source_key(item: &GatherResult<SkillToAdd>) -> Option<SourceKey> {
    match &item.as_ref().ok()?.source {
        Source::InProject { path, .. } => SourceKey::of_recorded(&format!("./{path}")),
        Source::Fetched(skill) => SourceKey::of_recorded(skill.upstream.identifier.as_str()),
        _ => None,
    }
}

impl ProjectAdder<'_> {
    fn add_item(&mut self, item: GatherResult<SkillToAdd>) -> AddOutcome {
        let (place, texts, result) = match item {
            Err((place, failure)) => {
                let texts = Texts::of_folder(&place.label);
                (place, texts, Err(failure))
            }
            Ok(item) => {
                let texts = Texts::of_source(&item.place.label, &item.source);
                let result = self.add_skill(&texts, &item.place.label, item.source, &item.options);
                (item.place, texts, result)
            }
        };
        let (result, from) = match result {
            Ok((report, from)) => (Ok(report), from),
            Err(failure) => (Err(failure), None),
        };
        AddOutcome {
            place,
            texts,
            result,
            from,
        }
    }

    /// Judges one skill, installs it, and puts its entry into the lock in memory. Also returns a line
    /// about the source of a fetched skill.
    fn add_skill(
        &mut self,
        texts: &Texts,
        label: &str,
        source: Source,
        options: &vault_library::admit::Options,
    ) -> Result<(AdmitReport, Option<String>), Failure> {
        let failed = |error| project_failure(label, texts, error);
        let folder = folder_inside(&source);
        let mut candidate =
            examine_candidate(source, options, &mut self.install.neighbours()).map_err(failed)?;
        let name = candidate.package.name.clone();
        if !self.names.insert(name.clone()) {
            return Err(failed(AdmitError::Twice(name)));
        }
        let entry = entry_for(self.context, &self.lock, &mut candidate, folder)?;
        self.add_required(&entry)?;
        let report = self.install.install_candidate(&candidate)?;
        self.lock.put_entry(entry);
        let from = candidate
            .upstream
            .is_some()
            .then(|| origin_line(&candidate));
        Ok((report, from))
    }

    /// Asks about the skills that an entry requires, and installs them before it.
    fn add_required(&mut self, entry: &LockEntry) -> Result<(), Failure> {
        let (context, coming) = (self.context, &self.coming);
        let install = &mut self.install;
        let required = requirements::confirm_required(context, install, &self.lock, entry, coming)?;
        for skill in required {
            let report = self.install.install_candidate(&skill.candidate)?;
            context.ui.print_line(admitted_text(&report));
            self.required.push(skill.to_shown());
            self.lock.put_entry(skill.entry);
        }
        Ok(())
    }
}

/// Returns the path below the project of a source that is a folder of it.
pub fn folder_inside(source: &Source) -> Option<String> {
    match source {
        Source::InProject { path, .. } => Some(path.clone()),
        _ => None,
    }
}

/// Creates the lock entry of a candidate, which was read from `folder` below the project or fetched,
/// and which keeps the agents of an earlier entry. Fails if the
/// lock cannot name its source, or names another source or signer for this name.
pub fn entry_for(
    context: &Context,
    lock: &Lock,
    candidate: &mut Candidate,
    folder: Option<String>,
) -> Result<LockEntry, Failure> {
    let name = candidate.package.name.clone();
    let before = lock.find_entry(&name);
    if let Some(before) = before.filter(|_| candidate.options.agents.is_empty()) {
        candidate.options.agents.clone_from(&before.agents);
    }
    let entry = match (project_lock::locked_entry(candidate), folder) {
        (Some(entry), _) => entry,
        (None, Some(path)) => LockEntry {
            agents: candidate.options.agents.clone(),
            include: candidate.secrets.included.clone(),
            ..LockEntry::of_folder(
                name.clone(),
                &path,
                project_lock::candidate_digest(candidate),
            )
        },
        (None, None) => {
            return Err(fail!(Internal, "{name} has neither a source nor a folder"));
        }
    };
    let requires = project_install::stated_requirements(context, candidate);
    let entry = LockEntry { requires, ..entry };
    project_lock::check_lockable_source(context, &entry)?;
    let Some(before) = before.filter(|_| !candidate.options.replace) else {
        return Ok(entry);
    };
    if (&before.source, &before.path) != (&entry.source, &entry.path) {
        let (old, new) = (clean(&before.source, 200), clean(&entry.source, 200));
        return Err(fail!(
            NameTaken,
            "vault.lock takes {name} from {old}, not from {new}"
        )
        .hint("--replace replaces it, --name <other> keeps both"));
    }
    // The lock pins who signed the skill at its source, as the vault does for a skill of its own.
    if let (Some(pinned), Some(now)) = (before.upstream(), &candidate.upstream)
        && let Err(cause) = pinned.check_pin(now)
    {
        let error = AdmitError::Signer {
            name,
            place: now.identifier.clone(),
            cause,
        };
        return Err(Failure::new(ErrorCode::SourceSigner, error.to_string()).hint(
            "nothing was changed; ask the owner of the source, and if the change is intended: vault add <source> --project --replace",
        ));
    }
    Ok(entry)
}
