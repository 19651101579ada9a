//! Installs candidates (skills that passed the gate) under the writer lock: decides each version,
//! signs, stores the bundles, switches the links, and records what is installed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use vault_format::hash::Digest;
use vault_format::keys::Signer;
use vault_format::manifest::Manifest;
use vault_format::name::SkillName;
use vault_format::provenance::Kind;
use vault_format::root::VaultId;
use vault_format::time::Timestamp;
use vault_gate::package::Package;

use super::sign::{self, SignedSkill};
use super::{Admission, AdmitError, AdmitReport, Base, Candidate, Purpose, check, origin};
use crate::disk::{self, Batch, Location};
use crate::index::Index;
use crate::installed::installations::read_own_skill;
use crate::installed::root_versions::read_last_catalogs;
use crate::installed::{linked_pins, source_records};
use crate::store::{self, Trusted};
use crate::vault::own_skills::LocalSource;
use crate::vault::{Change, Vault, VaultError};

/// Admits candidates, with a separate result for each: a rejected one does not stop the others. The
/// outer error means that the vault could not be changed at all; then nothing was admitted.
pub fn admit_candidates(
    vault: &Vault,
    candidates: &[Candidate],
) -> Result<Vec<Result<AdmitReport, AdmitError>>, VaultError> {
    // A command whose skills were all rejected leaves the vault untouched, including its lock file.
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let mut change = vault.begin_change()?;
    admit_under(vault, &mut change, candidates)
}

/// Admits one candidate under the writer lock, which it takes itself.
pub fn admit_one(vault: &Vault, candidate: &Candidate) -> Result<AdmitReport, AdmitError> {
    let mut reports = admit_all(vault, std::slice::from_ref(candidate))?;
    Ok(reports.remove(0))
}

/// Admits all candidates or, if one is rejected, none.
pub fn admit_all(vault: &Vault, candidates: &[Candidate]) -> Result<Vec<AdmitReport>, AdmitError> {
    let mut change = vault.begin_change()?;
    admit_all_under(vault, &mut change, candidates)
}

/// Like [`admit_all`], for a caller that holds the writer lock.
pub(crate) fn admit_all_under(
    vault: &Vault,
    change: &mut Change<'_>,
    candidates: &[Candidate],
) -> Result<Vec<AdmitReport>, AdmitError> {
    let admitter = Admitter::new(vault)?;
    let steps = admitter.prepare_each(candidates);
    // Decide about all candidates before anything is stored, because one rejection must leave the
    // vault as it is.
    let steps: Vec<PreparedCandidate<'_>> = steps.collect::<Result<_, _>>()?;
    admitter.store_and_link(change, &steps.iter().collect::<Vec<_>>())?;
    Ok(steps.into_iter().map(|step| step.report).collect())
}

/// Like [`admit_candidates`], for a caller that holds the writer lock.
pub(crate) fn admit_under(
    vault: &Vault,
    change: &mut Change<'_>,
    candidates: &[Candidate],
) -> Result<Vec<Result<AdmitReport, AdmitError>>, VaultError> {
    let admitter = Admitter::new(vault)?;
    let steps: Vec<_> = admitter.prepare_each(candidates).collect();
    let ready: Vec<&PreparedCandidate<'_>> =
        steps.iter().filter_map(|step| step.as_ref().ok()).collect();
    admitter.store_and_link(change, &ready)?;
    Ok(steps
        .into_iter()
        .map(|step| step.map(|step| step.report))
        .collect())
}

/// Predicts the result of admitting a candidate, without the lock and without a signature: the
/// report of an installed skill that would stay as it is, or `None` if the candidate would be
/// signed.
pub fn preview_admission(
    vault: &Vault,
    candidate: &Candidate,
) -> Result<Option<AdmitReport>, AdmitError> {
    Ok(
        match decide_admission(vault, candidate, &vault.trusted()?)? {
            Decision::Keep(report) => Some(*report),
            Decision::Sign { .. } => None,
        },
    )
}

/// The vault, keys and time with which one command admits its candidates, read once under the lock.
struct Admitter<'v> {
    vault: &'v Vault,
    trusted: Trusted,
    key: Box<dyn Signer + Send + Sync>,
    now: Timestamp,
}

/// A candidate with the decision about it, and the new signature if it needs one.
struct PreparedCandidate<'c> {
    candidate: &'c Candidate,
    /// `None` if the installed skill stays as it is.
    signed: Option<Box<SignedSkill>>,
    report: AdmitReport,
}

impl<'v> Admitter<'v> {
    fn new(vault: &'v Vault) -> Result<Self, VaultError> {
        Ok(Self {
            vault,
            trusted: vault.trusted()?,
            key: vault.release_signer()?,
            now: vault.clock().now(),
        })
    }

    /// Decides about each candidate and signs those that are new or changed. If two have the same
    /// name, the second one is rejected.
    fn prepare_each<'c>(
        &self,
        candidates: &'c [Candidate],
    ) -> impl Iterator<Item = Result<PreparedCandidate<'c>, AdmitError>> {
        let mut names = BTreeSet::new();
        candidates.iter().map(move |candidate| {
            let name = &candidate.package.name;
            if names.insert(name) {
                self.prepare_candidate(candidate)
            } else {
                Err(AdmitError::Twice(name.clone()))
            }
        })
    }

    fn prepare_candidate<'c>(
        &self,
        candidate: &'c Candidate,
    ) -> Result<PreparedCandidate<'c>, AdmitError> {
        let (version, from) = match decide_admission(self.vault, candidate, &self.trusted)? {
            Decision::Keep(report) => {
                return Ok(PreparedCandidate {
                    candidate,
                    signed: None,
                    report: *report,
                });
            }
            Decision::Sign { version, from } => (version, from),
        };
        let link = self
            .vault
            .skills_folder()
            .join(candidate.package.name.as_str());
        // The vault creates only links here, so it must not remove this folder.
        if matches!(disk::kind_at(&link)?, Some(disk::Kind::Dir)) {
            return Err(VaultError::Damaged {
                path: link.path(),
                reason: "a folder stands where a link should".to_owned(),
            }
            .into());
        }
        let signed =
            sign::sign_candidate(self.vault.id(), candidate, version, self.now, &*self.key)?;
        Ok(PreparedCandidate {
            candidate,
            report: build_report(candidate, &signed.manifest, signed.encoded.hash, from),
            signed: Some(Box::new(signed)),
        })
    }

    /// Stores the bundles with one flush, then switches the links.
    fn store_and_link(
        &self,
        change: &mut Change<'_>,
        steps: &[&PreparedCandidate<'_>],
    ) -> Result<(), VaultError> {
        let vault = self.vault;
        for step in steps {
            // Write the record of the source before the switch: without its bundle it has no
            // effect.
            if let Some(recorded_source) = &step.candidate.upstream {
                source_records::note_upstream(vault, &step.report.bundle, recorded_source)?;
            }
        }
        let signed: Vec<_> = steps
            .iter()
            .filter_map(|step| Some((&step.candidate.package, step.signed.as_deref()?)))
            .collect();
        // Without a new bundle no link changes, so the generation number stays, and watchers need
        // not read again.
        if signed.is_empty() {
            return self.record_installed(steps);
        }
        let aside = vault.new_scratch()?;
        let mut batch = Batch::default();
        let mut hashes = Vec::new();
        for (package, skill) in &signed {
            let hash = skill.encoded.hash;
            // Stage each bundle once, even if two candidates should have the same one.
            if hashes.contains(&hash) {
                continue;
            }
            let envelope = skill.envelope.as_bytes();
            store::stage_bundle(&mut batch, aside.path(), &hash, envelope, &package.files)?;
            hashes.push(hash);
        }
        // Everything must be durable before the first link makes it visible.
        batch.flush(aside.path())?;
        store::admit_bundles(&vault.store_folder(), aside.path(), &hashes, &self.trusted)?;
        self.allow_lower_versions(&signed)?;
        change.mark_changing()?;
        // From now on the bare names mean these own skills, not linked ones, even if the links are
        // deleted by hand later.
        let names: Vec<_> = signed.iter().map(|(package, _)| &package.name).collect();
        linked_pins::unset_bare_names(vault, &names)?;
        let skills = vault.skills_folder();
        for (package, skill) in &signed {
            disk::switch_link(
                &skills.join(package.name.as_str()),
                &store::link_target(&skill.encoded.hash, 1),
                aside.path(),
            )?;
        }
        // Flush the links before the record is written: the record must not name a version whose
        // link a power failure can undo.
        disk::sync_dir(&skills)?;
        self.record_installed(steps)
    }

    /// Records the installed versions, the folders that they were added from, and whether the owner
    /// holds them (updates without a name leave a held skill out).
    fn record_installed(&self, steps: &[&PreparedCandidate<'_>]) -> Result<(), VaultError> {
        self.vault.change_own_skills(|own_skills| {
            for PreparedCandidate {
                candidate,
                signed,
                report,
            } in steps
            {
                let (name, options) = (&report.name, &candidate.options);
                let was_by_others = own_skills.is_by_others(name);
                if let Some(skill) = signed {
                    own_skills.note_installed(name, skill.manifest.version, skill.encoded.hash);
                }
                match &candidate.earlier {
                    Some((_, Purpose::Adopt(_))) => own_skills.note_author(name, true),
                    Some((_, Purpose::NextVersion { by_others })) if signed.is_some() => {
                        own_skills.note_author(name, *by_others);
                    }
                    // Signing the same files again does not change their author.
                    Some(_) => own_skills.note_author(name, was_by_others),
                    None => own_skills.note_author(name, options.by_others),
                }
                // Earlier content that is admitted again leaves a hold as it is; new content ends it.
                if signed.is_some() && candidate.earlier.is_none() {
                    own_skills.set_held(name, false);
                }
                if options.hold {
                    own_skills.set_held(name, true);
                }
                let is_recorded = |local: &LocalSource| local.identifier == report.provenance;
                // Another folder with the same files takes the place of the recorded one only if
                // the owner asked for that.
                if let Some(local) = candidate.local_source()
                    && local.identifier == report.provenance
                    && (signed.is_some()
                        || options.replace
                        || !own_skills.local_source(name).is_some_and(is_recorded))
                {
                    own_skills.note_local(name, local);
                }
            }
        })
    }

    /// Records that a lower version than the highest recorded one may be installed, before links
    /// are switched to such versions: adopted skills keep the version that their publisher signed.
    /// If this process is killed in between, the old and the new version are both accepted.
    fn allow_lower_versions(&self, signed: &[(&Package, &SignedSkill)]) -> Result<(), VaultError> {
        let lower: Vec<_> = signed
            .iter()
            .filter(|(package, skill)| {
                let lowest = self.trusted.lowest_accepted_version(&package.name);
                lowest.is_some_and(|lowest| skill.manifest.version < lowest)
            })
            .collect();
        if lower.is_empty() {
            return Ok(());
        }
        self.vault.change_own_skills(|own_skills| {
            for (package, _) in lower {
                own_skills.begin_removal(&package.name);
            }
        })
    }
}

/// Whether a candidate needs a signature.
enum Decision {
    /// Keep the installed skill as it is.
    Keep(Box<AdmitReport>),
    /// Sign the candidate as this version, replacing version `from`.
    Sign { version: u64, from: Option<u64> },
}

/// Decides whether a candidate is signed, and as which version. Fails if another skill has the name
/// and the options do not allow to replace it.
fn decide_admission(
    vault: &Vault,
    candidate: &Candidate,
    trusted: &Trusted,
) -> Result<Decision, AdmitError> {
    let name = &candidate.package.name;
    let before = read_own_skill(vault, name, trusted)?;
    let installed = Base::from(before.as_ref().map(|before| before.bundle));
    if candidate.options.base.is_some_and(|base| base != installed) {
        return Err(AdmitError::BaseChanged(name.clone()));
    }
    match &before {
        None if candidate.options.require_installed => {
            return Err(AdmitError::NotInstalled(name.clone()));
        }
        None if candidate.options.reject_linked_name && check::is_in_linked_vault(vault, name)? => {
            return Err(linked_skill_error(name));
        }
        None => {}
        Some(before) => {
            if let Some(manifest) = &before.manifest {
                // Check the pin before the comparison of files: a source that lacks its pinned
                // signature must not pass as unchanged.
                origin::check_pin(vault, candidate, &before.bundle)?;
                origin::check_own_name(vault, candidate, manifest, &before.bundle)?;
                origin::check_folder(vault, candidate, manifest, &before.bundle)?;
                if before.intact && is_unchanged(vault.id(), candidate, manifest) {
                    let report = unchanged_report(candidate, manifest, before.bundle);
                    return Ok(Decision::Keep(Box::new(report)));
                }
            }
            check_replace(candidate, before.manifest.as_ref())?;
            check_place(candidate, before.manifest.as_ref(), trusted)?;
        }
    }
    // If the manifest can't be read, the last releases may still list the skill's version.
    let mut released = None;
    if before
        .as_ref()
        .is_some_and(|before| before.manifest.is_none())
    {
        let catalogs = read_last_catalogs(vault)?;
        let entries = catalogs.iter().filter_map(|catalog| catalog.skill(name));
        released = entries.map(|entry| entry.version).max();
    }
    let from = before.map(|before| match before.manifest {
        Some(manifest) => manifest.version,
        // The manifest is missing or forged. The index and the last releases may still know the
        // version, which keeps version numbers from decreasing.
        None => {
            let rows = Index::open(vault).load_rows();
            let indexed_version = rows.get(&before.bundle).map(|stored| stored.row.version);
            indexed_version
                .into_iter()
                .chain(released)
                .max()
                .unwrap_or(0)
        }
    });
    let version = match &candidate.earlier {
        Some((manifest, Purpose::Adopt(_))) => manifest.version,
        // On a recovered machine, the earlier version may be higher than the installed one.
        Some((manifest, Purpose::NextVersion { .. })) => {
            let before = from.unwrap_or(0).max(manifest.version);
            before.max(trusted.highest_recorded_version(name)) + 1
        }
        _ => {
            from.unwrap_or(0)
                .max(trusted.highest_recorded_version(name))
                + 1
        }
    };
    Ok(Decision::Sign { version, from })
}

/// Returns whether the installed skill already is what the candidate would become. Only the times,
/// the version and the rule set of the gate may differ then.
pub(super) fn is_unchanged(vault_id: &VaultId, candidate: &Candidate, before: &Manifest) -> bool {
    // Adopting changes the signature, and signing again changes the version, even if all files are
    // the same.
    if let Some((_, Purpose::Adopt(_) | Purpose::SignAgain)) = &candidate.earlier {
        return false;
    }
    if candidate.options.skip_if_same_files
        && has_files(before, &candidate.package, !candidate.is_text)
    {
        return true;
    }
    let now = sign::build_manifest(vault_id, candidate, before.signed_at);
    // The repository's revision may change although the files of the skill do not. Then only the
    // record of the source is updated, and nothing is signed.
    let same_revision =
        candidate.upstream.is_some() || before.provenance.revision == now.provenance.revision;
    // Another version of the rules may find less. Only the owner changes exceptions.
    let changes_exceptions =
        candidate.options.reason.is_some() || !candidate.options.end_exceptions.is_empty();
    same_revision
        && (!changes_exceptions || before.gate.waivers == now.gate.waivers)
        && before.files == now.files
        && before.actions == now.actions
        && before.agents == now.agents
        && before.frontmatter_name == now.frontmatter_name
        && before.provenance.identifier == now.provenance.identifier
        && before.rendered_from == now.rendered_from
}

/// Returns whether a signed skill has exactly these files. Text submissions have no file modes, so
/// their modes are not compared.
fn has_files(manifest: &Manifest, package: &Package, modes_count: bool) -> bool {
    // Both lists are sorted by path, so they can be compared pairwise.
    manifest.files.len() == package.files.len()
        && manifest
            .files
            .iter()
            .zip(&package.files)
            .all(|(signed, file)| {
                signed.path == file.path
                    && (signed.mode == file.mode || !modes_count)
                    && signed.size == file.bytes.len() as u64
                    && signed.sha256 == Digest::of(&file.bytes)
            })
}

/// Fails if the installed skill came from another source, even from another local folder, unless
/// the owner asked to replace it.
fn check_replace(candidate: &Candidate, before: Option<&Manifest>) -> Result<(), AdmitError> {
    let name = &candidate.package.name;
    if candidate.is_text {
        return check_replace_by_text(candidate, before);
    }
    let given = &candidate.provenance.identifier;
    match before.map(|before| &before.provenance.identifier) {
        Some(recorded) if !candidate.options.replace && given != recorded => {
            Err(AdmitError::NameTaken {
                name: name.clone(),
                recorded: recorded.clone(),
                given: given.clone(),
            })
        }
        _ => Ok(()),
    }
}

/// Fails if the installed skill was added from another folder or archive of this machine, or if its
/// origin is not recorded, unless the owner asked to replace it. The source identifiers of two
/// folders may be the same, so the paths are compared.
fn check_place(
    candidate: &Candidate,
    before: Option<&Manifest>,
    trusted: &Trusted,
) -> Result<(), AdmitError> {
    let name = candidate.package.name.clone();
    let Some(given) = candidate.local_source() else {
        return Ok(());
    };
    // Adding the files that were signed repairs a damaged skill.
    let same = before.is_some_and(|before| has_files(before, &candidate.package, true));
    if candidate.options.replace || same {
        return Ok(());
    }
    match trusted.local_source(&name) {
        Some(recorded) if recorded.is_same_place(&given) => Ok(()),
        Some(recorded) if recorded.identifier == given.identifier => Err(AdmitError::OtherPlace {
            name,
            recorded: PathBuf::from(&recorded.path),
            given: PathBuf::from(given.path),
        }),
        // A damaged skill, or an older version that came back after an update or a removal, is
        // repaired by adding the skill.
        _ if before
            .is_none_or(|before| trusted.lowest_accepted_version(&name) > Some(before.version)) =>
        {
            Ok(())
        }
        // The recorded path belongs to an earlier source, or no path is recorded.
        _ => Err(AdmitError::UnknownPlace {
            name,
            given: PathBuf::from(given.path),
        }),
    }
}

/// Like [`check_replace`], for submitted text. Text may replace text and skills from local folders,
/// if asked to, but never a fetched skill.
fn check_replace_by_text(
    candidate: &Candidate,
    before: Option<&Manifest>,
) -> Result<(), AdmitError> {
    let replace = candidate.options.replace;
    let reason = match before {
        None if replace => return Ok(()),
        None => "it is damaged".to_owned(),
        Some(before) => match before.provenance.kind() {
            Kind::Local | Kind::Inline if replace => return Ok(()),
            Kind::Local | Kind::Inline if has_files(before, &candidate.package, false) => {
                return Ok(());
            }
            Kind::Local | Kind::Inline => "it has other content".to_owned(),
            _ => format!("it was fetched from {}", before.provenance.identifier),
        },
    };
    Err(occupied_error(&candidate.package.name, &reason))
}

/// Returns the error for a name that only a skill of a linked vault has: this vault can't change
/// that skill.
pub(crate) fn linked_skill_error(name: &SkillName) -> AdmitError {
    occupied_error(name, "it came with a linked vault and is changed there")
}

fn occupied_error(name: &SkillName, reason: &str) -> AdmitError {
    AdmitError::Occupied {
        name: name.clone(),
        reason: reason.to_owned(),
    }
}

/// Returns the report on a candidate whose content is installed already.
pub(super) fn unchanged_report(
    candidate: &Candidate,
    manifest: &Manifest,
    bundle: Digest,
) -> AdmitReport {
    AdmitReport {
        admission: Admission::Unchanged,
        ..build_report(candidate, manifest, bundle, None)
    }
}

/// Returns the report on a candidate that was signed, in place of the version `before`.
pub(super) fn build_report(
    candidate: &Candidate,
    manifest: &Manifest,
    bundle: Digest,
    before: Option<u64>,
) -> AdmitReport {
    AdmitReport {
        name: manifest.name.clone(),
        version: manifest.version,
        bundle,
        admission: before.map_or(Admission::Added, |_| Admission::Updated),
        before,
        outcome: candidate.outcome,
        findings: candidate.package.findings.clone(),
        provenance: manifest.provenance.identifier.clone(),
        files: manifest.files.len(),
        bytes: manifest.files.iter().map(|file| file.size).sum(),
        secrets: candidate.secrets.clone(),
    }
}
