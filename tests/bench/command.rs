//! The command itself: how much it costs to start, and its size.

use std::process::Command;

use vault_tests::home::{Home, vault_binary};

use crate::meter::{cpu_of, float, median};
use crate::table::{Row, Table, Target, say};

const RUNS: usize = 50;

/// Starts `vault --version` and an empty program in turn, and measures the file.
pub fn measure(table: &mut Table) {
    say("the command");
    let home = Home::new();
    let (mut ours, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        empty.push(cpu_of(&mut Command::new("true")) * 1e3);
        ours.push(cpu_of(&mut home.command(&["--version"])) * 1e3);
    }
    table.row(
        Row::new("vault --version, CPU, median of 50", median(ours), "ms")
            .beside(median(empty), "true")
            .target(Target::Below(5.0)),
    );
    let length = std::fs::metadata(vault_binary())
        .expect("the built binary")
        .len();
    let bytes = usize::try_from(length).expect("a size");
    table.row(Row::new("release binary", float(bytes) / 1e6, "MB").target(Target::Below(30.0)));
}
