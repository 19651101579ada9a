//! Names that are taken for others: one edit apart, or the same once look-alike letters are mapped.

use super::scan::look_alike;
use crate::finding::{Finding, Level, Rule, Severity, quoted};
use std::collections::{BTreeSet, HashMap};

/// The longest name that is compared, in bytes.
const LONGEST: usize = 128;

/// Whether one insertion, deletion, replacement or swap of neighbours makes one of the other; equal ones are not one edit apart.
pub fn is_one_edit(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if a == b || long.len() - short.len() > 1 || long.len() > LONGEST {
        return false;
    }
    let same = short.iter().zip(long).take_while(|(x, y)| x == y).count();
    let tail = |from_short: usize, from_long: usize| short[from_short..] == long[from_long..];
    if short.len() < long.len() {
        return tail(same, same + 1);
    }
    let swapped =
        same + 1 < short.len() && short[same] == long[same + 1] && short[same + 1] == long[same];
    tail(same + 1, same + 1) || (swapped && tail(same + 2, same + 2))
}

/// A name as the eye takes it: look-alike letters mapped, lower case, separators and digits that read as letters unified.
pub fn skeleton(name: &str) -> String {
    bones(name).collect()
}

fn bones(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter_map(|character| {
        let plain = look_alike(character).to_ascii_lowercase();
        Some(match plain {
            '0' => 'o',
            '1' | 'i' | '|' => 'l',
            '5' => 's',
            '_' | ' ' | '.' | '-' => return None,
            other => other,
        })
    })
}

/// Whether two different names are taken for one another: equal skeletons, or one edit apart at seven letters or more.
pub fn is_confusable(a: &str, b: &str) -> bool {
    Known::new(a).is_confusable_with(b)
}

/// A name that is compared with many others.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    name: &'a str,
    skeleton: Vec<char>,
}

impl<'a> Known<'a> {
    /// Of this name.
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            skeleton: bones(name).collect(),
        }
    }

    /// [`is_confusable`] of this name and another.
    pub fn is_confusable_with(&self, other: &str) -> bool {
        let shortest = self.name.len().min(other.len());
        self.name != other
            && (bones(other).eq(self.skeleton.iter().copied())
                || (shortest >= 7 && is_one_edit(self.name, other)))
    }
}

/// Names by what they are taken for: asking costs the same however many there are.
#[derive(Debug, Default)]
pub struct Names {
    names: Vec<String>,
    /// Numbers of names by their skeletons, and by what remains when one byte is left out.
    taken: HashMap<Vec<u8>, Vec<usize>>,
}

/// Names that are remembered for one thing that they are taken for.
const KEPT: usize = 64;

impl Names {
    /// Adds a name.
    pub fn add(&mut self, name: &str) {
        let number = self.names.len();
        for key in keys(name) {
            let numbers = self.taken.entry(key).or_default();
            if numbers.len() < KEPT {
                numbers.push(number);
            }
        }
        self.names.push(name.to_owned());
    }

    /// The first, by the alphabet, of the names that this one is taken for.
    pub fn confusable(&self, name: &str) -> Option<&str> {
        let known = Known::new(name);
        let numbers = keys(name)
            .into_iter()
            .filter_map(|key| self.taken.get(&key));
        numbers
            .flatten()
            .map(|number| self.names[*number].as_str())
            .filter(|other| known.is_confusable_with(other))
            .min()
    }
}

/// Two names that are taken for one another have one of these in common: one edit is undone by leaving out a byte of each.
fn keys(name: &str) -> BTreeSet<Vec<u8>> {
    let tagged = |tag: u8, bytes: &[u8]| [&[tag], bytes].concat();
    let mut keys = BTreeSet::from([tagged(0, skeleton(name).as_bytes())]);
    let bytes = name.as_bytes();
    if bytes.len() <= LONGEST {
        keys.insert(tagged(1, bytes));
        keys.extend((0..bytes.len()).map(|at| {
            let left_out = [&bytes[..at], &bytes[at + 1..]].concat();
            tagged(1, &left_out)
        }));
    }
    keys
}

/// The rule about names that are taken for others.
pub const LOOK_ALIKE: Rule = Rule {
    id: "VG-NM-001",
    name: "name-look-alike",
    category: "AST04",
    severity: Severity::Medium,
    why: "Who asks for one skill may get the other.",
};

/// The warning about a name that is taken for another one.
pub fn finding(name: &str, other: &str) -> Finding {
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

    #[test]
    fn a_look_up_says_what_a_comparison_with_all_says() {
        let all = [
            "code-review",
            "code_review",
            "code-reviev",
            "cod-review",
            "code-revview",
            "coed-review",
            "pdf",
            "pdg",
            "gitlab",
            "git1ab",
            "gitlabs",
            "reports",
            "report",
            "same-name",
            "p\u{0430}ypal-tools",
            "paypal-tools",
        ];
        let mut names = Names::default();
        for name in all {
            names.add(name);
        }
        for name in all
            .into_iter()
            .chain(["code-revie", "ode-review", "nothing-near", ""])
        {
            let expected = all
                .into_iter()
                .filter(|other| is_confusable(name, other))
                .min();
            assert_eq!(names.confusable(name), expected, "{name}");
        }
    }
}
