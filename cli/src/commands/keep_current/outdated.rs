//! `vault outdated`: lists the skills with changes at their sources.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use vault_format::name::{SkillName, SkillRef};
use vault_shelf::DriftState;

use crate::{
    context::Context,
    drift::{compare, shown, sort},
    errors::{Exit, Failure},
    fetch::Fetching,
    output::{BOLD, DIM, Report, WARN, Warning, clean, join, paint},
};

/// The arguments of `vault outdated`.
#[derive(Args, Debug)]
#[command(after_help = "\
Compares each skill with its source: a repository by the commit and the skill's folder, a \
registry by the version, an address by the digest, a folder of this machine by its files. Changes \
nothing. Skills that cannot be compared are listed with the reason. Exit 3 if a skill is \
outdated.

Examples:
  vault outdated
  vault outdated code-review --json")]
pub struct Arguments {
    /// Skills to compare [default: all of your own]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
}

/// Compares the skills with their sources and lists the differences.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let sorted = sort(&vault, &arguments.names)?;
    let fetching = if sorted.needs_network() {
        context.require_network()?;
        Some(Fetching::new(context)?)
    } else {
        None
    };
    let states = compare(context, &vault, fetching.as_ref(), &sorted.asked)?;
    let mut lines = Vec::new();
    let (mut drifted, mut up_to_date, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut unchecked = sorted.unchecked;
    for (asked, state) in sorted.asked.iter().zip(states) {
        let name = &asked.name;
        match state {
            DriftState::Drifted { recorded, upstream } => {
                lines.push(format!(
                    "{WARN}↑{WARN:#} {BOLD}{name}{BOLD:#}  {} → {}  {DIM}{}{DIM:#}",
                    clean(&recorded, 60),
                    clean(&upstream, 60),
                    shown(&asked.source)
                ));
                drifted.push(json!({
                    "name": name, "source": shown(&asked.source), "recorded": recorded, "upstream": upstream,
                }));
            }
            DriftState::UpToDate => up_to_date.push(json!(name)),
            DriftState::Unchecked(reason) => unchecked.push((name.clone(), reason)),
            DriftState::Failed(reason) => {
                context.ui.warn(Warning::new(
                    "source_failed",
                    format!("{name} could not be compared: {}", clean(&reason, 400)),
                ));
                errors.push(json!({ "name": name, "reason": reason }));
            }
        }
    }
    lines.extend(unchecked_lines(&unchecked));
    lines.push(paint(
        DIM,
        format!(
            "{} outdated, {} up to date, {} unchecked",
            drifted.len(),
            up_to_date.len(),
            unchecked.len() + errors.len()
        ),
    ));
    let exit = match (drifted.is_empty(), errors.is_empty()) {
        (false, _) => Exit::Differences,
        (true, false) => Exit::Network,
        (true, true) => Exit::Done,
    };
    let data = json!({
        "drifted": drifted, "up_to_date": up_to_date, "unchecked": unchecked_json(&unchecked), "errors": errors,
    });
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}

/// Formats the skills that were not compared, one line for each reason.
fn unchecked_lines(unchecked: &[(SkillName, String)]) -> Vec<String> {
    let mut by_reason: BTreeMap<&str, Vec<&SkillName>> = BTreeMap::new();
    for (name, reason) in unchecked {
        by_reason.entry(reason).or_default().push(name);
    }
    let line = |(reason, names): (&str, Vec<&SkillName>)| {
        format!(
            "{DIM}-{DIM:#} {}  {DIM}{}{DIM:#}",
            join(names),
            clean(reason, 300)
        )
    };
    by_reason.into_iter().map(line).collect()
}

/// The skills that were not compared, for `--json`.
pub fn unchecked_json(unchecked: &[(SkillName, String)]) -> Vec<Value> {
    let json = |(name, reason): &(SkillName, String)| json!({ "name": name, "reason": reason });
    unchecked.iter().map(json).collect()
}
