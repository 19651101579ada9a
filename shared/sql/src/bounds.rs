//! The range of keys of a list, in the form that both databases query.

use vault_store::records::{MAX_KEY_BYTES, prefix_end};

/// The keys from a first one on and before an end, without one excluded key.
pub struct KeyRange {
    pub start: String,
    pub exclude: Option<String>,
    pub end: String,
}

impl KeyRange {
    /// Returns the range of the keys that begin with `prefix` and are behind `after`.
    pub fn for_prefix(prefix: &str, after: Option<&str>) -> Self {
        Self {
            // `after` may be any key, also one before the prefix.
            start: after.unwrap_or_default().max(prefix).to_owned(),
            exclude: after.map(str::to_owned),
            // A key has at most 512 bytes, so none is behind a longer text of the last character.
            end: prefix_end(prefix)
                .unwrap_or_else(|| char::MAX.to_string().repeat(MAX_KEY_BYTES / 4 + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_lies_behind_the_last() {
        let bounds = KeyRange::for_prefix("", None);
        let last = char::MAX.to_string().repeat(MAX_KEY_BYTES / 4);
        assert!(last < bounds.end && bounds.start.is_empty() && bounds.exclude.is_none());
    }

    #[test]
    fn a_page_begins_at_the_later_of_prefix_and_last_key() {
        for (prefix, after, from) in [
            ("b", None, "b"),
            ("b", Some("a"), "b"),
            ("b", Some("bx"), "bx"),
            ("", Some("q"), "q"),
        ] {
            assert_eq!(
                KeyRange::for_prefix(prefix, after).start,
                from,
                "{prefix} {after:?}"
            );
        }
    }
}
