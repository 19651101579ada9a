//! The one place of the functions that reads variables.

/// A variable's text; `None` when it is unset, empty or not UTF-8.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads them"
)]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
