//! The command itself: how much it costs to start, and its size.

use vault_tests::home::{Home, vault_binary};

use crate::meter::{cpu_of, float, median};
use crate::table::{Row, Table, Target, say};

const RUNS: usize = 50;

/// Starts `vault --version` fifty times and looks at the file.
pub fn measure(table: &mut Table) {
    say("the command");
    let home = Home::new();
    let times = (0..RUNS)
        .map(|_| cpu_of(&mut home.command(&["--version"])) * 1e3)
        .collect();
    table.row(
        Row::new("vault --version, CPU, median of 50", median(times), "ms")
            .target(Target::Below(5.0)),
    );
    let length = std::fs::metadata(vault_binary())
        .expect("the built binary")
        .len();
    let bytes = usize::try_from(length).expect("a size");
    table.row(Row::new("release binary", float(bytes) / 1e6, "MB").target(Target::Below(20.0)));
}
