//! Parser of sources as agents paste them from a README or a browser. The result is canonical and
//! never names a local path.

use vault_format::credentials::without_credentials;
use vault_format::name::SkillName;
use vault_format::provenance::{Kind, ProvenanceId, escape_folder, unescape_folder};
use vault_format::text::printable;

use super::SourceKind;
use crate::fault::Fault;

/// The source that an agent's text names, in canonical form.
#[derive(Debug, Eq, PartialEq)]
pub struct CanonicalSource {
    /// The provenance identifier, which is recorded with the skill.
    pub identifier: ProvenanceId,
    /// The branch, tag, commit or version that the text itself names; `None` if it names none.
    pub reference: Option<String>,
}

/// Parses the text of a source of this kind. Fails if it is no source, or one of another kind.
pub fn parse_source(
    kind: SourceKind,
    text: &str,
    skill: Option<&SkillName>,
) -> Result<CanonicalSource, Fault> {
    let text = text.trim();
    let (recorded, reference) = match kind {
        SourceKind::Git => parse_git(text)?,
        SourceKind::Registry => parse_registry(text),
        SourceKind::Url => (add_prefix("https:", "https://", text), None),
        SourceKind::Wellknown => (parse_site(text, skill)?, None),
        SourceKind::Local => (text.to_owned(), None),
    };
    let identifier: ProvenanceId = recorded.parse().map_err(|error| {
        let text = printable(&without_credentials(text));
        Fault::bad_arguments(format!("`identifier`: {text}: {error}"))
    })?;
    let fits = matches!(
        (kind, identifier.kind()),
        (SourceKind::Git, Kind::CodeHost)
            | (SourceKind::Registry, Kind::Registry)
            | (SourceKind::Url, Kind::Https)
            | (SourceKind::Wellknown, Kind::Wellknown)
            | (SourceKind::Local, Kind::Local)
    );
    if !fits {
        return Err(Fault::bad_arguments(
            "`identifier` is of another kind than `source`",
        ));
    }
    Ok(CanonicalSource {
        identifier,
        reference,
    })
}

/// Puts the prefix of an identifier before an address. Any other text is returned unchanged.
fn add_prefix(prefix: &str, scheme: &str, text: &str) -> String {
    if text.starts_with(scheme) {
        format!("{prefix}{text}")
    } else {
        text.to_owned()
    }
}

/// Parses `owner/repository[/path]`, or the address of a repository or of a page of one, each with
/// an optional `#ref`.
fn parse_git(text: &str) -> Result<(String, Option<String>), Fault> {
    let (text, reference) = match text.rsplit_once('#') {
        Some((text, reference)) => (text, Some(reference.to_owned())),
        None => (text, None),
    };
    let text = text.strip_prefix("git+").unwrap_or(text);
    let text = text.trim_end_matches('/');
    if let Some(rest) = text.strip_prefix("ssh://").or_else(|| scp_address(text)) {
        // The server has no SSH key of the caller.
        return Ok((over_ssh(rest)?, reference));
    }
    let Some(address) = text.strip_prefix("https://") else {
        for scheme in ["github", "gitlab"] {
            let path = text.strip_prefix(scheme);
            if let Some(path) = path.and_then(|path| path.strip_prefix(':')) {
                return Ok((format!("{scheme}:{}", escape_folders(path)), reference));
            }
        }
        return Ok(if text.contains(':') {
            (text.to_owned(), reference)
        } else {
            (format!("github:{}", split_page_path(text).0), reference)
        });
    };
    for (host, scheme) in [
        ("github.com/", "github"),
        ("www.github.com/", "github"),
        ("gitlab.com/", "gitlab"),
    ] {
        if let Some(rest) = address.strip_prefix(host) {
            let (path, named) = split_page_path(rest);
            return Ok((format!("{scheme}:{path}"), reference.or(named)));
        }
    }
    // Without this check, git would ask the site for a repository with this address and fail with
    // an unclear error.
    if address.ends_with("/SKILL.md") {
        return Err(Fault::bad_arguments(
            "`identifier`: this is the address of a SKILL.md: use the source `url`",
        ));
    }
    Ok((format!("git:{text}"), reference))
}

/// Returns the text if it has SSH's short form `user@host:path`.
fn scp_address(text: &str) -> Option<&str> {
    let (login, _) = text.split_once(':')?;
    (login.contains('@') && !login.contains('/')).then_some(text)
}

/// Returns the identifier of a repository with an SSH address. Only the two public hosts are
/// accepted, which serve their repositories over HTTPS as well.
fn over_ssh(rest: &str) -> Result<String, Fault> {
    let (_, place) = rest.split_once('@').unwrap_or(("", rest));
    let hosts = [("github.com", "github"), ("gitlab.com", "gitlab")];
    let public_repository = hosts.iter().find_map(|(host, scheme)| {
        let path = place.strip_prefix(host)?.strip_prefix([':', '/'])?;
        Some(format!("{scheme}:{}", split_page_path(path).0))
    });
    public_repository.ok_or_else(|| {
        Fault::bad_arguments(
            "`identifier`: write the repository's https address; over SSH only the person's own command line fetches",
        )
    })
}

/// Splits the path of a web page into repository with folder, and the branch, tag or commit.
fn split_page_path(path: &str) -> (String, Option<String>) {
    let mut parts: Vec<&str> = path.split('/').collect();
    if let Some(repository) = parts.get_mut(1)
        && let Some(bare) = repository.strip_suffix(".git")
    {
        *repository = bare;
    }
    // GitLab separates the project from its pages with `/-/`.
    if parts.get(2) == Some(&"-") {
        parts.remove(2);
    }
    let mut reference = None;
    if matches!(parts.get(2), Some(&"tree" | &"blob" | &"raw")) && parts.len() > 3 {
        // Take one segment as the branch or commit: without a request, a branch with a slash in its
        // name cannot be told from a branch and a folder.
        reference = Some(parts.remove(3).to_owned());
        parts.remove(2);
    }
    if parts.len() > 2 && parts.last() == Some(&"SKILL.md") {
        parts.pop();
    }
    (escape_folders(&parts.join("/")), reference)
}

/// Escapes the folders behind owner and repository as an identifier has them. A text with escapes may
/// come from a browser, which escapes more.
fn escape_folders(path: &str) -> String {
    let escape = |(at, segment): (usize, &str)| {
        let name = segment.strip_prefix('@').unwrap_or(segment);
        // An `@` inside may be meant as the name of a skill, and the others as parts of an address.
        // They are refused, as the command line refuses them.
        if at < 2 || name.contains([':', '?', '#', '@', '\\']) {
            return segment.to_owned();
        }
        let folder = unescape_folder(segment).filter(|folder| !folder.contains('/'));
        folder.map_or_else(|| segment.to_owned(), |folder| escape_folder(&folder))
    };
    let segments: Vec<String> = path.split('/').enumerate().map(escape).collect();
    segments.join("/")
}

/// Parses `name[@version]` or `@owner/name[@version]`, with or without the name of the registry.
fn parse_registry(text: &str) -> (String, Option<String>) {
    if text.starts_with("registry:") {
        return (text.to_owned(), None);
    }
    let text = text.strip_prefix("clawhub:").unwrap_or(text);
    let text = text.strip_prefix('@').unwrap_or(text);
    match text.split_once('@') {
        Some((name, version)) => (format!("registry:clawhub/{name}"), Some(version.to_owned())),
        None => (format!("registry:clawhub/{text}"), None),
    }
}

/// Parses a site, with the skill's name in the path or in `skill`.
fn parse_site(text: &str, skill: Option<&SkillName>) -> Result<String, Fault> {
    let address = text.strip_prefix("wellknown:").unwrap_or(text);
    let address = address.trim_end_matches('/');
    let has_name = address
        .strip_prefix("https://")
        .is_some_and(|rest| rest.contains('/'));
    match skill {
        _ if has_name => Ok(format!("wellknown:{address}")),
        Some(skill) => Ok(format!("wellknown:{address}/{skill}")),
        None => Err(Fault::bad_arguments(
            "a site may have several skills: name one with `skill`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readmes_and_browsers_write_is_understood() {
        use SourceKind::{Git, Registry, Url, Wellknown};
        // Each text with the identifier and, after a blank, the branch or commit that result from
        // it.
        for (kind, table) in [
            (
                Git,
                "acme/x = github:acme/x
                acme/x/y = github:acme/x/y
                acme/x/y#v1 = github:acme/x/y v1
                github:acme/x/y = github:acme/x/y
                gitlab:acme/x = gitlab:acme/x
                https://github.com/acme/x = github:acme/x
                https://github.com/acme/x.git = github:acme/x
                git+https://github.com/acme/x/ = github:acme/x
                https://github.com/acme/x/tree/main/skills/pdf = github:acme/x/skills/pdf main
                https://github.com/acme/x/blob/v2/pdf/SKILL.md = github:acme/x/pdf v2
                https://gitlab.com/acme/x/-/tree/main/pdf = gitlab:acme/x/pdf main
                acme/x/@scope/sp%20ace/caf%C3%A9 = github:acme/x/%40scope/sp%20ace/café
                github:acme/x/@scope/a%3Ab = github:acme/x/%40scope/a%3Ab
                https://github.com/acme/x/tree/main/sp%20ace = github:acme/x/sp%20ace main
                git@github.com:acme/x.git = github:acme/x
                ssh://git@gitlab.com/acme/x.git = gitlab:acme/x
                https://git.example.com/acme/x.git = git:https://git.example.com/acme/x.git",
            ),
            (
                Registry,
                "pdf = registry:clawhub/pdf
                clawhub:foo = registry:clawhub/foo
                @ann/pdf = registry:clawhub/ann/pdf
                @ann/pdf@1.2 = registry:clawhub/ann/pdf 1.2
                registry:other/pdf = registry:other/pdf
                registry:skills.example/pdf = registry:skills.example/pdf",
            ),
            (
                Url,
                "https://acme.example/SKILL.md = https:https://acme.example/SKILL.md",
            ),
            (
                Wellknown,
                "https://docs.example.com/ = wellknown:https://docs.example.com/pdf
                https://docs.example.com/csv = wellknown:https://docs.example.com/csv",
            ),
        ] {
            for row in table.lines() {
                let (text, expected) = row.trim().split_once(" = ").unwrap();
                let skill: SkillName = "pdf".parse().unwrap();
                let written = parse_source(kind, text, Some(&skill)).unwrap();
                let mut found = written.identifier.as_str().to_owned();
                if let Some(reference) = written.reference {
                    found.push_str(&format!(" {reference}"));
                }
                assert_eq!(found, expected, "{text}");
            }
        }
    }

    #[test]
    fn other_kinds_local_paths_and_what_cannot_be_fetched_are_refused() {
        use SourceKind::{Git, Registry, Url, Wellknown};
        for (kind, text) in [
            (Git, "local:pdf"),
            (Git, "/etc/skills"),
            (Git, "../x"),
            (Git, "./x/y"),
            (Git, "file:///etc"),
            (Git, "acme/x/y@pdf"),
            (Git, "acme/x/a%00b"),
            (Git, "github:acme/x/%2e%2e/b"),
            (Git, "git@git.example.com:acme/x.git"),
            (Git, "http://github.com/acme/x"),
            (Git, ""),
            (Registry, "../pdf"),
            (Registry, "github:acme/x"),
            (Url, "http://acme.example/SKILL.md"),
            (Url, "/etc/SKILL.md"),
            (Wellknown, "https://docs.example.com"),
            (Wellknown, "http://docs.example.com/pdf"),
        ] {
            let refused = parse_source(kind, text, None);
            assert!(
                matches!(&refused, Err(Fault::Caller { .. })),
                "{text}: {refused:?}"
            );
        }
    }
}
