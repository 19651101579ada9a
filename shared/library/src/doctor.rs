//! Everything that can be wrong with a vault on this machine, each with what mends it.
//!
//! [`examine`] reads all, and writes only what it was asked to: `clean` removes metadata and left-overs that are no
//! part of any skill, `repair` signs what is of this machine and has no signature. What was tampered with, or came from
//! elsewhere, is never signed again.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::value::RawValue;
use vault_skill::hash::Digest;
use vault_skill::manifest::SKILL_MD;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::provenance::{Kind as SourceKind, ProvenanceId};
use vault_skill::time::Timestamp;

use crate::add::{self, AddError, AddSkill};
use crate::agents::Machine;
use crate::files::scratch;
use crate::files::{self, Kind};
use crate::index::{Index, Texts};
use crate::integrity::{self, Checked};
use crate::keys::KeyError;
use crate::parallel::joined;
use crate::profiles::{self, AgentView, View};
use crate::scan::{self, Origin, Places};
use crate::store::{self, Damage};
use crate::vault::{Vault, VaultError};

/// The agent whose list of skills has a known bound, and the bound in characters.
const LIST_BOUND: (&str, usize) = ("codex", 8_000);

/// What to look at and what to mend.
pub struct DoctorInput<'a> {
    /// The machine on which agents are looked for; `None` leaves profiles out.
    pub machine: Option<Machine>,
    /// One skill's health alone; what concerns the whole vault is looked at all the same.
    pub skill: Option<SkillName>,
    /// Remove metadata of systems and editors, left-overs of killed writers, and links that lead nowhere.
    pub clean: bool,
    /// Sign skills of this machine that have no signature.
    pub repair: bool,
    /// Whether security flags block a repaired skill.
    pub strict: bool,
    /// Whether an environment variable is set: for what skills say they need.
    pub is_set: &'a dyn Fn(&str) -> bool,
}

/// What can be done about a damaged skill, or was.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairStatus {
    /// Nothing is wrong.
    NotNeeded,
    /// It has no signature and is of this machine: it can be signed.
    Repairable,
    /// It was signed just now.
    Repaired,
    /// Its signature or bytes were changed: nobody here can say what it should be.
    RefusedTampered,
    /// It came from elsewhere, or nobody knows from where: it has to come from there again.
    RefusedRemote,
    /// It could not be repaired.
    Failed,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may surprise.
    Warning,
    /// Good to know.
    Note,
}

/// One thing that was found.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorFinding {
    /// The stable word.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// One sentence without a full stop.
    pub message: String,
    /// What mends it.
    pub hint: String,
    /// The skill that it is about.
    pub skill: Option<SkillName>,
    /// The file or folder that it is about.
    pub path: Option<PathBuf>,
}

impl DoctorFinding {
    fn at(&mut self, path: PathBuf) {
        self.path = Some(path);
    }

    fn of(&mut self, skill: SkillName) {
        self.skill = Some(skill);
    }
}

/// The health of one skill.
#[derive(Clone, Debug, Serialize)]
pub struct SkillHealth {
    /// What it is installed as.
    pub name: SkillName,
    /// `local`, or the id of the linked vault.
    pub origin: String,
    /// Its signed version.
    pub version: Option<u64>,
    /// Its bundle; `None` for a folder that was never signed.
    pub bundle_hash: Option<Digest>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// What can be done about it, or was.
    pub repair_status: RepairStatus,
    /// Variables that it says it needs and that are not set.
    pub unset_environment: Vec<String>,
    /// Metadata of systems and editors beside its files.
    pub ignored: Vec<String>,
}

/// What an agent reads before it reads any skill.
#[derive(Clone, Debug, Serialize)]
pub struct ContextCost {
    /// The agent.
    pub agent: AgentId,
    /// Skills that it sees.
    pub skills: usize,
    /// Characters of their names and descriptions.
    pub characters: usize,
    /// The most that the agent reads, where that is known.
    pub bound: Option<usize>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct DoctorReport {
    /// Every skill, or the one that was asked for.
    pub skills: Vec<SkillHealth>,
    /// What is wrong, worst first.
    pub findings: Vec<DoctorFinding>,
    /// Who sees what.
    pub agents: View,
    /// What agents read of it at every start.
    pub context: Vec<ContextCost>,
    /// What `clean` removed.
    pub cleaned: Vec<PathBuf>,
}

impl DoctorReport {
    /// Whether nothing is wrong; warnings and notes count as nothing.
    pub fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity != Severity::Error)
    }

    /// What `vault doctor --json` says of it, written at once: with thousands of skills a tree of values costs more than the look at
    /// them.
    pub fn to_json(&self) -> Box<RawValue> {
        let damaged = |skill: &&SkillHealth| skill.repair_status != RepairStatus::NotNeeded;
        let said = Said {
            healthy: self.is_clean() && !self.is_tampered(),
            damaged: self.skills.iter().filter(damaged).count(),
            skills: &self.skills,
            findings: &self.findings,
            agents: &self.agents.agents,
            context: &self.context,
            cleaned: &self.cleaned,
        };
        serde_json::value::to_raw_value(&said)
            .expect("our types have text keys and infallible serializers")
    }

    /// Whether a skill's bytes or signature are not what they should be.
    pub fn is_tampered(&self) -> bool {
        self.skills
            .iter()
            .any(|skill| skill.repair_status == RepairStatus::RefusedTampered)
    }
}

/// The members of [`DoctorReport::to_json`].
#[derive(Serialize)]
struct Said<'a> {
    /// Nothing is wrong.
    healthy: bool,
    /// How many skills are not as they were signed, those just repaired included.
    damaged: usize,
    skills: &'a [SkillHealth],
    findings: &'a [DoctorFinding],
    agents: &'a [AgentView],
    context: &'a [ContextCost],
    cleaned: &'a [PathBuf],
}

/// Looks at everything, and mends what was asked for. Fails only where the vault can't be listed or written.
pub fn examine(vault: &Vault, input: &DoctorInput<'_>) -> Result<DoctorReport, VaultError> {
    let mut doctor = Doctor {
        vault,
        input,
        report: DoctorReport::default(),
        texts: OnceCell::new(),
    };
    doctor.folder();
    doctor.keys();
    // Before anything takes the lock: whoever takes it clears them away.
    doctor.leftovers()?;
    // Who sees what is no matter of the bytes; where nothing is mended first, both are looked at together.
    let beside = match (&input.machine, input.clean || input.repair) {
        (Some(machine), false) => Some(machine),
        _ => None,
    };
    let looked = scan::places(vault).and_then(|places| {
        std::thread::scope(|scope| {
            let view = |machine| profiles::view(vault, machine, Some(&places));
            let seen = beside.map(|machine| scope.spawn(move || view(machine)));
            let checked = integrity::check_places(vault, &places)?;
            let seen = seen.map(|seen| joined(seen.join()));
            Ok((checked, seen))
        })
        .map(|(checked, seen)| (checked, seen, places))
    });
    let (seen, places) = match looked {
        Ok((checked, seen, places)) => {
            doctor.skills(checked)?;
            (seen, Some(places))
        }
        // Without the key nobody can say what is good; that is among the findings already.
        Err(VaultError::Key(_)) => (None, None),
        Err(error) => return Err(error),
    };
    doctor.profiles(seen, places.as_ref())?;
    let report = &mut doctor.report;
    report
        .findings
        .sort_by(|a, b| (a.severity, a.code, &a.skill).cmp(&(b.severity, b.code, &b.skill)));
    Ok(doctor.report)
}

struct Doctor<'a> {
    vault: &'a Vault,
    input: &'a DoctorInput<'a>,
    report: DoctorReport,
    /// What the index says of each bundle: read where something asks for it.
    texts: OnceCell<HashMap<Digest, Texts>>,
}

impl Doctor<'_> {
    fn texts(&self) -> &HashMap<Digest, Texts> {
        let index = self.vault.paths().index();
        self.texts.get_or_init(|| Index::open(&index).texts())
    }

    fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> &mut DoctorFinding {
        self.report.findings.push(DoctorFinding {
            code,
            severity,
            message: message.into(),
            hint: hint.into(),
            skill: None,
            path: None,
        });
        let last = self.report.findings.len() - 1;
        &mut self.report.findings[last]
    }

    /// The vault's own folder: whose it is, and who may write to it.
    fn folder(&mut self) {
        let root = self.vault.paths().root.clone();
        let Ok(Some((mode, owner))) = files::mode_and_owner(&root) else {
            return;
        };
        if owner != files::effective_user() {
            self.find(
                Severity::Warning,
                "foreign_owner",
                format!("{} belongs to another user", root.display()),
                format!("chown -R $(id -un) {}", root.display()),
            )
            .at(root.clone());
        }
        if mode & 0o022 != 0 {
            self.find(
                Severity::Error,
                "open_to_others",
                format!("others may write to {} (mode {mode:04o})", root.display()),
                format!("chmod go-w {}", root.display()),
            )
            .at(root.clone());
        }
        if !files::may_write(&root) {
            self.find(
                Severity::Warning,
                "read_only",
                format!("{} can't be written to", root.display()),
                "skills can be read and run; nothing can be added or removed",
            )
            .at(root);
        }
    }

    fn keys(&mut self) {
        let keys = self.vault.keys();
        if let Err(error) = keys.release() {
            let (code, hint, path) = match &error {
                KeyError::Missing(path) => (
                    "key_missing",
                    "bring it back from where the vault was copied from, or vault key recovery use <file>".to_owned(),
                    Some(path.clone()),
                ),
                KeyError::Open { path, .. } => (
                    "key_open",
                    format!("chmod go-rwx {}", path.display()),
                    Some(path.clone()),
                ),
                KeyError::Foreign(path) => (
                    "key_foreign",
                    format!("chown $(id -un) {}", path.display()),
                    Some(path.clone()),
                ),
                KeyError::Malformed { path, .. } | KeyError::Mismatch(path) => (
                    "key_damaged",
                    "bring back the file as it was, or vault key recovery use <file>".to_owned(),
                    Some(path.clone()),
                ),
                KeyError::File(failed) => (
                    "key_unreadable",
                    "give this user the right to read it".to_owned(),
                    Some(failed.path.clone()),
                ),
            };
            self.find(Severity::Error, code, error.to_string(), hint)
                .path = path;
        }
        if let Ok(Some(path)) = keys.recovery_left_here() {
            self.find(
                Severity::Warning,
                "recovery_here",
                format!("the recovery key still lies in {}", path.display()),
                "move it to a safe place: it replaces a lost or stolen key",
            )
            .at(path);
        }
    }

    fn skills(&mut self, checked: integrity::Report) -> Result<(), VaultError> {
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

    /// Nothing is signed in the future: a clock that says otherwise was put back.
    fn clock(&mut self, signed: impl Iterator<Item = Timestamp>) {
        let now = self.vault.clock().now();
        if let Some(latest) = signed.max()
            && latest > now.plus_days(1)
        {
            self.find(
                Severity::Warning,
                "clock_behind",
                format!("this machine's clock says {now}, but a skill was signed at {latest}"),
                "set the clock: releases expire by it, and services refuse requests that are 300 s off",
            );
        }
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
            let request = AddSkill {
                name: Some(name.clone()),
                agents: texts.map(|texts| texts.agents.clone()).unwrap_or_default(),
                provenance: Some(source),
                replace: true,
                strict: self.input.strict,
                ..AddSkill::from_path(files.to_string_lossy())
            };
            let done = add::add_skill(self.vault, &request);
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

    fn repaired(&mut self, health: &mut SkillHealth, done: Result<add::AddReport, AddError>) {
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
    ) -> Result<add::AddReport, AddError> {
        let request = |path: &std::path::Path| AddSkill {
            name: Some(name.clone()),
            provenance: format!("local:{name}").parse().ok(),
            replace: true,
            strict: self.input.strict,
            ..AddSkill::from_path(path.to_string_lossy())
        };
        // Refused before it is moved, where it is to be refused.
        add::read(self.vault, &request(folder))?;
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
        match add::add_skill(self.vault, &request(&place)) {
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

    fn leftovers(&mut self) -> Result<(), VaultError> {
        let tmp = self.vault.tmp();
        let generation = self.vault.generation()?;
        let dead = scratch::dead(&tmp).unwrap_or_default();
        let unfinished = !dead.is_empty() || generation % 2 == 1;
        if unfinished && self.input.clean {
            // Taking the lock clears away what a killed writer left.
            let mut change = self.vault.change()?;
            change.switching()?;
            self.report.cleaned.extend(dead);
        } else if unfinished {
            self.find(
                Severity::Note,
                "unfinished",
                "a command was killed in the middle; what it left is no part of the vault",
                "vault doctor --clean removes it, as the next change does",
            );
        }
        let parked = self.vault.paths().root.join("set-aside");
        for (name, _) in files::list(&parked)? {
            let path = parked.join(name);
            self.find(
                Severity::Warning,
                "set_aside",
                format!("{} was set aside and never signed", path.display()),
                format!("vault add {0}, then rm -r {0}", path.display()),
            )
            .at(path);
        }
        Ok(())
    }

    /// The agents' folders; `seen` is the view of them, where it was made already.
    fn profiles(
        &mut self,
        seen: Option<Result<View, profiles::ProfileSyncError>>,
        places: Option<&Places>,
    ) -> Result<(), VaultError> {
        let Some(machine) = &self.input.machine else {
            return Ok(());
        };
        if self.input.clean {
            match profiles::clean(self.vault, machine) {
                Ok(cleaned) => self.report.cleaned.extend(cleaned),
                Err(profiles::ProfileSyncError::Vault(VaultError::Key(_))) => {}
                Err(profiles::ProfileSyncError::Vault(error)) => return Err(error),
                Err(_) => {}
            }
        }
        let view = match seen.unwrap_or_else(|| profiles::view(self.vault, machine, None)) {
            Ok(view) => view,
            Err(profiles::ProfileSyncError::Vault(VaultError::Key(_))) => return Ok(()),
            Err(profiles::ProfileSyncError::Vault(error)) => return Err(error),
            Err(error) => {
                self.find(
                    Severity::Error,
                    "profiles_invalid",
                    error.to_string(),
                    "mend profiles.toml in the vault's folder",
                );
                return Ok(());
            }
        };
        for (path, ours) in &view.dangling {
            let (severity, hint) = if *ours {
                (Severity::Error, "vault doctor --clean removes it")
            } else {
                (
                    Severity::Warning,
                    "it is not the vault's: remove it, or bring back what it leads to",
                )
            };
            self.find(
                severity,
                "dangling_link",
                format!("{} leads nowhere", path.display()),
                hint,
            )
            .at(path.clone());
        }
        for path in &view.missing {
            self.find(
                Severity::Warning,
                "root_missing",
                format!("{} is not there any more", path.display()),
                "vault doctor --clean forgets it",
            )
            .at(path.clone());
        }
        for warning in &view.warnings {
            // Damaged skills are named once, with their health.
            if warning.code != "skill_damaged" {
                self.find(
                    Severity::Warning,
                    warning.code,
                    warning.message.clone(),
                    warning.hint.clone(),
                )
                .path
                .clone_from(&warning.path);
            }
        }
        if view.stale {
            self.find(
                Severity::Warning,
                "links_stale",
                "the agents' links are not as the vault is now",
                "vault sync-profiles",
            );
        }
        let unlinked: Vec<_> = view
            .agents
            .iter()
            .filter(|agent| !agent.linked && !agent.sees.is_empty())
            .map(|agent| agent.agent.as_str())
            .collect();
        if !unlinked.is_empty() {
            self.find(
                Severity::Note,
                "agent_not_linked",
                format!("not linked to the vault's skills: {}", unlinked.join(", ")),
                "vault sync-profiles --discover",
            );
        }
        self.context(&view, places);
        self.report.agents = view;
        if let Some(one) = &self.input.skill {
            for agent in &mut self.report.agents.agents {
                agent.sees.retain(|name| name == one);
                agent.hidden.retain(|hidden| hidden.skill == *one);
            }
        }
        Ok(())
    }

    fn context(&mut self, view: &View, places: Option<&Places>) {
        if view.agents.iter().all(|agent| !agent.linked) {
            return;
        }
        let lengths = places
            .and_then(|places| self.noted_lengths(places))
            .unwrap_or_else(|| self.listed_lengths());
        for agent in view.agents.iter().filter(|agent| agent.linked) {
            let characters = agent.sees.iter().filter_map(|name| lengths.get(name)).sum();
            let bound = (agent.agent.as_str() == LIST_BOUND.0).then_some(LIST_BOUND.1);
            if let Some(bound) = bound.filter(|bound| characters > *bound) {
                self.find(
                    Severity::Warning,
                    "context_cost",
                    format!(
                        "{} reads {bound} characters of its list of skills; yours has {characters}",
                        agent.agent
                    ),
                    format!("vault disable <name> --agent {} shortens it", agent.agent),
                );
            }
            self.report.context.push(ContextCost {
                agent: agent.agent.clone(),
                skills: agent.sees.len(),
                characters,
                bound,
            });
        }
    }

    /// Characters of each skill in a list of skills, as the index has its texts; `None` where it lacks one.
    fn noted_lengths(&self, places: &Places) -> Option<HashMap<SkillName, usize>> {
        let texts = self.texts();
        let places = places.groups.iter().flat_map(|group| &group.places);
        let mut lengths = HashMap::new();
        for place in places {
            // An own skill stands before a linked one of its name.
            if !lengths.contains_key(&place.name) {
                let length = length(&place.name, texts.get(&place.bundle)?);
                lengths.insert(place.name.clone(), length);
            }
        }
        Some(lengths)
    }

    fn listed_lengths(&self) -> HashMap<SkillName, usize> {
        let listing = crate::shelf::list(self.vault).unwrap_or_default();
        let lengths = listing.skills.into_iter().map(|skill| {
            let length = length(&skill.name, &skill.texts);
            (skill.name, length)
        });
        lengths.collect()
    }
}

/// What a skill adds to a list of skills that an agent reads, in characters.
fn length(name: &SkillName, texts: &Texts) -> usize {
    name.as_str().len() + texts.description.chars().count()
}
