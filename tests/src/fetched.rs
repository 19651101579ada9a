//! A fetched skill, verified from the answer alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use vault_skill::dsse::Envelope;
use vault_skill::hash::Digest;
use vault_skill::keys::{PublicKey, Signature};
use vault_skill::manifest::{SKILL_MD, SignedManifest};

/// What was found good.
#[derive(Debug)]
pub struct Verified {
    /// The signed version.
    pub version: u64,
    /// How many files the manifest names.
    pub files: usize,
    /// How many of them came inline, and have the manifest's digest.
    pub inline: usize,
    /// The key, as people compare it.
    pub fingerprint: String,
}

/// Verifies the structured answer of `skill.fetch` for `<owner>/<name>`: the Ed25519 signature, the manifest's rules, the name, and every
/// file that came with it. Fails with what is wrong.
pub fn verify(answer: &Value, id: &str) -> Result<Verified, String> {
    let key: PublicKey = answer["public_key"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|error| format!("public_key: {error}"))?;
    let envelope = answer.get("manifest").map(Value::to_string);
    let envelope = envelope.ok_or("no manifest")?;
    let signed =
        SignedManifest::parse(envelope.as_bytes()).map_err(|error| format!("manifest: {error}"))?;
    let manifest = signed
        .verify_signature(&[key])
        .map_err(|error| format!("manifest: {error}"))?;
    stands_alone(answer, &envelope, &key)?;
    let name = id.rsplit('/').next().unwrap_or_default();
    if manifest.name.as_str() != name {
        return Err(format!("the signed manifest of {}", manifest.name));
    }
    let listed = answer.get("files").and_then(Value::as_array);
    let listed = listed.ok_or("no list of files")?;
    let mut inline = 0;
    for entry in &manifest.files {
        let path = entry.path.as_str();
        let file = listed
            .iter()
            .find(|file| file["path"] == path)
            .ok_or_else(|| format!("no file {path}, which the manifest names"))?;
        let Some(bytes) = content(answer, file, path)? else {
            continue;
        };
        if bytes.len() as u64 != entry.size || Digest::of(&bytes) != entry.sha256 {
            return Err(format!("{path} with other bytes than were signed"));
        }
        inline += 1;
    }
    if listed.len() != manifest.files.len() {
        return Err(format!(
            "{} files, of which the manifest names {}",
            listed.len(),
            manifest.files.len()
        ));
    }
    Ok(Verified {
        version: manifest.version,
        files: manifest.files.len(),
        inline,
        fingerprint: key.fingerprint(),
    })
}

/// Whether `signature` is good by itself, as a caller would check it who knows nothing of envelopes with several.
fn stands_alone(answer: &Value, envelope: &str, key: &PublicKey) -> Result<(), String> {
    let envelope = Envelope::parse(envelope.as_bytes()).map_err(|error| error.to_string())?;
    let signature = answer["signature"].as_str().unwrap_or_default();
    let signature: [u8; 64] = STANDARD
        .decode(signature)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or("a signature that is not base64 of 64 bytes")?;
    let (kind, payload) = (envelope.payload_type(), envelope.payload());
    let mut message = format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).into_bytes();
    message.extend_from_slice(payload);
    if key.verify(&message, &Signature::from_bytes(signature)) {
        Ok(())
    } else {
        Err("a `signature` that is not the manifest's".to_owned())
    }
}

/// A file's bytes, where they came with the answer.
fn content(answer: &Value, file: &Value, path: &str) -> Result<Option<Vec<u8>>, String> {
    if path == SKILL_MD {
        let text = answer["skill_md"].as_str();
        return Ok(text.map(|text| text.as_bytes().to_vec()));
    }
    let Some(content) = file["content"].as_str() else {
        return Ok(None);
    };
    match file["encoding"].as_str() {
        Some("base64") => STANDARD
            .decode(content)
            .map(Some)
            .map_err(|_| format!("{path} in bad base64")),
        _ => Ok(Some(content.as_bytes().to_vec())),
    }
}
