//! Installs a selection of a linked vault's skills in one switch: the present set of skills is
//! replaced by a new one as a whole.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::catalog::FormerSkills;
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName, Slug};

use super::accept::AcceptedCatalog;
use super::agents::{
    agent_folders, agents_without_withdrawn, changed_variants, lost_targets, profile_bundles,
    skills_by_agent,
};
use super::catalog::{SelectedSkill, SelectedSkills};
use super::error::{FlaggedSkill, LinkError};
use super::pull_report::{PullReport, TakenName, WithdrawnSkill};
use super::staged::StagedBundles;
use super::state::{InstalledSet, switch_set};
use crate::admit::remove;
use crate::installed::agent_links::withdraw::{withdraw_from_agents, withdraw_targets};
use crate::installed::installations;
use crate::installed::linked_agents::AgentFolderEntries;
use crate::installed::linked_pins::{
    CATALOG_ENDING, CountedFile, Link, LinkedSkill, PIN, PROFILE_ENDING, Pin, ProfileBundles,
    PullGate, Selection, catalog_file, find_link_by_id, list_links, profile_file, trust_folder,
};
use crate::installed::root_versions;
use crate::store;
use crate::vault::folder::PrivateFolder;
use crate::vault::{Change, Vault, VaultError};

/// Pins an accepted catalog and removes withdrawn skills, but installs nothing. This is for a
/// device that is not approved yet, and so can't fetch bundles.
pub fn pin_only(vault: &Vault, catalog: &AcceptedCatalog) -> Result<PullReport, LinkError> {
    let mut pull = PullTransaction::begin(vault, catalog)?;
    let set = pull.kept_set();
    let variants = pull.kept_variants();
    pull.switch_to(&set, variants, &BTreeMap::new())?;
    pull.finish_report(&set)
}

/// Removes the installed skills that the catalog withdraws, before anything is fetched. A service
/// that gives out no bundles, such as those of a lapsed vault, must not keep withdrawn skills in
/// use. Returns `None` if no such skill is installed.
pub fn withdraw_first(
    vault: &Vault,
    catalog: &AcceptedCatalog,
) -> Result<Option<PullReport>, LinkError> {
    let link = find_link_by_id(vault, &catalog.link)?;
    let link = link.ok_or_else(|| LinkError::Unknown(catalog.link.clone()))?;
    let mut installed = link.variant_bundles();
    installed.extend(link.installed_skills().map(|(_, skill)| skill.bundle));
    let mut withdrawn = catalog.catalog.withdrawn.iter();
    if !withdrawn.any(|entry| installed.contains(&entry.bundle_hash)) {
        return Ok(None);
    }
    pin_only(vault, catalog).map(Some)
}

/// Makes the installed set equal to the selection. Every selected bundle must be staged, or be in
/// the store. If a check fails, nothing is changed.
pub fn install_selection(
    vault: &Vault,
    catalog: &AcceptedCatalog,
    selection: &Selection,
    selected: &SelectedSkills,
    staged: StagedBundles,
) -> Result<PullReport, LinkError> {
    let mut pull = PullTransaction::begin(vault, catalog)?;
    pull.is_whole = true;
    pull.gate_selected(selected, &staged)?;
    let set = pull.admit_staged(selection, selected, staged)?;
    let variants = profile_bundles(selected, &pull.catalog.catalog.profiles);
    pull.switch_to(&set, variants, &selected.profiles)?;
    pull.finish_report(&set)
}

/// One pull, under the writer lock: builds the new set, switches to it, and then removes what the
/// old set alone used.
struct PullTransaction<'a> {
    vault: &'a Vault,
    change: Change<'a>,
    link: Link,
    catalog: AcceptedCatalog,
    /// Bundles that the vault's folder shows for the link before the switch.
    before: BTreeMap<SkillName, Digest>,
    /// Folders of agents that the vault's folder shows for the link before the switch.
    agents_before: AgentFolderEntries,
    /// Whether the pull installs a selection. Otherwise it only removes what the catalog withdraws.
    is_whole: bool,
    report: PullReport,
}

impl<'a> PullTransaction<'a> {
    fn begin(vault: &'a Vault, catalog: &AcceptedCatalog) -> Result<Self, LinkError> {
        let mut change = vault.begin_change()?;
        let link = find_link_by_id(vault, &catalog.link)?
            .ok_or_else(|| LinkError::Unknown(catalog.link.clone()))?;
        // Another pull may have ended since the catalog was accepted, so judge it again against the
        // current pin.
        let (bytes, options) = (&catalog.bytes, &catalog.options);
        let catalog = link.accept_under(vault, Some(&mut change), bytes, options)?;
        Ok(Self {
            before: link.linked_bundles()?.0,
            agents_before: link.agent_folders()?,
            is_whole: false,
            report: PullReport {
                release: catalog.catalog.release,
                ..PullReport::default()
            },
            vault,
            change,
            link,
            catalog,
        })
    }

    /// Moves the staged bundles into the store. Returns the set of all selected skills.
    fn admit_staged(
        &mut self,
        selection: &Selection,
        selected: &SelectedSkills,
        staged: StagedBundles,
    ) -> Result<InstalledSet, LinkError> {
        let StagedBundles {
            aside,
            batch,
            hashes,
            ..
        } = staged;
        let mut unstaged = selected.clone();
        let is_unstaged = |skill: &SelectedSkill| !hashes.contains(&skill.bundle_hash);
        unstaged.skills.retain(is_unstaged);
        unstaged.variants.retain(is_unstaged);
        if let Some(skill) = self.catalog.missing_bundles(self.vault, &unstaged).first() {
            return Err(skill.name_agent(LinkError::NotStaged(skill.name.clone())));
        }
        let selected_bundles: BTreeSet<_> =
            selected.bundles().map(|skill| skill.bundle_hash).collect();
        // Leave out staged bundles that are not selected: nothing in the store would refer to them.
        let hashes: Vec<_> = hashes.intersection(&selected_bundles).copied().collect();
        if !hashes.is_empty() {
            batch.flush(aside.path())?;
            let store = self.vault.store_folder();
            let trusted = self.catalog.trust_in_bundles(hashes.iter().copied());
            store::admit_bundles(&store, aside.path(), &hashes, &trusted)?;
        }
        let holders = self.bare_name_holders()?;
        let mut skills = BTreeMap::new();
        for skill in &selected.skills {
            let name = &skill.installed_as;
            let signer =
                // Record the signer in the pin now, so that a later pull does not depend on a
                // manifest that others can delete.
                store::read_signer(&self.vault.store_folder(), &skill.bundle_hash, &self.catalog.roots);
            let linked = LinkedSkill {
                signer: signer.ok_or_else(|| LinkError::NotStaged(skill.name.clone()))?,
                name: skill.name.clone(),
                bundle: skill.bundle_hash,
                bare: self.gets_bare_name(name, &holders),
                entry: self.catalog.catalog.skill(&skill.name).cloned(),
            };
            skills.insert(name.clone(), linked);
        }
        Ok(InstalledSet {
            selection: selection.clone(),
            skills,
            agents: skills_by_agent(selected),
        })
    }

    /// Runs the gate on selected bundles that were in the store already, and collects the skills
    /// that it blocks. With [`PullGate::Refuse`] every bundle is judged, otherwise only those that
    /// the link does not install yet.
    fn gate_selected(
        &mut self,
        selected: &SelectedSkills,
        staged: &StagedBundles,
    ) -> Result<(), LinkError> {
        let gate = self.link.pin.gate;
        if gate == PullGate::Off {
            return Ok(());
        }
        let mut installed_bundles = self.link.variant_bundles();
        let plain = self.link.installed_skills();
        installed_bundles.extend(plain.map(|(_, skill)| skill.bundle));
        let mut flagged = Vec::new();
        for skill in selected.bundles() {
            let hash = &skill.bundle_hash;
            if staged.hashes.contains(hash) {
                flagged.extend(staged.flagged.get(hash).cloned());
            // With `Warn`, the pull that installed a skill has reported it already.
            } else if gate == PullGate::Refuse || !installed_bundles.contains(hash) {
                let trusted = self.catalog.trust_in_bundles(std::iter::once(*hash));
                let store = self.vault.store_folder();
                // If the bundle can't be read, `admit_staged` reports that it was not fetched.
                if let Ok(examined) =
                    store::examine_stored(&store, hash, Some(&skill.name), &trusted)
                {
                    flagged.extend(self.catalog.run_gate(skill, examined.files));
                }
            }
        }
        // Variants often have the same findings as their skill.
        flagged.sort_by(|one: &FlaggedSkill, other| one.name.cmp(&other.name));
        flagged.dedup_by(|one, other| one.name == other.name);
        if gate == PullGate::Refuse && !flagged.is_empty() {
            return Err(LinkError::Gate(flagged));
        }
        self.report.flagged = flagged;
        Ok(())
    }

    /// Returns who has which bare name (the name without a vault): another link, or `None` for an
    /// own skill.
    fn bare_name_holders(&self) -> Result<BTreeMap<SkillName, Option<Slug>>, VaultError> {
        let mut holders = BTreeMap::new();
        for link in list_links(self.vault)? {
            if link.id != self.link.id {
                let installed = link.installed_skills().filter(|(_, skill)| skill.bare);
                let withdrawn = link.pin.withdrawn_names.iter().filter(|(_, had)| **had);
                let held = installed.map(|(name, _)| name);
                let held = held.chain(withdrawn.map(|(name, _)| name));
                holders.extend(held.map(|name| (name.clone(), Some(link.pin.name.clone()))));
            }
        }
        let own = installations::own_skill_places(self.vault)?.into_iter();
        // Insert own skills last, because they have their bare names in any case.
        holders.extend(own.map(|place| (place.name, None)));
        // If the link of an own skill is deleted by hand, the bare name must not pass to a linked
        // skill.
        let recorded = self.vault.own_skills()?;
        holders.extend(
            recorded
                .expected_skills()
                .map(|(name, _)| (name.clone(), None)),
        );
        Ok(holders)
    }

    /// Returns whether a skill of the new set gets its bare name. A skill that has the name already
    /// keeps it. A skill that was installed without its bare name stays without it until the user
    /// prefers it, even if the name is free now: deleting a link in the vault's folder must not
    /// pass names on.
    fn gets_bare_name(
        &self,
        name: &SkillName,
        holders: &BTreeMap<SkillName, Option<Slug>>,
    ) -> bool {
        let mut before = self.link.installed_skills();
        let had = before.find(|(installed_as, _)| *installed_as == name);
        let had = had.map(|(_, skill)| skill.bare);
        let had = had.or_else(|| self.link.pin.withdrawn_names.get(name).copied());
        let had = had.filter(|_| self.is_same_vault());
        !holders.contains_key(name) && had.unwrap_or(true)
    }

    /// Returns the present set without the skills that the catalog withdraws; an empty set if the
    /// link now shows another vault.
    fn kept_set(&self) -> InstalledSet {
        if !self.is_same_vault() {
            return InstalledSet::default();
        }
        let withdrawn = &self.catalog.catalog.withdrawn;
        let is_kept = |skill: &LinkedSkill| {
            let mut withdrawn = withdrawn.iter();
            withdrawn.all(|entry| entry.bundle_hash != skill.bundle)
        };
        let kept = self
            .link
            .installed_skills()
            .filter(|(_, skill)| is_kept(skill));
        let skills = kept
            .map(|(name, skill)| (name.clone(), skill.clone()))
            .collect();
        InstalledSet {
            selection: self.link.selection(),
            agents: agents_without_withdrawn(self.link.pin.counted.as_ref(), &skills, withdrawn),
            skills,
        }
    }

    /// Returns the recorded variants of the profiles that the new catalog still names.
    fn kept_variants(&self) -> Vec<ProfileBundles> {
        let named = |known: &&ProfileBundles| {
            let mut profiles = self.catalog.catalog.profiles.iter();
            profiles.any(|entry| entry.bundle_hash == known.profile)
        };
        let counted = self.link.pin.counted.iter();
        let known = counted.flat_map(|counted| &counted.variants);
        known.filter(named).cloned().collect()
    }

    /// Returns whether the catalog is of the vault that the link has pinned, or none is pinned.
    fn is_same_vault(&self) -> bool {
        let pinned = self.link.pin.vault_id;
        pinned.is_none_or(|pinned| pinned == self.catalog.catalog.vault_id)
    }

    /// Pins the catalog and switches to the new set. Bundles of both catalogs are accepted during
    /// the switch, so that a kill leaves a complete set.
    fn switch_to(
        &mut self,
        set: &InstalledSet,
        variants: Vec<ProfileBundles>,
        profiles: &BTreeMap<Digest, Vec<u8>>,
    ) -> Result<(), LinkError> {
        self.report_changes(set);
        let catalog = &self.catalog;
        let listed = catalog.catalog.skills.iter();
        let listed = listed.map(|entry| entry.bundle_hash).collect();
        let (id, id_and_roots) = (&catalog.catalog.vault_id, catalog.roots.chain().to_list());
        let seen_at = Some(catalog.seen_at);
        // Write the trust record before the pin, because nothing of a pinned vault can be verified
        // without it.
        root_versions::store_accepted_roots(&mut self.change, id, &id_and_roots, &listed, seen_at)?;
        let folder = trust_folder(self.vault, &self.link.id);
        let counted = CountedFile {
            release: catalog.stored.release,
            payload_sha256: catalog.stored.payload_sha256,
            file_sha256: Digest::of(&catalog.bytes),
            signers: catalog.signers.clone(),
            variants,
            selection: set.selection.clone(),
            installed: set.skills.clone(),
            agents: set.agents.clone(),
        };
        self.store_files(&folder, &counted, profiles)?;
        let before = self.link.pin.counted.as_ref();
        let before = before.filter(|_| self.is_same_vault());
        let agents = agent_folders(self.vault, &self.link, set)?;
        let new_skills = set.skills.iter();
        let same_set = new_skills
            .map(|(name, skill)| (name, &skill.bundle))
            .eq(&self.before)
            && self.link.installed_skills().eq(&set.skills)
            && before.map_or(set.agents.is_empty(), |before| before.agents == set.agents)
            && agents == self.agents_before;
        let mut pin = self.link.pin.clone();
        pin.withdrawn_names = self.withdrawn_names(set);
        if self.is_same_vault() {
            pin.note_former(&set.skills);
            pin.former.forget_revoked(&catalog.roots);
        } else {
            // The versions of the old vault say nothing about the skills of the new one.
            pin.former = FormerSkills::default();
        }
        pin.vault_id = Some(catalog.catalog.vault_id);
        pin.replaced = self.find_shown_catalog().filter(|_| !same_set);
        pin.counted = Some(counted);
        pin.expected = None;
        pin.library.clone_from(&self.vault.paths().root);
        folder.write_record(PIN, &pin)?;
        if !same_set {
            // Remove the agents' symlinks before the switch, so that none of them dangles. Leave
            // names that this link does not hold, because they mean skills from elsewhere.
            let removed = self.report.removed.iter();
            let removed: Vec<_> = removed
                .filter(|name| self.link.holds_bare_name(name))
                .cloned()
                .collect();
            let (vault, change) = (self.vault, &mut self.change);
            self.report.unlinked = withdraw_from_agents(vault, change, &removed, &[])?;
            // Single agents may lose a skill that others keep.
            let lost = lost_targets(&self.link, &self.before, &self.agents_before, &agents, set);
            self.report.unlinked.extend(withdraw_targets(vault, &lost)?);
            switch_set(vault, change, &self.link.folder, set, &agents)?;
            // After the switch, bundles of the old catalog are no longer accepted.
            pin.replaced = None;
            folder.write_record(PIN, &pin)?;
        }
        remove_catalogs(&folder, [&self.link.pin, &pin])
    }

    /// Returns the withdrawn skills whose bare names a later pull decides about, as in [`Pin`].
    fn withdrawn_names(&self, set: &InstalledSet) -> BTreeMap<SkillName, bool> {
        if self.is_whole || !self.is_same_vault() {
            return BTreeMap::new();
        }
        let mut names = self.link.pin.withdrawn_names.clone();
        let gone = self.link.installed_skills();
        let gone = gone.filter(|(name, _)| !set.skills.contains_key(*name));
        names.extend(gone.map(|(name, skill)| (name.clone(), skill.bare)));
        names
    }

    /// Stores the catalog and its profiles. Their file names are their hashes and the pin names
    /// them later, so a kill leaves no pin without its catalog.
    fn store_files(
        &self,
        folder: &PrivateFolder,
        counted: &CountedFile,
        profiles: &BTreeMap<Digest, Vec<u8>>,
    ) -> Result<(), LinkError> {
        let before = self.link.pin.counted.as_ref();
        if before.map(|before| before.file_sha256) != Some(counted.file_sha256) {
            let name = catalog_file(&counted.file_sha256);
            folder.replace_file(&name, &self.catalog.bytes)?;
        }
        let stored = folder.file_names()?;
        for (hash, bytes) in profiles {
            if !stored.contains(&profile_file(hash)) {
                folder.replace_file(&profile_file(hash), bytes)?;
            }
        }
        Ok(())
    }

    /// Returns the catalog whose skills the vault's folder shows now. After a killed pull, that is
    /// the one before the pinned catalog.
    fn find_shown_catalog(&self) -> Option<CountedFile> {
        let pin = Some(&self.link.pin).filter(|_| self.is_same_vault())?;
        let is_shown = |file: &&CountedFile| {
            let is_shown_to = |(agent, shown): (&AgentId, &BTreeMap<SkillName, Digest>)| {
                file.bundles_for(agent) == *shown
            };
            let installed = file.installed.iter();
            installed
                .map(|(name, skill)| (name, &skill.bundle))
                .eq(&self.before)
                && self.agents_before.iter().all(is_shown_to)
        };
        let mut known = pin.counted.iter().chain(&pin.replaced);
        known.find(is_shown).or(pin.counted.as_ref()).cloned()
    }

    fn report_changes(&mut self, set: &InstalledSet) {
        let report = &mut self.report;
        let changed = changed_variants(self.link.pin.counted.as_ref(), set);
        for (name, skill) in &set.skills {
            match self.before.get(name) {
                None => report.installed.push(name.clone()),
                Some(old) if *old != skill.bundle || changed.contains(name) => {
                    report.updated.push(name.clone());
                }
                Some(_) => report.unchanged += 1,
            }
        }
        let removed = self
            .before
            .keys()
            .filter(|name| !set.skills.contains_key(*name));
        report.removed = removed.cloned().collect();
    }

    /// Removes the bundles to which nothing refers any more, and completes the report.
    fn finish_report(mut self, set: &InstalledSet) -> Result<PullReport, LinkError> {
        let holders = self.bare_name_holders()?;
        for (name, _) in set.skills.iter().filter(|(_, skill)| !skill.bare) {
            self.report.shadowed.push(name.clone());
            let was_there = self
                .link
                .installed_skills()
                .any(|(before, skill)| before == name && !skill.bare);
            if let Some(by) = holders.get(name).filter(|_| !was_there) {
                let (name, by) = (name.clone(), by.clone());
                self.report.taken.push(TakenName { name, by });
            }
        }
        let withdrawn = self.withdrawn_bundles();
        // Collect garbage in every pull, because an earlier one may have been killed after its
        // switch.
        let dropped = remove::collect_foreign_bundles(self.vault, &self.change)?;
        for entry in &self.catalog.catalog.withdrawn {
            if !withdrawn.contains(&entry.bundle_hash) {
                continue;
            }
            let name = entry.name.clone();
            if dropped.contains(&entry.bundle_hash) {
                let reason = entry.reason.clone();
                self.report.withdrawn.push(WithdrawnSkill { name, reason });
            } else {
                self.report.kept.push(name);
            }
        }
        self.report.withdrawn.sort();
        self.report.kept.sort();
        Ok(self.report)
    }

    /// Returns the bundles that the catalog withdraws and this link had installed. Bundles that
    /// other links or the owner installed do not count.
    fn withdrawn_bundles(&self) -> BTreeSet<Digest> {
        let mut had = self.link.variant_bundles();
        let plain = self.link.installed_skills();
        had.extend(plain.map(|(_, skill)| skill.bundle));
        let withdrawn = self.catalog.catalog.withdrawn.iter();
        let withdrawn = withdrawn.map(|entry| entry.bundle_hash);
        withdrawn.filter(|bundle| had.contains(bundle)).collect()
    }
}

/// Removes the files of catalogs and profiles that neither pin names.
fn remove_catalogs(folder: &PrivateFolder, pins: [&Pin; 2]) -> Result<(), LinkError> {
    // Keep the files of both pins, because a reader may still use the pin from before this pull.
    let counted = pins
        .into_iter()
        .flat_map(|pin| pin.counted.iter().chain(&pin.replaced));
    let kept: BTreeSet<_> = counted
        .flat_map(|file| {
            let profiles = file.variants.iter();
            let profiles = profiles.map(|known| profile_file(&known.profile));
            profiles.chain([catalog_file(&file.file_sha256)])
        })
        .collect();
    for name in folder.file_names()? {
        let is_named = name.ends_with(CATALOG_ENDING) || name.ends_with(PROFILE_ENDING);
        if is_named && !kept.contains(&name) {
            folder.remove_file(&name)?;
        }
    }
    Ok(())
}
