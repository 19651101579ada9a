//! The structure of a text: sections, blocks in them, statements in those, each with the place it stands in.
//!
//! A rule that combines signals asks for all of them in one statement, one block or one section. Wrapped lines of a
//! paragraph and continued lines of a command become one line here (the line break becomes a space, so that no offset
//! moves). Sizes are bounded: a statement of a megabyte is cut into many.

use crate::rule::place::{CODE, COMMENT, DATA, FRONT, HEAD, HIDDEN, PLAIN, PROSE, SHELL, TABLE};

/// The longest statement, block and section in bytes; what is longer is cut.
const MAX_STATEMENT: usize = 4 << 10;
const MAX_BLOCK: usize = 12 << 10;
const MAX_SECTION: usize = 16 << 10;

/// A stretch of text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    pub place: u16,
    /// The nearest heading above it, by its number.
    heading: Option<usize>,
}

/// The structure of a text; each list is sorted and covers the text without overlaps.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pub sections: Vec<Span>,
    pub blocks: Vec<Span>,
    pub statements: Vec<Span>,
    /// Where each heading begins and ends.
    headings: Vec<(usize, usize)>,
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

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Markdown,
    Shell,
    Code,
    Data,
    Plain,
}

impl Kind {
    /// By the ending of the path, else by the first line.
    pub(super) fn of(path: &str, raw: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        match ending {
            "md" | "mdx" | "markdown" | "mdc" | "rst" | "adoc" => Self::Markdown,
            "sh" | "bash" | "zsh" | "fish" | "ksh" | "command" | "ps1" | "psm1" | "bat" | "cmd" => {
                Self::Shell
            }
            "py" | "pyw" | "js" | "mjs" | "cjs" | "ts" | "tsx" | "jsx" | "rb" | "pl" | "php"
            | "go" | "rs" | "java" | "kt" | "swift" | "lua" | "c" | "cc" | "cpp" | "h" | "cs"
            | "r" | "scala" | "vbs" | "applescript" | "html" | "htm" | "hta" | "svg" | "vue"
            | "css" | "sql" | "ipynb" => Self::Code,
            "json" | "jsonc" | "jsonl" | "yaml" | "yml" | "toml" | "ini" | "cfg" | "conf"
            | "xml" | "plist" | "env" | "csv" | "tsv" | "lock" | "properties" => Self::Data,
            _ if name == "makefile" || name == "dockerfile" || name == "justfile" => Self::Shell,
            _ if raw.starts_with("#!") => {
                let line = raw.lines().next().unwrap_or_default();
                if line.contains("python")
                    || line.contains("node")
                    || line.contains("perl")
                    || line.contains("ruby")
                {
                    Self::Code
                } else {
                    Self::Shell
                }
            }
            _ => Self::Plain,
        }
    }
}

/// Splits a text; line breaks inside paragraphs and continued commands become spaces.
pub(super) fn split(bytes: &mut [u8], kind: Kind) -> Segments {
    let lines = lines(bytes);
    let mut builder = Builder {
        bytes,
        out: Segments::default(),
        section: Span::default(),
        block: None,
    };
    match kind {
        Kind::Markdown | Kind::Plain => markdown(&mut builder, &lines),
        Kind::Shell => code(&mut builder, &lines, SHELL),
        Kind::Code => code(&mut builder, &lines, CODE),
        Kind::Data => code(&mut builder, &lines, DATA),
    }
    builder.finish()
}

/// A text without structure: one section, one block, one statement for each line.
pub(super) fn flat(bytes: &mut [u8], place: u16) -> Segments {
    let lines = lines(bytes);
    let mut builder = Builder {
        bytes,
        out: Segments::default(),
        section: Span::default(),
        block: None,
    };
    for line in lines {
        builder.statement(line.0, line.1, place);
    }
    builder.finish()
}

fn lines(bytes: &[u8]) -> Vec<(usize, usize)> {
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

struct Builder<'a> {
    bytes: &'a mut [u8],
    out: Segments,
    section: Span,
    block: Option<Span>,
}

impl Builder<'_> {
    fn statement(&mut self, start: usize, end: usize, place: u16) {
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

    fn end_block(&mut self) {
        if let Some(block) = self.block.take() {
            self.out.blocks.push(block);
        }
    }

    fn begin_section(&mut self, start: usize, heading: Option<usize>) {
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

    fn finish(mut self) -> Segments {
        self.begin_section(0, None);
        self.out
    }

    /// Puts a space in place of the line break at this offset.
    fn join(&mut self, at: usize) {
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte = b' ';
        }
    }

    fn line(&self, line: (usize, usize)) -> &[u8] {
        &self.bytes[line.0..line.1]
    }
}

/// The part of a Markdown line after block quote marks and white space.
fn inner(line: &[u8]) -> &[u8] {
    let mut rest = line.trim_ascii();
    while let Some(next) = rest.strip_prefix(b">") {
        rest = next.trim_ascii_start();
    }
    rest
}

/// Where in a line [`inner`] begins, which is this long and ends at the last byte that is no white space.
fn offset(line: &[u8], length: usize) -> usize {
    line.trim_ascii_end().len().saturating_sub(length)
}

fn markdown(builder: &mut Builder<'_>, lines: &[(usize, usize)]) {
    let mut at = frontmatter(builder, lines);
    while at < lines.len() {
        let (start, end) = lines[at];
        let text = inner(builder.line(lines[at]));
        if text.is_empty() {
            builder.end_block();
            at += 1;
        } else if let Some(mark) = fence(text) {
            at = fenced(builder, lines, at, mark);
        } else if text.starts_with(b"<!--") {
            at = hidden(builder, lines, at);
        } else if is_unseen(text) {
            builder.end_block();
            builder.statement(start, end, HIDDEN);
            builder.end_block();
            at += 1;
        } else if text.starts_with(b"#") {
            let length = text.len();
            let number = builder.out.headings.len();
            let from = start + offset(builder.line(lines[at]), length);
            builder.out.headings.push((from, from + length));
            builder.begin_section(start, Some(number));
            builder.statement(start, end, HEAD);
            builder.end_block();
            at += 1;
        } else if text.starts_with(b"|") {
            let is_frame = is_one_cell(text);
            builder.end_block();
            if is_frame {
                at = framed(builder, lines, at);
                continue;
            }
            while let Some((start, end)) = lines
                .get(at)
                .copied()
                .filter(|line| inner(builder.line(*line)).starts_with(b"|"))
            {
                builder.statement(start, end, TABLE);
                at += 1;
            }
            builder.end_block();
        } else {
            at = paragraph(builder, lines, at);
        }
    }
}

/// Whether a row of a table has one cell: a frame around prose.
fn is_one_cell(row: &[u8]) -> bool {
    let row = row.strip_prefix(b"|").unwrap_or(row);
    let row = row.strip_suffix(b"|").unwrap_or(row);
    !row.contains(&b'|')
}

/// Rows of one cell each are read like the lines of a paragraph: an order that goes on in the next row is one order.
fn framed(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    let is_row = |builder: &Builder<'_>, at: usize| {
        lines.get(at).is_some_and(|line| {
            let text = inner(builder.line(*line));
            text.starts_with(b"|") && is_one_cell(text)
        })
    };
    let mut end = open;
    while is_row(builder, end) {
        let (from, to) = lines[end];
        for byte in &mut builder.bytes[from..to] {
            if *byte == b'|' {
                *byte = b' ';
            }
        }
        end += 1;
    }
    let mut at = open;
    while at < end {
        at = paragraph(builder, &lines[..end], at);
    }
    builder.end_block();
    end
}

fn frontmatter(builder: &mut Builder<'_>, lines: &[(usize, usize)]) -> usize {
    let is_rule = |builder: &Builder<'_>, at: usize| {
        lines.get(at).is_some_and(|line| {
            builder.line(*line).trim_ascii_end().ends_with(b"---") && line.1 - line.0 <= 8
        })
    };
    if !is_rule(builder, 0) {
        return 0;
    }
    let Some(close) = (1..lines.len().min(2_000)).find(|at| is_rule(builder, *at)) else {
        return 0;
    };
    for line in &lines[1..close] {
        builder.statement(line.0, line.1, FRONT);
    }
    builder.begin_section(lines[close].1, None);
    close + 1
}

/// The mark of a fence: its character and its length.
fn fence(text: &[u8]) -> Option<(u8, usize)> {
    let mark = *text.first().filter(|byte| matches!(byte, b'`' | b'~'))?;
    let length = text.iter().take_while(|byte| **byte == mark).count();
    (length >= 3 && !text[length..].contains(&b'`')).then_some((mark, length))
}

fn fenced(
    builder: &mut Builder<'_>,
    lines: &[(usize, usize)],
    open: usize,
    mark: (u8, usize),
) -> usize {
    builder.end_block();
    let opening = inner(builder.line(lines[open]))[mark.1..].trim_ascii();
    let language: Vec<u8> = opening
        .iter()
        .copied()
        .take_while(u8::is_ascii_alphanumeric)
        .collect();
    let place = language_place(&language);
    let closes = |at: &usize| {
        let text = inner(builder.line(lines[*at]));
        fence(text).is_some_and(|(byte, length)| {
            byte == mark.0 && length >= mark.1 && text.len() == length
        })
    };
    let close = (open + 1..lines.len()).find(closes).unwrap_or(lines.len());
    code(builder, &lines[open + 1..close], place);
    builder.end_block();
    close + 1
}

fn language_place(language: &[u8]) -> u16 {
    match language {
        b"" | b"text" | b"txt" | b"plain" | b"plaintext" | b"output" | b"log" => SHELL | PLAIN,
        b"bash" | b"sh" | b"zsh" | b"shell" | b"console" | b"terminal" | b"fish"
        | b"powershell" | b"ps1" | b"pwsh" | b"cmd" | b"bat" | b"batch" | b"dos"
        | b"dockerfile" | b"makefile" => SHELL,
        b"json" | b"json5" | b"jsonc" | b"yaml" | b"yml" | b"toml" | b"ini" | b"xml" | b"env"
        | b"dotenv" | b"csv" => DATA,
        b"markdown" | b"md" | b"diff" | b"mermaid" => PLAIN,
        _ => CODE,
    }
}

/// A line that people do not see: a link definition that serves as a comment, or an element that is not shown.
fn is_unseen(text: &[u8]) -> bool {
    let has = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
    let is_comment = text.starts_with(b"[//]:") || text.starts_with(b"[comment]:");
    is_comment
        || (text.starts_with(b"<")
            && [
                b"display:none".as_slice(),
                b"display: none",
                b"visibility:hidden",
                b"visibility: hidden",
                b"font-size:0",
                b"font-size: 0",
                b"opacity:0",
                b"opacity: 0",
                b" hidden>",
            ]
            .iter()
            .any(|style| has(style)))
}

/// A Markdown comment, which people do not see.
fn hidden(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    builder.end_block();
    let close = (open..lines.len().min(open + 200)).find(|at| {
        builder
            .line(lines[*at])
            .windows(3)
            .any(|three| three == b"-->")
    });
    let close = close.unwrap_or(open);
    for line in &lines[open..close] {
        builder.join(line.1);
    }
    builder.statement(lines[open].0, lines[close].1, HIDDEN);
    builder.end_block();
    close + 1
}

/// Lines up to the next blank line, heading, fence, table; a list item begins a statement of its own.
fn paragraph(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    let mut at = open;
    let mut start = lines[open].0;
    while let Some(next) = lines.get(at + 1) {
        let text = inner(builder.line(*next));
        if text.is_empty()
            || text.starts_with(b"#")
            || text.starts_with(b"|")
            || text.starts_with(b"<!--")
            || is_unseen(text)
            || fence(text).is_some()
        {
            break;
        }
        if is_item(text) {
            sentences(builder, start, lines[at].1);
            start = next.0;
        } else {
            builder.join(lines[at].1);
        }
        at += 1;
    }
    sentences(builder, start, lines[at].1);
    at + 1
}

fn is_item(text: &[u8]) -> bool {
    matches!(
        text,
        [b'-' | b'*' | b'+', b' ', ..]
            | [b'0'..=b'9', b'.' | b')', ..]
            | [b'0'..=b'9', b'0'..=b'9', b'.' | b')', ..]
    )
}

/// Ends of sentences: a point, mark or full-width point before white space or the end; not inside code marks.
fn sentences(builder: &mut Builder<'_>, start: usize, end: usize) {
    let mut from = start;
    let mut at = start;
    let mut in_code = false;
    while at < end {
        let byte = builder.bytes[at];
        if byte == b'`' {
            in_code = !in_code;
        }
        if !in_code && byte == b'<' && builder.bytes[at..end].starts_with(b"<!--") {
            let comment = &builder.bytes[at..end];
            let length = comment.windows(3).position(|three| three == b"-->");
            let stop = length.map_or(end, |length| at + length + 3);
            builder.statement(from, at, PROSE);
            builder.statement(at, stop, HIDDEN);
            (from, at) = (stop, stop);
            continue;
        }
        let wide = byte == 0xE3 && builder.bytes[at..end].starts_with("。".as_bytes());
        let narrow = matches!(byte, b'.' | b'!' | b'?')
            && builder
                .bytes
                .get(at + 1)
                .is_none_or(u8::is_ascii_whitespace)
            && at.saturating_sub(from) > 3;
        if !in_code && (wide || narrow) {
            let stop = (at + if wide { 3 } else { 1 }).min(end);
            builder.statement(from, stop, PROSE);
            from = stop;
            at = stop;
        } else {
            at += 1;
        }
    }
    builder.statement(from, end, PROSE);
}

/// Lines of code: a statement for each, continued lines joined; a block ends before a definition at the left margin.
fn code(builder: &mut Builder<'_>, lines: &[(usize, usize)], place: u16) {
    let mut at = 0;
    let mut documentation = false;
    // Inside a long string that is assigned or handed over, which is code and no documentation.
    let mut literal = false;
    while at < lines.len() {
        let (start, mut end) = lines[at];
        let begins = begins_definition(builder.line(lines[at]));
        if begins && place & (CODE | SHELL) != 0 {
            builder.end_block();
        }
        let trimmed = builder.line(lines[at]).trim_ascii();
        let marks = trimmed
            .windows(3)
            .filter(|three| *three == b"\"\"\"" || *three == b"'''")
            .count();
        let doc = documentation
            || (place & CODE != 0
                && marks > 0
                && !literal
                && (trimmed.starts_with(b"\"\"\"") || trimmed.starts_with(b"'''")));
        if place & CODE != 0 && marks % 2 == 1 {
            if doc {
                documentation = !documentation;
            } else {
                literal = !literal;
            }
        }
        let comment = !doc && is_comment(trimmed, place);
        while !doc
            && !comment
            && at + 1 < lines.len()
            && continues(&builder.bytes[start..end], place)
            && end - start < MAX_STATEMENT
        {
            builder.join(lines[at].1);
            if let Some(byte) = builder.bytes[..end]
                .last_mut()
                .filter(|byte| matches!(byte, b'\\' | b'^' | b'`'))
            {
                *byte = b' ';
            }
            at += 1;
            end = lines[at].1;
        }
        let here = if doc {
            PROSE | (place & !SHELL)
        } else if comment {
            COMMENT
        } else {
            place
        };
        builder.statement(start, end, here);
        at += 1;
    }
}

fn begins_definition(line: &[u8]) -> bool {
    [
        b"def ".as_slice(),
        b"class ",
        b"async ",
        b"function ",
        b"export ",
        b"func ",
        b"fn ",
        b"pub ",
        b"@",
        b"const ",
    ]
    .iter()
    .any(|word| line.starts_with(word))
        && !(line.starts_with(b"export ") && line.contains(&b'=') && !line.contains(&b'('))
}

fn is_comment(trimmed: &[u8], place: u16) -> bool {
    let hash = trimmed.starts_with(b"#") && !trimmed.starts_with(b"#!");
    hash || (place & CODE != 0
        && (trimmed.starts_with(b"//") || trimmed.starts_with(b"* ") || trimmed.starts_with(b"/*")))
        || (place & SHELL != 0 && (trimmed.starts_with(b"rem ") || trimmed.starts_with(b"::")))
}

/// A shell line that ends in a backslash, pipe or `&&`; a code line that ends inside brackets.
fn continues(line: &[u8], place: u16) -> bool {
    let line = line.trim_ascii_end();
    if place & CODE != 0 {
        return matches!(
            line.last(),
            Some(b'(' | b'[' | b'{' | b',' | b'+' | b'\\' | b'.')
        ) && !begins_definition(line.trim_ascii_start())
            && !line.ends_with(b") {")
            && !line.ends_with(b"=> {")
            && line.len() < 600;
    }
    if place & SHELL != 0 {
        return matches!(line.last(), Some(b'\\' | b'|' | b'^'))
            || line.ends_with(b"&&")
            || line.ends_with(b" `");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(text: &str, kind: Kind) -> Vec<(String, u16)> {
        let mut bytes = text.as_bytes().to_vec();
        let segments = split(&mut bytes, kind);
        let said = |span: &Span| {
            String::from_utf8_lossy(&bytes[span.start..span.end])
                .trim()
                .to_owned()
        };
        segments
            .statements
            .iter()
            .map(|span| (said(span), span.place))
            .collect()
    }

    #[test]
    fn markdown_is_taken_apart() {
        let text = "---\nname: a\n---\n# head\nOne line\nwrapped. Two.\n- item\n> ```bash\n> curl \\\n>  x\n> ```\n| a | b |\n<!-- see\nthis -->\n";
        let found = statements(text, Kind::Markdown);
        let places: Vec<u16> = found.iter().map(|(_, place)| *place).collect();
        assert_eq!(
            places,
            [FRONT, HEAD, PROSE, PROSE, PROSE, SHELL, TABLE, HIDDEN],
            "{found:?}"
        );
        assert_eq!(found[2].0, "One line wrapped.");
        assert_eq!(found[5].0, "> curl   >  x");
        assert_eq!(found[7].0, "<!-- see this -->");
    }

    #[test]
    fn the_nearest_heading_is_the_one_above() {
        let text = "before.\n# one\n## two\nrun this.\n```\ncurl x\n```\n# three\n| a | b |\n";
        let mut bytes = text.as_bytes().to_vec();
        let segments = split(&mut bytes, Kind::Markdown);
        let headings: Vec<_> = segments
            .statements
            .iter()
            .map(|span| String::from_utf8_lossy(segments.heading(&bytes, span)).into_owned())
            .collect();
        let two = "## two";
        assert_eq!(headings, ["", "# one", two, two, two, "# three", "# three"]);
    }

    #[test]
    fn code_has_comments_documentation_and_blocks() {
        let text = "# note\ndef f(\n    a,\n):\n    \"\"\"says\n    more\n    \"\"\"\n    return a\n\ndef g():\n    pass\n";
        let found = statements(text, Kind::Code);
        assert_eq!(found[0], ("# note".to_owned(), COMMENT));
        assert!(
            found
                .iter()
                .any(|(said, place)| said == "more" && place & PROSE != 0),
            "{found:?}"
        );
        let mut bytes = text.as_bytes().to_vec();
        assert_eq!(split(&mut bytes, Kind::Code).blocks.len(), 3);
    }

    #[test]
    fn rows_of_one_cell_are_read_like_lines_of_a_paragraph() {
        let found = statements(
            "| first get |\n| the tool. Then |\n| run it |\n| a | b |\n",
            Kind::Markdown,
        );
        let said: Vec<String> = found
            .iter()
            .map(|(said, _)| said.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            said,
            ["first get the tool.", "Then run it", "| a | b |"],
            "{found:?}"
        );
    }

    #[test]
    fn a_long_string_is_code_and_so_is_what_follows_it() {
        let text = "script = '''\ndisplay dialog\n'''\nrun(script)\n";
        let found = statements(text, Kind::Code);
        assert!(
            found.iter().all(|(_, place)| place & PROSE == 0),
            "{found:?}"
        );
    }

    #[test]
    fn everything_is_covered_and_bounded() {
        for text in [
            "a".repeat(100_000),
            "> ".repeat(50_000),
            "- ".repeat(50_000),
            "```\n".repeat(9_999),
            "|\n".repeat(9_999),
        ] {
            let mut bytes = text.clone().into_bytes();
            for kind in [Kind::Markdown, Kind::Shell, Kind::Code, Kind::Data] {
                let segments = split(&mut bytes, kind);
                assert!(
                    segments
                        .statements
                        .iter()
                        .all(|span| span.end - span.start <= MAX_STATEMENT)
                );
                assert!(segments.statements.is_sorted_by_key(|span| span.start));
                assert!(segments.sections.is_sorted_by_key(|span| span.start));
            }
        }
    }
}
