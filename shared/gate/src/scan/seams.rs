//! Statements that are glued together from pieces, read without the seams.

use crate::rule::{Lazy, place, replace};
use std::sync::LazyLock;

pub(super) static SPLIT_LITERAL: Lazy = Lazy::new(
    r#"['"]\s*\+\s*['"]|\w(''|"")\w|\w'\s?'\w|['"]\s*\.\s*['"]|\$\{ifs\}|\$ifs\b|\b\w\\\w\\?\w|\$@\w|\w\[\w\]"#,
);
pub(super) static JOINT: LazyLock<Option<regex::bytes::Regex>> = LazyLock::new(|| {
    regex::bytes::RegexBuilder::new(r#"['"]\s*[+.]?\s*['"]"#)
        .unicode(false)
        .build()
        .ok()
});

/// What a statement of this place says without its seams; nothing where it has none.
pub(super) fn without(text: &[u8], place_of: u16, work: &mut u64) -> Option<Vec<u8>> {
    // Cheap first: without two quotes, a `$` or a backslash there is no seam.
    let quotes = text
        .iter()
        .filter(|byte| matches!(byte, b'\'' | b'"' | b'$' | b'\\' | b'[' | b']'))
        .take(2)
        .count();
    if quotes < 2
        && !text
            .windows(4)
            .any(|four| four == b"$ifs" || four == b"{ifs")
    {
        return None;
    }
    *work += text.len() as u64;
    if !SPLIT_LITERAL.is_match(text) {
        return None;
    }
    let joint = JOINT.as_ref()?;
    let mut whole = joint.replace_all(text, &b""[..]).into_owned();
    whole = replace(&whole, "${ifs}", " ");
    whole = replace(&whole, "$ifs", " ");
    let word_escape = whole
        .windows(2)
        .any(|two| two[0] == b'\\' && two[1].is_ascii_alphabetic());
    if word_escape && place_of & place::SHELL != 0 {
        whole.retain(|byte| *byte != b'\\');
    }
    if place_of & place::SHELL != 0 {
        whole = unbracket(&whole);
    }
    (whole != text).then_some(whole)
}

/// `pass[w]d` is `passwd` to a shell.
fn unbracket(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if let [b'[', letter, b']', ..] = &text[at..]
            && letter.is_ascii_alphanumeric()
            && at > 0
        {
            out.push(*letter);
            at += 3;
        } else {
            out.push(text[at]);
            at += 1;
        }
    }
    out
}
