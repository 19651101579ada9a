//! Reads single cookies from the `Cookie` headers of a request.

use axum::http::header::{self, HeaderMap};

/// Returns the value of the first cookie with this name.
pub fn find_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers
        // HTTP/2 lets a browser split its cookies over several headers.
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(found, value)| (found == name).then_some(value))
}
