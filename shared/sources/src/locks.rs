//! Lock files of other tools, read for their sources: `skills-lock.json` of a project and the global one of the same tool.

use std::collections::BTreeMap;

use serde::Deserialize;
use vault_skill::finding::printable;

use crate::source::{BadSource, ParseOptions, Source};

/// Largest lock file, in bytes.
pub const MAX_LOCK_BYTES: u64 = 4 << 20;

/// One skill of a lock file.
#[derive(Clone, Debug)]
pub struct LockedSkill {
    /// Its name there.
    pub name: String,
    /// Where it comes from, or why nothing can be made of the entry.
    pub source: Result<Source, BadSource>,
    /// The id of its folder's tree that the file records.
    pub tree: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    skills: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    source: Option<String>,
    source_type: Option<String>,
    source_url: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    skill_path: Option<String>,
    skill_folder_hash: Option<String>,
}

/// Reads a lock file; `folder` is what its relative paths begin at. Fails when it is none.
pub fn read(
    bytes: &[u8],
    folder: &std::path::Path,
    options: &ParseOptions,
) -> Result<Vec<LockedSkill>, String> {
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err("it is no lock file of skills: no JSON object".to_owned());
    }
    let lock: Lock = serde_json::from_slice(bytes)
        .map_err(|error| format!("it is no lock file of skills: {error}"))?;
    Ok(lock
        .skills
        .into_iter()
        .map(|(name, entry)| LockedSkill {
            source: source(&name, &entry, folder, options),
            tree: entry
                .skill_folder_hash
                .filter(|hash| crate::git::is_commit(hash)),
            name,
        })
        .collect())
}

fn source(
    name: &str,
    entry: &Entry,
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
    let mut source = match kind {
        "github" | "gitlab" if !text.contains("://") && !text.contains('@') => {
            Source::parse(&format!("{kind}:{text}"), options, &|_| false)?
        }
        "github" | "gitlab" => Source::parse(&address, options, &|_| false)?,
        "git" => Source::parse(&format!("git:{address}"), options, &|_| false)?,
        "local" => return Ok(Source::Local(folder.join(text))),
        "well-known" => {
            let site = if address.contains("://") {
                address
            } else {
                format!("https://{address}")
            };
            let site = site
                .split("/.well-known/")
                .next()
                .unwrap_or(&site)
                .trim_end_matches('/')
                .to_owned();
            Source::parse(&format!("wellknown:{site}/{name}"), options, &|_| false)?
        }
        other => {
            return Err(bad(format!(
                "sources of the type {} are not fetched",
                printable(other)
            )));
        }
    };
    if let Source::Git(git) = &mut source {
        let path = entry
            .skill_path
            .as_deref()
            .map(|path| path.trim_end_matches("SKILL.md").trim_matches('/'));
        match path {
            Some("") | None => git.skill = (entry.skill_path.is_none()).then(|| name.to_owned()),
            Some(path) => {
                git.path = None;
                source = source.with_path(path)?;
            }
        }
    }
    match &entry.reference {
        Some(reference) => source.with_reference(reference),
        None => Ok(source),
    }
}
