//! The library function that admits a skill which a caller submits as text, such as an MCP client.

use vault_format::hash::Digest;
use vault_format::manifest::{Mode, SKILL_MD};
use vault_format::name::SkillName;
use vault_gate::RawFile;
use vault_gate::finding::{Finding, Level};

use super::{
    AdmitError, Neighbours, Options, Source, admit_one, examine_candidate, preview_admission,
};
use crate::vault::Vault;

/// Files that a caller submits as a skill, and how they are admitted.
#[derive(Clone, Debug)]
pub struct ProposeSkill {
    /// The files, with paths relative to the skill's folder.
    pub files: Vec<RawFile>,
    /// The id of the user or client that submits it; recorded as `inline:<by>`.
    pub by: String,
    /// Whether it may replace an installed skill that was submitted or added from a local folder.
    pub replace: bool,
    /// Whether to check only: the report says what would happen, and nothing is changed.
    pub check: bool,
    /// SHA-256 over the files that an owner reviewed; `None` if no review took place. A review
    /// means that another person wrote the files.
    pub reviewed: Option<Digest>,
}

impl ProposeSkill {
    /// Makes a proposal that consists of a SKILL.md alone.
    pub fn from_skill_md(by: impl Into<String>, skill_md: impl Into<Vec<u8>>) -> Self {
        Self {
            files: vec![RawFile {
                path: SKILL_MD.to_owned(),
                mode: Mode::Plain,
                bytes: skill_md.into(),
            }],
            by: by.into(),
            replace: false,
            check: false,
            reviewed: None,
        }
    }
}

/// The outcome for a submitted skill.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proposed {
    /// The skill is checked, signed and installed.
    Accepted,
    /// The skill would be accepted; nothing was changed.
    WouldAccept,
    /// The same files are already installed under this name; nothing was changed.
    Duplicate,
    /// The skill violates the format; nothing was changed.
    Invalid,
    /// Security findings block the skill; nothing was changed.
    SecurityBlocked,
}

/// The result of [`propose_skill`], also for a skill that the gate blocked.
#[derive(Clone, Debug)]
pub struct ProposeReport {
    /// Whether the skill was installed or would be, and if not, which kind of finding blocks it.
    pub outcome: Proposed,
    /// The name in the vault, unless the gate blocked the skill.
    pub name: Option<SkillName>,
    /// The version and bundle that are installed now; `None` if nothing is installed.
    pub installed: Option<(u64, Digest)>,
    /// All findings of the gate, blocking ones first.
    pub findings: Vec<Finding>,
}

/// Checks a submitted skill with the strict gate and admits it.
///
/// Fails if the name belongs to a skill from another source, or if the vault can't be read or
/// written.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::{ProposeSkill, Proposed, Vault, VaultPaths, propose_skill};
/// use vault_store::{clock::SystemClock, random::SystemRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(SystemClock), Arc::new(SystemRandom))?;
/// let text = "---\nname: greet\ndescription: Greets whoever asks. Use when somebody says hello.\n---\nSay hello.\n";
///
/// let checked = propose_skill(&vault, &ProposeSkill { check: true, ..ProposeSkill::from_skill_md("ann", text) })?;
/// assert_eq!(checked.outcome, Proposed::WouldAccept);
/// let accepted = propose_skill(&vault, &ProposeSkill::from_skill_md("ann", text))?;
/// assert_eq!((accepted.outcome, accepted.installed.map(|(version, _)| version)), (Proposed::Accepted, Some(1)));
/// let repeated = propose_skill(&vault, &ProposeSkill::from_skill_md("ann", text))?;
/// assert_eq!(repeated.outcome, Proposed::Duplicate);
/// let broken = propose_skill(&vault, &ProposeSkill::from_skill_md("ann", "no frontmatter"))?;
/// assert_eq!((broken.outcome, broken.findings[0].rule), (Proposed::Invalid, "frontmatter-missing"));
/// # Ok(())
/// # }
/// ```
pub fn propose_skill(vault: &Vault, input: &ProposeSkill) -> Result<ProposeReport, AdmitError> {
    let source = Source::Text {
        files: input.files.clone(),
        by: input.by.clone(),
    };
    let options = proposal_options(input);
    let candidate = match examine_candidate(source, &options, &mut Neighbours::for_vault(vault)) {
        Ok(candidate) => candidate,
        Err(AdmitError::Blocked { findings }) => {
            // An error is a violation of the format; all other blocking findings are about
            // security.
            let broken = findings.iter().any(|finding| finding.level == Level::Error);
            return Ok(ProposeReport {
                outcome: if broken {
                    Proposed::Invalid
                } else {
                    Proposed::SecurityBlocked
                },
                name: None,
                installed: None,
                findings,
            });
        }
        Err(error) => return Err(error),
    };
    // A check takes neither the writer lock nor the signing key.
    let admitted = if input.check {
        preview_admission(vault, &candidate)?
    } else {
        Some(admit_one(vault, &candidate)?)
    };
    Ok(match admitted {
        Some(report) if report.is_change() => ProposeReport {
            outcome: Proposed::Accepted,
            name: Some(report.name),
            installed: Some((report.version, report.bundle)),
            findings: report.findings,
        },
        Some(report) => ProposeReport {
            outcome: Proposed::Duplicate,
            name: Some(report.name),
            installed: Some((report.version, report.bundle)),
            findings: Vec::new(),
        },
        None => ProposeReport {
            outcome: Proposed::WouldAccept,
            name: Some(candidate.package.name),
            installed: None,
            findings: candidate.package.findings,
        },
    })
}

pub(crate) fn proposal_options(input: &ProposeSkill) -> Options {
    Options {
        replace: input.replace,
        // An own skill takes the bare name from a linked one. Submitted text must not do that.
        reject_linked_name: true,
        reviewed: input.reviewed,
        // An owner reviews only drafts of other people. Actions of such a skill must not get the
        // owner's whole environment.
        by_others: input.reviewed.is_some(),
        // Submitted text must not occupy the processor without a bound.
        most_work: Some(vault_gate::SERVICE_WORK),
        ..Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_works_within_a_bound_on_submitted_text() {
        let options = proposal_options(&ProposeSkill::from_skill_md("ann", "text"));
        assert_eq!(options.most_work, Some(vault_gate::SERVICE_WORK));
    }
}
