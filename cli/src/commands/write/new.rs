//! `vault new`: creates a folder with a skill from a template: a SKILL.md, and a script for each
//! action (a command of the skill that `vault skill <action> <skill>` runs).

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{ErrorKind, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::name::{ActionName, SkillName};
use vault_gate::lint::TEMPLATE;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, HINT, Report, TICK, clean},
};

/// The arguments of `vault new`.
#[derive(Args, Debug)]
#[command(after_help = "\
Creates a folder with a SKILL.md. The gate refuses its description until you replace the text of \
the template; with --description it accepts the skill. An existing folder is left unchanged.

Examples:
  vault new pdf-tables
  vault new pdf-tables --description \"Reads PDF tables. Use for PDF files.\"
  vault new release-notes --action since --folder skills")]
pub struct Arguments {
    /// The skill's name: lower-case letters, digits and single hyphens
    name: String,
    /// What the skill does and when to use it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Declare an action and create its script; repeatable
    #[arg(long = "action", value_name = "NAME")]
    actions: Vec<ActionName>,
    /// The folder in which to create it
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = ".",
        hide_default_value = true
    )]
    folder: PathBuf,
}

/// A folder with a new skill.
#[derive(Debug, JsonSchema, Serialize)]
pub struct NewSkill {
    /// Name of the skill, which is also the name of its folder.
    name: SkillName,
    /// Path of the new folder.
    folder: PathBuf,
    /// The paths of its files, below the folder.
    files: Vec<String>,
}

/// Creates the skill's folder with its files. Fails if the folder exists, and never overwrites a
/// file.
pub fn run(_context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let name: SkillName = arguments.name.parse().map_err(|_| {
        let failure = fail!(
            NameInvalid,
            "`{}` cannot be the name of a skill",
            clean(&arguments.name, 64)
        );
        match SkillName::derive(&arguments.name) {
            Some(near) => failure.hint(format!("vault new {near}")),
            None => failure.hint("lower-case letters, digits and single hyphens, at most 64"),
        }
    })?;
    let description = arguments.description.as_deref().unwrap_or_default();
    // The template writes the description on one line of the frontmatter, so it cannot hold a line
    // break.
    if description.chars().any(char::is_control) {
        return Err(fail!(
            DescriptionInvalid,
            "the description must be one line without control characters"
        ));
    }
    let folder = arguments.folder.join(name.as_str());
    let failed = |path: &Path, error: &std::io::Error| Failure::io("making", path, error);
    // `create` fails for an existing folder, so nothing is ever overwritten.
    match DirBuilder::new().create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(fail!(FolderExists, "{} already exists", folder.display())
                .hint(format!("vault lint {}", folder.display())));
        }
        Err(error) => return Err(failed(&folder, &error)),
    }
    // If an action was given twice, creating its script a second time would fail.
    let mut actions = arguments.actions.clone();
    actions.sort_unstable();
    actions.dedup();
    let mut files = vec![(
        "SKILL.md".to_owned(),
        skill_md(&name, description, &actions),
        0o644,
    )];
    for action in &actions {
        files.push((
            format!("scripts/{action}.sh"),
            script_text(&name, action),
            0o755,
        ));
    }
    if !actions.is_empty() {
        let scripts = folder.join("scripts");
        fs::create_dir(&scripts).map_err(|error| failed(&scripts, &error))?;
    }
    for (path, text, mode) in &files {
        let path = folder.join(path);
        create_file(&path, text, *mode).map_err(|error| failed(&path, &error))?;
    }
    let files: Vec<String> = files.into_iter().map(|(path, ..)| path).collect();
    let mut lines = vec![format!("{TICK} created {BOLD}{}{BOLD:#}", folder.display())];
    lines.extend(files.iter().map(|path| format!("  {path}")));
    lines.push(format!(
        "{HINT}next:{HINT:#} write SKILL.md, then `vault lint {shown}` and `vault add {shown}`",
        shown = folder.display()
    ));
    let view = NewSkill {
        name,
        folder,
        files,
    };
    Ok(Report::view(view, lines.join("\n")))
}

fn create_file(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    // The umask may take bits from a mode that is given at creation. Set afterwards, the mode is
    // exact.
    file.set_permissions(Permissions::from_mode(mode))
}

/// Returns the text of the new SKILL.md. Without a description it has the template's, which the
/// gate refuses.
fn skill_md(name: &SkillName, description: &str, actions: &[ActionName]) -> String {
    // The gate refuses the text of the template, so an unfinished skill cannot be added.
    let description = if description.trim().is_empty() {
        format!("{TEMPLATE}, and one that begins with Use when.")
    } else {
        description.trim().to_owned()
    };
    // Without quotes a description with `: ` would not be valid YAML.
    let quoted = format!(
        "\"{}\"",
        description.replace('\\', "\\\\").replace('"', "\\\"")
    );
    let mut text = format!("---\nname: {name}\ndescription: {quoted}\n");
    if !actions.is_empty() {
        text.push_str("metadata:\n  bin:\n");
        for action in actions {
            // The actions are written in YAML's block style, because strict readers of the standard
            // do not know `{ … }`.
            text.push_str(&format!(
                "    {action}:\n      command: scripts/{action}.sh\n"
            ));
        }
    }
    let title = name.as_str().replace('-', " ");
    // A skill's name is ASCII, so its first letter is one byte.
    let (first, rest) = title.split_at(1);
    text.push_str(&format!(
        "---\n\n# {}{rest}\n\n1. Say what to look at first.\n2. Say what to do, step by step.\n\
         3. Say how to tell that it worked.\n",
        first.to_uppercase()
    ));
    text
}

fn script_text(name: &SkillName, action: &ActionName) -> String {
    format!(
        "#!/bin/sh\n# The action `{action}` of {name}: vault skill {action} {name}\nset -eu\n\n\
         # The folder that it was called from:\ncd \"${{VAULT_CALLED_FROM:-.}}\"\necho \"{action} has nothing to do yet\"\n"
    )
}
