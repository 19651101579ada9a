//! Creates and removes links to other vaults, and records the user's settings for them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vault_format::catalog::FormerSkills;
use vault_format::name::{SkillName, SkillRef, Slug};
use vault_format::root::VaultFingerprint;

use super::device_key::create_device_key;
use super::error::LinkError;
use super::state::{InstalledSet, switch_set};
use crate::admit::remove;
use crate::disk;
use crate::installed::agent_links::withdraw::withdraw_from_agents;
use crate::installed::installations::{self, OWN};
use crate::installed::link_id::LinkId;
use crate::installed::linked_agents::AgentFolderEntries;
use crate::installed::linked_pins::{
    CountedFile, Link, PIN, Pin, PullGate, find_link_by_id, links_folder, list_links, trust_folder,
    unset_bare_names,
};
use crate::vault::Vault;

/// Links a vault: creates a device key, and a pin (the record of what is trusted and installed)
/// without a catalog. If the vault is linked already, returns the link as it is.
pub fn link_vault(vault: &Vault, base: &str, slug: &Slug) -> Result<Link, LinkError> {
    let id = LinkId::from_address(base, slug);
    let existing = || -> Result<Option<Link>, LinkError> {
        let link = find_link_by_id(vault, &id)?;
        if let Some(link) = &link {
            // A link whose key is missing or replaced can sign no request, so report that now and
            // not in the first pull.
            link.device_key(vault)?;
        }
        Ok(link)
    };
    if let Some(link) = existing()? {
        return Ok(link);
    }
    let mut change = vault.begin_change()?;
    // Another command may have linked the vault and installed skills while this one waited for the
    // lock.
    if let Some(link) = existing()? {
        return Ok(link);
    }
    let trust = trust_folder(vault, &id);
    trust.sweep_leftovers()?;
    let recorded = trust.read_record::<Pin>(PIN)?;
    let device_key = create_device_key(vault, &trust, recorded.as_ref())?;
    let device_key_id = device_key.public().key_id();
    let pin = match recorded {
        Some(mut pin) => {
            // The skills are gone together with the vault's folder, but none of them may come back
            // below the version that it had.
            pin.note_former(&BTreeMap::new());
            Pin {
                device_key_id,
                name: free_name(vault, &id, &pin.name)?,
                library: vault.paths().root.clone(),
                // Nothing that was installed is in this folder.
                counted: pin.counted.map(|counted| CountedFile {
                    installed: BTreeMap::new(),
                    agents: BTreeMap::new(),
                    ..counted
                }),
                replaced: None,
                withdrawn_names: BTreeMap::new(),
                ..pin
            }
        }
        None => Pin {
            former: FormerSkills::default(),
            withdrawn_names: BTreeMap::new(),
            base: base.to_owned(),
            name: free_name(vault, &id, slug)?,
            slug: slug.clone(),
            gate: PullGate::default(),
            library: vault.paths().root.clone(),
            vault_id: None,
            counted: None,
            replaced: None,
            expected: None,
            device_key_id,
            linked_at: vault.clock().now(),
        },
    };
    trust.write_record(PIN, &pin)?;
    let folder = links_folder(vault).join(id.as_str());
    disk::make_dirs(&folder, 0o700)?;
    let agents = AgentFolderEntries::new();
    switch_set(
        vault,
        &mut change,
        &folder,
        &InstalledSet::default(),
        &agents,
    )?;
    find_link_by_id(vault, &id)?.ok_or(LinkError::Unknown(id))
}

/// Returns the name for a link, or else the first of `<name>-2`, `<name>-3` and so on that no other
/// link has.
fn free_name(vault: &Vault, id: &LinkId, name: &Slug) -> Result<Slug, LinkError> {
    let others = list_links(vault)?;
    let taken = |name: &Slug| {
        // `local/<name>` means an own skill.
        name.as_str() == OWN
            || others
                .iter()
                .any(|other| other.id != *id && other.pin.name == *name)
    };
    let numbered = (2..).filter_map(|number| {
        // A slug has at most 63 characters, so leave room for the number.
        let stem = name.as_str().get(..56).unwrap_or(name.as_str());
        format!("{}-{number}", stem.trim_end_matches('-'))
            .parse()
            .ok()
    });
    let mut names = std::iter::once(name.clone()).chain(numbered);
    Ok(names
        .find(|name| !taken(name))
        .unwrap_or_else(|| name.clone()))
}

/// Settings of a link to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default)]
pub struct LinkSettings {
    /// Name of the vault on this machine.
    pub name: Option<Slug>,
    /// Action of a pull for skills that the gate of this machine blocks.
    pub gate: Option<PullGate>,
}

/// Changes the settings of a link. Fails if another link has the name.
pub fn configure_link(
    vault: &Vault,
    id: &LinkId,
    settings: &LinkSettings,
) -> Result<Link, LinkError> {
    let mut change = vault.begin_change()?;
    let mut link = find_link_by_id(vault, id)?.ok_or_else(|| LinkError::Unknown(id.clone()))?;
    if let Some(name) = &settings.name {
        if free_name(vault, id, name)? != *name {
            return Err(LinkError::NameTaken(name.clone()));
        }
        link.pin.name = name.clone();
    }
    link.pin.gate = settings.gate.unwrap_or(link.pin.gate);
    // Readers use the name and the gate setting, so they must notice the change although no
    // symbolic link changes.
    change.mark_changing()?;
    trust_folder(vault, id).write_record(PIN, &link.pin)?;
    Ok(link)
}

/// Gives the bare name of an installed skill (the name without a vault) to the skill of the named
/// linked vault, so that agents see that one. Returns the name; `None` if that vault has it
/// already. Fails if an own skill has the name.
pub fn prefer_skill(vault: &Vault, skill: &SkillRef) -> Result<Option<SkillName>, LinkError> {
    let mut change = vault.begin_change()?;
    let unknown = || LinkError::NotInstalled(skill.clone());
    let (place, _) = installations::find_installed(vault, skill)?.ok_or_else(unknown)?;
    let name = place.name;
    if place.bare {
        return Ok(None);
    }
    let mut links = list_links(vault)?;
    let link = links
        .iter_mut()
        .find(|link| Some(&link.pin.name) == place.vault.as_ref());
    let link = link.ok_or_else(unknown)?;
    if installations::own_skill_places(vault)?
        .iter()
        .any(|own| own.name == name)
    {
        return Err(LinkError::OwnName(name));
    }
    change.mark_changing()?;
    // Until the next sync, agents see no skill of this name.
    withdraw_from_agents(vault, &mut change, std::slice::from_ref(&name), &[])?;
    unset_bare_names(vault, &[&name])?;
    link.set_bare_name(vault, &name, true)?;
    Ok(Some(name))
}

/// Records the fingerprint that the vault must have, for a link that has pinned no vault yet.
/// [`Link::accept_catalog`] then checks it even if its caller passes none. Changes nothing if a
/// vault is pinned already.
pub fn expect_fingerprint(
    vault: &Vault,
    id: &LinkId,
    fingerprint: &VaultFingerprint,
) -> Result<(), LinkError> {
    // Most calls change nothing. They need no writer lock.
    let is_news =
        |link: &Link| link.pin.vault_id.is_none() && link.pin.expected != Some(*fingerprint);
    let found = || find_link_by_id(vault, id)?.ok_or_else(|| LinkError::Unknown(id.clone()));
    if !is_news(&found()?) {
        return Ok(());
    }
    let _change = vault.begin_change()?;
    // Another command may have changed the pin while this one waited for the lock.
    let link = found()?;
    if !is_news(&link) {
        return Ok(());
    }
    let pin = Pin {
        expected: Some(*fingerprint),
        ..link.pin
    };
    Ok(trust_folder(vault, id).write_record(PIN, &pin)?)
}

/// What [`unlink_vault()`] removed: the skills of the link, and their entries in agents' folders.
#[derive(Clone, Debug, Default)]
pub struct RemovedLink {
    /// Skills that the link had installed, by the names under which they were installed.
    pub skills: Vec<SkillName>,
    /// Agents' folders that showed some of these skills, with their names there.
    pub unlinked: Vec<(PathBuf, Vec<SkillName>)>,
}

/// Removes a link with its skills, its device key, and the bundles that nothing else uses. Returns
/// `None` if there is no such link. The trust record of the vault stays, because another link may
/// need it, and a later link must not accept older root versions.
pub fn unlink_vault(vault: &Vault, id: &LinkId) -> Result<Option<RemovedLink>, LinkError> {
    let mut change = vault.begin_change()?;
    let folder = links_folder(vault).join(id.as_str());
    let link = find_link_by_id(vault, id)?;
    let mut removed = RemovedLink::default();
    if let Some(link) = &link {
        removed.skills = link.installed_names();
        // Remove the agents' symlinks first, so that none of them dangles.
        let held = link.installed_skills().filter(|(_, skill)| skill.bare);
        let names: Vec<_> = held.map(|(name, _)| name.clone()).collect();
        removed.unlinked = withdraw_from_agents(vault, &mut change, &names, &[])?;
    }
    let has_folder = disk::kind_at(&folder)?.is_some();
    change.mark_changing()?;
    // Nothing of a link is used without its pin, so a kill after this line leaves no half-removed
    // link.
    trust_folder(vault, id).remove_all()?;
    if has_folder {
        let aside = vault.new_scratch()?;
        disk::rename(&folder, &aside.path().join(id.as_str()))?;
        disk::sync_dir(&links_folder(vault))?;
    }
    remove::collect_foreign_bundles(vault, &change)?;
    Ok((has_folder || link.is_some()).then_some(removed))
}
