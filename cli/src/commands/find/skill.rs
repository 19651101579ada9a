//! `vault skill`: lists, searches and locates skills, and runs their *actions*: commands that a
//! skill declares in its SKILL.md.

mod action;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    credentials::hide_credentials,
    hash::Digest,
    name::{AgentId, SkillName},
};
use vault_library::{
    Texts, Vault,
    project::{self, Project},
    run::{self, LocatedSkill, ResolvedAction, Scope},
    shelf::{self, Listed, Listing},
    subscribe::{self, LinkId},
};

use crate::{
    context::Context,
    errors::{Exit, Failure},
    lookup::{parse_installed_name, suggest_name},
    output::{
        BOLD, DIM, Report, Warning, clean, doctor, nearest_name, origin::format_origin, paint,
    },
};

/// The arguments of `vault skill`.
#[derive(Args, Debug)]
#[command(
    override_usage = "vault skill list\n       vault skill search <QUERY> [--top-k N]\n       vault skill which <NAME> [ACTION]\n       vault skill [--inherit-env | --clean-env] <ACTION> <NAME> [ARGUMENT]...",
    after_help = "\
Any other word is an action: `vault skill ACTION NAME` verifies the skill NAME and runs its \
declared action bin.ACTION. The exit code of the action is passed on, and signals are passed to \
it. Secrets that the skill declares under requires-secrets must be set.

The action runs in a copy of the skill that is deleted when it ends, with every file that it leaves \
there. It finds your current folder in VAULT_CALLED_FROM, and in VAULT_OUTPUT the folder for its \
results: the one that you set there, or your current folder.

An action of your own skill, added from a folder or from text, gets your whole environment. An \
action of any other skill gets the variables that the skill declares, and PATH, HOME, TERM, LANG \
and similar ones. No action gets the settings of vault (VAULT_*).

Examples:
  vault skill list
  vault skill search \"flaky tests\" --top-k 3
  vault skill which code-review changes
  vault skill changes code-review main
  vault skill --inherit-env changes code-review"
)]
pub struct Arguments {
    #[arg(
        help = "Pass only the declared variables, and PATH, HOME, TERM, LANG and similar ones, to an action",
        long
    )]
    clean_env: bool,
    /// Pass your whole environment, except VAULT_* settings, to an action of any skill
    #[arg(long, conflicts_with = "clean_env")]
    inherit_env: bool,
    #[command(subcommand)]
    action: Action,
}

/// The bound of a search.
#[derive(Args, Debug)]
pub struct TopK {
    /// The maximum number of results
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    top_k: u8,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the installed skills and their actions as JSON
    List,
    /// Search names, descriptions, tags, categories and when-to-use texts
    Search {
        /// What to look for
        query: String,
        #[command(flatten)]
        top_k: TopK,
    },
    /// Verify a skill and print the paths of its scripts without running them
    Which {
        /// The skill
        name: String,
        /// Only this action
        action: Option<String>,
    },
    // Every other word is the name of an action, which clap cannot know.
    #[command(external_subcommand)]
    Run(Vec<OsString>),
}

/// Lists, searches or locates skills, or runs an action.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let (scope, flag) = match (arguments.clean_env, arguments.inherit_env) {
        (true, _) => (Scope::Declared, "--clean-env"),
        (_, true) => (Scope::All, "--inherit-env"),
        _ => (Scope::ByOrigin, ""),
    };
    // clap accepts these flags before every subcommand, but they only make sense for an action.
    if scope != Scope::ByOrigin && !matches!(arguments.action, Action::Run(_)) {
        return Err(fail!(Usage, "{flag} goes with an action only")
            .hint(format!("vault skill {flag} <action> <name>")));
    }
    let vault = context.existing_vault()?;
    match &arguments.action {
        Action::List => list_skills(context, vault.as_ref()),
        Action::Search { query, top_k } => search_skills(vault.as_ref(), query, top_k),
        Action::Which { name, action } => {
            let (vault, name) = parse_installed_name(vault.as_ref(), name)?;
            // Inside a project, a name may mean one of the project's skills.
            let project = project_here(vault)?;
            let located_result = run::locate_skill_in(vault, project.as_ref(), &name);
            let located = located_result.map_err(|error| suggest_name(vault, error))?;
            let output = action::output_folder(context)?;
            show_scripts(located, output, action.as_deref())
        }
        Action::Run(words) => action::run(context, vault.as_ref(), words, scope),
    }
}

/// Finds the project that contains the current folder, if vault has installed skills for one.
fn project_here(vault: &Vault) -> Result<Option<Project>, Failure> {
    match std::env::current_dir() {
        Ok(folder) => Ok(project::find_containing_project(vault, &folder)?),
        // The current folder was removed, so it belongs to no project.
        Err(_) => Ok(None),
    }
}

fn list_skills(context: &Context, vault: Option<&Vault>) -> Result<Report, Failure> {
    let Some(vault) = vault else {
        return Ok(Report::bare_data(Vec::<ListedSkill>::new()));
    };
    let listing = shelf::list_installed(vault)?;
    let exit = warn_of_damaged(context, vault, &listing)?;
    let skills: Vec<_> = listing.skills.into_iter().map(ListedSkill::from).collect();
    Ok(Report::bare_data(skills).with_exit(exit))
}

/// Returns the local name of a linked vault, for messages.
pub(super) fn link_name(vault: &Vault, link: &LinkId) -> Result<String, Failure> {
    let link = subscribe::find_link_by_id(vault, link)?;
    Ok(link.map_or_else(
        // The vault may have been unlinked since the skills were listed.
        || "its vault".to_owned(),
        |link| link.pin().name.to_string(),
    ))
}

/// Warns of each damaged skill, and once per vault of its withheld skills (intact, but not run
/// until a new release, because their signer's key was revoked). Returns the exit code of a command
/// that lists skills.
pub(super) fn warn_of_damaged(
    context: &Context,
    vault: &Vault,
    listing: &Listing,
) -> Result<Exit, Failure> {
    let withheld = listing.withheld_skills();
    for (link, skills) in &withheld {
        let name = link.map(|link| link_name(vault, link)).transpose()?;
        let text = doctor::withheld_message(name.as_deref(), skills);
        context.ui.warn_with(
            "release_awaited",
            text,
            doctor::withheld_hint(link.is_some()),
        );
    }
    let damaged = listing.damaged.iter();
    // Leave out withheld skills, which the warnings above name.
    let mut damaged = damaged.filter(|(_, _, damage)| !damage.is_withheld());
    for (name, _, damage) in damaged.clone() {
        let failure = Failure::damaged_skill(name.as_str(), damage);
        context.ui.warn(Warning::from(&failure));
    }
    // Missing or unreadable files are damage, but no sign of tampering.
    Ok(if damaged.any(|(_, _, damage)| damage.is_tampering()) {
        Exit::Integrity
    } else if withheld.is_empty() {
        Exit::Done
    } else {
        Exit::Differences
    })
}

/// An installed skill as lists and searches print it.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ListedSkill {
    /// The name under which it is installed.
    name: SkillName,
    /// Version number in the skill's signed manifest.
    version: u64,
    #[serde(flatten)]
    texts: Texts,
    /// The agents that see it; empty for all.
    agents: Vec<AgentId>,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// Whose it is: this vault's (`local`), a linked vault's (`link:<id>`) or a project's
    /// (`project:<path>`).
    origin: String,
    /// Whether the name without a vault means a skill of another vault.
    shadowed: bool,
    /// The name that means only this skill: `<vault>/<name>`.
    qualified: String,
}

impl From<Listed> for ListedSkill {
    fn from(mut skill: Listed) -> Self {
        Self {
            name: skill.name,
            version: skill.version,
            // `texts` does not serialize its agents, so move them to a member of this type.
            agents: std::mem::take(&mut skill.texts.agents),
            texts: skill.texts,
            bundle_hash: skill.bundle,
            origin: format_origin(&skill.origin),
            shadowed: skill.shadowed,
            qualified: skill.qualified,
        }
    }
}

/// A skill that a search found.
#[derive(Debug, JsonSchema, Serialize)]
pub struct FoundSkill {
    #[serde(flatten)]
    skill: ListedSkill,
    /// BM25 score, above 0; it can be compared only within one search.
    score: f64,
}

/// Searches the installed skills, best match first, and creates the report.
pub(super) fn search_skills(
    vault: Option<&Vault>,
    query: &str,
    most: &TopK,
) -> Result<Report, Failure> {
    let hits = match vault {
        Some(vault) => shelf::search_installed(vault, query, usize::from(most.top_k))?,
        None => Vec::new(),
    };
    let mut lines = Vec::new();
    for hit in &hits {
        let description = clean(hit.skill.texts.description.trim(), 160);
        lines.push(format!("{BOLD}{}{BOLD:#}  {description}", hit.skill.name));
        let actions: Vec<_> = hit
            .skill
            .texts
            .actions
            .iter()
            .map(ToString::to_string)
            .collect();
        if !actions.is_empty() {
            lines.push(paint(
                DIM,
                format_args!("    actions: {}", actions.join(", ")),
            ));
        }
    }
    if hits.is_empty() {
        let shown = clean(&hide_credentials(query), 80);
        lines.push(format!("No skill matches \"{shown}\"."));
    }
    let found_skills = hits.into_iter().map(|hit| FoundSkill {
        skill: hit.skill.into(),
        score: hit.score,
    });
    Ok(Report::view(
        found_skills.collect::<Vec<_>>(),
        lines.join("\n"),
    ))
}

/// Where the scripts of a verified skill are stored.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Scripts {
    /// Name under which the skill is installed.
    name: SkillName,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// Path of the folder with its verified files.
    files: PathBuf,
    /// Actions (commands) that the skill declares, with the paths of their scripts.
    actions: Vec<ResolvedAction>,
    #[serde(flatten)]
    folders: RunFolders,
}

/// Where one action of a skill is.
#[derive(Debug, JsonSchema, Serialize)]
pub struct LocatedAction {
    #[serde(flatten)]
    action: ResolvedAction,
    #[serde(flatten)]
    folders: RunFolders,
}

/// The folders in which actions run and leave their results.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct RunFolders {
    /// The folder below which each run gets a copy of the skill. The copy is deleted when the
    /// action ends.
    copies: PathBuf,
    /// The folder for what must outlive the action, which it finds in `VAULT_OUTPUT`; null if the
    /// current folder was removed.
    output: Option<PathBuf>,
}

fn show_scripts(
    found: LocatedSkill,
    output: Option<PathBuf>,
    wanted: Option<&str>,
) -> Result<Report, Failure> {
    let folders = RunFolders {
        copies: found.copies.clone(),
        output,
    };
    let Some(wanted) = wanted else {
        let mut lines = Vec::new();
        for action in &found.actions {
            lines.push(paint(BOLD, &action.name));
            let rows = action_lines(action, &folders);
            lines.extend(rows.into_iter().map(|row| format!("  {row}")));
        }
        if found.actions.is_empty() {
            lines.push(format!("{} declares no actions.", found.name));
        }
        let scripts = Scripts {
            name: found.name,
            bundle_hash: found.bundle,
            files: found.files,
            actions: found.actions,
            folders,
        };
        return Ok(Report::view(scripts, lines.join("\n")));
    };
    let mut actions = found.actions.iter();
    let action = actions
        .find(|action| action.name.as_str() == wanted)
        .ok_or_else(|| no_action(&found, wanted))?;
    let lines = action_lines(action, &folders).join("\n");
    let action = action.clone();
    Ok(Report::view(LocatedAction { action, folders }, lines))
}

/// Formats the command, the arguments and the folders of an action.
fn action_lines(action: &ResolvedAction, folders: &RunFolders) -> Vec<String> {
    let row = |label: &str, text: &str| format!("{DIM}{label:<7}{DIM:#}  {}", clean(text, 500));
    let mut lines = vec![row("command", &action.command)];
    lines.extend(action.args.iter().map(|argument| row("arg", argument)));
    let cwd = action.cwd.display();
    lines.push(row("cwd", &format!("{cwd}  (deleted after the run)")));
    let output = folders.output.as_ref();
    lines.extend(output.map(|folder| row("output", &folder.display().to_string())));
    let about = action.description.as_deref();
    lines.extend(about.map(|about| row("about", about)));
    lines
}

fn no_action(found: &LocatedSkill, wanted: &str) -> Failure {
    let names: Vec<&str> = found
        .actions
        .iter()
        .map(|action| action.name.as_str())
        .collect();
    let failure = fail!(
        ActionNotFound,
        "{} declares no action `{}`",
        found.name,
        clean(wanted, 32)
    );
    match nearest_name(wanted, names.iter().copied()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None if names.is_empty() => failure.hint("it declares no actions at all"),
        None => failure.hint(format!("it declares: {}", names.join(", "))),
    }
}
