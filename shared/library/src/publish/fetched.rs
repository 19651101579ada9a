//! Bundles of a release as the caller fetched them: opened, verified, and judged by this machine's
//! gate.

use vault_format::bundle;
use vault_format::bundle::{Bundle, OpenedBundle};
use vault_format::catalog::{CatalogError, SkillEntry};
use vault_format::hash::Digest;
use vault_format::manifest::ManifestExpectation;
use vault_format::name::SkillName;
use vault_gate::derived::DerivedMismatch;

use super::error::PlanError;
use crate::admit::{
    AdmitError, Candidate, Earlier, Neighbours, Options, Purpose, Source, examine_candidate,
};
use crate::disk::{self, FileError};
use crate::store::{self, Trusted};
use crate::vault::keys::KeyError;
use crate::vault::{Vault, VaultError};

/// Returns the bytes of an object of the namespace; `None` if the caller did not fetch it. The
/// bytes are unverified.
pub type Fetched<'a> = &'a dyn Fn(&Digest) -> Option<Vec<u8>>;

/// The exceptions that this machine's owner grants: findings of the gate that they accept.
/// Exceptions in the manifests of other publishers do not apply.
#[derive(Clone, Debug)]
pub struct Exceptions {
    /// Whether security findings block a skill.
    pub strict: bool,
    /// Rules, by name or id, whose findings the owner accepts for exactly the bytes that they were
    /// shown.
    pub allow: Vec<String>,
    /// The owner's reason, recorded with each exception.
    pub reason: Option<String>,
}

impl Exceptions {
    pub(super) fn options(&self) -> Options {
        Options {
            strict: self.strict,
            allow: self.allow.clone(),
            reason: self.reason.clone(),
            ..Options::default()
        }
    }
}

/// Error of adopting content of a release, or of rolling back to one. Nothing has changed, unless
/// [`roll_back`](super::adopt::roll_back) failed while it removed skills.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The catalog belongs to another vault or namespace, or this vault does not trust its keys or
    /// signatures. Holds the reason.
    #[error("the catalog is not this vault's: {0}")]
    NotOurs(&'static str),
    /// The catalog has another release number than the requested one.
    #[error("the service shows release {shown} where release {asked} was asked for")]
    OtherRelease {
        /// Release that was requested.
        asked: u64,
        /// Release that the catalog contains.
        shown: u64,
    },
    /// The catalog can't be parsed or verified.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A bundle is missing or does not match its entry in the catalog.
    #[error("the bundle of {name} is not usable: {reason}")]
    Bundle {
        /// Skill whose bundle is not usable, by its name in the catalog.
        name: SkillName,
        /// Description of what is missing or differs, for the message.
        reason: String,
    },
    /// The gate blocked a skill, or it can't be installed for another reason.
    #[error("{name}: {reason}")]
    Refused {
        /// Skill that is rejected, by its name in the catalog.
        name: SkillName,
        /// Findings of the gate, or why the skill can't be installed.
        reason: AdmitError,
    },
    /// The manifest of a skill declares something that its files do not.
    #[error("{name}: {reason}")]
    Derived {
        /// Skill with this manifest, by its name in the catalog.
        name: SkillName,
        /// Name of the member of the manifest that does not follow from the files.
        reason: DerivedMismatch,
    },
    /// The search texts of the release do not follow from its skills.
    #[error("the search texts of the release are not those of its skills")]
    Index,
    /// A profile of the release is missing, can't be read, or names other skills.
    #[error("the profile {0:?} of the release is not usable")]
    Profile(String),
    /// The policy of the release can't be used.
    #[error("the policy of the release is not usable: {0}")]
    Policy(&'static str),
    /// An adopted or restored skill could not be signed or installed.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The release can't be recorded as taken over.
    #[error(transparent)]
    Plan(#[from] Box<PlanError>),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for AdoptError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

impl From<KeyError> for AdoptError {
    fn from(failed: KeyError) -> Self {
        Self::Vault(failed.into())
    }
}

/// Returns the parts of a large bundle, which must be fetched too, as hash and size. Fails if the
/// bytes do not match the entry.
pub fn parts(entry: &SkillEntry, bytes: &[u8]) -> Result<Vec<(Digest, u64)>, AdoptError> {
    let bundle = Bundle::parse(bytes, &entry.bundle_hash, entry.size)
        .map_err(|reason| bundle_error(entry, reason.to_string()))?;
    Ok(bundle
        .part_refs()
        .map(|part| (part.bundle_hash, part.size))
        .collect())
}

pub(super) fn derived_error(entry: &SkillEntry, reason: DerivedMismatch) -> AdoptError {
    AdoptError::Derived {
        name: entry.name.clone(),
        reason,
    }
}

fn bundle_error(entry: &SkillEntry, reason: String) -> AdoptError {
    AdoptError::Bundle {
        name: entry.name.clone(),
        reason,
    }
}

/// Opens and verifies a bundle of this vault, from the store or else from the fetched bytes.
pub(super) fn open_bundle(
    vault: &Vault,
    entry: &SkillEntry,
    fetched: Fetched<'_>,
    trusted: &Trusted,
) -> Result<OpenedBundle, AdoptError> {
    let hash = &entry.bundle_hash;
    if let Ok(examined) =
        store::examine_stored(&vault.store_folder(), hash, Some(&entry.name), trusted)
    {
        // The hash covers the files and the manifest, but the version in the entry is only a claim
        // of the catalog.
        if examined.manifest.version != entry.version {
            let reason = "its manifest has another version than the release lists";
            return Err(bundle_error(entry, reason.to_owned()));
        }
        return Ok(OpenedBundle {
            signed: examined.signed,
            manifest: examined.manifest,
            files: examined.files,
        });
    }
    let bytes =
        fetched(hash).ok_or_else(|| bundle_error(entry, "it was not fetched".to_owned()))?;
    let expected = ManifestExpectation {
        name: &entry.name,
        version: Some(entry.version),
        stored_version: None,
    };
    let trust = trusted
        .manifest_trust(hash)
        .map_err(|damage| bundle_error(entry, damage.to_string()))?;
    let opened = Bundle::parse(&bytes, hash, entry.size)
        .and_then(|bundle| bundle.open(fetched, &trust, &expected))
        .map_err(|reason| bundle_error(entry, reason.to_string()))?;
    let encoded = bundle::encode(&opened.signed, &opened.manifest, &opened.files)
        .map_err(|reason| bundle_error(entry, reason.to_string()))?;
    // Later checks encode the installed bundle again and expect this hash.
    if encoded.hash != *hash {
        return Err(bundle_error(
            entry,
            "it is not written canonically".to_owned(),
        ));
    }
    Ok(opened)
}

/// Returns whether a bundle is in the store, so that it need not be fetched. Its bytes are verified
/// when they are used.
pub fn is_stored(vault: &Vault, bundle: &Digest) -> Result<bool, VaultError> {
    Ok(disk::kind_at(&store::bundle_folder(&vault.store_folder(), bundle))?.is_some())
}

/// Runs the gate on a bundle of another publisher's release, under the name in its entry. The
/// exceptions and the strictness in its manifest are ignored.
pub(super) fn gate_bundle(
    entry: &SkillEntry,
    opened: OpenedBundle,
    purpose: Purpose,
    options: &Options,
    neighbours: &mut Neighbours<'_>,
) -> Result<Candidate, AdoptError> {
    let source = to_earlier_source(entry, opened, purpose, false);
    examine_source(entry, source, options, neighbours)
}

/// Turns an opened bundle into a source that can be admitted again.
pub(super) fn to_earlier_source(
    entry: &SkillEntry,
    opened: OpenedBundle,
    purpose: Purpose,
    keeps_exceptions: bool,
) -> Source {
    Source::Earlier(Box::new(Earlier {
        name: entry.name.clone(),
        manifest: opened.manifest,
        files: opened.files,
        upstream: None,
        keeps_exceptions,
        purpose,
    }))
}

/// Runs the gate on a bundle, with errors that name the skill.
pub(super) fn examine_source(
    entry: &SkillEntry,
    source: Source,
    options: &Options,
    neighbours: &mut Neighbours<'_>,
) -> Result<Candidate, AdoptError> {
    examine_candidate(source, options, neighbours).map_err(|reason| match reason {
        AdmitError::Derived(mismatch) => derived_error(entry, mismatch),
        reason => AdoptError::Refused {
            name: entry.name.clone(),
            reason,
        },
    })
}
