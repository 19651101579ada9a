//! Verifies a skill that the tool `skill.fetch` returned, with nothing but its answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use vault_format::dsse::Envelope;
use vault_format::hash::Digest;
use vault_format::keys::{PublicKey, Signature};
use vault_format::manifest::{SKILL_MD, SignedManifest};
use vault_format::name::SkillName;
use vault_format::path::FilePath;

/// The result of [`verify`]: a fetched skill whose signature and files are valid.
#[derive(Debug)]
pub struct Verified {
    /// Version number in the signed manifest.
    pub version: u64,
    /// How many files the manifest names.
    pub files: usize,
    /// How many of these files came inline; each has the digest of the manifest.
    pub inline: usize,
    /// Fingerprint of the key that signed the manifest.
    pub fingerprint: String,
}

#[derive(Deserialize)]
struct SignedFiles {
    name: SkillName,
    version: u64,
    files: Vec<SignedFile>,
}

#[derive(Deserialize)]
struct SignedFile {
    path: FilePath,
    size: u64,
    sha256: Digest,
}

/// Verifies the structured answer of `skill.fetch` for `<owner>/<name>`: the Ed25519 signature, the
/// manifest's rules, the name, and every file that came with it. Fails with what is wrong.
pub fn verify(answer: &Value, id: &str) -> Result<Verified, String> {
    let key: PublicKey = answer["public_key"]
        .as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|error| format!("public_key: {error}"))?;
    let envelope = answer.get("manifest").map(Value::to_string);
    let envelope = envelope.ok_or("no manifest")?;
    let manifest = read_manifest(&envelope, &key).map_err(|error| format!("manifest: {error}"))?;
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

/// Reads the manifest in an envelope that this key has signed. The caller must know by other means
/// whether the key is one of the vault's.
fn read_manifest(envelope: &str, key: &PublicKey) -> Result<SignedFiles, String> {
    SignedManifest::parse(envelope.as_bytes()).map_err(|error| error.to_string())?;
    let envelope = Envelope::parse(envelope.as_bytes()).map_err(|error| error.to_string())?;
    if envelope.valid_signers(&[*key]).is_empty() {
        return Err("another key signed it".to_owned());
    }
    vault_format::json::parse(envelope.payload()).map_err(|error| error.to_string())
}

/// Checks the member `signature` like a caller who ignores the signatures in the envelope: as an
/// Ed25519 signature over the signed bytes.
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

/// Returns the bytes of a file; `None` if the answer has only a link to it.
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vault_format::manifest::Mode;
    use vault_gate::RawFile;
    use vault_testing::memory::shelf::Owner;

    use super::*;

    /// Returns the answer of an honest service for a skill of three files.
    fn good() -> Value {
        let file = |path: &str, bytes: &[u8]| RawFile {
            path: path.to_owned(),
            mode: Mode::Plain,
            bytes: bytes.to_vec(),
        };
        let text = crate::skills::skill_md("notes", "Read more.md.");
        let files = vec![
            file("SKILL.md", &text),
            file("more.md", b"More.\r\n"),
            file("noise.bin", &[0, 255, 7]),
        ];
        let source = "github:acme/skills/notes".parse().unwrap();
        let signed = Owner::new(7).sign(files, &source, 3).unwrap();
        let loaded = &signed.loaded;
        let envelope = Envelope::parse(loaded.bundle.signed.as_bytes()).unwrap();
        let [signature] = envelope.signatures() else {
            panic!("one signature");
        };
        json!({
            "id": "default/notes",
            "public_key": loaded.public_key.to_string(),
            "signature": STANDARD.encode(signature.signature.as_bytes()),
            "manifest": serde_json::from_slice::<Value>(loaded.bundle.signed.as_bytes()).unwrap(),
            "skill_md": String::from_utf8(text).unwrap(),
            "files": [
                { "path": "SKILL.md" },
                { "path": "more.md", "encoding": "utf-8", "content": "More.\r\n" },
                { "path": "noise.bin", "encoding": "base64", "content": "AP8H" },
            ],
        })
    }

    #[test]
    fn a_good_answer_is_verified_with_every_file() {
        let good = good();
        let verified = verify(&good, "default/notes").unwrap();
        assert_eq!(
            (verified.version, verified.files, verified.inline),
            (3, 3, 3)
        );
        let mut one_later = good.clone();
        one_later["files"][2] = json!({ "path": "noise.bin" });
        assert_eq!(verify(&one_later, "default/notes").unwrap().inline, 2);
    }

    #[test]
    fn nothing_that_was_changed_passes() {
        type Change = fn(&mut Value);
        let changes: [(&str, Change); 9] = [
            ("another key", |answer| {
                answer["public_key"] = Owner::new(8).key().public().to_string().into();
            }),
            ("no key", |answer| answer["public_key"] = Value::Null),
            ("another signature", |answer| {
                answer["signature"] = STANDARD.encode([1; 64]).into();
            }),
            ("a manifest nobody signed", |answer| {
                let payload = answer["manifest"]["payload"].as_str().unwrap();
                let mut payload = STANDARD.decode(payload).unwrap();
                let at = payload.iter().position(|byte| *byte == b'3').unwrap();
                payload[at] = b'4';
                answer["manifest"]["payload"] = STANDARD.encode(payload).into();
            }),
            ("another text", |answer| {
                answer["skill_md"] = "Anything.".into();
            }),
            ("another file", |answer| {
                answer["files"][1]["content"] = "Less.".into();
            }),
            ("other line ends", |answer| {
                answer["files"][1]["content"] = "More.\n".into();
            }),
            ("a file too few", |answer| {
                answer["files"].as_array_mut().unwrap().pop();
            }),
            ("a file too many", |answer| {
                let more = json!({ "path": "extra.md", "encoding": "utf-8", "content": "" });
                answer["files"].as_array_mut().unwrap().push(more);
            }),
        ];
        for (what, change) in changes {
            let mut answer = good();
            change(&mut answer);
            assert!(verify(&answer, "default/notes").is_err(), "{what}");
        }
        assert!(verify(&good(), "default/other").is_err());
    }
}
