//! Converts records to DynamoDB items and back.
//!
//! | attribute | holds |
//! |---|---|
//! | `pk`, `sk` | partition and key |
//! | `r` | the revision |
//! | `d` | the document's text without its counters; an item without `d` is the tombstone of a deleted record |
//! | `n_<name>` | a counter: an integer member of the document with a counter's name, so that a `Count` adds to it |
//! | `x` | the names, between spaces, of members that have a counter's name and hold no integer |
//! | `e` | the second from which on the record is absent |
//! | `ttl` | the second from which on DynamoDB may collect the item |
//!
//! A document is text, not a DynamoDB map: a map changes numbers (`1.0`, `1e300`) and knows no
//! empty names.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Map, Value};
use vault_format::time::Timestamp;
use vault_store::StoreError;
use vault_store::records::{Document, MAX_FIELD_BYTES, Record, RecordKey};

/// The attribute that holds a record's partition.
pub const PARTITION_KEY: &str = "pk";
/// The attribute that holds a record's key.
pub const SORT_KEY: &str = "sk";
/// The attribute with the time, in seconds since 1970, after which DynamoDB deletes the item.
pub const TTL_ATTRIBUTE: &str = "ttl";

pub(super) const REVISION: &str = "r";
pub(super) const DOCUMENT: &str = "d";
pub(super) const EXPIRES: &str = "e";
pub(super) const NOT_COUNTERS: &str = "x";
const COUNTER: &str = "n_";

/// Time in seconds for which an item is kept after it expired or was deleted. The first revision of
/// a new record is made from the clock; the old item must be there for comparison as long as
/// another machine's clock, running ahead, could have given it a higher revision.
const KEPT_SECONDS: i64 = 86_400;

/// An item in the form of the SDK.
pub(super) type Item = HashMap<String, AttributeValue>;

/// Returns the name of the attribute that holds the counter `field`.
pub(super) fn counter_attribute(field: &str) -> String {
    format!("{COUNTER}{field}")
}

pub(super) fn number_value(value: impl Copy + ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(super) fn key_attributes(key: &RecordKey) -> Item {
    HashMap::from([
        (PARTITION_KEY.to_owned(), text_value(&key.partition)),
        (SORT_KEY.to_owned(), text_value(&key.key)),
    ])
}

pub(super) fn text_value(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// Creates the item of a document. Fails with `Invalid` if the document is not a JSON object.
pub(super) fn record_item(
    key: &RecordKey,
    revision: u64,
    document: &Document,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Item, StoreError> {
    let mut members: Map<String, Value> = serde_json::from_str(document.as_str())
        .map_err(|error| StoreError::invalid(format!("not a document: {error}")))?;
    let mut item = key_attributes(key);
    let mut not_counters = String::from(" ");
    // Counters are attributes of their own, because an update can only add to an attribute, not to
    // a part of the document's text.
    members.retain(|name, value| {
        if !is_counter(name) {
            return true;
        }
        match value.as_i64() {
            Some(count) => {
                item.insert(counter_attribute(name), number_value(count));
                false
            }
            None => {
                not_counters.push_str(name);
                not_counters.push(' ');
                true
            }
        }
    });
    item.insert(
        DOCUMENT.to_owned(),
        text_value(&Value::Object(members).to_string()),
    );
    // The list of names begins and ends with a space, so that `contains` with spaces around a name
    // matches whole names only.
    item.insert(NOT_COUNTERS.to_owned(), AttributeValue::S(not_counters));
    item.insert(REVISION.to_owned(), number_value(revision));
    if let Some(end) = expires_at {
        let collected = end.unix().max(now.unix()).saturating_add(KEPT_SECONDS);
        item.insert(EXPIRES.to_owned(), number_value(end.unix()));
        item.insert(TTL_ATTRIBUTE.to_owned(), number_value(collected));
    }
    Ok(item)
}

/// Creates the item that keeps the revision of a deleted record for a while.
pub(super) fn tombstone_item(key: &RecordKey, revision: u64, now: Timestamp) -> Item {
    // A revision from a clock that runs ahead is kept until a day after that clock's time.
    let of_revision = i64::try_from((revision >> super::REVISION_BITS) / 1000).unwrap_or(i64::MAX);
    let collected = now.unix().max(of_revision).saturating_add(KEPT_SECONDS);
    let mut item = key_attributes(key);
    item.insert(REVISION.to_owned(), number_value(revision));
    item.insert(TTL_ATTRIBUTE.to_owned(), number_value(collected));
    item
}

/// The content of an item: its revision, and its record unless that is deleted or expired.
#[derive(Clone, Debug)]
pub(super) struct StoredItem {
    /// The revision, also if the record is deleted or expired.
    pub(super) revision: u64,
    /// The live record, if there is one.
    pub(super) record: Option<Record>,
}

impl StoredItem {
    /// Parses the item under `key`. Fails with `Corrupt` if it was not written by this adapter.
    pub(super) fn parse_item(
        key: RecordKey,
        item: &Item,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let damaged = |what: &str| StoreError::Corrupt(format!("the item {key} has {what}"));
        let integer = |name: &str| match item.get(name) {
            None => Ok(None),
            Some(value) => match value.as_n().ok().and_then(|n| n.parse::<i64>().ok()) {
                Some(value) => Ok(Some(value)),
                None => Err(damaged("a number that does not read")),
            },
        };
        let revision = integer(REVISION)?
            .and_then(|revision| u64::try_from(revision).ok())
            .ok_or_else(|| damaged("no revision"))?;
        let expires_at = integer(EXPIRES)?.map(Timestamp::from_unix);
        let document = match item.get(DOCUMENT) {
            None => None,
            Some(value) => Some(
                value
                    .as_s()
                    .map_err(|_| damaged("a document that is no text"))?,
            ),
        };
        // An expired record is absent at once; DynamoDB may collect it days later.
        let Some(document) = document.filter(|_| expires_at.is_none_or(|end| end > now)) else {
            return Ok(Self {
                revision,
                record: None,
            });
        };
        let document = with_counters(document, item).ok_or_else(|| damaged("an odd document"))?;
        Ok(Self {
            revision,
            record: Some(Record {
                key,
                revision,
                expires_at,
                document,
            }),
        })
    }
}

/// Returns the key of a listed item. Fails with `Corrupt` if a part of it is missing or not text.
pub(super) fn key_of(item: &Item) -> Result<RecordKey, StoreError> {
    let part = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    match (part(PARTITION_KEY), part(SORT_KEY)) {
        (Some(partition), Some(key)) => Ok(RecordKey::new(partition, key)),
        _ => Err(StoreError::Corrupt("an item without its key".to_owned())),
    }
}

/// Returns the document with its counters put back before its other members. The names of counters
/// need no escaping.
fn with_counters(text: &str, item: &Item) -> Option<Document> {
    let rest = text.strip_prefix('{')?;
    let mut whole = String::with_capacity(text.len() + 16);
    whole.push('{');
    for (name, value) in item {
        let Some(field) = name.strip_prefix(COUNTER) else {
            continue;
        };
        let value = value.as_n().ok()?.parse::<i64>().ok()?;
        if whole.len() > 1 {
            whole.push(',');
        }
        whole.push_str(&format!("\"{field}\":{value}"));
    }
    if whole.len() > 1 && rest != "}" {
        whole.push(',');
    }
    whole.push_str(rest);
    Some(Document::from_stored(whole))
}

/// Returns whether a `Count` may use this member.
fn is_counter(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=MAX_FIELD_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(1_795_219_200);

    fn round(value: &Value) -> Value {
        let key = RecordKey::new("p", "k");
        let document = Document::from_value(value).unwrap();
        let item = record_item(&key, 7, &document, None, NOW).unwrap();
        let held = StoredItem::parse_item(key, &item, NOW).unwrap();
        held.record.unwrap().read().unwrap()
    }

    #[test]
    fn a_document_survives_being_an_item() {
        for value in [
            json!({}),
            json!({"n": 1}),
            json!({"a": "1", "n": 1, "m": -2}),
            json!({"": 1, "Big": 2, "ok": i64::MIN, "no": u64::MAX, "half": 1.5, "one": 1.0}),
            json!({"deep": {"n": 1}, "list": [1, 2], "null": null}),
        ] {
            assert_eq!(round(&value), value);
        }
    }

    #[test]
    fn integers_with_a_counter_s_name_become_counters() {
        let key = RecordKey::new("p", "k");
        let document =
            Document::from_value(&json!({"n": 1, "N": 2, "text": "3", "x": {}})).unwrap();
        let item = record_item(&key, 7, &document, None, NOW).unwrap();
        assert_eq!(item.get("n_n"), Some(&number_value(1)));
        let others = item[NOT_COUNTERS].as_s().unwrap();
        let mut names: Vec<&str> = others.split_whitespace().collect();
        names.sort_unstable();
        assert_eq!(names, ["text", "x"]);
        assert!(others.starts_with(' ') && others.ends_with(' '));
    }

    #[test]
    fn collection_comes_a_day_after_the_end() {
        let key = RecordKey::new("p", "k");
        let document = Document::from_value(&json!({})).unwrap();
        let ttl = |item: &Item| item.get(TTL_ATTRIBUTE).map(|n| n.as_n().unwrap().clone());
        let day = |from: i64| Some((from + KEPT_SECONDS).to_string());
        let now = NOW.unix();
        for (end, expected) in [
            (None, None),
            (Some(now + 60), day(now + 60)),
            (Some(now - 60), day(now)),
        ] {
            let end = end.map(Timestamp::from_unix);
            let item = record_item(&key, 7, &document, end, NOW).unwrap();
            assert_eq!(ttl(&item), expected, "{end:?}");
        }
        assert_eq!(ttl(&tombstone_item(&key, 7, NOW)), day(now));
        let ahead = (u64::try_from(now + 500).unwrap() * 1000) << super::super::REVISION_BITS;
        assert_eq!(ttl(&tombstone_item(&key, ahead, NOW)), day(now + 500));
    }

    #[test]
    fn the_worst_document_fits_an_item() {
        // Members whose names are counters' names but hold no integer cost most: each name is kept
        // twice.
        let letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
        let names = letters.chars().flat_map(|a| {
            letters
                .chars()
                .flat_map(move |b| letters.chars().map(move |c| format!("{a}{b}{c}")))
        });
        for member in ["[]", "0"] {
            let mut document = String::from("{");
            for name in names.clone() {
                let next = format!("\"{name}\":{member},");
                if document.len() + next.len() > vault_store::records::MAX_DOCUMENT_BYTES {
                    break;
                }
                document.push_str(&next);
            }
            document.pop();
            document.push('}');
            let key = RecordKey::new("p".repeat(512), "k".repeat(512));
            let document = Document::from_stored(document);
            let item = record_item(&key, 7, &document, Some(NOW), NOW).unwrap();
            let bytes: usize = item
                .iter()
                .map(|(name, value)| {
                    // DynamoDB counts a number as half its digits and some more.
                    name.len() + value.as_s().map_or_else(|_| 21, String::len)
                })
                .sum();
            let worst_number = if member == "0" {
                18 * (item.len() - 8)
            } else {
                0
            };
            assert!(bytes - worst_number < 400 * 1024, "{member}: {bytes}");
        }
    }

    #[test]
    fn what_was_not_written_here_is_damage() {
        let key = RecordKey::new("p", "k");
        let document = Document::from_value(&json!({"n": 1})).unwrap();
        let good = record_item(&key, 7, &document, Some(NOW.plus_seconds(1)), NOW).unwrap();
        for (name, value) in [
            (REVISION, None),
            (REVISION, Some(text_value("7"))),
            (REVISION, Some(number_value(-7))),
            (DOCUMENT, Some(number_value(1))),
            (DOCUMENT, Some(text_value("[]"))),
            (EXPIRES, Some(text_value("soon"))),
            ("n_n", Some(text_value("1"))),
            ("n_n", Some(AttributeValue::N("1.5".to_owned()))),
        ] {
            let mut item = good.clone();
            match value {
                Some(value) => item.insert(name.to_owned(), value),
                None => item.remove(name),
            };
            let read = StoredItem::parse_item(key.clone(), &item, NOW);
            assert!(
                matches!(read, Err(StoreError::Corrupt(_))),
                "{name}: {read:?}"
            );
        }
    }
}
