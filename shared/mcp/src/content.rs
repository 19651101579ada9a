//! The content of files in answers: inline as text or base64, or as links, within the limits of the
//! transports.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{MetaObject, Resource, ResourceContents};
use serde_json::Value;
use vault_format::bundle::File;
use vault_format::manifest::{FileEntry, SKILL_MD};
use vault_format::name::SkillName;
use vault_shelf::Loaded;

use crate::uri::{self, META};

/// The largest amount of file content in one answer of a tool, in bytes.
pub const MAX_INLINE_BYTES: usize = 1024 * 1024;
/// The largest answer that a Lambda function returns, in bytes of JSON.
pub const MAX_ANSWER_BYTES: usize = 5_900_000;
/// The largest size of all inline texts of one answer after escaping, in bytes.
const MAX_ESCAPED_BYTES: usize = 2 * MAX_INLINE_BYTES;

/// Returns the size of a body in a Lambda function's answer: that of its base64 if it fits the
/// limit, else that of the shorter form, base64 or escaped text.
pub fn answer_bytes(body: &[u8]) -> usize {
    let in_base64 = body.len().div_ceil(3) * 4;
    // The smaller form matters only near the limit, and counting escapes reads the whole body.
    if in_base64 <= MAX_ANSWER_BYTES {
        return in_base64;
    }
    std::str::from_utf8(body).map_or(in_base64, |text| escaped_bytes(text).min(in_base64))
}

/// Returns the length of a text between the quotes of a JSON string, in bytes.
pub fn escaped_bytes(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        // These characters get a backslash. The other control characters become `\u00xx`, which is
        // five bytes longer.
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>()
}

/// Returns the text of a file if it can be sent as text; `None` if it must be sent in base64.
pub fn text_of(bytes: &[u8]) -> Option<&str> {
    // A file with U+0000 counts as binary, as in bundles.
    if bytes.len() > MAX_INLINE_BYTES || bytes.contains(&0) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    // Escapes make a text of control characters up to six times as long, while base64 adds a third.
    // Send such a text in base64.
    (escaped_bytes(text) <= MAX_ESCAPED_BYTES).then_some(text)
}

/// The file content that still fits into an answer.
pub struct InlineRoom {
    bytes: usize,
    escaped: usize,
}

impl InlineRoom {
    pub const fn new() -> Self {
        Self {
            bytes: MAX_INLINE_BYTES,
            escaped: MAX_ESCAPED_BYTES,
        }
    }

    /// Reserves room for these bytes. Returns `false`, and reserves nothing, if they do not fit.
    pub fn reserve_bytes(&mut self, bytes: &[u8]) -> bool {
        let cost = text_of(bytes).map_or_else(|| bytes.len().div_ceil(3) * 4, escaped_bytes);
        // Check both limits: plain text is bounded by its length, text full of escapes by its
        // escaped length.
        let fits = bytes.len() <= self.bytes && cost <= self.escaped;
        if fits {
            self.bytes -= bytes.len();
            self.escaped -= cost;
        }
        fits
    }
}

/// Encodes bytes in standard base64, with padding.
pub fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The files of a skill, SKILL.md first, each with its entry in the manifest.
pub fn files_in_order(loaded: &Loaded) -> impl Iterator<Item = (&FileEntry, &File)> {
    let pairs = || {
        loaded
            .bundle
            .manifest
            .files
            .iter()
            .zip(&loaded.bundle.files)
    };
    let is_first = |(entry, _): &(&FileEntry, &File)| entry.path.as_str() == SKILL_MD;
    // Two passes keep the manifest's order for all other files.
    pairs()
        .filter(is_first)
        .chain(pairs().filter(move |pair| !is_first(pair)))
}

/// Returns the media type of a path by its extension; empty if it is unknown.
pub fn media_type(path: &str) -> &'static str {
    let ending = path.rsplit('/').next().unwrap_or_default().rsplit_once('.');
    let ending = ending.map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref().unwrap_or_default() {
        "md" | "markdown" => "text/markdown",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "xml" => "application/xml",
        "js" | "mjs" => "text/javascript",
        "py" => "text/x-python",
        "sh" => "application/x-sh",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "txt" => "text/plain",
        _ => "",
    }
}

/// Returns the media type of a file by path and content.
pub fn media_type_of(path: &str, bytes: &[u8]) -> &'static str {
    match media_type(path) {
        // Use the same test as `file_contents`, so that the type matches the form in which the file
        // is sent.
        "" if text_of(bytes).is_some() => "text/plain",
        "" => "application/octet-stream",
        known => known,
    }
}

/// Wraps a file's bytes as the contents of a resource.
pub fn file_contents(uri: String, path: &str, bytes: &[u8]) -> ResourceContents {
    let contents = match text_of(bytes) {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::blob(encode_base64(bytes), uri),
    };
    contents.with_mime_type(media_type_of(path, bytes))
}

/// Creates the resource link that an answer has in place of the content of a file, with digest and
/// size.
pub fn file_link(owner: &str, name: &SkillName, entry: &FileEntry) -> Resource {
    let path = entry.path.as_str();
    let mut link = Resource::new(uri::file_uri(owner, name, path), path).with_size(entry.size);
    let media = media_type(path);
    if !media.is_empty() {
        link = link.with_mime_type(media);
    }
    link.with_meta(vault_meta([("sha256", entry.sha256.to_string().into())]))
}

/// Creates a `_meta` object with vault's prefix before each name.
pub fn vault_meta<'n>(members: impl IntoIterator<Item = (&'n str, Value)>) -> MetaObject {
    let mut meta = MetaObject::new();
    for (name, value) in members {
        meta.0.insert(format!("{META}{name}"), value);
    }
    meta
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_while_it_stays_small() {
        assert_eq!(text_of(b"a"), Some("a"));
        assert_eq!(text_of(b""), Some(""));
        assert_eq!(text_of(b"a\0"), None);
        assert_eq!(text_of(b"\xff"), None);
        assert!(text_of(&vec![b'a'; MAX_INLINE_BYTES]).is_some());
        assert!(text_of(&vec![b'a'; MAX_INLINE_BYTES + 1]).is_none());
        assert!(
            text_of(&vec![1; MAX_INLINE_BYTES]).is_none(),
            "six times as long once escaped"
        );
    }

    #[test]
    fn room_is_counted_in_bytes_and_in_escapes() {
        let mut room = InlineRoom::new();
        assert!(room.reserve_bytes(&vec![b'a'; MAX_INLINE_BYTES - 1]));
        assert!(!room.reserve_bytes(b"ab"));
        assert!(room.reserve_bytes(b"a"));
        assert!(room.reserve_bytes(b""));
        let mut room = InlineRoom::new();
        assert!(room.reserve_bytes(&vec![1; 300_000]));
        assert!(!room.reserve_bytes(&vec![1; 300_000]));
    }

    #[test]
    fn the_largest_file_fits_as_an_event_and_no_larger_answer() {
        let body = |bytes: usize| {
            let blob = encode_base64(&vec![7; bytes]);
            format!("{{\"result\":{{\"contents\":[{{\"blob\":\"{blob}\"}}]}}}}").into_bytes()
        };
        assert!(answer_bytes(&body(4 * 1024 * 1024)) <= MAX_ANSWER_BYTES);
        assert!(answer_bytes(&body(4_500_000)) > MAX_ANSWER_BYTES);
        assert!(answer_bytes(&vec![b'"'; 5_000_000]) > MAX_ANSWER_BYTES);
        assert!(answer_bytes(&vec![b'"'; 4_000_000]) <= MAX_ANSWER_BYTES);
    }
}
