//! `vault publishers list`: who may publish this vault, who may change its keys, and who asks to
//! publish.

use serde_json::json;
use vault_api::{Draft, DraftKind};
use vault_format::{keys::PublicKey, root::KeyFingerprint};
use vault_library::Vault;

use crate::{
    context::Context,
    errors::Failure,
    key_changes,
    output::{BOLD, HINT, Report, Table, clean, count, either, paint},
    service::{connection::Connection, drafts::DraftClient},
};

/// The requests to publish that wait at the connected service; empty if it can't be asked.
fn waiting(context: &Context) -> Result<Vec<Draft>, Failure> {
    let Some(connection) = Connection::find(context)? else {
        return Ok(Vec::new());
    };
    let asked = connection.owner(context).and_then(|client| {
        let drafts = DraftClient::new(&client, &connection);
        context.block_on(drafts.list(false))
    });
    match asked {
        Ok(mut drafts) => {
            drafts.retain(|draft| draft.kind == DraftKind::KeyRequest);
            Ok(drafts)
        }
        Err(failure) => {
            let address = connection.address();
            let text = format!(
                "could not ask {address} who wants to publish: {}",
                failure.message
            );
            let hint = failure.hint.unwrap_or_default();
            context.ui.warn_with("requests_unknown", text, hint);
            Ok(Vec::new())
        }
    }
}

/// Lists the keys of the newest version.
pub(super) fn run(context: &Context, vault: &Vault) -> Result<Report, Failure> {
    let trust = vault.require_trust()?;
    let document = trust.chain().document();
    let here = vault.keys().list()?;
    let mut table = Table::new(&["name", "fingerprint", "may"]);
    let mut keys = Vec::new();
    let mut entries: Vec<_> = document.keys().iter().collect();
    // The document orders keys by their text, which says nothing to a person.
    entries.sort_by_key(|entry| {
        let publishes = document.release().contains(&entry.public_key);
        (!publishes, entry.name.as_str())
    });
    for entry in entries {
        let key: &PublicKey = &entry.public_key;
        let (publishes, changes) = (
            document.release().contains(key),
            document.root().contains(key),
        );
        let fingerprint = KeyFingerprint::publisher(key);
        let may = match (publishes, changes) {
            (true, true) => "publish, change keys",
            (true, false) => "publish",
            _ => "change keys (recovery key)",
        };
        let name = document.shown_name(key);
        let name = name.map_or_else(String::new, |name| name.to_string());
        let on_this_machine = here.contains(key);
        let mark = either(on_this_machine, ", this machine", "");
        table.row([
            paint(BOLD, clean(&name, 64)),
            fingerprint.to_string(),
            format!("{may}{mark}"),
        ]);
        keys.push(json!({
            "name": entry.name, "fingerprint": fingerprint, "public_key": key,
            "publishes": publishes, "changes_keys": changes, "here": on_this_machine,
        }));
    }
    let (version, needed) = (trust.chain().version(), document.release().threshold());
    let revoked = document.revoked();
    let mut text = table.text();
    text.push_str(&format!("\nversion {version} of the keys"));
    if needed > 1 {
        text.push_str(&format!(", {needed} publishers sign each release"));
    }
    if !revoked.is_empty() {
        text.push_str(&format!(", {} revoked", count(revoked.len(), "key")));
    }
    let requests = waiting(context)?;
    for request in &requests {
        let Some(key) = &request.key else { continue };
        let author = &request.submitted_by;
        let who = author.name();
        text.push_str(&format!(
            "\n{} asks to publish: {}  (by {})\n  compare it with what that machine shows, then: {}",
            paint(BOLD, clean(key.name.as_str(), 64)),
            key.fingerprint,
            clean(who, 80),
            paint(HINT, key_changes::add_command(&trust, &key.fingerprint))
        ));
    }
    Ok(Report::new(
        json!({
            "vault_id": vault.id(), "fingerprint": trust.fingerprint(), "root_version": version,
            "release_threshold": needed, "keys": keys, "revoked": revoked, "requests": requests,
        }),
        text,
    ))
}
