//! Verifies exported skills (a folder, an archive, a bundle or a whole site) against their signed
//! manifests.
//!
//! Only signatures of accepted keys are trusted. The digests in an index and the paths in an
//! archive are compared with the manifest but not trusted.

use std::path::{Path, PathBuf};

use vault_skill::bundle::{Bundle, BundleError};
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
    /// The manifest is invalid or not signed by an accepted key.
    #[error("{}: {cause}", path.display())]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// What is wrong.
        cause: ManifestError,
    },
    /// The bundle is invalid.
    #[error("{}: {cause}", path.display())]
    Bundle {
        /// Path of the bundle.
        path: PathBuf,
        /// What is wrong.
        cause: BundleError,
    },
    /// A file differs in bytes or mode, is missing, or is not in the manifest.
    #[error("{}: {file} {what}", path.display())]
    Content {
        /// What was verified.
        path: PathBuf,
        /// Path of the file in the skill.
        file: String,
        /// How it differs.
        what: &'static str,
    },
    /// The archive can't be read.
    #[error("{}: {cause}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// The index of a site is invalid.
    #[error("{}: {reason}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The folder can't be read as a skill.
    #[error(transparent)]
    Folder(#[from] SourceError),
    /// A file system error.
    #[error(transparent)]
    File(#[from] FileError),
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
        matches!(
            self,
            Self::Manifest {
                cause: ManifestError::Signature,
                ..
            } | Self::Bundle {
                cause: BundleError::Manifest(ManifestError::Signature),
                ..
            }
        )
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
    let eye = Verifier { keys, extra };
    match disk::kind(path)? {
        None => Err(VerifyError::Missing(path.to_owned())),
        Some(Kind::Dir) => eye.folder(path, manifest),
        Some(Kind::File) => eye.file(path, manifest).map(|one| vec![one]),
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
            return self
                .against(path, &inside, Form::Folder, &files)
                .map(|one| vec![one]);
        }
        let absolute = disk::resolve(path)?;
        let beside = manifest.map_or_else(|| manifest_path(&absolute), Path::to_owned);
        let files = folder_files(path)?;
        self.against(path, &beside, Form::Folder, &files)
            .map(|one| vec![one])
    }

    fn file(&self, path: &Path, manifest: Option<&Path>) -> Result<Verified, VerifyError> {
        let too_large = || VerifyError::Unknown(path.to_owned());
        let bytes =
            disk::read(path, pack::MAX_ARCHIVE_BYTES.max(MAX_BUNDLE))?.ok_or_else(too_large)?;
        let beside = manifest.map_or_else(|| manifest_path(path), Path::to_owned);
        if bytes.starts_with(b"PK") || bytes.starts_with(&[0x1f, 0x8b]) {
            let files = archive_files(path, &bytes)?;
            return self.against(path, &beside, Form::Archive, &files);
        }
        if path.file_name().is_some_and(|name| name == SKILL_MD) {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            return self
                .folder(folder, manifest)?
                .pop()
                .ok_or_else(|| VerifyError::Unknown(path.to_owned()));
        }
        if bytes.starts_with(b"{") {
            return self.bundle(path, &bytes);
        }
        Err(VerifyError::Unknown(path.to_owned()))
    }

    /// Verifies a site: each artifact must have the digest in the index and match its signed
    /// manifest.
    fn site(&self, path: &Path) -> Result<Vec<Verified>, VerifyError> {
        let bad = |reason: String| VerifyError::Index {
            path: path.to_owned(),
            reason,
        };
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
        let bad = |reason: String| VerifyError::Index {
            path: index.to_owned(),
            reason,
        };
        let own_path = |text: &str| text.parse::<vault_skill::path::FilePath>().is_ok();
        if !own_path(&entry.url) || !own_path(&entry.name) {
            return Err(bad(format!("{:?} is not a file of this folder", entry.url)));
        }
        let path = folder.join(&entry.url);
        let wrong = |what| VerifyError::Content {
            path: index.to_owned(),
            file: entry.url.clone(),
            what,
        };
        let bytes =
            disk::read(&path, pack::MAX_ARCHIVE_BYTES)?.ok_or_else(|| wrong("is missing"))?;
        if entry.digest != format!("sha256:{}", Digest::of(&bytes)) {
            return Err(wrong("has another digest than the index says"));
        }
        let files = match entry.kind.as_str() {
            "skill-md" if bytes.len() as u64 <= MAX_SKILL_MD_BYTES => vec![RawFile {
                path: SKILL_MD.to_owned(),
                mode: Mode::Plain,
                bytes,
            }],
            "archive" => archive_files(&path, &bytes)?,
            other => return Err(bad(format!("{} is of the type {other:?}", entry.name))),
        };
        let manifest = folder.join(format!("{}{}", entry.name, super::MANIFEST_SUFFIX));
        let verified = self.against(&path, &manifest, Form::Site, &files)?;
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
        let failed = |cause| VerifyError::Bundle {
            path: path.to_owned(),
            cause,
        };
        // A file that is named after a hash must have that hash.
        let named = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse::<Digest>().ok());
        let hash = named.unwrap_or_else(|| Digest::of(bytes));
        let bundle = Bundle::parse(bytes, &hash, bytes.len() as u64).map_err(failed)?;
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
        let opened = bundle.open(&part, &[signer], &expected).map_err(failed)?;
        Ok(Verified {
            path: path.to_owned(),
            form: Form::Bundle,
            manifest: opened.manifest,
            signer,
        })
    }

    fn against(
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
        let signed = SignedManifest::parse(&bytes).map_err(|cause| VerifyError::Manifest {
            path: manifest.to_owned(),
            cause,
        })?;
        let (manifest, signer) = self.signed(manifest, &signed)?;
        compare(path, &manifest, found)?;
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
        let failed = |cause| VerifyError::Manifest {
            path: path.to_owned(),
            cause,
        };
        let all: Vec<PublicKey> = self
            .extra
            .iter()
            .copied()
            .chain(self.keys.iter().map(|known| known.key))
            .collect();
        let signer = *signed
            .signer(&all)
            .ok_or_else(|| failed(ManifestError::Signature))?;
        let manifest = signed.verify_signature(&[signer]).map_err(failed)?;
        // A key of a known vault must not sign for another vault.
        let known = self.keys.iter().find(|known| known.key == signer);
        if !self.extra.contains(&signer)
            && known.is_some_and(|known| known.vault_id != manifest.vault_id)
        {
            return Err(failed(ManifestError::VaultId));
        }
        Ok((manifest, signer))
    }
}

fn folder_files(path: &Path) -> Result<Vec<RawFile>, VerifyError> {
    let folder = source::read(path, LIMITS, &gate::is_ignored)?;
    Ok(folder.files)
}

fn archive_files(path: &Path, bytes: &[u8]) -> Result<Vec<RawFile>, VerifyError> {
    pack::read(bytes).map_err(|cause| VerifyError::Archive {
        path: path.to_owned(),
        cause,
    })
}

fn compare(path: &Path, manifest: &Manifest, found: &[RawFile]) -> Result<(), VerifyError> {
    let files = found
        .iter()
        .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice()));
    manifest
        .compare(files)
        .map_err(|Mismatch { file, what }| VerifyError::Content {
            path: path.to_owned(),
            file: vault_skill::finding::printable(&file),
            what,
        })
}
