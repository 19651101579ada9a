//! Changes that tools hand to the library's shelf: gated and signed at once.

use vault_skill::finding::printable;
use vault_skill::gate::{self, GateOptions, RawFile};
use vault_skill::hash::Digest;
use vault_skill::manifest::Manifest;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::package::Package;
use vault_skill::provenance::{Kind, Provenance, ProvenanceId};
use vault_store::fetch::{FetchedSkill, Upstream};
use vault_store::shelf::{Change, ShelfError, Submitted};

use super::{Held, failed};
use crate::add::{self, AddError, AddFetched, AddReport, AddSkill, Admission, Candidate};
use crate::disk::source::SourceError;
use crate::installed::place;
use crate::known::Known;
use crate::links;
use crate::remove::{RemoveSkills, remove_under};
use crate::upstream;

impl Held {
    pub(super) fn submit(&self, by: &str, change: Change) -> Result<Submitted, ShelfError> {
        match change {
            Change::Take {
                files,
                replace,
                check,
            } => self.take(by, files, replace, check),
            Change::Folder {
                path,
                identifier,
                agents,
            } => self.folder(path, &identifier, agents),
            Change::Fetch { .. } | Change::Update(_) => Err(ShelfError::Failed(
                "a source was not fetched before".to_owned(),
            )),
            Change::Remove(name) => self.remove(name),
        }
    }

    pub(super) fn take(
        &self,
        by: &str,
        files: Vec<RawFile>,
        replace: bool,
        check: bool,
    ) -> Result<Submitted, ShelfError> {
        let verdict = gate::check(files, &GateOptions::default());
        let Some(package) = verdict.package else {
            return Ok(Submitted::Refused {
                findings: verdict.findings,
            });
        };
        let identifier: ProvenanceId = format!("inline:{by}").parse().map_err(|bad| {
            ShelfError::Failed(format!("who hands it in has no usable id: {bad}"))
        })?;
        if check {
            let standing = self.standing(&package, replace)?;
            return Ok(standing.unwrap_or(Submitted::WouldPass {
                name: package.name,
                findings: verdict.findings,
            }));
        }
        // Under the lock from here on: of two who hand in the same name one is first.
        let mut change = self.vault.change().map_err(failed)?;
        if let Some(unchanged) = self.standing(&package, replace)? {
            return Ok(unchanged);
        }
        let candidate = Candidate {
            package,
            outcome: verdict.outcome,
            strict: true,
            agents: Vec::new(),
            provenance: Provenance {
                identifier,
                revision: None,
                fetched_at: self.vault.clock().now(),
            },
            // Whether it may take a place was decided above.
            replace: true,
            upstream: None,
        };
        let reports = add::admit_under(&self.vault, &mut change, &[candidate]);
        reports.map_err(refused).and_then(only)
    }

    /// Whether a skill may be taken in: `None` where it may, an answer where the same files are there already.
    fn standing(&self, package: &Package, replace: bool) -> Result<Option<Submitted>, ShelfError> {
        let name = &package.name;
        let trusted = self.vault.trusted().map_err(failed)?;
        let installed =
            place::installed(&self.vault, name, &trusted, &mut Vec::new()).map_err(failed)?;
        let Some(installed) = installed else {
            return if self.is_linked(name)? {
                Err(came_with_a_link(name))
            } else {
                Ok(None)
            };
        };
        let Some(manifest) = installed.manifest else {
            // What stands there is nobody's: only who means to replace it may.
            return if replace {
                Ok(None)
            } else {
                Err(taken(name, "it is damaged"))
            };
        };
        let equal = holds(&manifest, package);
        if equal && installed.intact {
            return Ok(Some(Submitted::Unchanged {
                name: name.clone(),
                version: manifest.version,
                bundle_hash: installed.bundle,
            }));
        }
        let source = &manifest.provenance.identifier;
        match source.kind() {
            Kind::Local | Kind::Inline if replace || equal => Ok(None),
            Kind::Local | Kind::Inline => Err(taken(name, "it has other content")),
            _ => Err(taken(name, &format!("it was fetched from {source}"))),
        }
    }

    fn is_linked(&self, name: &SkillName) -> Result<bool, ShelfError> {
        for link in links::all(&self.vault).map_err(failed)? {
            let groups = link.groups(&mut Vec::new()).map_err(failed)?;
            if groups
                .iter()
                .any(|group| group.places.iter().any(|place| place.name == *name))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn folder(
        &self,
        path: String,
        identifier: &str,
        agents: Vec<AgentId>,
    ) -> Result<Submitted, ShelfError> {
        let request = AddSkill {
            agents,
            ..AddSkill::from_path(path)
        };
        let candidate = match add::read(&self.vault, &request) {
            Ok(candidate) => candidate,
            Err(AddError::Blocked { findings }) => return Ok(Submitted::Refused { findings }),
            Err(error) => return Err(refused(error)),
        };
        let recorded = candidate.provenance.identifier.as_str();
        if recorded != identifier {
            return Err(ShelfError::Identifier(format!(
                "the identifier of this folder is `{}`, not `{}`",
                printable(recorded),
                printable(identifier)
            )));
        }
        let mut change = self.vault.change().map_err(failed)?;
        let name = &candidate.package.name;
        let trusted = self.vault.trusted().map_err(failed)?;
        let own = place::installed(&self.vault, name, &trusted, &mut Vec::new()).map_err(failed)?;
        if own.is_none() && self.is_linked(name)? {
            return Err(came_with_a_link(name));
        }
        let reports = add::admit_under(&self.vault, &mut change, &[candidate]);
        reports.map_err(refused).and_then(only)
    }

    /// Where a skill that is to be updated was fetched from.
    pub(super) fn upstream_of(&self, name: &SkillName) -> Result<Upstream, ShelfError> {
        let trusted = self.vault.trusted().map_err(failed)?;
        let installed =
            place::installed(&self.vault, name, &trusted, &mut Vec::new()).map_err(failed)?;
        let Some(installed) = installed else {
            return Err(self.not_here(name)?);
        };
        if let Some(found) = upstream::of_skill(&self.vault, name).map_err(failed)? {
            return Ok(found);
        }
        let source = installed
            .manifest
            .map(|manifest| manifest.provenance.identifier);
        Err(ShelfError::SourceUnsupported(match source {
            Some(source) if source.kind() == Kind::Inline => {
                format!("`{name}` was handed in as text; publish the new text instead")
            }
            Some(source) => format!("`{name}` is from {source}; add it from there again"),
            None => format!("the source of `{name}` is not known"),
        }))
    }

    /// The skills among these whose source can be asked.
    pub(super) fn upstreams(
        &self,
        skills: Vec<(usize, Digest, SkillName)>,
    ) -> Vec<(usize, Upstream)> {
        skills
            .into_iter()
            .filter_map(|(at, bundle, name)| {
                let known = upstream::of_bundle(&self.vault, &bundle).ok().flatten();
                let found = known.or_else(|| upstream::of_skill(&self.vault, &name).ok().flatten());
                Some((at, found?))
            })
            .collect()
    }

    /// Gates and signs what was fetched.
    pub(super) fn fetched(
        &self,
        skill: FetchedSkill,
        agents: Vec<AgentId>,
        update: Option<&SkillName>,
    ) -> Result<Submitted, ShelfError> {
        let mut change = self.vault.change().map_err(failed)?;
        let mut request = AddFetched {
            name: update.cloned(),
            agents,
            strict: true,
            ..AddFetched::default()
        };
        if let Some(name) = update {
            // It may have been removed, or replaced, while its source was asked.
            let trusted = self.vault.trusted().map_err(failed)?;
            let installed =
                place::installed(&self.vault, name, &trusted, &mut Vec::new()).map_err(failed)?;
            let manifest = installed.and_then(|installed| installed.manifest);
            let manifest = manifest.ok_or_else(|| ShelfError::NotFound(name.clone()))?;
            request.agents = manifest.agents;
        }
        let now = self.vault.clock().now();
        let candidate = match add::gate_fetched(skill, &request, &mut Known::of(&self.vault), now) {
            Ok(candidate) => candidate,
            Err(AddError::Blocked { findings }) => return Ok(Submitted::Refused { findings }),
            Err(error) => return Err(refused(error)),
        };
        let name = &candidate.package.name;
        let trusted = self.vault.trusted().map_err(failed)?;
        let own = place::installed(&self.vault, name, &trusted, &mut Vec::new()).map_err(failed)?;
        if own.is_none() && self.is_linked(name)? {
            return Err(came_with_a_link(name));
        }
        let reports = add::admit_under(&self.vault, &mut change, &[candidate]);
        reports.map_err(refused).and_then(only)
    }

    fn remove(&self, name: SkillName) -> Result<Submitted, ShelfError> {
        let mut change = self.vault.change().map_err(failed)?;
        let request = RemoveSkills {
            roots: Vec::new(),
            names: vec![name.to_string()],
            withdraw: None,
        };
        let report = remove_under(&self.vault, &mut change, &request).map_err(failed)?;
        if !report.removed.is_empty() {
            return Ok(Submitted::Removed(name));
        }
        Err(self.not_here(&name)?)
    }

    /// Why a name that is no own skill's cannot be changed.
    fn not_here(&self, name: &SkillName) -> Result<ShelfError, ShelfError> {
        Ok(if self.is_linked(name)? {
            came_with_a_link(name)
        } else {
            ShelfError::NotFound(name.clone())
        })
    }
}

/// Whether a signed skill has exactly these files. Text that is handed in has no modes.
fn holds(manifest: &Manifest, package: &Package) -> bool {
    manifest.files.len() == package.files.len()
        && manifest
            .files
            .iter()
            .zip(&package.files)
            .all(|(signed, file)| {
                signed.path == file.path
                    && signed.size == file.bytes.len() as u64
                    && signed.sha256 == Digest::of(&file.bytes)
            })
}

fn only(mut reports: Vec<AddReport>) -> Result<Submitted, ShelfError> {
    let report = reports
        .pop()
        .ok_or_else(|| ShelfError::Failed("no report".to_owned()))?;
    Ok(match report.admission {
        Admission::Unchanged => Submitted::Unchanged {
            name: report.name,
            version: report.version,
            bundle_hash: report.bundle,
        },
        Admission::Added | Admission::Updated { .. } => Submitted::Signed {
            name: report.name,
            version: report.version,
            bundle_hash: report.bundle,
            findings: report.findings,
        },
    })
}

fn taken(name: &SkillName, why: &str) -> ShelfError {
    ShelfError::NameTaken(format!("there is a skill named `{name}`: {why}"))
}

fn came_with_a_link(name: &SkillName) -> ShelfError {
    taken(name, "it came with a linked vault and is changed there")
}

fn refused(error: AddError) -> ShelfError {
    match error {
        AddError::SourceUnsupported { .. } => ShelfError::SourceUnsupported(error.to_string()),
        AddError::Source(SourceError::TooLarge { .. }) | AddError::Unsignable(_) => {
            ShelfError::TooLarge(error.to_string())
        }
        AddError::Source(SourceError::File(error)) => ShelfError::Failed(error.to_string()),
        AddError::Source(error) => ShelfError::Source(error.to_string()),
        AddError::Provenance(error) => ShelfError::Source(error.to_string()),
        AddError::NameTaken { .. } => ShelfError::NameTaken(error.to_string()),
        AddError::Vault(error) => failed(error),
        AddError::Blocked { .. } | AddError::Twice(_) => ShelfError::Failed(error.to_string()),
        AddError::Signer { .. } => ShelfError::Source(error.to_string()),
    }
}
