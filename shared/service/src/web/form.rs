//! Strict parser of query strings and form bodies.
//!
//! A repeated parameter is an error (OAuth 2.1 section 3.1): two readers of one request must never
//! see different values. Broken percent escapes and bytes that are not UTF-8 are errors too,
//! because `state` must be returned unchanged.

use std::collections::BTreeMap;

/// The parameters of one query or form body.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Form {
    values: BTreeMap<String, Vec<String>>,
    unreadable: Vec<String>,
}

/// Error: a parameter is unusable.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadForm {
    /// A name occurs more than once.
    #[error("the parameter {0} appears more than once")]
    Repeated(String),
    /// A value has a broken escape or is not UTF-8.
    #[error("the parameter {0} is not valid text")]
    Unreadable(String),
}

/// Maximum number of parameters that are parsed; a form with more is unreadable.
const MAX_PARAMETERS: usize = 64;

impl Form {
    /// Parses `application/x-www-form-urlencoded` text. Never fails: defects are stored, and
    /// [`Form::check`] reports them.
    pub fn parse(text: &str) -> Self {
        let mut form = Self::default();
        for (count, pair) in text.split('&').filter(|pair| !pair.is_empty()).enumerate() {
            // Bounds the work of one request: a body within the size limit may hold thousands of
            // tiny pairs.
            if count == MAX_PARAMETERS {
                form.unreadable.push("(too many)".to_owned());
                break;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = percent_decode(name) else {
                form.unreadable.push("(name)".to_owned());
                continue;
            };
            // All values are stored, so that `check` can report the repetition. No reader then
            // takes just the first or the last one.
            match percent_decode(value) {
                None => form.unreadable.push(name),
                Some(value) => form.values.entry(name).or_default().push(value),
            }
        }
        form
    }

    /// Returns the first value of `name`; an empty value counts as absent (RFC 6749 section 3.1).
    pub fn value(&self, name: &str) -> Option<&str> {
        self.all(name).next().filter(|value| !value.is_empty())
    }

    /// Returns all values of `name`, for a group of check boxes.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.values
            .get(name)
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Whether `name` occurs at most once and could be decoded.
    pub fn is_sound(&self, name: &str) -> bool {
        self.all(name).nth(1).is_none() && !self.unreadable.iter().any(|bad| bad == name)
    }

    /// Checks that every parameter occurs once and is valid text. Fails with the first defect.
    pub fn check(&self) -> Result<(), BadForm> {
        self.check_except(&[])
    }

    /// Checks like [`Form::check`], but allows the parameters in `boxes` to be repeated.
    pub fn check_except(&self, boxes: &[&str]) -> Result<(), BadForm> {
        if let Some((name, _)) = self
            .values
            .iter()
            .find(|(name, values)| values.len() > 1 && !boxes.contains(&name.as_str()))
        {
            return Err(BadForm::Repeated(printable_name(name)));
        }
        match self.unreadable.first() {
            Some(name) => Err(BadForm::Unreadable(printable_name(name))),
            None => Ok(()),
        }
    }
}

/// Appends `name=value` pairs to an address that may already have a query.
pub fn with_query(address: &str, pairs: &[(&str, &str)]) -> String {
    let mut whole = address.to_owned();
    let mut separator = if address.contains('?') { '&' } else { '?' };
    for (name, value) in pairs {
        whole.push(separator);
        whole.push_str(name);
        whole.push('=');
        whole.extend(url::form_urlencoded::byte_serialize(value.as_bytes()));
        separator = '&';
    }
    whole
}

/// Returns a parameter's name in the characters that are allowed in `error_description` (RFC 6749:
/// printable ASCII without quotes), at most 40 of them.
fn printable_name(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_-.()".contains(*c))
        .take(40)
        .collect()
}

fn percent_decode(text: &str) -> Option<String> {
    // Decoded by hand because the decoder of the `url` crate accepts broken escapes and replaces
    // invalid UTF-8.
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_decoded_and_empty_ones_are_absent() {
        let form = Form::parse("a=1&b=x+y%2Fz&c=&d&%65=f");
        assert_eq!(form.value("a"), Some("1"));
        assert_eq!(form.value("b"), Some("x y/z"));
        assert_eq!(form.value("c"), None);
        assert_eq!(form.value("d"), None);
        assert_eq!(form.value("e"), Some("f"));
        assert_eq!(form.check(), Ok(()));
    }

    #[test]
    fn what_is_repeated_or_unreadable_is_told() {
        for (text, name, error) in [
            ("a=1&a=1", "a", BadForm::Repeated("a".into())),
            ("a=1&%61=2", "a", BadForm::Repeated("a".into())),
            ("a=%", "a", BadForm::Unreadable("a".into())),
            ("a=%4", "a", BadForm::Unreadable("a".into())),
            ("a=%zz", "a", BadForm::Unreadable("a".into())),
            ("a=%ff", "a", BadForm::Unreadable("a".into())),
            ("a=1&a", "a", BadForm::Repeated("a".into())),
        ] {
            let form = Form::parse(text);
            assert!(!form.is_sound(name), "{text}");
            assert!(form.is_sound("other"), "{text}");
            assert_eq!(form.check(), Err(error), "{text}");
        }
        let boxes = Form::parse("a=1&a=2&b=1");
        assert_eq!(boxes.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(
            (boxes.check_except(&["a"]), boxes.check_except(&["b"])),
            (Ok(()), Err(BadForm::Repeated("a".into())))
        );
        assert!(Form::parse(&"a&".repeat(100)).check().is_err());
        assert_eq!(
            Form::parse("<script>\"=1&<script>\"=2").check(),
            Err(BadForm::Repeated("script".into()))
        );
    }

    proptest! {
        #[test]
        fn any_text_survives_being_a_query_value(value in "\\PC{0,40}", other in ".{0,40}") {
            let address = with_query("https://a.example/cb?x=1", &[("state", &value), ("iss", &other)]);
            let form = Form::parse(address.split_once('?').unwrap().1);
            prop_assert_eq!(form.value("state").unwrap_or(""), value);
            prop_assert_eq!(form.value("iss").unwrap_or(""), other);
            prop_assert_eq!(form.value("x"), Some("1"));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,200}") {
            let _ = Form::parse(&text).check();
        }
    }
}
