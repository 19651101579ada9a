//! Messages about the keys of a vault. The *root* lists all keys of a vault; every change of keys
//! adds a root version, and a machine that follows the vault pins the versions that it has seen.
//! This module describes changes of the root, and warns about changed keys, a missing recovery key,
//! and a service that forgot its pin.

use vault_api::{ReportedPinReset, VaultHead};
use vault_format::root::{KeyFingerprint, RootBudget, RootWarning};
use vault_library::{
    Vault, recovery,
    roots::FindKeyError,
    trust::{RootChanges, VaultTrust},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{Warning, clean, either, format_size},
};

/// Formats all differences between two root versions in one line.
pub fn format_changes(changes: &RootChanges) -> String {
    let lines = changes.describe_lines().into_iter();
    let parts: Vec<_> = lines.map(|line| line.text).collect();
    if parts.is_empty() {
        return "signed again, with the same keys".to_owned();
    }
    parts.join("; ")
}

/// Returns whether every root key, which can change the vault's keys, is on this machine. A theft
/// or a broken disk then takes them all.
pub fn all_root_keys_here(vault: &Vault) -> Result<bool, Failure> {
    let keys_here = vault.keys().list()?;
    let trust = vault.require_trust()?;
    let root = trust.chain().document().root();
    Ok(root.keys().iter().all(|key| keys_here.contains(key)))
}

/// Warns if the vault cannot be recovered after the loss of this machine, if a check of the
/// recovery key is due, and if the root versions use most of their size limit. Every sync calls
/// this.
pub fn warn_about_own(context: &Context, vault: &Vault) -> Result<(), Failure> {
    if all_root_keys_here(vault)? {
        let text =
            "there is no recovery key: if this machine is lost or stolen, the vault is lost too";
        let hint = "vault key recovery create <file>, on a USB stick";
        context.ui.warn_with("no_recovery_key", text, hint);
    }
    remind_of_recovery_key(context, vault)?;
    let budget = RootBudget::used_by(vault.require_trust()?.chain());
    // Reported early, because the list never shrinks: at the limit only a new vault helps.
    if budget.is_nearly_used() {
        let (versions, bytes) = (budget.versions, format_size(budget.bytes as u64));
        let text = format!(
            "the keys were changed {versions} times ({bytes}), which uses three quarters of the limit"
        );
        let hint = "change keys rarely; a new vault starts with an empty list";
        context.ui.warn_with("root_versions", text, hint);
    }
    Ok(())
}

/// Reminds once a year that the recovery key should be checked.
pub fn remind_of_recovery_key(context: &Context, vault: &Vault) -> Result<(), Failure> {
    if let Some(checked_at) = recovery::check_due(vault)? {
        let text = format!("the recovery key was last checked at {checked_at}");
        let hint = "vault key recovery check <file>, once a year";
        context.ui.warn_with("recovery_check_due", text, hint);
    }
    Ok(())
}

/// Warns that an operator reset the service's pin of the vault, after which the service accepts
/// other keys. The service reports a reset to every owner for 30 days.
pub fn warn_of_pin_reset(context: &Context, address: &str, shown: &VaultHead) {
    let details = match &shown.pin_reset {
        // The account that reset the pin could pin other keys next, so the warning names it.
        Some(ReportedPinReset::Known(reset)) => {
            format!(" at {} by {}", reset.at, clean(&reset.by, 60))
        }
        Some(ReportedPinReset::Unknown(_)) => String::new(),
        None => return,
    };
    let message = format!("the vault that {address} had pinned was reset{details}");
    let hint = if shown.is_unpinned() {
        "any vault may be published there next. Ask the other owners whether this was intended; to pin this vault again: vault sync --renew"
    } else {
        "ask the other owners whether this was intended; linked machines keep their own pin"
    };
    context
        .ui
        .warn(Warning::new("pin_reset", message).hint(hint));
}

/// Warns that the keys of a vault have changed since this machine last read them.
pub fn warn_of_changes(context: &Context, vault: &str, changes: &RootChanges) {
    // The machine reads these keys for the first time, so there is nothing to compare with.
    if changes.from == 0 {
        return;
    }
    let (from, to, who) = (changes.from, changes.to, format_changes(changes));
    let warning = Warning::new(
        "keys_changed",
        format!("the keys of {vault} have changed (version {from} to {to}): {who}"),
    );
    context.ui.warn(warning);
}

/// Warns about accepted root versions that the owner should confirm.
pub fn warn_about_roots(context: &Context, vault: &str, warnings: &[RootWarning]) {
    for warning in warnings {
        let text = match warning {
            RootWarning::HistoryDiffers => format!(
                "the keys of {vault} have a different history than this machine knew: the owner restored a backup or changed the keys on two machines"
            ),
            RootWarning::RoleChanged => format!(
                "the recovery key of {vault} has changed since the fingerprint that you gave"
            ),
        };
        let warning = Warning::new(warning.warning_code(), text);
        context
            .ui
            .warn(warning.hint("ask the owner whether this was intended"));
    }
}

/// Returns the command that makes the key of this fingerprint a publisher. If the vault has a
/// recovery key, the command needs `--root-key` with the file of that key.
pub fn add_command(trust: &VaultTrust, fingerprint: &KeyFingerprint) -> String {
    let document = trust.chain().document();
    let mut root = document.root().keys().iter();
    // A root key that signs no releases is a recovery key, which is not kept on this machine.
    let file = either(
        root.any(|key| !document.release().contains(key)),
        " --root-key <file>",
        "",
    );
    format!("vault publishers add {fingerprint}{file}")
}

/// Creates the failure for a text from the command line that names no key of the vault, or several.
pub fn key_not_found(text: &str, error: FindKeyError) -> Failure {
    let key_text = clean(text, 80);
    match error {
        FindKeyError::Unknown => fail!(KeyUnknown, "the vault has no key `{key_text}`")
            .hint("vault publishers list shows their names and fingerprints"),
        FindKeyError::Ambiguous => {
            fail!(KeyUnknown, "several former keys had the name `{key_text}`")
                .hint("name the fingerprint (pub:…) instead")
        }
    }
}
