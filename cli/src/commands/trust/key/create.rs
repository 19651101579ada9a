//! `vault key create`: makes a key on this machine that may not publish yet.

use clap::Args;
use serde_json::json;
use vault_format::root::KeyFingerprint;
use vault_library::{Vault, roots};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Report, TICK},
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// Protect the key file with a passphrase
    #[arg(long)]
    passphrase: bool,
}

/// Makes the key. It counts for nothing until a change of keys names it.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    if arguments.passphrase {
        super::rotate::protect(context)?;
    }
    let key = roots::create_key(vault)?;
    let (fingerprint, path) = (KeyFingerprint::publisher(&key), vault.keys().path(&key));
    Ok(Report::new(
        json!({ "public_key": key, "fingerprint": fingerprint, "path": path }),
        format!(
            "{TICK} created a key in {}\n  {BOLD}{fingerprint}{BOLD:#}\n\
             It cannot publish yet: an owner of the vault must add it.",
            path.display()
        ),
    ))
}
