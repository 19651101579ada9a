//! Why nothing was fetched: one enum, so that a command maps each kind to an exit code and a hint.

use vault_skill::finding::printable;

/// The result of whatever can fail while fetching.
pub(crate) type Result<T, E = FetchError> = std::result::Result<T, E>;

/// Why a fetch ended without a skill. Nothing was changed anywhere.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The owner's policy does not allow the place.
    #[error("the source policy keeps {place} out: {reason}")]
    Policy {
        /// The place.
        place: String,
        /// The rule that forbids it.
        reason: String,
    },
    /// The place wants credentials, and has none or other ones of this user.
    #[error("{place} asks for credentials, or refuses those of this user: {said}")]
    NotAllowed {
        /// The place.
        place: String,
        /// Its answer.
        said: String,
    },
    /// The repository, page, reference or skill is not there.
    #[error("{0}")]
    NotFound(String),
    /// The place, or the network on the way, does not answer correctly.
    #[error("{place}: {reason}")]
    Unreachable {
        /// The place.
        place: String,
        /// What went wrong.
        reason: String,
    },
    /// An address inside a private network, or of this machine.
    #[error("{0} leads to an address that is not public")]
    NotPublic(String),
    /// The bytes do not have the announced digest.
    #[error("{place} has the digest {found}, not {wanted} as announced")]
    Digest {
        /// The artifact.
        place: String,
        /// The announced digest.
        wanted: String,
        /// The digest of the bytes.
        found: String,
    },
    /// The skill lacks the announced signature, or the one that was pinned when it was added.
    #[error("{place}: the signature of this skill is not good: {reason}")]
    Signer {
        /// The signed manifest, or the source.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Beyond a limit.
    #[error("{what} goes beyond {limit} {unit}")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit.
        limit: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// The content has the wrong form, or holds something that no skill may hold.
    #[error("{place}: {reason}")]
    Content {
        /// The file, archive or index.
        place: String,
        /// What is wrong in it.
        reason: String,
    },
    /// Not possible on this machine, or with this kind of source.
    #[error("{message}")]
    Unsupported {
        /// What is not possible.
        message: String,
        /// What to do instead.
        hint: String,
    },
    /// Something on this machine failed.
    #[error("{doing} failed: {reason}")]
    Local {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        reason: String,
    },
}

impl FetchError {
    pub(crate) fn too_large(what: impl AsRef<str>, limit: u64, unit: &'static str) -> Self {
        Self::TooLarge {
            what: shown(what.as_ref()),
            limit,
            unit,
        }
    }

    pub(crate) fn content(place: impl AsRef<str>, reason: impl Into<String>) -> Self {
        Self::Content {
            place: shown(place.as_ref()),
            reason: reason.into(),
        }
    }

    pub(crate) fn unreachable(place: impl AsRef<str>, reason: impl Into<String>) -> Self {
        Self::Unreachable {
            place: shown(place.as_ref()),
            reason: reason.into(),
        }
    }

    pub(crate) fn local(doing: &'static str, reason: &impl std::fmt::Display) -> Self {
        Self::Local {
            doing,
            reason: reason.to_string(),
        }
    }

    /// The stable error code for programs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Policy { .. } => "source_refused",
            Self::NotAllowed { .. } => "source_not_allowed",
            Self::NotFound(_) => "source_not_found",
            Self::Unreachable { .. } => "source_unreachable",
            Self::NotPublic(_) => "source_not_public",
            Self::Digest { .. } => "source_digest",
            Self::Signer { .. } => "source_signer",
            Self::TooLarge { .. } => "source_too_large",
            Self::Content { .. } => "source_malformed",
            Self::Unsupported { .. } => "source_unsupported",
            Self::Local { .. } => "io",
        }
    }

    /// What to do about it, where one step helps.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Policy { .. } => {
                "the owner changes [sources] in policy.toml of the vault; vault policy check reads it"
                    .to_owned()
            }
            Self::NotAllowed { said, .. } if said.starts_with("HTTP ") => {
                "VAULT_SOURCE_TOKENS=<host>=<token> in the environment is sent to that host as a bearer token".to_owned()
            }
            Self::NotAllowed { .. } => "try `git ls-remote` with that address by hand; vault uses the same git, keys and credential helpers, and never asks".to_owned(),
            Self::NotPublic(_) => "fetch it another way and add the folder".to_owned(),
            Self::Digest { .. } => "nothing was used; tell the site's owner".to_owned(),
            Self::Signer { .. } => "nothing was used; ask the source's owner, and where the change is meant: vault add <source> --replace".to_owned(),
            Self::Unsupported { hint, .. } => hint.clone(),
            _ => return None,
        })
    }
}

/// Untrusted text for a message: cut, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let text: String = text.chars().take(300).collect();
    printable(&text)
}
