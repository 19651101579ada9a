//! `vault verify --project`: checks that the skills of a project are exactly those that its
//! `vault.lock` names.

use std::collections::BTreeMap;

use serde_json::json;
use vault_format::name::SkillName;
use vault_shelf::DriftState;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Report, TICK, clean, count, either},
    tasks::{
        project_drift::compare_entries,
        project_install::ProjectInstaller,
        project_scope::LockedProject,
        project_state::{LockState, ProjectSkills},
    },
};

/// Verifies every skill of the project and compares it with the lock, and so the folders of the
/// project that the lock names. A skill whose installed files were changed outweighs the others.
pub fn verify_project(context: &Context, project: &LockedProject) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let state = ProjectSkills::read_skills(vault.as_ref(), project)?;
    let mut wrong = BTreeMap::new();
    for skill in &state.skills {
        let damage = skill.damage.as_ref().map(|damage| clean(damage, 400));
        let problem = damage.unwrap_or_else(|| skill.state.difference().to_owned());
        if skill.state != LockState::Installed {
            wrong.insert(skill.name.clone(), problem);
        }
    }
    let hint = if wrong.is_empty() {
        "vault update --project writes the folders to the lock; commit both"
    } else {
        "vault install installs what the lock names, and removes what it does not name"
    };
    // Such a difference fails in every clone, although this machine has the locked bytes.
    for (name, source) in changed_folders(context, project)? {
        let problem = format!("{source} is not what the lock names");
        wrong.entry(name).or_insert(problem);
    }
    let (number, all) = (wrong.len(), count(state.skills.len(), "skill"));
    if number == 0 {
        let verb = either(state.skills.len() == 1, "is", "are");
        let text = format!("{TICK} {all} {verb} exactly as vault.lock says");
        return Ok(Report::view(state, text));
    }
    let verb = either(number == 1, "is", "are");
    let message = format!("{number} of {all} {verb} not as vault.lock says");
    let failure = if state.is_damaged() {
        fail!(
            SkillDamaged,
            "{message}, and some were changed after they were installed"
        )
    } else {
        fail!(LockStale, "{message}")
    };
    let lines = wrong.into_iter();
    let lines = lines.map(|(name, problem)| format!("{BOLD}{name}{BOLD:#}  {problem}"));
    Err(failure.details(lines).hint(hint).data(json!(state)))
}

/// Returns the skills whose folder in the project has other content than the lock names, with the
/// folder.
fn changed_folders(
    context: &Context,
    project: &LockedProject,
) -> Result<Vec<(SkillName, String)>, Failure> {
    let mut folders = project.lock.skills.clone();
    folders.retain(|locked| locked.is_folder() && locked.digest.is_some());
    let mut install = ProjectInstaller::new(context, project.folder.clone())?;
    let states = compare_entries(context, &mut install, &folders)?;
    let changed = folders.into_iter().zip(states);
    let changed = changed.filter(|(_, state)| *state != DriftState::UpToDate);
    let named = changed.map(|(locked, _)| (locked.name, clean(&locked.source, 200)));
    Ok(named.collect())
}
