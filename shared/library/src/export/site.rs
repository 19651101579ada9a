//! A site that any tool of the agent skills standard installs from: `.well-known/agent-skills/index.json`, version 0.2.0.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vault_skill::hash::Digest;
use vault_skill::manifest::SKILL_MD;
use vault_skill::name::SkillName;
use vault_store::fetch::{SIGNED_META, SignedSkill};

use super::{ExportError, MANIFEST_SUFFIX, Outgoing, pack, put, take};
use crate::disk;
use crate::installed::list;
use crate::installed::place::Origin;
use crate::vault::Vault;

/// The index, below the folder that is served as the root of the site.
pub const INDEX: &str = ".well-known/agent-skills/index.json";
/// What the index calls itself.
pub const SCHEMA: &str = "https://schemas.agentskills.io/discovery/0.2.0/schema.json";
/// The standard's limit of a description, in characters; clients leave entries with longer ones out.
const MAX_DESCRIPTION: usize = 1024;
/// The largest index that is read.
pub(super) const MAX_INDEX: u64 = 16 << 20;

/// What to write as a site.
#[derive(Clone, Debug)]
pub struct SiteInput {
    /// The folder that will be served as the root of the site.
    pub folder: PathBuf,
    /// The installed skills; empty: all own ones.
    pub skills: Vec<SkillName>,
}

/// A site that was written.
#[derive(Clone, Debug)]
pub struct SiteReport {
    /// The index.
    pub index: PathBuf,
    /// The skills in it, by name.
    pub skills: Vec<SiteSkill>,
    /// Files of an earlier export that nothing names any more, and that were removed.
    pub removed: Vec<PathBuf>,
}

/// A skill of a site.
#[derive(Clone, Debug)]
pub struct SiteSkill {
    /// Its name.
    pub name: SkillName,
    /// Its version.
    pub version: u64,
    /// Its bundle.
    pub bundle: Digest,
    /// The artifact that is installed from.
    pub file: PathBuf,
    /// SHA-256 of the artifact.
    pub sha256: Digest,
    /// Bytes of the artifact.
    pub size: u64,
    /// Whether the index shows a shortened description, since clients refuse longer ones.
    pub shortened: bool,
}

/// The index as it stands in the file.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Index {
    #[serde(rename = "$schema")]
    pub(super) schema: String,
    pub(super) skills: Vec<Entry>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Entry {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) description: String,
    pub(super) url: String,
    pub(super) digest: String,
    /// Whose signature the skill carries ([`SIGNED_META`]), for readers that ask; others pass over it.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<Value>,
}

/// Writes a site: an archive or a SKILL.md for each skill, its signed manifest beside it, the index last. What an earlier
/// export wrote for skills that are gone is removed.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::export::{SiteInput, well_known};
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
/// let report = well_known(&vault, &SiteInput { folder: folder.path().join("site"), skills: Vec::new() })?;
/// assert_eq!(report.skills[0].name.as_str(), "pdf");
/// assert!(folder.path().join("site/.well-known/agent-skills/index.json").exists());
/// # Ok(())
/// # }
/// ```
pub fn well_known(vault: &Vault, input: &SiteInput) -> Result<SiteReport, ExportError> {
    let index = input.folder.join(INDEX);
    let folder = input.folder.join(".well-known/agent-skills");
    let mut names = input.skills.clone();
    if names.is_empty() {
        names = own(vault)?;
    }
    names.sort_unstable();
    names.dedup();
    // All are verified before anything is written.
    let skills = names
        .iter()
        .map(|name| take(vault, name))
        .collect::<Result<Vec<_>, _>>()?;
    disk::make_dirs(&folder, 0o755)?;
    let before = earlier(&index)?;
    let mut entries = Vec::new();
    let mut reports = Vec::new();
    let mut written = BTreeSet::new();
    for skill in &skills {
        let (url, kind, bytes) = artifact(skill)?;
        let file = folder.join(&url);
        if let Some(parent) = file.parent() {
            disk::make_dirs(parent, 0o755)?;
        }
        put(&file, &bytes)?;
        let manifest = format!("{}{MANIFEST_SUFFIX}", skill.name);
        put(&folder.join(&manifest), &skill.signed)?;
        let (description, shortened) = described(skill);
        let sha256 = Digest::of(&bytes);
        let signed = SignedSkill {
            manifest: manifest.clone(),
            public_key: skill.signer,
        };
        written.extend([url.clone(), manifest]);
        entries.push(Entry {
            meta: Some(json!({ SIGNED_META: signed })),
            name: skill.name.to_string(),
            kind: kind.to_owned(),
            description,
            url,
            digest: format!("sha256:{sha256}"),
        });
        reports.push(SiteSkill {
            name: skill.name.clone(),
            version: skill.manifest.version,
            bundle: skill.bundle,
            file,
            sha256,
            size: bytes.len() as u64,
            shortened,
        });
    }
    let text = serde_json::to_string_pretty(&Index {
        schema: SCHEMA.to_owned(),
        skills: entries,
    });
    put(&index, format!("{}\n", text.unwrap_or_default()).as_bytes())?;
    let mut removed = Vec::new();
    for gone in before.difference(&written) {
        let path = folder.join(gone);
        if disk::kind(&path)? == Some(disk::Kind::File) && disk::remove_file(&path)? {
            removed.push(path);
        }
    }
    Ok(SiteReport {
        index,
        skills: reports,
        removed,
    })
}

fn own(vault: &Vault) -> Result<Vec<SkillName>, ExportError> {
    let listing = list::list(vault)?;
    let good = listing
        .skills
        .into_iter()
        .map(|skill| (skill.name, skill.origin));
    // A damaged skill is no skill that may be missing in silence: taking it says what is wrong.
    let damaged = listing
        .damaged
        .into_iter()
        .map(|(name, origin, _)| (name, origin));
    Ok(good
        .chain(damaged)
        .filter(|(_, origin)| *origin == Origin::Local)
        .map(|(name, _)| name)
        .collect())
}

/// Where a skill's artifact lies below the index, its type, its bytes.
fn artifact(skill: &Outgoing) -> Result<(String, &'static str, Vec<u8>), ExportError> {
    if let [only] = &skill.files[..]
        && only.path.as_str() == SKILL_MD
    {
        let url = format!("{}/{SKILL_MD}", skill.name);
        return Ok((url, "skill-md", only.bytes.clone()));
    }
    let bytes = pack::tar_gz(&skill.files).map_err(|cause| ExportError::Pack {
        name: skill.name.clone(),
        cause,
    })?;
    Ok((format!("{}.tar.gz", skill.name), "archive", bytes))
}

/// The description as clients take it, counted as they count: in UTF-16 units.
fn described(skill: &Outgoing) -> (String, bool) {
    let text = if skill.description.is_empty() {
        skill.name.to_string()
    } else {
        skill.description.clone()
    };
    if text.encode_utf16().count() <= MAX_DESCRIPTION {
        return (text, false);
    }
    let mut length = 1;
    let mut cut: String = text
        .chars()
        .take_while(|c| {
            length += c.len_utf16();
            length <= MAX_DESCRIPTION
        })
        .collect();
    cut.push('…');
    (cut, true)
}

/// The files that an earlier export of ours named, relative to the index. A stranger's index names nothing.
fn earlier(index: &Path) -> Result<BTreeSet<String>, ExportError> {
    let Some(bytes) = disk::read(index, MAX_INDEX)? else {
        return Ok(BTreeSet::new());
    };
    let Ok(index) = serde_json::from_slice::<Index>(&bytes) else {
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
