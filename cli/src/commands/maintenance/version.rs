//! `vault version`: prints the version of the program, or with `--licenses` the licences of vault
//! and of the packages that are compiled into it, or checks a downloaded release (`--verify`).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use schemars::JsonSchema;
use semver::Version;
use serde::Serialize;
use vault_library::Vault;
use vault_store::{clock::SystemClock, random::SystemRandom};

use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{Report, Warning},
    tasks::program_files::{self, Options, verify_archive},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The arguments of `vault version`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  vault version
  vault version --json
  vault version --licenses
  vault version --verify vault-0.5.0-x86_64-unknown-linux-gnu.tar.gz")]
pub struct Arguments {
    /// Print the licences of vault and its dependencies
    #[arg(long)]
    licenses: bool,
    /// Check a release archive and the signed files beside it, without a network
    #[arg(long, value_name = "ARCHIVE", conflicts_with = "licenses")]
    verify: Option<PathBuf>,
    /// Trust these signers instead of those in this program (format of ssh-keygen: ALLOWED SIGNERS)
    #[arg(long, value_name = "FILE", requires = "verify")]
    signers: Option<PathBuf>,
    /// Accept an archive that is older than this program
    #[arg(long, requires = "verify")]
    allow_older: bool,
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
    /// Version of the program, such as `0.5.0`.
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
    /// Text of all licences and notices, one after another.
    licenses: &'static str,
}

/// Prints the version; with `--json` also the platform and the format numbers. With `--licenses`,
/// prints the licences instead; with `--verify`, checks a release of the program.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    if arguments.licenses {
        let licenses = LICENCES;
        return Ok(Report::view(Licenses { licenses }, LICENCES));
    }
    if let Some(archive) = &arguments.verify {
        return verify(archive, arguments);
    }
    warn_about_newer_vault(context);
    let program = Program {
        version: VERSION,
        system: std::env::consts::OS,
        processor: std::env::consts::ARCH,
        formats: BTreeMap::from(FORMATS),
    };
    let text = format!("vault {}", program.version);
    Ok(Report::view(program, text))
}

/// Warns if this program is older than the vault that it would open. Any other problem is not for
/// this command.
fn warn_about_newer_vault(context: &Context) {
    let Ok(paths) = context.vault_paths() else {
        return;
    };
    let opened = Vault::open(paths, Arc::new(SystemClock), Arc::new(SystemRandom));
    if let Err(failure) = opened.map_err(Failure::from)
        && (failure.code == ErrorCode::VaultFormat || failure.code == ErrorCode::NewerVault)
    {
        let failure = failure.hint("the vault may be newer than this program: update vault");
        context.ui.warn(Warning::from(&failure));
    }
}

/// Checks a release archive with the signers of `--signers`, else those of this program.
fn verify(archive: &Path, arguments: &Arguments) -> Result<Report, Failure> {
    let (signers, signers_origin) = program_files::load_signers(arguments.signers.as_deref())?;
    let installed = Version::parse(VERSION)
        .map_err(|error| fail!(Internal, "the version of this program: {error}"))?;
    let verified = verify_archive(
        archive,
        &Options {
            signers: &signers,
            signers_origin: &signers_origin,
            lowest: (!arguments.allow_older).then_some(installed),
        },
    )?;
    let text = verified.describe();
    Ok(Report::view(verified, text))
}
