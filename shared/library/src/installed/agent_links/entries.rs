//! The entries of a folder from which agents read skills, and the test that tells the vault's links
//! from those of the user.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::record::link_trees_folder;
use crate::disk::{self, FileError, Kind, Location};
use crate::vault::Vault;

/// The kind of an entry of a folder, as far as it matters for linking.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum LinkEntry {
    /// A symbolic link, with the bytes of its target.
    Link(Vec<u8>),
    Folder,
    /// A file or anything else, and a link that can't be read.
    Other,
}

/// Lists the entries of a folder, sorted by name; empty if it is absent.
pub(crate) fn list_entries(
    folder: &(impl Location + ?Sized),
) -> Result<Vec<(OsString, LinkEntry)>, FileError> {
    let named = disk::list(folder)?.into_iter().map(|(name, kind)| {
        // A link that vanished or can't be read counts as an entry of unknown kind, which is never
        // removed.
        let target = || disk::link_target(&folder.held_entry(&name)).ok().flatten();
        let entry = match kind {
            Kind::Link => target().map_or(LinkEntry::Other, |target| {
                LinkEntry::Link(target.into_os_string().into_encoded_bytes())
            }),
            Kind::Dir => LinkEntry::Folder,
            _ => LinkEntry::Other,
        };
        (name, entry)
    });
    Ok(named.collect())
}

/// Returns whether a link belongs to the vault, because its target lies below one of `homes`.
pub(crate) fn is_ours(target: &[u8], homes: &[PathBuf]) -> bool {
    homes.iter().any(|home| {
        target
            .strip_prefix(home.as_os_str().as_encoded_bytes())
            // Without the slash, `profiles-old/` would count as lying below `profiles`.
            .is_some_and(|rest| rest.first() == Some(&b'/'))
    })
}

/// Returns the folders into which the vault's own links lead: `profiles/`, by the path with which
/// the vault was opened and by its real path.
pub(crate) fn own_link_targets(vault: &Vault) -> Vec<PathBuf> {
    both_paths(vault, &link_trees_folder(vault).path(), "profiles")
}

/// Returns the folders into which any link to an own skill leads, including links that people or
/// other tools made. Such links would dangle once the skill is removed.
pub(crate) fn removed_link_targets(vault: &Vault) -> Vec<PathBuf> {
    let mut homes = own_link_targets(vault);
    homes.extend(both_paths(vault, &vault.skills_folder().path(), "skills"));
    homes
}

/// Returns the path of a folder of the vault as the vault was opened, and its real path if that
/// differs.
fn both_paths(vault: &Vault, named: &Path, folder: &str) -> Vec<PathBuf> {
    let mut paths = vec![named.to_owned()];
    let real = disk::resolve(&vault.paths().root).map(|root| root.join(folder));
    paths.extend(real.ok().filter(|real| real != named));
    paths
}
