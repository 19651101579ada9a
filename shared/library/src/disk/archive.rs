//! Copies a folder into a tar archive.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::{FileError, HeldPath, Kind, Location, file_error, link_target, list, open_regular};

/// Appends the files, folders and links of a folder to a tar archive, under the path `name` there.
/// Leaves out the folder's own entries whose names begin with one of `left_out`; entries of its
/// subfolders are never left out. Links are stored as links, not followed.
pub(crate) fn append_folder<W: Write>(
    archive: &mut Builder<W>,
    folder: &HeldPath,
    name: &Path,
    left_out: &[&str],
) -> Result<(), FileError> {
    for (entry, kind) in list(folder)? {
        let text = entry.to_string_lossy();
        if left_out.iter().any(|left_out| text.starts_with(left_out)) {
            continue;
        }
        let (from, name) = (folder.join(&entry), name.join(&entry));
        let appended = match kind {
            Kind::File => append_file(archive, &from, &name),
            Kind::Dir => append_folder_header(archive, &from, &name),
            Kind::Link => append_link(archive, &name, link_target(&from)?.as_deref()),
            // FIFOs, sockets and devices are not part of a vault.
            Kind::Other => Ok(()),
        };
        appended.map_err(file_error("archive", &from))?;
        if kind == Kind::Dir {
            // The left-out names concern the top folder only.
            append_folder(archive, &from, &name, &[])?;
        }
    }
    Ok(())
}

fn append_file<W: Write>(archive: &mut Builder<W>, from: &HeldPath, name: &Path) -> io::Result<()> {
    // Read through this handle: the archive's own functions would follow a link.
    archive.append_file(name, &mut open_regular(from)?)
}

/// Appends a folder without its content.
fn append_folder_header<W: Write>(
    archive: &mut Builder<W>,
    from: &HeldPath,
    name: &Path,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_metadata(&File::from(from.open_folder()?).metadata()?);
    header.set_size(0);
    archive.append_data(&mut header, name, io::empty())
}

/// Appends a link to `target`. Without a target the link has vanished since it was listed, and
/// nothing is appended.
fn append_link<W: Write>(
    archive: &mut Builder<W>,
    name: &Path,
    target: Option<&Path>,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Symlink);
    header.set_size(0);
    header.set_mode(0o777);
    header.set_mtime(0);
    // The link may have been removed since the folder was listed.
    target.map_or(Ok(()), |target| {
        archive.append_link(&mut header, name, target)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_archive_has_the_links_and_not_what_they_lead_to() {
        let home = tempfile::tempdir().unwrap();
        let (folder, outside) = (home.path().join("folder"), home.path().join("outside"));
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        for file in ["file", "inner/file", "lock"] {
            fs::write(folder.join(file), "text").unwrap();
        }
        symlink(&outside, folder.join("link")).unwrap();
        let mut archive = Builder::new(Vec::new());
        let held = HeldPath::new(&folder);
        append_folder(&mut archive, &held, Path::new("vault"), &["lock"]).unwrap();
        assert!(append_folder(&mut archive, &held.join("link"), Path::new("x"), &[]).is_err());
        let bytes = archive.into_inner().unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let kind = entry.header().entry_type();
            (entry.path().unwrap().display().to_string(), kind)
        });
        let expected = [
            ("vault/file", EntryType::Regular),
            ("vault/inner", EntryType::Directory),
            ("vault/inner/file", EntryType::Regular),
            ("vault/link", EntryType::Symlink),
        ];
        let expected = expected.map(|(path, kind)| (path.to_owned(), kind));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }
}
