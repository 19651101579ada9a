//! `vault key create`: makes a key on this machine that may not publish yet.

use clap::Args;
use serde_json::json;
use vault_format::root::KeyFingerprint;
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

/// Makes the key. It counts for nothing until a change of keys names it.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let in_agent = arguments.new_key.prepare(context)?;
    let key = roots::create_key(vault, in_agent)?;
    let (fingerprint, place) = (KeyFingerprint::publisher(&key), KeyPlace::of(vault, &key)?);
    let done = match place.path() {
        Some(path) => format!("created a key in {}", path.display()),
        None => format!("the key is {place}"),
    };
    Ok(Report::new(
        json!({
            "public_key": key, "fingerprint": fingerprint, "path": place.path(),
            "ssh_agent": place.in_agent(),
        }),
        format!(
            "{TICK} {done}\n  {BOLD}{fingerprint}{BOLD:#}\n\
             It cannot publish yet: an owner of the vault must add it."
        ),
    ))
}
