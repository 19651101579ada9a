//! A place in a text file as compilers show it: the line, and a mark below what is meant.

use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::ui::clean;

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

    /// A line of a text file; `None` where it is not there or not text.
    pub fn of_file(path: &Path, number: u32) -> Option<Self> {
        Self::of(&std::fs::read_to_string(path).ok()?, number)
    }

    /// The line with a mark below the character of this column, from 1.
    pub fn snippet(
        &self,
        path: String,
        column: Option<u32>,
    ) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
        self.marked(Some(path), self.from(column), |rest| {
            rest.chars().next().map_or(0, char::len_utf8)
        })
    }

    /// The line alone, with a mark below the value that begins at this column: a quoted text, a word, or a character.
    pub fn value(&self, column: u32) -> String {
        let snippet = self.marked(None, self.from(Some(column)), value_length);
        Renderer::styled().render(&[Group::with_level(Level::ERROR).element(snippet)])
    }

    fn from(&self, column: Option<u32>) -> usize {
        column
            .and_then(|column| {
                self.text
                    .char_indices()
                    .nth(column.saturating_sub(1) as usize)
            })
            .map_or(0, |(start, _)| start)
    }

    fn marked(
        &self,
        path: Option<String>,
        start: usize,
        length: impl Fn(&str) -> usize,
    ) -> Snippet<'_, annotate_snippets::Annotation<'_>> {
        let end = start + length(&self.text[start..]);
        Snippet::source(self.text.as_str())
            .line_start(self.number as usize)
            .path(path)
            .annotation(AnnotationKind::Primary.span(start..end))
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
