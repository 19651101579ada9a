//! `vault publishers`: shows who may publish this vault and who may change its keys.

use clap::{Args, Subcommand};
use serde_json::json;
use vault_format::{keys::PublicKey, root::KeyFingerprint};

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Report, Table, clean, count, paint},
};

/// The arguments of `vault publishers`.
#[derive(Args, Debug)]
#[command(after_help = "\
A publisher is a key that signs skills and releases. Only the recovery key can change who is a \
publisher.

Examples:
  vault publishers list
  vault publishers list --json")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List every key of the vault, what it may do, and the revoked keys
    List,
}

/// Lists the keys of the newest version.
pub fn run(context: &Context, arguments: &Arguments) -> Result<Report, Failure> {
    let Action::List = arguments.action;
    let vault = context.vault()?;
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
        let on_this_machine = here.contains(key);
        let mark = if on_this_machine {
            ", this machine"
        } else {
            ""
        };
        table.row([
            paint(BOLD, clean(entry.name.as_str(), 64)),
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
    Ok(Report::new(
        json!({
            "vault_id": vault.id(), "fingerprint": trust.fingerprint(), "root_version": version,
            "release_threshold": needed, "keys": keys, "revoked": revoked,
        }),
        text,
    ))
}
