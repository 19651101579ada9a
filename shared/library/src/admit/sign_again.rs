//! Signs own skills again, as new versions with the same content: after the key that signed them
//! was revoked, or when a version must increase.
//!
//! Each skill passes the gate first, with the strictness and the exceptions that its manifest
//! records. If the current gate rejects a skill, it is not signed; the others continue, and the
//! report names it. Its link and bundle stay, so that the owner can read the files, but
//! verification with the current keys rejects it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vault_format::hash::Digest;
use vault_format::name::SkillName;
use vault_format::root::RootState;

use super::{
    AdmitError, Earlier, Neighbours, Options, Purpose, Source, admit_under, examine_candidate,
};
use crate::installed::installations::{self, Installation};
use crate::installed::source_records;
use crate::store::{self, Examined, Trusted};
use crate::vault::own_skills::OwnSkills;
use crate::vault::trust::VaultTrust;
use crate::vault::{Change, Vault, VaultError};

/// Number of skills whose files are in memory at once, and which are flushed to the disk together.
const BATCH: usize = 256;

/// The outcome for each skill that was to be signed again.
#[derive(Debug, Default)]
pub struct Resigned {
    /// Skills that are installed as a new version, signed with the current key.
    pub signed: Vec<SkillName>,
    /// Skills whose files or manifest differ from what was signed. They are not signed again.
    pub damaged: Vec<SkillName>,
    /// Skills that the gate blocked or that could not be signed, with the reason.
    pub refused: Vec<(SkillName, AdmitError)>,
}

/// Signs own skills as their next version with the same content. `trusted` decides which signatures
/// on the present content are accepted, usually those of a revoked key too. `wanted` selects the
/// skills.
pub(crate) fn sign_again(
    vault: &Vault,
    change: &mut Change<'_>,
    trusted: &Trusted,
    wanted: impl Fn(&Installation) -> bool,
) -> Result<Resigned, VaultError> {
    let store = vault.store_folder();
    let mut places = installations::own_skill_places(vault)?;
    places.retain(wanted);
    let mut resigned = Resigned::default();
    for places in places.chunks(BATCH) {
        // Make the comparison data anew for each batch, because the skills of the batches before it
        // are installed by now.
        let mut neighbours = Neighbours::for_vault(vault);
        let mut candidates = Vec::new();
        let mut reached = Vec::new();
        for place in places {
            let (bundle, name) = (&place.bundle, Some(&place.name));
            let Ok(examined) = store::examine_stored(&store, bundle, name, trusted) else {
                resigned.damaged.push(place.name.clone());
                continue;
            };
            reached.push((&place.name, examined.manifest.version));
            // Ignore a source record that can't be read: the skill itself is intact.
            let upstream = source_records::of_bundle(vault, bundle).unwrap_or_default();
            let source = to_earlier_source(
                place.name.clone(),
                examined,
                upstream,
                Purpose::SignAgain,
                true,
            );
            match examine_candidate(source, &Options::as_recorded(), &mut neighbours) {
                Ok(candidate) => candidates.push(candidate),
                // A fault of the vault stops everything, but a rejected skill stops only itself.
                Err(AdmitError::Vault(failed)) => return Err(failed),
                Err(refused) => {
                    tracing::warn!(skill = %place.name, reason = %refused, "not signed again");
                    resigned.refused.push((place.name.clone(), refused));
                }
            }
        }
        // If the present signature is no longer accepted, only this record keeps the next version
        // above the current one.
        vault.change_own_skills(|own_skills| {
            for (name, version) in reached {
                own_skills.note_reached(name, version);
            }
        })?;
        if candidates.is_empty() {
            continue;
        }
        // Read this now: installing a skill clears its list of bundles with the same files.
        let own_skills = vault.own_skills()?;
        let reports = admit_under(vault, change, &candidates)?;
        let mut signed = Vec::new();
        for (candidate, report) in candidates.into_iter().zip(reports) {
            match report {
                Ok(report) => signed.push(report.name),
                Err(AdmitError::Vault(failed)) => return Err(failed),
                Err(refused) => resigned.refused.push((candidate.package.name, refused)),
            }
        }
        note_signed_again(vault, &own_skills, places, &signed)?;
        resigned.signed.extend(signed);
    }
    Ok(resigned)
}

/// Records under each new bundle the bundles that it has the same files as. If another publisher of
/// this vault signs the same files again as well, a merge of both vaults finds no change on this
/// side.
fn note_signed_again(
    vault: &Vault,
    before: &OwnSkills,
    places: &[Installation],
    signed: &[SkillName],
) -> Result<(), VaultError> {
    let signed: BTreeSet<_> = signed.iter().collect();
    vault.change_own_skills(|own_skills| {
        for place in places.iter().filter(|place| signed.contains(&place.name)) {
            let mut bundles = before.signed_again(&place.name, &place.bundle).to_vec();
            bundles.push(place.bundle);
            own_skills.note_signed_again(&place.name, bundles);
        }
    })
}

/// Lists the own skills whose signing key was revoked, so that they are not accepted until they are
/// signed again.
pub(crate) fn list_unsigned(vault: &Vault) -> Result<Vec<SkillName>, VaultError> {
    let Some(trust) = vault.trust()? else {
        return Ok(Vec::new());
    };
    if trust.sign_again.is_empty() {
        return Ok(Vec::new());
    }
    let mut places = installations::own_skill_places(vault)?;
    places.retain(|place| trust.sign_again.contains(&place.bundle));
    Ok(places.into_iter().map(|place| place.name).collect())
}

/// Signs again the skills whose key was revoked: the trust folder lists their bundles
/// (`sign_again`). Empties the list; a skill that could not be signed must be added again.
pub(crate) fn sign_waiting(vault: &Vault, change: &mut Change<'_>) -> Result<Resigned, VaultError> {
    let mut resigned = Resigned::default();
    let Some(trust) = vault.trust()? else {
        return Ok(resigned);
    };
    if trust.sign_again.is_empty() && trust.made_from.is_none() {
        return Ok(resigned);
    }
    for trusted in trust_before_revocations(vault, &trust)? {
        let places = |place: &Installation| trusted.lists_bundle(&place.bundle);
        let signed = sign_again(vault, change, &trusted, places)?;
        resigned.signed.extend(signed.signed);
        resigned.damaged.extend(signed.damaged);
        resigned.refused.extend(signed.refused);
    }
    // Remove the record of the old vault before `made_from` is cleared: once nothing names that
    // vault, a copy of its keys would stay forever.
    if let Some(old) = trust.made_from {
        vault.forget_vault(&old)?;
    }
    vault.change_trust(vault.id(), |before| {
        let mut after = before.unwrap_or_else(|| trust.clone());
        after.sign_again.clear();
        after.made_from = None;
        Ok::<_, VaultError>(after)
    })?;
    Ok(resigned)
}

/// Returns the trust to judge the listed signatures with, as it was before their keys were revoked:
/// for each root version that revoked a signer, the version before it, together with the bundles of
/// that signer.
fn trust_before_revocations(vault: &Vault, trust: &VaultTrust) -> Result<Vec<Trusted>, VaultError> {
    // A recreated vault has root versions of its own, so those of the old vault judge its
    // signatures.
    if let Some(old) = trust.made_from {
        let old = vault.trust_of(&old)?;
        let trusted =
            |old: VaultTrust| Trusted::for_listed(Arc::new(old.roots), trust.sign_again.clone());
        return Ok(old.map(trusted).into_iter().collect());
    }
    let (store, chain) = (vault.store_folder(), trust.chain());
    let mut by_version: BTreeMap<u64, BTreeSet<Digest>> = BTreeMap::new();
    for bundle in &trust.sign_again {
        let Some(signer) = store::read_signer(&store, bundle, &trust.roots) else {
            continue;
        };
        let revoking = chain.versions().iter().find(|version| {
            let revoked = version.document().revoked();
            revoked.iter().any(|key| key.is_key(&signer))
        });
        // If no version revoked the signer, the newest version judges it.
        let last_good =
            revoking.map_or(chain.version(), |version| version.document().version() - 1);
        by_version.entry(last_good).or_default().insert(*bundle);
    }
    let states = by_version.into_iter().filter_map(|(version, bundles)| {
        let state = RootState::new(chain.until_version(version)?, BTreeSet::new());
        Some(Trusted::for_listed(Arc::new(state), bundles))
    });
    Ok(states.collect())
}

/// Turns a verified skill into a source that can be admitted again. Set `keeps_exceptions` if the
/// owner of this vault set the exceptions in its manifest.
pub(super) fn to_earlier_source(
    name: SkillName,
    examined: Examined,
    upstream: Option<vault_shelf::fetch::Upstream>,
    purpose: Purpose,
    keeps_exceptions: bool,
) -> Source {
    Source::Earlier(Box::new(Earlier {
        name,
        manifest: examined.manifest,
        files: examined.files,
        upstream,
        keeps_exceptions,
        purpose,
    }))
}
