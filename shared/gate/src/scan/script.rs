//! Splits scripts and fenced code into statements and blocks.

use super::spans::{Builder, MAX_STATEMENT};
use crate::rule::place::{CODE, COMMENT, DATA, PROSE, SHELL};

/// Splits lines of code. Each line is a statement, together with its continuation lines. A block
/// ends before a definition at the left margin.
pub(super) fn split_code(builder: &mut Builder<'_>, lines: &[(usize, usize)], place: u16) {
    let mut at = 0;
    let mut documentation = false;
    // Whether the line is inside a long string that is assigned or passed on. Such a string is code
    // and not documentation.
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
            && continues_below(&builder.bytes[start..end], place)
            && end - start < MAX_STATEMENT
        {
            builder.join_lines_at(lines[at].1);
            // Replace the continuation sign, which would separate the words of the joined line.
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
            // An agent reads documentation as text, an interpreter reads it as part of the code.
            PROSE | (place & !SHELL)
        } else if comment {
            COMMENT
        } else {
            place
        };
        if place & DATA != 0 {
            approximate_escapes(&mut builder.bytes[start..end]);
        }
        builder.add_statement(start, end, here);
        at += 1;
    }
}

/// Replaces escaped quotation marks and line breaks in a value by those of the command in it.
fn approximate_escapes(line: &mut [u8]) {
    let mut at = 0;
    while at + 1 < line.len() {
        if line[at] == b'\\' {
            // Replace two bytes by two, so that no offset moves.
            match line[at + 1] {
                b'"' => line[at..at + 2].copy_from_slice(b" '"),
                b'n' => line[at..at + 2].copy_from_slice(b"; "),
                _ => {}
            }
            at += 1;
        }
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
        // In a shell, `export NAME=value` sets a variable and defines no function.
        && !(line.starts_with(b"export ") && line.contains(&b'=') && !line.contains(&b'('))
}

fn is_comment(trimmed: &[u8], place: u16) -> bool {
    let hash = trimmed.starts_with(b"#") && !trimmed.starts_with(b"#!");
    hash || (place & CODE != 0
        && (trimmed.starts_with(b"//") || trimmed.starts_with(b"* ") || trimmed.starts_with(b"/*")))
        || (place & SHELL != 0 && (trimmed.starts_with(b"rem ") || trimmed.starts_with(b"::")))
}

/// Tells whether a line continues in the next one: a shell line that ends in a backslash, pipe or
/// `&&`, or a line of code that ends inside brackets.
fn continues_below(line: &[u8], place: u16) -> bool {
    let line = line.trim_ascii_end();
    if place & CODE != 0 {
        return matches!(
            line.last(),
            Some(b'(' | b'[' | b'{' | b',' | b'+' | b'\\' | b'.')
        ) && !begins_definition(line.trim_ascii_start())
            // The head of a block does not continue: otherwise, a whole function would become one
            // statement.
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
