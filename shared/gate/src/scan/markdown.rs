//! Splits Markdown into headings, paragraphs, lists, tables, fenced blocks and comments.

use super::script::split_code;
use super::spans::Builder;
use crate::rule::place::{CODE, DATA, FRONT, HEAD, HIDDEN, PLAIN, PROSE, SHELL, TABLE};
use crate::rule::{has, position};
use std::ops::Range;

/// Returns the part of a Markdown line after block quote marks and white space.
fn strip_quote_marks(line: &[u8]) -> &[u8] {
    let mut rest = line.trim_ascii();
    while let Some(next) = rest.strip_prefix(b">") {
        rest = next.trim_ascii_start();
    }
    rest
}

/// Returns where the [`strip_quote_marks`] part of a line begins, given its length. That part ends
/// at the last byte that is not white space.
fn offset_of_inner(line: &[u8], length: usize) -> usize {
    line.trim_ascii_end().len().saturating_sub(length)
}

/// Splits Markdown. Each line of the frontmatter is a statement.
pub(super) fn split_markdown(builder: &mut Builder<'_>, lines: &[(usize, usize)]) {
    let mut at = read_frontmatter(builder, lines);
    while at < lines.len() {
        let (start, end) = lines[at];
        let text = strip_quote_marks(builder.line(lines[at]));
        if text.is_empty() {
            builder.end_block();
            at += 1;
        } else if let Some(mark) = fence_mark(text) {
            at = read_fenced_block(builder, lines, at, mark);
        } else if text.starts_with(b"<!--") {
            // Test this before other marks: text that people do not see is hidden, whatever else it
            // looks like.
            at = read_html_comment(builder, lines, at);
        } else if is_unseen(text) {
            at = read_unseen_element(builder, lines, at);
        } else if text.starts_with(b"#") {
            let length = text.len();
            let number = builder.out.headings.len();
            let from = start + offset_of_inner(builder.line(lines[at]), length);
            builder.out.headings.push((from, from + length));
            builder.begin_section(start, Some(number));
            add_with_comments(builder, start..end, HEAD);
            builder.end_block();
            at += 1;
        } else if text.starts_with(b"|") {
            let is_frame = is_one_cell(text);
            builder.end_block();
            if is_frame {
                at = read_framed_rows(builder, lines, at);
                continue;
            }
            while let Some((start, end)) = lines
                .get(at)
                .copied()
                .filter(|line| strip_quote_marks(builder.line(*line)).starts_with(b"|"))
            {
                replace_cell_bars(&mut builder.bytes[start..end], b';');
                add_with_comments(builder, start..end, TABLE);
                at += 1;
            }
            builder.end_block();
        } else {
            at = read_paragraph(builder, lines, at);
        }
    }
}

/// Tells whether a row of a table has a single cell: such a table is only a frame around prose.
fn is_one_cell(row: &[u8]) -> bool {
    let row = row.strip_prefix(b"|").unwrap_or(row);
    let row = row.strip_suffix(b"|").unwrap_or(row);
    !row.contains(&b'|')
}

/// Rewrites a row of a table for rules about commands: `separator` replaces a bar between cells,
/// and an escaped bar becomes the pipe for which it stands. Bars between back ticks stay, because a
/// reader copies them with the command.
fn replace_cell_bars(row: &mut [u8], separator: u8) {
    let mut is_code = false;
    for at in 0..row.len() {
        match row[at] {
            b'`' => is_code = !is_code,
            b'|' if at > 0 && row[at - 1] == b'\\' => row[at - 1] = b' ',
            b'|' if !is_code => row[at] = separator,
            _ => {}
        }
    }
}

/// Adds a statement. Each comment in it becomes a statement of its own.
fn add_with_comments(builder: &mut Builder<'_>, range: Range<usize>, place: u16) {
    let mut from = range.start;
    while let Some(comment) = find_comment(&builder.bytes[from..range.end]) {
        let (open, close) = (from + comment.start, from + comment.end);
        builder.add_statement(from, open, place);
        builder.add_statement(open, close, HIDDEN);
        from = close;
    }
    builder.add_statement(from, range.end, place);
}

/// Returns the range of the first comment in a text. A comment without an end lasts to the end of
/// the text.
fn find_comment(text: &[u8]) -> Option<Range<usize>> {
    let open = position(text, "<!--")?;
    let close = position(&text[open..], "-->");
    Some(open..close.map_or(text.len(), |close| open + close + 3))
}

/// Reads rows of one cell each like lines of a paragraph, because an instruction may continue in
/// the next row.
fn read_framed_rows(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    let is_row = |builder: &Builder<'_>, at: usize| {
        lines.get(at).is_some_and(|line| {
            let text = strip_quote_marks(builder.line(*line));
            text.starts_with(b"|") && is_one_cell(text)
        })
    };
    let mut end = open;
    while is_row(builder, end) {
        let (from, to) = lines[end];
        let row = &mut builder.bytes[from..to];
        // The instruction continues in the next row, so the bars of the frame must not end a
        // statement.
        replace_cell_bars(row, b' ');
        end += 1;
    }
    let mut at = open;
    while at < end {
        at = read_paragraph(builder, &lines[..end], at);
    }
    builder.end_block();
    end
}

fn read_frontmatter(builder: &mut Builder<'_>, lines: &[(usize, usize)]) -> usize {
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
        // YAML drops comments, but agents read the raw file, and people see neither.
        let is_comment = builder.line(*line).trim_ascii().starts_with(b"#");
        let hidden = if is_comment { HIDDEN } else { 0 };
        builder.add_statement(line.0, line.1, FRONT | hidden);
    }
    // Rules over a section must not combine the frontmatter with the text below it.
    builder.begin_section(lines[close].1, None);
    close + 1
}

/// Returns the character and the length of the mark that opens a fenced block.
fn fence_mark(text: &[u8]) -> Option<(u8, usize)> {
    let mark = *text.first().filter(|byte| matches!(byte, b'`' | b'~'))?;
    let length = text.iter().take_while(|byte| **byte == mark).count();
    // A line with another back tick after the mark is a code span and opens no fenced block.
    (length >= 3 && !text[length..].contains(&b'`')).then_some((mark, length))
}

fn read_fenced_block(
    builder: &mut Builder<'_>,
    lines: &[(usize, usize)],
    open: usize,
    mark: (u8, usize),
) -> usize {
    builder.end_block();
    let opening = strip_quote_marks(builder.line(lines[open]))[mark.1..].trim_ascii();
    let language: Vec<u8> = opening
        .iter()
        .copied()
        .take_while(u8::is_ascii_alphanumeric)
        .collect();
    let place = language_place(&language);
    let closes = |at: &usize| {
        let text = strip_quote_marks(builder.line(lines[*at]));
        fence_mark(text).is_some_and(|(byte, length)| {
            byte == mark.0 && length >= mark.1 && text.len() == length
        })
    };
    // In Markdown, a block without a closing mark lasts to the end of the text.
    let close = (open + 1..lines.len()).find(closes).unwrap_or(lines.len());
    split_code(builder, &lines[open + 1..close], place);
    builder.end_block();
    close + 1
}

/// Returns the kind of place of a fenced block with this label. An agent that is told to run the
/// lines ignores the label, so every block is treated as shell, unless its label is another
/// programming language or data.
fn language_place(language: &[u8]) -> u16 {
    match language {
        b"" | b"text" | b"txt" | b"plain" | b"plaintext" | b"output" | b"log" | b"markdown"
        | b"md" | b"mdx" | b"diff" | b"patch" | b"mermaid" | b"prompt" => SHELL | PLAIN,
        b"json" | b"json5" | b"jsonc" | b"jsonl" | b"yaml" | b"yml" | b"toml" | b"ini" | b"xml"
        | b"env" | b"dotenv" | b"csv" | b"properties" | b"conf" => DATA,
        b"python" | b"py" | b"python3" | b"javascript" | b"js" | b"jsx" | b"mjs"
        | b"typescript" | b"ts" | b"tsx" | b"ruby" | b"rb" | b"perl" | b"pl" | b"php" | b"go"
        | b"golang" | b"rust" | b"rs" | b"java" | b"kotlin" | b"kt" | b"swift" | b"scala"
        | b"lua" | b"c" | b"cpp" | b"cc" | b"h" | b"cs" | b"csharp" | b"r" | b"dart"
        | b"elixir" | b"ex" | b"erlang" | b"haskell" | b"hs" | b"ocaml" | b"clojure" | b"julia"
        | b"sql" | b"html" | b"css" | b"scss" | b"vue" | b"svelte" | b"graphql" | b"proto"
        | b"protobuf" | b"hcl" | b"tf" | b"terraform" | b"nix" | b"solidity" | b"vbs" | b"vba"
        | b"applescript" | b"latex" | b"tex" | b"regex" | b"objc" | b"zig" | b"groovy"
        | b"matlab" => CODE,
        _ => SHELL,
    }
}

/// Tells whether people do not see a line: it is a link definition that serves as a comment, or an
/// element that is not shown.
fn is_unseen(text: &[u8]) -> bool {
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
            .any(|style| has(text, style)))
}

/// Marks a line as hidden. If it opens an element, the lines up to the one that closes it are
/// hidden too.
fn read_unseen_element(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    builder.end_block();
    let text = strip_quote_marks(builder.line(lines[open]));
    let name = text.strip_prefix(b"<").unwrap_or_default();
    let letters = name.iter().copied().take_while(u8::is_ascii_alphanumeric);
    let tag: Vec<u8> = b"</".iter().copied().chain(letters).collect();
    let closes = |at: &usize| has(builder.line(lines[*at]), &tag);
    let close = match tag.len() {
        // A link definition opens no element, so only its own line is hidden.
        2 => open,
        _ => (open..lines.len()).find(closes).unwrap_or(lines.len() - 1),
    };
    builder.add_statement(lines[open].0, lines[close].1, HIDDEN);
    builder.end_block();
    close + 1
}

/// Reads a Markdown comment, which people do not see. A comment without an end lasts to the end of
/// the text.
fn read_html_comment(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    builder.end_block();
    let ends = |at: &usize| has(builder.line(lines[*at]), "-->");
    let close = (open..lines.len()).find(ends).unwrap_or(lines.len() - 1);
    for line in &lines[open..close] {
        builder.join_lines_at(line.1);
    }
    let (start, end) = (lines[open].0, lines[close].1);
    add_with_comments(builder, start..end, PROSE);
    builder.end_block();
    close + 1
}

/// Reads lines up to the next blank line, heading, fenced block or table. Each list item begins a
/// statement of its own.
fn read_paragraph(builder: &mut Builder<'_>, lines: &[(usize, usize)], open: usize) -> usize {
    let mut at = open;
    let mut start = lines[open].0;
    while let Some(next) = lines.get(at + 1) {
        let text = strip_quote_marks(builder.line(*next));
        if text.is_empty()
            || is_heading(text)
            || text.starts_with(b"|")
            || text.starts_with(b"<!--")
            || is_unseen(text)
            || fence_mark(text).is_some()
        {
            break;
        }
        // Two items are two statements, so that the words of a harmless item cannot excuse the next
        // one.
        if is_item(text) {
            split_sentences(builder, start, lines[at].1, PROSE);
            start = next.0;
        } else {
            builder.join_lines_at(lines[at].1);
        }
        at += 1;
    }
    split_sentences(builder, start, lines[at].1, PROSE);
    at + 1
}

/// Tells whether a line is a heading: one to six `#`, and white space or the end behind them.
fn is_heading(text: &[u8]) -> bool {
    let marks = text.iter().take_while(|byte| **byte == b'#').count();
    (1..=6).contains(&marks) && text.get(marks).is_none_or(u8::is_ascii_whitespace)
}

fn is_item(text: &[u8]) -> bool {
    matches!(
        text,
        [b'-' | b'*' | b'+', b' ', ..]
            | [b'0'..=b'9', b'.' | b')', b' ', ..]
            | [b'0'..=b'9', b'0'..=b'9', b'.' | b')', b' ', ..]
    )
}

/// Splits a range into sentences: at a full stop, an exclamation or question mark, or a full-width
/// stop, if white space or the end follows. The stop of an abbreviation ends no sentence. Text in
/// code marks is not split.
pub(super) fn split_sentences(builder: &mut Builder<'_>, start: usize, end: usize, place: u16) {
    let mut from = start;
    let mut at = start;
    let mut in_code = false;
    while at < end {
        let byte = builder.bytes[at];
        if byte == b'`' {
            in_code = !in_code;
        }
        if !in_code
            && builder.bytes[at..end].starts_with(b"<!--")
            && let Some(comment) = find_comment(&builder.bytes[at..end])
        {
            let stop = at + comment.end;
            builder.add_statement(from, at, place);
            builder.add_statement(at, stop, HIDDEN);
            (from, at) = (stop, stop);
            continue;
        }
        let wide = byte == 0xE3 && builder.bytes[at..end].starts_with("。".as_bytes());
        let narrow = matches!(byte, b'.' | b'!' | b'?')
            && builder
                .bytes
                .get(at + 1)
                .is_none_or(u8::is_ascii_whitespace)
            // The number of a list item is not the end of a sentence.
            && at.saturating_sub(from) > 3
            && !(byte == b'.' && is_abbreviation(&builder.bytes[from..at]));
        if !in_code && (wide || narrow) {
            let stop = (at + if wide { 3 } else { 1 }).min(end);
            builder.add_statement(from, stop, place);
            from = stop;
            at = stop;
        } else {
            at += 1;
        }
    }
    builder.add_statement(from, end, place);
}

/// Tells whether the last word before a full stop is an abbreviation: a single letter, a word with
/// a full stop inside ("i.e"), or one of a few words of several languages.
fn is_abbreviation(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 11] = [
        b"approx", b"bzw", b"ca", b"cf", b"evtl", b"ggf", b"incl", b"nr", b"resp", b"usw", b"vs",
    ];
    // No abbreviation is longer, so a long word is not read to its beginning.
    let text = &text[text.len().saturating_sub(10)..];
    let is_letter = |byte: &&u8| byte.is_ascii_alphabetic() || **byte >= 0x80 || **byte == b'.';
    let length = text.iter().rev().take_while(is_letter).count();
    let word = &text[text.len() - length..];
    let letters = String::from_utf8_lossy(word);
    let is_initials = |part: &str| part.chars().count() == 1;
    !word.is_empty() && letters.split('.').all(is_initials) || WORDS.contains(&word)
}
