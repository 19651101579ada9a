//! `vault transform`: adds, lists and removes transforms. A *transform* is a file that changes an
//! installed skill for certain agents; the result, the *variant*, passes the gate (vault's scanner)
//! and is signed like any skill. The original skill stays as it is.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::SkillName;
use vault_gate::document::Transform;
use vault_library::{
    Origin, Vault,
    admit::variants::{self as transforms, AddTransformError, ListedTransform},
    publish, run,
};

use crate::{
    context::Context,
    errors::{Failure, Place},
    lookup,
    output::{BAD, BOLD, Column, DIM, Report, TICK, Table, clean, either, join, paint},
    tasks::profiles,
};

/// The arguments of `vault transform`.
#[derive(Args, Debug)]
#[command(after_help = "\
A transform is a Markdown file with a frontmatter:

  ---
  agents: [codex]
  priority: 50
  set: {description: \"Review code the way this team does.\"}
  ---
  Run `just check` before you say that you are done.

Fields under `set` replace fields of SKILL.md, and the text is appended. The agent gets a variant \
that passed the gate and is signed like any other skill. All other agents get the original.

Examples:
  vault transform add code-review ./team-rules.md
  vault transform list
  vault transform remove code-review team-rules")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a transform to an installed skill, or replace one of the same name
    Add {
        /// The skill
        #[arg(value_name = "SKILL")]
        skill: String,
        /// The transform's file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[arg(
            help = "The name of the transform [default: the file name without .md]",
            long,
            value_name = "NAME"
        )]
        name: Option<SkillName>,
    },
    /// List the transforms of this vault
    List {
        /// One skill: list only its transforms
        #[arg(value_name = "SKILL")]
        skill: Option<String>,
    },
    /// Remove a transform
    Remove {
        /// The skill
        #[arg(value_name = "SKILL")]
        skill: String,
        /// The transform
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// A transform that was added to a skill.
#[derive(Debug, JsonSchema, Serialize)]
pub struct AddedTransform {
    /// The skill, as it was named.
    skill: String,
    #[serde(flatten)]
    transform: Transform,
    /// Whether running agents must be restarted to see the change.
    restart_required: bool,
}

/// The file of a transform. The members about its content are absent if it has a problem.
#[derive(Debug, JsonSchema, Serialize)]
pub struct TransformFile {
    /// The skill.
    skill: SkillName,
    /// The file.
    path: PathBuf,
    /// The first error in the file; null for a valid transform.
    problem: Option<String>,
    #[serde(flatten)]
    transform: Option<Transform>,
    /// The fields of SKILL.md that it replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    sets: Option<Vec<String>>,
    /// Whether the owner approved the file as it is. Only an approved transform is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<bool>,
}

/// A transform that was removed.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RemovedTransform {
    /// The skill, as it was named.
    skill: String,
    /// The name of the transform.
    name: String,
    /// Whether it was removed: always true.
    removed: bool,
    /// Whether running agents must be restarted to see the change.
    restart_required: bool,
}

/// Adds, lists or removes transforms, and updates the agents' links after a change.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    match &arguments.action {
        Action::Add { skill, file, name } => {
            let skill = bare_skill_name(&vault, skill)?;
            add_transform(context, &vault, &skill, file, name.as_ref())
        }
        Action::List { skill: None } => list_transforms(context, &vault, None),
        Action::List { skill: Some(skill) } => {
            list_transforms(context, &vault, Some(&bare_skill_name(&vault, skill)?))
        }
        Action::Remove { skill, name } => {
            remove_transform(context, &vault, &bare_skill_name(&vault, skill)?, name)
        }
    }
}

/// Returns the name of a skill without the vault in front of it (`team/pdf` → `pdf`). A name
/// without a `/` is returned unchecked, because the transforms of a skill that is no longer
/// installed can still be listed and removed.
fn bare_skill_name(vault: &Vault, skill: &str) -> Result<String, Failure> {
    if !skill.contains('/') {
        return Ok(skill.to_owned());
    }
    Ok(lookup::find_bare_name(vault, skill)?.to_string())
}

fn add_transform(
    context: &Context,
    vault: &Vault,
    skill: &str,
    file: &Path,
    name: Option<&SkillName>,
) -> Result<Report, Failure> {
    let bytes = std::fs::File::open(file)
        .and_then(|open| {
            let mut bytes = Vec::new();
            // At most one byte over the limit is read, which is enough for the library to refuse
            // the file.
            let most = vault_gate::document::MAX_TRANSFORM_BYTES + 1;
            std::io::Read::read_to_end(&mut std::io::Read::take(open, most), &mut bytes)?;
            Ok(bytes)
        })
        .map_err(|error| Failure::io("reading", file, &error))?;
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = match name {
        Some(name) => name.clone(),
        None => SkillName::derive(&stem).ok_or_else(|| {
            let stem = clean(&stem, 64);
            fail!(NameInvalid, "`{stem}` cannot be the name of a transform")
                .hint("give one with --name")
        })?,
    };
    // A name that is not valid is reported like one that is not installed, with a suggestion.
    let parsed = skill.parse().map_err(|_| not_installed(vault, skill))?;
    let transform = transforms::add_transform(vault, &parsed, name, &bytes)
        .map_err(|error| transform_failure(vault, skill, file, error))?;
    let profiles = profiles::refresh_links(context, vault);
    let restart = profiles.is_some_and(|profiles| profiles.restart_required);
    let mut line = format!(
        "{TICK} added {BOLD}{}{BOLD:#} to {BOLD}{skill}{BOLD:#}  {DIM}for {}, priority {}{DIM:#}",
        transform.name,
        agents_text(&transform),
        transform.priority
    );
    if will_be_published(vault, &parsed)? {
        line +=
            "\n  The next `vault sync` publishes it: linked machines show it to the same agents.";
    }
    let added = AddedTransform {
        skill: skill.to_owned(),
        transform,
        restart_required: restart,
    };
    Ok(Report::view(added, line))
}

/// Returns whether the next release contains the transforms of this skill: if this vault publishes,
/// and the skill is its own and not one of a linked vault.
fn will_be_published(vault: &Vault, skill: &SkillName) -> Result<bool, Failure> {
    let publishes = || -> Result<bool, Failure> {
        let states = publish::state::list_states(vault)?;
        Ok(states.iter().any(|state| state.published.is_some()))
    };
    let found = run::find_skill(vault, skill.clone())?;
    Ok(found.is_some_and(|found| found.origin == Origin::Local) && publishes()?)
}

fn agents_text(transform: &Transform) -> String {
    if transform.agents.is_empty() {
        return "all agents".to_owned();
    }
    join(&transform.agents)
}

fn transform_failure(vault: &Vault, skill: &str, file: &Path, error: AddTransformError) -> Failure {
    match error {
        AddTransformError::NotInstalled(_) => not_installed(vault, skill),
        AddTransformError::Transform(error) => fail!(TransformInvalid, "{}", error.message)
            .hint("`vault transform --help` shows the format; nothing was changed")
            .at(Place {
                path: file.display().to_string(),
                line: error.at.map(|at| at.line),
                column: error.at.map(|at| at.column),
            }),
        AddTransformError::Refused { .. } => fail!(GateBlocked, "{error}")
            .hint("change the transform and add it again; nothing was changed"),
        AddTransformError::TooMany => {
            fail!(TooMany, "{error}").hint("combine some of them in one file")
        }
        AddTransformError::Vault(error) => error.into(),
    }
}

fn not_installed(vault: &Vault, skill: &str) -> Failure {
    // If the installed names cannot be read, the failure only lacks its suggestion.
    lookup::not_installed_among(skill, &lookup::installed_names(vault).unwrap_or_default())
}

fn list_transforms(
    context: &Context,
    vault: &Vault,
    skill: Option<&str>,
) -> Result<Report, Failure> {
    let mut transforms_of_vault = transforms::list_transforms(vault)?;
    transforms_of_vault.retain(|listed| skill.is_none_or(|skill| listed.skill.as_str() == skill));
    if transforms_of_vault.is_empty() {
        context.ui.note("No transforms.");
        return Ok(Report::view(Vec::<TransformFile>::new(), ""));
    }
    let mut table = Table::new([
        Column::new("skill").shrinks_to(12),
        Column::new("transform").shrinks_to(12),
        Column::new("agents").shrinks_to(16),
        Column::new("priority").leaves(1),
        Column::new("sets").shrinks_to(10).leaves(2),
    ]);
    let files: Vec<_> = transforms_of_vault
        .into_iter()
        .map(TransformFile::from)
        .collect();
    for file in &files {
        table.push_row(file.to_row());
    }
    Ok(Report::view(files, context.ui.format_table(&table)))
}

impl From<ListedTransform> for TransformFile {
    fn from(listed: ListedTransform) -> Self {
        let problem = listed.transform.as_ref().err().map(ToString::to_string);
        let transform = listed.transform.ok();
        let fields = transform.as_ref().map(Transform::fields);
        Self {
            skill: listed.skill,
            path: listed.path,
            problem,
            sets: fields.map(|fields| fields.map(str::to_owned).collect()),
            approved: transform.is_some().then_some(listed.is_approved),
            transform,
        }
    }
}

impl TransformFile {
    fn to_row(&self) -> Vec<String> {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let mut row = vec![paint(BOLD, &self.skill), clean(&stem, 64)];
        if let Some(transform) = &self.transform {
            let note = either(self.approved == Some(true), "", " (not approved)");
            let whom = format!("{}{note}", agents_text(transform));
            let sets = join(transform.fields());
            row.extend([whom, transform.priority.to_string(), sets]);
        }
        // A file with a problem has no content to show. Its row shows the problem instead.
        let problem = self.problem.as_ref();
        row.extend(problem.map(|problem| paint(BAD, clean(problem, 200))));
        row
    }
}

fn remove_transform(
    context: &Context,
    vault: &Vault,
    skill: &str,
    name: &str,
) -> Result<Report, Failure> {
    // A name that is not valid cannot have been removed. The failure below suggests the nearest
    // name.
    let is_removed = match (skill.parse(), name.parse()) {
        (Ok(skill), Ok(name)) => transforms::remove_transform(vault, &skill, &name)?,
        _ => false,
    };
    if !is_removed {
        let all = transforms::list_transforms(vault)?;
        let of_skill = all
            .iter()
            .filter(|listed| listed.skill.as_str() == skill)
            .filter_map(|listed| Some(listed.path.file_stem()?.to_string_lossy().into_owned()));
        let names: Vec<_> = of_skill.collect();
        let (skill, shown) = (clean(skill, 64), clean(name, 64));
        let failure = fail!(NoTransform, "`{skill}` has no transform `{shown}`");
        let names = names.iter().map(String::as_str);
        return Err(lookup::not_listed(
            failure,
            name,
            names,
            "vault transform list",
        ));
    }
    let profiles = profiles::refresh_links(context, vault);
    let restart = profiles.is_some_and(|profiles| profiles.restart_required);
    let text = format!("{TICK} removed {BOLD}{name}{BOLD:#} from {BOLD}{skill}{BOLD:#}");
    let removed = RemovedTransform {
        skill: skill.to_owned(),
        name: name.to_owned(),
        removed: true,
        restart_required: restart,
    };
    Ok(Report::view(removed, text))
}
