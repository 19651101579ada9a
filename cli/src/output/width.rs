//! The width of text on a terminal, in columns, and breaking or shortening text to fit.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Characters after which a word may break if it is wider than a line, such as an address.
const JOINTS: [char; 5] = ['/', '?', '&', ',', '='];

/// Counts the columns of a text. Escape codes of styles take none, East Asian characters two.
pub fn text_width(text: &str) -> usize {
    anstream::adapter::strip_str(text).to_string().width()
}

/// Columns around a paragraph that its words must leave free.
#[derive(Clone, Copy, Debug, Default)]
pub struct Margins {
    /// Columns that other text takes in front of the first line.
    pub start: usize,
    /// Columns by which the further lines are indented.
    pub indent: usize,
    /// Columns to leave free behind the last line.
    pub end: usize,
}

/// Breaks a text between words so that no line with its margins is wider than `columns`. The first
/// line is not indented.
pub fn wrap_words(text: &str, columns: usize, margins: Margins) -> String {
    let Margins { start, indent, end } = margins;
    let room = columns.saturating_sub(indent);
    let words = text.split_inclusive(' ').flat_map(|word| {
        let is_wide = text_width(word.trim_end()) > room;
        // A word that is wider than a line breaks at its joints, not at any character.
        word.split_inclusive(move |c| is_wide && JOINTS.contains(&c))
    });
    let mut words = words.peekable();
    let (mut wrapped, mut column) = (String::with_capacity(text.len()), start);
    while let Some(word) = words.next() {
        let behind = if words.peek().is_some() { 0 } else { end };
        let needed = text_width(word.trim_end()) + behind;
        if column + needed > columns && column > indent {
            wrapped.truncate(wrapped.trim_end_matches(' ').len());
            let _ = write!(wrapped, "\n{:indent$}", "");
            column = indent;
        }
        wrapped.push_str(word);
        column += text_width(word);
    }
    wrapped
}

/// Shortens a text to this many columns and puts an ellipsis at the end. The cut is between words
/// if more than half of the columns stay in use.
pub fn shorten_text(text: &str, columns: usize) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    let plain = anstream::adapter::strip_str(text).to_string();
    let mut width = 0;
    let fits = |c: &char| {
        width += c.width().unwrap_or(0);
        width < columns
    };
    let start: String = plain.chars().take_while(fits).collect();
    let is_at_gap = plain[start.len()..].starts_with(' ');
    let start = match start.rfind(' ') {
        Some(gap) if !is_at_gap && start[..gap].width() * 2 > columns => &start[..gap],
        _ => start.as_str(),
    };
    let mut rest = start.trim_end().chars().count();
    let mut shortened = String::with_capacity(text.len());
    let mut is_escape = false;
    for c in text.chars() {
        if c == '\u{1b}' {
            is_escape = true;
        }
        // Escape codes after the cut are kept: they end the styles of the text before it.
        if is_escape {
            shortened.push(c);
            is_escape = c != 'm';
            continue;
        }
        match rest {
            0 => {}
            1 => shortened.extend([c, '…']),
            _ => shortened.push(c),
        }
        rest = rest.saturating_sub(1);
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{BOLD, paint};

    #[test]
    fn a_paragraph_breaks_between_words_and_leaves_room_behind_it() {
        let margins = Margins {
            start: 2,
            indent: 2,
            end: 6,
        };
        for (text, wrapped) in [
            ("Go ahead?", "Go ahead?"),
            ("Do it now or never?", "Do it now or\n  never?"),
            ("Delete every skill?", "Delete every\n  skill?"),
            // Text behind the last line needs room, so the last word moves to the next line.
            ("Delete all files?", "Delete all\n  files?"),
            (
                "Read http://localhost/a/b/c/d now?",
                "Read http://\n  localhost/a/b/c/d\n  now?",
            ),
            ("ééé 漢字漢字漢字漢字", "ééé\n  漢字漢字漢字漢字"),
        ] {
            assert_eq!(wrap_words(text, 20, margins), wrapped);
        }
    }

    #[test]
    fn a_text_is_shortened_between_words_and_its_styles_end() {
        for (text, short) in [
            ("fits in it", "fits in it"),
            ("Reads tables of any size", "Reads tabl…"),
            ("Extracts a table", "Extracts a…"),
            ("Extract tables", "Extract…"),
            ("a-long-name-of-one-word", "a-long-nam…"),
            ("漢字漢字漢字漢字", "漢字漢字漢…"),
        ] {
            assert_eq!(shorten_text(text, 11), short);
            let painted = shorten_text(&paint(BOLD, text), 11);
            assert_eq!(painted, paint(BOLD, short));
            assert!(text_width(&painted) <= 11);
        }
    }
}
