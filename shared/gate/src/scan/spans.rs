//! Spans of a text, and how they are built: statements grow into blocks and sections of bounded size.

/// The longest statement, block and section in bytes; what is longer is cut.
pub(super) const MAX_STATEMENT: usize = 4 << 10;
const MAX_BLOCK: usize = 12 << 10;
const MAX_SECTION: usize = 16 << 10;

/// A stretch of text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    pub place: u16,
    /// The nearest heading above it, by its number.
    pub heading: Option<usize>,
}

/// The structure of a text; each list is sorted and covers the text without overlaps.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pub sections: Vec<Span>,
    pub blocks: Vec<Span>,
    pub statements: Vec<Span>,
    /// Where each heading begins and ends.
    pub headings: Vec<(usize, usize)>,
}

impl Segments {
    /// The nearest heading above a span; empty where there is none.
    pub(super) fn heading<'a>(&self, bytes: &'a [u8], span: &Span) -> &'a [u8] {
        span.heading.map_or(&[], |number| {
            let (start, end) = self.headings[number];
            &bytes[start..end]
        })
    }

    /// The statement that holds an offset, if one does.
    pub(super) fn statement(&self, offset: usize) -> Option<Span> {
        let after = self.statements.partition_point(|one| one.start <= offset);
        Some(self.statements[after.checked_sub(1)?])
    }

    /// The block that holds an offset, if one does.
    pub(super) fn block(&self, offset: usize) -> Option<Span> {
        let after = self.blocks.partition_point(|one| one.start <= offset);
        Some(self.blocks[after.checked_sub(1)?])
    }
}

pub(super) fn lines(bytes: &[u8]) -> Vec<(usize, usize)> {
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

    pub fn statement(&mut self, start: usize, end: usize, place: u16) {
        let mut start = start;
        while start < end {
            let stop = end.min(start + MAX_STATEMENT);
            self.grow(start, stop, place);
            self.out.statements.push(Span {
                start,
                end: stop,
                place,
                heading: self.section.heading,
            });
            start = stop;
        }
    }

    /// Makes the block and the section reach over a new statement.
    fn grow(&mut self, start: usize, end: usize, place: u16) {
        match &mut self.block {
            Some(block) if end - block.start <= MAX_BLOCK => {
                block.end = end;
                block.place |= place;
            }
            _ => {
                self.end_block();
                self.block = Some(Span {
                    start,
                    end,
                    place,
                    heading: self.section.heading,
                });
            }
        }
        if end - self.section.start > MAX_SECTION && self.section.end > self.section.start {
            let heading = self.section.heading;
            self.out.sections.push(self.section);
            self.section = Span {
                start,
                end,
                place,
                heading,
            };
        }
        self.section.end = end;
        self.section.place |= place;
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

    /// Puts a space in place of the line break at this offset.
    pub fn join(&mut self, at: usize) {
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte = b' ';
        }
    }

    pub fn line(&self, line: (usize, usize)) -> &[u8] {
        &self.bytes[line.0..line.1]
    }
}
