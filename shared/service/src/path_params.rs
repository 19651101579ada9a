//! The variables of a path, as both guards hand them to handlers.

use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::http::request::Parts;

/// The variables of a path, decoded.
pub(crate) struct PathParams(Vec<(String, String)>);

impl PathParams {
    /// Reads those of a request. `None` for a path that is not UTF-8 once decoded: it names
    /// nothing.
    pub(crate) async fn read(parts: &mut Parts) -> Option<Self> {
        let found = RawPathParams::from_request_parts(parts, &()).await.ok()?;
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Some(Self(found.iter().map(owned).collect()))
    }

    /// The variable of this name, where the path has it.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The variable of this name, which the path of the route has. Another name is a mistake in a
    /// handler: tests stop there.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.find(name);
        debug_assert!(found.is_some(), "the path of the route has no {{{name}}}");
        found.unwrap_or_default()
    }
}
