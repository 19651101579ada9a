//! `vault export`: writes installed skills as a web site or a zip archive, which other tools can
//! read without vault. The signed manifest (the list of a skill's files and their digests) goes
//! with each skill, so that `vault verify` can check it anywhere.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use vault_library::export::{
    self, ExportError, Exported, SiteInput, SiteReport, ZipInput, ZipReport,
};

use crate::{
    context::Context,
    errors::{Failure, message_chain},
    lookup,
    output::{BOLD, DIM, HINT, Report, TICK, count, format_size, paint},
};

/// The arguments of `vault export`.
#[derive(Args, Debug)]
#[command(after_help = "\
Each skill is verified before it is exported, and the same skills give the same bytes. The signed \
manifest is written beside each skill, so `vault verify` can check it anywhere.

Examples:
  vault export well-known ./site
  vault export zip code-review")]
pub struct Arguments {
    #[command(subcommand)]
    form: Form,
}

#[derive(Debug, Subcommand)]
enum Form {
    /// Export a site with a well-known index, for any tool that follows the standard
    #[command(after_help = "\
Serve the folder as the root of a web site. It holds .well-known/agent-skills/index.json (version \
0.2.0) with digests, an archive or SKILL.md for each skill, and the signed manifest beside it. The \
page verify.html compares all of them with the vault's fingerprint in a visitor's browser, and \
reader.mjs does so with Node.

Examples:
  vault export well-known ./site
  vault export well-known ./site --skill pdf --skill code-review")]
    WellKnown(WellKnown),
    /// Export a skill as a zip archive
    #[command(after_help = "\
Examples:
  vault export zip code-review
  vault export zip code-review --output /tmp/code-review.zip --force")]
    Zip(Zip),
}

#[derive(Args, Debug)]
struct WellKnown {
    /// The folder to write, to be served as the root of a site
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// An installed skill; repeatable [default: all your own skills]
    #[arg(long = "skill", value_name = "NAME")]
    skills: Vec<String>,
}

#[derive(Args, Debug)]
struct Zip {
    /// The installed skill
    name: String,
    /// The archive [default: NAME.zip in this folder]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Verifies the skills and writes the site (`well-known`) or the archive (`zip`).
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.existing_vault()?;
    match &arguments.form {
        Form::WellKnown(asked) => {
            // All names are resolved before anything is written, so that an unknown name leaves no
            // half-written site.
            let mut skills = Vec::new();
            for name in &asked.skills {
                skills.push(lookup::parse_installed_name(vault.as_ref(), name)?.1);
            }
            let Some(vault) = vault else {
                return Err(fail!(NoVault, "there is no vault to export from")
                    .hint("vault add <folder> creates one with its first skill"));
            };
            let input = SiteInput {
                folder: asked.folder.clone(),
                skills,
            };
            let report = export::export_site(&vault, &input)
                .map_err(|error| export_failure(&vault, error))?;
            Ok(site_report(context, &report))
        }
        Form::Zip(asked) => {
            let (vault, name) = lookup::parse_installed_name(vault.as_ref(), &asked.name)?;
            let input = ZipInput {
                file: asked
                    .output
                    .clone()
                    .unwrap_or_else(|| PathBuf::from(format!("{}.zip", name.name))),
                skill: name,
                replace: asked.force,
            };
            let report =
                export::export_zip(vault, &input).map_err(|error| export_failure(vault, error))?;
            Ok(archive_report(context, &report))
        }
    }
}

/// Warns of each exported version that is in no release yet that enough publishers signed. Where
/// releases need several signatures, other machines do not accept it before.
fn warn_of_awaited<'a>(context: &Context, skills: impl IntoIterator<Item = &'a Exported>) {
    for skill in skills.into_iter().filter(|skill| skill.release_awaited) {
        let message = format!(
            "version {} of {} is in no release that enough publishers signed, so other machines do not accept it yet",
            skill.version, skill.name
        );
        context.ui.warn_with(
            "release_awaited",
            message,
            "vault sync --cloud, then export it again once it is released",
        );
    }
}

fn site_report(context: &Context, report: &SiteReport) -> Report {
    warn_of_awaited(context, &report.skills);
    // The index of the site holds a shortened description. The exported skill itself keeps the
    // signed one.
    for name in &report.shortened {
        let message = format!(
            "the index shows a shortened description of {name}: clients refuse one over 1,024 characters"
        );
        context
            .ui
            .warn_with("description_shortened", message, "shorten it in the skill");
    }
    for name in &report.renamed {
        let message = format!(
            "the SKILL.md of {name} has another name, so vault and other tools refuse {name} from this site"
        );
        context.ui.warn_with(
            "name_differs",
            message,
            "write the name in its SKILL.md, and add it again; or leave the skill out: --skill names the others",
        );
    }
    let mut lines: Vec<String> = report
        .skills
        .iter()
        .map(|skill| {
            let about = format!("version {}, {}", skill.version, format_size(skill.size));
            format!("{TICK} {BOLD}{}{BOLD:#}  {DIM}{about}{DIM:#}", skill.name)
        })
        .collect();
    if !report.removed.is_empty() {
        lines.push(paint(
            DIM,
            format_args!(
                "{} of an earlier export removed",
                count(report.removed.len() as u64, "file")
            ),
        ));
    }
    lines.push(format!("{HINT}index:{HINT:#} {}", report.index.display()));
    lines.push(format!("{HINT}page:{HINT:#}  {}", report.page.display()));
    Report::view(report, lines.join("\n"))
}

fn archive_report(context: &Context, report: &ZipReport) -> Report {
    let skill = &report.skill;
    warn_of_awaited(context, [skill]);
    let mut text = format!(
        "{TICK} {BOLD}{}{BOLD:#}  {DIM}version {}, {}, sha256 {}{DIM:#}\n  {}\n  {}",
        skill.name,
        skill.version,
        format_size(skill.size),
        skill.sha256,
        skill.file.display(),
        report.manifest.display()
    );
    // If releases need the signatures of several publishers, the catalog (the signed list of a
    // release's content) is written too: only it proves that enough have signed.
    if let Some(catalog) = &report.catalog {
        text.push_str(&format!("\n  {}", catalog.display()));
    }
    Report::view(report, text)
}

fn export_failure(vault: &vault_library::Vault, error: ExportError) -> Failure {
    let message = message_chain(&error);
    match error {
        ExportError::Skill(error) => lookup::suggest_name(vault, error),
        ExportError::Vault(error) => error.into(),
        ExportError::Exists(_) => fail!(FileExists, "{message}").hint("--force overwrites it"),
        ExportError::InTheWay(_) => fail!(InTheWay, "{message}"),
        ExportError::Pack { .. } => fail!(NotPacked, "{message}"),
        ExportError::File(_) => fail!(Io, "{message}"),
    }
}
