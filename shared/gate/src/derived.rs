//! What a signed manifest says and the bytes of its skill decide: compared by everyone who holds
//! both, so that no signer can make a skill say or run what its files do not.

use crate::actions;
use crate::document::{Document, Frontmatter, SKILL_MD};
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::manifest::Manifest;

/// A member of a manifest is not what the bytes of the skill make it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the signed {0} are not those that SKILL.md declares")]
pub struct DerivedMismatch(
    /// The member.
    pub &'static str,
);

/// Compares a manifest with the files that it lists, whose hashes were verified: its actions are
/// those of SKILL.md, and all agents that SKILL.md names are among its agents (its signer may have
/// chosen more, or some where SKILL.md names none). Returns the frontmatter; `None` where it can't
/// be read, and then there are no actions.
pub fn check(manifest: &Manifest, files: &[File]) -> Result<Option<Frontmatter>, DerivedMismatch> {
    let document = files.iter().find(|file| file.path.as_str() == SKILL_MD);
    let document =
        document.and_then(|file| Document::parse_known(&file.bytes, &manifest.name).ok());
    let Some(document) = document else {
        return if manifest.actions.is_empty() {
            Ok(None)
        } else {
            Err(DerivedMismatch("actions"))
        };
    };
    let (frontmatter, _) = document.into_parts();
    if actions::check(&frontmatter, files, &mut Vec::new()) != manifest.actions {
        return Err(DerivedMismatch("actions"));
    }
    let mut declared = frontmatter.agents.iter();
    if !declared.all(|agent| manifest.agents.contains(agent)) {
        return Err(DerivedMismatch("agents"));
    }
    Ok(Some(frontmatter))
}

/// The search texts of a skill, as the index of a release has them. Where an older version admitted
/// frontmatter that no longer parses, only the skill's name can be searched.
pub fn index_entry(
    manifest: &Manifest,
    frontmatter: Option<&Frontmatter>,
    bundle_hash: Digest,
) -> IndexEntry {
    let mut entry = IndexEntry {
        name: manifest.name.clone(),
        bundle_hash,
        description: String::new(),
        tags: Vec::new(),
        categories: Vec::new(),
        when_to_use: String::new(),
        agents: manifest.agents.clone(),
        actions: manifest.actions.keys().cloned().collect(),
    };
    if let Some(frontmatter) = frontmatter {
        entry.description.clone_from(&frontmatter.description);
        entry.tags.clone_from(&frontmatter.tags);
        entry.categories.clone_from(&frontmatter.categories);
        entry.when_to_use = frontmatter.when_to_use.clone().unwrap_or_default();
    }
    entry
}
