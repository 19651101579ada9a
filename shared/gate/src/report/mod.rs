//! The result of an audit (a scan of many skills), and the forms in which programs and other
//! services read it.
//!
//! These are pure functions: the texts of skills come in, text goes out. Each form contains hostile
//! names and lines, and escapes them for its own reader: [`json`] and [`sarif`] write characters
//! that control terminals as `\u` escapes, [`markdown`] lets no mark-up through, [`Excerpt`] is a
//! line that a terminal can show. The skills keep the caller's order, except that [`markdown`] puts
//! the worst verdicts first.

mod excerpt;
pub mod json;
pub mod markdown;
pub mod sarif;

pub use excerpt::{Excerpt, decode_text};

use crate as gate;
use crate::finding::{Finding, Level};
use crate::similar;
use crate::similar::{Sketch, SketchIndex};
use crate::skill_folders::LeftOut;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use vault_format::hash::Digest;
use vault_format::manifest::SKILL_MD;
use vault_format::words;

words! {
    /// Outcome of the audit of a skill; later ones weigh more.
    #[derive(JsonSchema, Ord, PartialOrd)]
    pub enum Verdict {
        /// Would be admitted without warnings.
        Accepted = "accepted",
        /// Would be admitted with warnings.
        Warnings = "warnings",
        /// Would be rejected.
        Blocked = "blocked",
        /// Not all of it could be read, so it was not judged as a whole.
        Unreadable = "unreadable",
    }
}

impl Verdict {
    /// Returns the verdict for an outcome of the scan.
    pub const fn of(outcome: gate::Outcome) -> Self {
        match outcome {
            gate::Outcome::Accepted => Self::Accepted,
            gate::Outcome::AcceptedWithWarnings => Self::Warnings,
            gate::Outcome::Blocked => Self::Blocked,
        }
    }
}

/// A finding with the line of text that it is about.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Located {
    /// The finding, with a path relative to the skill's folder.
    pub finding: Finding,
    /// The line of the file; `None` if the finding has no line or the file is not text.
    #[serde(skip)]
    pub source: Option<Excerpt>,
}

/// A finding that does not count, because a committed list names its rule and its file's bytes. For
/// an error of the format, the list names a path instead.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct AcceptedFinding {
    /// The rule.
    pub rule: String,
    /// The rule as the list names it, by its name or its id.
    #[serde(skip)]
    pub by: String,
    /// The file, below the skill. May be hostile text.
    pub path: String,
    /// The line, where the finding has one.
    pub line: Option<u32>,
    /// SHA-256 of the file; null for an error of the format.
    pub sha256: Option<Digest>,
    /// The path that the list names for an error of the format; null for other findings.
    pub within: Option<String>,
    /// Reason for accepting it, in the words of the list.
    pub reason: String,
}

/// A skill that was audited.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(rename = "AuditedSkill")]
pub struct Audited {
    /// Path of its folder below the audited one, joined by `/`; `.` for that one. May be hostile
    /// text.
    pub path: String,
    /// The same path as a relative reference of a URI: percent-encoded, empty for `.`.
    #[serde(skip)]
    pub uri: String,
    /// File that makes it a skill, spelled as on disk: nearly always `SKILL.md`.
    #[serde(skip)]
    pub document: String,
    /// Its name in the vault, or the author's where the vault would have none. May be hostile text.
    pub name: Option<String>,
    /// Outcome of its audit.
    pub verdict: Verdict,
    /// Hash over the paths and bytes of its files; absent if not all were read.
    pub hash: Option<Digest>,
    /// Findings, the heaviest first.
    #[schemars(with = "Vec<Finding>")]
    pub findings: Vec<Located>,
    /// Findings that a committed list accepts; they count for nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<AcceptedFinding>,
    /// Sketch of its text, for comparisons; absent if not all was read.
    #[serde(skip)]
    pub sketch: Option<Sketch>,
    /// The path of the earlier skill of this audit that has the same bytes or nearly the same text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
    /// Share of the text that is the same, from 0.9 to 1; 1 for the same bytes. Absent if there is
    /// no duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likeness: Option<f64>,
    /// Time for reading and judging it, in microseconds.
    pub microseconds: u64,
}

impl Audited {
    /// Returns the number of findings that block.
    pub fn blocking_count(&self) -> usize {
        let blocks = |located: &&Located| located.finding.level > Level::Warning;
        self.findings.iter().filter(blocks).count()
    }

    /// Returns the path of a finding's file below the audited folder.
    pub fn path_of(&self, finding: &Finding) -> String {
        let file = self.file_of(finding);
        if self.path == "." {
            file.to_owned()
        } else {
            format!("{}/{file}", self.path.trim_end_matches('/'))
        }
    }

    /// Returns the path of a finding's file below the skill, with the name that it has on disk.
    fn file_of<'a>(&'a self, finding: &'a Finding) -> &'a str {
        match finding.path.as_str() {
            // The scan calls the document SKILL.md, but a reader must find it by its name on disk.
            "" | SKILL_MD => &self.document,
            path => path,
        }
    }
}

/// A folder or link that was not searched.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Skipped {
    /// Its path below the audited folder. May be hostile text.
    pub path: String,
    /// Reason, one sentence without a full stop.
    pub reason: String,
}

/// A skill that was found and not judged, because a committed list or a flag excludes its path.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Excluded {
    /// Its path below the audited folder. May be hostile text.
    pub path: String,
    /// The path that the list or the flag names.
    pub by: String,
    /// Reason, in the words of the list.
    pub reason: String,
}

/// A folder that has a SKILL.md but does not count as a skill of the audited folder, or a link to
/// the folder of a skill.
#[derive(Clone, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct LeftOutFolder {
    /// Its path below the audited folder. May be hostile text.
    pub path: String,
    /// The stable code of the reason, as `vault add` gives it, such as `inside_skill`, `generated`
    /// or `link`.
    pub reason: &'static str,
    /// The reason, in one sentence without a full stop. May contain hostile text.
    pub message: String,
}

impl From<LeftOut> for LeftOutFolder {
    fn from(left: LeftOut) -> Self {
        Self {
            path: left.path,
            reason: left.reason.word(),
            message: left.reason.to_string(),
        }
    }
}

/// A bound that was reached; anything beyond it was not searched.
#[derive(Clone, Copy, Debug, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Bound {
    /// Counted unit: `folders` or `levels`.
    pub unit: &'static str,
    /// Number that was allowed.
    pub limit: usize,
}

/// A whole audit.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Audit {
    /// The audited path, as it was given. May be hostile text.
    pub root: String,
    /// Relative reference from the place where the reader stands to the audited folder, with `/` at
    /// its end; empty if they are the same.
    #[serde(skip)]
    pub base: String,
    /// Whether flags block.
    pub strict: bool,
    /// The skills, in the order of their paths.
    pub skills: Vec<Audited>,
    /// Folders that `vault add --all` leaves out too, in the order of their paths. They are not
    /// judged by themselves.
    pub left_out: Vec<LeftOutFolder>,
    /// Folders that could not be searched, and those beyond a bound.
    pub skipped: Vec<Skipped>,
    /// Skills that were found and not judged, as the owner asked.
    pub excluded: Vec<Excluded>,
    /// Bounds that ended the audit.
    pub bounds: Vec<Bound>,
    /// Number of folders that were searched.
    pub folders: usize,
}

/// Number of skills by verdict.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Summary {
    /// All skills.
    pub skills: usize,
    /// Without warnings.
    pub accepted: usize,
    /// With warnings only.
    pub warnings: usize,
    /// Rejected.
    pub blocked: usize,
    /// Not completely read.
    pub unreadable: usize,
    /// Found and not judged, as the owner asked; not part of `skills`.
    pub excluded: usize,
    /// Found and left out, as `vault add --all` does; not part of `skills`.
    pub left_out: usize,
    /// Findings of all skills.
    pub findings: usize,
}

impl Audit {
    /// Counts the verdicts.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            skills: self.skills.len(),
            excluded: self.excluded.len(),
            left_out: self.left_out.len(),
            ..Summary::default()
        };
        for skill in &self.skills {
            summary.findings += skill.findings.len();
            *match skill.verdict {
                Verdict::Accepted => &mut summary.accepted,
                Verdict::Warnings => &mut summary.warnings,
                Verdict::Blocked => &mut summary.blocked,
                Verdict::Unreadable => &mut summary.unreadable,
            } += 1;
        }
        summary
    }

    /// Tells whether everything was judged: nothing was unreadable, and no bound was reached.
    pub fn is_complete(&self) -> bool {
        self.skipped.is_empty()
            && self.bounds.is_empty()
            && self
                .skills
                .iter()
                .all(|skill| skill.verdict != Verdict::Unreadable)
    }

    /// Returns the worst verdict of all skills.
    pub fn worst_verdict(&self) -> Verdict {
        let worst = self.skills.iter().map(|skill| skill.verdict).max();
        worst.unwrap_or(Verdict::Accepted)
    }

    /// Records for each skill an earlier one with the same bytes or nearly the same text, and warns
    /// about similar skills with different names. The work grows linearly with the number of
    /// skills.
    pub fn mark_duplicates(&mut self) {
        let mut first = HashMap::<Digest, String>::new();
        let mut similar = SketchIndex::default();
        // Path and name of the skills in `similar`, by their numbers there.
        let mut known = Vec::<(String, Option<String>)>::new();
        for skill in &mut self.skills {
            if let Some(hash) = skill.hash {
                if let Some(path) = first.get(&hash) {
                    skill.duplicate_of = Some(path.clone());
                    skill.likeness = Some(1.0);
                    continue;
                }
                // Exact copies of a skill do not get here, so `similar` has only the first of them.
                first.insert(hash, skill.path.clone());
            }
            let Some(sketch) = skill.sketch.clone() else {
                continue;
            };
            if let Some(nearest) = similar.find_similar(&sketch).first() {
                skill.mark_like(&known[nearest.number], nearest.likeness);
            }
            similar.add(sketch);
            known.push((skill.path.clone(), skill.name.clone()));
        }
    }
}

impl Audited {
    fn mark_like(&mut self, (path, name): &(String, Option<String>), likeness: f64) {
        if likeness >= similar::DUPLICATE {
            self.duplicate_of = Some(path.clone());
            self.likeness = Some(likeness);
        }
        // The same skill in two places is common and harmless; only a different name is worth a
        // warning.
        if self.name == *name {
            return;
        }
        let hint =
            "compare the two; keep one, or let each description say what only that skill is for";
        self.findings.push(Located {
            finding: similar::likeness_warning(path, likeness, hint),
            source: None,
        });
        self.verdict = self.verdict.max(Verdict::Warnings);
    }
}

/// Encodes a path as a relative reference of a URI: all bytes except unreserved characters and `/`
/// are percent-encoded.
pub fn percent_encoded(path: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod examples;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_references_byte_by_byte() {
        for (path, uri) in [
            (&b"a/b-c_d.~/SKILL.md"[..], "a/b-c_d.~/SKILL.md"),
            (b"a b", "a%20b"),
            (b"a:b?c#d%", "a%3Ab%3Fc%23d%25"),
            ("ü\n".as_bytes(), "%C3%BC%0A"),
            (b"\xff\xfe", "%FF%FE"),
        ] {
            assert_eq!(percent_encoded(path), uri);
        }
    }

    #[test]
    fn the_sum_counts_every_skill_once_and_the_worst_wins() {
        let audit = examples::audit();
        assert_eq!(
            audit.summary(),
            Summary {
                skills: 4,
                accepted: 1,
                warnings: 1,
                blocked: 1,
                unreadable: 1,
                excluded: 1,
                left_out: 1,
                findings: 4
            }
        );
        assert_eq!(audit.worst_verdict(), Verdict::Unreadable);
        assert!(!audit.is_complete());
    }

    #[test]
    fn the_same_bytes_are_told_once_and_by_the_first_path() {
        let mut audit = examples::audit();
        for (skill, byte) in audit.skills.iter_mut().zip([1_u8, 2, 1, 1]) {
            skill.hash = Some(Digest::of(&[byte]));
        }
        audit.skills[3].hash = None;
        audit.mark_duplicates();
        let told: Vec<_> = audit
            .skills
            .iter()
            .map(|skill| skill.duplicate_of.as_deref())
            .collect();
        assert_eq!(told, [None, None, Some("a"), None]);
        assert_eq!(audit.skills[2].likeness, Some(1.0));
    }

    #[test]
    fn near_copies_are_told_and_warned_of_under_another_name_only() {
        let text = |from: u32, to: u32| {
            let words = (from..to).map(|word| format!("word{word} "));
            words.collect::<Vec<_>>().concat()
        };
        let base = text(0, 800);
        // Name, text, then the likeness of the duplicate and the rule of the warning.
        let rows = [
            ("one", base.clone(), false, None),
            ("one", format!("{base}{}", text(5_000, 5_010)), true, None),
            (
                "two",
                format!("{base}{}", text(6_000, 6_010)),
                true,
                Some("duplicate"),
            ),
            (
                "two",
                format!("{base}{}", text(7_000, 7_150)),
                false,
                Some("alike"),
            ),
            ("three", text(9_000, 9_800), false, None),
        ];
        let mut audit = examples::audit();
        let clean = Audited {
            verdict: Verdict::Accepted,
            hash: None,
            findings: Vec::new(),
            ..audit.skills[0].clone()
        };
        audit.skills = rows
            .iter()
            .enumerate()
            .map(|(number, (name, text, ..))| Audited {
                path: format!("skill-{number}"),
                name: Some((*name).to_owned()),
                sketch: Some(Sketch::of([text.as_bytes()])),
                ..clean.clone()
            })
            .collect();
        audit.mark_duplicates();
        for (skill, (_, _, is_duplicate, rule)) in audit.skills.iter().zip(rows) {
            assert_eq!(skill.duplicate_of.is_some(), is_duplicate, "{skill:?}");
            assert_eq!(skill.likeness.is_some(), is_duplicate);
            let found = skill.findings.first().map(|at| at.finding.rule);
            assert_eq!(found, rule, "{skill:?}");
            let verdict = if rule.is_some() {
                Verdict::Warnings
            } else {
                Verdict::Accepted
            };
            assert_eq!(skill.verdict, verdict);
        }
        assert_eq!(audit.skills[1].duplicate_of.as_deref(), Some("skill-0"));
    }
}
