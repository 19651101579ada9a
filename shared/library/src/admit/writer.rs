//! Starts a change: takes the writer lock and cleans up after a killed writer.

use std::collections::HashSet;

use crate::disk::scratch;
use crate::index::Index;
use crate::installed::place::places;
use crate::installed::variants;
use crate::store;
use crate::vault::{Change, Vault, VaultError};

impl Vault {
    /// Takes the writer lock, removes what a killed writer left behind, and brings the key files in
    /// line with the root versions. Signs nothing.
    pub(crate) fn change(&self) -> Result<Change<'_>, VaultError> {
        let change = self.lock_writer()?;
        // Before the sweep, which deletes the lists of these bundles.
        drop_orphans(self)?;
        scratch::sweep(&self.tmp())?;
        self.trust_folder().sweep()?;
        // A killed command may have written a root version without the key files that belong to it.
        if let Some(trust) = self.trust()? {
            self.keys().settle(trust.roots())?;
        }
        Ok(change)
    }

    /// Reads a record of the command line from the vault's part of the trust folder; `None` if it
    /// is absent.
    pub fn read_private(&self, name: &'static str) -> Result<Option<Vec<u8>>, VaultError> {
        let bytes = self.trust_folder().read(name)?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    /// Writes a record of the command line atomically to the vault's part of the trust folder.
    pub fn write_private(&self, name: &'static str, bytes: &[u8]) -> Result<(), VaultError> {
        let _change = self.change()?;
        Ok(self.trust_folder().replace(name, bytes)?)
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
    // If the places can't be read it is unknown which bundles are linked, so remove nothing.
    let (Ok(places), Ok(trusted)) = (places(vault), vault.trusted()) else {
        return Ok(());
    };
    let store = vault.store();
    let mut linked: HashSet<_> = places
        .groups
        .iter()
        .flat_map(|group| group.places.iter().map(|place| place.bundle))
        .collect();
    // Variants are not linked in `skills/`, so only their record shows that they are in use.
    linked.extend(variants::bundles(vault)?);
    // A bundle that this vault's keys did not sign belongs to a linked vault or to a project.
    orphans
        .retain(|hash| !linked.contains(hash) && store::manifest(&store, hash, &trusted).is_some());
    let aside = vault.scratch()?;
    let dropped = store::drop_bundles(&store, aside.path(), orphans)?;
    Index::open(vault).forget(&dropped);
    Ok(())
}
