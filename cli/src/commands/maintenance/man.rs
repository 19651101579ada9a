//! `vault man`: prints the manual page vault(1), or writes it and one page for each command to a
//! folder.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::{
    context::Context,
    errors::Failure,
    output::{Report, count},
};

/// The arguments of `vault man`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault man | man -l -
  vault man ~/.local/share/man/man1")]
pub struct Arguments {
    /// Write vault(1) and a page for each command into this folder
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Prints vault(1), or writes all pages to the folder, which is created if it does not exist.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let command = (context.command_line)();
    let Some(folder) = &arguments.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .map_err(|error| Failure::io("rendering", "vault.1", &error))?;
        return Ok(Report::text(String::from_utf8_lossy(&page)));
    };
    std::fs::create_dir_all(folder).map_err(|error| Failure::io("making", folder, &error))?;
    clap_mangen::generate_to(command, folder)
        .map_err(|error| Failure::io("writing pages to", folder, &error))?;
    // clap_mangen does not return how many pages it wrote. The folder may hold pages of other
    // programs, so only those of vault are counted.
    let pages = std::fs::read_dir(folder)
        .map_err(|error| Failure::io("reading", folder, &error))?
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("vault"))
        .count();
    Ok(Report::new(
        json!({ "folder": folder, "pages": pages }),
        format!("wrote {} to {}", count(pages, "page"), folder.display()),
    ))
}
