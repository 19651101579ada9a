//! `vault publishers threshold`: sets how many publishers must sign each release.

use clap::Args;
use vault_library::{
    Vault,
    roots::{self, KeyChange},
};

use crate::{
    commands::trust::key::{
        RootKey, apply_keys_of_services, open_for_change, publication_effect_with,
        publish_key_change,
    },
    context::Context,
    errors::Failure,
    output::{HINT, Report, count},
    tasks::publishing::everywhere::{self, KeyPublication},
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// How many, 1 to 4 and at most the number of publishers
    #[arg(value_name = "N", value_parser = parse_threshold)]
    needed: u8,
    #[command(flatten)]
    root_key: RootKey,
}

/// Parses the number of publishers that must sign a release, 1 to 4.
fn parse_threshold(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(needed @ 1..=4) => Ok(needed),
        Ok(0) => Err("release threshold 0 is too low: vault allows 1 to 4".to_owned()),
        Ok(needed) => Err(format!(
            "release threshold {needed} is too high: vault allows 1 to 4"
        )),
        Err(_) => Err("write a number from 1 to 4".to_owned()),
    }
}

/// Asks, signs the new threshold into the list of keys, and publishes it.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let needed = usize::from(arguments.needed);
    apply_keys_of_services(context, vault)?;
    let change = KeyChange::Threshold(needed);
    let mut root_key = open_for_change(context, vault, &arguments.root_key, &change)?;
    everywhere::require_taken_over(context, vault)?;
    // This machine alone cannot complete a release that needs several signatures, so publish only
    // the keys.
    let what = if needed > 1 {
        KeyPublication::Keys
    } else {
        KeyPublication::Release
    };
    let publishers = count(u64::from(arguments.needed), "publisher");
    context.ui.confirm_step(
        &format!("Require the signatures of {publishers} for each release?"),
        &[
            "Linked machines take a new release only with that many signatures".to_owned(),
            publication_effect_with(context, vault, what, needed)?,
        ],
    )?;
    let report = roots::set_threshold(vault, root_key.as_mut(), needed)?;
    let done_text = format!("each release needs the signatures of {publishers}");
    let mut done = publish_key_change(context, vault, &report, &done_text, Some(what))?;
    if needed > 1 {
        done.text.push_str(&format!(
            "\nLinked machines wait for a release with these signatures: \
             {HINT}vault sync{HINT:#} proposes one, and another publisher signs it with \
             {HINT}vault release sign{HINT:#}"
        ));
    }
    Ok(done.into())
}
