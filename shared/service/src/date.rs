//! Dates as HTTP writes them.

use vault_format::time::Timestamp;

/// The time as an IMF-fixdate (RFC 9110, section 5.6.7), for the header `Date`.
pub fn http_date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    // `YYYY-MM-DDTHH:MM:SSZ` has all parts but the day of the week, which 1970-01-01, a Thursday, gives.
    let text = time.to_string();
    let day = DAYS[usize::try_from(time.unix().div_euclid(86_400).rem_euclid(7)).unwrap_or(0)];
    let month = text[5..7]
        .parse::<usize>()
        .map_or("Jan", |month| MONTHS[(month - 1) % 12]);
    format!(
        "{day}, {} {month} {} {} GMT",
        &text[8..10],
        &text[..4],
        &text[11..19]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_rfc() {
        for (unix, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1_795_219_200, "Sat, 21 Nov 2026 00:00:00 GMT"),
            (951_825_599, "Tue, 29 Feb 2000 11:59:59 GMT"),
        ] {
            assert_eq!(http_date(Timestamp::from_unix(unix)), text);
        }
    }
}
