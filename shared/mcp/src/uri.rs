//! Vault's own names in the protocol, and addresses of resources: `skill://<owner>/<name>/<path>`.
//! The part after the scheme begins with the skill's id `<owner>/<name>`.

use std::fmt::Write as _;

use vault_format::name::SkillName;

/// The prefix of vault's members in `_meta`.
pub const META: &str = "dev.vault/";
/// The scheme of the addresses, with its separator.
const SCHEME: &str = "skill://";
/// Path of the signed manifest beside a skill's files. No file of a skill can have this path.
pub const MANIFEST: &str = ".vault/manifest.json";

/// Path of a generated list of a skill's files with their digests, which clients of `fastmcp`
/// request. No list of resources names it.
pub const FILES: &str = "_manifest";
/// The template of the addresses of files (RFC 6570).
pub const TEMPLATE: &str = "skill://{owner}/{name}/{+path}";

/// The thing that an address names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// All skills of the owner.
    Owner,
    /// A file or folder of the skill with the id `<owner>/<name>`, by its path; an empty path is
    /// the skill's own folder.
    In(String, String),
}

/// Returns the id of a skill: `<owner>/<name>`.
pub fn skill_id(owner: &str, name: &SkillName) -> String {
    format!("{owner}/{name}")
}

/// Returns the address of a skill's folder.
pub fn folder_uri(owner: &str, name: &SkillName) -> String {
    format!("{SCHEME}{owner}/{name}")
}

/// Returns the address of a file or folder in a skill.
pub fn file_uri(owner: &str, name: &SkillName, path: &str) -> String {
    let mut uri = folder_uri(owner, name);
    uri.reserve(path.len() + 1);
    uri.push('/');
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            // Percent-encoding encodes each byte of the UTF-8 text.
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri
}

/// Parses an address. Returns `None` for any text that is not an address of this owner's skills or
/// of something in a skill of any owner.
pub fn parse_uri(owner: &str, uri: &str) -> Option<Target> {
    let rest = uri.strip_prefix(SCHEME)?;
    let (given, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if rest.is_empty() {
        // Only the folder of this owner can be listed. A skill of a linked vault can only be
        // addressed by its own id.
        return (given == owner).then_some(Target::Owner);
    }
    let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
    // Names hold no characters that need an escape, so only the path is decoded.
    let name: SkillName = name.parse().ok()?;
    Some(Target::In(skill_id(given, &name), decode_path(path)?))
}

/// Returns the name in an id of this owner, or the text itself if it is a bare name.
pub fn parse_id(owner: &str, id: &str) -> Option<SkillName> {
    let name = match id.split_once('/') {
        Some((given, name)) if given == owner => name,
        Some(_) => return None,
        None => id,
    };
    name.parse().ok()
}

fn decode_path(path: &str) -> Option<String> {
    if !path.contains('%') {
        return Some(path.to_owned());
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let code = digit(rest.next())? * 16 + digit(rest.next())?;
            bytes.push(u8::try_from(code).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    // Paths of skills are UTF-8, so any other address names nothing.
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(id: &str, path: &str) -> Target {
        Target::In(id.to_owned(), path.to_owned())
    }

    #[test]
    fn addresses_come_back() {
        let name: SkillName = "notes".parse().unwrap();
        for path in ["SKILL.md", "a b/ü%.txt", "x#y&z=1+2", MANIFEST] {
            let uri = file_uri("acme", &name, path);
            assert!(uri.is_ascii() && !uri.contains([' ', '#', '?']), "{uri}");
            assert_eq!(parse_uri("acme", &uri), Some(inside("acme/notes", path)));
        }
        for (uri, target) in [
            ("skill://acme", Some(Target::Owner)),
            ("skill://acme/", Some(Target::Owner)),
            ("skill://acme/notes", Some(inside("acme/notes", ""))),
            ("skill://acme/notes/", Some(inside("acme/notes", ""))),
            ("skill://other/notes/x", Some(inside("other/notes", "x"))),
            ("skill://acme/notes/%zz", None),
            ("skill://acme/notes/%f", None),
            ("skill://acme/notes/%FF", None),
            ("skill://acme/No_Name/SKILL.md", None),
            ("skill://acmenotes/SKILL.md", None),
            ("skill://other", None),
            ("file://acme/notes", None),
            ("", None),
        ] {
            assert_eq!(parse_uri("acme", uri), target, "{uri}");
        }
    }

    #[test]
    fn ids_name_the_owner_or_nobody() {
        for (id, good) in [
            ("acme/notes", true),
            ("notes", true),
            ("other/notes", false),
            ("acme/notes/x", false),
            ("acme/", false),
            ("", false),
            ("Notes", false),
        ] {
            assert_eq!(parse_id("acme", id).is_some(), good, "{id}");
        }
    }
}
