//! A skill that the gate admitted: named, read, its files in order. Signing and bundling start from
//! here.

use crate::document::{Frontmatter, SKILL_MD};
use crate::finding::Finding;
use std::collections::BTreeMap;
use vault_format::bundle::File;
use vault_format::manifest::{ActionSpec, Flag, Waiver};
use vault_format::name::{ActionName, SkillName};

/// A skill that passed the gate. Only the gate makes one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Package {
    /// Name in the vault.
    pub name: SkillName,
    /// The author's own name, where it differs from the name in the vault.
    pub frontmatter_name: Option<String>,
    /// The fields of SKILL.md.
    pub frontmatter: Frontmatter,
    /// Declared actions, each with a command and a folder that exist.
    pub actions: BTreeMap<ActionName, ActionSpec>,
    /// Files sorted by path bytes, SKILL.md among them; ignored metadata left out; bytes as they
    /// came.
    pub files: Vec<File>,
    /// Flags that were downgraded to warnings, sorted; empty where the gate was strict.
    pub flags: Vec<Flag>,
    /// Exceptions of the owner that these bytes needed, sorted.
    pub waivers: Vec<Waiver>,
    /// Findings of the gate, none of which blocks.
    pub findings: Vec<Finding>,
}

impl Package {
    /// Returns the bytes of SKILL.md.
    pub fn document(&self) -> &[u8] {
        // Never empty in practice: without SKILL.md the gate makes no package.
        self.file(SKILL_MD).map_or(&[], |file| &file.bytes)
    }

    /// Returns the file with this path, if the skill has it.
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
