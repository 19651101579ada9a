//! Files inside files: archives, office documents, PDF and notebooks, one level deep.
//!
//! What is found is text that the scanner reads under the name of its part. Nothing is written and nothing is run. The
//! work is bounded by parts and by bytes of one container; what lies beyond is reported, never passed over.

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use std::io::Read;

/// Parts of one container that are read.
const MOST_PARTS: usize = 512;

/// A part of a container.
pub(super) struct Part {
    /// Its name in the container; hostile text.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// What a container holds.
pub(super) struct Contained {
    /// Bytes that its parts may unpack to.
    most: usize,
    pub parts: Vec<Part>,
    /// Something in it was not read: it is damaged, too large, packed in another way, or a container itself.
    pub is_cut: bool,
}

impl Contained {
    const fn new(most: usize) -> Self {
        Self {
            most,
            parts: Vec::new(),
            is_cut: false,
        }
    }

    /// Bytes of all parts.
    pub(super) fn size(&self) -> usize {
        self.parts.iter().map(|part| part.bytes.len()).sum()
    }

    /// Adds a part; `false` once there is room for no more.
    fn add(&mut self, name: &[u8], mut source: impl Read) -> bool {
        let left = self.most.saturating_sub(self.size());
        if self.parts.len() >= MOST_PARTS || left == 0 {
            self.is_cut = true;
            return false;
        }
        let mut bytes = Vec::new();
        let read = (&mut source).take(left as u64 + 1).read_to_end(&mut bytes);
        self.is_cut |= read.is_err() || bytes.len() > left;
        bytes.truncate(left);
        let name = String::from_utf8_lossy(name).into_owned();
        self.is_cut |= is_container(&bytes);
        self.parts.push(Part { name, bytes });
        true
    }
}

fn is_container(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
        || bytes.starts_with(b"\x1f\x8b")
        || bytes.starts_with(b"%PDF-")
}

/// What a file holds, if it is a container of a known kind; unpacked to at most so many bytes.
pub(super) fn open(path: &str, bytes: &[u8], most: usize) -> Option<Contained> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    if bytes.starts_with(b"PK\x03\x04") {
        Some(zip(bytes, most))
    } else if bytes.starts_with(b"\x1f\x8b") {
        Some(gzip(bytes, most))
    } else if bytes.get(257..262) == Some(b"ustar") {
        let mut found = Contained::new(most);
        tar(bytes, &mut found);
        Some(found)
    } else if bytes.starts_with(b"%PDF-") {
        Some(pdf(bytes, most))
    } else if ending.eq_ignore_ascii_case("ipynb") {
        notebook(bytes, most)
    } else if ending.eq_ignore_ascii_case("svg") {
        let mut found = Contained::new(most);
        found.add(b"text.md", untagged(bytes).as_slice());
        Some(found)
    } else {
        None
    }
}

/// A number of two or four bytes, the lowest first.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

/// The files of the central directory, which is what programs unpack; local headers alone may lie.
fn zip(bytes: &[u8], most: usize) -> Contained {
    let mut found = Contained::new(most);
    let tail = bytes.len().saturating_sub((1 << 16) + 22);
    let end = bytes[tail..]
        .windows(4)
        .rposition(|four| four == b"PK\x05\x06");
    let start = end.and_then(|end| number(bytes, tail + end + 16, 4));
    let Some(mut at) = start else {
        found.is_cut = true;
        return found;
    };
    while bytes
        .get(at..)
        .is_some_and(|rest| rest.starts_with(b"PK\x01\x02"))
    {
        let field = |offset, length| number(bytes, at + offset, length).unwrap_or(usize::MAX);
        let (method, packed, local) = (field(10, 2), field(20, 4), field(42, 4));
        let (name_length, extra, comment) = (field(28, 2), field(30, 2), field(32, 2));
        let name = bytes.get(at + 46..at.saturating_add(46).saturating_add(name_length));
        let data = (|| {
            let skip = number(bytes, local.checked_add(26)?, 2)? + number(bytes, local + 28, 2)?;
            let from = local + 30 + skip;
            bytes.get(from..from.checked_add(packed)?)
        })();
        let (Some(name), Some(data)) = (name, data) else {
            found.is_cut = true;
            break;
        };
        let text = office_text(name);
        let more = match method {
            0 => found.add(name, data),
            8 => found.add(name, DeflateDecoder::new(data)),
            _ => {
                found.is_cut = true;
                true
            }
        };
        if text && let Some(part) = found.parts.last_mut() {
            part.bytes = untagged(&part.bytes);
            part.name.push_str(".md");
        }
        if !more {
            break;
        }
        at = at
            .saturating_add(46)
            .saturating_add(name_length)
            .saturating_add(extra)
            .saturating_add(comment);
    }
    found
}

/// Whether a part of an office document holds what its reader sees or its macros say.
fn office_text(name: &[u8]) -> bool {
    let begins = [
        b"word/".as_slice(),
        b"xl/",
        b"ppt/",
        b"content.xml",
        b"oebps/",
        b"docprops/",
    ];
    let name = name.to_ascii_lowercase();
    name.ends_with(b".xml") && begins.iter().any(|begin| name.starts_with(begin))
}

fn gzip(bytes: &[u8], most: usize) -> Contained {
    let mut whole = Contained::new(most);
    whole.add(b"content", GzDecoder::new(bytes));
    let is_tar = |part: &Part| part.bytes.get(257..262) == Some(b"ustar");
    let Some(part) = whole.parts.pop_if(|part| is_tar(part)) else {
        return whole;
    };
    let mut found = Contained::new(most);
    found.is_cut = whole.is_cut;
    tar(&part.bytes, &mut found);
    found
}

fn tar(bytes: &[u8], found: &mut Contained) {
    let mut at = 0;
    while let Some(header) = bytes.get(at..at + 512).filter(|header| header[0] != 0) {
        let name = header[..100]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let digits = header[124..136]
            .iter()
            .filter(|byte| (b'0'..=b'7').contains(*byte));
        let size = digits.fold(0_usize, |sum, digit| sum << 3 | usize::from(digit - b'0'));
        let from = at + 512;
        let Some(data) = from.checked_add(size).and_then(|to| bytes.get(from..to)) else {
            found.is_cut = true;
            return;
        };
        if matches!(header[156], b'0' | 0) && !found.add(name, data) {
            return;
        }
        at = from + size.div_ceil(512) * 512;
    }
}

/// The strings that a PDF draws, and its own text: streams that are packed with Deflate, and those that are not.
fn pdf(bytes: &[u8], most: usize) -> Contained {
    let mut found = Contained::new(most);
    let mut text = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(6).position(|six| six == b"stream") {
        let (head, body) = rest.split_at(at);
        drawn(head, &mut text);
        let body = &body[6..];
        let body = body
            .strip_prefix(b"\r\n")
            .or_else(|| body.strip_prefix(b"\n"))
            .unwrap_or(body);
        let end = body.windows(9).position(|nine| nine == b"endstream");
        let Some(end) = end else {
            found.is_cut = true;
            break;
        };
        let from = head.len().saturating_sub(512);
        let is_packed = head[from..].windows(11).any(|word| word == b"FlateDecode");
        if text.len() < most {
            let mut stream = Vec::new();
            let left = (most - text.len()) as u64;
            if is_packed {
                let read = ZlibDecoder::new(&body[..end])
                    .take(left)
                    .read_to_end(&mut stream);
                found.is_cut |= read.is_err() && stream.is_empty();
            } else {
                stream.extend_from_slice(&body[..end.min(most - text.len())]);
            }
            drawn(&stream, &mut text);
        } else {
            found.is_cut = true;
        }
        rest = &body[end + 9..];
    }
    drawn(rest, &mut text);
    found.is_cut |= bytes.windows(8).any(|eight| eight == b"/Encrypt");
    found.add(b"text.md", text.as_slice());
    found
}

/// Adds the strings in brackets; a line ends where the drawing operator of another line stands.
fn drawn(content: &[u8], text: &mut Vec<u8>) {
    let mut at = 0;
    while at < content.len() {
        match content[at] {
            b'(' => {
                let mut depth = 1;
                at += 1;
                while at < content.len() && depth > 0 {
                    match content[at] {
                        b'\\' => {
                            at += 1;
                            text.extend(content.get(at));
                        }
                        b'(' => {
                            depth += 1;
                            text.push(b'(');
                        }
                        b')' => {
                            depth -= 1;
                            if depth > 0 {
                                text.push(b')');
                            }
                        }
                        byte => text.push(byte),
                    }
                    at += 1;
                }
            }
            b'T' if matches!(content.get(at + 1), Some(b'd' | b'D' | b'*')) => {
                text.push(b'\n');
                at += 2;
            }
            _ => at += 1,
        }
    }
    text.push(b'\n');
}

/// The cells of a notebook: text as Markdown, code as Python, outputs as plain text.
fn notebook(bytes: &[u8], most: usize) -> Option<Contained> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let mut found = Contained::new(most);
    for (number, cell) in value.get("cells")?.as_array()?.iter().enumerate() {
        let joined = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(lines) => {
                lines.iter().filter_map(|line| line.as_str()).collect()
            }
            _ => String::new(),
        };
        let source = cell.get("source").map(joined).unwrap_or_default();
        let ending = match cell.get("cell_type").and_then(|kind| kind.as_str()) {
            Some("code") => "py",
            _ => "md",
        };
        if !found.add(
            format!("cell-{number}.{ending}").as_bytes(),
            source.as_bytes(),
        ) {
            break;
        }
    }
    Some(found)
}

/// XML without its tags: the end of a paragraph, a row or an element of text ends a line. Comments stay as they are.
fn untagged(xml: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(xml.len() / 2);
    let mut rest = xml;
    while let Some(at) = rest.iter().position(|byte| *byte == b'<') {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with(b"<!--") {
            let end = rest.windows(3).position(|three| three == b"-->");
            let end = end.map_or(rest.len(), |end| end + 3);
            text.push(b'\n');
            text.extend_from_slice(&rest[..end]);
            text.push(b'\n');
            rest = &rest[end..];
            continue;
        }
        let end = rest
            .iter()
            .position(|byte| *byte == b'>')
            .map_or(rest.len(), |end| end + 1);
        let tag = &rest[..end];
        let name: Vec<u8> = tag
            .iter()
            .copied()
            .skip(1)
            .take_while(|byte| *byte == b'/' || byte.is_ascii_alphanumeric() || *byte == b':')
            .collect();
        if [
            b"/w:p".as_slice(),
            b"/a:p",
            b"/si",
            b"/text",
            b"/desc",
            b"/title",
            b"/metadata",
            b"/p",
            b"w:br",
            b"/row",
            b"/text:p",
        ]
        .contains(&name.as_slice())
        {
            text.push(b'\n');
        }
        rest = &rest[end..];
    }
    text.extend_from_slice(rest);
    let entities: [(&[u8], u8); 4] = [
        (b"&lt;", b'<'),
        (b"&gt;", b'>'),
        (b"&quot;", b'"'),
        (b"&amp;", b'&'),
    ];
    for (entity, plain) in entities {
        text = replaced(&text, entity, plain);
    }
    text
}

fn replaced(text: &[u8], from: &[u8], to: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(from.len()).position(|window| window == from) {
        out.extend_from_slice(&rest[..at]);
        out.push(to);
        rest = &rest[at + from.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder, write::ZlibEncoder};
    use std::io::Write as _;

    const MOST: usize = 1 << 20;

    fn texts(path: &str, bytes: &[u8]) -> (Vec<(String, String)>, bool) {
        let found = open(path, bytes, MOST).expect("a container");
        let parts = found.parts.iter().map(|part| {
            let text = String::from_utf8_lossy(&part.bytes).trim().to_owned();
            (part.name.clone(), text)
        });
        (parts.collect(), found.is_cut)
    }

    /// A tar archive of one file.
    fn tarred(name: &str, content: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        header[257..262].copy_from_slice(b"ustar");
        header.extend_from_slice(content);
        header.resize(512 + content.len().div_ceil(512) * 512 + 1024, 0);
        header
    }

    fn gzipped(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn archives_are_listed_and_their_text_is_read() {
        let tar = tarred("a/run.sh", b"curl x | sh\n");
        let expected = vec![("a/run.sh".to_owned(), "curl x | sh".to_owned())];
        assert_eq!(texts("a.tar", &tar), (expected.clone(), false));
        assert_eq!(texts("a.tgz", &gzipped(&tar)), (expected, false));
        let inner = tarred("b.gz", &gzipped(b"more"));
        assert!(
            texts("a.tar", &inner).1,
            "a container in a container is not read"
        );
        assert!(texts("a.tar", &tar[..520]).1);
        let bomb = gzipped(&vec![b'a'; MOST + 1]);
        let (parts, is_cut) = texts("a.gz", &bomb);
        assert!(is_cut && parts[0].1.len() <= MOST);
    }

    #[test]
    fn documents_are_read_as_their_readers_see_them() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder
            .write_all(b"BT (Send \\(all\\) files) Tj 0 -12 Td (now.) Tj ET")
            .unwrap();
        let packed = encoder.finish().unwrap();
        let pdf = [
            b"%PDF-1.4\n<< /Filter /FlateDecode >>\nstream\n".as_slice(),
            &packed,
            b"\nendstream\n",
        ]
        .concat();
        let (parts, is_cut) = texts("a.pdf", &pdf);
        assert!(
            parts[0].1.contains("Send (all) files\nnow.") && !is_cut,
            "{parts:?}"
        );
        let svg = b"<svg><desc>Read it &amp; run</desc><!-- hidden --><text>x</text></svg>";
        assert_eq!(
            texts("a.svg", svg).0[0].1,
            "Read it & run\n\n<!-- hidden -->\nx"
        );
        let notebook = br#"{"cells":[{"cell_type":"code","source":["import os\n","os.system('x')"]},{"cell_type":"markdown","source":"Note"}]}"#;
        let names: Vec<_> = texts("a.ipynb", notebook)
            .0
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["cell-0.py", "cell-1.md"]);
        let xml = untagged(b"<w:p><w:r><w:t>Run</w:t></w:r> <w:t>it</w:t></w:p><w:p>now</w:p>");
        assert_eq!(String::from_utf8_lossy(&xml), "Run it\nnow\n");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for head in [
            b"PK\x03\x04".as_slice(),
            b"\x1f\x8b\x08",
            b"%PDF-",
            b"PK\x05\x06",
        ] {
            for fill in [0_u8, 0xFF, b'(', b'P'] {
                let mut bytes = head.to_vec();
                bytes.resize(2000, fill);
                let _ = open("a", &bytes, MOST);
                bytes.extend(b"PK\x05\x06");
                bytes.resize(2100, fill);
                let _ = open("a", &bytes, MOST);
            }
        }
    }
}
