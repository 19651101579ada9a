//! Excerpts of text files in the style of compiler diagnostics: a line with its number, and a mark
//! below the wrong part.

use std::sync::OnceLock;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::text::clean;

/// The width of the terminal, set once at the start; empty if the output is not a terminal.
static TERMINAL_COLUMNS: OnceLock<usize> = OnceLock::new();

/// Sets the width to which lines of excerpts are cut. The marked part stays visible. Later calls
/// have no effect.
pub fn set_excerpt_width(columns: usize) {
    // A second call fails, which only tests make, so the error is ignored.
    let _ = TERMINAL_COLUMNS.set(columns);
}

/// Returns the renderer of diagnostics. It cuts long lines itself: if the printer folded them
/// later, the mark would no longer stand below the marked part.
pub(super) fn diagnostic_renderer() -> Renderer {
    match TERMINAL_COLUMNS.get() {
        Some(columns) => Renderer::styled().term_width(*columns),
        None => Renderer::styled(),
    }
}

/// Renders line `number` of `text`, cut at 200 characters, with a mark below the value (quoted
/// string, word or character) that starts at `column`. Both count from 1. Returns `None` if the
/// text has fewer lines.
pub fn marked_line(text: &str, number: u32, column: u32) -> Option<String> {
    let line = clean(text.lines().nth(number.checked_sub(1)? as usize)?, 200);
    let mut starts = line.char_indices().map(|(start, _)| start);
    // A column behind the cut marks the start of the line, which is better than no excerpt.
    let start = starts.nth(column.saturating_sub(1) as usize).unwrap_or(0);
    let end = start + value_length(&line[start..]);
    let snippet = Snippet::source(line.as_str())
        .line_start(number as usize)
        .annotation(AnnotationKind::Primary.span(start..end));
    Some(diagnostic_renderer().render(&[Group::with_level(Level::ERROR).element(snippet)]))
}

/// Returns the length in bytes of the value at the start of this text.
fn value_length(text: &str) -> usize {
    let ends_word = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-');
    match text.chars().next() {
        None => 0,
        Some(quote @ ('"' | '\'')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        // The mark covers at least one character, even if the value begins with punctuation.
        Some(first) => text
            .find(ends_word)
            .unwrap_or(text.len())
            .max(first.len_utf8()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_covers_one_value() {
        for (text, value) in [
            ("\"a b\" # c", "\"a b\""),
            ("'a', 'b'", "'a'"),
            ("\"open", "\"open"),
            ("word = 1", "word"),
            ("[[x]]", "["),
            ("ü!", "ü"),
            ("", ""),
        ] {
            assert_eq!(&text[..value_length(text)], value, "{text}");
        }
    }
}
