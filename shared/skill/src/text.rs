//! What all values with one canonical text have in common.
//!
//! A type with `FromStr` and `Display` gets its serde form from here, so that a value read from JSON
//! has passed the same one way in as any other.

/// Gives a `FromStr + Display` type its serde form and the usual conversions, all through its text.
macro_rules! text_form {
    ($type:ty, $error:ty, $expected:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Text)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = $error;
            fn try_from(text: &str) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}

pub(crate) use text_form;

/// Makes the type of a member that has one value, such as `schema`: anything else is refused while reading.
macro_rules! constant {
    ($(#[$doc:meta])* $type:ident, $value:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct $type;

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str($value)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Constant;
                impl serde::de::Visitor<'_> for Constant {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        write!(f, "{:?}", $value)
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        if text == $value { Ok($type) } else { Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)) }
                    }
                }
                deserializer.deserialize_str(Constant)
            }
        }
    };
}

pub(crate) use constant;

/// Whether a character must not stand in any name, path or label: controls (C0, DEL, C1), line and paragraph
/// separators, bidirectional controls, zero-width characters. They hide or reorder what a person reads.
pub const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{200b}'..='\u{200d}' | '\u{feff}'
        | '\u{2028}' | '\u{2029}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a name is a Windows device, with any extension: such a file cannot be created there.
pub(crate) fn is_device_name(segment: &str) -> bool {
    let stem = segment
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end_matches(' ')
        .as_bytes();
    match stem {
        [_, _, _] => [b"con", b"prn", b"aux", b"nul"]
            .iter()
            .any(|name| stem.eq_ignore_ascii_case(*name)),
        [a, b, c, b'1'..=b'9'] => {
            let port = [*a, *b, *c];
            port.eq_ignore_ascii_case(b"com") || port.eq_ignore_ascii_case(b"lpt")
        }
        _ => false,
    }
}

/// Lower-case base32 (RFC 4648 without padding) of the bytes, as many whole characters as they fill.
pub(crate) fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::with_capacity(bytes.len() * 8 / 5);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(buffer >> bits) as usize & 31]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_follows_rfc_4648() {
        assert_eq!(base32(b"foobar"), "mzxw6ytbo"); // the last three bits of MZXW6YTBOI need padding
        assert_eq!(base32(b"fooba"), "mzxw6ytb");
    }

    #[test]
    fn device_names_are_known_with_any_extension_and_case() {
        for name in ["con", "NUL", "Com1.tar.gz", "lpt9", "aux .txt", "prn."] {
            assert!(is_device_name(name), "{name}");
        }
        for name in ["com0", "com10", "console", "conx", "lpt", "a.con", ""] {
            assert!(!is_device_name(name), "{name}");
        }
    }
}
