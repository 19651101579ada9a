//! Formats numbers for pages and messages.

use std::fmt::Display;

/// Formats a number of things: `1 file`, `3 files`.
pub(crate) fn format_count<N: Copy + Display + PartialEq + From<u8>>(
    number: N,
    one: &str,
    many: &str,
) -> String {
    let what = if number == N::from(1) { one } else { many };
    format!("{number} {what}")
}

/// Formats a number of bytes: `1 byte`, `1.5 KiB`.
pub(crate) fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format_count(bytes, "byte", "bytes");
    }
    // Cut and not rounded, so that no size reads as `1024.0 KiB`.
    let (mut whole, mut tenths, mut unit) = (bytes / 1024, bytes % 1024 * 10 / 1024, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    format!("{whole}.{tenths} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        for (number, text) in [(0_u64, "0 files"), (1, "1 file"), (2, "2 files")] {
            assert_eq!(format_count(number, "file", "files"), text);
        }
    }

    #[test]
    fn sizes_are_written_for_people() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (2 << 30, "2.0 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }
}
