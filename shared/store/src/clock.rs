//! The port `Clock`: the only source of time.
//!
//! Expiry, time stamps and windows use this clock, never that of a database or a function. A test
//! can therefore set the time and never has to sleep.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use vault_format::time::Timestamp;

/// A source of wall-clock time.
pub trait Clock: Send + Sync {
    /// Returns the time in whole seconds, rounded down.
    fn now(&self) -> Timestamp;
    /// Returns the time in milliseconds since 1970-01-01T00:00:00Z; never below zero.
    fn now_millis(&self) -> u64;
}

impl<T: Clock + ?Sized> Clock for Arc<T> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn now_millis(&self) -> u64 {
        (**self).now_millis()
    }
}

/// The clock of the operating system, which the service uses outside of tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        to_timestamp(self.now_millis())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the port's implementation"
    )]
    fn now_millis(&self) -> u64 {
        // A clock set before 1970 reads as 1970. Every signature and token is then rejected, and
        // none is accepted by mistake.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

fn to_timestamp(millis: u64) -> Timestamp {
    // u64::MAX / 1000 fits an i64.
    Timestamp::from_unix((millis / 1000).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_s_clock_counts_in_the_right_unit() {
        let clock = SystemClock;
        let (seconds, millis) = (clock.now().unix(), clock.now_millis());
        assert!(seconds > 1_700_000_000, "{seconds}");
        assert!(
            (millis / 1000).abs_diff(seconds.cast_unsigned()) <= 1,
            "{seconds} {millis}"
        );
    }
}
