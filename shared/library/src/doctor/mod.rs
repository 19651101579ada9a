//! Checks a vault on this machine for all known problems.
//!
//! [`examine_vault`] writes only on request: `clean` removes metadata and leftovers that belong to
//! no skill, and `repair` signs local skills that have no signature. It never signs a skill that
//! was tampered with, or that an installer recorded as coming from elsewhere.

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
use crate::installed::verify;
use crate::vault::{Vault, VaultError};

/// Scope of a check, and the requested repairs.
pub struct DoctorInput<'a> {
    /// The machine on which agents are detected; `None` skips the checks of agents and profiles.
    pub machine: Option<Machine>,
    /// Check only this skill; a bare name means all skills of the name. Problems of the whole vault
    /// are reported as well.
    pub skill: Option<SkillRef>,
    /// Remove metadata of operating systems and editors, leftovers of killed writers, dangling
    /// symlinks, and the records of projects and agents' folders that no longer exist.
    pub clean: bool,
    /// Sign the skill, if it lies in the vault without a signature. Signs nothing without `skill`,
    /// and no skill that an installer recorded as from a remote source.
    pub repair: bool,
    /// Whether the gate blocks a repaired skill for security flags.
    pub strict: bool,
    /// Returns whether an environment variable is set; used to check what skills require.
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
    match verify::verify_all_installed(vault) {
        Ok(checked) => doctor.check_skills(checked)?,
        // Without the key no skill can be verified. The missing key is reported already.
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
    /// The rows of the index; read on first use.
    rows: OnceCell<HashMap<Digest, StoredRow>>,
    /// Records of installers on this machine; read on first use.
    records: OnceCell<Records>,
}

impl Doctor<'_> {
    /// Returns the texts that the index has of a bundle, from its last verification.
    fn indexed_texts(&self, bundle: &Digest) -> Option<&Texts> {
        let rows = self
            .rows
            .get_or_init(|| Index::open(self.vault).load_rows());
        rows.get(bundle).map(|stored| &stored.row.texts)
    }

    /// Returns the records of installers in lock files. Without a machine, none are read.
    fn installer_records(&self) -> &Records {
        let read = || self.input.machine.as_ref().map(records::read_records);
        self.records.get_or_init(|| read().unwrap_or_default())
    }

    fn add_finding(&mut self, finding: DoctorFinding) {
        self.report.findings.push(finding);
    }
}
