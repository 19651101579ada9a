//! Adds up the hits of a skill: flags, warnings, and hints (weak signs that count only together).

use crate::finding::{Finding, Level};
use crate::rule::{Act, ScanRule};
use std::collections::{BTreeMap, BTreeSet};

/// Sum of points from which hints become warnings.
pub(super) const HINT_THRESHOLD: u32 = 6;
/// Maximum number of points that one family (group of related rules) adds to the sum.
const MOST_OF_A_FAMILY: u32 = 6;
/// Maximum number of findings of one rule that are listed for a skill.
pub(super) const MOST_LISTED: usize = 5;

/// A hit before the level of its finding is decided.
pub(super) struct Hit {
    pub rule: &'static ScanRule,
    pub act: Act,
    pub finding: Finding,
}

/// Returns the findings: hits that block as flags, hits that warn as warnings, hints as warnings if
/// their points reach the threshold. Other hints become notes if `with_hints` is set.
pub(super) fn sum_findings(mut hits: Vec<Hit>, with_hints: bool) -> Vec<Finding> {
    let is_threshold_reached = sum_points(&hits) >= HINT_THRESHOLD;
    let mut listed = BTreeMap::<(&str, CountKey), usize>::new();
    let mut places = BTreeSet::new();
    let mut findings = Vec::new();
    // Sort by weight, because a place keeps only one finding of a rule and the list is cut.
    hits.sort_by_key(|hit| (hit.act.rank(), hit.finding.view));
    for hit in hits {
        let level = match hit.act {
            Act::Block => Level::Flag,
            Act::Warn => Level::Warning,
            Act::Hint(_) if is_threshold_reached => Level::Warning,
            Act::Hint(_) if with_hints => Level::Note,
            Act::Hint(_) => continue,
        };
        // The same rule on the same line is one finding, whatever reading it came from. Findings
        // without a line are distinguished by their messages, which name the part of a container.
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
            // Count flags and warnings separately, so that neither uses up the limit of the other.
            .entry((hit.rule.rule.id, CountKey(level == Level::Flag)))
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

/// Returns the points of all hints: each rule counts once, each family up to a bound.
pub(super) fn sum_points(hits: &[Hit]) -> u32 {
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
            // The family of a rule is its id without the number. Its rules detect different
            // wordings of one idea, so their sum is bounded.
            .entry(id.rsplit_once('-').map_or(id, |(family, _)| family))
            .or_default() += points;
    }
    families
        .values()
        .map(|points| (*points).min(MOST_OF_A_FAMILY))
        .sum()
}

/// Key of a count: whether it counts flags or warnings.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
struct CountKey(bool);

impl Act {
    pub(super) const fn rank(self) -> u8 {
        match self {
            Self::Block => 0,
            Self::Warn => 1,
            Self::Hint(_) => 2,
        }
    }
}
