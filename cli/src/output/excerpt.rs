//! Shows a line of a text file in the style of compiler diagnostics, with a mark below the wrong
//! part.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::output::text::clean;

/// A line of a file to be shown with a mark.
#[derive(Clone, Debug)]
pub struct Line {
    /// The line number, counted from 1.
    pub number: u32,
    /// The text, cleaned of control characters and cut at 200 characters.
    pub text: String,
}

impl Line {
    /// Returns the line with this number, or `None` if the text is shorter.
    pub fn of(text: &str, number: u32) -> Option<Self> {
        let line = text.lines().nth(number.checked_sub(1)? as usize)?;
        Some(Self {
            number,
            text: clean(line, 200),
        })
    }

    /// Renders the line with a mark below the value that starts at this column: a quoted string, a
    /// word or a character.
    pub fn value(&self, column: u32) -> String {
        let start = self
            .text
            .char_indices()
            .nth(column.saturating_sub(1) as usize)
            .map_or(0, |(start, _)| start);
        let end = start + value_length(&self.text[start..]);
        let snippet = Snippet::source(self.text.as_str())
            .line_start(self.number as usize)
            .annotation(AnnotationKind::Primary.span(start..end));
        Renderer::styled().render(&[Group::with_level(Level::ERROR).element(snippet)])
    }
}

/// Returns the length in bytes of the value at the start of this text.
fn value_length(text: &str) -> usize {
    let first = text.chars().next();
    match first {
        None => 0,
        Some(quote @ ('"' | '\'')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        Some(_) => {
            let word = text
                .find(|character: char| {
                    !character.is_alphanumeric() && !matches!(character, '_' | '-')
                })
                .unwrap_or(text.len());
            word.max(first.map_or(0, char::len_utf8))
        }
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
