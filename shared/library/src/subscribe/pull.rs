//! Stages fetched bundles and installs them in one switch.

use std::collections::{BTreeMap, BTreeSet};

use vault_skill::bundle::{self, Bundle};
use vault_skill::hash::Digest;
use vault_skill::manifest::{ManifestExpectation, ManifestTrust};
use vault_skill::name::SkillName;
use vault_skill::root::SkillPlace;

use super::accept::AcceptedCatalog;
use super::catalog::SelectedSkill;
use super::error::LinkError;
use super::state::{InstalledSet, switch};
use crate::admit::remove;
use crate::disk::Batch;
use crate::disk::scratch::Scratch;
use crate::installed::agent_links::withdraw::withdraw as withdraw_from_agents;
use crate::installed::linked::{
    Alias, CATALOG_ENDING, CountedFile, Link, PIN, Pin, ProfileBundles, Selection, SetRecord, all,
    catalog_file, find, trust_folder,
};
use crate::installed::place::{self, Origin, installed_by};
use crate::installed::roots;
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
        let trust = ManifestTrust {
            state: &accepted.roots,
            place: SkillPlace::Listed,
        };
        let expected = ManifestExpectation {
            name: &skill.name,
            version: Some(skill.version),
            stored_version: None,
        };
        let opened = parse(skill, bytes)?
            .open(parts, &trust, &expected)
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
    /// Withdrawn skills whose bundles stay because an own skill, or another vault's, uses them.
    pub kept: Vec<SkillName>,
}

/// Pins an accepted catalog and removes withdrawn skills, but installs nothing. A device uses this
/// until it is approved.
pub fn pin_only(vault: &Vault, catalog: &AcceptedCatalog) -> Result<PullReport, LinkError> {
    let mut pull = PullTransaction::begin(vault, catalog)?;
    let set = pull.keep()?;
    let variants = pull.kept_variants();
    pull.switch(&set, variants)?;
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
    let variants = pull.catalog.variants(selection, selected);
    pull.switch(&set, variants)?;
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
        let mut change = vault.change()?;
        let link =
            find(vault, &catalog.link)?.ok_or_else(|| LinkError::Unknown(catalog.link.clone()))?;
        // Another pull may have finished since the catalog was accepted, so check it against the
        // current pin.
        let (bytes, options) = (&catalog.bytes, &catalog.options);
        let catalog = link.accept_under(vault, Some(&mut change), bytes, options)?;
        Ok(Self {
            before: installed_by(&link)?,
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
            let trusted = self.catalog.trusted(hashes.iter().copied());
            store::admit(&store, aside.path(), &hashes, &trusted)?;
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

    /// The current set without the skills that the catalog withdraws; nothing if the link now shows
    /// another vault.
    fn keep(&self) -> Result<InstalledSet, LinkError> {
        if !self.is_same_vault() {
            return Ok(InstalledSet::default());
        }
        Ok(InstalledSet {
            record: self.link.record()?,
            skills: self.without_withdrawn(&self.before),
        })
    }

    /// The bundles of profiles that the new catalog still names.
    fn kept_variants(&self) -> Vec<ProfileBundles> {
        let named = |known: &&ProfileBundles| {
            let mut profiles = self.catalog.catalog.profiles.iter();
            profiles.any(|entry| entry.bundle_hash == known.profile)
        };
        let counted = self.link.pin.counted.iter();
        let known = counted.flat_map(|counted| &counted.variants);
        known.filter(named).cloned().collect()
    }

    /// Whether the catalog is of the vault that the link has pinned.
    fn is_same_vault(&self) -> bool {
        let pinned = self.link.pin.vault_id;
        pinned.is_none_or(|pinned| pinned == self.catalog.catalog.vault_id)
    }

    fn without_withdrawn(
        &self,
        skills: &BTreeMap<SkillName, Digest>,
    ) -> BTreeMap<SkillName, Digest> {
        let withdrawn = &self.catalog.catalog.withdrawn;
        skills
            .iter()
            .filter(|(_, hash)| withdrawn.iter().all(|entry| entry.bundle_hash != **hash))
            .map(|(name, hash)| (name.clone(), *hash))
            .collect()
    }

    /// Makes the catalog the one that counts and the set the installed one. While the set is being
    /// switched, bundles of both catalogs count, so that a kill leaves a set that is good.
    fn switch(
        &mut self,
        set: &InstalledSet,
        variants: Vec<ProfileBundles>,
    ) -> Result<(), LinkError> {
        self.compare(set);
        let catalog = &self.catalog;
        let listed = catalog.catalog.skills.iter();
        let listed = listed.map(|entry| entry.bundle_hash).collect();
        let shown = (&catalog.catalog.vault_id, &catalog.roots.chain().to_list());
        let seen_at = Some(catalog.seen_at);
        roots::take(self.vault, &mut self.change, shown, &listed, seen_at)?;
        let folder = trust_folder(self.vault, &self.link.id);
        let counted = CountedFile {
            release: catalog.stored.release,
            payload_sha256: catalog.stored.payload_sha256,
            file_sha256: Digest::of(&catalog.bytes),
            signers: catalog.signers.clone(),
            variants,
        };
        let before = self.link.pin.counted.as_ref();
        if before.map(|before| before.file_sha256) != Some(counted.file_sha256) {
            folder.replace(&catalog_file(&counted.file_sha256), &catalog.bytes)?;
        }
        let same_set = self.before == set.skills && self.link.record()? == set.record;
        let installed_under = self.installed_under()?;
        // Skills that stay installed although the new catalog does not list them still need the
        // catalog that does.
        let all_listed = set
            .skills
            .values()
            .all(|bundle| self.lists(&counted, bundle));
        let mut pin = Pin {
            vault_id: Some(catalog.catalog.vault_id),
            replaced: installed_under.clone().filter(|_| !same_set || !all_listed),
            counted: Some(counted),
            expected: None,
            ..self.link.pin.clone()
        };
        folder.write_record(PIN, &pin)?;
        if !same_set {
            // Remove the agents' symlinks before the switch, so that none of them dangles.
            withdraw_from_agents(self.vault, &mut self.change, &self.report.removed, &[])?;
            switch(self.vault, &mut self.change, &self.link.folder, set)?;
            if all_listed {
                pin.replaced = None;
                folder.write_record(PIN, &pin)?;
            }
        }
        // A reader may still hold the pin from before this pull, so the catalogs that it names stay.
        let pins = [&self.link.pin, &pin];
        let kept: BTreeSet<_> = pins
            .into_iter()
            .flat_map(|pin| pin.counted.iter().chain(&pin.replaced))
            .map(|file| catalog_file(&file.file_sha256))
            .collect();
        for name in folder.files()? {
            if name.ends_with(CATALOG_ENDING) && !kept.contains(&name) {
                folder.remove(&name)?;
            }
        }
        Ok(())
    }

    /// The catalog of this vault that lists every installed skill. It is an earlier one than the
    /// counted one while skills stay installed that the counted one does not list.
    fn installed_under(&self) -> Result<Option<CountedFile>, LinkError> {
        if !self.is_same_vault() {
            return Ok(None);
        }
        let pin = &self.link.pin;
        let (Some(counted), Some(replaced)) = (&pin.counted, &pin.replaced) else {
            return Ok(pin.counted.clone());
        };
        let listed = self.link.listed_by(self.vault, counted)?;
        let current = self.before.values().all(|bundle| listed.contains(bundle));
        Ok(Some(if current { counted } else { replaced }.clone()))
    }

    /// Whether the new catalog lists a bundle, or a profile that it names does.
    fn lists(&self, counted: &CountedFile, bundle: &Digest) -> bool {
        let mut skills = self.catalog.catalog.skills.iter();
        skills.any(|entry| entry.bundle_hash == *bundle) || counted.names_variant(bundle)
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

    /// Removes bundles that nothing refers to any more.
    fn tidy(mut self, set: &InstalledSet) -> Result<PullReport, LinkError> {
        self.report.shadowed = self.shadowed(set)?;
        let withdrawn = self.withdraw()?;
        // Always collect garbage: an earlier pull may have been killed after its switch.
        let dropped = remove::collect_foreign(self.vault, &self.change)?;
        for entry in &self.catalog.catalog.withdrawn {
            if !withdrawn.contains(&entry.bundle_hash) {
                continue;
            }
            let name = entry.name.clone();
            if dropped.contains(&entry.bundle_hash) {
                self.report.withdrawn.push((name, entry.reason.clone()));
            } else {
                self.report.kept.push(name);
            }
        }
        self.report.withdrawn.sort();
        self.report.kept.sort();
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
                Origin::Project(_) => false,
                Origin::Linked(other) => *other < self.link.id,
            })
            .map(|place| place.name)
            .collect();
        let shadowed = set.skills.keys().filter(|name| taken.contains(*name));
        Ok(shadowed.cloned().collect())
    }

    /// Removes withdrawn bundles from other links to the same vault. Returns those that this vault's
    /// links had installed: what another vault or the own library uses is not for it to withdraw.
    fn withdraw(&mut self) -> Result<BTreeSet<Digest>, LinkError> {
        let withdrawn = &self.catalog.catalog.withdrawn;
        let withdrawn: BTreeSet<_> = withdrawn.iter().map(|entry| entry.bundle_hash).collect();
        let mut had: BTreeSet<_> = self.before.values().copied().collect();
        for other in all(self.vault)? {
            let same_vault = other.pin.vault_id == Some(self.catalog.catalog.vault_id);
            if other.id == self.link.id || !same_vault {
                continue;
            }
            let before = installed_by(&other)?;
            had.extend(before.values());
            let set = InstalledSet {
                record: other.record()?,
                skills: self.without_withdrawn(&before),
            };
            if set.skills.len() < before.len() {
                switch(self.vault, &mut self.change, &other.folder, &set)?;
            }
        }
        Ok(had.intersection(&withdrawn).copied().collect())
    }
}
