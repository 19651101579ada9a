//! The name in the vault: the owner's, else the author's, else one derived from the author's.

use crate::document::{Document, DocumentError, SKILL_MD};
use crate::finding::{Finding, Level};
use vault_format::name::SkillName;
use vault_format::text::quoted;

/// Names that are known beside the frontmatter's.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// What the owner wants.
    pub owner: Option<&'a SkillName>,
    /// The name of the skill's folder.
    pub folder: Option<&'a str>,
}

/// Reads the document; the owner's name, else the folder's, stands for one that the frontmatter
/// lacks.
pub(super) fn read(bytes: &[u8], known: Known<'_>) -> Result<Document, DocumentError> {
    let name = known.owner.cloned();
    match name.or_else(|| known.folder.and_then(SkillName::derive)) {
        Some(name) => Document::parse_known(bytes, &name),
        None => Document::parse(bytes),
    }
}

/// The name in the vault and, where it differs, the author's; `None` when there is no usable one,
/// which is said.
pub(super) fn check(
    document: &Document,
    known: Known<'_>,
    findings: &mut Vec<Finding>,
) -> Option<(SkillName, Option<String>)> {
    let author = document.frontmatter().name.as_str();
    let at = document.places().name;
    let derived = || author.parse().ok().or_else(|| SkillName::derive(author));
    let from_folder = || known.folder.and_then(SkillName::derive);
    let Some(name) = known.owner.cloned().or_else(derived).or_else(from_folder) else {
        let message = format!("no name for the vault can be made of {}", quoted(author));
        let hint =
            "give one with `--name`: lower-case letters, digits and single hyphens, at most 64";
        findings.push(
            Finding::new("name-unusable", Level::Error, message)
                .at(SKILL_MD)
                .on(at)
                .hint(hint),
        );
        return None;
    };
    if name.as_str() == author {
        return Some((name, None));
    }
    if known.owner.is_some() {
        return Some((name, Some(author.to_owned()))); // the owner knows: it was asked for
    }
    let message = format!("{} is called `{name}` in the vault", quoted(author));
    let hint = "the author's name is kept beside it; `--name` gives another";
    findings.push(
        Finding::new("frontmatter-name", Level::Note, message)
            .at(SKILL_MD)
            .on(at)
            .hint(hint),
    );
    Some((name, Some(author.to_owned())))
}
