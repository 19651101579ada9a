//! Builds archives for tests, including malicious ones.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};

/// Path, mode and bytes of a file.
pub type File<'a> = (&'a str, u32, &'a [u8]);

pub fn tar_of(files: &[File<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(*mode);
        // Write the raw name as a malicious archive would: the path setters of the `tar` crate
        // reject such names.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
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
pub fn replaced(bytes: &[u8], text: &str, by: &str) -> Vec<u8> {
    assert_eq!(text.len(), by.len());
    let mut bytes = bytes.to_vec();
    while let Some(at) = find(&bytes, text.as_bytes()) {
        bytes[at..at + by.len()].copy_from_slice(by.as_bytes());
    }
    bytes
}

/// A zip whose last member is not in its directory: tools that read from the start unpack it.
pub fn without_last_listed(mut zip: Vec<u8>) -> Vec<u8> {
    let end = find(&zip, b"PK\x05\x06").unwrap();
    let mut entry = 0;
    while let Some(next) = find(&zip[entry + 1..], b"PK\x01\x02") {
        entry += 1 + next;
    }
    let size = u32::from_le_bytes(zip[end + 12..end + 16].try_into().unwrap());
    let cut = u32::try_from(end - entry).unwrap();
    zip[end + 12..end + 16].copy_from_slice(&(size - cut).to_le_bytes());
    for count in [end + 8, end + 10] {
        zip[count] -= 1;
    }
    zip.drain(entry..end);
    zip
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
