//! `vault setup` for a project: installs the skills of its `vault.lock`, or records the skills that
//! lie in the repository. Nothing of the user's own changes.

use crate::{
    commands::start::{add, install},
    context::Context,
    errors::Failure,
    output::{BOLD, HINT, Report, clean, count, join},
    tasks::{
        fetch,
        project_lock::{Lock, is_read_by_agents},
        project_scope::LockedProject,
    },
};

/// The answers to the first question.
const FOR_ME: &str = "for me: my own skills, for all agents of this machine";
const FOR_PROJECT: &str = "for this project: the skills that everyone who clones it gets";

/// Asks in a repository, or where a `vault.lock` is, whether the setup is for the user or for this
/// project. A project that has a lock is the default.
pub fn ask_for_project(context: &Context) -> Result<bool, Failure> {
    let (path, has_lock) = Lock::find_path(context, None)?;
    let folder = path.parent().unwrap_or(&path);
    let is_repository = folder.join(".git").symlink_metadata().is_ok();
    // The home folder may be a repository, for example of settings, but is never a project.
    let may_be_project = Lock::project_folder(context, &path).is_ok();
    if !may_be_project || !has_lock && !is_repository {
        return Ok(false);
    }
    let mut options = vec![FOR_ME.to_owned(), FOR_PROJECT.to_owned()];
    if has_lock {
        options.reverse();
    }
    let question = "Set up vault for you, or for this project?";
    Ok(context.ui.choose_first(question, options)? == FOR_PROJECT)
}

/// Installs the skills that the lock names. Without a lock, asks which skills of the repository it
/// should name, and records those.
pub fn set_up_project(context: &Context, project: &LockedProject) -> Result<Report, Failure> {
    let ui = &context.ui;
    let shown = clean(&project.folder.path().display().to_string(), 400);
    if project.lock.path.exists() {
        let skills = count(project.lock.skills.len(), "skill");
        ui.must_see(format!(
            "\n{BOLD}{shown}{BOLD:#}  vault.lock names {skills}"
        ));
        ui.confirm_wanted_step("Install them?", &[])?;
        let root = project.folder.path();
        let project = LockedProject::read_to_change(context, Some(root))?;
        return install::install_project(context, project, false);
    }
    let (read_by_agents, found) = skill_folders(project)?;
    if !read_by_agents.is_empty() {
        let skills = count(read_by_agents.len(), "skill");
        let names = join(&read_by_agents);
        ui.must_see(format!(
            "  agents of this project read {skills} already: {names}"
        ));
        ui.must_see("  to have vault pin them, move them to another folder, such as skills");
    }
    ui.must_see(format!("\n{BOLD}{shown}{BOLD:#}  has no vault.lock yet"));
    if found.is_empty() {
        return Err(
            fail!(NoLock, "{shown} has no skills that vault.lock could name")
                .hint("vault add <source> --project adds the first one"),
        );
    }
    let question = "Which skills of this repository should vault.lock name?";
    let chosen = ui.choose_preselected(question, found, true)?;
    if chosen.is_empty() {
        return Err(fail!(NotConfirmed, "nothing was changed"));
    }
    ui.confirm_wanted_step(
        "Go ahead?",
        &[
            format!("Record in {shown}/vault.lock: {}", join(&chosen)),
            "Link them for the agents of this machine; git ignores the links".to_owned(),
        ],
    )?;
    let root = project.folder.path().to_owned();
    let sources = chosen
        .iter()
        .map(|folder| root.join(folder).display().to_string());
    let arguments = add::Arguments::of_project(sources.collect(), root.clone());
    let report = add::run(context, &arguments)?;
    ui.note(format!(
        "Commit vault.lock. {HINT}vault add <source> --project{HINT:#} adds more."
    ));
    Ok(report)
}

/// Lists the folders of the project that hold skills: those that agents read already, and the
/// others.
fn skill_folders(project: &LockedProject) -> Result<(Vec<String>, Vec<String>), Failure> {
    let listing = vault_sources::list_folder(project.folder.path());
    let listing = listing.map_err(|error| fetch::fetch_failure(&error))?;
    let found = listing.into_iter().flat_map(|listing| listing.skills);
    let folders = found.map(|found| found.folder);
    // The root is the whole project.
    let is_source = |folder: &String| !folder.is_empty();
    // Such a name would show as something else, and cannot be recorded.
    let is_plain = |folder: &String| clean(folder, 400) == *folder;
    let folders = folders.filter(is_source).filter(is_plain);
    Ok(folders.partition(|folder| is_read_by_agents(folder)))
}
