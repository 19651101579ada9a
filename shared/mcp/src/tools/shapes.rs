//! Parts of answers that several tools share.

use rmcp::schemars::JsonSchema;
use serde::Serialize;
use vault_format::manifest::{FileEntry, SKILL_MD};
use vault_format::name::SkillName;
use vault_shelf::{Entry, Loaded};

use crate::uri;

/// Metadata of a skill.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Summary {
    /// Id of the skill, `<owner>/<name>`.
    pub id: String,
    /// Name of the skill in the vault.
    pub name: String,
    /// Version: 1 at first, one more with each change.
    pub version: u64,
    /// What it does and when to use it.
    pub description: String,
    /// When to use it, if the skill says so separately.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub when_to_use: String,
    /// Tags from the frontmatter; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Categories from the frontmatter; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Agents that it is meant for; absent: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Names of the actions (commands) that the skill declares; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// SHA-256 of the skill's bundle (its signed manifest and all its files), in hex.
    pub bundle_hash: String,
    /// Address of its SKILL.md as a resource.
    pub uri: String,
}

impl Summary {
    pub fn from_entry(owner: &str, entry: &Entry) -> Self {
        let texts = &entry.texts;
        Self {
            id: uri::skill_id(owner, &texts.name),
            name: texts.name.to_string(),
            version: entry.version,
            description: texts.description.clone(),
            when_to_use: texts.when_to_use.clone(),
            tags: texts.tags.clone(),
            categories: texts.categories.clone(),
            agents: texts.agents.iter().map(ToString::to_string).collect(),
            actions: texts.actions.iter().map(ToString::to_string).collect(),
            bundle_hash: texts.bundle_hash.to_string(),
            uri: uri::file_uri(owner, &texts.name, SKILL_MD),
        }
    }

    /// Estimates the size of the summary as JSON, in bytes.
    pub fn json_size(&self) -> usize {
        let lists = [&self.tags, &self.categories, &self.agents, &self.actions];
        // Add four bytes for the quotes, a comma and some escapes.
        let listed: usize = lists.into_iter().flatten().map(|text| text.len() + 4).sum();
        400 + 2 * (self.description.len() + self.when_to_use.len()) + listed
    }
}

/// A file of a skill.
#[derive(Debug, JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct FileInfo {
    /// Path below the skill's folder.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// `0644`, or `0755` for an executable file.
    pub mode: String,
    /// Address as a resource.
    pub uri: String,
}

impl FileInfo {
    pub fn from_entry(owner: &str, name: &SkillName, entry: &FileEntry) -> Self {
        Self {
            path: entry.path.to_string(),
            size: entry.size,
            sha256: entry.sha256.to_string(),
            mode: format!("{:04o}", entry.mode.bits()),
            uri: uri::file_uri(owner, name, entry.path.as_str()),
        }
    }
}

/// Lists all files of a skill, SKILL.md first.
pub fn file_infos(owner: &str, loaded: &Loaded) -> Vec<FileInfo> {
    let name = &loaded.bundle.manifest.name;
    crate::content::files_in_order(loaded)
        .map(|(entry, _)| FileInfo::from_entry(owner, name, entry))
        .collect()
}
