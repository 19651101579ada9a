//! Reads the text of a PDF: the strings that it draws.

use super::{ContainerContent, Part};
use crate::rule::{has, position};
use crate::scan::bytes::{HEAD, is_binary};
use flate2::read::ZlibDecoder;
use std::io::Read as _;

/// Number of bytes of a stream that are unpacked to recognise a picture.
const GLANCE: u64 = 8 << 10;

/// The text that the pages draw.
#[derive(Default)]
struct DrawnText {
    text: Vec<u8>,
    /// Number of bytes in strings that are not letters but numbers of glyphs, which only the font
    /// maps to letters.
    glyphs: usize,
}

/// Reads the strings in streams that are packed with Deflate or not at all, and those outside of
/// streams. Records as unread a stream that is packed in another way and is no picture, and text in
/// numbers of glyphs.
pub(super) fn read_pdf(bytes: &[u8], content: &mut ContainerContent) {
    let mut drawn = DrawnText::default();
    let mut rest = bytes;
    while let Some(at) = position(rest, b"stream") {
        let (head, body) = rest.split_at(at);
        drawn.add_strings(head);
        let body = &body[6..];
        let body = body
            .strip_prefix(b"\r\n")
            .or_else(|| body.strip_prefix(b"\n"))
            .unwrap_or(body);
        let Some(end) = position(body, b"endstream") else {
            content.is_cut = true;
            break;
        };
        read_stream(head, &body[..end], content, &mut drawn);
        rest = &body[end + 9..];
    }
    drawn.add_strings(rest);
    // In an encrypted file the strings are ciphertext, in which no words can be found.
    content.is_cut |= has(bytes, b"/Encrypt") || drawn.glyphs > drawn.text.len() / 2;
    // Do not use `add_part`: these bytes were counted when their streams were unpacked.
    content.parts.push(Part {
        name: "text.md".to_owned(),
        bytes: drawn.text,
    });
}

/// Reads one stream, which begins behind the dictionary of its object. The dictionary is untrusted,
/// so each claim in it is checked against the data.
fn read_stream(head: &[u8], data: &[u8], content: &mut ContainerContent, drawn: &mut DrawnText) {
    let object = head.windows(4).rposition(|four| four == b" obj");
    let dictionary = &head[object.unwrap_or(0)..];
    let has = |word: &[u8]| has(dictionary, word);
    let others: [&[u8]; 5] = [
        b"/ASCIIHexDecode",
        b"/ASCII85Decode",
        b"/LZWDecode",
        b"/RunLengthDecode",
        b"/Crypt",
    ];
    let is_jpeg = data.starts_with(b"\xff\xd8\xff") || data.starts_with(b"\0\0\0\x0cjP");
    if is_jpeg {
        return;
    }
    if content.bytes_left() == 0 {
        content.is_beyond = true;
    } else if others.iter().any(|other| has(other)) {
        content.is_cut = true;
    } else if has(b"/FlateDecode") {
        let mut glance = Vec::new();
        let picture = ZlibDecoder::new(data).take(GLANCE).read_to_end(&mut glance);
        // Count these bytes too; otherwise, a file of many pictures could be unpacked without a
        // bound.
        content.unpacked += glance.len();
        if has(b"/Image") && picture.is_ok() && is_binary(&glance) {
            return;
        }
        let content = content.unpack(ZlibDecoder::new(data));
        // Fonts and tables of the file contain no strings that are drawn.
        if !is_binary(&content[..content.len().min(HEAD)]) {
            drawn.add_strings(&content);
        }
    } else if has(b"/Filter") {
        content.is_cut = true;
    } else {
        let content = content.unpack(data);
        drawn.add_strings(&content);
    }
}

impl DrawnText {
    /// Adds the strings in a content stream, in brackets or in hex. An operator that moves to
    /// another line ends the line.
    fn add_strings(&mut self, content: &[u8]) {
        let mut at = 0;
        while at < content.len() {
            match content[at] {
                b'(' => at = self.add_bracketed(content, at + 1),
                b'<' if content.get(at + 1) != Some(&b'<') => at = self.add_hex(content, at + 1),
                b'<' => at += 2,
                b'T' if matches!(content.get(at + 1), Some(b'd' | b'D' | b'*')) => {
                    self.text.push(b'\n');
                    at += 2;
                }
                _ => at += 1,
            }
        }
        self.text.push(b'\n');
    }

    fn add_letter(&mut self, byte: u8) {
        if byte < b' ' && !byte.is_ascii_whitespace() {
            self.glyphs += 1;
        } else {
            self.text.push(byte);
        }
    }

    /// Adds a string that begins behind an opening bracket, at this offset. Returns its end.
    fn add_bracketed(&mut self, content: &[u8], from: usize) -> usize {
        let mut depth = 1;
        let mut at = from;
        while at < content.len() && depth > 0 {
            match content[at] {
                b'\\' => {
                    at += 1;
                    if let Some(escaped) = content.get(at) {
                        self.add_letter(*escaped);
                    }
                }
                b'(' => {
                    depth += 1;
                    self.add_letter(b'(');
                }
                b')' => {
                    depth -= 1;
                    if depth > 0 {
                        self.add_letter(b')');
                    }
                }
                byte => self.add_letter(byte),
            }
            at += 1;
        }
        at
    }

    /// Adds a string in hex digits, in which a letter may have two bytes. Returns its end.
    fn add_hex(&mut self, content: &[u8], from: usize) -> usize {
        let is_part = |byte: &&u8| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace();
        let length = content[from..].iter().take_while(is_part).count();
        let digits = content[from..from + length].iter();
        let digits: Vec<u32> = digits
            .filter_map(|byte| char::from(*byte).to_digit(16))
            .collect();
        for pair in digits.chunks_exact(2) {
            let byte = u8::try_from(pair[0] << 4 | pair[1]).unwrap_or_default();
            // The high byte of a Latin letter of two bytes is zero.
            if byte != 0 {
                self.add_letter(byte);
            }
        }
        from + length
    }
}
