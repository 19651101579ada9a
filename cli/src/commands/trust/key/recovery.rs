//! `vault key recovery check`: checks that a recovery key can change this vault's keys. With
//! `--renew`, also extends the date until which releases of the vault are valid.

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use vault_format::root::{KeyFingerprint, VaultId};
use vault_library::{Vault, recovery, roots};
use vault_store::clock::{Clock as _, SystemClock};

use super::{apply_keys_of_services, open_recovery, publication_effect, publish_key_change};
use crate::{
    context::Context,
    errors::Failure,
    output::{DIM, Report, TICK, either},
    tasks::publishing::everywhere::KeyPublication,
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The recovery key
    file: PathBuf,
    /// A version of the keys that some machine has seen, as `vault status` shows it there
    #[arg(long, value_name = "N")]
    at_least: Option<u64>,
    /// Extend how long the vault's releases are valid by this many months from now
    #[arg(long, value_name = "MONTHS", value_parser = parse_months)]
    renew: Option<Months>,
}

/// The value of `--renew`: a number of months, or `None` for no end.
#[derive(Clone, Copy, Debug)]
struct Months(Option<i64>);

/// Parses a number of months such as `12m`, or `never`. The format of the list of keys allows at
/// most 1,200 days, which is 39 months.
fn parse_months(text: &str) -> Result<Months, String> {
    if text == "never" {
        return Ok(Months(None));
    }
    let number = text.strip_suffix('m').and_then(|text| text.parse().ok());
    match number {
        Some(months @ 1..=39) => Ok(Months(Some(months))),
        _ => Err("write 1m to 39m, or never".to_owned()),
    }
}

/// The output of `vault key recovery check` for a file that belongs to the vault.
#[derive(Debug, JsonSchema, Serialize)]
pub struct RecoveryFile {
    /// Path of the recovery file.
    path: PathBuf,
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// The fingerprint of the recovery key.
    fingerprint: KeyFingerprint,
    /// Version of the newest list of keys in the file, counted from 1.
    root_version: u64,
    /// The addresses of the vault.
    addresses: Vec<String>,
    /// Whether a passphrase encrypts the file.
    encrypted: bool,
}

/// Checks the file, and with `--renew` signs and publishes a new expiry.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let mut key = open_recovery(context, &arguments.file)?;
    // Renewing signs a new root version, which must follow the newest one at any service. Two
    // versions with the same number would be a fork.
    if arguments.renew.is_some() {
        apply_keys_of_services(context, vault)?;
    }
    recovery::check_recovery_key(vault, &key, arguments.at_least)?;
    let path = arguments.file.display();
    if let Some(Months(months)) = arguments.renew {
        // A month counts as a twelfth of 365 days, so 39 months stay below the 1,200 days of the
        // format.
        let until = months.map(|months| SystemClock.now().plus_days(months * 365 / 12));
        let question = match until {
            Some(until) => format!("Make releases of this vault valid until {until}?"),
            None => "Make releases of this vault valid without an end date?".to_owned(),
        };
        context.ui.confirm_step(
            &question,
            &[
                "After that date, machines install nothing new until you renew with this file"
                    .to_owned(),
                publication_effect(context, vault, KeyPublication::Release)?,
            ],
        )?;
        let report = roots::set_expiry(vault, Some(&mut key), until)?;
        let done = match until {
            Some(until) => {
                format!("{path} belongs to this vault; the keys are renewed until {until}")
            }
            None => format!("{path} belongs to this vault; the keys no longer expire"),
        };
        return Ok(publish_key_change(
            context,
            vault,
            &report,
            &done,
            Some(KeyPublication::Release),
        )?
        .into());
    }
    let protected = either(
        key.is_encrypted(),
        "with a passphrase",
        "without a passphrase",
    );
    let (file, fingerprint) = (
        key.file(),
        KeyFingerprint::publisher(&key.file().key.public()),
    );
    let addresses = match &file.addresses[..] {
        [] => "none".to_owned(),
        some => some.join(", "),
    };
    let text = format!(
        "{TICK} {path} can recover this vault  ({protected})\n  {DIM}key        {DIM:#}{fingerprint}\n  \
         {DIM}addresses  {DIM:#}{addresses}"
    );
    let view = RecoveryFile {
        path: arguments.file.clone(),
        vault_id: file.vault_id,
        fingerprint,
        root_version: file.version,
        addresses: file.addresses.clone(),
        encrypted: key.is_encrypted(),
    };
    Ok(Report::view(view, text))
}
