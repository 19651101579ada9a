//! `vault key heal`: ends a fork of the vault's keys. A fork exists if two different root versions
//! (versions of the list of keys) with the same number were signed. This command signs this
//! machine's list again under a number above both, so that every machine follows it.

use clap::Args;
use vault_library::{
    Vault,
    roots::{self, KeyChange},
};

use super::{RootKey, open_for_change, publication_effect, publish_key_change};
use crate::{
    context::Context, errors::Failure, output::Report,
    tasks::publishing::everywhere::KeyPublication,
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    root_key: RootKey,
    /// The highest root version that any machine has seen, as `vault status --cloud` shows it
    #[arg(long, value_name = "N")]
    above: u64,
}

/// Asks, signs root versions until their number is above `--above`, and publishes them.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let change = KeyChange::Heal;
    // Open the recovery key before the question, so that the user is not asked in vain.
    let mut root_key = open_for_change(context, vault, &arguments.root_key, &change)?;
    let (above, version) = (arguments.above, vault.require_trust()?.chain().version());
    context.ui.confirm_step(
        "Make this machine's list of keys the valid one everywhere?",
        &[
            format!("Machines with another list, up to version {above}, replace it with this one and warn their users"),
            "Keys that only the other list has can no longer publish".to_owned(),
            publication_effect(context, vault, KeyPublication::Release)?,
        ],
    )?;
    let report = roots::heal_fork(vault, root_key.as_mut(), above)?;
    // The version may already be high enough, for example after an interrupted run.
    let done = if version > above {
        format!("the keys already have a version above {above}")
    } else {
        format!("signed the keys again, up to version {}", report.changes.to)
    };
    Ok(publish_key_change(
        context,
        vault,
        &report,
        &done,
        Some(KeyPublication::Release),
    )?
    .into())
}
