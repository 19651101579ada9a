//! `vault backup`: writes the vault and its keys into one encrypted file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    iter,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::root::{VaultFingerprint, VaultId};
use vault_library::{HeldVault, Vault, keys};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Report, TICK, format_size, shell_path},
};

/// The arguments of `vault backup`.
#[derive(Args, Debug)]
#[command(after_help = "\
The file holds the vault, its keys and the keys of linked vaults, encrypted with a passphrase. It \
does not hold sign-ins. Keep the passphrase apart from the file: both together give full control \
of the vault.

Examples:
  vault backup /media/stick/vault.backup
  VAULT_KEY_PASSPHRASE_FILE=/run/pass vault backup /backup/vault.backup")]
pub struct Arguments {
    /// The file to write; it must not exist
    file: PathBuf,
}

/// The folder of the vault in the archive.
pub(super) const VAULT: &str = "vault";
/// The folder in the archive for parts of the trust folder, the user's configuration folder with
/// keys and pins.
pub(super) const TRUST: &str = "trust";
/// The parts of the trust folder that are backed up. Sign-ins are left out: using an old refresh
/// token would end the current sign-in.
pub(super) const TRUST_FOLDERS: [&str; 2] = [VAULTS, "links"];
/// The part of the trust folder with a folder for each vault: the root versions (lists of keys)
/// that this machine has seen, and the secret keys of own vaults.
pub(super) const VAULTS: &str = "vaults";
/// Entries of the vault's folder that are left out, because vault creates them again.
const LEFT_OUT: [&str; 3] = ["tmp", "lock", "index.db"];

/// The output of `vault backup`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Backup {
    /// Path of the encrypted archive.
    path: PathBuf,
    /// Size of the archive in bytes.
    bytes: u64,
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// Fingerprint of the vault, for people to compare: `vlt:<groups>/<version of its keys>`.
    fingerprint: VaultFingerprint,
}

/// Writes the archive, encrypted, under the vault's writer lock.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let vault = context.open_vault()?;
    vault.require_trust()?;
    // Ask before taking the lock, so that no other process waits while the user types.
    let passphrase = context
        .key_passphrases()?
        .choose_passphrase(&context.ui, "the backup")?;
    // The lock keeps the vault unchanged while it is copied.
    let locked_vault = vault.clone().with_wait(Duration::ZERO).lock_for_copy()?;
    let path = &arguments.file;
    let fail = |error: &io::Error| Failure::io("writing", path, error);
    // `create_new` follows no symbolic link, and the mode holds from the first byte on.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let file = match file {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(fail!(FileExists, "{} already exists", path.display())
                .hint("choose another name: a backup never overwrites a file"));
        }
        file => file.map_err(|error| fail(&error))?,
    };
    if let Err(error) = write_archive(&vault, &locked_vault, file, &passphrase) {
        // Remove the incomplete file, so that nobody mistakes it for a backup.
        let _ = fs::remove_file(path);
        return Err(fail(&error));
    }
    drop(locked_vault);
    let bytes = fs::metadata(path).map_err(|error| fail(&error))?.len();
    let fingerprint = vault.require_trust()?.fingerprint();
    let text = format!(
        "{TICK} wrote {}  {}\n  {BOLD}{fingerprint}{BOLD:#}\nRestore it with: vault restore {}",
        path.display(),
        format_size(bytes),
        shell_path(path.display())
    );
    let backup = Backup {
        path: path.clone(),
        bytes,
        vault_id: *vault.id(),
        fingerprint,
    };
    Ok(Report::view(backup, text))
}

fn write_archive(vault: &Vault, held: &HeldVault, file: File, passphrase: &str) -> io::Result<()> {
    let recipient = keys::passphrase_recipient(passphrase);
    let encryptor = age::Encryptor::with_recipients(iter::once(&recipient as &dyn age::Recipient));
    let output = encryptor.map_err(io::Error::other)?.wrap_output(file)?;
    let mut archive = tar::Builder::new(output);
    // Archive symbolic links as links. Following them could copy files from outside the vault.
    archive.follow_symlinks(false);
    let paths = vault.paths();
    let archived = held.append_to_archive(&mut archive, Path::new(VAULT), &LEFT_OUT);
    archived.map_err(io::Error::other)?;
    for folder in TRUST_FOLDERS {
        let from = paths.config.join(folder);
        if from.is_dir() {
            archive.append_dir_all(Path::new(TRUST).join(folder), &from)?;
        }
    }
    // `finish` writes the last encrypted chunk. Without it the file cannot be decrypted.
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}
