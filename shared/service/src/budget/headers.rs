//! The header fields `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10).
//! Both are lists of structured fields (RFC 9651), with one member for each limit.

use std::fmt::Write as _;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::error::{ErrorCode, Refusal};

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Names of `RateLimit-Policy` and `RateLimit`, in this order.
pub const FIELDS: [HeaderName; 2] = [RATE_LIMIT_POLICY, RATE_LIMIT];
/// Largest integer of a structured field (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A limit and its state in the present window.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitState {
    /// Name of the limit in both fields, such as `namespace`.
    pub name: &'static str,
    /// Maximum number of units in a window, for this caller.
    pub quota: u64,
    /// Length of a window, in seconds.
    pub seconds: i64,
    /// Number of units that this caller may still use in the window.
    pub remaining: u64,
    /// Number of seconds until the next window.
    pub resets_in: u64,
}

impl LimitState {
    /// Returns the refusal of a request when no unit is left: 429 with `Retry-After` and the header
    /// fields of this limit.
    pub fn refusal(&self) -> Refusal {
        let state = std::slice::from_ref(self);
        let refusal = Refusal::new(ErrorCode::RateLimited)
            .retry_after(self.resets_in)
            .with(|problem| problem.limit = Some(self.name.to_owned()));
        let fields = FIELDS.into_iter().zip(format_field_values(state));
        fields.fold(refusal, |refusal, (name, value)| match value {
            Some(value) => refusal.header(name, value),
            None => refusal,
        })
    }
}

/// Adds the header fields for these limits to an answer, unless it has such fields already.
pub fn add_headers(headers: &mut HeaderMap, states: &[LimitState]) {
    // A refusal has the fields of the one limit that caused it.
    if states.is_empty() || headers.contains_key(RATE_LIMIT) {
        return;
    }
    for (name, value) in FIELDS.into_iter().zip(format_field_values(states)) {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
}

/// Returns the values of `RateLimit-Policy` and `RateLimit`.
fn format_field_values(states: &[LimitState]) -> [Option<HeaderValue>; 2] {
    let (mut policy, mut present) = (String::new(), String::new());
    for state in states {
        let separator = if policy.is_empty() { "" } else { ", " };
        let (name, quota) = (state.name, state.quota.min(MAX_INTEGER));
        let _ = write!(
            policy,
            "{separator}\"{name}\";q={quota};w={}",
            state.seconds
        );
        let (left, time) = (state.remaining.min(MAX_INTEGER), state.resets_in);
        let _ = write!(present, "{separator}\"{name}\";r={left};t={time}");
    }
    // Names, digits and punctuation are always valid; the option only avoids a panic.
    [policy, present].map(|text| HeaderValue::from_str(&text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_structured_fields() {
        let state = |name, quota, remaining| LimitState {
            name,
            quota,
            seconds: 60,
            remaining,
            resets_in: 17,
        };
        let mut headers = HeaderMap::new();
        add_headers(&mut headers, &[]);
        assert!(headers.is_empty());
        let states = [state("grant", 600, 599), state("namespace", 3000, 2)];
        add_headers(&mut headers, &states);
        add_headers(&mut headers, &[state("other", 1, 1)]);
        assert_eq!(
            headers["ratelimit-policy"],
            "\"grant\";q=600;w=60, \"namespace\";q=3000;w=60"
        );
        assert_eq!(
            headers["ratelimit"],
            "\"grant\";r=599;t=17, \"namespace\";r=2;t=17"
        );
        let refusal = state("grant", u64::MAX, 0).refusal();
        assert_eq!(refusal.status(), 429);
        let field = |name: HeaderName| refusal.header_value(&name).unwrap().to_str().unwrap();
        assert_eq!(field(RATE_LIMIT), "\"grant\";r=0;t=17");
        assert_eq!(field(RATE_LIMIT_POLICY), "\"grant\";q=999999999999999;w=60");
        assert_eq!(field(axum::http::header::RETRY_AFTER), "17");
    }
}
