//! Confusable names: names that people may mistake for one another because they differ by one edit,
//! or only in look-alike letters.

use crate::finding::{Finding, Level, Rule, Severity};
use crate::look_alike::look_alike;
use vault_format::text::quoted;

/// Longest name that is compared, in bytes. Longer names are never reported.
const LONGEST: usize = 128;

/// Tells whether one insertion, deletion, replacement or swap of neighbours turns one name into the
/// other. Equal names are not one edit apart.
pub fn is_one_edit(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if a == b || long.len() - short.len() > 1 || long.len() > LONGEST {
        return false;
    }
    // The only edit must come directly after the common beginning, so it is enough to compare the
    // rests. No table of distances is needed.
    let same = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    let tail = |from_short: usize, from_long: usize| short[from_short..] == long[from_long..];
    if short.len() < long.len() {
        return tail(same, same + 1);
    }
    let swapped =
        same + 1 < short.len() && short[same] == long[same + 1] && short[same + 1] == long[same];
    tail(same + 1, same + 1) || (swapped && tail(same + 2, same + 2))
}

/// Returns the letters that confusable names have in common (their skeleton): look-alike letters
/// mapped, lower case, no separators, digits as the letters that they resemble.
fn skeleton(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter_map(|character| {
        let plain = look_alike(character).to_ascii_lowercase();
        Some(match plain {
            '0' => 'o',
            // The capital `I` looks like `l`, and case is gone here, so both become one letter.
            '1' | 'i' | '|' => 'l',
            '5' => 's',
            '_' | ' ' | '.' | '-' => return None,
            other => other,
        })
    })
}

/// Tells whether two different names are confusable: their skeletons are equal, or they have seven
/// letters or more and are one edit apart.
pub fn is_confusable(a: &str, b: &str) -> bool {
    PreparedName::new(a).is_confusable_with(b)
}

/// A name prepared for comparison with many others.
#[derive(Clone, Debug)]
pub struct PreparedName<'a> {
    name: &'a str,
    skeleton: Vec<char>,
}

impl<'a> PreparedName<'a> {
    /// Prepares a name for comparison.
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            skeleton: skeleton(name).collect(),
        }
    }

    /// Tells whether this name and another one are confusable; see [`is_confusable`].
    pub fn is_confusable_with(&self, other: &str) -> bool {
        let shortest = self.name.len().min(other.len());
        self.name != other
            // In a short name, one letter makes a different word (`git`, `gif`), so an edit counts
            // only from seven letters on.
            && (skeleton(other).eq(self.skeleton.iter().copied())
                || (shortest >= 7 && is_one_edit(self.name, other)))
    }
}

/// The rule about confusable names.
pub const LOOK_ALIKE: Rule = Rule {
    id: "VG-NM-001",
    name: "name-look-alike",
    category: "AST04",
    severity: Severity::Medium,
    why: "Who asks for one skill may get the other.",
};

/// Returns the warning for a name that is confusable with an existing one.
pub fn look_alike_warning(name: &str, other: &str) -> Finding {
    let message = format!(
        "{} is easily taken for {}, which is here already",
        quoted(name),
        quoted(other)
    );
    Finding::of(&LOOK_ALIKE, Level::Warning, message)
        .hint("choose a name that differs in more than one letter: `--name`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_edit_is_one_edit() {
        for (a, b) in [
            ("requests", "reqeusts"),
            ("lodash", "lodahs"),
            ("abc", "abcd"),
            ("abc", "bc"),
            ("abc", "axc"),
            ("", "a"),
        ] {
            assert!(is_one_edit(a, b) && is_one_edit(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("abc", "abc"),
            ("abc", "cba"),
            ("abc", "abcde"),
            ("abcd", "badc"),
            ("", ""),
        ] {
            assert!(!is_one_edit(a, b) && !is_one_edit(b, a), "{a} {b}");
        }
    }

    #[test]
    fn names_are_compared_as_the_eye_sees_them() {
        assert!(is_confusable("code-review", "code_review"));
        assert!(is_confusable("paypal-tools", "p\u{0430}ypal-tools"));
        assert!(is_confusable("code-review", "code-reviev"));
        assert!(is_confusable("git1ab", "gitlab"));
        assert!(!is_confusable("pdf", "pdg"));
        assert!(!is_confusable("same", "same"));
    }
}
