//! `vault verify --project`: checks that the skills of a project are exactly those that its
//! `vault.lock` names.

use serde_json::json;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Report, TICK, clean, count, either},
    tasks::{
        project_scope::LockedProject,
        project_state::{LockState, ProjectSkills},
    },
};

/// Verifies every skill of the project and compares it with the lock. A skill whose files were
/// changed outweighs one that differs from the lock.
pub fn verify_project(context: &Context, project: &LockedProject) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    let state = ProjectSkills::read_skills(vault.as_ref(), project)?;
    let wrong = state
        .skills
        .iter()
        .filter(|skill| skill.state != LockState::Installed);
    let wrong = wrong.map(|skill| {
        let damage = skill.damage.as_ref().map(|damage| clean(damage, 400));
        let problem = damage.unwrap_or_else(|| skill.state.difference().to_owned());
        format!("{BOLD}{}{BOLD:#}  {problem}", skill.name)
    });
    let wrong: Vec<String> = wrong.collect();
    let (number, all) = (wrong.len(), count(state.skills.len(), "skill"));
    if number == 0 {
        let verb = either(state.skills.len() == 1, "is", "are");
        let text = format!("{TICK} {all} {verb} exactly as vault.lock says");
        return Ok(Report::view(state, text));
    }
    let verb = either(number == 1, "is", "are");
    let failure = if state.is_damaged() {
        fail!(
            SkillDamaged,
            "{number} of {all} {verb} not as vault.lock says, and some were changed after they were installed"
        )
    } else {
        fail!(LockStale, "{number} of {all} {verb} not as vault.lock says")
    };
    Err(failure
        .details(wrong)
        .hint("vault install installs what the lock names, and removes what it does not name")
        .data(json!(state)))
}
