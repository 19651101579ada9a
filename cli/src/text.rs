//! Text for people: cleaning, counts, sizes and spelling suggestions.

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

/// Joins the texts of some items with commas.
pub fn join<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(", ")
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

/// Returns the number of the line that contains this byte, counted from 1.
pub fn line_of(text: &str, offset: usize) -> u32 {
    let before = text.bytes().take(offset);
    let line = before.filter(|byte| *byte == b'\n').count() + 1;
    u32::try_from(line).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_text_cannot_move_the_cursor() {
        for (text, shown) in [
            ("plain — text", "plain — text"),
            ("\u{1b}[31mred", "\u{fffd}[31mred"),
            (
                "a\u{202e}b\u{200b}c\r\n",
                "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}",
            ),
            ("1234567890123456", "123456789012345…"),
        ] {
            assert_eq!(clean(text, 15), shown);
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
