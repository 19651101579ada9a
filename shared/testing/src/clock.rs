//! A clock for tests.

use std::sync::atomic::{AtomicU64, Ordering};

use vault_format::time::Timestamp;
use vault_store::clock::Clock;

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct TestClock(AtomicU64);

impl TestClock {
    /// Creates a clock that shows `start`. A time before 1970 becomes 1970.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new(millis(start)))
    }

    /// Moves the clock forward, or back if `seconds` is negative.
    pub fn advance(&self, seconds: i64) {
        self.advance_millis(seconds.saturating_mul(1000));
    }

    /// Moves the clock forward, or back if `millis` is negative.
    pub fn advance_millis(&self, millis: i64) {
        // The closure always returns `Some`, so the update cannot fail.
        let _ = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| {
                Some(now.saturating_add_signed(millis))
            });
    }

    /// Sets the clock to `time`. A time before 1970 becomes 1970.
    pub fn set(&self, time: Timestamp) {
        self.0.store(millis(time), Ordering::SeqCst);
    }
}

impl Default for TestClock {
    /// Shows 2026-11-21T00:00:00Z.
    fn default() -> Self {
        Self(AtomicU64::new(1_795_219_200_000))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        // u64::MAX / 1000 fits an i64.
        Timestamp::from_unix((self.now_millis() / 1000).cast_signed())
    }

    fn now_millis(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

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
}
