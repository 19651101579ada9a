//! Writes archives reproducibly, so that the same files give the same bytes, and reads archives
//! within the limits of a skill.

use std::collections::HashSet;
use std::io::{self, Cursor, Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::{Compression, GzBuilder};
use tar::{EntryType, Header};
use vault_format::bundle::File;
use vault_format::manifest::{MAX_FILE_BYTES, MAX_FILES, MAX_SKILL_BYTES, Mode};
use vault_format::path::fold_name;
use vault_gate::RawFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

/// Limit on the size of an archive, in bytes: an incompressible skill of maximum size, and the
/// archive's own headers.
pub const MAX_ARCHIVE_BYTES: u64 = MAX_SKILL_BYTES + (2 << 20);

/// Packs files into a gzipped tar archive, in the given order, with owner 0 and modification time 0
/// (1970).
pub fn tar_gz(files: &[File]) -> io::Result<Vec<u8>> {
    // 255 stands for an unknown operating system, so that the bytes are the same on all systems.
    let gzip = GzBuilder::new()
        .mtime(0)
        .operating_system(255)
        .write(Vec::new(), Compression::best());
    let mut archive = tar::Builder::new(gzip);
    for file in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(file.mode.bits());
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(file.bytes.len() as u64);
        archive.append_data(&mut header, file.path.as_str(), file.bytes.as_slice())?;
    }
    archive.into_inner()?.finish()
}

/// Packs files into a zip archive, in the given order, with the modification time 1980.
pub fn pack_zip(files: &[File]) -> io::Result<Vec<u8>> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default())
            .unix_permissions(file.mode.bits());
        archive.start_file(file.path.as_str(), options)?;
        archive.write_all(&file.bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

/// Reads the files of a zip or gzipped tar archive, with their paths unchanged. Fails on links, on
/// encrypted files, on two files with one path, on files that only some tools would unpack, and if
/// the archive exceeds the limits of a skill.
pub(super) fn read_archive(bytes: &[u8]) -> io::Result<Vec<RawFile>> {
    let mut taken = ArchiveReader::default();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        read_tar(bytes, &mut taken)?;
    } else {
        read_zip(bytes, &mut taken)?;
    }
    Ok(taken.files)
}

/// The files that were read from an archive, within the limits of a skill.
#[derive(Default)]
struct ArchiveReader {
    files: Vec<RawFile>,
    /// Case-folded path of each file.
    paths: HashSet<String>,
    bytes: u64,
}

impl ArchiveReader {
    fn add_file(&mut self, path: String, mode: u32, content: impl Read) -> io::Result<()> {
        if self.files.len() >= MAX_FILES {
            return Err(invalid_archive(
                "the archive has more files than a skill may have",
            ));
        }
        // On a file system that ignores letter case or Unicode forms, one of the two files would
        // replace the other.
        if !self.paths.insert(fold_name(&path).into_owned()) {
            return Err(invalid_archive("the archive holds two files with one path"));
        }
        let mut bytes = Vec::new();
        content.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        self.bytes += bytes.len() as u64;
        if bytes.len() as u64 > MAX_FILE_BYTES || self.bytes > MAX_SKILL_BYTES {
            return Err(invalid_archive("the archive is larger than a skill may be"));
        }
        self.files.push(RawFile {
            path,
            mode: Mode::of_permissions(mode),
            bytes,
        });
        Ok(())
    }
}

fn invalid_archive(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn read_tar(bytes: &[u8], taken: &mut ArchiveReader) -> io::Result<()> {
    // Limit the unpacked stream, headers and padding included, so that a bomb of empty entries
    // fails too.
    let unpacked = MultiGzDecoder::new(bytes).take(2 * MAX_ARCHIVE_BYTES);
    let mut archive = tar::Archive::new(unpacked);
    for entry in archive.entries()? {
        let entry = entry?;
        match entry.header().entry_type() {
            EntryType::Regular => {}
            EntryType::Directory => continue,
            _ => {
                return Err(invalid_archive(
                    "the archive holds something other than files",
                ));
            }
        }
        let path = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| invalid_archive("a path in the archive is not UTF-8"))?;
        let mode = entry.header().mode()?;
        taken.add_file(path, mode, entry)?;
    }
    // Some tools read on after the end of the archive and would find more files there.
    let mut rest = Vec::new();
    archive.into_inner().read_to_end(&mut rest)?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(invalid_archive("the archive has data after its end"));
    }
    Ok(())
}

fn read_zip(bytes: &[u8], taken: &mut ArchiveReader) -> io::Result<()> {
    let mut archive = ZipArchive::new(Cursor::new(bytes))?;
    if archive.len() > 2 * MAX_FILES {
        return Err(invalid_archive(
            "the archive has more entries than a skill may have",
        ));
    }
    // Reject two members with one path, and members that the archive's directory does not list.
    archive.validate_header_consistency()?;
    for index in 0..archive.len() {
        let entry = archive.by_index(index)?;
        if entry.is_dir() {
            continue;
        }
        if entry.is_symlink() {
            return Err(invalid_archive(
                "the archive holds something other than files",
            ));
        }
        let path = entry.name()?.into_owned();
        let mode = entry.unix_mode().unwrap_or(0o644);
        taken.add_file(path, mode, entry)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<File> {
        let file = |path: &str, mode, text: &str| File {
            path: path.parse().unwrap(),
            mode,
            bytes: text.as_bytes().to_vec(),
        };
        let deep = format!("{}/deep.txt", ["a-folder-of-some-length"; 6].join("/"));
        vec![
            file("SKILL.md", Mode::Plain, "---\nname: a\n---\n"),
            file(&deep, Mode::Plain, &"x".repeat(10_000)),
            file("run.sh", Mode::Executable, "#!/bin/sh\n"),
        ]
    }

    #[test]
    fn archives_are_the_same_each_time_and_give_back_what_went_in() {
        for pack in [tar_gz, pack_zip] {
            let bytes = pack(&files()).unwrap();
            assert_eq!(bytes, pack(&files()).unwrap());
            let back = read_archive(&bytes).unwrap();
            assert_eq!(back.len(), 3);
            for (packed, file) in back.iter().zip(files()) {
                assert_eq!(packed.path, file.path.as_str());
                assert_eq!(packed.mode, file.mode);
                assert_eq!(packed.bytes, file.bytes);
            }
        }
    }

    fn tar_of(paths: &[&str]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for path in paths {
            let mut header = Header::new_gnu();
            header.set_size(1);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, &b"x"[..]).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzBuilder::new().write(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_tools_unpack_in_different_ways_is_refused() {
        let why = |bytes: &[u8]| read_archive(bytes).unwrap_err().to_string();
        for twins in [["a", "a"], ["a", "A"], ["caf\u{e9}", "cafe\u{301}"]] {
            let said = why(&gzip(&tar_of(&twins)));
            assert!(
                said.contains("two files with one path"),
                "{twins:?}: {said}"
            );
        }
        // The writer refuses a second member of one path, so the bytes are changed.
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for name in ["SKILL.md", "SKILL.mX"] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
        }
        let zip = zip.finish().unwrap().into_inner();
        assert_eq!(read_archive(&zip).unwrap().len(), 2);
        let text: Vec<u8> = zip
            .iter()
            .map(|byte| if *byte == b'X' { b'd' } else { *byte })
            .collect();
        assert!(
            why(&text).contains("duplicate file names"),
            "{}",
            why(&text)
        );

        // Append a second archive, once behind the end of the first one and once as a second gzip
        // member.
        let (one, two) = (tar_of(&["a"]), tar_of(&["b"]));
        assert_eq!(read_archive(&gzip(&one)).unwrap().len(), 1);
        assert!(why(&gzip(&[&one[..], &two].concat())).contains("data after its end"));
        assert!(why(&[gzip(&one), gzip(&two)].concat()).contains("data after its end"));
        let open = &one[..one.len() - 1024]; // without the end mark
        let files = read_archive(&[gzip(open), gzip(&two)].concat()).unwrap();
        assert_eq!(files.len(), 2, "as tar unpacks them");
    }

    #[test]
    fn what_is_cut_or_no_archive_is_refused() {
        let whole = tar_gz(&files()).unwrap();
        assert!(read_archive(&whole[..whole.len() / 2]).is_err());
        assert!(read_archive(b"not an archive").is_err());
        assert!(read_archive(b"").is_err());
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        header.set_cksum();
        let mut archive =
            tar::Builder::new(GzBuilder::new().write(Vec::new(), Compression::fast()));
        archive
            .append_link(&mut header, "SKILL.md", "/etc/passwd")
            .unwrap();
        let bytes = archive.into_inner().unwrap().finish().unwrap();
        assert!(read_archive(&bytes).is_err());
    }
}
