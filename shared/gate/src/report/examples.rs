//! An audit for tests, with hostile paths, names and lines, and with every verdict once.

use super::{Audit, Audited, Bound, Excerpt, Excluded, Located, Skipped, Verdict, percent_encoded};
use crate as gate;
use crate::finding::{Finding, Level, View, structure_rules};
use crate::skill_folders::{LeftOut, LeftOutReason};
use vault_format::hash::Digest;
use vault_format::text::Position;

/// A line with everything that a renderer might fail to escape.
pub const HOSTILE: &str =
    "\u{1b}[2J|`<img src=x onerror=1>` @owner #1 [x](http://evil.example) \u{202e}\\|\n";

fn skill(path: &str, verdict: Verdict, findings: Vec<Located>) -> Audited {
    Audited {
        path: path.to_owned(),
        uri: percent_encoded(path.as_bytes()),
        document: "SKILL.md".to_owned(),
        name: Some(path.to_owned()),
        verdict,
        hash: Some(Digest::of(path.as_bytes())),
        findings,
        accepted: Vec::new(),
        sketch: None,
        duplicate_of: None,
        likeness: None,
        microseconds: 7,
    }
}

fn structural(name: &str, level: Level, message: &str) -> Finding {
    let rule = structure_rules()
        .iter()
        .find(|rule| rule.name == name)
        .unwrap();
    Finding::of(rule, level, message)
}

/// The audit.
pub fn audit() -> Audit {
    let scanned = gate::scan_rules().next().unwrap();
    let flag = Finding::of(
        scanned,
        Level::Flag,
        "a download is piped into an interpreter",
    )
    .at("run me.sh")
    .on(Position::new(3, 2))
    .quoting(View::Decoded, HOSTILE)
    .hint("look at `it`; @nobody");
    let plain = |finding| Located {
        finding,
        source: None,
    };
    Audit {
        root: ".".to_owned(),
        base: String::new(),
        strict: true,
        skills: vec![
            skill("a", Verdict::Accepted, Vec::new()),
            skill(
                HOSTILE,
                Verdict::Blocked,
                vec![
                    Located {
                        source: Excerpt::of(&format!("\n\n{HOSTILE}"), 3, Some(2)),
                        finding: flag.clone(),
                    },
                    plain(flag),
                ],
            ),
            skill(
                "w",
                Verdict::Warnings,
                vec![plain(structural(
                    "description-short",
                    Level::Warning,
                    "the description has 3 characters",
                ))],
            ),
            Audited {
                hash: None,
                name: None,
                ..skill(
                    "z",
                    Verdict::Unreadable,
                    vec![plain(structural(
                        "file-unreadable",
                        Level::Error,
                        "opening SKILL.md failed",
                    ))],
                )
            },
        ],
        excluded: vec![Excluded {
            path: HOSTILE.to_owned(),
            by: "fixtures".to_owned(),
            reason: "input of a test".to_owned(),
        }],
        left_out: vec![
            LeftOut::new(HOSTILE, LeftOutReason::InsideSkill(HOSTILE.to_owned())).into(),
        ],
        skipped: vec![Skipped {
            path: "closed\u{1b}[1m".to_owned(),
            reason: "permission denied".to_owned(),
        }],
        bounds: vec![Bound {
            unit: "folders",
            limit: 2000,
        }],
        folders: 12,
    }
}
