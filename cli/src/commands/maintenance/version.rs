//! `vault version`: prints the version or the licences.

use clap::Args;
use serde_json::json;

use crate::{context::Context, errors::Failure, output::Report};

/// The arguments of `vault version`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault version
  vault version --json
  vault version --licenses")]
pub struct Arguments {
    /// Print the licences of vault and its dependencies
    #[arg(long)]
    licenses: bool,
}

/// The notice and licence of vault, and the notices of the packages in the program.
const LICENCES: &str = concat!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../NOTICE")),
    "\n",
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE")),
    "\n",
    include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../THIRD-PARTY-NOTICES.md"
    )),
);

/// Prints the version. The JSON data also has the numbers of the formats that this binary reads and
/// writes.
#[expect(clippy::unnecessary_wraps, reason = "commands share one signature")]
pub fn run(_context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.licenses {
        return Ok(Report::new(json!({ "licenses": LICENCES }), LICENCES));
    }
    let version = env!("CARGO_PKG_VERSION");
    Ok(Report::new(
        json!({
            "version": version,
            "system": std::env::consts::OS,
            "processor": std::env::consts::ARCH,
            "formats": {
                "bundle": 1, "catalog": 2, "draft": 2, "index": 2,
                "policy": 1, "profile": 1, "root": 1, "skill-manifest": 2,
            },
        }),
        format!("vault {version}"),
    ))
}
