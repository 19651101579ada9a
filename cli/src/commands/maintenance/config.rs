//! `vault config list`: shows the value of every setting that is in effect, and where it comes
//! from: flag, environment variable, project file, user file or default.

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Column, DIM, Report, Table, clean, paint},
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

/// A setting with its value and the layer that set it.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Setting {
    #[serde(flatten)]
    row: SettingRow,
    /// Which layer set it: `flag`, `environment`, `project`, `user` or `default`.
    origin: &'static str,
}

/// Lists the settings; with `--origin` also where each value comes from. Secrets are masked.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Action::List(list) = &arguments.action;
    let mut settings = context.settings()?.clone();
    let vault = context
        .global
        .vault
        .as_ref()
        .map(|path| path.display().to_string());
    // `--vault` is a global flag and not stored as a setting, but it overrides
    // `VAULT_STORAGE_PATH`.
    settings.set_flag("--vault", "VAULT_STORAGE_PATH", vault)?;
    let rows = settings.setting_rows();
    let mut columns = vec![Column::new("setting"), Column::new("value").shrinks_to(12)];
    columns.extend(list.origin.then(|| Column::new("from").shrinks_to(12)));
    let mut table = Table::new(columns);
    for row in &rows {
        let value = clean(row.value.as_deref().unwrap_or("-"), 400);
        let mut cells = vec![paint(BOLD, row.name), value];
        cells.extend(list.origin.then(|| {
            let origin = settings.origin_word(row.name);
            let source = clean(&row.source, 400);
            let text = if origin == "default" {
                origin.to_owned()
            } else {
                format!("{origin} ({source})")
            };
            paint(DIM, text)
        }));
        table.push_row(cells);
    }
    let rows = rows.into_iter().map(|row| Setting {
        origin: settings.origin_word(row.name),
        row,
    });
    Ok(Report::view(
        rows.collect::<Vec<_>>(),
        context.ui.format_table(&table),
    ))
}
