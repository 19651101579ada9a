//! Removes own skills from the vault.
//!
//! After a plain removal, the next release (the signed list of skills that devices pull) no longer
//! contains the skill. A withdrawal also makes devices uninstall the bytes at once; releases list
//! it for 400 days. The highest version of a removed name is recorded, so that versions don't
//! decrease if the skill is added again. Both records lie in the trust folder, outside the vault's
//! folder, because releases rely on them.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::time::Timestamp;

use super::history::list_versions;
use super::variants as transforms;
use crate::disk;
use crate::index::Index;
use crate::installed::agent_links::withdraw::withdraw_from_agents;
use crate::installed::installations::{self, Installation, Origin};
use crate::installed::project_skills;
use crate::installed::rendered_variants;
use crate::installed::root_versions::read_last_catalogs;
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// File in the trust folder that holds the [`WithdrawnList`].
const WITHDRAWN: &str = "withdrawn.json";

/// Skills to remove, and the extent of the removal.
#[derive(Clone, Debug, Default)]
pub struct RemoveSkills {
    /// Names, as the user typed them.
    pub names: Vec<String>,
    /// Also withdraw the bytes, for this reason: devices uninstall them, and the service stops
    /// serving them.
    pub withdraw: Option<String>,
    /// Folders of agents to remove links from, besides those that the vault records as its own.
    pub roots: Vec<PathBuf>,
}

/// The names that [`remove_skills`] removed or did not find, and the links that it removed.
#[derive(Clone, Debug, Default)]
pub struct RemoveReport {
    /// Removed skills, in the order of the request.
    pub removed: Vec<RemovedSkill>,
    /// Names that were not installed.
    pub unknown: Vec<String>,
    /// Agents' folders that showed the skills, with the names that were removed there.
    pub unlinked: Vec<(PathBuf, Vec<SkillName>)>,
}

/// A skill that was removed, as it was installed before.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "RemovedSkill")]
pub struct RemovedSkill {
    /// Name under which the skill was installed.
    pub name: SkillName,
    /// SHA-256 of the bundle that was installed.
    #[serde(rename = "bundle_hash")]
    pub bundle: Digest,
    /// Version that was installed; `null` if its manifest was not valid.
    pub version: Option<u64>,
    /// Whether its bytes were withdrawn from devices too.
    pub withdrawn: bool,
    /// Whether transforms of the skill were removed too.
    pub transforms: bool,
}

/// A bundle that devices must uninstall, as the trust folder and releases list it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct WithdrawnBundle {
    /// Name under which the bundle was installed.
    pub name: SkillName,
    /// SHA-256 of the bundle: exactly these bytes are uninstalled.
    pub bundle_hash: Digest,
    /// The reason, shown to the owners of devices.
    pub reason: String,
    /// Time of the withdrawal. Releases list the bundle for 400 days from then.
    pub withdrawn_at: Timestamp,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct WithdrawnList {
    withdrawn: Vec<WithdrawnBundle>,
}

/// Removes own skills. A name that is not installed is reported and is not an error. Each skill is
/// removed in one step; if the process is killed in between, some are removed and the others
/// unchanged.
pub fn remove_skills(vault: &Vault, request: &RemoveSkills) -> Result<RemoveReport, VaultError> {
    let mut change = vault.begin_change()?;
    remove_under(vault, &mut change, request)
}

/// Like [`remove_skills`], for a caller that holds the writer lock.
pub(crate) fn remove_under(
    vault: &Vault,
    change: &mut Change<'_>,
    request: &RemoveSkills,
) -> Result<RemoveReport, VaultError> {
    let own = installations::own_skill_places(vault)?;
    // Unlink the skills from the agents first, so that an agent never finds a dangling link.
    // Include names that are not installed, because an earlier removal may have been interrupted.
    // Exclude names that only a linked vault has.
    let linked: HashSet<_> = installations::list_skill_places(vault)?
        .groups
        .into_iter()
        .flat_map(|group| group.places)
        .filter(|place| place.origin != Origin::Local)
        .map(|place| place.name)
        .collect();
    let is_own = |name: &SkillName| own.iter().any(|place| place.name == *name);
    let names: Vec<SkillName> = request
        .names
        .iter()
        .filter_map(|typed| typed.parse().ok())
        .filter(|name| !linked.contains(name) || is_own(name))
        .collect();
    let mut report = RemoveReport {
        unlinked: withdraw_from_agents(vault, change, &names, &request.roots)?,
        ..RemoveReport::default()
    };
    // Record the removal before the first link is removed, so that a killed removal does not look
    // like a link that an attacker deleted.
    record_removal_start(vault, request, &own)?;
    let mut done = BTreeSet::new();
    for typed in &request.names {
        // The user may give a name twice. Remove and report it once.
        if !done.insert(typed.as_str()) {
            continue;
        }
        match own.iter().find(|place| place.name.as_str() == typed) {
            Some(place) => {
                let removed = remove_one(vault, change, place, request.withdraw.as_deref())?;
                report.removed.push(removed);
            }
            None => report.unknown.push(typed.clone()),
        }
    }
    // Include names that are not installed: an earlier removal may have been interrupted after its
    // switch.
    for name in &names {
        transforms::remove_transforms_of(vault, change, name)?;
    }
    // Record this only once the links are gone. If the process is killed before this line, the
    // skills stay marked as leaving, and a repeated removal completes it.
    vault.change_own_skills(|skills| names.iter().for_each(|name| skills.note_removed(name)))?;
    transforms::forget_variants(vault, change, &names)?;
    // Earlier versions of these skills go too, unless something else refers to their bundles.
    collect_bundles_of(vault, change, |name| done.contains(name.as_str()))?;
    Ok(report)
}

/// Records that the skills are being removed, with their versions. If the process is killed before
/// the links are removed, the skills stay installed.
fn record_removal_start(
    vault: &Vault,
    request: &RemoveSkills,
    own: &[Installation],
) -> Result<(), VaultError> {
    let (store, trusted) = (vault.store_folder(), vault.trusted()?);
    let leaving = own
        .iter()
        .filter(|place| request.names.iter().any(|name| name == place.name.as_str()));
    let leaving: Vec<_> = leaving
        .map(|place| {
            let manifest = store::read_manifest(&store, &place.bundle, &trusted);
            (&place.name, manifest.map_or(0, |manifest| manifest.version))
        })
        .collect();
    vault.change_own_skills(|skills| {
        for (name, version) in leaving {
            skills.note_reached(name, version);
            skills.begin_removal(name);
        }
    })
}

fn remove_one(
    vault: &Vault,
    change: &mut Change<'_>,
    place: &Installation,
    withdraw: Option<&str>,
) -> Result<RemovedSkill, VaultError> {
    let version = store::read_manifest(&vault.store_folder(), &place.bundle, &vault.trusted()?)
        .map(|manifest| manifest.version);
    // Withdraw before the link is removed: a kill in between leaves the skill installed, and the
    // command can be repeated. In the other order the withdrawal would be lost.
    if let Some(reason) = withdraw {
        withdraw_bundle(vault, &place.name, place.bundle, reason)?;
    }
    change.mark_changing()?;
    disk::remove_file(&vault.skills_folder().join(place.name.as_str()))?;
    disk::sync_dir(&vault.skills_folder())?;
    Ok(RemovedSkill {
        name: place.name.clone(),
        bundle: place.bundle,
        version,
        withdrawn: withdraw.is_some(),
        transforms: transforms::remove_transforms_of(vault, change, &place.name)?,
    })
}

/// Returns whether this machine knows of a skill of this name that the vault signed at any time: a
/// version is stored, the name is recorded, or a release lists it.
pub(crate) fn was_signed(vault: &Vault, name: &SkillName) -> Result<bool, VaultError> {
    // Consult three records, because an attacker who can write to the vault's folder can delete the
    // stored versions there, and an unsigned folder must not take the place of a signed skill.
    Ok(vault.own_skills()?.highest_recorded_version(name) > 0
        || !list_versions(vault, name)?.is_empty()
        || read_last_catalogs(vault)?
            .iter()
            .any(|catalog| catalog.skill(name).is_some()))
}

/// Returns the withdrawn bundles of this vault, oldest first.
pub fn list_withdrawn(vault: &Vault) -> Result<Vec<WithdrawnBundle>, VaultError> {
    let list: Option<WithdrawnList> = vault.trust_folder().read_record(WITHDRAWN)?;
    Ok(list.unwrap_or_default().withdrawn)
}

fn withdraw_bundle(
    vault: &Vault,
    name: &SkillName,
    bundle_hash: Digest,
    reason: &str,
) -> Result<(), VaultError> {
    let mut list = list_withdrawn(vault)?;
    // Keep the first withdrawal with its time: releases list it for 400 days from then.
    if list.iter().any(|entry| entry.bundle_hash == bundle_hash) {
        return Ok(());
    }
    list.push(WithdrawnBundle {
        name: name.clone(),
        bundle_hash,
        reason: reason.to_owned(),
        withdrawn_at: vault.clock().now(),
    });
    let list = WithdrawnList { withdrawn: list };
    Ok(vault.trust_folder().write_record(WITHDRAWN, &list)?)
}

/// Withdraws an earlier bundle of a skill without removing the skill. Returns false and changes
/// nothing if the bundle is installed: a release can't serve and withdraw the same bytes.
pub fn withdraw_version(
    vault: &Vault,
    name: &SkillName,
    bundle: Digest,
    reason: &str,
) -> Result<bool, VaultError> {
    let mut change = vault.begin_change()?;
    let installed = installations::own_skill_places(vault)?;
    if installed.iter().any(|place| place.bundle == bundle) {
        return Ok(false);
    }
    change.mark_changing()?;
    withdraw_bundle(vault, name, bundle, reason)?;
    Ok(true)
}

/// Removes bundles that no installed skill refers to: earlier versions, and leftovers of a killed
/// writer. After that, only a service that still has them can restore them.
pub fn collect_unreferenced(vault: &Vault) -> Result<Vec<Digest>, VaultError> {
    let change = vault.begin_change()?;
    collect_bundles_of(vault, &change, |_| true)
}

/// Removes unreferenced bundles that this vault did not sign, or whose manifest can't be read.
/// Earlier versions of own skills stay.
pub(crate) fn collect_foreign_bundles(
    vault: &Vault,
    change: &Change<'_>,
) -> Result<Vec<Digest>, VaultError> {
    collect_bundles_of(vault, change, |_| false)
}

/// Removes unreferenced bundles whose skill name `wanted` accepts, and those that this vault did
/// not sign or that can't be read.
pub(crate) fn collect_bundles_of(
    vault: &Vault,
    _change: &Change<'_>,
    wanted: impl Fn(&SkillName) -> bool,
) -> Result<Vec<Digest>, VaultError> {
    let places = installations::list_skill_places(vault)?;
    let groups = places.groups.iter().flat_map(|group| &group.places);
    // Keep the bundles of skills whose links were deleted by hand too, so that deleting a link does
    // not delete the bytes.
    let mut referenced: HashSet<_> = groups
        .chain(&places.gone)
        .map(|place| place.bundle)
        .collect();
    referenced.extend(rendered_variants::variant_bundles(vault)?);
    referenced.extend(project_skills::project_bundles(vault)?);
    let store = vault.store_folder();
    let (bundles, _) = store::list_bundles(&store)?;
    let trusted = vault.trusted_for_earlier()?;
    if !trusted.is_known() {
        // Without the vault's keys it can't be told which bundles are its own, so keep all.
        return Ok(Vec::new());
    }
    let unused: Vec<_> = bundles
        .into_iter()
        .filter(|bundle| !referenced.contains(bundle))
        .filter(|bundle| {
            store::read_manifest(&store, bundle, &trusted)
                .is_none_or(|manifest| wanted(&manifest.name))
        })
        .collect();
    let aside = vault.new_scratch()?;
    let dropped = store::drop_bundles(&store, aside.path(), unused)?;
    Index::open(vault).remove_rows(&dropped);
    crate::installed::source_records::forget_upstreams(vault, &dropped)?;
    Ok(dropped)
}
