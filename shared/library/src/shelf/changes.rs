//! Admits the changes that tools submit: each passes the same gate as a change of the command line,
//! and is signed at once.

use std::path::Path;

use vault_format::name::{AgentId, SkillName};
use vault_format::provenance::ProvenanceId;
use vault_format::text::printable;
use vault_shelf::fetch::FetchFault;
use vault_shelf::{Change, ShelfError, Submitted};

use super::PreparedChange;
use crate::admit::add::{AddError, admit_source, check_named};
use crate::admit::propose::{ProposeReport, ProposeSkill, Proposed, propose_skill};
use crate::admit::remove::{RemoveSkills, remove_skills};
use crate::admit::update::{admit_update, not_own_skill_error};
use crate::admit::{
    AdmitError, AdmitReport, Candidate, Neighbours, Options, Source, admit_one, examine_candidate,
};
use crate::disk::source::SourceError;
use crate::installed::installations::read_own_skill;
use crate::vault::Vault;

/// Applies a prepared change. Its source must have been fetched, if it has one.
pub(super) fn apply_change(
    vault: &Vault,
    by: String,
    prepared: PreparedChange,
) -> Result<Submitted, ShelfError> {
    let PreparedChange {
        change,
        source,
        reviewed,
    } = prepared;
    let options = |agents| Options {
        reviewed,
        // Only the owner can review, so a reviewed change is the work of another person.
        by_others: reviewed.is_some(),
        ..addition_options(agents)
    };
    match (change, source) {
        (
            Change::Take {
                files,
                replace,
                check,
                hidden: _,
            },
            _,
        ) => {
            let proposal = ProposeSkill {
                files,
                by,
                replace,
                check,
                reviewed,
            };
            Ok(proposal_result(propose_skill(vault, &proposal)?))
        }
        (
            Change::Folder {
                path,
                identifier,
                skill,
                agents,
            },
            _,
        ) => admit_folder(
            vault,
            (&path, skill.as_ref()),
            &identifier,
            &options(agents),
        ),
        (Change::Fetch { agents, .. }, Some(source)) => {
            admission_result(admit_source(vault, source, &options(agents)))
        }
        (Change::Update(name), Some(source)) => {
            admission_result(admit_update(vault, &name, source, bounded_options()))
        }
        (Change::Fetch { .. } | Change::Update(_), None) => Err(ShelfError::Failed(
            "this source was not fetched before".to_owned(),
        )),
        (Change::Remove(name), _) => remove_own_skill(vault, name),
    }
}

/// Returns the options that apply to every change by a tool: a limit on the gate's work.
pub(super) fn bounded_options() -> Options {
    Options {
        // A client of the MCP server must not keep the processor busy without a limit.
        most_work: Some(vault_gate::SERVICE_WORK),
        ..Options::default()
    }
}

/// Returns the options of a skill that a tool adds, with the agents that it is for.
pub(super) fn addition_options(agents: Vec<AgentId>) -> Options {
    Options {
        agents,
        reject_linked_name: true,
        ..bounded_options()
    }
}

/// Turns the report on submitted text into the answer to the tool.
fn proposal_result(report: ProposeReport) -> Submitted {
    let findings = report.findings;
    match (report.outcome, report.name, report.installed) {
        (Proposed::Accepted, Some(name), Some((version, bundle_hash))) => Submitted::Signed {
            name,
            version,
            bundle_hash,
            findings,
        },
        (Proposed::Duplicate, Some(name), Some((version, bundle_hash))) => Submitted::Unchanged {
            name,
            version,
            bundle_hash,
        },
        (Proposed::WouldAccept, Some(name), _) => Submitted::WouldPass { name, findings },
        _ => Submitted::Refused { findings },
    }
}

fn admit_folder(
    vault: &Vault,
    (path, named): (&str, Option<&SkillName>),
    identifier: &str,
    options: &Options,
) -> Result<Submitted, ShelfError> {
    match examine_folder(vault, (path, named), identifier, options)? {
        Ok(candidate) => admission_result(admit_one(vault, &candidate)),
        Err(error) => admission_result(Err(error)),
    }
}

/// Runs the gate on the skill in a folder. Fails if the caller named another source than `local:`
/// with the folder's name, or than the one that the owner has recorded for the skill.
pub(super) fn examine_folder(
    vault: &Vault,
    (path, named): (&str, Option<&SkillName>),
    identifier: &str,
    options: &Options,
) -> Result<Result<Candidate, AdmitError>, ShelfError> {
    let source = || Source::folder(Path::new(path));
    let mut neighbours = Neighbours::for_vault(vault);
    let mut examined = examine_candidate(source(), options, &mut neighbours);
    if let Ok(candidate) = &examined {
        if let Some(named) = named {
            check_named(candidate, named).map_err(ShelfError::Source)?;
        }
        let folder = candidate.provenance.identifier.as_str();
        if folder != identifier {
            let name = candidate.package.name.clone();
            let recorded = recorded_source(vault, &name)?;
            let Some(recorded) = recorded.filter(|recorded| recorded.as_str() == identifier) else {
                return Err(ShelfError::Identifier(format!(
                    "the identifier of this folder is `{}`, not `{}`, and no installed skill `{name}` is recorded as from there",
                    printable(folder),
                    printable(identifier)
                )));
            };
            // This works like `--provenance` of the command line: the owner recorded this source
            // for the skill.
            let options = Options {
                provenance: Some(recorded),
                ..options.clone()
            };
            // The gate derives the publisher from the source, so run it again with the recorded
            // source.
            examined = examine_candidate(source(), &options, &mut neighbours);
        }
    }
    Ok(examined)
}

/// Returns the source in the signed manifest of an own skill; `None` if there is none.
fn recorded_source(vault: &Vault, name: &SkillName) -> Result<Option<ProvenanceId>, ShelfError> {
    let own_skill = read_own_skill(vault, name, &vault.trusted()?)?;
    let manifest = own_skill.and_then(|found| found.manifest);
    Ok(manifest.map(|manifest| manifest.provenance.identifier))
}

fn remove_own_skill(vault: &Vault, name: SkillName) -> Result<Submitted, ShelfError> {
    let request = RemoveSkills {
        names: vec![name.to_string()],
        ..RemoveSkills::default()
    };
    let report = remove_skills(vault, &request)?;
    // An unknown name does not fail a removal, but the tool must learn that nothing was removed.
    if !report.removed.is_empty() {
        let was_linked = !report.unlinked.is_empty();
        return Ok(Submitted::Removed { name, was_linked });
    }
    Err(not_own_skill_error(vault, &name)?.into())
}

fn admission_result(admitted: Result<AdmitReport, AdmitError>) -> Result<Submitted, ShelfError> {
    Ok(match admitted {
        Ok(report) if report.is_change() => Submitted::Signed {
            name: report.name,
            version: report.version,
            bundle_hash: report.bundle,
            findings: report.findings,
        },
        Ok(report) => Submitted::Unchanged {
            name: report.name,
            version: report.version,
            bundle_hash: report.bundle,
        },
        Err(AdmitError::Blocked { findings }) => Submitted::Refused { findings },
        Err(error) => return Err(error.into()),
    })
}

impl From<AdmitError> for ShelfError {
    fn from(error: AdmitError) -> Self {
        let text = error.to_string();
        match error {
            AdmitError::SourceUnsupported { .. } => Self::SourceUnsupported(text),
            AdmitError::Source(SourceError::TooLarge { .. }) | AdmitError::Unsignable(_) => {
                Self::TooLarge(text)
            }
            AdmitError::Source(SourceError::File(_))
            | AdmitError::Blocked { .. }
            | AdmitError::Derived(_)
            | AdmitError::Twice(_) => Self::Failed(text),
            AdmitError::Source(_)
            | AdmitError::AnyAgent(_)
            | AdmitError::Provenance(_)
            | AdmitError::Signer { .. }
            | AdmitError::OtherSkill { .. } => Self::Source(text),
            AdmitError::NameTaken { .. }
            | AdmitError::OtherPlace { .. }
            | AdmitError::OtherPart { .. }
            | AdmitError::UnknownPlace { .. }
            | AdmitError::Occupied { .. } => Self::NameTaken(text),
            AdmitError::NotReviewed { .. } | AdmitError::BaseChanged(_) => Self::NotReviewed(text),
            AdmitError::NotInstalled(name) => Self::NotFound(name),
            AdmitError::Vault(error) => error.into(),
        }
    }
}

impl From<AddError> for ShelfError {
    fn from(error: AddError) -> Self {
        let text = error.to_string();
        match error {
            AddError::Policy(_)
            | AddError::NoSource { .. }
            | AddError::Fetch(FetchFault::Refused(_)) => Self::SourceUnsupported(text),
            AddError::Fetch(FetchFault::NotFound(_)) => Self::Source(text),
            AddError::Fetch(FetchFault::Unreachable(_)) => Self::Unreachable(text),
            AddError::Admit(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_works_within_a_bound_on_changes_of_tools() {
        assert_eq!(bounded_options().most_work, Some(vault_gate::SERVICE_WORK));
    }
}
