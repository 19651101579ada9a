//! Stores root versions (signed lists of a vault's keys) that were found valid, and derives what
//! they mean for the own skills: which stay valid, and which must be signed again.

use std::collections::BTreeSet;

use vault_format::catalog::{Catalog, SignedCatalog};
use vault_format::hash::Digest;
use vault_format::root;
use vault_format::root::{KeyStanding, RootList, RootState, VaultId};
use vault_format::time::Timestamp;

use super::{installations, rendered_variants};
use crate::store::{self, Trusted};
use crate::vault::trust::VaultTrust;
use crate::vault::{Change, Vault, VaultError, releases};

/// Stores root versions of a vault if they continue the known ones. `listed` names the bundles of a
/// catalog that is valid under the new versions. Fails if they contradict the known ones.
pub(crate) fn store_accepted_roots(
    change: &mut Change<'_>,
    id: &VaultId,
    shown: &RootList,
    listed: &BTreeSet<Digest>,
    seen_at: Option<Timestamp>,
) -> Result<VaultTrust, VaultError> {
    let vault = change.vault();
    vault.change_trust(id, |before| {
        let own = before.as_ref().map(|trust| &trust.roots);
        let judged = root::judge_roots(own, shown, None)?;
        if judged.taken {
            // Processes that watch the generation number must read again: other skills may be
            // accepted now.
            change.mark_changing()?;
        }
        let mut after = if judged.taken || before.is_none() {
            conclude_trust(vault, before.as_ref(), judged.state, listed)?
        } else {
            before.unwrap_or_else(|| VaultTrust::new(judged.state))
        };
        after.latest_seen_at = after.latest_seen_at.max(seen_at);
        Ok::<_, VaultError>(after)
    })
}

/// Returns the trusted state after new root versions. For this vault's own skills it also lists the
/// bundles that stay valid although their signer was retired (`taken_over`), and those that must be
/// signed again because their signer was revoked (`sign_again`). Both lists contain only what was
/// accepted before: verified own skills, and the bundles of the last accepted catalogs.
pub(crate) fn conclude_trust(
    vault: &Vault,
    before: Option<&VaultTrust>,
    roots: RootState,
    listed: &BTreeSet<Digest>,
) -> Result<VaultTrust, VaultError> {
    let is_own = roots.vault_id() == *vault.id();
    let mut after = match before {
        Some(before) => VaultTrust {
            roots,
            ..before.clone()
        },
        None => VaultTrust::new(roots),
    };
    if !is_own {
        return Ok(after);
    }
    let mut counted = last_catalog_bundles(vault)?;
    counted.extend(listed);
    // This machine sees the vault for the first time, so the signer of a listed bundle may have
    // been retired long ago.
    let Some(before) = before else {
        after.taken_over = counted;
        return Ok(after);
    };
    let changed = |standing| {
        let mut keys = before.good_keys().into_iter();
        keys.any(|key| {
            before.roots.standing(&key) != standing && after.roots.standing(&key) == standing
        })
    };
    let (retires, revokes) = (changed(KeyStanding::Retired), changed(KeyStanding::Revoked));
    if retires {
        after.taken_over.extend(&counted);
    }
    if retires || revokes {
        // Verify under the old keys, because under the new keys the bundles in question fail.
        let trusted = Trusted::for_own(before.clone());
        let for_variants = trusted.for_variants();
        let own = installations::own_skill_places(vault)?.into_iter();
        let own = own.map(|place| (place, &trusted));
        let rendered = rendered_variants::variant_places(vault)?.into_iter();
        let rendered = rendered.map(|place| (place, &for_variants));
        for (place, trusted) in own.chain(rendered) {
            let (store, name) = (vault.store_folder(), Some(&place.signed_name));
            let Ok((examined, _)) = store::examine_and_encode(&store, &place.bundle, name, trusted)
            else {
                continue;
            };
            match after.roots.standing(&examined.signer) {
                KeyStanding::Retired => after.taken_over.insert(place.bundle),
                // A thief may have signed a bundle with the stolen key. Only what was published
                // before is known to be the owner's, so only that is listed for signing again.
                KeyStanding::Revoked if counted.contains(&place.bundle) => {
                    after.sign_again.insert(place.bundle)
                }
                _ => false,
            };
        }
    }
    Ok(after)
}

/// Returns the bundles in the last catalogs that this vault published or took over.
fn last_catalog_bundles(vault: &Vault) -> Result<BTreeSet<Digest>, VaultError> {
    let catalogs = read_last_catalogs(vault)?;
    let skills = catalogs.iter().flat_map(|catalog| &catalog.skills);
    Ok(skills.map(|entry| entry.bundle_hash).collect())
}

/// Returns the last catalog of each namespace that this vault published or took over.
pub(crate) fn read_last_catalogs(vault: &Vault) -> Result<Vec<Catalog>, VaultError> {
    let mut catalogs = Vec::new();
    for state in releases::list_states(vault)? {
        let (Some(bytes), Some(published)) = (state.catalog_bytes(vault)?, &state.published) else {
            continue;
        };
        // Skip a file that does not match the record: a killed writer may have left it.
        let catalog = SignedCatalog::parse(&bytes)
            .and_then(|file| file.read_counted(&published.payload_sha256));
        catalogs.extend(catalog);
    }
    Ok(catalogs)
}
