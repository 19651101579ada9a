//! What people are told about the keys of a vault: how they have changed, in one line, and what is
//! missing.

use vault_api::{PinReset, VaultHead};
use vault_format::root::{KeyFingerprint, RootBudget, RootWarning};
use vault_library::{
    Vault, recovery,
    roots::FindKeyError,
    trust::{NamedKey, RootChanges, VaultTrust},
};

use crate::{
    context::Context,
    errors::Failure,
    output::{Warning, clean, either, format_size},
};

/// Everything that differs, in one line.
pub fn text(changes: &RootChanges) -> String {
    let lines = changes.describe_lines().into_iter();
    let parts: Vec<_> = lines.map(|line| line.text).collect();
    if parts.is_empty() {
        return "signed again, with the same keys".to_owned();
    }
    parts.join("; ")
}

/// Formats a key: its name is the owner's text, its fingerprint is what counts.
pub fn name(key: &NamedKey) -> String {
    let name = clean(&key.name, 64);
    match &key.fingerprint {
        Some(fingerprint) => format!("{name} ({fingerprint})"),
        None => name,
    }
}

/// Whether every key that can change the vault's keys lies on this machine, so that a thief or a
/// broken disk takes them all.
pub fn all_root_keys_here(vault: &Vault) -> Result<bool, Failure> {
    let here = vault.keys().list()?;
    let trust = vault.require_trust()?;
    let root = trust.chain().document().root();
    Ok(root.keys().iter().all(|key| here.contains(key)))
}

/// Warns at every sync where the vault can't be recovered from a lost machine, and where the list
/// of its keys has little room left.
pub fn warn_about_own(context: &Context, vault: &Vault) -> Result<(), Failure> {
    if all_root_keys_here(vault)? {
        let text =
            "there is no recovery key: if this machine is lost or stolen, the vault is lost too";
        let hint = "vault key recovery create <file>, on a USB stick";
        context.ui.warn_with("no_recovery_key", text, hint);
    }
    remind_of_recovery_key(context, vault)?;
    let budget = RootBudget::used_by(vault.require_trust()?.chain());
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

/// Warns that the service forgot which vault it had pinned: it shows that for 30 days to every
/// owner.
pub fn warn_of_pin_reset(context: &Context, address: &str, shown: &VaultHead) {
    if let Some(PinReset { at, by, .. }) = &shown.pin_reset {
        let by = clean(by, 60);
        let warning = Warning::new(
            "pin_reset",
            format!("the vault that {address} had pinned was reset at {at} by {by}"),
        );
        let hint =
            "ask the other owners whether this was intended; linked machines keep their own pin";
        context.ui.warn(warning.hint(hint));
    }
}

/// Warns that the keys of a vault have changed since this machine last looked.
pub fn warn(context: &Context, vault: &str, changes: &RootChanges) {
    // At the first look there is nothing to compare with.
    if changes.from == 0 {
        return;
    }
    let (from, to, who) = (changes.from, changes.to, text(changes));
    let warning = Warning::new(
        "keys_changed",
        format!("the keys of {vault} have changed (version {from} to {to}): {who}"),
    );
    context.ui.warn(warning);
}

/// Warns about root versions that count although a person should hear of them.
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

/// The command by which an owner makes the key of this fingerprint a publisher. Where the vault has
/// a recovery key, it needs the file.
pub fn add_command(trust: &VaultTrust, fingerprint: &KeyFingerprint) -> String {
    let document = trust.chain().document();
    let mut root = document.root().keys().iter();
    let file = either(
        root.any(|key| !document.release().contains(key)),
        " --root-key <file>",
        "",
    );
    format!("vault publishers add {fingerprint}{file}")
}

/// Says that a text names no key of the vault, or more than one.
pub fn not_found(text: &str, error: FindKeyError) -> Failure {
    let shown = clean(text, 80);
    match error {
        FindKeyError::Unknown => fail!(KeyUnknown, "the vault has no key `{shown}`")
            .hint("vault publishers list shows their names and fingerprints"),
        FindKeyError::Ambiguous => fail!(KeyUnknown, "several former keys had the name `{shown}`")
            .hint("name the fingerprint (pub:…) instead"),
    }
}
