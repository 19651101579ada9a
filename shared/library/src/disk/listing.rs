//! Listing an open folder without an allocation for each of its entries.

use std::os::fd::BorrowedFd;

#[cfg(not(target_os = "linux"))]
use rustix::fs::{Dir, DirEntry};
#[cfg(target_os = "linux")]
use rustix::fs::{RawDir, RawDirEntry};

/// Bytes that the system fills in one call; the longest name takes 280.
const ROOM: usize = 16 << 10;

/// Space for one listing at a time, reused between them.
#[derive(Debug)]
pub(super) struct Room(Vec<u8>);

impl Room {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(ROOM))
    }
}

/// A listing that is under way; `.` and `..` are among the entries.
#[cfg(target_os = "linux")]
pub(super) struct Listing<'a>(RawDir<'a, BorrowedFd<'a>>);

#[cfg(target_os = "linux")]
impl<'a> Listing<'a> {
    /// Begins where the handle stands: at the first entry of a folder that was just opened.
    #[expect(clippy::unnecessary_wraps, reason = "on other systems it may fail")]
    pub(super) fn new(folder: BorrowedFd<'a>, room: &'a mut Room) -> rustix::io::Result<Self> {
        Ok(Self(RawDir::new(folder, room.0.spare_capacity_mut())))
    }

    pub(super) fn next(&mut self) -> Option<rustix::io::Result<RawDirEntry<'_>>> {
        self.0.next()
    }
}

/// A listing that is under way; `.` and `..` are among the entries.
#[cfg(not(target_os = "linux"))]
pub(super) struct Listing(Dir);

#[cfg(not(target_os = "linux"))]
impl Listing {
    /// All entries of an open folder.
    pub(super) fn new(folder: BorrowedFd<'_>, _: &mut Room) -> rustix::io::Result<Self> {
        Dir::read_from(folder).map(Self)
    }

    pub(super) fn next(&mut self) -> Option<rustix::io::Result<DirEntry>> {
        self.0.read()
    }
}
