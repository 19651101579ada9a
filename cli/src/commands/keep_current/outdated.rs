//! `vault outdated`: lists the skills with changes at their sources.

use clap::Args;
use serde_json::{Value, json};
use vault_skill::name::SkillRef;
use vault_store::shelf::DriftState;

use crate::{
    context::Context,
    drift::{compare, sort},
    errors::{Exit, Failure},
    fetch::Fetching,
    output::{BOLD, DIM, Report, WARN, Warning, clean, paint},
};

/// The arguments of `vault outdated`.
#[derive(Args, Debug)]
#[command(after_help = "\
Asks the source of each skill for changes: a new commit that touches the skill's folder, a new \
version or a new digest. This command changes nothing. It exits with 3 if a skill is outdated.

Examples:
  vault outdated
  vault outdated code-review --json")]
pub struct Arguments {
    /// Skills to check [default: all that have an update source]
    #[arg(value_name = "NAME")]
    names: Vec<SkillRef>,
}

/// Compares the skills with their sources and lists the differences.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.vault()?;
    let sorted = sort(&vault, &arguments.names)?;
    let states = if sorted.asked.is_empty() {
        Vec::new()
    } else {
        context.require_network()?;
        compare(context, &Fetching::new(context)?, &sorted.asked)?
    };
    let mut lines = Vec::new();
    let (mut drifted, mut up_to_date, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let mut unchecked: Vec<Value> = sorted
        .unchecked
        .iter()
        .map(|(name, reason)| json!({ "name": name, "reason": reason }))
        .collect();
    for (asked, state) in sorted.asked.iter().zip(states) {
        let name = &asked.name;
        match state {
            DriftState::Drifted { recorded, upstream } => {
                lines.push(format!(
                    "{WARN}↑{WARN:#} {BOLD}{name}{BOLD:#}  {} → {}  {DIM}{}{DIM:#}",
                    clean(&recorded, 60),
                    clean(&upstream, 60),
                    clean(asked.upstream.identifier.as_str(), 200)
                ));
                drifted.push(json!({
                    "name": name, "source": asked.upstream.identifier, "recorded": recorded, "upstream": upstream,
                }));
            }
            DriftState::UpToDate => up_to_date.push(json!(name)),
            DriftState::Unchecked(reason) => {
                unchecked.push(json!({ "name": name, "reason": reason }));
            }
            DriftState::Failed(reason) => {
                context.ui.warn(Warning::new(
                    "source_failed",
                    format!("{name} could not be compared: {}", clean(&reason, 400)),
                ));
                errors.push(json!({ "name": name, "reason": reason }));
            }
        }
    }
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
        "drifted": drifted, "up_to_date": up_to_date, "unchecked": unchecked, "errors": errors,
    });
    Ok(Report::new(data, lines.join("\n")).exit(exit))
}
