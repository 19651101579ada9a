//! Verifies exported skills (a folder, an archive, a bundle or a whole site) against their signed
//! manifests.
//!
//! Only signatures of accepted keys are trusted. The digests in an index and the paths in an
//! archive are compared with the manifest but not trusted.

use std::io;
use std::path::{Path, PathBuf};

use vault_skill::bundle::{Bundle, BundleError};
use vault_skill::finding::printable;
use vault_skill::gate::{self, RawFile};
use vault_skill::hash::Digest;
use vault_skill::keys::PublicKey;
use vault_skill::manifest::{
    MAX_SKILL_MD_BYTES, Manifest, ManifestError, ManifestExpectation, Mismatch, Mode, SKILL_MD,
    SignedManifest,
};

use super::site::{self, Entry, Index};
use super::{INDEX, SCHEMA, manifest_path, pack};
use crate::disk::source::{self, SourceError};
use crate::disk::{self, FileError, Kind};
use crate::installed::verify::Signer;
use crate::store::LIMITS;

/// The largest signed manifest that is read, in bytes.
const MAX_MANIFEST: u64 = 4 << 20;
/// The largest bundle that is read, in bytes.
const MAX_BUNDLE: u64 = vault_skill::bundle::MAX_OBJECT_BYTES as u64;

/// The kind of artifact that was verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// A folder with a signed manifest next to it or in it.
    Folder,
    /// A zip or gzipped tar archive with a signed manifest next to it.
    Archive,
    /// A bundle in the format that services store.
    Bundle,
    /// A skill of a site with a well-known index.
    Site,
}

/// A skill that matches its signed manifest exactly.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Path of the artifact.
    pub path: PathBuf,
    /// The kind of artifact.
    pub form: Form,
    /// The signed manifest.
    pub manifest: Manifest,
    /// The key that signed the manifest.
    pub signer: PublicKey,
}

/// Why something failed verification or could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The path does not exist.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// There is no signed manifest to compare with.
    #[error("{} has no signed manifest; {} is not there", path.display(), wanted.display())]
    Unsigned {
        /// The path that was to be verified.
        path: PathBuf,
        /// The expected path of the manifest.
        wanted: PathBuf,
    },
    /// The file has no format that can be verified.
    #[error("{} is no skill folder, archive, bundle or exported site", .0.display())]
    Unknown(PathBuf),
    /// The content was read, and it is wrong.
    #[error("{}: {fault}", path.display())]
    Wrong {
        /// The file or folder with the fault.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
    },
    /// The folder can't be read as a skill.
    #[error(transparent)]
    Folder(#[from] SourceError),
    /// A file system error.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What is wrong with an exported skill.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The manifest is invalid or not signed by an accepted key.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bundle is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A file differs in bytes or mode, is missing, or is not in the manifest.
    #[error("{} {what}", printable(file))]
    Content {
        /// Path of the file in the skill or site.
        file: String,
        /// How it differs.
        what: &'static str,
    },
    /// The archive can't be read.
    #[error(transparent)]
    Archive(#[from] io::Error),
    /// The index of a site is invalid.
    #[error("{0}")]
    Index(String),
}

impl VerifyError {
    /// Whether the content failed verification; false if the path could not be read or has no known
    /// format.
    pub const fn is_wrong(&self) -> bool {
        !matches!(
            self,
            Self::Missing(_)
                | Self::Unknown(_)
                | Self::File(_)
                | Self::Folder(SourceError::File(_))
        )
    }

    /// Whether the signature is not by an accepted key.
    pub const fn is_unknown_signer(&self) -> bool {
        use ManifestError::Signature;
        matches!(
            self,
            Self::Wrong {
                fault: Fault::Manifest(Signature) | Fault::Bundle(BundleError::Manifest(Signature)),
                ..
            }
        )
    }
}

/// Converts what is wrong at a path to an error.
fn wrong<F: Into<Fault>>(path: &Path) -> impl Fn(F) -> VerifyError {
    |fault| VerifyError::Wrong {
        path: path.to_owned(),
        fault: fault.into(),
    }
}

/// Verifies the artifact at `path`; for a site, every skill in it.
///
/// `manifest` is the path of a signed manifest that is not next to the folder or archive. A
/// signature by one of the `extra` keys is accepted on any skill. A signature by one of `keys` is
/// accepted only on skills of the vault that this key belongs to.
pub fn verify(
    path: &Path,
    manifest: Option<&Path>,
    keys: &[Signer],
    extra: &[PublicKey],
) -> Result<Vec<Verified>, VerifyError> {
    let verifier = Verifier { keys, extra };
    match disk::kind(path)? {
        None => Err(VerifyError::Missing(path.to_owned())),
        Some(Kind::Dir) => verifier.folder(path, manifest),
        Some(Kind::File) => verifier.file(path, manifest),
        Some(Kind::Link | Kind::Other) => Err(VerifyError::Unknown(path.to_owned())),
    }
}

struct Verifier<'a> {
    keys: &'a [Signer],
    extra: &'a [PublicKey],
}

impl Verifier<'_> {
    fn folder(&self, path: &Path, manifest: Option<&Path>) -> Result<Vec<Verified>, VerifyError> {
        for index in [path.join(INDEX), path.join("index.json")] {
            if manifest.is_none() && disk::kind(&index)? == Some(Kind::File) {
                return self.site(&index);
            }
        }
        // The layout of the vault's store: the manifest, and the files in a folder of their own.
        let inside = path.join("manifest.json");
        if manifest.is_none()
            && disk::kind(&inside)?.is_some()
            && disk::kind(&path.join(SKILL_MD))?.is_none()
        {
            let files = folder_files(&path.join("files"))?;
            return Ok(vec![self.compare(path, &inside, Form::Folder, &files)?]);
        }
        let absolute = disk::resolve(path)?;
        let beside = manifest.map_or_else(|| manifest_path(&absolute), Path::to_owned);
        let files = folder_files(path)?;
        Ok(vec![self.compare(path, &beside, Form::Folder, &files)?])
    }

    fn file(&self, path: &Path, manifest: Option<&Path>) -> Result<Vec<Verified>, VerifyError> {
        if path.file_name().is_some_and(|name| name == SKILL_MD) {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            return self.folder(folder.unwrap_or(Path::new(".")), manifest);
        }
        let unknown = || VerifyError::Unknown(path.to_owned());
        let bytes =
            disk::read(path, pack::MAX_ARCHIVE_BYTES.max(MAX_BUNDLE))?.ok_or_else(unknown)?;
        if bytes.starts_with(b"PK") || bytes.starts_with(&[0x1f, 0x8b]) {
            let beside = manifest.map_or_else(|| manifest_path(path), Path::to_owned);
            let files = pack::read(&bytes).map_err(wrong(path))?;
            return Ok(vec![self.compare(path, &beside, Form::Archive, &files)?]);
        }
        if bytes.starts_with(b"{") {
            return Ok(vec![self.bundle(path, &bytes)?]);
        }
        Err(unknown())
    }

    /// Verifies a site: each artifact must have the digest in the index and match its signed
    /// manifest.
    fn site(&self, path: &Path) -> Result<Vec<Verified>, VerifyError> {
        let bad = |reason| wrong(path)(Fault::Index(reason));
        let bytes = disk::read(path, site::MAX_INDEX)?.unwrap_or_default();
        let index: Index =
            serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if index.schema != SCHEMA {
            return Err(bad(format!("`$schema` is not {SCHEMA}")));
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        index
            .skills
            .iter()
            .map(|entry| self.entry(folder, path, entry))
            .collect()
    }

    fn entry(&self, folder: &Path, index: &Path, entry: &Entry) -> Result<Verified, VerifyError> {
        let bad = |reason| wrong(index)(Fault::Index(reason));
        let own_path = |text: &str| text.parse::<vault_skill::path::FilePath>().is_ok();
        if !own_path(&entry.url) || !own_path(&entry.name) {
            return Err(bad(format!("{:?} is not a file of this folder", entry.url)));
        }
        let path = folder.join(&entry.url);
        let differs = |what| {
            let file = entry.url.clone();
            wrong(index)(Fault::Content { file, what })
        };
        let bytes =
            disk::read(&path, pack::MAX_ARCHIVE_BYTES)?.ok_or_else(|| differs("is missing"))?;
        if entry.digest != format!("sha256:{}", Digest::of(&bytes)) {
            return Err(differs("has another digest than the index says"));
        }
        let files = match entry.kind.as_str() {
            "skill-md" if bytes.len() as u64 <= MAX_SKILL_MD_BYTES => vec![RawFile {
                path: SKILL_MD.to_owned(),
                mode: Mode::Plain,
                bytes,
            }],
            "archive" => pack::read(&bytes).map_err(wrong(&path))?,
            other => return Err(bad(format!("{} is of the type {other:?}", entry.name))),
        };
        let manifest = folder.join(format!("{}{}", entry.name, super::MANIFEST_SUFFIX));
        let verified = self.compare(&path, &manifest, Form::Site, &files)?;
        // Reject a valid skill that is listed under another skill's name.
        if verified.manifest.name.as_str() != entry.name {
            return Err(bad(format!(
                "what it calls {:?} is {}",
                entry.name, verified.manifest.name
            )));
        }
        Ok(verified)
    }

    fn bundle(&self, path: &Path, bytes: &[u8]) -> Result<Verified, VerifyError> {
        // A file that is named after a hash must have that hash.
        let named = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse::<Digest>().ok());
        let hash = named.unwrap_or_else(|| Digest::of(bytes));
        let bundle = Bundle::parse(bytes, &hash, bytes.len() as u64).map_err(wrong(path))?;
        let (manifest, signer) = self.signed(path, bundle.signed())?;
        let expected = ManifestExpectation {
            vault_id: manifest.vault_id,
            name: &manifest.name,
            version: None,
            stored_version: None,
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let part = |hash: &Digest| {
            disk::read(&folder.join(format!("{hash}.json")), MAX_BUNDLE)
                .ok()
                .flatten()
        };
        let opened = bundle
            .open(&part, &[signer], &expected)
            .map_err(wrong(path))?;
        Ok(Verified {
            path: path.to_owned(),
            form: Form::Bundle,
            manifest: opened.manifest,
            signer,
        })
    }

    /// Compares an artifact with the signed manifest at `manifest`.
    fn compare(
        &self,
        path: &Path,
        manifest: &Path,
        form: Form,
        found: &[RawFile],
    ) -> Result<Verified, VerifyError> {
        let bytes = disk::read(manifest, MAX_MANIFEST)?.ok_or_else(|| VerifyError::Unsigned {
            path: path.to_owned(),
            wanted: manifest.to_owned(),
        })?;
        let signed = SignedManifest::parse(&bytes).map_err(wrong(manifest))?;
        let (manifest, signer) = self.signed(manifest, &signed)?;
        let files = found
            .iter()
            .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice()));
        manifest
            .compare(files)
            .map_err(|Mismatch { file, what }| wrong(path)(Fault::Content { file, what }))?;
        Ok(Verified {
            path: path.to_owned(),
            form,
            manifest,
            signer,
        })
    }

    /// Verifies the signature; returns the manifest and the key that signed it.
    fn signed(
        &self,
        path: &Path,
        signed: &SignedManifest,
    ) -> Result<(Manifest, PublicKey), VerifyError> {
        let known = self.keys.iter().map(|known| known.key);
        let accepted: Vec<PublicKey> = self.extra.iter().copied().chain(known).collect();
        let signer = *signed
            .signer(&accepted)
            .ok_or(ManifestError::Signature)
            .map_err(wrong(path))?;
        let manifest = signed.verify_signature(&[signer]).map_err(wrong(path))?;
        // A key of a known vault must not sign for another vault.
        let known = self.keys.iter().find(|known| known.key == signer);
        if !self.extra.contains(&signer)
            && known.is_some_and(|known| known.vault_id != manifest.vault_id)
        {
            return Err(wrong(path)(ManifestError::VaultId));
        }
        Ok((manifest, signer))
    }
}

fn folder_files(path: &Path) -> Result<Vec<RawFile>, VerifyError> {
    Ok(source::read(path, LIMITS, &gate::is_ignored)?.files)
}
