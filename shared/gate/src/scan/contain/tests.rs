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
    // With this flag, the sizes stand behind the content and only the directory has them in front.
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
        // A directory in the other format (zip64), and one in another place.
        (end + 16, [0xFF; 4].as_slice()),
        (end + 16, &[0; 4]),
        // An entry that is not an entry.
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
    // The directory of the second part continues in that of the first.
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
