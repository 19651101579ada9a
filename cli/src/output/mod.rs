//! Output to the terminal and to programs.
//!
//! Standard output carries only the result. Notes, warnings, progress and questions go to standard
//! error. With `--json`, standard output is one line for success and failure alike: the *envelope*,
//! a JSON object with the result as its member `data`, the warnings and the error.

pub mod diff;
pub mod doctor;
pub mod excerpt;
pub mod finding;
mod fold;
mod interaction;
pub mod origin;
mod prompt;
pub mod report;
pub mod style;
pub mod table;
mod width;

use std::{
    cell::RefCell,
    io::{BufRead, Write},
};

use anstream::{AutoStream, ColorChoice};
use serde_json::Value;

use vault_gate::report::json::escape_invisible;

use self::fold::fold_lines;
pub use self::fold::set_command_list;
use self::report::{Envelope, EnvelopeError, Form, format_json};
pub use self::{
    interaction::{Answer, Bar, Interaction, is_cancelled},
    report::{Report, SingleOrList, ViewWithText, Warning},
    style::{BAD, BOLD, DIM, GOOD, HINT, TICK, WARN, paint},
    table::{Column, Table, change_lines, format_day, format_facts, format_minute},
};
pub use crate::text::{
    clean, count, either, format_flagged, format_key, format_size, format_thousands, join,
    nearest_name, shell_path,
};
use crate::{
    errors::{Exit, Failure},
    flags::{ColourChoice, Global},
    process::Process,
    text::for_terminal,
};

/// The output of a command: both streams, and the flags that shape them.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Debug)]
pub struct Ui {
    json: bool,
    quiet: bool,
    verbose: bool,
    prompts: bool,
    yes: bool,
    out: ColorChoice,
    err: ColorChoice,
    out_columns: Option<usize>,
    err_columns: Option<usize>,
    interaction: Interaction,
    warnings: RefCell<Vec<Warning>>,
    /// Questions that the user has answered with yes in this run of the command.
    agreed: RefCell<Vec<String>>,
    /// Questions that were answered with yes before [`Ui::begin_again`]. Each is answered once from
    /// here instead of being asked again.
    agreed_before: RefCell<Vec<String>>,
}

impl Ui {
    /// Decides on colour, prompts and progress bars for the whole run, from the flags and the
    /// process.
    pub fn new(global: &Global, process: &Process) -> Self {
        let colour = |terminal| match global.color {
            ColourChoice::Always => ColorChoice::AlwaysAnsi,
            ColourChoice::Auto if process.wants_colour(terminal) => ColorChoice::AlwaysAnsi,
            ColourChoice::Auto | ColourChoice::Never => ColorChoice::Never,
        };
        // Excerpts go to standard output in some commands and to standard error in others, so take
        // the smaller width.
        let columns = [process.stdout_columns, process.stderr_columns];
        if let Some(columns) = columns.into_iter().flatten().min() {
            excerpt::set_excerpt_width(columns);
        }
        // Agents and CI may provide a terminal, but cannot answer questions.
        let by_hand = !process.is_run_by_agent() && !process.is_run_by_ci();
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose > 0,
            yes: global.yes,
            prompts: by_hand
                && !global.no_input
                && process.stdin_is_terminal
                && process.stderr_is_terminal,
            out: colour(process.stdout_is_terminal),
            err: colour(process.stderr_is_terminal),
            out_columns: process.stdout_columns,
            err_columns: process.stderr_columns,
            // Each redrawn line of a bar would fill the log of a CI run or the context of an agent.
            interaction: Interaction::new(
                by_hand && !global.quiet && !global.json && process.stderr_is_terminal,
                process.stderr_columns,
            ),
            warnings: RefCell::default(),
            agreed: RefCell::default(),
            agreed_before: RefCell::default(),
        }
    }

    /// Prepares another run of the same command in this process: questions that were answered with
    /// yes are not asked again, and the warnings of the first run are dropped.
    pub fn begin_again(&self) {
        self.agreed_before.replace(self.agreed.take());
        self.warnings.take();
    }

    /// Returns whether the question was answered with yes before the command began again, and uses
    /// that answer up.
    fn use_earlier_agreement(&self, question: &str) -> bool {
        let mut before = self.agreed_before.borrow_mut();
        let at = before.iter().position(|agreed| agreed == question);
        at.is_some_and(|at| {
            before.remove(at);
            true
        })
    }

    /// Returns whether output is the JSON envelope (`--json`), so that text for people must not be
    /// printed.
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Returns whether a question may be asked: standard input and standard error are terminals,
    /// neither an agent nor a CI system runs the process, and no flag forbids it.
    pub const fn may_ask(&self) -> bool {
        self.prompts
    }

    /// Returns whether `--yes` answers the questions.
    pub const fn is_yes(&self) -> bool {
        self.yes
    }

    /// Returns whether the user asked for more detail (`-v`).
    pub const fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Prints a line for people on standard error, unless `--quiet` or `--json` is set.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            self.error_line(text.as_ref());
        }
    }

    /// Prints a line on standard error even with `--json` and `--quiet`, such as an address that
    /// the user must open before the command can continue.
    pub fn must_see(&self, text: impl AsRef<str>) {
        self.error_line(text.as_ref());
    }

    /// Prints a line on standard error if `-v` is set.
    pub fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            self.error_line(&paint(DIM, text.as_ref()));
        }
    }

    /// Prints a line of the result before the command ends, for long commands that report step by
    /// step. Prints nothing with `--json`.
    pub fn print_line(&self, text: impl AsRef<str>) {
        if !self.json {
            self.print_text(text.as_ref(), Exit::Done);
        }
    }

    /// Records a warning. People see it on standard error, programs in the envelope.
    pub fn warn(&self, warning: Warning) {
        if !self.json {
            let place = warning.path.as_ref().map(|path| match warning.line {
                Some(line) => format!("{path}:{line}: "),
                None => format!("{path}: "),
            });
            self.print_problem(&paint(WARN, "warning:"), place, &warning.message);
            self.print_hint(warning.hint.as_deref());
        }
        self.warnings.borrow_mut().push(warning);
    }

    /// Records a warning with its stable code, and what to do about it.
    pub fn warn_with(&self, code: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.warn(Warning::new(code, message).hint(hint));
    }

    /// Prints the result of a command and returns its exit code.
    pub fn print_report(&self, report: &Report) -> Exit {
        let exit = report.exit;
        match report.form {
            // Not through `print_text`: folded lines would break a script that a shell reads.
            Form::BareText => {
                exit_on_error(
                    std::io::stdout().lock().write_all(report.text.as_bytes()),
                    exit,
                );
            }
            // If colour is on, a person reads this on a terminal, so indent it.
            Form::BareData => {
                let text = format_json(&report.data, self.out != ColorChoice::Never);
                print_json(&escape_invisible(&text), exit);
            }
            Form::Result if self.json => print_json(&self.format_success(&report.data), exit),
            Form::Result if report.text.is_empty() => {}
            Form::Result => self.print_text(report.text.trim_end_matches('\n'), exit),
        }
        exit
    }

    /// Prints the failure of a command and returns its exit code.
    pub fn print_failure(&self, failure: &Failure) -> Exit {
        if self.json {
            let data = failure.json_data().unwrap_or(&Value::Null);
            print_json(&self.format_envelope(data, Some(failure)), failure.exit());
        }
        self.note_failure(failure);
        failure.exit()
    }

    /// Prints the failure of one part of a command that continues with the other parts. The caller
    /// must report it in the result, because nothing is printed with `--json`.
    pub fn note_failure(&self, failure: &Failure) {
        if self.json {
            return;
        }
        let place = failure.place().map(|place| format!("{place}: "));
        self.print_problem(&paint(BAD, "error:"), place, &failure.message);
        for line in failure.lines_for_people() {
            self.error_line(&format!("  {line}"));
        }
        self.print_hint(failure.hint.as_deref());
    }

    fn print_problem(&self, kind: &str, place: Option<String>, message: &str) {
        self.error_line(&format!("{kind} {}{message}", place.unwrap_or_default()));
    }

    fn print_hint(&self, hint: Option<&str>) {
        if let Some(hint) = hint {
            self.error_line(&format!("{} {hint}", paint(HINT, "hint:")));
        }
    }

    /// Returns the line that `--json` prints for a result.
    pub fn format_success(&self, data: &Value) -> String {
        self.format_envelope(data, None)
    }

    fn format_envelope(&self, data: &Value, failure: Option<&Failure>) -> String {
        // Details are painted for people. Programs get the text without escape codes.
        let plain = |line: &String| anstream::adapter::strip_str(line).to_string();
        let envelope = Envelope {
            schema: 1,
            ok: failure.is_none(),
            data,
            warnings: &self.warnings.borrow(),
            error: failure.map(|failure| EnvelopeError {
                code: failure.code.word(),
                message: &failure.message,
                hint: failure.hint.as_deref(),
                at: failure.place(),
                details: failure.detail_lines().iter().map(plain).collect(),
            }),
        };
        escape_invisible(&serde_json::to_string(&envelope).unwrap_or_default())
    }

    /// Returns the bars and questions of this run.
    pub const fn interaction(&self) -> &Interaction {
        &self.interaction
    }

    /// Shows a progress bar over `total` steps if a person watches standard error.
    pub fn start_bar(&self, total: u64, label: &'static str) -> Bar {
        self.interaction.start_bar(total, label)
    }

    /// Shows a spinner for a wait of unknown length if a person watches standard error.
    pub fn start_spinner(&self, label: impl AsRef<str>) -> Bar {
        self.interaction.start_spinner(label.as_ref())
    }

    /// Formats a table for standard output. With `-v`, and if standard output is not a terminal,
    /// all columns are shown in full.
    pub fn format_table(&self, table: &Table) -> String {
        table.to_text(self.out_columns.filter(|_| !self.verbose))
    }

    /// Reads one line of standard input, terminal or not. Returns `None` at the end of input.
    pub fn read_line() -> Option<String> {
        let mut line = String::new();
        // Answers are at most an address of a few hundred bytes. 16 KiB bounds the memory.
        let read = std::io::Read::take(std::io::stdin().lock(), 16 * 1024)
            .read_line(&mut line)
            .ok()?;
        (read > 0).then(|| line.trim().to_owned())
    }

    fn print_text(&self, text: &str, exit: Exit) {
        // Escape before folding, because escaping makes lines longer.
        let text = fold_lines(for_terminal(text), self.out_columns);
        let write = || {
            let mut stream = AutoStream::new(std::io::stdout().lock(), self.out);
            writeln!(stream, "{text}").and_then(|()| stream.flush())
        };
        exit_on_error(self.interaction.without_bars(write), exit);
    }

    fn error_line(&self, text: &str) {
        let text = fold_lines(for_terminal(text), self.err_columns);
        let write = || {
            let mut stream = AutoStream::new(std::io::stderr().lock(), self.err);
            writeln!(stream, "{text}")
        };
        // If standard error is closed, there is no place left to report the error.
        let _ = self.interaction.without_bars(write);
    }
}

/// Prints a line on standard error, for code without a [`Ui`] that asks the user to act.
pub fn print_notice(text: &str) {
    let stream = std::io::stderr();
    // If standard error is closed, there is no place left to report the error.
    let _ = writeln!(stream.lock(), "{}", for_terminal(text));
}

/// Writes JSON and a newline. The caller has already escaped the text for terminals.
fn print_json(text: &str, exit: Exit) {
    let mut stream = std::io::stdout().lock();
    exit_on_error(
        writeln!(stream, "{text}").and_then(|()| stream.flush()),
        exit,
    );
}

/// Ends the process if standard output could not be written: with the code `exit` if the reader has
/// closed the pipe (`| head`), and with 1 after any other error, such as a full disk.
fn exit_on_error(written: std::io::Result<()>, exit: Exit) {
    match written {
        // The reader has closed the pipe because it has what it needs, so this is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            std::process::exit(exit.code().into())
        }
        // Without this exit, a script would take a truncated result for a complete one.
        Err(error) => {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "error: standard output cannot be written: {error}");
            std::process::exit(Exit::Failed.code().into())
        }
        Ok(()) => {}
    }
}
