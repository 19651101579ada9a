//! `vault config`: shows the effective settings and the source of each.

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, DIM, Report, clean, paint},
    settings::SettingRow,
};

/// The arguments of `vault config`.
#[derive(Args, Debug)]
#[command(after_help = "\
Values are taken in this order: flag, environment variable, the project's vault.toml, your \
config.toml, default. A project may set log_level, search_mode and tool_names, and may make the \
gate strict; it cannot set anything else. In a file, a setting has the name of its variable in \
lower case and without VAULT_.

Examples:
  vault config list
  vault config list --origin
  vault config list --json")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List every setting with its value; secrets are masked
    #[command(after_help = "\
Examples:
  vault config list --origin")]
    List(List),
}

#[derive(Args, Debug)]
struct List {
    /// Show where each value comes from: flag, environment, project, user or default
    #[arg(long)]
    origin: bool,
}

/// A setting.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Setting {
    #[serde(flatten)]
    row: SettingRow,
    /// Which layer set it: `flag`, `environment`, `project`, `user` or `default`.
    origin: &'static str,
}

/// Lists the settings.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Action::List(list) = &arguments.action;
    let mut settings = context.settings()?.clone();
    let vault = context
        .global
        .vault
        .as_ref()
        .map(|path| path.display().to_string());
    // `--vault` is a global flag and no setting, but it overrides this one.
    settings.set_flag("--vault", "VAULT_STORAGE_PATH", vault)?;
    let rows = settings.setting_rows();
    let width = rows
        .iter()
        .map(|row| row.name.len())
        .max()
        .unwrap_or_default();
    let values = rows
        .iter()
        .filter_map(|row| row.value.as_ref())
        .map(|value| value.chars().count());
    // One long value must not push the origins of all others out of view.
    let value_width = values.max().unwrap_or_default().min(48);
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let value = clean(row.value.as_deref().unwrap_or("-"), 400);
            let name = paint(BOLD, format_args!("{:<width$}", row.name));
            if list.origin {
                let origin = settings.origin_word(row.name);
                let source = if origin == "default" {
                    String::new()
                } else {
                    format!(" ({})", row.source)
                };
                format!(
                    "{name}  {value:<value_width$}  {DIM}{origin}{}{DIM:#}",
                    clean(&source, 400)
                )
            } else {
                format!("{name}  {value}")
            }
        })
        .collect();
    let rows = rows.into_iter().map(|row| Setting {
        origin: settings.origin_word(row.name),
        row,
    });
    Ok(Report::view(rows.collect::<Vec<_>>(), lines.join("\n")))
}
