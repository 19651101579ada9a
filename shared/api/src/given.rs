//! Members of requests that the service parses itself, to answer a wrong value with its own error
//! code.

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// A member of a request that should be the text of a `T`, such as an e-mail address. Any text is
/// read; the service parses it and answers a wrong one with a specific error code instead of that
/// of malformed JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Given<T> {
    text: String,
    #[serde(skip)]
    kind: PhantomData<T>,
}

impl<T: FromStr> Given<T> {
    /// Parses the value. Fails with `error` if the text is not that of a `T`.
    pub fn parse_or<E>(&self, error: E) -> Result<T, E> {
        // The parser's own error is dropped: the caller has the code of the route for it.
        self.text.parse().map_err(|_| error)
    }
}

impl<T> Given<T> {
    /// The text as the caller sent it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Wraps a text without parsing it. A client uses this for what a person typed: the service
    /// rejects it if it is wrong.
    pub fn unchecked(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            kind: PhantomData,
        }
    }
}

impl<T: Display> From<T> for Given<T> {
    fn from(value: T) -> Self {
        Self::unchecked(value.to_string())
    }
}

// A client must send the text of a `T`, so the written reference describes a `T`.
impl<T: JsonSchema> JsonSchema for Given<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    // The same id as `T`, or the generator would add a second definition under the same name.
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewUser, Role};

    #[test]
    fn a_wrong_text_is_read_and_gets_the_error_of_its_member() {
        for (role, wanted) in [
            ("role:owner", Ok(Role::Owner)),
            ("owner", Err("role_unknown")),
            ("", Err("role_unknown")),
        ] {
            let request = serde_json::json!({ "email": "nobody", "role": role });
            let request: NewUser = serde_json::from_value(request).unwrap();
            assert_eq!(
                request.role.unwrap().parse_or("role_unknown"),
                wanted,
                "{role}"
            );
            assert_eq!(request.email.as_str(), "nobody");
            request.email.parse_or("email_invalid").unwrap_err();
        }
        serde_json::from_str::<Given<Role>>("1").unwrap_err();
    }

    #[test]
    fn a_client_sends_the_text_and_the_schema_is_that_of_the_value() {
        let given = Given::from(Role::Publisher);
        assert_eq!(serde_json::to_string(&given).unwrap(), "\"role:publisher\"");
        let of = |schema: Schema| schema.to_value();
        let generator = &mut SchemaGenerator::default();
        let wanted = of(Role::json_schema(generator));
        assert_eq!(of(Given::<Role>::json_schema(generator)), wanted);
        assert_eq!(Given::<Role>::schema_name(), Role::schema_name());
    }
}
