//! Starts a change: takes the writer lock and cleans up after a killed writer.

use std::collections::HashSet;

use super::{Resigned, sign_again};
use crate::disk::scratch;
use crate::index::Index;
use crate::installed::place::places;
use crate::installed::variants;
use crate::store;
use crate::vault::keys::KeyKind;
use crate::vault::rotations::Chain;
use crate::vault::{Change, Vault, VaultError};

impl Vault {
    /// Takes the writer lock, removes what a killed writer left behind, and completes an
    /// interrupted replacement of keys.
    pub(crate) fn change(&self) -> Result<Change<'_>, VaultError> {
        let mut change = self.lock_writer()?;
        drop_orphans(self)?;
        scratch::sweep(&self.tmp())?;
        finish_rotation(self, &mut change)?;
        Ok(change)
    }

    /// Replaces a small file in the vault's folder atomically. For records of the command line that
    /// are not secret.
    pub fn replace_file(&self, name: &'static str, bytes: &[u8]) -> Result<(), VaultError> {
        let mut change = self.change()?;
        change.write_bytes(&self.paths().root.join(name), bytes, 0o600)
    }
}

/// Removes own bundles that a killed writer moved into the store but did not link. Bundles of
/// linked vaults stay: a resumed pull uses them, and collects those that it does not need. Call it
/// under the writer lock.
fn drop_orphans(vault: &Vault) -> Result<(), VaultError> {
    let mut orphans = Vec::new();
    for folder in scratch::abandoned(&vault.tmp())? {
        orphans.extend(store::noted_admitted(&folder)?);
    }
    if orphans.is_empty() {
        return Ok(());
    }
    // Without the vault's key it is unknown which bundles are linked, so remove nothing.
    let (Ok(places), Ok(trusted)) = (places(vault), vault.trusted()) else {
        return Ok(());
    };
    let store = vault.store();
    let mut linked: HashSet<_> = places
        .groups
        .iter()
        .flat_map(|group| group.places.iter().map(|place| place.bundle))
        .collect();
    linked.extend(variants::bundles(vault)?);
    orphans
        .retain(|hash| !linked.contains(hash) && store::manifest(&store, hash, &trusted).is_some());
    let aside = vault.scratch()?;
    let dropped = store::drop_bundles(&store, aside.path(), orphans)?;
    Index::open(&vault.paths().index()).forget(&dropped);
    Ok(())
}

/// Completes or undoes an interrupted replacement of keys, then signs again what a retiring key had
/// signed. Runs under the writer lock before every change.
pub(crate) fn finish_rotation(
    vault: &Vault,
    change: &mut Change<'_>,
) -> Result<Resigned, VaultError> {
    let keys = vault.keys();
    keys.sweep()?;
    let mut chain = Chain::read(vault)?;
    if let Some(next) = keys.next(KeyKind::Release)? {
        if chain.last().is_some_and(|last| last.to == next.public()) {
            keys.adopt_next(KeyKind::Release)?;
        } else {
            // The rotation statement was never written, so no one has seen this key.
            keys.drop_next(KeyKind::Release)?;
        }
    }
    if let Some(next) = keys.next(KeyKind::Recovery)? {
        let id = next.public().key_id();
        if chain
            .last()
            .is_some_and(|last| last.new_recovery_key_sha256 == Some(id))
        {
            keys.adopt_next(KeyKind::Recovery)?;
        } else {
            keys.drop_next(KeyKind::Recovery)?;
        }
    }
    keys.settle_public()?;
    if chain.retiring.is_empty() {
        return Ok(Resigned::default());
    }
    let retiring = chain.retiring.clone();
    let done = sign_again(vault, change, |_, signer| retiring.contains(signer))?;
    chain.retiring.clear();
    chain.write(vault, change)?;
    Ok(done)
}
