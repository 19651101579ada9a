//! Taking own skills out of the vault.
//!
//! A plain removal leaves the next release without the skill; bytes that devices must uninstall at once are withdrawn
//! besides, and then the releases say so for 400 days. The version that a name had reached is kept, so that a skill
//! added again later never counts backwards.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_skill::time::Timestamp;

use super::variants as transforms;
use crate::disk;
use crate::index::Index;
use crate::installed::agent_links::withdraw::withdraw as withdraw_from_agents;
use crate::installed::place;
use crate::installed::variants;
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// What to remove.
#[derive(Clone, Debug, Default)]
pub struct RemoveSkills {
    /// Names as typed.
    pub names: Vec<String>,
    /// Withdraw the bytes as well, for this reason: devices uninstall them, the service stops serving them.
    pub withdraw: Option<String>,
    /// Folders of agents in which links to the skills are looked for, beside those that the vault links into.
    pub roots: Vec<PathBuf>,
}

/// What was removed.
#[derive(Clone, Debug, Default)]
pub struct RemoveReport {
    /// Removed skills, in the order given.
    pub removed: Vec<Removed>,
    /// Names under which nothing was installed.
    pub unknown: Vec<String>,
    /// Folders of agents that showed them, with the names that are gone there.
    pub unlinked: Vec<(PathBuf, Vec<SkillName>)>,
}

/// One removed skill.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Its name.
    pub name: SkillName,
    /// The bundle it stood for.
    pub bundle: Digest,
    /// Its version, where the manifest was still good.
    pub version: Option<u64>,
    /// Whether vault-local changes of it were removed too.
    pub transforms: bool,
}

/// A name's highest version, kept after its removal.
#[derive(Debug, Deserialize, Serialize)]
struct Retired {
    version: u64,
}

/// Bytes that devices must uninstall.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WithdrawnBundle {
    /// The skill's name.
    pub name: SkillName,
    /// The bundle.
    pub bundle_hash: Digest,
    /// Why, for the devices' owners.
    pub reason: String,
    /// When it was withdrawn.
    pub withdrawn_at: Timestamp,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct WithdrawnList {
    withdrawn: Vec<WithdrawnBundle>,
}

/// Removes own skills; a name that is not installed is reported, not an error. Each removal is one step; a kill in
/// between leaves some removed and the rest untouched.
pub fn remove_skills(vault: &Vault, request: &RemoveSkills) -> Result<RemoveReport, VaultError> {
    let mut change = vault.change()?;
    remove_under(vault, &mut change, request)
}

/// [`remove_skills`] for who holds the writer lock.
pub(crate) fn remove_under(
    vault: &Vault,
    change: &mut Change<'_>,
    request: &RemoveSkills,
) -> Result<RemoveReport, VaultError> {
    let mut strange = Vec::new();
    let places = place::read_links(
        &vault.skills(),
        &place::Origin::Local,
        "skills",
        &mut strange,
    )?;
    let mut report = RemoveReport::default();
    let mut done = std::collections::BTreeSet::new();
    // Before anything else: an agent must never find a link that leads nowhere. Also for names that are not installed,
    // since an earlier removal may have been cut short; not for those that only a linked vault has.
    let linked: std::collections::HashSet<_> = place::places(vault)?
        .groups
        .into_iter()
        .flat_map(|group| group.places)
        .filter(|place| place.origin != place::Origin::Local)
        .map(|place| place.name)
        .collect();
    let names: Vec<SkillName> = request
        .names
        .iter()
        .filter_map(|typed| typed.parse().ok())
        .filter(|name| !linked.contains(name) || places.iter().any(|place| place.name == *name))
        .collect();
    report.unlinked = withdraw_from_agents(vault, change, &names, &request.roots)?;
    for typed in &request.names {
        if !done.insert(typed) {
            continue;
        }
        let place = places.iter().find(|place| place.name.as_str() == typed);
        match place {
            Some(place) => {
                let removed = remove_one(vault, change, place, request.withdraw.as_deref())?;
                report.removed.push(removed);
            }
            None => report.unknown.push(typed.clone()),
        }
    }
    // Also for names that are not installed: the removal before may have been cut short after its switch.
    for name in &names {
        transforms::drop_of(vault, name)?;
    }
    transforms::forget(vault, change, &names)?;
    collect_names(vault, change, |name| {
        done.iter().any(|typed| *typed == name.as_str())
    })?;
    Ok(report)
}

fn remove_one(
    vault: &Vault,
    change: &mut Change<'_>,
    place: &place::Place,
    withdraw: Option<&str>,
) -> Result<Removed, VaultError> {
    let version = store::manifest(&vault.store(), &place.bundle, &vault.trusted()?)
        .map(|manifest| manifest.version);
    // Before the link goes: a kill in between leaves the skill installed and the note without effect.
    if let Some(version) = version {
        retire(vault, change, &place.name, version)?;
    }
    if let Some(reason) = withdraw {
        withdraw_bundle(vault, change, &place.name, place.bundle, reason)?;
    }
    change.switching()?;
    disk::remove_file(&vault.skills().join(place.name.as_str()))?;
    disk::sync_dir(&vault.skills())?;
    let had_transforms = transforms::drop_of(vault, &place.name)?;
    Ok(Removed {
        name: place.name.clone(),
        bundle: place.bundle,
        version,
        transforms: had_transforms,
    })
}

/// The highest version that a removed skill of this name had; 0 when there was none.
pub(crate) fn retired_version(vault: &Vault, name: &SkillName) -> Result<u64, VaultError> {
    let path = vault.paths().root.join("retired").join(name.as_str());
    let retired: Option<Retired> = crate::vault::read_record(&path)?;
    Ok(retired.map_or(0, |retired| retired.version))
}

/// Notes that a name has reached a version, so that the next one is above it.
pub(crate) fn retire(
    vault: &Vault,
    change: &mut Change<'_>,
    name: &SkillName,
    version: u64,
) -> Result<(), VaultError> {
    if retired_version(vault, name)? >= version {
        return Ok(());
    }
    let path = vault.paths().root.join("retired").join(name.as_str());
    change.write_record(&path, &Retired { version }, 0o600)
}

/// What was withdrawn from this vault, oldest first.
pub fn withdrawn(vault: &Vault) -> Result<Vec<WithdrawnBundle>, VaultError> {
    let path = vault.paths().root.join("withdrawn.json");
    let list: Option<WithdrawnList> = crate::vault::read_record(&path)?;
    Ok(list.unwrap_or_default().withdrawn)
}

fn withdraw_bundle(
    vault: &Vault,
    change: &mut Change<'_>,
    name: &SkillName,
    bundle_hash: Digest,
    reason: &str,
) -> Result<(), VaultError> {
    let mut list = withdrawn(vault)?;
    if list.iter().any(|entry| entry.bundle_hash == bundle_hash) {
        return Ok(());
    }
    list.push(WithdrawnBundle {
        name: name.clone(),
        bundle_hash,
        reason: reason.to_owned(),
        withdrawn_at: vault.clock().now(),
    });
    let path = vault.paths().root.join("withdrawn.json");
    change.write_record(&path, &WithdrawnList { withdrawn: list }, 0o600)
}

/// Withdraws an earlier bundle of a skill without removing the skill. Fails when it is the installed one of that name:
/// a release can't serve and withdraw the same bytes.
pub fn withdraw(
    vault: &Vault,
    name: &SkillName,
    bundle: Digest,
    reason: &str,
) -> Result<bool, VaultError> {
    let mut change = vault.change()?;
    let mut strange = Vec::new();
    let installed = place::read_links(
        &vault.skills(),
        &place::Origin::Local,
        "skills",
        &mut strange,
    )?;
    if installed.iter().any(|place| place.bundle == bundle) {
        return Ok(false);
    }
    change.switching()?;
    withdraw_bundle(vault, &mut change, name, bundle, reason)?;
    Ok(true)
}

/// Removes bundles that nothing installed refers to: earlier versions, and what a killed writer left. They can then no
/// longer be rolled back to without a service that has them.
pub fn collect(vault: &Vault) -> Result<Vec<Digest>, VaultError> {
    let change = vault.change()?;
    collect_names(vault, &change, |_| true)
}

/// Removes unreferenced bundles of linked vaults, and those that can't be read.
pub(crate) fn collect_foreign(
    vault: &Vault,
    change: &Change<'_>,
) -> Result<Vec<Digest>, VaultError> {
    collect_names(vault, change, |_| false)
}

/// Removes unreferenced bundles whose skill's name is wanted, and those that are not this vault's or can't be read.
pub(crate) fn collect_names(
    vault: &Vault,
    _change: &Change<'_>,
    wanted: impl Fn(&SkillName) -> bool,
) -> Result<Vec<Digest>, VaultError> {
    let mut referenced: std::collections::HashSet<_> = place::places(vault)?
        .groups
        .iter()
        .flat_map(|group| group.places.iter().map(|place| place.bundle))
        .collect();
    referenced.extend(variants::bundles(vault)?);
    let store = vault.store();
    let (bundles, _) = store::list(&store)?;
    let trusted = vault.trusted()?;
    let doomed: Vec<_> = bundles
        .into_iter()
        .filter(|bundle| !referenced.contains(bundle))
        .filter(|bundle| {
            store::manifest(&store, bundle, &trusted).is_none_or(|manifest| wanted(&manifest.name))
        })
        .collect();
    let aside = vault.scratch()?;
    let dropped = store::drop_bundles(&store, aside.path(), doomed)?;
    Index::open(&vault.paths().index()).forget(&dropped);
    crate::installed::upstream::forget(vault, &dropped)?;
    Ok(dropped)
}
