//! What the hits of a skill come to: flags, warnings, and hints that count together.

use crate::finding::{Finding, Level};
use crate::rule::{Act, ScanRule};
use std::collections::{BTreeMap, BTreeSet};

/// Sum of points at which hints become warnings.
pub(super) const HINT_THRESHOLD: u32 = 6;
/// What one family of rules can add to the sum.
const MOST_OF_A_FAMILY: u32 = 6;
/// Findings of one rule in one skill that are listed.
pub(super) const MOST_LISTED: usize = 5;

/// A hit before its weight is decided.
pub(super) struct Hit {
    pub rule: &'static ScanRule,
    pub act: Act,
    pub finding: Finding,
}

/// The findings: what blocks as flags, what warns as warnings, hints only where they come to
/// something together. The others are notes, which `with_hints` asks for.
pub(super) fn findings(mut hits: Vec<Hit>, with_hints: bool) -> Vec<Finding> {
    let said = points(&hits) >= HINT_THRESHOLD;
    let mut listed = BTreeMap::<(&str, Act2), usize>::new();
    let mut places = BTreeSet::new();
    let mut findings = Vec::new();
    hits.sort_by_key(|hit| (hit.act.rank(), hit.finding.view));
    for hit in hits {
        let level = match hit.act {
            Act::Block => Level::Flag,
            Act::Warn => Level::Warning,
            Act::Hint(_) if said => Level::Warning,
            Act::Hint(_) if with_hints => Level::Note,
            Act::Hint(_) => continue,
        };
        // The same rule on the same line is one finding, whatever reading it came from.
        let part = hit
            .finding
            .line
            .is_none()
            .then(|| hit.finding.message.clone());
        let place = (
            hit.rule.rule.id,
            hit.finding.path.clone(),
            hit.finding.line,
            part,
        );
        if !places.insert(place) {
            continue;
        }
        let count = listed
            .entry((hit.rule.rule.id, Act2(level == Level::Flag)))
            .or_default();
        *count += 1;
        if *count <= MOST_LISTED {
            findings.push(Finding {
                level,
                ..hit.finding
            });
        }
    }
    findings
}

/// The sum of hints: of each rule once, of each family at most so much.
pub(super) fn points(hits: &[Hit]) -> u32 {
    let mut rules = BTreeMap::<&str, u32>::new();
    for hit in hits {
        let points = match hit.act {
            Act::Hint(points) => points,
            Act::Block | Act::Warn => continue,
        };
        let best = rules.entry(hit.rule.rule.id).or_default();
        *best = (*best).max(points);
    }
    let mut families = BTreeMap::<&str, u32>::new();
    for (id, points) in rules {
        *families
            .entry(id.rsplit_once('-').map_or(id, |(family, _)| family))
            .or_default() += points;
    }
    families
        .values()
        .map(|points| (*points).min(MOST_OF_A_FAMILY))
        .sum()
}

/// Whether a count is of flags.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
struct Act2(bool);

impl Act {
    pub(super) const fn rank(self) -> u8 {
        match self {
            Self::Block => 0,
            Self::Warn => 1,
            Self::Hint(_) => 2,
        }
    }
}
