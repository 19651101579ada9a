//! `vault key create`: creates a key on this machine. It may publish only after an owner has made
//! it a publisher.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::{keys::PublicKey, root::KeyFingerprint};
use vault_library::{Vault, roots};

use crate::{
    commands::trust::new_key::{KeyPlace, NewKey},
    context::Context,
    errors::Failure,
    output::{BOLD, Report, TICK},
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    new_key: NewKey,
}

/// A key that may not publish yet.
#[derive(Debug, JsonSchema, Serialize)]
pub struct CreatedKey {
    /// Public key (Ed25519): 43 characters of base64url.
    public_key: PublicKey,
    /// Fingerprint of the key: `pub:` and 8 groups of 4 characters.
    fingerprint: KeyFingerprint,
    /// The file with the secret key; null if the SSH agent holds it.
    path: Option<PathBuf>,
    /// Fingerprint of the key in the SSH agent, as `ssh-add -l` prints it; null for a key file.
    ssh_agent: Option<String>,
}

/// Creates the key. Its signatures are not accepted until the vault's list of keys names it.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    // Ask for the passphrase before creating the key, so that the key file is never unencrypted.
    let in_agent = arguments.new_key.prepare(context)?;
    let key = roots::create_key(vault, in_agent)?;
    let (fingerprint, place) = (
        KeyFingerprint::publisher(&key),
        KeyPlace::for_key(vault, &key)?,
    );
    let done = match place.path() {
        Some(path) => format!("created a key in {}", path.display()),
        None => format!("the key is {place}"),
    };
    let text = format!(
        "{TICK} {done}\n  {BOLD}{fingerprint}{BOLD:#}\n\
         It cannot publish yet: an owner of the vault must add it."
    );
    let created = CreatedKey {
        public_key: key,
        fingerprint,
        path: place.path().cloned(),
        ssh_agent: place.in_agent().map(str::to_owned),
    };
    Ok(Report::view(created, text))
}
