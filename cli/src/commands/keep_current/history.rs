//! `vault history`: lists the versions of a skill that are still stored. vault counts the versions
//! of each skill, and signs each as a *bundle* (one file with the manifest and all files). A skill
//! is *held* if a rollback chose its version, so that updates leave it alone.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    hash::Digest,
    name::{SkillName, SkillRef},
    provenance::Provenance,
    time::Timestamp,
};
use vault_library::admit::history::{self, PastVersion};
use vault_sources::short_commit;

use crate::{
    context::Context,
    errors::Failure,
    lookup,
    output::{BOLD, DIM, GOOD, Report, WARN, clean, count, format_size, paint},
};

/// The arguments of `vault history`.
#[derive(Args, Debug)]
#[command(after_help = "\
Shows the versions that are still stored, newest first, with their recorded source. A dot marks \
the installed one. `vault rollback` goes back to one of them and holds it: updates leave it alone.

Examples:
  vault history code-review
  vault history code-review --json")]
pub struct Arguments {
    /// The skill
    name: SkillRef,
}

/// The output of `vault history`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct History {
    /// Installed name.
    name: SkillName,
    /// Stored versions of the skill, newest first.
    versions: Vec<StoredVersion>,
    /// Whether a rollback holds the installed version, so that updates leave it alone.
    held: bool,
}

/// A version of a skill whose bundle the vault has stored.
#[derive(Debug, JsonSchema, Serialize)]
pub struct StoredVersion {
    /// Version number in the skill's signed manifest.
    version: u64,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files).
    bundle_hash: Digest,
    /// True for the version that is installed now.
    installed: bool,
    /// When its manifest was signed, in UTC.
    signed_at: Timestamp,
    /// Where it came from, as its manifest states it.
    provenance: Provenance,
    /// The branch, tag or version that it was fetched by; null if none is recorded.
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Id of the git tree of the skill's folder; null if none is recorded.
    tree: Option<String>,
    /// Number of files of this version.
    files: usize,
    /// The size of all files, in bytes.
    bytes: u64,
    /// The oldest stored version with the same files; null if no older one has them.
    same_as: Option<u64>,
}

/// Lists the stored versions of the skill, newest first, and marks the installed one.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    let name = lookup::find_own(&vault, &arguments.name)?;
    let versions = history::list_versions(&vault, &name)?;
    // Every skill of this vault has a stored version. So the name is unknown, or its skill comes
    // from a linked vault.
    if versions.is_empty() {
        return Err(lookup::not_own(&vault, &name)?);
    }
    let held = history::list_held(&vault)?.contains(&name);
    let same_as: Vec<_> = (0..versions.len())
        .map(|at| find_same_files(&versions[at..]))
        .collect();
    let versions: Vec<_> = versions
        .into_iter()
        .zip(same_as)
        .map(|(past, same_as)| StoredVersion::new(past, same_as))
        .collect();
    let lines: Vec<_> = versions
        .iter()
        .map(|version| version.format_line(held && version.installed))
        .collect();
    let text = lines.join("\n");
    let view = History {
        name,
        versions,
        held,
    };
    Ok(Report::view(view, text))
}

/// Returns the number of the oldest version with the same files as the first of `versions`, which
/// are sorted, newest first. `None` if no older version has them.
fn find_same_files(versions: &[PastVersion]) -> Option<u64> {
    let (newest, older) = versions.split_first()?;
    // The files are compared and not the bundles, which always differ because each contains its
    // version number.
    let same = older.iter().map(|past| &past.manifest).rfind(|manifest| {
        manifest.version < newest.manifest.version && manifest.files == newest.manifest.files
    });
    same.map(|manifest| manifest.version)
}

impl StoredVersion {
    fn new(past: PastVersion, same_as: Option<u64>) -> Self {
        let (manifest, upstream) = (past.manifest, past.upstream);
        let (reference, tree) = upstream.map_or((None, None), |it| (it.reference, it.tree));
        Self {
            version: manifest.version,
            bundle_hash: past.bundle,
            installed: past.installed,
            signed_at: manifest.signed_at,
            provenance: manifest.provenance,
            reference,
            tree,
            files: manifest.files.len(),
            bytes: manifest.files.iter().map(|file| file.size).sum(),
            same_as,
        }
    }

    fn format_line(&self, held: bool) -> String {
        let mark = if self.installed {
            paint(GOOD, "●")
        } else {
            " ".to_owned()
        };
        let revision = self.provenance.revision.as_deref();
        let revision = revision.map_or_else(String::new, |revision| {
            // Without this, the shortened digest would consist mostly of its prefix.
            let text = revision.strip_prefix("sha256:").unwrap_or(revision);
            format!(" at {}", clean(short_commit(text), 40))
        });
        let mut marks = String::new();
        if let Some(same_as) = self.same_as {
            marks.push_str(&format!("  same as {same_as}"));
        }
        if held {
            marks.push_str(&format!("  {WARN}held{WARN:#}"));
        }
        format!(
            "{mark} {BOLD}version {}{BOLD:#}  {}  {DIM}{}, {}, from {}{revision}{DIM:#}{marks}",
            self.version,
            self.signed_at,
            count(self.files, "file"),
            format_size(self.bytes),
            clean(self.provenance.identifier.as_str(), 200)
        )
    }
}
