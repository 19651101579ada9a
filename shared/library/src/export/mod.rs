//! Exports skills in formats that other tools install from: an archive, or a site with a well-known
//! index.
//!
//! Every skill is verified when it is exported. The same skills always give the same bytes: names
//! are sorted, and times and owners are fixed. Each archive has its signed manifest beside it, so
//! that [`verify_export()`] can check it on any machine.

pub mod pack;
mod release;
mod site;
mod verify;

use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::name::{SkillName, SkillRef};

use crate::disk::{self, FileError, Kind};
use crate::run::{self, RunError, VerifiedSkill};
use crate::vault::{Vault, VaultError};

use release::Release;

pub use site::{INDEX, SCHEMA, SiteInput, SiteReport, export_site};
pub use verify::{Fault, Form, Verified, VerifyError, verify_export};

/// End of the name of the file with a release that lies beside a manifest. The rest of the name is
/// the same as that of the manifest, or the hash of the file in a site.
const CATALOG_SUFFIX: &str = ".catalog.json";

/// End of the name of a signed manifest. The rest of the name is that of the archive or folder.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";

/// Error of an export. Some files may have been written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A skill is not installed, is damaged, or can't be read.
    #[error(transparent)]
    Skill(#[from] RunError),
    /// A skill can't be packed into an archive.
    #[error("{name} can't be packed: {cause}")]
    Pack {
        /// Skill that is to be packed.
        name: SkillName,
        /// Error of writing the zip or tar format.
        cause: io::Error,
    },
    /// A file exists at this path, and the caller did not ask to replace it.
    #[error("{} exists", .0.display())]
    Exists(PathBuf),
    /// Something that is not a regular file stands in place of a file to write.
    #[error("{} is in the way", .0.display())]
    InTheWay(PathBuf),
    /// A file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The vault can't be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// A skill that was exported, with the file that clients install from.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Exported {
    /// Name under which the skill is installed.
    pub name: SkillName,
    /// Version in the signed manifest.
    pub version: u64,
    /// SHA-256 of the skill's bundle.
    #[serde(rename = "bundle_hash")]
    pub bundle: Digest,
    /// Path of the artifact that clients install from.
    pub file: PathBuf,
    /// SHA-256 of the artifact.
    pub sha256: Digest,
    /// Size of the artifact in bytes.
    pub size: u64,
    /// Whether other machines accept it only once enough publishers of its vault have signed a
    /// release that lists it.
    pub release_awaited: bool,
}

impl Exported {
    fn new(skill: &VerifiedSkill, file: PathBuf, artifact: &[u8], release: &Release) -> Self {
        Self {
            name: skill.name.clone(),
            version: skill.examined.manifest.version,
            bundle: skill.bundle,
            file,
            sha256: Digest::of(artifact),
            size: artifact.len() as u64,
            release_awaited: matches!(release, Release::Awaited),
        }
    }
}

/// The skill to export as a zip archive, and the path to write.
#[derive(Clone, Debug)]
pub struct ZipInput {
    /// Installed skill to export.
    pub skill: SkillRef,
    /// Path of the archive. The signed manifest is written beside it.
    pub file: PathBuf,
    /// Whether to overwrite existing files.
    pub replace: bool,
}

/// The files that a zip export has written.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct ZipReport {
    /// The skill, whose artifact is the zip archive.
    #[serde(flatten)]
    pub skill: Exported,
    /// Path of the signed manifest.
    pub manifest: PathBuf,
    /// Path of the release that lists the skill, where its vault needs several publishers for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<PathBuf>,
}

/// Writes an installed skill as a zip archive, with its files at the root, and the signed manifest
/// beside the archive. If releases of the skill's vault need several publishers, the release that
/// lists the skill is written there too.
pub fn export_zip(vault: &Vault, input: &ZipInput) -> Result<ZipReport, ExportError> {
    let skill = run::inspect_skill(vault, &input.skill)?;
    let release = Release::for_skill(vault, &skill)?;
    // The export contains the root versions (signed lists of the vault's keys), so other machines
    // may know them from now on.
    vault.note_roots_exported()?;
    let bytes = pack_files(&skill, pack::pack_zip)?;
    let manifest = manifest_path(&input.file);
    let catalog = release
        .bytes()
        .map(|bytes| (path_beside(&input.file, CATALOG_SUFFIX), bytes));
    // Check all paths before the first write, so that a rejected export changes nothing.
    if !input.replace {
        let catalog = catalog.as_ref().map(|(path, _)| path);
        for path in [&input.file, &manifest].into_iter().chain(catalog) {
            if disk::kind_at(path)?.is_some() {
                return Err(ExportError::Exists(path.clone()));
            }
        }
    }
    write_export(&input.file, &bytes)?;
    let mut catalog_name = None;
    if let Some((path, bytes)) = &catalog {
        write_export(path, bytes)?;
        catalog_name = path.file_name().and_then(|name| name.to_str());
    }
    // Write the manifest last. Without it, the other files do not verify.
    write_export(&manifest, &manifest_bytes(&skill, catalog_name))?;
    Ok(ZipReport {
        skill: Exported::new(&skill, input.file.clone(), &bytes, &release),
        manifest,
        catalog: catalog.map(|(path, _)| path),
    })
}

/// Returns the content of a manifest file: the signed envelope, the root versions of the skill's
/// vault, and the name of the file beside it with the release. A reader who has pinned the vault or
/// knows its fingerprint checks the signature against these root versions.
fn manifest_bytes(skill: &VerifiedSkill, catalog: Option<&str>) -> Vec<u8> {
    let envelope = skill.examined.signed.to_bytes();
    let Some(roots) = &skill.roots else {
        return envelope;
    };
    // The envelope is a non-empty JSON object, so more members can precede its own.
    let mut bytes = b"{\"roots\":".to_vec();
    bytes.extend(json::to_bytes(roots.chain()));
    if let Some(catalog) = catalog {
        bytes.extend(b",\"catalog\":");
        bytes.extend(json::to_bytes(catalog));
    }
    bytes.push(b',');
    bytes.extend_from_slice(envelope.get(1..).unwrap_or_default());
    bytes
}

fn pack_files(
    skill: &VerifiedSkill,
    format: impl Fn(&[File]) -> io::Result<Vec<u8>>,
) -> Result<Vec<u8>, ExportError> {
    format(&skill.examined.files).map_err(|cause| ExportError::Pack {
        name: skill.name.clone(),
        cause,
    })
}

/// Returns the path of the signed manifest of an archive or a folder: in the same folder, with
/// [`MANIFEST_SUFFIX`] in place of `.zip`, `.tar.gz` or `.tgz`.
pub fn manifest_path(of: &Path) -> PathBuf {
    path_beside(of, MANIFEST_SUFFIX)
}

fn path_beside(of: &Path, suffix: &str) -> PathBuf {
    let name = of
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let stem = [".tar.gz", ".tgz", ".zip"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    of.with_file_name(format!("{stem}{suffix}"))
}

/// Writes a file atomically. Fails if the path is something other than a regular file.
fn write_export(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    match disk::kind_at(path)? {
        None | Some(Kind::File) => {}
        Some(_) => return Err(ExportError::InTheWay(path.to_owned())),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Ok(disk::replace(path, bytes, 0o644, folder)?)
}
