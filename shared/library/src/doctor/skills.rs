//! Checks every skill: verifies it from its bytes, and signs skills that were put into the vault by
//! hand, if that is asked for.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::manifest::{MAX_SKILL_MD_BYTES, SKILL_MD};
use vault_format::name::SkillName;
use vault_format::provenance::ProvenanceId;
use vault_gate as gate;
use vault_gate::document::Secret;

use super::{Doctor, DoctorFinding, Remedy, RepairStatus, SkillHealth};
use crate::admit::add::admit_source;
use crate::admit::remove::was_signed;
use crate::admit::{AdmitError, AdmitReport, Neighbours, Options, Source, examine_candidate};
use crate::agents::setup::originals;
use crate::agents::setup::records::RecordedSource;
use crate::disk::{self, HeldPath, Kind, Location};
use crate::installed::installations::{OWN, Origin};
use crate::installed::verified_contents::{self, Declared, SkillCheck};
use crate::store::{self, Damage};
use crate::vault::VaultError;

impl Doctor<'_> {
    pub(super) fn check_skills(
        &mut self,
        checked: verified_contents::VerifyReport,
    ) -> Result<(), VaultError> {
        self.check_clock(checked.skills.iter().filter_map(|skill| skill.signed_at));
        self.check_withheld(&checked.skills);
        for skill in checked.skills {
            if self.is_wanted(&skill.name, &skill.qualified) {
                self.check_skill(skill)?;
            }
        }
        for variant in checked.variants {
            if let Some(damage) = variant.damage {
                let skill = variant.name;
                self.add_finding(DoctorFinding::VariantDamaged { skill, damage });
            }
        }
        for path in checked.strange {
            self.check_foreign(&path)?;
        }
        if !checked.unreferenced.is_empty() {
            let count = checked.unreferenced.len();
            self.add_finding(DoctorFinding::EarlierVersions(count));
        }
        Ok(())
    }

    /// Reports the skills that are not used until the next release of their vault, in one finding
    /// for each vault.
    fn check_withheld(&mut self, skills: &[SkillCheck]) {
        let mut withheld = BTreeMap::<Option<String>, Vec<SkillName>>::new();
        for skill in skills {
            let is_withheld = skill.damage.as_ref().is_some_and(Damage::is_withheld);
            if is_withheld && self.is_wanted(&skill.name, &skill.qualified) {
                let vault = match skill.origin {
                    Origin::Local => None,
                    _ => skill
                        .qualified
                        .split_once('/')
                        .map(|(vault, _)| vault.to_owned()),
                };
                withheld.entry(vault).or_default().push(skill.name.clone());
            }
        }
        for (vault, skills) in withheld {
            self.add_finding(DoctorFinding::SkillsWithheld { vault, skills });
        }
    }

    /// Returns whether the caller wants this skill to be checked.
    fn is_wanted(&self, name: &SkillName, qualified: &str) -> bool {
        self.input.skill.as_ref().is_none_or(|wanted| {
            wanted.name == *name && (wanted.vault.is_none() || wanted.to_string() == qualified)
        })
    }

    fn check_skill(&mut self, mut checked: SkillCheck) -> Result<(), VaultError> {
        if matches!(checked.origin, Origin::Linked(_)) && !checked.bare {
            self.add_finding(DoctorFinding::NameTaken {
                skill: checked.name.clone(),
                qualified: checked.qualified.clone(),
            });
        }
        let unset_environment = self.check_environment(&checked.name, &checked.declared.secrets);
        // Check this first: it may remove the cause of the damage.
        let ignored = self.check_ignored(&checked.name, &checked.bundle, checked.ignored)?;
        if ignored.is_empty() && checked.damage.as_ref().is_some_and(is_clutter) {
            checked.damage = None; // it was removed just now
        }
        let mut health = SkillHealth {
            origin: match &checked.origin {
                Origin::Local => "local".to_owned(),
                Origin::Linked(id) => id.to_string(),
                Origin::Project(path) => path.display().to_string(),
            },
            version: checked.version,
            bundle_hash: Some(checked.bundle),
            problem: checked.damage.as_ref().map(ToString::to_string),
            repair_status: RepairStatus::NotNeeded,
            unset_environment,
            ignored,
            declared: checked.declared,
            name: checked.name,
        };
        if let Some(damage) = checked.damage {
            let texts = self.indexed_texts(&checked.bundle);
            let source: Option<ProvenanceId> =
                texts.and_then(|texts| texts.provenance.parse().ok());
            let local = self.local_source(&health.name, source.as_ref());
            let (status, remedy) = choose_remedy(&damage, &checked.origin, source);
            // The source of a local skill does not contain its path, but the trust folder records
            // the path.
            let remedy = match (remedy, local) {
                (Remedy::AddAgain(_), Some(path)) => Remedy::AddLocal(path),
                (remedy, _) => remedy,
            };
            health.repair_status = status;
            // `check_withheld` has reported this skill already, together with others of its vault.
            if !damage.is_withheld() {
                self.add_finding(DoctorFinding::SkillDamaged {
                    skill: health.name.clone(),
                    damage,
                    remedy,
                });
            }
        }
        self.report.skills.push(health);
        Ok(())
    }

    /// Returns the folder or archive from which an own skill was added, if it still exists.
    /// `source` is the source of the installed version, if that is known.
    fn local_source(&self, name: &SkillName, source: Option<&ProvenanceId>) -> Option<PathBuf> {
        let own_skills = self.vault.own_skills().ok()?;
        let local = own_skills.local_source(name)?;
        // The recorded path may belong to an earlier version, which came from another source.
        let is_source = source.is_none_or(|source| *source == local.identifier);
        let path = PathBuf::from(&local.path);
        (is_source && disk::is_there(&path)).then_some(path)
    }

    /// Returns the declared variables that are not set. Reports those that the skill requires.
    fn check_environment(&mut self, skill: &SkillName, declared: &[Secret]) -> Vec<String> {
        let unset = |secret: &&Secret| !(self.input.is_set)(&secret.name);
        let unset: Vec<_> = declared.iter().filter(unset).collect();
        let required = unset.iter().filter(|secret| secret.required);
        let variables: Vec<_> = required.map(|secret| secret.name.clone()).collect();
        if !variables.is_empty() {
            let skill = skill.clone();
            self.add_finding(DoctorFinding::EnvironmentUnset { skill, variables });
        }
        unset.iter().map(|secret| secret.name.clone()).collect()
    }

    /// Reports metadata files among a skill's files, and returns all files that are not part of the
    /// skill. With `clean`, removes these files instead and returns none.
    fn check_ignored(
        &mut self,
        skill: &SkillName,
        bundle: &Digest,
        files: Vec<String>,
    ) -> Result<Vec<String>, VaultError> {
        if files.is_empty() {
            return Ok(files);
        }
        if self.input.clean {
            let _change = self.vault.begin_change()?;
            let removed = store::remove_ignored(&self.vault.store_folder(), bundle, &files)?;
            self.report.cleaned.extend(removed);
            return Ok(Vec::new());
        }
        // Files of editors and of version control are reported as damage of the skill.
        let metadata = files.iter().filter(|file| gate::is_system_metadata(file));
        let metadata: Vec<_> = metadata.cloned().collect();
        if !metadata.is_empty() {
            self.add_finding(DoctorFinding::IgnoredMetadata {
                skill: skill.clone(),
                files: metadata,
            });
        }
        Ok(files)
    }

    /// Returns the options with which a skill is signed.
    fn repair_options(&self, name: &SkillName, provenance: Option<ProvenanceId>) -> Options {
        Options {
            name: Some(name.clone()),
            provenance,
            replace: true,
            strict: self.input.strict,
            ..Options::default()
        }
    }

    /// Records whether a skill could be signed.
    fn note_repair(&mut self, health: &mut SkillHealth, signed: Result<AdmitReport, AdmitError>) {
        match signed {
            Ok(report) => {
                health.repair_status = RepairStatus::Repaired;
                health.version = Some(report.version);
                health.bundle_hash = Some(report.bundle);
                health.problem = None;
            }
            Err(error) => {
                health.repair_status = RepairStatus::Failed;
                health.problem = Some(error.to_string());
                self.add_finding(DoctorFinding::RepairFailed {
                    skill: health.name.clone(),
                    reason: error.to_string(),
                });
            }
        }
    }

    /// Reports an entry in the vault's folders that the vault did not create. If it is a folder
    /// with a skill, that skill is reported as unsigned, and may be signed.
    fn check_foreign(&mut self, path: &str) -> Result<(), VaultError> {
        let full = self.vault.folder().join(path);
        let name = path
            .strip_prefix("skills/")
            .and_then(|name| name.parse::<SkillName>().ok());
        let is_skill = disk::kind_at(&full)? == Some(Kind::Dir)
            && disk::kind_at(&full.join(SKILL_MD))? == Some(Kind::File);
        let Some(name) = name.filter(|_| is_skill) else {
            self.add_finding(DoctorFinding::ForeignInVault(full.path()));
            return Ok(());
        };
        if !self.is_wanted(&name, &format!("{OWN}/{name}")) {
            return Ok(());
        }
        let mut health = SkillHealth {
            name: name.clone(),
            origin: "local".to_owned(),
            version: None,
            bundle_hash: None,
            problem: Some(
                "it was put into the vault's folder by hand and is not signed".to_owned(),
            ),
            repair_status: RepairStatus::Repairable,
            unset_environment: Vec::new(),
            declared: Declared::default(),
            ignored: Vec::new(),
        };
        // Do not sign a folder in place of a signed skill, because an attacker may have put it
        // there.
        if was_signed(self.vault, &name)? {
            let problem = "a folder is in the place of the signed skill".to_owned();
            health.problem = Some(problem);
            health.repair_status = RepairStatus::RefusedTampered;
            self.add_finding(DoctorFinding::SkillReplaced(name));
        } else if let Some(source) = self.recorded_source(&name, &full) {
            health.repair_status = RepairStatus::RefusedRemote;
            self.add_finding(DoctorFinding::SkillFromElsewhere {
                skill: name,
                path: full.path(),
                source,
            });
        } else if self.input.repair && self.input.skill.is_some() {
            // Sign only a skill that the owner named, because any program that can write here may
            // have put the folder here.
            let signed = self.sign_folder(&name, &full);
            self.note_repair(&mut health, signed);
        } else {
            self.add_finding(DoctorFinding::SkillUnsigned(name));
        }
        self.report.skills.push(health);
        Ok(())
    }

    /// Returns the remote source that another tool recorded for an unsigned skill. If its SKILL.md
    /// can't be read, only records outside of that file are found; the gate blocks such a skill
    /// anyway.
    fn recorded_source(&self, name: &SkillName, folder: &HeldPath) -> Option<RecordedSource> {
        let document = disk::read(&folder.join(SKILL_MD), MAX_SKILL_MD_BYTES);
        let document = document.ok().flatten().unwrap_or_default();
        let records = self.installer_records();
        records.find_remote(name.as_str(), &folder.path(), &document)
    }

    /// Signs a folder in `skills/` as a skill, and puts a symlink in its place. No bytes are lost:
    /// files that the vault does not store stay in `set-aside`.
    fn sign_folder(
        &mut self,
        name: &SkillName,
        folder: &HeldPath,
    ) -> Result<AdmitReport, AdmitError> {
        let options = self.repair_options(name, format!("local:{name}").parse().ok());
        // Run the gate before the folder is moved, so that a blocked folder stays where it is.
        let mut neighbours = Neighbours::for_vault(self.vault);
        examine_candidate(self.source_in_vault(folder), &options, &mut neighbours)?;
        // Hold the writer lock only for the move, because the admission takes it again.
        let parked = self.vault.folder().join("set-aside");
        let place = {
            let _change = self.vault.begin_change()?;
            disk::make_dirs(&parked, 0o700)?;
            let place = disk::free_path(&parked, name.as_str())?;
            disk::rename(folder, &place)?;
            disk::sync_dir(&parked)?;
            place
        };
        let signed = admit_source(self.vault, self.source_in_vault(&place), &options);
        match &signed {
            Ok(report) => {
                let stored = originals::read_stored(self.vault, report)?;
                let remaining = originals::remove_stored(&place, &stored)?;
                if !remaining.is_empty() {
                    self.add_finding(DoctorFinding::NotStored {
                        skill: name.clone(),
                        folder: place.path(),
                        files: remaining,
                    });
                }
            }
            // The skill was rejected all the same, so move the folder back.
            Err(_) => disk::rename(&place, folder)?,
        }
        disk::remove_empty(&parked)?;
        signed
    }

    fn source_in_vault(&self, folder: &HeldPath) -> Source {
        Source::InVault {
            vault: self.vault.paths().root.clone(),
            path: folder.path_below().to_string_lossy().into_owned(),
        }
    }
}

/// Returns whether the signed files are intact, and the damage is only a file of an editor or of
/// version control beside them.
fn is_clutter(damage: &Damage) -> bool {
    matches!(damage, Damage::Extra(path) if gate::is_ignored(path))
}

/// Decides whether a damaged skill can be repaired, and what restores it. A skill that was signed
/// once is never signed as it is now.
fn choose_remedy(
    damage: &Damage,
    origin: &Origin,
    source: Option<ProvenanceId>,
) -> (RepairStatus, Remedy) {
    let status = match origin {
        // Removing such files restores a skill, wherever it came from.
        _ if is_clutter(damage) => return (RepairStatus::RefusedTampered, Remedy::Clean),
        Origin::Linked(_) => return (RepairStatus::RefusedRemote, Remedy::Pull),
        Origin::Project(path) => {
            return (RepairStatus::RefusedRemote, Remedy::Install(path.clone()));
        }
        Origin::Local if damage.is_tampering() => RepairStatus::RefusedTampered,
        Origin::Local => RepairStatus::Failed,
    };
    (status, Remedy::AddAgain(source))
}

#[cfg(test)]
mod tests {
    use vault_format::name::Slug;

    use super::*;
    use crate::installed::link_id::LinkId;

    #[test]
    fn what_was_signed_once_is_never_repaired() {
        use RepairStatus::{Failed, RefusedRemote, RefusedTampered};
        let slug: Slug = "team".parse().unwrap();
        let linked = Origin::Linked(LinkId::from_address("https://vault.example", &slug));
        let local = Origin::Local;
        let manifest = || Damage::Missing("manifest.json".to_owned());
        let folder = || Damage::Missing(Digest::of(b"bundle").to_string());
        let extra = || Damage::Extra("run.sh".to_owned());
        for (damage, origin, source, status) in [
            (manifest(), &local, "local:pdf", RefusedTampered),
            (
                manifest(),
                &local,
                "github:acme/skills/pdf",
                RefusedTampered,
            ),
            (manifest(), &local, "", RefusedTampered),
            (folder(), &local, "local:pdf", Failed),
            (extra(), &local, "local:pdf", RefusedTampered),
            (manifest(), &linked, "local:pdf", RefusedRemote),
            (extra(), &linked, "local:pdf", RefusedRemote),
        ] {
            let source: Option<ProvenanceId> = source.parse().ok();
            let expected = match origin {
                Origin::Linked(_) => Remedy::Pull,
                _ => Remedy::AddAgain(source.clone()),
            };
            let found = choose_remedy(&damage, origin, source.clone());
            assert_eq!(found, (status, expected), "{damage} {origin:?} {source:?}");
        }
    }
}
