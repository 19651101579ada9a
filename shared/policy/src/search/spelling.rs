//! Recognises words of a query that misspell a word of the index.

/// Shortest word that is corrected, in bytes.
const SHORTEST: usize = 5;
/// Length from which two mistakes are corrected instead of one, in bytes.
const LONG: usize = 9;

/// Tells whether a word is long enough, and of plain letters, so that its spelling can be
/// corrected.
pub(super) fn may_be_misspelled(word: &str) -> bool {
    word.len() >= SHORTEST && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Whether `word` differs from `known` by one mistake, or by two if it is long. A mistake is a
/// letter that is missing, added, or another one, or two that changed places.
pub(super) fn is_misspelling(word: &str, known: &str) -> bool {
    let allowed = if word.len() >= LONG { 2 } else { 1 };
    // Mistakes in the first letter are rare. The cheap comparisons come first, because every known
    // word is compared.
    known.len() + 1 >= SHORTEST
        && word.len().abs_diff(known.len()) <= allowed
        && word.as_bytes().first() == known.as_bytes().first()
        && strsim::osa_distance(word, known) <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_in_a_word_and_two_in_a_long_one() {
        let cases = [
            ("colum", "column", true),
            ("calnedar", "calendar", true),
            ("authentif", "authent", true),
            ("kubernets", "kubernet", true),
            ("cloumm", "column", false),
            ("alendar", "calendar", false),
            ("table", "tab", false),
        ];
        for (word, known, expected) in cases {
            assert_eq!(is_misspelling(word, known), expected, "{word} {known}");
        }
        assert!(may_be_misspelled("colum"));
        assert!(!may_be_misspelled("k8sss") && !may_be_misspelled("tabl"));
    }
}
