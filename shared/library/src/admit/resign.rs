//! Signs own skills again with the current key, after the key that signed them was replaced or when
//! a version must increase.
//!
//! Each skill passes the gate first, with the strictness and the exceptions that its manifest
//! records. If the current gate rejects a skill, it is not signed; the others continue, and the
//! report names it. Its link and bundle stay, so that the owner can read the files, but
//! verification with the current keys rejects it.

use vault_skill::keys::PublicKey;
use vault_skill::name::SkillName;

use super::{AdmitError, Earlier, Neighbours, Options, Purpose, Source, admit_under, examine};
use crate::admit::remove;
use crate::installed::place;
use crate::installed::upstream;
use crate::store::{self, Examined};
use crate::vault::{Change, Vault, VaultError};

/// Number of skills that are held in memory and flushed together.
const BATCH: usize = 256;

/// The result of signing again.
#[derive(Debug, Default)]
pub(crate) struct Resigned {
    /// Skills with a new version, signed with the current key.
    pub(crate) signed: Vec<SkillName>,
    /// Skills whose content differs from what was signed.
    pub(crate) damaged: Vec<SkillName>,
    /// Rejected skills, with the reason.
    pub(crate) refused: Vec<(SkillName, AdmitError)>,
}

/// Signs own skills as their next version with the same content. `wanted` selects them by name and
/// signer.
pub(crate) fn sign_again(
    vault: &Vault,
    change: &mut Change<'_>,
    wanted: impl Fn(&SkillName, &PublicKey) -> bool,
) -> Result<Resigned, VaultError> {
    let trusted = vault.trusted()?;
    let store = vault.store();
    let places = place::own_places(vault)?;
    let mut resigned = Resigned::default();
    for places in places.chunks(BATCH) {
        let mut neighbours = Neighbours::of(vault);
        let mut candidates = Vec::new();
        for place in places {
            let (bundle, name) = (&place.bundle, Some(&place.name));
            let read = store::examine(&store, bundle, name, &trusted);
            let Ok(examined) = read else {
                resigned.damaged.push(place.name.clone());
                continue;
            };
            let signer = examined.signed.signer(&trusted.keys);
            if !signer.is_some_and(|signer| wanted(&place.name, signer)) {
                continue;
            }
            let version = examined.manifest.version;
            // Ignore a source record that can't be read: the skill itself is intact.
            let upstream = upstream::of_bundle(vault, bundle).unwrap_or_default();
            let source = earlier(place.name.clone(), examined, upstream, Purpose::SignAgain);
            match examine(source, &Options::as_recorded(), &mut neighbours) {
                Ok(candidate) => candidates.push(candidate),
                Err(AdmitError::Vault(failed)) => return Err(failed),
                Err(refused) => {
                    // Once the old signature is invalid, only this record keeps the next version
                    // above the current one.
                    remove::retire(vault, change, &place.name, version)?;
                    tracing::warn!(skill = %place.name, reason = %refused, "not signed again");
                    resigned.refused.push((place.name.clone(), refused));
                }
            }
        }
        if candidates.is_empty() {
            continue;
        }
        let reports = admit_under(vault, change, &candidates)?;
        for (candidate, report) in candidates.into_iter().zip(reports) {
            match report {
                Ok(report) => resigned.signed.push(report.name),
                Err(AdmitError::Vault(failed)) => return Err(failed),
                Err(refused) => resigned.refused.push((candidate.package.name, refused)),
            }
        }
    }
    Ok(resigned)
}

/// A verified skill as a source of admission.
pub(super) fn earlier(
    name: SkillName,
    examined: Examined,
    upstream: Option<vault_store::fetch::Upstream>,
    purpose: Purpose,
) -> Source {
    Source::Earlier(Box::new(Earlier {
        name,
        manifest: examined.manifest,
        files: examined.files,
        upstream,
        purpose,
    }))
}
