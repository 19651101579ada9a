//! Patterns of tool names with `*` for any text, matched in time linear in pattern and name.

/// A pattern. `*` stands for any text, including the empty one; everything else stands for itself.
#[derive(Clone, Debug)]
pub(super) struct Pattern(String);

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether the pattern matches this name.
    ///
    /// The name may also be the text of another pattern. The result then tells whether this pattern
    /// covers the other one: a `*` in that text is an ordinary character, which only a `*` of this
    /// pattern matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let Some(mut name) = name.strip_prefix(first) else {
            return false;
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        // Take the first match of each piece. It leaves the most text for the pieces after it, so
        // there is no need to try a later match.
        for piece in middle.split('*') {
            let Some(at) = name.find(piece) else {
                return false;
            };
            name = &name[at + piece.len()..];
        }
        name.ends_with(last)
    }

    /// Tells whether some name may match both patterns. In doubt the answer is `true`.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        match (self.fixed_ends(), other.fixed_ends()) {
            (None, _) => other.matches(&self.0),
            (_, None) => self.matches(&other.0),
            (Some((begin, end)), Some((other_begin, other_end))) => {
                // Compare only the ends. A wrong `true` adds an exclusion that excludes nothing; a
                // wrong `false` would hide that a tool is disabled.
                (begin.starts_with(other_begin) || other_begin.starts_with(begin))
                    && (end.ends_with(other_end) || other_end.ends_with(end))
            }
        }
    }

    /// Returns the text before the first `*` and after the last one.
    fn fixed_ends(&self) -> Option<(&str, &str)> {
        let (begin, rest) = self.0.split_once('*')?;
        Some((begin, rest.rsplit_once('*').map_or(rest, |(_, end)| end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, yes, no) in [
            ("Bash", &["Bash"][..], &["bash", "Bash2", ""][..]),
            ("*", &["", "x", "a*b"], &[]),
            (
                "github.*",
                &["github.", "github.issues"],
                &["github", "xgithub.a"],
            ),
            ("*.read", &[".read", "a.read"], &["a.reads"]),
            ("a*b*c", &["abc", "axbxc", "abcbc"], &["ab", "acb", "bac"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("**", &["", "x"], &[]),
            ("", &[""], &["x"]),
            ("ä*ß", &["äß", "äöß"], &["ä"]),
        ] {
            for name in yes {
                assert!(Pattern::new(pattern).matches(name), "{pattern} {name}");
            }
            for name in no {
                assert!(!Pattern::new(pattern).matches(name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn patterns_that_may_meet() {
        for (one, other, meet) in [
            ("Web*", "*", true),
            ("Web*", "WebFetch", true),
            ("Web*", "Bash", false),
            ("Web*", "github.*", false),
            ("*.read", "*.write", false),
            ("a*z", "ab*", true),
        ] {
            let (one, other) = (Pattern::new(one), Pattern::new(other));
            assert_eq!(one.may_meet(&other), meet, "{one:?} {other:?}");
            assert_eq!(other.may_meet(&one), meet, "{other:?} {one:?}");
        }
    }

    /// A slow matcher that follows the definition literally, to compare the fast one with.
    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|skip| naive(rest, &name[skip..])),
            Some((byte, rest)) => name.first() == Some(byte) && naive(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_is_what_it_says(pattern in "[ab*]{0,8}", other in "[ab*]{0,5}", name in "[ab]{0,10}") {
            let compiled = Pattern::new(&pattern);
            prop_assert_eq!(compiled.matches(&name), naive(pattern.as_bytes(), name.as_bytes()));
            let other = Pattern::new(&other);
            let both = compiled.matches(&name) && other.matches(&name);
            prop_assert!(!both || compiled.may_meet(&other) && other.may_meet(&compiled));
            prop_assert!(!(compiled.matches(other.as_str()) && other.matches(&name)) || compiled.matches(&name), "what covers a pattern covers its names");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_their_length() {
        // A matcher that backtracks would need longer than the age of the universe.
        let pattern = Pattern::new(&"a*".repeat(100_000));
        let name = "a".repeat(99_999) + "b";
        assert!(!pattern.matches(&name));
        assert!(pattern.matches(&"a".repeat(100_001)));
        let twisted = Pattern::new(&format!("*{}*{}", "ab".repeat(50_000), "a".repeat(50_000)));
        assert!(!twisted.matches(&"ab".repeat(100_000)));
    }
}
