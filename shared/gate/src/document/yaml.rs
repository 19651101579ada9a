//! Parses frontmatter into a tree in which every node knows its position.
//!
//! Reading is strict: no anchors, aliases or merge keys, no second document, no repeated key at any
//! depth. This module never writes YAML.

use crate::finding::is_hidden;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};
use std::fmt;
use vault_format::text::{Position, quoted};

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub value: Value,
    pub at: Position,
}

/// A value of YAML 1.2; numbers and booleans are kept apart from text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Node>),
    /// Members in the order of the text; keys are unique.
    Map(Vec<Member>),
}

/// One member of a map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    pub key: String,
    pub key_at: Position,
    pub node: Node,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        // The position is not part of the value: equal data in another place is equal.
        self.value == other.value
    }
}

/// The error for a text that is not YAML, or uses a feature of it that this module rejects.
#[derive(Debug)]
pub(super) struct YamlError {
    pub message: String,
    pub at: Option<Position>,
}

/// Parses one document. Positions count from the first line of `text`.
pub(super) fn parse_yaml(text: &str) -> Result<Node, YamlError> {
    let error = match parse_strictly(text) {
        Ok(node) => return Ok(node),
        Err(error) => error,
    };
    // Try this only after the strict reading has failed, so that valid YAML never gets another
    // meaning. If this fails too, report the first error, which fits the author's text.
    indent_continuations(text)
        .and_then(|text| parse_strictly(&text).ok())
        .ok_or(error)
}

/// Inserts a space before each line that continues a quoted value of a top-level key at the left
/// margin. YAML requires that space; other parsers do not, and read the same value. Returns `None`
/// if there is no such line.
fn indent_continuations(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut open = None;
    let mut is_changed = false;
    for line in text.lines() {
        let inside = match open {
            // A line of dashes or dots ends every quotation in YAML, so this text has another
            // fault.
            Some(_) if line.starts_with("---") || line.starts_with("...") => return None,
            Some(mark) => {
                if line.starts_with(|c: char| !c.is_whitespace()) {
                    out.push(' ');
                    is_changed = true;
                }
                Some((mark, line))
            }
            None => line
                .split_once(": ")
                .filter(|(key, _)| !key.starts_with([' ', '\t', '#', '"', '\'', '-']))
                .and_then(|(_, value)| {
                    let value = value.trim_start();
                    let mark = value.chars().next().filter(|c| matches!(c, '"' | '\''))?;
                    Some((mark, &value[1..]))
                }),
        };
        open = inside.and_then(|(mark, rest)| (!closes_quotation(rest, mark)).then_some(mark));
        out.push_str(line);
        out.push('\n');
    }
    is_changed.then_some(out)
}

/// Tells whether a value in these quotation marks ends in the rest of a line.
fn closes_quotation(rest: &str, mark: char) -> bool {
    let mut letters = rest.chars().peekable();
    while let Some(letter) = letters.next() {
        // In double quotes a backslash escapes the next character; in single quotes a mark is
        // escaped by doubling it.
        if mark == '"' && letter == '\\' {
            letters.next();
        } else if letter == mark && (mark == '"' || letters.next_if_eq(&mark).is_none()) {
            return true;
        }
    }
    false
}

fn parse_strictly(text: &str) -> Result<Node, YamlError> {
    let options = serde_saphyr::options! {
        // `no` and `off` stay text, as in YAML 1.2.
        strict_booleans: true,
        // Parsers differ about merged and repeated keys, so an agent could read another value than
        // the gate judged.
        merge_keys: MergeKeyPolicy::Error,
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            // Allow no anchors and aliases: nested aliases expand exponentially.
            max_anchors: 0,
            max_aliases: 0,
            max_depth: 32,
            max_nodes: 4096,
            max_documents: 1,
        },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| YamlError {
        at: error.location().map(to_position),
        message: describe_error(error.without_snippet()),
    })
}

/// Describes the fault for the author of a skill, without its position, which the finding states.
fn describe_error(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    use serde_saphyr::budget::BudgetBreach;
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {} stands here a second time", quoted(key))
        }
        Error::DuplicateMappingKey { .. } => "a key stands here a second time".to_owned(),
        Error::MergeKeyNotAllowed { .. } => "merge keys (`<<`) are not read".to_owned(),
        Error::UnknownAnchor { .. } => {
            "a value that begins with `*` is an alias, and aliases are not read".to_owned()
        }
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Anchors { .. } => {
                "a value that begins with `&` is an anchor, and anchors are not read".to_owned()
            }
            BudgetBreach::Aliases { .. } => {
                "a value that begins with `*` is an alias, and aliases are not read".to_owned()
            }
            BudgetBreach::Documents { .. } => "a second document begins here".to_owned(),
            BudgetBreach::Depth { .. } => "values are nested deeper than 32 levels".to_owned(),
            BudgetBreach::Nodes { .. } => "there are more than 4,096 values".to_owned(),
            _ => "the text is larger than the vault reads".to_owned(),
        },
        other => {
            let text = other.to_string();
            let line = text.lines().next().unwrap_or_default();
            // The parser appends a position that counts from the frontmatter's first line, which
            // would be wrong for the file.
            line.split_once(" at line ")
                .map_or(line, |(message, _)| message)
                .to_owned()
        }
    }
}

fn to_position(location: Location) -> Position {
    let number = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).max(1);
    Position::new(number(location.line()), number(location.column()))
}

impl Node {
    /// Returns the kind of the value as messages name it.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Converts the node to JSON, without positions. Keys stay text.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.clone().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(members) => members
                .iter()
                .map(|member| (member.key.clone(), member.node.to_json()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    /// Returns the position of the first text or key below this node that holds U+0000. Other
    /// programs cut a text there, or fail.
    pub fn first_nul(&self) -> Option<Position> {
        match &self.value {
            Value::Text(text) => text.contains('\0').then_some(self.at),
            Value::List(items) => items.iter().find_map(Node::first_nul),
            Value::Map(members) => members.iter().find_map(|member| {
                if member.key.contains('\0') {
                    Some(member.key_at)
                } else {
                    member.node.first_nul()
                }
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }
}

/// Collects invisible characters, one for each text or key that has any.
pub(super) fn collect_hidden(node: &Node, hidden_characters: &mut Vec<(Position, char)>) {
    match &node.value {
        Value::Text(text) => {
            hidden_characters.extend(first_hidden(text).map(|character| (node.at, character)));
        }
        Value::List(items) => items
            .iter()
            .for_each(|item| collect_hidden(item, hidden_characters)),
        Value::Map(members) => members.iter().for_each(|member| {
            hidden_characters
                .extend(first_hidden(&member.key).map(|character| (member.key_at, character)));
            collect_hidden(&member.node, hidden_characters);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the first invisible character. Ignores line ends and tabs, and tag characters after a
/// black flag, which form the flags of England, Scotland and Wales.
fn first_hidden(text: &str) -> Option<char> {
    let mut flag = false;
    text.chars().find(|&character| {
        flag = character == '\u{1F3F4}' || (flag && matches!(character, '\u{E0000}'..='\u{E007F}'));
        is_hidden(character) && !flag && !matches!(character, '\t' | '\n' | '\r')
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            value: spanned.value,
            at: to_position(spanned.referenced),
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// The visitor of a value of any kind.
struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        // Larger numbers than 64 bits become text, so that no digit is lost.
        Ok(Value::Text(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // NaN and infinity are no numbers of JSON.
        Ok(serde_json::Number::from_f64(value)
            .map_or_else(|| Value::Text(value.to_string()), Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = access.next_key::<Spanned<String>>()? {
            members.push(Member {
                key_at: to_position(key.referenced),
                key: key.value,
                node: access.next_value()?,
            });
        }
        Ok(Value::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_keep_their_kind() {
        let text = "a: .nan\nb: 1_000\nc: no\nd: 1e3\ne: true\nf: 2024-01-01\ng: ~\nh: '1'\n1: x\n";
        let json = serde_json::json!({
            "a": ".nan", "b": 1000, "c": "no", "d": 1000.0, "e": true, "f": "2024-01-01", "g": null, "h": "1", "1": "x",
        });
        assert_eq!(parse_yaml(text).unwrap().to_json(), json);
    }

    #[test]
    fn every_member_knows_its_place() {
        let node = parse_yaml("a: 1\nb:\n  c: [x, y]\n").unwrap();
        let Value::Map(members) = node.value else {
            panic!("a map")
        };
        assert_eq!(
            (members[0].key_at, members[0].node.at),
            (Position::new(1, 1), Position::new(1, 4))
        );
        let Value::Map(inner) = &members[1].node.value else {
            panic!("a map")
        };
        assert_eq!(
            (inner[0].key_at, inner[0].node.at),
            (Position::new(3, 3), Position::new(3, 6))
        );
        let Value::List(items) = &inner[0].node.value else {
            panic!("a list")
        };
        assert_eq!(items[1].at, Position::new(3, 10));
    }

    #[test]
    fn what_is_not_read_is_refused_with_its_place() {
        let cases = [
            (
                "a: 1\na: 2\n",
                "the key `a` stands here a second time",
                (2, 1),
            ),
            (
                "a: {b: 1, b: 2}\n",
                "the key `b` stands here a second time",
                (1, 11),
            ),
            (
                "a: &x 1\n",
                "a value that begins with `&` is an anchor, and anchors are not read",
                (1, 7),
            ),
            (
                "a: *x\n",
                "a value that begins with `*` is an alias, and aliases are not read",
                (1, 4),
            ),
            ("<<: {a: 1}\n", "merge keys (`<<`) are not read", (1, 1)),
            ("a: 1\n---\nb: 2\n", "a second document begins here", (2, 1)),
            (
                "a: b: c\n",
                "mapping values are not allowed in this context",
                (1, 5),
            ),
            ("a: [1,2\n", "unclosed bracket '['", (1, 4)),
        ];
        for (text, message, (line, column)) in cases {
            let error = parse_yaml(text).unwrap_err();
            assert_eq!(error.message, message, "{text:?}");
            assert_eq!(error.at, Some(Position::new(line, column)), "{text:?}");
        }
    }

    #[test]
    fn quoted_values_may_go_on_at_the_left_margin() {
        for (text, value) in [
            ("a: \"one\ntwo\"\nb: 1\n", "one two"),
            ("a: 'it''s\n\ntwo: three'\nb: 1\n", "it's\ntwo: three"),
            ("a: \"say \\\"x\ny\\\"\"\nb: 1\n", "say \"x y\""),
        ] {
            let json = parse_yaml(text).unwrap().to_json();
            assert_eq!(json, serde_json::json!({ "a": value, "b": 1 }), "{text:?}");
        }
        for text in [
            "a: \"one\n---\ntwo\"\n",
            "a: \"one\ntwo\n",
            "a: one\n\"two\"\n",
        ] {
            assert!(parse_yaml(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn bombs_are_stopped() {
        let deep = format!("a: {}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(parse_yaml(&deep).is_err());
        let wide = format!("a: [{}]", "1,".repeat(5000));
        assert_eq!(
            parse_yaml(&wide).unwrap_err().message,
            "there are more than 4,096 values"
        );
        let mut laugh = "a: &a [x, x]\n".to_owned();
        for (new, old) in "bcdefghi".chars().zip("abcdefgh".chars()) {
            laugh.extend([format!("{new}: &{new} [*{old}, *{old}]\n")]);
        }
        assert!(parse_yaml(&laugh).is_err());
    }

    #[test]
    fn nul_is_found_at_any_depth() {
        let node = parse_yaml("a: [x, {b: \"\\0\"}]\n").unwrap();
        assert_eq!(node.first_nul(), Some(Position::new(1, 12)));
        assert_eq!(parse_yaml("a: b\n").unwrap().first_nul(), None);
    }

    #[test]
    fn hidden_characters_are_found_with_their_place() {
        let node = parse_yaml(
            "a: x\nb: [\"y\\u202e\", \"\\U000E0041\"]\n\"\\e\": 1\nc: |\n  line\n  \tend\n",
        )
        .unwrap();
        let mut found = Vec::new();
        collect_hidden(&node, &mut found);
        let wanted = [
            (Position::new(2, 5), '\u{202E}'),
            (Position::new(2, 16), '\u{E0041}'),
            (Position::new(3, 1), '\u{1B}'),
        ];
        assert_eq!(found, wanted);
        assert_eq!(
            first_hidden("\u{1F3F4}\u{E0067}\u{E007F} ok \u{1F468}\u{200D}\u{1F469}"),
            None
        );
        assert_eq!(first_hidden("\u{1F3F4}x\u{E0067}"), Some('\u{E0067}'));
    }
}
