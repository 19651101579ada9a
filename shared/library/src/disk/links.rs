//! Checks paths for unexpected symbolic links, and whether two paths lead to the same place.

use std::fs;
use std::io;
use std::path::Path;

use super::{FileError, Kind, Location, kind_at};

/// Fails if a path is a symbolic link. Writing or removing below it would change a folder
/// elsewhere.
pub(crate) fn reject_link(path: &(impl Location + ?Sized)) -> Result<(), FileError> {
    if kind_at(path)? != Some(Kind::Link) {
        return Ok(());
    }
    let cause = io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is a link, and must be a real folder of the vault",
    );
    Err(FileError::new("use", path, cause))
}

/// Returns whether a path or one of the folders above it is a symbolic link.
pub(crate) fn is_behind_link(path: &Path) -> Result<bool, FileError> {
    for part in path.ancestors() {
        if kind_at(part)? == Some(Kind::Link) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether two paths lead to the same place once symbolic links are resolved.
pub(crate) fn is_same_place(one: &Path, other: &Path) -> bool {
    let same = |one, other| fs::canonicalize(one).ok().zip(fs::canonicalize(other).ok());
    // A missing path can't be resolved, so it is the same only as an equal path.
    one == other || same(one, other).is_some_and(|(one, other)| one == other)
}
