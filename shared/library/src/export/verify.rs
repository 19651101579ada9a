//! Verifies exported skills (a folder, an archive, a bundle or a whole site) against their signed
//! manifests.
//!
//! An export contains the root versions (signed lists of the vault's keys) beside each manifest.
//! They are accepted only if the reader has pinned the vault or names its fingerprint. If releases
//! need several publishers, an export also contains the release that lists the skill. The digests
//! in an index and the paths in an archive are compared with the manifest and decide nothing by
//! themselves.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::bundle;
use vault_format::bundle::{Bundle, BundleError};
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::json;
use vault_format::keys::PublicKey;
use vault_format::manifest::{
    ExportMembers, MAX_SKILL_MD_BYTES, Manifest, ManifestError, ManifestExpectation, ManifestTrust,
    Mismatch, Mode, SKILL_MD, SignedManifest,
};
use vault_format::path::FilePath;
use vault_format::root::{
    RootChain, RootError, RootList, RootState, RootWarning, SignerRefusal, SkillPlace,
    VaultFingerprint, judge_archive,
};
use vault_format::text::printable;
use vault_gate::{self as gate, RawFile};

use super::site::{self, SiteEntry, SiteIndex};
use super::{INDEX, SCHEMA, manifest_path, pack, release};
use crate::disk::source::{self, SourceError};
use crate::disk::{self, FileError, Kind};
use crate::installed::verified_contents::KnownVault;
use crate::store::LIMITS;

/// Size limit of a signed manifest, in bytes.
const MAX_MANIFEST: u64 = 4 << 20;
/// Size limit of a bundle, in bytes.
const MAX_BUNDLE: u64 = vault_format::bundle::MAX_OBJECT_BYTES as u64;

/// Path in a folder at which a copy of its manifest may lie.
const OWN_MANIFEST: &str = ".vault/manifest.json";

/// The form in which an exported skill was found.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
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
    /// Path of the artifact that was verified.
    pub path: PathBuf,
    /// Form in which the artifact at `path` contains the skill.
    pub form: Form,
    /// Content of the signed manifest.
    pub manifest: Manifest,
    /// Key that signed the manifest.
    pub signer: PublicKey,
    /// Fingerprint of the vault that the skill belongs to.
    pub fingerprint: VaultFingerprint,
    /// Warnings about the vault's root versions, for the user.
    pub warnings: Vec<RootWarning>,
    /// Files that are not executable although they were signed as executable. Many ways of copying
    /// lose that mode.
    pub lost_modes: Vec<FilePath>,
    /// Folder that contains the files; `None` if the artifact is not a folder.
    pub(crate) folder: Option<PathBuf>,
}

impl Verified {
    /// Makes the files of [`Verified::lost_modes`] executable for everybody who may read them.
    /// Returns false and changes nothing if the artifact is not a folder.
    pub fn fix_modes(&self) -> Result<bool, VerifyError> {
        let Some(folder) = &self.folder else {
            return Ok(false);
        };
        for file in &self.lost_modes {
            disk::make_executable(&folder.join(file.as_str()))?;
        }
        Ok(true)
    }
}

/// Error of a verification: the content is wrong, or it can't be read.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Nothing is at the path that should be verified.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// There is no signed manifest to compare with.
    #[error("{} has no signed manifest: there is no {}", path.display(), wanted.display())]
    Unsigned {
        /// Path that should be verified.
        path: PathBuf,
        /// Path at which the manifest should be.
        wanted: PathBuf,
    },
    /// The file is of no kind that can be verified.
    #[error("{} is not a skill folder, archive, bundle or exported site", .0.display())]
    Unknown(PathBuf),
    /// The content was read, and it is not what was signed.
    #[error("{}: {fault}", path.display())]
    Wrong {
        /// File or folder that is wrong.
        path: PathBuf,
        /// Fault that was found there.
        fault: Fault,
    },
    /// The folder can't be read as a skill.
    #[error(transparent)]
    Folder(#[from] SourceError),
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A way in which an exported skill differs from what its vault signed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The manifest is invalid, or no accepted key signed it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// This reader does not accept the root versions beside the manifest.
    #[error(transparent)]
    Roots(#[from] RootError),
    /// The bytes are not a valid bundle, or not the bundle that its file name promises.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A file differs in its bytes or mode, is missing, or is not in the manifest.
    #[error("{} {what}", printable(file))]
    Content {
        /// Path of the file in the skill or site.
        file: String,
        /// Difference from the signed file, as the end of the message.
        what: &'static str,
    },
    /// The archive is damaged, exceeds a limit, or has entries that some tools would unpack
    /// differently.
    #[error(transparent)]
    Archive(#[from] io::Error),
    /// The index of a site is not valid, for this reason.
    #[error("{0}")]
    Index(String),
}

impl VerifyError {
    /// Whether the content failed verification. False if the path can't be read or is of no known
    /// kind.
    pub const fn is_wrong(&self) -> bool {
        !matches!(
            self,
            Self::Missing(_)
                | Self::Unknown(_)
                | Self::File(_)
                | Self::Folder(SourceError::File(_))
        )
    }

    /// Returns the code of the fault for machines; `None` if the formats define no code for it.
    pub fn fault_code(&self) -> Option<&'static str> {
        match self {
            Self::Wrong {
                fault: Fault::Manifest(cause) | Fault::Bundle(BundleError::Manifest(cause)),
                ..
            } => Some(cause.error_code()),
            Self::Wrong {
                fault: Fault::Roots(cause),
                ..
            } => Some(cause.error_code()),
            _ => None,
        }
    }
}

/// Returns a closure for `map_err` that turns a fault at a path into an error.
fn wrong_at<F: Into<Fault>>(path: &Path) -> impl Fn(F) -> VerifyError {
    |fault| VerifyError::Wrong {
        path: path.to_owned(),
        fault: fault.into(),
    }
}

/// Verifies the artifact at `path`. For a site, verifies every skill in it.
///
/// `manifest` is the path of a signed manifest that is not next to the folder or archive. `known`
/// are the vaults whose keys this machine knows; `expected` is a fingerprint that the vault must
/// have.
pub fn verify_export(
    path: &Path,
    manifest: Option<&Path>,
    known: &[KnownVault],
    expected: Option<&VaultFingerprint>,
) -> Result<Vec<Verified>, VerifyError> {
    let verifier = Verifier { known, expected };
    match disk::kind_at(path)? {
        None => Err(VerifyError::Missing(path.to_owned())),
        Some(Kind::Dir) => verifier.verify_folder(path, manifest),
        Some(Kind::File) => verifier.verify_file(path, manifest),
        Some(Kind::Link | Kind::Other) => Err(VerifyError::Unknown(path.to_owned())),
    }
}

struct Verifier<'a> {
    known: &'a [KnownVault],
    expected: Option<&'a VaultFingerprint>,
}

/// The root versions against which a manifest is checked.
struct AcceptedRoots {
    state: RootState,
    warnings: Vec<RootWarning>,
}

impl AcceptedRoots {
    /// Returns the trust for reading a manifest, even one that a retired publisher signed.
    /// [`Verifier::accepted_signer`] decides whether the signer is accepted.
    const fn manifest_trust(&self) -> ManifestTrust<'_> {
        ManifestTrust {
            state: &self.state,
            place: SkillPlace::Archive { listed: true },
        }
    }
}

impl Verifier<'_> {
    fn verify_folder(
        &self,
        path: &Path,
        manifest: Option<&Path>,
    ) -> Result<Vec<Verified>, VerifyError> {
        for index in [path.join(INDEX), path.join("index.json")] {
            if manifest.is_none() && disk::kind_at(&index)? == Some(Kind::File) {
                return self.verify_site(&index);
            }
        }
        // This is the layout of the vault's store: the manifest, and the files in a subfolder.
        let inside = path.join("manifest.json");
        if manifest.is_none()
            && disk::kind_at(&inside)?.is_some()
            && disk::kind_at(&path.join(SKILL_MD))?.is_none()
        {
            return Ok(vec![self.files_of_folder(
                path,
                &path.join("files"),
                &inside,
            )?]);
        }
        // Resolve the path first, because `.` has no name from which that of the manifest follows.
        let absolute = disk::resolve(path)?;
        let beside = manifest.map_or_else(|| manifest_path(&absolute), Path::to_owned);
        let copy = path.join(OWN_MANIFEST);
        let is_beside = manifest.is_some() || disk::kind_at(&beside)?.is_some();
        let at = if is_beside || disk::kind_at(&copy)?.is_none() {
            beside
        } else {
            copy
        };
        Ok(vec![self.files_of_folder(path, path, &at)?])
    }

    fn files_of_folder(
        &self,
        path: &Path,
        folder: &Path,
        manifest: &Path,
    ) -> Result<Verified, VerifyError> {
        // Compare files of editors and version control as well, because an agent would read them.
        let mut files = source::read_skill_folder(folder, LIMITS, &|_| false)?.files;
        files.retain(|file| !gate::is_system_metadata(&file.path));
        let verified = self.compare_with_manifest(path, manifest, Form::Folder, files)?;
        Ok(Verified {
            folder: Some(folder.to_owned()),
            ..verified
        })
    }

    fn verify_file(
        &self,
        path: &Path,
        manifest: Option<&Path>,
    ) -> Result<Vec<Verified>, VerifyError> {
        if path.file_name().is_some_and(|name| name == SKILL_MD) {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            return self.verify_folder(folder.unwrap_or(Path::new(".")), manifest);
        }
        let unknown = || VerifyError::Unknown(path.to_owned());
        let bytes =
            disk::read(path, pack::MAX_ARCHIVE_BYTES.max(MAX_BUNDLE))?.ok_or_else(unknown)?;
        if bytes.starts_with(b"PK") || bytes.starts_with(&[0x1f, 0x8b]) {
            let beside = manifest.map_or_else(|| manifest_path(path), Path::to_owned);
            let files = pack::read_archive(&bytes).map_err(wrong_at(path))?;
            return Ok(vec![self.compare_with_manifest(
                path,
                &beside,
                Form::Archive,
                files,
            )?]);
        }
        if bytes.starts_with(b"{") {
            return Ok(vec![self.verify_bundle(path, &bytes)?]);
        }
        Err(unknown())
    }

    /// Verifies a site: each artifact must have the digest in the index, and match its signed
    /// manifest.
    fn verify_site(&self, path: &Path) -> Result<Vec<Verified>, VerifyError> {
        let bad = |reason| wrong_at(path)(Fault::Index(reason));
        let bytes = disk::read(path, site::MAX_INDEX)?.unwrap_or_default();
        let index: SiteIndex =
            serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if index.schema != SCHEMA {
            return Err(bad(format!("`$schema` is not {SCHEMA}")));
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        index
            .skills
            .iter()
            .map(|entry| self.verify_entry(folder, path, entry))
            .collect()
    }

    fn verify_entry(
        &self,
        folder: &Path,
        index: &Path,
        entry: &SiteEntry,
    ) -> Result<Verified, VerifyError> {
        let bad = |reason| wrong_at(index)(Fault::Index(reason));
        // The index is not signed, so its paths must not lead out of its folder.
        let own_path = |text: &str| text.parse::<vault_format::path::FilePath>().is_ok();
        if !own_path(&entry.url) || !own_path(&entry.name) {
            return Err(bad(format!("{:?} is not a file of this folder", entry.url)));
        }
        let path = folder.join(&entry.url);
        let differs = |what| {
            let file = entry.url.clone();
            wrong_at(index)(Fault::Content { file, what })
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
            "archive" => pack::read_archive(&bytes).map_err(wrong_at(&path))?,
            other => return Err(bad(format!("{} is of the type {other:?}", entry.name))),
        };
        let manifest = folder.join(format!("{}{}", entry.name, super::MANIFEST_SUFFIX));
        let verified = self.compare_with_manifest(&path, &manifest, Form::Site, files)?;
        // Reject a valid skill that the index lists under the name of another one.
        if verified.manifest.name.as_str() != entry.name {
            return Err(bad(format!(
                "what it calls {:?} is {}",
                entry.name, verified.manifest.name
            )));
        }
        Ok(verified)
    }

    fn verify_bundle(&self, path: &Path, bytes: &[u8]) -> Result<Verified, VerifyError> {
        // If the file's name is a hash, the content must have that hash.
        let named = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse::<Digest>().ok());
        let hash = named.unwrap_or_else(|| Digest::of(bytes));
        let bundle = Bundle::parse(bytes, &hash, bytes.len() as u64).map_err(wrong_at(path))?;
        let judged = self
            .find_roots(bundle.signed_manifest(), None)
            .map_err(wrong_at(path))?;
        let signed = bundle.signed_manifest().clone();
        let trust = judged.manifest_trust();
        let manifest = signed.verify_signature(&trust).map_err(wrong_at(path))?;
        let expected = ManifestExpectation {
            name: &manifest.name,
            version: None,
            stored_version: None,
        };
        // The parts of a large bundle are files beside it, each with its hash as name.
        let folder = path.parent().unwrap_or(Path::new("."));
        let part = |hash: &Digest| {
            disk::read(&folder.join(format!("{hash}.json")), MAX_BUNDLE)
                .ok()
                .flatten()
        };
        let opened = bundle
            .open(&part, &trust, &expected)
            .map_err(wrong_at(path))?;
        let signer = self
            .accepted_signer(&signed, &judged, (&hash, &BTreeSet::new()))
            .map_err(wrong_at(path))?;
        Ok(build_verified(
            path,
            Form::Bundle,
            opened.manifest,
            signer,
            judged,
        ))
    }

    /// Compares an artifact with the signed manifest at `manifest`.
    fn compare_with_manifest(
        &self,
        path: &Path,
        manifest: &Path,
        form: Form,
        mut files_found: Vec<RawFile>,
    ) -> Result<Verified, VerifyError> {
        let bytes = disk::read(manifest, MAX_MANIFEST)?.ok_or_else(|| VerifyError::Unsigned {
            path: path.to_owned(),
            wanted: manifest.to_owned(),
        })?;
        let export: ExportMembers = json::parse(&bytes)
            .map_err(|error| wrong_at(manifest)(ManifestError::Envelope(error.into())))?;
        // The hash of a bundle covers the envelope as it was signed, without the root versions.
        let envelope = Envelope::parse(&bytes)
            .map_err(|error| wrong_at(manifest)(ManifestError::Envelope(error)))?;
        let signed = SignedManifest::parse(&envelope.to_bytes()).map_err(wrong_at(manifest))?;
        // An exact copy of the manifest among the files adds nothing, so leave it out.
        files_found.retain(|file| {
            file.path != OWN_MANIFEST || (file.bytes != bytes && file.bytes != signed.as_bytes())
        });
        let judged = self
            .find_roots(&signed, export.roots.as_ref())
            .map_err(wrong_at(manifest))?;
        let content = signed
            .verify_signature(&judged.manifest_trust())
            .map_err(wrong_at(manifest))?;
        let files = files_found
            .iter()
            .map(|file| (file.path.as_str(), file.mode, file.bytes.as_slice()));
        let lost_modes = content
            .compare_but_lost_modes(files)
            .map_err(|Mismatch { file, what }| wrong_at(path)(Fault::Content { file, what }))?;
        let lost_modes = lost_modes.into_iter().cloned().collect();
        let released = match &export.catalog {
            Some(name) => release::carried_bundles(manifest, name, &judged.state)?,
            None => BTreeSet::new(),
        };
        let bytes = |path: &FilePath| {
            let file = files_found.iter().find(|file| file.path == path.as_str())?;
            Some(file.bytes.clone())
        };
        let bundle = bundle::compute_bundle_hash(&signed, &content, bytes);
        let signer = bundle
            .ok_or(ManifestError::Signer(SignerRefusal::Signature))
            .and_then(|bundle| self.accepted_signer(&signed, &judged, (&bundle, &released)))
            .map_err(wrong_at(manifest))?;
        Ok(Verified {
            lost_modes,
            ..build_verified(path, form, content, signer, judged)
        })
    }

    /// Returns the root versions against which a manifest is checked: those of a vault that this
    /// machine knows, or those beside the manifest if this reader accepts them.
    fn find_roots(
        &self,
        signed: &SignedManifest,
        carried: Option<&RootList>,
    ) -> Result<AcceptedRoots, Fault> {
        let Some(roots) = carried else {
            // Without root versions beside the manifest, only a vault that this machine knows can
            // have signed it.
            let known_roots = self.known.iter().map(|known| known.trust.roots());
            let mut fitting = known_roots.filter(|state| signed.signer(state).is_some());
            let state = fitting.next().cloned();
            let warnings = Vec::new();
            return match state {
                Some(state) => Ok(AcceptedRoots { state, warnings }),
                None => Err(ManifestError::Signer(SignerRefusal::Signature).into()),
            };
        };
        // A valid chain only shows which vault it claims to be. `judge_archive` decides whether
        // this reader accepts it.
        let claimed_chain = RootChain::verify(roots)?;
        let own = self
            .known_vault(&claimed_chain)
            .map(|known| known.trust.roots());
        let judged = judge_archive(own, roots, self.expected)?;
        Ok(AcceptedRoots {
            state: judged.state,
            warnings: judged.warnings,
        })
    }

    fn known_vault(&self, chain: &RootChain) -> Option<&KnownVault> {
        let id = chain.vault_id();
        let mut vaults = self.known.iter();
        vaults.find(|known| known.trust.roots().vault_id() == id)
    }

    /// Returns the key that signed a bundle, if it is accepted there. The key of a publisher is
    /// accepted. The key of a retired publisher is accepted if an accepted catalog or `released`
    /// lists the bundle. If releases need several publishers, every bundle must be listed.
    fn accepted_signer(
        &self,
        signed: &SignedManifest,
        judged: &AcceptedRoots,
        (bundle, released): (&Digest, &BTreeSet<Digest>),
    ) -> Result<PublicKey, ManifestError> {
        let state = &judged.state;
        let signer = signed.signer(state);
        let known_vault = self.known_vault(state.chain());
        let place = SkillPlace::Archive {
            listed: released.contains(bundle)
                || known_vault.is_some_and(|known| known.listed.contains(bundle)),
        };
        state.judge_signer(signer.as_ref(), place)?;
        signer.ok_or(ManifestError::Signer(SignerRefusal::Signature))
    }
}

fn build_verified(
    path: &Path,
    form: Form,
    manifest: Manifest,
    signer: PublicKey,
    judged: AcceptedRoots,
) -> Verified {
    Verified {
        path: path.to_owned(),
        form,
        manifest,
        signer,
        fingerprint: judged.state.chain().fingerprint(),
        warnings: judged.warnings,
        lost_modes: Vec::new(),
        folder: None,
    }
}
