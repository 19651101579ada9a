//! Adopts skills that the user keeps in the agents' own folders: the vault admits them, and a
//! symlink takes the place of the folder.
//!
//! [`scan_folders`] reads and changes nothing; [`adopt_skill`] adopts one skill. No bytes are lost:
//! a skill is signed and stored before its folder is moved away or removed, and the next
//! [`crate::sync_profiles`] creates the symlink.

pub(crate) mod originals;
pub(crate) mod records;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};
use vault_format::provenance::ProvenanceId;
use vault_format::time::Timestamp;
use vault_gate::finding::Finding;

use crate::admit::add::add_folder;
use crate::admit::{AdmitError, AdmitReport, Neighbours, Options, Source, examine_candidate};
use crate::agents::found::{self, Machine};
use crate::disk::{self, FileError, HeldPath, Kind};
use crate::installed::agent_links::{copies, record};
use crate::vault::own_skills::LocalSource;
use crate::vault::{Vault, VaultError};

/// Limit on the folders that one scan inspects, in all agents' folders together.
pub const MAX_FOLDERS: usize = 2_000;

/// Handling of a skill in an agent's folder.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdoptionMode {
    /// It stays where it is; the vault's own skills are linked next to it.
    #[default]
    Augment,
    /// It is signed and stored in the vault, its folder is moved to `<root>.bak/<name>`, and a
    /// symlink takes its place.
    Backup,
    /// It is signed and stored in the vault, and a symlink takes its place. What the vault stores
    /// is removed; the other files of its folder are moved to `<root>.bak/<name>`.
    InPlace,
}

/// Result of comparing a skill in an agent's folder with the vault.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum NativeState {
    /// The vault has no skill of this name.
    New,
    /// The vault has the same bytes.
    Same,
    /// The vault has a skill of this name with other bytes.
    Differs,
    /// The gate blocks it.
    Refused {
        /// All findings, blocking ones first.
        findings: Vec<Finding>,
    },
    /// The skill can't be read.
    Unreadable {
        /// Reason, for messages.
        reason: String,
    },
}

/// A skill in an agent's folder that the vault did not put there.
#[derive(Clone, Debug, Serialize)]
pub struct NativeSkill {
    /// Name that it has, or would have, in the vault.
    pub name: SkillName,
    /// Path of the skill's folder, which contains its SKILL.md.
    pub path: PathBuf,
    /// The agent's folder that contains it.
    pub root: PathBuf,
    /// The agents that read it.
    pub agents: Vec<AgentId>,
    /// Remote source that the tool in `recorded_by` wrote down; `None` if no tool did.
    pub provenance: Option<ProvenanceId>,
    /// The tool that recorded the source: `gh skill`, `skills lock` or `clawhub`.
    pub recorded_by: Option<&'static str>,
    /// Result of the comparison with the vault.
    #[serde(flatten)]
    pub state: NativeState,
    /// The number of its files, without ignored ones.
    pub files: usize,
    /// Total size of those files in bytes.
    pub bytes: u64,
    /// Findings of the gate that do not block the skill. The findings of a blocked skill are in its
    /// state.
    pub warnings: Vec<Finding>,
    /// Files that look like secrets and are taken, because the owner named them.
    pub included: Vec<String>,
    /// Files that look like secrets and are not taken.
    pub left_out: Vec<String>,
    #[serde(skip)]
    content: Option<Digest>,
}

impl NativeSkill {
    /// Whether the vault has no skill of this name.
    pub const fn is_new(&self) -> bool {
        matches!(self.state, NativeState::New)
    }

    /// Whether it can be adopted, as a new skill or in place of the vault's skill of that name.
    pub const fn is_adoptable(&self) -> bool {
        matches!(
            self.state,
            NativeState::New | NativeState::Same | NativeState::Differs
        )
    }
}

/// The skills that [`scan_folders`] found, and what it skipped.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Scan {
    /// Skills that are not the vault's, ordered by name and folder.
    pub skills: Vec<NativeSkill>,
    /// The existing folders that were scanned.
    pub roots: Vec<PathBuf>,
    /// Entries that were not inspected, each with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

/// Error of an adoption. The folder is unchanged unless the file system failed while it was moved
/// or removed.
#[derive(Debug, thiserror::Error)]
pub enum AdoptNativeError {
    /// The gate blocked the skill, or another skill has its name.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The skill changed between scan and adoption.
    #[error("{} changed after it was scanned; nothing was moved", .0.display())]
    Changed(PathBuf),
    /// The vault or the folder can't be read or written.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

impl From<FileError> for AdoptNativeError {
    fn from(failed: FileError) -> Self {
        Self::Vault(failed.into())
    }
}

/// The result of adopting one skill: its report, and the place of its former folder.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// Report of the admission: version, findings and recorded source.
    pub report: AdmitReport,
    /// Folder that the original was moved to; `None` if nothing was moved. With
    /// [`AdoptionMode::InPlace`] it contains only the files that the vault does not store.
    pub backup: Option<PathBuf>,
    /// With [`AdoptionMode::InPlace`], the paths in `backup` of files that the vault does not
    /// store. A folder that was moved as a whole is one path that ends with `/`.
    pub not_stored: Vec<String>,
}

/// Finds the user's skills in all folders that a detected agent reads, including those of the
/// machine's project, and in `further`. Symlinks and the vault's own copies are skipped. Files that
/// look like secrets are not taken into the skills.
pub fn scan_folders(
    vault: Option<&Vault>,
    machine: &Machine,
    further: &[(AgentId, PathBuf)],
    strict: bool,
) -> Result<Scan, VaultError> {
    scan_with(vault, machine, further, strict, &[])
}

/// Like [`scan_folders`], but takes the files of `include` although they look like secrets.
pub fn scan_with(
    vault: Option<&Vault>,
    machine: &Machine,
    further: &[(AgentId, PathBuf)],
    strict: bool,
    include: &[String],
) -> Result<Scan, VaultError> {
    let mut readers: BTreeMap<PathBuf, Vec<AgentId>> = BTreeMap::new();
    for agent in found::detect_agents(machine) {
        for root in agent.folders_to_scan(machine) {
            readers.entry(root).or_default().push(agent.id.clone());
        }
    }
    for (agent, root) in further {
        readers.entry(root.clone()).or_default().push(agent.clone());
    }
    let mut reader = NativeReader {
        // A scan admits nothing, so this time is recorded nowhere.
        neighbours: Neighbours::new(vault, Timestamp::from_unix(0)),
        records: records::read_records(machine),
        strict,
        include,
    };
    let mut scan = Scan::default();
    let mut seen = std::collections::BTreeSet::new();
    let mut folders_left = MAX_FOLDERS;
    for (root, agents) in readers {
        // Scan a folder that has several paths only once.
        let Ok(real) = disk::resolve(&root) else {
            continue;
        };
        if !disk::is_folder(&real) || !seen.insert(real.clone()) {
            continue;
        }
        scan.roots.push(root.clone());
        let copies = vault.map_or_else(
            || Ok(Vec::new()),
            |vault| record::copied_skills(vault, &root),
        )?;
        for (entry, kind) in disk::list(&real)? {
            let path = real.join(&entry);
            // An earlier adoption may have left its original in a hidden folder, `.bak-<name>`.
            let Some(name) = entry.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            // A recorded copy is a skill of the vault itself.
            if kind != Kind::Dir || copies.iter().any(|copy| copy.as_str() == name) {
                continue;
            }
            if folders_left == 0 {
                scan.skipped
                    .push((root.clone(), format!("more than {MAX_FOLDERS} folders")));
                break;
            }
            folders_left -= 1;
            if disk::kind_at(&path.join("SKILL.md"))? != Some(Kind::File) {
                continue;
            }
            match reader.read_native_skill(&root, &agents, &path, name) {
                Some(skill) => scan.skills.push(skill),
                None => scan.skipped.push((
                    path,
                    "its name cannot become a name in the vault".to_owned(),
                )),
            }
        }
    }
    scan.skills
        .sort_by(|a, b| (&a.name, &a.path).cmp(&(&b.name, &b.path)));
    Ok(scan)
}

/// Reads the skills that a scan finds. One value is used for the whole scan, so that each skill is
/// also compared with those before it.
struct NativeReader<'a> {
    neighbours: Neighbours<'a>,
    records: records::Records,
    strict: bool,
    include: &'a [String],
}

impl NativeReader<'_> {
    /// Reads one skill folder and runs the gate on it; `None` if no valid skill name can be derived
    /// from the folder name.
    fn read_native_skill(
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
            include: self.include.to_vec(),
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
            warnings: Vec::new(),
            included: Vec::new(),
            left_out: Vec::new(),
            content: copies::hash_skill_folder(path),
        };
        match examine_candidate(Source::folder(path), &options, &mut self.neighbours) {
            Ok(candidate) => {
                skill.included = candidate.secrets.included;
                skill.left_out = candidate.secrets.left_out;
                let package = candidate.package;
                skill.files = package.files.len();
                skill.bytes = package.size();
                skill.warnings.clone_from(&package.findings);
                if let Some((by, source)) =
                    self.records.find_source(folder, path, package.document())
                {
                    skill.provenance = Some(source);
                    skill.recorded_by = Some(by);
                }
                if let Some(vault) = self.neighbours.vault() {
                    skill.state = compare_with_vault(vault, &skill.name, &package.files);
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

/// Compares the bytes of a skill with the vault's skill of that name.
fn compare_with_vault(
    vault: &Vault,
    name: &SkillName,
    files: &[vault_format::bundle::File],
) -> NativeState {
    match crate::run::inspect_skill(vault, name) {
        Ok(verified) if verified.examined.files == files => NativeState::Same,
        Err(crate::run::RunError::UnknownSkill(_)) => NativeState::New,
        // A damaged skill of the vault counts as different, because its bytes can't be compared.
        _ => NativeState::Differs,
    }
}

/// Adopts one skill: signs and stores it, then moves or removes its folder as `mode` says. Only
/// files whose bytes the vault has stored are removed. [`AdoptionMode::Augment`] only adds the
/// skill and leaves the folder alone. Set `replace` to replace a skill of the vault with the same
/// name. Fails without changing the folder if the gate blocks the skill or its bytes changed since
/// the scan.
pub fn adopt_skill(
    vault: &Vault,
    skill: &NativeSkill,
    mode: AdoptionMode,
    replace: bool,
    strict: bool,
) -> Result<Adopted, AdoptNativeError> {
    let folder_name = skill.path.file_name().unwrap_or_default().to_string_lossy();
    // The folder is moved away, so its present path must not be recorded as the source to compare
    // with later.
    let local = || format!("local:{folder_name}").parse().ok();
    let options = Options {
        name: Some(skill.name.clone()),
        provenance: skill.provenance.clone().or_else(local),
        replace,
        strict,
        include: skill.included.clone(),
        // If the vault already has these bytes, keep the existing version and its source.
        skip_if_same_files: matches!(skill.state, NativeState::Same),
        ..Options::default()
    };
    // The backup belongs beside the skill's real folder, and `skill.root` may be a link to another
    // folder. So take the parent of the resolved path.
    let root = skill.path.parent().unwrap_or(&skill.root);
    if mode != AdoptionMode::Augment {
        // Check this before anything is signed, so that a failure changes nothing.
        originals::check_backups(root)?;
    }
    let report = add_folder(vault, &skill.path, &options)?;
    // The bytes are now signed and flushed to the vault. Check that the folder still has the
    // scanned content before moving it: later edits are not in the vault.
    let unchanged =
        skill.content.is_some() && copies::hash_skill_folder(&skill.path) == skill.content;
    if !unchanged {
        return Err(AdoptNativeError::Changed(skill.path.clone()));
    }
    let (mut backup, mut not_stored) = (None, Vec::new());
    match mode {
        AdoptionMode::Augment => {}
        AdoptionMode::Backup => {
            let kept = originals::move_aside(root, &skill.path)?;
            record_folder(vault, &report, &kept)?;
            backup = Some(kept);
        }
        AdoptionMode::InPlace => {
            let stored = originals::read_stored(vault, &report)?;
            // Look before the move, which may create that folder.
            let had_backups = disk::is_there(&originals::backups_of(root));
            let kept = originals::move_aside_anywhere(root, &skill.path)?;
            not_stored = originals::remove_stored(&HeldPath::new(&kept), &stored)?;
            if not_stored.is_empty() {
                // Leave no empty backup folder behind, but keep one that was there before.
                if !had_backups {
                    disk::remove_empty(&originals::backups_of(root))?;
                }
            } else {
                backup = Some(kept);
            }
        }
    }
    Ok(Adopted {
        report,
        backup,
        not_stored,
    })
}

/// Records the backup folder of an adopted skill as the one to compare with later. Does so only if
/// adding the skill from there would give the same source identifier.
fn record_folder(vault: &Vault, report: &AdmitReport, kept: &Path) -> Result<(), VaultError> {
    let (Some(path), Some(name)) = (kept.to_str(), kept.file_name()) else {
        return Ok(());
    };
    let is_source = report.provenance.as_str() == format!("local:{}", name.to_string_lossy());
    // A skill that the vault had already keeps its recorded folder.
    if !is_source || !report.is_change() {
        return Ok(());
    }
    let local = LocalSource {
        identifier: report.provenance.clone(),
        path: path.to_owned(),
        copied_links: Vec::new(),
    };
    let _change = vault.begin_change()?;
    vault.change_own_skills(|own_skills| own_skills.note_local(&report.name, local))
}
