//! `vault version`.

use clap::Args;
use serde_json::json;

use crate::{context::Context, errors::Failure, output::report::Report};

/// Since 0.5.0 (stable).
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault version
  vault version --json

Since 0.5.0 (stable).")]
pub struct Arguments {}

/// Prints the version, and for programs the numbers of the formats that this binary reads and writes.
#[expect(clippy::unnecessary_wraps, reason = "commands share one signature")]
pub fn run(_context: &Context, _arguments: &Arguments) -> Result<Report, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    Ok(Report::new(
        json!({
            "version": version,
            "system": std::env::consts::OS,
            "processor": std::env::consts::ARCH,
            "formats": {
                "bundle": 1, "catalog": 1, "draft": 1, "index": 1,
                "key-rotation": 1, "policy": 1, "profile": 1, "skill-manifest": 1,
            },
        }),
        format!("vault {version}"),
    ))
}
