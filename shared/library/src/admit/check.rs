//! Runs the gate, the scan that may block a skill, with what the vault knows about a new skill: its
//! previous version and the exceptions (findings that the owner accepted) of that version, the
//! skill of the same name in a linked vault, near-duplicates, and names that are easily confused.
//!
//! Near-duplicates come from the index, which holds a sketch of 256 bytes for each installed skill:
//! a summary of its text from which similarity is computed. A skill that the index names is
//! verified before it is used. If the index can't be used, no near-duplicates are found; all other
//! checks still run.

use std::borrow::Cow;

use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::manifest::SKILL_MD;
use vault_format::name::SkillName;
use vault_format::text::quoted;
use vault_format::time::Timestamp;
use vault_gate::finding::{Finding, Level, Rule, Severity};
use vault_gate::names as look_alike;
use vault_gate::package::Package;
use vault_gate::similar;
use vault_gate::similar::{DUPLICATE, Sketch};
use vault_gate::{self as gate, GateOptions, RawFile, Verdict};

use super::AdmitError;
use super::compare::{ComparedSkills, Nearest};
use crate::installed::installations::{Installation, list_skill_places, read_own_skill};
use crate::installed::linked_pins;
use crate::installed::project_skills::{self, ProjectFolder};
use crate::store::{self, Examined, Trusted};
use crate::vault::{Vault, VaultError};

/// The rule that warns about a new version whose SKILL.md has another name than before.
const RENAMED: Rule = Rule {
    id: "VG-SF-004",
    name: "renamed-at-source",
    category: "AST01",
    severity: Severity::Low,
    why: "A skill with another name may be another skill in the same place.",
};

/// The skills that a new skill is compared with. One command uses one value of this type for all
/// its skills, so that each skill is also compared with those that passed the gate before it.
#[derive(Debug)]
pub struct Neighbours<'v> {
    vault: Option<Cow<'v, Vault>>,
    now: Timestamp,
    compared: Option<ComparedSkills>,
    /// The project whose skills are compared with their earlier versions, in place of the user's.
    project: Option<ProjectFolder>,
}

impl<'v> Neighbours<'v> {
    /// Compares candidates with the skills of this vault, whose clock gives the time of fetching.
    pub fn for_vault(vault: &'v Vault) -> Self {
        Self::new(Some(vault), vault.clock().now())
    }

    /// Compares with the skills of a vault, if there is one. Candidates record `now` as the time at
    /// which they were fetched.
    pub fn new(vault: Option<&'v Vault>, now: Timestamp) -> Self {
        Self {
            vault: vault.map(Cow::Borrowed),
            now,
            compared: None,
            project: None,
        }
    }

    /// Like [`Self::new`], for skills of a project. The user's own skills only count as look-alikes:
    /// neither their versions nor their exceptions do, because a lock must install the same
    /// everywhere.
    pub fn for_project(vault: Option<&'v Vault>, folder: &ProjectFolder, now: Timestamp) -> Self {
        Self {
            project: Some(folder.clone()),
            ..Self::new(vault, now)
        }
    }

    /// Returns the installed version of a skill, if it is intact: the user's own one, or that of the
    /// project.
    fn earlier_version(
        &self,
        vault: &Vault,
        name: &SkillName,
    ) -> Result<Option<Examined>, AdmitError> {
        let Some(folder) = &self.project else {
            return read_own(vault, name);
        };
        let project = project_skills::find_project(vault, folder)?;
        let read = project.and_then(|project| project.read_skill(vault, name));
        Ok(read.and_then(Result::ok))
    }

    /// Sets the vault to compare with, once the vault exists: a first command checks its skills
    /// before it creates the vault. Skills that have passed the gate by then stay part of the
    /// comparison.
    pub fn attach_vault(&mut self, vault: &Vault) {
        self.vault = Some(Cow::Owned(vault.clone()));
    }

    pub(crate) fn vault(&self) -> Option<&Vault> {
        self.vault.as_deref()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns a warning if the SKILL.md of a new version has another name than that of the
    /// installed version. The source may then have another skill in the same place.
    pub(super) fn renamed_finding(&self, package: &Package) -> Result<Option<Finding>, AdmitError> {
        let Some(vault) = self.vault.as_deref() else {
            return Ok(None);
        };
        let manifest = if self.project.is_some() {
            let installed = self.earlier_version(vault, &package.name)?;
            installed.map(|found| found.manifest)
        } else {
            let installed = read_own_skill(vault, &package.name, &vault.trusted()?)?;
            installed.and_then(|found| found.manifest)
        };
        let Some(manifest) = manifest else {
            return Ok(None);
        };
        let before = own_name(manifest.frontmatter_name.as_deref(), &manifest.name);
        let now = own_name(package.frontmatter_name.as_deref(), &package.name);
        Ok((before != now).then(|| {
            let (before, now) = (quoted(before), quoted(now));
            let message =
                format!("its SKILL.md has the name {now} now; the installed one has {before}");
            Finding::of(&RENAMED, Level::Warning, message)
                .at(SKILL_MD)
                .hint("check that this is still the same skill")
        }))
    }

    /// Runs the gate on a skill. The gate compares it with its previous version, or else with the
    /// skill of the same name or a near-duplicate, and applies the exceptions of the previous
    /// version.
    pub(super) fn run_gate(
        &mut self,
        raw: Vec<RawFile>,
        mut options: GateOptions<'_>,
    ) -> Result<Verdict, AdmitError> {
        // Without a name there is nothing to compare with. The gate reports the missing name.
        let Some((name, author)) = gate::name_in_vault(&raw, &options) else {
            return Ok(gate::check(raw, &options));
        };
        let (mut is_new, mut before) = (true, Vec::new());
        if let Some(vault) = self.vault.as_deref() {
            before = match self.earlier_version(vault, &name)? {
                Some(own) => {
                    is_new = false;
                    // Exceptions in a skill by another author do not apply on this machine, and a
                    // project has none.
                    if self.project.is_none() && vault.is_own_work(&name, &own.signer)? {
                        options.waivers.extend(own.manifest.gate.waivers);
                    }
                    own.files
                }
                None if self.project.is_some() => Vec::new(),
                None => files_of_same_name(vault, &name, author.as_deref())?,
            };
        }
        let sketch = Sketch::of(raw.iter().map(|file| file.bytes.as_slice()));
        let mut nearest = None;
        let mut confusable = None;
        // Only a new name can duplicate another skill or be confused with one.
        if is_new {
            let compared = match &mut self.compared {
                Some(compared) => compared,
                none => {
                    let installed = self
                        .vault
                        .as_deref()
                        .map(ComparedSkills::read_installed_skills)
                        .transpose()?;
                    none.insert(installed.unwrap_or_default())
                }
            };
            nearest = compared.nearest(&name, &sketch);
            confusable = compared.confusable_with(&name).map(str::to_owned);
        }
        // Compare a copy with its original, so that the gate sees what the copy adds to it.
        if let (Some(nearest), Some(vault)) = (&nearest, self.vault.as_deref())
            && before.is_empty()
            && self.project.is_none()
        {
            before = nearest.verified_files(vault);
        }
        let options = GateOptions {
            before: &before,
            ..options
        };
        let mut verdict = gate::check(raw, &options);
        if let Some(nearest) = nearest {
            verdict.add_warning(nearest.warning());
        }
        if let Some(other) = confusable {
            verdict.add_warning(look_alike::look_alike_warning(name.as_str(), &other));
        }
        // The next skills of this command are compared with this one, although it is not installed
        // yet.
        if verdict.package.is_some()
            && let Some(compared) = &mut self.compared
        {
            compared.add_candidate(&name, sketch);
        }
        Ok(verdict)
    }
}

impl Nearest {
    /// Returns the verified files of a near-duplicate; empty if the skills are only alike, or if
    /// the other one is not installed yet.
    fn verified_files(&self, vault: &Vault) -> Vec<File> {
        // A candidate of this command is not stored yet, so it has no files to compare with.
        let duplicate = self.place.as_ref().filter(|_| self.likeness >= DUPLICATE);
        let files = duplicate.and_then(|place| {
            let groups = list_skill_places(vault).ok()?.groups;
            let group = groups.iter().find(|group| group.places.contains(place))?;
            examine_bundle(vault, &place.signed_name, &place.bundle, &group.trusted)
        });
        files.map_or_else(Vec::new, |examined| examined.files)
    }

    fn warning(&self) -> Finding {
        let hint = "read both; keep one, or let each description say what only that skill is for";
        similar::likeness_warning(self.name.as_str(), self.likeness, hint)
    }
}

/// Returns the name in a skill's SKILL.md, which may differ from its name in the vault. `given` is
/// `None` if they are the same.
pub(super) fn own_name<'n>(given: Option<&'n str>, name: &'n SkillName) -> &'n str {
    given.unwrap_or(name.as_str())
}

/// Returns the installed version of a skill with its verified bytes, if it is intact.
fn read_own(vault: &Vault, name: &SkillName) -> Result<Option<Examined>, AdmitError> {
    // Read the record of versions before the link. If a writer installs a later version in between,
    // the link leads to a version above the recorded one, which is accepted.
    let trusted = vault.trusted()?;
    let Some(bundle) = own_bundle(vault, name)? else {
        return Ok(None);
    };
    Ok(examine_bundle(vault, name, &bundle, &trusted))
}

/// Returns the bundle to which the link of an own skill leads; `None` if there is no link.
fn own_bundle(vault: &Vault, name: &SkillName) -> Result<Option<Digest>, AdmitError> {
    Ok(store::bundle_at(
        &vault.skills_folder().join(name.as_str()),
    )?)
}

/// Returns the files of the skill with this name, or with the name that its author gave it, in this
/// vault or a linked one.
fn files_of_same_name(
    vault: &Vault,
    name: &SkillName,
    author: Option<&str>,
) -> Result<Vec<File>, AdmitError> {
    // A skill may be installed under another name than its author gave it.
    let author = author.and_then(|author| author.parse::<SkillName>().ok());
    if let Some(author) = &author
        && let Some(own) = read_own(vault, author)?
    {
        return Ok(own.files);
    }
    let is_wanted =
        |place: &Installation| place.name == *name || author.as_ref() == Some(&place.name);
    let linked_files = find_in_linked_vaults(vault, is_wanted)
        .and_then(|(place, trusted)| {
            examine_bundle(vault, &place.signed_name, &place.bundle, &trusted)
        })
        .map(|examined| examined.files);
    Ok(linked_files.unwrap_or_default())
}

/// Returns whether a linked vault has a skill of this name. Fails if a linked vault can't be read.
pub(super) fn is_in_linked_vault(vault: &Vault, name: &SkillName) -> Result<bool, VaultError> {
    for link in linked_pins::list_links(vault)? {
        let (group, _) = link.read_group(vault)?;
        let mut places = group.iter().flat_map(|group| &group.places);
        if places.any(|place| place.name == *name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the first matching skill of a linked vault. A linked vault that can't be read is
/// skipped; other checks report it.
fn find_in_linked_vaults(
    vault: &Vault,
    wanted: impl Fn(&Installation) -> bool,
) -> Option<(Installation, Trusted)> {
    // The comparison only helps the gate, so an unreadable link must not block every admission.
    let links = linked_pins::list_links(vault).unwrap_or_default();
    let groups = links.iter().filter_map(|link| link.read_group(vault).ok());
    groups.filter_map(|(group, _)| group).find_map(|group| {
        let place = group.places.into_iter().find(|place| wanted(place))?;
        Some((place, group.trusted))
    })
}

/// Returns the verified content of a bundle that was signed under this name, if it is intact.
fn examine_bundle(
    vault: &Vault,
    signed_name: &SkillName,
    bundle: &Digest,
    trusted: &Trusted,
) -> Option<Examined> {
    let (store, name) = (vault.store_folder(), Some(signed_name));
    store::examine_stored(&store, bundle, name, trusted).ok()
}
