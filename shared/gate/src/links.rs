//! Symbolic links in a skill. The owner may accept a copy of the target file in place of a link.
//!
//! A stored skill has no links, because they could lead to other files on every machine. Only a
//! link to a file of the same skill can be replaced by a copy.

use crate::RawFile;
use crate::finding::{Finding, Level, Rule, Severity};
use crate::secrets::looks_secret;
use vault_format::manifest::MAX_SKILL_BYTES;
use vault_format::text::quoted;

/// The rule that warns about a link that was replaced by a copy.
pub const LINK_COPIED: Rule = Rule {
    id: "VG-SF-003",
    name: "link-copied",
    category: "AST01",
    severity: Severity::Low,
    why: "The copy does not follow later changes of the file that the link leads to.",
};

/// A symbolic link in the folder of a skill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SkillLink {
    /// Path of the link in the skill.
    pub path: String,
    /// The target as the link states it.
    pub target: String,
}

/// The reason why a link cannot be replaced by a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadLink {
    /// The link leads to no file of the same skill.
    #[error("it does not lead to a file of the same skill")]
    Outside,
    /// The link leads to another link of the skill.
    #[error("it leads to another link")]
    Link,
    /// The link leads to a file that looks like a secret. A copy with another name would hide that.
    #[error("it leads to a file that looks like a secret")]
    Secret,
    /// The skill would be too large with the copies.
    #[error("the skill is too large with a copy in its place")]
    TooLarge,
}

impl SkillLink {
    /// Returns the file that the link leads to, if it is one of these. A link to another link is
    /// not followed.
    pub fn find_target<'f>(&self, files: &'f [RawFile]) -> Result<&'f RawFile, BadLink> {
        let path = self.target_path().ok_or(BadLink::Outside)?;
        let mut files = files.iter();
        let file = files.find(|file| file.path == path);
        let file = file.ok_or(BadLink::Outside)?;
        if looks_secret(&file.path, &file.bytes) {
            return Err(BadLink::Secret);
        }
        Ok(file)
    }

    /// Returns the path in the skill to which the link leads; `None` if it leads out of the skill.
    fn target_path(&self) -> Option<String> {
        let mut parts: Vec<&str> = self.path.split('/').collect();
        parts.pop();
        if self.target.starts_with('/') {
            return None;
        }
        for part in self.target.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                part => parts.push(part),
            }
        }
        Some(parts.join("/"))
    }
}

/// Adds a copy of the target for each link, with the target's mode. Fails with the first link that
/// cannot be replaced by a copy.
pub fn copy_links<'l>(
    files: &mut Vec<RawFile>,
    links: &'l [SkillLink],
) -> Result<(), (&'l SkillLink, BadLink)> {
    let mut bytes: u64 = files.iter().map(|file| file.bytes.len() as u64).sum();
    let mut copies = Vec::with_capacity(links.len());
    for link in links {
        let target = link.find_target(files).map_err(|bad| {
            let mut others = links.iter().map(|other| &other.path);
            let to = link.target_path();
            match bad {
                BadLink::Outside if others.any(|other| Some(other) == to.as_ref()) => {
                    (link, BadLink::Link)
                }
                bad => (link, bad),
            }
        })?;
        // Bound the size: many links to one large file must not fill the memory.
        bytes += target.bytes.len() as u64;
        if bytes > MAX_SKILL_BYTES {
            return Err((link, BadLink::TooLarge));
        }
        copies.push(RawFile {
            path: link.path.clone(),
            mode: target.mode,
            bytes: target.bytes.clone(),
        });
    }
    files.extend(copies);
    files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
    Ok(())
}

/// Returns one warning for each link that was replaced by a copy.
pub fn copied_findings(paths: &[String]) -> Vec<Finding> {
    let findings = paths.iter().map(|path| {
        let message = format!(
            "{} was replaced by a copy of its target (--copy-links)",
            quoted(path)
        );
        Finding::of(&LINK_COPIED, Level::Warning, message).at(path)
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_format::manifest::Mode;

    fn file(path: &str) -> RawFile {
        RawFile {
            path: path.to_owned(),
            mode: Mode::Plain,
            bytes: path.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_link_becomes_a_copy_only_of_a_file_of_the_same_skill() {
        let files = || vec![file("AGENTS.md"), file("docs/a.md"), file(".env")];
        for (path, target, expected) in [
            ("CLAUDE.md", "AGENTS.md", Ok("AGENTS.md")),
            ("CLAUDE.md", "./docs//a.md", Ok("docs/a.md")),
            ("docs/b.md", "a.md", Ok("docs/a.md")),
            ("docs/b.md", "../AGENTS.md", Ok("AGENTS.md")),
            ("a/b.md", "../../AGENTS.md", Err(BadLink::Outside)),
            ("b.md", "../skill/AGENTS.md", Err(BadLink::Outside)),
            ("b.md", "/etc/passwd", Err(BadLink::Outside)),
            ("b.md", "/AGENTS.md", Err(BadLink::Outside)),
            ("b.md", "docs", Err(BadLink::Outside)),
            ("b.md", "none.md", Err(BadLink::Outside)),
            ("b.md", "b.md", Err(BadLink::Link)),
            ("b.md", "", Err(BadLink::Outside)),
            ("b.md", ".env", Err(BadLink::Secret)),
        ] {
            let link = SkillLink {
                path: path.to_owned(),
                target: target.to_owned(),
            };
            let (mut files, links) = (files(), [link]);
            let copied = copy_links(&mut files, &links).map_err(|(_, bad)| bad);
            let copy = files.iter().find(|file| file.path == path);
            let copy = copy.map(|copy| String::from_utf8(copy.bytes.clone()).unwrap());
            match expected {
                Ok(source) => assert_eq!(copy.as_deref(), Some(source), "{path} -> {target}"),
                Err(bad) => assert_eq!(copied, Err(bad), "{path} -> {target}"),
            }
        }
    }
}
