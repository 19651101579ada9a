//! Splits a text into sections, blocks in them, and statements in those, each with its kinds of
//! places (prose, shell code and so on).
//!
//! A rule requires all its words and expressions in one statement, one block or one section.
//! Wrapped lines of a paragraph and continued lines of a command become one line: the line break
//! becomes a space, so that no offset changes. Sizes are bounded: a statement of a megabyte is cut
//! into many.

pub(super) use super::spans::{Segments, Span};
use std::path::Path;

use super::{
    markdown::{split_markdown, split_sentences},
    script::split_code,
    spans::{Builder, line_ranges},
};
use crate::rule::place::{CODE, DATA, FRONT, SHELL};

/// The kind of a file, which decides how it is split.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Markdown,
    Shell,
    Code,
    Data,
    Plain,
}

impl Kind {
    /// Tells whether an interpreter reads these bytes, whatever else they contain: by the extension
    /// of the name, or by the first line.
    pub(super) fn is_script(path: &str, bytes: &[u8]) -> bool {
        match Self::of(path, "") {
            Self::Plain => bytes.starts_with(b"#!"),
            // Video recordings also have the extension `.ts`.
            Self::Code => !Path::new(path)
                .extension()
                .is_some_and(|end| end.eq_ignore_ascii_case("ts")),
            Self::Markdown | Self::Shell => true,
            Self::Data => false,
        }
    }

    /// Returns the kind by the extension of the path, or else by the first line.
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
            | "xml" | "xsd" | "xsl" | "xslt" | "plist" | "env" | "csv" | "tsv" | "lock"
            | "properties" => Self::Data,
            _ if name == "makefile" || name == "dockerfile" || name == "justfile" => Self::Shell,
            _ if raw.starts_with("<?xml") || raw.starts_with("{\"") => Self::Data,
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

/// Splits a text. Line breaks inside paragraphs and continued commands become spaces in `bytes`.
pub(super) fn split_text(bytes: &mut [u8], kind: Kind) -> Segments {
    let lines = line_ranges(bytes);
    let mut builder = Builder::new(bytes);
    match kind {
        // Read text of an unknown kind as Markdown, because it may be prose for an agent.
        Kind::Markdown | Kind::Plain => split_markdown(&mut builder, &lines),
        Kind::Shell => split_code(&mut builder, &lines, SHELL),
        Kind::Code => split_code(&mut builder, &lines, CODE),
        Kind::Data => split_code(&mut builder, &lines, DATA),
    }
    builder.finish()
}

/// Splits the values of a frontmatter, each on a line of its own, into sentences.
pub(super) fn split_values(bytes: &mut [u8]) -> Segments {
    let lines = line_ranges(bytes);
    let mut builder = Builder::new(bytes);
    for (start, end) in lines {
        split_sentences(&mut builder, start, end, FRONT);
    }
    builder.finish()
}

/// Splits a text without structure: one section with one block, and a statement for each line.
pub(super) fn split_lines(bytes: &mut [u8], place: u16) -> Segments {
    let lines = line_ranges(bytes);
    let mut builder = Builder::new(bytes);
    for line in lines {
        builder.add_statement(line.0, line.1, place);
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::super::spans::MAX_STATEMENT;
    use super::*;
    use crate::rule::place::{COMMENT, HEAD, HIDDEN, PROSE, TABLE};

    fn statements(text: &str, kind: Kind) -> Vec<(String, u16)> {
        let mut bytes = text.as_bytes().to_vec();
        let segments = split_text(&mut bytes, kind);
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
        let segments = split_text(&mut bytes, Kind::Markdown);
        let headings: Vec<_> = segments
            .statements
            .iter()
            .map(|span| String::from_utf8_lossy(segments.heading_above(&bytes, span)).into_owned())
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
        assert_eq!(split_text(&mut bytes, Kind::Code).blocks.len(), 3);
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
            ["first get the tool.", "Then run it", "; a ; b ;"],
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
                let segments = split_text(&mut bytes, kind);
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
