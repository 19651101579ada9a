//! Stages fetched bundles and installs them in one switch.

use std::collections::{BTreeMap, BTreeSet};

use vault_skill::bundle::{self, Bundle};
use vault_skill::catalog::Withdrawn;
use vault_skill::hash::Digest;
use vault_skill::manifest::ManifestExpectation;
use vault_skill::name::SkillName;

use super::catalog::{AcceptedCatalog, SelectedSkill};
use super::error::LinkError;
use super::state::{InstalledSet, NewState, SetChange, switch};
use crate::admit::remove;
use crate::disk::Batch;
use crate::disk::scratch::Scratch;
use crate::index::Index;
use crate::installed::agent_links::withdraw::withdraw as withdraw_from_agents;
use crate::installed::linked::{Alias, Link, Selection, SetRecord, all, find};
use crate::installed::place::{self, Origin, installed_by};
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// Fetched bundles that are verified and staged for [`install`]. Dropping this value deletes the
/// staged files.
#[derive(Debug)]
pub struct StagedBundles {
    aside: Scratch,
    batch: Batch,
    hashes: BTreeSet<Digest>,
}

impl StagedBundles {
    /// Creates an empty set. Takes no lock, so that a slow download does not block other writers.
    pub fn new(vault: &Vault) -> Result<Self, LinkError> {
        Ok(Self {
            aside: vault.scratch()?,
            batch: Batch::default(),
            hashes: BTreeSet::new(),
        })
    }

    /// Lists the parts to fetch in addition to a bundle, with their sizes. Fails if the bytes do
    /// not match the catalog.
    pub fn parts(skill: &SelectedSkill, bytes: &[u8]) -> Result<Vec<(Digest, u64)>, LinkError> {
        let bundle = parse(skill, bytes)?;
        Ok(bundle
            .parts()
            .map(|part| (part.bundle_hash, part.size))
            .collect())
    }

    /// Verifies a fetched bundle (hash and size, manifest, every file) and stages it.
    pub fn add(
        &mut self,
        accepted: &AcceptedCatalog,
        skill: &SelectedSkill,
        bytes: &[u8],
        parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<(), LinkError> {
        if !self.hashes.insert(skill.bundle_hash) {
            return Ok(());
        }
        let refused = |reason| LinkError::Bundle {
            name: skill.name.clone(),
            reason,
        };
        let catalog = &accepted.accepted.catalog;
        let expected = ManifestExpectation {
            vault_id: catalog.vault_id,
            name: &skill.name,
            version: Some(skill.version),
            stored_version: None,
        };
        let opened = parse(skill, bytes)?
            .open(parts, &accepted.accepted.keys, &expected)
            .map_err(refused)?;
        // The integrity check encodes each bundle again from the store, so the encoding must be
        // canonical.
        let again =
            bundle::encode(&opened.signed, &opened.manifest, &opened.files).map_err(refused)?;
        if again.hash != skill.bundle_hash {
            return Err(LinkError::NotCanonical(skill.name.clone()));
        }
        store::stage(
            &mut self.batch,
            self.aside.path(),
            &skill.bundle_hash,
            opened.signed.as_bytes(),
            &opened.files,
        )?;
        Ok(())
    }
}

fn parse(skill: &SelectedSkill, bytes: &[u8]) -> Result<Bundle, LinkError> {
    Bundle::parse(bytes, &skill.bundle_hash, skill.size).map_err(|reason| LinkError::Bundle {
        name: skill.name.clone(),
        reason,
    })
}

/// The changes that a pull made.
#[derive(Clone, Debug, Default)]
pub struct PullReport {
    /// The release after the pull.
    pub release: u64,
    /// New skills, by the name they are installed under.
    pub installed: Vec<SkillName>,
    /// Skills whose content changed.
    pub updated: Vec<SkillName>,
    /// Skills that were uninstalled because they are no longer in the catalog or the selection.
    pub removed: Vec<SkillName>,
    /// The number of unchanged skills.
    pub unchanged: usize,
    /// Withdrawn skills whose bundles were removed, with the reason.
    pub withdrawn: Vec<(SkillName, String)>,
    /// Installed skills that are hidden by an own skill, or by a skill of another link, with the
    /// same name.
    pub shadowed: Vec<SkillName>,
    /// Withdrawn skills whose bundles stay because an own skill uses them.
    pub kept: Vec<SkillName>,
}

/// Pins an accepted catalog and removes withdrawn skills, but installs nothing. A device uses this
/// until it is approved.
pub fn pin_only(vault: &Vault, catalog: &AcceptedCatalog) -> Result<PullReport, LinkError> {
    let mut pull = PullTransaction::begin(vault, catalog)?;
    let set = pull.keep()?;
    pull.switch(&set)?;
    pull.tidy(&set)
}

/// Makes the installed set equal to the selection. Every selected bundle must be staged or
/// installed already. A failed check changes nothing on disk.
pub fn install(
    vault: &Vault,
    catalog: &AcceptedCatalog,
    selection: &Selection,
    selected: &[SelectedSkill],
    staged: StagedBundles,
) -> Result<PullReport, LinkError> {
    let mut pull = PullTransaction::begin(vault, catalog)?;
    let set = pull.stage(selection, selected, staged)?;
    pull.switch(&set)?;
    pull.tidy(&set)
}

/// One pull under the writer lock: builds the new set, switches to it, then removes what it
/// replaces.
struct PullTransaction<'a> {
    vault: &'a Vault,
    change: Change<'a>,
    link: Link,
    catalog: AcceptedCatalog,
    /// The skills that the link installs before the switch.
    before: BTreeMap<SkillName, Digest>,
    report: PullReport,
}

impl<'a> PullTransaction<'a> {
    fn begin(vault: &'a Vault, catalog: &AcceptedCatalog) -> Result<Self, LinkError> {
        let change = vault.change()?;
        let link =
            find(vault, &catalog.link)?.ok_or_else(|| LinkError::Unknown(catalog.link.clone()))?;
        // Another pull may have finished since the catalog was accepted, so check it against the
        // current pin.
        let catalog = link.accept(
            vault,
            &catalog.bytes,
            catalog.expect_key.as_deref(),
            catalog.repin,
        )?;
        Ok(Self {
            before: installed_by(&link)?,
            report: PullReport {
                release: catalog.accepted.catalog.release,
                ..PullReport::default()
            },
            vault,
            change,
            link,
            catalog,
        })
    }

    /// Moves the staged bundles into the store and returns the set of all selected skills.
    fn stage(
        &mut self,
        selection: &Selection,
        selected: &[SelectedSkill],
        staged: StagedBundles,
    ) -> Result<InstalledSet, LinkError> {
        let StagedBundles {
            aside,
            batch,
            hashes,
        } = staged;
        let unstaged: Vec<_> = selected
            .iter()
            .filter(|skill| !hashes.contains(&skill.bundle_hash))
            .cloned()
            .collect();
        if let Some(skill) = self.catalog.missing(self.vault, &unstaged).first() {
            return Err(LinkError::NotStaged(skill.name.clone()));
        }
        let wanted: BTreeSet<_> = selected.iter().map(|skill| skill.bundle_hash).collect();
        let hashes: Vec<_> = hashes.intersection(&wanted).copied().collect();
        if !hashes.is_empty() {
            batch.flush(aside.path())?;
            let store = self.vault.store();
            store::admit(&store, aside.path(), &hashes, &self.catalog.trusted())?;
        }
        let renamed = selected
            .iter()
            .filter(|skill| skill.installed_as != skill.name);
        Ok(InstalledSet {
            record: SetRecord {
                selection: selection.clone(),
                aliases: renamed
                    .map(|skill| Alias {
                        installed_as: skill.installed_as.clone(),
                        name: skill.name.clone(),
                    })
                    .collect(),
            },
            skills: selected
                .iter()
                .map(|skill| (skill.installed_as.clone(), skill.bundle_hash))
                .collect(),
        })
    }

    /// The current set without the skills that the catalog withdraws.
    fn keep(&self) -> Result<InstalledSet, LinkError> {
        Ok(InstalledSet {
            record: self.link.record()?,
            skills: self.without_withdrawn(&self.before),
        })
    }

    fn without_withdrawn(
        &self,
        skills: &BTreeMap<SkillName, Digest>,
    ) -> BTreeMap<SkillName, Digest> {
        let withdrawn = &self.catalog.accepted.catalog.withdrawn;
        skills
            .iter()
            .filter(|(_, hash)| withdrawn.iter().all(|entry| entry.bundle_hash != **hash))
            .map(|(name, hash)| (name.clone(), *hash))
            .collect()
    }

    /// Makes the new pin, catalog and set the current ones in one step.
    fn switch(&mut self, set: &InstalledSet) -> Result<(), LinkError> {
        self.compare(set);
        let same_set = self.before == set.skills && self.link.record()? == set.record;
        if same_set && self.link.catalog_bytes()?.as_deref() == Some(&self.catalog.bytes) {
            // Only the pin changed: replace that one file atomically.
            let path = self.link.state.join("pin.json");
            return Ok(self.change.write_record(&path, &self.catalog.pin, 0o600)?);
        }
        // Remove the agents' symlinks before the switch, so that none of them dangles.
        withdraw_from_agents(self.vault, &mut self.change, &self.report.removed, &[])?;
        let state = NewState {
            pin: &self.catalog.pin,
            catalog: Some(&self.catalog.bytes),
            set: if same_set {
                SetChange::Keep(&self.link)
            } else {
                SetChange::Write(set)
            },
        };
        switch(self.vault, &mut self.change, &self.link.folder, &state)
    }

    fn compare(&mut self, set: &InstalledSet) {
        let report = &mut self.report;
        for (name, hash) in &set.skills {
            match self.before.get(name) {
                None => report.installed.push(name.clone()),
                Some(old) if old != hash => report.updated.push(name.clone()),
                Some(_) => report.unchanged += 1,
            }
        }
        let removed = self
            .before
            .keys()
            .filter(|name| !set.skills.contains_key(*name));
        report.removed = removed.cloned().collect();
    }

    /// Removes bundles that nothing refers to any more, withdrawn ones first.
    fn tidy(mut self, set: &InstalledSet) -> Result<PullReport, LinkError> {
        self.report.shadowed = self.shadowed(set)?;
        if !self.catalog.accepted.catalog.withdrawn.is_empty() {
            self.withdraw_from_other_links()?;
            self.drop_withdrawn_bundles()?;
        }
        // Always collect garbage: an earlier pull may have been killed after its switch.
        remove::collect_foreign(self.vault, &self.change)?;
        Ok(self.report)
    }

    /// Skills of the set that are hidden by an own skill or by a link whose id sorts before this
    /// one.
    fn shadowed(&self, set: &InstalledSet) -> Result<Vec<SkillName>, VaultError> {
        let taken: BTreeSet<_> = place::places(self.vault)?
            .groups
            .into_iter()
            .flat_map(|group| group.places)
            .filter(|place| match &place.origin {
                Origin::Local => true,
                Origin::Linked(other) => *other < self.link.id,
            })
            .map(|place| place.name)
            .collect();
        let shadowed = set.skills.keys().filter(|name| taken.contains(*name));
        Ok(shadowed.cloned().collect())
    }

    /// Removes withdrawn bundles from other links to the same vault.
    fn withdraw_from_other_links(&mut self) -> Result<(), LinkError> {
        for other in all(self.vault)? {
            let same_vault = other.pin.vault_id == Some(self.catalog.accepted.catalog.vault_id);
            if other.id == self.link.id || !same_vault {
                continue;
            }
            let before = installed_by(&other)?;
            let set = InstalledSet {
                record: other.record()?,
                skills: self.without_withdrawn(&before),
            };
            if set.skills.len() < before.len() {
                let catalog = other.catalog_bytes()?;
                let state = NewState {
                    pin: &other.pin,
                    catalog: catalog.as_deref(),
                    set: SetChange::Write(&set),
                };
                switch(self.vault, &mut self.change, &other.folder, &state)?;
            }
        }
        Ok(())
    }

    fn drop_withdrawn_bundles(&mut self) -> Result<(), LinkError> {
        let own = place::own_places(self.vault)?.into_iter();
        let own: BTreeSet<_> = own.map(|place| place.bundle).collect();
        let withdrawn: BTreeMap<Digest, &Withdrawn> = self
            .catalog
            .accepted
            .catalog
            .withdrawn
            .iter()
            .map(|entry| (entry.bundle_hash, entry))
            .collect();
        let (kept, dropped): (Vec<_>, Vec<_>) = withdrawn
            .keys()
            .copied()
            .partition(|hash| own.contains(hash));
        let aside = self.vault.scratch()?;
        let dropped = store::drop_bundles(&self.vault.store(), aside.path(), dropped)?;
        let report = &mut self.report;
        report.kept = kept
            .iter()
            .map(|hash| withdrawn[hash].name.clone())
            .collect();
        report.withdrawn = dropped
            .iter()
            .map(|hash| (withdrawn[hash].name.clone(), withdrawn[hash].reason.clone()))
            .collect();
        report.withdrawn.sort();
        Index::open(&self.vault.paths().index()).forget(&dropped);
        Ok(())
    }
}
