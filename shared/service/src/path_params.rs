//! The variables of a route's path, as the guards for tokens and for the console pass them to
//! handlers.

use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::http::request::Parts;

/// Names and decoded values of the variables in a path, for instance `id` in `/admin/users/{id}`.
pub(crate) struct PathParams(Vec<(String, String)>);

impl PathParams {
    /// Decodes the variables of a request's path. `None` if a decoded value is not UTF-8: nothing
    /// has such a name.
    pub(crate) async fn from_parts(parts: &mut Parts) -> Option<Self> {
        let raw_params = RawPathParams::from_request_parts(parts, &()).await.ok()?;
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Some(Self(raw_params.iter().map(owned).collect()))
    }

    /// Returns the decoded value of a variable; `None` if the path has no variable of this name.
    pub(crate) fn find_param(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the value of a variable that the route's path has. A missing name is a mistake in a
    /// handler: it panics in tests, and gives an empty text in a release build.
    pub(crate) fn get(&self, name: &str) -> &str {
        let value = self.find_param(name);
        debug_assert!(value.is_some(), "the path of the route has no {{{name}}}");
        value.unwrap_or_default()
    }
}
