//! Staging fetched bundles and installing them in one switch.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vault_skill::bundle::{self, Bundle};
use vault_skill::hash::Digest;
use vault_skill::manifest::ManifestExpectation;
use vault_skill::name::SkillName;

use super::catalog::{Chosen, Offer};
use super::error::LinkError;
use super::state::{NewState, Set, switch};
use crate::files::Batch;
use crate::files::scratch::Scratch;
use crate::index::Index;
use crate::installed::agent_links::withdraw::withdraw as withdraw_from_agents;
use crate::installed::link_id::LinkId;
use crate::installed::linked::{Alias, Link, Selection, SetRecord, all, find, installed};
use crate::remove;
use crate::scan::{self, Origin};
use crate::store;
use crate::vault::{Change, Vault, VaultError};

/// Fetched bundles, verified and written aside, waiting for [`install`]. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct Staged {
    aside: Scratch,
    batch: Batch,
    hashes: BTreeSet<Digest>,
}

impl Staged {
    /// An empty one; takes no lock, so that fetching for minutes keeps no other writer out.
    pub fn new(vault: &Vault) -> Result<Self, LinkError> {
        Ok(Self {
            aside: vault.scratch()?,
            batch: Batch::default(),
            hashes: BTreeSet::new(),
        })
    }

    /// The parts that have to be fetched besides, with their sizes. Fails when the bytes are not the catalog's.
    pub fn parts(skill: &Chosen, bytes: &[u8]) -> Result<Vec<(Digest, u64)>, LinkError> {
        let bundle = parse(skill, bytes)?;
        Ok(bundle
            .parts()
            .map(|part| (part.bundle_hash, part.size))
            .collect())
    }

    /// Verifies a fetched bundle (hash and size as signed, manifest, every file) and writes it aside.
    pub fn add(
        &mut self,
        offer: &Offer,
        skill: &Chosen,
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
        let catalog = &offer.accepted.catalog;
        let expected = ManifestExpectation {
            vault_id: catalog.vault_id,
            name: &skill.name,
            version: Some(skill.version),
            stored_version: None,
        };
        let opened = parse(skill, bytes)?
            .open(parts, &offer.accepted.keys, &expected)
            .map_err(refused)?;
        // The integrity check encodes it again from the store: it must come out the same, now and then.
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

fn parse(skill: &Chosen, bytes: &[u8]) -> Result<Bundle, LinkError> {
    Bundle::parse(bytes, &skill.bundle_hash, skill.size).map_err(|reason| LinkError::Bundle {
        name: skill.name.clone(),
        reason,
    })
}

/// What a pull changed.
#[derive(Clone, Debug, Default)]
pub struct PullReport {
    /// The release now.
    pub release: u64,
    /// Newly installed, by the name they are installed as.
    pub installed: Vec<SkillName>,
    /// Installed before from other bytes.
    pub updated: Vec<SkillName>,
    /// Uninstalled: gone from the catalog or from the selection.
    pub removed: Vec<SkillName>,
    /// Left as they were.
    pub unchanged: usize,
    /// Withdrawn bundles whose bytes were removed.
    pub withdrawn: Vec<(SkillName, String)>,
    /// Installed here, but an own skill, or one of another link, of that name stands before them.
    pub shadowed: Vec<SkillName>,
    /// Withdrawn bytes that stay, since an own skill consists of them.
    pub kept: Vec<SkillName>,
}

/// Pins an accepted catalog without touching the installed skills: what a device does that was not admitted yet.
pub fn pin_only(vault: &Vault, offer: &Offer) -> Result<PullReport, LinkError> {
    commit(vault, offer, None)
}

/// Makes the linked set equal to what was chosen. All or nothing: every chosen bundle must be staged or installed
/// already; a failed check changes nothing on disk.
pub fn install(
    vault: &Vault,
    offer: &Offer,
    selection: &Selection,
    chosen: &[Chosen],
    staged: Staged,
) -> Result<PullReport, LinkError> {
    commit(vault, offer, Some((selection, chosen, staged)))
}

fn commit(
    vault: &Vault,
    offer: &Offer,
    set: Option<(&Selection, &[Chosen], Staged)>,
) -> Result<PullReport, LinkError> {
    let mut change = vault.change()?;
    let link = find(vault, &offer.link)?.ok_or_else(|| LinkError::Unknown(offer.link.clone()))?;
    // Another pull may have been faster: what counts is what is pinned now.
    let offer = link.accept(
        vault,
        &offer.bytes,
        offer.expect_key.as_deref(),
        offer.repin,
    )?;
    let before = installed(&link)?;
    let mut report = PullReport {
        release: offer.accepted.catalog.release,
        ..PullReport::default()
    };
    let withdrawn: HashMap<Digest, &SkillName> = offer
        .accepted
        .catalog
        .withdrawn
        .iter()
        .map(|entry| (entry.bundle_hash, &entry.name))
        .collect();
    let (record, skills) = match set {
        Some((selection, chosen, staged)) => {
            admit(vault, &offer, chosen, staged)?;
            let record = SetRecord {
                selection: selection.clone(),
                aliases: aliases(chosen),
            };
            let skills: Vec<_> = chosen
                .iter()
                .map(|skill| (skill.installed_as.clone(), skill.bundle_hash))
                .collect();
            (record, skills)
        }
        // Pinned only: what is installed stays, but for what was withdrawn.
        None => {
            let skills = before
                .iter()
                .filter(|(_, hash)| !withdrawn.contains_key(*hash))
                .map(|(name, hash)| (name.clone(), *hash))
                .collect();
            (link.record()?, skills)
        }
    };
    compare(&before, &skills, &mut report);
    let after: BTreeMap<_, _> = skills.iter().cloned().collect();
    let same_set = before == after && link.record()? == record;
    let state = NewState {
        pin: &offer.pin,
        catalog: Some(&offer.bytes),
        set: if same_set {
            Set::Kept(&link)
        } else {
            Set::Written(&record, &skills)
        },
    };
    if same_set && link.catalog_bytes()?.as_deref() == Some(&offer.bytes) {
        // Nothing but the time: one file, replaced in one step.
        change.write_record(&link.state.join("pin.json"), &offer.pin, 0o600)?;
    } else {
        // No agent may be left with a link that leads nowhere.
        let gone: Vec<_> = before
            .keys()
            .filter(|name| !after.contains_key(*name))
            .cloned()
            .collect();
        withdraw_from_agents(vault, &mut change, &gone, &[])?;
        switch(vault, &mut change, &link.folder, &state)?;
    }
    report.shadowed = shadowed(vault, &link.id, &skills)?;
    withdraw(vault, &mut change, &link, &offer, &withdrawn, &mut report)?;
    // Also where nothing changed now: the pull before may have been cut short after its switch.
    remove::collect_foreign(vault, &change)?;
    Ok(report)
}

fn aliases(chosen: &[Chosen]) -> Vec<Alias> {
    chosen
        .iter()
        .filter(|skill| skill.installed_as != skill.name)
        .map(|skill| Alias {
            installed_as: skill.installed_as.clone(),
            name: skill.name.clone(),
        })
        .collect()
}

/// Flushes what was staged and moves it into the store, once every chosen bundle is there or staged.
fn admit(vault: &Vault, offer: &Offer, chosen: &[Chosen], staged: Staged) -> Result<(), LinkError> {
    let Staged {
        aside,
        batch,
        hashes,
    } = staged;
    let wanted: Vec<_> = chosen
        .iter()
        .filter(|skill| !hashes.contains(&skill.bundle_hash))
        .cloned()
        .collect();
    if let Some(skill) = offer.missing(vault, &wanted)?.into_iter().next() {
        return Err(LinkError::NotStaged(skill.name));
    }
    let chosen: BTreeSet<_> = chosen.iter().map(|skill| skill.bundle_hash).collect();
    let hashes: Vec<_> = hashes.intersection(&chosen).copied().collect();
    if !hashes.is_empty() {
        batch.flush(aside.path())?;
        store::admit(&vault.store(), aside.path(), &hashes, &offer.trusted())?;
    }
    Ok(())
}
fn compare(
    before: &BTreeMap<SkillName, Digest>,
    skills: &[(SkillName, Digest)],
    report: &mut PullReport,
) {
    let after: BTreeMap<_, _> = skills.iter().cloned().collect();
    for (name, hash) in &after {
        match before.get(name) {
            None => report.installed.push(name.clone()),
            Some(old) if old != hash => report.updated.push(name.clone()),
            Some(_) => report.unchanged += 1,
        }
    }
    report.removed = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .cloned()
        .collect();
}

fn shadowed(
    vault: &Vault,
    link: &LinkId,
    skills: &[(SkillName, Digest)],
) -> Result<Vec<SkillName>, VaultError> {
    let taken: BTreeSet<_> = scan::places(vault)?
        .groups
        .into_iter()
        .flat_map(|group| group.places)
        .filter(|place| match &place.origin {
            Origin::Local => true,
            Origin::Linked(other) => other < link,
        })
        .map(|place| place.name)
        .collect();
    Ok(skills
        .iter()
        .map(|(name, _)| name)
        .filter(|name| taken.contains(*name))
        .cloned()
        .collect())
}

/// Removes withdrawn bytes wherever they are: other links to the same vault, and the store.
fn withdraw(
    vault: &Vault,
    change: &mut Change<'_>,
    link: &Link,
    offer: &Offer,
    withdrawn: &HashMap<Digest, &SkillName>,
    report: &mut PullReport,
) -> Result<(), LinkError> {
    if withdrawn.is_empty() {
        return Ok(());
    }
    let reasons: HashMap<Digest, &str> = offer
        .accepted
        .catalog
        .withdrawn
        .iter()
        .map(|entry| (entry.bundle_hash, entry.reason.as_str()))
        .collect();
    for other in all(vault)? {
        let same_vault = other.pin.vault_id == Some(offer.accepted.catalog.vault_id);
        if other.id == link.id || !same_vault {
            continue;
        }
        let before = installed(&other)?;
        let skills: Vec<_> = before
            .iter()
            .filter(|(_, hash)| !withdrawn.contains_key(*hash))
            .map(|(name, hash)| (name.clone(), *hash))
            .collect();
        if skills.len() < before.len() {
            let record = other.record()?;
            let catalog = other.catalog_bytes()?;
            let state = NewState {
                pin: &other.pin,
                catalog: catalog.as_deref(),
                set: Set::Written(&record, &skills),
            };
            switch(vault, change, &other.folder, &state)?;
        }
    }
    let mut strange = Vec::new();
    let own: BTreeSet<_> = scan::read_links(&vault.skills(), &Origin::Local, "", &mut strange)?
        .into_iter()
        .map(|place| place.bundle)
        .collect();
    let (kept, doomed): (Vec<_>, Vec<_>) = withdrawn
        .keys()
        .copied()
        .partition(|hash| own.contains(hash));
    report.kept = kept.iter().map(|hash| withdrawn[hash].clone()).collect();
    let aside = vault.scratch()?;
    let dropped = store::drop_bundles(&vault.store(), aside.path(), doomed)?;
    for hash in &dropped {
        report.withdrawn.push((
            withdrawn[hash].clone(),
            reasons.get(hash).copied().unwrap_or_default().to_owned(),
        ));
    }
    report.withdrawn.sort();
    Index::open(&vault.paths().index()).forget(&dropped);
    Ok(())
}
