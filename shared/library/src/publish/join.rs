//! Makes this machine a publisher of a vault that exists elsewhere.

use vault_format::keys::PublicKey;
use vault_format::name::Slug;
use vault_format::root::{KeyName, KeyRequest, KeyStanding, VaultId};

use super::recovery::{RecoveredPlace, finish_place, open_place};
use super::roots::{RootsError, create_key};
use crate::vault::{Vault, VaultError};

/// Creates, for a vault that this machine has linked, a folder of own skills and a key that may not
/// publish yet. `in_agent` is a key that the SSH agent holds, to be used instead of a new one.
/// Joining again returns the existing key. Fails if the folder contains another vault.
pub fn join_vault(
    place: &RecoveredPlace,
    wanted: &VaultId,
    in_agent: Option<PublicKey>,
) -> Result<(Vault, PublicKey), RootsError> {
    let (vault, for_links) = open_place(place, wanted)?;
    // Change the record under the lock, so that a revocation that another process stores at the
    // same time stays.
    let trust = vault.change_trust(wanted, |linked_trust| {
        let mut trust = linked_trust.ok_or(RootsError::NotLinked(*wanted))?;
        // Other machines know this vault, so no later command may recreate it with another id.
        trust.shown = true;
        Ok::<_, RootsError>(trust)
    })?;
    // Use the key of an earlier attempt, unless the vault has retired or revoked it since.
    let is_usable = |key: &PublicKey| {
        let standing = trust.roots.standing(key);
        matches!(standing, KeyStanding::Release | KeyStanding::Unknown)
    };
    let mut here = vault.keys().list().map_err(VaultError::from)?.into_iter();
    let key = match here.find(|key| is_usable(key) && in_agent.is_none_or(|it| it == *key)) {
        Some(key) => key,
        None => create_key(&vault, in_agent)?,
    };
    finish_place(place, &vault, for_links)?;
    Ok((vault, key))
}

/// Signs the request that a key of this machine becomes a publisher. The request proves that the
/// machine holds the key, and is valid for this vault and namespace only.
pub fn sign_key_request(
    vault: &Vault,
    slug: &Slug,
    key: &PublicKey,
    name: Option<KeyName>,
) -> Result<Vec<u8>, RootsError> {
    let signer = vault.keys().signer(key).map_err(VaultError::from)?;
    let name = name.unwrap_or_else(|| KeyName::default_for(key));
    let now = vault.clock().now();
    Ok(KeyRequest::sign(
        *vault.id(),
        slug.clone(),
        name,
        now,
        &*signer,
    )?)
}
