//! The signed manifest of a skill: which files with which bytes and modes, which actions, from
//! where, past which gate.
//!
//! Two types keep belief apart: [`SignedManifest`] holds bytes as received and shows no field,
//! [`Manifest`] comes out of [`SignedManifest::verify`] alone (or is about to be signed at home).

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::dsse::{Envelope, EnvelopeError};
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::keys::{PublicKey, Signer, SignerError};
use crate::name::{ActionName, AgentId, SkillName};
use crate::path::{BadPath, FilePath, PathClash, check_paths};
use crate::provenance::{BadProvenance, Provenance};
use crate::root::{RootList, RootState, SignerRefusal, SkillPlace, VaultId};
use crate::text::is_deceptive;
use crate::time::Timestamp;

/// The payload type that is signed with every manifest.
pub const PAYLOAD_TYPE: &str = "application/vnd.vault.skill-manifest.v2+json";
/// The value of the member `schema`.
pub const SCHEMA: &str = "vault.skill-manifest/2";
/// The most files that a skill may have.
pub const MAX_FILES: usize = 1_024;
/// The most bytes that a file may have.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most bytes that SKILL.md may have.
pub const MAX_SKILL_MD_BYTES: u64 = 256 << 10;
/// The most bytes that all files together may have.
pub const MAX_SKILL_BYTES: u64 = 16 << 20;
/// The most arguments of an action.
pub const MAX_ARGS: usize = 64;
/// The file that makes a folder a skill.
pub const SKILL_MD: &str = "SKILL.md";

/// What is known of one version of a skill; its rules hold once it was verified or signed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    /// The vault that admitted the skill.
    pub vault_id: VaultId,
    /// The name of the skill, and of its directory.
    pub name: SkillName,
    /// The frontmatter's own name where it does not fit the grammar and `name` was derived or
    /// given.
    pub frontmatter_name: Option<String>,
    /// 1 at the first admission of the name, one more at each other.
    pub version: u64,
    /// When it was signed; information only, never used for a decision.
    pub signed_at: Timestamp,
    /// All files, sorted by path bytes; `SKILL.md` is one of them.
    pub files: Vec<FileEntry>,
    /// The declared actions.
    pub actions: BTreeMap<ActionName, ActionSpec>,
    /// Target agents; empty means all.
    pub agents: Vec<AgentId>,
    /// Only in a variant that was rendered for one agent.
    pub rendered_from: Option<RenderedFrom>,
    /// Where the skill came from.
    pub provenance: Provenance,
    /// Which checks it passed on the way in.
    pub gate: Gate,
}

/// A file of a skill.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct FileEntry {
    /// Its path in the skill.
    pub path: FilePath,
    /// Its length in bytes.
    pub size: u64,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// Its mode.
    pub mode: Mode,
}

/// The mode of a file: whether it can be executed; nothing else of a mode travels.
#[derive(Clone, Copy, Debug, Eq, Hash, JsonSchema, PartialEq, Serialize)]
pub enum Mode {
    /// `0644`
    #[serde(rename = "0644")]
    Plain,
    /// `0755`
    #[serde(rename = "0755")]
    Executable,
}

impl Mode {
    /// The permission bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Plain => 0o644,
            Self::Executable => 0o755,
        }
    }

    /// The mode of a file with these permission bits: its owner's executable bit is all that
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

/// What an action runs.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct ActionSpec {
    /// A file of the skill, or the bare name of a program.
    pub command: String,
    /// Arguments, at most 64.
    pub args: Vec<String>,
    /// `.` or a directory of the skill.
    pub cwd: String,
    /// What it does, for people.
    #[serde(
        default,
        deserialize_with = "json::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Whether it asks questions on a terminal.
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

/// What a rendered variant was made of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RenderedFrom {
    /// The bundle of the plain skill.
    pub bundle_hash: Digest,
    /// The agent it was rendered for.
    pub agent: AgentId,
    /// The transforms, in the order in which they were applied.
    pub transforms: Vec<AppliedTransform>,
}

/// A transform that was applied.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AppliedTransform {
    /// Its name.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: Digest,
}

/// Which rules a skill was checked by, and what was let through with a warning.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Gate {
    /// Whether warnings would have refused it.
    pub strict: bool,
    /// The rules that ran, such as `structure/1`.
    pub rules: String,
    /// What was downgraded to a warning, sorted.
    pub flags: Vec<Flag>,
    /// Exceptions that the owner made; the member is left out when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waivers: Vec<Waiver>,
}

/// A finding that did not refuse the skill.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Flag {
    /// The rule that found it.
    pub rule: String,
    /// The file; empty where the finding is about the whole skill.
    pub path: String,
    /// The line, from 1; 0 where it is about the whole file.
    pub line: u64,
}

/// An exception that the owner made for one file's bytes.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Waiver {
    /// The rule that does not count.
    pub rule: String,
    /// SHA-256 of the bytes it does not count for.
    pub sha256: Digest,
    /// Why, in the owner's words.
    pub reason: String,
}

/// Whose signatures count for a reader of manifests.
#[derive(Clone, Copy, Debug)]
pub struct ManifestTrust<'a> {
    /// What the reader knows of the vault's keys. The manifest must be of that vault.
    pub state: &'a RootState,
    /// Where the reader found the skill.
    pub place: SkillPlace,
}

/// What a reader knows of a manifest before it reads it.
#[derive(Clone, Copy, Debug)]
pub struct ManifestExpectation<'a> {
    /// The name it must have: that of its directory, or of the catalog's entry.
    pub name: &'a SkillName,
    /// The version it must have, where a catalog names one.
    pub version: Option<u64>,
    /// The version that is stored already; a lower one is refused.
    pub stored_version: Option<u64>,
}

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are not an envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope carries something else.
    #[error("the envelope does not carry a skill manifest")]
    PayloadType,
    /// The payload has not the shape of a manifest.
    #[error("not a skill manifest: {0}")]
    Payload(#[from] JsonError),
    /// The payload has another schema number.
    #[error("the schema is not {SCHEMA}")]
    Schema,
    /// More than one signature.
    #[error("manifest must have exactly one signature")]
    SignatureCount,
    /// The signer does not count for this reader.
    #[error(transparent)]
    Signer(#[from] SignerRefusal),
    /// The signer of a new manifest gave no signature.
    #[error(transparent)]
    Unsigned(#[from] SignerError),
    /// It is of another vault.
    #[error("the manifest belongs to another vault")]
    VaultId,
    /// The name breaks the grammar or is not the expected one.
    #[error("{0}")]
    Name(&'static str),
    /// The version is 0, not the expected one, or lower than the stored one.
    #[error("{0}")]
    Version(&'static str),
    /// The list of files breaks a rule.
    #[error("{0}")]
    Files(&'static str),
    /// A path breaks the grammar.
    #[error("{0}")]
    Path(#[from] BadPath),
    /// Two paths cannot both exist everywhere.
    #[error("{0}")]
    Clash(#[from] PathClash),
    /// A mode other than 0644 and 0755.
    #[error("mode must be 0644 or 0755")]
    Mode,
    /// A file, or all together, are too large.
    #[error("{0}")]
    Size(&'static str),
    /// An action breaks a rule.
    #[error("{0}")]
    Actions(&'static str),
    /// The provenance breaks a rule.
    #[error("{0}")]
    Provenance(#[from] BadProvenance),
}

impl ManifestError {
    /// The word for the class of rule that is broken, as in the test vectors.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Envelope(_)
            | Self::SignatureCount
            | Self::PayloadType
            | Self::Payload(_)
            | Self::Schema => "manifest_schema",
            Self::Signer(refusal) => refusal.word(),
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

/// The members that an export adds to the envelope of a manifest. No signature covers them: they
/// name keys and a release that count by their own.
#[derive(Debug, Deserialize)]
pub struct ExportMembers {
    /// The root versions of the vault.
    pub roots: Option<RootList>,
    /// The name of the file beside the manifest that holds the release.
    pub catalog: Option<String>,
}

/// A manifest's envelope: the exact bytes as received or signed, with no readable field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SignedManifest {
    bytes: Vec<u8>,
    envelope: Envelope,
}

impl SignedManifest {
    /// Signs a manifest; fails when it breaks a rule that a reader would refuse it for, or when the
    /// signer gives no signature.
    pub fn sign(manifest: &Manifest, signer: &dyn Signer) -> Result<Self, ManifestError> {
        manifest.check()?;
        let payload = json::to_bytes(manifest);
        let envelope = Envelope::sign_with(PAYLOAD_TYPE, &payload, &[signer])?;
        Ok(Self {
            bytes: envelope.to_bytes(),
            envelope,
        })
    }

    /// Reads an envelope with one signature. What it carries stays unread until it is verified.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let envelope = Envelope::parse(bytes)?;
        if envelope.signatures().len() != 1 {
            return Err(ManifestError::SignatureCount);
        }
        Ok(Self {
            envelope,
            bytes: bytes.to_vec(),
        })
    }

    /// Verifies that the signer counts for the reader, then reads the payload and checks every rule
    /// and expectation.
    pub fn verify(
        &self,
        trust: &ManifestTrust<'_>,
        expected: &ManifestExpectation<'_>,
    ) -> Result<Manifest, ManifestError> {
        Ok(self.verify_with_signer(trust, Some(expected))?.0)
    }

    /// Like [`SignedManifest::verify`], for a reader that expects nothing but a manifest of the
    /// vault.
    pub fn verify_signature(&self, trust: &ManifestTrust<'_>) -> Result<Manifest, ManifestError> {
        Ok(self.verify_with_signer(trust, None)?.0)
    }

    /// The manifest and the key that signed it, from one check of the signature. Like
    /// [`SignedManifest::verify`] where something is expected, else like
    /// [`SignedManifest::verify_signature`].
    pub fn verify_with_signer(
        &self,
        trust: &ManifestTrust<'_>,
        expected: Option<&ManifestExpectation<'_>>,
    ) -> Result<(Manifest, PublicKey), ManifestError> {
        if self.envelope.payload_type() != PAYLOAD_TYPE {
            return Err(ManifestError::PayloadType);
        }
        // Nothing is read that no key of the vault has signed. Whether that key counts here is
        // judged last, so that a manifest of another vault is told apart from one by a revoked key.
        let Some(signer) = self.signer(trust.state) else {
            trust.state.judge_signer(None, trust.place)?;
            return Err(SignerRefusal::Signature.into());
        };
        let manifest = json::parse_payload::<Wire<'_>>(self.envelope.payload())?.open()?;
        manifest.check()?;
        if manifest.vault_id != trust.state.vault_id() {
            return Err(ManifestError::VaultId);
        }
        trust.state.judge_signer(Some(&signer), trust.place)?;
        if let Some(expected) = expected {
            manifest.meets(expected)?;
        }
        Ok((manifest, signer))
    }

    /// The key that signed, if some version of the vault's chain names it. Whether it counts is
    /// another question.
    pub fn signer(&self, state: &RootState) -> Option<PublicKey> {
        let [entry] = self.envelope.signatures() else {
            return None;
        };
        let key = *state.chain().key_by_id(&entry.keyid)?;
        let signed = self.envelope.valid_signers(&[key]);
        signed.first().copied()
    }

    /// The exact bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A copy of the exact bytes, for `manifest.json`.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

/// How a set of files differs from what was signed: the first difference.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{} {what}", crate::text::printable(.file))]
pub struct Mismatch {
    /// The path, as it was found.
    pub file: String,
    /// What is wrong with it, to follow its name.
    pub what: &'static str,
}

impl Manifest {
    /// Whether these are the signed files, no more and no less: path, mode, size and SHA-256 of
    /// each. Fails with the first difference; one of the content comes before one of a mode.
    pub fn compare<'a>(
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

    /// [`Manifest::compare`] that lets files pass which are not executable although they were
    /// signed so, and returns them: some file systems and archives keep no modes.
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

    /// The entry of a path, if the skill has such a file.
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

    /// Checks every rule that needs no other knowledge than the manifest itself.
    pub fn check(&self) -> Result<(), ManifestError> {
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
        Ok(self.provenance.check()?)
    }

    fn meets(&self, expected: &ManifestExpectation<'_>) -> Result<(), ManifestError> {
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
        && !command.starts_with(['.', '-'])
}

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            schema: &'static str,
            vault_id: VaultId,
            name: &'a SkillName,
            #[serde(skip_serializing_if = "Option::is_none")]
            frontmatter_name: Option<&'a str>,
            version: u64,
            signed_at: Timestamp,
            files: &'a [FileEntry],
            actions: &'a BTreeMap<ActionName, ActionSpec>,
            agents: &'a [AgentId],
            #[serde(skip_serializing_if = "Option::is_none")]
            rendered_from: Option<&'a RenderedFrom>,
            provenance: &'a Provenance,
            gate: &'a Gate,
        }
        Written {
            schema: SCHEMA,
            vault_id: self.vault_id,
            name: &self.name,
            frontmatter_name: self.frontmatter_name.as_deref(),
            version: self.version,
            signed_at: self.signed_at,
            files: &self.files,
            actions: &self.actions,
            agents: &self.agents,
            rendered_from: self.rendered_from.as_ref(),
            provenance: &self.provenance,
            gate: &self.gate,
        }
        .serialize(serializer)
    }
}

/// The payload as JSON gives it: what has its own error is still text here.
#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    schema: Cow<'a, str>,
    vault_id: VaultId,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, deserialize_with = "json::optional")]
    frontmatter_name: Option<String>,
    version: u64,
    signed_at: Timestamp,
    #[serde(borrow)]
    files: Vec<FileWire<'a>>,
    #[serde(deserialize_with = "json::unique_map")]
    actions: BTreeMap<String, ActionSpec>,
    agents: Vec<AgentId>,
    #[serde(default, deserialize_with = "json::optional")]
    rendered_from: Option<RenderedFrom>,
    #[serde(borrow)]
    provenance: ProvenanceWire<'a>,
    gate: Gate,
}

#[derive(Deserialize)]
struct FileWire<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    size: u64,
    sha256: Digest,
    #[serde(borrow)]
    mode: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ProvenanceWire<'a> {
    #[serde(borrow)]
    identifier: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(deserialize_with = "json::nullable")]
    revision: Option<String>,
    fetched_at: Timestamp,
}

impl Wire<'_> {
    fn open(self) -> Result<Manifest, ManifestError> {
        if self.schema != SCHEMA {
            return Err(ManifestError::Schema);
        }
        let action = |(name, action): (String, _)| match name.parse() {
            Ok(name) => Ok((name, action)),
            Err(_) => Err(ManifestError::Actions(
                "the name of an action breaks the grammar or is reserved",
            )),
        };
        Ok(Manifest {
            vault_id: self.vault_id,
            name: self
                .name
                .parse()
                .map_err(|_| ManifestError::Name("the name breaks the grammar of skill names"))?,
            frontmatter_name: self.frontmatter_name,
            version: self.version,
            signed_at: self.signed_at,
            files: self
                .files
                .into_iter()
                .map(FileWire::open)
                .collect::<Result<_, _>>()?,
            actions: self
                .actions
                .into_iter()
                .map(action)
                .collect::<Result<_, _>>()?,
            agents: self.agents,
            rendered_from: self.rendered_from,
            provenance: self.provenance.open()?,
            gate: self.gate,
        })
    }
}

impl FileWire<'_> {
    fn open(self) -> Result<FileEntry, ManifestError> {
        let mode = Mode::parse(&self.mode).ok_or(ManifestError::Mode)?;
        Ok(FileEntry {
            path: self.path.parse()?,
            size: self.size,
            sha256: self.sha256,
            mode,
        })
    }
}

impl ProvenanceWire<'_> {
    fn open(self) -> Result<Provenance, BadProvenance> {
        let provenance = Provenance {
            identifier: self.identifier.parse()?,
            revision: self.revision,
            fetched_at: self.fetched_at,
        };
        if provenance.kind().as_str() == self.kind {
            Ok(provenance)
        } else {
            Err(BadProvenance::Kind)
        }
    }
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
