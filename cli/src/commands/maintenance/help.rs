//! `vault help`: prints the help of a command, or with `errors` the table of error codes with their
//! exit codes.

use clap::Args;

use crate::{
    context::Context,
    errors::{ErrorCode, Failure, codes},
    output::{Report, clean},
};

/// The arguments of `vault help`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault help skill search
  vault help errors
  vault help errors --json")]
pub struct Arguments {
    /// A command, or `errors` for the table of error codes
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
}

/// Prints the help of the command that the arguments name, of the whole program without arguments,
/// or the table of error codes.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.topic == ["errors"] {
        let rows = ErrorCode::ALL.iter().map(|code| code.row());
        return Ok(Report::view(rows.collect::<Vec<_>>(), codes::table_text()));
    }
    let mut command = (context.command_line)();
    command.build();
    for word in &arguments.topic {
        command = command.find_subcommand(word).cloned().ok_or_else(|| {
            let message = format!("unknown command `{}`", clean(word, 60));
            fail!(Usage, "{message}").hint("vault --help lists the commands")
        })?;
    }
    // The same as `--help` prints: the program itself has a long help, and each command a short
    // one.
    let help = match arguments.topic[..] {
        [] => command.render_long_help(),
        [..] => command.render_help(),
    };
    Ok(Report::text(help.ansi().to_string().trim_end()))
}
