//! `vault.draft/2`: a change that a user without a publisher's key asks an owner to make.
//!
//! A draft is unsigned and untrusted. It states its author, the request and the bundle that it is
//! based on. The owner's machine scans the files again, shows the change and signs it, or declines.
//! The scan result in a draft comes from the service and is only a hint.

use crate::bundle::File;
use crate::hash::Digest;
use crate::json::{self, JsonError};
use crate::manifest::{Flag, MAX_FILES, Mode, SKILL_MD};
use crate::name::{BadName, DraftId, SkillName, Slug, is_deceptive};
use crate::path::{FilePath, check_paths};
use crate::provenance::ProvenanceId;
use crate::root::VaultId;
use crate::text::quoted;
use crate::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Value of the member `schema` of a draft.
pub const SCHEMA: &str = "vault.draft/2";
/// Largest draft, in bytes.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Longest id of a user or client, and longest `ref` (branch, tag or commit), in characters.
const MAX_ID_CHARS: usize = 255;

/// A request to change what a vault holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Draft {
    /// Id of the draft. Two drafts of equal content are two requests and have two ids.
    pub draft_id: DraftId,
    /// The vault that the draft is for; `None` when the namespace had no release yet.
    pub vault_id: Option<VaultId>,
    /// The namespace whose owners receive the draft.
    pub slug: Slug,
    /// Name of the skill to add, change or remove.
    pub name: SkillName,
    /// SHA-256 of the bundle that the author saw; `None` for a new skill.
    pub base_bundle_hash: Option<Digest>,
    /// The time at which the service received the draft.
    pub submitted_at: Timestamp,
    /// The user who asks for the change, as the service authenticated them.
    pub submitted_by: Submitter,
    /// The requested change: new files, an installation from a source, or a removal.
    pub request: Request,
    /// The result of the scan (gate) that the service ran; a hint only.
    pub gate: GateHint,
}

/// The author of a draft.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Submitter {
    /// Id of the user, as the service that received the draft knows it.
    pub user_id: String,
    /// Id of the OAuth client through which the user sent it; `None` if none was involved.
    #[serde(deserialize_with = "json::nullable")]
    pub client_id: Option<String>,
}

/// The change that a draft asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Request {
    /// Add these files as the skill, or as its next version.
    Propose {
        /// The files, sorted by path, SKILL.md among them. A draft carries no modes: every file is
        /// plain.
        files: Vec<File>,
    },
    /// Fetch the skill on the owner's machine when the owner accepts the draft.
    Install {
        /// Origin to fetch from. The draft itself carries no files.
        source: Source,
    },
    /// Remove the skill that the draft names.
    Remove,
}

/// The source that a skill is to be fetched from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Source {
    /// The location, such as `github:acme/skills/code-review`.
    pub identifier: ProvenanceId,
    /// Branch, tag or commit; `None` if the source has no such thing or its default is meant.
    #[serde(rename = "ref", deserialize_with = "json::nullable")]
    pub reference: Option<String>,
}

/// The result of the scan (gate) that the service ran for a draft.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GateHint {
    /// The version of the rules that ran.
    pub rules: String,
    /// The findings of those rules, none of which blocks the draft.
    pub flags: Vec<Flag>,
}

/// The namespace and vault for which a reader accepts a draft.
#[derive(Clone, Copy, Debug)]
pub struct DraftContext<'a> {
    /// The namespace from which the draft was fetched; the draft must name it.
    pub slug: &'a Slug,
    /// The vault of the namespace; `None` before its first release.
    pub vault_id: Option<&'a VaultId>,
}

/// A reason to reject a draft.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// The draft has more than 1 MiB.
    #[error("the draft has {0} bytes; {MAX_BYTES} are allowed")]
    TooLarge(usize),
    /// The bytes are not JSON of a draft's shape.
    #[error("the draft cannot be read: {0}")]
    Json(#[from] JsonError),
    /// The schema has another name or number.
    #[error("the schema is {}, not `{SCHEMA}`", quoted(.0))]
    Schema(String),
    /// The members do not fit the kind: files without propose, a source without install.
    #[error("draft of this kind must have {0}")]
    Kind(&'static str),
    /// A text that names a user or a client is empty, too long, or holds hidden characters.
    #[error("`{0}` is not 1 to {MAX_ID_CHARS} visible characters")]
    Text(&'static str),
    /// The `ref` of a source is empty, too long, or holds hidden characters.
    #[error("`ref` is not 1 to {MAX_ID_CHARS} visible characters")]
    Revision,
    /// The draft is for another namespace.
    #[error("the draft is for the namespace `{0}`")]
    Slug(Slug),
    /// The draft is for another vault, or for none although the namespace has one.
    #[error("the draft is for another vault")]
    VaultId,
    /// The name does not fit the grammar of skill names.
    #[error("{}: {reason}", quoted(.name))]
    Name {
        /// The name as sent, to be quoted in messages.
        name: String,
        /// The rule that the name breaks.
        reason: BadName,
    },
    /// A path breaks the grammar, or two paths cannot exist side by side.
    #[error("{0}")]
    Path(String),
    /// The files do not form a skill: too many, no SKILL.md, out of order, or wrongly encoded.
    #[error("{0}")]
    Files(String),
    /// The skill has changed since the author saw it.
    #[error("the skill has changed since this draft was made")]
    Base,
}

impl DraftError {
    /// Machine-readable class of the error: `draft_schema`, `draft_slug`, `draft_vault_id`,
    /// `draft_name`, `draft_path`, `draft_files` or `draft_base`.
    pub const fn error_code(&self) -> &'static str {
        match self {
            Self::TooLarge(_)
            | Self::Json(_)
            | Self::Schema(_)
            | Self::Kind(_)
            | Self::Text(_)
            | Self::Revision => "draft_schema",
            Self::Slug(_) => "draft_slug",
            Self::VaultId => "draft_vault_id",
            Self::Name { .. } => "draft_name",
            Self::Path(_) => "draft_path",
            Self::Files(_) => "draft_files",
            Self::Base => "draft_base",
        }
    }
}

#[derive(Clone, Copy, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Propose,
    Install,
    Remove,
}

#[derive(Deserialize, Serialize)]
struct Wire {
    schema: String,
    draft_id: DraftId,
    #[serde(deserialize_with = "json::nullable")]
    vault_id: Option<VaultId>,
    slug: Slug,
    kind: Kind,
    // Name and file paths are read as plain text, so that a bad one gets its own error code instead
    // of `draft_schema`.
    name: String,
    #[serde(deserialize_with = "json::nullable")]
    base_bundle_hash: Option<Digest>,
    submitted_at: Timestamp,
    submitted_by: Submitter,
    #[serde(
        default,
        deserialize_with = "json::optional",
        skip_serializing_if = "Option::is_none"
    )]
    files: Option<Vec<WireFile>>,
    #[serde(
        default,
        deserialize_with = "json::optional",
        skip_serializing_if = "Option::is_none"
    )]
    source: Option<Source>,
    gate: GateHint,
}

#[derive(Deserialize, Serialize)]
struct WireFile {
    path: String,
    encoding: Encoding,
    content: String,
}

#[derive(Clone, Copy, Deserialize, Eq, PartialEq, Serialize)]
enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

impl Draft {
    /// Reads a draft for this namespace. Fails if it is for another one or is not a valid draft of
    /// its kind. Whether it still fits the current skill is checked by [`Draft::check_base`];
    /// whether its files are acceptable, by a scan.
    pub fn parse(bytes: &[u8], context: &DraftContext<'_>) -> Result<Self, DraftError> {
        if bytes.len() > MAX_BYTES {
            return Err(DraftError::TooLarge(bytes.len()));
        }
        let wire: Wire = json::parse(bytes)?;
        if wire.schema != SCHEMA {
            return Err(DraftError::Schema(wire.schema));
        }
        // The owner who reviews the draft sees these ids, and hidden characters could deceive.
        check_text("user_id", Some(&wire.submitted_by.user_id))?;
        check_text("client_id", wire.submitted_by.client_id.as_deref())?;
        if wire.slug != *context.slug {
            return Err(DraftError::Slug(wire.slug));
        }
        if wire.vault_id.as_ref() != context.vault_id {
            return Err(DraftError::VaultId);
        }
        // Parsed here and not by serde, so that a bad name has its own code.
        let name = wire.name.parse().map_err(|reason| DraftError::Name {
            name: wire.name.clone(),
            reason,
        })?;
        Ok(Self {
            draft_id: wire.draft_id,
            vault_id: wire.vault_id,
            slug: wire.slug,
            name,
            base_bundle_hash: wire.base_bundle_hash,
            submitted_at: wire.submitted_at,
            submitted_by: wire.submitted_by,
            request: decode_request(wire.kind, wire.files, wire.source)?,
            gate: wire.gate,
        })
    }

    /// Returns the bytes of the draft, with files in the order of their paths. Fails if
    /// [`Draft::parse`] would reject them for its files or its size.
    pub fn to_bytes(&self) -> Result<Vec<u8>, DraftError> {
        let (kind, files, source) = match &self.request {
            Request::Propose { files } => (Kind::Propose, Some(files), None),
            Request::Install { source } => (Kind::Install, None, Some(source.clone())),
            Request::Remove => (Kind::Remove, None, None),
        };
        let files = files.map(|files| {
            let mut files: Vec<WireFile> = files.iter().map(encode_file).collect();
            files.sort_by(|a, b| a.path.cmp(&b.path));
            files
        });
        let bytes = json::to_bytes(&Wire {
            schema: SCHEMA.to_owned(),
            draft_id: self.draft_id,
            vault_id: self.vault_id,
            slug: self.slug.clone(),
            kind,
            name: self.name.to_string(),
            base_bundle_hash: self.base_bundle_hash,
            submitted_at: self.submitted_at,
            submitted_by: self.submitted_by.clone(),
            files,
            source,
            gate: self.gate.clone(),
        });
        // Check the bytes with the reader's rules, so that no draft is written that a reader would
        // reject.
        let context = DraftContext {
            slug: &self.slug,
            vault_id: self.vault_id.as_ref(),
        };
        Self::parse(&bytes, &context).map(|_| bytes)
    }

    /// Fails if the skill has changed since the author saw it. `current` is the SHA-256 of its
    /// bundle now, `None` if the vault has no such skill.
    pub fn check_base(&self, current: Option<&Digest>) -> Result<(), DraftError> {
        if self.base_bundle_hash.as_ref() == current {
            Ok(())
        } else {
            Err(DraftError::Base)
        }
    }
}

fn decode_request(
    kind: Kind,
    files: Option<Vec<WireFile>>,
    source: Option<Source>,
) -> Result<Request, DraftError> {
    match (kind, files, source) {
        (Kind::Propose, Some(files), None) => Ok(Request::Propose {
            files: decode_files(files)?,
        }),
        (Kind::Install, None, Some(source)) => {
            if !source.reference.as_deref().is_none_or(is_id) {
                return Err(DraftError::Revision);
            }
            Ok(Request::Install { source })
        }
        (Kind::Remove, None, None) => Ok(Request::Remove),
        (Kind::Propose, ..) => Err(DraftError::Kind("files and no source")),
        (Kind::Install, ..) => Err(DraftError::Kind("a source and no files")),
        (Kind::Remove, ..) => Err(DraftError::Kind("neither files nor a source")),
    }
}

fn check_text(member: &'static str, text: Option<&str>) -> Result<(), DraftError> {
    if text.is_none_or(is_id) {
        Ok(())
    } else {
        Err(DraftError::Text(member))
    }
}

/// Tells whether a text can name a user, a client or a revision.
fn is_id(text: &str) -> bool {
    (1..=MAX_ID_CHARS).contains(&text.chars().count()) && !text.chars().any(is_deceptive)
}

fn decode_files(wire: Vec<WireFile>) -> Result<Vec<File>, DraftError> {
    // Check the number before any file is decoded: the limit of 1 MiB alone allows many thousand
    // empty files.
    if wire.len() > MAX_FILES {
        return Err(DraftError::Files(format!(
            "the draft has {} files; {MAX_FILES} are allowed",
            wire.len()
        )));
    }
    let files: Vec<File> = wire
        .into_iter()
        .map(decode_file)
        .collect::<Result<_, _>>()?;
    if !files.iter().any(|file| file.path.as_str() == SKILL_MD) {
        return Err(DraftError::Files(format!("the draft has no {SKILL_MD}")));
    }
    if let Some(pair) = files
        .windows(2)
        // Strict order also rejects a path that comes twice.
        .find(|pair| pair[0].path.as_str() >= pair[1].path.as_str())
    {
        return Err(DraftError::Files(format!(
            "the files are not sorted by path at `{}`",
            pair[1].path
        )));
    }
    check_paths(files.iter().map(|file| &file.path))
        .map_err(|clash| DraftError::Path(clash.to_string()))?;
    Ok(files)
}

fn decode_file(wire: WireFile) -> Result<File, DraftError> {
    let path: FilePath = wire
        .path
        .parse()
        .map_err(|error| DraftError::Path(format!("{}: {error}", quoted(&wire.path))))?;
    let wrong = || {
        DraftError::Files(format!(
            "the content of `{path}` is not encoded as it must be"
        ))
    };
    let bytes = match wire.encoding {
        Encoding::Utf8 => wire.content.into_bytes(),
        Encoding::Base64 => STANDARD.decode(&wire.content).map_err(|_| wrong())?,
    };
    // Each content has one valid encoding, so that equal drafts have equal bytes.
    if encoding_of(&bytes) != wire.encoding {
        return Err(wrong());
    }
    Ok(File {
        path,
        mode: Mode::Plain,
        bytes,
    })
}

fn encode_file(file: &File) -> WireFile {
    let (encoding, content) = match std::str::from_utf8(&file.bytes) {
        Ok(text) if !text.contains('\0') => (Encoding::Utf8, text.to_owned()),
        _ => (Encoding::Base64, STANDARD.encode(&file.bytes)),
    };
    WireFile {
        path: file.path.to_string(),
        encoding,
        content,
    }
}

/// Returns the only valid encoding of these bytes: text if they are UTF-8 without U+0000, else
/// base64.
fn encoding_of(bytes: &[u8]) -> Encoding {
    if !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok() {
        Encoding::Utf8
    } else {
        Encoding::Base64
    }
}

#[cfg(test)]
mod tests;
