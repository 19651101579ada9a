//! Builds archives for tests, including malicious ones.

use std::io::Write as _;

use base64::Engine as _;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha512};

/// Path, mode and bytes of a file.
pub type File<'a> = (&'a str, u32, &'a [u8]);

/// The two empty blocks that end a tar.
pub const TAR_END: [u8; 1024] = [0; 1024];

/// One entry of a tar, without the end of an archive. Writes the raw name as a malicious archive
/// would: the path setters of the `tar` crate reject such names.
pub fn tar_entry(kind: u8, path: &[u8], mode: u32, bytes: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_link_name("/etc/passwd").unwrap();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.as_old_mut().name[..path.len()].copy_from_slice(path);
    header.set_cksum();
    let mut entry = [header.as_bytes(), bytes].concat();
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

pub fn tar_of(files: &[File<'_>]) -> Vec<u8> {
    let entries = files
        .iter()
        .map(|(path, mode, bytes)| tar_entry(b'0', path.as_bytes(), *mode, bytes));
    let entries: Vec<Vec<u8>> = entries.collect();
    [&entries.concat()[..], &TAR_END].concat()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The digest of an archive as npm writes it.
pub fn sha512(bytes: &[u8]) -> String {
    let digest = base64::engine::general_purpose::STANDARD.encode(Sha512::digest(bytes));
    format!("sha512-{digest}")
}

pub fn zip_of(files: &[File<'_>]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (path, mode, bytes) in files {
        let options = zip::write::SimpleFileOptions::default().unix_permissions(*mode);
        writer.start_file(*path, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The bytes with another text of the same length in each place of the first one.
pub fn replaced(bytes: &[u8], text: &[u8], by: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while let Some(at) = find(&bytes, text) {
        bytes[at..at + by.len()].copy_from_slice(by);
    }
    bytes
}

/// The bytes with others at this offset behind the last place of a signature.
pub fn patched(mut bytes: Vec<u8>, signature: &[u8], offset: usize, by: &[u8]) -> Vec<u8> {
    let at = find_last(&bytes, signature) + offset;
    bytes[at..at + by.len()].copy_from_slice(by);
    bytes
}

/// A zip whose last member is not in its directory: tools that read from the start unpack it.
pub fn without_last_listed(zip: Vec<u8>) -> Vec<u8> {
    let (entry, end) = (find_last(&zip, CENTRAL), find_last(&zip, END));
    let size = u32::from_le_bytes(zip[end + 12..end + 16].try_into().unwrap());
    let size = size - u32::try_from(end - entry).unwrap();
    let count = u16::from_le_bytes(zip[end + 8..end + 10].try_into().unwrap()) - 1;
    let counts = [count.to_le_bytes(), count.to_le_bytes()].concat();
    let mut zip = patched(zip, END, 8, &[counts, size.to_le_bytes().to_vec()].concat());
    zip.drain(entry..end);
    zip
}

/// The signatures of a zip's parts: of a member, of its entry in the directory, and of the end.
pub const LOCAL: &[u8] = b"PK\x03\x04";
pub const CENTRAL: &[u8] = b"PK\x01\x02";
pub const END: &[u8] = b"PK\x05\x06";

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn find_last(bytes: &[u8], part: &[u8]) -> usize {
    let found = bytes.windows(part.len()).rposition(|window| window == part);
    found.unwrap()
}
