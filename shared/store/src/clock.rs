//! The port `Clock`: the only place from which time comes.
//!
//! Expiry, time stamps and windows are decided by this clock, never by a database's or a function's own, so that a test
//! moves time by `TestClock::advance` and never sleeps.

#[cfg(any(test, feature = "testing"))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use vault_skill::time::Timestamp;

/// Wall-clock time.
pub trait Clock: Send + Sync {
    /// The time in whole seconds, rounded down.
    fn now(&self) -> Timestamp;
    /// The time in milliseconds since 1970-01-01T00:00:00Z; never below zero.
    fn now_millis(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        seconds(self.now_millis())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the port's implementation"
    )]
    fn now_millis(&self) -> u64 {
        // A clock set before 1970 reads as 1970: every signature and token is then refused, none is accepted.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still until a test moves it.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug)]
pub struct TestClock(AtomicU64);

#[cfg(any(test, feature = "testing"))]
impl TestClock {
    /// A clock that shows `start`; a time before 1970 shows as 1970.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new(millis(start)))
    }

    /// Moves the clock forward, or back when `seconds` is negative.
    pub fn advance(&self, seconds: i64) {
        self.advance_millis(seconds.saturating_mul(1000));
    }

    /// Moves the clock forward, or back when `millis` is negative.
    pub fn advance_millis(&self, millis: i64) {
        // The closure always answers `Some`, so the update cannot fail.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                Some(now.saturating_add_signed(millis))
            });
    }

    /// Sets the clock to `time`; a time before 1970 shows as 1970.
    pub fn set(&self, time: Timestamp) {
        self.0.store(millis(time), Ordering::SeqCst);
    }
}

#[cfg(any(test, feature = "testing"))]
impl Default for TestClock {
    /// 2026-11-21T00:00:00Z.
    fn default() -> Self {
        Self(AtomicU64::new(1_795_219_200_000))
    }
}

#[cfg(any(test, feature = "testing"))]
impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        seconds(self.now_millis())
    }

    fn now_millis(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

fn seconds(millis: u64) -> Timestamp {
    // u64::MAX / 1000 fits an i64.
    Timestamp::from_unix((millis / 1000).cast_signed())
}

#[cfg(any(test, feature = "testing"))]
fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.unix()).unwrap_or(0).saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_clock_stands_still_until_moved() {
        let clock = TestClock::default();
        assert_eq!(clock.now().to_string(), "2026-11-21T00:00:00Z");
        assert_eq!(clock.now(), clock.now());
        clock.advance(301);
        assert_eq!(clock.now().to_string(), "2026-11-21T00:05:01Z");
        clock.advance_millis(999);
        assert_eq!(clock.now().to_string(), "2026-11-21T00:05:01Z");
        clock.advance(-301);
        assert_eq!(clock.now_millis(), 1_795_219_200_999);
        clock.advance(i64::MIN);
        assert_eq!(clock.now_millis(), 0);
    }

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
