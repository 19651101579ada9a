//! Commands that the page of a draft shows to a person who has a signing key on their machine.

use std::collections::BTreeSet;

use vault_format::root::KeyFingerprint;

use crate::model::draft::{DraftRecord, Subject};

/// Returns the command that accepts a draft, and a text about its effect. `served`: the service
/// signs this vault itself.
pub(super) fn accept_command(draft: &DraftRecord, served: bool) -> (String, &'static str) {
    let id = &draft.id;
    match &draft.subject {
        Subject::Release(_) => (
            format!("vault release sign {id}"),
            "Run this on a machine that has a publisher’s key. It shows every difference and asks before it signs.",
        ),
        Subject::KeyRequest(key) => (
            format!(
                "vault publishers add {}",
                KeyFingerprint::publisher(&key.public_key)
            ),
            "Run this on the machine that has the key which may change the vault’s keys. First compare the fingerprint with the person, by phone for example.",
        ),
        Subject::Propose(_) | Subject::Install(_) | Subject::Remove(_) if served => (
            format!("vault drafts accept {id}"),
            "This page does not show all of it. The command does, on a machine that is signed in as an owner: it runs the security check, shows every file and asks. The service then signs exactly those files.",
        ),
        Subject::Propose(_) | Subject::Install(_) | Subject::Remove(_) => (
            format!("vault drafts accept {id}"),
            "Run this on a machine that has a publisher’s key. It shows the findings and differences again, asks, signs and publishes.",
        ),
    }
}

/// Returns the command that accepts a draft in spite of these security flags; `None` without flags.
pub(super) fn exception_command(command: &str, flags: &BTreeSet<&'static str>) -> Option<String> {
    let allow = flags.iter().map(|rule| format!(" --allow {rule}"));
    let allow: String = allow.collect();
    (!allow.is_empty()).then(|| format!("{command}{allow}"))
}
