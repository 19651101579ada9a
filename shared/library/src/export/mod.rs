//! Skills out of the vault, in forms that other tools install from: an archive, or a site with a well-known index.
//!
//! What goes out was verified a moment before. The same skills give the same bytes: names are sorted, times are fixed, owners
//! are nobody. Beside each archive lies its signed manifest, so that [`verify`] can tell anywhere whether it is what was signed.

pub mod pack;
mod site;
mod verify;

use std::path::PathBuf;

use vault_skill::bundle::File;
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::manifest::Manifest;
use vault_skill::name::SkillName;

use crate::disk::{self, FileError, Kind};
use crate::run::{self, RunError};
use crate::vault::{Vault, VaultError};

pub use site::{INDEX, SCHEMA, SiteInput, SiteReport, SiteSkill, well_known};
pub use verify::{Form, Verified, VerifyError, verify};

/// What the signed manifest beside an archive or folder is called, after the name of what it belongs to.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";

/// Why nothing was written, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A skill is not installed, damaged, or can't be read.
    #[error(transparent)]
    Skill(#[from] RunError),
    /// A skill can't be put into an archive.
    #[error("{name} can't be packed: {cause}")]
    Pack {
        /// The skill.
        name: SkillName,
        /// What the packer says.
        cause: std::io::Error,
    },
    /// The file is there already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// Something that is no plain file or folder is in the way.
    #[error("{} is in the way", .0.display())]
    InTheWay(PathBuf),
    /// The system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The vault can't be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// A verified skill on its way out.
struct Outgoing {
    name: SkillName,
    bundle: Digest,
    manifest: Manifest,
    signed: Vec<u8>,
    signer: PublicKey,
    description: String,
    files: Vec<File>,
}

fn take(vault: &Vault, name: &SkillName) -> Result<Outgoing, ExportError> {
    let inspected = run::inspect(vault, name)?;
    let examined = inspected.examined;
    Ok(Outgoing {
        name: inspected.name,
        bundle: inspected.bundle,
        signed: examined.signed.to_bytes(),
        signer: inspected.signer,
        manifest: examined.manifest,
        description: inspected
            .frontmatter
            .map(|frontmatter| frontmatter.description)
            .unwrap_or_default(),
        files: examined.files,
    })
}

/// What to write as a zip archive.
#[derive(Clone, Debug)]
pub struct ZipInput {
    /// The installed skill.
    pub skill: SkillName,
    /// The archive; its signed manifest goes beside it.
    pub file: PathBuf,
    /// Write over files that are there.
    pub replace: bool,
}

/// An archive that was written.
#[derive(Clone, Debug)]
pub struct ZipReport {
    /// The skill.
    pub name: SkillName,
    /// Its version.
    pub version: u64,
    /// Its bundle.
    pub bundle: Digest,
    /// The archive.
    pub file: PathBuf,
    /// Its SHA-256.
    pub sha256: Digest,
    /// Its bytes.
    pub size: u64,
    /// The signed manifest beside it.
    pub manifest: PathBuf,
}

/// Writes an installed skill as a zip archive with its files at the root, and its signed manifest beside it.
pub fn zip(vault: &Vault, input: &ZipInput) -> Result<ZipReport, ExportError> {
    let skill = take(vault, &input.skill)?;
    let bytes = pack::zip(&skill.files).map_err(|cause| ExportError::Pack {
        name: skill.name.clone(),
        cause,
    })?;
    let manifest = manifest_path(&input.file);
    if !input.replace {
        for path in [&input.file, &manifest] {
            if disk::kind(path)?.is_some() {
                return Err(ExportError::Exists(path.clone()));
            }
        }
    }
    put(&input.file, &bytes)?;
    put(&manifest, &skill.signed)?;
    Ok(ZipReport {
        name: skill.name,
        version: skill.manifest.version,
        bundle: skill.bundle,
        file: input.file.clone(),
        sha256: Digest::of(&bytes),
        size: bytes.len() as u64,
        manifest,
    })
}

/// Where the signed manifest of an archive or a folder lies: beside it, its endings `.zip`, `.tar.gz` and `.tgz` left out.
pub fn manifest_path(of: &std::path::Path) -> PathBuf {
    let name = of
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let stem = [".tar.gz", ".tgz", ".zip"]
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    of.with_file_name(format!("{stem}{MANIFEST_SUFFIX}"))
}

/// Writes a file whole or not at all; what is there must be a plain file.
fn put(path: &std::path::Path, bytes: &[u8]) -> Result<(), ExportError> {
    match disk::kind(path)? {
        None | Some(Kind::File) => {}
        Some(_) => return Err(ExportError::InTheWay(path.to_owned())),
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => std::path::Path::new("."),
    };
    Ok(disk::replace(path, bytes, 0o644, folder)?)
}
