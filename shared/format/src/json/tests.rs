use proptest::prelude::*;

use super::*;

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Outer {
    number: u64,
    inner: Inner,
    list: Vec<Inner>,
    #[serde(deserialize_with = "nullable")]
    maybe: Option<Inner>,
    #[serde(deserialize_with = "unique_map")]
    map: BTreeMap<String, Inner>,
    kind: Kind,
    newtype: New,
    #[serde(
        default,
        deserialize_with = "optional",
        skip_serializing_if = "Option::is_none"
    )]
    extra: Option<String>,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Inner {
    text: String,
}

#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct New(Inner);

#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    First,
    SecondOne,
}

const GOOD: &str = r#"{"number":7,"inner":{"text":"a"},"list":[{"text":"b"},{"text":"c"}],"maybe":{"text":"d"},"map":{"x":{"text":"e"}},"kind":"second-one","newtype":{"text":"f"}}"#;

fn outer(text: &str) -> Result<Outer, JsonError> {
    parse(text.as_bytes())
}

#[test]
fn good_text_survives_a_round_trip() {
    let value = outer(GOOD).unwrap();
    assert_eq!(to_bytes(&value), GOOD.as_bytes());
    assert_eq!(outer(&format!(" \n{GOOD}\n")).unwrap(), value);
    assert_eq!(
        outer(&GOOD.replace(r#"{"text":"d"}"#, "null"))
            .unwrap()
            .maybe,
        None
    );
    assert_eq!(
        outer(&GOOD.replacen('{', r#"{"new":[1.5,{"a":1,"a":2}],"#, 1)).unwrap(),
        value
    );
}

#[test]
fn numbers_that_nobody_reads_are_integers_in_payloads() {
    let with = |text: &str| GOOD.replacen('{', &format!(r#"{{"new":{text},"#), 1);
    for good in [
        "0",
        "9007199254740991",
        "[1,{\"a\":2}]",
        "\"-1.5 \\\"-2\"",
        "true",
    ] {
        assert!(
            parse_payload::<Outer>(with(good).as_bytes()).is_ok(),
            "{good}"
        );
    }
    for bad in [
        "9007199254740992",
        "-0",
        "-1",
        "1.0",
        "1e3",
        "[0,[1.5]]",
        "1E+2",
        "0.1",
    ] {
        let text = with(bad);
        assert!(parse::<Outer>(text.as_bytes()).is_ok(), "{bad}");
        let error = parse_payload::<Outer>(text.as_bytes()).unwrap_err();
        assert!(matches!(error, JsonError::Number), "{bad}");
    }
}

#[test]
fn an_array_is_never_an_object() {
    for letter in ["a", "b", "c", "d", "e", "f"] {
        let object = format!(r#"{{"text":"{letter}"}}"#);
        assert!(GOOD.contains(&object));
        let array = GOOD.replace(&object, &format!(r#"["{letter}"]"#));
        assert!(matches!(outer(&array), Err(JsonError::Shape(_))), "{array}");
    }
    let whole = r#"[7,{"text":"a"},[],null,{},"first",{"text":"f"}]"#;
    assert!(
        serde_json::from_str::<Outer>(whole).is_ok(),
        "serde_json itself takes it"
    );
    assert!(matches!(outer(whole), Err(JsonError::NotAnObject)));
    assert!(matches!(
        parse::<Vec<u64>>(b"[]"),
        Err(JsonError::NotAnObject)
    ));
}

#[test]
fn refused_texts() {
    let seven = |text: &str| GOOD.replace(":7,", &format!(":{text},"));
    let member = |text: &str| GOOD.replacen('{', &format!("{{{text},"), 1);
    for bad in [
        seven("7.0"),
        seven("7e1"),
        seven("-0"),
        seven("-7"),
        seven("07"),
        seven("9007199254740992"),
        seven("18446744073709551616"),
        seven("\"7\""),
        seven("null"),
        seven("NaN"),
        seven("true"),
        member(r#""number":7"#),
        member(r#""n\u0075mber":7"#),
        member(r#""ignored":"\ud800""#),
        member(r#""ignored":"\udc00\ud800""#),
        member(r#""ignored":"\ud800\n""#),
        member("\"ignored\":\"\u{1}\""),
        member(r#""ignored":01"#),
        member(r#""extra":null"#),
        format!("\u{feff}{GOOD}"),
        format!("{GOOD}x"),
        format!("{GOOD}{GOOD}"),
        format!("/**/{GOOD}"),
        GOOD[..GOOD.len() - 1].to_owned(),
        GOOD.replace(
            r#""x":{"text":"e"}"#,
            r#""x":{"text":"e"},"x":{"text":"e"}"#,
        ),
        GOOD.replace(
            r#""x":{"text":"e"}"#,
            r#""x":{"text":"e"},"\u0078":{"text":"e"}"#,
        ),
        GOOD.replace("second-one", "third"),
        GOOD.replace("\"second-one\"", r#"{"second-one":null}"#),
        GOOD.replace("\"second-one\"", "1"),
        GOOD.replace(r#""maybe":{"text":"d"},"#, ""),
        String::new(),
        "null".to_owned(),
        "7".to_owned(),
    ] {
        assert!(outer(&bad).is_err(), "{bad}");
    }
    assert!(outer(&seven("9007199254740991")).is_ok());
    assert!(outer(&member(r#""ignored":"\ud83d\udd12\\ud800""#)).is_ok());
    assert!(matches!(
        parse::<Outer>(b"{\"\xff\":1}"),
        Err(JsonError::NotUtf8)
    ));
}

#[test]
fn depth_counts_in_members_that_nobody_reads() {
    let nested = |depth: usize| {
        GOOD.replacen(
            '{',
            &format!(r#"{{"x":{}{},"#, "[".repeat(depth), "]".repeat(depth)),
            1,
        )
    };
    assert!(outer(&nested(31)).is_ok());
    assert!(matches!(outer(&nested(32)), Err(JsonError::TooDeep)));
    assert!(matches!(outer(&nested(100_000)), Err(JsonError::TooDeep)));
    assert!(outer(&GOOD.replacen('{', &format!(r#"{{"x":"{}","#, "[".repeat(99)), 1)).is_ok());
}

proptest! {
    #[test]
    fn what_is_seen_to_be_harmless_at_once_is_harmless(text in r#"[{}\[\]",:\\ud8c0-9a]{0,80}"#) {
        let text = text.as_bytes();
        prop_assert!(!is_flat_and_plain(text) || walk_structure(text).is_ok());
    }

    #[test]
    fn never_panics(bytes: Vec<u8>, text in r#"[{}\[\]",:\\ud8c0-9a]{0,40}"#) {
        let _ = parse::<Outer>(&bytes);
        let _ = outer(&text);
        let _ = outer(&GOOD.replacen('{', &format!("{{\"x\":\"{text}\","), 1));
    }

    #[test]
    fn agrees_with_serde_json_on_what_it_accepts(text in r#"\{"x":"([a-z\\u8d0c/]|\\ud83d|\\udd12){0,12}"\}"#) {
        #[derive(Debug, Deserialize, PartialEq)]
        struct X { x: String }
        match (parse::<X>(text.as_bytes()), serde_json::from_str::<X>(&text)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
            (ours, theirs) => prop_assert!(ours.is_err() && theirs.is_err(), "{text}"),
        }
    }
}
