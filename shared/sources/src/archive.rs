//! Reads zip, tar and tar.gz archives in memory and enforces every limit while reading.
//!
//! Nothing is written to disk. Links, devices, absolute paths and `..` are rejected rather than
//! cleaned up, and so are two members of one path: tools differ in which of them counts. The sizes
//! in the archive's headers are not trusted.

use std::collections::HashMap;
use std::io::{Cursor, Read};

use flate2::read::MultiGzDecoder;
use tokio::sync::Semaphore;
use vault_format::manifest::Mode;
use vault_format::path::fold_name;
use vault_gate::RawFile;
use vault_gate::links::SkillLink;
use vault_gate::skill_folders::path_fault;
use zip::{HasZipMetadata as _, System};

use crate::error::{FetchError, Result, escape_untrusted};
use crate::find::read_target;

/// Maximum size of an archive, in bytes.
pub const MAX_DOWNLOAD_BYTES: u64 = 10 << 20;
/// Maximum total size of an archive's files after unpacking, in bytes.
pub const MAX_UNPACKED_BYTES: u64 = 25 << 20;
/// Maximum number of files in an archive. A skill has fewer, but an archive may have many skills.
pub const MAX_ARCHIVE_FILES: usize = 20_000;
/// Maximum number of entries in an archive, including folders.
const MAX_ENTRIES: usize = 40_000;
/// Size of the record at the end of a zip without its comment, in bytes.
const ZIP_END_BYTES: usize = 22;
/// Maximum size of a decompressed tar stream in bytes, including headers and padding.
const MAX_STREAM_BYTES: u64 = MAX_UNPACKED_BYTES + (8 << 20);

/// Maximum number of archives that this process unpacks at a time. The others wait in turn, so that
/// no number of large archives takes all of the machine.
const MOST_AT_ONCE: usize = 2;

/// The permits to unpack an archive. An archive without a permit waits for one.
static TURNS: Semaphore = Semaphore::const_new(MOST_AT_ONCE);

/// The content of an archive.
#[derive(Debug, Default)]
pub(crate) struct Unpacked {
    /// The regular files, in the order of the archive.
    pub(crate) files: Vec<RawFile>,
    /// The symbolic links. A link is a fault of the skill that has it, and of no other skill.
    pub(crate) links: Vec<SkillLink>,
}

/// Reads all files of an archive, on a thread of its own: a slow archive must not hold a worker
/// that answers other callers. `place` names the archive in error messages.
pub(crate) async fn unpack_archive(place: &str, bytes: Vec<u8>) -> Result<Unpacked> {
    let place = place.to_owned();
    run_in_turn(move || read_archive(&place, &bytes)).await?
}

/// Runs work on a thread where it may block, as soon as fewer than `MOST_AT_ONCE` other archives
/// are unpacked.
pub(crate) async fn run_in_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let failed = |error: &dyn std::fmt::Display| {
        FetchError::local_error("reading the files of a source", &error.to_string())
    };
    let turn = TURNS.acquire().await.map_err(|error| failed(&error))?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        // The turn ends with the work. A caller who went away does not end the work.
        drop(turn);
        done
    });
    done.await.map_err(|error| failed(&error))
}

/// Reads all files of an archive. `place` names the archive in error messages.
fn read_archive(place: &str, bytes: &[u8]) -> Result<Unpacked> {
    if bytes.len() as u64 > MAX_DOWNLOAD_BYTES {
        return Err(FetchError::too_large(place, MAX_DOWNLOAD_BYTES, "bytes"));
    }
    let mut reader = Reader {
        place,
        unpacked: Unpacked::default(),
        paths: HashMap::new(),
        bytes: 0,
    };
    // Decide by the content, because a URL or a file name may have any ending. The second signature
    // is that of an empty zip.
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        reader.read_zip(bytes)?;
    } else if bytes.starts_with(&[0x1f, 0x8b]) {
        // Read all gzip members. A reader that stops after the first would see other files than
        // other tools.
        reader.read_tar(MultiGzDecoder::new(bytes))?;
    } else if bytes.get(257..262) == Some(b"ustar") {
        reader.read_tar(bytes)?;
    } else {
        return Err(FetchError::content_error(
            place,
            "it is neither zip, tar nor tar.gz",
        ));
    }
    reader.check_folders()?;
    if reader.unpacked.files.is_empty() {
        return Err(FetchError::content_error(place, "it holds no files"));
    }
    Ok(reader.unpacked)
}

struct Reader<'a> {
    place: &'a str,
    unpacked: Unpacked,
    /// The path of each file and link, by the same path with its letter case folded.
    paths: HashMap<String, String>,
    bytes: u64,
}

impl Reader<'_> {
    fn content_error(&self, reason: impl Into<String>) -> FetchError {
        FetchError::content_error(self.place, reason)
    }

    fn read_tar(&mut self, stream: impl Read) -> Result<()> {
        let broken = |place: &str, error: &std::io::Error| {
            // The tar reader wraps the error of its stream, so look inside it for our own limit.
            if error
                .get_ref()
                .is_some_and(<dyn std::error::Error + Send + Sync>::is::<UnpackLimitExceeded>)
            {
                too_large(place)
            } else {
                FetchError::content_error(
                    place,
                    format!(
                        "it cannot be unpacked: {}",
                        escape_untrusted(&error.to_string())
                    ),
                )
            }
        };
        let place = self.place;
        // Headers and padding are decompressed too although they yield no file, so bound the whole
        // stream.
        let mut stream = Bounded {
            stream,
            left: MAX_STREAM_BYTES,
        };
        let mut archive = tar::Archive::new(&mut stream);
        let entries = archive.entries().map_err(|error| broken(place, &error))?;
        for (index, entry) in entries.enumerate() {
            let mut entry = entry.map_err(|error| broken(place, &error))?;
            // Folders and metadata yield no file, so the number of files alone is no bound.
            if index >= MAX_ENTRIES {
                return Err(self.too_many());
            }
            let path = String::from_utf8(entry.path_bytes().into_owned())
                .map_err(|_| self.content_error("it holds a file name that is not UTF-8"))?;
            let kind = entry.header().entry_type();
            // Global pax headers carry metadata only. `git archive` writes one.
            if kind.is_dir() || kind.is_pax_global_extensions() {
                continue;
            }
            if kind.is_symlink() {
                let target = entry.link_name_bytes().unwrap_or_default();
                self.add_link(&path, &target)?;
                continue;
            }
            if !kind.is_file() && !kind.is_contiguous() {
                let what = if kind.is_hard_link() {
                    "a link"
                } else {
                    "not a regular file"
                };
                return Err(self.content_error(format!(
                    "{} is {what}; a skill holds regular files only",
                    escape_untrusted(&path)
                )));
            }
            let mode = Mode::of_permissions(entry.header().mode().unwrap_or_default());
            let bytes = self
                .read(&mut entry)
                .map_err(|error| broken(place, &error))?;
            self.add_file(&path, mode, bytes)?;
        }
        // Reject data behind the two empty blocks that end a tar, because some tools read on there.
        // Reading to the end also verifies the checksum of a gzip stream.
        let mut block = [0; 4096];
        loop {
            let read = stream.read(&mut block);
            let read = read.map_err(|error| broken(place, &error))?;
            if read == 0 {
                return Ok(());
            }
            if block[..read].iter().any(|byte| *byte != 0) {
                return Err(self.content_error("it holds data behind its end"));
            }
        }
    }

    fn read_zip(&mut self, bytes: &[u8]) -> Result<()> {
        let place = self.place;
        let broken = |error: zip::result::ZipError| {
            FetchError::content_error(
                place,
                format!(
                    "it cannot be unpacked: {}",
                    escape_untrusted(&error.to_string())
                ),
            )
        };
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        if archive.len() > MAX_ENTRIES {
            return Err(self.too_many());
        }
        // Some tools search for the record of the end from the end, others read what is behind it.
        let end = bytes
            .len()
            .checked_sub(ZIP_END_BYTES + archive.comment().len());
        let end = end.and_then(|end| bytes.get(end..)).unwrap_or_default();
        let length = u16::try_from(archive.comment().len()).unwrap_or_default();
        if !end.starts_with(b"PK\x05\x06")
            || end[ZIP_END_BYTES - 2..ZIP_END_BYTES] != length.to_le_bytes()
        {
            return Err(self.content_error("it holds data behind its end"));
        }
        // Reject two members of one path, and members that only some tools see.
        archive.validate_header_consistency().map_err(broken)?;
        for at in 0..archive.len() {
            let mut entry = archive.by_index(at).map_err(broken)?;
            // Take the raw name: decoding would guess the characters of a name that is not UTF-8.
            let path = std::str::from_utf8(entry.name_raw())
                .map_err(|_| self.content_error("it holds a file name that is not UTF-8"))?;
            // Windows PowerShell 5 separates folders with backslashes. Info-ZIP reads them as
            // slashes too, if the archive was made on DOS and the name has no slash.
            let is_dos = entry.get_metadata().system == System::Dos && !path.contains('/');
            let path = if is_dos {
                path.replace('\\', "/")
            } else {
                path.to_owned()
            };
            let mode = entry.unix_mode().unwrap_or(0o644);
            // The library counts a name that ends in a backslash as a folder too, so decide here.
            if path.ends_with('/') {
                let bytes = self.read(&mut entry);
                // Some tools unpack the content of such a member as a file.
                if bytes.is_err() || bytes.is_ok_and(|bytes| !bytes.is_empty()) {
                    return Err(self.content_error(format!(
                        "{} is a folder with content",
                        escape_untrusted(&path)
                    )));
                }
                continue;
            }
            // 0 means that the archive records no file type.
            let kind = mode & 0o170_000;
            let is_link = entry.is_symlink();
            if !is_link && !matches!(kind, 0 | 0o100_000) {
                return Err(self.content_error(format!(
                    "{} is not a regular file; a skill holds regular files only",
                    escape_untrusted(&path)
                )));
            }
            let bytes = self.read(&mut entry).map_err(|error| {
                let reason = escape_untrusted(&error.to_string());
                self.content_error(format!("{}: {reason}", escape_untrusted(&path)))
            })?;
            if is_link {
                self.bytes += bytes.len() as u64;
                self.add_link(&path, &bytes)?;
            } else {
                self.add_file(&path, Mode::of_permissions(mode), bytes)?;
            }
        }
        Ok(())
    }

    /// Reads an entry to one byte beyond the remaining limit.
    fn read(&self, entry: impl Read) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        entry
            .take(MAX_UNPACKED_BYTES - self.bytes + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn add_link(&mut self, path: &str, target: &[u8]) -> Result<()> {
        let path = self.checked_path(path)?;
        let target = read_target(target);
        self.unpacked.links.push(SkillLink { path, target });
        Ok(())
    }

    fn add_file(&mut self, path: &str, mode: Mode, bytes: Vec<u8>) -> Result<()> {
        let path = self.checked_path(path)?;
        // Entries are read to one byte beyond the remaining limit, so an overrun shows here.
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_UNPACKED_BYTES {
            return Err(too_large(self.place));
        }
        self.unpacked.files.push(RawFile { path, mode, bytes });
        Ok(())
    }

    /// Checks the path of a file or link. Fails if it leads out of the archive or is the same as
    /// an earlier one.
    fn checked_path(&mut self, path: &str) -> Result<String> {
        let path = path.strip_prefix("./").unwrap_or(path);
        // Reject such a path instead of cleaning it: a cleaned one could meet another member.
        if let Some(fault) = member_fault(path) {
            let path = escape_untrusted(path);
            return Err(self.content_error(format!("{path} {fault}")));
        }
        if self.paths.len() >= MAX_ARCHIVE_FILES {
            return Err(self.too_many());
        }
        // On a file system that ignores letter case, the second file would overwrite the first.
        if let Some(other) = self
            .paths
            .insert(fold_name(path).into_owned(), path.to_owned())
        {
            let (path, other) = (escape_untrusted(path), escape_untrusted(&other));
            return Err(self.content_error(if path == other {
                format!("it holds {path} twice")
            } else {
                format!("it holds {other} and {path}, which are the same name where letter case does not count")
            }));
        }
        Ok(path.to_owned())
    }

    /// Fails if a file or link has the name of a folder of another one: no tool can unpack both.
    fn check_folders(&self) -> Result<()> {
        for (folded, path) in &self.paths {
            let parts = folded.match_indices('/').map(|(end, _)| &folded[..end]);
            for folder in parts {
                if let Some(file) = self.paths.get(folder) {
                    let (file, path) = (escape_untrusted(file), escape_untrusted(path));
                    let reason = format!("{file} is a file, and the folder of {path}");
                    return Err(self.content_error(reason));
                }
            }
        }
        Ok(())
    }

    fn too_many(&self) -> FetchError {
        FetchError::too_large(self.place, MAX_ARCHIVE_FILES as u64, "files")
    }
}

/// Returns the reason why the path of a member is rejected, as the end of a sentence; `None` for a
/// good path.
fn member_fault(path: &str) -> Option<&'static str> {
    if let Some(fault) = path_fault(path) {
        Some(fault)
    } else if path.contains('\0') {
        Some("has a NUL in its name")
    } else if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        Some("points out of the archive")
    } else if path.split('/').any(|part| matches!(part, "" | ".")) {
        Some("has an empty part or `.` in its path")
    } else {
        None
    }
}

fn too_large(place: &str) -> FetchError {
    FetchError::too_large(
        format!("{}, unpacked,", escape_untrusted(place)),
        MAX_UNPACKED_BYTES,
        "bytes",
    )
}

#[derive(Debug, thiserror::Error)]
#[error("it unpacks to more than vault reads")]
struct UnpackLimitExceeded;

/// A reader that fails once the inner stream yields more than `left` bytes.
struct Bounded<R> {
    stream: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| std::io::Error::other(UnpackLimitExceeded))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    #[tokio::test]
    async fn archives_are_unpacked_beside_the_workers_and_in_turn() {
        let worker = std::thread::current().id();
        let thread = run_in_turn(|| std::thread::current().id()).await.unwrap();
        assert_ne!(thread, worker);
        // While others are unpacked, an archive waits and holds no worker.
        let most = u32::try_from(MOST_AT_ONCE).unwrap();
        let others = TURNS.acquire_many(most).await.unwrap();
        let mut unpacked = pin!(unpack_archive("a.zip", b"no archive".to_vec()));
        let is_waiting =
            poll_fn(|context| Poll::Ready(unpacked.as_mut().poll(context).is_pending()));
        assert!(is_waiting.await);
        drop(others);
        let fault = unpacked.await.unwrap_err();
        assert_eq!(fault.word(), "source_malformed");
        // The turn of work that failed ends, too.
        let panics = run_in_turn(|| panic!("a fault in a reader of archives"));
        assert_eq!(panics.await.unwrap_err().word(), "io");
        assert_eq!(TURNS.available_permits(), MOST_AT_ONCE);
    }
}
