//! `vault restore`: restores a vault and its keys from a file that `vault backup` wrote.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, BufReader},
    iter,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::root::{VaultFingerprint, VaultId};
use vault_library::{VaultPaths, agents, keys, keys::Passphrases as _, occupant, trust};

use super::backup::{TRUST, TRUST_FOLDERS, VAULT, VAULTS};
use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, HINT, Report, TICK},
    passphrases::unreadable_passphrase,
};

/// The arguments of `vault restore`.
#[derive(Args, Debug)]
#[command(after_help = "\
Restore never overwrites a vault: move the existing one away first, or name another folder with \
--vault. The backup may be out of date: afterwards, `vault status` and the next sync show what the \
service has that the backup does not. Sign-ins and the folders of agents are not restored.

Examples:
  vault restore /media/stick/vault.backup
  vault --vault ~/restored restore /media/stick/vault.backup")]
pub struct Arguments {
    /// A file that `vault backup` wrote
    file: PathBuf,
}

/// A vault that was restored from a backup.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RestoredVault {
    /// Path of the vault's folder.
    path: PathBuf,
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// Fingerprint of the vault, for people to compare: `vlt:<groups>/<version of its keys>`.
    fingerprint: VaultFingerprint,
    /// Version of the vault's signed list of keys, counted from 1.
    root_version: u64,
}

/// Unpacks the backup into a folder beside the vault's, then moves the parts to their places, the
/// vault last. If the command is killed, it can be run again.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let paths = context.vault_paths()?;
    let (root, config) = (&paths.root, &paths.config);
    let file = &arguments.file;
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| Failure::io("restoring", &path, &error)
    };
    let staging = root.with_extension("restoring");
    if staging.exists() {
        // An earlier restore was killed and left it behind.
        fs::remove_dir_all(&staging).map_err(fail(&staging))?;
    }
    if root.exists() {
        return Err(fail!(FolderExists, "{} already exists", root.display())
            .hint("move it away, or name another folder with --vault"));
    }
    // Restrict the folder before any key is unpacked into it.
    let private = staging.join(TRUST);
    make_private(&private).map_err(fail(&private))?;
    let unpacked = unpack_backup(context, file, &staging);
    let moved = unpacked.and_then(|()| {
        // Do this before the move, so that a restored vault never links into folders of the machine
        // that was backed up.
        agents::forget_restored(&private)?;
        put_in_place(&staging, root, config)
    });
    let _ = fs::remove_dir_all(&staging);
    moved?;
    let vault = context.open_vault()?;
    let trust = vault.require_trust()?;
    let (fingerprint, version) = (trust.fingerprint(), trust.chain().version());
    let text = format!(
        "{TICK} restored the vault in {}\n  {BOLD}{fingerprint}{BOLD:#}  version {version} of its keys\n\
         Next: {HINT}vault cloud connect <url>{HINT:#} signs in again; {HINT}vault sync{HINT:#} shows what changed since the backup; \
         {HINT}vault sync-profiles{HINT:#} links the skills into the agents here.",
        root.display()
    );
    let restored = RestoredVault {
        path: root.clone(),
        vault_id: *vault.id(),
        fingerprint,
        root_version: version,
    };
    Ok(Report::view(restored, text))
}

fn unpack_backup(context: &Context, file: &Path, staging: &Path) -> Result<(), Failure> {
    let wrong = || fail!(BackupWrong, "{} is not a backup of a vault", file.display());
    let fail = |error: io::Error| Failure::io("reading", file, &error);
    let reader = BufReader::new(File::open(file).map_err(fail)?);
    let decryptor = age::Decryptor::new(reader).map_err(|_| wrong())?;
    let passphrase = context.key_passphrases()?.unlock(file);
    let passphrase = passphrase.map_err(|error| unreadable_passphrase(&error))?;
    let passphrase = passphrase.ok_or_else(|| {
        fail!(KeyLocked, "{} is encrypted", file.display())
            .hint("run it on a terminal, or name a file: VAULT_KEY_PASSPHRASE_FILE")
    })?;
    let identity = keys::passphrase_identity(&passphrase);
    let opened = decryptor
        .decrypt(iter::once(&identity as &dyn age::Identity))
        .map_err(|_| {
            fail!(
                PassphraseWrong,
                "the passphrase does not open {}",
                file.display()
            )
        })?;
    let mut archive = tar::Archive::new(opened);
    archive.set_preserve_permissions(true);
    // `unpack` writes nothing outside the folder, and sets the modes of folders last.
    archive.unpack(staging).map_err(|_| wrong())?;
    if !staging.join(VAULT).join("vault.json").is_file() {
        return Err(wrong());
    }
    Ok(())
}

/// Moves the restored keys to the trust folder, then the vault to its place. If the process is
/// killed in between, there is no vault yet, and the command can be run again.
fn put_in_place(staging: &Path, root: &Path, config: &Path) -> Result<(), Failure> {
    let moved = |from: &Path, to: &Path| -> Result<(), Failure> {
        fs::rename(from, to).map_err(|error| Failure::io("restoring", to, &error))
    };
    for folder in TRUST_FOLDERS {
        let (from, to) = (staging.join(TRUST).join(folder), config.join(folder));
        let Ok(entries) = fs::read_dir(&from) else {
            continue; // the backup has none
        };
        make_private(&to).map_err(|error| Failure::io("making", &to, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| Failure::io("reading", &from, &error))?;
            let target = to.join(entry.file_name());
            if !entry.path().is_dir() {
                continue; // a lock
            }
            if target.exists() {
                // Keep the existing folder, which may be newer than the backup. It may lack the
                // secret keys, if this machine has only linked the vault; add them then.
                let id = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok());
                if let (VAULTS, Some(id)) = (folder, id) {
                    trust::complete_restored(config, &staging.join(TRUST), &id)?;
                }
                continue;
            }
            copy_atomically(&entry.path(), &target)
                .map_err(|error| Failure::io("restoring", &target, &error))?;
        }
    }
    // Remove the unpacked keys now, so that no second copy stays behind if the process is killed.
    let trust = staging.join(TRUST);
    if trust.exists() {
        fs::remove_dir_all(&trust).map_err(|error| Failure::io("removing", &trust, &error))?;
    }
    let work = staging.join(VAULT).join("tmp");
    make_private(&work).map_err(|error| Failure::io("making", &work, &error))?;
    // Record before the move which vault is in this folder: it may have contained another one,
    // which the owner moved away.
    let paths = VaultPaths::new(root, config);
    occupant::record_restored(&paths, &staging.join(VAULT))?;
    moved(&staging.join(VAULT), root)
}

/// Copies a folder of private files, because the trust folder may be on another disk. The copy gets
/// its name only when it is complete.
fn copy_atomically(from: &Path, to: &Path) -> io::Result<()> {
    let partial = to.with_extension("restoring");
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    copy_all(from, &partial)?;
    fs::rename(partial, to)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    make_private(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), &target)?;
            // The keys must be on disk before the vault that needs them appears.
            File::open(&target)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
