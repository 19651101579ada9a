//! E-mail addresses: the names by which people are invited and sign in.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An e-mail address: plain ASCII, lower case, 3 to 254 bytes.
///
/// Other characters are rejected, because two addresses that look the same must not be two
/// accounts.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(into = "String", try_from = "String")]
pub struct Email(String);

/// Error: a text is not an address that [`Email`] accepts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is not an e-mail address in plain ASCII")]
pub struct BadEmail;

impl FromStr for Email {
    type Err = BadEmail;

    fn from_str(text: &str) -> Result<Self, BadEmail> {
        // People type addresses with spaces and capitals; one address in two spellings must not
        // become two accounts.
        let text = text.trim().to_ascii_lowercase();
        let (name, host) = text.split_once('@').ok_or(BadEmail)?;
        let good = text.len() <= 254
            && !name.is_empty()
            && name.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || b".!#$%&'*+-/=?^_`{|}~".contains(&byte)
            })
            && !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
            && !host.starts_with(['.', '-'])
            && !host.ends_with(['.', '-']);
        if good { Ok(Self(text)) } else { Err(BadEmail) }
    }
}

impl Email {
    /// The address in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Email {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<Email> for String {
    fn from(email: Email) -> Self {
        email.0
    }
}

impl TryFrom<String> for Email {
    type Error = BadEmail;

    fn try_from(text: String) -> Result<Self, BadEmail> {
        text.parse()
    }
}

impl JsonSchema for Email {
    fn schema_name() -> Cow<'static, str> {
        "Email".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "An e-mail address in plain ASCII, lower case.",
            // Wider than the stored form: the service trims the address and changes its case.
            "pattern": "^\\s*[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+\\s*$",
            "minLength": 3,
            "maxLength": 254,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_lower_case_ascii() {
        for (text, kept) in [
            ("ada@example.org", Some("ada@example.org")),
            (" Ada@Example.ORG ", Some("ada@example.org")),
            ("a+b.c/d@localhost", Some("a+b.c/d@localhost")),
            ("ada", None),
            ("@example.org", None),
            ("ada@", None),
            ("ada@.org", None),
            ("ada@org.", None),
            ("a b@example.org", None),
            ("a\n@example.org", None),
            ("ada@exa@mple.org", None),
            ("\u{e4}da@example.org", None),
            ("ada@ex\u{e4}mple.org", None),
            ("a\0@example.org", None),
        ] {
            assert_eq!(
                text.parse::<Email>().ok().as_ref().map(Email::as_str),
                kept,
                "{text:?}"
            );
        }
        assert!(
            format!("{}@example.org", "a".repeat(243))
                .parse::<Email>()
                .is_err()
        );
    }
}
