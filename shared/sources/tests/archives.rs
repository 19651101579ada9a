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
