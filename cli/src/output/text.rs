//! Text for people: cleaning, counts, sizes and spelling suggestions.

use super::style::{DIM, GOOD, WARN, paint};

/// Makes untrusted text safe for a terminal. Control, bidirectional and zero-width characters
/// become U+FFFD, and the text is cut after `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(most)
        .map(|c| if is_deceptive(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

/// Whether a character controls a terminal, changes the writing direction or is invisible.
pub const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}')
}

/// Formats the names that a release added, changed and removed, one per line. Each kind shows at
/// most 20 names.
pub fn changes<T: std::fmt::Display>(added: &[T], changed: &[T], removed: &[T]) -> Vec<String> {
    const SHOWN: usize = 20;
    let mut lines = Vec::new();
    for (mark, style, names) in [
        ("+", GOOD, added),
        ("~", WARN, changed),
        ("-", DIM, removed),
    ] {
        for name in names.iter().take(SHOWN) {
            lines.push(format!("  {} {name}", paint(style, mark)));
        }
        if names.len() > SHOWN {
            lines.push(format!(
                "  {} and {} more",
                paint(style, mark),
                names.len() - SHOWN
            ));
        }
    }
    lines
}

/// Formats a byte count: `812 B`, `1.4 KiB`, `3.0 MiB`.
pub fn size(bytes: u64) -> String {
    let mut unit = "B";
    let mut tenths = bytes.saturating_mul(10);
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// Formats a number with its noun: `1 skill`, `2 skills`.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{} {noun}s", thousands(number))
    }
}

/// Formats a number with separators: `12,345`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the candidate closest to `written`, if it is close enough to be a misspelling.
pub fn nearest<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(written, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(written.len()) / 6)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_changes_of_one_kind_the_first_twenty_are_named() {
        let many: Vec<_> = (1..=22).map(|n| format!("skill-{n}")).collect();
        let lines = changes(&many, &many[..20], &[]);
        assert_eq!(lines.len(), 21 + 20);
        assert!(lines[19].ends_with(" skill-20"), "{}", lines[19]);
        assert!(lines[20].ends_with(" and 2 more"), "{}", lines[20]);
        assert!(lines[40].ends_with(" skill-20"), "{}", lines[40]);
    }

    #[test]
    fn outside_text_cannot_move_the_cursor() {
        for (text, shown) in [
            ("plain — text", "plain — text"),
            ("\u{1b}[31mred", "\u{fffd}[31mred"),
            (
                "a\u{202e}b\u{200b}c\r\n",
                "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}",
            ),
            ("12345678901", "1234567890…"),
        ] {
            assert_eq!(
                clean(text, if text.starts_with('1') { 10 } else { 80 }),
                shown
            );
        }
    }

    #[test]
    fn sizes_and_counts_read_well() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_500_000, "1.4 MiB"),
            (u64::MAX, "1677721.5 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!(count(1_u64, "skill"), "1 skill");
        assert_eq!(count(12_345_u64, "skill"), "12,345 skills");
        assert_eq!(count(0_u64, "skill"), "0 skills");
    }
}
