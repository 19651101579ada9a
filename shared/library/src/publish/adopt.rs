//! Adopts skills that another publisher of this vault, or another machine with its key, signed, and
//! rolls this vault back to the content of an earlier release.
//!
//! [`adopt_skills`] installs bundles of the vault's own releases with their existing signatures. A
//! rollback signs the content of an earlier release as a new version, so that no device ever sees a
//! version decrease. The gate checks the skills in both cases.

use std::collections::BTreeSet;
use std::sync::Arc;

use vault_format::catalog::{CatalogError, PolicyEntry, ReleaseRef, SkillEntry};
use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::root::RootState;
use vault_policy::Policy;

use super::change::ReleaseChange;
use super::current::{Current, read_last_accepted};
use super::error::PlanError;
pub use super::fetched::{AdoptError, Exceptions, Fetched, is_stored, parts};
use super::fetched::{examine_source, gate_bundle, open_bundle, to_earlier_source};
use super::merge::{PolicyChange, TakeOver};
use super::plan;
use super::request::PlanRequest;
use super::state;
use crate::admit::remove::{self, RemoveReport, RemoveSkills};
use crate::admit::{AdmitReport, Neighbours, Purpose, admit_all, admit_all_under};
use crate::installed::installations;
use crate::store::{self, Trusted};
use crate::vault::authored::AuthoredFile;
use crate::vault::{Vault, VaultError};

/// Installs skills of an accepted release as own skills, in place of skills of the same names.
/// Either all are installed or none. They keep the signatures of their publishers. The gate checks
/// them as if they were signed here, with the exceptions (accepted findings) of this machine's
/// owner, and one blocked skill stops the whole call.
pub fn adopt_skills(
    vault: &Vault,
    entries: &[SkillEntry],
    exceptions: &Exceptions,
    fetched: Fetched<'_>,
) -> Result<Vec<AdmitReport>, AdoptError> {
    // Hold the lock for the whole call, so that the gate's verdict and the installation see the
    // same library.
    let mut change = vault.begin_change()?;
    // An accepted release lists these bundles, so they stay valid even if their signer has been
    // retired since.
    vault.change_trust(vault.id(), |before| {
        let mut trust = before.ok_or_else(|| VaultError::Untrusted(*vault.id()))?;
        let listed = entries.iter().map(|entry| entry.bundle_hash);
        trust.taken_over.extend(listed);
        Ok::<_, VaultError>(trust)
    })?;
    let trusted = vault.trusted()?;
    let mut neighbours = Neighbours::for_vault(vault);
    let mut candidates = Vec::with_capacity(entries.len());
    for entry in entries {
        let opened = open_bundle(vault, entry, fetched, &trusted)?;
        let purpose = Purpose::Adopt(opened.signed.clone());
        let options = exceptions.options();
        candidates.push(gate_bundle(
            entry,
            opened,
            purpose,
            &options,
            &mut neighbours,
        )?);
    }
    Ok(admit_all_under(vault, &mut change, &candidates)?)
}

/// The changes that [`take_over`] made.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// Skills of other publishers that were installed as own skills.
    pub installed: Vec<AdmitReport>,
    /// Skills that were removed, and names that were not installed.
    pub removed: RemoveReport,
}

/// Takes over the changes of other publishers, after the owner has seen them: installs their skills
/// like [`adopt_skills`], removes the skills that they removed, and replaces the policy. After a
/// kill, the next plan lists what is missing.
pub fn take_over(
    vault: &Vault,
    changes: &TakeOver,
    exceptions: &Exceptions,
    fetched: Fetched<'_>,
) -> Result<TakenOver, AdoptError> {
    // Check the policy object before anything is changed.
    let policy = match changes.policy {
        PolicyChange::Take(entry) => Some(policy_text(&entry, fetched)?),
        PolicyChange::None | PolicyChange::Remove => None,
    };
    let installed = adopt_skills(vault, &changes.skills, exceptions, fetched)?;
    record_removed_signers(vault, changes)?;
    let removed = remove::remove_skills(
        vault,
        &RemoveSkills {
            names: changes.removed.iter().map(ToString::to_string).collect(),
            ..RemoveSkills::default()
        },
    )?;
    let mut change = vault.begin_change()?;
    match (&policy, changes.policy) {
        (Some(text), _) => change.write_authored(&AuthoredFile::Policy, text.as_bytes())?,
        (None, PolicyChange::Remove) => change.remove_authored(&AuthoredFile::Policy)?,
        (None, _) => {}
    }
    drop(change);
    // From now on, only differences from this release are changes that this machine made.
    let reviewed = ReleaseRef {
        release: changes.release,
        payload_sha256: changes.payload_sha256,
    };
    let TakeOver {
        base,
        slug,
        catalog,
        ..
    } = changes;
    plan::record_reviewed(vault, base, slug, catalog, reviewed).map_err(Box::new)?;
    Ok(TakenOver { installed, removed })
}

/// Records the signers of the skills that are about to be removed, as long as their manifests are
/// stored.
fn record_removed_signers(vault: &Vault, changes: &TakeOver) -> Result<(), AdoptError> {
    let (_change, trust) = (vault.begin_change()?, vault.require_trust()?);
    let mut state = state::read_or_new(vault, &changes.base, &changes.slug)?;
    let before = changes.change.before.iter();
    for entry in before.flat_map(|before| &before.skills) {
        if changes.removed.contains(&entry.name) {
            let signer =
                store::read_signer(&vault.store_folder(), &entry.bundle_hash, &trust.roots);
            state.former.insert(entry, signer);
        }
    }
    Ok(state.write_state(vault)?)
}

/// Returns the policy object of a release as the text of a `policy.toml`. Fails unless the object
/// was fetched and has the hash in the release.
pub fn policy_text(entry: &PolicyEntry, fetched: Fetched<'_>) -> Result<String, AdoptError> {
    let object = fetched(&entry.sha256).filter(|bytes| Digest::of(bytes) == entry.sha256);
    let object = object.ok_or(AdoptError::Policy(
        "it was not fetched as the release names it",
    ))?;
    let policy = Policy::from_object(&object)
        .map_err(|_| AdoptError::Policy("this version of vault can't read it"))?;
    Ok(policy.to_toml())
}

/// The changes that a rollback to an earlier release would make.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rollback {
    /// Number of the release to roll back to.
    pub release: u64,
    /// Skills that differ from the release, as the release lists them. They pass the gate again and
    /// are signed as new versions. The caller must fetch the bundles for which [`is_stored`]
    /// returns false.
    pub readmit: Vec<SkillEntry>,
    /// Skills to remove because the release does not contain them.
    pub remove: Vec<SkillName>,
    /// Whether the release contains a policy. A rollback does not restore it.
    pub has_policy: bool,
    /// Whether this machine published or took over exactly this payload before, so that its content
    /// was seen here.
    pub known: bool,
    /// SHA-256 of the release's payload.
    pub payload_sha256: Digest,
    /// The release, compared with the one that this machine published or took over last.
    pub change: ReleaseChange,
    /// Root version (signed list of the vault's keys) under which the release was signed.
    pub(crate) root_version: u64,
}

/// Compares this vault with an earlier release of a namespace, whose exact bytes `request.current`
/// holds. A rollback signs this content again, so the bytes must be the requested release and not
/// just any catalog that this vault's keys signed.
pub fn plan_rollback(
    vault: &Vault,
    request: &PlanRequest<'_>,
    release: u64,
) -> Result<Rollback, AdoptError> {
    let trust = vault.require_trust()?;
    let bytes = request.current.unwrap_or_default();
    let current =
        Current::read_earlier(vault, &trust, request, bytes).map_err(|error| match error {
            PlanError::OtherVault => AdoptError::NotOurs("it belongs to another vault"),
            PlanError::NotOurs(reason) => AdoptError::NotOurs(reason),
            PlanError::Catalog(error) => AdoptError::Catalog(error),
            PlanError::Vault(error) => AdoptError::Vault(error),
            _ => AdoptError::NotOurs("it can't be read"),
        })?;
    let Current {
        catalog, stored, ..
    } = &current;
    if stored.release != release {
        return Err(AdoptError::OtherRelease {
            asked: release,
            shown: stored.release,
        });
    }
    let named = request.last_good.filter(|good| good.release == release);
    let named = named.map(|good| good.payload_sha256);
    let recorded = state::read_state(vault, request.base, request.slug)?
        .and_then(|state| state.payload_of(release));
    match named.or(recorded) {
        Some(known) if known != stored.payload_sha256 => {
            return Err(CatalogError::TwoCatalogs(release).into());
        }
        // A thief can sign any release number. Only a payload hash that this machine recorded, or
        // that a person read on a device, shows which release the owner published.
        None if current.is_void() => {
            return Err(AdoptError::NotOurs(
                "it is signed by a key that is revoked, and this library does not know the release",
            ));
        }
        // A former publisher could have signed this release today, because a signature does not
        // prove its date.
        None if !current.counts() => {
            return Err(Box::new(current.refusal_error(&trust, false)).into());
        }
        _ => {}
    }
    let installed = installations::own_skill_places(vault)?;
    let before = read_last_accepted(vault, &trust, request).map_err(Box::new)?;
    let before = before.map(|counted| counted.last.catalog);
    Ok(Rollback {
        release,
        known: recorded == Some(stored.payload_sha256),
        payload_sha256: stored.payload_sha256,
        change: ReleaseChange {
            signed_under: Some(catalog.root_version),
            ..ReleaseChange::between(&trust, before, (catalog.clone(), &current.signers))
        },
        has_policy: catalog.policy.is_some(),
        root_version: catalog.root_version,
        readmit: catalog
            .skills
            .iter()
            .filter(|entry| {
                !installed
                    .iter()
                    .any(|place| place.name == entry.name && place.bundle == entry.bundle_hash)
            })
            .cloned()
            .collect(),
        remove: installed
            .into_iter()
            .map(|place| place.name)
            .filter(|name| catalog.skill(name).is_none())
            .collect(),
    })
}

/// The changes that a rollback made.
#[derive(Clone, Debug)]
pub struct RollbackReport {
    /// Skills with the earlier content: each as a new version, or unchanged if the content was the
    /// same.
    pub readmitted: Vec<AdmitReport>,
    /// Skills that were removed because the release does not contain them.
    pub removed: RemoveReport,
}

/// Restores the content of an earlier release. The earlier bytes pass the gate again and are signed
/// as the next version; skills that the release does not contain are removed. If the gate blocks
/// one skill, nothing is changed. The exceptions in the manifests apply only if this machine knows
/// the release.
pub fn roll_back(
    vault: &Vault,
    rollback: &Rollback,
    exceptions: &Exceptions,
    fetched: Fetched<'_>,
) -> Result<RollbackReport, AdoptError> {
    // Accept the signatures that were valid when the release was made.
    let chain = vault
        .require_trust()?
        .chain()
        .until_version(rollback.root_version);
    let chain = chain.ok_or(AdoptError::NotOurs(
        "it names keys that this vault does not trust",
    ))?;
    let bundles = rollback.readmit.iter().map(|entry| entry.bundle_hash);
    let trusted = Trusted::for_listed(
        Arc::new(RootState::new(chain, BTreeSet::new())),
        bundles.collect(),
    );
    let (options, own) = (exceptions.options(), vault.own_skills()?);
    let mut neighbours = Neighbours::for_vault(vault);
    let mut candidates = Vec::with_capacity(rollback.readmit.len());
    for entry in &rollback.readmit {
        let opened = open_bundle(vault, entry, fetched, &trusted)?;
        let signer = trusted
            .roots()
            .and_then(|state| opened.signed.signer(state));
        let is_here = own.highest_recorded_version(&entry.name) > 0
            && !own.is_others_bundle(&entry.name, &entry.bundle_hash);
        let is_another = match &signer {
            Some(signer) => vault.is_by_another_publisher(signer)?,
            None => true,
        };
        // Content that this machine never had, or whose release it did not record, counts as
        // written by another person.
        let by_others = !rollback.known || !is_here || is_another;
        let purpose = Purpose::NextVersion { by_others };
        let source = to_earlier_source(entry, opened, purpose, rollback.known);
        candidates.push(examine_source(entry, source, &options, &mut neighbours)?);
    }
    let readmitted = admit_all(vault, &candidates)?;
    let removed = remove::remove_skills(
        vault,
        &RemoveSkills {
            roots: Vec::new(),
            names: rollback.remove.iter().map(ToString::to_string).collect(),
            withdraw: None,
        },
    )?;
    Ok(RollbackReport {
        readmitted,
        removed,
    })
}
