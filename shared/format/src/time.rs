//! Points in time as the formats write them: whole seconds, UTC, `YYYY-MM-DDTHH:MM:SSZ`.
//!
//! There is no "now" here; a clock is a port of the store crate.

use std::fmt;
use std::str::FromStr;

use crate::text::text_form;

/// A second since 1970-01-01T00:00:00Z, within the years 0000 to 9999.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(i64);

/// The text is not `YYYY-MM-DDTHH:MM:SSZ` with an existing date and time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a time is written YYYY-MM-DDTHH:MM:SSZ")]
pub struct BadTimestamp;

const DAY: i64 = 86_400;

impl Timestamp {
    /// The first second that can be written, in the year 0000.
    pub const MIN: Self = Self(-62_167_219_200);
    /// The last second that can be written, in the year 9999.
    pub const MAX: Self = Self(253_402_300_799);

    /// Takes seconds since 1970; what lies outside the years 0000 to 9999 becomes the nearest end.
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

    /// The time that many seconds later (or earlier), kept within the years 0000 to 9999.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_unix(self.0.saturating_add(seconds))
    }

    /// The time that many days later (or earlier), kept within the years 0000 to 9999.
    #[must_use]
    pub const fn plus_days(self, days: i64) -> Self {
        self.plus_seconds(days.saturating_mul(DAY))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY));
        let second = self.0.rem_euclid(DAY);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Self, BadTimestamp> {
        let [
            y1,
            y2,
            y3,
            y4,
            b'-',
            m1,
            m2,
            b'-',
            d1,
            d2,
            b'T',
            h1,
            h2,
            b':',
            n1,
            n2,
            b':',
            s1,
            s2,
            b'Z',
        ] = *text.as_bytes()
        else {
            return Err(BadTimestamp);
        };
        let year = number(&[y1, y2, y3, y4])?;
        let (month, day) = (number(&[m1, m2])?, number(&[d1, d2])?);
        let (hour, minute, second) = (number(&[h1, h2])?, number(&[n1, n2])?, number(&[s1, s2])?);
        if hour > 23 || minute > 59 || second > 59 {
            return Err(BadTimestamp);
        }
        let days = days_of(year, month, day);
        // Converting back tells 30 February and month 13 from real dates.
        if date_of(days) != (year, month, day) {
            return Err(BadTimestamp);
        }
        Ok(Self(days * DAY + hour * 3600 + minute * 60 + second))
    }
}

fn number(digits: &[u8]) -> Result<i64, BadTimestamp> {
    digits.iter().try_fold(0, |sum, digit| match digit {
        b'0'..=b'9' => Ok(sum * 10 + i64::from(digit - b'0')),
        _ => Err(BadTimestamp),
    })
}

/// Days since 1970 of a date in the Gregorian calendar; years are counted from March so that the leap day is last.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day since 1970: the inverse of [`days_of`].
const fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

text_form!(Timestamp, BadTimestamp, "a time YYYY-MM-DDTHH:MM:SSZ");

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
