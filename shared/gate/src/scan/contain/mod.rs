//! Files inside of files: archives, office documents, PDF and notebooks ("containers"), one level
//! deep.
//!
//! Each text that is found inside is scanned under the name of its part. Nothing is written to disk
//! or run. The number of parts and of unpacked bytes of a container is bounded; what lies beyond is
//! reported, never skipped silently.

mod document;
mod pdf;

use super::bytes::{HEAD, is_binary, is_picture_or_font};
use document::{add_notebook, strip_tags};
use flate2::read::{DeflateDecoder, MultiGzDecoder};
use std::io::Read;

/// Maximum number of parts of one container that are read.
const MOST_PARTS: usize = 512;
/// Size of a block of a tar archive, in bytes: a header is one, and the content of each part is
/// padded to whole ones.
const BLOCK: usize = 512;

/// A part of a container.
pub(super) struct Part {
    /// Name in the container; hostile text.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// What was read of a container.
pub(super) struct ContainerContent {
    /// The largest number of bytes to which its parts may unpack.
    most: usize,
    /// The number of bytes that were unpacked so far, whether or not they became a part.
    pub unpacked: usize,
    pub parts: Vec<Part>,
    /// Whether something in it was not read because it is damaged, compressed in an unknown way,
    /// not text, or itself a container.
    pub is_cut: bool,
    /// Whether it contains more than the bounds allow.
    pub is_beyond: bool,
    /// Whether a part of it is encrypted.
    pub is_locked: bool,
}

impl ContainerContent {
    const fn new(most: usize) -> Self {
        Self {
            most,
            unpacked: 0,
            parts: Vec::new(),
            is_cut: false,
            is_beyond: false,
            is_locked: false,
        }
    }

    /// Returns the bytes that may still be unpacked.
    const fn bytes_left(&self) -> usize {
        self.most.saturating_sub(self.unpacked)
    }

    /// Tells whether the bound of bytes or of parts is reached.
    const fn is_full(&self) -> bool {
        self.bytes_left() == 0 || self.parts.len() >= MOST_PARTS
    }

    /// Unpacks a source as far as the bound allows. Records damage, and whether the bound was
    /// exceeded.
    fn unpack(&mut self, source: impl Read) -> Vec<u8> {
        let left = self.bytes_left();
        let mut bytes = Vec::new();
        // One byte more than allowed tells whether the source ends at the bound or continues.
        let read = source.take(left as u64 + 1).read_to_end(&mut bytes);
        self.is_cut |= read.is_err();
        self.is_beyond |= bytes.len() > left;
        bytes.truncate(left);
        self.unpacked += bytes.len();
        bytes
    }

    /// Unpacks and adds a part. Returns `None` once no further part fits.
    fn add_part(&mut self, name: &[u8], source: impl Read) -> Option<&mut Part> {
        if self.is_full() {
            self.is_beyond = true;
            return None;
        }
        let bytes = self.unpack(source);
        self.is_cut |= is_unread(&bytes);
        let name = String::from_utf8_lossy(name).into_owned();
        self.parts.push(Part { name, bytes });
        self.parts.last_mut()
    }
}

/// Tells whether the scanner cannot read these bytes: they are an archive, or neither text nor a
/// picture nor a font.
pub(super) fn is_unread(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD)];
    let is_wide = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    !is_wide && is_binary(head) && !is_picture_or_font(bytes) || is_archive(bytes)
}

/// Tells whether these bytes are an archive or compressed data of a known format.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    let heads: [&[u8]; 11] = [
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"\x1f\x8b",
        b"%PDF-",
        b"Rar!\x1a\x07",
        b"7z\xbc\xaf\x27\x1c",
        b"BZh",
        b"\xfd7zXZ",
        b"\x28\xb5\x2f\xfd",
        b"\xd0\xcf\x11\xe0\xa1\xb1",
        b"!<arch>\n",
    ];
    heads.iter().any(|head| bytes.starts_with(head)) || is_tar(bytes)
}

/// Tells whether bytes begin with a tar header whose checksum is right. Old archives have no other
/// mark.
fn is_tar(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..BLOCK).filter(|header| header[0] != 0) else {
        return false;
    };
    let sum = |range: std::ops::Range<usize>| -> usize {
        header[range].iter().map(|byte| usize::from(*byte)).sum()
    };
    // For the checksum, its own field is read as eight spaces.
    parse_octal(&header[148..156]) == Some(sum(0..148) + 8 * usize::from(b' ') + sum(156..BLOCK))
}

/// Unpacks a file to at most `most` bytes if it is a container of a known kind; returns `None`
/// otherwise.
pub(super) fn open_container(path: &str, bytes: &[u8], most: usize) -> Option<ContainerContent> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    let mut content = ContainerContent::new(most);
    // Decide by the bytes wherever they tell the kind, because an attacker chooses the name.
    if bytes.starts_with(b"PK\x03\x04") {
        read_zip(bytes, &mut content);
    } else if bytes.starts_with(b"\x1f\x8b") {
        read_gzip(bytes, &mut content);
    } else if is_tar(bytes) {
        read_tar(bytes, &mut content);
    } else if bytes.starts_with(b"%PDF-") {
        pdf::read_pdf(bytes, &mut content);
    } else if ending.eq_ignore_ascii_case("ipynb") {
        add_notebook(bytes, &mut content)?;
    } else if ending.eq_ignore_ascii_case("svg") {
        content.add_part(b"text.md", strip_tags(bytes).as_slice());
    } else if is_archive(bytes) {
        content.is_cut = true;
    } else {
        return None;
    }
    Some(content)
}

/// Reads a little-endian number of two or four bytes.
fn little_endian(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

/// Reads the files that the central directory lists, since programs unpack by it. Local headers may
/// differ from it.
fn read_zip(bytes: &[u8], content: &mut ContainerContent) {
    // The record that locates the directory is the last one, followed by a comment of up to 64 KiB.
    let tail = bytes.len().saturating_sub((1 << 16) + 22);
    let end = bytes[tail..]
        .windows(4)
        .rposition(|four| four == b"PK\x05\x06");
    let start = end.and_then(|end| Some((tail + end, little_endian(bytes, tail + end + 16, 4)?)));
    let Some((end, mut at)) = start else {
        content.is_cut = true;
        // Without a directory, at least the first local header tells whether a file is encrypted.
        content.is_locked = bytes.get(6).is_some_and(|flags| flags & 1 != 0);
        return;
    };
    let directory = at;
    while bytes
        .get(at..)
        .is_some_and(|rest| rest.starts_with(b"PK\x01\x02"))
    {
        if content.is_full() {
            content.is_beyond = true;
            break;
        }
        // A field beyond the end of the file is read as a number so large that no range below can
        // exist.
        let field =
            |offset, length| little_endian(bytes, at + offset, length).unwrap_or(usize::MAX);
        let (flags, method, packed, local) =
            (field(8, 2), field(10, 2), field(20, 4), field(42, 4));
        let (name_length, extra, comment) = (field(28, 2), field(30, 2), field(32, 2));
        content.is_locked |= flags & 1 != 0;
        let name = bytes.get(at + 46..at.saturating_add(46).saturating_add(name_length));
        // Use the packed size in the directory: a local header may leave it out.
        let data = (|| {
            let skip = little_endian(bytes, local.checked_add(26)?, 2)?
                + little_endian(bytes, local + 28, 2)?;
            let from = local + 30 + skip;
            bytes.get(from..from.checked_add(packed)?)
        })();
        let (Some(name), Some(data)) = (name, data) else {
            content.is_cut = true;
            break;
        };
        let part = match method {
            0 => content.add_part(name, data),
            8 => content.add_part(name, DeflateDecoder::new(data)),
            _ => {
                content.is_cut = true;
                None
            }
        };
        if let Some(part) = part
            && document::is_office_text(name)
        {
            part.bytes = strip_tags(&part.bytes);
            part.name.push_str(".md");
        }
        at = at
            .saturating_add(46)
            .saturating_add(name_length)
            .saturating_add(extra)
            .saturating_add(comment);
    }
    // Other programs find a directory that this record does not locate (zip64, or bytes before the
    // archive). So if the entries do not reach up to the record, not everything was read.
    content.is_cut |= !content.is_beyond && at != end;
    // If this record does not end the file, or lists nothing although the file begins with a
    // member, it may be a decoy and other programs may use another record.
    let comment = little_endian(bytes, end + 20, 2).unwrap_or_default();
    let lists_nothing = at == directory && bytes.starts_with(b"PK\x03\x04");
    content.is_cut |= end + 22 + comment != bytes.len() || lists_nothing;
}

fn read_gzip(bytes: &[u8], found: &mut ContainerContent) {
    // Unpack every gzip member: other programs do, and an attack may be in the second one.
    let content = found.unpack(MultiGzDecoder::new(bytes));
    if is_tar(&content) {
        read_tar(&content, found);
    } else {
        found.is_cut |= is_unread(&content);
        // Do not use `add_part`, which would count these bytes twice.
        found.parts.push(Part {
            name: "content".to_owned(),
            bytes: content,
        });
    }
}

/// Parses a number in octal digits, surrounded by white space or NUL.
fn parse_octal(field: &[u8]) -> Option<usize> {
    let digits = field.trim_ascii_start();
    if digits.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let end = digits.iter().position(|byte| !byte.is_ascii_digit());
    let text = std::str::from_utf8(&digits[..end.unwrap_or(digits.len())]).ok()?;
    usize::from_str_radix(text, 8).ok()
}

/// Parses the length of a part: octal digits, or a binary number if the first bit is set.
fn parse_length(field: &[u8]) -> Option<usize> {
    if field[0] & 0x80 == 0 {
        return parse_octal(field);
    }
    let mut bytes = field.iter().skip(1);
    bytes.try_fold(usize::from(field[0] & 0x7F), |sum, byte| {
        sum.checked_mul(256)?.checked_add(usize::from(*byte))
    })
}

fn read_tar(bytes: &[u8], content: &mut ContainerContent) {
    let mut at = 0;
    // Only a block of zeros ends an archive. An empty name does not: other programs continue after
    // such a file.
    let is_header = |header: &&[u8]| header.iter().any(|byte| *byte != 0);
    while let Some(header) = bytes.get(at..at + BLOCK).filter(is_header) {
        let name = header[..100]
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        let from = at + BLOCK;
        let data = parse_length(&header[124..136])
            .and_then(|size| from.checked_add(size))
            .and_then(|to| bytes.get(from..to));
        let Some(data) = data else {
            content.is_cut = true;
            return;
        };
        // Links, devices and long names hold no content. A file of an unknown kind may hold some,
        // so it is read.
        let is_file = matches!(header[156], 0 | b'0' | b'7' | b'A'..=b'F' | b'H'..=b'J' | b'M'..=b'W' | b'Y'..=b'Z');
        if is_file && content.add_part(name, data).is_none() {
            return;
        }
        at = from + data.len().div_ceil(BLOCK) * BLOCK;
    }
    // Some programs continue after a block of zeros, so data there is reported as not read.
    let rest = bytes.get(at..).unwrap_or_default();
    content.is_cut |= rest.iter().any(|byte| *byte != 0);
}

#[cfg(test)]
mod tests;
