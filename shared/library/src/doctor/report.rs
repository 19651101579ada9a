//! The report on an examination by the doctor.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use vault_format::hash::Digest;
use vault_format::name::{AgentId, SkillName};

use super::finding::{DoctorFinding, Severity};
use crate::agents::AgentViews;
use crate::installed::verified_contents::Declared;

/// Whether a damaged skill can be repaired, or the result of the repair.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairStatus {
    /// The skill is intact, so there is nothing to repair.
    NotNeeded,
    /// The folder of the skill lies in the vault without a signature, and can be signed.
    Repairable,
    /// This run of the doctor has signed the skill.
    Repaired,
    /// The signature or the bytes of the skill were changed, and this machine has no trusted copy
    /// to compare with.
    RefusedTampered,
    /// The skill came from another or an unknown source and must be fetched from there again.
    RefusedRemote,
    /// The skill can't be repaired here, or signing it was tried and failed.
    Failed,
}

/// The state of one installed skill, as the doctor found it.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct SkillHealth {
    /// Name under which the skill is installed.
    pub name: SkillName,
    /// `local`, or the id of the link it came through.
    pub origin: String,
    /// Version in the signed manifest; `null` if the manifest is not valid.
    pub version: Option<u64>,
    /// SHA-256 of the bundle; `null` for a folder that was never signed.
    pub bundle_hash: Option<Digest>,
    /// Description of the problem; `null` if the skill is intact.
    pub problem: Option<String>,
    /// Whether the skill can be repaired, or the result of the repair.
    pub repair_status: RepairStatus,
    /// Declared environment variables that are not set.
    pub unset_environment: Vec<String>,
    /// Metadata files of operating systems and editors among the skill's files. They are never
    /// used.
    pub ignored: Vec<String>,
    /// What the skill states that it works with.
    #[serde(skip)]
    pub declared: Declared,
}

/// The size of the skill list that an agent reads at startup.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "AgentContext")]
pub struct ContextCost {
    /// Id of the agent, such as `claude-code`.
    pub agent: AgentId,
    /// Number of skills that the agent sees.
    pub skills: usize,
    /// Total length of the names and descriptions of these skills, in characters.
    pub characters: usize,
    /// Number of characters that the agent reads; `null` if it is not known.
    pub bound: Option<usize>,
}

/// What the doctor found, and what it repaired.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub struct DoctorReport {
    /// State of every checked skill, intact ones included.
    pub skills: Vec<SkillHealth>,
    /// The findings, worst first.
    #[serde(skip)]
    pub findings: Vec<DoctorFinding>,
    /// Skills that each agent sees.
    #[serde(skip)]
    pub agents: AgentViews,
    /// The size of the skill list of each linked agent.
    pub context: Vec<ContextCost>,
    /// Paths that were removed, because the caller asked to clean.
    pub cleaned: Vec<PathBuf>,
}

impl DoctorReport {
    /// Adds the results of repairs that were made one by one, each with a report of its own: that
    /// the skill was signed, or why it was not.
    pub fn take_repairs(&mut self, others: Vec<Self>) {
        for other in others {
            for repaired in other.skills {
                if repaired.repair_status != RepairStatus::Repaired {
                    continue;
                }
                let mut skills = self.skills.iter_mut();
                if let Some(skill) = skills.find(|skill| skill.name == repaired.name) {
                    *skill = repaired;
                }
            }
            // Findings about the whole vault are in this report already, so take only those about
            // repairs.
            let is_about_repair = |finding: &DoctorFinding| {
                matches!(
                    finding,
                    DoctorFinding::RepairFailed { .. } | DoctorFinding::NotStored { .. }
                )
            };
            let findings = other.findings.into_iter().filter(is_about_repair);
            self.findings.extend(findings);
        }
    }

    /// Whether no finding has the severity [`Severity::Error`].
    pub fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity() != Severity::Error)
    }

    /// Returns the number of skills with a problem: those that failed verification or are not
    /// signed, including those that were signed just now.
    pub fn count_damaged(&self) -> usize {
        self.skills
            .iter()
            .filter(|skill| skill.repair_status != RepairStatus::NotNeeded)
            .count()
    }

    /// Whether any skill or variant was changed after it was signed.
    pub fn is_tampered(&self) -> bool {
        let is_refused = |skill: &SkillHealth| skill.repair_status == RepairStatus::RefusedTampered;
        // A pull restores a linked skill, and rendering restores a variant. Their content was
        // changed all the same.
        let is_changed = |finding: &DoctorFinding| {
            matches!(
                finding,
                DoctorFinding::SkillDamaged { damage, .. }
                | DoctorFinding::VariantDamaged { damage, .. } if damage.is_changed_content()
            )
        };
        self.skills.iter().any(is_refused) || self.findings.iter().any(is_changed)
    }
}
