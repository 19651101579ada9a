//! `vault key show`: prints the vault's fingerprint, its keys, and where the secret keys are.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{
    keys::PublicKey,
    root::{KeyFingerprint, VaultFingerprint, VaultId},
    time::Timestamp,
};
use vault_library::{Vault, VaultError};

use crate::{
    commands::trust::new_key::KeyPlace,
    errors::Failure,
    output::{BOLD, DIM, HINT, Report, clean, paint},
    tasks::key_changes,
};

/// The output of `vault key show`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ShownKeys {
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// Fingerprint of the vault, for people to compare: `vlt:<groups>/<version of its keys>`.
    fingerprint: VaultFingerprint,
    /// Version of the vault's signed list of keys, counted from 1.
    root_version: u64,
    /// The public key of this machine; null if it cannot publish.
    public_key: Option<PublicKey>,
    /// Fingerprint of this machine's key; null without a key.
    publisher_fingerprint: Option<KeyFingerprint>,
    /// Whether the secret key is on this machine.
    secret_here: bool,
    /// The file with the secret key; null if the SSH agent holds it.
    secret_key: Option<PathBuf>,
    /// Fingerprint of the key in the SSH agent, as `ssh-add -l` prints it; null for a key file.
    ssh_agent: Option<String>,
    /// Whether a key that may change the vault's keys is kept outside this machine.
    recovery_key: bool,
    /// When the list of keys expires; null if it does not.
    expires_at: Option<Timestamp>,
}

/// Shows the fingerprint, which people compare, and the keys that the owner must not lose.
pub(super) fn run(vault: &Vault) -> Result<Report, Failure> {
    // A vault that only links other vaults has no keys to show.
    if let Err(error @ VaultError::ForLinks(_)) = vault.release_key() {
        return Err(error.into());
    }
    let trust = vault.require_trust()?;
    let document = trust.chain().document();
    let (fingerprint, version) = (trust.fingerprint(), trust.chain().version());
    let row = |name: &str, value: String| format!("{DIM}{name:<14}{DIM:#}{value}");
    let mut lines = vec![
        row("fingerprint", paint(BOLD, fingerprint)),
        row("vault id", vault.id().to_string()),
        row("keys", format!("version {version}")),
    ];
    let named_fingerprint = |key: &PublicKey| {
        // Another publisher may have chosen the name, so clean it for the terminal.
        let name = document.shown_name(key).map(|name| name.to_string());
        let name = clean(&name.unwrap_or_default(), 64);
        format!("{name}  {}", KeyFingerprint::publisher(key))
    };
    // A machine without a key still shows the vault's fingerprint, which people compare.
    let own_key = vault.release_key().ok();
    let mut secret = None;
    match &own_key {
        Some(key) => {
            let place = KeyPlace::for_key(vault, key)?;
            lines.push(row("this machine", named_fingerprint(key)));
            lines.push(row("secret key", place.to_string()));
            secret = Some(place);
        }
        None => lines.push(row("this machine", "cannot publish".to_owned())),
    }
    // If every root key is on this machine, there is no recovery key elsewhere.
    let only_here = key_changes::all_root_keys_here(vault)?;
    if only_here {
        lines.push(row("recovery key", "none".to_owned()));
        lines.push(format!(
            "{HINT}hint:{HINT:#} vault key recovery create <file> creates a recovery key; without one, the vault is lost when this machine is lost"
        ));
    } else {
        let root = document.root().keys().iter();
        lines.extend(root.map(|key| row("recovery key", named_fingerprint(key))));
    }
    if let Some(expires_at) = document.expires_at() {
        lines.push(row("renew before", expires_at.to_string()));
    }
    let in_agent = secret.as_ref().and_then(KeyPlace::in_agent);
    let keys = ShownKeys {
        vault_id: *vault.id(),
        fingerprint,
        root_version: version,
        publisher_fingerprint: own_key.as_ref().map(KeyFingerprint::publisher),
        secret_here: own_key.is_some(),
        public_key: own_key,
        secret_key: secret.as_ref().and_then(KeyPlace::path).cloned(),
        ssh_agent: in_agent.map(str::to_owned),
        recovery_key: !only_here,
        expires_at: document.expires_at(),
    };
    Ok(Report::view(keys, lines.join("\n")))
}
