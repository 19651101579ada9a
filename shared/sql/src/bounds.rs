//! The range of keys that one listing reads, in the form that both databases query.

use vault_store::records::{MAX_KEY_BYTES, prefix_end};

/// A half-open range of keys: from `start` on, before `end`, and without `exclude`.
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
            // No key sorts after this text: it repeats the last character, and is longer than the
            // 512 bytes that a key may have.
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
