//! How files leave: which are inline, as text or as base64, and what an answer may take on the
//! wire.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{MetaObject, Resource, ResourceContents};
use serde_json::Value;
use vault_format::bundle::File;
use vault_format::manifest::{FileEntry, SKILL_MD};
use vault_format::name::SkillName;
use vault_shelf::Loaded;

use crate::uri::{self, META};

/// The most bytes of file content that one answer of a tool carries.
pub const MAX_INLINE_BYTES: usize = 1024 * 1024;
/// The most bytes that an answer may take as a function's event.
pub const MAX_ANSWER_BYTES: usize = 5_900_000;
/// The most bytes that all inline texts of one answer may take once they are escaped.
const MAX_ESCAPED_BYTES: usize = 2 * MAX_INLINE_BYTES;

/// How many bytes a body takes in a function's event: as escaped text or in base64, whichever is
/// shorter.
pub fn answer_bytes(body: &[u8]) -> usize {
    let in_base64 = body.len().div_ceil(3) * 4;
    if in_base64 <= MAX_ANSWER_BYTES {
        return in_base64;
    }
    std::str::from_utf8(body).map_or(in_base64, |text| escaped_bytes(text).min(in_base64))
}

/// The bytes of a text between the quotes of a JSON string.
pub fn escaped_bytes(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 1,
        0..=0x1f => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>()
}

/// The file's text, where it can leave as text.
pub fn text_of(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > MAX_INLINE_BYTES || bytes.contains(&0) {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    (escaped_bytes(text) <= MAX_ESCAPED_BYTES).then_some(text)
}

/// What is left of an answer's room for file content.
pub struct Room {
    bytes: usize,
    escaped: usize,
}

impl Room {
    pub const fn new() -> Self {
        Self {
            bytes: MAX_INLINE_BYTES,
            escaped: MAX_ESCAPED_BYTES,
        }
    }

    /// Whether these bytes still fit; then they are counted.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let cost = text_of(bytes).map_or_else(|| bytes.len().div_ceil(3) * 4, escaped_bytes);
        let fits = bytes.len() <= self.bytes && cost <= self.escaped;
        if fits {
            self.bytes -= bytes.len();
            self.escaped -= cost;
        }
        fits
    }
}

/// The bytes of a file as base64.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The files of a skill, SKILL.md first, each with its entry in the manifest.
pub fn files(loaded: &Loaded) -> impl Iterator<Item = (&FileEntry, &File)> {
    let pairs = || {
        loaded
            .bundle
            .manifest
            .files
            .iter()
            .zip(&loaded.bundle.files)
    };
    let is_first = |(entry, _): &(&FileEntry, &File)| entry.path.as_str() == SKILL_MD;
    pairs()
        .filter(is_first)
        .chain(pairs().filter(move |pair| !is_first(pair)))
}

/// What kind of file a path names, by its ending.
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

/// The kind of these bytes under this path.
pub fn media_type_of(path: &str, bytes: &[u8]) -> &'static str {
    match media_type(path) {
        "" if text_of(bytes).is_some() => "text/plain",
        "" => "application/octet-stream",
        known => known,
    }
}

/// A file's bytes as a resource.
pub fn contents(uri: String, path: &str, bytes: &[u8]) -> ResourceContents {
    let contents = match text_of(bytes) {
        Some(text) => ResourceContents::text(text, uri),
        None => ResourceContents::blob(base64(bytes), uri),
    };
    contents.with_mime_type(media_type_of(path, bytes))
}

/// A link to a file, with digest and size.
pub fn link(owner: &str, name: &SkillName, entry: &FileEntry) -> Resource {
    let path = entry.path.as_str();
    let mut link = Resource::new(uri::file(owner, name, path), path).with_size(entry.size);
    let media = media_type(path);
    if !media.is_empty() {
        link = link.with_mime_type(media);
    }
    link.with_meta(meta([("sha256", entry.sha256.to_string().into())]))
}

/// A `_meta` of ours.
pub fn meta<'n>(members: impl IntoIterator<Item = (&'n str, Value)>) -> MetaObject {
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
        let mut room = Room::new();
        assert!(room.take(&vec![b'a'; MAX_INLINE_BYTES - 1]));
        assert!(!room.take(b"ab"));
        assert!(room.take(b"a"));
        assert!(room.take(b""));
        let mut room = Room::new();
        assert!(room.take(&vec![1; 300_000]));
        assert!(!room.take(&vec![1; 300_000]));
    }

    #[test]
    fn the_largest_file_fits_as_an_event_and_no_larger_answer() {
        let body = |bytes: usize| {
            let blob = base64(&vec![7; bytes]);
            format!("{{\"result\":{{\"contents\":[{{\"blob\":\"{blob}\"}}]}}}}").into_bytes()
        };
        assert!(answer_bytes(&body(4 * 1024 * 1024)) <= MAX_ANSWER_BYTES);
        assert!(answer_bytes(&body(4_500_000)) > MAX_ANSWER_BYTES);
        assert!(answer_bytes(&vec![b'"'; 5_000_000]) > MAX_ANSWER_BYTES);
        assert!(answer_bytes(&vec![b'"'; 4_000_000]) <= MAX_ANSWER_BYTES);
    }
}
