//! Every skill from its bytes, and signing those of this machine that have no signature.

use vault_skill::manifest::SKILL_MD;
use vault_skill::name::SkillName;
use vault_skill::provenance::{Kind as SourceKind, ProvenanceId};

use super::{Doctor, RepairStatus, Severity, SkillHealth};
use crate::admit::add::add_folder;
use crate::admit::{AdmitError, AdmitReport, Neighbours, Options, Source, examine};
use crate::files::{self, Kind};
use crate::index::Texts;
use crate::integrity::{self, Checked};
use crate::scan::Origin;
use crate::store::{self, Damage};
use crate::vault::VaultError;

impl Doctor<'_> {
    pub(super) fn skills(&mut self, checked: integrity::Report) -> Result<(), VaultError> {
        self.clock(checked.skills.iter().filter_map(|skill| skill.signed_at));
        let wanted = |name: &SkillName| self.input.skill.as_ref().is_none_or(|one| one == name);
        let skills: Vec<_> = checked
            .skills
            .into_iter()
            .filter(|skill| wanted(&skill.name))
            .collect();
        self.report.skills.reserve_exact(skills.len());
        for skill in skills {
            self.skill(skill)?;
        }
        for variant in &checked.variants {
            if let Some(damage) = &variant.damage {
                let finding = self.find(
                    Severity::Error,
                    "variant_damaged",
                    format!("a variant of {}: {damage}", variant.name),
                    format!(
                        "vault transform list {0}; add the transform again",
                        variant.name
                    ),
                );
                finding.of(variant.name.clone());
            }
        }
        for path in checked.strange {
            self.strange(&path)?;
        }
        if !checked.unreferenced.is_empty() {
            self.find(
                Severity::Note,
                "earlier_versions",
                format!("{} earlier bundles are kept", checked.unreferenced.len()),
                "they are what a rollback goes back to",
            );
        }
        Ok(())
    }

    fn skill(&mut self, checked: Checked) -> Result<(), VaultError> {
        let unset: Vec<String> = checked
            .declared
            .iter()
            .filter(|secret| !(self.input.is_set)(&secret.name))
            .map(|secret| secret.name.clone())
            .collect();
        let required: Vec<_> = checked
            .declared
            .iter()
            .filter(|secret| secret.required && unset.contains(&secret.name))
            .map(|secret| secret.name.clone())
            .collect();
        if !required.is_empty() {
            self.find(
                Severity::Warning,
                "environment_unset",
                format!(
                    "{} needs {}, not set here",
                    checked.name,
                    required.join(", ")
                ),
                format!("export {}=…", required[0]),
            )
            .of(checked.name.clone());
        }
        let mut ignored = checked.ignored;
        if !ignored.is_empty() {
            if self.input.clean {
                let _change = self.vault.change()?;
                let removed =
                    store::remove_ignored(&self.vault.store(), &checked.bundle, &ignored)?;
                self.report.cleaned.extend(removed);
                ignored.clear();
            } else {
                self.find(
                    Severity::Note,
                    "ignored_metadata",
                    format!("{}: {} is no part of it", checked.name, ignored.join(", ")),
                    "vault doctor --clean removes it",
                )
                .of(checked.name.clone());
            }
        }
        let mut health = SkillHealth {
            origin: match &checked.origin {
                Origin::Local => "local".to_owned(),
                Origin::Linked(id) => id.to_string(),
            },
            version: checked.version,
            bundle_hash: Some(checked.bundle),
            problem: checked.damage.as_ref().map(ToString::to_string),
            repair_status: RepairStatus::NotNeeded,
            unset_environment: unset,
            ignored,
            name: checked.name,
        };
        if let Some(damage) = checked.damage {
            let texts = self.texts().get(&checked.bundle).cloned();
            self.damaged(&mut health, &checked.origin, &damage, texts.as_ref())?;
        }
        self.report.skills.push(health);
        Ok(())
    }

    fn damaged(
        &mut self,
        health: &mut SkillHealth,
        origin: &Origin,
        damage: &Damage,
        texts: Option<&Texts>,
    ) -> Result<(), VaultError> {
        let name = health.name.clone();
        let source: Option<ProvenanceId> = texts.and_then(|texts| texts.provenance.parse().ok());
        let own = source
            .as_ref()
            .is_some_and(|source| matches!(source.kind(), SourceKind::Local | SourceKind::Inline));
        // Exactly the manifest is gone: the rest is there, and nobody vouches for it.
        let unsigned = matches!(damage, Damage::Missing(what) if what == "manifest.json");
        let again = match &source {
            Some(source) if source.kind() == SourceKind::Local => {
                format!("vault add <folder>, with the folder that it came from ({source})")
            }
            Some(source) if source.kind() == SourceKind::Inline => {
                "hand its text in again".to_owned()
            }
            Some(source) => format!("vault add {source}"),
            None => "vault add <source>, with where it came from".to_owned(),
        };
        let (status, hint) = match origin {
            Origin::Linked(_) => (
                RepairStatus::RefusedRemote,
                "vault cloud pull brings it back".to_owned(),
            ),
            Origin::Local if damage.is_tampering() => (RepairStatus::RefusedTampered, again),
            Origin::Local if !unsigned => (RepairStatus::Failed, again),
            Origin::Local if !own => (RepairStatus::RefusedRemote, again),
            Origin::Local => (
                RepairStatus::Repairable,
                format!("vault doctor {name} --repair signs it"),
            ),
        };
        health.repair_status = status;
        if status == RepairStatus::Repairable
            && self.input.repair
            && let (Some(bundle), Some(source)) = (health.bundle_hash, source)
        {
            let files = store::folder(&self.vault.store(), &bundle).join("files");
            let options = Options {
                name: Some(name.clone()),
                agents: texts.map(|texts| texts.agents.clone()).unwrap_or_default(),
                provenance: Some(source),
                replace: true,
                strict: self.input.strict,
                ..Options::default()
            };
            let done = add_folder(self.vault, &files, &options);
            if done.is_ok() {
                let _change = self.vault.change()?;
                let aside = self.vault.scratch()?;
                store::drop_bundles(&self.vault.store(), aside.path(), [bundle])?;
            }
            self.repaired(health, done);
            return Ok(());
        }
        let code = if status == RepairStatus::RefusedTampered {
            "skill_tampered"
        } else {
            "skill_damaged"
        };
        self.find(Severity::Error, code, format!("{name}: {damage}"), hint)
            .of(name);
        Ok(())
    }

    fn repaired(&mut self, health: &mut SkillHealth, done: Result<AdmitReport, AdmitError>) {
        match done {
            Ok(report) => {
                health.repair_status = RepairStatus::Repaired;
                health.version = Some(report.version);
                health.bundle_hash = Some(report.bundle);
                health.problem = None;
            }
            Err(error) => {
                health.repair_status = RepairStatus::Failed;
                health.problem = Some(error.to_string());
                self.find(
                    Severity::Error,
                    "repair_failed",
                    format!("{} was not signed: {error}", health.name),
                    format!(
                        "vault add <folder> --name {0} --replace, once that is mended",
                        health.name
                    ),
                )
                .of(health.name.clone());
            }
        }
    }

    /// What lies in the vault's folders and is not of the vault. A skill that somebody copied there is unsigned.
    fn strange(&mut self, path: &str) -> Result<(), VaultError> {
        let full = self.vault.paths().root.join(path);
        let name = path
            .strip_prefix("skills/")
            .and_then(|name| name.parse::<SkillName>().ok());
        let is_skill = files::kind(&full)? == Some(Kind::Dir)
            && files::kind(&full.join(SKILL_MD))? == Some(Kind::File);
        let Some(name) = name.filter(|_| is_skill) else {
            self.find(
                Severity::Warning,
                "foreign_in_vault",
                format!("{} is not the vault's", full.display()),
                "move it elsewhere",
            )
            .at(full);
            return Ok(());
        };
        if self.input.skill.as_ref().is_some_and(|one| *one != name) {
            return Ok(());
        }
        let mut health = SkillHealth {
            name: name.clone(),
            origin: "local".to_owned(),
            version: None,
            bundle_hash: None,
            problem: Some("it was put into the vault by hand and is not signed".to_owned()),
            repair_status: RepairStatus::Repairable,
            unset_environment: Vec::new(),
            ignored: Vec::new(),
        };
        if self.input.repair {
            let done = self.sign_folder(&name, &full);
            self.repaired(&mut health, done);
        } else {
            self.find(
                Severity::Error,
                "skill_unsigned",
                format!("{name} was put into the vault by hand and is not signed"),
                format!("vault doctor {name} --repair signs it"),
            )
            .of(name);
        }
        self.report.skills.push(health);
        Ok(())
    }

    /// The folder makes room for a link. Its bytes are at one place at every moment.
    fn sign_folder(
        &self,
        name: &SkillName,
        folder: &std::path::Path,
    ) -> Result<AdmitReport, AdmitError> {
        let options = Options {
            name: Some(name.clone()),
            provenance: format!("local:{name}").parse().ok(),
            replace: true,
            strict: self.input.strict,
            ..Options::default()
        };
        // A skill that the gate refuses is not moved.
        let mut neighbours = Neighbours::of(self.vault);
        examine(Source::folder(folder), &options, &mut neighbours)?;
        let parked = self.vault.paths().root.join("set-aside");
        let mut place = parked.join(name.as_str());
        {
            let _change = self.vault.change()?;
            files::make_dirs(&parked, 0o700)?;
            let mut number = 1;
            while files::kind(&place)?.is_some() {
                place = parked.join(format!("{name}-{number}"));
                number += 1;
            }
            files::rename(folder, &place)?;
            files::sync_dir(&parked)?;
        }
        match add_folder(self.vault, &place, &options) {
            Ok(report) => {
                files::remove_tree(&place)?;
                files::remove_empty(&parked)?;
                Ok(report)
            }
            Err(error) => {
                files::rename(&place, folder)?;
                files::remove_empty(&parked)?;
                Err(error)
            }
        }
    }
}
