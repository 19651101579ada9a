//! `vault cloud reset-pin`: makes the service forget the vault (the fingerprint of its keys) whose
//! releases it accepts in a namespace, so that another vault can publish there.

use clap::Args;
use reqwest::Method;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use vault_format::name::Slug;

use crate::{
    context::Context,
    errors::Failure,
    output::{HINT, Report, TICK},
    service::{confirmation::send_confirmed, connection::Connection, sign_in::ready_client},
};

/// The arguments of `vault cloud reset-pin`.
#[derive(Args, Debug)]
#[command(after_help = "\
Use this to publish a new vault in place of one whose keys are lost or that an earlier version \
created. The service asks you to confirm the reset in your browser, records it in its audit log, \
and shows it to every owner for 30 days.

Examples:
  vault cloud connect https://vault.example/v/team
  vault cloud reset-pin team")]
pub struct Arguments {
    /// The slug of the connected vault, to confirm
    slug: Slug,
}

/// The output of `vault cloud reset-pin`: the service no longer records which vault is published
/// at this slug.
#[derive(Debug, JsonSchema, Serialize)]
pub struct PinReset {
    /// The slug of the vault.
    slug: Slug,
    /// Address of the vault: `<service>/v/<slug>`.
    address: String,
    /// The vault that is pinned now: always null.
    pin: (),
}

/// Asks, and resets the pin at the service.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let connection = Connection::load(context)?;
    let slug = &connection.slug;
    let address = connection.address();
    // The user repeats the slug as a confirmation, because this folder may be connected to another
    // vault than the user thinks.
    if arguments.slug != *slug {
        let typed = &arguments.slug;
        return Err(fail!(
            SlugTwice,
            "this vault is connected to {slug}, not to {typed}"
        )
        .hint(format!("vault cloud reset-pin {slug}")));
    }
    // Sign in before the question, so that a yes is not followed by a failed sign-in.
    let client = context.block_on(ready_client(context, &connection))?;
    context.ui.confirm_step(
        "Reset the pin of the vault that publishes here?",
        &[
            format!("The next release at {address} may come from any vault"),
            "Machines that linked the old vault refuse the new one until they link it again"
                .to_owned(),
            "Every owner sees the reset for 30 days".to_owned(),
        ],
    )?;
    context.block_on(async {
        let path = format!("/admin/vaults/{slug}/pin/reset");
        let body = Some(json!({ "slug": slug }));
        let _: Value = send_confirmed(context, &client, Method::POST, &path, body).await?;
        let text = format!(
            "{TICK} {address} accepts the next release of any vault\n\
             Publish with: {HINT}vault sync --cloud{HINT:#}"
        );
        let (slug, pin) = (slug.clone(), ());
        Ok(Report::view(PinReset { slug, address, pin }, text))
    })
}
