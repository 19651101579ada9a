//! The skills that a skill requires: where they may come from, and which of them are the same.
//!
//! The author of a skill writes its requirements, and a person who adds the skill has not read them
//! yet when vault looks at them. So a requirement names one skill, and never a place that only this
//! machine reaches.

mod project;

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};
use vault_format::address::is_public;
use vault_format::provenance::ProvenanceId;
use vault_format::text::{printable, quoted};
use vault_gate::requirements::{Accepted, StatedRequirement, Version};

use crate::source::{ParseOptions, Source, check_path, skill_identifier};

pub use project::{MissingSkill, ProjectSkill, ProjectSkills, RequirementConflict};

/// The error for a requirement that vault does not follow.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{} cannot be required: {reason}", quoted(.text))]
pub struct BadRequirement {
    /// The requirement as its author wrote it.
    pub text: String,
    /// The fault in it.
    pub reason: String,
}

/// One skill of one source in a form that is the same for all spellings of it.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SourceKey(Box<str>);

impl SourceKey {
    /// Returns the key of a source that a lock or a manifest records. A folder of the project begins
    /// with `./`. `None` if the text names no single skill, so that no requirement can mean it.
    pub fn of_recorded(source: &str) -> Option<Self> {
        if let Some(folder) = source.strip_prefix("./") {
            return Self::of_folder(folder).ok();
        }
        let identifier: ProvenanceId = source.parse().ok()?;
        let options = ParseOptions::default();
        let mut parsed = Source::of_identifier(&identifier, None, &options).ok()?;
        if let Source::Registry { slug, .. } = &mut parsed {
            // A record has the host of the registry before the name; a requirement has not.
            let (_, name) = slug.split_once('/')?;
            *slug = name.to_owned();
        }
        Self::of_source(&parsed).ok()
    }

    fn of_folder(folder: &str) -> Result<Self, String> {
        // The skill may be the project's root itself.
        if matches!(folder, "" | ".") {
            return Ok(Self("./".into()));
        }
        let folder = check_path(folder).map_err(|bad| bad.to_string())?;
        Ok(Self(format!("./{folder}").into()))
    }

    /// Returns the key of a source. Fails with the reason if it names no single skill.
    fn of_source(source: &Source) -> Result<Self, String> {
        let key = match source {
            Source::Git(git) if !git.tail.is_empty() => {
                return Err(
                    "a page of a code host has no exact folder; write github:owner/repository/folder"
                        .to_owned(),
                );
            }
            Source::Git(git) if git.skill.is_some() => {
                return Err("it names a skill behind an `@`; name its folder instead".to_owned());
            }
            Source::Git(git) => {
                let path = git.path.as_deref().unwrap_or_default();
                // The large code hosts ignore the case of owners and repositories. A host that does
                // not would have two keys for one place, which is never the wrong skill.
                let (host, project) = git.place.split_once('/').unwrap_or((&git.place, ""));
                let host = host.to_ascii_lowercase();
                let project = match host.as_str() {
                    "github.com" | "gitlab.com" => project.to_ascii_lowercase(),
                    _ => project.to_owned(),
                };
                format!("{host}/{project}//{path}")
            }
            Source::Archive(url) | Source::SkillMd(url) => url.to_string(),
            Source::WellKnown { or_site: true, .. } | Source::WellKnown { skill: None, .. } => {
                return Err(
                    "it is a whole site; write wellknown:https://host/name for one skill"
                        .to_owned(),
                );
            }
            Source::WellKnown {
                site,
                skill: Some(skill),
                ..
            } => skill_identifier(site, skill),
            Source::ClawHub { owner: None, .. } => {
                return Err("it names no publisher; write clawhub:@owner/name".to_owned());
            }
            Source::ClawHub {
                owner: Some(owner),
                slug,
                ..
            } => format!("clawhub:{owner}/{slug}"),
            Source::Registry { slug, .. } => format!("registry:{slug}"),
            Source::Local(_) => return Err("it is a path of one machine".to_owned()),
            Source::Vault { .. } => {
                return Err("a skill of a linked vault comes with its vault".to_owned());
            }
        };
        Ok(Self(key.into()))
    }
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing behind the `//` is the root of a repository.
        f.write_str(self.0.trim_end_matches("//"))
    }
}

/// A skill that another one requires, from a place that a requirement may name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SkillRequirement {
    stated: StatedRequirement,
    key: SourceKey,
    place: RequiredPlace,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum RequiredPlace {
    /// A folder of the project, without the `./`.
    Folder(String),
    Remote(Source),
}

impl SkillRequirement {
    /// Checks a requirement of a skill. `in_project`: the skill is a folder of the project, so it
    /// may name other folders there. Fails for every place that a lock may not name, and for private
    /// addresses.
    pub fn new(
        stated: StatedRequirement,
        in_project: bool,
        options: &ParseOptions,
    ) -> Result<Self, BadRequirement> {
        let parsed = place_of(&stated, in_project, options);
        match parsed {
            Ok((place, key)) => Ok(Self { stated, key, place }),
            Err(reason) => Err(BadRequirement {
                text: stated.to_string(),
                reason,
            }),
        }
    }

    /// The requirement as its author wrote it.
    pub const fn stated(&self) -> &StatedRequirement {
        &self.stated
    }

    /// The commits or versions that fulfil it.
    pub const fn accepted(&self) -> &Accepted {
        self.stated.accepted()
    }

    /// The skill that it means.
    pub const fn key(&self) -> &SourceKey {
        &self.key
    }

    /// The folder of the project, without the `./`; `None` for a skill from elsewhere.
    pub fn folder(&self) -> Option<&str> {
        match &self.place {
            RequiredPlace::Folder(folder) => Some(folder),
            RequiredPlace::Remote(_) => None,
        }
    }

    /// The source to fetch, with the branch, tag, commit or version that the requirement names.
    /// `None` for a folder of the project.
    pub fn source(&self) -> Option<&Source> {
        match &self.place {
            RequiredPlace::Folder(_) => None,
            RequiredPlace::Remote(source) => Some(source),
        }
    }

    /// The host that is asked; `None` for registries, which settings name, and for folders.
    pub fn host(&self) -> Option<String> {
        host_of(self.source()?)
    }
}

/// Returns the host of a source; `None` for registries and for paths.
pub fn host_of(source: &Source) -> Option<String> {
    match source {
        Source::Git(git) => {
            let authority = git.place.split('/').next()?;
            let host = match authority.rsplit_once(':') {
                Some((host, port)) if !port.contains(']') => host,
                _ => authority,
            };
            Some(host.to_ascii_lowercase())
        }
        Source::Archive(url) | Source::SkillMd(url) | Source::WellKnown { site: url, .. } => {
            url.host_str().map(str::to_owned)
        }
        Source::Local(_)
        | Source::ClawHub { .. }
        | Source::Registry { .. }
        | Source::Vault { .. } => None,
    }
}

/// Whether a pinned skill fulfils what a requirement accepts. `reference` is the branch, tag or
/// version that it follows, `revision` the exact commit, version or digest.
pub fn fulfils(accepted: &Accepted, reference: Option<&str>, revision: Option<&str>) -> bool {
    match accepted {
        Accepted::Any => true,
        Accepted::Revision(name) => {
            let is_name = |text: Option<&str>| text == Some(name.as_str());
            is_name(reference) || is_name(revision)
        }
        Accepted::Range(range) => [reference, revision]
            .into_iter()
            .flatten()
            .filter_map(|text| Version::of_tag(text.strip_prefix("refs/tags/").unwrap_or(text)))
            .any(|version| range.contains(version)),
    }
}

fn place_of(
    stated: &StatedRequirement,
    in_project: bool,
    options: &ParseOptions,
) -> Result<(RequiredPlace, SourceKey), String> {
    let text = stated.source();
    if let Some(folder) = text.strip_prefix("./") {
        if !in_project {
            return Err(
                "a folder can only be required by a skill in a folder of the same project"
                    .to_owned(),
            );
        }
        if *stated.accepted() != Accepted::Any {
            return Err("a folder of the project has no versions".to_owned());
        }
        if folder.starts_with('/') {
            return Err("it leads out of the project".to_owned());
        }
        if matches!(folder, "" | ".") {
            return Err("it is the whole project, not a skill of it".to_owned());
        }
        let key = SourceKey::of_folder(folder)?;
        let folder = key.0.trim_start_matches("./").to_owned();
        return Ok((RequiredPlace::Folder(folder), key));
    }
    // What the user of this machine may type is not what a skill's author may name.
    let options = ParseOptions {
        local_sites: false,
        ..options.clone()
    };
    // Never `accept_shorthand`: `owner/repository` means another host on another machine.
    let source = Source::parse(text, &options, &|_| false).map_err(|bad| {
        let hint = bad
            .hint()
            .map_or_else(String::new, |hint| format!("; {hint}"));
        format!("{bad}{hint}")
    })?;
    check_host(&source, options.loopback)?;
    let key = SourceKey::of_source(&source)?;
    let has_versions = matches!(
        source,
        Source::Git(_) | Source::ClawHub { .. } | Source::Registry { .. }
    );
    let source = match stated.accepted() {
        Accepted::Any => source,
        _ if !has_versions => {
            return Err("only repositories and registries have revisions".to_owned());
        }
        Accepted::Revision(name) => source
            .with_reference(name)
            .map_err(|bad| printable(&bad.to_string()))?,
        Accepted::Range(_) if source_has_reference(&source) => {
            return Err("it names a version twice".to_owned());
        }
        Accepted::Range(_) => source,
    };
    Ok((RequiredPlace::Remote(source), key))
}

fn source_has_reference(source: &Source) -> bool {
    match source {
        Source::Git(git) => git.reference.is_some(),
        Source::ClawHub { version, .. } | Source::Registry { version, .. } => version.is_some(),
        _ => false,
    }
}

/// Fails for a host that is an address of a private network or of this machine, or a name that only
/// such a network knows. Names with public forms are checked again when they are looked up.
fn check_host(source: &Source, loopback: bool) -> Result<(), String> {
    let Some(host) = host_of(source) else {
        return Ok(());
    };
    let is_local_test = loopback
        && (host == "localhost" || parse_ip(&host).is_some_and(|address| address.is_loopback()));
    if is_local_test || is_public_host(&host) {
        return Ok(());
    }
    Err(format!(
        "{} is an address of a private network or of this machine",
        printable(&host)
    ))
}

/// Last parts of host names that are reserved for inside use (RFC 6761, RFC 6762), and common ones.
const INSIDE: [&str; 6] = ["localhost", "local", "internal", "lan", "home", "intranet"];

fn is_public_host(host: &str) -> bool {
    if let Some(address) = parse_ip(host) {
        return is_public(address);
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let Some((_, last)) = name.rsplit_once('.') else {
        // A name of one word is only known inside of a network.
        return false;
    };
    // RFC 8375.
    let is_home = name == "home.arpa" || name.ends_with(".home.arpa");
    !is_home && !INSIDE.contains(&last)
}

/// Reads an IP address in every form that a URL may have it, such as `0x7f.1` or `[::1]`.
fn parse_ip(host: &str) -> Option<IpAddr> {
    let url: Url = format!("https://{host}/").parse().ok()?;
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(match address.to_ipv4_mapped() {
            Some(mapped) => mapped.into(),
            None => address.into(),
        }),
        Host::Domain(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(text: &str, in_project: bool) -> Result<SkillRequirement, String> {
        let stated = text.parse()?;
        let made = SkillRequirement::new(stated, in_project, &ParseOptions::default());
        made.map_err(|bad| bad.to_string())
    }

    /// Columns: two spellings of one skill.
    const SAME: &str = "\
github:acme/skills/pdf github:ACME/Skills/pdf@v1
github:acme/skills/pdf git:https://github.com/acme/skills.git//pdf
github:acme/skills/pdf ssh://git@github.com/acme/skills.git//pdf
git:https://git.example.com/a/b.git//c git:ssh://GIT.example.com/a/b//c
clawhub:@owner/name clawhub:owner/name@1.2.3
registry:pdf registry:pdf@1.2
wellknown:https://docs.example.com/pdf https://docs.example.com/.well-known/agent-skills/pdf
./skills/pdf ./skills/pdf/";

    #[test]
    fn spellings_of_one_skill_have_one_key() {
        for row in SAME.lines() {
            let (one, other) = row.split_once(' ').unwrap();
            let key = |text| requirement(text, true).unwrap().key().to_string();
            assert_eq!(key(one), key(other), "{row}");
        }
        for (text, recorded) in [
            ("github:acme/skills/pdf", "github:Acme/skills/pdf"),
            ("clawhub:@owner/name", "registry:clawhub/owner/name"),
            ("registry:pdf", "registry:skills.example.com/pdf"),
            (
                "https://docs.example.com/a.zip",
                "https:https://docs.example.com/a.zip",
            ),
            (
                "wellknown:https://docs.example.com/pdf",
                "wellknown:https://docs.example.com/pdf",
            ),
            (
                "wellknown:https://docs.example.com/team/skills/pdf",
                "https:https://docs.example.com/team/skills/.well-known/agent-skills/pdf",
            ),
            ("./a/b", "./a/b"),
        ] {
            let key = requirement(text, true).unwrap().key().clone();
            assert_eq!(SourceKey::of_recorded(recorded), Some(key), "{text}");
        }
        let other = |text| requirement(text, false).unwrap().key().clone();
        assert_ne!(
            other("github:acme/skills/pdf"),
            other("github:acme/skills/PDF")
        );
        assert_ne!(
            other("github:acme/skills/pdf"),
            other("gitlab:acme/skills/pdf")
        );
    }

    #[test]
    fn places_that_only_this_machine_reaches_are_refused() {
        for text in [
            "file:///etc/passwd",
            "file:/etc",
            "http://example.com/a/SKILL.md",
            "git://example.com/a/b",
            "ext::sh -c x",
            "ftp://example.com/a",
            "local:pdf",
            "vault:acme/pdf",
            "inline:x",
            "mcp+https://example.com/x",
            "/etc/skills/pdf",
            "~/skills/pdf",
            "../pdf",
            "./../pdf",
            "./a/../../pdf",
            ".//etc",
            "./",
            "./.",
            "./a\\..\\b",
            "pdf",
            "acme/skills/pdf",
            "github.com/acme/skills",
            "https://docs.example.com",
            "https://docs.example.com/pdf",
            "clawhub:pdf",
            "https://github.com/acme/skills/tree/main/pdf",
            "https://127.0.0.1/a.zip",
            "https://localhost/a.zip",
            "https://LOCALHOST./a.zip",
            "https://a.localhost/a.zip",
            "https://0x7f.1/a.zip",
            "https://2130706433/a.zip",
            "https://[::1]/a.zip",
            "https://[::ffff:10.0.0.1]/a.zip",
            "https://[fd00::1]/a.zip",
            "https://10.1.2.3/a.zip",
            "https://169.254.169.254/latest/SKILL.md",
            "https://192.168.0.1:8443/a/b.git",
            "git:https://172.16.0.1/a/b.git",
            "git@10.0.0.1:a/b.git",
            "git@intranet:a/b.git",
            "ssh://git@127.0.0.1:2222/a/b",
            "wellknown:https://10.0.0.1/pdf",
            "wellknown:http://127.0.0.1/pdf",
            "https://wiki.internal/a.zip",
            "https://printer.local/a.zip",
            "https://nas.home.arpa/a.zip",
            "https://user:pass@example.com/a.zip",
            "https://docs.example.com/a.zip@^1",
            "./a@v1",
            "github:acme/skills@refs/heads/x.lock",
        ] {
            let found = requirement(text, true);
            assert!(found.is_err(), "{text}: {found:?}");
        }
        // A skill from elsewhere cannot name a folder of the project that it comes to.
        assert!(requirement("./a", true).is_ok());
        assert!(requirement("./a", false).is_err());
    }

    #[test]
    fn a_pinned_skill_fulfils_by_its_tag_version_or_commit() {
        let accepts = |text: &str| {
            let stated: StatedRequirement = format!("github:a/b{text}").parse().unwrap();
            stated.accepted().clone()
        };
        let commit = "0123456789012345678901234567890123456789";
        for (text, reference, revision, is_met) in [
            ("", None, Some(commit), true),
            ("@v1", Some("v1"), Some(commit), true),
            ("@v1", Some("v2"), Some(commit), false),
            ("@v1", None, None, false),
            (
                "@0123456789012345678901234567890123456789",
                None,
                Some(commit),
                true,
            ),
            ("@^1.2", Some("v1.3.0"), Some(commit), true),
            ("@^1.2", Some("refs/tags/v1.3.0"), Some(commit), true),
            ("@^1.2", Some("main"), Some(commit), false),
            ("@^1.2", None, Some("1.2.9"), true),
            ("@^1.2", Some("v2.0.0"), Some(commit), false),
        ] {
            let found = fulfils(&accepts(text), reference, revision);
            assert_eq!(found, is_met, "{text} {reference:?} {revision:?}");
        }
    }
}
