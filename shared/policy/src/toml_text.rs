//! A strict reader of settings in TOML, with line and column in every error.
//!
//! An unknown member is an error here, unlike in signed JSON: a typing error must not silently
//! change what a policy grants.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vault_format::text::{Position, quoted};

/// Largest text that is read, in bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// An error in a TOML text, with its position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TextError {
    /// The description, for people, in one sentence.
    pub message: String,
    /// The position, counted from 1.
    pub at: Position,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

impl std::error::Error for TextError {}

/// A step from a table or list to a value in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The member of this name.
    Key(String),
    /// The item with this index in a list, from 0.
    Item(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(item: usize) -> Self {
        Self::Item(item)
    }
}

/// A parsed text from which the position of each value can be looked up.
pub(crate) struct Located<'a> {
    text: &'a str,
    root: Spanned<DeTable<'a>>,
}

impl Located<'_> {
    /// Returns the position of the value at these steps. If it does not exist, returns the position
    /// of the last value on the way to it that does.
    pub fn position_of(&self, steps: &[Step]) -> Position {
        let mut offset = 0;
        let mut value: Option<&Spanned<DeValue<'_>>> = None;
        for step in steps {
            let next = match (step, value.map(Spanned::get_ref)) {
                (Step::Key(key), None) => self.root.get_ref().get(key.as_str()),
                (Step::Key(key), Some(DeValue::Table(table))) => table.get(key.as_str()),
                (Step::Item(item), Some(DeValue::Array(array))) => array.get(*item),
                _ => None,
            };
            let Some(next) = next else { break };
            offset = next.span().start;
            value = Some(next);
        }
        Position::of_offset(self.text, offset)
    }

    /// Creates an error about the value to which these steps lead.
    pub fn error_at(&self, steps: &[Step], message: impl Into<String>) -> TextError {
        TextError {
            message: message.into(),
            at: self.position_of(steps),
        }
    }
}

/// Reads a text as `T`. Fails on every member that `T` does not read. `T` must serialize every
/// member that it reads: that is how the others are found.
pub(crate) fn parse_strict<T: DeserializeOwned + Serialize>(
    text: &str,
) -> Result<(T, Located<'_>), TextError> {
    // Parsing twice and serializing once multiply the memory of a text.
    if text.len() > MAX_BYTES {
        let message = format!("the text has {} bytes; {MAX_BYTES} are allowed", text.len());
        return Err(TextError {
            message,
            at: Position::new(1, 1),
        });
    }
    let complain = |error: &toml::de::Error| TextError {
        message: vault_format::text::printable(error.message().trim_end()),
        at: Position::of_offset(text, error.span().map_or(0, |span| span.start)),
    };
    // Parsed twice, since `from_str` keeps no positions.
    let root = DeTable::parse(text).map_err(|error| complain(&error))?;
    let value: T = toml::from_str(text).map_err(|error| complain(&error))?;
    // A member that the type did not read is missing when the value is written out again. The
    // comparison finds unknown members without a second schema. It also finds a list in place of a
    // table, which serde would accept as the table's members in order.
    let read = serde_json::to_value(&value).map_err(|error| TextError {
        message: error.to_string(),
        at: Position::new(1, 1),
    })?;
    let located = Located { text, root };
    match find_unread_key(located.root.get_ref(), &read) {
        None => Ok((value, located)),
        Some((offset, message)) => Err(TextError {
            message,
            at: Position::of_offset(text, offset),
        }),
    }
}

fn find_unread_key(table: &DeTable<'_>, read: &Json) -> Option<(usize, String)> {
    table
        .iter()
        .find_map(|(key, value)| match read.get(key.get_ref().as_ref()) {
            None => Some((
                key.span().start,
                format!("unknown key {}", quoted(key.get_ref())),
            )),
            Some(read) => find_unread(value, read),
        })
}

fn find_unread(value: &Spanned<DeValue<'_>>, read: &Json) -> Option<(usize, String)> {
    match (value.get_ref(), read) {
        (DeValue::Table(table), Json::Object(_)) => find_unread_key(table, read),
        (DeValue::Array(array), Json::Array(items)) => array
            .iter()
            .zip(items)
            .find_map(|(value, read)| find_unread(value, read)),
        (DeValue::Table(_), _) => {
            Some((value.span().start, "a table is not allowed here".to_owned()))
        }
        (DeValue::Array(_), _) => {
            Some((value.span().start, "a list is not allowed here".to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize, Serialize)]
    struct Outer {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inner: Option<BTreeMap<String, Inner>>,
        #[serde(default)]
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize, Serialize)]
    struct Inner {
        name: String,
    }

    #[test]
    fn unknown_members_and_misplaced_lists_are_named_with_their_place() {
        let cases = [
            ("x = 1\n", "1:1: unknown key `x`"),
            (
                "[inner.a]\nname = \"n\"\nother = 2\n",
                "3:1: unknown key `other`",
            ),
            (
                "list = [{ name = \"a\" }, { name = \"b\", c = 1 }]\n",
                "1:39: unknown key `c`",
            ),
            ("[inner]\na = [\"n\"]\n", "2:5: a list is not allowed here"),
            (
                "[inner.a]\nname = 1\n",
                "2:8: invalid type: integer `1`, expected a string",
            ),
            (
                "[inner.a]\nname = \"n\"\nname = \"n\"\n",
                "3:1: duplicate key",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(
                parse_strict::<Outer>(text).err().unwrap().to_string(),
                message,
                "{text:?}"
            );
        }
    }

    #[test]
    fn values_are_found_again() {
        let text = "[inner.\"ä b\"]\nname = \"n\"\n\n[[list]]\nname = \"x\"\n";
        let (_, located) = parse_strict::<Outer>(text).unwrap();
        assert_eq!(
            located.position_of(&["inner".into(), "ä b".into(), "name".into()]),
            Position::new(2, 8)
        );
        assert_eq!(
            located.position_of(&["list".into(), 0.into(), "name".into()]),
            Position::new(5, 8)
        );
        assert_eq!(
            located.position_of(&["list".into(), 7.into()]),
            located.position_of(&["list".into()])
        );
    }
}
