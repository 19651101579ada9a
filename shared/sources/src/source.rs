//! What may stand after `vault add`: text is parsed once, here, and everything later works on the parsed form.
//!
//! Nothing is asked of the network while parsing, and nothing that is refused here reaches a program's command line: no leading `-`, no
//! `..`, no control characters, no transport but HTTPS and SSH. What exists on this machine comes first, then addresses, then prefixes,
//! then `owner/repository`, then the name of a registry's skill.

use std::path::PathBuf;

use url::Url;
use vault_skill::finding::printable;
use vault_skill::name::is_deceptive;
use vault_skill::provenance::ProvenanceId;

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
        /// Who publishes it, where it was said.
        owner: Option<String>,
        /// Its name there.
        slug: String,
        /// The version, where it was said.
        version: Option<String>,
    },
    /// A skill of a registry of the older form, whose base address is a setting.
    Registry {
        /// Its name there.
        slug: String,
        /// The version, where it was said.
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

/// A repository, and what of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GitSource {
    /// What git is given.
    pub address: String,
    /// The identifier of the repository, without a path: `github:acme/skills`, `git:https://git.example.com/acme/skills.git`.
    pub identifier: String,
    /// Host and path, as policies name it: `github.com/acme/skills`.
    pub place: String,
    /// A folder inside, where it was said.
    pub path: Option<String>,
    /// Branch, tag or commit.
    pub reference: Option<String>,
    /// What followed `tree/` or `blob/` in a web address: a reference that may hold slashes, then a path.
    pub tail: Vec<String>,
    /// One skill by its name, from `owner/repository@name`.
    pub skill: Option<String>,
}

/// What decides how a text is read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParseOptions {
    /// The host of `owner/repository`.
    pub default_host: String,
    /// Addresses of this machine may be asked, without TLS too: for tests.
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

/// The text without what stands between `//` and `@`: a refusal must not print a password.
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

const FORMS: &str = "a folder, SKILL.md or archive; github:owner/repository[/path][#ref]; a git or web address; https://…/SKILL.md; a site with a \
                     well-known index; clawhub:<name>; registry:<name>";

impl Source {
    /// Reads what a user typed. `exists` tells whether a path exists on this machine. A word without a prefix is a path and nothing else:
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
        match (Parser { text, options }).remote()? {
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

    /// Reads the identifier that a manifest records. Fails for folders, inline text and linked vaults, which cannot be fetched again.
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
            _ => Parser { text, options }.remote()?,
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

    /// Names under which a policy may know it, before anything was asked of it.
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

    /// How it is called in messages.
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
    /// Names under which a policy may know a folder of it.
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

    /// The identifier of a folder inside; empty: of the repository.
    pub fn identifier_of(&self, path: &str) -> String {
        if path.is_empty() {
            self.identifier.clone()
        } else if self.identifier.starts_with("git:") {
            format!("{}//{path}", self.identifier)
        } else {
            format!("{}/{path}", self.identifier)
        }
    }

    /// Whether git would speak SSH.
    pub fn is_ssh(&self) -> bool {
        !self.address.contains("://") || self.address.starts_with("ssh://")
    }

    /// A repository at an address, as git is given it: `https://…`, `ssh://…`, or `user@host:path`. Fails on every other transport and
    /// on credentials in the address.
    pub fn of_address(address: &str, options: &ParseOptions) -> Result<Self, BadSource> {
        Parser {
            text: address,
            options,
        }
        .git_address(address)
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

/// Whether a path ends as archives do.
pub(crate) fn is_archive(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    [".zip", ".tar", ".tar.gz", ".tgz", ".skill"]
        .iter()
        .any(|end| path.ends_with(end))
}

struct Parser<'a> {
    text: &'a str,
    options: &'a ParseOptions,
}

impl Parser<'_> {
    fn bad(&self, reason: impl Into<String>) -> BadSource {
        BadSource::new(self.text, reason)
    }

    fn remote(&self) -> Result<Source, BadSource> {
        let (rest, reference) = match self.text.rsplit_once('#') {
            Some((rest, reference)) => {
                check_reference(reference)?;
                (rest, Some(reference))
            }
            None => (self.text, None),
        };
        let source = self.unpinned(rest)?;
        match reference {
            Some(reference) => source.with_reference(reference),
            None => Ok(source),
        }
    }

    fn unpinned(&self, text: &str) -> Result<Source, BadSource> {
        // The only colons in pairs that an address has are those of an address in brackets.
        let in_brackets = text.split_once("://[").is_some_and(|(scheme, rest)| {
            let after = rest.split_once(']').map_or(rest, |(_, after)| after);
            !scheme.contains("::") && !after.contains("::")
        });
        if text.contains("::") && !in_brackets {
            return Err(
                self.bad("`::` would start a helper program of git; only https and ssh are used")
            );
        }
        if text.split('/').any(|part| part == "..") {
            return Err(self.bad("`..` leads out of where it begins"));
        }
        if let Some((scheme, _)) = text.split_once("://")
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-'))
        {
            return self.address(&scheme.to_ascii_lowercase(), text);
        }
        if let Some((before, _)) = text.split_once(':')
            && !before.contains('/')
        {
            if before.contains(['@', '.']) && !before.starts_with('@') {
                return self.git_address(text).map(Source::Git);
            }
            return self.prefixed(before, &text[before.len() + 1..]);
        }
        if text.contains('/') && !text.starts_with('@') {
            return self.project_and_path(&self.options.default_host, text);
        }
        let is_registry_skill = !is_archive(text) && self.clawhub(text).is_ok();
        Err(BadSource::Missing {
            text: self.text.to_owned(),
            registry: is_registry_skill.then(|| format!("clawhub:{}", self.text)),
        })
    }

    fn address(&self, scheme: &str, text: &str) -> Result<Source, BadSource> {
        match scheme {
            "https" => self.web(&self.url(text)?),
            "http" if self.options.loopback => self.web(&self.url(text)?),
            "http" | "git" => Err(self
                .bad(format!("`{scheme}://` is not encrypted"))
                .with_hint("use the https address")),
            "ssh" => self.git_address(text).map(Source::Git),
            "git+https" | "git+ssh" => self.git_address(&text[4..]).map(Source::Git),
            "file" if self.options.loopback => self.git_address(text).map(Source::Git),
            "file" => Err(self
                .bad("`file:` addresses are not used")
                .with_hint("give the folder's path")),
            "mcp+https" => Err(self
                .bad("skills of an MCP server cannot be added yet")
                .with_hint(
                    "link the vault behind it (vault link), or add the skill from its repository",
                )),
            _ => Err(self
                .bad(format!("`{scheme}://` is no transport that is used"))
                .with_hint("use an https or ssh address")),
        }
    }

    fn url(&self, text: &str) -> Result<Url, BadSource> {
        let url: Url = text
            .parse()
            .map_err(|error| self.bad(format!("it is no address: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(self.bad("an address carries no user and no password").with_hint(
                "git's credential helpers are used for private repositories: leave the credentials out",
            ));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(self.bad("it names no host"));
        }
        // Before the parser of addresses took out what stood there: an escaped dot or slash is only ever a trick.
        let written = text.to_ascii_lowercase();
        if ["%2e", "%2f", "%5c", "%00"]
            .iter()
            .any(|escape| written.contains(escape))
        {
            return Err(self.bad("it holds escaped dots, slashes or NUL"));
        }
        Ok(url)
    }

    /// An address that a browser shows.
    fn web(&self, url: &Url) -> Result<Source, BadSource> {
        let host = url.host_str().unwrap_or_default();
        let segments: Vec<String> = url
            .path_segments()
            .map(|parts| parts.filter(|part| !part.is_empty()).map(decoded).collect())
            .unwrap_or_default();
        // GitLab puts a lone hyphen between project and page, npm too, and an `@` before the scope of a package.
        let is_archive = is_archive(url.path());
        let checked = segments.iter().map(String::as_str);
        let checked = checked.filter(|part| *part != "-");
        let checked = checked.map(|part| match part.strip_prefix('@') {
            Some(scope) if is_archive => scope,
            _ => part,
        });
        check_segments(self.text, checked)?;
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        match (host, &parts[..]) {
            ("raw.githubusercontent.com", [owner, repository, tail @ ..]) if !tail.is_empty() => {
                let tail = match tail {
                    ["refs", "heads" | "tags", tail @ ..] | tail => tail,
                };
                return self.hosted("github.com", &[owner, repository], tail);
            }
            (
                "github.com" | "www.github.com",
                [owner, repository, "tree" | "blob" | "raw", tail @ ..],
            ) if !tail.is_empty() => {
                return self.hosted("github.com", &[owner, repository], tail);
            }
            ("github.com" | "www.github.com", [owner, repository]) => {
                return self.hosted("github.com", &[owner, repository], &[]);
            }
            (_, parts) if parts.contains(&"-") => {
                let dash = parts
                    .iter()
                    .position(|part| *part == "-")
                    .unwrap_or_default();
                let (project, rest) = (&parts[..dash], &parts[dash + 1..]);
                if let ["tree" | "blob" | "raw", tail @ ..] = rest
                    && project.len() >= 2
                    && !tail.is_empty()
                {
                    return self.project(url, project, tail);
                }
            }
            ("gitlab.com", [_, _, ..]) => return self.project(url, &parts, &[]),
            _ => {}
        }
        let last = parts.last().copied().unwrap_or_default();
        if is_archive {
            return Ok(Source::Archive(url.clone()));
        }
        if last == "SKILL.md" {
            return Ok(Source::SkillMd(url.clone()));
        }
        if last.strip_suffix(".git").is_some()
            || (parts.len() >= 2 && !parts.contains(&".well-known"))
        {
            return self.git_address(url.as_str()).map(Source::Git);
        }
        let mut origin = url.clone();
        origin.set_path("");
        origin.set_query(None);
        let skill = match &parts[..] {
            [] | [".well-known", ..] => None,
            [one] => Some((*one).to_owned()),
            _ => None,
        };
        Ok(Source::WellKnown { origin, skill })
    }

    /// A project of a GitLab, of whatever depth.
    fn project(&self, url: &Url, project: &[&str], tail: &[&str]) -> Result<Source, BadSource> {
        let host = url.host_str().unwrap_or_default();
        if host == "gitlab.com" && project.len() == 2 {
            return self.hosted(host, project, tail);
        }
        let address = format!("{}/{}", origin_text(&bare(url)), project.join("/"));
        let mut git = self.git_address(&address)?;
        if git.address.strip_suffix(".git").is_none() {
            git.address.push_str(".git");
        }
        tail_of(&mut git, tail);
        Ok(Source::Git(git))
    }

    /// `owner/repository` of a host.
    fn hosted(&self, host: &str, project: &[&str], tail: &[&str]) -> Result<Source, BadSource> {
        let mut project: Vec<String> = project.iter().map(|part| (*part).to_owned()).collect();
        if let Some(last) = project.last_mut()
            && let Some(bare) = last.strip_suffix(".git")
        {
            *last = bare.to_owned();
        }
        for part in &project {
            check_repository_part(self.text, part)?;
        }
        let project = project.join("/");
        let identifier = match host {
            "github.com" => format!("github:{project}"),
            "gitlab.com" => format!("gitlab:{project}"),
            host => format!("git:https://{host}/{project}.git"),
        };
        let mut git = GitSource {
            address: format!("https://{host}/{project}.git"),
            identifier,
            place: format!("{host}/{project}"),
            path: None,
            reference: None,
            tail: Vec::new(),
            skill: None,
        };
        tail_of(&mut git, tail);
        Ok(Source::Git(git))
    }

    /// What git is given, as the user wrote it.
    fn git_address(&self, text: &str) -> Result<GitSource, BadSource> {
        let literal = text.starts_with("https://[") || text.starts_with("ssh://");
        if text.starts_with('-')
            || (text.contains("::") && !literal)
            || text.chars().any(|c| c.is_whitespace() || is_deceptive(c))
        {
            return Err(self.bad("it is no address for git"));
        }
        let (text, inside) = match text.find("://").map(|at| at + 3) {
            Some(after) => match text[after..].split_once("//") {
                Some((before, inside)) => (&text[..after + before.len()], Some(inside)),
                None => (text, None),
            },
            None => (text, None),
        };
        let mut git = if text.contains("://") {
            self.git_url(text)?
        } else {
            self.scp(text)?
        };
        if let Some(inside) = inside.map(|inside| inside.trim_matches('/')) {
            check_segments(self.text, inside.split('/'))?;
            git.path = Some(inside.to_owned());
        }
        Ok(git)
    }

    fn git_url(&self, text: &str) -> Result<GitSource, BadSource> {
        let url: Url = text
            .parse()
            .map_err(|error| self.bad(format!("it is no address: {error}")))?;
        let plain = matches!(url.scheme(), "http" | "file") && self.options.loopback;
        if !plain && !matches!(url.scheme(), "https" | "ssh") {
            return Err(self.bad(format!("`{}:` is no transport that is used", url.scheme())));
        }
        if url.scheme() != "ssh" && !url.username().is_empty() || url.password().is_some() {
            return Err(self.bad("an address carries no user and no password").with_hint(
                "git's credential helpers are used for private repositories: leave the credentials out",
            ));
        }
        check_ssh_word(self.text, url.username())?;
        let host = if url.scheme() == "file" {
            "localhost"
        } else {
            url.host_str().unwrap_or_default()
        };
        check_ssh_word(self.text, host)?;
        if host.is_empty() || url.query().is_some() || url.fragment().is_some() {
            return Err(self.bad("a repository has a host and a path, and no query"));
        }
        let path = url.path().trim_matches('/');
        check_segments(self.text, path.split('/'))?;
        if path.contains('%') {
            return Err(self.bad("the path of a repository holds no escapes"));
        }
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let scheme = if url.scheme() == "ssh" {
            "ssh"
        } else {
            "https"
        };
        Ok(Self::repository(text.to_owned(), scheme, &authority, path))
    }

    fn scp(&self, text: &str) -> Result<GitSource, BadSource> {
        let (login, path) = text
            .split_once(':')
            .ok_or_else(|| self.bad("it is no address for git"))?;
        let (user, host) = match login.rsplit_once('@') {
            Some((user, host)) => (user, host),
            None => ("", login),
        };
        check_ssh_word(self.text, user)?;
        check_ssh_word(self.text, host)?;
        let host = host.to_ascii_lowercase();
        let host_is_fine = !host.is_empty()
            && host
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
        let path = path.trim_matches('/');
        if !host_is_fine || path.contains('%') {
            return Err(self.bad("it is no address for git"));
        }
        check_segments(self.text, path.split('/'))?;
        Ok(Self::repository(text.to_owned(), "ssh", &host, path))
    }

    fn repository(address: String, scheme: &str, authority: &str, path: &str) -> GitSource {
        let bare = path.strip_suffix(".git").unwrap_or(path);
        let two = bare.split('/').count() == 2;
        let identifier = match authority {
            "github.com" if two => format!("github:{bare}"),
            "gitlab.com" if two => format!("gitlab:{bare}"),
            authority => format!("git:{scheme}://{authority}/{path}"),
        };
        GitSource {
            address,
            identifier,
            place: format!("{authority}/{bare}"),
            path: None,
            reference: None,
            tail: Vec::new(),
            skill: None,
        }
    }

    fn prefixed(&self, prefix: &str, rest: &str) -> Result<Source, BadSource> {
        match prefix {
            "github" | "gitlab" => {
                let host = format!("{prefix}.com");
                self.project_and_path(&host, rest)
            }
            "git" => self.git_address(rest).map(Source::Git),
            "wellknown" => {
                let url = self.url(rest)?;
                if url.scheme() != "https" && !self.options.loopback {
                    return Err(self.bad("a site is asked over https"));
                }
                let mut origin = url.clone();
                origin.set_path("");
                origin.set_query(None);
                let skill = url.path().trim_matches('/');
                let skill = (!skill.is_empty()).then(|| skill.to_owned());
                if skill.as_ref().is_some_and(|skill| skill.contains('/')) {
                    return Err(self.bad("a site's skill has one name"));
                }
                Ok(Source::WellKnown { origin, skill })
            }
            "clawhub" => self.clawhub(rest),
            "registry" => match rest.strip_prefix("clawhub/") {
                Some(slug) => self.clawhub(slug),
                None => {
                    let (slug, version) = self.slug_and_version(rest)?;
                    Ok(Source::Registry { slug, version })
                }
            },
            "vault" => {
                let (slug, name) = rest
                    .rsplit_once('/')
                    .ok_or_else(|| self.bad("a linked vault's skill is `vault:<slug>/<name>`"))?;
                Ok(Source::Vault {
                    slug: slug.to_owned(),
                    name: name.to_owned(),
                })
            }
            "local" => Err(self
                .bad("`local:` is what is recorded of a folder")
                .with_hint("give the folder's path")),
            "file" => Err(self
                .bad("`file:` addresses are not used")
                .with_hint("give the folder's path")),
            _ => Err(self
                .bad(format!("`{}:` is no known prefix", printable(prefix)))
                .with_hint(format!("a source is {FORMS}"))),
        }
    }

    fn project_and_path(&self, host: &str, text: &str) -> Result<Source, BadSource> {
        let (text, skill) = match text.rsplit_once('@') {
            Some((text, skill)) if !skill.contains('/') => (text, Some(skill)),
            _ => (text, None),
        };
        let parts: Vec<&str> = text.trim_end_matches('/').split('/').collect();
        let [owner, repository, path @ ..] = &parts[..] else {
            return Err(self
                .bad(
                    "nothing of that name is on this machine, and it has no other form of a source",
                )
                .with_hint(format!("a source is {FORMS}")));
        };
        check_segments(self.text, path.iter().copied())?;
        let mut source = self.hosted(host, &[owner, repository], &[])?;
        if let Source::Git(git) = &mut source {
            git.path = (!path.is_empty()).then(|| path.join("/"));
            if let Some(skill) = skill {
                check_segments(self.text, [skill].into_iter())?;
                git.skill = Some(skill.to_owned());
            }
        }
        Ok(source)
    }

    fn clawhub(&self, text: &str) -> Result<Source, BadSource> {
        let (slug, version) = self.slug_and_version(text)?;
        let (owner, slug) = match slug.split_once('/') {
            Some((owner, slug)) => (Some(owner.to_owned()), slug.to_owned()),
            None => (None, slug),
        };
        if slug.contains('/') {
            return Err(self.bad("a registry's skill is `[@owner/]name[@version]`"));
        }
        Ok(Source::ClawHub {
            owner,
            slug,
            version,
        })
    }

    fn slug_and_version(&self, text: &str) -> Result<(String, Option<String>), BadSource> {
        let text = text.strip_prefix('@').unwrap_or(text);
        let (slug, version) = match text.split_once('@') {
            Some((slug, version)) => (slug, Some(version)),
            None => (text, None),
        };
        let fits = |part: &str| {
            (1..=100).contains(&part.len())
                && !part.starts_with(['.', '-'])
                && part.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+')
                })
        };
        if !slug.split('/').all(fits) || !version.is_none_or(fits) {
            return Err(self
                .bad(
                    "nothing of that name is on this machine, and it has no other form of a source",
                )
                .with_hint(format!("a source is {FORMS}")));
        }
        Ok((slug.to_owned(), version.map(str::to_owned)))
    }
}

fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Puts what followed `tree/` there; a SKILL.md at its end stands for its folder.
fn tail_of(git: &mut GitSource, tail: &[&str]) {
    let tail = match tail {
        [before @ .., "SKILL.md"] => before,
        tail => tail,
    };
    git.tail = tail.iter().map(|part| (*part).to_owned()).collect();
}

/// Undoes `%20` and the like in a segment; what is no UTF-8 then stays as it is written.
fn decoded(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(code) = code {
            out.push(code);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| segment.to_owned())
}

fn check_segments<'a>(
    text: &str,
    mut segments: impl Iterator<Item = &'a str>,
) -> Result<(), BadSource> {
    let fine = segments.all(|segment| {
        !matches!(segment, "" | "." | "..")
            && !segment.starts_with('-')
            && !segment.contains(['\\', ':', '?', '#', '@'])
            && !segment.chars().any(|c| is_deceptive(c) || c == '\0')
    });
    if fine {
        Ok(())
    } else {
        Err(BadSource::new(
            text,
            "a part of its path is empty, `.`, `..`, begins with `-`, or holds one of \\ : ? # @",
        ))
    }
}

fn check_repository_part(text: &str, part: &str) -> Result<(), BadSource> {
    let fine = (1..=100).contains(&part.len())
        && !part.starts_with(['-', '.'])
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if fine {
        Ok(())
    } else {
        Err(BadSource::new(
            text,
            format!("{} is no name of an owner or repository", printable(part)),
        )
        .with_hint(format!("a source is {FORMS}")))
    }
}

/// User and host go to a program's command line in the end.
fn check_ssh_word(text: &str, word: &str) -> Result<(), BadSource> {
    let fine = !word.starts_with('-')
        && word.chars().all(|c| {
            c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '[' | ']' | ':')
        });
    if fine {
        Ok(())
    } else {
        Err(BadSource::new(text, "its user or host holds what none has"))
    }
}

/// Whether a text can be a branch, tag, commit or version: what git allows in names, and no more.
pub(crate) fn check_reference(text: &str) -> Result<(), BadSource> {
    let fine = (1..=255).contains(&text.len())
        && !text.starts_with(['-', '/', '.'])
        && !text.ends_with(['/', '.'])
        && !text.contains("..")
        && !text.contains("//")
        && !text.contains("@{")
        && !text.contains(|c: char| c.is_whitespace() || is_deceptive(c) || "~^:?*[\\".contains(c))
        && !text
            .split('/')
            .any(|part| part.starts_with('.') || part.strip_suffix(".lock").is_some());
    if fine {
        Ok(())
    } else {
        Err(BadSource::new(
            text,
            "this is no branch, tag, commit or version",
        ))
    }
}
