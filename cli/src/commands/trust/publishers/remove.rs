//! `vault publishers remove`: removes a key from the vault's list of keys. What it signed stays
//! valid, unless it is *revoked*.

use clap::Args;
use serde_json::Value;
use vault_api::{DraftKind, Role, User};
use vault_format::{
    keys::PublicKey,
    root::{KeyFingerprint, KeyStanding},
};
use vault_library::{
    Vault,
    roots::{self, KeyChange},
};

use super::add::{content_to_publish, publish_again, role_hint, set_role};
use crate::{
    commands::trust::key::{
        RootKey, apply_keys_of_services, open_for_change, publication_effect, publish_key_change,
    },
    context::Context,
    errors::Failure,
    output::{Report, clean, either},
    service::{
        OwnerClient, connection::Connection, drafts::DraftClient, sign_in::ready_client,
        users::USERS,
    },
    tasks::{key_changes, publishing::everywhere},
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

/// Asks, removes the key, publishes the new keys, and ends the role of the account that had
/// requested it.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    let trust = vault.require_trust()?;
    let typed_key = clean(&arguments.key, 80);
    let key = roots::find_key(trust.chain(), &arguments.key)
        .map_err(|error| key_changes::key_not_found(&arguments.key, error))?;
    let fingerprint = KeyFingerprint::publisher(&key);
    let name = trust.chain().document().shown_name(&key);
    let name = name.map_or_else(|| typed_key.clone(), |name| clean(name.as_str(), 64));
    apply_keys_of_services(context, vault)?;
    // Read the keys only now: newer ones of the services may have removed this key already.
    let is_done = match vault.require_trust()?.roots().standing(&key) {
        KeyStanding::Revoked => true,
        KeyStanding::Retired => !arguments.revoke,
        KeyStanding::Release | KeyStanding::RootOnly | KeyStanding::Unknown => false,
    };
    let mut root_key = None;
    if !is_done {
        require_enough_left(vault, &key)?;
        let revoke = arguments.revoke;
        let change = KeyChange::Remove { key, revoke };
        root_key = open_for_change(context, vault, &arguments.root_key, &change)?;
        // Do not let an unseen release delay the revocation of a stolen key.
        if !revoke {
            everywhere::require_taken_over(context, vault)?;
        }
    }
    // Find the account before the question, because this may open the sign-in page.
    let account = find_account_of_key(context, &key);
    let stays = either(
        arguments.revoke,
        "Nothing that it signed counts any more; its skills are listed and signed again with your key",
        "What it signed stays valid, and it signs nothing more",
    );
    let what = content_to_publish(vault, arguments.revoke)?;
    let mut effects = vec![stays.to_owned(), publication_effect(context, vault, what)?];
    let sign_in = sign_in_left(context, &name, &account)?;
    effects.extend(sign_in.clone());
    context.ui.confirm_step(
        &format!("Remove {name} ({fingerprint}) from the publishers?"),
        &effects,
    )?;
    let verb = either(arguments.revoke, "revoked", "removed");
    let mut done = if is_done {
        // An earlier run has removed the key and was interrupted, so only publish.
        publish_again(
            context,
            vault,
            arguments.revoke,
            &format!("{name} is {verb} already"),
        )?
    } else {
        let report = roots::remove_key(vault, root_key.as_mut(), &key, arguments.revoke)?;
        let done = format!("{verb} {name}");
        publish_key_change(context, vault, &report, &done, Some(what))?
    };
    done.view.fingerprint_removed = Some(fingerprint);
    if let Some(line) = sign_in {
        done.text.push_str(&format!("\n{line}"));
    }
    let ended = account.and_then(|account| match account {
        Some(account) => account.end_role(context),
        None => Ok(()),
    });
    if let Err(failure) = ended {
        warn_role_unchanged(context, &name, &failure);
    }
    Ok(done.into())
}

/// Warns that the account of a removed key still has the role of a publisher. No failure, because
/// the key is removed by now.
fn warn_role_unchanged(context: &Context, name: &str, failure: &Failure) {
    let text = format!(
        "the account of {name} may still upload: {}",
        failure.message
    );
    let hint = role_hint(failure, "<address>", "member");
    context.ui.warn_with("role_unchanged", text, hint);
}

/// Fails if, without the key, fewer publishers are left than must sign a release.
fn require_enough_left(vault: &Vault, key: &PublicKey) -> Result<(), Failure> {
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

/// The account that had requested to make a key a publisher.
struct Account {
    client: OwnerClient,
    user: String,
    /// The account's e-mail address, or its id if the service does not show the address.
    label: String,
}

/// Finds the account that had requested this key, with a client that may change its role. Returns
/// `None` if there is no such request or the account no longer exists.
fn find_account_of_key(context: &Context, key: &PublicKey) -> Result<Option<Account>, Failure> {
    let Some(connection) = Connection::find(context)? else {
        return Ok(None);
    };
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, &connection);
    let all_drafts = context.block_on(drafts.list(true))?;
    let mut requests = all_drafts.iter().rev().filter(|draft| {
        let same = draft.key.as_ref().map(|asked| asked.public_key) == Some(*key);
        same && draft.kind == DraftKind::KeyRequest
    });
    let Some(request) = requests.next() else {
        return Ok(None);
    };
    let author = &request.submitted_by;
    let user = author.user_id.clone();
    let label = author.display_name().to_owned();
    let client = context.block_on(ready_client(context, &connection))?;
    let users: Vec<User> = context.block_on(client.list(USERS))?;
    // The account may have been removed since the request.
    if users.iter().all(|known| known.id != user) {
        return Ok(None);
    }
    Ok(Some(Account {
        client,
        user,
        label,
    }))
}

/// Formats the effect that the key's account stays signed in to the service, with the command that
/// ends that. Returns `None` if this vault is not connected.
fn sign_in_left(
    context: &Context,
    name: &str,
    account: &Result<Option<Account>, Failure>,
) -> Result<Option<String>, Failure> {
    let Some(connection) = Connection::find(context)? else {
        return Ok(None);
    };
    let address = connection.address();
    Ok(Some(match account {
        Ok(Some(account)) => {
            let label = clean(&account.label, 80);
            format!("{label} stays signed in to {address}; to end that: vault users remove {label}")
        }
        _ => format!(
            "If {name} has an account, it stays signed in to {address}; to end that: \
             vault users remove <e-mail>"
        ),
    }))
}

impl Account {
    /// Changes the account's role from publisher to member.
    fn end_role(self, context: &Context) -> Result<(), Failure> {
        let changed = set_role(
            context,
            &self.client,
            &self.user,
            (Role::Publisher, Role::Member),
        );
        context.block_on(changed).map(|_: Option<Value>| ())
    }
}
