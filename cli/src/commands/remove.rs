//! `vault remove`.

use clap::Args;
use serde_json::json;
use vault_library::remove::{RemoveSkills, remove_skills};

use crate::{
    Context,
    error::Failure,
    settings::nearest,
    ui::{BOLD, DIM, GOOD, Report, Warning, clean, paint},
};

/// Since 0.4.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
A name that is not installed is said and is no failure. The next sync publishes a release without the skill.

Examples:
  vault remove code-review
  vault remove old-one older-one --json
  vault remove leaked --withdraw \"contains a key\"

Since 0.4.0 (stable).")]
pub struct Arguments {
    /// The skills
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Make machines uninstall these bytes too, for this reason
    #[arg(long, value_name = "REASON")]
    withdraw: Option<String>,
}

/// Removes own skills.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Some(vault) = super::existing_vault(context)? else {
        return Ok(nothing_there(context, &arguments.names));
    };
    let installed: Vec<String> = vault_library::shelf::list(&vault)?
        .skills
        .into_iter()
        .map(|skill| skill.name.to_string())
        .collect();
    let report = remove_skills(
        &vault,
        &RemoveSkills {
            names: arguments.names.clone(),
            withdraw: arguments.withdraw.clone(),
        },
    )?;
    for name in &report.unknown {
        let warning = Warning::new(
            "not_installed",
            format!("`{}` is not installed", clean(name, 64)),
        );
        context
            .ui
            .warn(match nearest(name, installed.iter().map(String::as_str)) {
                Some(near) if near != name => warning.hint(format!("did you mean `{near}`?")),
                _ => warning,
            });
    }
    let lines: Vec<String> = report
        .removed
        .iter()
        .map(|removed| {
            let version = removed
                .version
                .map_or_else(String::new, |version| format!(" version {version}"));
            format!(
                "{} removed {}{}{}",
                paint(GOOD, "✓"),
                paint(BOLD, &removed.name),
                paint(DIM, version),
                if arguments.withdraw.is_some() {
                    ", and withdrawn from machines with the next release"
                } else {
                    ""
                }
            )
        })
        .collect();
    let removed: Vec<_> = report
        .removed
        .iter()
        .map(|removed| {
            json!({
                "name": removed.name,
                "version": removed.version,
                "bundle_hash": removed.bundle,
                "withdrawn": arguments.withdraw.is_some(),
            })
        })
        .collect();
    Ok(Report::new(
        json!({ "removed": removed, "unknown": report.unknown }),
        lines.join("\n"),
    ))
}

fn nothing_there(context: &Context, names: &[String]) -> Report {
    for name in names {
        context.ui.warn(Warning::new(
            "not_installed",
            format!("`{}` is not installed", clean(name, 64)),
        ));
    }
    Report::new(json!({ "removed": [], "unknown": names }), "")
}
