//! Benchmarks of the built binary, each beside a baseline of the same run: one table, see
//! `tests/bench/run`.
//!
//! Subject and baseline take turns, and medians are compared, so that what else the machine does
//! falls on both.

mod bare;
mod catalog;
mod command;
mod functions;
mod integrity;
mod library;
mod load;
mod meter;
mod roots;
mod skills;
mod table;
mod tools;
mod world;

use std::process::ExitCode;

use table::Table;

const PARTS: [&str; 6] = [
    "catalog",
    "roots",
    "tools",
    "library",
    "command",
    "functions",
];

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if bare::serve(&words).is_some() {
        return ExitCode::SUCCESS;
    }
    let before = words.len();
    words.retain(|word| word != "--many");
    let skills = if words.len() < before { 10_000 } else { 1_000 };
    if let Some(unknown) = words.iter().find(|word| !PARTS.contains(&word.as_str())) {
        table::say(&format!(
            "unknown part {unknown}; there are: {}",
            PARTS.join(", ")
        ));
        return ExitCode::from(2);
    }
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let mut table = Table::default();
    if wanted("catalog") {
        catalog::measure(&mut table);
    }
    if wanted("roots") {
        roots::measure(&mut table);
    }
    if wanted("tools") {
        tools::measure(&mut table);
    }
    if wanted("library") {
        library::measure(&mut table, skills);
    }
    if wanted("command") {
        command::measure(&mut table);
    }
    if wanted("functions") {
        functions::measure(&mut table);
    }
    table.print();
    ExitCode::from(u8::from(!table.all_met()))
}
