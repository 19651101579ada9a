//! `vault key rotate`: replaces this machine's key by a new one.

use clap::Args;
use vault_format::root::KeyName;
use vault_library::{
    Vault,
    roots::{self, KeyChange},
};

use super::{
    RootKey, apply_keys_of_services, open_for_change, publication_effect, publish_key_change,
};
use crate::{
    commands::trust::new_key::NewKey,
    context::Context,
    errors::Failure,
    output::Report,
    tasks::publishing::everywhere::{self, KeyPublication},
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    root_key: RootKey,
    /// The name of the new key in the list of publishers
    #[arg(long, value_name = "NAME", value_parser = parse_key_name)]
    name: Option<KeyName>,
    #[command(flatten)]
    new_key: NewKey,
}

/// Parses the name of a key, as the list of publishers shows it.
pub fn parse_key_name(text: &str) -> Result<KeyName, String> {
    KeyName::normalized(text).map_err(|error| error.to_string())
}

/// Asks, replaces the key, and publishes a release under the new keys.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    // The new root version must follow the newest one at any service. Two versions with the same
    // number would be a fork.
    apply_keys_of_services(context, vault)?;
    // Under the new keys, another publisher's release that was not taken over yet might become
    // invalid.
    everywhere::require_taken_over(context, vault)?;
    let change = KeyChange::Rotate;
    let mut root_key = open_for_change(context, vault, &arguments.root_key, &change)?;
    context.ui.confirm_step(
        "Replace this machine's key with a new one?",
        &[
            "The old key is deleted; skills that it signed stay valid".to_owned(),
            "Linked machines follow automatically".to_owned(),
            publication_effect(context, vault, KeyPublication::Release)?,
        ],
    )?;
    let name = arguments.name.clone();
    let report = match arguments.new_key.prepare(context)? {
        Some(key) => roots::rotate_to_agent(vault, root_key.as_mut(), name, key)?,
        None => roots::rotate_key(vault, root_key.as_mut(), name)?,
    };
    let done = publish_key_change(
        context,
        vault,
        &report,
        "replaced this machine's key",
        Some(KeyPublication::Release),
    )?;
    Ok(done.into())
}
