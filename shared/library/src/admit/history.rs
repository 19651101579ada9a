//! The versions of an own skill that are still stored, and going back to one of them.
//!
//! A rollback moves forward: the earlier bytes pass the gate again and are signed as the next version, so that versions
//! never fall.

use rayon::prelude::*;
use vault_skill::hash::Digest;
use vault_skill::manifest::Manifest;
use vault_skill::name::SkillName;
use vault_store::fetch::Upstream;

use super::resign::earlier;
use super::{AdmitError, AdmitReport, Options, Purpose, add::add};
use crate::installed::place::{self, installed};
use crate::installed::upstream;
use crate::store::{self, Damage, Examined, Trusted, Want};
use crate::vault::{Vault, VaultError};

/// A stored version of a skill.
#[derive(Clone, Debug)]
pub struct PastVersion {
    /// What was signed.
    pub manifest: Manifest,
    /// Its bundle.
    pub bundle: Digest,
    /// It is the installed one.
    pub installed: bool,
    /// Where it was fetched from, where that is recorded.
    pub upstream: Option<Upstream>,
}

/// Why a skill did not go back. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum RollbackError {
    /// No own skill of this name.
    #[error("{0} is not installed from this vault")]
    NotInstalled(SkillName),
    /// No stored version that differs.
    #[error("{0} has no earlier version that is still stored")]
    NothingEarlier(SkillName),
    /// The version that was asked for is not stored.
    #[error("{name} has no stored version {version}")]
    NoSuchVersion {
        /// The skill.
        name: SkillName,
        /// What was asked for.
        version: u64,
    },
    /// The stored version is not what was signed.
    #[error("version {version} of {name} is not what was signed")]
    Damaged {
        /// The skill.
        name: SkillName,
        /// The version.
        version: u64,
        /// What is wrong with it.
        #[source]
        damage: Damage,
    },
    /// It was not admitted again.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// The stored versions of an own skill, newest first; empty where there is none. Signatures are verified, files are not read.
pub fn history(vault: &Vault, name: &SkillName) -> Result<Vec<PastVersion>, VaultError> {
    let trusted = vault.ever_trusted()?;
    let current = installed(vault, name, &vault.trusted()?, &mut Vec::new())?
        .map(|installed| installed.bundle);
    let store = vault.store();
    let (bundles, _) = store::list(&store)?;
    let found: Vec<_> = bundles
        .par_iter()
        .with_min_len(place::CHUNK)
        .filter_map(|bundle| {
            let manifest = store::manifest(&store, bundle, &trusted)?;
            (manifest.name == *name && manifest.rendered_from.is_none())
                .then_some((*bundle, manifest))
        })
        .collect();
    let mut versions = Vec::new();
    for (bundle, manifest) in found {
        versions.push(PastVersion {
            // A record that cannot be read tells nothing; the version itself is whole.
            upstream: upstream::of_bundle(vault, &bundle).unwrap_or_default(),
            installed: current == Some(bundle),
            manifest,
            bundle,
        });
    }
    versions.sort_by_key(|past| std::cmp::Reverse((past.manifest.version, past.installed)));
    Ok(versions)
}

/// The verified files and manifest of what is installed under a name; `None` where there is no own skill of that name.
pub fn read_installed(vault: &Vault, name: &SkillName) -> Result<Option<Examined>, RollbackError> {
    let trusted = vault.trusted()?;
    let found = installed(vault, name, &trusted, &mut Vec::new())?;
    let Some(found) = found else {
        return Ok(None);
    };
    let version = found.manifest.map_or(0, |manifest| manifest.version);
    read(vault, name, version, &found.bundle, &trusted).map(Some)
}

fn read(
    vault: &Vault,
    name: &SkillName,
    version: u64,
    bundle: &Digest,
    trusted: &Trusted,
) -> Result<Examined, RollbackError> {
    let (store, mut buffer) = (vault.store(), Vec::new());
    store::examine(
        &store,
        bundle,
        Some(name),
        trusted,
        Want::Bytes,
        &mut buffer,
    )
    .map_err(|damage| RollbackError::Damaged {
        name: name.clone(),
        version,
        damage,
    })
}

/// Admits an earlier version's bytes as the next version: `to`, else the newest one before the installed one that has other files.
pub fn roll_back(
    vault: &Vault,
    name: &SkillName,
    to: Option<u64>,
    strict: bool,
) -> Result<AdmitReport, RollbackError> {
    let versions = history(vault, name)?;
    let current = versions
        .iter()
        .find(|past| past.installed)
        .ok_or_else(|| RollbackError::NotInstalled(name.clone()))?;
    let wanted = match to {
        Some(version) => versions
            .iter()
            .find(|past| past.manifest.version == version)
            .ok_or_else(|| RollbackError::NoSuchVersion {
                name: name.clone(),
                version,
            })?,
        None => versions
            .iter()
            .find(|past| {
                past.manifest.version < current.manifest.version
                    && past.manifest.files != current.manifest.files
            })
            .ok_or_else(|| RollbackError::NothingEarlier(name.clone()))?,
    };
    let version = wanted.manifest.version;
    let examined = read(vault, name, version, &wanted.bundle, &vault.ever_trusted()?)?;
    let upstream = wanted.upstream.clone();
    let source = earlier(name.clone(), examined, upstream, Purpose::NextVersion);
    let options = Options {
        strict,
        ..Options::default()
    };
    Ok(add(vault, source, &options)?)
}
