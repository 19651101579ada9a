//! The errors of a fetch, as one enum, so that a command can map each variant to an exit code and a
//! hint.

use vault_skill::finding::printable;

/// Result type of this crate.
pub(crate) type Result<T, E = FetchError> = std::result::Result<T, E>;

/// Why a fetch failed. A failed fetch changes nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The owner's source policy does not allow the source.
    #[error("the source policy does not allow {place}: {reason}")]
    Policy {
        /// Name of the source.
        place: String,
        /// The rule that rejects it.
        reason: String,
    },
    /// The server requires credentials: the user has none, or the server rejects them.
    #[error("{place} asks for credentials, or refuses yours: {said}")]
    NotAllowed {
        /// Name of the source.
        place: String,
        /// The HTTP status, or git's error message.
        said: String,
    },
    /// The repository, page, reference or skill does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The server cannot be reached or responds incorrectly.
    #[error("{place}: {reason}")]
    Unreachable {
        /// Name of the source.
        place: String,
        /// What failed.
        reason: String,
    },
    /// The host has an address of a private network or of this machine.
    #[error("{0} points to an address that is not public")]
    NotPublic(String),
    /// The downloaded bytes do not match the digest that the source lists.
    #[error("{place} has the digest {found}, not the announced {wanted}")]
    Digest {
        /// Name of the artifact.
        place: String,
        /// The expected digest.
        wanted: String,
        /// The digest of the downloaded bytes.
        found: String,
    },
    /// The signature that the source lists is missing or invalid, or it differs from the signer
    /// that was pinned when the skill was added.
    #[error("{place}: the signature of this skill is not valid: {reason}")]
    Signer {
        /// Name of the signed manifest, or of the source.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// A size or number exceeds its limit.
    #[error("{what} exceeds {limit} {unit}")]
    TooLarge {
        /// Name of the item that is too large.
        what: String,
        /// The limit.
        limit: u64,
        /// Unit of the limit.
        unit: &'static str,
    },
    /// The content is malformed, or contains something that a skill must not contain.
    #[error("{place}: {reason}")]
    Content {
        /// Name of the file, archive or index.
        place: String,
        /// What is wrong with the content.
        reason: String,
    },
    /// This machine, or this kind of source, does not support the operation.
    #[error("{message}")]
    Unsupported {
        /// What is not supported.
        message: String,
        /// What to do instead.
        hint: String,
    },
    /// A local operation failed.
    #[error("{doing} failed: {reason}")]
    Local {
        /// The operation, as a phrase such as `starting git`.
        doing: &'static str,
        /// The cause.
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

    /// The stable error code, for programs.
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

    /// Advice for the user, if one step can solve the problem.
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
            Self::Signer { .. } => "nothing was used; ask the source's owner, and if the change is intended: vault add <source> --replace".to_owned(),
            Self::Unsupported { hint, .. } => hint.clone(),
            _ => return None,
        })
    }
}

/// Prepares untrusted text for a message: cuts it to 300 characters and escapes control characters.
pub(crate) fn shown(text: &str) -> String {
    let text: String = text.chars().take(300).collect();
    printable(&text)
}
