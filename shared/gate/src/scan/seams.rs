//! Removes seams (joints between pieces of a word) from statements of code, so that `'cu' + 'rl'`
//! is read as `curl`.

use crate::rule::{Lazy, place, replace};
use std::sync::LazyLock;

/// The signs of a seam: joined literals, quotation marks or escapes inside a word, `$IFS` in place
/// of a space.
pub(super) static SPLIT_LITERAL: Lazy = Lazy::new(
    r#"['"]\s*\+\s*['"]|\w(''|"")\w|\w'\s?'\w|['"]\s*\.\s*['"]|\$\{ifs\}|\$ifs\b|\b\w\\\w\\?\w|\$@\w|\w\[\w\]"#,
);
/// Two quotation marks that end one literal and begin the next, with the operator between them.
pub(super) static JOINT: LazyLock<Option<regex::bytes::Regex>> = LazyLock::new(|| {
    regex::bytes::RegexBuilder::new(r#"['"]\s*[+.]?\s*['"]"#)
        .unicode(false)
        .build()
        .ok()
});

/// Returns a statement without its seams, or `None` if it has none. `place_of` is its kind of
/// place.
pub(super) fn remove_seams(text: &[u8], place_of: u16, work: &mut u64) -> Option<Vec<u8>> {
    // Run the cheap test first: skip a statement without `$IFS` and with fewer than two quotation
    // marks, `$`, backslashes or square brackets.
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
    // Remove backslashes only in shell code: in other languages, they begin escapes.
    if word_escape && place_of & place::SHELL != 0 {
        whole.retain(|byte| *byte != b'\\');
    }
    if place_of & place::SHELL != 0 {
        whole = remove_brackets(&whole);
    }
    (whole != text).then_some(whole)
}

/// Replaces `pass[w]d` by `passwd`: a shell expands such a pattern to the file of that name.
fn remove_brackets(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if let [b'[', letter, b']', ..] = &text[at..]
            && letter.is_ascii_alphanumeric()
            // A bracket at the beginning of a statement begins a test or a list and is not part of
            // a word.
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
