//! Reads lock files in which other tools list the sources of skills: a project's `skills-lock.json`
//! and the same tool's global lock file.

use std::collections::BTreeMap;

use serde::Deserialize;
use vault_format::json::unique_map;
use vault_format::text::printable;
use vault_gate::is_document_name;

use crate::source::{BadSource, ParseOptions, Source};

/// Maximum size of a lock file, in bytes. The caller that reads the file enforces it.
pub const MAX_LOCK_BYTES: u64 = 4 << 20;

/// One entry of a lock file.
#[derive(Clone, Debug)]
pub struct LockedSkill {
    /// Name of the skill in the lock file.
    pub name: String,
    /// The source, or the reason why the entry cannot be used.
    pub source: Result<Source, BadSource>,
    /// The name or folder that selects the skill in the source; `None` if the source itself names
    /// the skill.
    pub skill: Option<String>,
    /// The git tree id of the skill's folder, if the entry records one.
    pub tree: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default, deserialize_with = "unique_map")]
    skills: BTreeMap<String, LockFileEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockFileEntry {
    source: Option<String>,
    source_type: Option<String>,
    source_url: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    skill_path: Option<String>,
    skill_folder_hash: Option<String>,
}

/// Parses a lock file. Relative paths in it are resolved against `folder`. Fails if the bytes are
/// not a lock file.
pub fn parse_lock(
    bytes: &[u8],
    folder: &std::path::Path,
    options: &ParseOptions,
) -> Result<Vec<LockedSkill>, String> {
    // serde would also read an array as the members of the object.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a lock file of skills: not a JSON object".to_owned());
    }
    let lock: Lock = serde_json::from_slice(bytes)
        .map_err(|error| format!("it is not a lock file of skills: {error}"))?;
    if lock.skills.is_empty() {
        return Err("it names no skills".to_owned());
    }
    Ok(lock
        .skills
        .into_iter()
        .map(|(name, entry)| LockedSkill {
            source: locked_source(&name, &entry, folder, options),
            skill: entry.selected_skill(&name),
            tree: entry
                // Keep only git tree ids: other hashes cannot be compared with the source later.
                .skill_folder_hash
                .filter(|hash| crate::git::is_commit(hash)),
            name,
        })
        .collect())
}

impl LockFileEntry {
    /// Returns the folder of the skill in the source; empty for the root.
    fn skill_folder(&self) -> Option<&str> {
        let path = self.skill_path.as_deref()?;
        let folder = match path.rsplit_once('/') {
            Some((folder, name)) if is_document_name(name) => folder,
            None if is_document_name(path) => "",
            _ => path,
        };
        Some(folder.trim_start_matches("./").trim_matches('/'))
    }

    /// Returns the text that selects the skill in the source. The entry always names a skill,
    /// because a source that lost this one may offer another as its only skill.
    fn selected_skill(&self, name: &str) -> Option<String> {
        let kind = self.source_type.as_deref();
        if !matches!(kind, None | Some("github" | "gitlab" | "git" | "local")) {
            return None;
        }
        Some(match self.skill_folder() {
            Some("") => ".".to_owned(),
            Some(folder) => format!("./{folder}"),
            None => name.to_owned(),
        })
    }
}

fn locked_source(
    name: &str,
    entry: &LockFileEntry,
    folder: &std::path::Path,
    options: &ParseOptions,
) -> Result<Source, BadSource> {
    let bad = |reason: String| BadSource::Invalid {
        text: name.chars().take(200).collect(),
        reason,
        hint: None,
    };
    let text = entry
        .source
        .clone()
        .or_else(|| entry.source_url.clone())
        .ok_or_else(|| bad("it names no source".to_owned()))?;
    let address = entry.source_url.clone().unwrap_or_else(|| text.clone());
    let kind = entry.source_type.as_deref().unwrap_or("github");
    // The entry's type decides how its text is parsed, so never treat the text as a local path.
    let parse =
        |text: &str| Source::parse(text, options, &|_| false).or_else(BadSource::accept_shorthand);
    let mut source = match kind {
        "github" | "gitlab" if !text.contains("://") && !text.contains('@') => {
            parse(&format!("{kind}:{text}"))?
        }
        "github" | "gitlab" => parse(&address)?,
        "git" => parse(&format!("git:{address}"))?,
        "local" => return Ok(Source::Local(folder.join(text))),
        "well-known" => {
            let site = address.split("/.well-known/").next();
            let site = site.unwrap_or_default().trim_end_matches('/');
            let scheme = if site.contains("://") { "" } else { "https://" };
            parse(&format!("wellknown:{scheme}{site}/{name}"))?
        }
        other => {
            return Err(bad(format!(
                "sources of the type {} are not fetched",
                printable(other)
            )));
        }
    };
    if let Source::Git(git) = &mut source
        && let Some(path) = entry.skill_folder().filter(|path| !path.is_empty())
    {
        git.path = None;
        source = source.with_path(path)?;
    }
    match &entry.reference {
        Some(reference) => source.with_reference(reference),
        None => Ok(source),
    }
}
