//! Publishes a change of keys to every namespace (address at a service) under which this machine
//! knows the vault.

use serde_json::{Value, json};
use vault_library::{
    Vault,
    publish::{self, PublishOutcome},
};

use super::{Publisher, SyncOptions};
use crate::{
    context::Context,
    errors::{ErrorCode, Failure},
    output::{DIM, TICK, Warning, clean},
    service::connection::Connection,
};

/// What to publish after a change of keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyPublication {
    /// A new release, signed under the new keys.
    Release,
    /// The new root versions with the current release as it is, even if its signer was revoked.
    /// Linked machines then wait for a release under the new keys.
    Keys,
}

/// Returns every namespace that this vault is published to or connected with.
pub fn known_namespaces(context: &Context, vault: &Vault) -> Result<Vec<Connection>, Failure> {
    let mut connections: Vec<Connection> = Connection::find(context)?.into_iter().collect();
    for state in publish::state::list_states(vault)? {
        // An address that cannot be parsed cannot be reached, and must not stop the others.
        let Ok(base) = state.base.parse() else {
            continue;
        };
        let connection = Connection {
            base,
            slug: state.slug,
        };
        // The connected namespace usually has a record as well.
        if connections
            .iter()
            .all(|one| one.address() != connection.address())
        {
            connections.push(connection);
        }
    }
    Ok(connections)
}

/// Returns every namespace to which this machine has published a release of this vault.
pub fn published_namespaces(context: &Context, vault: &Vault) -> Result<Vec<Connection>, Failure> {
    let mut connections = Vec::new();
    for connection in known_namespaces(context, vault)? {
        let state = publish::state::read_state(vault, connection.base.as_str(), &connection.slug)?;
        if state.is_some_and(|state| state.published.is_some()) {
            connections.push(connection);
        }
    }
    Ok(connections)
}

/// Applies newer root versions that the services show, so that the next change of keys does not
/// fork from them. Fails only if a service shows keys that contradict this machine's. Other
/// failures are warnings, because a service must not be able to prevent a change of keys.
pub fn apply_newer_keys(context: &Context, vault: &Vault) -> Result<(), Failure> {
    for connection in published_namespaces(context, vault)? {
        let outcome = Publisher::new(context, vault, &connection)
            .and_then(|publisher| context.block_on(publisher.apply_shown_keys()));
        match outcome {
            Err(failure) if failure.code == ErrorCode::RootForked => return Err(failure),
            Err(failure) => {
                let address = connection.address();
                let text = format!(
                    "could not ask {address} for newer keys: {}",
                    failure.message
                );
                let hint = failure.hint.unwrap_or_default();
                context
                    .ui
                    .warn(Warning::new("keys_unknown", text).hint(hint));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Fails if a service shows another publisher's release that this machine has not taken over: a
/// change of keys could make it invalid. A service that cannot be asked is skipped.
pub fn require_taken_over(context: &Context, vault: &Vault) -> Result<(), Failure> {
    for connection in published_namespaces(context, vault)? {
        let asked = Publisher::new(context, vault, &connection)
            .and_then(|publisher| context.block_on(publisher.unseen_release()));
        // If a failure stopped the command, a service could prevent the revocation of a stolen key.
        if let Ok(Some(release)) = asked {
            let address = connection.address();
            return Err(fail!(
                SyncFirst,
                "{address} has release {release} of another publisher, which this machine has not taken over"
            )
            .hint("nothing was changed; sync first, then run the command again: vault sync"));
        }
    }
    Ok(())
}

/// Publishes to every namespace, and warns of each failure. Returns the lines for people and one
/// entry per namespace for `--json`.
pub fn publish_everywhere(
    context: &Context,
    vault: &Vault,
    what: KeyPublication,
) -> Result<(Vec<String>, Vec<Value>), Failure> {
    let (mut lines, mut data) = (Vec::new(), Vec::new());
    let targets = match what {
        // A change of keys alone is no reason for a first release.
        KeyPublication::Release => published_namespaces(context, vault)?,
        KeyPublication::Keys => known_namespaces(context, vault)?,
    };
    for connection in targets {
        let address = connection.address();
        match publish_one(context, vault, &connection, what) {
            Ok(line) => {
                lines.push(format!("{TICK} {address}: {line}"));
                data.push(json!({ "address": address, "reached": true }));
            }
            Err(failure) => {
                let text = format!(
                    "{address} does not know the new keys yet: {}",
                    failure.message
                );
                let hint = failure.hint.unwrap_or_default();
                let again = match what {
                    KeyPublication::Release => "vault sync --cloud publishes them",
                    KeyPublication::Keys => "run the command again, or vault sync --cloud",
                };
                let hint = if hint.is_empty() {
                    again.to_owned()
                } else {
                    format!("{hint}; then {again}")
                };
                context
                    .ui
                    .warn(Warning::new("not_published", text).hint(hint));
                data.push(json!({ "address": address, "reached": false }));
            }
        }
    }
    if data.is_empty() {
        lines.push(format!(
            "{DIM}This vault is not published anywhere, so no other machine is affected.{DIM:#}"
        ));
    }
    Ok((lines, data))
}

fn publish_one(
    context: &Context,
    vault: &Vault,
    connection: &Connection,
    what: KeyPublication,
) -> Result<String, Failure> {
    let publisher = Publisher::new(context, vault, connection)?;
    // List the proposals before the change of keys, which makes them invalid. A service that fails
    // to list them must not prevent the change.
    let waiting = context
        .block_on(publisher.list_proposals())
        .unwrap_or_default();
    let line = publish_to(context, &publisher, what)?;
    for draft in waiting {
        let author = &draft.submitted_by;
        let author = clean(author.display_name(), 64);
        let text = format!(
            "the keys have changed, so proposal {} by {author} ends",
            draft.id
        );
        let hint = "its author proposes the release again: vault sync";
        context
            .ui
            .warn(Warning::new("proposal_outdated", text).hint(hint));
    }
    Ok(line)
}

fn publish_to(
    context: &Context,
    publisher: &Publisher<'_>,
    what: KeyPublication,
) -> Result<String, Failure> {
    Ok(match what {
        KeyPublication::Release => {
            // With the default options, a sync stops if another publisher was faster, so this takes
            // nothing over.
            let outcome = context.block_on(publisher.sync_release(&SyncOptions::default()))?;
            let release = outcome.release();
            match outcome.published {
                PublishOutcome::Proposed(_, draft) => format!(
                    "release {release} is proposed under the new keys, and another publisher signs it: \
                     vault release sign {}",
                    draft.id
                ),
                _ => format!("release {release} is published under the new keys"),
            }
        }
        KeyPublication::Keys if context.block_on(publisher.push_roots())? => {
            "the service has the new keys, and linked machines wait for a release under them"
                .to_owned()
        }
        KeyPublication::Keys => "there was nothing to change".to_owned(),
    })
}
