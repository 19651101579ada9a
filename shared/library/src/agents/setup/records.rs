//! Reads what other tools recorded about the sources of skills: lock files, and fields in the skill
//! itself. Nobody verified these records, so they are stored as the source of a skill and never
//! decide about trust.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use vault_format::provenance::ProvenanceId;
use vault_gate::document::frontmatter_json;

use crate::agents::found::Machine;
use crate::disk;

/// Limit on the size of a lock file, in bytes. A larger one is ignored.
const MAX_LOCK: u64 = 4 << 20;

/// The sources in the lock files of a machine and its project, by the name of the skill's folder.
#[derive(Debug, Default)]
pub(crate) struct Records {
    locked: BTreeMap<String, ProvenanceId>,
    /// Remote sources as the tools wrote them, even if they have no source identifier here.
    written: BTreeMap<String, String>,
}

/// A remote source as an installer wrote it down.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordedSource {
    /// The tool that recorded it: `gh skill`, `skills lock` or `clawhub`.
    pub tool: &'static str,
    /// The source. Unverified text: escape it before printing.
    pub text: String,
}

#[derive(Deserialize)]
struct LockFile {
    #[serde(default)]
    skills: BTreeMap<String, LockEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LockEntry {
    source: Option<String>,
    source_type: Option<String>,
    skill_path: Option<String>,
}

#[derive(Deserialize)]
struct ClawhubOrigin {
    slug: Option<String>,
}

/// Reads the lock files that exist. Unreadable files are skipped.
pub(crate) fn read_records(machine: &Machine) -> Records {
    let mut paths = vec![machine.home.join(".agents/.skill-lock.json")];
    if let Some(state) = machine.variables.get("XDG_STATE_HOME") {
        paths.push(Path::new(state).join("skills/.skill-lock.json"));
    }
    paths.extend(
        machine
            .project
            .iter()
            .map(|project| project.join("skills-lock.json")),
    );
    let mut records = Records::default();
    for path in paths {
        let Ok(Some(bytes)) = disk::read(&path, MAX_LOCK) else {
            continue;
        };
        let Ok(lock) = serde_json::from_slice::<LockFile>(&bytes) else {
            tracing::warn!(path = %path.display(), "this lock file can't be read, so the sources are unknown");
            continue;
        };
        for (name, locked) in lock.skills {
            if let Some(text) = locked.remote_source() {
                records.written.insert(name.clone(), text);
            }
            if let Some(source) = locked.provenance_id(&name) {
                records.locked.insert(name, source);
            }
        }
    }
    records
}

impl LockEntry {
    /// Returns the source as the tool wrote it; `None` for a folder of this machine.
    fn remote_source(&self) -> Option<String> {
        let is_local = self.source_type.as_deref() == Some("local");
        // An entry may lack the source and still give its type.
        let source = self.source.clone().or_else(|| self.source_type.clone());
        source.filter(|_| !is_local)
    }

    /// Returns the source identifier for the entry of skill `name`; `None` for a type of source
    /// that has no identifier here.
    fn provenance_id(&self, name: &str) -> Option<ProvenanceId> {
        let source = self.source.as_deref()?.trim_end_matches(".git");
        let inside = self.skill_path.as_deref();
        match self.source_type.as_deref()? {
            host @ ("github" | "gitlab") => {
                repository_id(host, &format!("https://{host}.com/{source}"), inside)
            }
            "well-known" => {
                let site = source.trim_end_matches('/');
                let site = if site.starts_with("https://") {
                    site.to_owned()
                } else {
                    format!("https://{site}")
                };
                let host = site.strip_prefix("https://").unwrap_or_default();
                // A site below a path has no `wellknown:` identifier, so its address is used.
                let record = if host.contains('/') {
                    format!("https:{site}/.well-known/agent-skills/{name}")
                } else {
                    format!("wellknown:{site}/{name}")
                };
                record.parse().ok()
            }
            _ => None,
        }
    }
}

/// Builds `<host>:owner/repository[/path]` from a repository address on that host and the path of a
/// skill's folder or SKILL.md in the repository.
fn repository_id(host: &str, address: &str, inside: Option<&str>) -> Option<ProvenanceId> {
    let rest = address
        .strip_prefix("https://")?
        // An address on another host must not become an identifier of this one.
        .strip_prefix(&format!("{host}.com/"))?
        .trim_end_matches('/')
        .trim_end_matches(".git");
    let inside = inside.map(|path| path.trim_end_matches("SKILL.md").trim_matches('/'));
    let text = match inside {
        None | Some("" | ".") => format!("{host}:{rest}"),
        Some(inside) => format!("{host}:{rest}/{inside}"),
    };
    text.parse().ok()
}

impl Records {
    /// Returns the recorded source of the skill in this folder, and the name of the tool that
    /// recorded it.
    pub(crate) fn find_source(
        &self,
        folder: &str,
        path: &Path,
        document: &[u8],
    ) -> Option<(&'static str, ProvenanceId)> {
        // Lock files name a skill by its folder only, so records in the skill itself come first.
        if let Some(source) = gh_skill(document) {
            return Some(("gh skill", source));
        }
        if let Some(source) = clawhub_source(path) {
            return Some(("clawhub", source));
        }
        let source = self.locked.get(folder)?;
        Some(("skills lock", source.clone()))
    }

    /// Returns the remote source that an installer recorded for the skill in this folder. Unlike
    /// [`Self::find_source`], it also finds a source that has no source identifier here, such as a
    /// repository on another host. The fields `homepage` and `repository` and links in the text do
    /// not count, because authors write them.
    pub(crate) fn find_remote(
        &self,
        folder: &str,
        path: &Path,
        document: &[u8],
    ) -> Option<RecordedSource> {
        let recorded = |tool, text| RecordedSource { tool, text };
        if let Some(repository) = gh_repository(document) {
            return Some(recorded("gh skill", repository));
        }
        // Even a damaged record shows that the skill came from ClawHub.
        if disk::is_there(&path.join(ORIGIN)) {
            let source =
                clawhub_source(path).map_or_else(|| ORIGIN.to_owned(), |id| id.to_string());
            return Some(recorded("clawhub", source));
        }
        let text = self.written.get(folder)?;
        Some(recorded("skills lock", text.clone()))
    }
}

/// The file that ClawHub writes next to a skill.
const ORIGIN: &str = ".clawhub/origin.json";

/// Returns the repository in the frontmatter keys of `gh skill`, as that tool wrote it.
fn gh_repository(document: &[u8]) -> Option<String> {
    let fields = frontmatter_json(document)?;
    let repository = fields.get("metadata")?.get("github-repo")?;
    let text = repository.as_str().map(str::to_owned);
    // A value of another type still shows that the skill came from elsewhere.
    let text = text.unwrap_or_else(|| repository.to_string());
    Some(text).filter(|text| !text.trim().is_empty() && text != "null")
}

/// Returns the source in the frontmatter keys of `gh skill`.
fn gh_skill(document: &[u8]) -> Option<ProvenanceId> {
    let fields = frontmatter_json(document)?;
    let metadata = fields.get("metadata")?.as_object()?;
    let text = |key: &str| metadata.get(key)?.as_str();
    repository_id("github", text("github-repo")?, text("github-path"))
}

/// Returns the source in ClawHub's file next to a skill.
fn clawhub_source(path: &Path) -> Option<ProvenanceId> {
    let bytes = disk::read(&path.join(ORIGIN), 64 << 10).ok()??;
    let origin: ClawhubOrigin = serde_json::from_slice(&bytes).ok()?;
    let slug = origin.slug?;
    format!("registry:clawhub/{}", slug.trim_start_matches('@'))
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_from_the_records_of_other_tools() {
        let home = tempfile::tempdir().unwrap();
        let lock = r#"{"version":3,"skills":{
            "pdf":{"source":"acme/skills","sourceType":"github","skillPath":"tools/pdf/SKILL.md"},
            "root":{"source":"acme/one","sourceType":"gitlab"},
            "site":{"source":"docs.example.com","sourceType":"well-known"},
            "team":{"source":"docs.example.com/team","sourceType":"well-known"},
            "odd":{"source":"../x","sourceType":"github"},
            "npm":{"source":"x","sourceType":"npm"}}}"#;
        std::fs::create_dir(home.path().join(".agents")).unwrap();
        std::fs::write(home.path().join(".agents/.skill-lock.json"), lock).unwrap();
        let records = read_records(&Machine::with_home(home.path()));
        for (name, source) in [
            ("pdf", Some("github:acme/skills/tools/pdf")),
            ("root", Some("gitlab:acme/one")),
            ("site", Some("wellknown:https://docs.example.com/site")),
            (
                "team",
                Some("https:https://docs.example.com/team/.well-known/agent-skills/team"),
            ),
            ("odd", None),
            ("npm", None),
            ("unknown", None),
        ] {
            let found = records.find_source(name, home.path(), b"");
            assert_eq!(
                found.as_ref().map(|(_, source)| source.as_str()),
                source,
                "{name}"
            );
        }
    }

    #[test]
    fn a_skill_says_itself_where_gh_and_clawhub_got_it() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::default();
        let text = "---\nname: x\ndescription: y\nmetadata:\n  github-repo: https://github.com/acme/skills\n  github-path: skills/x\n---\n";
        let found = records
            .find_source("x", folder.path(), text.as_bytes())
            .unwrap();
        assert_eq!(
            (found.0, found.1.as_str()),
            ("gh skill", "github:acme/skills/skills/x")
        );
        std::fs::create_dir(folder.path().join(".clawhub")).unwrap();
        let origin =
            r#"{"version":1,"registry":"https://clawhub.example","slug":"@openclaw/gifgrep"}"#;
        std::fs::write(folder.path().join(".clawhub/origin.json"), origin).unwrap();
        let found = records
            .find_source("x", folder.path(), b"---\n---\n")
            .unwrap();
        assert_eq!(found.1.as_str(), "registry:clawhub/openclaw/gifgrep");
    }

    #[test]
    fn remote_records_are_found_also_where_they_have_no_identifier() {
        let home = tempfile::tempdir().unwrap();
        let lock = r#"{"skills":{
            "odd":{"source":"../x","sourceType":"github"},
            "npm":{"source":"left-pad","sourceType":"npm"},
            "near":{"source":"/home/a/near","sourceType":"local"}}}"#;
        std::fs::create_dir(home.path().join(".agents")).unwrap();
        std::fs::write(home.path().join(".agents/.skill-lock.json"), lock).unwrap();
        let records = read_records(&Machine::with_home(home.path()));
        let remote = |name: &str, fields: &str| {
            let document = format!("---\nname: x\ndescription: y\n{fields}---\n");
            let found = records.find_remote(name, home.path(), document.as_bytes());
            found.map(|found| format!("{} {}", found.tool, found.text))
        };
        for (name, fields, expected) in [
            ("odd", "", Some("skills lock ../x")),
            ("npm", "", Some("skills lock left-pad")),
            ("near", "", None),
            ("unknown", "", None),
            (
                "x",
                "metadata:\n  github-repo: https://git.corp.example/acme/far\n",
                Some("gh skill https://git.corp.example/acme/far"),
            ),
            ("x", "metadata:\n  github-repo: ''\n", None),
            (
                "x",
                "metadata:\n  repository: https://github.com/a/b\n",
                None,
            ),
            ("x", "homepage: https://github.com/acme/far\n", None),
            ("x", "repository: https://github.com/acme/far\n", None),
        ] {
            assert_eq!(remote(name, fields).as_deref(), expected, "{name} {fields}");
        }
        std::fs::create_dir(home.path().join(".clawhub")).unwrap();
        std::fs::write(home.path().join(ORIGIN), "damaged").unwrap();
        let expected = format!("clawhub {ORIGIN}");
        assert_eq!(remote("x", "").as_deref(), Some(&*expected));
    }

    #[test]
    fn a_damaged_lock_says_nothing() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".agents")).unwrap();
        for text in ["", "[]", "{\"skills\":[]}", "{\"skills\":{\"a\":1}}"] {
            std::fs::write(home.path().join(".agents/.skill-lock.json"), text).unwrap();
            assert!(
                read_records(&Machine::with_home(home.path()))
                    .locked
                    .is_empty(),
                "{text}"
            );
        }
    }
}
