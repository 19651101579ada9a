//! The grammar of sources. `vault add` parses its argument here once, and all later code uses the
//! parsed form.
//!
//! Parsing sends no request. It rejects input that must never reach the command line of another
//! program: a leading `-`, `..`, control characters, and every transport other than HTTPS and SSH.
//! An existing local path takes precedence, followed by addresses, prefixes and `owner/repository`.
//! A word that matches none of these is a missing path, never the name of a registry's skill.

mod check;
mod parse;

use std::path::PathBuf;

use url::{Host, Url};
use vault_format::credentials::without_credentials;
use vault_format::name::is_deceptive;
use vault_format::provenance::{ProvenanceId, escape_folder, is_archive};
use vault_format::text::printable;

pub use check::check_path;
pub(crate) use check::check_reference;
pub(crate) use parse::is_slug;

/// Maximum length of a source's text, in bytes.
pub const MAX_SOURCE_BYTES: usize = 2048;

/// A source of skills in parsed form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Source {
    /// A local folder, SKILL.md or archive.
    Local(PathBuf),
    /// A git repository.
    Git(GitSource),
    /// An archive (zip, tar or tar.gz) at a URL, which may have several skills.
    Archive(Url),
    /// A single SKILL.md at a URL: a skill without other files.
    SkillMd(Url),
    /// A site that lists its skills in a well-known index.
    WellKnown {
        /// Scheme, host and port of the site, and the path below which its index is. Ends with `/`.
        site: Url,
        /// One skill of the index; `None` for all.
        skill: Option<String>,
        /// Whether the name of the skill may be the path of a site instead, as in the address of a
        /// project's pages.
        or_site: bool,
    },
    /// A skill in the registry that speaks ClawHub's protocol.
    ClawHub {
        /// The publisher; `None` for whichever publisher the registry names.
        owner: Option<String>,
        /// The skill's name in the registry.
        slug: String,
        /// The version; `None` for the latest one.
        version: Option<String>,
    },
    /// A skill in a registry that speaks the older protocol. A setting holds the registry's base
    /// address.
    Registry {
        /// The skill's name in the registry.
        slug: String,
        /// The version; `None` for the latest one.
        version: Option<String>,
    },
    /// A skill of a linked vault.
    Vault {
        /// Slug of the vault on its service.
        slug: String,
        /// Name of the skill in that vault.
        name: String,
    },
}

/// A repository, and the folder and commit to use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GitSource {
    /// The address to pass to git.
    pub address: String,
    /// The identifier of the repository without a path: `github:acme/skills` or
    /// `git:https://git.example.com/acme/skills.git`.
    pub identifier: String,
    /// Host and path, in the form that policy patterns use: `github.com/acme/skills`.
    pub place: String,
    /// The folder in the repository; `None` for the root, or for the path in `tail`.
    pub path: Option<String>,
    /// The branch, tag or commit; `None` for the default branch, or for the one in `tail`.
    pub reference: Option<String>,
    /// The path segments after `tree/` or `blob/` in a web address: a reference that may contain
    /// slashes, then a path.
    pub tail: Vec<String>,
    /// The name of one skill, from `owner/repository@name`.
    pub skill: Option<String>,
}

/// Options of the parser.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseOptions {
    /// The host of repositories written as `owner/repository`.
    pub default_host: String,
    /// Allow addresses of this machine, plain HTTP and `file:`. For tests.
    pub loopback: bool,
    /// Accept sites and files at plain HTTP addresses of this machine. Only for texts that the user
    /// of this machine wrote: an address from elsewhere must not reach services on loopback.
    pub local_sites: bool,
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self {
            default_host: "github.com".to_owned(),
            loopback: false,
            local_sites: false,
        }
    }
}

/// The error for a text that is not a valid source.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSource {
    /// The text matches no form of a source, or contains something that every form rejects.
    #[error("{} is not a source: {reason}", printable(.text))]
    Invalid {
        /// The text, without credentials and shortened.
        text: String,
        /// The fault in the text.
        reason: String,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// The source is valid, but has no such folder or version.
    #[error("{reason}")]
    NoPart {
        /// What the source does not have.
        reason: String,
    },
    /// The text looks like a path, and the path does not exist.
    #[error("no such file or folder: {}", printable(&without_credentials(.text)))]
    Missing {
        /// The text as the user typed it, which may contain credentials.
        text: String,
        /// The text as a source in the registry, if it is a valid skill name there.
        registry: Option<String>,
    },
    /// The text is `owner/repository[/path]` without a prefix, and no such local path exists. It
    /// may be a shorthand for a repository or a mistyped path, so the user must decide.
    #[error("no such file or folder: {}", printable(&without_credentials(.text)))]
    Shorthand {
        /// The text as the user typed it, which may contain credentials.
        text: String,
        /// The repository in a form that cannot be a path, such as `github:acme/skills` or an
        /// address.
        written: String,
        /// The repository that the shorthand stands for.
        repository: Box<GitSource>,
    },
}

impl BadSource {
    pub(crate) fn new(text: &str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            text: without_credentials(text).chars().take(200).collect(),
            reason: reason.into(),
            hint: None,
        }
    }

    fn no_part(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::NoPart { reason }
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

    /// Advice for the user, if one step can solve the problem.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Invalid { hint, .. } => hint.clone(),
            Self::NoPart { .. } => None,
            Self::Missing { registry, .. } => registry
                .as_ref()
                .map(|skill| format!("for the registry's skill write {skill}")),
            Self::Shorthand { written, .. } => Some(format!("for the repository write {written}")),
        }
    }

    /// Turns a shorthand into its repository, for callers whose text cannot be a local path.
    /// Returns every other error unchanged.
    pub fn accept_shorthand(self) -> Result<Source, Self> {
        match self {
            Self::Shorthand { repository, .. } => Ok(Source::Git(*repository)),
            other => Err(other),
        }
    }
}

/// The forms of a source, for hints.
const FORMS: &str = "a folder, SKILL.md or archive; github:owner/repository[/path][#ref]; a git or web address; https://…/SKILL.md; a site with a \
                     well-known index; clawhub:<name>; registry:<name>";

impl Source {
    /// Parses what a user typed. `exists` returns whether a local path exists. A word without a
    /// prefix is always a path, so that a mistyped folder name never selects another publisher's
    /// skill. Fails if the text matches no form.
    pub fn parse(
        text: &str,
        options: &ParseOptions,
        exists: &dyn Fn(&str) -> bool,
    ) -> Result<Self, BadSource> {
        let bad = |reason: &str| Err(BadSource::new(text, reason));
        if text.is_empty() || text.len() > MAX_SOURCE_BYTES {
            return bad("it is empty or longer than 2,048 bytes");
        }
        // Invisible characters could make two different sources look the same.
        if text.chars().any(is_deceptive) {
            return bad("it has control or invisible characters");
        }
        if text.starts_with('-') {
            return bad("it begins with `-`, so programs would take it for an option");
        }
        // Existing paths come first, so a local folder named like a repository stays usable.
        if exists(text) {
            return Ok(Self::Local(PathBuf::from(text)));
        }
        if text.starts_with(['.', '/', '~']) {
            return Err(BadSource::Missing {
                text: text.to_owned(),
                registry: None,
            });
        }
        match parse::parse_remote(text, options)? {
            // A text without a colon has neither scheme nor prefix, so it may be a mistyped path.
            Self::Git(repository) if !text.contains(':') => {
                let reference = repository.reference.as_deref();
                let begins_with_host = repository.address.starts_with("https://")
                    && text.split('/').next().is_some_and(|host| {
                        repository.place.split('/').next() == Some(host.trim_start_matches("www."))
                    });
                let written = if begins_with_host {
                    format!("https://{text}")
                } else if repository.identifier.starts_with("github:") {
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

    /// Parses the identifier in a manifest. Fails for folders, inline text and linked vaults, which
    /// cannot be fetched again.
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
                    .map_err(|_| BadSource::new(text, "it is not an address"));
                let url: Url = parsed?;
                if is_archive(url.path()) {
                    Self::Archive(url)
                } else if let Some(site) = parse::skill_of_site(address, options) {
                    site
                } else {
                    Self::SkillMd(url)
                }
            }
            Some(("local" | "inline" | "vault", _)) => {
                return Err(BadSource::new(
                    text,
                    "it was added from an archive or as text, so there is no address to fetch it from",
                ));
            }
            _ => parse::parse_remote(text, options)?,
        };
        match reference {
            Some(reference) => source.with_reference(reference),
            None => Ok(source),
        }
    }

    /// Sets the branch, tag, commit or version. Fails if the source cannot have one or already
    /// names a different one.
    pub fn with_reference(mut self, reference: &str) -> Result<Self, BadSource> {
        check_reference(reference)?;
        let slot = match &mut self {
            // The tail of a web address already contains a reference.
            Self::Git(git) if git.tail.is_empty() => &mut git.reference,
            Self::ClawHub { version, .. } | Self::Registry { version, .. } => version,
            _ => {
                return Err(BadSource::no_part(
                    "--ref works for repositories and registries only",
                ));
            }
        };
        match slot {
            Some(before) if before != reference => Err(BadSource::no_part(format!(
                "--ref {}: the source names {} already",
                printable(reference),
                printable(before)
            ))),
            _ => {
                *slot = Some(reference.to_owned());
                Ok(self)
            }
        }
    }

    /// Returns whether this is an archive by its name.
    pub fn is_archive(&self) -> bool {
        match self {
            Self::Local(path) => is_archive(&path.to_string_lossy()) && !path.is_dir(),
            Self::Archive(_) => true,
            _ => false,
        }
    }

    /// Sets the folder in a repository or local folder. Fails for other sources, and if the source
    /// already names a folder. A folder of an archive is a [`crate::Part`] of it.
    pub fn with_path(mut self, path: &str) -> Result<Self, BadSource> {
        let path = check_path(path)?;
        match &mut self {
            Self::Local(folder) if folder.is_dir() => {
                folder.push(path);
                Ok(self)
            }
            Self::Git(git) if git.path.is_none() && git.tail.is_empty() => {
                git.path = Some(path.to_owned());
                Ok(self)
            }
            Self::Git(_) => Err(BadSource::no_part(format!(
                "--path {}: the source names a path already",
                printable(path)
            ))),
            _ => Err(BadSource::no_part(
                "--path works for repositories, folders and archives only",
            )),
        }
    }

    /// Returns the names that policy patterns are matched against, as far as they are known before
    /// the first request.
    pub fn policy_names(&self) -> Vec<String> {
        match self {
            Self::Local(_) => Vec::new(),
            Self::Git(git) => git.policy_names(git.path.as_deref()),
            Self::Archive(url) | Self::SkillMd(url) => url_names(url),
            Self::WellKnown { site, skill, .. } => well_known_names(site, skill.as_deref()),
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

    /// Returns the source as messages name it: short, without a branch or version, and for a site
    /// without the skill.
    pub fn display_name(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Git(git) => match &git.path {
                Some(path) => format!("{}/{path}", git.place),
                None => git.place.clone(),
            },
            Self::Archive(url) | Self::SkillMd(url) => url.to_string(),
            Self::WellKnown { site, .. } => origin_text(site),
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

    /// Returns the names of a folder that policy patterns are matched against.
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

    /// Returns the identifier of a folder in the repository. An empty path is the repository
    /// itself. Characters that an identifier cannot contain are escaped, so that [`Source::parse`]
    /// reads the same folder from it.
    pub fn identifier_of(&self, path: &str) -> String {
        let path = escape_folder(path);
        if path.is_empty() {
            self.identifier.clone()
        } else if self.identifier.starts_with("git:") {
            format!("{}//{path}", self.identifier)
        } else {
            format!("{}/{path}", self.identifier)
        }
    }

    /// Returns whether git uses SSH for this address.
    pub fn is_ssh(&self) -> bool {
        !self.address.contains("://") || self.address.starts_with("ssh://")
    }

    /// Parses a git address: `https://…`, `ssh://…`, or `user@host:path`. Fails for every other
    /// transport, and for credentials in the address.
    pub fn of_address(address: &str, options: &ParseOptions) -> Result<Self, BadSource> {
        parse::git_address(address, options)
    }
}

/// Formats the scheme, host, port and path of a site, without a `/` at the end.
pub(crate) fn origin_text(origin: &Url) -> String {
    origin.as_str().trim_end_matches('/').to_owned()
}

/// The folder of a site's index, between the site's path and the name of a file in it.
pub(crate) const WELL_KNOWN: &str = "/.well-known/agent-skills/";

/// Returns the identifier of a skill of a site. Identifiers have no form for plain HTTP, which only
/// sites on this machine use, so it is written as HTTPS.
pub(crate) fn skill_identifier(site: &Url, skill: &str) -> String {
    let address = origin_text(site);
    let address = match address.strip_prefix("http://") {
        Some(rest) => format!("https://{rest}"),
        None => address,
    };
    // `wellknown:` has no path before the name, so a site below a path is written as an address.
    if site.path() == "/" {
        format!("wellknown:{address}/{skill}")
    } else {
        format!("https:{address}{WELL_KNOWN}{skill}")
    }
}

/// Returns a URL's names for policy patterns: host and path, and the whole URL.
pub(crate) fn url_names(url: &Url) -> Vec<String> {
    let authority = host_and_port(url);
    vec![
        format!("{authority}{}", url.path()),
        url.as_str().to_owned(),
    ]
}

/// Returns whether the host is `localhost` or a loopback address.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Returns the texts with which policy patterns are compared: those of a site, or of one skill of it.
pub(crate) fn well_known_names(site: &Url, skill: Option<&str>) -> Vec<String> {
    let place = format!("{}{}", host_and_port(site), site.path());
    let (address, place) = (origin_text(site), place.trim_end_matches('/'));
    match skill {
        Some(skill) => vec![
            format!("wellknown:{address}/{skill}"),
            format!("{place}/{skill}"),
            skill_identifier(site, skill),
        ],
        None => vec![format!("wellknown:{address}"), place.to_owned()],
    }
}

fn host_and_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
