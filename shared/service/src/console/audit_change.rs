//! Describes the change of an audit entry in lines: `name: value`, or `name: before → after`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::difference::printable_line;

/// Maximum total length of the lines of one entry, in characters. A cut is marked with `…`; the
/// downloads have the whole entry.
const MAX_CHARS: usize = 200;
/// Number of hexadecimal digits that are shown of a hash.
const HASH_DIGITS: usize = 12;

/// Returns the lines about a change from `before` to `after`; none if the entry has neither.
pub(super) fn change_lines(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let mut room = MAX_CHARS;
    let mut lines = Vec::new();
    for line in describe_members(before, after) {
        let text: String = line.chars().take(room).collect();
        room -= text.chars().count();
        let is_cut = text.len() < line.len();
        lines.push(printable_line(&text) + if is_cut { "…" } else { "" });
        if is_cut {
            break;
        }
    }
    lines
}

/// Returns a line for each member of two objects, or one line for two values of another kind.
fn describe_members(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let none = Map::new();
    let object = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(none.clone()),
        Some(value) => value.as_object().cloned(),
    };
    let (Some(old), Some(new)) = (object(before), object(after)) else {
        return describe_change(before, after).into_iter().collect();
    };
    // A member that only `before` has was removed, so the names of both sides are taken.
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let line = |name: &String| {
        let value = describe_change(old.get(name), new.get(name))?;
        Some(format!("{}: {value}", name.replace('_', " ")))
    };
    names.into_iter().filter_map(line).collect()
}

/// Describes the change of one value; `None` if neither side has one.
fn describe_change(before: Option<&Value>, after: Option<&Value>) -> Option<String> {
    let is_set = |value: &&Value| !value.is_null();
    match (before.filter(is_set), after.filter(is_set)) {
        (None, None) => None,
        (Some(old), Some(new)) if old != new => {
            Some(format!("{} → {}", value_text(old), value_text(new)))
        }
        // A missing member says nothing about the value, so only an explicit null is shown as
        // `none`.
        (None, Some(new)) if before.is_some() => Some(format!("none → {}", value_text(new))),
        (Some(old), None) if after.is_some() => Some(format!("{} → none", value_text(old))),
        (_, Some(new)) => Some(value_text(new)),
        (Some(old), None) => Some(format!("{} (before)", value_text(old))),
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        // A role is stored with the prefix `role:`, which says nothing to the reader.
        Value::String(text) if text.starts_with("role:") => text["role:".len()..].to_owned(),
        Value::String(text) if is_hash(text) => format!("{}…", &text[..HASH_DIGITS]),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => join_texts(items.iter().map(value_text)),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}: {}", name.replace('_', " "), value_text(value))
            };
            format!("({})", join_texts(members.iter().map(member)))
        }
    }
}

fn join_texts(texts: impl Iterator<Item = String>) -> String {
    let mut joined = String::new();
    for text in texts {
        if !joined.is_empty() {
            // A text that is a sentence ends with a full stop, after which no comma may follow.
            joined.push_str(if joined.ends_with('.') { " " } else { ", " });
        }
        joined.push_str(&text);
    }
    joined
}

/// Whether a text is a SHA-256 hash in hexadecimal digits.
fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_written_as_names_and_values() {
        let hash = "ab".repeat(32);
        for (before, after, lines) in [
            (None, None, &[][..]),
            (
                Some(json!({ "status": "pending" })),
                Some(json!({ "status": "active" })),
                &["status: pending → active"],
            ),
            (
                None,
                Some(json!({ "status": "active", "code": "enc_1" })),
                &["code: enc_1", "status: active"],
            ),
            (
                Some(json!({ "email": "a@example.com" })),
                None,
                &["email: a@example.com (before)"],
            ),
            (
                Some(json!({ "mail": true })),
                Some(json!({ "mail": true })),
                &["mail: yes"],
            ),
            (
                Some(json!({ "state": "pending", "kind": "propose" })),
                Some(json!({ "state": "declined", "release": null })),
                &["kind: propose (before)", "state: pending → declined"],
            ),
            (
                Some(json!({ "quota_bytes": null, "profile": "team", "scopes": [] })),
                Some(json!({ "quota_bytes": 5, "profile": null, "scopes": ["read", "write"] })),
                &[
                    "profile: team → none",
                    "quota bytes: none → 5",
                    "scopes: none → read, write",
                ],
            ),
            (Some(json!(1)), Some(json!(2)), &["1 → 2"]),
            (
                None,
                Some(json!({ "acts": ["Delete the vault a.", "Remove b from a."] })),
                &["acts: Delete the vault a. Remove b from a."],
            ),
            (
                Some(Value::Null),
                Some(json!({ "sha256": hash })),
                &["sha256: abababababab…"],
            ),
            (
                None,
                Some(json!({ "subscription": { "state": "past_due", "until": "2026-12-01" } })),
                &["subscription: (state: past_due, until: 2026-12-01)"],
            ),
            (
                None,
                Some(json!({ "name": "a\u{202e}b" })),
                &["name: a\\u{202e}b"],
            ),
        ] {
            let found = change_lines(before.as_ref(), after.as_ref());
            assert_eq!(found, lines, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_long_change_is_cut_and_marked() {
        let after = json!({ "a": "x".repeat(150), "b": "y".repeat(150), "c": "z" });
        let lines = change_lines(None, Some(&after));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].ends_with("y…"), "{lines:?}");
        let chars: usize = lines.iter().map(|line| line.chars().count()).sum();
        assert_eq!(chars, MAX_CHARS + 1);
    }
}
