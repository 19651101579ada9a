//! Cursors of lists: texts that tell where the next page begins.
//!
//! A cursor names the last skill of the previous page instead of its position, so paging continues
//! at the right skill even if skills are added or removed meanwhile.

use vault_format::name::SkillName;

/// Beginning of each cursor. Without it, every text that is a valid name would pass for a cursor,
/// and a wrong one would be an empty page instead of an error.
const PREFIX: &str = "after:";

/// Returns the cursor of the page behind this skill.
pub fn write_cursor(last: &SkillName) -> String {
    format!("{PREFIX}{last}")
}

/// Parses a cursor. Returns `None` for a text that no list returns as a cursor.
pub fn parse_cursor(text: &str) -> Option<SkillName> {
    text.strip_prefix(PREFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cursor_of_an_answer_is_parsed() {
        let name: SkillName = "pdf".parse().unwrap();
        assert_eq!(parse_cursor(&write_cursor(&name)), Some(name));
        for other in ["", "x", "pdf", "after:", "after:No Name", "AFTER:pdf"] {
            assert_eq!(parse_cursor(other), None, "{other}");
        }
    }
}
