//! Checks of everything that can be wrong with a vault on this machine.
//!
//! [`examine`] reads everything, and writes only what it was asked to: `clean` removes metadata and left-overs that are
//! no part of any skill, `repair` signs skills of this machine that have no signature. What was tampered with, or came
//! from elsewhere, is never signed again.

mod agents;
mod finding;
mod report;
mod skills;
mod vault;

use std::cell::OnceCell;
use std::collections::HashMap;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

pub use self::finding::{DoctorFinding, Remedy, Severity};
pub use self::report::{ContextCost, DoctorReport, RepairStatus, SkillHealth};
use crate::agents::Machine;
use crate::index::{Index, Texts};
use crate::installed::{place, verify};
use crate::vault::{Vault, VaultError};

/// What to check and what to repair.
pub struct DoctorInput<'a> {
    /// The machine on which agents are looked for; `None` leaves profiles out.
    pub machine: Option<Machine>,
    /// One skill's health alone; what concerns the whole vault is checked all the same.
    pub skill: Option<SkillName>,
    /// Remove metadata of systems and editors, left-overs of killed writers, and links that lead nowhere.
    pub clean: bool,
    /// Sign skills of this machine that have no signature.
    pub repair: bool,
    /// Whether security flags block a repaired skill.
    pub strict: bool,
    /// Whether an environment variable is set: for what skills say they need.
    pub is_set: &'a dyn Fn(&str) -> bool,
}

/// Checks everything, and repairs what was asked for. Fails only where the vault can't be listed or written.
pub fn examine(vault: &Vault, input: &DoctorInput<'_>) -> Result<DoctorReport, VaultError> {
    let mut doctor = Doctor {
        vault,
        input,
        report: DoctorReport::default(),
        texts: OnceCell::new(),
    };
    doctor.check_folder();
    doctor.check_keys();
    // Before anything takes the lock, because taking it removes them.
    doctor.check_leftovers()?;
    // The agents' folders do not depend on the bytes of skills: unless something is repaired first, both are read at
    // the same time.
    let concurrent = match (&input.machine, input.clean || input.repair) {
        (Some(machine), false) => Some(machine),
        _ => None,
    };
    let read = place::places(vault).and_then(|places| {
        let (checked, view) = rayon::join(
            || verify::check_places(vault, &places),
            || concurrent.map(|machine| crate::agents::view(vault, machine, Some(&places))),
        );
        Ok((checked?, view, places))
    });
    let (view, places) = match read {
        Ok((checked, view, places)) => {
            doctor.check_skills(checked)?;
            (view, Some(places))
        }
        // Without the key no skill can be verified; that is among the findings already.
        Err(VaultError::Key(_)) => (None, None),
        Err(error) => return Err(error),
    };
    doctor.check_agents(view, places.as_ref())?;
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
    /// What the index says of each bundle; read on first use.
    texts: OnceCell<HashMap<Digest, Texts>>,
}

impl Doctor<'_> {
    fn texts(&self) -> &HashMap<Digest, Texts> {
        let index = self.vault.paths().index();
        self.texts.get_or_init(|| Index::open(&index).texts())
    }

    fn find(&mut self, finding: DoctorFinding) {
        self.report.findings.push(finding);
    }
}
