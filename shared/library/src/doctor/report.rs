//! What a check of a vault reports.

use std::path::PathBuf;

use serde::Serialize;
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};

use super::finding::{DoctorFinding, Severity};
use crate::agents::View;

/// What can be done about a damaged skill, or was.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairStatus {
    /// Nothing is wrong.
    NotNeeded,
    /// It has no signature and is of this machine: it can be signed.
    Repairable,
    /// It was signed just now.
    Repaired,
    /// Its signature or bytes were changed: nothing on this machine tells what they should be.
    RefusedTampered,
    /// It came from elsewhere, or from an unknown place: it has to come from there again.
    RefusedRemote,
    /// It could not be repaired.
    Failed,
}

/// The health of one skill.
#[derive(Clone, Debug, Serialize)]
pub struct SkillHealth {
    /// What it is installed as.
    pub name: SkillName,
    /// `local`, or the id of the linked vault.
    pub origin: String,
    /// Its signed version.
    pub version: Option<u64>,
    /// Its bundle; `None` for a folder that was never signed.
    pub bundle_hash: Option<Digest>,
    /// What is wrong with it.
    pub problem: Option<String>,
    /// What can be done about it, or was.
    pub repair_status: RepairStatus,
    /// Variables that it says it needs and that are not set.
    pub unset_environment: Vec<String>,
    /// Metadata of systems and editors beside its files.
    pub ignored: Vec<String>,
}

/// What an agent reads before it reads any skill.
#[derive(Clone, Debug, Serialize)]
pub struct ContextCost {
    /// The agent.
    pub agent: AgentId,
    /// Skills that it sees.
    pub skills: usize,
    /// Characters of their names and descriptions.
    pub characters: usize,
    /// The most that the agent reads, where that is known.
    pub bound: Option<usize>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct DoctorReport {
    /// Every skill, or the one that was asked for.
    pub skills: Vec<SkillHealth>,
    /// What is wrong, worst first.
    pub findings: Vec<DoctorFinding>,
    /// Which agent sees which skills.
    pub agents: View,
    /// What agents read of it at every start.
    pub context: Vec<ContextCost>,
    /// What `clean` removed.
    pub cleaned: Vec<PathBuf>,
}

impl DoctorReport {
    /// Whether there is no error; warnings and notes do not count.
    pub fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity() != Severity::Error)
    }

    /// How many skills are not as they were signed, those just repaired included.
    pub fn damaged(&self) -> usize {
        self.skills
            .iter()
            .filter(|skill| skill.repair_status != RepairStatus::NotNeeded)
            .count()
    }

    /// Whether a skill's bytes or signature were changed after signing.
    pub fn is_tampered(&self) -> bool {
        self.skills
            .iter()
            .any(|skill| skill.repair_status == RepairStatus::RefusedTampered)
    }
}
