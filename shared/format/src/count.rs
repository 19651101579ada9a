//! Formats numbers and counted nouns in messages for people.

/// Formats a number with its noun: `1 skill`, `2 skills`. For nouns whose plural ends with an `s`.
pub fn count(number: impl TryInto<u64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{} {noun}s", format_thousands(number))
    }
}

/// Formats a number with separators: `12,345`.
pub fn format_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        // Groups of three digits are counted from the right: 12,345.
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thing_has_no_plural() {
        assert_eq!(count(0_u64, "skill"), "0 skills");
        assert_eq!(count(1_usize, "skill"), "1 skill");
        assert_eq!(count(2_i64, "skill"), "2 skills");
        assert_eq!(count(12_345_u64, "skill"), "12,345 skills");
    }
}
