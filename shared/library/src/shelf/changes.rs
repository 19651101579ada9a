//! Changes that tools submit to the library. Each one passes admission and returns when it is
//! signed.

use std::path::Path;

use vault_skill::finding::printable;
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};
use vault_store::fetch::{FetchFault, FetchedSkill, Upstream};
use vault_store::shelf::{Change, ShelfError, Submitted};

use super::{Held, failed};
use crate::admit::add::{AddError, add};
use crate::admit::propose::{ProposeSkill, Proposed, propose_skill};
use crate::admit::remove::{RemoveSkills, remove_skills};
use crate::admit::update::{admit_update, not_installed};
use crate::admit::{AdmitError, AdmitReport, Neighbours, Options, Source, admit_one, examine};
use crate::disk::source::SourceError;
use crate::installed::upstream;
use crate::vault::Vault;

impl Held {
    /// Applies a change that needs no network.
    pub(super) fn submit(&self, by: &str, change: Change) -> Result<Submitted, ShelfError> {
        match change {
            Change::Take {
                files,
                replace,
                check,
            } => self.admit_text(&ProposeSkill {
                files,
                by: by.to_owned(),
                replace,
                check,
            }),
            Change::Folder {
                path,
                identifier,
                agents,
            } => submitted(self.admit_folder(&path, &identifier, agents)?),
            Change::Fetch { .. } | Change::Update(_) => Err(ShelfError::Failed(
                "a source was not fetched before".to_owned(),
            )),
            Change::Remove(name) => self.remove(name),
        }
    }

    fn admit_text(&self, proposal: &ProposeSkill) -> Result<Submitted, ShelfError> {
        let report = propose_skill(&self.vault, proposal)?;
        let findings = report.findings;
        Ok(match (report.outcome, report.name, report.installed) {
            (Proposed::Accepted, Some(name), Some((version, bundle_hash))) => Submitted::Signed {
                name,
                version,
                bundle_hash,
                findings,
            },
            (Proposed::Duplicate, Some(name), Some((version, bundle_hash))) => {
                Submitted::Unchanged {
                    name,
                    version,
                    bundle_hash,
                }
            }
            (Proposed::WouldAccept, Some(name), _) => Submitted::WouldPass { name, findings },
            _ => Submitted::Refused { findings },
        })
    }

    fn admit_folder(
        &self,
        path: &str,
        identifier: &str,
        agents: Vec<AgentId>,
    ) -> Result<Result<AdmitReport, AdmitError>, ShelfError> {
        let options = Options {
            agents,
            reject_linked_name: true,
            ..Options::default()
        };
        let source = Source::folder(Path::new(path));
        let candidate = match examine(source, &options, &mut Neighbours::of(&self.vault)) {
            Ok(candidate) => candidate,
            Err(error) => return Ok(Err(error)),
        };
        let recorded = candidate.provenance.identifier.as_str();
        if recorded != identifier {
            return Err(ShelfError::Identifier(format!(
                "the identifier of this folder is `{}`, not `{}`",
                printable(recorded),
                printable(identifier)
            )));
        }
        Ok(admit_one(&self.vault, &candidate))
    }

    /// Admits a fetched skill as a new skill, or as the next version of `update`.
    pub(super) fn admit_fetched(
        &self,
        skill: FetchedSkill,
        agents: Vec<AgentId>,
        update: Option<&SkillName>,
    ) -> Result<Submitted, ShelfError> {
        let vault = &self.vault;
        submitted(match update {
            Some(name) => admit_update(vault, name, skill),
            None => {
                let options = Options {
                    agents,
                    reject_linked_name: true,
                    ..Options::default()
                };
                add(vault, Source::Fetched(Box::new(skill)), &options)
            }
        })
    }

    fn remove(&self, name: SkillName) -> Result<Submitted, ShelfError> {
        let request = RemoveSkills {
            roots: Vec::new(),
            names: vec![name.to_string()],
            withdraw: None,
        };
        let report = remove_skills(&self.vault, &request).map_err(failed)?;
        if !report.removed.is_empty() {
            return Ok(Submitted::Removed(name));
        }
        Err(not_installed(&self.vault, &name)?.into())
    }
}

/// The skills among these that have a recorded upstream, with their index.
pub(super) fn upstreams(
    vault: &Vault,
    skills: Vec<(usize, Digest, SkillName)>,
) -> Vec<(usize, Upstream)> {
    skills
        .into_iter()
        .filter_map(|(at, bundle, name)| {
            let known = upstream::of_bundle(vault, &bundle).ok().flatten();
            let found = known.or_else(|| upstream::of_skill(vault, &name).ok().flatten());
            Some((at, found?))
        })
        .collect()
}

fn submitted(admitted: Result<AdmitReport, AdmitError>) -> Result<Submitted, ShelfError> {
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
            | AdmitError::Twice(_) => Self::Failed(text),
            AdmitError::Source(_) | AdmitError::Provenance(_) | AdmitError::Signer { .. } => {
                Self::Source(text)
            }
            AdmitError::NameTaken { .. } | AdmitError::Occupied { .. } => Self::NameTaken(text),
            AdmitError::NotInstalled(name) => Self::NotFound(name),
            AdmitError::Vault(error) => failed(error),
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
            AddError::Fetch(FetchFault::NotFound(_) | FetchFault::Unreachable(_)) => {
                Self::Source(text)
            }
            AddError::Admit(error) => error.into(),
        }
    }
}
