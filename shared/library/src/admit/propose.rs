//! Taking in a skill that a caller wrote: bytes in, through the gate, signed at once.

use vault_skill::finding::{Finding, Level};
use vault_skill::gate::RawFile;
use vault_skill::hash::Digest;
use vault_skill::manifest::{Mode, SKILL_MD};
use vault_skill::name::SkillName;
use vault_store::shelf::{ShelfError, Submitted};

use crate::shelf::LibraryShelf;
use crate::vault::Vault;

/// A skill that somebody wrote.
#[derive(Clone, Debug)]
pub struct ProposeSkill {
    /// The bytes of SKILL.md.
    pub skill_md: Vec<u8>,
    /// The other files; paths below the skill's folder.
    pub resources: Vec<RawFile>,
    /// Who hands it in: recorded as `inline:<by>`.
    pub by: String,
    /// Whether it may take the place of a skill that was handed in or added from a folder.
    pub replace: bool,
    /// Only say what would happen.
    pub check: bool,
}

impl ProposeSkill {
    /// A skill of one file, handed in by this user or client.
    pub fn new(by: impl Into<String>, skill_md: impl Into<Vec<u8>>) -> Self {
        Self {
            skill_md: skill_md.into(),
            resources: Vec::new(),
            by: by.into(),
            replace: false,
            check: false,
        }
    }
}

/// What became of a proposal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proposed {
    /// It is checked, signed and installed.
    Accepted,
    /// It would be; nothing was changed.
    WouldAccept,
    /// The same files are installed under this name already; nothing was changed.
    Duplicate,
    /// It breaks the format; nothing was changed.
    Invalid,
    /// A security flag stands in the way; nothing was changed.
    SecurityBlocked,
}

/// The answer to a proposal.
#[derive(Clone, Debug)]
pub struct ProposeReport {
    /// What became of it.
    pub outcome: Proposed,
    /// The name in the vault, where it has one.
    pub name: Option<SkillName>,
    /// The version and the bundle that are installed now, where one is.
    pub installed: Option<(u64, Digest)>,
    /// Everything that the gate found, what blocks first.
    pub findings: Vec<Finding>,
}

/// Validates the bytes of a skill that the caller wrote, and admits it: the interface's `proposeSkill`. The gate is strict.
///
/// Fails when the name belongs to a skill from elsewhere, or when the vault can't be read or written.
///
/// ```
/// use std::sync::Arc;
/// use vault_library::{ProposeSkill, Proposed, Vault, VaultPaths, propose_skill};
/// use vault_store::{clock::TestClock, random::SeededRandom};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let paths = VaultPaths::new(folder.path().join("vault"), folder.path().join("config"));
/// let vault = Vault::open_or_create(paths, Arc::new(TestClock::default()), Arc::new(SeededRandom::new(1)))?;
/// let text = "---\nname: greet\ndescription: Greets whoever asks. Use when somebody says hello.\n---\nSay hello.\n";
///
/// let checked = propose_skill(&vault, &ProposeSkill { check: true, ..ProposeSkill::new("ann", text) })?;
/// assert_eq!(checked.outcome, Proposed::WouldAccept);
/// let accepted = propose_skill(&vault, &ProposeSkill::new("ann", text))?;
/// assert_eq!((accepted.outcome, accepted.installed.map(|(version, _)| version)), (Proposed::Accepted, Some(1)));
/// let again = propose_skill(&vault, &ProposeSkill::new("ann", text))?;
/// assert_eq!(again.outcome, Proposed::Duplicate);
/// let broken = propose_skill(&vault, &ProposeSkill::new("ann", "no frontmatter"))?;
/// assert_eq!((broken.outcome, broken.findings[0].rule), (Proposed::Invalid, "frontmatter-missing"));
/// # Ok(())
/// # }
/// ```
pub fn propose_skill(vault: &Vault, input: &ProposeSkill) -> Result<ProposeReport, ShelfError> {
    let mut files = vec![RawFile {
        path: SKILL_MD.to_owned(),
        mode: Mode::Plain,
        bytes: input.skill_md.clone(),
    }];
    files.extend(input.resources.iter().cloned());
    let shelf = LibraryShelf::new(vault.clone(), "local");
    let report = |outcome, name, installed, findings| ProposeReport {
        outcome,
        name,
        installed,
        findings,
    };
    Ok(
        match shelf.take(&input.by, files, input.replace, input.check)? {
            Submitted::Signed {
                name,
                version,
                bundle_hash,
                findings,
            } => report(
                Proposed::Accepted,
                Some(name),
                Some((version, bundle_hash)),
                findings,
            ),
            Submitted::Unchanged {
                name,
                version,
                bundle_hash,
            } => report(
                Proposed::Duplicate,
                Some(name),
                Some((version, bundle_hash)),
                Vec::new(),
            ),
            Submitted::WouldPass { name, findings } => {
                report(Proposed::WouldAccept, Some(name), None, findings)
            }
            Submitted::Refused { findings } => {
                let broken = findings.iter().any(|finding| finding.level == Level::Error);
                let outcome = if broken {
                    Proposed::Invalid
                } else {
                    Proposed::SecurityBlocked
                };
                report(outcome, None, None, findings)
            }
            // A library signs for itself and was asked to take something in.
            Submitted::Drafted { name, .. } | Submitted::Removed(name) => {
                return Err(ShelfError::Failed(format!("`{name}` was not taken in")));
            }
        },
    )
}
