//! Points in time as the formats write them: whole seconds, UTC, `YYYY-MM-DDTHH:MM:SSZ`.
//!
//! No function here reads a clock; the trait `Clock` of the store crate does.

use std::fmt;
use std::str::FromStr;

use jiff::SignedDuration;
use jiff::civil::DateTime;

use crate::text::text_form;

/// A point in time in whole seconds, within the years 0000 to 9999; held as seconds since 1970.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(i64);

/// The text is not `YYYY-MM-DDTHH:MM:SSZ` with an existing date and time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("time must have the form YYYY-MM-DDTHH:MM:SSZ")]
pub struct BadTimestamp;

const DAY: i64 = 86_400;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl Timestamp {
    /// The first second that can be written, in the year 0000.
    pub const MIN: Self = Self(-62_167_219_200);
    /// The last second that can be written, in the year 9999.
    pub const MAX: Self = Self(253_402_300_799);

    /// Converts seconds since 1970. Values outside the years 0000 to 9999 become the nearest end.
    pub const fn from_unix(seconds: i64) -> Self {
        if seconds < Self::MIN.0 {
            Self::MIN
        } else if seconds > Self::MAX.0 {
            Self::MAX
        } else {
            Self(seconds)
        }
    }

    /// Seconds since 1970, negative before.
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// Returns the time that many seconds later (or earlier), kept within the years 0000 to 9999.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_unix(self.0.saturating_add(seconds))
    }

    /// Returns the time that many days later (or earlier), kept within the years 0000 to 9999.
    #[must_use]
    pub const fn plus_days(self, days: i64) -> Self {
        self.plus_seconds(days.saturating_mul(DAY))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}Z",
            EPOCH.saturating_add(SignedDuration::from_secs(self.0))
        )
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        let date: DateTime = text
            .strip_suffix('Z')
            .and_then(|date| date.parse().ok())
            .ok_or(BadTimestamp)?;
        let time = Self::from_unix(date.duration_since(EPOCH).as_secs());
        // The parser also accepts other forms (a space, fractions, second 60), but each time has
        // only one text here.
        if time.to_string() == text {
            Ok(time)
        } else {
            Err(BadTimestamp)
        }
    }
}

text_form!(
    Timestamp, BadTimestamp, "a time YYYY-MM-DDTHH:MM:SSZ", "format": "date-time"
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_760_000_000, "2025-10-09T08:53:20Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (Timestamp::MIN.0, "0000-01-01T00:00:00Z"),
            (Timestamp::MAX.0, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_unix(seconds).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp::from_unix(seconds)));
        }
        assert_eq!(Timestamp::from_unix(i64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.plus_days(i64::MIN), Timestamp::MIN);
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "2026-11-21T02:00:00",
            "2026-11-21T02:00:00+00:00",
            "2026-11-21T02:00:00.5Z",
            "2026-11-21 02:00:00Z",
            "2026-11-21t02:00:00z",
            "2026-02-30T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "+026-01-01T00:00:00Z",
            "-000001-01-01T00:00:00Z",
            "+002026-01-01T00:00:00Z",
            "2026-01-01T00:00Z",
            "2026-01-01Z",
            "20260101T000000Z",
            "2026-01-01T00:00:00[u-ca=iso8601]Z",
            "2026-01-01T00:00:00ZZ",
            "2026-1-01T00:00:00ZZ",
            "２026-01-01T00:0Z",
        ] {
            assert_eq!(bad.parse::<Timestamp>(), Err(BadTimestamp), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(seconds in Timestamp::MIN.0..=Timestamp::MAX.0) {
            let time = Timestamp::from_unix(seconds);
            prop_assert_eq!(time.to_string().parse(), Ok(time));
        }

        #[test]
        fn what_parses_prints_the_same(text in "[0-9]{4}-[0-3][0-9]-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z|.{0,25}") {
            if let Ok(time) = text.parse::<Timestamp>() {
                prop_assert_eq!(time.to_string(), text);
            }
        }
    }
}
