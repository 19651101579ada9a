use serde_json::json;

use super::*;

#[test]
fn a_document_is_a_small_object_without_nul() {
    let padding = |bytes: usize| json!({ "a": "x".repeat(bytes - r#"{"a":""}"#.len()) });
    let cases = [
        (json!({}), true),
        (json!({"a": [1, "ä", null]}), true),
        (json!([]), false),
        (json!("text"), false),
        (json!(null), false),
        (json!({"a": "b\0c"}), false),
        (json!({"\0": 1}), false),
        (json!({"a": "\\u0000"}), true),
        (json!({"a": "\\\0"}), false),
        (json!({"a": "\\\\u0000\n"}), true),
        (padding(MAX_DOCUMENT_BYTES), true),
        (padding(MAX_DOCUMENT_BYTES + 1), false),
    ];
    for (value, good) in cases {
        let short: String = value.to_string().chars().take(60).collect();
        assert_eq!(Document::from_value(&value).is_ok(), good, "{short}");
    }
}

#[test]
fn documents_are_equal_as_json() {
    let stored = |text: &str| Document::from_stored(text.to_owned());
    assert_eq!(stored(r#"{"a":1,"b":2}"#), stored(r#"{"b": 2, "a": 1}"#));
    assert_ne!(stored(r#"{"a":1}"#), stored(r#"{"a":2}"#));
    assert_ne!(
        stored("{"),
        stored("}"),
        "damaged text equals nothing but itself"
    );
}

#[test]
fn a_document_that_does_not_read_is_damage() {
    let document = Document::from_stored(r#"{"a":1}"#.to_owned());
    assert!(matches!(
        document.read::<Vec<u8>>(),
        Err(StoreError::Corrupt(_))
    ));
    assert_eq!(document.read::<Value>().unwrap(), json!({"a": 1}));
}

#[test]
fn odd_keys_are_refused() {
    let long = "x".repeat(MAX_KEY_BYTES);
    let cases = [
        ("a", true),
        ("ä 日本/|%", true),
        (long.as_str(), true),
        (&format!("{long}x"), false),
        ("", false),
        ("a\0", false),
        ("a\nb", false),
        ("\u{7f}", false),
        ("\u{85}", false),
    ];
    for (text, good) in cases {
        for key in [RecordKey::new(text, "k"), RecordKey::new("p", text)] {
            assert_eq!(
                check_get_many(std::slice::from_ref(&key)).is_ok(),
                good,
                "{key:?}"
            );
            assert_eq!(
                check_commit(&[Write::check(key, When::Any)]).is_ok(),
                good,
                "{text:?}"
            );
        }
    }
}

#[test]
fn odd_counters_are_refused() {
    let long = "f".repeat(MAX_FIELD_BYTES);
    let cases = [
        ("pending", 1, 0, 20, true),
        (long.as_str(), -1, -5, -5, true),
        ("a_1", 0, -MAX_COUNT, MAX_COUNT, true),
        ("", 1, 0, 20, false),
        (&format!("{long}f"), 1, 0, 20, false),
        ("Pending", 1, 0, 20, false),
        ("a.b", 1, 0, 20, false),
        ("a\"b", 1, 0, 20, false),
        ("n", 1, 1, 0, false),
        ("n", MAX_COUNT + 1, 0, 20, false),
        ("n", 1, 0, i64::MAX, false),
        ("n", 1, i64::MIN, 0, false),
    ];
    for (field, by, min, max, good) in cases {
        let write = Write::Count {
            key: RecordKey::new("p", "k"),
            field: field.to_owned(),
            by,
            min,
            max,
            expires_at: None,
        };
        assert_eq!(
            check_commit(&[write]).is_ok(),
            good,
            "{field} {by} {min} {max}"
        );
    }
}

#[test]
fn the_end_of_a_prefix_is_behind_all_it_begins() {
    let cases = [
        ("", None),
        ("a", Some("b")),
        ("az", Some("a{")),
        ("a\u{7f}", Some("a\u{80}")),
        ("\u{d7ff}", Some("\u{e000}")),
        ("a\u{10ffff}", Some("b")),
        ("\u{10ffff}\u{10ffff}", None),
    ];
    for (prefix, end) in cases {
        assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
    }
}

proptest::proptest! {
    #[test]
    fn a_text_is_in_the_range_of_a_prefix_exactly_when_it_begins_with_it(prefix in "\\PC{1,3}", text in "\\PC{0,5}") {
        for text in [text.clone(), format!("{prefix}{text}")] {
            let inside = text >= prefix && prefix_end(&prefix).is_none_or(|end| text < end);
            proptest::prop_assert_eq!(inside, text.starts_with(&prefix));
        }
    }
}
