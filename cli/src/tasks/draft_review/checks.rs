//! Checks of a draft: that its exceptions are allowed, and that its skill has not changed.

use vault_format::{draft, hash::Digest};

use super::Choices;
use crate::{errors::Failure, output::either};

/// Returns the error that explains another one better: that the skill has changed since the draft
/// was made. Without such a change, or with `--anyway`, returns the error itself.
pub(super) fn outdated_or(
    error: Failure,
    (content, choices): (&draft::Draft, &Choices),
    bundle: Option<&Digest>,
) -> Failure {
    if choices.anyway {
        return error;
    }
    check_base(content, bundle).err().unwrap_or(error)
}

/// Fails if exceptions are given for a vault that its server signs. The server runs its own gate,
/// which knows no flags of the person who accepts.
pub(super) fn reject_exceptions(choices: &Choices) -> Result<(), Failure> {
    if !choices.allow.is_empty() {
        return Err(fail!(
            Usage,
            "the server signs this vault, and takes no exceptions to its gate"
        )
        .hint("install the skill on the server: vault add <folder> --allow <rule>"));
    }
    if !choices.include.is_empty() {
        return Err(fail!(
            Usage,
            "the server signs this vault, and takes no files that look like secrets from drafts"
        )
        .hint("install the skill on the server: vault add <folder> --include <file>"));
    }
    Ok(())
}

/// Fails if the skill is no longer what the author of the draft saw.
pub(super) fn check_base(content: &draft::Draft, bundle: Option<&Digest>) -> Result<(), Failure> {
    content.check_base(bundle).map_err(|_| {
        let is = either(bundle.is_some(), "has changed", "was removed");
        fail!(
            DraftOutdated,
            "{} {is} since its author made the draft {}",
            content.name,
            content.draft_id
        )
        .hint(format!(
            "vault drafts show {0} shows it; vault drafts accept {0} --anyway takes it as it is",
            content.draft_id
        ))
    })
}
