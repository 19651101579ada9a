//! `vault key show`: prints the vault's fingerprint, its keys, and where they lie.

use serde_json::json;
use vault_format::{keys::PublicKey, root::KeyFingerprint};
use vault_library::{Vault, VaultError};

use crate::{
    commands::trust::new_key::KeyPlace,
    errors::Failure,
    key_changes,
    output::{BOLD, DIM, HINT, Report, clean, paint},
};

/// Shows what a person compares, and what a person must not lose.
pub(super) fn run(vault: &Vault) -> Result<Report, Failure> {
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
    let shown = |key: &PublicKey| {
        let name = document.shown_name(key).map(|name| name.to_string());
        let name = clean(&name.unwrap_or_default(), 64);
        format!("{name}  {}", KeyFingerprint::publisher(key))
    };
    let here = vault.release_key().ok();
    let mut secret = None;
    match &here {
        Some(key) => {
            let place = KeyPlace::of(vault, key)?;
            lines.push(row("this machine", shown(key)));
            lines.push(row("secret key", place.to_string()));
            secret = Some(place);
        }
        None => lines.push(row("this machine", "cannot publish".to_owned())),
    }
    let only_here = key_changes::all_root_keys_here(vault)?;
    if only_here {
        lines.push(row("recovery key", "none".to_owned()));
        lines.push(format!(
            "{HINT}hint:{HINT:#} vault key recovery create <file> creates a recovery key; without one, the vault is lost when this machine is lost"
        ));
    } else {
        let root = document.root().keys().iter();
        lines.extend(root.map(|key| row("recovery key", shown(key))));
    }
    if let Some(expires_at) = document.expires_at() {
        lines.push(row("renew before", expires_at.to_string()));
    }
    Ok(Report::new(
        json!({
            "vault_id": vault.id(), "fingerprint": fingerprint, "root_version": version,
            "public_key": here, "publisher_fingerprint": here.as_ref().map(KeyFingerprint::publisher),
            "secret_here": here.is_some(), "secret_key": secret.as_ref().and_then(KeyPlace::path),
            "ssh_agent": secret.as_ref().and_then(KeyPlace::in_agent), "recovery_key": !only_here,
            "expires_at": document.expires_at(),
        }),
        lines.join("\n"),
    ))
}
