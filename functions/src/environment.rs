//! The only place in the functions that reads environment variables.

/// Returns the text of a variable; `None` if it is unset, empty or not UTF-8.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place that reads them"
)]
pub fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
