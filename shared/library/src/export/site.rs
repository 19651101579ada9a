//! Exports a site from which every tool of the agent skills standard can install:
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
use crate::installed::installations::Origin;
use crate::installed::listing;
use crate::run::{self, VerifiedSkill};
use crate::vault::Vault;

/// Path of the index below the root of the site.
pub const INDEX: &str = ".well-known/agent-skills/index.json";
/// Value of `$schema` in the index.
pub const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// Page beside the index that verifies the site in a visitor's browser.
const PAGE_NAME: &str = "verify.html";
/// Script that makes the same check and can be run from a copy of one's own, because a host that
/// lies also serves a page that lies.
const READER_NAME: &str = "reader.mjs";
/// Content of the script, written from docs/formats.md.
const READER: &str = include_str!("reader.mjs");
/// Limit of the standard for a description, in UTF-16 code units. Clients skip entries with longer
/// descriptions.
const MAX_DESCRIPTION: usize = 1024;
/// Size limit of an index that is read, in bytes.
pub(super) const MAX_INDEX: u64 = 16 << 20;

/// The skills to export as a site, and the folder to write.
#[derive(Clone, Debug)]
pub struct SiteInput {
    /// Folder that will be served as the root of the site.
    pub folder: PathBuf,
    /// Installed skills to export; all own skills if empty.
    pub skills: Vec<SkillRef>,
}

/// The files that a site export has written or removed.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SiteReport {
    /// Path of `index.json`, which was written last.
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
    /// Skills whose SKILL.md has another name than their entry in the index, so that clients refuse
    /// them.
    #[serde(skip)]
    pub renamed: Vec<SkillName>,
}

/// The JSON document at [`INDEX`].
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SiteIndex {
    #[serde(rename = "$schema")]
    pub(super) schema: String,
    pub(super) skills: Vec<SiteEntry>,
}

/// The entry of one skill in the index. `url` is the path of its artifact, and `digest` is
/// `sha256:` with the hash of that file.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct SiteEntry {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) description: String,
    pub(super) url: String,
    pub(super) digest: String,
    /// Path of the skill's signed manifest and the key that signed it ([`SIGNED_META`]). Readers
    /// that do not know the field ignore it.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<Value>,
}

/// Writes a site: for each skill an archive or a SKILL.md, with its signed manifest; a page that
/// verifies them; and the index last. Removes the files of an earlier export that are no longer
/// listed.
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
    vault.note_roots_exported()?;
    disk::make_dirs(&folder, 0o755)?;
    // Read the index before it is replaced, because only the index names the files of the earlier
    // export.
    let before = earlier_files(&index)?;
    let mut writer = SiteWriter {
        vault,
        folder: &folder,
        written: BTreeSet::new(),
        shortened: Vec::new(),
        renamed: Vec::new(),
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
    // Write the index last, so that every file in it exists by then.
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
        renamed: writer.renamed,
    })
}

/// Returns the page that verifies the site. Its content security policy allows only the script and
/// the style, by their hashes.
fn verify_page() -> String {
    let style = include_str!("verify.css");
    include_str!("verify.html")
        .replace("{script-hash}", &policy_hash(READER))
        .replace("{style-hash}", &policy_hash(style))
        .replace("{style}", style)
        .replace("{script}", READER)
}

/// Returns how a content security policy names a script or style (CSP Level 3, section 2.3.1).
fn policy_hash(text: &str) -> String {
    format!(
        "sha256-{}",
        STANDARD.encode(Digest::of(text.as_bytes()).as_bytes())
    )
}

/// Writes the files of a site, except the index and the page.
struct SiteWriter<'a> {
    vault: &'a Vault,
    /// Folder of the index.
    folder: &'a Path,
    /// Paths of the files that were written, relative to `folder`.
    written: BTreeSet<String>,
    shortened: Vec<SkillName>,
    renamed: Vec<SkillName>,
}

impl SiteWriter<'_> {
    /// Writes the artifact of a skill, its manifest and its release. Returns its entry in the
    /// index.
    fn write_skill(&mut self, skill: &VerifiedSkill) -> Result<(SiteEntry, Exported), ExportError> {
        let (url, kind, bytes) = build_artifact(skill)?;
        let file = self.folder.join(&url);
        // Two linked vaults may have skills of the same name.
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
        if has_other_name(skill) {
            self.renamed.push(skill.name.clone());
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

    /// Writes the catalog of a release if there is one, and returns the name of the file.
    fn write_catalog(&mut self, release: &Release) -> Result<Option<String>, ExportError> {
        let Some(bytes) = release.bytes() else {
            return Ok(None);
        };
        // Skills of one vault share a release, so the name of its file is its hash.
        let name = format!("{}{CATALOG_SUFFIX}", Digest::of(bytes));
        if self.written.insert(name.clone()) {
            write_export(&self.folder.join(&name), bytes)?;
        }
        Ok(Some(name))
    }
}

fn list_own_skills(vault: &Vault) -> Result<Vec<SkillName>, ExportError> {
    let listing = listing::list_installed(vault)?;
    // Include damaged skills: reading them fails with an error, so that none is left out unnoticed.
    let good = listing.skills.into_iter();
    let damaged = listing.damaged.into_iter();
    Ok(good
        .map(|skill| (skill.name, skill.origin))
        .chain(damaged.map(|(name, origin, _)| (name, origin)))
        .filter(|(_, origin)| *origin == Origin::Local)
        .map(|(name, _)| name)
        .collect())
}

/// Builds the file that clients install: a SKILL.md alone, or an archive. Returns its path below
/// the index's folder, its type and its bytes.
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

/// Returns whether a client that reads the SKILL.md would give the skill another name.
fn has_other_name(skill: &VerifiedSkill) -> bool {
    let author = skill.frontmatter.as_ref().map(|read| read.name.as_str());
    let derived =
        author.and_then(|author| author.parse().ok().or_else(|| SkillName::derive(author)));
    derived.is_some_and(|name| name != skill.name)
}

/// Returns the skill's description, or its name if there is none.
fn description_of(skill: &VerifiedSkill) -> String {
    match &skill.frontmatter {
        Some(read) if !read.description.is_empty() => read.description.clone(),
        _ => skill.name.to_string(),
    }
}

/// Shortens a description to the standard's limit, which counts UTF-16 code units.
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

/// Returns the files of an earlier export, relative to the index's folder. Entries whose paths this
/// module would not have written are ignored, so that an index from elsewhere can't cause other
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
