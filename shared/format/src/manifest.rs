//! The signed manifest of a skill: its files with sizes, digests and modes, its actions (programs
//! that an agent may run), its source, and the scan (gate) that it passed.
//!
//! Two types separate verified from unverified: [`SignedManifest`] holds bytes as received and
//! exposes no field; a [`Manifest`] is either the result of a verification, such as
//! [`SignedManifest::verify`], or about to be signed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dsse::EnvelopeError;
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::keys::SignerError;
use crate::name::{ActionName, AgentId, SkillName};
use crate::path::{BadPath, FilePath, PathClash, check_paths};
use crate::provenance::{BadProvenance, Provenance};
use crate::root::{SignerRefusal, VaultId};
use crate::text::is_deceptive;
use crate::time::Timestamp;

mod signed;
mod wire;

pub use signed::{ExportMembers, ManifestExpectation, ManifestTrust, SignedManifest};

/// The payload type that is signed with every manifest.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.skill-manifest.v2+json";
/// The value of the member `schema`.
pub const SCHEMA: &str = "vault.skill-manifest/2";
/// Maximum number of files that a skill may have.
pub const MAX_FILES: usize = 1_024;
/// Maximum number of bytes that a file may have.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum number of bytes that SKILL.md may have.
pub const MAX_SKILL_MD_BYTES: u64 = 256 << 10;
/// Maximum number of bytes that all files together may have.
pub const MAX_SKILL_BYTES: u64 = 16 << 20;
/// Maximum number of arguments of an action.
pub const MAX_ARGS: usize = 64;
/// The file that makes a folder a skill.
pub const SKILL_MD: &str = "SKILL.md";

/// The description of one version of a skill, as its publisher signs it. A value that was read or
/// signed keeps every rule of [`Manifest::check_own_rules`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    /// The vault that admitted the skill.
    pub vault_id: VaultId,
    /// The name of the skill, and of its directory.
    pub name: SkillName,
    /// The name in the frontmatter of SKILL.md, if `name` differs from it because it does not fit
    /// the grammar; `None` otherwise.
    pub frontmatter_name: Option<String>,
    /// Version number: 1 when the name is first admitted to the vault, one more at each later
    /// admission.
    pub version: u64,
    /// The time of signing; for information only, never used for a decision.
    pub signed_at: Timestamp,
    /// All files, sorted by path bytes; `SKILL.md` is one of them.
    pub files: Vec<FileEntry>,
    /// The programs that the skill declares, by name.
    pub actions: BTreeMap<ActionName, ActionSpec>,
    /// Agents that the skill is meant for; empty means all.
    pub agents: Vec<AgentId>,
    /// The plain skill and the changes made to it; set only in a variant that was rendered for one
    /// agent.
    pub rendered_from: Option<RenderedFrom>,
    /// The location from which the skill was fetched, and the time.
    pub provenance: Provenance,
    /// The result of the scan that the skill passed at admission.
    pub gate: Gate,
}

/// A file of a skill, as the manifest lists it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct FileEntry {
    /// Path in the skill's folder.
    pub path: FilePath,
    /// Length of the file in bytes.
    pub size: u64,
    /// SHA-256 of the file's bytes.
    pub sha256: Digest,
    /// Whether the file is executable.
    pub mode: Mode,
}

/// The mode of a file: whether it is executable. No other permission is stored.
#[derive(Clone, Copy, Debug, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// `0644`: the file is not executable.
    #[serde(rename = "0644")]
    Plain,
    /// `0755`: everybody may execute the file.
    #[serde(rename = "0755")]
    Executable,
}

impl Mode {
    /// The permission bits with which a file of this mode is written: `0o644` or `0o755`.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Plain => 0o644,
            Self::Executable => 0o755,
        }
    }

    /// Returns the mode of a file with these permission bits. Only its owner's executable bit
    /// counts.
    pub const fn of_permissions(bits: u32) -> Self {
        if bits & 0o100 == 0 {
            Self::Plain
        } else {
            Self::Executable
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "0644" => Some(Self::Plain),
            "0755" => Some(Self::Executable),
            _ => None,
        }
    }
}

/// The program that an action runs, with its arguments.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ActionSpec {
    /// A file of the skill, or the bare name of a program.
    pub command: String,
    /// Arguments that precede the caller's, at most 64.
    pub args: Vec<String>,
    /// The working directory: a directory of the skill, or `.` for the skill's folder itself.
    pub cwd: String,
    /// The purpose of the action, for people.
    #[serde(
        default,
        deserialize_with = "json::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Whether the action needs a terminal, because it asks questions there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub requires_tty: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The plain skill and the steps from which a variant for one agent was made.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RenderedFrom {
    /// SHA-256 of the plain skill's bundle.
    pub bundle_hash: Digest,
    /// The agent that the variant is for.
    pub agent: AgentId,
    /// The transforms, in the order in which they were applied.
    pub transforms: Vec<AppliedTransform>,
}

/// A transform (a file that changes SKILL.md for one agent) that was applied.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AppliedTransform {
    /// Name of the file that defines it, without `.md`.
    pub name: String,
    /// SHA-256 of the file that defines the transform.
    pub sha256: Digest,
}

/// The rules that a skill was checked by, and the findings that passed as warnings.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Gate {
    /// Whether the scan was strict: security findings would have blocked the skill.
    pub strict: bool,
    /// The rule sets that ran, with their versions, such as `structure/1`.
    pub rules: String,
    /// The security findings that passed as warnings, sorted.
    pub flags: Vec<Flag>,
    /// Exceptions that the owner made; the member is left out when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waivers: Vec<Waiver>,
}

/// A finding that did not block the skill.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Flag {
    /// Name of the rule that made the finding.
    pub rule: String,
    /// Path of the file in the skill; empty if the finding is about the whole skill.
    pub path: String,
    /// Line in the file, from 1; 0 if the finding is about the whole file.
    pub line: u64,
}

/// An exception that the owner made for one file's bytes.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Waiver {
    /// Name of the rule whose findings the owner accepts.
    pub rule: String,
    /// SHA-256 of the file's bytes; other bytes are scanned without the exception.
    pub sha256: Digest,
    /// The reason, in the owner's words.
    pub reason: String,
}

/// A reason to reject a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are not an envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope carries another type of payload than a manifest.
    #[error("the envelope does not carry a skill manifest")]
    PayloadType,
    /// The payload does not have the shape of a manifest.
    #[error("not a skill manifest: {0}")]
    Payload(#[from] JsonError),
    /// The payload has another schema number.
    #[error("the schema is not {SCHEMA}")]
    Schema,
    /// The envelope has more than one signature.
    #[error("manifest must have exactly one signature")]
    SignatureCount,
    /// The key that signed is not trusted by this reader in this place.
    #[error(transparent)]
    Signer(#[from] SignerRefusal),
    /// The signer of a new manifest failed to sign.
    #[error(transparent)]
    Unsigned(#[from] SignerError),
    /// The manifest names another vault than the one whose keys the reader has.
    #[error("the manifest belongs to another vault")]
    VaultId,
    /// The name breaks the grammar or is not the expected one.
    #[error("{0}")]
    Name(&'static str),
    /// The version is 0, not the expected one, or lower than the stored one.
    #[error("{0}")]
    Version(&'static str),
    /// The list of files breaks a rule, which the text states.
    #[error("{0}")]
    Files(&'static str),
    /// A path breaks the grammar.
    #[error("{0}")]
    Path(#[from] BadPath),
    /// Two paths cannot exist side by side on every file system.
    #[error("{0}")]
    Clash(#[from] PathClash),
    /// A file's mode is neither 0644 nor 0755.
    #[error("mode must be 0644 or 0755")]
    Mode,
    /// One file, or all files together, are too large.
    #[error("{0}")]
    Size(&'static str),
    /// An action's name, command, arguments, directory or description breaks a rule.
    #[error("{0}")]
    Actions(&'static str),
    /// The provenance breaks a rule.
    #[error("{0}")]
    Provenance(#[from] BadProvenance),
}

impl ManifestError {
    /// The machine-readable code of the error; the test vectors of the format use the same codes.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::Envelope(_)
            | Self::SignatureCount
            | Self::PayloadType
            | Self::Payload(_)
            | Self::Schema => "manifest_schema",
            Self::Signer(refusal) => refusal.error_code(),
            Self::Unsigned(_) => "manifest_signature",
            Self::VaultId => "manifest_vault_id",
            Self::Name(_) => "manifest_name",
            Self::Version(_) => "manifest_version",
            Self::Files(_) => "manifest_files",
            Self::Path(_) | Self::Clash(_) => "manifest_path",
            Self::Mode => "manifest_mode",
            Self::Size(_) => "manifest_size",
            Self::Actions(_) => "manifest_actions",
            Self::Provenance(_) => "manifest_provenance",
        }
    }
}

/// The first difference between a set of files and the signed files.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{} {what}", crate::text::printable(.file))]
pub struct Mismatch {
    /// The path in the compared set.
    pub file: String,
    /// The description of the difference, to be printed after the path.
    pub what: &'static str,
}

impl Manifest {
    /// Checks that these are exactly the signed files: path, mode, size and SHA-256 of each. Fails
    /// with the first difference. A difference in content is reported before one in a mode.
    pub fn compare_files<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a str, Mode, &'a [u8])>,
    ) -> Result<(), Mismatch> {
        match self.compare_but_lost_modes(files)?.first() {
            None => Ok(()),
            Some(lost) => Err(Mismatch {
                file: lost.to_string(),
                what: "was executable when signed and is not now",
            }),
        }
    }

    /// Like [`Manifest::compare_files`], but accepts files that were executable when signed and are
    /// not now, and returns them: some file systems and archives keep no modes.
    pub fn compare_but_lost_modes<'a>(
        &self,
        files: impl IntoIterator<Item = (&'a str, Mode, &'a [u8])>,
    ) -> Result<Vec<&FilePath>, Mismatch> {
        let wrong = |file: &str, what| {
            Err(Mismatch {
                file: file.to_owned(),
                what,
            })
        };
        let mut seen = vec![false; self.files.len()];
        let (mut lost, mut gained) = (Vec::new(), None);
        for (path, mode, bytes) in files {
            // The files are sorted by path, a rule that every signed manifest has passed.
            let Ok(place) = self
                .files
                .binary_search_by(|entry| entry.path.as_str().cmp(path))
            else {
                return wrong(path, "is not part of the signed skill");
            };
            if std::mem::replace(&mut seen[place], true) {
                return wrong(path, "appears twice");
            }
            let entry = &self.files[place];
            if entry.size != bytes.len() as u64 || entry.sha256 != Digest::of(bytes) {
                return wrong(path, "was modified after signing");
            }
            match (entry.mode, mode) {
                (Mode::Executable, Mode::Plain) => lost.push(&entry.path),
                // Never accept an executable bit that was not signed: it would make a plain data
                // file runnable. Report it only if all contents are as signed, which matters more.
                (Mode::Plain, Mode::Executable) => gained = gained.or(Some(path)),
                _ => {}
            }
        }
        if let Some(missing) = seen.iter().position(|seen| !seen) {
            return wrong(self.files[missing].path.as_str(), "is missing");
        }
        match gained {
            Some(path) => wrong(path, "was not executable when signed and is now"),
            None => Ok(lost),
        }
    }

    /// Returns the entry of the file at this path, or `None` if the skill has none.
    pub fn file(&self, path: &str) -> Option<&FileEntry> {
        let index = self
            .files
            .binary_search_by(|entry| entry.path.as_str().cmp(path))
            .ok()?;
        self.files.get(index)
    }

    /// The lengths of all files together, in bytes.
    pub fn total_size(&self) -> u64 {
        self.files
            .iter()
            .fold(0, |sum, entry| sum.saturating_add(entry.size))
    }

    /// Checks every rule that needs no knowledge beyond the manifest itself.
    pub fn check_own_rules(&self) -> Result<(), ManifestError> {
        if self.version == 0 || self.version > json::MAX_INTEGER {
            return Err(ManifestError::Version(
                "a version is an integer from 1 to 2^53-1",
            ));
        }
        if self
            .frontmatter_name
            .as_deref()
            .is_some_and(|name| name.chars().any(is_deceptive))
        {
            return Err(ManifestError::Name(
                "frontmatter_name holds control or invisible characters",
            ));
        }
        self.check_files()?;
        for action in self.actions.values() {
            self.check_action(action)?;
        }
        Ok(self.provenance.check_revision()?)
    }

    fn check_expectation(&self, expected: &ManifestExpectation<'_>) -> Result<(), ManifestError> {
        if self.name != *expected.name {
            return Err(ManifestError::Name("the manifest belongs to another skill"));
        }
        if expected
            .stored_version
            .is_some_and(|stored| self.version < stored)
        {
            return Err(ManifestError::Version(
                "the version is lower than the stored one",
            ));
        }
        if expected
            .version
            .is_some_and(|version| self.version != version)
        {
            return Err(ManifestError::Version(
                "the version is not the one that the catalog names",
            ));
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), ManifestError> {
        let files = &self.files;
        if !(1..=MAX_FILES).contains(&files.len()) {
            return Err(ManifestError::Files("a skill has 1 to 1,024 files"));
        }
        // Strict order finds duplicates, gives equal skills equal bytes, and allows the binary
        // search in `file`.
        if !files.is_sorted_by(|a, b| a.path.as_str() < b.path.as_str()) {
            return Err(ManifestError::Files(
                "the files are not sorted by path, or one comes twice",
            ));
        }
        let skill_md = self
            .file(SKILL_MD)
            .ok_or(ManifestError::Files("SKILL.md is missing"))?;
        if skill_md.size > MAX_SKILL_MD_BYTES {
            return Err(ManifestError::Size("SKILL.md is larger than 256 KiB"));
        }
        if files.iter().any(|entry| entry.size > MAX_FILE_BYTES) {
            return Err(ManifestError::Size("a file is larger than 4 MiB"));
        }
        if self.total_size() > MAX_SKILL_BYTES {
            return Err(ManifestError::Size(
                "the files together are larger than 16 MiB",
            ));
        }
        Ok(check_paths(files.iter().map(|entry| &entry.path))?)
    }

    fn check_action(&self, action: &ActionSpec) -> Result<(), ManifestError> {
        let ActionSpec {
            command,
            args,
            cwd,
            description,
            ..
        } = action;
        // The command must not be a path outside the skill: an action runs with the user's rights.
        if !is_program(command) && self.file(command).is_none() {
            return Err(ManifestError::Actions(
                "the command of an action is a file of the skill or the bare name of a program",
            ));
        }
        if args.len() > MAX_ARGS || args.iter().any(|arg| arg.contains('\0')) {
            return Err(ManifestError::Actions(
                "an action has at most 64 args, none with U+0000",
            ));
        }
        // A manifest lists no directories, so a directory exists only if some file lies below it.
        if cwd != "." && !self.files.iter().any(|entry| entry.path.is_below(cwd)) {
            return Err(ManifestError::Actions(
                "the cwd of an action is `.` or a directory of the skill",
            ));
        }
        if description
            .as_deref()
            .is_some_and(|text| text.chars().any(is_deceptive))
        {
            return Err(ManifestError::Actions(
                "the description of an action holds control or invisible characters",
            ));
        }
        Ok(())
    }
}

/// Whether a command is the bare name of a program, to be looked up on the search path.
pub fn is_program(command: &str) -> bool {
    (1..=100).contains(&command.len())
        && command
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-'))
        // A leading dot could name a path and a leading hyphen could be read as an option.
        && !command.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_bare_names() {
        for good in ["git", "python3.12", "g++", "cargo-nextest", "7z"] {
            assert!(is_program(good), "{good}");
        }
        for bad in [
            "", ".", "..", "a/b", "/bin/sh", "git log", "git\n", "a\\b", "-x", "./x", "a;b", "$x",
            "é", "C:x",
        ] {
            assert!(!is_program(bad), "{bad}");
        }
    }
}
