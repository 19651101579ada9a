//! A skill that passed the scan: with its name, its parsed fields and its files in order. Signing
//! and bundling start from it.

use crate::document::{Frontmatter, SKILL_MD};
use crate::finding::Finding;
use std::collections::BTreeMap;
use vault_format::bundle::File;
use vault_format::manifest::{ActionSpec, Flag, Waiver};
use vault_format::name::{ActionName, SkillName};

/// A skill that passed the scan. Only this crate can create one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Package {
    /// Name in the vault.
    pub name: SkillName,
    /// The author's own name; `None` if it is the name in the vault.
    pub frontmatter_name: Option<String>,
    /// The fields of SKILL.md.
    pub frontmatter: Frontmatter,
    /// The declared actions; their commands and folders exist.
    pub actions: BTreeMap<ActionName, ActionSpec>,
    /// The files, sorted by path bytes, with SKILL.md and without ignored metadata. The bytes are
    /// as they were found.
    pub files: Vec<File>,
    /// Flags that became warnings because the scan was not strict, sorted; empty if it was strict.
    pub flags: Vec<Flag>,
    /// Waivers (exceptions that the owner made) that these bytes needed, sorted.
    pub waivers: Vec<Waiver>,
    /// Findings of the scan; none of them blocks.
    pub findings: Vec<Finding>,
}

impl Package {
    /// Returns the bytes of SKILL.md.
    pub fn document(&self) -> &[u8] {
        // Never empty in practice: without SKILL.md the gate makes no package.
        self.file(SKILL_MD).map_or(&[], |file| &file.bytes)
    }

    /// Returns the file with this path; `None` if the skill has none.
    pub fn file(&self, path: &str) -> Option<&File> {
        let place = self
            .files
            .binary_search_by(|file| file.path.as_str().cmp(path))
            .ok()?;
        self.files.get(place)
    }

    /// Returns the size of all files together, in bytes.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }
}
