//! The styles of text on a terminal, named by their use.

use clap::builder::styling::{AnsiColor, Style};

/// Headings and names.
pub const BOLD: Style = Style::new().bold();
/// Secondary text.
pub const DIM: Style = Style::new().dimmed();
/// Marks and words for success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Marks and words for warnings.
pub const WARN: Style = AnsiColor::Yellow.on_default().bold();
/// Marks and words for errors.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Hints, and what the user has to find or compare: addresses and fingerprints.
pub const HINT: Style = AnsiColor::Cyan.on_default();

/// The mark before a good result: a check mark in [`GOOD`].
pub const TICK: &str = "\u{1b}[32m✓\u{1b}[0m";

/// Wraps text in the escape codes of a style.
pub fn paint(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_mark_has_the_style_of_success() {
        assert_eq!(TICK, paint(GOOD, "✓"));
    }
}
