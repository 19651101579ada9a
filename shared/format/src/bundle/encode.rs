//! The writer of bundles: it encodes each file and decides which files are cut into parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{
    BundleError, EncodedBundle, EncodedPart, File, MAX_INLINE_BYTES, MAX_OBJECT_BYTES, PART_BYTES,
    as_text, check_content,
};
use crate::hash::Digest;
use crate::json;
use crate::manifest::{Manifest, SignedManifest};
use crate::path::FilePath;

/// Computes the hash of the bundle that a manifest and its files form, without the need to keep the
/// bundle itself. `bytes` returns the content of a file. Returns `None` if a file is missing or
/// does not match the manifest.
pub fn compute_bundle_hash(
    signed: &SignedManifest,
    manifest: &Manifest,
    bytes: impl Fn(&FilePath) -> Option<Vec<u8>>,
) -> Option<Digest> {
    let files = manifest.files.iter().map(|entry| {
        Some(File {
            path: entry.path.clone(),
            mode: entry.mode,
            bytes: bytes(&entry.path)?,
        })
    });
    let files: Option<Vec<_>> = files.collect();
    Some(encode(signed, manifest, &files?).ok()?.hash)
}

/// Writes the bundle of a skill; fails when the files are not exactly those of the manifest.
pub fn encode(
    signed: &SignedManifest,
    manifest: &Manifest,
    files: &[File],
) -> Result<EncodedBundle, BundleError> {
    if manifest.files.len() != files.len() {
        return Err(BundleError::Files);
    }
    for (entry, file) in manifest.files.iter().zip(files) {
        // The bundle has no mode of its own: a reader takes it from the manifest, so another one
        // here would be lost without an error.
        if entry.path != file.path || entry.mode != file.mode {
            return Err(BundleError::Files);
        }
        check_content(&file.bytes, entry.size, &entry.sha256, &file.path)?;
    }
    // Copy the envelope's bytes and do not write it anew: its exact text is a part of what the
    // bundle's hash covers.
    let mut bytes = [
        BEFORE_MANIFEST.as_bytes(),
        signed.as_bytes(),
        BEFORE_FILES.as_bytes(),
    ]
    .concat();
    let mut parts = Vec::new();
    for (index, entry) in encode_entries(signed.as_bytes().len(), files)
        .into_iter()
        .enumerate()
    {
        if index > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&entry.bytes);
        parts.extend(entry.parts.into_iter().flatten());
    }
    bytes.extend_from_slice(AFTER_FILES.as_bytes());
    // Cutting files cannot help here: the envelope and the paths alone are too large.
    if bytes.len() > MAX_OBJECT_BYTES {
        return Err(BundleError::Size);
    }
    Ok(EncodedBundle {
        hash: Digest::of(&bytes),
        bytes,
        parts,
    })
}

const BEFORE_MANIFEST: &str = r#"{"schema":"vault.bundle/1","manifest":"#;
const BEFORE_FILES: &str = r#","files":["#;
const AFTER_FILES: &str = "]}";
const BEFORE_PART: &str = r#"{"schema":"vault.part/1","content":""#;
const AFTER_PART: &str = r#""}"#;

/// One file as an element of the bundle's member `files`.
pub(super) struct EncodedEntry {
    /// The element's JSON.
    bytes: Vec<u8>,
    /// The part objects that hold the content; `None` when the entry itself holds it.
    pub(super) parts: Option<Vec<EncodedPart>>,
}

impl EncodedEntry {
    /// Writes a file with its content. Returns the entry and the length of the content between its
    /// quotes.
    fn write_inline(file: &File) -> (Self, usize) {
        let (encoding, content) = match as_text(&file.bytes) {
            Some(text) => ("utf-8", json::to_bytes(text)),
            None => (
                "base64",
                format!("\"{}\"", STANDARD.encode(&file.bytes)).into_bytes(),
            ),
        };
        let entry = Self {
            bytes: entry_json(file, encoding, "content", &content),
            parts: None,
        };
        (entry, content.len() - 2)
    }

    fn write_parts(file: &File) -> Self {
        let parts: Vec<EncodedPart> = file.bytes.chunks(PART_BYTES).map(encode_part).collect();
        let names: Vec<String> = parts
            .iter()
            .map(|part| {
                let (hash, size) = (&part.hash, part.bytes.len());
                format!(r#"{{"bundle_hash":"{hash}","size":{size}}}"#)
            })
            .collect();
        let names = format!("[{}]", names.join(","));
        Self {
            bytes: entry_json(file, "parts", "parts", names.as_bytes()),
            parts: Some(parts),
        }
    }
}

fn entry_json(file: &File, encoding: &str, member: &str, value: &[u8]) -> Vec<u8> {
    let path = json::to_bytes(file.path.as_str());
    let between = format!(r#","encoding":"{encoding}","{member}":"#);
    [br#"{"path":"#, &path[..], between.as_bytes(), value, b"}"].concat()
}

fn encode_part(chunk: &[u8]) -> EncodedPart {
    let bytes = [BEFORE_PART, &STANDARD.encode(chunk), AFTER_PART]
        .concat()
        .into_bytes();
    EncodedPart {
        hash: Digest::of(&bytes),
        bytes,
    }
}

/// Decides how each file is written, in the only way that a reader accepts: files over 1 MiB of
/// encoded content are cut into parts, then the largest of the others (of equal ones the later
/// path) until the bundle fits into an object.
pub(super) fn encode_entries(manifest_length: usize, files: &[File]) -> Vec<EncodedEntry> {
    let mut entries = Vec::with_capacity(files.len());
    let mut inline = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let (entry, length) = EncodedEntry::write_inline(file);
        // Compare the encoded length: base64 and escapes make it larger than the file.
        if length > MAX_INLINE_BYTES {
            entries.push(EncodedEntry::write_parts(file));
        } else {
            entries.push(entry);
            inline.push((length, index));
        }
    }
    let commas = files.len().saturating_sub(1);
    let frame = BEFORE_MANIFEST.len() + manifest_length + BEFORE_FILES.len() + AFTER_FILES.len();
    // Exact arithmetic instead of writing the bundle after each cut: a skill has up to 1,024 files.
    let mut total = frame + commas + entries.iter().map(|entry| entry.bytes.len()).sum::<usize>();
    // Files are sorted by path, so the index stands for the path.
    inline.sort_unstable();
    while total > MAX_OBJECT_BYTES
        && let Some((_, index)) = inline.pop()
    {
        let cut = EncodedEntry::write_parts(&files[index]);
        total = total - entries[index].bytes.len() + cut.bytes.len();
        entries[index] = cut;
    }
    entries
}
