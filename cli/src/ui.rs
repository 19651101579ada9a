//! What people and programs see: the only file that writes to standard output and standard error.
//!
//! Standard output carries the result and nothing else; notes, warnings, progress and questions go to standard error.
//! With `--json` standard output is one line, the envelope, on success and on failure alike.

use std::{
    cell::RefCell,
    io::{BufRead, Write},
    time::Duration,
};

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use crate::{
    args::{ColourChoice, Global},
    env::Process,
    error::{Exit, Failure, Place},
};

/// Headings and names.
pub const BOLD: Style = Style::new().bold();
/// What matters less.
pub const DIM: Style = Style::new().dimmed();
/// Success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// A warning.
pub const WARN: Style = AnsiColor::Yellow.on_default().bold();
/// An error.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// A hint, an address, a fingerprint.
pub const HINT: Style = AnsiColor::Cyan.on_default();

/// Text in a style.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Something that went well enough to go on, but that somebody should know.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Warning {
    /// The stable word.
    pub code: String,
    /// One sentence without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The file it is about.
    pub path: Option<String>,
    /// The line in that file, from 1.
    pub line: Option<u32>,
}

impl Warning {
    /// A warning with its stable word and sentence.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// The same warning with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What `--json` prints, whatever the command.
#[derive(Serialize)]
struct Envelope<'a> {
    schema: u32,
    ok: bool,
    data: Data<'a>,
    warnings: &'a [Warning],
    error: Option<EnvelopeError<'a>>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Built(&'a Value),
    Written(&'a RawValue),
}

#[derive(Serialize)]
struct EnvelopeError<'a> {
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a Place>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
}

/// What a command hands back: the same result for people and for programs.
#[derive(Debug)]
pub struct Report {
    /// For `--json`: the member `data`.
    pub data: Value,
    /// In place of `data`, where that has so many parts that it is written at once.
    pub written: Option<Box<RawValue>>,
    /// For people: standard output, without the last line end.
    pub text: String,
    /// Standard output is exactly `data`, whatever the flags say.
    pub bare: bool,
    /// Standard output is exactly `text`, whatever the flags say: a form of its own.
    pub raw: bool,
    /// What the process ends with.
    pub exit: Exit,
}

impl Report {
    /// A result that ends with 0.
    pub fn new(data: impl Serialize, text: impl Into<String>) -> Self {
        Self {
            data: serde_json::to_value(data).unwrap_or(Value::Null),
            written: None,
            text: text.into(),
            bare: false,
            raw: false,
            exit: Exit::Done,
        }
    }

    /// A result whose data was written already, where programs asked for it.
    pub fn written(data: Option<Box<RawValue>>, text: impl Into<String>) -> Self {
        Self {
            written: data,
            ..Self::new(Value::Null, text)
        }
    }

    /// Text alone: what it prints is its data too.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(&text, text.clone())
    }

    /// Nothing to print: the command spoke for itself.
    pub fn silent(exit: Exit) -> Self {
        Self {
            exit,
            ..Self::new(Value::Null, "")
        }
    }

    /// A text in a form of its own, which is printed as it is.
    pub fn raw(text: impl Into<String>) -> Self {
        Self {
            raw: true,
            ..Self::new(Value::Null, text)
        }
    }

    /// Bare JSON without an envelope.
    pub fn bare(data: impl Serialize) -> Self {
        Self {
            bare: true,
            ..Self::new(data, "")
        }
    }

    /// The same result with another exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }
}

/// The two streams and what may be done on them.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Debug)]
pub struct Ui {
    json: bool,
    quiet: bool,
    verbose: bool,
    prompts: bool,
    animate: bool,
    yes: bool,
    out: ColorChoice,
    err: ColorChoice,
    warnings: RefCell<Vec<Warning>>,
}

impl Ui {
    /// Settles colour, prompts and progress once, from flags and process.
    pub fn new(global: &Global, process: &Process) -> Self {
        let colour = |terminal| match global.color {
            ColourChoice::Always => ColorChoice::AlwaysAnsi,
            ColourChoice::Auto if process.wants_colour(terminal) => ColorChoice::AlwaysAnsi,
            ColourChoice::Auto | ColourChoice::Never => ColorChoice::Never,
        };
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
            animate: by_hand && !global.quiet && !global.json && process.stderr_is_terminal,
            out: colour(process.stdout_is_terminal),
            err: colour(process.stderr_is_terminal),
            warnings: RefCell::default(),
        }
    }

    /// `--json` was given.
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// A question may be asked: both terminals are there and nobody forbade it.
    pub const fn may_ask(&self) -> bool {
        self.prompts
    }

    /// `-v` was given.
    pub const fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// `--yes` was given.
    pub const fn says_yes(&self) -> bool {
        self.yes
    }

    /// One line on standard error, for people only.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            self.error_line(text.as_ref());
        }
    }

    /// One line on standard error that is shown even with `--json` and `--quiet`: an address to open, without which the command cannot go on.
    pub fn must_see(&self, text: impl AsRef<str>) {
        self.error_line(text.as_ref());
    }

    /// One line on standard error with `-v`.
    pub fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            self.error_line(&paint(DIM, text.as_ref()));
        }
    }

    /// A line of the result, before the command ends: for commands that take a while and report step by step.
    pub fn line(&self, text: impl AsRef<str>) {
        if !self.json {
            self.out_line(text.as_ref());
        }
    }

    /// A warning: on standard error for people, in the envelope for programs.
    pub fn warn(&self, warning: Warning) {
        if !self.json {
            let place = match (&warning.path, warning.line) {
                (Some(path), Some(line)) => format!("{path}:{line}: "),
                (Some(path), None) => format!("{path}: "),
                (None, _) => String::new(),
            };
            self.error_line(&format!(
                "{} {place}{}",
                paint(WARN, "warning:"),
                warning.message
            ));
            if let Some(hint) = &warning.hint {
                self.error_line(&format!("{} {hint}", paint(HINT, "hint:")));
            }
        }
        self.warnings.borrow_mut().push(warning);
    }

    /// Prints what a command found and says what to end with.
    pub fn report(&self, report: &Report) -> Exit {
        if report.raw {
            let text = report.text.as_bytes();
            finish(std::io::stdout().lock().write_all(text), report.exit);
        } else if report.bare {
            let text = escaped(pretty(&report.data, self.out != ColorChoice::Never));
            print_json(text, report.exit);
        } else if self.json {
            let data = match &report.written {
                Some(written) => Data::Written(written),
                None => Data::Built(&report.data),
            };
            print_json(self.envelope(data, None), report.exit);
        } else if !report.text.is_empty() {
            self.print(report.text.trim_end_matches('\n'), report.exit);
        }
        report.exit
    }

    /// Prints why a command failed and says what to end with.
    pub fn fail(&self, failure: &Failure) -> Exit {
        if self.json {
            let data = failure.data.as_ref().unwrap_or(&Value::Null);
            print_json(
                self.envelope(Data::Built(data), Some(failure)),
                failure.exit,
            );
            return failure.exit;
        }
        self.show(failure);
        failure.exit
    }

    /// A failure of one part of a command that goes on: shown to people, counted by the caller.
    pub fn note_failure(&self, failure: &Failure) {
        if !self.json {
            self.show(failure);
        }
    }

    fn show(&self, failure: &Failure) {
        let place = failure
            .place
            .as_ref()
            .map(|place| format!("{place}: "))
            .unwrap_or_default();
        self.error_line(&format!(
            "{} {place}{}",
            paint(BAD, "error:"),
            failure.message
        ));
        for line in failure.details.iter().flat_map(|text| text.lines()) {
            self.error_line(&format!("  {line}"));
        }
        if let Some(hint) = &failure.hint {
            self.error_line(&format!("{} {hint}", paint(HINT, "hint:")));
        }
    }

    /// The line that `--json` prints for a result.
    pub fn enveloped(&self, data: &Value) -> String {
        self.envelope(Data::Built(data), None)
    }

    fn envelope(&self, data: Data<'_>, failure: Option<&Failure>) -> String {
        let envelope = Envelope {
            schema: 1,
            ok: failure.is_none(),
            data,
            warnings: &self.warnings.borrow(),
            error: failure.map(|failure| EnvelopeError {
                code: &failure.code,
                message: &failure.message,
                hint: failure.hint.as_deref(),
                at: failure.place.as_ref(),
                details: failure
                    .details
                    .iter()
                    .map(|line| anstream::adapter::strip_str(line).to_string())
                    .collect(),
            }),
        };
        escaped(serde_json::to_string(&envelope).unwrap_or_default())
    }

    /// A bar over `total` steps; invisible where nobody would see it move.
    pub fn progress(&self, total: u64, label: &'static str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(
            Some(total),
            if self.animate {
                ProgressDrawTarget::stderr_with_hz(15)
            } else {
                ProgressDrawTarget::hidden()
            },
        );
        if let Ok(style) =
            ProgressStyle::with_template("{prefix:>10} [{bar:30}] {pos}/{len} {wide_msg}")
        {
            bar.set_style(style.progress_chars("━╸ "));
        }
        bar.set_prefix(label);
        bar
    }

    /// A line that turns while something is waited for; invisible where nobody would see it move.
    pub fn spinner(&self, label: impl Into<String>) -> ProgressBar {
        if !self.animate {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(15));
        bar.set_message(label.into());
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    /// Asks yes or no; without a terminal it fails and names the flag that answers.
    pub fn confirm(&self, question: &str) -> Result<bool, Failure> {
        if self.yes {
            return Ok(true);
        }
        if !self.prompts {
            return Err(cannot_ask(question, "--yes"));
        }
        inquire::Confirm::new(question)
            .with_default(false)
            .prompt()
            .map_err(|error| asking_failed(&error))
    }

    /// Asks for one of several; without a terminal it fails and names the flag that answers.
    pub fn choose(
        &self,
        question: &str,
        flag: &str,
        options: Vec<String>,
    ) -> Result<String, Failure> {
        if !self.prompts {
            return Err(cannot_ask(question, flag).details(options));
        }
        inquire::Select::new(question, options)
            .prompt()
            .map_err(|error| asking_failed(&error))
    }

    /// Asks for some of several; without a terminal it fails and names the flags that answer. What follows two blanks in
    /// an option explains it.
    pub fn choose_many(
        &self,
        question: &str,
        flags: &str,
        options: Vec<String>,
    ) -> Result<Vec<usize>, Failure> {
        let options = aligned(options);
        if !self.prompts {
            return Err(cannot_ask(question, flags).details(options));
        }
        let chosen = inquire::MultiSelect::new(question, options)
            .with_page_size(15)
            .with_help_message("space ticks, right ticks all, left none, text filters, Enter adds")
            // What is chosen is told again as it is added: here the names are enough.
            .with_formatter(&|chosen| {
                let names = chosen.iter().map(|option| {
                    let line = option.value.as_str();
                    line.split_once("  ").map_or(line, |(name, _)| name)
                });
                names.collect::<Vec<_>>().join(", ")
            })
            .raw_prompt()
            .map_err(|error| asking_failed(&error))?;
        Ok(chosen.into_iter().map(|option| option.index).collect())
    }

    /// Asks yes or no with an answer that Enter gives; `--yes` gives it too.
    pub fn confirm_default(&self, question: &str, answer: bool) -> Result<bool, Failure> {
        if self.yes {
            return Ok(answer);
        }
        if !self.prompts {
            return Err(cannot_ask(question, "--yes"));
        }
        inquire::Confirm::new(question)
            .with_default(answer)
            .prompt()
            .map_err(|error| asking_failed(&error))
    }

    /// Asks for one of several; `--yes` takes the first.
    pub fn choose_first(&self, question: &str, options: Vec<String>) -> Result<String, Failure> {
        match options.first() {
            Some(first) if self.yes => Ok(first.clone()),
            _ => self.choose(question, "--yes", options),
        }
    }

    /// Asks for any of several, all or none of them ticked at first; `--yes` leaves it at that.
    pub fn tick(
        &self,
        question: &str,
        options: Vec<String>,
        ticked: bool,
    ) -> Result<Vec<String>, Failure> {
        if self.yes {
            return Ok(if ticked { options } else { Vec::new() });
        }
        if !self.prompts {
            return Err(cannot_ask(question, "--yes").details(options));
        }
        let all: Vec<usize> = (0..options.len()).filter(|_| ticked).collect();
        inquire::MultiSelect::new(question, options)
            .with_default(&all)
            .with_help_message("space ticks, right ticks all, left none, Enter goes on")
            .prompt()
            .map_err(|error| asking_failed(&error))
    }

    /// Asks for a line of text; `--yes` answers with nothing.
    pub fn ask(&self, question: &str) -> Result<String, Failure> {
        if self.yes {
            return Ok(String::new());
        }
        if !self.prompts {
            return Err(cannot_ask(question, "--yes"));
        }
        inquire::Text::new(question)
            .prompt()
            .map(|text| text.trim().to_owned())
            .map_err(|error| asking_failed(&error))
    }

    /// Reads one line of standard input, terminal or not. `None` at its end.
    pub fn read_line() -> Option<String> {
        let mut line = String::new();
        // One answer is an address of a few hundred bytes: 16 KiB is room for any.
        let read = std::io::Read::take(std::io::stdin().lock(), 16 * 1024)
            .read_line(&mut line)
            .ok()?;
        (read > 0).then(|| line.trim().to_owned())
    }

    /// Writes text to standard output as it is, without a line end of ours: completions, pages.
    pub fn raw(text: &[u8]) {
        finish(std::io::stdout().lock().write_all(text), Exit::Done);
    }

    fn out_line(&self, text: &str) {
        self.print(text, Exit::Done);
    }

    fn print(&self, text: &str, exit: Exit) {
        let mut stream = AutoStream::new(std::io::stdout().lock(), self.out);
        let written = writeln!(stream, "{text}").and_then(|()| stream.flush());
        finish(written, exit);
    }

    fn error_line(&self, text: &str) {
        // Nobody can be told that standard error is gone.
        let _ = writeln!(
            AutoStream::new(std::io::stderr().lock(), self.err),
            "{text}"
        );
    }
}

/// JSON and a line end, as they are: nothing in them paints.
fn print_json(mut text: String, exit: Exit) {
    text.push('\n');
    let mut stream = std::io::stdout().lock();
    let written = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
    finish(written, exit);
}

/// A reader that went away (`| head`) is no failure, and hides none: the process ends as it would have; a full disk is.
fn finish(written: std::io::Result<()>, exit: Exit) {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            std::process::exit(exit.code().into())
        }
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "error: standard output cannot be written: {error}"
            );
            std::process::exit(Exit::Failed.code().into())
        }
        Ok(()) => {}
    }
}

fn pretty(data: &Value, terminal: bool) -> String {
    if terminal {
        serde_json::to_string_pretty(data)
    } else {
        serde_json::to_string(data)
    }
    .unwrap_or_default()
}

fn cannot_ask(question: &str, flag: &str) -> Failure {
    Failure::usage(
        "no_tty",
        format!("{question} There is no terminal to ask on"),
    )
    .hint(format!("answer with `{flag}`"))
}

/// Options whose explanations stand below each other, unless names are longer than 24 characters.
fn aligned(options: Vec<String>) -> Vec<String> {
    const MOST: usize = 24;
    let parts = |option: &String| {
        option
            .split_once("  ")
            .map_or((option.clone(), None), |(name, text)| {
                (name.to_owned(), Some(text.trim_start().to_owned()))
            })
    };
    let widths = options.iter().map(|option| parts(option).0.chars().count());
    let width = widths.max().unwrap_or(0).min(MOST);
    options
        .into_iter()
        .map(|option| match parts(&option) {
            (name, Some(text)) => format!("{name:<width$}  {text}"),
            (name, None) => name,
        })
        .collect()
}

fn asking_failed(error: &inquire::InquireError) -> Failure {
    match error {
        inquire::InquireError::OperationCanceled | inquire::InquireError::OperationInterrupted => {
            Failure::new(Exit::Interrupted, "interrupted", "interrupted")
        }
        other => Failure::usage(
            "no_tty",
            format!("the question could not be asked: {other}"),
        ),
    }
}

/// Text from outside, safe to show on a terminal: control, bidi and zero-width characters become U+FFFD, and it ends after `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(most)
        .map(|c| if is_deceptive(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether a character steers a terminal, turns the writing direction or is not seen.
const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}')
}

/// JSON text in which nothing can paint a terminal: what JSON itself lets stand raw is written as an escape, the same text.
fn escaped(json: String) -> String {
    // What JSON must escape is escaped: of ASCII the delete character is left. Most texts are seen to be harmless at once.
    let harmless = json.is_ascii() && !json.as_bytes().contains(&0x7f);
    if harmless || !json.chars().any(|c| c != '\n' && is_deceptive(c)) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if c != '\n' && is_deceptive(c) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

/// The names that a release brought, changed and took away, a line each; of many in one kind the first twenty.
pub fn changes<T: std::fmt::Display>(added: &[T], changed: &[T], removed: &[T]) -> Vec<String> {
    const SHOWN: usize = 20;
    let mut lines = Vec::new();
    for (mark, style, names) in [
        ("+", GOOD, added),
        ("~", WARN, changed),
        ("-", DIM, removed),
    ] {
        for name in names.iter().take(SHOWN) {
            lines.push(format!("  {} {name}", paint(style, mark)));
        }
        if names.len() > SHOWN {
            lines.push(format!(
                "  {} and {} more",
                paint(style, mark),
                names.len() - SHOWN
            ));
        }
    }
    lines
}

/// A byte count for people: `812 B`, `1.4 KiB`, `3.0 MiB`.
pub fn size(bytes: u64) -> String {
    let mut unit = "B";
    let mut tenths = bytes.saturating_mul(10);
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// `1 skill`, `2 skills`.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{} {noun}s", thousands(number))
    }
}

/// `12,345`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns of text with two spaces between, the last one as long as it likes. Widths are counted in characters, styles not counted.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a dim heading.
    pub fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|cell| paint(DIM, cell)).collect()],
        }
    }

    /// One more row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, joined.
    pub fn text(&self) -> String {
        let width = |cell: &str| {
            anstream::adapter::strip_str(cell)
                .to_string()
                .chars()
                .count()
        };
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(cell))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut lines = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                line.push_str(cell);
                if column + 1 < row.len() {
                    line.push_str(&" ".repeat(widths[column] - width(cell) + 2));
                }
            }
            lines.push(line.trim_end().to_owned());
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_changes_of_one_kind_the_first_twenty_are_named() {
        let many: Vec<_> = (1..=22).map(|n| format!("skill-{n}")).collect();
        let lines = changes(&many, &many[..20], &[]);
        assert_eq!(lines.len(), 21 + 20);
        assert!(lines[19].ends_with(" skill-20"), "{}", lines[19]);
        assert!(lines[20].ends_with(" and 2 more"), "{}", lines[20]);
        assert!(lines[40].ends_with(" skill-20"), "{}", lines[40]);
    }

    #[test]
    fn json_for_a_terminal_says_the_same_and_paints_nothing() {
        let data =
            serde_json::json!({ "a\u{9b}": ["\u{1b}[2J\u{7f}\u{85}\u{202e}\u{2028}é\n", "plain"] });
        for text in [pretty(&data, true), pretty(&data, false)] {
            let shown = escaped(text.clone());
            assert!(
                !shown.chars().any(|c| c != '\n' && is_deceptive(c)),
                "{shown}"
            );
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), data);
        }
    }

    #[test]
    fn outside_text_cannot_move_the_cursor() {
        for (text, shown) in [
            ("plain — text", "plain — text"),
            ("\u{1b}[31mred", "\u{fffd}[31mred"),
            (
                "a\u{202e}b\u{200b}c\r\n",
                "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}",
            ),
            ("12345678901", "1234567890…"),
        ] {
            assert_eq!(
                clean(text, if text.starts_with('1') { 10 } else { 80 }),
                shown
            );
        }
    }

    #[test]
    fn sizes_and_counts_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_500_000, "1.4 MiB"),
            (u64::MAX, "1677721.5 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(count(1_u64, "skill"), "1 skill");
        assert_eq!(count(12_345_u64, "skill"), "12,345 skills");
        assert_eq!(count(0_u64, "skill"), "0 skills");
    }

    #[test]
    fn a_table_lines_up_whatever_the_styles() {
        let mut table = Table::new(&["name", "status"]);
        table.row([paint(BOLD, "a"), "active".into()]);
        table.row(["longer".into(), String::new()]);
        assert_eq!(
            anstream::adapter::strip_str(&table.text()).to_string(),
            "name    status\na       active\nlonger"
        );
    }
}
