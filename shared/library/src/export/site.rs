//! Exports a site that any tool of the agent skills standard can install from:
//! `.well-known/agent-skills/index.json`, version 0.2.0.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_format::hash::Digest;
use vault_format::manifest::SKILL_MD;
use vault_format::name::{SkillName, SkillRef};
use vault_shelf::fetch::{SIGNED_META, SignedSkill};

use super::release::Release;
use super::{
    CATALOG_SUFFIX, ExportError, Exported, MANIFEST_SUFFIX, pack, pack_files, write_export,
};
use crate::disk;
use crate::installed::list;
use crate::installed::place::Origin;
use crate::run::{self, VerifiedSkill};
use crate::vault::Vault;

/// Path of the index below the folder that is served as the site's root.
pub const INDEX: &str = ".well-known/agent-skills/index.json";
/// The value of `$schema` in the index.
pub const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// The name of the page beside the index that verifies the site in a visitor's browser.
const PAGE_NAME: &str = "verify.html";
/// The name of the same check beside it, for a copy of one's own: a host that lies serves a page
/// that lies.
const READER_NAME: &str = "reader.mjs";
/// The script of the page, written from docs/formats.md.
const READER: &str = include_str!("reader.mjs");
/// The standard's limit for a description, in UTF-16 code units. Clients skip entries with longer
/// ones.
const MAX_DESCRIPTION: usize = 1024;
/// The largest index that is read, in bytes.
pub(super) const MAX_INDEX: u64 = 16 << 20;

/// Options of a site export.
#[derive(Clone, Debug)]
pub struct SiteInput {
    /// The folder that will be served as the site's root.
    pub folder: PathBuf,
    /// The installed skills to export; if empty, all own skills.
    pub skills: Vec<SkillRef>,
}

/// The result of a site export.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SiteReport {
    /// Path of the index.
    pub index: PathBuf,
    /// Path of the page that verifies the site in a visitor's browser.
    pub page: PathBuf,
    /// The exported skills, ordered by name.
    pub skills: Vec<Exported>,
    /// Files of an earlier export that are no longer listed and were removed.
    pub removed: Vec<PathBuf>,
    /// Skills whose description in the index is shortened to the standard's limit.
    #[serde(skip)]
    pub shortened: Vec<SkillName>,
}

/// The format of the index file.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SiteIndex {
    #[serde(rename = "$schema")]
    pub(super) schema: String,
    pub(super) skills: Vec<SiteEntry>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SiteEntry {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) description: String,
    pub(super) url: String,
    pub(super) digest: String,
    /// The skill's signed manifest and key ([`SIGNED_META`]), for readers that support it; others
    /// ignore the field.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<Value>,
}

/// Writes a site: for each skill an archive or a SKILL.md with its signed manifest, a page that
/// verifies them, and the index last. Removes files that an earlier export wrote for skills that are no longer exported.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::export::{SiteInput, export_site};
/// use vault_library::{Vault, VaultPaths, add_folder};
/// use vault_store::{clock::SystemClock, random::SystemRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let skill = folder.path().join("pdf");
/// std::fs::create_dir(&skill)?;
/// std::fs::write(skill.join("SKILL.md"), "---\nname: pdf\ndescription: Reads PDF files with care.\n---\nRead.\n")?;
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(SystemClock), Arc::new(SystemRandom))?;
/// add_folder(&vault, &skill, &Default::default())?;
///
/// let report = export_site(&vault, &SiteInput { folder: folder.path().join("site"), skills: Vec::new() })?;
/// assert_eq!(report.skills[0].name.as_str(), "pdf");
/// assert!(folder.path().join("site/.well-known/agent-skills/index.json").exists());
/// # Ok(())
/// # }
/// ```
pub fn export_site(vault: &Vault, input: &SiteInput) -> Result<SiteReport, ExportError> {
    let index = input.folder.join(INDEX);
    let folder = input.folder.join(".well-known/agent-skills");
    let mut names = input.skills.clone();
    if names.is_empty() {
        names = list_own_skills(vault)?
            .into_iter()
            .map(SkillRef::from)
            .collect();
    }
    names.sort_unstable();
    names.dedup();
    // Verify all skills before anything is written.
    let skills = names
        .iter()
        .map(|name| run::inspect_skill(vault, name))
        .collect::<Result<Vec<_>, _>>()?;
    vault.note_shown()?;
    disk::make_dirs(&folder, 0o755)?;
    // Read the index before it is replaced, because only it names the files of the earlier export.
    let before = earlier_files(&index)?;
    let mut writer = SiteWriter {
        vault,
        folder: &folder,
        written: BTreeSet::new(),
        shortened: Vec::new(),
    };
    let mut entries = Vec::new();
    let mut exported = Vec::new();
    for skill in &skills {
        let (entry, files) = writer.write_skill(skill)?;
        entries.push(entry);
        exported.push(files);
    }
    write_export(&folder.join(READER_NAME), READER.as_bytes())?;
    let page = folder.join(PAGE_NAME);
    write_export(&page, verify_page().as_bytes())?;
    // Write the index last, so that every file it lists exists by then.
    let text = serde_json::to_string_pretty(&SiteIndex {
        schema: SCHEMA.to_owned(),
        skills: entries,
    });
    write_export(&index, format!("{}\n", text.unwrap_or_default()).as_bytes())?;
    let mut removed = Vec::new();
    for gone in before.difference(&writer.written) {
        let path = folder.join(gone);
        if disk::kind_at(&path)? == Some(disk::Kind::File) && disk::remove_file(&path)? {
            removed.push(path);
        }
    }
    Ok(SiteReport {
        index,
        page,
        skills: exported,
        removed,
        shortened: writer.shortened,
    })
}

/// Returns the page that verifies the site. Its policy allows the script and the style by their
/// hashes and nothing else.
fn verify_page() -> String {
    let style = include_str!("verify.css");
    include_str!("verify.html")
        .replace("{script-hash}", &policy_hash(READER))
        .replace("{style-hash}", &policy_hash(style))
        .replace("{style}", style)
        .replace("{script}", READER)
}

/// The name of a script or style in a content security policy (CSP Level 3, section 2.3.1).
fn policy_hash(text: &str) -> String {
    format!(
        "sha256-{}",
        STANDARD.encode(Digest::of(text.as_bytes()).as_bytes())
    )
}

/// Writes the files of a site, except the index.
struct SiteWriter<'a> {
    vault: &'a Vault,
    /// The folder of the index.
    folder: &'a Path,
    /// The names of the files written so far.
    written: BTreeSet<String>,
    /// The skills whose description is shortened.
    shortened: Vec<SkillName>,
}

impl SiteWriter<'_> {
    /// Writes the artifact of a skill with its manifest and release. Returns its entry of the
    /// index.
    fn write_skill(&mut self, skill: &VerifiedSkill) -> Result<(SiteEntry, Exported), ExportError> {
        let (url, kind, bytes) = build_artifact(skill)?;
        let file = self.folder.join(&url);
        // Two linked vaults may have a skill of one name.
        if self.written.contains(&url) {
            return Err(ExportError::Exists(file));
        }
        if let Some(parent) = file.parent() {
            disk::make_dirs(parent, 0o755)?;
        }
        write_export(&file, &bytes)?;
        let release = Release::for_skill(self.vault, skill)?;
        let catalog = self.write_catalog(&release)?;
        let manifest = format!("{}{MANIFEST_SUFFIX}", skill.name);
        let manifest_bytes = super::manifest_bytes(skill, catalog.as_deref());
        write_export(&self.folder.join(&manifest), &manifest_bytes)?;
        let description = description_of(skill);
        let limited = shorten_description(&description);
        if limited != description {
            self.shortened.push(skill.name.clone());
        }
        let signed = SignedSkill {
            manifest: manifest.clone(),
            public_key: skill.signer,
        };
        self.written.extend([url.clone(), manifest]);
        let entry = SiteEntry {
            meta: Some(json!({ SIGNED_META: signed })),
            name: skill.name.to_string(),
            kind: kind.to_owned(),
            description: limited,
            url,
            digest: format!("sha256:{}", Digest::of(&bytes)),
        };
        Ok((entry, Exported::new(skill, file, &bytes, &release)))
    }

    /// Writes the catalog of a release, if it has one, and returns the name of its file.
    fn write_catalog(&mut self, release: &Release) -> Result<Option<String>, ExportError> {
        let Some(bytes) = release.bytes() else {
            return Ok(None);
        };
        // The skills of one vault share a release, so its file is named after its content.
        let name = format!("{}{CATALOG_SUFFIX}", Digest::of(bytes));
        if self.written.insert(name.clone()) {
            write_export(&self.folder.join(&name), bytes)?;
        }
        Ok(Some(name))
    }
}

fn list_own_skills(vault: &Vault) -> Result<Vec<SkillName>, ExportError> {
    let listing = list::list_installed(vault)?;
    // Include damaged skills, so that reading them fails with an error instead of silently leaving
    // them out.
    let good = listing.skills.into_iter();
    let damaged = listing.damaged.into_iter();
    Ok(good
        .map(|skill| (skill.name, skill.origin))
        .chain(damaged.map(|(name, origin, _)| (name, origin)))
        .filter(|(_, origin)| *origin == Origin::Local)
        .map(|(name, _)| name)
        .collect())
}

/// Builds the artifact of a skill. Returns its path below the index's folder, its type and its
/// bytes.
fn build_artifact(skill: &VerifiedSkill) -> Result<(String, &'static str, Vec<u8>), ExportError> {
    if let [only] = &skill.examined.files[..]
        && only.path.as_str() == SKILL_MD
    {
        let url = format!("{}/{SKILL_MD}", skill.name);
        return Ok((url, "skill-md", only.bytes.clone()));
    }
    let bytes = pack_files(skill, pack::tar_gz)?;
    Ok((format!("{}.tar.gz", skill.name), "archive", bytes))
}

/// Returns the skill's description, or its name if there is none.
fn description_of(skill: &VerifiedSkill) -> String {
    match &skill.frontmatter {
        Some(read) if !read.description.is_empty() => read.description.clone(),
        _ => skill.name.to_string(),
    }
}

/// Cuts a description to the standard's limit. Clients count UTF-16 code units.
fn shorten_description(text: &str) -> String {
    if text.encode_utf16().count() <= MAX_DESCRIPTION {
        return text.to_owned();
    }
    // One unit is reserved for the ellipsis.
    let mut length = 1;
    let mut cut: String = text
        .chars()
        .take_while(|c| {
            length += c.len_utf16();
            length <= MAX_DESCRIPTION
        })
        .collect();
    cut.push('…');
    cut
}

/// Returns the files that an earlier export wrote, relative to the index's folder. Entries that do
/// not follow the naming of this module are ignored, so that a foreign index can't cause other
/// files to be deleted.
fn earlier_files(index: &Path) -> Result<BTreeSet<String>, ExportError> {
    let bytes = disk::read(index, MAX_INDEX)?.unwrap_or_default();
    let Ok(index) = serde_json::from_slice::<SiteIndex>(&bytes) else {
        return Ok(BTreeSet::new());
    };
    let named = index.skills.into_iter().filter_map(|entry| {
        let name: SkillName = entry.name.parse().ok()?;
        let ours = [format!("{name}.tar.gz"), format!("{name}/{SKILL_MD}")];
        ours.contains(&entry.url)
            .then(|| [entry.url, format!("{name}{MANIFEST_SUFFIX}")])
    });
    Ok(named.flatten().collect())
}
