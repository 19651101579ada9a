//! A place in a text file as compilers show it: the line, and a mark below what is meant.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::output::text::clean;

/// A line of a file, and what is wrong in it.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its number, from 1.
    pub number: u32,
    /// What stands there, cut at 200 characters and without anything that could paint a terminal.
    pub text: String,
}

impl Line {
    /// A line of this text; `None` where the text ends before it.
    pub fn of(text: &str, number: u32) -> Option<Self> {
        let line = text.lines().nth(number.checked_sub(1)? as usize)?;
        Some(Self {
            number,
            text: clean(line, 200),
        })
    }

    /// The line alone, with a mark below the value that begins at this column: a quoted text, a word, or a character.
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

/// How many bytes the value at the beginning of this text has.
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
    fn values_end_where_they_end() {
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
