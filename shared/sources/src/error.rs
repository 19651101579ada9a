//! The errors of a fetch, as one enum, so that a command can map each variant to an exit code and a
//! hint.

use vault_format::text::printable;
use vault_gate::skill_folders::LeftOut;

pub(crate) type Result<T, E = FetchError> = std::result::Result<T, E>;

/// The error of a fetch. A failed fetch changes nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The owner's source policy does not allow the source.
    #[error("the source policy does not allow {place}: {reason}")]
    Policy {
        /// The source as messages name it.
        place: String,
        /// The rule that rejects it.
        reason: String,
    },
    /// The server requires credentials: the user has none, or the server rejects them.
    #[error("{place} needs a token, or rejects the one that it got: HTTP {status}")]
    NotAllowed {
        /// The source as messages name it.
        place: String,
        /// The HTTP status of the answer.
        status: u16,
    },
    /// The repository, page, reference or skill was not found. It may be there again later, unlike
    /// with [`FetchError::NoSkill`].
    #[error("{0}")]
    NotFound(String),
    /// The source was read to its end, and it has no such skill. A retry does not help.
    #[error("{0}")]
    NoSkill(String),
    /// The server cannot be reached or responds incorrectly.
    #[error("{place}: {reason}")]
    Unreachable {
        /// The source as messages name it.
        place: String,
        /// What failed.
        reason: String,
    },
    /// The certificate of the server or of the proxy is not trusted. [`CERTIFICATE_HINT`] says what
    /// helps.
    #[error("{place}: {reason}")]
    Certificate {
        /// The source as messages name it.
        place: String,
        /// What is wrong with the certificate.
        reason: String,
    },
    /// The source has skills, but none of them can be fetched.
    #[error("{message}")]
    NoneOffered {
        /// Names the source and the first reason.
        message: String,
        /// All skills with the reasons why they are left out.
        left_out: Vec<LeftOut>,
    },
    /// A reference is the name of a branch and of a tag with another commit.
    #[error("{place} has a branch and a tag {reference}")]
    AmbiguousReference {
        /// The repository as messages name it.
        place: String,
        /// The ambiguous name.
        reference: String,
    },
    /// A setting of this machine that the request needs cannot be used.
    #[error("{message}")]
    Setting {
        /// Names the setting and what is wrong with it.
        message: String,
        /// Which variable or setting to change, and to what.
        hint: &'static str,
    },
    /// git failed, or the remote refused.
    #[error("{place}: {fault}")]
    Git {
        /// The repository as messages name it.
        place: String,
        /// What went wrong, as far as git's messages tell.
        fault: GitFault,
        /// git's own messages, one line each.
        said: String,
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
        /// The signed manifest or the source, as messages name it.
        place: String,
        /// What is wrong with the signature.
        reason: String,
    },
    /// Releases of the vault that signed the skill need several publishers, and the source has no
    /// release signed by enough of them that lists the skill.
    #[error(
        "{place}: one publisher has signed this skill, but no release that enough publishers of its \
         vault signed lists it"
    )]
    ReleaseAwaited {
        /// The signed manifest, as messages name it.
        place: String,
    },
    /// A size or number exceeds its limit.
    #[error("{what} exceeds {limit} {unit}")]
    TooLarge {
        /// What is too large, as messages name it.
        what: String,
        /// The limit, counted in `unit`.
        limit: u64,
        /// The unit as a word, such as `bytes`.
        unit: &'static str,
    },
    /// The content is malformed, or contains something that a skill must not contain.
    #[error("{place}: {reason}")]
    Content {
        /// The file, archive or index, as messages name it.
        place: String,
        /// What is wrong with the content.
        reason: String,
    },
    /// A skill contains a symbolic link.
    #[error("{place}: {path} is a symbolic link; a skill holds regular files only")]
    Link {
        /// The source as messages name it.
        place: String,
        /// The path of the link in the source.
        path: String,
        /// Whether it leads to a file of the same skill, so that a copy can take its place.
        is_copyable: bool,
    },
    /// This machine, or this kind of source, does not support the operation.
    #[error("{message}")]
    Unsupported {
        /// What is not supported.
        message: String,
        /// What the user can do instead.
        hint: String,
    },
    /// An operation on this machine failed, such as starting git. The source is not at fault.
    #[error("{doing} failed: {reason}")]
    Local {
        /// The operation, as a phrase such as `starting git`.
        doing: &'static str,
        /// The cause, as the system reports it.
        reason: String,
    },
}

/// What made git fail, as far as its messages tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GitFault {
    /// The host answered that it has no repository at the address. A host may answer this for a
    /// private repository too.
    #[error("there is no repository at this address")]
    NoRepository,
    /// The repository could be read, but lacks the branch, tag or commit.
    #[error("the repository has no such branch, tag or commit")]
    NoReference,
    /// git has no credentials for the repository, or the host rejects them.
    #[error("the repository does not exist, or git's credentials do not give access to it")]
    NotAllowed,
    /// SSH does not know the host's key, or knows another one. The user must compare the key and
    /// accept it.
    #[error("SSH does not trust the key of the host")]
    HostKey,
    /// The certificate of the host is not valid, or not issued by an authority that git trusts.
    #[error("the TLS certificate of the host is not valid")]
    Certificate,
    /// The name of the host has no address: it is misspelt, or this machine has no network.
    #[error("the name of the host cannot be resolved")]
    UnknownHost,
    /// No connection to the host was possible, or the host answered with a status of 5xx.
    #[error("the host does not answer")]
    NoAnswer,
    /// git failed with a message that this version does not recognize.
    #[error("git could not read the repository")]
    Other,
}

impl GitFault {
    /// Recognizes the fault in git's error output, which is in English because `LC_ALL` is `C`.
    pub(crate) fn from_output(said: &str) -> Self {
        // Use the first fault with a matching text: git and SSH report the cause first and end with
        // a general sentence, which matches nothing here.
        const TEXTS: [(GitFault, &[&str]); 7] = [
            (GitFault::HostKey, &["host key verification failed"]),
            (
                GitFault::UnknownHost,
                &["could not resolve host", "name or service not known"],
            ),
            (
                GitFault::NoAnswer,
                &[
                    "failed to connect",
                    "couldn't connect",
                    "connection refused",
                    "connection reset",
                    "connection timed out",
                    "timed out after",
                    "network is unreachable",
                    "no route to host",
                    "returned error: 5",
                ],
            ),
            (GitFault::Certificate, &["certificate"]),
            (
                GitFault::NotAllowed,
                &[
                    "authentication failed",
                    "could not read username",
                    "could not read password",
                    "permission denied",
                    "terminal prompts disabled",
                    // What git says since 2.47 if `credential.interactive` is off.
                    "unable to get password from user",
                    "access denied",
                    "returned error: 403",
                    "returned error: 401",
                ],
            ),
            (
                GitFault::NoReference,
                &[
                    "couldn't find remote ref",
                    "not our ref",
                    "unadvertised object",
                ],
            ),
            (
                GitFault::NoRepository,
                &[
                    "not found",
                    "does not exist",
                    "does not appear to be a git repository",
                ],
            ),
        ];
        // Versions of git and SSH differ in the letter case of these messages.
        let said = said.to_ascii_lowercase();
        let matches = |texts: &[&str]| texts.iter().any(|text| said.contains(text));
        let found = TEXTS.iter().find(|(_, texts)| matches(texts));
        found.map_or(Self::Other, |(fault, _)| *fault)
    }

    const fn hint(self) -> &'static str {
        match self {
            Self::NoRepository => "check the spelling of the address",
            Self::NoReference => "`git ls-remote <address>` lists its branches and tags",
            Self::NotAllowed => {
                "check the spelling, then try `git ls-remote <address>`: vault uses the same git, keys and credential helpers, and never asks for a password"
            }
            Self::HostKey => {
                "connect to the host once with ssh and compare its fingerprint, or use the https address"
            }
            Self::Certificate => {
                "check the date of this machine, and the certificates that git uses; GIT_SSL_CAINFO names those of a private authority"
            }
            Self::UnknownHost => "check the spelling of the host and the network of this machine",
            Self::NoAnswer => "check the network and git's proxy settings, or try again later",
            Self::Other => "try `git ls-remote <address>`: vault uses the same git",
        }
    }
}

impl FetchError {
    pub(crate) fn too_large(what: impl AsRef<str>, limit: u64, unit: &'static str) -> Self {
        Self::TooLarge {
            what: escape_untrusted(what.as_ref()),
            limit,
            unit,
        }
    }

    pub(crate) fn content_error(place: impl AsRef<str>, reason: impl Into<String>) -> Self {
        Self::Content {
            place: escape_untrusted(place.as_ref()),
            reason: reason.into(),
        }
    }

    pub(crate) fn unreachable_error(place: impl AsRef<str>, reason: impl Into<String>) -> Self {
        Self::Unreachable {
            place: escape_untrusted(place.as_ref()),
            reason: reason.into(),
        }
    }

    pub(crate) fn local_error(doing: &'static str, reason: &impl std::fmt::Display) -> Self {
        Self::Local {
            doing,
            reason: reason.to_string(),
        }
    }

    /// The machine-readable code of the error, which never changes.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Policy { .. } => "source_refused",
            Self::NotAllowed { .. } => "source_not_allowed",
            Self::NotFound(_)
            | Self::NoSkill(_)
            | Self::NoneOffered { .. }
            | Self::AmbiguousReference { .. } => "source_not_found",
            Self::Git { fault, .. } => match fault {
                GitFault::NoRepository | GitFault::NoReference => "source_not_found",
                GitFault::NotAllowed | GitFault::HostKey => "source_not_allowed",
                _ => "source_unreachable",
            },
            Self::Unreachable { .. } | Self::Certificate { .. } | Self::Setting { .. } => {
                "source_unreachable"
            }
            Self::NotPublic(_) => "source_not_public",
            Self::Digest { .. } => "source_digest",
            Self::Signer { .. } => "source_signer",
            Self::ReleaseAwaited { .. } => "release_awaited",
            Self::TooLarge { .. } => "source_too_large",
            Self::Content { .. } | Self::Link { .. } => "source_malformed",
            Self::Unsupported { .. } => "source_unsupported",
            Self::Local { .. } => "io",
        }
    }

    /// Returns git's own messages, one line each, for people who know git. Empty for other errors.
    pub fn git_messages(&self) -> impl Iterator<Item = &str> {
        let said = match self {
            Self::Git { said, .. } => said.as_str(),
            _ => "",
        };
        said.lines()
    }

    /// Returns advice for the user, if one step can solve the problem.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Policy { .. } => {
                "the owner changes [sources] in policy.toml of the vault; vault policy check reads it"
                    .to_owned()
            }
            Self::NotAllowed { .. } => {
                "set VAULT_SOURCE_TOKENS=<host>=<token>: vault sends that token to that host".to_owned()
            }
            Self::Git { fault, .. } => fault.hint().to_owned(),
            Self::Certificate { .. } => CERTIFICATE_HINT.to_owned(),
            Self::Setting { hint, .. } => (*hint).to_owned(),
            Self::AmbiguousReference { reference, .. } => {
                format!("write #refs/heads/{reference} or #refs/tags/{reference}")
            }
            Self::NotPublic(_) => "fetch it another way and add the folder".to_owned(),
            Self::Digest { .. } => "nothing was used; tell the site's owner".to_owned(),
            Self::Signer { .. } => "nothing was used; ask the source's owner, and if the change is intended: vault add <source> --replace".to_owned(),
            Self::ReleaseAwaited { .. } => {
                "ask its publishers to export it again after they have released it".to_owned()
            }
            Self::Link {
                is_copyable: true, ..
            } => "--copy-links takes a copy of the file in its place".to_owned(),
            Self::Unsupported { hint, .. } => hint.clone(),
            _ => return None,
        })
    }
}

/// Advice for a certificate that is not trusted.
pub const CERTIFICATE_HINT: &str = "if a private authority signed its certificate, set SSL_CERT_FILE to a file with the system's certificates and that authority's, in PEM";

/// Prepares untrusted text for a message: cuts it to 300 characters and escapes control characters.
pub(crate) fn escape_untrusted(text: &str) -> String {
    let text: String = text.chars().take(300).collect();
    printable(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_git_and_ssh_name_the_fault() {
        for (said, fault, word) in [
            (
                "fatal: unable to access 'https://x.invalid/': Could not resolve host: x.invalid",
                GitFault::UnknownHost,
                "source_unreachable",
            ),
            (
                "ssh: Could not resolve hostname x.invalid: Name or service not known\nfatal: Could not read from remote repository.",
                GitFault::UnknownHost,
                "source_unreachable",
            ),
            (
                "ssh: connect to host 127.0.0.1 port 1: Connection refused\nfatal: Could not read from remote repository.",
                GitFault::NoAnswer,
                "source_unreachable",
            ),
            (
                "fatal: unable to access 'https://a.example/': The requested URL returned error: 502",
                GitFault::NoAnswer,
                "source_unreachable",
            ),
            (
                "fatal: unable to access 'https://a.example/': server certificate verification failed. CAfile: none",
                GitFault::Certificate,
                "source_unreachable",
            ),
            (
                "Host key verification failed.\nfatal: Could not read from remote repository.",
                GitFault::HostKey,
                "source_not_allowed",
            ),
            (
                "git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                GitFault::NotAllowed,
                "source_not_allowed",
            ),
            (
                "fatal: could not read Username for 'https://github.com': terminal prompts disabled",
                GitFault::NotAllowed,
                "source_not_allowed",
            ),
            (
                "fatal: unable to get password from user",
                GitFault::NotAllowed,
                "source_not_allowed",
            ),
            (
                "remote: Repository not found.\nfatal: repository 'https://github.com/a/b.git/' not found",
                GitFault::NoRepository,
                "source_not_found",
            ),
            (
                "fatal: couldn't find remote ref refs/heads/none",
                GitFault::NoReference,
                "source_not_found",
            ),
            (
                "fatal: something new",
                GitFault::Other,
                "source_unreachable",
            ),
        ] {
            assert_eq!(GitFault::from_output(said), fault, "{said}");
            let error = FetchError::Git {
                place: "a.example/b".to_owned(),
                fault,
                said: said.to_owned(),
            };
            assert_eq!(error.word(), word, "{said}");
            assert!(!error.to_string().contains("fatal"), "{error}");
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()));
            assert!(error.git_messages().eq(said.lines()));
        }
    }
}
