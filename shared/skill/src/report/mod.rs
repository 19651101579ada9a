//! What an audit found, and the forms in which programs and other services read it.
//!
//! Pure: the texts of skills come in, text goes out. Every form holds hostile names and lines, so each escapes for its own
//! reader: [`json`] and [`sarif`] write what steers terminals as `\u` escapes, [`markdown`] lets no mark-up through,
//! [`Excerpt`] is a line that a terminal can show. The order is the caller's; nothing is sorted by time.

mod excerpt;
pub mod json;
pub mod markdown;
pub mod sarif;

pub use excerpt::{Excerpt, decode};

use crate::finding::{Finding, Level};
use crate::gate;
use crate::hash::Digest;
use crate::manifest::SKILL_MD;
use serde::Serialize;

/// How the audit of a skill ended; later ones weigh more.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing to say.
    Accepted,
    /// It would be admitted; there is something to say.
    Warnings,
    /// It would be refused.
    Blocked,
    /// Not all of it could be read, so nothing can be promised.
    Unreadable,
}

impl Verdict {
    /// The verdict that the gate's outcome stands for.
    pub const fn of(outcome: gate::Outcome) -> Self {
        match outcome {
            gate::Outcome::Accepted => Self::Accepted,
            gate::Outcome::AcceptedWithWarnings => Self::Warnings,
            gate::Outcome::Blocked => Self::Blocked,
        }
    }

    /// The word for it, in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Warnings => "warnings",
            Self::Blocked => "blocked",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A finding with the line of the text that it is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Located {
    /// What was found; its path is relative to the skill.
    pub finding: Finding,
    /// The line, where the finding has one and the file is text.
    pub source: Option<Excerpt>,
}

/// A skill that was audited.
#[derive(Clone, Debug)]
pub struct Audited {
    /// Its folder, below what was audited, joined by `/`; `.` for that itself. May be hostile text.
    pub path: String,
    /// The same as a relative reference of a URI: percent-encoded, empty for `.`.
    pub uri: String,
    /// The file that makes it a skill, as it is written: `SKILL.md` nearly always.
    pub document: String,
    /// Its name in the vault, or the author's where the vault would have none. May be hostile text.
    pub name: Option<String>,
    /// How it ended.
    pub verdict: Verdict,
    /// Hash over the paths and bytes that were read; absent where not all was.
    pub hash: Option<Digest>,
    /// What was found, what weighs most first.
    pub findings: Vec<Located>,
    /// The path of the first skill of this audit that has the same bytes.
    pub duplicate_of: Option<String>,
    /// Time for reading and judging it.
    pub microseconds: u64,
}

impl Audited {
    /// How many findings block.
    pub fn blocking(&self) -> usize {
        let blocks = |located: &&Located| located.finding.level > Level::Warning;
        self.findings.iter().filter(blocks).count()
    }

    /// The path of a finding below what was audited.
    pub fn path_of(&self, finding: &Finding) -> String {
        let file = self.file_of(finding);
        if self.path == "." {
            file.to_owned()
        } else {
            format!("{}/{file}", self.path.trim_end_matches('/'))
        }
    }

    /// The file of a finding, below the skill, as it is called on disk.
    fn file_of<'a>(&'a self, finding: &'a Finding) -> &'a str {
        match finding.path.as_str() {
            "" | SKILL_MD => &self.document,
            path => path,
        }
    }
}

/// A folder or link that was not looked into.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Skipped {
    /// Its path below what was audited. May be hostile text.
    pub path: String,
    /// Why, one sentence without a full stop.
    pub reason: String,
}

/// A bound that was reached: what lies beyond it was not looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Bound {
    /// What is counted: `folders` or `levels`.
    pub unit: &'static str,
    /// How many were allowed.
    pub limit: usize,
}

/// The whole of an audit.
#[derive(Clone, Debug)]
pub struct Audit {
    /// What was audited, as it was named. May be hostile text.
    pub root: String,
    /// Where it lies as seen from where the reader stands, as a relative reference with `/` at its end; empty for here.
    pub base: String,
    /// Whether flags block.
    pub strict: bool,
    /// The skills, in the order of their paths.
    pub skills: Vec<Audited>,
    /// What could not be looked into.
    pub skipped: Vec<Skipped>,
    /// Bounds that were reached.
    pub bounds: Vec<Bound>,
    /// Folders that were looked into.
    pub folders: usize,
}

/// How many skills ended how.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// All skills.
    pub skills: usize,
    /// Nothing to say.
    pub accepted: usize,
    /// With warnings only.
    pub warnings: usize,
    /// Refused.
    pub blocked: usize,
    /// Not wholly read.
    pub unreadable: usize,
    /// Findings of all skills.
    pub findings: usize,
}

impl Audit {
    /// Counts the verdicts.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            skills: self.skills.len(),
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

    /// Whether everything within the bounds was read.
    pub fn is_complete(&self) -> bool {
        self.skipped.is_empty()
            && self
                .skills
                .iter()
                .all(|skill| skill.verdict != Verdict::Unreadable)
    }

    /// What weighs most.
    pub fn worst(&self) -> Verdict {
        let worst = self.skills.iter().map(|skill| skill.verdict).max();
        worst.unwrap_or(Verdict::Accepted)
    }

    /// Notes of each skill which earlier one has the same bytes.
    pub fn mark_duplicates(&mut self) {
        let mut first = std::collections::HashMap::<Digest, String>::new();
        for skill in &mut self.skills {
            let Some(hash) = skill.hash else { continue };
            match first.get(&hash) {
                Some(path) => skill.duplicate_of = Some(path.clone()),
                None => {
                    first.insert(hash, skill.path.clone());
                }
            }
        }
    }
}

/// A path as a relative reference of a URI: what is not unreserved or `/` is percent-encoded, byte by byte.
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

/// Whether a character steers a terminal, turns the writing direction or is not seen.
fn is_deceptive(character: char) -> bool {
    crate::finding::is_hidden(character)
        || matches!(character, '\u{200B}'..='\u{200F}' | '\u{2028}' | '\u{2029}')
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
                findings: 4
            }
        );
        assert_eq!(audit.worst(), Verdict::Unreadable);
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
    }
}
