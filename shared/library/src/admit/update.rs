//! Fetching an installed skill again from its source: the interface's `updateSkill`.

use std::sync::Arc;

use vault_skill::finding::{Finding, Level};
use vault_skill::hash::Digest;
use vault_skill::name::SkillName;
use vault_store::fetch::{Fetch, FetchedSkill, Upstream};

use super::add::{AddError, add, joined, read_policy};
use super::check::is_linked;
use super::{AdmitError, AdmitReport, Options, Source, linked_elsewhere};
use crate::installed::place::installed;
use crate::installed::upstream;
use crate::vault::Vault;

/// Which skill to fetch again, and who fetches.
#[derive(Clone, Debug)]
pub struct UpdateSkill {
    /// The installed skill.
    pub name: SkillName,
    /// Who asks the source: the library itself knows no network.
    pub fetch: Arc<dyn Fetch>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Updated {
    /// The source had something else: it is checked, signed and installed as the next version.
    Updated,
    /// The source has what is installed.
    UpToDate,
    /// What the source has now breaks the format; nothing was changed.
    Invalid,
    /// A security flag stands in the way; nothing was changed.
    SecurityBlocked,
}

/// The answer to an update.
#[derive(Clone, Debug)]
pub struct UpdateReport {
    /// The skill.
    pub name: SkillName,
    /// What became of it.
    pub outcome: Updated,
    /// The version and the bundle that are installed now, where they are known: not where the gate refused.
    pub installed: Option<(u64, Digest)>,
    /// Everything that the gate found, what blocks first.
    pub findings: Vec<Finding>,
}

/// Refreshes an installed skill: the interface's `updateSkill`. The vault's source policy is asked before anything is fetched, no lock is
/// held meanwhile, and the gate is strict.
///
/// Fails when nothing is installed under the name, when its source cannot be asked, or when the vault can't be read or written.
/// `examples/integrate.rs` shows it with a fetcher.
pub async fn update_skill(vault: &Vault, input: &UpdateSkill) -> Result<UpdateReport, AddError> {
    let upstream = upstream_of(vault, &input.name)?;
    let policy = read_policy(vault)?;
    let fetched = input.fetch.fetch_again(&upstream, policy.as_ref()).await?;
    let (vault, name) = (vault.clone(), input.name.clone());
    let updated = tokio::task::spawn_blocking(move || admit_update(&vault, &name, fetched));
    let report = |outcome, installed, findings| UpdateReport {
        name: input.name.clone(),
        outcome,
        installed,
        findings,
    };
    match joined(updated.await) {
        Ok(updated) => {
            let installed = Some((updated.version, updated.bundle));
            Ok(if updated.is_change() {
                report(Updated::Updated, installed, updated.findings)
            } else {
                report(Updated::UpToDate, installed, Vec::new())
            })
        }
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

/// Where an installed skill was fetched from.
pub(crate) fn upstream_of(vault: &Vault, name: &SkillName) -> Result<Upstream, AddError> {
    let Some(found) = installed(vault, name, &vault.trusted()?, &mut Vec::new())? else {
        return Err(not_installed(vault, name)?.into());
    };
    if let Some(upstream) = upstream::of_skill(vault, name)? {
        return Ok(upstream);
    }
    Err(AddError::NoSource {
        name: name.clone(),
        identifier: found
            .manifest
            .map(|manifest| manifest.provenance.identifier),
    })
}

/// Admits what was fetched as the next version of a skill that is still installed, for the same agents.
pub(crate) fn admit_update(
    vault: &Vault,
    name: &SkillName,
    fetched: FetchedSkill,
) -> Result<AdmitReport, AdmitError> {
    let found = installed(vault, name, &vault.trusted()?, &mut Vec::new())?;
    // It may have been removed, or replaced, while its source was asked.
    let Some(manifest) = found.and_then(|found| found.manifest) else {
        return Err(AdmitError::NotInstalled(name.clone()));
    };
    let options = Options {
        name: Some(name.clone()),
        agents: manifest.agents,
        only_update: true,
        ..Options::default()
    };
    add(vault, Source::Fetched(Box::new(fetched)), &options)
}

/// Why a name that is no own skill's cannot be changed.
pub(crate) fn not_installed(vault: &Vault, name: &SkillName) -> Result<AdmitError, AdmitError> {
    Ok(if is_linked(vault, name)? {
        linked_elsewhere(name)
    } else {
        AdmitError::NotInstalled(name.clone())
    })
}
