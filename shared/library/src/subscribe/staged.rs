//! Fetched bundles of a linked vault: verified, judged by the gate of this machine, and staged for
//! the switch.

use std::collections::{BTreeMap, BTreeSet};

use vault_format::bundle;
use vault_format::bundle::{Bundle, File};
use vault_format::hash::Digest;
use vault_format::manifest::{ManifestExpectation, ManifestTrust};
use vault_format::root::SkillPlace;
use vault_gate::derived;
use vault_gate::finding::Level;
use vault_gate::{self as gate, GateOptions, RawFile};

use super::accept::AcceptedCatalog;
use super::catalog::SelectedSkill;
use super::error::{FlaggedSkill, LinkError};
use crate::disk::Batch;
use crate::disk::scratch::Scratch;
use crate::installed::linked_pins::PullGate;
use crate::store;
use crate::vault::Vault;

/// Fetched bundles that are verified and staged for
/// [`install_selection`](super::install_selection). Dropping this value deletes the staged files.
#[derive(Debug)]
pub struct StagedBundles {
    pub(super) aside: Scratch,
    pub(super) batch: Batch,
    pub(super) hashes: BTreeSet<Digest>,
    /// Staged skills that the gate blocks, by bundle. Empty if the link's gate is off.
    pub(super) flagged: BTreeMap<Digest, FlaggedSkill>,
}

impl StagedBundles {
    /// Returns a value without bundles. Takes no lock, so that a slow download does not stop other
    /// writers.
    pub fn new(vault: &Vault) -> Result<Self, LinkError> {
        Ok(Self {
            aside: vault.new_scratch()?,
            batch: Batch::default(),
            hashes: BTreeSet::new(),
            flagged: BTreeMap::new(),
        })
    }

    /// Returns the parts of a large bundle, which must be fetched too, as hash and size. Fails if
    /// the bytes do not match the catalog.
    pub fn list_parts(
        skill: &SelectedSkill,
        bytes: &[u8],
    ) -> Result<Vec<(Digest, u64)>, LinkError> {
        let bundle = parse_bundle(skill, bytes).map_err(|error| skill.name_agent(error))?;
        Ok(bundle
            .part_refs()
            .map(|part| (part.bundle_hash, part.size))
            .collect())
    }

    /// Verifies a fetched bundle (hash, size, manifest, and every file) and stages it. The error of
    /// a variant names its agent.
    pub fn add_bundle(
        &mut self,
        accepted: &AcceptedCatalog,
        skill: &SelectedSkill,
        bytes: &[u8],
        parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<(), LinkError> {
        let added = self.verify_and_stage(accepted, skill, bytes, parts);
        added.map_err(|error| skill.name_agent(error))
    }

    fn verify_and_stage(
        &mut self,
        accepted: &AcceptedCatalog,
        skill: &SelectedSkill,
        bytes: &[u8],
        parts: &dyn Fn(&Digest) -> Option<Vec<u8>>,
    ) -> Result<(), LinkError> {
        // A bundle is staged in a folder with its hash as name, so it must not be added twice.
        if self.hashes.contains(&skill.bundle_hash) {
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
        let opened = parse_bundle(skill, bytes)?
            .open(parts, &trust, &expected)
            .map_err(refused)?;
        // Verification encodes each installed bundle again, so the encoding must be canonical.
        let encoded =
            bundle::encode(&opened.signed, &opened.manifest, &opened.files).map_err(refused)?;
        if encoded.hash != skill.bundle_hash {
            return Err(LinkError::NotCanonical(skill.name.clone()));
        }
        // Searches and lists use the texts in the manifest, so these must follow from the signed
        // files.
        derived::compare_with_files(&opened.manifest, &opened.files).map_err(|reason| {
            LinkError::Derived {
                name: skill.name.clone(),
                reason,
            }
        })?;
        accepted.check_variant(skill, &opened.manifest)?;
        store::stage_bundle(
            &mut self.batch,
            self.aside.path(),
            &skill.bundle_hash,
            opened.signed.as_bytes(),
            &opened.files,
        )?;
        if accepted.gate != PullGate::Off {
            let flagged = accepted.run_gate(skill, opened.files);
            self.flagged
                .extend(flagged.map(|flagged| (skill.bundle_hash, flagged)));
        }
        self.hashes.insert(skill.bundle_hash);
        Ok(())
    }
}

impl AcceptedCatalog {
    /// Runs the gate of this machine on a skill. The publisher's exceptions do not apply: the
    /// publisher may be careless, or a thief may have the key. Returns `None` if nothing blocks the
    /// skill.
    pub(super) fn run_gate(&self, skill: &SelectedSkill, files: Vec<File>) -> Option<FlaggedSkill> {
        let options = GateOptions {
            strict: !self.options.lenient,
            name: Some(skill.name.clone()),
            ..GateOptions::default()
        };
        let verdict = gate::check(files.into_iter().map(RawFile::from).collect(), &options);
        let mut findings = verdict.findings;
        // Warnings do not block a skill, here as at admission.
        findings.retain(|finding| finding.level > Level::Warning);
        (!findings.is_empty()).then(|| FlaggedSkill {
            name: skill.installed_as.clone(),
            findings,
        })
    }
}

fn parse_bundle(skill: &SelectedSkill, bytes: &[u8]) -> Result<Bundle, LinkError> {
    Bundle::parse(bytes, &skill.bundle_hash, skill.size).map_err(|reason| LinkError::Bundle {
        name: skill.name.clone(),
        reason,
    })
}
