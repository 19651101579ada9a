//! `vault publishers add`: makes a key a publisher: a key of this machine, or one of another
//! machine that has requested it.

use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};
use vault_api::{Draft, DraftKind, Role, RoleChange, User};
use vault_format::{
    keys::PublicKey,
    root::{KeyEntry, KeyFingerprint, KeyName, KeyRequest, KeyStanding},
};
use vault_library::{
    Vault, publish,
    roots::{self, KeyChange},
};
use vault_service::error::ErrorCode as ServiceCode;

use crate::{
    commands::trust::key::{
        ChangedKeys, RootKey, apply_keys_of_services, open_for_change, parse_key_name,
        publication_effect, publish_key_change,
    },
    context::Context,
    errors::Failure,
    output::{Report, ViewWithText, Warning, clean},
    service::{
        OwnerClient, confirmation::send_confirmed, connection::Connection, drafts::DraftClient,
        sign_in::ready_client,
    },
    tasks::{
        key_changes,
        publishing::everywhere::{self, KeyPublication},
    },
};

#[derive(Args, Debug)]
pub(super) struct Arguments {
    /// The whole fingerprint of the key, as `vault publishers request` printed it on that machine
    #[arg(value_name = "FINGERPRINT")]
    fingerprint: KeyFingerprint,
    /// The name of the key in the list of publishers [default: the requested name]
    #[arg(long, value_name = "NAME", value_parser = parse_key_name)]
    name: Option<KeyName>,
    #[command(flatten)]
    root_key: RootKey,
}

/// A key that is to become a publisher, and the request for it; a key of this machine has none.
struct Candidate {
    key: PublicKey,
    name: KeyName,
    request: Option<Draft>,
}

/// Asks, makes the key a publisher, publishes the new keys, and closes the request. Every step can
/// be repeated after an interruption.
pub(super) fn run(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Report, Failure> {
    apply_keys_of_services(context, vault)?;
    let candidate = find_candidate(context, vault, arguments)?;
    let Candidate { key, name, request } = &candidate;
    let standing = vault.require_trust()?.roots().standing(key);
    let entry = KeyEntry {
        public_key: *key,
        name: name.clone(),
    };
    let root_key = match standing {
        // An earlier run has added the key and was interrupted, so no key is needed to sign.
        KeyStanding::Release => None,
        _ => open_for_change(
            context,
            vault,
            &arguments.root_key,
            &KeyChange::Add(entry.clone()),
        )?,
    };
    // Sign in before the question, so that a yes is not followed by a failed sign-in.
    let signed_in = request
        .as_ref()
        .map(|_| sign_in_as_owner(context))
        .transpose()?;
    let shown = clean(name.as_str(), 64);
    let fingerprint = KeyFingerprint::publisher(key);
    let who = request.as_ref().map_or_else(String::new, |request| {
        let author = &request.submitted_by;
        let who = author.display_name();
        format!(", requested by {}", clean(who, 80))
    });
    let what = content_to_publish(vault, false)?;
    context.ui.confirm_step(
        &format!("Let {shown} ({fingerprint}{who}) publish this vault?"),
        &[
            "This key may sign any skill and any release of the vault".to_owned(),
            publication_effect(context, vault, what)?,
        ],
    )?;
    // Change the role before the keys, because the service may require a confirmation in the
    // browser.
    if let (Some(request), Some((client, _))) = (request, &signed_in) {
        let_upload(context, request, client)?;
    }
    let mut done = if standing == KeyStanding::Release {
        publish_again(
            context,
            vault,
            false,
            &format!("{shown} is a publisher already"),
        )?
    } else {
        let mut root_key = root_key;
        let report = roots::add_publisher(vault, root_key.as_mut(), entry)?;
        publish_key_change(
            context,
            vault,
            &report,
            &format!("added the publisher {shown}"),
            Some(what),
        )?
    };
    done.view.fingerprint_added = Some(fingerprint);
    if let (Some(request), Some((client, connection))) = (request, &signed_in) {
        finish_request(context, vault, request, client, connection)?;
    }
    Ok(done.into())
}

/// Returns a client that is signed in as owner at the connected service, and the connection. Fails
/// if the account is no owner there.
fn sign_in_as_owner(context: &Context) -> Result<(OwnerClient, Connection), Failure> {
    let connection = Connection::load(context)?;
    let client = context.block_on(ready_client(context, &connection))?;
    // Only owners may list users. This makes any other account fail now, before the keys change.
    let _: Value = context.block_on(client.get("/admin/users?limit=1"))?;
    Ok((client, connection))
}

/// Returns what to publish after a change of keys: only the keys if a key was revoked or if
/// releases need several signatures, otherwise a release.
pub(super) fn content_to_publish(
    vault: &Vault,
    is_revoked: bool,
) -> Result<KeyPublication, Failure> {
    let trust = vault.require_trust()?;
    let alone = trust.chain().document().release().threshold() == 1;
    Ok(if alone && !is_revoked {
        KeyPublication::Release
    } else {
        KeyPublication::Keys
    })
}

/// Publishes a change of keys that an earlier, interrupted run has made, and creates the report.
pub(super) fn publish_again(
    context: &Context,
    vault: &Vault,
    is_revoked: bool,
    done: &str,
) -> Result<ViewWithText<ChangedKeys>, Failure> {
    let what = content_to_publish(vault, is_revoked)?;
    let (service_lines, published) = everywhere::publish_everywhere(context, vault, what)?;
    let mut lines = vec![done.to_owned()];
    lines.extend(service_lines);
    let view = ChangedKeys {
        published,
        ..ChangedKeys::default()
    };
    let text = lines.join("\n");
    Ok(ViewWithText { view, text })
}

/// Finds the key with the given fingerprint: on this machine, in a pending request at the service,
/// or among the publishers, if an earlier run has added it.
fn find_candidate(
    context: &Context,
    vault: &Vault,
    arguments: &Arguments,
) -> Result<Candidate, Failure> {
    let wanted = &arguments.fingerprint;
    let named = |key: &PublicKey| {
        let name = arguments.name.clone();
        name.unwrap_or_else(|| KeyName::default_for(key))
    };
    // A key of this machine needs no request.
    let mut own_keys = vault.keys().list()?.into_iter();
    if let Some(key) = own_keys.find(|key| wanted.matches(key)) {
        return Ok(Candidate {
            name: named(&key),
            key,
            request: None,
        });
    }
    let connection = Connection::load(context)?;
    let client = connection.owner_client(context)?;
    let drafts = DraftClient::new(&client, &connection);
    let waiting = context.block_on(drafts.list(false))?;
    let mut requests = waiting.into_iter().filter(|draft| {
        let key = draft.key.as_ref();
        draft.kind == DraftKind::KeyRequest
            && key.is_some_and(|key| wanted.matches(&key.public_key))
    });
    let Some(request) = requests.next() else {
        // An earlier run may have added the key and closed the request.
        let trust = vault.require_trust()?;
        let document = trust.chain().document();
        let mut publishers = document.release().keys().iter();
        if let Some(key) = publishers.find(|key| wanted.matches(key)) {
            let name = document.name_of(key).cloned();
            return Ok(Candidate {
                name: name.unwrap_or_else(|| KeyName::default_for(key)),
                key: *key,
                request: None,
            });
        }
        return Err(fail!(KeyUnknown, "no machine asks to publish with the key {wanted}").hint(
            "run vault publishers request <url>/v/<slug> on that machine; vault publishers list shows all requests",
        ));
    };
    // The list is only the service's claim. The signed request proves which key it is about.
    let bytes = context.block_on(drafts.fetch_bytes(&request))?;
    let verified_request =
        KeyRequest::verify(&bytes, *vault.id(), &connection.slug).map_err(|error| {
            fail!(
                ManifestSignature,
                "the request of {wanted} does not count: {error}"
            )
            .hint(format!(
                "vault drafts decline {} --reason \"…\"",
                request.id
            ))
        })?;
    if !wanted.matches(&verified_request.public_key) {
        return Err(fail!(
            ManifestSignature,
            "the service shows a request of another key as that of {wanted}"
        ));
    }
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => {
            let add = key_changes::add_command(&vault.require_trust()?, wanted);
            requested_name(verified_request.name, &add)?
        }
    };
    Ok(Candidate {
        key: verified_request.public_key,
        name,
        request: Some(request),
    })
}

/// Returns the name that the other machine requests for its key. Fails if the name could be read as
/// two names, as the state of a key or as a fingerprint; the owner must then choose another.
fn requested_name(name: KeyName, add: &str) -> Result<KeyName, Failure> {
    if let Err(error) = name.check_new() {
        let shown = clean(name.as_str(), 64);
        return Err(
            fail!(Usage, "the request asks for the name `{shown}`: {error}")
                .hint(format!("give the key another name: {add} --name <name>")),
        );
    }
    Ok(name)
}

/// Gives the account that sent the request the role of a publisher, so that it can upload. Fails if
/// the service requires a confirmation that is missing or declined. Any other failure is only a
/// warning, because the key is valid without the role.
fn let_upload(context: &Context, request: &Draft, client: &OwnerClient) -> Result<(), Failure> {
    let user = &request.submitted_by.user_id;
    let role = context.block_on(set_role(
        context,
        client,
        user,
        (Role::Member, Role::Publisher),
    ));
    match role {
        Ok(_) => Ok(()),
        Err(failure)
            if failure.code == ServiceCode::ConfirmationNeeded
                || failure.code == ServiceCode::ConfirmationDeclined =>
        {
            Err(failure)
        }
        Err(failure) => {
            let who = clean(request.submitted_by.display_name(), 80);
            let text = format!("{who} may not upload yet: {}", failure.message);
            let hint = role_hint(&failure, &who, "publisher");
            context.ui.warn_with("role_unchanged", text, hint);
            Ok(())
        }
    }
}

/// Closes the request at the service. A failure is only a warning, because the key is already a
/// publisher.
fn finish_request(
    context: &Context,
    vault: &Vault,
    request: &Draft,
    client: &OwnerClient,
    connection: &Connection,
) -> Result<(), Failure> {
    let state = publish::state::read_state(vault, connection.base.as_str(), &connection.slug)?;
    let release = state.and_then(|state| state.published);
    let release = release.map_or(0, |published| published.release);
    let drafts = DraftClient::new(client, connection);
    if let Err(failure) = context.block_on(drafts.accept(&request.id, release, None)) {
        let text = format!("the request {} stays open: {}", request.id, failure.message);
        context.ui.warn(Warning::new("draft_open", text));
    }
    Ok(())
}

/// Changes the role of a user from `from` to `to`. Returns `None` and changes nothing if the user
/// has another role.
pub(super) async fn set_role(
    context: &Context,
    client: &OwnerClient,
    user: &str,
    (from, to): (Role, Role),
) -> Result<Option<Value>, Failure> {
    let users: Vec<User> = client.list("/admin/users").await?;
    // Change only the expected role, so that an owner never becomes a mere publisher.
    if !users.iter().any(|it| it.id == user && it.role == from) {
        return Ok(None);
    }
    let path = format!("/admin/users/{user}/role");
    let body = json!(RoleChange { role: to.into() });
    let changed = send_confirmed(context, client, Method::PUT, &path, Some(body));
    changed.await.map(Some)
}

/// Returns the hint for a role that could not be changed.
pub(super) fn role_hint(failure: &Failure, who: &str, role: &str) -> String {
    let first = match &failure.hint {
        // The keys have changed already, so do not repeat the hint to run this command again.
        _ if failure.code == ServiceCode::ConfirmationNeeded => {
            "run this and confirm in the browser: ".to_owned()
        }
        Some(hint) => format!("{hint}; then "),
        None => String::new(),
    };
    format!("{first}vault users role {who} {role}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requested_name_that_reads_as_something_else_needs_another() {
        let add = "vault publishers add pub:abcd";
        let name: KeyName = "bob (revoked)".parse().unwrap();
        let failure = requested_name(name, add).unwrap_err();
        assert_eq!(
            failure.message,
            "the request asks for the name `bob (revoked)`: key name must not contain \
             parentheses: vault writes the state of a key in them"
        );
        assert_eq!(
            failure.hint.as_deref(),
            Some("give the key another name: vault publishers add pub:abcd --name <name>")
        );
        assert!(requested_name("bob".parse().unwrap(), add).is_ok());
    }
}
