//! Versions of skills and ranges of them: three numbers, compared one after the other.
//!
//! A version with anything behind the numbers (a pre-release, a build) is in no range. So two ranges
//! have an exact intersection, and no range takes a version that its author calls unfinished.

use std::fmt;
use std::str::FromStr;

use vault_format::text::quoted;

/// A version of three numbers.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version([u64; 3]);

impl Version {
    /// Reads a version or the name of a tag: three numbers, perhaps with a `v` before them. `None`
    /// for every other text.
    pub fn of_tag(text: &str) -> Option<Self> {
        let parts = numbers(text.strip_prefix('v').unwrap_or(text))?;
        Some(Self(<[u64; 3]>::try_from(parts).ok()?))
    }

    /// Returns the lowest version that differs from this one at this number (0 to 2) or before.
    fn after(self, place: usize) -> Option<Self> {
        let mut next = [0; 3];
        next[..=place].copy_from_slice(&self.0[..=place]);
        next[place] = next[place].checked_add(1)?;
        Some(Self(next))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// A range of versions that contains at least one: `^1.2`, `~1.2`, `>=1.2 <1.5`, `=1.2.3`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct VersionRange {
    from: Version,
    /// The first version above the range; `None` if it is open.
    below: Option<Version>,
    /// The range as its author wrote it.
    text: String,
}

impl VersionRange {
    /// Whether a version is in the range.
    pub fn contains(&self, version: Version) -> bool {
        self.from <= version && self.below.is_none_or(|below| version < below)
    }

    /// Returns the versions that are in both ranges; `None` if there are none.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let from = self.from.max(other.from);
        let below = match (self.below, other.below) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        below.is_none_or(|below| from < below).then(|| {
            let mut range = Self {
                from,
                below,
                text: String::new(),
            };
            range.text = range.bounds();
            range
        })
    }

    /// Formats the lowest version, and the first one above the range if there is one.
    pub fn bounds(&self) -> String {
        match self.below {
            Some(below) => format!(">={} <{below}", self.from),
            None => format!(">={}", self.from),
        }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for VersionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("is no range of versions in {}", quoted(text));
        let mut whole: Option<Self> = None;
        // The bounds are few, so that a long text costs nothing.
        let words: Vec<&str> = text.split_whitespace().take(5).collect();
        if words.is_empty() || words.len() > 4 {
            return Err(refuse());
        }
        for word in words {
            let part = comparison(word).ok_or_else(refuse)?;
            let excluded = || format!("excludes every version with {}", quoted(text));
            whole = Some(match whole {
                Some(whole) => whole.intersect(&part).ok_or_else(excluded)?,
                None => part,
            });
        }
        let range = whole.ok_or_else(refuse)?;
        if range.below.is_some_and(|below| below <= range.from) {
            return Err(format!("excludes every version with {}", quoted(text)));
        }
        Ok(Self {
            text: text.to_owned(),
            ..range
        })
    }
}

/// Reads one comparison, such as `>=1.2`. Numbers that are left out are 0, and a bound above or an
/// equality covers all versions that begin with the numbers that are there.
fn comparison(word: &str) -> Option<VersionRange> {
    let digits = word.find(|c: char| c.is_ascii_digit() || c == 'v')?;
    let (sign, stated) = word.split_at(digits);
    let parts = numbers(stated.strip_prefix('v').unwrap_or(stated))?;
    let last = parts.len() - 1;
    let mut full = [0; 3];
    full[..=last].copy_from_slice(&parts);
    let version = Version(full);
    let zero = Version([0; 3]);
    let (from, below) = match sign {
        ">=" => (version, None),
        ">" => (version.after(last)?, None),
        "<" => (zero, Some(version)),
        "<=" => (zero, Some(version.after(last)?)),
        "=" => (version, Some(version.after(last)?)),
        // The last number may grow, or the last but one if all three are there.
        "~" => (version, Some(version.after(last.min(1))?)),
        // The first number that is not 0 stays.
        "^" => {
            let place = parts.iter().position(|part| *part > 0).unwrap_or(last);
            (version, Some(version.after(place)?))
        }
        _ => return None,
    };
    Some(VersionRange {
        from,
        below,
        text: String::new(),
    })
}

/// Reads one to three numbers with dots between them.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let parts: Vec<&str> = text.splitn(4, '.').collect();
    if parts.len() > 3 {
        return None;
    }
    let number = |part: &&str| {
        // `parse` would also take a sign. A leading zero would give a version two texts.
        let is_plain = part.len() == 1 || !part.starts_with('0');
        let is_number = is_plain && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    parts.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns: the range, and its bounds.
    const RANGES: &str = "\
^1.2.3 | >=1.2.3 <2.0.0
^1 | >=1.0.0 <2.0.0
^0.2 | >=0.2.0 <0.3.0
^0.0.3 | >=0.0.3 <0.0.4
^0 | >=0.0.0 <1.0.0
^0.0 | >=0.0.0 <0.1.0
~1.2.3 | >=1.2.3 <1.3.0
~1.2 | >=1.2.0 <1.3.0
~1 | >=1.0.0 <2.0.0
=1.2 | >=1.2.0 <1.3.0
>=1.2 <1.5 | >=1.2.0 <1.5.0
>1.2 <=2 | >=1.3.0 <3.0.0
>=v1.2.3 | >=1.2.3
<2 | >=0.0.0 <2.0.0";

    fn range(text: &str) -> VersionRange {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_have_the_bounds_that_their_signs_say() {
        for row in RANGES.lines() {
            let (text, bounds) = row.split_once(" | ").unwrap();
            assert_eq!(range(text).bounds(), bounds, "{text}");
            assert_eq!(range(text).to_string(), text);
        }
        for text in [
            "",
            "1.2",
            "^",
            "^1.2.3.4",
            "^1.x",
            ">>1",
            "^01",
            "^1.2-beta",
            "^-1",
            "^+1",
            "^18446744073709551615",
            "^18446744073709551616",
            "<0",
            ">=2 <1",
            ">=1 <1",
            ">=1 >=1 >=1 >=1 >=1",
            "^é",
        ] {
            assert!(text.parse::<VersionRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_contains_released_versions_between_its_bounds() {
        let within = range("^1.2");
        for (tag, is_in) in [
            ("v1.2.0", true),
            ("1.9.9", true),
            ("v2.0.0", false),
            ("1.1.9", false),
        ] {
            assert_eq!(
                within.contains(Version::of_tag(tag).unwrap()),
                is_in,
                "{tag}"
            );
        }
        for tag in [
            "v1",
            "1.2",
            "1.2.3-rc1",
            "1.2.3.4",
            "main",
            "V1.2.3",
            "v01.2.3",
            "vv1.2.3",
        ] {
            assert_eq!(Version::of_tag(tag), None, "{tag}");
        }
    }

    #[test]
    fn two_ranges_meet_or_exclude_each_other() {
        let meet = |one: &str, two: &str| range(one).intersect(&range(two));
        assert_eq!(meet("^1.2", "<1.5").unwrap().to_string(), ">=1.2.0 <1.5.0");
        assert_eq!(meet("^1", "^2"), None);
        assert_eq!(meet("<2", ">=2"), None);
        assert_eq!(meet(">=1", ">=2").unwrap().bounds(), ">=2.0.0");
    }
}
