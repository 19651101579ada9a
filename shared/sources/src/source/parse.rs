//! The parser behind [`Source::parse`], for everything other than local paths.

mod git;

use url::Url;
use vault_format::provenance::is_archive;
use vault_format::text::printable;
use vault_gate::is_document_name;

use super::check::{
    check_folders, check_reference, check_repository_part, check_segments, decode_folder,
    decode_segment,
};
use super::{BadSource, FORMS, GitSource, ParseOptions, Source, is_loopback, origin_text};

/// Parses an address, a prefixed text or `owner/repository`, each with an optional `#reference`.
pub(super) fn parse_remote(text: &str, options: &ParseOptions) -> Result<Source, BadSource> {
    Parser { text, options }.parse_with_reference()
}

/// Parses the address of a git repository.
pub(super) fn git_address(text: &str, options: &ParseOptions) -> Result<GitSource, BadSource> {
    Parser { text, options }.git_address(text)
}

/// Parses the address under which a skill of a site below a path is recorded. Returns `None` for
/// every other address.
pub(super) fn skill_of_site(address: &str, options: &ParseOptions) -> Option<Source> {
    match parse_remote(address, options) {
        Ok(
            site @ Source::WellKnown {
                skill: Some(_),
                or_site: false,
                ..
            },
        ) => Some(site),
        _ => None,
    }
}

struct Parser<'a> {
    text: &'a str,
    options: &'a ParseOptions,
}

impl Parser<'_> {
    fn invalid_source(&self, reason: impl Into<String>) -> BadSource {
        BadSource::new(self.text, reason)
    }

    fn parse_with_reference(&self) -> Result<Source, BadSource> {
        let (rest, reference) = match self.text.rsplit_once('#') {
            Some((rest, reference)) => {
                check_reference(reference)?;
                (rest, Some(reference))
            }
            None => (self.text, None),
        };
        let source = self.parse_unpinned(rest)?;
        match reference {
            Some(reference) => source.with_reference(reference),
            None => Ok(source),
        }
    }

    fn parse_unpinned(&self, text: &str) -> Result<Source, BadSource> {
        // `::` is valid only inside an IPv6 address in brackets.
        let in_brackets = text.split_once("://[").is_some_and(|(scheme, rest)| {
            let after = rest.split_once(']').map_or(rest, |(_, after)| after);
            !scheme.contains("::") && !after.contains("::")
        });
        if text.contains("::") && !in_brackets {
            return Err(self.invalid_source(
                "`::` would start a helper program of git; only https and ssh are used",
            ));
        }
        if text.split('/').any(|part| part == "..") {
            return Err(self.invalid_source("`..` leads out of its start"));
        }
        if let Some((scheme, _)) = text.split_once("://")
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-'))
        {
            return self.parse_address(&scheme.to_ascii_lowercase(), text);
        }
        // A colon after a slash belongs to a path and separates nothing.
        if let Some((before, _)) = text.split_once(':')
            && !before.contains('/')
        {
            // A host name has a dot or a user before it. A prefix has neither.
            if before.contains(['@', '.']) && !before.starts_with('@') {
                return self.git_address(text).map(Source::Git);
            }
            return self.parse_prefixed(before, &text[before.len() + 1..]);
        }
        if begins_with_host(text) {
            let url = self.parse_url(&format!("https://{text}"))?;
            // The text may also be a mistyped path. Only repositories are confirmed before a
            // request, so it stands for nothing else.
            return match self.parse_web(&url)? {
                git @ Source::Git(_) => Ok(git),
                _ => Err(BadSource::Missing {
                    text: self.text.to_owned(),
                    registry: None,
                }),
            };
        }
        if text.contains('/') && !text.starts_with('@') {
            return self.project_and_path(&self.options.default_host, text);
        }
        let is_registry_skill = !is_archive(text) && self.parse_clawhub(text).is_ok();
        Err(BadSource::Missing {
            text: self.text.to_owned(),
            registry: is_registry_skill.then(|| format!("clawhub:{}", self.text)),
        })
    }

    /// The fault of an address of this machine that its user did not type.
    fn refuse_this_machine(&self) -> BadSource {
        let reason = "it is an address of this machine, which only its user may add from";
        self.invalid_source(reason)
            .with_hint("add it with the command line on this machine")
    }

    fn parse_address(&self, scheme: &str, text: &str) -> Result<Source, BadSource> {
        match scheme {
            "https" => self.parse_web(&self.parse_url(text)?),
            "http" if self.options.loopback => self.parse_web(&self.parse_url(text)?),
            "http" if is_this_machine(text) && self.options.local_sites => {
                self.parse_web(&self.parse_url(text)?)
            }
            "http" if is_this_machine(text) => Err(self.refuse_this_machine()),
            "http" | "git" => Err(self
                .invalid_source(format!("`{scheme}://` is not encrypted"))
                .with_hint("use the https address")),
            "ssh" => self.git_address(text).map(Source::Git),
            "git+https" | "git+ssh" => self.git_address(&text[4..]).map(Source::Git),
            "file" if self.options.loopback => self.git_address(text).map(Source::Git),
            "file" => Err(self
                .invalid_source("`file:` addresses are not supported")
                .with_hint("give the folder's path")),
            "mcp+https" => Err(self
                .invalid_source("skills of an MCP server cannot be added yet")
                .with_hint(
                    "link the vault behind it (vault link), or add the skill from its repository",
                )),
            _ => Err(self
                .invalid_source(format!("{scheme}:// addresses are not supported"))
                .with_hint("use an https or ssh address")),
        }
    }

    fn parse_url(&self, text: &str) -> Result<Url, BadSource> {
        let url: Url = text
            .parse()
            .map_err(|error| self.invalid_source(format!("it is not an address: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(self.invalid_source("an address cannot contain a user name or password").with_hint(
                "git's credential helpers are used for private repositories: leave the credentials out",
            ));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(self.invalid_source("it names no host"));
        }
        // Check the original text, because the URL parser has already resolved some of these
        // escapes. Nobody needs them for anything but leaving the path.
        let written = text.to_ascii_lowercase();
        if ["%2e", "%2f", "%5c", "%00"]
            .iter()
            .any(|escape| written.contains(escape))
        {
            return Err(self.invalid_source("it holds escaped dots, slashes or NUL"));
        }
        Ok(url)
    }

    /// Parses a web address as copied from a browser.
    fn parse_web(&self, url: &Url) -> Result<Source, BadSource> {
        let host = url.host_str().unwrap_or_default();
        let segments: Vec<String> = url
            .path_segments()
            .map(|parts| {
                parts
                    .filter(|part| !part.is_empty())
                    .map(decode_segment)
                    .collect()
            })
            .unwrap_or_default();
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        // GitLab and npm put a lone hyphen between project and page, and npm puts an `@` before the
        // scope of a package.
        let checked = parts.iter().copied().filter(|part| *part != "-");
        if let Some(page) = self.code_host_page(url, host, &parts) {
            // The folders of a repository may have any name, such as `@acme`. The owner and the
            // repository are checked with the page.
            check_folders(self.text, checked)?;
            return page;
        }
        let is_archive = is_archive(url.path());
        let checked = checked.map(|part| match part.strip_prefix('@') {
            Some(scope) if is_archive => scope,
            _ => part,
        });
        check_segments(self.text, checked)?;
        let last = parts.last().copied().unwrap_or_default();
        if is_archive {
            return Ok(Source::Archive(url.clone()));
        }
        if is_document_name(last) {
            return Ok(Source::SkillMd(url.clone()));
        }
        if let Some(at) = parts.iter().position(|part| *part == ".well-known") {
            // A file in the folder of the index stands for the skill of its name, the index for
            // all skills.
            let skill = match parts[at + 1..] {
                ["agent-skills" | "skills", name] if name != "index.json" => Some(name),
                _ => None,
            };
            return self.site_below(url, &parts[..at], skill);
        }
        // An address of another site with two or more path segments counts as a git repository.
        if last.strip_suffix(".git").is_some() || parts.len() >= 2 {
            return self.git_address(url.as_str()).map(Source::Git);
        }
        Ok(Source::WellKnown {
            site: origin_of(url),
            skill: parts.first().map(|name| (*name).to_owned()),
            or_site: !parts.is_empty(),
        })
    }

    /// Creates the source for a site below a path, or for one skill of it.
    fn site_below(
        &self,
        url: &Url,
        path: &[&str],
        skill: Option<&str>,
    ) -> Result<Source, BadSource> {
        let mut site = origin_of(url);
        if !path.is_empty() {
            site.set_path(&format!("/{}/", path.join("/")));
        }
        // Each site needs one spelling, because its skills are recorded by it.
        if site.path().contains('%') {
            return Err(self.invalid_source("the path of a site holds no escapes"));
        }
        Ok(Source::WellKnown {
            site,
            skill: skill.map(str::to_owned),
            or_site: false,
        })
    }

    /// Parses a code host's page of a repository, folder or file. Returns `None` for other pages.
    fn code_host_page(
        &self,
        url: &Url,
        host: &str,
        parts: &[&str],
    ) -> Option<Result<Source, BadSource>> {
        match (host, parts) {
            ("raw.githubusercontent.com", [owner, repository, tail @ ..]) if !tail.is_empty() => {
                // Both `refs/heads/main` and `main` name a branch in raw addresses.
                let tail = match tail {
                    ["refs", "heads" | "tags", tail @ ..] | tail => tail,
                };
                Some(self.hosted_repository("github.com", &[owner, repository], tail))
            }
            (
                "github.com" | "www.github.com",
                [owner, repository, "tree" | "blob" | "raw", tail @ ..],
            ) if !tail.is_empty() => {
                Some(self.hosted_repository("github.com", &[owner, repository], tail))
            }
            ("github.com" | "www.github.com", [owner, repository]) => {
                Some(self.hosted_repository("github.com", &[owner, repository], &[]))
            }
            // GitLab puts a lone hyphen between the project, at any depth of groups, and its pages.
            (_, parts) if parts.contains(&"-") => {
                let dash = parts.iter().position(|part| *part == "-")?;
                match (&parts[..dash], &parts[dash + 1..]) {
                    (project @ [_, _, ..], ["tree" | "blob" | "raw", tail @ ..])
                        if !tail.is_empty() =>
                    {
                        Some(self.gitlab_project(url, project, tail))
                    }
                    _ => None,
                }
            }
            ("gitlab.com", [_, _, ..]) => Some(self.gitlab_project(url, parts, &[])),
            _ => None,
        }
    }

    /// Parses a project of a GitLab server, at any depth of groups.
    fn gitlab_project(
        &self,
        url: &Url,
        project: &[&str],
        tail: &[&str],
    ) -> Result<Source, BadSource> {
        let host = url.host_str().unwrap_or_default();
        if host == "gitlab.com" && project.len() == 2 {
            return self.hosted_repository(host, project, tail);
        }
        let address = format!("{}/{}", origin_text(&origin_of(url)), project.join("/"));
        let mut git = self.git_address(&address)?;
        if git.address.strip_suffix(".git").is_none() {
            git.address.push_str(".git");
        }
        set_tail(&mut git, tail);
        Ok(Source::Git(git))
    }

    /// Creates the source for `owner/repository` on a host.
    fn hosted_repository(
        &self,
        host: &str,
        project: &[&str],
        tail: &[&str],
    ) -> Result<Source, BadSource> {
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
        let address = format!("https://{host}/{project}.git");
        let mut git = GitSource::new(address, identifier, format!("{host}/{project}"));
        set_tail(&mut git, tail);
        Ok(Source::Git(git))
    }

    fn parse_prefixed(&self, prefix: &str, rest: &str) -> Result<Source, BadSource> {
        match prefix {
            "github" | "gitlab" => {
                let host = format!("{prefix}.com");
                self.project_and_path(&host, rest)
            }
            "git" => self.git_address(rest).map(Source::Git),
            "wellknown" => {
                let url = self.parse_url(rest)?;
                let is_plain = self.options.loopback
                    || url.scheme() == "http" && self.options.local_sites && is_loopback(&url);
                if url.scheme() == "http" && is_loopback(&url) && !is_plain {
                    return Err(self.refuse_this_machine());
                }
                if url.scheme() != "https" && !is_plain {
                    return Err(
                        self.invalid_source("sites must use https, or http on this machine")
                    );
                }
                let path = url.path().trim_start_matches('/');
                // The last part is a skill. With a `/` behind it, it belongs to the path of a site.
                let (path, skill) = match path.rsplit_once('/') {
                    Some((path, "")) => (path, None),
                    Some((path, skill)) => (path, Some(skill)),
                    None => ("", (!path.is_empty()).then_some(path)),
                };
                let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
                check_segments(self.text, parts.iter().copied().chain(skill))?;
                self.site_below(&url, &parts, skill)
            }
            "clawhub" => self.parse_clawhub(rest),
            "registry" => match rest.strip_prefix("clawhub/") {
                Some(slug) => self.parse_clawhub(slug),
                None => {
                    let (slug, version) = self.slug_and_version(rest)?;
                    Ok(Source::Registry { slug, version })
                }
            },
            "vault" => {
                let (slug, name) = rest.rsplit_once('/').ok_or_else(|| {
                    self.invalid_source("a linked vault's skill is `vault:<slug>/<name>`")
                })?;
                Ok(Source::Vault {
                    slug: slug.to_owned(),
                    name: name.to_owned(),
                })
            }
            "local" => Err(self
                .invalid_source("`local:` is what is recorded of a folder")
                .with_hint("give the folder's path")),
            "file" => Err(self
                .invalid_source("`file:` addresses are not supported")
                .with_hint("give the folder's path")),
            _ => Err(self
                .invalid_source(format!("unknown prefix `{}:`", printable(prefix)))
                .with_hint(format!("a source is {FORMS}"))),
        }
    }

    fn project_and_path(&self, host: &str, text: &str) -> Result<Source, BadSource> {
        // An `@` before the last slash belongs to the path. After the last slash, it separates the
        // name of a skill.
        let (text, skill) = match text.rsplit_once('@') {
            Some((text, skill)) if !skill.contains('/') => (text, Some(skill)),
            _ => (text, None),
        };
        let parts: Vec<&str> = text.trim_end_matches('/').split('/').collect();
        let [owner, repository, path @ ..] = &parts[..] else {
            return Err(self
                .invalid_source(
                    "there is no such path on this machine, and it is no other kind of source",
                )
                .with_hint(format!("a source is {FORMS}")));
        };
        let folder = decode_folder(self.text, path.iter().copied())?;
        let mut source = self.hosted_repository(host, &[owner, repository], &[])?;
        if let Source::Git(git) = &mut source {
            git.path = (!path.is_empty()).then_some(folder);
            if let Some(skill) = skill {
                check_segments(self.text, [skill].into_iter())?;
                git.skill = Some(skill.to_owned());
            }
        }
        Ok(source)
    }

    fn parse_clawhub(&self, text: &str) -> Result<Source, BadSource> {
        let (slug, version) = self.slug_and_version(text)?;
        let (owner, slug) = match slug.split_once('/') {
            Some((owner, slug)) => (Some(owner.to_owned()), slug.to_owned()),
            None => (None, slug),
        };
        if slug.contains('/') {
            return Err(self.invalid_source("a registry's skill is `[@owner/]name[@version]`"));
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
        if !slug.split('/').all(is_slug) || !version.is_none_or(is_slug) {
            return Err(self
                .invalid_source(
                    "there is no such path on this machine, and it is no other kind of source",
                )
                .with_hint(format!("a source is {FORMS}")));
        }
        Ok((slug.to_owned(), version.map(str::to_owned)))
    }
}

/// Returns whether a text can be the name of a registry's skill, its owner or its version.
pub(crate) fn is_slug(part: &str) -> bool {
    (1..=100).contains(&part.len())
        && !part.starts_with(['.', '-'])
        && part
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+'))
}

/// Returns whether a text without a scheme begins with the host of a repository, as people copy
/// it from a browser: a code host, or a name with a dot before owner and repository. Owners of
/// repositories on GitHub have no dots.
fn begins_with_host(text: &str) -> bool {
    let Some((host, path)) = text.split_once('/') else {
        return false;
    };
    let is_known = ["github.com", "www.github.com", "gitlab.com"].contains(&host);
    let has_owner = path.trim_matches('/').contains('/');
    let is_name = !host.starts_with(['@', '.']) && host.contains('.') && !host.ends_with('.');
    is_known && path.contains('/') || is_name && has_owner
}

/// Returns whether an address names this machine.
fn is_this_machine(text: &str) -> bool {
    text.parse::<Url>().is_ok_and(|url| is_loopback(&url))
}

/// Removes path, query and fragment from a URL.
fn origin_of(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Stores the path segments after `tree/`. A SKILL.md at the end stands for its folder.
fn set_tail(git: &mut GitSource, tail: &[&str]) {
    let tail = match tail {
        [before @ .., last] if is_document_name(last) => before,
        tail => tail,
    };
    git.tail = tail.iter().map(|part| (*part).to_owned()).collect();
}
