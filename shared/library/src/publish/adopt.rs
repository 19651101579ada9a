//! Taking in skills that were signed with this vault's key elsewhere, and going back to earlier content.
//!
//! [`adopt`] installs bundles of the vault's own releases under the signatures that they have. A rollback never does:
//! what an earlier release held is signed as a new version, so that no device ever sees a version fall. Both pass the
//! gate first.

use vault_skill::bundle::{self, Bundle, OpenedBundle};
use vault_skill::catalog::{CatalogError, SignedCatalog, SkillEntry};
use vault_skill::hash::Digest;
use vault_skill::manifest::ManifestExpectation;
use vault_skill::name::{SkillName, Slug};

use super::state;
use crate::admit::remove::{self, RemoveReport, RemoveSkills};
use crate::admit::{
    AdmitError, AdmitReport, Candidate, Earlier, Neighbours, Options, Purpose, Source, admit_all,
    admit_all_under, examine,
};
use crate::disk::{self, FileError};
use crate::installed::place::{self, Origin};
use crate::store::{self, Trusted, Want};
use crate::vault::keys::KeyError;
use crate::vault::rotations::Chain;
use crate::vault::{Vault, VaultError};

/// Gives the bytes of an object of the namespace, or `None` when it was not fetched.
pub type Fetched<'a> = &'a dyn Fn(&Digest) -> Option<Vec<u8>>;

/// Why content of an earlier or foreign release was not taken. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The release's catalog is not one of this vault.
    #[error("the catalog is not this vault's: {0}")]
    NotOurs(&'static str),
    /// Another release than the one that was asked for.
    #[error("the service shows release {shown} where release {asked} was asked for")]
    OtherRelease {
        /// What was asked for.
        asked: u64,
        /// What came.
        shown: u64,
    },
    /// The release's catalog can't be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A bundle is missing or not what the catalog names.
    #[error("the bundle of {name} is not usable: {reason}")]
    Bundle {
        /// The skill.
        name: SkillName,
        /// What is wrong.
        reason: String,
    },
    /// The gate, or what follows it, refused a skill of an earlier release.
    #[error("{name}: {reason}")]
    Refused {
        /// The skill.
        name: SkillName,
        /// Why.
        reason: AdmitError,
    },
    /// Signing failed.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// Another vault error.
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

/// Parts that have to be fetched with a bundle. Fails when the bytes are not the entry's.
pub fn parts(entry: &SkillEntry, bytes: &[u8]) -> Result<Vec<(Digest, u64)>, AdoptError> {
    let bundle = Bundle::parse(bytes, &entry.bundle_hash, entry.size)
        .map_err(|reason| unusable(entry, reason.to_string()))?;
    Ok(bundle
        .parts()
        .map(|part| (part.bundle_hash, part.size))
        .collect())
}

fn unusable(entry: &SkillEntry, reason: String) -> AdoptError {
    AdoptError::Bundle {
        name: entry.name.clone(),
        reason,
    }
}

/// Installs bundles of the vault's own releases as own skills, all or none, replacing those of the same names. They keep
/// the signatures that they have; the gate judges them as if they were signed here, and one that it refuses stops all.
pub fn adopt(
    vault: &Vault,
    entries: &[SkillEntry],
    fetched: Fetched<'_>,
) -> Result<Vec<AdmitReport>, AdoptError> {
    let mut change = vault.change()?;
    let trusted = vault.trusted()?;
    let mut neighbours = Neighbours::of(vault);
    let mut candidates = Vec::with_capacity(entries.len());
    for entry in entries {
        let opened = open(vault, entry, fetched, &trusted)?;
        let purpose = Purpose::Adopt(opened.signed.clone());
        let options = Options::as_recorded();
        candidates.push(candidate(
            entry,
            opened,
            purpose,
            &options,
            &mut neighbours,
        )?);
    }
    Ok(admit_all_under(vault, &mut change, &candidates)?)
}

/// A bundle of the vault's own, from the store or as fetched, verified.
fn open(
    vault: &Vault,
    entry: &SkillEntry,
    fetched: Fetched<'_>,
    trusted: &Trusted,
) -> Result<OpenedBundle, AdoptError> {
    let hash = &entry.bundle_hash;
    let (store, name, mut buffer) = (vault.store(), Some(&entry.name), Vec::new());
    let stored = store::examine(&store, hash, name, trusted, Want::Bytes, &mut buffer);
    if let Ok(examined) = stored {
        return Ok(OpenedBundle {
            signed: examined.signed,
            manifest: examined.manifest,
            files: examined.files,
        });
    }
    let bytes = fetched(hash).ok_or_else(|| unusable(entry, "it was not fetched".to_owned()))?;
    let expected = ManifestExpectation {
        vault_id: trusted.vault_id,
        name: &entry.name,
        version: Some(entry.version),
        stored_version: None,
    };
    let opened = Bundle::parse(&bytes, hash, entry.size)
        .and_then(|bundle| bundle.open(fetched, &trusted.keys, &expected))
        .map_err(|reason| unusable(entry, reason.to_string()))?;
    let encoded = bundle::encode(&opened.signed, &opened.manifest, &opened.files)
        .map_err(|reason| unusable(entry, reason.to_string()))?;
    if encoded.hash != *hash {
        return Err(unusable(entry, "it is not written canonically".to_owned()));
    }
    Ok(opened)
}

/// What a rollback would do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rollback {
    /// The release gone back to.
    pub release: u64,
    /// Skills that differ: to be admitted again from these bundles. Those that [`is_stored`] does not know have to be
    /// fetched.
    pub readmit: Vec<SkillEntry>,
    /// Skills that the release does not have.
    pub remove: Vec<SkillName>,
}

/// Whether a bundle is in the store, so that it need not be fetched; its bytes are verified when they are used.
pub fn is_stored(vault: &Vault, bundle: &Digest) -> Result<bool, VaultError> {
    Ok(disk::kind(&store::folder(&vault.store(), bundle))?.is_some())
}

/// Compares this library with an earlier release of a namespace, given its catalog's exact bytes. What is gone back to
/// is signed again: so the bytes must be the very release that was asked for, not merely something of ours.
pub fn plan_rollback(
    vault: &Vault,
    base: &str,
    slug: &Slug,
    release: u64,
    catalog: &[u8],
) -> Result<Rollback, AdoptError> {
    let file = SignedCatalog::parse(catalog)?;
    let catalog = file.verify()?;
    if catalog.vault_id != *vault.id() {
        return Err(AdoptError::NotOurs("it has another vault id"));
    }
    let chain = Chain::read(vault)?;
    if !chain
        .all_keys(vault.keys().public()?)
        .contains(file.public_key())
    {
        return Err(AdoptError::NotOurs(
            "it is signed by a key that is not ours",
        ));
    }
    if catalog.slug != *slug {
        return Err(AdoptError::NotOurs("it is for another namespace"));
    }
    if catalog.release != release {
        return Err(AdoptError::OtherRelease {
            asked: release,
            shown: catalog.release,
        });
    }
    let known = state::read(vault, base, slug)?.and_then(|state| state.payload_of(release));
    match known {
        Some(known) if known != file.payload_sha256() => {
            return Err(CatalogError::TwoCatalogs(release).into());
        }
        // A thief can sign any number: only a release that this library saw is the owner's.
        None if chain.is_voided(file.public_key()) => {
            return Err(AdoptError::NotOurs(
                "it is signed by a key that was stolen or lost, and this library does not know the release",
            ));
        }
        _ => {}
    }
    let mut strange = Vec::new();
    let installed = place::read_links(&vault.skills(), &Origin::Local, "skills", &mut strange)?;
    Ok(Rollback {
        release: catalog.release,
        readmit: catalog
            .skills
            .iter()
            .filter(|entry| {
                !installed
                    .iter()
                    .any(|place| place.name == entry.name && place.bundle == entry.bundle_hash)
            })
            .cloned()
            .collect(),
        remove: installed
            .into_iter()
            .map(|place| place.name)
            .filter(|name| catalog.skill(name).is_none())
            .collect(),
    })
}

/// What a rollback did.
#[derive(Clone, Debug)]
pub struct RollbackReport {
    /// Skills whose earlier bytes are installed now, each as a new version; unchanged where the bytes were the same.
    pub readmitted: Vec<AdmitReport>,
    /// What was removed.
    pub removed: RemoveReport,
}

/// Makes the library's content that of an earlier release: the earlier bytes pass the gate again and are signed as the
/// next version; what the release did not have is removed. One refused skill stops all, before anything changed.
pub fn roll_back(
    vault: &Vault,
    rollback: &Rollback,
    strict: bool,
    fetched: Fetched<'_>,
) -> Result<RollbackReport, AdoptError> {
    // Manifests of an earlier time may be signed by any key that was ours.
    let trusted = vault.ever_trusted()?;
    let options = Options {
        strict,
        ..Options::default()
    };
    let mut neighbours = Neighbours::of(vault);
    let mut candidates = Vec::with_capacity(rollback.readmit.len());
    for entry in &rollback.readmit {
        let opened = open(vault, entry, fetched, &trusted)?;
        let purpose = Purpose::NextVersion;
        candidates.push(candidate(
            entry,
            opened,
            purpose,
            &options,
            &mut neighbours,
        )?);
    }
    let readmitted = admit_all(vault, &candidates)?;
    let removed = remove::remove_skills(
        vault,
        &RemoveSkills {
            roots: Vec::new(),
            names: rollback.remove.iter().map(ToString::to_string).collect(),
            withdraw: None,
        },
    )?;
    Ok(RollbackReport {
        readmitted,
        removed,
    })
}

/// Gates a bundle of an earlier or foreign release under the name of its entry.
fn candidate(
    entry: &SkillEntry,
    opened: OpenedBundle,
    purpose: Purpose,
    options: &Options,
    neighbours: &mut Neighbours<'_>,
) -> Result<Candidate, AdoptError> {
    let source = Source::Earlier(Box::new(Earlier {
        name: entry.name.clone(),
        manifest: opened.manifest,
        files: opened.files,
        upstream: None,
        purpose,
    }));
    examine(source, options, neighbours).map_err(|reason| AdoptError::Refused {
        name: entry.name.clone(),
        reason,
    })
}
