//! Members of requests that the service parses itself.

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// A member of a request that has to be the text of a `T`. Any text is read, so that the service
/// can answer a wrong one with its own error code in place of that of wrong JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Given<T> {
    text: String,
    #[serde(skip)]
    kind: PhantomData<T>,
}

impl<T: FromStr> Given<T> {
    /// The value. Fails with `error` if the text is not that of a `T`.
    pub fn parse_or<E>(&self, error: E) -> Result<T, E> {
        self.text.parse().map_err(|_| error)
    }
}

impl<T> Given<T> {
    /// The text as it came.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A text that may be wrong, as a person typed it: the service judges it.
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

impl<T: JsonSchema> JsonSchema for Given<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}
