//! Decodes base64, hex, escapes and lists of character codes in a text, one level deep.
//!
//! The decoded pieces together are never longer than the text that contains them, and they are not
//! decoded again.

use crate::base64::decode_base64;
use std::ops::Range;

/// A decoded piece of text, and where its encoded form stands in the raw text.
pub(super) struct Piece {
    pub origin: usize,
    /// Length of the encoded form, in bytes.
    pub length: usize,
    pub text: String,
}

/// Shortest run of base64 letters that is decoded.
const SHORTEST_BASE64: usize = 24;
/// Shortest run of hex digits that is decoded.
const SHORTEST_HEX: usize = 24;
/// Shortest decoded text that is kept, in bytes.
const SHORTEST_TEXT: usize = 8;

/// Returns every piece that decodes to text.
pub(super) fn decode_pieces(raw: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let bytes = raw.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let end = if is_base64(byte) {
            decode_run(bytes, at, &mut pieces)
        } else if byte == b'\\' {
            decode_escapes(bytes, at, &mut pieces)
        } else if byte == b'[' || byte == b'(' {
            decode_numbers(bytes, at, &mut pieces)
        } else {
            at + 1
        };
        at = end.max(at + 1);
    }
    pieces
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

fn push_readable(pieces: &mut Vec<Piece>, encoded: Range<usize>, bytes: &[u8]) {
    if let Some(text) = readable_text(bytes) {
        pieces.push(Piece {
            origin: encoded.start,
            length: encoded.len(),
            text,
        });
    }
}

/// Returns bytes as text if nearly all of it is printable ASCII, also in UTF-16.
fn readable_text(bytes: &[u8]) -> Option<String> {
    // PowerShell takes encoded commands in UTF-16 (`-EncodedCommand`).
    if bytes.len() >= 2 * SHORTEST_TEXT && bytes.iter().skip(1).step_by(2).all(|byte| *byte == 0) {
        let narrow: Vec<u8> = bytes.iter().copied().step_by(2).collect();
        return readable_text(&narrow);
    }
    if bytes.len() < SHORTEST_TEXT {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let odd = text
        .chars()
        .filter(|c| !(c.is_ascii_graphic() || matches!(c, ' ' | '\n' | '\t' | '\r')))
        .count();
    (odd * 20 <= bytes.len()).then(|| text.to_owned())
}

/// Decodes one run of base64 letters, which may be hex as well. Returns its end.
fn decode_run(bytes: &[u8], start: usize, pieces: &mut Vec<Piece>) -> usize {
    let end = start
        + bytes[start..]
            .iter()
            .take_while(|byte| is_base64(**byte))
            .count();
    let run = &bytes[start..end];
    if run.len() < SHORTEST_BASE64.min(SHORTEST_HEX) {
        return end;
    }
    let before = &bytes[start.saturating_sub(48)..start];
    if is_embedded_data(before) {
        return end; // data addresses and checksums of packages
    }
    // Try hex first, because hex digits are base64 letters too.
    let hex = run.strip_prefix(b"0x").unwrap_or(run);
    if hex.len() >= SHORTEST_HEX && hex.iter().all(u8::is_ascii_hexdigit) {
        let decoded: Vec<u8> = hex
            .chunks_exact(2)
            .map(|pair| hex_digit(pair[0]) << 4 | hex_digit(pair[1]))
            .collect();
        push_readable(pieces, start..end, &decoded);
    } else if is_mixed_case(run) {
        push_readable(pieces, start..end, &decode_base64(run));
    }
    end
}

fn is_embedded_data(before: &[u8]) -> bool {
    let text = String::from_utf8_lossy(before);
    text.ends_with(";base64,")
        || text.ends_with("sha512-")
        || text.ends_with("sha384-")
        || text.ends_with("sha256-")
}

/// Tells whether a run looks encoded: at least an eighth of it are capitals, an eighth are small
/// letters, and few are separators. Words, paths and names have no such mixture.
fn is_mixed_case(run: &[u8]) -> bool {
    let upper = run.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let lower = run.iter().filter(|byte| byte.is_ascii_lowercase()).count();
    let separators = run
        .iter()
        .filter(|byte| matches!(byte, b'/' | b'-' | b'_'))
        .count();
    upper * 8 >= run.len() && lower * 8 >= run.len() && separators * 12 <= run.len()
}

const fn hex_digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        _ => 0,
    }
}

/// Decodes a run of `\xNN`, `\uNNNN` or octal escapes and keeps it if it has eight bytes or more.
/// Returns its end.
fn decode_escapes(bytes: &[u8], start: usize, pieces: &mut Vec<Piece>) -> usize {
    let mut decoded = Vec::new();
    let mut at = start;
    while let Some((byte, length)) = parse_escape(&bytes[at..]) {
        decoded.push(byte);
        at += length;
    }
    if decoded.len() >= SHORTEST_TEXT {
        push_readable(pieces, start..at, &decoded);
    }
    at.max(start + 1)
}

fn parse_escape(bytes: &[u8]) -> Option<(u8, usize)> {
    let hex = |from: usize, to: usize| {
        let digits = bytes.get(from..to)?;
        digits.iter().all(u8::is_ascii_hexdigit).then(|| {
            digits
                .iter()
                .fold(0_u32, |sum, byte| sum << 4 | u32::from(hex_digit(*byte)))
        })
    };
    let (value, length) = match bytes {
        [b'\\', b'x', ..] => (hex(2, 4)?, 4),
        [b'\\', b'u', ..] => (hex(2, 6)?, 6),
        [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => (
            u32::from(a - b'0') * 64 + u32::from(b - b'0') * 8 + u32::from(c - b'0'),
            4,
        ),
        _ => return None,
    };
    Some((u8::try_from(value).ok()?, length))
}

/// Decodes a list of character codes, decimal or hex, and keeps it if it has eight bytes or more.
/// Returns its end.
fn decode_numbers(bytes: &[u8], start: usize, pieces: &mut Vec<Piece>) -> usize {
    let mut decoded = Vec::new();
    let mut at = start + 1;
    loop {
        while bytes
            .get(at)
            .is_some_and(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | b','))
        {
            at += 1;
        }
        let rest = &bytes[at..];
        let (value, length) = if rest.starts_with(b"0x") {
            let length = rest[2..]
                .iter()
                .take(3)
                .take_while(|byte| byte.is_ascii_hexdigit())
                .count();
            (
                rest[2..2 + length]
                    .iter()
                    .fold(0_u32, |sum, byte| sum << 4 | u32::from(hex_digit(*byte))),
                length + 2,
            )
        } else {
            let length = rest
                .iter()
                // Take one digit more than a byte has, so that `1000` is too large and ends the
                // list. Otherwise it would be read as `100` and `0`.
                .take(4)
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            (
                rest[..length]
                    .iter()
                    .fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')),
                length,
            )
        };
        let Ok(byte) = u8::try_from(value) else { break };
        if length == 0 || (length == 2 && rest.starts_with(b"0x")) {
            break;
        }
        decoded.push(byte);
        at += length;
    }
    if decoded.len() >= SHORTEST_TEXT {
        push_readable(pieces, start..at, &decoded);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(raw: &str) -> Vec<String> {
        decode_pieces(raw)
            .into_iter()
            .map(|piece| piece.text)
            .collect()
    }

    #[test]
    fn four_alphabets_are_read() {
        assert_eq!(
            decoded("echo 'Y3VybCBodHRwOi8vYS5leGFtcGxlL3g=' | x"),
            ["curl http://a.example/x"]
        );
        assert_eq!(
            decoded("h = '6563686f2068656c6c6f2074686572652121'"),
            ["echo hello there!!"]
        );
        assert_eq!(
            decoded(r"s = '\x63\x75\x72\x6c\x20\x2d\x73\x53'"),
            ["curl -sS"]
        );
        assert_eq!(
            decoded("f([99, 117, 114, 108, 32, 45, 115, 83])"),
            ["curl -sS"]
        );
        assert_eq!(
            decoded("f(0x63, 0x75, 0x72, 0x6c, 0x20, 0x2d, 0x73, 0x53)"),
            ["curl -sS"]
        );
    }

    #[test]
    fn words_tokens_and_data_addresses_are_left_alone() {
        for raw in [
            "a/path/that/is/long/enough/to/be/tried",
            "ThisIsAVeryLongCamelCaseIdentifierName",
            "data:image/png;base64,aVZCT1J3MEtHZ29BQUFBTlNVaEVVZw==",
            "[1, 2, 3, 4, 5, 6, 7, 8, 9]",
            "(300, 400)",
            r"\d\w\s",
        ] {
            assert!(decoded(raw).is_empty(), "{raw}: {:?}", decoded(raw));
        }
    }
}
