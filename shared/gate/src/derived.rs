//! Checks the members of a signed manifest that follow from the bytes of its skill. Every reader
//! that has both compares them, so that a signer cannot make a skill claim or run what its files do
//! not declare.

use crate::actions;
use crate::document::{Document, Frontmatter, SKILL_MD};
use vault_format::bundle::File;
use vault_format::hash::Digest;
use vault_format::index::IndexEntry;
use vault_format::manifest::Manifest;

/// Error: a member of a manifest differs from what the bytes of the skill declare.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the signed {0} are not those that SKILL.md declares")]
pub struct DerivedMismatch(
    /// Name of the member, for the message.
    pub &'static str,
);

/// Compares a manifest with the files that it lists, whose hashes the caller has verified. Its
/// actions must be those of SKILL.md, and its agents must include all that SKILL.md names: a signer
/// may add agents, or choose some if SKILL.md names none. Returns the frontmatter, or `None` if it
/// cannot be read; the manifest must then have no actions.
pub fn compare_with_files(
    manifest: &Manifest,
    files: &[File],
) -> Result<Option<Frontmatter>, DerivedMismatch> {
    let document = files.iter().find(|file| file.path.as_str() == SKILL_MD);
    let document =
        document.and_then(|file| Document::parse_known(&file.bytes, &manifest.name).ok());
    let Some(document) = document else {
        // An older gate may have admitted frontmatter that no longer parses. Such a skill stays
        // readable, but nothing may run on the word of its signer alone.
        return if manifest.actions.is_empty() {
            Ok(None)
        } else {
            Err(DerivedMismatch("actions"))
        };
    };
    let (frontmatter, _) = document.into_parts();
    // The function that admits actions also derives them here, so the two cannot differ. Its
    // findings are for authors and are dropped.
    if actions::read_valid_actions(&frontmatter, files, &mut Vec::new()) != manifest.actions {
        return Err(DerivedMismatch("actions"));
    }
    let mut declared = frontmatter.agents.iter();
    if !declared.all(|agent| manifest.agents.contains(agent)) {
        return Err(DerivedMismatch("agents"));
    }
    Ok(Some(frontmatter))
}

/// Returns the search texts of a skill as the index of a release lists them. If the frontmatter of
/// an older version no longer parses, only the skill's name can be searched.
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
