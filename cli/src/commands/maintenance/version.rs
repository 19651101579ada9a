//! `vault version`: prints the version of the program, or with `--licenses` the licences of vault
//! and of the packages that are compiled into it.

use std::collections::BTreeMap;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

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

/// The notice and licence of vault, followed by the notices of the packages that are compiled into
/// it.
// The texts are compiled in, because many licences require that their text comes with every copy of
// the program.
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

/// The version number of each signed format that this program writes, by the format's name.
const FORMATS: [(&str, u32); 8] = [
    ("bundle", 1),
    ("catalog", 2),
    ("draft", 2),
    ("index", 2),
    ("policy", 1),
    ("profile", 1),
    ("root", 1),
    ("skill-manifest", 2),
];

/// This build of vault.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Program {
    /// The version of the program.
    version: &'static str,
    /// The operating system that it was built for, such as `linux`.
    system: &'static str,
    /// The processor that it was built for, such as `x86_64`.
    processor: &'static str,
    /// The number of each format that it writes, by the format's name.
    formats: BTreeMap<&'static str, u32>,
}

/// The licences of vault and its dependencies.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Licenses {
    /// Their text.
    licenses: &'static str,
}

/// Prints the version; with `--json` also the platform and the format numbers. With `--licenses`,
/// prints the licences instead.
#[expect(clippy::unnecessary_wraps, reason = "commands share one signature")]
pub fn run(_context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.licenses {
        let licenses = LICENCES;
        return Ok(Report::view(Licenses { licenses }, LICENCES));
    }
    let program = Program {
        version: env!("CARGO_PKG_VERSION"),
        system: std::env::consts::OS,
        processor: std::env::consts::ARCH,
        formats: BTreeMap::from(FORMATS),
    };
    let text = format!("vault {}", program.version);
    Ok(Report::view(program, text))
}
