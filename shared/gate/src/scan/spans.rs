//! Spans (stretches) of a text, and the builder that collects statements into blocks and sections
//! of bounded size.

use crate::rule::place;

/// Longest statement in bytes. A longer line is read in windows of this length. Each overlaps the
/// one before by a quarter, so that no match is cut at a boundary.
pub(super) const MAX_STATEMENT: usize = 16 << 10;
const MAX_BLOCK: usize = 24 << 10;
const MAX_SECTION: usize = 32 << 10;
/// The kinds of places in which people and shells read a line as a whole. Only there a line that
/// was read in windows is reported.
const READ_WHOLE: u16 =
    place::FRONT | place::PROSE | place::HEAD | place::TABLE | place::SHELL | place::HIDDEN;

/// A stretch of a text that is read as one, with its kind of context ([`place`]).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    pub place: u16,
    /// Number of the nearest heading above it.
    pub heading: Option<usize>,
}

/// The structure of a text. Each list is sorted by the beginnings of its spans; only windows of one
/// long line overlap.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pub sections: Vec<Span>,
    pub blocks: Vec<Span>,
    pub statements: Vec<Span>,
    /// Beginning and end of each heading.
    pub headings: Vec<(usize, usize)>,
    /// Whether a line was read in windows although people or shells read it as a whole.
    pub has_long_line: bool,
    /// Whether such a line was a shell command (with the lines that continue it).
    pub has_long_command: bool,
}

impl Segments {
    /// Returns the nearest heading above a span; empty if there is none.
    pub(super) fn heading_above<'a>(&self, bytes: &'a [u8], span: &Span) -> &'a [u8] {
        span.heading.map_or(&[], |number| {
            let (start, end) = self.headings[number];
            &bytes[start..end]
        })
    }

    /// Returns the statement that contains an offset, if there is one.
    pub(super) fn statement_at(&self, offset: usize) -> Option<Span> {
        let after = self.statements.partition_point(|one| one.start <= offset);
        Some(self.statements[after.checked_sub(1)?])
    }

    /// Returns the block that contains an offset, if there is one.
    pub(super) fn block_at(&self, offset: usize) -> Option<Span> {
        let after = self.blocks.partition_point(|one| one.start <= offset);
        Some(self.blocks[after.checked_sub(1)?])
    }
}

pub(super) fn line_ranges(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut out = Vec::with_capacity(bytes.len() / 32 + 1);
    let mut start = 0;
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        out.push((start, at));
        start = at + 1;
    }
    if start < bytes.len() {
        out.push((start, bytes.len()));
    }
    out
}

pub(super) struct Builder<'a> {
    pub bytes: &'a mut [u8],
    pub out: Segments,
    pub section: Span,
    pub block: Option<Span>,
}

impl<'a> Builder<'a> {
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            out: Segments::default(),
            section: Span::default(),
            block: None,
        }
    }

    pub fn add_statement(&mut self, start: usize, end: usize, place: u16) {
        let heading = self.section.heading;
        // Report long lines only in these places: in data and programs they are common and
        // harmless.
        let is_long = end.saturating_sub(start) > MAX_STATEMENT
            && place & READ_WHOLE != 0
            // A single word is neither a command nor a sentence, however long it is.
            && self.bytes[start..end].trim_ascii().iter().any(u8::is_ascii_whitespace);
        self.out.has_long_line |= is_long;
        self.out.has_long_command |= is_long && place & (place::SHELL | place::FRONT) != 0;
        let mut start = start;
        while start < end {
            let stop = end.min(start + MAX_STATEMENT);
            self.extend_over(start, stop, place);
            self.out.statements.push(Span {
                start,
                end: stop,
                place,
                heading,
            });
            // Windows overlap, so that a match across a boundary is complete in one of them.
            start = if stop < end {
                stop - MAX_STATEMENT / 4
            } else {
                stop
            };
        }
    }

    /// Extends the block and the section over a new statement. If one of them is full, it ends, and
    /// the next one begins in its last quarter.
    fn extend_over(&mut self, start: usize, end: usize, place: u16) {
        let fresh = Span {
            start,
            end,
            place,
            heading: self.section.heading,
        };
        match self.block {
            None => self.block = Some(fresh),
            Some(block) if end - block.start <= MAX_BLOCK => {
                self.block = Some(Span {
                    end,
                    place: block.place | place,
                    ..block
                });
            }
            Some(block) => {
                self.out.blocks.push(block);
                self.block = Some(Span {
                    start: self.last_quarter(block, MAX_BLOCK, start),
                    place: block.place | place,
                    ..fresh
                });
            }
        }
        // A section that has just begun is empty and may contain a statement of any size.
        if end - self.section.start > MAX_SECTION && self.section.end > self.section.start {
            self.out.sections.push(self.section);
            self.section.start = self.last_quarter(self.section, MAX_SECTION, start);
        }
        self.section.end = end;
        self.section.place |= place;
    }

    /// Returns the beginning of the first statement in the last quarter of a span that ends before
    /// `next`.
    fn last_quarter(&self, full: Span, most: usize, next: usize) -> usize {
        let quarter = full.start.max(next.saturating_sub(most / 4));
        let at = self
            .out
            .statements
            .partition_point(|one| one.start < quarter);
        let first = self.out.statements.get(at);
        first.map_or(next, |one| one.start.min(next))
    }

    pub fn end_block(&mut self) {
        if let Some(block) = self.block.take() {
            self.out.blocks.push(block);
        }
    }

    pub fn begin_section(&mut self, start: usize, heading: Option<usize>) {
        self.end_block();
        if self.section.end > self.section.start {
            self.out.sections.push(self.section);
        }
        self.section = Span {
            start,
            end: start,
            place: 0,
            heading,
        };
    }

    pub fn finish(mut self) -> Segments {
        self.begin_section(0, None);
        self.out
    }

    /// Replaces the line break at this offset by a space.
    pub fn join_lines_at(&mut self, at: usize) {
        // Replace the byte and do not remove it: spans and findings count in offsets of this text.
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte = b' ';
        }
    }

    pub fn line(&self, line: (usize, usize)) -> &[u8] {
        &self.bytes[line.0..line.1]
    }
}
