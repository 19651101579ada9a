//! Checks a vault on this machine for every problem that vault knows of, and repairs some on
//! request.
//!
//! [`examine_vault`] writes only on request: `clean` removes metadata files and leftovers that
//! belong to no skill, and `repair` signs skills that lie in the vault without a signature. It
//! never signs a skill that was tampered with, or that another tool recorded as coming from
//! elsewhere.

mod agents;
mod finding;
mod projects;
mod report;
mod skills;
mod vault;

use std::cell::OnceCell;
use std::collections::HashMap;

use vault_format::hash::Digest;
use vault_format::name::SkillRef;

pub use self::finding::{DoctorFinding, Remedy, Severity};
pub use self::report::{ContextCost, DoctorReport, RepairStatus, SkillHealth};
use crate::agents::Machine;
pub use crate::agents::setup::records::RecordedSource;
use crate::agents::setup::records::{self, Records};
use crate::index::{Index, StoredRow, Texts};
use crate::installed::verified_contents;
use crate::vault::{Vault, VaultError};

/// The scope of an examination, and the repairs to make.
pub struct DoctorInput<'a> {
    /// Machine on which agents are detected; `None` skips the checks of agents and profiles.
    pub machine: Option<Machine>,
    /// Skill to check; a bare name means all skills of this name, and `None` all skills. Problems
    /// of the whole vault are reported in any case.
    pub skill: Option<SkillRef>,
    /// Whether to remove metadata files of operating systems and editors, leftovers of killed
    /// writers, dangling symlinks, and the records of projects and agents' folders that no longer
    /// exist.
    pub clean: bool,
    /// Whether to sign `skill` if it lies in the vault without a signature. Has no effect without
    /// `skill`, or for a skill that another tool recorded as coming from a remote source.
    pub repair: bool,
    /// Whether security findings of the gate keep a skill from being signed.
    pub strict: bool,
    /// Returns whether an environment variable is set, so that missing ones are found that skills
    /// require.
    pub is_set: &'a dyn Fn(&str) -> bool,
}

/// Checks everything and makes the requested repairs. Fails only if the vault can't be listed or
/// written.
pub fn examine_vault(vault: &Vault, input: &DoctorInput<'_>) -> Result<DoctorReport, VaultError> {
    let mut doctor = Doctor {
        vault,
        input,
        report: DoctorReport::default(),
        rows: OnceCell::new(),
        records: OnceCell::new(),
    };
    doctor.check_folder();
    doctor.check_keys();
    doctor.check_links_to_vaults();
    doctor.check_remembered_time();
    // Check for leftovers before anything takes the writer lock, because taking it removes them.
    doctor.check_leftovers()?;
    match verified_contents::verify_all_installed(vault) {
        Ok(checked) => doctor.check_skills(checked)?,
        // No skill can be verified without the key. The missing key is reported already.
        Err(VaultError::Key(_)) => {}
        Err(error) => return Err(error),
    }
    doctor.check_authored()?;
    doctor.check_agents()?;
    doctor.check_projects()?;
    let report = &mut doctor.report;
    report.findings.sort_by(|a, b| {
        (a.severity(), a.code(), a.skill()).cmp(&(b.severity(), b.code(), b.skill()))
    });
    Ok(doctor.report)
}

struct Doctor<'a> {
    vault: &'a Vault,
    input: &'a DoctorInput<'a>,
    report: DoctorReport,
    /// Rows of the index, read when they are first needed.
    rows: OnceCell<HashMap<Digest, StoredRow>>,
    /// Records of other tools about the sources of skills, read when they are first needed.
    records: OnceCell<Records>,
}

impl Doctor<'_> {
    /// Returns the texts of a bundle as the index recorded them when it was last verified.
    fn indexed_texts(&self, bundle: &Digest) -> Option<&Texts> {
        let rows = self
            .rows
            .get_or_init(|| Index::open(self.vault).load_rows());
        rows.get(bundle).map(|stored| &stored.row.texts)
    }

    /// Returns what other tools recorded in lock files; nothing if there is no machine to look at.
    fn installer_records(&self) -> &Records {
        let read = || self.input.machine.as_ref().map(records::read_records);
        self.records.get_or_init(|| read().unwrap_or_default())
    }

    fn add_finding(&mut self, finding: DoctorFinding) {
        self.report.findings.push(finding);
    }
}
