//! The two kinds of paths that the functions of [`super`] take: plain paths, and paths that are
//! held below a folder.
//!
//! A plain path was named by the caller, and the system follows the symbolic links on its way. A
//! [`HeldPath`] is opened from its top folder through handles, one path part at a time and without
//! following links. Another process that may write below the folder therefore can't lead it
//! elsewhere, at any moment.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// A path that the functions of this module can act on.
pub(crate) trait Location {
    /// Returns the folder from which the rest of the path is opened without following links. For a
    /// plain path, that is the whole path.
    fn top_folder(&self) -> &Path;

    /// Returns the path below the top folder; empty for the top folder itself.
    fn path_below(&self) -> &Path;

    /// Returns the whole path, for messages and for targets of links.
    fn path(&self) -> PathBuf {
        // Joining an empty path would add a slash.
        if self.path_below().as_os_str().is_empty() {
            self.top_folder().to_owned()
        } else {
            self.top_folder().join(self.path_below())
        }
    }

    /// Returns the path of an entry of this folder, held below the same top folder.
    fn held_entry(&self, name: impl AsRef<Path>) -> HeldPath {
        HeldPath {
            top: self.top_folder().to_owned(),
            below: self.path_below().join(name),
        }
    }

    /// Opens the folder that contains this location, and returns it with the location's name in it.
    fn open_parent(&self) -> io::Result<OpenParent<'_>> {
        let mut parts = self.path_below().components();
        let Some(last) = parts.next_back() else {
            return Ok(OpenParent {
                folder: None,
                name: self.top_folder().as_os_str(),
            });
        };
        let name = plain_name(last)?;
        // Open each folder from the handle of its parent, because a path that was checked before
        // may lead elsewhere by now.
        let mut folder = rustix::fs::open(self.top_folder(), FOLDER, Mode::empty())?;
        for part in parts {
            folder = open_child(&folder, plain_name(part)?)?;
        }
        Ok(OpenParent {
            folder: Some(folder),
            name,
        })
    }

    fn open_folder(&self) -> io::Result<OwnedFd> {
        let at = self.open_parent()?;
        match at.folder {
            Some(folder) => open_child(&folder, at.name),
            None => Ok(rustix::fs::open(at.name, FOLDER, Mode::empty())?),
        }
    }
}

impl Location for Path {
    fn top_folder(&self) -> &Path {
        self
    }

    fn path_below(&self) -> &Path {
        Path::new("")
    }
}

impl Location for PathBuf {
    fn top_folder(&self) -> &Path {
        self
    }

    fn path_below(&self) -> &Path {
        Path::new("")
    }
}

/// A path below a folder that is safe against symbolic links below that folder. It deliberately
/// does not convert to [`Path`]: a function that takes a `Path` would follow links.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct HeldPath {
    top: PathBuf,
    below: PathBuf,
}

impl HeldPath {
    /// Returns the path of a top folder. Links on the way to it are followed.
    pub(crate) fn new(top: impl Into<PathBuf>) -> Self {
        Self {
            top: top.into(),
            below: PathBuf::new(),
        }
    }

    /// Returns a path below this one. Opening it fails if a part like `..` points out of the
    /// folder.
    pub(crate) fn join(&self, below: impl AsRef<Path>) -> Self {
        self.held_entry(below)
    }

    /// Returns the path of the folder that contains this one; `None` for the top folder.
    pub(crate) fn parent(&self) -> Option<Self> {
        Some(Self {
            top: self.top.clone(),
            below: self.below.parent()?.to_owned(),
        })
    }
}

impl Location for HeldPath {
    fn top_folder(&self) -> &Path {
        &self.top
    }

    fn path_below(&self) -> &Path {
        &self.below
    }
}

/// The handle of a folder, and the name of an entry in it.
#[derive(Debug)]
pub(crate) struct OpenParent<'a> {
    folder: Option<OwnedFd>,
    /// Name of the entry; a whole path if no folder is open.
    pub(super) name: &'a OsStr,
}

impl OpenParent<'_> {
    /// Returns the open folder, for a system call that takes a folder and a name in it.
    pub(super) fn parent_folder(&self) -> BorrowedFd<'_> {
        // Without an open folder the name is a whole path, which the system resolves as usual.
        self.folder.as_ref().map_or(CWD, OwnedFd::as_fd)
    }
}

/// Flags for opening an entry that must be a folder.
pub(super) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Opens a folder in another one without following a link.
fn open_child(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|cause| {
        // Depending on the system, `openat` gives one of these errors for a link in place of a
        // folder.
        let may_be_link = matches!(cause, Errno::LOOP | Errno::NOTDIR | Errno::MLINK);
        if may_be_link && is_link(folder, name) {
            let name = name.to_string_lossy();
            return io::Error::other(format!("{name} is a link, and must be a real folder"));
        }
        cause.into()
    })
}

fn is_link(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn plain_name(part: Component<'_>) -> io::Result<&OsStr> {
    match part {
        Component::Normal(name) => Ok(name),
        // `..` or an absolute path would leave the top folder.
        _ => Err(io::Error::other("it points out of its folder")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::{self as disk, Batch, FileError, Kind};
    use super::*;
    use crate::disk::scratch::Scratch;
    use crate::disk::{lock, scratch, tree};

    /// A vault's folder `top` and a folder `outside`, with the same entries in both.
    struct Scene {
        home: tempfile::TempDir,
        top: HeldPath,
    }

    impl Scene {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            for place in ["top", "outside"] {
                let folder = home.path().join(place).join("folder");
                fs::create_dir_all(folder.join("inner")).unwrap();
                fs::write(folder.join("inner/file"), "text").unwrap();
                fs::write(folder.join("file"), "text").unwrap();
                symlink("file", folder.join("link")).unwrap();
            }
            let top = HeldPath::new(home.path().join("top"));
            Self { home, top }
        }

        /// Puts a link that leads outside in place of an entry.
        fn lead_out(&self, entry: &str) {
            let path = self.top.path().join(entry);
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
            symlink(self.home.path().join("outside").join(entry), path).unwrap();
        }

        /// Everything outside, with modes and content.
        fn outside(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
            use std::os::unix::fs::MetadataExt;
            let mut found = Vec::new();
            let mut open = vec![self.home.path().join("outside")];
            while let Some(folder) = open.pop() {
                for entry in fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    let metadata = fs::symlink_metadata(&path).unwrap();
                    let bytes = fs::read(&path).unwrap_or_default();
                    found.push((path.clone(), metadata.mode(), bytes));
                    if metadata.is_dir() {
                        open.push(path);
                    }
                }
            }
            found.sort();
            found
        }
    }

    type Step = fn(&HeldPath, &HeldPath) -> Result<(), FileError>;

    /// Every function that acts on a held path. A step acts on entries of its first folder, and
    /// uses the second one for temporary files.
    const STEPS: [(&str, Step); 24] = [
        ("make_dirs", |at, _| disk::make_dirs(&at.join("a/b"), 0o700)),
        ("make_dir", |at, _| disk::make_dir(&at.join("a"), 0o700)),
        ("read", |at, _| disk::read(&at.join("file"), 99).map(drop)),
        ("kind", |at, _| disk::kind_at(&at.join("file")).map(drop)),
        ("mode", |at, _| {
            disk::mode_and_owner(&at.join("file")).map(drop)
        }),
        ("list", |at, _| disk::list(&at.join("inner")).map(drop)),
        ("link_target", |at, _| {
            disk::link_target(&at.join("link")).map(drop)
        }),
        ("sync_dir", |at, _| disk::sync_dir(at)),
        ("settled_time", |at, _| disk::settled_time(at).map(drop)),
        ("replace", |at, aside| {
            disk::replace(&at.join("file"), b"new", 0o600, aside)
        }),
        ("replace by", |at, aside| {
            disk::replace(&aside.join("file"), b"new", 0o600, at)
        }),
        ("create", |at, aside| {
            disk::create(&at.join("new"), b"new", 0o600, aside).map(drop)
        }),
        ("make_private", |at, _| disk::make_private(&at.join("file"))),
        ("overwrite", |at, _| {
            disk::overwrite_unflushed(&at.join("file"), "new")
        }),
        ("write_unflushed", |at, _| {
            disk::write_unflushed(&at.join("file"), "new")
        }),
        ("switch_link", |at, aside| {
            disk::switch_link(&at.join("link"), Path::new("x"), aside)
        }),
        ("new_link", |at, _| {
            disk::new_link(&at.join("new"), Path::new("x"))
        }),
        ("rename", |at, aside| {
            disk::rename(&at.join("inner"), &aside.join("inner"))
        }),
        ("rename to", |at, aside| {
            disk::rename(&aside.join("moved"), &at.join("moved"))
        }),
        ("remove_file", |at, _| {
            disk::remove_file(&at.join("file")).map(drop)
        }),
        ("remove_tree", |at, _| disk::remove_tree(&at.join("inner"))),
        ("set_mode", |at, _| disk::set_mode(&at.join("inner"), 0o700)),
        ("walk", |at, _| tree::walk_tree(at, 99, &mut |_, _, _| {})),
        ("sweep", |at, _| scratch::sweep_unlocked(at)),
    ];

    #[test]
    fn a_link_in_place_of_a_folder_ends_every_function() {
        for (what, step) in STEPS {
            let scene = Scene::new();
            disk::make_dirs(&scene.top.join("aside/moved"), 0o700).unwrap();
            let (folder, aside) = (scene.top.join("folder"), scene.top.join("aside"));
            step(&folder, &aside).unwrap_or_else(|error| panic!("{what}: {error}"));

            for inner in [false, true] {
                let scene = Scene::new();
                disk::make_dirs(&scene.top.join("aside/moved"), 0o700).unwrap();
                let before = scene.outside();
                scene.lead_out("folder");
                // The link is the last folder of the path, or one further up.
                let folder = scene
                    .top
                    .join(if inner { "folder/inner" } else { "folder" });
                let done = step(&folder, &scene.top.join("aside"));
                assert!(done.is_err(), "{what}");
                assert_eq!(scene.outside(), before, "{what}");
            }
        }
    }

    #[test]
    fn a_batch_ends_at_a_link_in_place_of_its_folder() {
        for flushes in [false, true] {
            let scene = Scene::new();
            let before = scene.outside();
            let folder = scene.top.join("folder/new");
            let mut batch = Batch::default();
            if flushes {
                batch.make_folder(&folder, 0o555).unwrap();
                batch.write_file(&folder.join("file"), b"x", 0o444).unwrap();
            }
            fs::rename(scene.top.path().join("folder"), scene.top.path().join("x")).unwrap();
            symlink(
                scene.home.path().join("outside"),
                scene.top.path().join("folder"),
            )
            .unwrap();
            if flushes {
                batch.flush(&scene.top).unwrap_err();
            } else {
                batch.make_folder(&folder, 0o555).unwrap_err();
                batch
                    .write_file(&scene.top.join("folder/x"), b"x", 0o444)
                    .unwrap_err();
            }
            assert_eq!(scene.outside(), before);
        }
    }

    #[test]
    fn a_link_at_the_end_is_the_entry_itself() {
        let scene = Scene::new();
        let before = scene.outside();
        let (file, inner) = (
            scene.top.join("folder/file"),
            scene.top.join("folder/inner"),
        );
        scene.lead_out("folder/file");
        scene.lead_out("folder/inner");
        for link in [&file, &inner] {
            assert_eq!(disk::kind_at(link).unwrap(), Some(Kind::Link));
            disk::read(link, 99).unwrap_err();
            disk::list(link).unwrap_err();
            disk::make_dirs(link, 0o700).unwrap_err();
            disk::make_private(link).unwrap_err();
            disk::overwrite_unflushed(link, "new").unwrap_err();
            disk::set_mode(link, 0o700).unwrap_err();
            lock::take_lock(link, std::time::Duration::ZERO).unwrap_err();
            Scratch::new(link).unwrap_err();
        }
        // A link at the end of a path is replaced and removed like any entry, and its target stays.
        disk::replace(&file, b"new", 0o600, &scene.top).unwrap();
        assert_eq!(disk::read(&file, 99).unwrap().unwrap(), b"new");
        disk::remove_tree(&inner).unwrap();
        assert_eq!(disk::kind_at(&inner).unwrap(), None);
        assert_eq!(scene.outside(), before);
    }

    #[test]
    fn removing_a_tree_keeps_the_targets_of_its_links() {
        let scene = Scene::new();
        let before = scene.outside();
        scene.lead_out("folder/inner");
        disk::remove_tree(&scene.top.join("folder")).unwrap();
        assert_eq!(disk::list(&scene.top).unwrap(), []);
        assert_eq!(scene.outside(), before);
    }

    #[test]
    fn a_temporary_folder_that_was_exchanged_is_not_removed_outside() {
        let scene = Scene::new();
        let scratch = Scratch::new(&scene.top.join("folder")).unwrap();
        let name = scratch.path().path();
        let theirs = scene.home.path().join("outside").join("folder");
        let theirs = theirs.join(name.file_name().unwrap());
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("file"), "theirs").unwrap();
        scene.lead_out("folder");
        let before = scene.outside();
        drop(scratch);
        assert_eq!(scene.outside(), before);
    }

    #[test]
    fn no_path_points_out_of_its_folder() {
        let scene = Scene::new();
        let before = scene.outside();
        for bad in ["..", "../outside", "folder/../../outside/folder", "/etc"] {
            let path = scene.top.join(bad);
            disk::list(&path).unwrap_err();
            disk::remove_tree(&path).unwrap_err();
            disk::write_unflushed(&path.join("new"), "x").unwrap_err();
        }
        assert_eq!(scene.outside(), before);
    }

    #[test]
    fn the_top_may_lie_behind_links() {
        let scene = Scene::new();
        let link = scene.home.path().join("link");
        symlink(scene.top.path(), &link).unwrap();
        let top = HeldPath::new(&link);
        assert_eq!(disk::list(&top).unwrap().len(), 1);
        disk::write_unflushed(&top.join("folder/new"), "x").unwrap();
        assert!(scene.top.path().join("folder/new").exists());
    }
}
