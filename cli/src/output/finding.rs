//! Renders findings of the gate (vault's scanner) in the style of compiler diagnostics: the rule,
//! the location, the line with a mark, the reason and the fix.
//!
//! Names and lines of skills pass through [`clean`] or an [`Excerpt`], so that untrusted text never
//! reaches the terminal unchanged.

use std::path::Path;

use annotate_snippets::{AnnotationKind, Group, Level as Shown, Origin, Snippet};
use vault_format::text::printable;
use vault_gate::{
    finding::{Finding, Level, View},
    report::{Excerpt, decode_text},
};

use super::{
    excerpt::diagnostic_renderer,
    style::{BAD, DIM, WARN, paint},
};
use crate::text::clean;

/// Maximum size of a file that is read for an excerpt, in bytes. It equals the gate's limit.
const MAX_BYTES: u64 = 4 << 20;

/// Renders a finding on several lines. `path` is the path of the file as shown to people, and
/// `source` the line to quote.
pub fn render_finding(path: &str, finding: &Finding, source: Option<&Excerpt>) -> String {
    render_diagnostic(path, finding, source, true)
}

/// Renders a finding like [`render_finding`], but without the reason and the fix: an earlier
/// finding of the same rule has shown them.
pub fn render_again(path: &str, finding: &Finding, source: Option<&Excerpt>) -> String {
    render_diagnostic(path, finding, source, false)
}

fn render_diagnostic(
    path: &str,
    finding: &Finding,
    source: Option<&Excerpt>,
    explained: bool,
) -> String {
    let level = match finding.level {
        Level::Note => Shown::NOTE,
        Level::Warning => Shown::WARNING,
        Level::Flag | Level::Error => Shown::ERROR,
    };
    let message = clean(&finding.message, 400);
    let path = clean(&printable(path), 300);
    let title = level.primary_title(&message).id(finding.rule);
    let mut group = match source {
        Some(source) => title.element(
            Snippet::source(source.text.as_str())
                .line_start(source.number as usize)
                .path(path)
                .annotation(AnnotationKind::Primary.span(source.mark.clone())),
        ),
        // A finding about the skill as a whole has no location.
        None if path.is_empty() => Group::with_title(title),
        None => title.element(match finding.position() {
            Some(at) => Origin::path(path)
                .line(at.line as usize)
                .char_column(at.column as usize),
            None => Origin::path(path),
        }),
    };
    // The rule matched a decoded form of the text, which the line above does not show.
    if finding.view != View::Raw {
        let text = format!("{}, it reads: {}", finding.view.as_str(), finding.excerpt);
        group = group.element(Shown::NOTE.message(clean(&text, 400)));
    }
    if let Some(way) = finding.way() {
        group = group.element(Shown::NOTE.message(clean(&way, 400)));
    }
    if explained && !finding.why.is_empty() {
        let text = format!("{} ({}, {})", finding.why, finding.id, finding.category);
        group = group.element(Shown::NOTE.message(text));
    }
    if explained && !finding.hint.is_empty() {
        group = group.element(Shown::HELP.message(clean(&finding.hint, 400)));
    }
    diagnostic_renderer().render(&[group])
}

/// Renders a finding on one line: location, level, message and rule.
pub fn render_line(path: &str, finding: &Finding) -> String {
    let mut place = clean(&printable(path), 300);
    if let Some(position) = finding.position() {
        place.push_str(&format!(":{position}"));
    }
    let level = match finding.level {
        Level::Note => paint(DIM, "note"),
        Level::Warning => paint(WARN, "warning"),
        Level::Flag | Level::Error => paint(BAD, "error"),
    };
    let message = clean(&finding.message, 400);
    format!(
        "{place}: {level}: {message} {}",
        paint(DIM, format_args!("({})", finding.rule))
    )
}

/// Reads the line of a file on disk that a finding concerns. Returns `None` unless the file is a
/// regular file within the gate's size limit.
pub fn excerpt_on_disk(path: &Path, finding: &Finding) -> Option<Excerpt> {
    let line = finding.line?;
    // Not `metadata`: with a link, a skill could make the excerpt show a file outside of it. A FIFO
    // would block the read below.
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Excerpt::of(&decode_text(&bytes), line, finding.column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_format::text::Position;
    use vault_gate::finding::structure_rules;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn finding() -> Finding {
        Finding::of(&structure_rules()[0], Level::Flag, "bad \u{1b}[2J")
            .on(Position::new(2, 3))
            .quoting(View::Decoded, "rm \u{202e}-rf")
            .hint("mend \u{7}it")
    }

    #[test]
    fn it_reads_as_compilers_write_and_paints_nothing() {
        let source = Excerpt::of("one\nab\u{1b}[31mcd\n", 2, Some(3));
        let shown = plain(&render_finding(
            "a\u{1b}[1m\n/x.sh",
            &finding(),
            source.as_ref(),
        ));
        insta::assert_snapshot!(shown, @r"
        error[action-command]: bad \u{1b}[2J
         --> a\u{1b}[1m\u{a}/x.sh:2:3
          |
        2 | ab\u{1b}[31mcd
          |   ^^^^^^
          |
          = note: decoded, it reads: rm \u{202e}-rf
          = help: mend \u{7}it
        ");
        let one_line = plain(&render_line("a\u{9b}x", &finding()));
        assert_eq!(
            one_line,
            "a\\u{9b}x:2:3: error: bad \\u{1b}[2J (action-command)"
        );
    }

    #[test]
    fn a_place_is_named_without_its_line_too_and_told_once() {
        let shown = plain(&render_again("x.sh", &finding(), None));
        insta::assert_snapshot!(shown, @r"
        error[action-command]: bad \u{1b}[2J
        --> x.sh:2:3
         = note: decoded, it reads: rm \u{202e}-rf
        ");
    }

    #[test]
    fn the_end_of_a_line_and_an_empty_line_can_be_meant() {
        for (text, column) in [("", 1), ("ab", 3), ("ab", 99), ("ä", 2)] {
            let source = Excerpt::of(text, 1, Some(column)).unwrap();
            let shown = plain(&render_finding("f", &finding(), Some(&source)));
            assert!(shown.contains(" --> f:1"), "{shown}");
        }
    }
}
