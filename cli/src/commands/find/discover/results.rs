//! The results of `vault find`, for `--json` and for people.

use schemars::JsonSchema;
use serde::Serialize;
use vault_gate::finding::{Finding, Level};

use crate::output::{BAD, BOLD, DIM, GOOD, HINT, WARN, clean, count, join, paint};

/// The results of a search of registries and sites.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Discovery {
    /// The results, the first of each place before the second of any.
    pub results: Vec<DiscoveredSkill>,
    /// Every configured place, also those that gave nothing.
    pub places: Vec<SearchedPlace>,
}

/// A skill that a registry or site offers.
#[derive(Debug, JsonSchema, Serialize)]
pub struct DiscoveredSkill {
    /// Name of the skill there.
    pub name: String,
    /// What the place says that it does, at most 300 characters; null if it says nothing. Untrusted
    /// text.
    pub description: Option<String>,
    /// The source that `vault add` and `vault try` take.
    pub source: String,
    /// The value of `--skill` for that source; null if the source is a single skill.
    pub skill: Option<String>,
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// The gate's verdict on the fetched files of a skill.
#[derive(Debug, Default, JsonSchema, Serialize)]
pub struct Judgement {
    /// The verdict of this machine's gate.
    pub verdict: FoundVerdict,
    /// The reason if the skill was to be judged and could not be; else null.
    pub reason: Option<String>,
    /// The findings of the gate, the heaviest first.
    pub findings: Vec<Finding>,
    /// The vault that signed exactly the fetched files, by the fingerprint of its first root version;
    /// null if none did, or if nothing was fetched.
    pub signer: Option<String>,
    /// The commit, version or digest that was fetched; null if nothing was.
    pub revision: Option<String>,
}

/// A verdict on a found skill.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundVerdict {
    /// The gate would accept it without warnings.
    Accepted,
    /// The gate would accept it with warnings.
    Warnings,
    /// The gate would refuse it.
    Blocked,
    /// The gate has not seen it.
    #[default]
    NotJudged,
}

/// A registry or site that was to be searched.
#[derive(Debug, JsonSchema, Serialize)]
pub struct SearchedPlace {
    /// Its address.
    pub place: String,
    /// Whether it was asked, and whether it answered.
    pub status: PlaceStatus,
    /// Number of results that fit there, also those that are not shown.
    pub found: usize,
    /// Number of results that name no skill that could be fetched.
    pub unusable: usize,
    /// The reason if it gave no answer; else null.
    pub reason: Option<String>,
}

/// The outcome of asking a place.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceStatus {
    /// It answered.
    Answered,
    /// It did not answer, or its answer was not a list of skills.
    Failed,
    /// The policy allows nothing from there, so it was not asked.
    Refused,
    /// It has no search and no list, so it was not asked.
    NoSearch,
}

/// Formats the results and their numbers for people.
pub fn render(results: &[DiscoveredSkill], places: &[SearchedPlace]) -> String {
    let mut lines = Vec::new();
    for result in results {
        lines.extend(result.lines());
    }
    let answered = places
        .iter()
        .filter(|place| place.status == PlaceStatus::Answered);
    let found: usize = answered.clone().map(|place| place.found).sum();
    let unusable: usize = answered.clone().map(|place| place.unusable).sum();
    let judged = results
        .iter()
        .filter(|result| result.judgement.verdict != FoundVerdict::NotJudged);
    let mut total = format!(
        "{} in {}: {} shown, {} judged",
        count(found, "result"),
        count(answered.count(), "place"),
        results.len(),
        judged.count()
    );
    if unusable > 0 {
        total.push_str(&format!("; {} cannot be fetched", count(unusable, "entry")));
    }
    if results.is_empty() {
        let places = places
            .iter()
            .filter(|place| place.status == PlaceStatus::Answered);
        total = format!("Nothing found in {}", count(places.count(), "place"));
    }
    lines.push(paint(DIM, total));
    if let Some(first) = results.first() {
        let source = first.argument();
        lines.push(format!("{HINT}Try one:{HINT:#} vault try {source}"));
    }
    lines.join("\n")
}

impl Judgement {
    /// Returns the judgement of a skill that could not be fetched or read.
    pub fn not_judged(reason: &str) -> Self {
        Self {
            reason: Some(clean(reason, 300)),
            ..Self::default()
        }
    }

    /// Returns the names of the rules with findings above this level, each once.
    fn rules_above(&self, level: Level) -> String {
        let mut rules: Vec<_> = self
            .findings
            .iter()
            .filter(|finding| finding.level > level)
            .map(|finding| finding.rule)
            .collect();
        rules.dedup();
        join(rules)
    }
}

impl DiscoveredSkill {
    /// Returns the source as an argument of a command, with its flag.
    fn argument(&self) -> String {
        let source = clean(&self.source, 200);
        match &self.skill {
            Some(skill) => format!("{source} --skill {}", clean(skill, 64)),
            None => source,
        }
    }

    /// Formats the result: its name with verdict and signer, its source, its description.
    fn lines(&self) -> Vec<String> {
        let judged = &self.judgement;
        let verdict = match judged.verdict {
            FoundVerdict::Accepted => paint(GOOD, "✓ accepted"),
            FoundVerdict::Warnings => {
                let rules = judged.rules_above(Level::Note);
                format!("{GOOD}✓ accepted{GOOD:#} with {WARN}warnings{WARN:#}: {rules}")
            }
            FoundVerdict::Blocked => {
                let rules = judged.rules_above(Level::Warning);
                format!("{BAD}✗ blocked{BAD:#}: {rules}")
            }
            FoundVerdict::NotJudged => match &judged.reason {
                Some(reason) => format!("{DIM}? not judged: {reason}{DIM:#}"),
                None => paint(DIM, "? not judged"),
            },
        };
        let signer = match (&judged.signer, judged.verdict) {
            (Some(signer), _) => format!(", signed by {signer}"),
            (None, FoundVerdict::NotJudged) => String::new(),
            (None, _) => ", not signed".to_owned(),
        };
        let name = paint(BOLD, clean(&self.name, 64));
        let mut lines = vec![
            format!("{name}  {verdict}{signer}"),
            format!("  {}", self.argument()),
        ];
        if let Some(description) = &self.description {
            let description = clean(description, 160);
            lines.push(format!("  {DIM}{description}{DIM:#}"));
        }
        lines
    }
}
