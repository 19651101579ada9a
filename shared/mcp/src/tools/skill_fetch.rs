//! `skill_fetch`: returns a skill with everything that is needed to verify it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::ContentBlock;
use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vault_format::count::count;
use vault_format::dsse::Envelope;
use vault_format::manifest::SKILL_MD;
use vault_policy::Reach;
use vault_shelf::Loaded;

use super::shapes::{FileInfo, Summary};
use super::{Answer, Call, Effect, Spec};
use crate::content::{InlineRoom, encode_base64, file_link, files_in_order, text_of};
use crate::fault::{Fault, ToolError};

pub struct SkillFetch;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub struct Input {
    /// `<owner>/<name>`, as lists and searches give it, or `<vault>/<name>` for the skill of one linked vault.
    id: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct Output {
    #[serde(flatten)]
    summary: Summary,
    /// The text of SKILL.md.
    skill_md: String,
    /// All files in the manifest's order, SKILL.md among them.
    files: Vec<FetchedFile>,
    /// The signed manifest: a DSSE envelope, whose payload lists every file with its SHA-256.
    #[schemars(with = "SignedManifest")]
    manifest: Value,
    /// The Ed25519 signature of the envelope, in base64, valid under `public_key`. The signed bytes are
    /// `DSSEv1 <length of payloadType> <payloadType> <length of payload> <payload>`, the payload decoded from base64.
    signature: String,
    /// The Ed25519 key of the publisher who signed the skill, in base64url without padding.
    public_key: String,
}

/// The form of `manifest`, which is passed on as it is stored.
#[derive(JsonSchema)]
#[schemars(crate = "rmcp::schemars", rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
struct SignedManifest {
    /// `application/vnd.vault.skill-manifest.v2+json`.
    payload_type: String,
    /// The manifest as JSON, in base64.
    payload: String,
    /// One signature or more.
    signatures: Vec<ManifestSignature>,
}

#[derive(JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[expect(dead_code, reason = "only its schema is used")]
struct ManifestSignature {
    /// The SHA-256 of the public key, in hex.
    keyid: String,
    /// The Ed25519 signature, in base64.
    sig: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(crate = "rmcp::schemars")]
pub struct FetchedFile {
    #[serde(flatten)]
    info: FileInfo,
    /// Encoding of `content`: `utf-8` or `base64`. Absent if the file is not inline (read it at `uri`), and for SKILL.md, which is
    /// in `skill_md`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    encoding: Option<&'static str>,
    /// Content of the file, written as `encoding` says; absent if the file is not inline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    content: Option<String>,
}

impl Spec for SkillFetch {
    const NAME: &'static str = "skill_fetch";
    const DOTTED: Option<&'static str> = Some("skill.fetch");
    const TITLE: &'static str = "Fetch a skill to verify or install";
    const DESCRIPTION: &'static str = "Returns one skill as data, for programs that verify or install it: SKILL.md, files (up to 1 MiB inline, the rest to be \
        read at their `uri`), the signed manifest, its Ed25519 signature and the public key of the publisher who signed it. To \
        read and follow a skill, use `get_skill` with its name. (beta, since 0.5.0)";
    const EFFECT: Effect = Effect::Reads;
    type Input = Input;
    type Output = Output;

    async fn call(call: &Call<'_>, input: Input) -> Result<Answer<Output>, Fault> {
        call.may_read()?;
        let visible = call.visible(Reach::Fetch).await?;
        let found = visible.find_id(call.owner(), &input.id);
        let (owner, entry) = found.ok_or_else(Fault::no_skill)?;
        let loaded = call.load(entry).await?;
        let mut room = InlineRoom::new();
        let mut skill_md = String::new();
        let mut links = Vec::new();
        let mut fetched = Vec::new();
        for (info, file) in files_in_order(&loaded) {
            let mut one = FetchedFile {
                info: FileInfo::from_entry(owner, entry.name(), info),
                encoding: None,
                content: None,
            };
            let inline = room.reserve_bytes(&file.bytes);
            if info.path.as_str() == SKILL_MD {
                skill_md = String::from_utf8_lossy(&file.bytes).into_owned();
            } else if inline {
                let text = text_of(&file.bytes);
                one.encoding = Some(if text.is_some() { "utf-8" } else { "base64" });
                one.content = Some(text.map_or_else(|| encode_base64(&file.bytes), str::to_owned));
            } else {
                let link = file_link(owner, entry.name(), info);
                links.push(ContentBlock::resource_link(link));
            }
            fetched.push(one);
        }
        // The loop took SKILL.md first, so that it gets its share of the inline size. The answer
        // has the order of the manifest.
        fetched.sort_by(|one, other| one.info.path.cmp(&other.info.path));
        let summary = Summary::from_entry(owner, entry);
        let summary_text = format!(
            "{} version {}: {}, signed. The content is in the structured result; `get_skill` gives it to read.",
            summary.id,
            summary.version,
            count(fetched.len(), "file")
        );
        links.insert(0, ContentBlock::text(summary_text));
        Ok(Answer {
            structured: Output {
                summary,
                skill_md,
                files: fetched,
                manifest: envelope_json(&loaded)?,
                signature: encoded_signature(&loaded)?,
                public_key: loaded.public_key.to_string(),
            },
            content: Some(links),
        })
    }
}

/// Returns the manifest's envelope as JSON.
pub fn envelope_json(loaded: &Loaded) -> Result<Value, Fault> {
    serde_json::from_slice(loaded.bundle.signed.as_bytes())
        .map_err(|error| unreadable_manifest(&error))
}

/// Returns the only signature of the envelope.
pub fn encoded_signature(loaded: &Loaded) -> Result<String, Fault> {
    let envelope = Envelope::parse(loaded.bundle.signed.as_bytes())
        .map_err(|error| unreadable_manifest(&error))?;
    let entry = envelope.signatures().first();
    let entry =
        entry.ok_or_else(|| unreadable_manifest(&"a verified envelope without a signature"))?;
    Ok(STANDARD.encode(entry.signature.as_bytes()))
}

fn unreadable_manifest(error: &dyn std::fmt::Display) -> Fault {
    let cause = format!("a verified manifest cannot be read: {error}");
    Fault::by_service(ToolError::Internal, cause)
}
