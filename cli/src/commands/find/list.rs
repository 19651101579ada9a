//! `vault list`: lists the installed skills, or the skills of a project and their state compared
//! with its `vault.lock`.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{SkillName, SkillRef};
use vault_library::{Origin, Vault, run, shelf, subscribe::LinkId};

use super::skill::{ListedSkill, link_name, warn_of_damaged};
use crate::{
    context::Context,
    errors::{Exit, Failure},
    output::{
        BOLD, Column, DIM, Report, Table, WARN, clean, either, join,
        origin::{describe_owner, whose_skill},
        paint,
    },
    tasks::{
        drift::shown_revision,
        exceptions::exceptions_of,
        project_scope::{LockedProject, ProjectScope},
        project_state::ProjectSkills,
        requirements,
    },
};

/// The arguments of `vault list`.
#[derive(Args, Debug)]
#[command(after_help = "\
Lists your own skills and those from linked vaults. With --project, lists the skills that `vault \
install` installed in a project and compares each with the project's vault.lock. -v shows the \
exceptions to the gate that skills are signed with.

Examples:
  vault list
  vault list --project
  vault list --project --root ~/work/shop --json")]
pub struct Arguments {
    #[command(flatten)]
    scope: ProjectScope,
}

/// The output of `vault list` without `--project`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct InstalledSkills {
    /// Intact skills: own ones first, by name within each origin.
    skills: Vec<ListedSkill>,
    /// Skills that are not run, because a revoked key signed them.
    withheld: Vec<WithheldSkill>,
}

/// A skill that is not run until its vault's next release.
#[derive(Debug, JsonSchema, Serialize)]
pub struct WithheldSkill {
    /// Name under which it is installed.
    name: SkillName,
    /// Link of the vault that published it; null for a skill of this vault.
    link: Option<LinkId>,
}

/// Lists the installed skills, or with `--project` those of a project.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    match arguments.scope.existing_project(context)? {
        Some(project) => list_project(context, vault.as_ref(), &project),
        None => list_vault(context, vault.as_ref()),
    }
}

fn list_vault(context: &Context, vault: Option<&Vault>) -> Result<Report, Failure> {
    // Without a vault, nothing is installed, which is not an error.
    let listing = vault
        .map(shelf::list_installed)
        .transpose()?
        .unwrap_or_default();
    let exit = match vault {
        Some(vault) => warn_of_damaged(context, vault, &listing)?,
        None => Exit::Done,
    };
    let mut table = skills_table();
    for skill in &listing.skills {
        table.push_row([
            paint(BOLD, &skill.name),
            skill.version.to_string(),
            // Show the source of the vault's own skills, and the vault of linked ones.
            match skill.origin {
                Origin::Local => clean(&skill.texts.provenance, 200),
                _ => whose_skill(&skill.origin, &skill.qualified),
            },
            clean(skill.texts.description.trim(), 80),
        ]);
    }
    let mut withheld = Vec::new();
    // Also list withheld skills (not run, because their signer's key was revoked), or they would
    // seem to be gone.
    for (link, skills) in listing.withheld_skills() {
        let whose = match (vault, link) {
            (Some(vault), Some(link)) => format!("linked vault {}", link_name(vault, link)?),
            _ => describe_owner(&Origin::Local),
        };
        for name in skills {
            let state = paint(WARN, "withheld");
            table.push_row([paint(BOLD, name), String::new(), whose.clone(), state]);
            withheld.push(WithheldSkill {
                name: name.clone(),
                link: link.cloned(),
            });
        }
    }
    let mut text = if listing.skills.is_empty() && withheld.is_empty() {
        "No skill is installed.".to_owned()
    } else {
        context.ui.format_table(&table)
    };
    if let (Some(vault), true) = (vault, context.ui.is_verbose()) {
        for line in exception_lines(vault, &listing) {
            text.push('\n');
            text.push_str(&line);
        }
    }
    let skills = listing.skills.into_iter().map(ListedSkill::from).collect();
    Ok(Report::view(InstalledSkills { skills, withheld }, text).with_exit(exit))
}

/// Formats the exceptions to the gate with which the skills are signed, one line for each.
fn exception_lines(vault: &Vault, listing: &shelf::Listing) -> Vec<String> {
    let mut lines = Vec::new();
    for skill in &listing.skills {
        // The command already warns of skills that cannot be verified.
        let name = skill.qualified.parse::<SkillRef>().ok();
        let Some(Ok(verified)) = name.map(|name| run::inspect_skill(vault, name)) else {
            continue;
        };
        let exceptions = exceptions_of(&verified.examined.manifest);
        lines.extend(exceptions.iter().map(|exception| {
            let name = paint(BOLD, &skill.name);
            format!("{DIM}allowed{DIM:#} {name}: {}", exception.to_line())
        }));
    }
    lines
}

/// Creates the table of skills. The last column has a description or state, and is left out first
/// on a narrow terminal.
fn skills_table() -> Table {
    Table::new([
        Column::new("skill").shrinks_to(24),
        Column::new("version").leaves(2),
        Column::new("from").shrinks_to(16),
        Column::new("").shrinks_to(20).leaves(1),
    ])
}

fn list_project(
    context: &Context,
    vault: Option<&Vault>,
    project: &LockedProject,
) -> Result<Report, Failure> {
    let mut state = ProjectSkills::read_skills(vault, project)?;
    let mut needed_by = requirements::needed_by(context, &project.lock);
    // A version counts what this machine installed, so people see what the lock names instead.
    let mut table = Table::new([
        Column::new("skill").shrinks_to(24),
        Column::new("revision").leaves(2),
        Column::new("from").shrinks_to(16),
        Column::new("").shrinks_to(20).leaves(1),
    ]);
    for skill in &mut state.skills {
        skill.needed_by = needed_by.remove(&skill.name).unwrap_or_default();
        let what = match skill.state.hint_text() {
            "" if !skill.needed_by.is_empty() => format!("needed by {}", join(&skill.needed_by)),
            hint => hint.to_owned(),
        };
        let revision = skill.revision.as_deref().map(shown_revision);
        let from = skill.source.as_ref().map(|from| clean(from, 200));
        table.push_row([
            paint(BOLD, &skill.name),
            revision.unwrap_or_default(),
            from.unwrap_or_default(),
            paint(DIM, what),
        ]);
    }
    let text = if state.skills.is_empty() {
        "The project has no skills.".to_owned()
    } else {
        context.ui.format_table(&table)
    };
    let exit = either(state.is_damaged(), Exit::Integrity, Exit::Done);
    Ok(Report::view(state, text).with_exit(exit))
}
