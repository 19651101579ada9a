//! `vault publishers remove`: takes a key out of the vault's keys.

use clap::Args;
use serde_json::{Value, json};
use vault_format::{
    keys::PublicKey,
    root::{KeyFingerprint, KeyStanding},
};
use vault_library::{Vault, roots};

use super::add::{publish_again, publish_change, set_role};
use crate::{
    commands::trust::key::{RootKey, changed, published_to},
    context::Context,
    errors::Failure,
    key_changes,
    output::{Report, Warning, clean},
    publishing::everywhere,
    service::{
        connection::Connection,
        drafts::{DraftClient, DraftKind},
    },
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The key's name or fingerprint
    #[arg(value_name = "KEY")]
    key: String,
    /// The key may be in the wrong hands: nothing that it signed counts any more
    #[arg(long)]
    revoke: bool,
    #[command(flatten)]
    root_key: RootKey,
}

/// Removes the key, after a question.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let trust = vault.require_trust()?;
    let shown = clean(&arguments.key, 80);
    let key = roots::find_key(trust.chain(), &arguments.key)
        .map_err(|error| key_changes::not_found(&arguments.key, error))?;
    let fingerprint = KeyFingerprint::publisher(&key);
    let name = trust.chain().document().name_of(&key);
    let name = name.map_or_else(|| shown.clone(), |name| clean(name.as_str(), 64));
    let stays = if arguments.revoke {
        "Nothing that it signed counts any more; its skills are listed and signed again with your key"
    } else {
        "What it signed stays valid, and it signs nothing more"
    };
    context.ui.confirm_step(
        &format!("Remove {name} ({fingerprint}) from the publishers?"),
        &[stays.to_owned(), published_to(context, vault)?],
    )?;
    everywhere::take_newer_keys(context, vault)?;
    let verb = if arguments.revoke {
        "revoked"
    } else {
        "removed"
    };
    let is_done = match vault.require_trust()?.roots().standing(&key) {
        KeyStanding::Revoked => true,
        KeyStanding::Retired => !arguments.revoke,
        KeyStanding::Release | KeyStanding::RootOnly | KeyStanding::Unknown => false,
    };
    let mut done = if is_done {
        // An earlier run has removed the key and ended before the rest.
        publish_again(
            context,
            vault,
            arguments.revoke,
            &format!("{name} is {verb} already"),
        )?
    } else {
        enough_are_left(vault, &key)?;
        let mut root_key = arguments.root_key.open(context)?;
        let report = roots::remove_key(vault, root_key.as_mut(), &key, arguments.revoke)?;
        let what = publish_change(vault, arguments.revoke)?;
        let done = format!("{verb} {name}");
        changed(context, vault, &report, &done, Some(what))?
    };
    done.data["fingerprint_removed"] = json!(fingerprint);
    if let Err(failure) = end_role(context, &key) {
        let text = format!(
            "the account of {name} may still upload: {}",
            failure.message
        );
        let hint = format!(
            "{}vault users role <address> member",
            failure
                .hint
                .map_or_else(String::new, |hint| format!("{hint}; then "))
        );
        context
            .ui
            .warn(Warning::new("role_unchanged", text).hint(hint));
    }
    Ok(done)
}

/// Fails if the publishers without this one are fewer than a release needs.
fn enough_are_left(vault: &Vault, key: &PublicKey) -> Result<(), Failure> {
    let trust = vault.require_trust()?;
    let release = trust.chain().document().release();
    let left = release.keys().iter().filter(|one| *one != key).count();
    if left == 0 || left >= release.threshold() {
        return Ok(());
    }
    Err(fail!(
        RootNotMade,
        "each release needs the signatures of {} publishers, and {left} would be left",
        release.threshold()
    )
    .hint(format!(
        "lower the number first: vault publishers threshold {left} --root-key <file>"
    )))
}

/// Makes the account that asked for this key a member again.
fn end_role(context: &Context, key: &PublicKey) -> Result<(), Failure> {
    let Some(connection) = Connection::find(context)? else {
        return Ok(());
    };
    let client = connection.owner(context)?;
    let drafts = DraftClient::new(&client, &connection);
    let asked = context.block_on(drafts.list(true))?;
    let mut requests = asked.iter().rev().filter(|draft| {
        let same = draft.key.as_ref().map(|asked| asked.public_key) == Some(*key);
        same && draft.kind == DraftKind::KeyRequest
    });
    let Some(request) = requests.next() else {
        return Ok(());
    };
    let user = &request.submitted_by.user_id;
    let _: Option<Value> =
        context.block_on(set_role(&client, user, "role:publisher", "role:member"))?;
    Ok(())
}
