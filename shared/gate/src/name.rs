//! Decides the skill's name in the vault: the one that the owner chose, else the `name` in the
//! frontmatter if it fits the grammar, else one derived from that name or from the folder's name.

use crate::document::{Document, DocumentError, SKILL_MD};
use crate::finding::{Finding, Level};
use vault_format::name::SkillName;
use vault_format::text::quoted;

/// Names of the skill from outside of its frontmatter.
#[derive(Clone, Copy)]
pub(super) struct NameSources<'a> {
    /// Name that the owner chose.
    pub owner: Option<&'a SkillName>,
    /// Name of the skill's folder.
    pub folder: Option<&'a str>,
}

/// Reads the document. If its frontmatter has no name, the owner's name is used, else the folder's.
pub(super) fn read_named_document(
    bytes: &[u8],
    known: NameSources<'_>,
) -> Result<Document, DocumentError> {
    // A document without a name is read with another one, so that its other faults are reported
    // too.
    let name = known.owner.cloned();
    match name.or_else(|| known.folder.and_then(SkillName::derive)) {
        Some(name) => Document::parse_known(bytes, &name),
        None => Document::parse(bytes),
    }
}

/// Returns the name in the vault and, if it differs, the author's. Reports an error and returns
/// `None` if no usable name can be made.
pub(super) fn choose_name(
    document: &Document,
    known: NameSources<'_>,
    findings: &mut Vec<Finding>,
) -> Option<(SkillName, Option<String>)> {
    let author = document.frontmatter().name.as_str();
    let at = document.places().name;
    let derived = || author.parse().ok().or_else(|| SkillName::derive(author));
    // The folder's name is the last resort, because a checkout or an archive may have chosen it.
    let from_folder = || known.folder.and_then(SkillName::derive);
    let Some(name) = known.owner.cloned().or_else(derived).or_else(from_folder) else {
        let message = format!("no name for the vault can be made of {}", quoted(author));
        let hint =
            "give one with `--as NAME`: lower-case letters, digits and single hyphens, at most 64";
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
        return Some((name, Some(author.to_owned()))); // no note: the owner chose this name
    }
    let message = format!("{} is called `{name}` in the vault", quoted(author));
    let hint = "the author's name is kept beside it; `--as NAME` gives another";
    findings.push(
        Finding::new("frontmatter-name", Level::Note, message)
            .at(SKILL_MD)
            .on(at)
            .hint(hint),
    );
    Some((name, Some(author.to_owned())))
}
