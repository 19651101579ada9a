//! What a check of a vault reports.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::value::RawValue;
use vault_skill::hash::Digest;
use vault_skill::name::{AgentId, SkillName};

use crate::agents::{AgentView, View};

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
    /// Its signature or bytes were changed: nobody here can say what it should be.
    RefusedTampered,
    /// It came from elsewhere, or nobody knows from where: it has to come from there again.
    RefusedRemote,
    /// It could not be repaired.
    Failed,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something may surprise.
    Warning,
    /// Good to know.
    Note,
}

/// One thing that was found.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorFinding {
    /// The stable word.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// One sentence without a full stop.
    pub message: String,
    /// What mends it.
    pub hint: String,
    /// The skill that it is about.
    pub skill: Option<SkillName>,
    /// The file or folder that it is about.
    pub path: Option<PathBuf>,
}

impl DoctorFinding {
    pub(super) fn at(&mut self, path: PathBuf) {
        self.path = Some(path);
    }

    pub(super) fn of(&mut self, skill: SkillName) {
        self.skill = Some(skill);
    }
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
#[derive(Debug, Default, Serialize)]
pub struct DoctorReport {
    /// Every skill, or the one that was asked for.
    pub skills: Vec<SkillHealth>,
    /// What is wrong, worst first.
    pub findings: Vec<DoctorFinding>,
    /// Who sees what.
    pub agents: View,
    /// What agents read of it at every start.
    pub context: Vec<ContextCost>,
    /// What `clean` removed.
    pub cleaned: Vec<PathBuf>,
}

impl DoctorReport {
    /// Whether nothing is wrong; warnings and notes count as nothing.
    pub fn is_clean(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.severity != Severity::Error)
    }

    /// What `vault doctor --json` says of it, written at once: with thousands of skills a tree of values costs more than the look at
    /// them.
    pub fn to_json(&self) -> Box<RawValue> {
        let damaged = |skill: &&SkillHealth| skill.repair_status != RepairStatus::NotNeeded;
        let said = Said {
            healthy: self.is_clean() && !self.is_tampered(),
            damaged: self.skills.iter().filter(damaged).count(),
            skills: &self.skills,
            findings: &self.findings,
            agents: &self.agents.agents,
            context: &self.context,
            cleaned: &self.cleaned,
        };
        serde_json::value::to_raw_value(&said)
            .expect("our types have text keys and infallible serializers")
    }

    /// Whether a skill's bytes or signature are not what they should be.
    pub fn is_tampered(&self) -> bool {
        self.skills
            .iter()
            .any(|skill| skill.repair_status == RepairStatus::RefusedTampered)
    }
}

/// The members of [`DoctorReport::to_json`].
#[derive(Serialize)]
struct Said<'a> {
    /// Nothing is wrong.
    healthy: bool,
    /// How many skills are not as they were signed, those just repaired included.
    damaged: usize,
    skills: &'a [SkillHealth],
    findings: &'a [DoctorFinding],
    agents: &'a [AgentView],
    context: &'a [ContextCost],
    cleaned: &'a [PathBuf],
}
