//! The stored versions of an own skill, and rolling back to one of them.
//!
//! A rollback creates a new version: the earlier bytes pass the gate again and are signed as the
//! next version, so that version numbers never decrease.

use std::collections::BTreeSet;

use rayon::prelude::*;
use vault_format::hash::Digest;
use vault_format::manifest::Manifest;
use vault_format::name::SkillName;
use vault_shelf::fetch::Upstream;

use super::sign_again::to_earlier_source;
use super::{AdmitError, AdmitReport, Options, Purpose, add::admit_source};
use crate::installed::installations::read_own_skill;
use crate::installed::source_records;
use crate::store::{self, Damage, Examined, Trusted};
use crate::vault::{Vault, VaultError};

/// A version of an own skill whose bundle is still stored.
#[derive(Clone, Debug)]
pub struct PastVersion {
    /// Manifest of that version. Its signature is verified, the files are not.
    pub manifest: Manifest,
    /// SHA-256 of its bundle.
    pub bundle: Digest,
    /// Whether this version is the installed one.
    pub installed: bool,
    /// The source it was fetched from; `None` if none is recorded or the record is unreadable.
    pub upstream: Option<Upstream>,
}

/// Error of a rollback. The vault is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RollbackError {
    /// The vault has no own skill of this name.
    #[error("{0} is not installed from this vault")]
    NotInstalled(SkillName),
    /// There is no earlier stored version with other files.
    #[error("{0} has no earlier version that is still stored")]
    NothingEarlier(SkillName),
    /// The requested version is not stored.
    #[error("{name} has no stored version {version}")]
    NoSuchVersion {
        /// The own skill of which that version was requested.
        name: SkillName,
        /// Version number that no stored bundle of the skill has.
        version: u64,
    },
    /// The stored version differs from what was signed.
    #[error("version {version} of {name} was modified after signing")]
    Damaged {
        /// The own skill whose files were changed.
        name: SkillName,
        /// Version number of the stored files; 0 if their manifest cannot be verified.
        version: u64,
        /// Difference between the files and the signed ones.
        #[source]
        damage: Damage,
    },
    /// The gate blocked the earlier version, or it could not be installed.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The vault can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Lists the stored versions of an own skill, newest first; empty if there are none. Verifies
/// signatures, but does not read files.
pub fn list_versions(vault: &Vault, name: &SkillName) -> Result<Vec<PastVersion>, VaultError> {
    // A key that was retired since may have signed an earlier version. That is acceptable here,
    // because a version passes the gate and is signed again before it is used.
    let trusted = vault.trusted_for_earlier()?;
    let current = read_own_skill(vault, name, &vault.trusted()?)?.map(|installed| installed.bundle);
    let store = vault.store_folder();
    let (bundles, _) = store::list_bundles(&store)?;
    let mut versions: Vec<_> = bundles
        .into_par_iter()
        .filter_map(|bundle| {
            let manifest = store::read_manifest(&store, &bundle, &trusted)?;
            // A variant has the name and version of its skill, but is no version of it.
            let is_version = manifest.name == *name && manifest.rendered_from.is_none();
            is_version.then(|| PastVersion {
                // Ignore a source record that can't be read: the version itself is intact.
                upstream: source_records::of_bundle(vault, &bundle).unwrap_or_default(),
                installed: current == Some(bundle),
                manifest,
                bundle,
            })
        })
        .collect();
    versions.sort_by_key(|past| std::cmp::Reverse((past.manifest.version, past.installed)));
    Ok(versions)
}

/// Returns the verified files and manifest of an own skill; `None` if there is no own skill of this
/// name.
pub fn read_installed(vault: &Vault, name: &SkillName) -> Result<Option<Examined>, RollbackError> {
    let trusted = vault.trusted()?;
    let installed_skill = read_own_skill(vault, name, &trusted)?;
    let Some(installed_skill) = installed_skill else {
        return Ok(None);
    };
    let version = installed_skill
        .manifest
        .map_or(0, |manifest| manifest.version);
    read_version(vault, name, version, &installed_skill.bundle, &trusted).map(Some)
}

fn read_version(
    vault: &Vault,
    name: &SkillName,
    version: u64,
    bundle: &Digest,
    trusted: &Trusted,
) -> Result<Examined, RollbackError> {
    store::examine_stored(&vault.store_folder(), bundle, Some(name), trusted).map_err(|damage| {
        RollbackError::Damaged {
            name: name.clone(),
            version,
            damage,
        }
    })
}

/// A skill after a rollback.
#[derive(Clone, Debug)]
pub struct RolledBack {
    /// The version whose files are installed again.
    pub to: u64,
    /// Report on the new version, which has the earlier files and a higher version number.
    pub report: AdmitReport,
}

/// Returns whether updates leave an own skill out because its owner rolled it back.
pub fn is_held(vault: &Vault, name: &SkillName) -> Result<bool, VaultError> {
    Ok(vault.own_skills()?.held_skills().any(|held| held == name))
}

/// Returns the own skills that updates leave out because their owner rolled them back.
pub fn list_held(vault: &Vault) -> Result<BTreeSet<SkillName>, VaultError> {
    Ok(vault.own_skills()?.held_skills().cloned().collect())
}

/// Ends the hold of a skill, which a rollback began, so that `vault update` without a name includes
/// it again.
pub fn end_hold(vault: &Vault, name: &SkillName) -> Result<(), VaultError> {
    if !is_held(vault, name)? {
        return Ok(());
    }
    let _change = vault.begin_change()?;
    vault.change_own_skills(|own_skills| own_skills.set_held(name, false))
}

/// Admits the bytes of an earlier version as the next version, and holds the skill: `vault update`
/// without a name leaves it out from then on. `to` selects the version; `None` selects the newest
/// earlier version whose files differ from the installed ones.
pub fn roll_back(
    vault: &Vault,
    name: &SkillName,
    to: Option<u64>,
    strict: bool,
) -> Result<RolledBack, RollbackError> {
    let versions = list_versions(vault, name)?;
    let current = versions.iter().find(|past| past.installed);
    let current = current.ok_or_else(|| RollbackError::NotInstalled(name.clone()))?;
    let (current, mut candidates) = (&current.manifest, versions.iter());
    let chosen = match to {
        Some(version) => candidates
            .find(|past| past.manifest.version == version)
            .ok_or_else(|| RollbackError::NoSuchVersion {
                name: name.clone(),
                version,
            })?,
        // Versions with the same files are skipped: rolling back to one of them would change
        // nothing.
        None => candidates
            .map(|past| (past, &past.manifest))
            .find(|(_, past)| past.version < current.version && past.files != current.files)
            .map(|(past, _)| past)
            .ok_or_else(|| RollbackError::NothingEarlier(name.clone()))?,
    };
    let version = chosen.manifest.version;
    let examined = read_version(
        vault,
        name,
        version,
        &chosen.bundle,
        &vault.trusted_for_earlier()?,
    )?;
    let upstream = chosen.upstream.clone();
    // The work stays that of its author, whether another publisher signed it or a member's draft was
    // accepted. If a rollback made it the owner's, its actions would get the owner's whole
    // environment.
    let is_published_by_others = vault.is_by_another_publisher(&examined.signer)?;
    let by_others =
        vault.own_skills()?.is_others_bundle(name, &chosen.bundle) || is_published_by_others;
    let purpose = Purpose::NextVersion { by_others };
    // The new version is signed here, so findings that another publisher accepted must not count as
    // accepted.
    let keeps_exceptions = !is_published_by_others;
    let source = to_earlier_source(name.clone(), examined, upstream, purpose, keeps_exceptions);
    let options = Options {
        strict,
        hold: true,
        ..Options::default()
    };
    Ok(RolledBack {
        to: version,
        report: admit_source(vault, source, &options)?,
    })
}
