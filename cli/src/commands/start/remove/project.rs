//! `vault remove --project`: removes skills from a project's `vault.lock` and from the project.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::SkillName;
use vault_library::agents::ProjectLinks;

use super::{Arguments, warn_of_unknown, without_passwords};
use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Report, TICK, clean},
    tasks::{project_install::ProjectInstaller, project_scope::LockedProject, requirements},
};

/// The result of a removal from a project.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RemovedFromProject {
    /// Skills that the lock named and no longer names, in the order in which they were given.
    unlocked: Vec<SkillName>,
    /// Names that neither the lock nor the project has.
    unknown: Vec<String>,
    /// Skills that came only as requirements, and that no skill of the project needs any more. They
    /// stay until they are removed.
    no_longer_needed: Vec<SkillName>,
    /// Path of the folder that contains the project's `vault.lock`.
    project: PathBuf,
    #[serde(flatten)]
    links: ProjectLinks,
}

/// Removes the named skills from the lock and from the project. The lock may lack one that is
/// installed.
pub fn remove_skills(
    context: &Context,
    project: LockedProject,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let LockedProject {
        mut lock, folder, ..
    } = project;
    let path = folder.path().to_owned();
    let known = lock.names();
    let install = ProjectInstaller::new(context, folder)?;
    let mut unlocked: Vec<SkillName> = Vec::new();
    let mut others = Vec::new();
    for name in &arguments.names {
        match known.iter().find(|known| known.as_str() == name) {
            Some(known) if unlocked.contains(known) => {}
            Some(known) => unlocked.push(known.clone()),
            None => others.push(name.clone()),
        }
    }
    if !arguments.anyway {
        requirements::check_unneeded(context, &lock, &unlocked)?;
    }
    lock.skills
        .retain(|locked| !unlocked.contains(&locked.name));
    // Write the lock first: if the command is killed now, `vault install` removes the skills.
    if !unlocked.is_empty() {
        lock.record(context)?;
    }
    // Other skills stay, also if the lock does not name them: the user named these only.
    let mut keep = install.installed_names()?;
    keep.retain(|name| !arguments.names.iter().any(|named| named == name.as_str()));
    keep.extend(lock.names());
    let links = install.link_skills(&keep)?;
    let no_longer_needed = requirements::warn_of_unneeded(context, &lock);
    // The project may have a skill that was removed from the lock by hand.
    let unknown = others.into_iter().filter(|name| {
        let mut removed = links.removed.iter();
        !removed.any(|removed| removed.as_str() == name)
    });
    let unknown: Vec<String> = unknown.collect();
    for name in &unknown {
        let text = format!("`{}` is not in vault.lock", clean(name, 64));
        warn_of_unknown(context, text, name, known.iter().map(SkillName::as_str));
    }
    // `link_skills` has named those that were installed.
    let is_gone = |name: &&SkillName| !links.removed.contains(name);
    let lines = unlocked.iter().filter(is_gone);
    let lines = lines.map(|name| format!("{TICK} removed {BOLD}{name}{BOLD:#} from vault.lock"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let view = RemovedFromProject {
        unlocked,
        unknown: without_passwords(&unknown),
        no_longer_needed,
        project: path,
        links,
    };
    Ok(Report::view(view, text))
}
