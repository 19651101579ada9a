//! Timeline of a vault's releases: computes the position and size of each bar in a picture. The
//! functions are pure; the template draws the picture.

use vault_format::time::Timestamp;

use crate::model::release::Release;
use crate::units::format_count;
use crate::web::layout::{format_day, format_minute};

/// Maximum number of releases in the picture; older ones are left out.
pub(super) const MAX_SHOWN: usize = 60;
/// Width of the picture, in user units of the SVG image.
pub(super) const WIDTH: u32 = 720;
/// Width of a bar, in user units.
pub(super) const BAR: u32 = 6;
/// Left edges of the first and of the last bar, in tenths of a unit.
const EDGES: (i64, i64) = (40, 7100);
/// Minimum distance between two bars, so that none hides another, in tenths of a unit.
const MIN_DISTANCE: i64 = 90;
/// Heights of the tallest and of the lowest bar, in tenths of a unit.
const HEIGHTS: (u64, u64) = (440, 40);
/// Vertical position of the base line, in tenths of a unit.
const BASE: u64 = 520;

/// The bars and labels of the picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timeline {
    pub(super) marks: Vec<ReleaseBar>,
    /// The day at the left end, or the time if all releases are of one day.
    pub(super) from: String,
    /// The day or the time at the right end; `None` if it would equal the left end.
    pub(super) to: Option<String>,
    /// Description for people who do not see the picture.
    pub(super) description: String,
}

/// A release in the picture: a bar whose height shows how many skills changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReleaseBar {
    pub(super) release: u64,
    /// Left edge, height and upper edge of the bar, as decimal numbers.
    pub(super) x: String,
    pub(super) height: String,
    pub(super) y: String,
    /// Tooltip of the bar: the release and what changed in it.
    pub(super) title: String,
}

/// Computes the picture of these releases, which are sorted from the oldest; `None` for fewer than
/// two.
pub(super) fn draw_timeline(releases: &[Release]) -> Option<Timeline> {
    let skipped = releases.len().saturating_sub(MAX_SHOWN);
    let drawn = releases.get(skipped..)?;
    let [first, .., last] = drawn else {
        return None;
    };
    let most = drawn.iter().map(count_changes).max().unwrap_or(0).max(1);
    let places = place_bars(&drawn.iter().map(|one| one.published_at).collect::<Vec<_>>());
    let mark = |(release, x): (&Release, i64)| {
        // The height grows with the square root, so that a release of one skill is visible beside
        // one of a thousand.
        let root = (count_changes(release).saturating_mul(10_000) / most).isqrt();
        let height = (HEIGHTS.0 * root / 100).max(HEIGHTS.1);
        let skills = format_count(count_changes(release), "skill", "skills");
        ReleaseBar {
            release: release.release,
            x: format!("{}.{}", x / 10, x % 10),
            height: format_tenths(height),
            y: format_tenths(BASE - height),
            title: format!(
                "Release {} on {} changed {skills}",
                release.release,
                format_day(release.published_at)
            ),
        }
    };
    let (from, to) = end_labels(first.published_at, last.published_at);
    let when = match &to {
        Some(to) => format!("from {from} to {to}"),
        None => format!("of {from}"),
    };
    Some(Timeline {
        description: format!(
            "{} releases {when}, each a bar. The higher the bar, the more skills the release changed.",
            drawn.len()
        ),
        marks: drawn.iter().zip(places).map(mark).collect(),
        from,
        to,
    })
}

/// Returns the labels of both ends: days, or times within one day.
fn end_labels(first: Timestamp, last: Timestamp) -> (String, Option<String>) {
    let (mut from, mut to) = (format_day(first), format_day(last));
    if from == to {
        (from, to) = (format_minute(first), format_minute(last));
    }
    let differs = from != to;
    (from, differs.then_some(to))
}

const fn count_changes(release: &Release) -> u64 {
    release.added + release.changed + release.removed
}

/// Writes a number of tenths as a decimal fraction.
fn format_tenths(value: u64) -> String {
    format!("{}.{}", value / 10, value % 10)
}

/// Returns the positions of times between both ends, in tenths of a unit: in proportion to time,
/// but at least [`MIN_DISTANCE`] apart, and never outside the picture.
fn place_bars(times: &[Timestamp]) -> Vec<i64> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Vec::new();
    };
    // At least 1, so that releases of the same second cause no division by zero.
    let length = (last.unix() - first.unix()).max(1);
    let (left, right) = EDGES;
    let mut places: Vec<i64> = Vec::with_capacity(times.len());
    for at in times {
        let since = (at.unix() - first.unix()).clamp(0, length);
        let proportional = left + since.saturating_mul(right - left) / length;
        let least = places.last().map_or(left, |before| before + MIN_DISTANCE);
        places.push(proportional.max(least));
    }
    // From the right end back: a bar beyond the end moves in, and pushes the bars before it.
    let mut most = right;
    for place in places.iter_mut().rev() {
        *place = (*place).min(most);
        most = *place - MIN_DISTANCE;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use vault_format::hash::Digest;

    fn release(number: u64, at: i64) -> Release {
        Release {
            release: number,
            root_version: 1,
            sha256: Digest::of(b"a"),
            payload_sha256: Digest::of(b"b"),
            published_at: Timestamp::from_unix(at),
            by: "usr_1".to_owned(),
            added: number,
            changed: 0,
            removed: 0,
            skills: None,
            signers: Vec::new(),
        }
    }

    #[test]
    fn marks_never_overlap_and_stay_inside() {
        for times in [
            (0..60).collect::<Vec<i64>>(),
            vec![0; 60],
            (0..60).map(|n| n * n * n * 1000).collect(),
            vec![1_000_000, 999_000, 2_000_000],
        ] {
            let times: Vec<_> = times.into_iter().map(Timestamp::from_unix).collect();
            let places = place_bars(&times);
            for pair in places.windows(2) {
                assert!(pair[1] - pair[0] >= MIN_DISTANCE, "{places:?}");
            }
            let (left, right) = EDGES;
            assert!(
                places.iter().all(|x| (left..=right).contains(x)),
                "{places:?}"
            );
        }
    }

    #[test]
    fn the_ends_show_days_and_within_one_day_times() {
        let night = 1_795_219_200;
        for (last, from, to) in [
            (night + 86_400, "21 Nov 2026", Some("22 Nov 2026")),
            (
                night + 3600,
                "21 Nov 2026, 00:00 UTC",
                Some("21 Nov 2026, 01:00 UTC"),
            ),
            (night + 59, "21 Nov 2026, 00:00 UTC", None),
        ] {
            let shown = draw_timeline(&[release(1, night), release(2, last)]).unwrap();
            assert_eq!((&*shown.from, shown.to.as_deref()), (from, to));
            let when = to.map_or_else(
                || format!("of {from},"),
                |to| format!("from {from} to {to},"),
            );
            assert!(shown.description.contains(&when), "{}", shown.description);
        }
    }

    #[test]
    fn a_thousand_releases_show_the_last_sixty() {
        let at = |n: u64| i64::try_from(n).unwrap() * 3600;
        let releases: Vec<_> = (1..=1000).map(|n| release(n, at(n))).collect();
        let shown = draw_timeline(&releases).unwrap();
        let numbers: Vec<_> = shown.marks.iter().map(|mark| mark.release).collect();
        assert_eq!(numbers, (941..=1000).collect::<Vec<_>>());
        assert!(shown.description.starts_with("60 releases from "));
        let (tallest, lowest) = (&shown.marks[59], &shown.marks[0]);
        assert_eq!((&*tallest.height, &*tallest.y), ("44.0", "8.0"));
        assert!(lowest.height.parse::<f64>().unwrap() < 44.0);
        assert_eq!(draw_timeline(&releases[..1]), None);
        assert_eq!(draw_timeline(&[]), None);
    }
}
