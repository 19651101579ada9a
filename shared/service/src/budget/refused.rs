//! Tokens over a limit: until the minute ends, further requests with them are refused before
//! anything is read from the store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use vault_format::hash::Digest;
use vault_format::time::Timestamp;

use super::{LimitState, MINUTE, seconds_left};
use crate::error::Refusal;

/// Maximum number of tokens that are remembered in a minute. Requests with further tokens are
/// refused too, but only after their records were read.
const MAX_TOKENS: usize = 4096;

/// A limit on requests in a minute that is used up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FullLimit {
    /// Name of the limit in the header fields and in the refusal.
    pub name: &'static str,
    /// Maximum number of requests in a minute.
    pub quota: u64,
    /// Sentence in the refusal that tells people what to do.
    pub detail: &'static str,
}

impl FullLimit {
    /// Returns the refusal at `now`: 429, to be repeated in the next minute.
    pub fn refusal(&self, now: Timestamp) -> Refusal {
        let state = LimitState {
            name: self.name,
            quota: self.quota,
            seconds: MINUTE,
            remaining: 0,
            resets_in: seconds_left(minute_of(now), MINUTE, now),
        };
        state.refusal().detail(self.detail)
    }
}

/// The tokens whose requests were refused in one minute.
#[derive(Debug, Default)]
pub struct RefusedTokens(Mutex<Tokens>);

#[derive(Debug, Default)]
struct Tokens {
    minute: i64,
    limits: HashMap<Digest, FullLimit>,
}

impl RefusedTokens {
    /// Remembers until the end of the minute that requests with this token are refused. They would
    /// be anyway, because counts only grow within a minute.
    pub fn remember_token(&self, token: Digest, limit: FullLimit, now: Timestamp) {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minute = minute_of(now);
        if tokens.minute < minute {
            tokens.minute = minute;
            tokens.limits.clear();
        }
        // A late request belongs to a minute that is over.
        if tokens.minute == minute && tokens.limits.len() < MAX_TOKENS {
            tokens.limits.insert(token, limit);
        }
    }

    /// Returns the limit that refuses requests with this token; `None` if none is known.
    pub fn find_limit(&self, token: &Digest, now: Timestamp) -> Option<FullLimit> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.minute != minute_of(now) {
            return None;
        }
        tokens.limits.get(token).copied()
    }
}

fn minute_of(now: Timestamp) -> i64 {
    now.unix() - now.unix().rem_euclid(MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_refused_until_the_minute_ends() {
        let refused = RefusedTokens::default();
        let limit = FullLimit {
            name: "grant",
            quota: 2,
            detail: "too many",
        };
        let at = Timestamp::from_unix;
        let token = Digest::of(b"a");
        assert_eq!(refused.find_limit(&token, at(61)), None);
        refused.remember_token(token, limit, at(61));
        for (token, now, found) in [
            (token, 61, Some(limit)),
            (token, 119, Some(limit)),
            (Digest::of(b"b"), 61, None),
            (token, 120, None),
            (token, 59, None),
        ] {
            assert_eq!(refused.find_limit(&token, at(now)), found, "{now}");
        }
        refused.remember_token(Digest::of(b"late"), limit, at(59));
        assert_eq!(refused.find_limit(&token, at(100)), Some(limit));
        let refusal = limit.refusal(at(103));
        let wait = refusal.header_value(&axum::http::header::RETRY_AFTER);
        assert_eq!(wait.unwrap(), "17");
    }
}
