//! The library function that fetches an installed skill again from its source and installs what
//! changed.

use std::sync::Arc;

use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_gate::finding::{Finding, Level};
use vault_gate::secrets;
use vault_shelf::fetch::{Fetch, Upstream};

use super::add::{AddError, admit_source, join_blocking, read_policy};
use super::check::is_in_linked_vault;
use super::history::read_installed;
use super::{AdmitError, AdmitReport, Options, Source, linked_skill_error};
use crate::installed::installations::read_own_skill;
use crate::installed::source_records;
use crate::vault::Vault;

/// The skill to fetch again, and how to fetch it.
#[derive(Clone, Debug)]
pub struct UpdateSkill {
    /// Name of the installed own skill; its recorded source is fetched.
    pub name: SkillName,
    /// Fetches from the source; the library itself has no network access.
    pub fetch: Arc<dyn Fetch>,
}

/// The outcome of fetching a skill again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Updated {
    /// The source had other content, which is checked, signed and installed as the next version.
    Updated,
    /// The source has the same content as the installed skill.
    UpToDate,
    /// The content at the source violates the format; nothing was changed.
    Invalid,
    /// Security findings block the new content; nothing was changed.
    SecurityBlocked,
}

/// The result of [`update_skill`], also if nothing changed or the gate blocked the new content.
#[derive(Clone, Debug)]
pub struct UpdateReport {
    /// The skill that was to be updated, as in [`UpdateSkill::name`].
    pub name: SkillName,
    /// Whether the source has other content, and if so, whether it was installed or blocked.
    pub outcome: Updated,
    /// The version and bundle that are installed now; `None` if the gate blocked the update.
    pub installed: Option<(u64, Digest)>,
    /// All findings of the gate, blocking ones first; empty if the skill is up to date.
    pub findings: Vec<Finding>,
}

/// Fetches an installed skill again and installs the new version. The vault's source policy is
/// checked before anything is fetched, no lock is held during the fetch, and the gate is strict.
///
/// Fails if no skill is installed under the name, if its source can't be fetched, or if the vault
/// can't be read or written. `examples/integrate.rs` uses it with a fetcher.
pub async fn update_skill(vault: &Vault, input: &UpdateSkill) -> Result<UpdateReport, AddError> {
    let upstream = upstream_of(vault, &input.name)?;
    let policy = read_policy(vault)?;
    let fetched = input.fetch.fetch_again(&upstream, policy.as_ref()).await?;
    let (vault, name) = (vault.clone(), input.name.clone());
    let updated = tokio::task::spawn_blocking(move || {
        // The owner waits for this update, so its gate may take as long as that of `add`.
        admit_update(
            &vault,
            &name,
            Source::Fetched(Box::new(fetched)),
            Options::default(),
        )
    });
    let report = |outcome, installed, findings| UpdateReport {
        name: input.name.clone(),
        outcome,
        installed,
        findings,
    };
    match join_blocking(updated.await) {
        Ok(updated) => {
            let installed = Some((updated.version, updated.bundle));
            Ok(if updated.is_change() {
                report(Updated::Updated, installed, updated.findings)
            } else {
                report(Updated::UpToDate, installed, Vec::new())
            })
        }
        // An error is a violation of the format; all other blocking findings are about security.
        Err(AdmitError::Blocked { findings }) => {
            let broken = findings.iter().any(|finding| finding.level == Level::Error);
            let outcome = if broken {
                Updated::Invalid
            } else {
                Updated::SecurityBlocked
            };
            Ok(report(outcome, None, findings))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the source from which an own skill can be fetched again. Fails if it has none.
pub(crate) fn upstream_of(vault: &Vault, name: &SkillName) -> Result<Upstream, AddError> {
    let Some(installed_skill) = read_own_skill(vault, name, &vault.trusted()?)? else {
        return Err(not_own_skill_error(vault, name)?.into());
    };
    // A local folder, submitted text or another vault is no source that can be fetched again.
    if let Some(upstream) = source_records::of_skill(vault, name)? {
        return Ok(upstream);
    }
    Err(AddError::NoSource {
        name: name.clone(),
        identifier: installed_skill
            .manifest
            .map(|manifest| manifest.provenance.identifier),
    })
}

/// Admits the current files of a source as the next version of a skill that is still installed, for
/// the same agents. The name, files and agents in `options` have no effect; other choices, such as
/// the limit on the gate's work, apply.
pub(crate) fn admit_update(
    vault: &Vault,
    name: &SkillName,
    source: Source,
    options: Options,
) -> Result<AdmitReport, AdmitError> {
    let options = update_options(vault, name, options)?;
    admit_source(vault, source, &options)
}

/// Returns the options for an update of an installed skill: its name, its agents and its files that
/// look like secrets replace those in `options`.
pub(crate) fn update_options(
    vault: &Vault,
    name: &SkillName,
    options: Options,
) -> Result<Options, AdmitError> {
    let installed_skill = read_own_skill(vault, name, &vault.trusted()?)?;
    // The skill may have been removed during the fetch.
    let Some(manifest) = installed_skill.and_then(|found| found.manifest) else {
        return Err(AdmitError::NotInstalled(name.clone()));
    };
    Ok(Options {
        name: Some(name.clone()),
        include: secrets_of(vault, name),
        agents: manifest.agents,
        // Check again under the lock: the owner may remove the skill in the meantime, and the
        // update must not bring it back.
        require_installed: true,
        ..options
    })
}

/// Returns the files of the installed version that look like secrets; empty if that version is
/// damaged. The owner included them, so an update includes them again.
fn secrets_of(vault: &Vault, name: &SkillName) -> Vec<String> {
    let installed = read_installed(vault, name).ok().flatten();
    installed.map_or_else(Vec::new, |examined| secrets::paths_of(&examined.files))
}

/// Returns the reason why a skill that is not an own one can't be changed: it belongs to a linked
/// vault, or it is not installed.
pub(crate) fn not_own_skill_error(
    vault: &Vault,
    name: &SkillName,
) -> Result<AdmitError, AdmitError> {
    Ok(if is_in_linked_vault(vault, name)? {
        linked_skill_error(name)
    } else {
        AdmitError::NotInstalled(name.clone())
    })
}
