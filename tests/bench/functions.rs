//! The functions on AWS beside an empty one: how long they take to start, to answer, and what
//! memory they need.

use std::process::Command;

use serde_json::Value;
use vault_tests::home::vault_binary;

use crate::meter::float;
use crate::table::{Row, Table, Target, say};

const EMPTY: &str = "empty lambda_http";
const KIB_IN_MB: f64 = 1024.0 / 1e6;

/// Runs the program that starts them, and makes rows of what it says.
pub fn measure(table: &mut Table) {
    say("functions");
    let binary = vault_binary();
    let builds = binary.ancestors().nth(2).expect("a folder of builds");
    // Built as they are deployed, which is not as the command is built.
    let ran = Command::new(builds.join("function/examples/measure"))
        .output()
        .expect("the built functions");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let figures: Value = serde_json::from_slice(&ran.stdout).expect("figures");
    let functions = figures["functions"].as_array().expect("functions");
    let (empty, ours) = functions.split_first().expect("the empty one first");
    let of = |function: &Value, what: &str| function[what].as_f64().expect("a figure");
    let name = |function: &Value| function["name"].as_str().expect("a name").to_owned();
    for function in ours {
        table.row(
            Row::new(
                format!("init of {}", name(function)),
                of(function, "init_ms"),
                "ms",
            )
            .beside(of(empty, "init_ms"), EMPTY)
            .target(Target::Most(5.0)),
        );
    }
    for function in ours {
        table.row(
            Row::new(
                format!("warm 401 of {}", name(function)),
                of(function, "warm_ms"),
                "ms",
            )
            .beside(of(empty, "warm_ms"), EMPTY),
        );
    }
    for function in ours {
        table.row(
            Row::new(
                format!("memory of {}, warm", name(function)),
                of(function, "resident_kib") * KIB_IN_MB,
                "MB",
            )
            .beside(of(empty, "resident_kib") * KIB_IN_MB, EMPTY),
        );
    }
    let catalog = &figures["catalog"];
    let calls = of(catalog, "calls");
    table.row(
        Row::new(
            "warm signed catalog of 1,000 skills through catalog",
            of(catalog, "warm_ms"),
            "ms",
        )
        .beside(of(catalog, "first_ms"), "its first"),
    );
    // The machine, the vault and the machine's last visit, in one request.
    for (what, target) in [("record_reads", 3.5), ("object_reads", 0.5)] {
        table.row(
            Row::new(
                format!("  {} of each", what.replace('_', " ")),
                of(catalog, what) / calls,
                "calls",
            )
            .target(Target::Below(target)),
        );
    }
    table.row(Row::new(
        "  memory after 400 of them",
        of(catalog, "resident_kib") * KIB_IN_MB,
        "MB",
    ));
    zips(table, &builds.join("function"));
}

/// The zips that were built last, by `infra/deploy` or `localstack/up`.
fn zips(table: &mut Table, release: &std::path::Path) {
    let folder = release.parent().expect("a folder").join("lambda");
    let sizes = ["oauth", "mcp", "admin", "devices", "catalog"].map(|function| {
        let zip = folder.join(function).join("bootstrap.zip");
        std::fs::metadata(zip).map_or(0, |found| found.len())
    });
    if sizes.contains(&0) {
        return say("no zips are built: see functions/README.md");
    }
    let largest = usize::try_from(sizes.into_iter().max().unwrap_or(0)).expect("a size");
    table.row(
        Row::new("largest zip of a function", float(largest) / 1e6, "MB")
            .target(Target::Below(8.0)),
    );
}
