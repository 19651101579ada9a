//! Taking the skills that lie in the agents' own folders into the vault.
//!
//! [`scan`] looks and changes nothing; [`adopt`] takes one skill in. The bytes of a skill are at one place at every
//! moment: they are signed and stored first, then the agent's folder makes room for a link, which the next
//! [`crate::sync_profiles`] makes.

mod records;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vault_skill::finding::Finding;
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};
use vault_skill::provenance::ProvenanceId;
use vault_skill::time::Timestamp;

use crate::admit::add::add_folder;
use crate::admit::{AdmitError, AdmitReport, Neighbours, Options, Source, examine};
use crate::agents::found::{self, Machine};
use crate::disk::{self, FileError, Kind};
use crate::installed::agent_links::{copies, record};
use crate::vault::{Vault, VaultError};

/// The most folders that a scan looks into.
pub const MAX_FOLDERS: usize = 2_000;

/// What becomes of a skill that lies in an agent's folder.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdoptionMode {
    /// It stays as it is; the vault's own skills are linked beside it.
    #[default]
    Augment,
    /// It is signed and kept in the vault, its folder moved to `<root>.bak/<name>`, a link put in its place.
    Backup,
    /// It is signed and kept in the vault, its folder removed, a link put in its place.
    InPlace,
}

/// How a skill in an agent's folder stands to the vault.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum NativeState {
    /// The vault has none of this name.
    New,
    /// The vault has the same bytes.
    Same,
    /// The vault has a skill of this name with other bytes.
    Differs,
    /// The gate does not let it in.
    Refused {
        /// Everything found, what blocks first.
        findings: Vec<Finding>,
    },
    /// It can't be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// A skill that lies in an agent's folder and is not the vault's.
#[derive(Clone, Debug, Serialize)]
pub struct NativeSkill {
    /// Its name in the vault.
    pub name: SkillName,
    /// Its folder.
    pub path: PathBuf,
    /// The agent's folder that it lies in.
    pub root: PathBuf,
    /// The agents that read it.
    pub agents: Vec<AgentId>,
    /// Where another tool says that it came from.
    pub provenance: Option<ProvenanceId>,
    /// The record that says so: `gh skill`, `skills lock`, `clawhub`.
    pub recorded_by: Option<&'static str>,
    /// How it stands to the vault.
    #[serde(flatten)]
    pub state: NativeState,
    /// Its files, those that are no part of it left out.
    pub files: usize,
    /// Bytes of those files.
    pub bytes: u64,
    #[serde(skip)]
    content: Option<Digest>,
}

impl NativeSkill {
    /// Whether it can be taken in, by itself or in place of the vault's.
    pub const fn is_adoptable(&self) -> bool {
        matches!(
            self.state,
            NativeState::New | NativeState::Same | NativeState::Differs
        )
    }
}

/// What [`scan`] found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scan {
    /// Skills that are not the vault's, by name and folder.
    pub skills: Vec<NativeSkill>,
    /// The folders that were looked into and exist.
    pub roots: Vec<PathBuf>,
    /// Entries that were left out, with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

/// Why a skill was not taken in. Its folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AdoptNativeError {
    /// The vault did not admit it.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// It changed between scan and adoption.
    #[error("{} changed since it was looked at; nothing was moved", .0.display())]
    Changed(PathBuf),
    /// Another vault error.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for AdoptNativeError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

/// How a skill was taken in.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// What the vault has of it now.
    pub report: AdmitReport,
    /// Where its folder is now; `None` after [`AdoptionMode::InPlace`].
    pub backup: Option<PathBuf>,
}

/// Looks for skills in every folder that some agent reads, in those of the project too, and in `further`. Links are no
/// skills of their own and are left out, as is what the vault put there.
pub fn scan(
    vault: Option<&Vault>,
    machine: &Machine,
    further: &[(AgentId, PathBuf)],
    strict: bool,
) -> Result<Scan, VaultError> {
    let mut readers: BTreeMap<PathBuf, Vec<AgentId>> = BTreeMap::new();
    for agent in found::found(machine) {
        for root in agent.folders_to_scan(machine) {
            readers.entry(root).or_default().push(agent.id.clone());
        }
    }
    for (agent, root) in further {
        readers.entry(root.clone()).or_default().push(agent.clone());
    }
    let mut reader = NativeReader {
        // Nothing is admitted here, so that no time is recorded.
        neighbours: Neighbours::new(vault, Timestamp::from_unix(0)),
        records: records::read(machine),
        strict,
    };
    let mut scan = Scan::default();
    let mut seen = std::collections::BTreeSet::new();
    let mut left = MAX_FOLDERS;
    for (root, agents) in readers {
        // Of a folder with several names one is looked at.
        let Ok(real) = disk::resolve(&root) else {
            continue;
        };
        if !disk::is_folder(&real) || !seen.insert(real.clone()) {
            continue;
        }
        scan.roots.push(root.clone());
        let copies =
            vault.map_or_else(|| Ok(Vec::new()), |vault| record::copies_in(vault, &root))?;
        for (entry, kind) in disk::list(&real)? {
            let path = real.join(&entry);
            let Some(name) = entry.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            if kind != Kind::Dir || copies.iter().any(|copy| copy.as_str() == name) {
                continue;
            }
            if left == 0 {
                scan.skipped
                    .push((root.clone(), format!("more than {MAX_FOLDERS} folders")));
                break;
            }
            left -= 1;
            if disk::kind(&path.join("SKILL.md"))? != Some(Kind::File) {
                continue;
            }
            match reader.read(&root, &agents, &path, name) {
                Some(skill) => scan.skills.push(skill),
                None => scan
                    .skipped
                    .push((path, "its name makes no name in the vault".to_owned())),
            }
        }
    }
    scan.skills
        .sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    Ok(scan)
}

/// Reads skills in the agents' folders.
struct NativeReader<'a> {
    neighbours: Neighbours<'a>,
    records: records::Records,
    strict: bool,
}

impl NativeReader<'_> {
    /// Reads and judges one skill folder; `None` when its name makes no name in the vault.
    fn read(
        &mut self,
        root: &Path,
        agents: &[AgentId],
        path: &Path,
        folder: &str,
    ) -> Option<NativeSkill> {
        let name = folder.parse().ok().or_else(|| SkillName::derive(folder))?;
        let options = Options {
            name: Some(name.clone()),
            strict: self.strict,
            ..Options::default()
        };
        let mut skill = NativeSkill {
            name,
            path: path.to_owned(),
            root: root.to_owned(),
            agents: agents.to_vec(),
            provenance: None,
            recorded_by: None,
            state: NativeState::New,
            files: 0,
            bytes: 0,
            content: copies::content(path),
        };
        match examine(Source::folder(path), &options, &mut self.neighbours) {
            Ok(candidate) => {
                let package = candidate.package;
                skill.files = package.files.len();
                skill.bytes = package.size();
                if let Some((by, source)) = self.records.find(folder, path, package.document()) {
                    skill.provenance = Some(source);
                    skill.recorded_by = Some(by);
                }
                if let Some(vault) = self.neighbours.vault() {
                    skill.state = state(vault, &skill.name, &package.files);
                }
            }
            Err(AdmitError::Blocked { findings }) => {
                skill.state = NativeState::Refused { findings };
            }
            Err(error) => {
                skill.state = NativeState::Unreadable {
                    reason: error.to_string(),
                };
            }
        }
        Some(skill)
    }
}

fn state(vault: &Vault, name: &SkillName, files: &[vault_skill::bundle::File]) -> NativeState {
    match crate::run::load(vault, name) {
        Ok((_, _, examined)) if examined.files == files => NativeState::Same,
        Err(crate::run::RunError::UnknownSkill(_)) => NativeState::New,
        _ => NativeState::Differs,
    }
}

/// Takes one skill in, not [`AdoptionMode::Augment`]: signed and stored, then its folder makes room. `replace` takes the
/// place of a skill of the vault that has its name. Fails, with the folder as it was, where the gate refuses it or its
/// bytes changed meanwhile.
pub fn adopt(
    vault: &Vault,
    skill: &NativeSkill,
    mode: AdoptionMode,
    replace: bool,
    strict: bool,
) -> Result<Adopted, AdoptNativeError> {
    let options = Options {
        name: Some(skill.name.clone()),
        provenance: skill.provenance.clone(),
        replace,
        strict,
        // The vault has these bytes, from wherever: they stay what they are.
        keep_equal: matches!(skill.state, NativeState::Same),
        ..Options::default()
    };
    let report = add_folder(vault, &skill.path, &options)?;
    // Signed and flushed: from here on the bytes are in the vault. What was written to meanwhile is not.
    let unchanged = skill.content.is_some() && copies::content(&skill.path) == skill.content;
    if !unchanged {
        return Err(AdoptNativeError::Changed(skill.path.clone()));
    }
    let root = skill.path.parent().unwrap_or(&skill.root);
    let folder_name = skill.path.file_name().unwrap_or_default().to_string_lossy();
    let backup = match mode {
        AdoptionMode::Augment => None,
        AdoptionMode::Backup => Some(move_aside(root, &skill.path)?),
        AdoptionMode::InPlace => {
            copies::remove(root, &folder_name)?;
            None
        }
    };
    Ok(Adopted { report, backup })
}

/// Moves a folder to `<root>.bak/<name>`, or the next free name beside it: nothing that is there is replaced.
fn move_aside(root: &Path, folder: &Path) -> Result<PathBuf, FileError> {
    let mut kept = root.as_os_str().to_owned();
    kept.push(".bak");
    let kept = PathBuf::from(kept);
    disk::make_dirs(&kept, 0o755)?;
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut place = kept.join(&*name);
    let mut number = 1;
    while disk::kind(&place)?.is_some() {
        place = kept.join(format!("{name}-{number}"));
        number += 1;
    }
    disk::rename(folder, &place)?;
    disk::sync_dir(&kept)?;
    disk::sync_dir(root)?;
    Ok(place)
}
