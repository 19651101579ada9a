//! The recovery key: a key that may change the vault's keys (it has the root role), in a file that
//! the owner keeps away from this machine. Creates it, checks it, and replaces a lost or stolen key
//! with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vault_format::catalog::SignedCatalog;
use vault_format::hash::Digest;
use vault_format::keys::{PublicKey, SecretKey};
use vault_format::name::SkillName;
use vault_format::root;
use vault_format::root::{
    KeyEntry, KeyName, KeyStanding, RecoveryFile, RootChain, RootEdit, RootState, VaultId,
};
use vault_format::time::Timestamp;
use vault_store::clock::Clock;
use vault_store::random::Random;
use zeroize::Zeroizing;

use super::recovery_file::{GivenPassphrase, folder_of};
pub use super::recovery_file::{RecoveryError, RecoveryKey};
use super::roots::{
    RootReport, RootsError, complete_change, key_entry, next_version, store_version,
};
use crate::admit::{Resigned, sign_waiting};
use crate::disk;
use crate::installed::root_versions::conclude_trust;
use crate::vault::keys::{self, Passphrases};
use crate::vault::trust::{IDENTITY_ENTRIES, VaultTrust};
use crate::vault::{Vault, VaultError, VaultPaths, releases, write_format};

/// Number of days after which the owner is reminded to check that the recovery key still works.
const CHECK_DAYS: i64 = 365;

/// The files, passphrase and addresses of a new recovery key.
#[derive(Default)]
pub struct NewRecovery {
    /// Files to write. A file that exists is an error, unless an interrupted run left it.
    pub files: Vec<PathBuf>,
    /// Passphrase that encrypts the files; `None` leaves the key in them in the clear.
    pub passphrase: Option<Zeroizing<String>>,
    /// Addresses at which the vault is published, which the file names for its owner.
    pub addresses: Vec<String>,
}

/// The result of [`create_recovery_key`].
#[derive(Debug)]
pub struct CreatedRecovery {
    /// The vault to continue with. It has another id than before if it was recreated.
    pub vault: Vault,
    /// Keys that were added or removed, and the effects on the own skills.
    pub report: RootReport,
    /// Own skills that were signed again; `None` unless the vault was recreated.
    pub resigned: Option<Resigned>,
}

/// Creates a recovery key and gives the root role to it alone. `root_key` is the present recovery
/// key, if there is one. If no other machine has seen the vault's keys, the vault is recreated with
/// another id, so that the key on this machine never had the root role. Continues with the files of
/// an interrupted run.
pub fn create_recovery_key(
    vault: &Vault,
    root_key: Option<&RecoveryKey>,
    input: NewRecovery,
) -> Result<CreatedRecovery, RootsError> {
    for path in &input.files {
        check_place(vault, path)?;
    }
    let mut change = vault.begin_change()?;
    let before = vault.require_trust()?;
    let secret = match find_interrupted_key(vault, &before, root_key, &input)? {
        Some(secret) => secret,
        None => keys::generate_key(vault.random()),
    };
    let is_stored = before.chain().document().root().contains(&secret.public());
    let must_recreate = !is_stored && is_unseen(vault, &before)?;
    let chain = if is_stored {
        before.chain().clone()
    } else if must_recreate {
        first_version(&before, &secret)?
    } else {
        next_version(vault, &before, root_key, &[&secret], |edit, chain| {
            edit.add_root_key(key_entry(secret.public(), recovery_name_after(chain)))?;
            for key in chain.document().root().keys() {
                edit.remove_root_key(key)?;
            }
            edit.set_root_threshold(1);
            Ok(())
        })?
    };
    let file = RecoveryFile {
        vault_id: chain.vault_id(),
        addresses: input.addresses,
        key: secret,
        version: chain.version(),
        root_sha256: *chain.newest().payload_sha256(),
    };
    let key = RecoveryKey::new(file, input.passphrase);
    // Write the files first: nobody could change the vault's keys any more if a root version named
    // a recovery key that is nowhere stored.
    write_all(&key, &input.files)?;
    let (vault, report, resigned) = if must_recreate {
        drop(change);
        let (vault, resigned) = recreate_vault(vault, &before, chain)?;
        let report = complete_change(&vault, &before, None)?;
        (vault, report, Some(resigned))
    } else if is_stored {
        // An interrupted run that recreated the vault may have left skills that are not signed
        // again.
        let resigned = sign_waiting(vault, &mut change)?;
        drop(change);
        let resigned = before.made_from.map(|_| resigned);
        (
            vault.clone(),
            complete_change(vault, &before, None)?,
            resigned,
        )
    } else {
        let report = store_version(vault, &mut change, &before, chain, None)?;
        drop(change);
        (vault.clone(), report, None)
    };
    note_checked(&vault)?;
    Ok(CreatedRecovery {
        vault,
        report,
        resigned,
    })
}

/// Lists the own skills that [`create_recovery_key`] would sign again: all of them if it would
/// recreate the vault, none otherwise.
pub fn to_sign_anew(vault: &Vault) -> Result<Vec<SkillName>, VaultError> {
    if !is_unseen(vault, &vault.require_trust()?)? {
        return Ok(Vec::new());
    }
    let places = crate::installed::installations::own_skill_places(vault)?;
    Ok(places.into_iter().map(|place| place.name).collect())
}

/// Returns whether the vault's keys never left this machine, so that the vault can be recreated
/// with another id without anybody noticing.
fn is_unseen(vault: &Vault, trust: &VaultTrust) -> Result<bool, VaultError> {
    Ok(!trust.shown && trust.chain().version() == 1 && releases::list_states(vault)?.is_empty())
}

/// Signs the first root version of a recreated vault. It has the time of the version that it
/// replaces, so that an interrupted run and the next one make the same vault from the same key.
fn first_version(before: &VaultTrust, secret: &SecretKey) -> Result<RootChain, RootsError> {
    let document = before.chain().document();
    let mut edit = RootEdit::begin_first(document.issued_at());
    edit.add_root_key(key_entry(secret.public(), Some(KeyName::recovery_key())))?;
    for key in document.release().keys() {
        let name = document.name_of(key).cloned();
        let public_key = *key;
        let name = name.unwrap_or_else(|| KeyName::default_for(&public_key));
        edit.add_publisher(KeyEntry { public_key, name })?;
    }
    Ok(edit.sign(&[secret])?)
}

/// Returns the recovery key in a file that an interrupted run has written: a key that has the root
/// role already, or that this vault's next version was to name. Fails for any other file that
/// exists, and leaves it as it is.
fn find_interrupted_key(
    vault: &Vault,
    before: &VaultTrust,
    root_key: Option<&RecoveryKey>,
    input: &NewRecovery,
) -> Result<Option<SecretKey>, RootsError> {
    let mut existing = input.files.iter().filter(|path| disk::is_there(path));
    let Some(path) = existing.next() else {
        return Ok(None);
    };
    let exists = || RecoveryError::Exists(path.clone());
    let passphrase = GivenPassphrase(input.passphrase.clone());
    let left = RecoveryKey::open(path, &passphrase).map_err(|_| exists())?;
    let (file, secret) = (left.file(), &left.file().key);
    let chain = before.chain();
    // The file of the present recovery key is still needed, and was not left by this run.
    let is_present_key = root_key.is_some_and(|key| key.file().key.public() == secret.public());
    let is_stored = file.vault_id == *vault.id() && file.can_sign_next(chain);
    let is_next = if is_unseen(vault, before)? {
        first_version(before, secret)?.vault_id() == file.vault_id
    } else {
        file.vault_id == *vault.id()
            && file.version == chain.version() + 1
            && !chain.ever_named(&secret.public())
    };
    if is_present_key || !(is_stored || is_next) {
        return Err(exists().into());
    }
    Ok(Some(secret.clone()))
}

/// Fails unless the recovery key may change this vault's keys. Records the successful check.
pub fn check_recovery_key(
    vault: &Vault,
    key: &RecoveryKey,
    at_least: Option<u64>,
) -> Result<(), RootsError> {
    key.check_role(vault.require_trust()?.chain(), at_least)?;
    Ok(note_checked(vault)?)
}

/// Returns the time of the recovery key's last check if that is a year ago or more. `None` on a
/// machine that can't publish, and for a vault without a recovery key.
pub fn check_due(vault: &Vault) -> Result<Option<Timestamp>, VaultError> {
    let Some(trust) = vault.trust()? else {
        return Ok(None);
    };
    let own_keys = vault.keys().list()?;
    let document = trust.chain().document();
    let publishes = vault.release_key().is_ok();
    if !publishes
        || document
            .root()
            .keys()
            .iter()
            .any(|key| own_keys.contains(key))
    {
        return Ok(None);
    }
    // On a machine that never had the file, the newest change of the keys counts as the last check.
    let checked = trust.recovery_checked_at.unwrap_or(document.issued_at());
    let is_due = checked.plus_days(CHECK_DAYS) <= vault.clock().now();
    Ok(is_due.then_some(checked))
}

fn note_checked(vault: &Vault) -> Result<(), VaultError> {
    let now = vault.clock().now();
    vault.change_trust(vault.id(), |before| {
        let before = before.ok_or(VaultError::Untrusted(*vault.id()))?;
        Ok::<_, VaultError>(VaultTrust {
            recovery_checked_at: Some(now),
            ..before
        })
    })?;
    Ok(())
}

/// Returns the usual name of a recovery key; `None` if a present key has that name.
fn recovery_name_after(chain: &RootChain) -> Option<KeyName> {
    let name = KeyName::recovery_key();
    let mut taken = chain.document().keys().iter();
    (!taken.any(|entry| entry.name == name)).then_some(name)
}

/// Writes the files. A file that contains this key already was left by an interrupted run and is
/// replaced.
fn write_all(key: &RecoveryKey, files: &[PathBuf]) -> Result<(), RootsError> {
    let mut created = Vec::new();
    for path in files {
        let written = if key.is_in(path) {
            key.replace_file(path)
        } else {
            created.push(path);
            key.create_file(path)
        };
        if let Err(error) = written {
            created.pop();
            // No root version names the key yet, so the new files are of no use.
            for path in created {
                disk::remove_file(path)?;
            }
            return Err(error.into());
        }
    }
    Ok(())
}

/// Fails if a recovery file would lie in the vault's folder or the trust folder.
fn check_place(vault: &Vault, path: &Path) -> Result<(), RootsError> {
    // A thief or a backup of these folders would get the recovery key together with the keys that
    // it is meant to replace.
    let folder = disk::resolve(folder_of(path))?;
    for own in [&vault.paths().root, &vault.paths().config] {
        let own = disk::resolve(own)?;
        if folder.starts_with(own) {
            return Err(RecoveryError::Inside(path.to_owned()).into());
        }
    }
    Ok(())
}

/// Gives the vault another first root version, and thus another id. Every own skill is signed
/// again. A kill leaves the old vault, or the new one with skills that must still be signed.
fn recreate_vault(
    vault: &Vault,
    before: &VaultTrust,
    chain: RootChain,
) -> Result<(Vault, Resigned), RootsError> {
    let id = chain.vault_id();
    let new_vault = vault.with_id(id);
    let mut change = vault.begin_change()?;
    let mut trust = VaultTrust::new(RootState::new(chain, BTreeSet::new()));
    let (bundles, trusted) = (vault.store_folder(), vault.trusted()?);
    let places = crate::installed::installations::own_skill_places(vault)?.into_iter();
    // Sign again only what is accepted now, so no older versions and nothing that was changed.
    let (good, bad): (Vec<_>, Vec<_>) = places.partition(|place| {
        crate::store::examine_and_encode(&bundles, &place.bundle, Some(&place.name), &trusted)
            .is_ok()
    });
    trust.sign_again = good.into_iter().map(|place| place.bundle).collect();
    trust.made_from = Some(*vault.id());
    for key in vault.keys().list()? {
        if before.chain().document().name_of(&key).is_some() {
            new_vault
                .keys()
                .store_key(&vault.keys().read_secret_key(&key)?)?;
        }
    }
    // The copy keeps approved files, sources and versions. There are no releases to copy.
    let excluded = ["trust.json", "keys"];
    new_vault
        .trust_folder()
        .copy_from(&vault.trust_folder(), &excluded)?;
    new_vault.change_trust(&id, |_| Ok::<_, VaultError>(trust))?;
    change.mark_changing()?;
    // This write is the switch. Before it, the folder contains the old vault.
    write_format(vault.paths(), &id)?;
    drop(change);
    let mut resigned = sign_waiting(&new_vault, &mut new_vault.begin_change()?)?;
    resigned
        .damaged
        .extend(bad.into_iter().map(|place| place.name));
    Ok((new_vault, resigned))
}

/// The parameters of a recovery.
#[derive(Debug)]
pub struct UseRecovery<'a> {
    /// The opened recovery file, whose key signs the change. It is written again afterwards.
    pub key: &'a mut RecoveryKey,
    /// Exact bytes of a catalog of the vault, from its service or from a file; not needed if the
    /// trust folder survived.
    pub catalog: Option<&'a [u8]>,
    /// A root version number that some device has seen, below which the known versions are too old.
    pub at_least: Option<u64>,
    /// Key that was lost; `None` if only one publisher's key can be meant.
    pub lost: Option<PublicKey>,
    /// Whether the lost key is known to be destroyed, and not stolen. Its signatures stay valid
    /// then.
    pub destroyed: bool,
    /// Name of the new key; `None` for a name made from the key.
    pub name: Option<KeyName>,
}

/// The paths and services of this machine for a vault that exists elsewhere and is recovered or
/// joined here.
#[derive(Clone)]
pub struct RecoveredPlace {
    /// Paths of the vault. There may be no vault yet.
    pub paths: VaultPaths,
    /// Gives the time of all that the vault signs and records.
    pub clock: Arc<dyn Clock>,
    /// Gives the random bytes of new keys.
    pub random: Arc<dyn Random>,
    /// Asks the user for the passphrases of key files.
    pub passphrases: Arc<dyn Passphrases>,
}

/// Replaces a lost or stolen release key with a new one on this machine, which may have nothing of
/// the vault. The recovery key signs the change. Skills are not restored;
/// [`super::adopt::plan_rollback`] does that.
pub fn recover_vault(
    place: &RecoveredPlace,
    input: UseRecovery<'_>,
) -> Result<(Vault, RootReport), RootsError> {
    let wanted = input.key.file().vault_id;
    let (vault, for_links) = open_place(place, &wanted)?;
    // An interrupted run may have stored the version without putting its key into use. Taking the
    // lock completes that.
    let mut change = vault.begin_change()?;
    // A machine that linked the vault knows root versions of it too.
    let linked_trust = vault.trust_of(&wanted)?;
    let (before, listed) = known_roots(&vault, linked_trust.as_ref(), &input)?;
    input.key.check_role(before.chain(), input.at_least)?;
    let lost = lost_key(&vault, &before, input.lost)?;
    let mut stored = before.clone();
    // If a kill came after the version was stored, this machine has its new key already.
    let own_key = vault.release_key().ok().filter(|key| lost != Some(*key));
    if !(own_key.is_some() && lost.is_none()) {
        // A machine gets only one publisher's key. With two, it alone could give two signatures of
        // a release.
        let new = own_key
            .is_none()
            .then(|| keys::generate_key(&*place.random));
        let signers: Vec<&SecretKey> = new.iter().collect();
        let chain = next_version(&vault, &before, Some(input.key), &signers, |edit, _| {
            if let Some(lost) = &lost {
                if input.destroyed {
                    edit.retire(lost)?;
                } else {
                    edit.revoke(lost);
                }
            }
            edit.use_reserve();
            if let Some(new) = &new {
                edit.add_publisher(key_entry(new.public(), input.name))?;
            }
            Ok(())
        })?;
        if let Some(new) = &new {
            vault.keys().stage_key(new)?;
        }
        let roots = RootState::new(chain, before.roots.revoked_elsewhere().clone());
        stored = conclude_trust(&vault, Some(&before), roots, &listed)?;
    }
    change.mark_changing()?;
    // Other machines know these keys, so this vault must never be recreated with another id.
    stored.shown = true;
    stored.recovery_checked_at = Some(vault.clock().now());
    vault.change_trust(&wanted, |now| {
        // Another vault of this user may have stored newer versions of this vault in between.
        if now.map(|now| now.roots) == linked_trust.map(|seen| seen.roots) {
            Ok(stored)
        } else {
            let version = before.chain().version();
            Err(VaultError::Roots(root::RootError::Forked { version }))
        }
    })?;
    drop(change);
    let report = complete_change(&vault, &before, Some(input.key))?;
    finish_place(place, &vault, for_links)?;
    Ok((vault, report))
}

/// Makes the folder contain the recovered vault, in place of one that only held linked vaults.
pub(super) fn finish_place(
    place: &RecoveredPlace,
    vault: &Vault,
    for_links: Option<Vault>,
) -> Result<(), VaultError> {
    if let Some(replaced) = &for_links {
        // Keep the owner's choices on this machine, such as agents' folders and approved files.
        let kept = replaced.trust_folder();
        vault
            .trust_folder()
            .complete_from(&kept, &IDENTITY_ENTRIES)?;
    }
    write_format(&place.paths, vault.id())?;
    if let Some(replaced) = for_links
        && replaced.keys().list()?.is_empty()
    {
        vault.forget_vault(replaced.id())?;
    }
    Ok(())
}

/// Opens the wanted vault, or prepares the folders on a machine without a vault. Also returns the
/// vault that it replaces, which may only hold linked vaults.
pub(super) fn open_place(
    place: &RecoveredPlace,
    wanted: &VaultId,
) -> Result<(Vault, Option<Vault>), RootsError> {
    let (clock, random) = (Arc::clone(&place.clock), Arc::clone(&place.random));
    let prepare = || {
        let (clock, random) = (Arc::clone(&place.clock), Arc::clone(&place.random));
        Vault::prepare_restored(place.paths.clone(), *wanted, clock, random)
    };
    let mut for_links = None;
    let vault = match Vault::open(place.paths.clone(), clock, random) {
        Ok(vault) if vault.id() == wanted => vault,
        // This vault only holds linked vaults, and becomes the recovered one.
        Ok(vault) if vault.only_holds_links()? => for_links.insert(vault).with_id(*wanted),
        Ok(vault) => {
            return Err(RecoveryError::OtherVault {
                here: *vault.id(),
                wanted: *wanted,
            }
            .into());
        }
        Err(VaultError::Missing(_)) => prepare()?,
        // An emptied folder is a reason to recover, and here no sign of an attack.
        Err(VaultError::Swapped(swapped)) if swapped.found.is_none() => prepare()?,
        Err(error) => return Err(error.into()),
    };
    let vault = vault.with_passphrases(Arc::clone(&place.passphrases));
    Ok((vault, for_links))
}

/// Returns the trusted state that follows from the trust folder and the given catalog, and the
/// bundles that the catalog lists.
fn known_roots(
    vault: &Vault,
    seen: Option<&VaultTrust>,
    input: &UseRecovery<'_>,
) -> Result<(VaultTrust, BTreeSet<Digest>), RootsError> {
    let Some(bytes) = input.catalog else {
        let own = vault.trust()?.ok_or(RecoveryError::CatalogNeeded)?;
        return Ok((own, BTreeSet::new()));
    };
    let file = SignedCatalog::parse(bytes).map_err(RecoveryError::from)?;
    let known_roots = seen.map(|trust| &trust.roots);
    let judged = root::judge_roots(known_roots, file.roots(), None)
        .map_err(|error| RecoveryError::Catalog(error.into()))?;
    let catalog = file
        .read_counted(&file.payload_sha256())
        .map_err(RecoveryError::from)?;
    let listed = catalog.skills.iter().map(|entry| entry.bundle_hash);
    let trust = match seen {
        Some(seen) => VaultTrust {
            roots: judged.state,
            ..seen.clone()
        },
        None => VaultTrust::new(judged.state),
    };
    // The list is needed only if signatures of the lost key stay valid. After a theft it is not
    // used, because a thief's release lists bundles too.
    let listed = if input.destroyed {
        listed.collect()
    } else {
        BTreeSet::new()
    };
    Ok((trust, listed))
}

/// Returns the key that was lost; `None` if it has no role any more.
fn lost_key(
    vault: &Vault,
    before: &VaultTrust,
    named: Option<PublicKey>,
) -> Result<Option<PublicKey>, RootsError> {
    if let Some(key) = named {
        let is_publisher = before.roots.standing(&key) == KeyStanding::Release;
        return Ok(is_publisher.then_some(key));
    }
    let own_keys = vault.keys().list()?;
    let publishers = before.chain().document().release().keys().iter();
    let mut elsewhere = publishers.filter(|key| !own_keys.contains(key));
    match (elsewhere.next(), elsewhere.next()) {
        (Some(only), None) => Ok(Some(*only)),
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(RecoveryError::WhichKey.into()),
    }
}
