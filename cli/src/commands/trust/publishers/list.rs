//! `vault publishers list`: lists the keys that may publish this vault, the keys that may change
//! the list of keys, and the requests to publish.

use schemars::JsonSchema;
use serde::Serialize;
use vault_api::{Draft, DraftKind};
use vault_format::{
    keys::PublicKey,
    root::{KeyFingerprint, KeyName, RevokedKey, RootDocument, VaultFingerprint, VaultId},
};
use vault_library::Vault;

use crate::{
    context::Context,
    errors::Failure,
    output::{BOLD, Column, HINT, Report, Table, clean, count, either, paint},
    service::{connection::Connection, drafts::DraftClient},
    tasks::key_changes,
};

/// The output of `vault publishers list`.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Publishers {
    /// Id of the vault: `vlt_` and 26 characters.
    vault_id: VaultId,
    /// Fingerprint of the vault, for people to compare: `vlt:<groups>/<version of its keys>`.
    fingerprint: VaultFingerprint,
    /// Version of the vault's signed list of keys, counted from 1.
    root_version: u64,
    /// The number of publishers that must sign each release.
    release_threshold: usize,
    /// Keys of the vault: publishers first, by name.
    keys: Vec<VaultKey>,
    /// Keys that were revoked, whose signatures no longer count.
    revoked: Vec<RevokedKey>,
    /// The requests that wait at the connected service.
    requests: Vec<Draft>,
}

/// A key in the signed list of keys of a vault.
#[derive(Debug, JsonSchema, Serialize)]
pub struct VaultKey {
    /// The name that its owner gave it.
    name: KeyName,
    /// Fingerprint of the key: `pub:` and 8 groups of 4 characters.
    fingerprint: KeyFingerprint,
    /// Public key (Ed25519): 43 characters of base64url.
    public_key: PublicKey,
    /// Whether its signature counts for releases.
    publishes: bool,
    /// Whether its signature counts for new versions of the list of keys.
    changes_keys: bool,
    /// Whether this machine can sign with it.
    here: bool,
}

/// Fetches the pending requests to publish from the connected service. If the service cannot be
/// asked, warns and returns none.
fn waiting_requests(context: &Context) -> Result<Vec<Draft>, Failure> {
    let Some(connection) = Connection::find(context)? else {
        return Ok(Vec::new());
    };
    let fetched_drafts = connection.owner_client(context).and_then(|client| {
        let drafts = DraftClient::new(&client, &connection);
        context.block_on(drafts.list(false))
    });
    match fetched_drafts {
        Ok(mut drafts) => {
            drafts.retain(|draft| draft.kind == DraftKind::KeyRequest);
            Ok(drafts)
        }
        // Only warn, because the keys are known without the service.
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

/// Lists the keys of the newest root version, and the requests.
pub(super) fn run(context: &Context, vault: &Vault) -> Result<Report, Failure> {
    let trust = vault.require_trust()?;
    let document = trust.chain().document();
    let own_keys = vault.keys().list()?;
    let keys = document.keys().iter().map(|entry| VaultKey {
        name: entry.name.clone(),
        fingerprint: KeyFingerprint::publisher(&entry.public_key),
        public_key: entry.public_key,
        publishes: document.release().contains(&entry.public_key),
        changes_keys: document.root().contains(&entry.public_key),
        here: own_keys.contains(&entry.public_key),
    });
    let mut keys: Vec<_> = keys.collect();
    // The document sorts keys by their encoded text, so sort them by role and name for people.
    keys.sort_by(|a, b| (!a.publishes, a.name.as_str()).cmp(&(!b.publishes, b.name.as_str())));
    let mut table = Table::new([
        Column::new("name").shrinks_to(10),
        Column::new("fingerprint").shrinks_last_to(19),
        Column::new("may").shrinks_to(16),
    ]);
    for key in &keys {
        table.push_row(key.to_row(document));
    }
    let (version, needed) = (trust.chain().version(), document.release().threshold());
    let revoked = document.revoked();
    let mut text = context.ui.format_table(&table);
    text.push_str(&format!("\nversion {version} of the keys"));
    if needed > 1 {
        text.push_str(&format!(", {needed} publishers sign each release"));
    }
    if !revoked.is_empty() {
        text.push_str(&format!(", {} revoked", count(revoked.len(), "key")));
    }
    // An untrusted service could show any key as a request, so the text asks to compare the
    // fingerprint.
    let requests = waiting_requests(context)?;
    for request in &requests {
        let Some(key) = &request.key else { continue };
        let author = &request.submitted_by;
        let who = author.display_name();
        text.push_str(&format!(
            "\n{} asks to publish: {}  (by {})\n  compare it with what that machine shows, then: {}",
            paint(BOLD, clean(key.name.as_str(), 64)),
            key.fingerprint,
            clean(who, 80),
            paint(HINT, key_changes::add_command(&trust, &key.fingerprint))
        ));
    }
    let publishers = Publishers {
        vault_id: *vault.id(),
        fingerprint: trust.fingerprint(),
        root_version: version,
        release_threshold: needed,
        keys,
        revoked: revoked.to_vec(),
        requests,
    };
    Ok(Report::view(publishers, text))
}

impl VaultKey {
    fn to_row(&self, document: &RootDocument) -> [String; 3] {
        let may = match (self.publishes, self.changes_keys) {
            (true, true) => "publish, change keys",
            (true, false) => "publish",
            _ => "change keys (recovery key)",
        };
        let name = document.shown_name(&self.public_key);
        let name = name.map_or_else(String::new, |name| name.to_string());
        [
            paint(BOLD, clean(&name, 64)),
            self.fingerprint.to_string(),
            format!("{may}{}", either(self.here, ", this machine", "")),
        ]
    }
}
