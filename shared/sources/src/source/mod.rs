//! The grammar of sources: `vault add` parses its text here once, and everything later works on the parsed form.
//!
//! Parsing sends no request. What it refuses never reaches a program's command line: a leading `-`, `..`, control characters, and every
//! transport but HTTPS and SSH. A path that exists comes first, then addresses, prefixes and `owner/repository`. A word without any of
//! these is a missing path, never a skill of a registry.

mod check;
mod parse;

use std::path::PathBuf;

use url::Url;
use vault_skill::finding::printable;
use vault_skill::name::is_deceptive;
use vault_skill::provenance::ProvenanceId;

pub(crate) use check::check_reference;
use check::check_segments;

/// Longest text of a source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 2048;

/// A place to fetch skills from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A folder, a SKILL.md or an archive of this machine.
    Local(PathBuf),
    /// A repository.
    Git(GitSource),
    /// An archive behind an address.
    Archive(Url),
    /// A SKILL.md behind an address.
    SkillMd(Url),
    /// A site that lists its skills.
    WellKnown {
        /// Scheme, host and port.
        origin: Url,
        /// One skill of the list.
        skill: Option<String>,
    },
    /// A skill of the registry that speaks ClawHub's protocol.
    ClawHub {
        /// Its publisher, where one was given.
        owner: Option<String>,
        /// Its name there.
        slug: String,
        /// The version, where one was given.
        version: Option<String>,
    },
    /// A skill of a registry of the older form, whose base address is a setting.
    Registry {
        /// Its name there.
        slug: String,
        /// The version, where one was given.
        version: Option<String>,
    },
    /// A skill of a linked vault.
    Vault {
        /// The vault's slug.
        slug: String,
        /// The skill.
        name: String,
    },
}

/// A repository, and which folder and commit of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GitSource {
    /// The address for git.
    pub address: String,
    /// The identifier of the repository, without a path: `github:acme/skills`, `git:https://git.example.com/acme/skills.git`.
    pub identifier: String,
    /// Host and path, as patterns of policies are written: `github.com/acme/skills`.
    pub place: String,
    /// A folder inside, where one was given.
    pub path: Option<String>,
    /// Branch, tag or commit.
    pub reference: Option<String>,
    /// What followed `tree/` or `blob/` in a web address: a reference that may hold slashes, then a path.
    pub tail: Vec<String>,
    /// One skill by its name, from `owner/repository@name`.
    pub skill: Option<String>,
}

/// Options of the grammar.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseOptions {
    /// The host of `owner/repository`.
    pub default_host: String,
    /// Addresses of this machine are allowed, plain HTTP and `file:` too: for tests.
    pub loopback: bool,
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self {
            default_host: "github.com".to_owned(),
            loopback: false,
        }
    }
}

/// Why a text is not read as a source.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSource {
    /// It has none of the forms, or holds what is refused in all of them.
    #[error("{} is no source: {reason}", printable(.text))]
    Invalid {
        /// What was given, without a password and cut.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// It reads as a path, and nothing is there.
    #[error("no such file or folder: {}", printable(.text))]
    Missing {
        /// What was given.
        text: String,
        /// The same as a skill of the registry, where it can be one.
        registry: Option<String>,
    },
    /// `owner/repository[/path]` without a prefix, and no such path exists: only the user knows whether it is a typing mistake.
    #[error("no such file or folder: {}", printable(.text))]
    Shorthand {
        /// What was given.
        text: String,
        /// The same with its prefix.
        written: String,
        /// The repository that it may mean.
        repository: Box<GitSource>,
    },
}

impl BadSource {
    fn new(text: &str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            text: without_credentials(text).chars().take(200).collect(),
            reason: reason.into(),
            hint: None,
        }
    }

    fn with_hint(self, with: impl Into<String>) -> Self {
        match self {
            Self::Invalid { text, reason, .. } => Self::Invalid {
                text,
                reason,
                hint: Some(with.into()),
            },
            other => other,
        }
    }

    /// What to do about it, where one step helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => hint.clone(),
            Self::Missing { registry, .. } => registry
                .as_ref()
                .map(|skill| format!("for the registry's skill write {skill}")),
            Self::Shorthand { written, .. } => Some(format!("for the repository write {written}")),
        }
    }

    /// The repository of a shorthand, where no path can be meant; every other error stays.
    pub fn accept_shorthand(self) -> Result<Source, Self> {
        match self {
            Self::Shorthand { repository, .. } => Ok(Source::Git(*repository)),
            other => Err(other),
        }
    }
}

/// The text without its user and password, which an error must not print.
fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("//") else {
        return text.to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rfind('@') {
        Some(at) => format!("{scheme}//…{}", &rest[at..]),
        None => text.to_owned(),
    }
}

/// The forms of a source, for hints.
const FORMS: &str = "a folder, SKILL.md or archive; github:owner/repository[/path][#ref]; a git or web address; https://…/SKILL.md; a site with a \
                     well-known index; clawhub:<name>; registry:<name>";

impl Source {
    /// Parses what a user typed. `exists` tells whether a path exists on this machine. A word without a prefix is a path and nothing else:
    /// a mistyped folder must never become a skill of somebody else. Fails for what has none of the forms.
    pub fn parse(
        text: &str,
        options: &ParseOptions,
        exists: &dyn Fn(&str) -> bool,
    ) -> Result<Self, BadSource> {
        let bad = |reason: &str| Err(BadSource::new(text, reason));
        if text.is_empty() || text.len() > MAX_SOURCE_BYTES {
            return bad("it is empty or longer than 2,048 bytes");
        }
        if text.chars().any(is_deceptive) {
            return bad("it holds control or invisible characters");
        }
        if text.starts_with('-') {
            return bad("it begins with `-`, which programs take for an option");
        }
        if exists(text) {
            return Ok(Self::Local(PathBuf::from(text)));
        }
        if text.starts_with(['.', '/', '~']) {
            return Err(BadSource::Missing {
                text: text.to_owned(),
                registry: None,
            });
        }
        match parse::remote(text, options)? {
            Self::Git(repository) if !text.contains(':') => {
                let reference = repository.reference.as_deref();
                let written = if repository.identifier.starts_with("github:") {
                    format!("github:{text}")
                } else {
                    let folder =
                        repository.identifier_of(repository.path.as_deref().unwrap_or_default());
                    reference.map_or(folder.clone(), |name| format!("{folder}#{name}"))
                };
                Err(BadSource::Shorthand {
                    text: text.to_owned(),
                    written,
                    repository: Box::new(repository),
                })
            }
            source => Ok(source),
        }
    }

    /// Parses the identifier that a manifest records. Fails for folders, inline text and linked vaults, which cannot be fetched again.
    pub fn of_identifier(
        identifier: &ProvenanceId,
        reference: Option<&str>,
        options: &ParseOptions,
    ) -> Result<Self, BadSource> {
        let text = identifier.as_str();
        let source = match text.split_once(':') {
            Some(("https", address)) => {
                let parsed = address
                    .parse()
                    .map_err(|_| BadSource::new(text, "it is no address"));
                let url: Url = parsed?;
                if is_archive(url.path()) {
                    Self::Archive(url)
                } else {
                    Self::SkillMd(url)
                }
            }
            Some(("local" | "inline" | "vault", _)) => {
                return Err(BadSource::new(text, "there is nothing to fetch it from"));
            }
            _ => parse::remote(text, options)?,
        };
        match reference {
            Some(reference) => source.with_reference(reference),
            None => Ok(source),
        }
    }

    /// The same source at another branch, tag, commit or version. Fails where there is nothing of the kind, or one was given already.
    pub fn with_reference(mut self, reference: &str) -> Result<Self, BadSource> {
        check_reference(reference)?;
        let slot = match &mut self {
            Self::Git(git) if git.tail.is_empty() => &mut git.reference,
            Self::ClawHub { version, .. } | Self::Registry { version, .. } => version,
            _ => {
                return Err(BadSource::new(
                    reference,
                    "only repositories and registries have branches, tags and versions",
                ));
            }
        };
        match slot {
            Some(before) if before != reference => Err(BadSource::new(
                reference,
                format!("the source names {} already", printable(before)),
            )),
            _ => {
                *slot = Some(reference.to_owned());
                Ok(self)
            }
        }
    }

    /// The same repository, a folder of it. Fails for other sources, or where a folder was given already.
    pub fn with_path(mut self, path: &str) -> Result<Self, BadSource> {
        let path = path.trim_matches('/');
        check_segments(path, path.split('/'))?;
        match &mut self {
            Self::Git(git) if git.path.is_none() && git.tail.is_empty() => {
                git.path = Some(path.to_owned());
                Ok(self)
            }
            Self::Git(_) => Err(BadSource::new(path, "the source names a path already")),
            _ => Err(BadSource::new(path, "only repositories have paths inside")),
        }
    }

    /// Names that a pattern of the policy may cover, known before the first request.
    pub fn policy_names(&self) -> Vec<String> {
        match self {
            Self::Local(_) => Vec::new(),
            Self::Git(git) => git.policy_names(git.path.as_deref()),
            Self::Archive(url) | Self::SkillMd(url) => url_names(url),
            Self::WellKnown { origin, skill } => well_known_names(origin, skill.as_deref()),
            Self::ClawHub { owner, slug, .. } => {
                let slug = match owner {
                    Some(owner) => format!("{owner}/{slug}"),
                    None => slug.clone(),
                };
                vec![
                    format!("clawhub:{slug}"),
                    format!("registry:clawhub/{slug}"),
                ]
            }
            Self::Registry { slug, .. } => vec![format!("registry:{slug}")],
            Self::Vault { slug, name } => vec![format!("vault:{slug}/{name}")],
        }
    }

    /// Its name in messages.
    pub fn shown(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Git(git) => match &git.path {
                Some(path) => format!("{}/{path}", git.place),
                None => git.place.clone(),
            },
            Self::Archive(url) | Self::SkillMd(url) => url.to_string(),
            Self::WellKnown { origin, .. } => origin_text(origin),
            Self::ClawHub { slug, .. } => format!("clawhub:{slug}"),
            Self::Registry { slug, .. } => format!("registry:{slug}"),
            Self::Vault { slug, name } => format!("vault:{slug}/{name}"),
        }
    }
}

impl GitSource {
    fn new(address: String, identifier: String, place: String) -> Self {
        Self {
            address,
            identifier,
            place,
            path: None,
            reference: None,
            tail: Vec::new(),
            skill: None,
        }
    }

    /// Names of a folder that a pattern of the policy may cover.
    pub fn policy_names(&self, path: Option<&str>) -> Vec<String> {
        let path = path.filter(|path| !path.is_empty());
        let identifier = match path {
            Some(path) => self.identifier_of(path),
            None => self.identifier.clone(),
        };
        let place = match path {
            Some(path) => format!("{}/{path}", self.place),
            None => self.place.clone(),
        };
        vec![place, identifier]
    }

    /// The identifier of a folder inside; an empty path stands for the repository.
    pub fn identifier_of(&self, path: &str) -> String {
        if path.is_empty() {
            self.identifier.clone()
        } else if self.identifier.starts_with("git:") {
            format!("{}//{path}", self.identifier)
        } else {
            format!("{}/{path}", self.identifier)
        }
    }

    /// Whether git uses SSH for this address.
    pub fn is_ssh(&self) -> bool {
        !self.address.contains("://") || self.address.starts_with("ssh://")
    }

    /// A repository at an address for git: `https://…`, `ssh://…`, or `user@host:path`. Fails for every other transport and for
    /// credentials in the address.
    pub fn of_address(address: &str, options: &ParseOptions) -> Result<Self, BadSource> {
        parse::git_address(address, options)
    }
}

/// Scheme, host and port of an origin.
pub(crate) fn origin_text(origin: &Url) -> String {
    origin.as_str().trim_end_matches('/').to_owned()
}

/// Names of an address: host and path, and the whole.
pub(crate) fn url_names(url: &Url) -> Vec<String> {
    let authority = authority(url);
    vec![
        format!("{authority}{}", url.path()),
        url.as_str().to_owned(),
    ]
}

/// Names of a site's skill.
pub(crate) fn well_known_names(origin: &Url, skill: Option<&str>) -> Vec<String> {
    let (origin, authority) = (origin_text(origin), authority(origin));
    match skill {
        Some(skill) => vec![
            format!("wellknown:{origin}/{skill}"),
            format!("{authority}/{skill}"),
        ],
        None => vec![format!("wellknown:{origin}"), authority],
    }
}

fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// How the names of archives end.
pub(crate) const ARCHIVE_ENDINGS: [&str; 5] = [".tar.gz", ".tgz", ".tar", ".zip", ".skill"];

/// Whether a path ends as archives do.
pub fn is_archive(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ARCHIVE_ENDINGS.iter().any(|end| path.ends_with(end))
}
