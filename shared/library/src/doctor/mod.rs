//! Everything that can be wrong with a vault on this machine, each with what mends it.
//!
//! [`examine`] reads all, and writes only what it was asked to: `clean` removes metadata and left-overs that are no
//! part of any skill, `repair` signs what is of this machine and has no signature. What was tampered with, or came from
//! elsewhere, is never signed again.

mod agents;
mod report;
mod skills;
mod vault;

use std::cell::OnceCell;
use std::collections::HashMap;

use vault_skill::hash::Digest;
use vault_skill::name::SkillName;

pub use self::report::{
    ContextCost, DoctorFinding, DoctorReport, RepairStatus, Severity, SkillHealth,
};
use crate::agents::Machine;
use crate::index::{Index, Texts};
use crate::integrity;
use crate::scan;
use crate::vault::{Vault, VaultError};

/// What to look at and what to mend.
pub struct DoctorInput<'a> {
    /// The machine on which agents are looked for; `None` leaves profiles out.
    pub machine: Option<Machine>,
    /// One skill's health alone; what concerns the whole vault is looked at all the same.
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

/// Looks at everything, and mends what was asked for. Fails only where the vault can't be listed or written.
pub fn examine(vault: &Vault, input: &DoctorInput<'_>) -> Result<DoctorReport, VaultError> {
    let mut doctor = Doctor {
        vault,
        input,
        report: DoctorReport::default(),
        texts: OnceCell::new(),
    };
    doctor.folder();
    doctor.keys();
    // Before anything takes the lock: whoever takes it clears them away.
    doctor.leftovers()?;
    // Who sees what is no matter of the bytes; where nothing is mended first, both are looked at together.
    let beside = match (&input.machine, input.clean || input.repair) {
        (Some(machine), false) => Some(machine),
        _ => None,
    };
    let looked = scan::places(vault).and_then(|places| {
        let (checked, seen) = rayon::join(
            || integrity::check_places(vault, &places),
            || beside.map(|machine| crate::agents::view(vault, machine, Some(&places))),
        );
        Ok((checked?, seen, places))
    });
    let (seen, places) = match looked {
        Ok((checked, seen, places)) => {
            doctor.skills(checked)?;
            (seen, Some(places))
        }
        // Without the key nobody can say what is good; that is among the findings already.
        Err(VaultError::Key(_)) => (None, None),
        Err(error) => return Err(error),
    };
    doctor.profiles(seen, places.as_ref())?;
    let report = &mut doctor.report;
    report
        .findings
        .sort_by(|a, b| (a.severity, a.code, &a.skill).cmp(&(b.severity, b.code, &b.skill)));
    Ok(doctor.report)
}

struct Doctor<'a> {
    vault: &'a Vault,
    input: &'a DoctorInput<'a>,
    report: DoctorReport,
    /// What the index says of each bundle: read where something asks for it.
    texts: OnceCell<HashMap<Digest, Texts>>,
}

impl Doctor<'_> {
    fn texts(&self) -> &HashMap<Digest, Texts> {
        let index = self.vault.paths().index();
        self.texts.get_or_init(|| Index::open(&index).texts())
    }

    fn find(
        &mut self,
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> &mut DoctorFinding {
        self.report.findings.push(DoctorFinding {
            code,
            severity,
            message: message.into(),
            hint: hint.into(),
            skill: None,
            path: None,
        });
        let last = self.report.findings.len() - 1;
        &mut self.report.findings[last]
    }
}
