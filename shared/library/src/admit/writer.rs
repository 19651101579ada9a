//! Begins each change of a vault: takes the writer lock and cleans up after a writer that was
//! killed.

use std::collections::HashSet;

use crate::disk::scratch;
use crate::index::Index;
use crate::installed::installations::list_skill_places;
use crate::installed::rendered_variants;
use crate::store;
use crate::vault::{Change, Vault, VaultError};

impl Vault {
    /// Takes the writer lock, removes what a killed writer left behind, and adds or removes key
    /// files until they match the root versions, the signed records of the vault's keys. Signs
    /// nothing.
    pub(crate) fn begin_change(&self) -> Result<Change<'_>, VaultError> {
        let change = self.lock_writer()?;
        // Remove orphans first, because the sweep deletes the lists that name them.
        remove_orphans(self)?;
        scratch::sweep_unlocked(&self.tmp_folder())?;
        self.trust_folder().sweep_leftovers()?;
        // A killed command may have written a root version without the key files that belong to it.
        if let Some(trust) = self.trust()? {
            self.keys().settle_files(trust.roots())?;
        }
        Ok(change)
    }

    /// Reads a file that the command line keeps in the vault's part of the trust folder, outside
    /// the vault's folder; `None` if it is absent.
    pub fn read_private(&self, name: &'static str) -> Result<Option<Vec<u8>>, VaultError> {
        let bytes = self.trust_folder().read_file(name)?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    /// Writes such a file atomically, under the writer lock.
    pub fn write_private(&self, name: &'static str, bytes: &[u8]) -> Result<(), VaultError> {
        let _change = self.begin_change()?;
        Ok(self.trust_folder().replace_file(name, bytes)?)
    }
}

/// Removes own bundles that a killed writer moved into the store but did not link. Bundles of
/// linked vaults stay, because a resumed pull uses them and collects those that it does not need.
/// Call it under the writer lock.
fn remove_orphans(vault: &Vault) -> Result<(), VaultError> {
    let mut orphans = Vec::new();
    for folder in scratch::list_abandoned(&vault.tmp_folder())? {
        orphans.extend(store::read_admitted_list(&folder)?);
    }
    if orphans.is_empty() {
        return Ok(());
    }
    // If the installed skills can't be listed, it is unknown which bundles are linked, so remove
    // nothing.
    let (Ok(places), Ok(trusted)) = (list_skill_places(vault), vault.trusted()) else {
        return Ok(());
    };
    let store = vault.store_folder();
    let mut linked: HashSet<_> = places
        .groups
        .iter()
        .flat_map(|group| group.places.iter().map(|place| place.bundle))
        .collect();
    // Variants are not linked in `skills/`, so only their record shows that they are in use.
    linked.extend(rendered_variants::variant_bundles(vault)?);
    // A bundle that this vault's keys did not sign belongs to a linked vault or to a project.
    orphans.retain(|hash| {
        !linked.contains(hash) && store::read_manifest(&store, hash, &trusted).is_some()
    });
    let aside = vault.new_scratch()?;
    let dropped = store::drop_bundles(&store, aside.path(), orphans)?;
    Index::open(vault).remove_rows(&dropped);
    Ok(())
}
