//! Lock files of other tools, whose entries name sources.

use std::path::Path;

use vault_sources::{ParseOptions, locks};

/// Name, members of the entry `pdf`, and part of the message.
const ENTRIES: &[(&str, &str, &str)] = &[
    ("no source", "", "it names no source"),
    (
        "npm",
        r#""source":"a","sourceType":"npm""#,
        "sources of the type npm are not fetched",
    ),
    (
        "type that turns the text",
        r#""source":"a","sourceType":"\u202etig""#,
        "the type \\u{202e}tig are not fetched",
    ),
    (
        "option",
        r#""source":"--upload-pack=x","sourceType":"git""#,
        "git cannot fetch this",
    ),
    (
        "helper program",
        r#""source":"ext::sh -c x","sourceType":"git""#,
        "helper program of git",
    ),
    (
        "local file",
        r#""source":"file:///etc","sourceType":"git""#,
        "file: addresses are not",
    ),
    (
        "local path",
        r#""source":"/etc/x","sourceType":"git""#,
        "git cannot fetch this",
    ),
    (
        "plain",
        r#""source":"http://x.example/a/b","sourceType":"git""#,
        "http: addresses are not",
    ),
    (
        "password",
        r#""source":"https://a:b@x.example/c","sourceType":"git""#,
        "or password",
    ),
    (
        "option of SSH",
        r#""source":"git@-oProxyCommand=x:a/b","sourceType":"git""#,
        "characters that are not allowed",
    ),
    (
        "address behind another name",
        r#""source":"acme/skills@a","sourceUrl":"ext::sh -c x""#,
        "helper program of git",
    ),
    (
        "owner that leads up",
        r#""source":"../skills""#,
        ".. is not the name of an owner",
    ),
    (
        "path that leads up",
        r#""source":"a/b/../../c""#,
        "`..` leads out of its start",
    ),
    (
        "owner that is an option",
        r#""source":"-x/skills""#,
        "-x is not the name of an owner",
    ),
    (
        "reference that is an option",
        r#""source":"a/b","ref":"--output=x""#,
        "not a branch, tag",
    ),
    (
        "range",
        r#""source":"a/b","ref":"a..b""#,
        "not a branch, tag",
    ),
    (
        "expression",
        r#""source":"a/b","ref":"main@{1}""#,
        "not a branch, tag",
    ),
    (
        "two references",
        r#""source":"a/b#v1","ref":"v2""#,
        "the source names v1 already",
    ),
    (
        "folder that leads up",
        r#""source":"a/b","skillPath":"../../etc/SKILL.md""#,
        "a part of its path is empty",
    ),
    (
        "folder that is an option",
        r#""source":"a/b","skillPath":"-x/SKILL.md""#,
        "a part of its path is empty",
    ),
    (
        "folder with a backslash",
        r#""source":"a/b","skillPath":"main\\x/SKILL.md""#,
        "a part of its path is empty",
    ),
    (
        "NUL",
        r#""source":"a/b\u0000""#,
        "control or invisible characters",
    ),
    (
        "line break",
        r#""source":"a/b\nc""#,
        "control or invisible characters",
    ),
    (
        "text that turns",
        r#""source":"a/b\u202e""#,
        "control or invisible characters",
    ),
    (
        "plain site",
        r#""source":"http://x.example","sourceType":"well-known""#,
        "sites must use https",
    ),
    (
        "site with a password",
        r#""source":"https://a:b@x.example","sourceType":"well-known""#,
        "a user name or password",
    ),
];

/// Whole files, and part of the message.
const FILES: &[(&str, &str)] = &[
    ("<html>", "not a JSON object"),
    ("[]", "not a JSON object"),
    ("\u{feff}{}", "not a JSON object"),
    ("{}", "it names no skills"),
    (
        r#"{"name":"a-package","version":"1.0.0"}"#,
        "it names no skills",
    ),
    (r#"{"skills":{"#, "EOF while parsing"),
    (r#"{"skills":[]}"#, "invalid type"),
    (r#"{"skills":{"pdf":{"source":1}}}"#, "invalid type"),
    (r#"{"skills":{"pdf":{},"pdf":{}}}"#, "a key comes twice"),
    (
        r#"{"skills":{"pdf":{"source":"a/b","source":"c/d"}}}"#,
        "duplicate field `source`",
    ),
];

#[test]
fn a_lock_file() {
    let read = |text: &str| {
        let options = ParseOptions::default();
        locks::parse_lock(text.as_bytes(), Path::new("/project"), &options)
    };
    for (row, members, part) in ENTRIES {
        let skills = read(&format!(r#"{{"skills":{{"pdf":{{{members}}}}}}}"#)).unwrap();
        let message = skills[0].source.as_ref().map_err(ToString::to_string);
        let is_expected = matches!(&message, Err(message) if message.contains(part));
        assert!(is_expected, "{row}: {message:?}");
    }
    for (text, part) in FILES {
        let message = read(text).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    }
}
