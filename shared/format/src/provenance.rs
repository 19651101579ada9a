//! The source of a skill (where it was fetched from), as canonical text that is signed with the
//! skill.
//!
//! An identifier names a location, never a path on a machine and never a credential. The exact
//! commit or version is a separate member, the revision.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::name::{SkillName, Slug};
use crate::text::{is_deceptive, text_form};
use crate::time::Timestamp;

crate::words! {
    /// The kind of place a skill came from.
    #[derive(JsonSchema)]
    #[schemars(rename = "ProvenanceKind")]
    pub enum Kind {
        /// A folder on the owner's machine.
        Local = "local",
        /// A repository: `git:`, `github:` or `gitlab:`.
        CodeHost = "code-host",
        /// A SKILL.md or archive at an `https:` address.
        Https = "https",
        /// A site's well-known index of skills.
        Wellknown = "wellknown",
        /// An entry of a registry of skills, `registry:`.
        Registry = "registry",
        /// A skill that another vault had signed, `vault:`.
        Vault = "vault",
        /// Text handed in by a user or client.
        Inline = "inline",
    }
}

/// File name extensions of archives.
pub const ARCHIVE_ENDINGS: [&str; 5] = [".tar.gz", ".tgz", ".tar", ".zip", ".skill"];

/// Tells whether a path has the file name extension of an archive.
pub fn is_archive(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ARCHIVE_ENDINGS.iter().any(|end| path.ends_with(end))
}

/// A provenance identifier in its canonical text, such as `github:acme/skills/code-review`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ProvenanceId(Box<str>);

/// A reason to reject a provenance.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadProvenance {
    /// The text has over 2,048 bytes, white space (allowed only inside a folder's name), or control
    /// or deceptive characters.
    #[error(
        "a provenance identifier has at most 2,048 bytes, no control and, but for a folder's name, no white space"
    )]
    Text,
    /// The text begins with none of the known schemes.
    #[error(
        "a provenance identifier begins with local:, git:, github:, gitlab:, https:, wellknown:, registry:, vault: or inline:"
    )]
    Scheme,
    /// An address contains a user name or password.
    #[error("an address in a provenance cannot contain a user name or password")]
    Credentials,
    /// The text after the scheme does not have the form that the scheme requires.
    #[error("the provenance identifier is not in its canonical form")]
    Form,
    /// The stated kind differs from the kind that follows from the identifier.
    #[error("the provenance kind does not fit the identifier")]
    Kind,
    /// The revision is not a full commit id (code hosts), or not 1 to 255 printable bytes.
    #[error(
        "the revision of a code host is a full commit id; others have 1 to 255 bytes without control characters"
    )]
    Revision,
}

impl ProvenanceId {
    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind of source, which follows from the text before the first colon.
    pub fn kind(&self) -> Kind {
        match self.0.split(':').next() {
            Some("git" | "github" | "gitlab") => Kind::CodeHost,
            Some("https") => Kind::Https,
            Some("wellknown") => Kind::Wellknown,
            Some("registry") => Kind::Registry,
            Some("vault") => Kind::Vault,
            Some("inline") => Kind::Inline,
            _ => Kind::Local,
        }
    }
}

impl FromStr for ProvenanceId {
    type Err = BadProvenance;

    fn from_str(text: &str) -> Result<Self, BadProvenance> {
        let (scheme, rest) = text.split_once(':').ok_or(BadProvenance::Scheme)?;
        // Folder names may hold spaces; in an address a space would hide where it ends.
        let blank = |c: char| c.is_whitespace() && !(scheme == "local" && c == ' ');
        if text.len() > 2048 || text.chars().any(|c| is_deceptive(c) || blank(c)) {
            return Err(BadProvenance::Text);
        }
        match scheme {
            "local" => check_folder(rest),
            "git" => check_git(rest),
            "github" | "gitlab" => check_repository(rest),
            "https" => check_address(rest, &["https://"]).and_then(|path| {
                if path.is_empty() {
                    Err(BadProvenance::Form)
                } else {
                    Ok(())
                }
            }),
            "wellknown" => check_well_known(rest),
            "registry" => check_registry(rest),
            "vault" => check_vault(rest),
            "inline" => check_word(rest),
            _ => Err(BadProvenance::Scheme),
        }?;
        Ok(Self(text.into()))
    }
}

/// Escapes the characters of a repository's folder that an identifier cannot contain: white space, and
/// those that separate parts of an address. Also escapes a `%` that would read as an escape.
pub fn escape_folder(folder: &str) -> String {
    let mut escaped = String::with_capacity(folder.len());
    for (at, character) in folder.char_indices() {
        let is_special = match character {
            '\\' | ':' | '?' | '#' | '@' => true,
            '%' => escaped_byte(&folder.as_bytes()[at..]).is_some(),
            other => other.is_whitespace(),
        };
        if is_special {
            let bytes = &folder.as_bytes()[at..at + character.len_utf8()];
            escaped.extend(bytes.iter().map(|byte| format!("%{byte:02X}")));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns the folder that [`escape_folder`] escaped, or that a browser did. Returns `None` if it is
/// not UTF-8. The result may contain any character.
pub fn unescape_folder(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut left = escaped.as_bytes();
    while let Some(first) = left.first() {
        let (byte, length) = escaped_byte(left).map_or((*first, 1), |byte| (byte, 3));
        bytes.push(byte);
        left = &left[length..];
    }
    String::from_utf8(bytes).ok()
}

/// Returns the byte of the escape at the start of a text.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'%', digits @ ..] = text else {
        return None;
    };
    let digits = digits
        .get(..2)
        .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn require_form(good: bool) -> Result<(), BadProvenance> {
    if good {
        Ok(())
    } else {
        Err(BadProvenance::Form)
    }
}

fn check_folder(name: &str) -> Result<(), BadProvenance> {
    // One folder name and no path: the identifier is published, and paths contain user names.
    require_form(
        !matches!(name, "" | "." | "..") && !name.contains(['/', '\\']) && name.trim() == name,
    )
}

fn check_word(word: &str) -> Result<(), BadProvenance> {
    require_form(!word.is_empty() && word.len() <= 255 && !word.contains(['/', '\\']))
}

fn is_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..") && !segment.contains(['\\', ':', '?', '#', '@'])
}

fn check_repository(rest: &str) -> Result<(), BadProvenance> {
    require_form(rest.split('/').count() >= 2 && rest.split('/').all(is_segment))
}

/// `<https or ssh address>[//<path>]`
fn check_git(rest: &str) -> Result<(), BadProvenance> {
    let after_scheme = rest.find("://").ok_or(BadProvenance::Form)? + 3;
    // The first `//` after the scheme separates the folder; `check_address` rejects it inside
    // addresses.
    let (address, inside) = match rest[after_scheme..].split_once("//") {
        Some((address, inside)) => (&rest[..after_scheme + address.len()], Some(inside)),
        None => (rest, None),
    };
    let path = check_address(address, &["https://", "ssh://"])?;
    require_form(
        !path.is_empty()
            && !path.contains(['?', '#'])
            && inside.is_none_or(|inside| inside.split('/').all(is_segment)),
    )
}

fn check_well_known(rest: &str) -> Result<(), BadProvenance> {
    let (origin, name) = rest.rsplit_once('/').ok_or(BadProvenance::Form)?;
    require_form(check_address(origin, &["https://"])?.is_empty() && is_segment(name))
}

fn check_registry(rest: &str) -> Result<(), BadProvenance> {
    let (registry, slug) = rest.split_once('/').ok_or(BadProvenance::Form)?;
    require_form(is_segment(registry) && slug.split('/').all(is_segment))
}

/// `<origin>/v/<slug>/<name>`, the origin with the path prefix of the vault's address if it has
/// one.
fn check_vault(rest: &str) -> Result<(), BadProvenance> {
    // Split from the end, because the origin may have a path prefix of any length.
    let mut parts = rest.rsplitn(4, '/');
    let (Some(name), Some(slug), Some("v"), Some(base)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(BadProvenance::Form);
    };
    let plain = base
        .strip_prefix("http://")
        .map(|rest| rest.split('/').next().unwrap_or_default());
    let path = match plain {
        // Plain HTTP is allowed only for this machine itself, as in the rest of vault.
        Some(authority) if is_loopback(authority) => check_address(base, &["http://"])?,
        _ => check_address(base, &["https://"])?,
    };
    let prefix = path.strip_prefix('/').unwrap_or_default();
    let prefix_is_fine = path.is_empty() || prefix.split('/').all(is_segment);
    require_form(
        prefix_is_fine && slug.parse::<Slug>().is_ok() && name.parse::<SkillName>().is_ok(),
    )
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

/// Checks scheme, authority and path of an address. Returns its path, with the query if there is
/// one.
fn check_address<'a>(address: &'a str, schemes: &[&str]) -> Result<&'a str, BadProvenance> {
    let rest = schemes
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme))
        .ok_or(BadProvenance::Form)?;
    // Find the end of the authority like URL parsers do, so that no `@` behind it can change the
    // host.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err(BadProvenance::Credentials);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let port_is_fine = port.is_none_or(|port| {
        // Reject leading zeros and signs, so that each port has one text.
        port.parse::<u16>()
            .is_ok_and(|number| number.to_string() == port)
    });
    require_form(
        is_host(host)
            && port_is_fine
            && (path.is_empty() || path.starts_with('/'))
            && !path.contains(['#', '\\']),
    )?;
    // Clients resolve dot segments and servers merge slashes, so such an address has several
    // spellings.
    let segments = path.split('?').next().unwrap_or_default();
    require_form(
        !segments
            .split('/')
            .any(|segment| matches!(segment, "." | ".."))
            && !segments.contains("//"),
    )?;
    Ok(path)
}

fn is_host(host: &str) -> bool {
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match literal {
        Some(address) => address
            .parse::<std::net::Ipv6Addr>()
            // Only the canonical text of an IPv6 address.
            .is_ok_and(|parsed| parsed.to_string() == address),
        None => {
            !host.is_empty()
                && host.len() <= 253
                && host
                    .bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
                && !host.split('.').any(str::is_empty)
        }
    }
}

impl fmt::Display for ProvenanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

text_form!(ProvenanceId, BadProvenance, "a provenance identifier");

/// The source of a skill and the time of its fetch, as its manifest states them.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq)]
#[schemars(from = "Wire<'static>")]
pub struct Provenance {
    /// The location from which the skill was fetched, or its submitter.
    pub identifier: ProvenanceId,
    /// The exact content at the location: the full commit id for a code host; `None` if the source
    /// has no revisions.
    pub revision: Option<String>,
    /// The time of the fetch.
    pub fetched_at: Timestamp,
}

impl Provenance {
    /// The kind of source, which follows from the identifier.
    pub fn kind(&self) -> Kind {
        self.identifier.kind()
    }

    /// Fails unless the revision has the form that the kind of source requires.
    pub fn check_revision(&self) -> Result<(), BadProvenance> {
        let Some(revision) = self.revision.as_deref() else {
            return Ok(());
        };
        let hex = |text: &str| {
            text.bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let good = match self.kind() {
            // SHA-1 or SHA-256 in full: a branch, a tag or a shortened id may name other content
            // later.
            Kind::CodeHost => matches!(revision.len(), 40 | 64) && hex(revision),
            _ => (1..=255).contains(&revision.len()) && !revision.chars().any(is_deceptive),
        };
        if good {
            Ok(())
        } else {
            Err(BadProvenance::Revision)
        }
    }
}

/// The place, with its kind, and the time at which a skill was fetched from it.
#[derive(JsonSchema, Serialize)]
struct Wire<'a> {
    /// Canonical text of the source, such as `github:acme/skills/code-review`.
    identifier: &'a ProvenanceId,
    /// Kind of the source, which follows from the identifier.
    kind: Kind,
    /// The exact commit, version or digest that was fetched; `null` if the source has none.
    revision: Option<&'a str>,
    /// Time at which the files were read from the source.
    fetched_at: Timestamp,
}

impl Serialize for Provenance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire {
            identifier: &self.identifier,
            kind: self.kind(),
            revision: self.revision.as_deref(),
            fetched_at: self.fetched_at,
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn identifiers_beyond_the_vectors() {
        for good in [
            "local:My Skill",
            "git:https://git.example:8443/x.git",
            "gitlab:group/sub/repo/skills/x",
            "https:https://skills.example/x?ref=main",
            "https:https://[2001:db8::1]/x",
            "vault:https://vault.example/base/v/acme/code-review",
            "vault:http://127.0.0.1:8080/v/default/code-review",
            "vault:http://[::1]:8080/v/default/code-review",
            "inline:ann@example.com",
        ] {
            assert_eq!(good.parse::<ProvenanceId>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "local",
            "local:",
            "local:.",
            "local:..",
            "local:a\\b",
            "local: a",
            "local:a\u{202e}b",
            "local:a\nb",
            "git:https://git.example",
            "git:https://",
            "git:file:///etc",
            "git:https://git.example/x//",
            "git:https://git.example/x//../y",
            "git:https://git.example/x//y//z",
            "git:ssh://ann:pw@git.example/x",
            "github:acme/",
            "github:/acme/x",
            "github:acme//x",
            "github:acme/x/",
            "github:a@b/x",
            "https:https://skills.example",
            "https:https://Skills.example/x",
            "https:https://skills.example/x#y",
            "https:https://skills.example/../x",
            "https:https://skills.example:080/x",
            "https:https://skills.example:99999/x",
            "https:https://ann@skills.example/x",
            "https:https://a..b/x",
            "https:https://skills.example?x=/y",
            "wellknown:https://docs.example",
            "wellknown:https://docs.example/a/b",
            "wellknown:http://docs.example/a",
            "registry:x",
            "registry:/x",
            "registry:x/",
            "vault:http://vault.example/v/acme/x",
            "vault:https://vault.example/acme/x",
            "vault:https://vault.example/v/Acme/x",
            "vault:https://vault.example/v/acme/X",
            "vault:http://127.0.0.1@evil.example/v/acme/x",
            "inline:a b",
            "inline:a/b",
        ] {
            assert!(bad.parse::<ProvenanceId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn revisions() {
        let commit = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        for (identifier, revision, good) in [
            ("github:acme/x", Some(commit), true),
            ("github:acme/x", None, true),
            ("github:acme/x", Some(&commit[..7]), false),
            (
                "github:acme/x",
                Some("4B825DC642CB6EB9A060E54BF8D69288FBEE4904"),
                false,
            ),
            ("local:x", None, true),
            ("https:https://a.example/x", Some("v1.2"), true),
            ("https:https://a.example/x", Some(""), false),
            ("https:https://a.example/x", Some("a\nb"), false),
        ] {
            let provenance = Provenance {
                identifier: identifier.parse().unwrap(),
                revision: revision.map(str::to_owned),
                fetched_at: Timestamp::default(),
            };
            assert_eq!(
                provenance.check_revision().is_ok(),
                good,
                "{identifier} {revision:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_keeps_its_text(
            text in "(local|git|github|https|wellknown|registry|vault|inline|x):((https|ssh|http)://)?[a-z0-9@:/\\[\\].?#é -]{0,40}|.{0,60}"
        ) {
            if let Ok(identifier) = text.parse::<ProvenanceId>() {
                prop_assert_eq!(identifier.as_str(), &text);
                prop_assert_eq!(identifier.to_string().parse(), Ok(identifier));
            }
        }
    }
}
