//! The variables of a path, as both guards pass them to handlers.

use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::http::request::Parts;

/// The variables of a path, decoded.
pub(crate) struct PathParams(Vec<(String, String)>);

impl PathParams {
    /// Decodes the variables of a request's path. `None` if a decoded one is not UTF-8: such a path
    /// names nothing.
    pub(crate) async fn from_parts(parts: &mut Parts) -> Option<Self> {
        let raw_params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Some(Self(raw_params.iter().map(owned).collect()))
    }

    /// Finds the variable of this name.
    pub(crate) fn find_param(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the variable of this name, which the route's path must have. A missing name is a
    /// mistake in a handler, which stops tests.
    pub(crate) fn get(&self, name: &str) -> &str {
        let value = self.find_param(name);
        debug_assert!(value.is_some(), "the path of the route has no {{{name}}}");
        value.unwrap_or_default()
    }
}
