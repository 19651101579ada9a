//! A strict JSON reader for signed payloads, envelopes and stored objects: what two readers could
//! understand differently is rejected.
//!
//! Beyond what serde rejects, this module rejects an array where an object is expected, at every
//! level; numbers other than integers from 0 to 2^53-1; a depth over 32; half surrogate pairs,
//! invalid UTF-8 and a byte order mark. All rules but the one for numbers also hold inside members
//! that no reader uses; in signed payloads, the rule for numbers holds there too. A map needs
//! [`unique_map`], since serde lets the last of two equal keys win. No signed text is ever read
//! into a free-form value.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use memchr::{memchr, memchr2, memchr2_iter};
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::{Deserialize, Serialize};

/// Deepest nesting of objects and arrays, the outermost object included.
pub const MAX_DEPTH: usize = 32;

/// The largest integer that every reader of JSON keeps exactly: 2^53-1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// A reason to reject bytes as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// The text does not begin with an object, for example because of a byte order mark.
    #[error("the text does not begin with an object")]
    NotAnObject,
    /// Objects and arrays are nested more than [`MAX_DEPTH`] deep.
    #[error("the text is nested deeper than {MAX_DEPTH}")]
    TooDeep,
    /// A half of a surrogate pair in a string.
    #[error("a string holds half of a surrogate pair")]
    LoneSurrogate,
    /// A number that some readers cannot keep exactly.
    #[error("a number is not an integer from 0 to 2^53-1")]
    Number,
    /// The text is not JSON, or does not have the shape of the expected type.
    #[error("{0}")]
    Shape(#[from] serde_json::Error),
}

/// Reads one JSON object with nothing after it. Fails on everything listed at the top of this
/// module.
pub fn parse<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, JsonError> {
    let text = std::str::from_utf8(bytes).map_err(|_| JsonError::NotUtf8)?;
    // Without this check, the error for another JSON value or a byte order mark would depend on the
    // type that is read.
    if !text
        .trim_start_matches([' ', '\t', '\n', '\r'])
        .starts_with('{')
    {
        return Err(JsonError::NotAnObject);
    }
    // Before serde sees the text: it skips members that no reader uses without checking our depth
    // or surrogates in them.
    check_structure(text.as_bytes())?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Strict(&mut deserializer))?;
    // Anything after the object would be bytes that are hashed and signed but never read.
    deserializer.end()?;
    Ok(value)
}

/// Like [`parse`], for a signed payload: the rule for numbers also holds in members that no reader
/// uses.
pub fn parse_payload<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, JsonError> {
    let value = parse(bytes)?;
    // After parsing: the scan relies on valid JSON to find where strings end.
    check_numbers(bytes)?;
    Ok(value)
}

/// Checks every number outside strings. The caller passes valid JSON: the scan relies on it to find
/// where strings end.
fn check_numbers(text: &[u8]) -> Result<(), JsonError> {
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b'"' => check_string(after)?,
            // Readers in JavaScript keep numbers as doubles; negative, fractional and large ones
            // could differ between two readers of one signed text.
            b'-' => return Err(JsonError::Number),
            b'0'..=b'9' => {
                let in_number =
                    |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
                let length = rest.iter().take_while(|byte| in_number(byte)).count();
                let (number, after) = rest.split_at(length);
                let value = std::str::from_utf8(number)
                    .ok()
                    .and_then(|text| text.parse::<u64>().ok());
                if value.is_none_or(|value| value > MAX_INTEGER) {
                    return Err(JsonError::Number);
                }
                after
            }
            _ => after,
        };
    }
    Ok(())
}

/// Writes compact JSON, members in the order of the struct. Never fails for the types of this
/// crate: they hold no map with keys other than text and nothing that refuses to be written.
pub fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("our types have text keys and infallible serializers")
}

/// Reads a member that must be present but may be `null`; use with `deserialize_with`. Without it,
/// serde reads a missing member of type `Option` as `null`.
pub fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Reads an optional member that may be left out but not be `null`; use with `default` and
/// `deserialize_with`.
pub fn optional<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Reads a map and rejects a repeated key; use with `deserialize_with`.
pub fn unique_map<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
where
    K: Deserialize<'de> + Ord,
    V: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Unique<K, V>(PhantomData<(K, V)>);
    impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Unique<K, V> {
        type Value = BTreeMap<K, V>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object without a key twice")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = members.next_entry()? {
                if map.insert(key, value).is_some() {
                    return Err(de::Error::custom("a key comes twice"));
                }
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(Unique(PhantomData))
}

/// Checks depth and surrogates, which `serde_json` skips in members that no reader uses, in one
/// pass over the bytes. Nothing else is checked, so text that is not JSON may pass.
fn check_structure(text: &[u8]) -> Result<(), JsonError> {
    if is_flat_and_plain(text) {
        return Ok(());
    }
    walk_structure(text)
}

fn walk_structure(text: &[u8]) -> Result<(), JsonError> {
    let mut depth = 0_usize;
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(JsonError::TooDeep);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => rest = check_string(rest.as_slice())?.iter(),
            _ => {}
        }
    }
    Ok(())
}

/// Tells whether a text has at most [`MAX_DEPTH`] opening brackets, counting those in strings, and
/// no escape. Such a text breaks neither rule, and most signed text is such, so the slower walk is
/// rarely needed.
fn is_flat_and_plain(text: &[u8]) -> bool {
    memchr2_iter(b'{', b'[', text).nth(MAX_DEPTH).is_none() && memchr(b'\\', text).is_none()
}

/// Returns the text after the closing quote of the string that begins here.
fn check_string(mut text: &[u8]) -> Result<&[u8], JsonError> {
    loop {
        let Some(end) = memchr2(b'"', b'\\', text) else {
            return Ok(&[]); // serde_json reports a string that is not closed
        };
        if text[end] == b'"' {
            return Ok(&text[end + 1..]);
        }
        let escape = &text[end + 1..];
        text = match escape.first() {
            Some(b'u') => match code_unit(&escape[1..]) {
                // Rust strings cannot hold a lone surrogate, but parsers in other languages can,
                // and would read another text from the same signed bytes.
                Some(0xd800..=0xdbff) => {
                    let [b'\\', b'u', low @ ..] = escape.get(5..).unwrap_or_default() else {
                        return Err(JsonError::LoneSurrogate);
                    };
                    let Some(0xdc00..=0xdfff) = code_unit(low) else {
                        return Err(JsonError::LoneSurrogate);
                    };
                    &low[4..]
                }
                Some(0xdc00..=0xdfff) => return Err(JsonError::LoneSurrogate),
                _ => &escape[1..], // serde_json rejects a bad escape
            },
            Some(_) => &escape[1..],
            None => escape,
        };
    }
}

fn code_unit(text: &[u8]) -> Option<u16> {
    text.get(..4)?.iter().try_fold(0_u16, |unit, digit| {
        Some(unit << 4 | u16::try_from(char::from(*digit).to_digit(16)?).ok()?)
    })
}

/// Wraps every part of a deserializer, so that the rules hold at every level without any code in
/// the types: a struct is requested as a map (`serde_json` would also take an array), an enum as a
/// text, a number only as an integer.
struct Strict<T>(T);

macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($argument,)* Strict(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    forward! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        // The derived visitor of a struct also accepts a sequence; asking for a map rules that out.
        self.0.deserialize_map(Strict(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        // serde_json would also accept `{"variant": null}`, a second spelling of the same value.
        self.0.deserialize_str(UnitVariant(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Reads an enum from its variant's name only.
struct UnitVariant<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for UnitVariant<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<V::Value, E> {
        let name: StrDeserializer<'_, E> = name.into_deserializer();
        self.0.visit_enum(name)
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<V::Value, E> {
        self.0.visit_bool(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<V::Value, E> {
        // serde_json reports only negative numbers here, as small positive ones are unsigned
        // already.
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(
                Unexpected::Signed(value),
                &"an integer from 0 to 2^53-1",
            )),
        }
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<V::Value, E> {
        if value > MAX_INTEGER {
            return Err(E::invalid_value(
                Unexpected::Unsigned(value),
                &"an integer from 0 to 2^53-1",
            ));
        }
        self.0.visit_u64(value)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<V::Value, E> {
        self.0.visit_str(value)
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.0.visit_borrowed_str(value)
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<V::Value, E> {
        self.0.visit_string(value)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(deserializer))
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(members))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

#[cfg(test)]
mod tests;
